"""Models of a response store on the same items: the answers stay on disk.

For 0/1 scores all that comparisons need is how many items each of two models gets right, which one
pass over the items counts. Clusters and partial credit need the differences themselves: they are
read for some pairs at a time, in a pass for each.
"""
# PART pair_tallies - Who of two models gets an item right, counted while items come in block by block.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.design import (
    Pairs,
    Request,
    check_baseline,
    common_kind,
    has_item_scores,
    named_baseline,
    numbered,
    pair_indices,
    said_of,
    settled,
    why_left_out,
)
from evalstats_plugin.comparisons.paired import paired_rows
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.methods import Kind
from evalstats_plugin.data.responses import mean_over_epochs
from evalstats_plugin.data.store import ResponseStore, StoredTask, tasks_of
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.scores.cells import Bounds, make_cell
from evalstats_plugin.stats.arrays import FloatArray

MOST_PAIRS = 4_000_000
"""Pairs of models that are compared at once."""


MOST_DIFFERENCES = 2**32
"""Differences of two models on an item, where counts of items do not do: a thousand passes."""


IN_MEMORY = "take a part into memory, compare(store.matrix(items, models))"


_Kind: TypeAlias = tuple[Kind, tuple[float, float] | None, tuple[str, ...]]


def stored_comparisons(
    store: ResponseStore, design: str, request: Request
) -> tuple[list[Comparison], list[str]]:
    """Compare models item by item, as `same_items` does; return also notes on what was left out.

    Raises
    ------
    SelectionError
        No such baseline, or a design or correction that needs all answers in memory.
    DesignError
        Nothing to compare, or more than can be compared without all answers in memory.
    """
    if design != "paired":
        raise SelectionError(_needs_memory("design", design, "paired"))
    if request.correction == "maxt":
        raise SelectionError(_needs_memory("correction", "maxt", "holm, bh or none"))
    check_baseline(request.baseline, store.models)
    pairs, notes = _pairings(store, request)
    return paired_rows(pairs, request), notes


def _needs_memory(what: str, found: str, fitting: str) -> str:
    return f"{what} {found!r} found, expected {fitting} for answers in a store; or {IN_MEMORY}"


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPairing(Pairs):
    """Pairs of models whose scores are on disk."""

    of: StoredTask
    order: NDArray[np.int64]
    """Shape (M,): the task's items by their ids, the order that a matrix's are joined in. Random
    signs are drawn for one item after the other."""
    at: NDArray[np.int64]
    """Shape (N,): the place of each model in the store."""
    tally: PairTally
    mean_scores: FloatArray
    """Shape (N,)."""

    @property
    def n_of_task(self) -> int:
        """M: the task's items, whoever has a score of them."""
        return len(self.of.places)

    @property
    def n_answered(self) -> NDArray[np.int64]:
        """Shape (N,): items with a score of each model."""
        return self.tally.n_answered[self.at].astype(np.int64)

    @property
    def n_items(self) -> NDArray[np.int64]:
        """Shape (P,): items with a score of both models."""
        return self.tally.n_items(self.at[self.a], self.at[self.b])

    def tables(self) -> FloatArray:
        """Of 0/1 scores, who gets an item right, shape (4, P): both, only a, only b, neither."""
        return self.tally.tables(self.at[self.a], self.at[self.b])

    def means(self) -> FloatArray:
        """Shape (N,): mean score of each model on the items it has a score of."""
        return self.mean_scores

    def differences(self, start: int = 0, stop: int | None = None) -> FloatArray:
        """Shape (P, M): scores of b minus those of a, of the pairs from `start` to `stop`.

        Raises
        ------
        DesignError
            More of them in all than can be read in reasonable time.
        """
        if len(self.a) * self.n_of_task > MOST_DIFFERENCES:
            msg = (
                f"{self.task}: partial credit, epochs or clusters found, which need the "
                f"differences of {len(self.a):,} pairs of models on {self.n_of_task:,} items, too "
                f"many to read from a store: name a baseline, or {IN_MEMORY}"
            )
            raise DesignError(msg)
        pairs = slice(start, stop)
        both = np.concatenate([self.at[self.a[pairs]], self.at[self.b[pairs]]])
        models, places = np.unique(both, return_inverse=True)
        scores = mean_over_epochs(self.of.scores(models))[:, self.order]
        a, b = np.split(places, 2)
        return scores[b] - scores[a]


def _pairings(store: ResponseStore, request: Request) -> tuple[list[StoredPairing], list[str]]:
    """Pair the models on each task and metric, as `pairing.pairings` does."""
    named = named_baseline(request.baseline, store.models)
    tasks = tasks_of(store)
    _check_number(len(store.models), len(tasks), named)
    found: list[StoredPairing] = []
    left_out: dict[str, list[str]] = {}
    for task, tally in zip(tasks, _tallies(tasks, named), strict=True):
        likeness = _likeness(task, tally, request.bounds)
        models = _names(store, likeness.usable)
        why = why_left_out(len(store.models), models, named)
        if why:
            place = f"{task.task} {task.metric.removesuffix(',none')}"
            left_out.setdefault(why, []).append(place)
            continue
        found.append(_pairing(task, tally, likeness, pair_indices(models, named)))
    notes = said_of(left_out, store.models, nothing_left=not found)
    return settled(found, request.baseline, named), notes


def _pairing(
    task: StoredTask,
    tally: PairTally,
    likeness: _Likeness,
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> StoredPairing:
    store, usable = task.store, likeness.usable
    order = np.argsort(store.item_ids[task.places])
    clusters = None if store.clusters is None else store.clusters[task.places[order]]
    return StoredPairing(
        task=task.task,
        metric=task.metric,
        models=_names(store, usable),
        a=pairs[0],
        b=pairs[1],
        kind=likeness.kind,
        bounds=likeness.bounds,
        higher_is_better=None,
        clusters=None if clusters is None else numbered(clusters),
        notes=likeness.notes,
        of=task,
        order=order,
        at=usable,
        tally=tally,
        mean_scores=likeness.means,
    )


def _names(store: ResponseStore, at: NDArray[np.int64]) -> tuple[str, ...]:
    places: list[int] = at.tolist()
    return tuple(store.models[i] for i in places)


def _check_number(n_models: int, n_tasks: int, baseline: str | None) -> None:
    of_each = n_models * (n_models - 1) // 2 if baseline is None else n_models - 1
    if of_each * n_tasks > MOST_PAIRS:
        msg = (
            f"{of_each * n_tasks:,} pairs found ({n_models:,} models, tasks: {n_tasks:,}), "
            f"expected {MOST_PAIRS:,} at most: name a baseline, or {IN_MEMORY}"
        )
        raise DesignError(msg)


def _tallies(tasks: Sequence[StoredTask], baseline: str | None) -> list[PairTally]:
    """Count in one pass over the items."""
    if not tasks:
        return []
    store = tasks[0].store
    n, m, _ = store.shape
    rows = np.arange(n) if baseline is None else np.array([store.models.index(baseline)])
    tallies = [PairTally(n, rows) for _ in tasks]
    of_item = np.empty(m, dtype=np.int64)
    for k, task in enumerate(tasks):
        of_item[task.places] = k
    for part in store.slices():
        codes, missing = store.codes(part)
        there = None if missing is None else ~missing
        those: list[int] = np.unique(of_item[part]).tolist()
        for k in those:
            mine = of_item[part] == k
            tallies[k].add(
                codes if mine.all() else codes[mine],
                there if there is None or mine.all() else there[mine],
                store.coding.levels or 1,
            )
    return tallies


class _Likeness(NamedTuple):
    """What the scores of a task are like."""

    usable: NDArray[np.int64]
    """The models that have any."""
    means: FloatArray
    """Of each of them."""
    kind: Kind
    bounds: tuple[float, float] | None
    notes: tuple[str, ...]


def _likeness(task: StoredTask, tally: PairTally, bounds: Bounds) -> _Likeness:
    known = bounds.get(task.metric, bounds.get(task.metric.partition(",")[0]))
    if tally.is_binary and known in (None, (0.0, 1.0)):
        answered = np.flatnonzero(tally.n_answered)
        shares = tally.right[answered] / tally.n_answered[answered]
        return _Likeness(answered, shares, "binary", (0.0, 1.0), ())
    found: list[int] = []
    means: list[float] = []
    kinds: list[_Kind] = []
    for models in task.models_at_once():
        cells = [make_cell(r, bounds) for r in task.responses(models)]
        usable = [k for k, cell in enumerate(cells) if has_item_scores(cell)]
        found += models[usable].tolist()
        means += [cells[k].estimate for k in usable]
        if usable:
            kinds.append(common_kind([cells[k] for k in usable]))
    kind = _together(kinds) if kinds else ("real", None, ())
    return _Likeness(np.array(found, dtype=np.int64), np.array(means), *kind)


def _together(kinds: Sequence[_Kind]) -> _Kind:
    """What `common_kind` says of all models, from what it says of some at a time."""
    if all(kind == "binary" for kind, _, _ in kinds):
        return kinds[0]
    bounds = {span for _, span, _ in kinds}
    if any(kind == "real" for kind, _, _ in kinds) or len(bounds) > 1:
        return "real", None, ()
    notes = dict.fromkeys(note for _, _, notes in kinds for note in notes)
    return "bounded", bounds.pop(), tuple(notes)


class PairTally:
    """Counts of items for K models paired with all N: what a comparison of 0/1 scores goes by.

    Items that every model answered add to counts of single models; only those that some lack add
    to counts of pairs.
    """

    def __init__(self, n_models: int, rows: NDArray[np.int64]) -> None:
        self.rows = rows
        """Shape (K,): the models that are paired."""
        self.is_binary = True
        """Whether every score so far is 0 or 1."""
        self.n_answered, self.right, self._right_of_all = np.zeros((3, n_models))
        """Shape (N,): items with a score, items right, and those right that all answered."""
        self._n_of_all = 0
        self._both = np.zeros((len(rows), n_models))
        self._some: _Some | None = None
        self._row_of = np.full(n_models, -1)
        self._row_of[rows] = np.arange(len(rows))

    def add(self, codes: NDArray[Any], there: NDArray[np.bool_] | None, top: float) -> None:
        """Count a block of items.

        Parameters
        ----------
        codes : shape (m, N, R)
            0 where there is none.
        there : shape (m, N, R)
            Which of them are scores; None for all.
        top
            The code of score 1.
        """
        seen: NDArray[np.bool_] | None = None if there is None else np.any(there, axis=2)
        self.n_answered += len(codes) if seen is None else seen.sum(axis=0)
        if self.is_binary and (codes.shape[2] > 1 or not _are_binary(codes, there, top)):
            self.is_binary = False
        right = self._add_right(codes[:, :, 0] == top, seen) if self.is_binary else None
        if seen is None:
            self._n_of_all += len(codes)
            return
        if self._some is None:
            self._some = _Some.of(*self._both.shape)
        numbers: NDArray[np.float32] = seen.astype(np.float32)
        self._some.add(right, numbers, self.rows)

    def _add_right(
        self, right: NDArray[np.bool_], seen: NDArray[np.bool_] | None
    ) -> NDArray[np.float32]:
        right = right if seen is None else right & seen
        # Whole numbers below 2^24 are exact in single precision, and twice as fast.
        numbers = right.astype(np.float32)
        self._both += numbers[:, self.rows].T @ numbers
        count = right.sum(axis=0)
        self.right += count
        if seen is None:
            self._right_of_all += count
        return numbers

    def n_items(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        """Items with a score of both models of each pair, shape (P,); `a` are among the rows."""
        n = np.full(len(a), self._n_of_all)
        if self._some is not None:
            n = n + self._some.seen[self._row_of[a], b].astype(np.int64)
        return n

    def tables(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> FloatArray:
        """Items that both get right, only a, only b, and neither; shape (4, P)."""
        rows = self._row_of[a]
        both = self._both[rows, b]
        # Of the items that have a score of both.
        of_a, of_b = self._right_of_all[a], self._right_of_all[b]
        if self._some is not None:
            of_a, of_b = of_a + self._some.of_row[rows, b], of_b + self._some.of_other[rows, b]
        return np.stack([both, of_a - both, of_b - both, self.n_items(a, b) - of_a - of_b + both])


@dataclass(eq=False)
class _Some:
    """Of the items that some model lacks; each of shape (K, N)."""

    seen: FloatArray
    """Items with a score of both."""
    of_row: FloatArray
    """Of those, right by the model of the row."""
    of_other: FloatArray
    """Right by the other."""

    @classmethod
    def of(cls, k: int, n: int) -> _Some:
        of_row = np.zeros((k, n))
        # Where all are paired with all, what holds for the other is the transpose.
        return cls(np.zeros((k, n)), of_row, of_row.T if k == n else np.zeros((k, n)))

    def add(
        self,
        right: NDArray[np.float32] | None,
        seen: NDArray[np.float32],
        rows: NDArray[np.int64],
    ) -> None:
        self.seen += (of_rows := seen[:, rows].T) @ seen
        if right is None:
            return
        self.of_row += right[:, rows].T @ seen
        if len(rows) < len(self.of_other.T):
            self.of_other += of_rows @ right


def _are_binary(codes: NDArray[Any], there: NDArray[np.bool_] | None, top: float) -> bool:
    if top == 1 and codes.dtype == np.uint8:
        return True
    plain = (codes == 0) | (codes == top)
    return bool((plain if there is None else plain | ~there).all())
