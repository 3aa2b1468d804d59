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
