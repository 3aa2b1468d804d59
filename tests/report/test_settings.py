"""Settings of runs: what differs between the models of a task, first and in the warning colour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin.comparisons.leaderboard import table
from evalstats_plugin.data.responses import Provenance, Responses, Source
from evalstats_plugin.report.html.page import Page, to_html
from evalstats_plugin.report.paper.methods import Evaluation, methods_markdown
from evalstats_plugin.report.settings import settings_of
from evalstats_plugin.scores.intervals import intervals

NAMES = ("task.shots", "task.limit", "temperature", "revision", "chat_template")


def _drawn(rng: np.random.Generator) -> list[Responses]:
    """Draw models on tasks, with settings of few values, some of which are missing."""
    responses: list[Responses] = []
    for task in range(int(rng.integers(1, 5))):
        for model in range(int(rng.integers(1, 5))):
            settings = [(n, str(rng.integers(0, 2))) for n in NAMES if rng.random() < 0.7]
            source = Source(
                Path("log"), rng.choice(["a", "b"], p=[0.9, 0.1]), "1", f"2026-01-0{model + 1}T00"
            )
            responses.append(
                given_responses(
                    model=f"m{model}", task=f"t{task}", source=source, settings=tuple(settings),
                    item_ids=np.arange(3), scores=np.zeros((3, 1)),
                    provenance=Provenance(task_version=str(rng.integers(0, 2))),
                )
            )  # fmt: skip
    return responses


def _expected(responses: list[Responses]) -> dict[tuple[str, str], dict[str, str]]:
    """Return by task and setting each model's value, in the plainest way."""
    values: dict[tuple[str, str], dict[str, str]] = {}
    for r in responses:
        of_run = {"harness": f"{r.source.harness} 1", "task version": r.provenance.task_version}
        of_run |= {name.removeprefix("task."): value for name, value in r.settings}
        for name, value in {**of_run, "run on": r.source.when[:10]}.items():
            values.setdefault((r.task, name), {})[r.model] = value
    for (task, _), own in values.items():
        of_task = [r for r in responses if r.task == task]
        if len({r.source.harness for r in of_task}) == 1:
            for r in of_task:
                own.setdefault(r.model, "not logged")
    return values


@pytest.mark.parametrize("seed", range(60))
def test_every_models_value_is_listed_and_what_may_matter_is_first(seed: int) -> None:
    """Of runs drawn at random, against a list made without grouping."""
    responses = _drawn(np.random.default_rng(seed))
    n_tasks = len({r.task for r in responses})
    listed: dict[tuple[str, str], dict[str, str]] = {}
    settings = settings_of(responses)
    for one in settings:
        tasks = [f"t{k}" for k in range(n_tasks)] if one.tasks == "all tasks" else one.tasks
        for task in tasks if isinstance(tasks, list) else tasks.split(", "):
            if one.is_common:
                everyone = [r.model for r in responses if r.task == task]
                told = [m for m in everyone if m in _expected(responses)[task, one.name]]
                listed[task, one.name] = dict.fromkeys(told, next(iter(one.models)))
            else:
                listed[task, one.name] = {m: v for v, own in one.models.items() for m in own}
    order = [(not one.may_matter, one.is_common) for one in settings]
    own = {"run on", "revision", "chat_template"}
    matter = {(one.name not in own and not one.is_common) == one.may_matter for one in settings}

    assert listed == _expected(responses)
    assert order == sorted(order)
    assert matter == {True}


def _with_prompts(model: str, items: list[int], prompts: list[str]) -> Responses:
    return given_responses(
        model=model, item_ids=np.array(items), scores=np.zeros((len(items), 1)),
        source=Source(Path("log"), "a"),
        provenance=Provenance(prompt_hashes=np.array(prompts)),
    )  # fmt: skip


def test_prompts_are_compared_on_the_items_that_all_models_have() -> None:
    """Neither their order nor further items make them others; one other prompt does."""
    first = _with_prompts("a", [0, 1, 2], ["x", "y", "z"])
    same = _with_prompts("b", [3, 2, 1], ["w", "z", "y"])
    other = _with_prompts("c", [2, 1], ["z", "Y"])
    [alike] = [s for s in settings_of([first, same]) if s.name == "prompts (hash)"]
    [apart] = [s for s in settings_of([first, same, other]) if s.name == "prompts (hash)"]
    templates = [replace(r, settings=(("chat_template", r.model),)) for r in (first, other)]
    [explained] = [s for s in settings_of(templates) if s.name == "prompts (hash)"]

    assert (alike.is_common, alike.may_matter) == (True, False)
    assert list(apart.models.values()) == [["a", "b"], ["c"]]
    assert apart.may_matter
    # Prompts that go through each model's own template differ.
    assert (explained.is_common, explained.may_matter) == (False, False)


def test_page_and_paper_say_what_differs_and_escape_it() -> None:
    """The page says so among what to distrust, and its rows stand out; values do nothing."""
    rng = np.random.default_rng(0)
    hostile = "<script>hit()</script>"
    responses = [
        given_responses(
            model=model, item_ids=np.arange(40), scores=rng.integers(0, 2, (40, 1)) * 1.0,
            source=Source(Path("log"), "a"), settings=(("task.shots", shots), ("dtype", "f16")),
        )
        for model, shots in (("one", "0"), ("two", hostile))
    ]  # fmt: skip
    board = table(responses, rng=0)
    html = to_html(Page(responses=responses, intervals=intervals(responses, rng=0), table=board))
    paper = methods_markdown(Evaluation(board, tuple(responses), None, percent=False, digits=None))
    alike = to_html(Page(responses=responses[:1], intervals=intervals(responses[:1], rng=0)))

    assert "<summary>Models were not run alike.</summary><p>They differ in shots:" in html
    assert "not run alike" not in alike
    assert html.index('<th class="strong" scope="row">all tasks') < html.index("<td>dtype</td>")
    assert hostile not in html
    assert "**1 setting differs between" in paper
    assert "<script>" not in paper
