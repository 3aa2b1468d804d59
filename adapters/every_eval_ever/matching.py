"""Which instances belong to which result of the aggregate file.

The schema prefers an id for it, which converters often leave out; the name is shared by all
metrics of an evaluation. So where several results fit, the one that the scores give is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from evalstats_plugin.adapters.every_eval_ever.instances import Column, Key
from evalstats_plugin.adapters.every_eval_ever.layout import Json

_TOLERANCE = 1e-6
PERCENT = 100.0


def match(results: Sequence[Json], found: Mapping[Key, Column]) -> tuple[dict[int, Key], list[Key]]:
    """Return the instances of each result by its place, and those of none."""
    matched: dict[int, Key] = {}
    left: list[Key] = []
    for key, column in found.items():
        free = [i for i in range(len(results)) if i not in matched]
        fits = _candidates(results, key, free, alone=len(found) == 1)
        if len(fits) > 1:
            mean = mean_of(column)
            fits = [i for i in fits if scale_of(_score(results[i]), mean) is not None][:1]
        if fits:
            matched[fits[0]] = key
        else:
            left.append(key)
    return matched, left


def _candidates(
    results: Sequence[Json], key: Key, free: Sequence[int], *, alone: bool
) -> list[int]:
    if key.result_id is not None:
        by_id = [i for i in free if results[i].get("evaluation_result_id") == key.result_id]
        if by_id:
            return by_id
    named = [i for i in free if results[i].get("evaluation_name") == key.name]
    # Converters of single evaluations may name instances otherwise than results.
    return named or (list(free) if alone else [])


def _score(result: Json) -> float:
    return float(result["score_details"]["score"])


def mean_of(column: Column) -> float:
    """Return the mean over items of the means over their takes; NaN without a score."""
    scores = np.asarray(column.scores)
    items = np.unique(np.asarray(column.ids), return_inverse=True)[1]
    there = ~np.isnan(scores)
    counts = np.bincount(items[there], minlength=int(items.max()) + 1)
    sums = np.bincount(items[there], weights=scores[there], minlength=len(counts))
    means = sums[counts > 0] / counts[counts > 0]
    return float(means.mean()) if len(means) else math.nan


def scale_of(score: float, mean: float) -> float | None:
    """Return what an aggregate score must be divided by to be the mean of its items' scores.

    1, or 100 where it is a percentage; None where it is neither.
    """
    for scale in (1.0, PERCENT):
        if math.isclose(score, mean * scale, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
            return scale
    return None
