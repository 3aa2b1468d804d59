"""Counts of pairs, of all pairs and of those with a baseline, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from evalstats_plugin.comparisons.design import Pairing
from evalstats_plugin.data.measure import Measure

PAIRS = {
    "every two": np.triu_indices(5, 1),
    "baseline": (np.full(4, 2), np.array([0, 1, 3, 4])),
    "some": (np.array([3, 1, 3]), np.array([0, 2, 4])),
}


@pytest.mark.parametrize("which", PAIRS)
def test_tables_and_differences_count_items_that_both_answered(which: str) -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 2, (5, 40)).astype(float)
    scores[rng.random(scores.shape) < 0.3] = np.nan
    a, b = PAIRS[which]

    pairing = Pairing(
        measure=Measure(task="task", metric="acc"), models=tuple("abcde"), scores=scores, a=a, b=b,
        kind="binary", bounds=None, clusters=None, notes=(),
    )  # fmt: skip
    tables, differences = pairing.tables(), pairing.mean_differences()

    for k, (i, j) in enumerate(zip(a, b, strict=True)):
        both = ~np.isnan(scores[i]) & ~np.isnan(scores[j])
        first, second = scores[i, both], scores[j, both]
        assert tables[:, k].tolist() == [
            (first * second).sum(),
            (first * (1 - second)).sum(),
            ((1 - first) * second).sum(),
            ((1 - first) * (1 - second)).sum(),
        ]
        assert pairing.n_items[k] == both.sum()
        assert differences[k] == pytest.approx((second - first).mean(), abs=1e-12)
