"""Other metrics of labels that were logged: precision and recall from what an f1 is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from evalstats_plugin.analyses.composite_data import DERIVED, NAMES
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.responses import Responses
from evalstats_plugin.runs import run_of
from evalstats_plugin.wording import no_such


def derive(responses: Iterable[Responses], metric: str) -> list[Responses]:
    """Return the responses to another metric of the labels that an f1 or mcc was logged with.

    Parameters
    ----------
    responses
        Those without labels are passed over; where several metrics of a task have the same labels,
        the first is taken.
    metric
        One of `DERIVED`, such as ``"recall"``.

    Raises
    ------
    SelectionError
        For another metric, or if no responses have labels.
    """
    if metric not in DERIVED:
        raise SelectionError(no_such("derived metric", metric, DERIVED, ", ".join(DERIVED)))
    found: dict[tuple[str, ...], Responses] = {}
    for r in responses:
        if r.pairs is None or NAMES.get(r.aggregation) not in DERIVED:
            continue
        name = metric + r.metric[len(r.metric.partition(",")[0]) :]
        key = (r.model, r.task, name, *run_of(r), *(g.name for g in r.groups))
        # No harness logged it, and no group around the task has it.
        groups = tuple(replace(g, logged=None, logged_std_error=None) for g in r.groups)
        found.setdefault(
            key,
            replace(
                r,
                metric=name,
                aggregation=metric,
                higher_is_better=True,
                groups=groups,
                logged=None,
                logged_std_error=None,
                notes=(*r.notes, f"derived from the labels of {r.metric}"),
            ),
        )
    if not found:
        msg = f"no responses hold gold and predicted labels, from which {metric} could be derived"
        raise SelectionError(msg)
    return list(found.values())


def with_derived(responses: Iterable[Responses], metrics: Iterable[str]) -> tuple[Responses, ...]:
    """Return the responses, those of each task followed by what is derived from their labels."""
    everything = list(responses)
    more = [r for metric in metrics for r in derive(everything, metric)]
    # Rows of a task stand together, in each log and group.
    places = {_place(r): i for i, r in enumerate(everything)}
    return tuple(sorted((*everything, *more), key=lambda r: places[_place(r)]))


def _place(r: Responses) -> tuple[str, ...]:
    return r.model, r.task, *run_of(r), *(g.name for g in r.groups)
