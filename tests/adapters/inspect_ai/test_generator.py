"""`adapters.inspect_ai.generator`: a model of Inspect as a judge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from evalstats_plugin.errors import PluginError, SelectionError
from evalstats_plugin.plugins import load_plugins

models: Any = pytest.importorskip("inspect_ai.model")


def _mock(monkeypatch: pytest.MonkeyPatch, reply: Any) -> None:
    """Let Inspect's own mock model give replies, with their usage so that nothing is counted."""
    real = models.get_model

    def outputs(*_: Any) -> Any:
        if isinstance(reply, Exception):
            raise reply
        output = models.ModelOutput.from_content("mockllm/model", reply)
        output.usage = models.ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    def get_model(name: str) -> Any:
        return real(name, custom_outputs=outputs)

    monkeypatch.setattr(models, "get_model", get_model)


def test_a_model_replies_from_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as it is asked, on Inspect's own mock model."""
    _mock(monkeypatch, "Fine. [[A]]")
    generate = load_plugins().call("evalstats_generator", model="mockllm/model")
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(generate, ["which?"] * 8))

    assert ["Fine. [[A]]"] * 8 == replies


def test_a_model_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One error that names it."""
    _mock(monkeypatch, RuntimeError("no quota"))
    generate = load_plugins().call("evalstats_generator", model="mockllm/model")

    with pytest.raises(PluginError, match="'mockllm/model' did not answer: RuntimeError: no quota"):
        generate("which?")


def test_models_that_inspect_does_not_know_are_left_to_others() -> None:
    """None, not an error."""
    assert load_plugins().call("evalstats_generator", model="nobody/knows") is None
    assert load_plugins().call("evalstats_generator", model="no-provider") is None


def test_a_model_that_lacks_something_says_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a package or a key."""

    def get_model(_: str) -> Any:
        raise RuntimeError("[bold]pip install\x1b openai[/bold]")

    monkeypatch.setattr(models, "get_model", get_model)

    with pytest.raises(SelectionError, match=r"cannot ask the model 'openai/x': .*pip install"):
        load_plugins().call("evalstats_generator", model="openai/x")
