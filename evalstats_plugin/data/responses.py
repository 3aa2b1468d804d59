"""What one model answered to one task under one metric."""
# PART response_metadata - What `Responses` know besides scores of items, as JSON values: for formats that carry it.
# PART takes - Rows that are takes of items: where each stands among M items and R epochs.

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

TABLES = "tabular"
"""Harness of what was read from a table, which no harness wrote."""


_LONGEST_CLUSTER = 80
"""Characters of a cluster's name that are kept."""


_LONGEST_NUMBER = 18
"""Characters that always fit into 64 bits."""


_NUMBER = (int, float, NoneType)


_COUNT = (int, NoneType)


_PLAIN: Mapping[str, tuple[type, ...]] = {
    "aggregation": (str,),
    "higher_is_better": (bool, NoneType),
    "logged": _NUMBER,
    "logged_std_error": _NUMBER,
    "logged_n": _COUNT,
    "population": _COUNT,
}
"""What is taken over as it is, and of what types it may be."""


_GROUP: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "depth": (int,),
    "weighting": (str,),
    "n_tasks": (int,),
    "logged": _NUMBER,
    "logged_std_error": _NUMBER,
}


Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Selection:
    """What the caller wants read. Names may hold ``*`` and ``?``; empty means everything.

    A metric matches by its full name (``"acc,none"``) or by the part before the comma.
    ``cluster`` names the field of an item that says which items belong together,
    ``include_incomplete`` asks for runs that did not end well too, and ``header_only`` for names
    without scores: cheap, and enough to list what there is. ``columns`` says which column of a
    table holds which part of a take, and ``wide`` that tables are matrices of scores, and what
    their rows are.
    """

    tasks: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    cluster: str | None = None
    include_incomplete: bool = False
    header_only: bool = False
    columns: tuple[tuple[str, str], ...] = ()
    """Pairs such as ``("item", "question_id")``; a part may be there more than once."""
    wide: Literal["", "models", "items"] = ""

    def wants_task(self, *names: str) -> bool:
        """Whether a task is wanted, by its own name or that of a group around it."""
        return not self.tasks or any(fnmatchcase(n, p) for p in self.tasks for n in names)

    def wants_metric(self, name: str) -> bool:
        """Whether a metric is wanted, by its full name or the part before the comma."""
        names = (name, name.partition(",")[0])
        return not self.metrics or any(fnmatchcase(n, p) for p in self.metrics for n in names)


@dataclass(frozen=True, slots=True)
class Source:
    """Where responses come from."""

    path: Path
    harness: str
    version: str | None = None
    when: str = ""
    """When the run was made, in a form that sorts by time."""
    run: str = ""
    """What the logs of a run that was broken off and taken up again share; empty where unknown."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group that a task is a part of, under one metric, as the harness was configured."""

    name: str
    depth: int
    """0 for the outermost."""
    weighting: Literal["micro", "macro"]
    """micro: every item counts the same; macro: every task counts the same."""
    n_tasks: int
    """Tasks of the group that have the metric; without all of them it has no score."""
    logged: float | None = None
    logged_std_error: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Responses:
    """What one model answered to one task under one metric.

    Shape letters: M items, R epochs (takes of an item by the model).

    Notes
    -----
    ``aggregation`` says how item scores make the task's value: ``"mean"``, or the metric's
    own way by name. Where ``scores`` is empty only the logged value is known: the log holds
    no items, or what it holds for an item is not a score of that item (F1 pairs, texts).
    """

    model: str
    task: str
    metric: str
    item_ids: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Shape (M,): names of the items, unique."""
    scores: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 1)))
    """Shape (M, R): NaN where missing."""
    weights: NDArray[np.float64] | None = None
    """Shape (M,): denominators, where the value is a ratio of sums (words of a text)."""
    pairs: NDArray[Any] | None = None
    """Shape (M, 2), objects: what was expected of each item and what was answered, where
    `aggregation` makes the value out of these: labels (f1), texts (bleu), a label and how sure the
    model is of it (roc_auc). None where missing. `scores` then have shape (M, 0)."""
    clusters: NDArray[Any] | None = None
    """Shape (M,): what stands or falls together."""
    item_hashes: NDArray[Any] | None = None
    """Shape (M,): fingerprint of each item's question."""
    higher_is_better: bool | None = None
    bounds: tuple[float, float] | None = None
    """The least and greatest possible score, where known."""
    aggregation: str = "mean"
    source: Source
    settings: tuple[tuple[str, str], ...] = ()
    """What makes two models of one name differ: arguments, revision, chat template."""
    groups: tuple[Group, ...] = ()
    """Groups around the task, outermost first."""
    logged: float | None = None
    logged_std_error: float | None = None
    logged_n: int | None = None
    population: int | None = None
    """Items in the whole benchmark, where the run took only a part of it."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.item_ids)
        if self.scores.ndim != 2 or len(self.scores) != n:
            msg = f"scores have shape {self.scores.shape}, expected ({n}, R) for {n} item ids"
            raise ValueError(msg)
        if self.pairs is not None and self.pairs.shape != (n, 2):
            msg = f"pairs have shape {self.pairs.shape}, expected ({n}, 2)"
            raise ValueError(msg)
        for name in ("weights", "clusters", "item_hashes"):
            value = getattr(self, name)
            if value is not None and value.shape != (n,):
                msg = f"{name} have shape {value.shape}, expected ({n},)"
                raise ValueError(msg)

    @property
    def item_means(self) -> NDArray[np.float64]:
        """Shape (M,): mean over the epochs that were scored, NaN where none was."""
        return mean_over_epochs(self.scores)


def mean_over_epochs(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the epochs that were scored, shape (..., M) from (..., M, R); NaN where none was.

    An infinite score makes the mean infinite, or NaN beside one of the other sign: it is not lost
    among the other epochs.
    """
    if scores.shape[-1] == 1:
        return scores[..., 0]
    taken = ~np.isnan(scores)
    count = taken.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        total = np.where(taken, scores, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def as_clusters(
    values: Sequence[str | None], name: str
) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
    """Return the cluster of each item, shape (M,), and a note where some have none.

    An item without the field is a cluster of its own.
    """
    missing = sum(v is None for v in values)
    if missing == len(values):
        return None, (f"no item has the field {name!r}: items are taken as independent",)
    alone = [f"(item {i})" if v is None else _short(v) for i, v in enumerate(values)]
    notes = (f"{missing} items without {name!r} are clusters of their own",) if missing else ()
    return np.asarray(alone), notes


def as_item_ids(names: Sequence[str]) -> NDArray[Any]:
    """Return names of items from texts: numbers if all are numbers as Python writes them.

    So that items which a harness numbers stay in their order, wherever they were written down.

    >>> as_item_ids(["3", "12"]), as_item_ids(["3", "012"])
    (array([ 3, 12]), array(['3', '012'], dtype='<U3'))
    """
    found = np.asarray(names, dtype=str)
    if found.size and (np.char.str_len(found) <= _LONGEST_NUMBER).all():
        with suppress(ValueError, OverflowError):
            numbers = found.astype(np.int64)
            if (numbers.astype(str) == found).all():
                return numbers
    return found


def _short(value: str) -> str:
    """Return a name for a cluster; a whole passage would take its length for every item."""
    if len(value) <= _LONGEST_CLUSTER:
        return value
    return (
        value[:_LONGEST_CLUSTER]
        + " "
        + hashlib.sha256(value.encode(errors="replace")).hexdigest()[:16]
    )


def metadata_of(r: Responses) -> dict[str, Any]:
    """Return direction, aggregation, logged values, settings and groups, and when it was run."""
    return {
        **{name: getattr(r, name) for name in _PLAIN},
        "bounds": None if r.bounds is None else [float(b) for b in r.bounds],
        "settings": dict(r.settings),
        "groups": [{**asdict(group), "notes": list(group.notes)} for group in r.groups],
        "notes": list(r.notes),
        "when": r.source.when,
        "harness": r.source.harness,
        "version": r.source.version,
    }


def with_metadata(r: Responses, found: Mapping[str, Any]) -> Responses:
    """Return responses with what `metadata_of` gave, but their own source.

    Raises
    ------
    TypeError, KeyError, ValueError
        `metadata_of` never gave that.
    """
    bounds: list[float] | None = found["bounds"]
    settings = found["settings"].items()
    return replace(
        r,
        **_checked(found, _PLAIN),
        bounds=None if bounds is None else (float(bounds[0]), float(bounds[1])),
        settings=tuple((_text(key), _text(value)) for key, value in settings),
        groups=tuple(map(_group, found["groups"])),
        notes=tuple(map(_text, found["notes"])),
        source=replace(r.source, when=_text(found["when"])),
    )


def _group(found: Mapping[str, Any]) -> Group:
    notes = tuple(map(_text, found["notes"]))
    known: dict[str, Any] = {**_checked(found, _GROUP), "notes": notes}
    return Group(**known)


def _checked(found: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    for name, types in known.items():
        if not isinstance(found[name], types):
            msg = f"{name} is {found[name]!r}"
            raise TypeError(msg)
    return {name: found[name] for name in known}


def _text(value: object) -> str:
    if not isinstance(value, str):
        msg = f"{value!r} found, expected a text"
        raise TypeError(msg)
    return value


def origin(found: Mapping[str, Any]) -> str:
    """Return the harness and version that responses came from, for a source's version."""
    return f"{found['harness']} {found['version'] or ''}".strip()


def in_order(codes: Codes) -> tuple[Codes, Codes]:
    """Return the different codes as they first come, and the place of each row's among them.

    >>> in_order(np.array([7, 3, 7]))
    (array([7, 3]), array([0, 1, 0]))
    """
    values, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return values[order], rank[inverse]


def first_rows(items: Codes) -> Codes:
    """Return the first row of each item, shape (M,).

    >>> first_rows(np.array([0, 0, 1]))
    array([0, 2])
    """
    return np.unique(items, return_index=True)[1].astype(np.int64)


def number_takes(items: Codes) -> Codes:
    """Number the takes of each item, from 0, in the order of the rows.

    >>> number_takes(np.array([0, 1, 0, 0]))
    array([0, 0, 1, 2])
    """
    rows = np.argsort(items, kind="stable")
    ordered = items[rows]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(starts, len(ordered)))
    number = np.empty_like(items)
    number[rows] = np.arange(len(rows)) - np.repeat(starts, sizes)
    return number


def rows_of_one_take(items: Codes, epochs: Codes) -> tuple[int, int, int] | None:
    """Return two rows that are the same take, and how many rows are too many; None without any."""
    cells = items * (int(epochs.max(initial=0)) + 1) + epochs
    order = np.argsort(cells, kind="stable")
    again = np.flatnonzero(cells[order][1:] == cells[order][:-1])
    if not len(again):
        return None
    return int(order[again[0]]), int(order[again[0] + 1]), len(again)


def spread(items: Codes, epochs: Codes, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores of takes as an array of items and epochs, shape (M, R), NaN for no take."""
    matrix = np.full((int(items.max()) + 1, int(epochs.max()) + 1), np.nan)
    matrix[items, epochs] = scores
    return matrix
