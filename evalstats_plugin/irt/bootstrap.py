"""How sure are abilities, by refits to answers drawn anew?

Weights of all refits are drawn before any of them is fitted, and simulated answers in the order of
the refits, so that the size of the blocks in which they are fitted changes no number.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.engines import mapped, n_workers
from evalstats_plugin.irt.cml import abilities_given_item_totals
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_population import Kind
from evalstats_plugin.irt.items_integrated import ItemsIntegratedFit, items_integrated
from evalstats_plugin.irt.refits import Refits, Refitter, refitter
from evalstats_plugin.stats.interval import FloatArray

Over = Literal["items", "models", "parametric"]
Estimator = Literal["cml-items", "mml-items"]
# Numbers that simulated answers of one block may have.
_BLOCK = 2**24


class Quantity(NamedTuple):
    """Bootstrap of several numbers at once."""

    replicates: FloatArray
    """Shape (B, ·); NaN where a model was not drawn, infinite where an estimate is."""
    std_error: FloatArray
    """Of finite replicates."""
    low: FloatArray
    """Percentiles."""
    high: FloatArray


class Bootstrap(NamedTuple):
    """What refits found; abilities sum to 0 in each."""

    ability: Quantity
    covariance: FloatArray
    """Of abilities, shape (N, N), over refits in which all are finite; NaN where those are few."""
    discrimination: Quantity | None
    """Posterior means given each refit; None where the estimator has no items."""
    difficulty: Quantity | None
    over: Over
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a bootstrap is done."""

    over: Over = "items"
    """Draw items, or models, with replacement, or simulate answers of new items from the fit."""
    estimator: Estimator = "mml-items"
    """``"cml-items"`` is of the Rasch model only, and draws items only."""
    kind: Kind = "2pl"
    n_resamples: int = 1000
    confidence_level: float = 0.95
    block: int | None = None
    """Refits in memory at a time; changes no number."""


def bootstrap(
    counts: Counts,
    options: Options,
    rng: np.random.Generator,
    *,
    clusters: NDArray[np.int64] | None = None,
) -> Bootstrap:
    """Refit to answers drawn anew, and see how abilities vary.

    To draw items asks how abilities would vary with other items of the same kind; to draw models
    asks how items would vary with other models, whose own abilities are seen only where drawn.
    What an estimator gets wrong for every sample, no bootstrap shows [ET93]_.

    Parameters
    ----------
    clusters : shape (M,)
        Items of one cluster are drawn together; numbers from 0.

    Raises
    ------
    ValueError
        Fewer than 2 resamples, clusters without drawing items, or an estimator that does not
        serve what is asked.
    """
    _check(options, counts, clusters)
    b = options.n_resamples
    if options.estimator == "cml-items":
        weights = item_weights(b, counts.right.shape[1], rng, clusters)
        fit = abilities_given_item_totals(
            counts, weights=_tensor(weights, counts.right), block=options.block or 256
        )
        return _summary(fit.estimate, None, fit.converged, options)
    fit = items_integrated(counts, options.kind)
    found = list(_refits(counts, fit, options, rng, clusters))
    ability, discrimination, difficulty, converged = (
        torch.cat([getattr(part, name) for part in found])
        for name in ("ability", "discrimination", "difficulty", "converged")
    )
    return _summary(ability, (discrimination, difficulty), converged, options)


def _check(options: Options, counts: Counts, clusters: NDArray[np.int64] | None) -> None:
    if options.n_resamples < 2:
        msg = f"{options.n_resamples} resamples asked for, expected 2 or more"
        raise ValueError(msg)
    if clusters is not None and options.over != "items":
        msg = f"clusters are of items, found over={options.over!r}: take over='items'"
        raise ValueError(msg)
    if clusters is not None and clusters.shape != (counts.right.shape[1],):
        msg = f"clusters have shape {clusters.shape}, expected ({counts.right.shape[1]},)"
        raise ValueError(msg)
    if options.estimator == "cml-items" and (options.kind, options.over) != ("rasch", "items"):
        msg = (
            f"'cml-items' is refitted for kind 'rasch' over 'items', found {options.kind!r} over "
            f"{options.over!r}: take estimator 'mml-items'"
        )
        raise ValueError(msg)


def item_weights(
    n_resamples: int,
    n_items: int,
    rng: np.random.Generator,
    clusters: NDArray[np.int64] | None = None,
) -> FloatArray:
    """How often each item is drawn, shape (B, M): alone, or with its cluster.

    >>> item_weights(2, 4, np.random.default_rng(0), np.array([0, 0, 1, 1])).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    if clusters is None:
        drawn = rng.multinomial(n_items, np.full(n_items, 1 / n_items), size=n_resamples)
        return drawn.astype(np.float64)
    count = int(clusters.max()) + 1
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=n_resamples)
    return drawn[:, clusters].astype(np.float64)


def _refits(
    counts: Counts,
    fit: ItemsIntegratedFit,
    options: Options,
    rng: np.random.Generator,
    clusters: NDArray[np.int64] | None,
) -> Iterator[Refits]:
    ready = refitter(counts, fit, options.kind)
    n, m = counts.right.shape
    b, like = options.n_resamples, counts.right
    block = options.block or max(1, min(_BLOCK // (n * m), -(-b // (4 * n_workers()))))
    # Blocks are whole groups, so that each refit keeps its place in its group.
    block = -(-block // ready.group) * ready.group
    what = {"parametric": "right", "items": "item_weights", "models": "model_weights"}[options.over]
    if options.over == "parametric":
        drawn = _simulated(counts, fit, options, rng, block)
    else:
        weights = (
            item_weights(b, m, rng, clusters) if options.over == "items" else _models(b, n, rng)
        )
        drawn = _tensor(weights, like).split(block)
    return mapped(partial(_refit, ready), ({what: part} for part in drawn))


def _refit(ready: Refitter, data: Mapping[str, Tensor]) -> Refits:
    return ready.refit(**data)


def _models(n_resamples: int, n_models: int, rng: np.random.Generator) -> FloatArray:
    """How often each model is drawn, shape (B, N): two different ones at least."""
    weights = item_weights(n_resamples, n_models, rng)
    single = (weights > 0).sum(axis=1) < 2
    while single.any():
        weights[single] = item_weights(int(single.sum()), n_models, rng)
        single = (weights > 0).sum(axis=1) < 2
    return weights


def _simulated(
    counts: Counts, fit: ItemsIntegratedFit, options: Options, rng: np.random.Generator, block: int
) -> Iterator[Tensor]:
    """Right answers of the models to new items of the population, (block, N, M) at a time.

    Items and answers have a generator each, so that each is drawn in the order of the refits.
    """
    of_items, of_answers = rng.spawn(2)
    ability, trials = (x.cpu().numpy() for x in (fit.ability, counts.trials))
    trials = np.round(trials).astype(np.int64)
    most = int(trials.max())
    for start in range(0, options.n_resamples, block):
        size = min(block, options.n_resamples - start)
        draw = of_items.standard_normal((size, trials.shape[1], 2))
        a, d = _new_items(draw, fit.hyperparameters, options.kind)
        p = 1 / (1 + np.exp(-(ability[:, None] * a[:, None] + d[:, None])))
        take = of_answers.random((size, *trials.shape, most)) < p[..., None]
        right = (take & (np.arange(most) < trials[..., None])).sum(axis=-1)
        yield _tensor(right.astype(np.float64), counts.right)


def _new_items(
    draw: FloatArray, known: dict[str, float], kind: Kind
) -> tuple[FloatArray, FloatArray]:
    """Discriminations and intercepts from standard normal numbers (·, M, 2)."""
    first = "intercept" if kind == "2pl-signed" else "difficulty"
    one = known[f"{first}_mean"] + known[f"{first}_sd"] * draw[..., 0]
    if kind == "rasch":
        return np.ones_like(one), -one
    second = "discrimination" if kind == "2pl-signed" else "log_discrimination"
    share = known["correlation"]
    mixed = share * draw[..., 0] + np.sqrt(1 - share**2) * draw[..., 1]
    two = known[f"{second}_sd"] * mixed
    return (1 + two, one) if kind == "2pl-signed" else (np.exp(two), -np.exp(two) * one)


def _tensor(values: FloatArray, like: Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)


def _summary(
    ability: Tensor, items: tuple[Tensor, Tensor] | None, converged: Tensor, options: Options
) -> Bootstrap:
    level = options.confidence_level
    theta = ability.cpu().numpy()
    whole = np.isfinite(theta).all(axis=1)
    n = theta.shape[1]
    covariance = np.full((n, n), np.nan)
    if whole.sum() > n:
        covariance = np.cov(theta[whole].T)
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
        discrimination, difficulty = (_quantity(x.cpu().numpy(), level) for x in items)
    return Bootstrap(
        _quantity(theta, level), covariance, discrimination, difficulty, options.over, tuple(notes)
    )


def _quantity(values: FloatArray, level: float) -> Quantity:
    there = ~np.isnan(values)
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(finite, values, 0).sum(axis=0) / count
        square = np.where(finite, (values - mean) ** 2, 0).sum(axis=0)
        std_error = np.sqrt(np.where(count > 1, square / (count - 1), np.nan))
    tail = (1 - level) / 2
    low, high = _percentiles(values, there.sum(axis=0), np.array([tail, 1 - tail]))
    return Quantity(values, std_error, low, high)


def _percentiles(values: FloatArray, count: NDArray[np.int64], at: FloatArray) -> FloatArray:
    """Order statistics of what is not NaN, shape (2, ·), which may be infinite."""
    ordered = np.sort(values, axis=0)
    place = np.clip(np.round(at[:, None] * (count + 1)) - 1, 0, np.maximum(count - 1, 0))
    return np.take_along_axis(ordered, place.astype(np.int64), axis=0)
