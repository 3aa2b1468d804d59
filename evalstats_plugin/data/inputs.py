"""What people hold in their hands, and how it becomes responses: the door of all analyses.

* `ResponsesLike`: the type of the first argument of every public function on scores
* `as_responses`: responses from it; `as_list`: one by one, with the notes that came with them
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import Any, Protocol, TypeAlias

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses, check_item_ids
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.scales import settled
from evalstats_plugin.data.store import LARGE, ResponseStore


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


def as_responses(given: ResponsesLike) -> ResponseSet | ResponseMatrix | ResponseStore:
    """Return responses: as they are, or read from what was given.

    Raises
    ------
    TypeError
        It is nothing of the kind; the message lists what is.
    DesignError
        An item is there twice in responses that were made in memory.
    EvalStatsError
        As of `evalstats_plugin.read`.
    """
    if isinstance(given, (ResponseMatrix, ResponseStore)):
        return given
    if isinstance(given, Responses):
        given = ResponseSet((given,))
    elif not isinstance(given, (ResponseSet, str, PathLike, Mapping)) and _is_plain(given):
        iterable: Any = given
        listed: list[Any] = list(iterable)
        if all(isinstance(each, Responses) for each in listed):
            given = ResponseSet(tuple(listed))
        elif isinstance(given, Iterator):
            given = listed
    if isinstance(given, ResponseSet):
        for r in given:
            check_item_ids(r)
        return given
    # Loaded on use: responses know nothing of logs, but for this door.
    found: ResponseSet = import_module("evalstats_plugin.logs.reading").read(given)
    return found


def _is_plain(given: Any) -> bool:
    """Whether it is a list, a generator and the like, which has no axes of its own."""
    return not hasattr(given, "shape") and isinstance(given, Iterable)


def as_list(given: ResponsesLike) -> tuple[list[Responses], tuple[str, ...]]:
    """Return the responses one by one with their scales, and the notes that came with them."""
    each, notes = one_by_one(given)
    return settled(each), notes


def one_by_one(given: ResponsesLike) -> tuple[list[Responses], tuple[str, ...]]:
    """Return the responses as they were logged, and the notes that came with them."""
    found = as_responses(given)
    if isinstance(found, ResponseStore):
        found = in_memory(found)
    each = found.to_responses() if isinstance(found, ResponseMatrix) else found
    return list(each), tuple(found.notes)


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
