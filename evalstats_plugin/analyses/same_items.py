"""Models that answered the same items: whatever their metrics, and the groups of their tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from evalstats_plugin.analyses.cells import RATIOS
from evalstats_plugin.analyses.composite import compare_composite
from evalstats_plugin.analyses.group_comparisons import group_comparisons
from evalstats_plugin.analyses.paired import paired
from evalstats_plugin.analyses.request import Request
from evalstats_plugin.analyses.unpaired import unpaired
from evalstats_plugin.errors import DesignError
from evalstats_plugin.methods import Method
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Comparison
from evalstats_plugin.tables.unpaired import UNPAIRED

Analysis: TypeAlias = Callable[[Sequence[Responses], Request], tuple[list[Comparison], list[str]]]

NO_ITEM_IN_COMMON = "no two models share an item here: taken as independent samples"

_UNPAIRED: Mapping[str, Method] = MappingProxyType({m.name: m for m in UNPAIRED})


def same_items(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Compare models item by item, under metrics that are means and others, tasks and groups.

    Where no two models share an item of a task, its scores are taken as independent samples, and
    the rows say so. Return also notes on what was left out.
    """
    together, apart, composite = _sorted(responses)
    rows, notes = compare_composite(composite, request)
    found, left_out = _as_far_as_possible(unpaired, apart, _of_own_items(request), needed=False)
    rows += [replace(row, notes=(*row.notes, NO_ITEM_IN_COMMON)) for row in found]
    notes += left_out
    if together or not rows:
        found, left_out = _as_far_as_possible(
            paired, together or list(responses), request, needed=not rows
        )
        rows += [*found, *group_comparisons(together, request)]
        notes += left_out
    if apart or composite:
        # In the order of the logs, groups last.
        keys = dict.fromkeys((r.task, r.metric) for r in responses)
        place = {key: i for i, key in enumerate(keys)}
        rows.sort(key=lambda row: place.get((row.task, row.metric), len(place)))
    return rows, notes


def _as_far_as_possible(
    analysis: Analysis, responses: list[Responses], request: Request, *, needed: bool
) -> tuple[list[Comparison], list[str]]:
    """Run an analysis on a part of the responses, which another part may do without."""
    if not (responses or needed):
        return [], []
    try:
        return analysis(responses, request)
    except DesignError as error:
        if needed or type(error) is not DesignError:
            raise
        return [], [f"not compared: {error}"]


def _of_own_items(request: Request) -> Request:
    """Return what the request is for models that share no item: signs of pairs do not exist."""
    correction = "holm" if request.correction == "maxt" else request.correction
    return replace(request, method="auto", table=_UNPAIRED, correction=correction)


def _sorted(
    responses: Sequence[Responses],
) -> tuple[list[Responses], list[Responses], list[Responses]]:
    """Return means on items that models share, on items they do not, and other metrics."""
    composite = [r for r in responses if r.pairs is not None or r.aggregation in RATIOS]
    means = [r for r in responses if r.pairs is None and r.aggregation not in RATIOS]
    groups: dict[tuple[str, str], list[Responses]] = {}
    for r in means:
        groups.setdefault((r.task, r.metric.removesuffix(",none")), []).append(r)
    disjoint = {place for place, group in groups.items() if _share_nothing(group)}
    parts: tuple[list[Responses], list[Responses]] = ([], [])
    for r in means:
        parts[(r.task, r.metric.removesuffix(",none")) in disjoint].append(r)
    return *parts, composite


def _share_nothing(group: Sequence[Responses]) -> bool:
    """Whether several models have items, and every item is one model's alone."""
    with_items = [r for r in group if len(r.item_ids)]
    if len({r.model for r in with_items}) < 2:
        return False
    if np.array_equal(with_items[0].item_ids, with_items[-1].item_ids):
        # As it is most often: no need to look at all of them.
        return False
    ids = np.concatenate([r.item_ids.astype(str) for r in with_items])
    return len(np.unique(ids)) == len(ids)
