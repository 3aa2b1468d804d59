"""`check_adapter`: a reader by the guide passes, each broken rule is named, ours keep them all.

Those whose logs are fixtures are tried by `test_contract`, on each version of their harness.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.testing import check_adapter

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "fixtures" / "logs"
GUIDE = (ROOT / "docs" / "reference" / "plugins.md").read_text()
Read = Callable[..., Any]


def _guided() -> str:
    """Return the adapter that the guide shows."""
    found = re.search(r"```python\n(# my_adapter\.py.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def adapter() -> ModuleType:
    """The adapter of the guide, as a module."""
    module = ModuleType("my_adapter")
    exec(_guided(), module.__dict__)  # noqa: S102 - our own page
    return module


@pytest.fixture
def log(tmp_path: Path) -> Path:
    run = {"format": "mybench", "model": "m", "task": "sums", "scores": {"a": 1, "b": 0, "c": 1}}
    file = tmp_path / "run.json"
    file.write_text(json.dumps(run).replace('"format": "mybench"', '"mybench": 1'))
    return file


def test_the_adapter_of_the_guide_keeps_the_contract(adapter: ModuleType, log: Path) -> None:
    """In thirty lines at most."""
    lines = [line for line in _guided().splitlines() if line.strip()]

    assert len(lines) <= 30
    check_adapter(log, adapter)


def _changed(adapter: ModuleType, change: Callable[[list[es.Responses], Any], Any]) -> None:
    """Let the adapter return something else."""
    own: Read = adapter.evalstats_read_log

    @es.hookimpl
    def evalstats_read_log(log: Any, selection: Any) -> Any:
        found = own(log, selection)
        return found and change(list(found), selection)

    adapter.evalstats_read_log = evalstats_read_log  # type: ignore[attr-defined]


def _again(r: es.Responses) -> es.Responses:
    return replace(r, item_ids=np.array(["a", "b", "a"]))


def _random(found: list[es.Responses], _: Any) -> Any:
    return [replace(r, scores=np.random.default_rng().random(r.scores.shape)) for r in found]


RULES: Mapping[str, tuple[Callable[[list[es.Responses], Any], Any], str]] = {
    "unique": (lambda f, _: [_again(r) for r in f], "item 'a' is there twice"),
    "scale": (
        lambda f, _: [r.measured(scale=es.Scale(0, 0.5)) for r in f],
        "scores from 0 to 1 leave the scale 0 to 0.5",
    ),
    "logged": (
        lambda f, _: [replace(r, logged=0.5) for r in f],
        "the log says 0.5, the items give 0.666667",
    ),
    "again": (_random, "reading the log again gives something else"),
    "selection": (
        lambda f, _: [*f, f[0].measured(task="other")],
        "a selection of {'tasks': ('sums',)} is not kept",
    ),
    "header": (
        lambda f, selection: [] if selection.header_only else f,
        "header_only leaves out sums accuracy",
    ),
    "names": (lambda f, _: [replace(r, model="") for r in f], "the model has no name"),
    "source": (
        lambda f, _: [replace(r, source=es.Source(path=Path("x"), harness="")) for r in f],
        "the source names no harness",
    ),
    "types": (lambda f, _: [vars(r) for r in f], "returned [{"),
    "fields": (lambda f, _: [replace(r, settings=None) for r in f], "with lists for settings"),
    "one note": (lambda f, _: [replace(r, notes="x") for r in f], "with lists for settings"),
    "nothing": (lambda _, __: None, "returned None: it is taken for another's"),
    "no scores": (
        lambda f, _: [replace(r, scores=np.full((3, 1), np.nan)) for r in f],
        "there is no score and no logged value",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_that_is_broken_is_named(rule: str, adapter: ModuleType, log: Path) -> None:
    change, message = RULES[rule]
    _changed(adapter, change)

    with pytest.raises(AssertionError, match=re.escape(message)) as raised:
        check_adapter(log, adapter, n_broken=0)
    assert str(raised.value).startswith(f"{log} breaks the contract of adapters:\n- ")


def test_a_broken_log_must_not_end_in_a_traceback(log: Path) -> None:
    """The message says what was broken, and how it should be said."""
    fragile = ModuleType("fragile")
    source = _guided().replace("with reporting_damage(log.path):", "if True:")
    exec(source, fragile.__dict__)  # noqa: S102 - our own page

    with pytest.raises(AssertionError, match=r"a log cut off at 70 %: .*JSONDecodeError"):
        check_adapter(log, fragile)
    with pytest.raises(AssertionError, match=r"Raise LogError, which says what is wrong and where"):
        check_adapter(log, fragile)


def test_an_adapter_that_takes_logs_of_others_is_named(adapter: ModuleType) -> None:
    """The log is then of two adapters."""

    @es.hookimpl
    def evalstats_find_logs(files: Any) -> Any:
        return {file.path: [] for file in files}

    adapter.evalstats_find_logs = evalstats_find_logs  # type: ignore[attr-defined]
    module, theirs = ModuleType("greedy"), next((LOGS / "lm_eval").rglob("results_*.json"))
    module.evalstats_find_logs = evalstats_find_logs  # type: ignore[attr-defined]
    module.evalstats_read_log = es.hookimpl(lambda log, selection: [])  # type: ignore[attr-defined]  # noqa: ARG005
    from evalstats_plugin import testing

    check = testing._Check(testing._with(module), "lm_eval", theirs)
    testing._found(check)
    assert check.problems == [
        "adapter takes it for its own (evalstats_find_logs)",
        "adapter reads it too (evalstats_read_log)",
    ]


def _tests_of(adapter: str) -> ModuleType:
    """Return the module that writes logs of a harness."""
    path = Path(__file__).parent / "adapters" / adapter / "test_reader.py"
    spec = spec_from_file_location(f"logs_of_{adapter}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("n_broken", [6, pytest.param(20, marks=pytest.mark.validation)])
def test_the_adapter_of_helm_keeps_the_contract(tmp_path: Path, n_broken: int) -> None:
    run = _tests_of("helm").run.__wrapped__(tmp_path)

    check_adapter(run / "per_instance_stats.json", n_broken=n_broken)


def test_the_adapter_of_lighteval_keeps_the_contract(tmp_path: Path) -> None:
    lighteval = _tests_of("lighteval")

    check_adapter(lighteval._run(tmp_path, "structs"), n_broken=6)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_the_adapter_of_tables_keeps_the_contract(tmp_path: Path, form: str) -> None:
    scores = np.random.default_rng(0).random((2, 12)).round(2)
    matrix = es.ResponseMatrix.from_array(scores)
    (written,) = es.export(matrix, tmp_path / f"scores.{form}").paths

    check_adapter(written, n_broken=6)
