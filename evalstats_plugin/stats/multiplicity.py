"""P-values of many comparisons, adjusted from the p-values alone.

* `holm`, `benjamini_hochberg`: of one family
* `over_tasks`, `graph`: of several tasks, each adjusted for its own pairs, and of their group

`p_values` has shape (..., P), the comparisons of one family along the last axis. NaN is a
comparison that was not made: it stays NaN and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.arrays import FloatArray

GROUP_WEIGHT = 0.8
"""Share of alpha of a group's own row; its tasks have the rest."""


def holm(p_values: ArrayLike) -> FloatArray:
    """Holm's step-down adjustment: controls the family-wise error rate [Hol79]_.

    Valid for any dependence between the comparisons.

    >>> print(np.round(holm([0.01, 0.04, 0.03, 0.005]), 3))
    [0.03 0.06 0.06 0.02]
    """

    def step_down(ordered: FloatArray, rank: FloatArray, n: FloatArray) -> FloatArray:
        return np.maximum.accumulate((n - rank + 1) * ordered, axis=-1)

    return _adjusted(p_values, step_down)


def benjamini_hochberg(p_values: ArrayLike) -> FloatArray:
    """Benjamini and Hochberg's step-up adjustment: controls the false discovery rate [BH95]_.

    >>> print(np.round(benjamini_hochberg([0.01, 0.04, 0.03, 0.005]), 3))
    [0.02 0.04 0.04 0.02]
    """

    def step_up(ordered: FloatArray, rank: FloatArray, n: FloatArray) -> FloatArray:
        scaled = np.where(np.isnan(ordered), np.inf, n * ordered / rank)
        return np.minimum.accumulate(scaled[..., ::-1], axis=-1)[..., ::-1]

    return _adjusted(p_values, step_up)


def _adjusted(
    p_values: ArrayLike, adjust: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Apply `adjust` to p-values in ascending order, their ranks and their number."""
    values: FloatArray = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    rank = np.arange(1.0, values.shape[-1] + 1)
    n = (~np.isnan(values)).sum(axis=-1, keepdims=True).astype(np.float64)
    adjusted = np.empty_like(values)
    np.put_along_axis(adjusted, order, np.minimum(adjust(ordered, rank, n), 1.0), axis=-1)
    # Not even by rounding below what each says alone.
    return np.where(np.isnan(values), np.nan, np.maximum(adjusted, values))


def over_tasks(p_values: Sequence[FloatArray]) -> list[FloatArray]:
    """Adjust the p-values of tasks, each adjusted for its own pairs, for the number of tasks.

    Step-down [Hol79]_ [Sid67]_: items differ between tasks, so the chances of no false finding
    multiply, 1 - (1 - p)^t, t being the number of tasks that still have a pair not yet found.

    >>> [x.round(4).tolist() for x in over_tasks([np.array([0.01]), np.array([0.03])])]
    [[0.0199], [0.03]]
    """
    task = np.repeat(np.arange(len(p_values)), [len(p) for p in p_values])
    flat = np.concatenate(p_values)
    order = np.argsort(flat, kind="stable")[: int((~np.isnan(flat)).sum())]
    place = np.arange(len(order))
    last = np.full(len(p_values), -1)
    np.maximum.at(last, task[order], place)
    # Tasks whose last pair is still to come, or is this one.
    left = len(last) - np.searchsorted(np.sort(last), place, side="left")
    steps = -np.expm1(left * np.log1p(-np.minimum(flat[order], 1 - 1e-16)))
    adjusted = np.full(len(flat), np.nan)
    adjusted[order] = np.maximum.accumulate(steps)
    return np.split(adjusted, np.cumsum([len(p) for p in p_values])[:-1])


def graph(group: FloatArray, tasks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Adjust p-values of a group and those of its tasks, (P,) and (T, P), together [BMBP09]_.

    The group has `GROUP_WEIGHT` of alpha and hands it on to its tasks for the pairs it finds;
    without that the tasks share the rest. `tasks` are adjusted for one another before.

    >>> group, tasks = graph(np.array([0.03]), np.array([[0.001], [0.045]]))
    >>> group.round(4).tolist(), tasks.round(4).tolist()
    ([0.0375], [[0.005], [0.045]])
    """
    of_group = np.minimum(group / GROUP_WEIGHT, 1.0)
    alone = np.minimum(tasks / (1 - GROUP_WEIGHT), 1.0)
    return of_group, np.minimum(alone, np.maximum(tasks, of_group))
