"""How much differences of models vary, by the logs of a pilot.

`spreads` estimates it on each task, `over_tasks` of the mean over tasks, and `at_quantile` moves it
by the pilot's own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.comparisons.planning.pilots import Pilot, TaskScores
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import grouped
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.scores.cells import (
    Cell,
    by_task,
    cluster_names,
    epochs_are_binary,
    make_cell,
)
from evalstats_plugin.stats import clustered as stats_clustered
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.clustered import epoch_noise
from evalstats_plugin.stats.means import moments

MOST_SIMULATED = 45
"""Pairs of a task up to which power is simulated; more are planned by Student's t."""

Tasks = Literal["each", "fixed", "random"]

BLOCK_SIZE = 2**22
"""Differences held at a time."""


def at_quantile(spread: Spread, share: float) -> Spread:
    """Return the spread at a quantile of what the truth may be, given the error of the pilot.

    Of a discordance by its exact limits (Clopper and Pearson's); of a variance by χ², with the
    freedom that the differences show.
    """
    factor = spread.freedom / (2 * special.gammaincinv(spread.freedom / 2, 1 - share))
    plain = spread.design_effect == 1
    n, discordance = spread.n_items, np.nan_to_num(spread.discordance)
    limit = special.betaincinv(
        np.maximum(n * discordance + (share > 0.5), 1e-9),
        np.maximum(n * (1 - discordance) + (share <= 0.5), 1e-9),
        share,
    )
    noise = np.nan_to_num(spread.within) / spread.n_epochs
    total = np.maximum(spread.between, 0.0) + noise
    return replace(
        spread,
        between=np.maximum(factor * total - noise, 0.0),
        pilots=spread.pilots
        and [
            replace(pilot, spread=scale * pilot.spread)
            for pilot, scale in zip(spread.pilots, np.sqrt(factor).tolist(), strict=True)
        ],
        discordance=np.where(plain & ~np.isnan(spread.discordance), limit, spread.discordance),
        design_effect=np.where(plain, 1.0, factor * spread.design_effect),
    )


def over_tasks(
    spreads: Sequence[Spread], tasks: Tasks, n_epochs: int | None = None
) -> list[Spread]:
    """Join the spreads of tasks under one metric into that of the mean over the tasks.

    Fixed tasks: as many items of each. Random ones: `Spread.between` is the variance of true
    differences between tasks, `Spread.within` that of one item within its task.

    Parameters
    ----------
    n_epochs
        That are planned for; None for those of the pilot, the most that a task has.

    Raises
    ------
    DesignError
        No two models share two tasks or more; or nothing is known of so many epochs of a task.
    """
    by_metric = grouped(spreads, lambda spread: spread.metric.removesuffix(",none"))
    joined = [
        joint
        for some in by_metric.values()
        if len(some) > 1 and (joint := _joint(some, n_epochs, random=tasks == "random")) is not None
    ]
    if not joined:
        msg = "a mean over tasks needs two tasks or more that two models share; compare each task"
        raise DesignError(msg)
    return joined


def _joint(some: Sequence[Spread], n_epochs: int | None, *, random: bool) -> Spread | None:
    names = [spread.pairs for spread in some]
    pairs = [pair for pair in names[0] if all(pair in own for own in names)]
    if not pairs:
        return None
    models = tuple(dict.fromkeys(model for pair in pairs for model in pair))
    places = [[own[pair] for pair in pairs] for own in names]
    columns = [
        np.stack([getattr(s, name)[k] for s, k in zip(some, places, strict=True)])
        for name in ("between", "within", "mean", "freedom", "n_items", "design_effect")
    ]
    between, within, mean, freedom, n_items, effect = columns
    n_tasks, unknown = len(some), np.isnan(within)
    most = max(s.n_epochs for s in some)
    epochs = (n_epochs if unknown.any() else None) or most
    if not random:
        _check_epochs(some, np.asarray(unknown.any(axis=1)), epochs)
    own = np.array([[s.n_epochs if random else epochs] for s in some])
    item = np.maximum(between, 0.0) + np.nan_to_num(within) / own
    plain = (item / effect).sum(axis=0)
    varies = plain > 0
    # Where one task's parts are not known, those of the mean are not.
    parts = np.where(unknown.any(axis=0), item, np.maximum(between, 0.0))
    same = Spread(
        task=f"tasks like these {n_tasks}" if random else f"these {n_tasks} tasks",
        metric=some[0].metric,
        models=models,
        a=np.array([models.index(a) for a, _ in pairs], dtype=np.int64),
        b=np.array([models.index(b) for _, b in pairs], dtype=np.int64),
        between=parts.mean(axis=0) / n_tasks,
        within=within.mean(axis=0) / n_tasks,
        discordance=np.full(len(pairs), np.nan),
        design_effect=np.where(varies, item.sum(axis=0) / np.where(varies, plain, 1.0), 1.0),
        mean=mean.mean(axis=0),
        # Satterthwaite's, of a sum of variances.
        freedom=item.sum(axis=0) ** 2 / np.maximum((item**2 / freedom).sum(axis=0), 1e-300),
        n_items=n_items.min(axis=0),
        n_epochs=epochs,
        n_tasks=n_tasks,
        bounded=max(s.bounded for s in some),
        pilots=_joint_pilots(some, places, random=random),
    )
    if not random:
        return same
    noise = (item / n_items).mean(axis=0)
    return replace(
        same,
        between=np.maximum(mean.var(axis=0, ddof=1) - noise, 0.0),
        within=item.mean(axis=0),
        freedom=np.full(len(pairs), n_tasks - 1.0),
        n_epochs=int(np.median(n_items)),
    )


def _check_epochs(some: Sequence[Spread], unknown: BoolArray, n_epochs: int) -> None:
    """Refuse other numbers of epochs of a task than its own, where nothing is known of them."""
    for spread, is_unknown in zip(some, unknown.tolist(), strict=True):
        if is_unknown and spread.n_epochs != n_epochs:
            raise DesignError(
                f"{spread.task} {spread.metric}: no item has two epochs, from which the variance "
                f"of {n_epochs} could be estimated: run it in two epochs or more, or plan for "
                f"{spread.n_epochs} (--epochs; in Python: n_epochs=)"
            )


def _joint_pilots(
    some: Sequence[Spread], places: Sequence[Sequence[int]], *, random: bool
) -> list[Pilot] | None:
    """Join the pilots of each pair over the tasks; None where a task has none."""
    if len(places[0]) > MOST_SIMULATED:
        return None
    each = [
        [spread.pilots[k] for k in own]
        for spread, own in zip(some, places, strict=True)
        if spread.pilots is not None
    ]
    if len(each) < len(some):
        return None
    return [
        Pilot(
            tuple(task for pilot in of_pair for task in pilot.tasks),
            random_tasks=random,
            span=of_pair[0].span,
        )
        for of_pair in zip(*each, strict=True)
    ]


@dataclass(frozen=True, eq=False, kw_only=True)
class Spread:
    """How much the differences of P pairs of models vary, on one task under one metric.

    Arrays have shape (P,). Variances are those of one item's difference.
    """

    task: str = ""
    metric: str = ""
    models: tuple[str, ...] = ("", "")
    a: IntArray
    b: IntArray
    """The models of each pair, by their place in `models`."""
    between: FloatArray
    """Between items, inflated by clusters; the whole variance where `within` is 0."""
    within: FloatArray
    """Within items, of one epoch of both models together; NaN where no item has two epochs."""
    discordance: FloatArray
    """Probability that only one model is right, in one epoch of each; NaN without 0/1 scores."""
    design_effect: FloatArray
    mean: FloatArray
    """Mean difference of the pilot; NaN for assumptions and for different items."""
    freedom: FloatArray
    """Degrees of freedom of the variance: 2 over its squared relative error; inf if assumed."""
    n_items: IntArray
    """Items of the pilot; 0 where all comes from assumptions."""
    n_epochs: int = 1
    n_tasks: int = 1
    """Tasks over which the mean is taken, with as many items each."""
    bounded: float = np.inf
    """The greatest possible difference."""
    pilots: Sequence[Pilot] | None = None
    """Scores of each pair, on the same items; None of many pairs, and without a pilot."""

    @property
    def pairs(self) -> dict[tuple[str, str], int]:
        """Place of each pair, by the names of its models."""
        first: list[int] = self.a.tolist()
        second: list[int] = self.b.tolist()
        both = zip(first, second, strict=True)
        return {(self.models[a], self.models[b]): place for place, (a, b) in enumerate(both)}


def spreads(responses: Sequence[Responses], *, paired: bool) -> tuple[list[Spread], list[str]]:
    """Estimate how differences vary on each task; return also notes on what was left out.

    Paired, two models answer the same items; unpaired, as many different ones each, and the only
    model of a task is compared with another of the same variance.

    Raises
    ------
    DesignError
        Where no task has what is needed for an estimate.
    """
    groups = by_task(one_of_each(responses))
    task_spreads: list[Spread] = []
    left_out: list[str] = []
    for (task, metric), group in groups.items():
        cells = [make_cell(r) for r in group if len(r.item_ids)]
        cells = [c for c in cells if c.kind not in (None, "ratio") and c.n > 1]
        spread = _spread(cells, paired=paired) if len(cells) >= 1 + paired else None
        if spread is not None and len(spread.a):
            task_spreads.append(spread)
        else:
            left_out.append(f"{task} {metric}")
    wanted = "two models that share two items or more" if paired else "a mean of two item scores"
    if responses and not any(len(r.item_ids) for r in responses):
        raise DesignError(
            "a pilot needs scores of items, and these are values without items: leave them out, "
            "and say what you assume (--discordance or --variances; in Python: PowerAssumptions)"
        )
    if not task_spreads:
        models = dict.fromkeys(r.model for r in responses)
        msg = (
            f"a pilot needs {wanted} on some task, and the logs have "
            f"{counted(len(models), 'model')} ({few(list(models)) or 'none'}) without that"
        )
        hint = "; to plan for different items, choose the unpaired design" if paired else ""
        raise DesignError(msg + hint)
    notes = [f"nothing to plan with, not {wanted}: {few(left_out)}"] if left_out else []
    return task_spreads, notes


def with_design_effect(spread: Spread, design_effect: float) -> Spread:
    """Return the spread with another design effect."""
    noise = np.nan_to_num(spread.within) / spread.n_epochs
    plain = (spread.between + noise) / spread.design_effect
    return replace(
        spread,
        between=design_effect * plain - noise,
        pilots=None,
        design_effect=np.full_like(spread.between, design_effect),
    )


def _spread(cells: Sequence[Cell], *, paired: bool) -> Spread:
    """Estimate the variances of every pair of models on one task."""
    matrix = ResponseMatrix.join([c.responses for c in cells])
    variance, noise = epoch_noise(matrix.scores)
    # An item with one epoch gets the variance of the average item.
    variance = np.where(np.isnan(variance), moments(variance).mean[:, None], variance)
    clusters = None if matrix.clusters is None else cluster_names(matrix.clusters)
    scores = _Scores(moments(matrix.scores).mean, variance, noise, clusters)
    n_models = len(matrix.models)
    # A single model is paired with itself: another with the same variance is assumed.
    a, b = np.triu_indices(n_models, 1) if n_models > 1 else (np.zeros(1, int), np.zeros(1, int))
    step = max(BLOCK_SIZE // max(len(matrix.item_ids), 1), 1)
    solve = _paired if paired else _unpaired
    blocks = [
        solve(scores, a[start : start + step], b[start : start + step])
        for start in range(0, len(a), step)
    ]
    n, between, within, discordance, effect, mean, freedom = np.concatenate(blocks, axis=1)
    keep = n > 1
    bounds = {c.bounds for c in cells}
    # Points that are all 0 or 1 of 100 are no right answers.
    of_unit = bounds <= {None, (0.0, 1.0)}
    binary = paired and of_unit and all(epochs_are_binary(c.responses) for c in cells)
    span = bounds.pop() if len(bounds) == 1 else None
    largest = np.inf if span is None else span[1] - span[0]
    pilots = None
    if paired and keep.sum() <= MOST_SIMULATED:
        # Higher scores are better.
        higher = -1.0 if cells[0].responses.higher_is_better is False else 1.0
        x = higher * matrix.scores
        numbers = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
        pilots = [
            Pilot((TaskScores(x[first], x[second], numbers),), span=largest)
            for first, second in zip(a[keep].tolist(), b[keep].tolist(), strict=True)
        ]
    return Spread(
        task=cells[0].responses.task,
        metric=cells[0].responses.metric,
        models=matrix.models,
        a=a[keep].astype(np.int64),
        b=b[keep].astype(np.int64),
        between=between[keep],
        within=within[keep],
        discordance=np.where(binary, discordance, np.nan)[keep],
        design_effect=effect[keep],
        mean=mean[keep],
        freedom=freedom[keep],
        n_items=n[keep].astype(np.int64),
        n_epochs=int(matrix.scores.shape[2]),
        bounded=largest,
        pilots=pilots,
    )


@dataclass(frozen=True, eq=False)
class _Scores:
    """N models on M items; arrays of shape (N, M)."""

    means: FloatArray
    """Over the epochs."""
    variance: FloatArray
    """Of one epoch."""
    noise: FloatArray
    """Variance of the mean over the epochs."""
    clusters: NDArray[Any] | None
    """Shape (M,): names of clusters; None for independent items."""


def _paired(scores: _Scores, a: IntArray, b: IntArray) -> FloatArray:
    """Items, variances between and within, discordance, design effect, mean, freedom: (7, P)."""
    mean_a, mean_b = scores.means[a], scores.means[b]
    n, mean, total, effect, freedom = _inflated(mean_b - mean_a, scores.clusters)
    here = ~np.isnan(mean_a) & ~np.isnan(mean_b)
    noise, within = (
        moments(np.where(here, x[a] + x[b], np.nan)).mean for x in (scores.noise, scores.variance)
    )
    discordance = moments(mean_a + mean_b - 2 * mean_a * mean_b).mean
    between = effect * total - np.nan_to_num(noise)
    return np.stack([n, between, within, discordance, effect, mean, freedom])


def _unpaired(scores: _Scores, a: IntArray, b: IntArray) -> FloatArray:
    """The same for two models that answer different items; NaN for discordance."""
    n, mean, total, effect, freedom = _inflated(scores.means, scores.clusters)
    noise, within = (moments(x).mean for x in (scores.noise, scores.variance))
    between = effect * total - np.nan_to_num(noise)
    plain = total[a] + total[b]
    inflated = (effect * total)[a] + (effect * total)[b]
    together = np.where(plain > 0, inflated / np.where(plain > 0, plain, 1.0), 1.0)
    fewer = np.minimum(n[a], n[b])
    # Satterthwaite's, of a sum of two variances.
    errors = (effect * total) ** 2 / freedom
    freed = inflated**2 / np.where(plain > 0, errors[a] + errors[b], 1.0)
    columns = [
        *(fewer, between[a] + between[b], within[a] + within[b], np.nan * fewer, together),
        *(mean[b] - mean[a], np.where(plain > 0, freed, fewer)),
    ]
    return np.stack(columns)


def _inflated(values: FloatArray, clusters: NDArray[Any] | None) -> tuple[FloatArray, ...]:
    """Count, mean and variance of values (..., M), design effect of their clusters, and freedom.

    The design effect is at least 1: estimates below come from few clusters by chance. The freedom
    is 2 over the squared relative error of the variance, which follows from the kurtosis of the
    units: items, or sums of clusters. It is at most that of normal ones, as few hide their tails.
    """
    n, mean, std = moments(values)
    present = ~np.isnan(values)
    units = np.where(present, values - mean[..., None], 0.0)
    effect, n_units = np.ones_like(n), n
    if clusters is not None:
        totals = stats_clustered.by_cluster(np.where(present, values, 0.0), clusters)
        sizes = stats_clustered.by_cluster(present * 1.0, clusters)
        plain = std / np.sqrt(np.maximum(n, 1.0))
        error = stats_clustered.cluster_moments(totals, sizes).cr1
        effect = np.fmax(stats_clustered.design_effect(error, plain), 1.0)
        units = stats_clustered.by_cluster(units, clusters)
        n_units = (sizes > 0).sum(axis=-1) * 1.0
    square = (units**2).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        kurtosis = n_units * (units**4).sum(axis=-1) / square**2
        freedom = 2 * (n_units - 1) / (kurtosis - 1)
    freedom = np.fmax(np.fmin(freedom, n_units - 1), 1.0)
    return n, mean, std**2, effect, freedom
