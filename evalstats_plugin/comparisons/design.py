"""Which models can be compared on which items, and with whom: what all designs share.

* `Request`: the checked arguments of `compare`; baselines
* `comparable`: the models of each task that have what a design needs, and notes on the others
* `Compared`: models on one task under one metric, and which of them are compared; `against_best`
* `Pairs`: the same with scores by item; `Pairing` has them in memory, `comparisons.stored` on disk;
  `pairings` makes them
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure, Measured, joint
from evalstats_plugin.data.methods import Kind, Method, check_name, table_of
from evalstats_plugin.data.responses import IN_ARRAY, Responses, mean_over_epochs
from evalstats_plugin.data.results import grouped
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, SelectionError, check_known, counted, few, no_such
from evalstats_plugin.scores.cells import (
    Cell,
    Missing,
    check_confidence_level,
    epochs_are_binary,
    make_cell,
    task_and_metric,
)
from evalstats_plugin.scores.methods import INTERVALS
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, Rng, steady
from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.streams import stream

Correction = Literal["simultaneous", "stepdown", "bh", "none"]

Family = Literal["auto", "task", "group", "run"]

Probabilities = Literal["alone", "shrunk"]

BEST = "best"
"""Baseline: the model with the best score of each task, unless a model has this name."""


def comparison_stream(rng: Rng) -> np.random.Generator:
    """Return the generator of all comparisons, the same for each command that makes them."""
    return stream(rng, "comparisons")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `compare`, checked."""

    confidence_level: float
    rng: np.random.Generator
    """As `comparison_stream` returns it."""
    baseline: str | None = None
    """Model with which the others are compared; None for every two."""
    method: str = "auto"
    """Name of a method of the table, or ``"auto"``."""
    table: Mapping[str, Method] = field(default_factory=partial(table_of, [], PAIRED))
    """Methods for comparisons by name, those of plugins among them."""
    correction: Correction = "simultaneous"
    family: Family = "auto"
    """Which tables are corrected together."""
    missing: Missing = "drop"
    prior: float | None = None
    """Prior weight of each outcome, for methods that have one; None for their own."""
    overall: bool = True
    """Whether models are also compared over all tasks together."""
    probabilities: Probabilities = "alone"
    """Whether P(better) looks at each pair alone or is shrunk over all of them."""

    def __post_init__(self) -> None:
        check_confidence_level(self.confidence_level)
        if self.prior is not None and not 0 < self.prior < np.inf:
            raise DesignError(f"the prior weight of each outcome must be above 0: {self.prior:g}")
        given = (
            ("correction", self.correction, Correction),
            ("family", self.family, Family),
            ("kind of probabilities", self.probabilities, Probabilities),
            ("rule for missing scores", self.missing, Missing),
        )
        for what, name, names in given:
            check_known(what, name, get_args(names))
        elsewhere = {
            "models on the same items": PAIRED,
            "models on items of their own": UNPAIRED,
            "the interval of one score": INTERVALS,
        }
        check_name(self.method, self.table, elsewhere)


def check_baseline(baseline: str | None, models: Iterable[str]) -> None:
    """Raise `SelectionError`, with the closest names, for a model that does not exist."""
    models = list(dict.fromkeys(models))
    if baseline not in (None, BEST, *models):
        raise SelectionError(no_such("model", str(baseline), models, few(models)))


def is_chosen_from_data(baseline: str | None, models: Iterable[str]) -> bool:
    """Whether the baseline is the best model of each task, rather than one with a name."""
    return baseline == BEST and BEST not in models


def refuse_best(request: Request, responses: Sequence[Responses]) -> None:
    """Raise `DesignError` for the best model as baseline, in a design that cannot allow for it."""
    if is_chosen_from_data(request.baseline, [r.model for r in responses]):
        raise DesignError(
            "the best model, chosen from the data, can be the baseline only on the same items and "
            "across tasks; name a model, or compare every two"
        )


def latest_cells(responses: Sequence[Responses]) -> list[Cell]:
    """Return the cells of the latest responses of each model, task and metric."""
    return [make_cell(r) for r in one_of_each(responses)]


def comparable(
    cells: Sequence[Cell],
    baseline: str | None,
    is_usable: Callable[[Cell], bool],
) -> tuple[list[list[Cell]], list[str]]:
    """Return the usable cells of each task and metric, and notes on what cannot be compared.

    Raises `DesignError` where there is nothing to compare.
    """
    models = list(dict.fromkeys(c.responses.model for c in cells))
    groups: list[list[Cell]] = []
    left_out: dict[str, list[str]] = {}
    by_place = grouped(cells, lambda c: task_and_metric(c.responses))
    for (task, metric), group in by_place.items():
        usable = [c for c in group if is_usable(c)]
        why = why_left_out(len(group), [c.responses.model for c in usable], baseline)
        if why:
            left_out.setdefault(why, []).append(f"{task} {metric}")
        else:
            groups.append(usable)
    return groups, notes_on_left_out(left_out, models, nothing_left=not groups)


def has_item_scores(cell: Cell) -> bool:
    """Whether a model has a mean of item scores, which a paired comparison needs."""
    means = cell.kind not in (None, "ratio", "left-out") and cell.composite is None
    return means and len(cell.values) > 0


def why_left_out(n_models: int, usable: Sequence[str], baseline: str | None) -> str:
    """Return why the models of a task cannot be compared; an empty string if they can."""
    if n_models < 2:
        return "one model only"
    if len(usable) < 2:
        return "fewer than two models have a mean of item scores"
    if baseline is not None and baseline not in usable:
        return f"{baseline} has no item scores"
    return ""


def notes_on_left_out(
    left_out: Mapping[str, Sequence[str]], models: Sequence[str], *, nothing_left: bool
) -> list[str]:
    """Return notes on the tasks left out, by the reason.

    Raises `DesignError` where nothing is left to compare.
    """
    notes = [f"not compared, {why}: {few(places)}" for why, places in left_out.items()]
    if nothing_left and len(models) < 2:
        only = f"there is only one model ({models[0]})" if models else "there are no responses"
        raise DesignError(f"{only}; read logs of two models or more on the same task")
    if nothing_left:
        raise DesignError(f"no two models can be compared; {'; '.join(notes)}")
    return notes


Likeness: TypeAlias = tuple[Kind | None, tuple[float, float] | None, tuple[str, ...]]
"""Kind and bounds of scores, and notes on what was assumed."""


def common_kind(cells: Sequence[Cell]) -> tuple[Kind, tuple[float, float] | None, tuple[str, ...]]:
    """Kind and bounds of the differences: those of the scores where all are alike; and notes."""
    likenesses: list[Likeness] = []
    for cell in cells:
        assumed = cell.kind == "bounded" and cell.responses.measure.scale_from == "assumed"
        guessed = assumed and not epochs_are_binary(cell.responses)
        # Two values on another scale are compared as all scores on it.
        kind = "bounded" if cell.kind == "binary" and cell.bounds != (0.0, 1.0) else cell.kind
        notes = ("scores assumed to lie in [0, 1]",) if guessed else ()
        likenesses.append((kind, cell.bounds, notes))
    return joint_kind(likenesses)


def joint_kind(
    likenesses: Sequence[Likeness],
) -> tuple[Kind, tuple[float, float] | None, tuple[str, ...]]:
    """Kind and bounds of differences, from those of the scores of some models at a time."""
    if all(kind == "binary" for kind, _, _ in likenesses):
        return "binary", (0.0, 1.0), ()
    bounds = {span for _, span, _ in likenesses}
    if any(kind == "real" for kind, _, _ in likenesses) or len(bounds) > 1:
        return "real", None, ()
    return (
        "bounded",
        bounds.pop(),
        tuple(dict.fromkeys(n for _, _, notes in likenesses for n in notes)),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Compared(Measured):
    """N models on one task under one metric, and the P pairs to compare."""

    measure: Measure  # pyrefly: ignore[bad-override] - frozen
    """What the scores are, of all models together."""
    models: tuple[str, ...]
    a: IntArray
    b: IntArray
    """Shape (P,): the models of each pair, by their place in `models`."""
    notes: tuple[str, ...] = ()
    others: tuple[IntArray, IntArray] | None = None
    """Further pairs, not asked for, among which the best model was chosen as the baseline."""

    @property
    def family(self) -> Self:
        """The same with all pairs that are corrected together: those asked for, then the others."""
        if self.others is None:
            return self
        a, b = (np.concatenate(x) for x in zip((self.a, self.b), self.others, strict=True))
        return replace(self, a=a, b=b, others=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairs(Compared, ABC):
    """N models on M items of one task, and the P pairs to compare item by item."""

    kind: Kind
    bounds: tuple[float, float] | None
    clusters: IntArray | None
    """Shape (M,): the cluster of each item, by number."""

    @property
    @abstractmethod
    def n_of_task(self) -> int:
        """M: the items of the task that any model has."""

    @property
    @abstractmethod
    def n_answered(self) -> IntArray:
        """Shape (N,): items with a score of each model."""

    @property
    @abstractmethod
    def n_items(self) -> IntArray:
        """Shape (P,): items with a score of both models."""

    @property
    def n_either(self) -> IntArray:
        """Shape (P,): items with a score of at least one of the two."""
        n = self.n_answered
        return n[self.a] + n[self.b] - self.n_items

    @abstractmethod
    def tables(self) -> FloatArray:
        """Of 0/1 scores, who gets an item right, shape (4, P): both, only a, only b, neither."""

    @abstractmethod
    def means(self) -> FloatArray:
        """Shape (N,): mean score of each model on the items it has a score of."""

    def differences(self, start: int = 0, stop: int | None = None) -> FloatArray:
        """Shape (P, M): scores of b minus those of a, of the pairs from `start` to `stop`."""
        a, b = self.scores_of(start, stop)
        return b - a

    @abstractmethod
    def scores_of(self, start: int = 0, stop: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores of a and of b, each of shape (P, M), of the pairs from `start` to `stop`."""

    @abstractmethod
    def all_scores(self) -> FloatArray | None:
        """Shape (N, M): means over the epochs, NaN where an item has no score; None if too many."""

    @property
    def span(self) -> tuple[float, float]:
        """Least and greatest possible difference."""
        low, high = self.bounds or (-np.inf, np.inf)
        return low - high, high - low

    def least_far(self) -> FloatArray | None:
        """How far differences go at least, shape (P,); None where those that are there show it."""
        return None

    def cluster_sums(self, differences: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of differences in each cluster, and how many there are; both of shape (P, C)."""
        if self.clusters is None:
            raise ValueError(f"{self.task}: items come in no clusters")

        seen = ~np.isnan(differences)
        totals = by_cluster(np.where(seen, differences, 0.0), self.clusters)
        return totals, by_cluster(seen * 1.0, self.clusters)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairing(Pairs):
    """Pairs of models whose scores are in memory."""

    scores: FloatArray
    """Shape (N, M): means over the epochs, NaN where an item has no score."""
    open: BoolArray | None = None
    """Shape (N, M): items that a model ran and has no score of; None if there are none."""

    @property
    def n_of_task(self) -> int:
        """M: the items of the task that any model has."""
        return self.scores.shape[1]

    def n_open(self) -> IntArray:
        """Shape (P,): items that both models ran and that lack a score of at least one."""
        if self.open is None:
            return np.zeros(len(self.a), dtype=np.int64)
        ran = (self.open | ~np.isnan(self.scores)).astype(np.float64)
        return self._products(ran, ran).astype(np.int64) - self.n_items

    def at_ends(self, pairs: IntArray) -> tuple[Pairing, Pairing]:
        """Some pairs, two models each, with a score for what is open: worst for b, and best."""
        low, high = self.bounds or (np.nan, np.nan)
        a, b = self.a[pairs], self.b[pairs]
        is_open = np.zeros(self.scores.shape, dtype=np.bool_) if self.open is None else self.open
        least, most = (np.where(is_open, end, self.scores) for end in (low, high))
        n = np.arange(len(pairs))
        both: list[int] = [*a.tolist(), *b.tolist()]
        models = tuple(self.models[i] for i in both)
        worst, best = (
            replace(
                self, models=models, scores=np.concatenate([of_a[a], of_b[b]]),
                a=n, b=n + len(n), open=None, others=None,
            )
            for of_a, of_b in ((most, least), (least, most))
        )  # fmt: skip
        return worst, best

    @property
    def n_answered(self) -> IntArray:
        """Shape (N,): items with a score of each model."""
        return (~np.isnan(self.scores)).sum(axis=1)

    @cached_property
    def n_items(self) -> IntArray:
        """Shape (P,): items with a score of both models."""
        seen = (~np.isnan(self.scores)).astype(np.float64)
        return self._products(seen, seen).astype(np.int64)

    def tables(self) -> FloatArray:
        """Of 0/1 scores, who gets an item right, shape (4, P): both, only a, only b, neither."""
        seen = (~np.isnan(self.scores)).astype(np.float64)
        right = np.where(seen > 0, self.scores, 0.0)
        both = self._products(right, right)
        # Of the items that have a score of both.
        only_a, only_b = self._products(right, seen) - both, self._products(seen, right) - both
        neither = self.n_items - both - only_a - only_b
        return np.stack([both, only_a, only_b, neither])

    def means(self) -> FloatArray:
        """Shape (N,): mean score of each model on the items it has a score of."""
        scored = ~np.isnan(self.scores)
        return np.where(scored, self.scores, 0.0).sum(axis=1) / scored.sum(axis=1)

    def mean_differences(self) -> FloatArray:
        """Shape (P,): mean of b minus that of a on the items of both; NaN without any."""
        scored = (~np.isnan(self.scores)).astype(np.float64)
        scores = np.where(scored > 0, self.scores, 0.0)
        # Of the scores of each where the other's are there, too.
        sums = self._products(scored, scores) - self._products(scores, scored)
        n = self.n_items
        return sums / np.where(n > 0, n, np.nan)

    def scores_of_pairs(self) -> tuple[FloatArray, FloatArray]:
        """Mean scores of a and of b on the items of both, shape (P,); without any, on their own."""
        seen = (~np.isnan(self.scores)).astype(np.float64)
        scores, n = np.where(seen > 0, self.scores, 0.0), self.n_items
        means = self.means()
        a, b = (
            np.where(n > 0, total / np.maximum(n, 1), means[own])
            for total, own in (
                (self._products(scores, seen), self.a),
                (self._products(seen, scores), self.b),
            )
        )
        return a, b

    def _products(self, of_a: FloatArray, of_b: FloatArray) -> FloatArray:
        """Sums over the items of what `of_a` has of a times what `of_b` has of b, shape (P,)."""
        # With a baseline a is one model: no products of all with all.
        rows = np.flatnonzero(np.bincount(self.a))
        place = np.zeros(len(of_a), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        return (of_a[rows] @ of_b.T)[place[self.a], self.b]

    def scores_of(self, start: int = 0, stop: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores of a and of b, each of shape (P, M), of the pairs from `start` to `stop`."""
        pairs = slice(start, stop)
        return self.scores[self.a[pairs]], self.scores[self.b[pairs]]

    def all_scores(self) -> FloatArray:
        """Shape (N, M): means over the epochs, NaN where an item has no score."""
        return self.scores


def pairings(
    cells: Sequence[Cell],
    baseline: str | None,
    missing: Missing = "drop",
    *,
    without_pairs: bool = False,
) -> tuple[list[Pairing], list[str]]:
    """Join models on the items of each task and metric; return also notes on what was left out.

    With the baseline `BEST`, unless a model has this name, it is each task's best model. Without
    pairs there are none yet: those of very many models are asked for by blocks.
    """
    best = is_chosen_from_data(baseline, [c.responses.model for c in cells])
    named = None if best else baseline
    groups, notes = comparable(cells, named, has_item_scores)
    pairs = [_pairing(cells, named, missing, without_pairs=without_pairs) for cells in groups]
    if without_pairs:
        return pairs, notes
    return settled(pairs, against_best_of_each=best), notes


def _pairing(
    cells: Sequence[Cell], baseline: str | None, missing: Missing, *, without_pairs: bool
) -> Pairing:
    matrix = ResponseMatrix.join([c.responses for c in cells])
    kind, bounds, notes = common_kind(cells)
    a, b = pair_indices(() if without_pairs else matrix.models, baseline)
    scores = mean_over_epochs(matrix.scores)
    # A matrix does not say which items were not run at all: unless asked, none counts as missing.
    is_logged = missing != "drop" or any(c.responses.source.harness != IN_ARRAY for c in cells)
    is_open = np.zeros(scores.shape, dtype=np.bool_)
    if is_logged and bounds is not None and np.isnan(scores).any():
        place = {model: i for i, model in enumerate(matrix.models)}
        for r in (c.responses for c in cells):
            gone = np.isnan(r.item_means)
            if gone.any():
                ids = r.item_ids[gone].astype(str)
                is_open[place[r.model]] |= np.isin(matrix.item_ids.astype(str), ids)
        is_open &= np.isnan(matrix.scores).all(axis=2)
    measure = joint([c.responses.measure for c in cells])
    if missing == "zero" and is_open.any():
        worst = bounds[measure.higher_is_better is False] if bounds else np.nan
        scores = np.where(is_open, worst, scores)
        n = int(is_open.sum())
        notes = (*notes, f"{counted(n, 'missing score')} of all models count as {worst:g}")
        is_open[:] = False
    return Pairing(
        measure=measure,
        models=matrix.models,
        scores=scores,
        open=is_open if is_open.any() else None,
        a=a,
        b=b,
        kind=kind,
        bounds=bounds,
        clusters=None if matrix.clusters is None else numbered(matrix.clusters),
        notes=(*notes, *dict.fromkeys(note for c in cells for note in c.responses.notes)),
    )


PairsT = TypeVar("PairsT", bound=Pairs)
ComparedT = TypeVar("ComparedT", bound=Compared)


def settled(pairings: Sequence[PairsT], *, against_best_of_each: bool) -> list[PairsT]:
    """Choose the best model of each task where that is the baseline.

    Raises `DesignError` where no two models share an item.
    """
    pairings = [against_best(p, p.means()) if against_best_of_each else p for p in pairings]
    if not any(p.n_items.any() for p in pairings):
        p = pairings[0]
        n_a, n_b = (int(p.n_answered[i[0]]) for i in (p.a, p.b))
        raise DesignError(
            f"{p.models[p.a[0]]!r} answered {n_a} items of {p.task!r} and {p.models[p.b[0]]!r} "
            f"{n_b}, none of them the same; compare them as independent samples (unpaired)"
        )
    return pairings


def against_best(pairing: ComparedT, scores: FloatArray) -> ComparedT:
    """Make the model with the best of the scores, shape (N,), the baseline.

    Any model might have been the best: the correction is over all pairs, so that it holds for this
    choice.
    """
    sign = -1 if pairing.higher_is_better is False else 1
    best = int(np.argmax(np.where(np.isnan(scores), -np.inf, steady(sign * scores))))
    name = pairing.models[best]
    a, b = pair_indices(pairing.models, name)
    all_a, all_b = pair_indices(pairing.models, None)
    rest = (all_a != best) & (all_b != best)
    note = (
        f"{name} was chosen as the best on these very data: all pairs of the "
        f"{len(pairing.models)} models are corrected for, which allows for that"
    )
    others = all_a[rest], all_b[rest]
    return replace(pairing, a=a, b=b, others=others, notes=(*pairing.notes, note))


def pair_indices(models: Sequence[str], baseline: str | None) -> tuple[IntArray, IntArray]:
    """Return the models of every pair, the earlier one first; or of each model and the baseline."""
    if baseline is None:
        a, b = np.triu_indices(len(models), 1)
        return a.astype(np.int64), b.astype(np.int64)
    first = models.index(baseline)
    others = np.delete(np.arange(len(models), dtype=np.int64), first)
    return np.full_like(others, first), others


def numbered(clusters: NDArray[Any]) -> IntArray:
    """Number the clusters; an item without one is a cluster of its own."""
    _, numbers = np.unique(clusters.astype(str), return_inverse=True)
    alone = clusters == ""
    return np.where(alone, len(clusters) + np.arange(len(clusters)), numbers).astype(np.int64)
