"""Is model b better than model a, by how much, and among how many?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np

from evalstats_plugin import methods
from evalstats_plugin.analyses.across_tasks import across_tasks
from evalstats_plugin.analyses.cells import Bounds
from evalstats_plugin.analyses.comparable import check_baseline
from evalstats_plugin.analyses.request import Correction, Request
from evalstats_plugin.analyses.same_items import Analysis, same_items
from evalstats_plugin.analyses.sequential import sequential
from evalstats_plugin.analyses.stored_pairs import stored_comparisons
from evalstats_plugin.analyses.unpaired import unpaired
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.methods import Method
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.response_store import ResponseStore
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Comparisons
from evalstats_plugin.tables import PAIRED
from evalstats_plugin.tables.comparisons import COMPARISONS
from evalstats_plugin.tables.unpaired import UNPAIRED
from evalstats_plugin.wording import no_such

Design = Literal["paired", "unpaired", "tasks", "sequential"]
Rng = np.random.Generator | int | None

DESIGNS: Mapping[Design, tuple[Analysis, Sequence[Method]]] = MappingProxyType(
    {
        "paired": (same_items, PAIRED),
        "unpaired": (unpaired, UNPAIRED),
        "tasks": (across_tasks, COMPARISONS),
        "sequential": (sequential, COMPARISONS),
    }
)
"""What is done for each design of a comparison, and the methods that it can use."""


def compare(  # noqa: PLR0913 - each is a choice of its own
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
        table=methods.table_of(extra, own),
        correction=correction,
        bounds=bounds or {},
        rng=np.random.default_rng(rng),
    )
    known = (ResponseSet, ResponseMatrix, ResponseStore)
    notes = responses.notes if isinstance(responses, known) else ()
    seed = rng if isinstance(rng, int) else None
    if isinstance(responses, ResponseStore):
        rows, left_out = stored_comparisons(responses, design, request)
        return Comparisons(tuple(rows), (*notes, *left_out), seed)
    if isinstance(responses, ResponseMatrix):
        responses = responses.to_responses()
    responses = list(responses)
    check_baseline(baseline, [r.model for r in responses])
    rows, left_out = analysis(responses, request)
    return Comparisons(tuple(rows), (*notes, *left_out), seed)
