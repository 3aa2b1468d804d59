"""Comparisons, ranks and fits over several logs, and what of them concerns each log."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import Measure, ResponseMatrix
from evalstats_plugin.comparisons import rank_sets
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.answers import scored_part
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.rows import abilities
from evalstats_plugin.logs import together


def _found(n_models: int = 4) -> dict[str, list[object]]:
    rng = np.random.default_rng(0)
    matrix = ResponseMatrix.from_array(
        rng.random((n_models, 40)) < np.linspace(0.2, 0.9, n_models)[:, None]
    )
    return {r.model: [r] for r in matrix.to_responses()}


def test_each_log_has_its_own_comparisons_and_everyones_ranks() -> None:
    """Against the first; ranks as `rank_sets` gives them."""
    found = _found()
    crossed = together.Crossed(found, None)  # pyright: ignore[reportArgumentType]
    ranks = rank_sets([r for each in found.values() for r in each], rng=0)  # pyright: ignore[reportArgumentType]

    assert ranks.rows == crossed.ranks_of_log("model_2").rows  # pyright: ignore[reportOptionalMemberAccess]
    (row,) = crossed.of_log("model_2").rows  # pyright: ignore[reportOptionalMemberAccess]
    assert ("model_0", "model_2") == (row.model_a, row.model_b)


def test_too_many_models_are_compared_but_not_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that is said."""
    monkeypatch.setattr(together, "MOST_RANKED", 3)
    crossed = together.Crossed(_found(), "best")  # pyright: ignore[reportArgumentType]

    assert crossed.ranks is None
    assert {"model_3"} == {row.model_a for row in crossed.comparisons or ()}
    assert any("more than 3 models: no ranks" in n for n in crossed.comparisons.notes)  # pyright: ignore[reportOptionalMemberAccess]


def test_outcomes_are_against_the_baseline_alone() -> None:
    """Item by item; of the baseline itself there are none."""
    found = _found()
    crossed = together.Crossed(found, "model_1")  # pyright: ignore[reportArgumentType]
    scores = {m: own[0].scores[:, 0] for m, own in found.items()}  # pyright: ignore[reportAttributeAccessIssue]
    ids = found["model_0"][0].item_ids.astype(str)  # pyright: ignore[reportAttributeAccessIssue]

    assert crossed.baseline == "model_1"
    assert crossed.outcomes_of_log("model_1") == {}
    outcomes = crossed.outcomes_of_log("model_3")
    for item, mine, theirs in zip(ids, scores["model_3"], scores["model_1"], strict=True):
        word = "won" if mine > theirs else "lost" if mine < theirs else "tied"
        assert list(outcomes[item].values()) == [word]
    assert together.Crossed({"m": found["model_0"]}, None).comparisons is None  # pyright: ignore[reportArgumentType]


def test_rows_over_tasks_belong_to_each_of_their_logs() -> None:
    """Those of one task to the logs that hold it; an older run is left out."""
    rng = np.random.default_rng(0)
    matrix = ResponseMatrix.from_array(rng.random((3, 40)) < 0.6, tasks=["t"] * 20 + ["u"] * 20)
    by_log = {f"{r.model}-{r.task}": [r] for r in matrix.to_responses()}
    crossed = together.Crossed(by_log, None, design="tasks")  # pyright: ignore[reportArgumentType]
    plain = together.Crossed(by_log, None)  # pyright: ignore[reportArgumentType]

    rows = crossed.of_log("model_2-t").rows  # pyright: ignore[reportOptionalMemberAccess]
    assert {row.kind for row in rows} == {"group", "tasks"}
    assert {(row.model_a, row.model_b) for row in rows} == {("model_0", "model_2")}
    own = [row for row in plain.of_log("model_2-t").rows if row.kind == "task"]  # pyright: ignore[reportOptionalMemberAccess]
    assert [(row.model_b, row.task) for row in own] == [("model_2", "t")]
    of_baseline = plain.of_log("model_0-u").rows  # pyright: ignore[reportOptionalMemberAccess]
    assert {(r.model_b, r.task) for r in of_baseline if r.kind == "task"} == {
        ("model_1", "u"), ("model_2", "u")
    }  # fmt: skip
    ranks = plain.ranks_of_log("model_0-u").rows  # pyright: ignore[reportOptionalMemberAccess]
    assert {row.task for row in ranks} == {"u"}


def _logs() -> dict[str, list[Responses]]:
    """Return five logs of two tasks; "old" is of a run that "a" replaces, "b" has one metric."""
    rng = np.random.default_rng(1)
    tasks = {"t": ("acc,none", "f1,none"), "u": ("acc,none",)}

    def log(model: str, when: str = "2", *left_out: str) -> list[Responses]:
        source = Source(path=Path(f"{model}{when}"), harness="toy", when=when)
        return [
            Responses(
                model=model, measure=Measure(task=task, metric=metric), source=source,
                item_ids=np.arange(12), scores=(rng.random((12, 1)) < 0.6).astype(float),
            )
            for task, metrics in tasks.items()
            for metric in metrics
            if metric not in left_out
        ]  # fmt: skip

    return {
        "old": log("a", "1"), "a": log("a"), "b": log("b", "2", "f1,none"), "c": log("c"),
        "d": log("d"),
    }  # fmt: skip


def _places(under: Any) -> list[tuple[str, str]]:
    return [(r.model, r.task) for r in under]


def test_fits_are_by_metric_and_each_log_has_those_of_its_own() -> None:
    """What cannot be fitted is said; a run that a later one replaces is in no fit."""
    logs = _logs()

    def fit(under: Any) -> Any:
        if len({r.model for r in under}) < 4:
            raise DesignError("too few")
        return _places(under)

    fits = together.MetricFits(logs, fit, nothing="none at all", missing="no fit")

    assert fits.by_metric == {"acc": [(m, t) for m in "abcd" for t in "tu"]}
    assert "no fit on f1: too few" in fits.notes
    assert any("old" in str(note) or "a1" in str(note) or "run" in note for note in fits.notes)
    assert [len(fits.of_log(name)[0]) for name in ("old", "a", "b")] == [0, 3, 2]
    assert [list(fits.of_log(name)[1]) for name in ("old", "a", "b")] == [[], ["acc"], ["acc"]]
    assert fits.notes_on("ability", {"acc": ("x", "y")}) == (
        "ability on acc: x", "ability on acc: y", *fits.notes
    )  # fmt: skip
    assert fits.prefixes(frozenset("tu")) == {
        "acc": "evalstats_acc,none_", "f1": "evalstats_f1,none_"
    }  # fmt: skip
    assert fits.prefixes(frozenset("u")) == {"acc": "evalstats_"}
    of_f1 = {name: [r for r in own if r.metric[0] == "f"] for name, own in logs.items()}
    with pytest.raises(DesignError, match="none at all: f1: too few"):
        together.MetricFits(of_f1, fit, nothing="none at all", missing="no fit")
    with pytest.raises(DesignError, match="none at all: no log holds scores of items"):
        together.MetricFits({"a": []}, fit, nothing="none at all", missing="no fit")


def test_abilities_of_a_log_are_those_of_one_fit_a_metric() -> None:
    """Over all tasks and the last run of each model; items of a log's tasks have their numbers."""
    logs = _logs()
    crossed = together.CrossedAbilities(logs, confidence_level=0.8, items=True)
    expected: dict[str, Any] = {}
    for metric in ("acc", "f1"):
        kept = [replace(r) for name in "abcd" for r in logs[name] if r.metric == f"{metric},none"]
        matrix = scored_part(ResponseSet(tuple(kept)).matrix())
        fit = fit_irt(matrix, rng=0)
        expected[metric] = abilities(fit, matrix, confidence_level=0.8, items=True)

    own = crossed.of_log("c")
    assert own.rows == tuple(row for each in expected.values() for row in each if row.model == "c")
    assert [row.metric for row in crossed.of_log("b")] == ["acc"]
    assert own.items == tuple(item for each in expected.values() for item in each.flagged)
    assert {item.metric for item in crossed.of_log("b").items} <= {"acc"}
    assert crossed.of_log("old").rows == ()
    written = crossed.of_items(frozenset("u"))
    for item in (item for item in expected["acc"].items if item.task == "u"):
        numbers = {"difficulty": item.difficulty, "discrimination": item.discrimination}
        told = {k: v for k, v in numbers.items() if v is not None}
        told |= {"suspect": "; ".join(item.notes)} if item.notes else {}
        assert written[item.item] == {f"evalstats_{k}": v for k, v in told.items()}
    assert len(written) == 12


def test_pooled_scores_and_capabilities_of_a_log_are_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On its tasks, and over all tasks on the metrics that it has."""
    logs = _logs()

    class _Fit(tuple[Any, ...]):
        reason, notes = "why", ("note",)

    def pooled(under: Any, **_: object) -> Any:
        places = [*_places(under), *((m, None) for m in dict(_places(under)))]
        return _Fit(SimpleNamespace(model=model, task=task) for model, task in places)

    def capabilities(matrix: ResponseMatrix, **_: object) -> Any:
        models = matrix.models
        names = (*zip(matrix.tasks, matrix.item_ids, strict=True),)
        return SimpleNamespace(
            notes=("one",), rows=[SimpleNamespace(capability=2)],
            levels=lambda m, metric: [(m, metric)] * (m in models),
            fit=SimpleNamespace(
                tasks=[t for t, _ in names], item_ids=[i for _, i in names],
                code=np.arange(2.0 * len(names)).reshape(-1, 2),
            ),
        )  # fmt: skip

    monkeypatch.setattr(together, "need_torch", lambda _: None)
    monkeypatch.setattr(together, "pool", pooled)
    made = SimpleNamespace(find_capabilities=capabilities)
    monkeypatch.setitem(sys.modules, "evalstats_plugin.hierarchical.capabilities", made)
    logs["u"] = [replace(r, model="e") for r in logs["c"] if r.task == "u"]
    crossed, needs = together.CrossedScores(logs), together.CrossedCapabilities(logs)

    own = [(row.model, row.task) for row in crossed.of_log("a")]
    assert own == [("a", "t"), ("a", "u"), ("a", None), ("a", "t"), ("a", None)]
    assert [(r.model, r.task) for r in crossed.of_log("u")] == [("e", "u"), ("e", None)]
    assert {f"pooled scores on {m}: {text}" for m in ("acc", "f1") for text in ("why", "note")} <= {
        *crossed.of_log("a").notes
    }
    assert needs.of_log("a").rows == (("a", "acc"), ("a", "f1"))
    assert needs.of_log("b").rows == (("b", "acc"),)
    assert "capabilities on acc: one" in needs.of_log("b").notes
    # The second feature of 24 items under the first metric, the last 12 of which are of task u.
    of_u = {str(i): {"evalstats_capability2": 2.0 * (12 + i) + 1} for i in range(12)}
    assert needs.of_items(frozenset("u")) == of_u
    assert needs.of_items(frozenset("t"))["3"] == {
        "evalstats_acc,none_capability2": 7.0, "evalstats_f1,none_capability2": 7.0
    }  # fmt: skip
