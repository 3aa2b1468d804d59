"""What is there to say of each item: how hard, how often taken, how far from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.responses import Responses

PREFIX = "evalstats_"
"""Of every statistic's name, so that it stands alone wherever it is written."""

Items = Mapping[str, Mapping[str, float]]
"""By the item's id as text: statistics by name."""


def item_statistics(responses: Sequence[Responses]) -> dict[str, dict[str, float]]:
    """Return the classical statistics of each item of one task, by the item's id as text.

    ``evalstats_p`` is the item's mean score, every model counting the same however many epochs
    it took; ``evalstats_n`` the number of takes scored; ``evalstats_right`` the share of takes
    with the greatest score there is, where that is known and is not the mean score itself;
    ``evalstats_z`` how many standard deviations of the items' means the item lies from their
    mean. With several metrics each name holds the metric's: ``evalstats_match_p``.
    """
    found: dict[str, dict[str, float]] = {}
    for metric, start in prefixes(responses).items():
        ids, columns = _statistics([r for r in _averaged(responses) if r.metric == metric])
        for name, values in columns.items():
            for item, value in zip(ids, values.tolist(), strict=True):
                found.setdefault(item, {})[start + name] = value
    return found


def prefixes(responses: Sequence[Responses]) -> dict[str, str]:
    """Return what the names of statistics begin with, for each metric that has item scores."""
    metrics = list(dict.fromkeys(r.metric for r in _averaged(responses)))
    return {m: PREFIX if len(metrics) == 1 else f"{PREFIX}{m}_" for m in metrics}


def _averaged(responses: Sequence[Responses]) -> list[Responses]:
    return [r for r in responses if len(r.item_ids) and r.aggregation == "mean"]


def _statistics(group: Sequence[Responses]) -> tuple[list[str], dict[str, NDArray[np.generic]]]:
    """Return the items that were scored, in order of appearance, and columns of statistics."""
    scored = [(r, np.isfinite(r.scores)) for r in group]
    every = np.concatenate([r.item_ids.astype(str) for r in group])
    names, first, place = np.unique(every, return_index=True, return_inverse=True)
    takes = np.concatenate([there.sum(axis=1) for _, there in scored])
    sums = np.concatenate([np.where(there, r.scores, 0.0).sum(axis=1) for r, there in scored])
    taken = takes > 0
    size = len(names)
    models = np.bincount(place[taken], minlength=size)
    means = np.bincount(place[taken], sums[taken] / takes[taken], minlength=size)
    n = np.bincount(place, takes, minlength=size).astype(np.int64)
    order = np.argsort(first)
    order = order[n[order] > 0]
    p = means[order] / models[order]
    found: dict[str, NDArray[np.generic]] = {"p": p, "n": n[order]}
    greatest = {r.bounds[1] if r.bounds else None for r in group}
    if len(greatest) == 1 and (top := greatest.pop()) is not None:
        full = np.concatenate([((r.scores >= top) & there).sum(axis=1) for r, there in scored])
        right = np.bincount(place, full, minlength=size)[order] / n[order]
        found |= {} if np.array_equal(right, p) else {"right": right}
    if len(p) and p.std() > 0:
        found["z"] = (p - p.mean()) / p.std()
    return names[order].tolist(), found
