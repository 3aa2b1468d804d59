"""Are capabilities found again from other items?"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy import optimize

from evalstats_plugin.engines import mapped
from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.capabilities import CodeRule, columns_of, find_codes
from evalstats_plugin.hierarchical.capabilities_fit import CapabilityFit
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.fitted import as_array
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.stats.interval import FloatArray, IntArray

_SHUFFLES = 1000


class Stability(NamedTuple):
    """How like each other the features of two halves of the items are, each of shape (F,).

    In the order of the features of the whole fit. Cosines are between models' capabilities, with
    their sign; NaN where a feature is not in use.
    """

    halves: FloatArray
    """Cosine of a feature of one half with its like of the other half."""
    whole: FloatArray
    """The smaller of the cosines with the feature of the whole fit."""
    chance: FloatArray
    """95 % of features whose models are shuffled have a best cosine with the other half below."""


def matched(found: FloatArray, truth: FloatArray) -> tuple[IntArray, FloatArray]:
    """Give each column of `truth` (N, F) the column of `found` (N, G ≥ F) that is its like.

    Pairs have the largest sum of cosines of centred columns; a column without variance is like
    none. Returns the places in `found`, and the cosines.

    >>> place, cosine = matched(np.array([[1.0, 4], [0, 5], [0, 9]]), np.array([[4.0], [5], [9]]))
    >>> place.tolist(), cosine.round(3).tolist()
    ([1], [1.0])
    """
    cosine = cosines(found, truth)
    rows, columns = optimize.linear_sum_assignment(cosine, maximize=True)
    place = np.empty(truth.shape[1], dtype=np.int64)
    place[columns] = rows
    return place, cosine[place, np.arange(truth.shape[1])]


def cosines(a: FloatArray, b: FloatArray) -> FloatArray:
    """Of centred columns (..., N, F) and (..., N, G): shape (..., F, G); 0 without variance."""
    return np.swapaxes(_unit(a), -1, -2) @ _unit(b)


def _unit(columns: FloatArray) -> FloatArray:
    away = columns - columns.mean(axis=-2, keepdims=True)
    size = np.linalg.norm(away, axis=-2, keepdims=True)
    return np.divide(away, size, out=np.zeros_like(away), where=size > 0)


def stability(
    fit: CapabilityFit,
    matrix: ResponseMatrix,
    *,
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
) -> Stability:
    """Fit two random halves of the items, or of the tasks, with the penalty of the fit.

    Parameters
    ----------
    matrix
        What the fit was made from.

    Raises
    ------
    DesignError
        Another matrix, or fewer items in a half than features.
    """
    generator = np.random.default_rng(rng)
    counts, ids, _ = columns_of(matrix, fit.level, device)
    if matrix.models != fit.models or not np.array_equal(ids.astype(str), fit.item_ids.astype(str)):
        msg = (
            f"the fit has {len(fit.models)} models and {len(fit.item_ids)} {fit.level}s, and the "
            f"matrix {len(matrix.models)} and {len(ids)}, or others by name: give the matrix that "
            "was fitted"
        )
        raise DesignError(msg)
    if len(ids) < 2 * fit.n_features:
        msg = f"{len(ids)} {fit.level}s in two halves are too few for {fit.n_features} features"
        raise DesignError(f"{msg}: expected {2 * fit.n_features} or more, or fewer features")
    rule = CodeRule(fit.kind, fit.hyperparameters["penalty"], fit.hyperparameters["active"])
    split = np.array_split(generator.permutation(len(ids)), 2)
    halves = mapped(partial(_half, counts, fit.n_features, rule, generator), split)
    first, second = (half[:, matched(half, fit.capability)[0]] for half in halves)
    whole = [np.diagonal(cosines(half, fit.capability)) for half in (first, second)]
    used = fit.capability.any(axis=0)
    return Stability(
        halves=np.where(used, np.diagonal(cosines(first, second)), np.nan),
        whole=np.where(used, np.minimum(*whole), np.nan),
        chance=np.where(used, _chance(first, second, generator), np.nan),
    )


def _half(
    counts: Counts,
    n_features: int,
    rule: CodeRule,
    rng: np.random.Generator,
    items: IntArray,
) -> FloatArray:
    # The rule leaves nothing to choose, so that nothing is drawn.
    place = torch.from_numpy(items).to(counts.right.device)  # pyright: ignore[reportUnknownMemberType]
    part = Counts(counts.right[:, place], counts.trials[:, place])
    return as_array(find_codes(part, n_features, rule, rng).codes.capability)


def _chance(first: FloatArray, second: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Best cosines of features whose models are shuffled, their 95 % quantile."""
    order = rng.permuted(np.tile(np.arange(len(first)), (_SHUFFLES, 1)), axis=1)
    best = cosines(first[order], second).max(axis=2)
    return np.asarray(np.quantile(best, 0.95, axis=0), dtype=np.float64)
