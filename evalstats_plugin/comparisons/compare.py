"""Compare models: `compare` chooses the analysis of a design and prepares its arguments.

The designs are in `DESIGNS`; `same_items`, the paired one, brings together metrics that are means
(`paired`), metrics that are not (`metrics`), groups of tasks (`tasks`), and models that share no
item of a task (`unpaired`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from evalstats_plugin.comparisons.design import Correction, Request, check_baseline
from evalstats_plugin.comparisons.methods import COMPARISONS, PAIRED, UNPAIRED
from evalstats_plugin.comparisons.metrics import compare_composite
from evalstats_plugin.comparisons.paired import paired
from evalstats_plugin.comparisons.rows import Comparison, Comparisons
from evalstats_plugin.comparisons.sequential import sequential
from evalstats_plugin.comparisons.stored import stored_comparisons
from evalstats_plugin.comparisons.tasks import across_tasks, group_comparisons
from evalstats_plugin.comparisons.unpaired import unpaired
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.methods import Method, table_of
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.scores.cells import (
    RATIOS,
    Bounds,
    by_task,
    responses_and_notes,
    task_and_metric,
)
from evalstats_plugin.stats.arrays import Rng

Design = Literal["paired", "unpaired", "tasks", "sequential"]

Analysis: TypeAlias = Callable[[Sequence[Responses], Request], tuple[list[Comparison], list[str]]]

NO_ITEM_IN_COMMON = "no two models share an item here: taken as independent samples"

_UNPAIRED: Mapping[str, Method] = MappingProxyType({m.name: m for m in UNPAIRED})


def same_items(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Compare models item by item, on tasks and groups, under metrics that are means and others.

    Models that share no item of a task are compared as independent samples there, and the rows say
    so. Return also notes on what was left out.
    """
    together, apart, composite = _parts(responses)
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
        # Rows in the order of the logs, groups last.
        keys = dict.fromkeys((r.task, r.metric) for r in responses)
        place = {key: i for i, key in enumerate(keys)}
        rows.sort(key=lambda row: place.get((row.task, row.metric), len(place)))
    return rows, notes


DESIGNS: Mapping[Design, tuple[Analysis, Sequence[Method]]] = MappingProxyType(
    {
        "paired": (same_items, PAIRED),
        "unpaired": (unpaired, UNPAIRED),
        "tasks": (across_tasks, COMPARISONS),
        "sequential": (sequential, COMPARISONS),
    }
)
"""Analysis of each design of a comparison, and the methods that it can use."""


def compare(
    responses: ResponseSet | ResponseMatrix | ResponseStore | Iterable[Responses],
    *,
    design: Design = "paired",
    baseline: str | None = None,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    correction: Correction = "holm",
    bounds: Bounds | None = None,
    rng: Rng = None,
) -> Comparisons:
    """Compare models: every two of them, or each with a baseline.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, a store (which is read in blocks, and takes
        design ``"paired"`` alone), or any `Responses`. Items are paired by id, and an id must stand
        for the same question on both sides. Epochs are averaged first.
    design
        ``"paired"``: the same items, item by item; models that share no item of a task are taken
        as independent there, and the rows say so. ``"unpaired"``: all as independent samples.
        ``"tasks"``: over all tasks of a metric, which count as drawn from many such.
        ``"sequential"``: item by item, valid however often one looks while items come in.
    baseline
        Model with which the others are compared. Without it, every two models are. ``"best"``
        is the best model of each task, chosen from the data: corrected over all pairs.
    confidence_level
        Between 0 and 1.
    method
        Of the interval: a name from the table of methods for comparisons. It is used wherever it
        fits the scores; where it does not the default is, and each row says what ran.
    correction
        What ``p_adjusted`` protects, over the pairs of one task and metric: ``"holm"`` against any
        false finding, ``"maxt"`` against the same with more power (sign flips), ``"bh"`` against a
        large share of false findings, ``"none"`` against nothing. With ``"holm"`` and ``"maxt"``
        the adjusted limits hold for all pairs together; the p-values may find slightly more.
    bounds
        Least and greatest possible score by metric, as for `intervals`.
    rng
        Generator or seed, for p-values by random sign flips.

    Notes
    -----
    P-values are McNemar's mid-p for 0/1 scores, else those of flipping the signs of differences;
    of whole clusters at once, where items come in clusters.
    Where a log does not say which scores are better, the higher are taken to be. Metrics that
    are not means of items (F1, BLEU, perplexity) are compared by what their items add up to.

    Raises
    ------
    DesignError
        For a confidence level outside (0, 1), where no two models share an item, or for millions
        of pairs of models in a store.
    ItemConflictError
        If an item id is one question for one model and another for the other.
    SelectionError
        For a design, baseline, method or correction that does not exist, or none for a store.
    """
    if design not in DESIGNS:
        raise SelectionError(no_such("design", design, DESIGNS, ", ".join(DESIGNS)))
    analysis, own = DESIGNS[design]
    extra = [method] if isinstance(method, Method) and method not in own else []
    request = Request(
        baseline=baseline,
        confidence_level=confidence_level,
        method=method.name if isinstance(method, Method) else method,
        table=table_of(extra, own),
        correction=correction,
        bounds=bounds or {},
        rng=np.random.default_rng(rng),
    )
    seed = rng if isinstance(rng, int) else None
    if isinstance(responses, ResponseStore):
        notes = responses.notes
        rows, left_out = stored_comparisons(responses, design, request)
    else:
        listed, notes = responses_and_notes(responses)
        check_baseline(baseline, [r.model for r in listed])
        rows, left_out = analysis(listed, request)
    return Comparisons(tuple(rows), (*notes, *left_out), seed)


def _parts(
    responses: Sequence[Responses],
) -> tuple[list[Responses], list[Responses], list[Responses]]:
    """Return means on items that models share, means on items they do not, and other metrics."""
    composite = [r for r in responses if r.pairs is not None or r.aggregation in RATIOS]
    means = [r for r in responses if r.pairs is None and r.aggregation not in RATIOS]
    disjoint = {place for place, group in by_task(means).items() if _share_nothing(group)}
    together = [r for r in means if task_and_metric(r) not in disjoint]
    return together, [r for r in means if task_and_metric(r) in disjoint], composite


def _share_nothing(group: Sequence[Responses]) -> bool:
    """Whether several models have items, and every item is one model's alone."""
    with_items = [r for r in group if len(r.item_ids)]
    if len({r.model for r in with_items}) < 2:
        return False
    if np.array_equal(with_items[0].item_ids, with_items[-1].item_ids):
        # The usual case needs no look at all items.
        return False
    ids = np.concatenate([r.item_ids.astype(str) for r in with_items])
    return len(np.unique(ids)) == len(ids)


def _as_far_as_possible(
    analysis: Analysis, responses: list[Responses], request: Request, *, needed: bool
) -> tuple[list[Comparison], list[str]]:
    """Run an analysis on a part of the responses; if not `needed`, an error becomes a note."""
    if not (responses or needed):
        return [], []
    try:
        return analysis(responses, request)
    except DesignError as error:
        if needed or type(error) is not DesignError:
            raise
        return [], [f"not compared: {error}"]


def _of_own_items(request: Request) -> Request:
    """Return the request for models that share no item, which have no pairs whose signs to flip."""
    correction = "holm" if request.correction == "maxt" else request.correction
    return replace(request, method="auto", table=_UNPAIRED, correction=correction)
