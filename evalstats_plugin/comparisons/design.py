"""What is asked of a comparison, whatever its design."""
# PART comparable - Which models and tasks can be compared at all, and what is said of those that cannot.
# PART pairing - Which models can be compared on which items: one task under one metric at a time.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.methods import Kind, Method, check_name
from evalstats_plugin.data.responses import Responses, mean_over_epochs
from evalstats_plugin.data.runs import run_of
from evalstats_plugin.errors import DesignError, SelectionError, few, no_such
from evalstats_plugin.scores.cells import Bounds, Cell, make_cell, takes_are_binary
from evalstats_plugin.scores.methods import INTERVALS

Correction = Literal["holm", "bh", "maxt", "none"]


BEST = "best"
"""Baseline that stands for the model with the best score of each task, if no model is called so."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `compare`, checked."""

    baseline: str | None
    """Model with which the others are compared; None for every two."""
    confidence_level: float
    method: str
    """Name of a method of the table, or ``"auto"``."""
    table: Mapping[str, Method]
    """Methods for comparisons by name, those of plugins among them."""
    correction: Correction
    bounds: Bounds
    rng: np.random.Generator

    def __post_init__(self) -> None:
        if not 0 < self.confidence_level < 1:
            msg = (
                f"confidence level {self.confidence_level} found, expected a number between 0 and 1"
            )
            raise DesignError(msg)
        if self.correction not in get_args(Correction):
            there = ", ".join(get_args(Correction))
            msg = f"no correction is called {self.correction!r}; there are: {there}"
            raise SelectionError(msg)
        check_name(self.method, self.table, {"the interval of one score": INTERVALS})


def comparable(
    responses: Sequence[Responses],
    bounds: Bounds,
    baseline: str | None,
    is_usable: Callable[[Cell], bool],
) -> tuple[list[list[Cell]], list[str]]:
    """Return what can be compared, by task and metric, and notes on what cannot.

    Raises `DesignError` where there is nothing to compare.
    """
    latest = {(r.model, r.task, r.metric): r for r in sorted(responses, key=run_of)}
    models = list(dict.fromkeys(r.model for r in responses))
    groups: dict[tuple[str, str], list[Responses]] = {}
    for r in responses:
        # A task that was run in several groups has a row in each: the latest is compared.
        if latest[r.model, r.task, r.metric] is r:
            # Harnesses that have no filters log "acc" for what lm-eval logs as "acc,none".
            groups.setdefault((r.task, r.metric.removesuffix(",none")), []).append(r)
    found: list[list[Cell]] = []
    left_out: dict[str, list[str]] = {}
    for (task, metric), group in groups.items():
        cells = [make_cell(r, bounds) for r in group]
        usable = [c for c in cells if is_usable(c)]
        why = why_left_out(len(cells), [c.responses.model for c in usable], baseline)
        if why:
            left_out.setdefault(why, []).append(f"{task} {metric.removesuffix(',none')}")
        else:
            found.append(usable)
    return found, said_of(left_out, models, nothing_left=not found)


def has_item_scores(cell: Cell) -> bool:
    """Whether a paired comparison can use a model's answers."""
    means = cell.kind not in (None, "ratio") and cell.composite is None
    return means and len(cell.values) > 0


def check_baseline(baseline: str | None, models: Iterable[str]) -> None:
    """Raise `SelectionError`, with the closest names, for a model that does not exist."""
    models = list(dict.fromkeys(models))
    if baseline not in (None, BEST, *models):
        raise SelectionError(no_such("model", str(baseline), models, few(models)))


def why_left_out(n_models: int, usable: Sequence[str], baseline: str | None) -> str:
    """Why the models of a task cannot be compared; nothing if they can."""
    if n_models < 2:
        return "one model only"
    if len(usable) < 2:
        return "fewer than two models have a mean of item scores"
    if baseline is not None and baseline not in usable:
        return f"{baseline} has no item scores"
    return ""


def said_of(
    left_out: Mapping[str, Sequence[str]], models: Sequence[str], *, nothing_left: bool
) -> list[str]:
    """Return notes on the tasks left out, by the reason.

    Raises `DesignError` where nothing is left to compare.
    """
    notes = [f"not compared, {why}: {few(places)}" for why, places in left_out.items()]
    if nothing_left and len(models) < 2:
        found = f"one model ({models[0]})" if models else "no responses"
        raise DesignError(f"{found} found, expected two or more on the same task")
    if nothing_left:
        raise DesignError(f"no two models found that can be compared; {'; '.join(notes)}")
    return notes


def common_kind(cells: Sequence[Cell]) -> tuple[Kind, tuple[float, float] | None, tuple[str, ...]]:
    """What the differences are like: as the scores, where those are alike."""
    if all(c.kind == "binary" for c in cells):
        return "binary", (0.0, 1.0), ()
    bounds = {c.bounds for c in cells}
    if any(c.kind == "real" for c in cells) or len(bounds) > 1:
        return "real", None, ()
    guessed = any(c.responses.bounds is None and not takes_are_binary(c.responses) for c in cells)
    return "bounded", bounds.pop(), ("scores taken to lie in [0, 1]",) if guessed else ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairs(ABC):
    """Models on one task under one metric, and which of them are compared with which."""

    task: str
    metric: str
    models: tuple[str, ...]
    a: NDArray[np.int64]
    b: NDArray[np.int64]
    """Shape (P,): the models of each pair, by their place in `models`."""
    kind: Kind
    bounds: tuple[float, float] | None
    higher_is_better: bool | None
    clusters: NDArray[np.int64] | None
    """Shape (M,): the cluster of each item, by number."""
    notes: tuple[str, ...]
    others: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    """Further pairs that are not asked for, but had a part in the choice of those that are."""

    @property
    def family(self) -> Self:
        """The pairs that are judged together: those asked for, then the others."""
        if self.others is None:
            return self
        a, b = (np.concatenate(x) for x in zip((self.a, self.b), self.others, strict=True))
        return replace(self, a=a, b=b, others=None)

    @property
    @abstractmethod
    def n_of_task(self) -> int:
        """M: the task's items, whoever has a score of them."""

    @property
    @abstractmethod
    def n_answered(self) -> NDArray[np.int64]:
        """Shape (N,): items with a score of each model."""

    @property
    @abstractmethod
    def n_items(self) -> NDArray[np.int64]:
        """Shape (P,): items with a score of both models."""

    @property
    def n_either(self) -> NDArray[np.int64]:
        """Shape (P,): items with a score of at least one of the two."""
        n = self.n_answered
        return n[self.a] + n[self.b] - self.n_items

    @abstractmethod
    def tables(self) -> NDArray[np.float64]:
        """Of 0/1 scores, who gets an item right, shape (4, P): both, only a, only b, neither."""

    @abstractmethod
    def means(self) -> NDArray[np.float64]:
        """Shape (N,): mean score of each model on the items it has a score of."""

    @abstractmethod
    def differences(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """Shape (P, M): scores of b minus those of a, of the pairs from `start` to `stop`."""

    def cluster_sums(
        self, differences: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums of differences in each cluster, and how many there are; both of shape (P, C)."""
        if self.clusters is None:
            msg = f"{self.task}: items come in no clusters"
            raise ValueError(msg)
        order = np.argsort(self.clusters, kind="stable")
        _, starts = np.unique(self.clusters[order], return_index=True)
        in_order = differences[:, order]
        seen = ~np.isnan(in_order)
        totals, sizes = (
            np.add.reduceat(x, starts, axis=1) for x in (np.where(seen, in_order, 0.0), seen * 1.0)
        )
        return totals, sizes


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairing(Pairs):
    """Pairs of models whose scores are in memory."""

    scores: NDArray[np.float64]
    """Shape (N, M): means over the epochs, NaN where an item has no score."""

    @property
    def n_of_task(self) -> int:
        """M: the task's items, whoever has a score of them."""
        return self.scores.shape[1]

    @property
    def n_answered(self) -> NDArray[np.int64]:
        """Shape (N,): items with a score of each model."""
        return (~np.isnan(self.scores)).sum(axis=1)

    @property
    def n_items(self) -> NDArray[np.int64]:
        """Shape (P,): items with a score of both models."""
        seen = (~np.isnan(self.scores)).astype(np.float64)
        return self._products(seen, seen).astype(np.int64)

    def tables(self) -> NDArray[np.float64]:
        """Of 0/1 scores, who gets an item right, shape (4, P): both, only a, only b, neither."""
        seen = (~np.isnan(self.scores)).astype(np.float64)
        right = np.where(seen > 0, self.scores, 0.0)
        both = self._products(right, right)
        # Of the items that have a score of both.
        only_a, only_b = self._products(right, seen) - both, self._products(seen, right) - both
        neither = self._products(seen, seen) - both - only_a - only_b
        return np.stack([both, only_a, only_b, neither])

    def means(self) -> NDArray[np.float64]:
        """Shape (N,): mean score of each model on the items it has a score of."""
        there = ~np.isnan(self.scores)
        return np.where(there, self.scores, 0.0).sum(axis=1) / there.sum(axis=1)

    def mean_differences(self) -> NDArray[np.float64]:
        """Shape (P,): mean of b minus that of a on the items of both; NaN without any."""
        there = (~np.isnan(self.scores)).astype(np.float64)
        scores = np.where(there > 0, self.scores, 0.0)
        # Of the scores of each where the other's are there, too.
        sums = self._products(there, scores) - self._products(scores, there)
        n = self.n_items
        return sums / np.where(n > 0, n, np.nan)

    def _products(
        self, of_a: NDArray[np.float64], of_b: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Sums over the items of what `of_a` has of a times what `of_b` has of b, shape (P,)."""
        # With a baseline a is one model: no products of all with all.
        rows = np.flatnonzero(np.bincount(self.a))
        place = np.zeros(len(of_a), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        return (of_a[rows] @ of_b.T)[place[self.a], self.b]

    def differences(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """Shape (P, M): scores of b minus those of a, of the pairs from `start` to `stop`."""
        pairs = slice(start, stop)
        return self.scores[self.b[pairs]] - self.scores[self.a[pairs]]


PairsT = TypeVar("PairsT", bound=Pairs)


def pairings(
    responses: Sequence[Responses], bounds: Bounds, baseline: str | None
) -> tuple[list[Pairing], list[str]]:
    """Join models on the items of each task and metric; return also notes on what was left out.

    With the baseline `BEST`, unless a model is called so, each task's best model is its baseline.
    """
    named = named_baseline(baseline, [r.model for r in responses])
    groups, notes = comparable(responses, bounds, named, has_item_scores)
    found = [_pairing(cells, named) for cells in groups]
    return settled(found, baseline, named), notes


def named_baseline(baseline: str | None, models: Iterable[str]) -> str | None:
    """Return the baseline, None where it is the best model and so is chosen later."""
    return None if baseline == BEST and BEST not in models else baseline


def settled(found: Sequence[PairsT], baseline: str | None, named: str | None) -> list[PairsT]:
    """Choose the best model of each task where that is the baseline.

    Raises `DesignError` where no two models share an item.
    """
    found = [p if baseline == named else against_best(p) for p in found]
    if not any(p.n_items.any() for p in found):
        p = found[0]
        n_a, n_b = (int(p.n_answered[i[0]]) for i in (p.a, p.b))
        msg = (
            f"a paired comparison needs items taken by both: {p.models[p.a[0]]!r} answered {n_a} "
            f"items of {p.task!r} and {p.models[p.b[0]]!r} {n_b}, none of them the same"
        )
        raise DesignError(msg)
    return found


def refuse_best(request: Request, responses: Sequence[Responses]) -> None:
    """Raise `DesignError` for the best model as a baseline that nothing allows for choosing."""
    if request.baseline == BEST and all(r.model != BEST for r in responses):
        msg = (
            "the best model, chosen from the data, is a baseline only for models on the same items "
            "and across tasks; name a model, or compare every two"
        )
        raise DesignError(msg)


def _pairing(cells: Sequence[Cell], baseline: str | None) -> Pairing:
    matrix = ResponseMatrix.join([c.responses for c in cells])
    kind, bounds, notes = common_kind(cells)
    a, b = pair_indices(matrix.models, baseline)
    return Pairing(
        task=cells[0].responses.task,
        metric=cells[0].responses.metric,
        models=matrix.models,
        scores=mean_over_epochs(matrix.scores),
        a=a,
        b=b,
        kind=kind,
        bounds=bounds,
        higher_is_better=next(
            (h for c in cells if (h := c.responses.higher_is_better) is not None), None
        ),
        clusters=None if matrix.clusters is None else numbered(matrix.clusters),
        notes=(*notes, *dict.fromkeys(note for c in cells for note in c.responses.notes)),
    )


def against_best(pairing: PairsT, means: NDArray[np.float64] | None = None) -> PairsT:
    """Compare with the model whose score is best; the other pairs, among which it won, count too.

    `means`, shape (N,), are the scores to go by, where they are not the means over the items.

    Any model might have come out best: what is found of all pairs at once holds for this choice.
    """
    means = pairing.means() if means is None else means
    best = int(np.argmin(means) if pairing.higher_is_better is False else np.argmax(means))
    name = pairing.models[best]
    a, b = pair_indices(pairing.models, name)
    rest = (pairing.a != best) & (pairing.b != best)
    note = (
        f"{name} was chosen as the best on these very data: only p, adjusted, and adjusted limits, "
        f"which are over all pairs of the {len(pairing.models)} models, allow for that"
    )
    others = pairing.a[rest], pairing.b[rest]
    return replace(pairing, a=a, b=b, others=others, notes=(*pairing.notes, note))


def numbered(clusters: NDArray[Any]) -> NDArray[np.int64]:
    """Number the clusters; an item of none is a cluster of its own."""
    _, numbers = np.unique(clusters.astype(str), return_inverse=True)
    alone = clusters == ""
    return np.where(alone, len(clusters) + np.arange(len(clusters)), numbers).astype(np.int64)


def pair_indices(
    models: Sequence[str], baseline: str | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every pair once, the earlier model first; or each model against the baseline."""
    if baseline is None:
        a, b = np.triu_indices(len(models), 1)
        return a.astype(np.int64), b.astype(np.int64)
    first = models.index(baseline)
    others = np.delete(np.arange(len(models), dtype=np.int64), first)
    return np.full_like(others, first), others
