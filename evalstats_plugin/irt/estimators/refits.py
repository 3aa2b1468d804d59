"""Bootstrap of abilities and items: refits to resampled or simulated answers.

* `bootstrap` with `BootstrapOptions`: draws items, clusters of items or models, or simulates
  answers; returns a `Bootstrap`
* `items_refitter`: refits of the model with items integrated out, from the estimate of the fit

All answers are drawn in the order of the refits, so that where a refit is computed changes no
result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import tee
from typing import Literal, NamedTuple

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.item_population import Kind
from evalstats_plugin.irt.estimators.items_integrated import (
    ItemsIntegratedFit,
    Start,
    item_means,
    refit,
    start_of,
)
from evalstats_plugin.irt.model.arrays import Array, array_of, as_array, cast, namespace
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.scale import Curves, link_through_items
from evalstats_plugin.runtime.progress import report_progress
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.stats.arrays import FloatArray, IntArray

Over = Literal["items", "models", "parametric"]


@dataclass(frozen=True, kw_only=True)
class BootstrapOptions:
    """Options of `bootstrap`."""

    over: Over = "items"
    """Draw items or models with replacement, or simulate answers from the fit."""
    n_resamples: int = 1000
    confidence_level: float = 0.95


class Bootstrap(NamedTuple):
    """Results of a bootstrap, on the scale of the first fit: each refit is linked to its items."""

    ability: Quantity
    covariance: FloatArray
    """Of abilities, shape (N, N), over refits in which all are finite; NaN if those are few, and of
    models that take no part in the fit."""
    discrimination: Quantity | None
    """Posterior means given each refit; None where the estimator has no items."""
    difficulty: Quantity | None
    notes: tuple[str, ...]


class Quantity(NamedTuple):
    """Bootstrap of an array of parameters."""

    replicates: FloatArray
    """Shape (B, ·); NaN where a model was not drawn; estimates may be infinite."""
    std_error: FloatArray
    """Standard deviation of the finite replicates."""
    low: FloatArray
    """Percentile interval."""
    high: FloatArray


class Drawn(NamedTuple):
    """Answers of one refit."""

    models: IntArray
    """Places of the models in the whole, some of them several times."""
    items: IntArray
    right: FloatArray | None
    """Simulated right answers, shape (N, M), in the place of those of the whole."""

    def of(self, counts: Counts) -> Counts:
        """Take these answers of the whole."""
        if self.right is not None:
            return replace(counts, right=array_of(self.right, counts.right))
        return counts.of_models(_places(self.models, counts)).of_items(_places(self.items, counts))


class Refitted(NamedTuple):
    """Estimates from the answers of one refit, on the scale of its estimator."""

    ability: FloatArray
    """Of the models drawn."""
    items: Curves
    """Of the items drawn."""
    every: Curves | None = None
    """Of all items of the fit; None where the estimator has no items of its own."""
    converged: bool = True


def bootstrap(
    fitted: Callable[[Drawn], Refitted],
    counts: Counts,
    items: Curves,
    options: BootstrapOptions,
    rng: np.random.Generator,
    *,
    chance: FloatArray,
    clusters: IntArray | None = None,
    dispersion: float = 1.0,
    here: bool = False,
) -> Bootstrap:
    """Refit to resampled answers, and summarise how the estimates vary [ET93]_.

    Drawing items shows how abilities would vary with other items of the same kind; drawing models
    shows how items would vary with other models. A bias that an estimator has in every sample does
    not show.

    Parameters
    ----------
    fitted
        Fits the answers of one refit; a `DesignError` leaves it out.
    items
        Those of the fit to whose scale the refits are brought.
    chance
        P(right) of each model on each item, from which answers are simulated, shape (N, M).
    clusters : shape (M,)
        Items of one cluster are drawn together; numbers from 0.
    dispersion
        Variance of the scores simulated, as a share of that of right and wrong answers.
    here
        Whether `fitted` works in this process only.
    """
    b, (n, m) = options.n_resamples, counts.right.shape
    abilities, every = np.full((b, n), np.nan), list[FloatArray]()
    failed, unsettled = 0, 0

    def draws() -> Iterator[Drawn]:
        models, places = np.arange(n), np.arange(m)
        trials = np.round(as_array(counts.trials)).astype(np.int64)
        for _ in range(b):
            drawn = Drawn(models, places, None)
            if options.over == "items":
                at = drawn_places(places if clusters is None else clusters, rng)
                yield drawn._replace(items=at)
            elif options.over == "models":
                at = models[:1]
                while len(np.unique(at)) < 2:
                    at = drawn_places(models, rng)
                yield drawn._replace(models=at)
            else:
                yield drawn._replace(right=simulated(trials, chance, dispersion, rng))

    ahead, again = tee(draws())
    attempt = partial(_attempt, fitted)
    refits = map(attempt, ahead) if here else parallel_map(attempt, ahead)
    for k, (drawn, refitted) in enumerate(zip(again, refits, strict=True)):
        report_progress("refit", k + 1, b)
        if refitted is None:
            failed += 1
            continue
        line = link_through_items(refitted.items, items.at(drawn.items))
        sums = np.bincount(drawn.models, refitted.ability, minlength=n)
        with np.errstate(invalid="ignore"):
            mean = sums / np.bincount(drawn.models, minlength=n)
        abilities[k] = line.slope * mean + line.intercept
        unsettled += not refitted.converged
        if refitted.every is not None:
            a, d = refitted.every.discrimination, refitted.every.intercept
            every.append(np.stack([a / line.slope, line.intercept - line.slope * d / a]))
    notes = list[str]()
    if failed:
        notes.append(f"{failed} of {b} sets of answers could not be fitted")
    if unsettled:
        notes.append(f"{unsettled} of {b} refits did not converge: their last estimate counts")
    return _summary(abilities, every, options.confidence_level, notes)


def _attempt(fitted: Callable[[Drawn], Refitted], drawn: Drawn) -> Refitted | None:
    """Refit; None where the answers have no estimate, such as items that are all right."""
    try:
        return fitted(drawn)
    except DesignError:
        return None


def items_refitter(
    counts: Counts, fit: ItemsIntegratedFit, kind: Kind, over: Over
) -> Callable[[Drawn], Refitted]:
    """Refits from the fit that `items_integrated` made of these counts."""
    return partial(_refitted, counts, start_of(counts, fit, kind), fit.dispersion, over)


def _refitted(counts: Counts, start: Start, phi: float, over: Over, drawn: Drawn) -> Refitted:
    data = drawn.of(counts)
    result = refit(data, start, _places(drawn.models, counts), phi)
    # An item keeps its own answers where items are drawn.
    whole = counts if over == "items" else data
    a, b = item_means(whole, result.state, result.grid, phi)
    every = Curves.of_points(a, -a * b)
    items = every.at(drawn.items) if over == "items" else every
    return Refitted(as_array(result.state.ability), items, every, result.converged)


def _places(at: IntArray, counts: Counts) -> Array:
    """Places as an index of the arrays of the counts."""
    return cast(array_of(at, counts.right), namespace(counts.right).int64)


def simulated(
    trials: IntArray, chance: FloatArray, dispersion: float, rng: np.random.Generator
) -> FloatArray:
    """Simulate sums of scores with the mean and variance of the model, shape (N, M).

    Right and wrong answers are Binomial. Scores that vary less, as partial credit does, are drawn
    from Beta distributions of the same mean.
    """
    if dispersion >= 1:
        return rng.binomial(trials, chance).astype(np.float64)
    # Of a mean over epochs with the variance φ p (1 - p) / trials.
    size = np.maximum(trials, 1) / dispersion - 1
    p = np.clip(chance, 1e-9, 1 - 1e-9)
    return trials * rng.beta(p * size, (1 - p) * size)


def drawn_places(clusters: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw clusters with replacement, and return the places of their members, in order.

    >>> drawn_places(np.array([0, 0, 1, 1, 2]), np.random.default_rng(1)).tolist()
    [0, 1, 2, 2, 3, 3]
    """
    count = int(clusters.max()) + 1
    often = rng.multinomial(count, np.full(count, 1 / count))
    return np.repeat(np.arange(len(clusters)), often[clusters])


def _summary(
    theta: FloatArray, items: list[FloatArray], level: float, notes: list[str]
) -> Bootstrap:
    ever = np.flatnonzero(np.isfinite(theta).any(axis=0))
    whole = np.isfinite(theta[:, ever]).all(axis=1)
    n = theta.shape[1]
    covariance = np.full((n, n), np.nan)
    if whole.sum() > len(ever):
        covariance[np.ix_(ever, ever)] = np.cov(theta[whole][:, ever].T)
    endless = int(np.isinf(theta).any(axis=1).sum())
    if endless:
        notes.append(f"in {endless} of {len(theta)} refits a model is all right or all wrong")
    discrimination, difficulty = (
        [_quantity(x, level) for x in np.stack(items, axis=1)] if items else (None, None)
    )
    return Bootstrap(_quantity(theta, level), covariance, discrimination, difficulty, tuple(notes))


def _quantity(values: FloatArray, level: float) -> Quantity:
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(finite, values, 0).sum(axis=0) / count
        square = np.where(finite, (values - mean) ** 2, 0).sum(axis=0)
        std_error = np.sqrt(np.where(count > 1, square / (count - 1), np.nan))
    # Order statistics of the numbers that are not NaN; they may be infinite.
    tail, n = (1 - level) / 2, (~np.isnan(values)).sum(axis=0)
    at = np.array([[tail], [1 - tail]])
    place = np.clip(np.round(at * (n + 1)) - 1, 0, np.maximum(n - 1, 0)).astype(np.int64)
    low, high = np.take_along_axis(np.sort(values, axis=0), place, axis=0)
    return Quantity(values, std_error, low, high)
