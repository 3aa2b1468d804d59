"""Ranks of the models of several logs, if they are not too many."""

from __future__ import annotations

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.comparisons import rank_sets
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
