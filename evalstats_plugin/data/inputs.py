"""What people hold in their hands, and how it becomes responses: the door of all analyses.

* `ResponsesLike`: the type of the first argument of every public function on scores
* `as_responses`: responses from it; `as_list`: one by one, with the notes that came with them
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from os import PathLike
from typing import Any, Protocol, TypeAlias, TypeVar

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure, Measures, as_measures, given
from evalstats_plugin.data.responses import (
    IN_ARRAY,
    NO_COLUMN,
    NO_METRIC,
    NO_TASK,
    TABULAR,
    Responses,
    check_item_ids,
)
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.scales import TAKEN_AS, settled
from evalstats_plugin.data.store import LARGE, ResponseStore
from evalstats_plugin.errors import SelectionError, few, no_such
from evalstats_plugin.runtime.files import LogFile


class Rectangle(Protocol):
    """A DataFrame (pandas, Polars), an Arrow table, or an array (NumPy, xarray)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns, or the length of each axis."""
        ...


class LogInMemory(Protocol):
    """A log that a harness has read, such as Inspect's ``EvalLog``."""

    @property
    def location(self) -> str:
        """Where it was read."""
        ...


class FileInfo(Protocol):
    """A log that was listed, such as one of Inspect's ``list_eval_logs()``."""

    @property
    def name(self) -> str:
        """Its path or address."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...


Readable: TypeAlias = (
    str
    | PathLike[str]
    | Mapping[str, Any]
    | Rectangle
    | LogInMemory
    | FileInfo
    | LogFile
    | Sequence["Readable"]
    | Sequence[Sequence[float]]
    | Sequence[float]
)
"""What `evalstats_plugin.read` reads: paths, patterns, listed logs and logs in memory, results that
a harness returned, DataFrames, arrays, records; and lists of them."""

ResponsesLike: TypeAlias = (
    ResponseSet | ResponseMatrix | ResponseStore | Responses | Iterable[Responses] | Readable
)
"""Responses, or anything that they can be read from."""


def as_responses(
    held: ResponsesLike, measure: Measures = None
) -> ResponseSet | ResponseMatrix | ResponseStore:
    """Return responses: as they are, or read from what was given, under the user's measures.

    Raises
    ------
    TypeError
        It is nothing of the kind; the message lists what is.
    DesignError
        An item is there twice in responses that were made in memory.
    SelectionError
        A measure is of a task or metric that is not there.
    EvalStatsError
        As of `evalstats_plugin.read`.
    """
    if isinstance(held, ResponseMatrix):
        return under(held, measure)
    if isinstance(held, ResponseStore):
        return under(held, measure)
    if isinstance(held, Responses):
        held = ResponseSet((held,))
    elif (
        isinstance(held, Iterable)
        and not isinstance(held, (ResponseSet, str, PathLike, Mapping))
        and not hasattr(held, "shape")  # which a list or a generator does not have
    ):
        iterable: Any = held
        listed: list[Any] = list(iterable)
        if all(isinstance(each, Responses) for each in listed):
            held = ResponseSet(tuple(listed))
        elif isinstance(held, Iterator):
            held = listed
    if isinstance(held, ResponseSet):
        for r in held:
            check_item_ids(r)
        return under(held, measure)
    # Loaded on use: responses know nothing of logs, but for this door.
    read: ResponseSet = import_module("evalstats_plugin.logs.reading").read(held, measure=measure)
    return read


_Held = TypeVar("_Held", ResponseSet, ResponseMatrix, ResponseStore)


def under(held: _Held, measure: Measures) -> _Held:
    """Return responses whose measures have the parts that the user gives.

    Raises
    ------
    SelectionError
        A measure is of a task or metric that is not there.
    """
    by_user = as_measures(measure)
    if not by_user:
        return held
    if isinstance(held, ResponseSet):
        if len(by_user) == 1:
            held = replace(held, responses=_named(held.responses, by_user[0]))
        own = [value.measure for r in held for value in r.values()]
        _check_used([(m.task, m.metric) for m in own], by_user)
        return replace(held, responses=tuple(under_given(r, by_user) for r in held))
    named = [(str(t), str(m)) for t, m in {*zip(held.tasks, held.metrics, strict=True)}]
    _check_used(named, by_user)
    measure_of = held.measure_of
    return held.under(tuple(given(measure_of[name], by_user) for name in sorted(named)))


def _named(responses: tuple[Responses, ...], own: Measure) -> tuple[Responses, ...]:
    """Return scores of arrays and tables that have no names under those of a measure."""
    if not all(r.source.harness in (TABULAR, IN_ARRAY) for r in responses):
        return responses
    names: dict[str, str] = {}
    for part, name, none in (("task", own.task, NO_TASK), ("metric", own.metric, NO_METRIC)):
        told = f"{NO_COLUMN} {part}: "
        if name and all(
            getattr(r.measure, part) == none or any(note.startswith(told) for note in r.notes)
            for r in responses
        ):
            names[part] = name
    if not names:
        return responses
    told = tuple(f"{NO_COLUMN} {part}: " for part in names)
    return tuple(
        replace(r.measured(**names), notes=tuple(n for n in r.notes if not n.startswith(told)))
        for r in responses
    )


def under_given(r: Responses, by_user: Sequence[Measure]) -> Responses:
    """Return responses, and those beside them, under the measures that the user gives."""
    measure, notes = given(r.measure, by_user), r.notes
    if r.measure.scale_from == "observed" and measure.scale_from == "given":
        notes = tuple(note for note in notes if TAKEN_AS not in note)
    return replace(
        r,
        measure=measure,
        notes=notes,
        unreduced=r.unreduced and under_given(r.unreduced, by_user),
        beside=tuple(under_given(other, by_user) for other in r.beside),
    )


def _check_used(named: Sequence[tuple[str, str]], by_user: Sequence[Measure]) -> None:
    for own in by_user:
        if not any(own.is_of(task, metric) for task, metric in named):
            if all(own.task not in ("", task) for task, _ in named):
                tasks = list(dict.fromkeys(task for task, _ in named))
                raise SelectionError(no_such("task", own.task, tasks, few(tasks)))
            metrics = list(dict.fromkeys(metric for _, metric in named))
            raise SelectionError(no_such("metric", own.metric, metrics, few(metrics)))


def as_list(
    held: ResponsesLike, measure: Measures = None
) -> tuple[list[Responses], tuple[str, ...]]:
    """Return the responses one by one with their scales, and the notes that came with them."""
    each, notes = one_by_one(held, measure)
    return settled(each), notes


def one_by_one(
    held: ResponsesLike, measure: Measures = None
) -> tuple[list[Responses], tuple[str, ...]]:
    """Return the responses as they were logged, and the notes that came with them."""
    responses = as_responses(held, measure)
    if isinstance(responses, ResponseStore):
        responses = in_memory(responses)
    each = responses.to_responses() if isinstance(responses, ResponseMatrix) else responses
    return list(each), tuple(responses.notes)


def in_memory(store: ResponseStore) -> ResponseMatrix:
    """Return all answers of a store as a matrix.

    Raises
    ------
    SelectionError
        They are more than may be read at once.
    """
    if math.prod(store.shape) > LARGE:
        iter(store)  # which says how to take a part of it
    return store.matrix()
