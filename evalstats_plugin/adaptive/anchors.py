"""Anchor points: a fixed weighted set of items that stands for the whole benchmark [Pol24]_.

The rival of adaptive tests: items are clustered by their parameters, and each cluster is
represented by the item next to its centre.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.projection import FullScore, Shares, project
from evalstats_plugin.adaptive.scoring import Belief
from evalstats_plugin.errors import DesignError
from evalstats_plugin.stats.interval import FloatArray, IntArray

_ROUNDS = 50
_STARTS = 5


class Anchors(NamedTuple):
    """Items to ask of every model, and the share of the benchmark each stands for."""

    places: IntArray
    """Shape (k,)."""
    weights: FloatArray
    """Shape (k,), summing to 1."""


def anchor_points(
    bank: ItemBank, k: int, *, rng: np.random.Generator | int | None = None
) -> Anchors:
    """Find anchors by k-means on the parameters (a, d, λ) of the items that may be asked.

    Raises
    ------
    DesignError
        Fewer usable items than anchors.
    """
    source = np.random.default_rng(rng)
    open_ones = np.flatnonzero(bank.usable)
    if not 0 < k <= len(open_ones):
        msg = f"{k} anchor points wanted of {len(open_ones)} items that may be asked"
        raise DesignError(f"{msg}, expected 1 to {len(open_ones)}")
    points = np.column_stack([bank.discrimination, bank.intercept, bank.misfit_loadings])
    found = [_k_means(points[open_ones], k, source) for _ in range(_STARTS)]
    centres = min(found, key=lambda each: each[1])[0]
    distance = _distances(points[open_ones], centres)
    places = open_ones[_distinct_nearest(distance)]
    own = _distances(points, points[places]).argmin(axis=1)
    return Anchors(places, np.bincount(own, minlength=k) / len(bank))


def anchor_scores(
    bank: ItemBank, anchors: Anchors, answers: FloatArray
) -> tuple[FloatArray, FullScore]:
    """Full scores of S models by anchors: weighted mean, and projected from the answers.

    Parameters
    ----------
    answers
        Scores in [0, 1], shape (S, M).
    """
    places = np.tile(anchors.places, (len(answers), 1))
    right = answers[:, anchors.places]
    belief = Belief.prior(bank, len(answers)).answered(places, right, np.ones_like(right))
    return right @ anchors.weights, project(belief, Shares.of(bank))


def _distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Squared, shape (P, k)."""
    squares = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.maximum(squares - 2 * points @ centres.T, 0.0)


def _k_means(points: FloatArray, k: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Lloyd's rounds from points drawn at random; centres and the sum of squares left."""
    centres = points[rng.permutation(len(points))[:k]].copy()
    for _ in range(_ROUNDS):
        own = _distances(points, centres).argmin(axis=1)
        member = np.zeros((k, len(points)))
        member[own, np.arange(len(points))] = 1.0
        size = member.sum(axis=1)
        new = np.where(size[:, None] > 0, member @ points / np.maximum(size, 1)[:, None], centres)
        if np.allclose(new, centres):
            break
        centres = new
    return centres, float(_distances(points, centres).min(axis=1).sum())


def _distinct_nearest(distance: FloatArray) -> IntArray:
    """Nearest point of each centre, no point twice: by least total distance."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(distance.T)
    return np.asarray(columns[np.argsort(rows)], dtype=np.int64)
