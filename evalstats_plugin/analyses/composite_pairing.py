"""Models on the same items under one metric that is a function of sums: what is common to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.cells import RATIOS
from evalstats_plugin.analyses.composite_data import Composite, composites
from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.methods import Kind
from evalstats_plugin.responses import Responses
from evalstats_plugin.stats.function_of_sums import Value

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Joined:
    """N models' answers to M items."""

    models: tuple[str, ...]
    kind: Kind
    value: Value
    ordering: Value
    """Which of two models is higher, on a scale where differences behave better if there is one."""
    statistics: FloatArray
    """Shape (N, M, S): what each item adds to each model's sums, 0 where it is missing."""
    there: NDArray[np.bool_]
    """Shape (N, M)."""
    codes: NDArray[np.int64] | None
    """Shape (N, M): gold and predicted label as one number, where there are labels."""
    n_labels: int
    clusters: NDArray[Any] | None
    """Shape (M,)."""
    metric: str

    def units(self, items: NDArray[np.bool_]) -> tuple[FloatArray, NDArray[np.int64]]:
        """Statistics of what is sampled, shape (N, U, S), and how often each was seen, (U,).

        Clusters where items come in them; items otherwise, those with the same answers as one.
        """
        statistics = self.statistics[:, items]
        if self.clusters is not None:
            _, where = np.unique(self.clusters[items], return_inverse=True)
            order = np.argsort(where, kind="stable")
            starts = np.flatnonzero(np.diff(where[order], prepend=-1))
            sums = np.add.reduceat(statistics[:, order], starts, axis=1)
            return sums, np.ones(int(sums.shape[1]), dtype=np.int64)
        if self.codes is None:
            return statistics, np.ones(int(statistics.shape[1]), dtype=np.int64)
        _, first, counts = np.unique(
            self.codes[:, items], axis=1, return_index=True, return_counts=True
        )
        return statistics[:, first], counts


def join(group: Sequence[Responses]) -> Joined:
    """Join on the items' ids, checked on their hashes.

    Raises
    ------
    DesignError
        If the answers are not what the metric needs, or an id stands for two questions.
    """
    parts = [_ratio(r) for r in group] if group[0].aggregation in RATIOS else composites(group)
    if parts[0].kind == "auc":
        msg = "there is no paired method for areas under the curve yet"
        raise DesignError(msg)
    # Scores that say where an item is among its model's go through the join like any others.
    matrix = ResponseMatrix.join(
        [
            replace(r, scores=np.where(p.there, np.arange(len(p.there)), np.nan)[:, None])
            for r, p in zip(group, parts, strict=True)
        ]
    )
    position = matrix.scores[:, :, 0]
    there = ~np.isnan(position)
    n_sums = parts[0].statistics.shape[1]
    statistics = np.zeros((*there.shape, n_sums))
    codes = np.zeros(there.shape, dtype=np.int64)
    for i, part in enumerate(parts):
        # Place among the model's items that count.
        rank = np.cumsum(part.there) - 1
        at = rank[position[i, there[i]].astype(np.int64)]
        statistics[i, there[i]] = part.statistics[at]
        if part.codes is not None:
            codes[i, there[i]] = part.codes[at] @ [len(part.labels), 1]
    return Joined(
        models=matrix.models,
        kind="corpus" if parts[0].kind == "ratio" else parts[0].kind,
        value=parts[0].value,
        ordering=_negative_mean if parts[0].kind == "ratio" else parts[0].value,
        statistics=statistics,
        there=there,
        codes=None if parts[0].codes is None else codes,
        n_labels=len(parts[0].labels),
        clusters=matrix.clusters,
        metric=parts[0].metric,
    )


def _negative_mean(sums: FloatArray) -> FloatArray:
    """Perplexities and bits per byte all rise as the mean loglikelihood falls, some explode."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return -sums[..., 0] / sums[..., 1]


def _ratio(r: Responses) -> Composite:
    """Sums of loglikelihoods and of words, and what the metric makes of their ratio."""
    scores = r.item_means
    weights = np.ones(len(scores)) if r.weights is None else r.weights
    there = np.isfinite(scores) & np.isfinite(weights)
    formula = np.vectorize(RATIOS[r.aggregation], otypes=[float])

    def value(sums: FloatArray) -> FloatArray:
        return formula(-_negative_mean(sums))

    counts = np.stack([scores, weights], axis=1)[there]
    return Composite(metric=r.aggregation, kind="ratio", there=there, counts=counts, ratio=value)
