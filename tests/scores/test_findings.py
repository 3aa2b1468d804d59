"""What is found wrong with logs: one case for each problem, and none where nothing is wrong."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import annotate, read
from evalstats_plugin.data.responses import Group, Provenance, Responses, Source
from evalstats_plugin.data.runs import label_models
from evalstats_plugin.logs.annotating import strip
from evalstats_plugin.logs.reading import check
from evalstats_plugin.scores.findings import (
    PROBLEMS,
    find_problems,
    notes_on_differences,
)

N = 40
IDS = np.arange(N)
QUESTIONS = np.array([f"question {i}, é".encode() for i in IDS])
PROMPTS = np.array([f"prompt {i}".encode() for i in IDS])
RNG = np.random.default_rng(0)


def _responses(model: str = "a", **more: Any) -> Responses:
    known: dict[str, Any] = {
        "task": "t",
        "metric": "acc",
        "item_ids": IDS,
        "item_hashes": QUESTIONS,
        "scores": RNG.integers(0, 2, (N, 1)).astype(float),
        "source": Source(Path("logs") / model / "log.json", "h", when=f"2026-01-01 {model}"),
        "provenance": Provenance(task_version="1", prompt_hashes=PROMPTS, home=model),
    }
    return given_responses(**{"model": model, **known, **more})


def _with(r: Responses, **known: Any) -> Responses:
    return replace(r, provenance=replace(r.provenance, **known))


def _settings(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"settings": pairs}


A, B = _responses("a"), _responses("b")
LATER = Source(Path("logs/a/later.json"), "h", when="2026-01-02")
GROUP = Group("g", 0, "micro", 1, notes=("mismatch: its tasks say otherwise",))


@pytest.mark.parametrize(
    ("responses", "problem", "detail"),
    [
        ([A.measured(n_cut=10)], "incomplete", "40 of 50 items are there"),
        ([_with(A, is_altered=True)], "incomplete", "not those of the logged checksum"),
        ([replace(A, notes=("mismatch: 1 where 2",))], "contradiction", "acc: 1 where 2"),
        ([replace(A, groups=(GROUP,))], "contradiction", "its tasks say otherwise"),
        (
            [A, _responses(item_ids=IDS[:7], item_hashes=None, scores=A.scores[:7],
                           provenance=Provenance(), population=N, source=LATER)],
            "shadowed",
            "the last run has 7 of 40 items",
        ),
        (
            [A, replace(A, source=replace(A.source, path=Path("copies/log.json")))],
            "copy",
            "the same scores at the same time: t",
        ),
        (
            [A, replace(B, source=replace(B.source, path=Path("logs/a/b.json")))],
            "misplaced",
            "in the folder of a: move it to b",
        ),
        (
            [replace(_with(r, task_version=n), **_settings(("task.version", n)))
             for r, n in ((A, "1"), (B, "2"))],
            "versions",
            "version 1: a; 2: b",
        ),
        (
            [replace(A, **_settings(("task.num_fewshot", "0"))),
             replace(B, **_settings(("task.num_fewshot", "5")))],
            "settings",
            "num fewshot 0: a; 5: b",
        ),
        # Of two harnesses, each model beside those of its own.
        (
            [replace(A, **_settings(("task.num_fewshot", "0"))),
             _responses("c", source=Source(Path("logs/c/log.json"), "other")),
             replace(B, **_settings(("task.num_fewshot", "5")))],
            "settings",
            "num fewshot 0: a; 5: b",
        ),
        (
            [A, replace(B, **_settings(("chat_template", "9f3a")))],
            "settings",
            "chat template its own: b; none: a",
        ),
        (
            [A, replace(B, scores=np.tile(B.scores, (1, 3)))],
            "settings",
            "epochs 1: a; 3: b",
        ),
        (
            [A, B.measured(population=100)],
            "settings",
            "limit 40 of 100 items: b; all items: a",
        ),
        ([A, replace(B, item_hashes=QUESTIONS[::-1])], "questions", "questions of b differ"),
        # Of the last items alone.
        (
            [A, _responses("b", item_ids=IDS[30:], item_hashes=QUESTIONS[:10],
                           scores=B.scores[30:], provenance=Provenance())],
            "questions",
            "questions of b differ from those of a",
        ),
        # By the metric of most items, in whatever order.
        (
            [B.of_items(IDS[:10]).measured(metric="other"), A,
             replace(B, item_hashes=np.append(QUESTIONS[:30], QUESTIONS[:10]))],
            "questions",
            "questions of a differ from those of b",
        ),
        ([A, _with(B, prompt_hashes=PROMPTS[::-1])], "prompts", "prompts of b differ"),
        # Of settings those of the task alone make other prompts.
        (
            [replace(A, **_settings(("temperature", "0"))),
             _with(replace(B, **_settings(("temperature", "1"))), prompt_hashes=PROMPTS[::-1])],
            "prompts",
            "prompts of b differ",
        ),
        (
            [_responses(item_ids=IDS[:0], scores=np.empty((0, 1)), item_hashes=None,
                        provenance=Provenance(), notes=("its file is empty",))],
            "unscored",
            "acc: no item and no value (its file is empty)",
        ),
    ],
)  # fmt: skip
def test_each_problem_is_found_alone(responses: list[Responses], problem: str, detail: str) -> None:
    """One finding, of this problem, that says what it is about."""
    (found,) = find_problems(responses)

    assert found.problem == problem
    assert detail in found.detail
    assert found.logs


def test_other_settings_have_other_prompts_and_one_finding() -> None:
    """Few shots in one run and none in the other are no second problem of the prompts."""
    few, none = (
        _with(replace(r, **_settings(("task.num_fewshot", n))), prompt_hashes=prompts)
        for r, n, prompts in ((A, "5", PROMPTS), (B, "0", PROMPTS[::-1]))
    )

    assert ["settings"] == [found.problem for found in find_problems([few, none])]


@pytest.mark.parametrize(
    "responses",
    [
        [A, B],
        # Every model has its own chat template, and so its own prompts.
        [
            _with(replace(r, **_settings(("chat_template", r.model))), prompt_hashes=prompts)
            for r, prompts in ((A, PROMPTS), (B, PROMPTS[::-1]))
        ],
        # The same items in another order.
        [A, _with(_responses("b", item_ids=IDS[::-1], item_hashes=QUESTIONS[::-1]),
                  prompt_hashes=PROMPTS[::-1])],
        # No item in common; a value without items.
        [A, _responses("b", item_ids=IDS + 100, item_hashes=QUESTIONS[::-1])],
        [_responses(item_ids=IDS[:0], scores=np.empty((0, 1)), item_hashes=None, logged=0.5)],
        # A full run replaces another.
        [A, replace(A, source=LATER)],
        # Each harness numbers the versions of its tasks.
        [A, _with(replace(B, source=replace(B.source, harness="other")), task_version="0")],
        # Each harness has its settings, and its own way to make hashes.
        [
            replace(r, source=replace(r.source, harness=r.model), item_hashes=np.char.add(
                f"{r.model}:", IDS.astype(str)), **_settings(("task.shots", r.model)))
            for r in (A, B)
        ],
        # Nothing is known of where they come from.
        [replace(A, provenance=Provenance()), replace(B, provenance=Provenance())],
        # The folder was copied.
        [replace(A, source=replace(A.source, path=Path("elsewhere/log.json")))],
    ],
)  # fmt: skip
def test_nothing_is_found_where_nothing_is_wrong(responses: list[Responses]) -> None:
    """Each of these looks like a problem to a simpler check."""
    assert find_problems(label_models(responses)) == []


def _noted(r: Responses, *, annotated: bool | None) -> Responses:
    return replace(r, source=replace(r.source, is_annotated=annotated))


def test_logs_of_which_only_some_are_annotated_are_named() -> None:
    """A table, which has no place for an annotation, is no exception."""
    table = _noted(_responses("c"), annotated=None)
    responses = [_noted(A, annotated=True), _noted(B, annotated=False), table]

    (found,) = find_problems(responses)

    assert (found.problem, found.logs) == ("annotated", (str(B.source.path),))
    assert "1 of 2 are" in found.detail
    assert notes_on_differences(responses) == [
        "some logs here are annotated and some are not (`evalstats-plugin check` says which)"
    ]
    for annotated in (True, False):
        assert find_problems([_noted(r, annotated=annotated) for r in (A, B)]) == []


LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


@pytest.mark.parametrize(
    "pattern",
    [
        "lm_eval/0.4.13/out/*/results*.json",
        pytest.param(
            "inspect_ai/0.3.285/models/*.eval",
            marks=pytest.mark.needs("inspect_ai>=0.3.285"),
        ),
        "every_eval_ever/0.3.0/exported/**/*.json",
    ],
)
def test_every_harness_tells_whether_a_log_is_annotated(pattern: str, tmp_path: Path) -> None:
    """As an annotation of two logs leaves them that was interrupted after the first."""
    said = "some logs here are annotated and some are not"
    logs = sorted(LOGS.glob(pattern))[:2]
    for beside in (path for log in logs for path in log.parent.glob(f"{log.stem}*")):
        shutil.copy(beside, tmp_path)
    first, second = (tmp_path / log.name for log in logs)

    seen: list[bool] = []
    changes = ((annotate, None), (annotate, first), (annotate, second), (strip, first))
    for change, log in changes:
        if log is not None:
            change(log, in_place=True)
        found = read(tmp_path, include_incomplete=True)
        seen.append(any(said in note for note in found.notes))
        assert ("annotated" in [f.problem for f in check(tmp_path)]) == seen[-1]

    assert seen == [False, True, False, True]


def _without(r: Responses, items: slice) -> Responses:
    scores = r.scores.copy()
    scores[items] = np.nan
    return replace(r, scores=scores)


def test_unscored_items_are_compared_with_what_others_find_hard() -> None:
    """Others fail on the first ten items: to leave these out is no accident."""
    others = [_responses(name, scores=np.where(IDS < 10, 0.0, 1.0)[:, None]) for name in ("b", "c")]

    (hard,) = find_problems([_without(A, slice(10)), *others])
    (spread,) = find_problems([_without(A, slice(0, None, 4)), *others])

    assert hard.detail == (
        "acc: 10 of 40 items; other models score 0.000 on them and 1.000 on the rest: "
        "not a random part"
    )
    assert spread.detail.endswith(
        "score 0.700 on them and 0.767 on the rest: perhaps a random part"
    )
    assert (hard.problem, hard.models) == ("unscored", ("a",))
    # Most of the items: what is left of them varies less than items drawn with replacement.
    other = _responses("b", scores=~np.isin(IDS, [0, 1, 2, *range(30, 35)])[:, None] * 1.0)
    (most,) = find_problems([_without(A, slice(30)), other])
    assert most.detail.endswith("0.900 on them and 0.500 on the rest: not a random part")
    backwards = [o.of_items(IDS[::-1]) for o in others]
    assert hard == find_problems([_without(A, slice(10)), *backwards])[0]
    # Nobody tells of items that all lack.
    found, *_ = find_problems([_without(r, slice(10)) for r in (A, *others)])
    assert (found.detail, found.models) == ("acc: 10 of 40 items", ("a", "b", "c"))
    # Models that lack items themselves tell of the rest.
    few, *_ = find_problems([_without(A, slice(10)), *(_without(o, slice(9, 11)) for o in others)])
    assert few.detail.endswith("0.000 on them and 1.000 on the rest: not a random part")


def test_a_random_part_is_rarely_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 1 % of random subsets, as the threshold says, here of one fixed difficulty.

    Items that are exactly as hard as the rest never are.
    """
    rng = np.random.default_rng(1)
    other = _responses("b", scores=rng.random((N, 1)))
    alarms = 0
    for _ in range(500):
        scores = A.scores.copy()
        scores[rng.choice(N, 8, replace=False)] = np.nan
        (found,) = find_problems([replace(A, scores=scores), other])
        alarms += "not a random part" in found.detail

    assert alarms <= 12  # 5 are expected; more than 12 in 1 of 500 times
    monkeypatch.setattr("evalstats_plugin.scores.findings._UNLIKELY", 1.0)
    (found,) = find_problems([_without(A, slice(4)), replace(other, scores=IDS[:, None] % 2 * 1.0)])
    assert found.detail.endswith("0.500 on them and 0.500 on the rest: perhaps a random part")


def test_problems_are_listed_in_one_order() -> None:
    """Tables are grouped by problem."""
    wrong = [
        _without(_with(B.measured(n_cut=1), task_version="2"), slice(3)),
        replace(A, notes=("mismatch: 1 where 2",)),
    ]
    found = [finding.problem for finding in find_problems(wrong)]

    assert found == ["incomplete", "contradiction", "versions", "unscored"]
    assert found == sorted(found, key=list(PROBLEMS).index)


def test_what_makes_models_incomparable_is_noted() -> None:
    """One note for each problem, with the tasks it is about."""
    pairs = [
        r.measured(task=task)
        for task in ("t", "u")
        for r in (A, _with(B, prompt_hashes=PROMPTS[::-1]))
    ]

    assert notes_on_differences(pairs) == [
        "models were asked the same questions in different words (`evalstats-plugin check` says "
        "which): t, u"
    ]
    assert notes_on_differences([A, B]) == []
