"""Paired comparisons of the models of a response store, whose scores stay on disk.

For 0/1 scores the numbers of items that two models get right are enough: `PairTally` counts them
for all pairs in one pass over the items. Clusters and partial credit need the differences
themselves, which `StoredPairing` reads for some pairs at a time, in a pass for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.design import (
    Likeness,
    Pairs,
    Request,
    check_baseline,
    common_kind,
    has_item_scores,
    is_chosen_from_data,
    joint_kind,
    notes_on_left_out,
    numbered,
    pair_indices,
    settled,
    why_left_out,
)
from evalstats_plugin.comparisons.families import Table
from evalstats_plugin.comparisons.paired import paired_tables
from evalstats_plugin.data.methods import Kind
from evalstats_plugin.data.metrics import with_stock
from evalstats_plugin.data.responses import IN_ARRAY, mean_over_epochs
from evalstats_plugin.data.store import ResponseStore, StoredTask, tasks_of
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.scores.cells import make_cell
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.pairs.simultaneous import FEW

MOST_PAIRS = 4_000_000
"""Pairs of models that are compared at most."""

MOST_DIFFERENCES = 2**32
"""Differences by pair and item that are read from a store at most: a thousand passes."""

MOST_SCORES = 2**27
"""Scores of one task that are held to judge all pairs at once: a gigabyte."""

IN_MEMORY = "take a part into memory, compare(store.matrix(items, models))"


def stored_comparisons(
    store: ResponseStore, design: str, request: Request
) -> tuple[list[Table], list[str]]:
    """Compare models item by item, as `same_items` does; return also notes on what was left out.

    Raises
    ------
    SelectionError
        No such baseline, or a design or correction that needs all answers in memory.
    DesignError
        Nothing to compare, or more than can be compared without all answers in memory.
    """
    if design != "paired":
        msg = f"design {design!r} needs all answers in memory; choose paired, or {IN_MEMORY}"
        raise SelectionError(msg)
    check_baseline(request.baseline, store.models)
    pairs, notes = _pairings(store, request)
    if request.overall and len(pairs) > 1:
        notes.append(f"no comparison over all tasks of a store: {IN_MEMORY}")
    return paired_tables(pairs, request), notes


def _pairings(store: ResponseStore, request: Request) -> tuple[list[StoredPairing], list[str]]:
    """Pair the models on each task and metric, as `design.pairings` does."""
    best = is_chosen_from_data(request.baseline, store.models)
    named = None if best else request.baseline
    tasks = tasks_of(store)
    n_models = len(store.models)
    n_pairs = n_models * (n_models - 1) // 2 if named is None else n_models - 1
    if n_pairs * len(tasks) > MOST_PAIRS:
        raise DesignError(
            f"{n_pairs * len(tasks):,} pairs ({n_models:,} models, tasks: {len(tasks):,}) are more "
            f"than the {MOST_PAIRS:,} that can be compared; name a baseline, or {IN_MEMORY}"
        )
    pairs: list[StoredPairing] = []
    left_out: dict[str, list[str]] = {}
    for task, tally in zip(tasks, _tallies(tasks, named), strict=True):
        likeness = _likeness(task, tally)
        models = tuple(store.models[i] for i in likeness.usable.tolist())
        why = why_left_out(len(store.models), models, named)
        if why:
            place = f"{task.task} {task.metric.removesuffix(',none')}"
            left_out.setdefault(why, []).append(place)
            continue
        a, b = pair_indices(models, named)
        order = np.argsort(store.item_ids[task.places])
        in_order = None if store.clusters is None else store.clusters[task.places[order]]
        measure = with_stock(store.measure_of[task.task, task.metric], IN_ARRAY)
        pairs.append(
            StoredPairing(
                measure=measure.or_on(likeness.bounds),
                models=models,
                a=a,
                b=b,
                kind=likeness.kind,
                bounds=likeness.bounds,
                clusters=None if in_order is None else numbered(in_order),
                notes=likeness.notes,
                of=task,
                order=order,
                at=likeness.usable,
                tally=tally,
                mean_scores=likeness.means,
            )
        )
    notes = notes_on_left_out(left_out, store.models, nothing_left=not pairs)
    return settled(pairs, against_best_of_each=best), notes


class _Likeness(NamedTuple):
    """What the scores of a task are like."""

    usable: IntArray
    """Indices of the models that have item scores."""
    means: FloatArray
    """Mean score of each of them."""
    kind: Kind
    bounds: tuple[float, float] | None
    notes: tuple[str, ...]


def _likeness(task: StoredTask, tally: PairTally) -> _Likeness:
    bounds = task.store.measure_of[task.task, task.metric].bounds
    if tally.is_binary and bounds in (None, (0.0, 1.0)):
        answered = np.flatnonzero(tally.n_answered)
        shares = tally.right[answered] / tally.n_answered[answered]
        return _Likeness(answered, shares, "binary", (0.0, 1.0), ())
    places: list[int] = []
    means: list[float] = []
    kinds: list[Likeness] = []
    for models in task.models_at_once():
        cells = [make_cell(r) for r in task.responses(models)]
        usable = [k for k, cell in enumerate(cells) if has_item_scores(cell)]
        places += models[usable].tolist()
        means += [cells[k].estimate for k in usable]
        if usable:
            kinds.append(common_kind([cells[k] for k in usable]))
    kind = joint_kind(kinds) if kinds else ("real", None, ())
    return _Likeness(np.array(places, dtype=np.int64), np.array(means), *kind)


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPairing(Pairs):
    """Pairs of models whose scores are on disk."""

    of: StoredTask
    order: IntArray
    """Shape (M,): order of the task's items by their ids, as in a matrix: random signs are drawn
    for one item after the other."""
    at: IntArray
    """Shape (N,): the place of each model in the store."""
    tally: PairTally
    mean_scores: FloatArray
    """Shape (N,)."""

    @property
    def n_of_task(self) -> int:
        """M: the items of the task that any model has."""
        return len(self.of.places)

    @property
    def n_answered(self) -> IntArray:
        """Shape (N,): items with a score of each model."""
        return self.tally.n_answered[self.at].astype(np.int64)

    @property
    def n_items(self) -> IntArray:
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
            raise DesignError(
                f"{self.task} has partial credit, epochs or clusters, for which the differences of "
                f"{len(self.a):,} pairs of models on {self.n_of_task:,} items must be read: "
                f"too many; name a baseline, or {IN_MEMORY}"
            )
        return super().differences(start, stop)

    def scores_of(self, start: int = 0, stop: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores of a and of b, each of shape (P, M), of the pairs from `start` to `stop`."""
        pairs = slice(start, stop)
        both = np.concatenate([self.at[self.a[pairs]], self.at[self.b[pairs]]])
        models, places = np.unique(both, return_inverse=True)
        scores = mean_over_epochs(self.of.scores(models))[:, self.order]
        a, b = np.split(places, 2)
        return scores[a], scores[b]

    def all_scores(self) -> FloatArray | None:
        """Shape (N, M): means over the epochs, NaN where an item has no score.

        None if they do not fit into memory.

        Raises
        ------
        DesignError
            They do not, and the pairs are more than those with a baseline, or the items few.
        """
        if len(self.models) * self.n_of_task > MOST_SCORES:
            # Counts of few items reach farther at once than what stands for them then.
            if len(self.a) < len(self.models) and self.n_of_task > FEW:
                return None
            raise DesignError(
                f"all pairs of {len(self.models):,} models on {self.n_of_task:,} items of "
                f"{self.task} cannot be judged at once on disk: choose the correction bh, to "
                f"screen pairs, or {IN_MEMORY}"
            )
        return mean_over_epochs(self.of.scores(self.at))[:, self.order]


def _tallies(tasks: Sequence[StoredTask], baseline: str | None) -> list[PairTally]:
    """Count right answers of each task, in one pass over the items."""
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
        observed = None if missing is None else ~missing
        those: list[int] = np.unique(of_item[part]).tolist()
        for k in those:
            mine = of_item[part] == k
            tallies[k].add(
                codes if mine.all() else codes[mine],
                observed if observed is None or mine.all() else observed[mine],
                store.coding.levels or 1,
            )
    return tallies


class PairTally:
    """Counts of right answers for K models paired with all N, updated with blocks of items.

    Items that all models answered add to counts of single models; only items that some models lack
    need counts of pairs.
    """

    def __init__(self, n_models: int, rows: IntArray) -> None:
        self.rows = rows
        """Shape (K,): the models that are paired."""
        self.is_binary = True
        """Whether every score so far is 0 or 1."""
        self.n_answered, self.right, self._right_of_all = np.zeros((3, n_models))
        """Shape (N,): items with a score, items right, and those right that all answered."""
        self._n_of_all = 0
        self._both = np.zeros((len(rows), n_models))
        self._partly: _PartlyAnswered | None = None
        self._row_of = np.full(n_models, -1)
        self._row_of[rows] = np.arange(len(rows))

    def add(self, codes: NDArray[Any], observed: BoolArray | None, top: float) -> None:
        """Count a block of items.

        Parameters
        ----------
        codes : shape (m, N, R)
            0 where there is none.
        observed : shape (m, N, R)
            Which of them are scores; None for all.
        top
            The code of score 1.
        """
        seen: BoolArray | None = None if observed is None else np.any(observed, axis=2)
        self.n_answered += len(codes) if seen is None else seen.sum(axis=0)
        if self.is_binary and (codes.shape[2] > 1 or not _are_binary(codes, observed, top)):
            self.is_binary = False
        right: NDArray[np.float32] | None = None
        if self.is_binary:
            is_right: BoolArray = codes[:, :, 0] == top
            # Whole numbers below 2^24 are exact in single precision, and twice as fast.
            right = (is_right if seen is None else is_right & seen).astype(np.float32)
            self._both += right[:, self.rows].T @ right
            count = right.sum(axis=0)
            self.right += count
            if seen is None:
                self._right_of_all += count
        if seen is None:
            self._n_of_all += len(codes)
            return
        if self._partly is None:
            self._partly = _PartlyAnswered.of(*self._both.shape)
        numbers: NDArray[np.float32] = seen.astype(np.float32)
        self._partly.add(right, numbers, self.rows)

    def n_items(self, a: IntArray, b: IntArray) -> IntArray:
        """Items with a score of both models of each pair, shape (P,); `a` are among the rows."""
        n = np.full(len(a), self._n_of_all)
        if self._partly is not None:
            n = n + self._partly.seen[self._row_of[a], b].astype(np.int64)
        return n

    def tables(self, a: IntArray, b: IntArray) -> FloatArray:
        """Items that both get right, only a, only b, and neither; shape (4, P)."""
        rows = self._row_of[a]
        both = self._both[rows, b]
        # Of the items that have a score of both.
        of_a, of_b = self._right_of_all[a], self._right_of_all[b]
        if self._partly is not None:
            of_a, of_b = of_a + self._partly.of_row[rows, b], of_b + self._partly.of_other[rows, b]
        return np.stack([both, of_a - both, of_b - both, self.n_items(a, b) - of_a - of_b + both])


@dataclass(eq=False)
class _PartlyAnswered:
    """Counts of the items that some model lacks; each of shape (K, N)."""

    seen: FloatArray
    """Items with a score of both."""
    of_row: FloatArray
    """Of those, items that the model of the row gets right."""
    of_other: FloatArray
    """Of those, items that the other model gets right."""

    @classmethod
    def of(cls, k: int, n: int) -> _PartlyAnswered:
        of_row = np.zeros((k, n))
        # If all models are paired with all, the counts of the other model are the transpose.
        return cls(np.zeros((k, n)), of_row, of_row.T if k == n else np.zeros((k, n)))

    def add(
        self,
        right: NDArray[np.float32] | None,
        seen: NDArray[np.float32],
        rows: IntArray,
    ) -> None:
        self.seen += (of_rows := seen[:, rows].T) @ seen
        if right is None:
            return
        self.of_row += right[:, rows].T @ seen
        if len(rows) < len(self.of_other.T):
            self.of_other += of_rows @ right


def _are_binary(codes: NDArray[Any], observed: BoolArray | None, top: float) -> bool:
    if top == 1 and codes.dtype == np.uint8:
        return True
    plain = (codes == 0) | (codes == top)
    return bool((plain if observed is None else plain | ~observed).all())
