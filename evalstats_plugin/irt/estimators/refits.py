"""Bootstrap of abilities and items: refits to resampled or simulated answers.

* `bootstrap` with `BootstrapOptions`: draws items, clusters of items or models, or simulates
  answers; returns a `Bootstrap`
* `bootstrap_by`: the same with any estimator, which fits each set of answers anew
* `Refitter.sandwich`: covariance of abilities from how the items' scores vary
* `refitter`: many refits at once of the model with items integrated out, on the points of the first
  fit and from its estimate

Weights of all refits are drawn before the first refit, and answers are simulated in the order of
the refits, so that the number of refits in memory changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.cml import abilities_given_item_totals
from evalstats_plugin.irt.estimators.item_population import (
    DIFFICULTY_SPREAD,
    DISCRIMINATION_SPREAD,
    EXPLAINED_SPREAD,
    Kind,
    discrimination_of,
    points,
)
from evalstats_plugin.irt.estimators.items_integrated import (
    ItemsIntegratedFit,
    items_integrated,
    population_of,
    taking_part,
)
from evalstats_plugin.irt.model.arrays import as_array, complement
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.irt.model.scale import Curves, Line, link_through_items, zero_of
from evalstats_plugin.runtime.torch import linalg, split
from evalstats_plugin.runtime.workers import n_workers, parallel_map, with_progress
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.streams import stream

Over = Literal["items", "models", "parametric", "new-items"]
Estimator = Literal["cml-items", "mml-items"]

# Largest array of simulated answers.
_BLOCK = 2**24

# Largest array of refits × items × points, so that arrays stay in the processor's cache.
_CACHE = 2**17

# A refit ends when its next step predicts a squared distance below this, in standard errors.
_TOLERANCE = 1e-5

_MAX_STEPS = 60

# Steps that Anderson acceleration combines.
_DEPTH = 8


@dataclass(frozen=True, kw_only=True)
class BootstrapOptions:
    """Options of `bootstrap`."""

    over: Over = "items"
    """Draw items or models with replacement, or simulate answers from the fit: to these items, or
    to new ones of their population."""
    estimator: Estimator = "mml-items"
    """``"cml-items"`` fits the Rasch model only, and draws items only."""
    kind: Kind = "2pl"
    n_resamples: int = 1000
    confidence_level: float = 0.95
    block: int | None = None
    """Number of refits in memory at a time; changes no result."""


class First(NamedTuple):
    """Abilities (N,) and items of the fit to whose scale the refits are brought."""

    ability: FloatArray
    items: Curves

    @classmethod
    def of(cls, fit: IRTFit) -> First:
        """Those of a fit."""
        return cls(fit.ability, Curves.of(fit))


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


def bootstrap(
    counts: Counts,
    first: First,
    options: BootstrapOptions,
    rng: np.random.Generator,
    *,
    clusters: NDArray[np.int64] | None = None,
) -> Bootstrap:
    """Refit to resampled answers, and summarise how the estimates vary [ET93]_.

    Drawing items shows how abilities would vary with other items of the same kind; drawing models
    shows how items would vary with other models. A bias that an estimator has in every sample does
    not show.

    Parameters
    ----------
    clusters : shape (M,)
        Items of one cluster are drawn together; numbers from 0.
    """
    b = options.n_resamples
    if options.estimator == "cml-items":
        weights = item_weights(b, counts.right.shape[1], rng, clusters)
        fit = abilities_given_item_totals(
            counts, weights=_tensor(weights, counts.right), block=options.block or 256
        )
        ability = fit.estimate.cpu().numpy()
        easy = -_difficulties_moved(counts, first, ability)
        lines = _links(np.ones_like(easy), easy, first.items, weights)
        return _summary(_on(lines, ability), None, fit.converged, options)
    inner = taking_part(counts)
    part = counts.of_models(inner)
    drawn = _drawn(part, items_integrated(part, options.kind), options, rng, clusters)
    blocks = list(drawn.refits)
    ability, slopes, difficulty, converged = (
        torch.cat([getattr(part, name) for part in blocks]).cpu().numpy()
        for name in ("ability", "discrimination", "difficulty", "converged")
    )
    linked_to = first.items
    if drawn.items:
        # New items are linked to the scale through what they are, as the answers come from it.
        a, d = (np.concatenate(x) for x in zip(*drawn.items, strict=True))
        raw = zero_of(Curves.of_points(*drawn.fitted))
        here = zero_of(linked_to)
        line = Line(raw.unit / here.unit, here.at - raw.unit / here.unit * raw.at)
        linked_to = [
            Curves.of_points(x / line.slope, y - x * line.intercept / line.slope)
            for x, y in zip(a, d, strict=True)
        ]
    lines = _links(slopes, -slopes * difficulty, linked_to, drawn.weights)
    every = np.full((b, counts.right.shape[0]), np.nan)
    every[:, as_array(inner).astype(np.int64)] = _on(lines, ability)
    items = slopes / lines[:, :1], _on(lines, difficulty)
    return _summary(every, items, torch.as_tensor(converged), options)


def _on(lines: FloatArray, values: FloatArray) -> FloatArray:
    return lines[:, :1] * values + lines[:, 1:]


def _links(
    slopes: FloatArray, intercepts: FloatArray, first_items: Curves | list[Curves], weights: Any
) -> FloatArray:
    """Slope and intercept that bring each refit to the scale of the first fit, shape (B, 2)."""
    return np.array(
        [
            link_through_items(
                Curves.of_points(a, d),
                first_items if isinstance(first_items, Curves) else first_items[k],
                None if weights is None else weights[k],
            )
            for k, (a, d) in enumerate(zip(slopes, intercepts, strict=True))
        ]
    )


def _difficulties_moved(counts: Counts, first: First, ability: FloatArray) -> FloatArray:
    """Difficulties of a Rasch model given the abilities of refits (B, N), shape (B, M).

    They follow the abilities of a refit from those of the first fit, each weighed by what it tells.
    """
    trials = counts.trials.cpu().numpy()
    b = -first.items.intercept / first.items.discrimination
    p = 1 / (1 + np.exp(-(np.nan_to_num(first.ability)[:, None] - b)))
    told = trials * p * (1 - p)
    estimated = np.isfinite(ability) & np.isfinite(first.ability)
    away = np.where(estimated, ability - np.where(estimated, first.ability, 0.0), 0.0)
    return b + (away @ told) / np.maximum(estimated @ told, 1e-12)


def bootstrap_by(
    fitted: Callable[[Counts, IntArray, IntArray], IRTFit],
    counts: Counts,
    first: First,
    chance: FloatArray,
    options: BootstrapOptions,
    rng: np.random.Generator,
    clusters: IntArray | None = None,
) -> Bootstrap:
    """Bootstrap of an estimator that fits each set of answers anew; of abilities only.

    Parameters
    ----------
    fitted
        Fits answers, given the places of their models and items in the whole.
    chance
        P(right) of each model on each item, from which answers are simulated, shape (N, M).
    """
    n, m = counts.right.shape
    b = options.n_resamples
    abilities = np.full((b, n), np.nan)
    every = np.arange(n), np.arange(m)
    failed = 0
    for k in with_progress("refit", range(b)):
        models, items, data = *every, counts
        if options.over == "items":
            weights = item_weights(1, m, rng, clusters)[0].astype(np.int64)
            items = np.repeat(every[1], weights)
            data = counts.of_items(_places(items, counts.right))
        elif options.over == "models":
            models = np.repeat(every[0], _model_weights(1, n, rng)[0].astype(np.int64))
            at = _places(models, counts.right)
            data = replace(counts, right=counts.right[at], trials=counts.trials[at])
        else:
            trials = counts.trials.cpu().numpy().round().astype(np.int64)
            right = _tensor(rng.binomial(trials, chance).astype(float), counts.right)
            data = replace(counts, right=right)
        try:
            refit = fitted(data, models, items)
        except DesignError:
            # Such as items that are all right: no estimate, as for a model that was not drawn.
            failed += 1
            continue
        slope, intercept = link_through_items(Curves.of(refit), first.items.at(items))
        sums = np.bincount(models, refit.ability, minlength=n)
        with np.errstate(invalid="ignore"):
            abilities[k] = slope * sums / np.bincount(models, minlength=n) + intercept
    summary = _summary(abilities, None, torch.ones(b, dtype=torch.bool), options)
    note = f"{failed} of {b} sets of answers could not be fitted"
    return summary._replace(notes=(*summary.notes, note)) if failed else summary


def _places(at: IntArray, like: Tensor) -> Tensor:
    return torch.as_tensor(at, device=like.device)


def item_weights(
    n_resamples: int,
    n_items: int,
    rng: np.random.Generator,
    clusters: NDArray[np.int64] | None = None,
) -> FloatArray:
    """Draw how often each item counts, shape (B, M): alone, or with its cluster.

    >>> item_weights(2, 4, np.random.default_rng(0), np.array([0, 0, 1, 1])).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    if clusters is None:
        drawn = rng.multinomial(n_items, np.full(n_items, 1 / n_items), size=n_resamples)
        return drawn.astype(np.float64)
    count = int(clusters.max()) + 1
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=n_resamples)
    return drawn[:, clusters].astype(np.float64)


def _model_weights(n_resamples: int, n_models: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often each model counts, shape (B, N); at least two models do."""
    weights = item_weights(n_resamples, n_models, rng)
    single = (weights > 0).sum(axis=1) < 2
    while single.any():
        weights[single] = item_weights(int(single.sum()), n_models, rng)
        single = (weights > 0).sum(axis=1) < 2
    return weights


class _Drawn(NamedTuple):
    """Refits, in blocks, and what was drawn for them."""

    refits: Iterator[Refits]
    weights: FloatArray | None
    """How often each item counts, shape (B, M); None for once."""
    items: list[tuple[FloatArray, FloatArray]]
    """Discriminations and intercepts of new items, (block, M) each, filled in as blocks are drawn;
    on the scale of the `fitted` ones."""
    fitted: tuple[FloatArray, FloatArray]


def _drawn(
    counts: Counts,
    fit: ItemsIntegratedFit,
    options: BootstrapOptions,
    rng: np.random.Generator,
    clusters: NDArray[np.int64] | None,
) -> _Drawn:
    ready = refitter(counts, fit, options.kind)
    n, m = counts.right.shape
    b, like = options.n_resamples, counts.right
    block = options.block or max(1, min(_BLOCK // (n * m), -(-b // (4 * n_workers()))))
    # Blocks are whole groups, so that each refit keeps its place in its group; see `Refitter`.
    block = -(-block // ready.group) * ready.group
    what = {"items": "item_weights", "models": "model_weights"}.get(options.over, "right")
    weights, items = None, list[tuple[FloatArray, FloatArray]]()
    if what == "right":
        drawn = _simulated_answers(counts, fit, options, rng, block, items)
    elif what == "item_weights":
        weights = item_weights(b, m, rng, clusters)
        drawn = split(_tensor(weights, like), block)
    else:
        drawn = split(_tensor(_model_weights(b, n, rng), like), block)
    refits = parallel_map(partial(_refit, ready), ({what: part} for part in drawn))
    a, difficulty = (as_array(x) for x in (fit.discrimination, fit.difficulty))
    return _Drawn(refits, weights, items, (a, -a * difficulty))


def _refit(ready: Refitter, data: Mapping[str, Tensor]) -> Refits:
    return ready.refit(**data)


def _simulated_answers(
    counts: Counts,
    fit: ItemsIntegratedFit,
    options: BootstrapOptions,
    rng: np.random.Generator,
    block: int,
    items: list[tuple[FloatArray, FloatArray]],
) -> Iterator[Tensor]:
    """Simulate right answers, to new items of the population or to those of the fit.

    (block, N, M) at a time; new items are appended to `items`.

    Items and answers have separate generators, so that both are drawn in the order of the refits.
    """
    of_items = stream(rng, "items of refits")
    of_answers = stream(rng, "answers of refits")
    ability, trials = (x.cpu().numpy() for x in (fit.ability, counts.trials))
    trials = np.round(trials).astype(np.int64)
    most = int(trials.max())
    for start in range(0, options.n_resamples, block):
        size = min(block, options.n_resamples - start)
        if options.over == "new-items":
            draw = of_items.standard_normal((size, trials.shape[1], 2))
            a, d = _new_items(draw, fit.hyperparameters, options.kind)
            items.append((a, d))
        else:
            a, d = (x.cpu().numpy()[None] for x in (fit.discrimination, fit.intercept))
        p = 1 / (1 + np.exp(-(ability[:, None] * a[:, None] + d[:, None])))
        take = of_answers.random((size, *trials.shape, most)) < p[..., None]
        right = (take & (np.arange(most) < trials[..., None])).sum(axis=-1)
        yield _tensor(right.astype(np.float64), counts.right)


def _new_items(
    draw: FloatArray, population: dict[str, float], kind: Kind
) -> tuple[FloatArray, FloatArray]:
    """Discriminations and intercepts of items from standard normal numbers (·, M, 2)."""
    first = "intercept" if kind == "2pl-signed" else "difficulty"
    location = population[f"{first}_mean"] + population[f"{first}_sd"] * draw[..., 0]
    if kind == "rasch":
        return np.ones_like(location), -location
    second = "discrimination" if kind == "2pl-signed" else "log_discrimination"
    share = population["correlation"]
    mixed = share * draw[..., 0] + np.sqrt(1 - share**2) * draw[..., 1]
    two = population[f"{second}_sd"] * mixed
    return (1 + two, location) if kind == "2pl-signed" else (np.exp(two), -np.exp(two) * location)


def _tensor(values: FloatArray, like: Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)


def _summary(
    theta: FloatArray,
    items: tuple[FloatArray, FloatArray] | None,
    converged: Tensor,
    options: BootstrapOptions,
) -> Bootstrap:
    level = options.confidence_level
    ever = np.flatnonzero(np.isfinite(theta).any(axis=0))
    whole = np.isfinite(theta[:, ever]).all(axis=1)
    n = theta.shape[1]
    covariance = np.full((n, n), np.nan)
    if whole.sum() > len(ever):
        covariance[np.ix_(ever, ever)] = np.cov(theta[whole][:, ever].T)
    failed, notes = int((~converged).sum()), list[str]()
    if failed:
        notes.append(
            f"{failed} of {len(theta)} refits did not converge: their last estimate counts"
        )
    endless = int(np.isinf(theta).any(axis=1).sum())
    if endless:
        notes.append(f"in {endless} of {len(theta)} refits a model is all right or all wrong")
    discrimination, difficulty = None, None
    if items is not None:
        discrimination, difficulty = (_quantity(x, level) for x in items)
    return Bootstrap(_quantity(theta, level), covariance, discrimination, difficulty, tuple(notes))


def _quantity(values: FloatArray, level: float) -> Quantity:
    present = ~np.isnan(values)
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(finite, values, 0).sum(axis=0) / count
        square = np.where(finite, (values - mean) ** 2, 0).sum(axis=0)
        std_error = np.sqrt(np.where(count > 1, square / (count - 1), np.nan))
    tail = (1 - level) / 2
    low, high = _percentiles(values, present.sum(axis=0), np.array([tail, 1 - tail]))
    return Quantity(values, std_error, low, high)


def _percentiles(values: FloatArray, count: NDArray[np.int64], at: FloatArray) -> FloatArray:
    """Order statistics of the numbers that are not NaN, shape (2, ·); they may be infinite."""
    ordered = np.sort(values, axis=0)
    place = np.clip(np.round(at[:, None] * (count + 1)) - 1, 0, np.maximum(count - 1, 0))
    return np.take_along_axis(ordered, place.astype(np.int64), axis=0)


def refitter(counts: Counts, fit: ItemsIntegratedFit, kind: Kind) -> Refitter:
    """Prepare refits of the fit that `items_integrated` found in these answers."""
    counts = counts.tempered(fit.dispersion)
    population = population_of(fit, kind)
    grid = points(population, fit.ability, counts.trials.amax(1))
    values = population.values
    m1, s1 = values[0], torch.exp(values[1])
    u, r = (grid.x1 - m1) / s1, torch.zeros_like(grid.x1)
    if kind != "rasch":
        r = (grid.x2 - values[2] - values[3] * s1 * u) / torch.exp(values[4])
        values = torch.cat([values[:2], values[3:]])
    log_weight = grid.log_weight(population)
    quadrature = _Quadrature(kind, len(fit.ability), u, r, log_weight)
    start = torch.cat([fit.ability, values])
    return Refitter(counts, quadrature, start, _inverse_information(quadrature, counts, start))


@dataclass(frozen=True, eq=False)
class Refitter:
    """Data, points, start values and inverse information that all refits of a fit share."""

    counts: Counts
    quadrature: _Quadrature
    start: Tensor
    inverse: Tensor

    @property
    def group(self) -> int:
        """Refits done at a time; rounding depends on a refit's place in its group."""
        return _group(self.counts, self.quadrature)

    def refit(
        self,
        *,
        right: Tensor | None = None,
        item_weights: Tensor | None = None,
        model_weights: Tensor | None = None,
    ) -> Refits:
        """Refit to answers that are _weighted, or replaced.

        Parameters
        ----------
        right : shape (B, N, M)
            Right answers of each refit, in place of those of the fit.
        item_weights : shape (B, M)
            How often each item counts.
        model_weights : shape (B, N)
            How often each model counts, as that many models with one ability; abilities of models
            that do not count are NaN.
        """
        data = _weighted(self.counts, right, item_weights, model_weights)
        group = self.group
        # All groups are full, because rounding depends on array sizes: the last refit is repeated.
        count = len(data.items)
        places = torch.arange(count + -count % group, device=data.items.device)
        places = split(places.clamp_max(count - 1), group)
        by_block = [
            _refit_block(self.quadrature, data.of(places[k]), self.start, self.inverse)
            for k in with_progress("group of refits", range(len(places)))
        ]
        columns = list(zip(*by_block, strict=True))
        tensors = [torch.cat(column)[:count] for column in columns[:4]]
        ability, discrimination, difficulty, converged = tensors
        return Refits(ability, discrimination, difficulty, converged, max(columns[4]))

    def sandwich(self, clusters: Tensor | None = None) -> Tensor:
        """Covariance (N, N) of the abilities that holds where the model is wrong.

        H⁻¹ (Σ s s') H⁻¹ with the scores s of items, or of clusters of items: sums of the gradients
        of their marginal log-likelihoods.

        Parameters
        ----------
        clusters : shape (M,)
            Items of one cluster are dependent; numbers from 0.
        """
        n, counts = self.quadrature.n_models, self.counts
        ones = torch.ones_like(counts.right[:1])
        data = _weighted(counts, None, ones, None)
        slope = _gradient(self.quadrature, data, data.rows(), self.start[None])
        a, d, _ = (x[0] for x in slope.grid)
        chance = torch.sigmoid(self.start[:n, None] * a + d) + data.correction[0, :, None]
        weight = slope.posterior[0]
        by_ability = counts.right.T * (weight @ a)[:, None]
        by_ability = by_ability - counts.trials.T * (weight @ (a * chance).T)
        hyper = self.start[None, n:]
        prior = _hyper_gradient(self.quadrature, torch.zeros_like(weight[:1]), hyper)
        by_hyper = _hyper_gradient(self.quadrature, weight, hyper.expand(len(weight), -1)) - prior
        score = torch.cat([by_ability, by_hyper], dim=1)
        if clusters is not None:
            sums = score.new_zeros(int(clusters.max()) + 1, score.shape[1])
            score = sums.index_add(0, clusters, score)
        moved = (score @ self.inverse)[:, :n]
        return len(score) / max(len(score) - 1, 1) * moved.T @ moved


class Refits(NamedTuple):
    """Results of B refits."""

    ability: Tensor
    """Shape (B, N); sums to 0 over the models that count."""
    discrimination: Tensor
    """Shape (B, M), posterior means given each refit."""
    difficulty: Tensor
    """Shape (B, M)."""
    converged: Tensor
    """Shape (B,)."""
    steps: int


def _group(counts: Counts, quadrature: _Quadrature) -> int:
    """Refits at a time: depends on shapes alone, so that rounding is always the same."""
    return max(1, _CACHE // (counts.right.shape[1] * len(quadrature.u)))


def _inverse_information(quadrature: _Quadrature, counts: Counts, start: Tensor) -> Tensor:
    """Inverse of the fit's information (P, P), for abilities that sum to 0.

    By differences of gradients, which is accurate enough for the steps.
    """
    n, size, group = quadrature.n_models, len(start), _group(counts, quadrature)
    step = 1e-3 * torch.eye(size).to(start)
    unit = torch.ones_like(counts.right[0]).expand(group, -1)
    data = _weighted(counts, None, unit, None)
    rows = data.rows()

    def gradients(at: Tensor) -> Tensor:
        parts = [
            _gradient(quadrature, data.of(torch.arange(len(x), device=x.device)), rows[: len(x)], x)
            for x in split(at, group)
        ]
        return torch.cat([part.gradient for part in parts])

    curve = (gradients(start - step) - gradients(start + step)) / 2e-3
    total = torch.zeros(size, 1).to(start)
    total[:n] = 1
    basis = complement(total)
    values, vectors = linalg.eigh(basis.T @ ((curve + curve.T) / 2) @ basis)
    # A spread that the data leave open has little or no curvature.
    rows = basis @ vectors
    return rows / values.clamp_min(1e-2) @ rows.T


def _refit_block(quadrature: _Quadrature, data: _Data, start: Tensor, inverse: Tensor) -> Refits:
    """Newton's method with the information of the first fit and Anderson acceleration."""
    n, size = quadrature.n_models, len(data.items)
    at = start.expand(size, -1).clone()
    # A model that counts twice has twice the information, and its gradient too.
    share = data.models.clamp_min(1)
    share = torch.cat([share, torch.ones_like(at[:, n:])], dim=1)
    present = data.models > 0
    active = at.new_ones(size, dtype=torch.bool)
    visited, moves = list[Tensor](), list[Tensor]()
    rows = data.rows()
    slope, steps = _gradient(quadrature, data, rows, at), 0
    while steps < _MAX_STEPS:
        steps += 1
        move = (slope.gradient / share) @ inverse
        gain = (slope.gradient * move).sum(1)
        active = active & ~(gain.abs() < _TOLERANCE)
        if not bool(active.any()):
            break
        visited, moves = [*visited, at][-_DEPTH:], [*moves, move][-_DEPTH:]
        fresh = _anderson(visited, moves)
        length = (fresh - at).abs().amax(1, keepdim=True)
        fresh = at + (fresh - at) * (1 / length).clamp_max(1)
        at = torch.where(active[:, None], fresh, at)
        slope = _gradient(quadrature, data, rows, at)
    ability = torch.where(present, at[:, :n], torch.nan)
    shift = ability.nanmean(1, keepdim=True)
    mean = slope.posterior @ torch.stack(list(slope.grid), dim=2)
    discrimination, intercept, difficulty = mean.unbind(2)
    if quadrature.kind == "2pl-signed":
        # The ratio has no moments where discriminations may be 0.
        difficulty = -intercept / discrimination
    return Refits(ability - shift, discrimination, difficulty - shift, ~active, steps)


def _anderson(visited: list[Tensor], moves: list[Tensor]) -> Tensor:
    """Anderson acceleration: the point whose step would be smallest if steps were linear."""
    if len(moves) == 1:
        return visited[-1] + moves[-1]
    ends = torch.stack([p + m for p, m in zip(visited, moves, strict=True)], dim=2)
    move = torch.stack(moves, dim=2)
    end_changes, change = ends.diff(dim=2), move.diff(dim=2)
    normal = change.mT @ change
    ridge = 1e-12 * normal.diagonal(dim1=1, dim2=2).sum(1).clamp_min(1e-300)
    identity = torch.eye(normal.shape[1], dtype=normal.dtype, device=normal.device)
    normal = normal + ridge[:, None, None] * identity
    share = linalg.solve_ex(normal, change.mT @ move[:, :, -1:])[0]
    return (ends[:, :, -1:] - end_changes @ share)[:, :, 0]


class _Data(NamedTuple):
    """Answers (B or 1, M, N), and how often items (B, M) and models (B, N) count."""

    right: Tensor
    trials: Tensor | None
    """Shape (M, N); None where every cell has one and the same number of trials, `each`."""
    each: float
    items: Tensor
    models: Tensor
    correction: Tensor
    """Shape (B, N): share of each trial taken from models all right, given to models all wrong."""

    def of(self, refits: Tensor) -> _Data:
        """Some of the refits."""
        right = self.right if len(self.right) == 1 else self.right[refits]
        items, models, correction = (x[refits] for x in (self.items, self.models, self.correction))
        return self._replace(right=right, items=items, models=models, correction=correction)

    def rows(self) -> Tensor:
        """Rows to sum over items: 1, right answers and, where they differ, trials of each model."""
        ones = torch.ones_like(self.right[..., :1])
        parts = [ones, self.right] if self.trials is None else [ones, self.right, self.trials[None]]
        parts = [part.expand(len(self.right), -1, -1) for part in parts]
        return (torch.cat(parts, dim=2) * self.items[:, :, None]).mT.contiguous()


def _weighted(
    counts: Counts,
    right: Tensor | None,
    item_weights: Tensor | None,
    model_weights: Tensor | None,
) -> _Data:
    """Answers with their weights; see `Refitter.refit`."""
    n, m = counts.right.shape
    size = next(len(x) for x in (right, item_weights, model_weights) if x is not None)
    answers = counts.right[None] if right is None else right.to(counts.right)
    unit = answers.new_ones(())
    items = unit.expand(size, m) if item_weights is None else item_weights.to(unit)
    models = unit.expand(size, n) if model_weights is None else model_weights.to(unit)
    each = float(counts.trials[0, 0])
    equal = bool((counts.trials == each).all())
    # As in the fit: half an item of models all right or all wrong goes the other way.
    total = items @ counts.trials.T
    hits = (answers @ items[:, :, None])[:, :, 0]
    extreme = (hits >= total).to(unit) - (hits <= 0).to(unit)
    return _Data(
        right=answers.mT.contiguous(),
        trials=None if equal else counts.trials.T.contiguous(),
        each=each,
        items=items,
        models=models,
        correction=extreme * 0.5 / total.clamp_min(1),
    )


class _Quadrature(NamedTuple):
    """Points of the integral over items, in units of the population, so that they move with it."""

    kind: Kind
    n_models: int
    u: Tensor
    """Standardised first item parameter, shape (Q,)."""
    r: Tensor
    """Standardised residual of the second item parameter given the first, shape (Q,)."""
    log_weight: Tensor


class _Points(NamedTuple):
    """Item parameters at the points of each refit, each of shape (B, Q)."""

    discrimination: Tensor
    intercept: Tensor
    difficulty: Tensor


def _points(quadrature: _Quadrature, hyper: Tensor) -> _Points:
    first = hyper[:, :1] + torch.exp(hyper[:, 1:2]) * quadrature.u
    if quadrature.kind == "rasch":
        return _Points(torch.ones_like(first), -first, first)
    # The mean of the second item parameter is fixed; see `item_population`.
    second = (
        float(quadrature.kind == "2pl-signed")
        + hyper[:, 2:3] * torch.exp(hyper[:, 1:2]) * quadrature.u
    )
    second = second + torch.exp(hyper[:, 3:4]) * quadrature.r
    if quadrature.kind == "2pl-signed":
        return _Points(second, first, first)
    a = discrimination_of(second)
    return _Points(a, -a * first, first)


class _Gradient(NamedTuple):
    """Gradient by abilities and free hyper-parameters (B, P); posteriors of items (B, M, Q)."""

    gradient: Tensor
    posterior: Tensor
    grid: _Points


def _gradient(quadrature: _Quadrature, data: _Data, rows: Tensor, at: Tensor) -> _Gradient:
    """Gradient of the log-likelihood of each refit at its own parameters `at` (B, P)."""
    n = quadrature.n_models
    ability, hyper = at[:, :n], at[:, n:]
    a, d, _ = grid = _points(quadrature, hyper)
    logit = ability[:, :, None] * a[:, None] + d[:, None]
    chance = torch.sigmoid(logit) + data.correction[:, :, None]
    weight = data.models[:, :, None]
    level = (torch.nn.functional.softplus(logit) + data.correction[:, :, None] * logit) * weight
    score = data.right @ (logit * weight)
    prior = quadrature.log_weight
    if data.trials is None:
        prior = prior - data.each * level.sum(1)
    else:
        score -= data.trials @ level
        prior = prior.expand(len(at), -1)
    posterior = torch.softmax(score.add_(prior[:, None]), dim=2)
    sums = rows @ posterior
    pooled, hits = sums[:, :1], sums[:, 1 : n + 1]
    expected = data.each * pooled if data.trials is None else sums[:, n + 1 :]
    residual = ((hits - expected * chance) @ a[:, :, None])[:, :, 0] * data.models
    by_hyper = _hyper_gradient(quadrature, pooled[:, 0], hyper)
    return _Gradient(torch.cat([residual, by_hyper], dim=1), posterior, grid)


def _hyper_gradient(quadrature: _Quadrature, pooled: Tensor, hyper: Tensor) -> Tensor:
    """Gradient by the free hyper-parameters, with their prior."""
    u, r = quadrature.u, quadrature.r
    moments = pooled @ torch.stack([u, u * u - 1, r, r * u, r * r - 1], dim=1)
    u_sum, u_square, r_sum, both, r_square = moments.unbind(1)
    v1 = torch.exp(2 * hyper[:, 1])
    s1 = v1.sqrt()
    by_sd = u_square + 1 - v1 / DIFFICULTY_SPREAD**2
    if quadrature.kind == "rasch":
        return torch.stack([u_sum / s1, by_sd], dim=1)
    slope, s2 = hyper[:, 2], torch.exp(hyper[:, 3])
    square = v1 / EXPLAINED_SPREAD**2
    columns = [
        u_sum / s1 - slope * r_sum / s2,
        by_sd - slope**2 * square,
        both * s1 / s2 - slope * square,
        r_square + 1 - (s2 / DISCRIMINATION_SPREAD) ** 2,
    ]
    return torch.stack(columns, dim=1)
