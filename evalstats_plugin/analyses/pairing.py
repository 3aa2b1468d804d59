"""Which models can be compared on which items: one task under one metric at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.cells import Bounds, Cell, make_cell, takes_are_binary
from evalstats_plugin.analyses.request import Request
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.methods import Kind
from evalstats_plugin.responses import Responses, mean_over_epochs
from evalstats_plugin.runs import run_of
from evalstats_plugin.wording import few, no_such

BEST = "best"
"""Baseline that stands for the model with the best score of each task, if no model is called so."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairing:
    """Models on one task under one metric, and which of them are compared with which."""

    task: str
    metric: str
    models: tuple[str, ...]
    scores: NDArray[np.float64]
    """Shape (N, M): means over the epochs, NaN where an item has no score."""
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
    def family(self) -> Pairing:
        """The pairs that are judged together: those asked for, then the others."""
        if self.others is None:
            return self
        a, b = (np.concatenate(x) for x in zip((self.a, self.b), self.others, strict=True))
        return replace(self, a=a, b=b, others=None)

    @property
    def n_items(self) -> NDArray[np.int64]:
        """Shape (P,): items with a score of both models."""
        seen = (~np.isnan(self.scores)).astype(np.float64)
        return (seen @ seen.T)[self.a, self.b].astype(np.int64)

    @property
    def n_either(self) -> NDArray[np.int64]:
        """Shape (P,): items with a score of at least one of the two."""
        n = (~np.isnan(self.scores)).sum(axis=1)
        return n[self.a] + n[self.b] - self.n_items

    def means(self) -> NDArray[np.float64]:
        """Shape (N,): mean score of each model on the items it has a score of."""
        there = ~np.isnan(self.scores)
        return np.where(there, self.scores, 0.0).sum(axis=1) / there.sum(axis=1)

    def mean_differences(self) -> NDArray[np.float64]:
        """Shape (P,): mean of b minus that of a on the items of both; NaN without any."""
        there = (~np.isnan(self.scores)).astype(np.float64)
        # Of the row's scores where the column's are there, too.
        sums = np.where(there > 0, self.scores, 0.0) @ there.T
        n = self.n_items
        return (sums[self.b, self.a] - sums[self.a, self.b]) / np.where(n > 0, n, np.nan)

    def differences(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """Shape (P, M): scores of b minus those of a, of the pairs from `start` to `stop`."""
        pairs = slice(start, stop)
        return self.scores[self.b[pairs]] - self.scores[self.a[pairs]]

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


def pairings(
    responses: Sequence[Responses], bounds: Bounds, baseline: str | None
) -> tuple[list[Pairing], list[str]]:
    """Join models on the items of each task and metric; return also notes on what was left out.

    With the baseline `BEST`, unless a model is called so, each task's best model is its baseline.
    """
    chosen_later = baseline == BEST and all(r.model != BEST for r in responses)
    named = None if chosen_later else baseline
    groups, notes = comparable(responses, bounds, named, _has_item_scores)
    found = [_pairing(cells, named) for cells in groups]
    if chosen_later:
        found = [against_best(pairing) for pairing in found]
    if not any(p.n_items.any() for p in found):
        p = found[0]
        n_a, n_b = (int((~np.isnan(p.scores[i[0]])).sum()) for i in (p.a, p.b))
        msg = (
            f"a paired comparison needs items taken by both: {p.models[p.a[0]]!r} answered {n_a} "
            f"items of {p.task!r} and {p.models[p.b[0]]!r} {n_b}, none of them the same"
        )
        raise DesignError(msg)
    return found, notes


def refuse_best(request: Request, responses: Sequence[Responses]) -> None:
    """Raise `DesignError` for the best model as a baseline that nothing allows for choosing."""
    if request.baseline == BEST and all(r.model != BEST for r in responses):
        msg = (
            "the best model, chosen from the data, is a baseline only for models on the same items "
            "and across tasks; name a model, or compare every two"
        )
        raise DesignError(msg)


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
        why = _unusable(cells, usable, baseline)
        if why:
            left_out.setdefault(why, []).append(f"{task} {metric.removesuffix(',none')}")
        else:
            found.append(usable)
    notes = [f"not compared, {why}: {few(places)}" for why, places in left_out.items()]
    if not found:
        raise DesignError(_nothing(models, notes))
    return found, notes


def _has_item_scores(cell: Cell) -> bool:
    means = cell.kind not in (None, "ratio") and cell.composite is None
    return means and len(cell.values) > 0


def check_baseline(baseline: str | None, responses: Sequence[Responses]) -> None:
    """Raise `SelectionError`, with the closest names, for a model that does not exist."""
    models = list(dict.fromkeys(r.model for r in responses))
    if baseline not in (None, BEST, *models):
        raise SelectionError(no_such("model", str(baseline), models, few(models)))


def _unusable(cells: Sequence[Cell], usable: Sequence[Cell], baseline: str | None) -> str:
    """Why these models cannot be compared; nothing if they can."""
    if len(cells) < 2:
        return "one model only"
    if len(usable) < 2:
        return "fewer than two models have a mean of item scores"
    if baseline is not None and all(c.responses.model != baseline for c in usable):
        return f"{baseline} has no item scores"
    return ""


def _nothing(models: Sequence[str], notes: Sequence[str]) -> str:
    if len(models) < 2:
        found = f"one model ({models[0]})" if models else "no responses"
        return f"{found} found, expected two or more on the same task"
    return f"no two models found that can be compared; {'; '.join(notes)}"


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
        clusters=None if matrix.clusters is None else _numbered(matrix.clusters),
        notes=(*notes, *dict.fromkeys(note for c in cells for note in c.responses.notes)),
    )


def against_best(pairing: Pairing, means: NDArray[np.float64] | None = None) -> Pairing:
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


def _numbered(clusters: NDArray[Any]) -> NDArray[np.int64]:
    """Number the clusters; an item of none is a cluster of its own."""
    _, numbers = np.unique(clusters.astype(str), return_inverse=True)
    alone = clusters == ""
    return np.where(alone, len(clusters) + np.arange(len(clusters)), numbers).astype(np.int64)


def common_kind(cells: Sequence[Cell]) -> tuple[Kind, tuple[float, float] | None, tuple[str, ...]]:
    """What the differences are like: as the scores, where those are alike."""
    if all(c.kind == "binary" for c in cells):
        return "binary", (0.0, 1.0), ()
    bounds = {c.bounds for c in cells}
    if any(c.kind == "real" for c in cells) or len(bounds) > 1:
        return "real", None, ()
    guessed = any(c.responses.bounds is None and not takes_are_binary(c.responses) for c in cells)
    return "bounded", bounds.pop(), ("scores taken to lie in [0, 1]",) if guessed else ()


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
