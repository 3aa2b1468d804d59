"""What one model answered to one task under one metric."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

TABLES = "tabular"
"""Harness of what was read from a table, which no harness wrote."""

_LONGEST_CLUSTER = 80
"""Characters of a cluster's name that are kept."""

_LONGEST_NUMBER = 18
"""Characters that always fit into 64 bits."""


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
