"""What can be frozen: models on given items, and items among given models."""
# PART scores - Abilities of models on items that are fitted already.
# PART holdout - How well does a fit predict what it has not seen? Two-stage fits, and what their errors are.

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from scipy import special
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.grid import (
    arrange,
    even_nodes,
    fitting_nodes,
    moments,
    posterior_widths,
)
from evalstats_plugin.irt.estimators.item_population import Points, Population, points
from evalstats_plugin.irt.estimators.items_integrated import ItemsIntegratedFit, items_integrated
from evalstats_plugin.irt.model.curves import Items, curves
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.masks import Split
from evalstats_plugin.runtime.workers import mapped
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import tail_probability

# Abilities at which the response curves are tabulated, and how far out, in standard deviations.
_NODES, _REACH = 241, 6.0


_BLOCK = 2**22


# Points of a standard normal, with their shares: exact for polynomials up to the fifth degree.
_NORMAL = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))


# Least standard deviation of abilities, for models that hardly differ.
_NARROWEST = 0.05


ScoreMethod = Literal["eap", "map", "ml", "wle"]


FARTHEST = 20.0


Estimator: TypeAlias = Callable[[Counts], "Fitted | Tensor"]
"""Fits counts. One that gives P(right) itself, (N, M), gets trained and exposed cells at once."""


class Fitted(Protocol):
    """A fit that can place other models on its items, and other items among its models."""

    def probability(self) -> Tensor:
        """P(right) of its models on its items, shape (N, M)."""
        ...

    def for_models(self, counts: Counts) -> Any:
        """The same items, with models placed by their answers, shape (n, M)."""
        ...

    def for_items(self, counts: Counts) -> Any:
        """The same models, with items placed by their answers, shape (N, m)."""
        ...

    def crossed(self, other: Any) -> Any:
        """These models on the items of another."""
        ...


@dataclass(frozen=True, eq=False)
class CurvesFit:
    """Models and items of one dimension, each with its posterior.

    Items are response curves, averaged over their posteriors: what is not known of an item makes
    its curve flatter.
    """

    ability: Tensor
    """Posterior mean of each model, shape (N,)."""
    weight: Tensor | None
    """Posterior of each model over `nodes`, shape (N, Q); None where the ability is a parameter."""
    curve: Tensor
    """P(right) at the nodes, shape (Q, M)."""
    exact: Tensor
    """P(right), averaged over the errors of abilities, shape (N, M), where they are parameters."""
    std_error: Tensor
    """Of those abilities, shape (N,)."""
    nodes: Tensor
    points: Points
    log_prior: Tensor
    """Of the items' points."""

    def probability(self) -> Tensor:
        """P(right), shape (N, M)."""
        return self.exact if self.weight is None else self.weight @ self.curve

    def for_models(self, counts: Counts) -> CurvesFit:
        """Models under a normal prior with mean and spread of the models of the fit."""
        # Beyond these a curve would be worth an infinite surprise.
        curve = self.curve.clamp(1e-12, 1 - 1e-12)
        log_odds, log_wrong = torch.logit(curve).T, torch.log1p(-curve).T
        spread = self.ability.std(correction=1).clamp_min(_NARROWEST)
        prior = -0.5 * ((self.nodes - self.ability.mean()) / spread) ** 2
        weight = torch.softmax(counts.right @ log_odds + counts.trials @ log_wrong + prior, dim=1)
        return replace(self, ability=weight @ self.nodes, weight=weight)

    def for_items(self, counts: Counts) -> CurvesFit:
        """Items under the population of the items of the fit, placed as if abilities were known."""
        models = self.ability, self.std_error
        curve, exact = _curves(counts, models, self.nodes, self.points, self.log_prior)
        return replace(self, curve=curve, exact=exact)

    def crossed(self, other: CurvesFit) -> CurvesFit:
        """These models on the items of another."""
        return replace(other, ability=self.ability, weight=self.weight)


def fit_curves(counts: Counts, kind: str = "2pl", *, max_iter: int = 200) -> CurvesFit:
    """Fit with items integrated out, and keep what places models and items later.

    `kind` is ``"rasch"``, ``"2pl"`` or ``"2pl-signed"``; see `items_integrated`.
    """
    known: Any = kind
    found = items_integrated(counts, known, max_iter=max_iter)
    population = _population(found, kind)
    grid = points(population, found.ability, counts.trials.amax(1))
    log_prior = population.log_density(grid.x1, grid.x2) + grid.log_area
    spread = found.ability.std(correction=1).clamp_min(_NARROWEST)
    width = _REACH * float(spread)
    nodes = found.ability.mean() + torch.linspace(-width, width, _NODES).to(found.ability)
    std_error = found.covariance.diagonal().sqrt()
    curve, exact = _curves(counts, (found.ability, std_error), nodes, grid, log_prior)
    return CurvesFit(found.ability, None, curve, exact, std_error, nodes, grid, log_prior)


def _population(found: ItemsIntegratedFit, kind: str) -> Population:
    """The population of items, from its hyper-parameters by name."""
    by_name, known = found.hyperparameters, kind
    first = "intercept" if kind == "2pl-signed" else "difficulty"
    values = [by_name[f"{first}_mean"], math.log(by_name[f"{first}_sd"])]
    if kind != "rasch":
        second = "discrimination" if kind == "2pl-signed" else "log_discrimination"
        spread, correlation = by_name[f"{second}_sd"], by_name["correlation"]
        own = spread * math.sqrt(max(1 - correlation**2, 1e-12))
        values += [float(kind == "2pl-signed"), correlation * spread / by_name[f"{first}_sd"]]
        values += [math.log(max(own, 1e-6))]
    population: Any = known
    return Population(population, found.ability.new_tensor(values))


def _curves(
    counts: Counts, models: tuple[Tensor, Tensor], nodes: Tensor, grid: Points, log_prior: Tensor
) -> tuple[Tensor, Tensor]:
    """P(right) at the nodes (Q, m) and of the models (N, m), by each item's posterior.

    `models` are abilities and their standard errors.
    """
    ability, std_error = models
    logit = ability[:, None] * grid.discrimination + grid.intercept
    level = torch.nn.functional.softplus(logit)
    there = torch.sigmoid(nodes[:, None] * grid.discrimination + grid.intercept)
    here = torch.zeros_like(logit)
    for z, share in _NORMAL:
        at = ability + z * std_error
        here += share * torch.sigmoid(at[:, None] * grid.discrimination + grid.intercept)
    curve, exact = [], []
    step = max(1, _BLOCK // len(grid.x1))
    for right, trials in zip(
        counts.right.split(step, 1), counts.trials.split(step, 1), strict=True
    ):
        weight = torch.softmax(right.T @ logit - trials.T @ level + log_prior, dim=1)
        curve.append(there @ weight.T)
        exact.append(here @ weight.T)
    return torch.cat(curve, dim=1), torch.cat(exact, dim=1)


class AbilityScores(NamedTuple):
    """Both of shape (N,), on the scale on which abilities are N(0, 1)."""

    ability: Tensor
    std_error: Tensor


def score(counts: Counts, items: Items, method: ScoreMethod = "eap") -> AbilityScores:
    """Estimate abilities, items being known.

    ``"eap"`` and ``"map"`` are mean and mode of the posterior under a standard normal ability,
    ``"ml"`` has no prior and is infinite for models all right or all wrong, ``"wle"`` is Warm's
    estimate [War89]_: finite, and free of the bias of order 1/M.
    """
    answers = arrange(counts)
    nodes = even_nodes(-6, 6, 61, counts.right)
    # The grid follows the posteriors, whose centres are seen better on each finer one.
    seen = posterior_widths(answers, items, nodes)
    for _ in range(4):
        better = fitting_nodes(nodes, seen.mean, seen.sd)
        if better is None:
            break
        nodes = better
        seen = posterior_widths(answers, items, nodes)
    mean, variance = moments(seen.posterior.weights, nodes.at)
    if method == "eap":
        return AbilityScores(mean, variance.sqrt())
    return _root(counts, items, mean, method)


def _root(counts: Counts, items: Items, start: Tensor, method: ScoreMethod) -> AbilityScores:
    """Solve the score equation by Fisher scoring, all models at once."""
    at, right, trials = start, counts.right.T, counts.trials.T
    prior = 1.0 if method == "map" else 0.0
    information = torch.ones_like(at)
    longest = torch.ones_like(at)
    before = torch.zeros_like(at)
    for _ in range(200):
        curve = curves(items, at)
        slope = curve.slope * items.slope[:, None]
        odds = slope / (curve.right * curve.wrong)
        information = (trials * slope * odds).sum(dim=0) + prior
        gradient = ((right - trials * curve.right) * odds).sum(dim=0) - prior * at
        if method == "wle":
            bend = curve.bend * items.slope[:, None].square()
            gradient = gradient + (trials * bend * odds).sum(dim=0) / (2 * information)
        step = (gradient / information.clamp_min(1e-12)).nan_to_num(0.0)
        # Where steps turn back they shorten, so that no two points are visited in turn for ever.
        longest = torch.where(step * before < 0, longest / 2, longest)
        before = step.clamp(-longest, longest)
        at = (at + before).clamp(-FARTHEST, FARTHEST)
        if float(before.abs().max()) < 1e-12:
            break
    if method == "ml":
        total, most = counts.right.sum(dim=1), counts.trials.sum(dim=1)
        away = torch.where(total == most, math.inf, torch.where(total == 0, -math.inf, 0.0))
        if bool((items.slope > 0).all()) and items.logistic:
            at = at + away
        information = torch.where(at.abs() < FARTHEST, information, math.nan)
    return AbilityScores(at, information.rsqrt())


class HoldoutScores(NamedTuple):
    """Of predictions of the cells held out; each trial counts once."""

    auc: float
    """Chance that a right answer was given a higher P than a wrong one, ties half; NaN where all
    are right or all wrong."""
    log_loss: float
    """Per trial, in nats; infinite where what was sure did not happen."""
    brier: float
    """Mean squared error of P, per trial."""
    n_cells: int


class Calibration(NamedTuple):
    """Cells in groups of rising P, each array of shape (bins,)."""

    predicted: FloatArray
    observed: FloatArray
    std_error: FloatArray
    """Of `observed`, if the predictions are true."""
    n_cells: IntArray


class Accuracy(NamedTuple):
    """Predicted shares of right answers on items not seen, each of shape (n,)."""

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    excess: float
    """Standard deviation of the prediction's error beyond the chance of single answers."""
    n_calibration: int
    """Models on which that was measured."""


def predict_held_out(estimator: Estimator, counts: Counts, split: Split) -> FloatArray:
    """P(right) of all cells, shape (N, M), from those trained on and exposed alone.

    Raises
    ------
    DesignError
        A held-out model or item has no exposed cell.
    """
    device = counts.trials.device
    train, exposed = (torch.from_numpy(part).to(device) for part in (split.train, split.exposed))
    models, items = train.any(1), train.any(0)
    _check_exposed(split)
    fitted = estimator(_part(counts, train, models, items))
    if isinstance(fitted, Tensor):
        if bool(exposed.any()):
            every = torch.ones_like(models), torch.ones_like(items)
            found = estimator(_part(counts, train | exposed, *every))
            return _numpy(found if isinstance(found, Tensor) else found.probability())
        return _numpy(fitted)
    found = torch.empty_like(counts.right)
    found[torch.outer(models, items)] = fitted.probability().flatten()
    new_models = fitted.for_models(_part(counts, exposed, ~models, items))
    new_items = fitted.for_items(_part(counts, exposed, models, ~items))
    found[torch.outer(~models, items)] = new_models.probability().flatten()
    found[torch.outer(models, ~items)] = new_items.probability().flatten()
    found[torch.outer(~models, ~items)] = new_models.crossed(new_items).probability().flatten()
    return _numpy(found)


def score_held_out(counts: Counts, probability: FloatArray, test: BoolArray) -> HoldoutScores:
    """Score the predictions of the cells in `test`; partial credit is a share of a right answer."""
    right, trials, p = _cells(counts, probability, test)
    wrong, total = trials - right, float(trials.sum())
    # A cell neither right nor wrong at all says nothing, even if the log of its P is infinite.
    loss = special.xlogy(right, p) + special.xlog1py(wrong, -p)
    return HoldoutScores(
        auc=weighted_auc(p, right, wrong),
        log_loss=-float(loss.sum()) / total,
        brier=float((right * (1 - p) ** 2 + wrong * p**2).sum()) / total,
        n_cells=len(p),
    )


def weighted_auc(score: FloatArray, right: FloatArray, wrong: FloatArray) -> float:
    """Area under the ROC curve where each score stands for `right` and `wrong` answers.

    >>> right = np.array([0.0, 1.0, 0.0, 1.0])
    >>> weighted_auc(np.array([0.1, 0.4, 0.4, 0.8]), right, 1 - right)
    0.875
    """
    _, place = np.unique(score, return_inverse=True)
    positive, negative = (np.bincount(place, weights=x) for x in (right, wrong))
    pairs = float(positive.sum() * negative.sum())
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below) / pairs if pairs else float("nan")


def calibration(
    counts: Counts, probability: FloatArray, test: BoolArray, *, n_bins: int = 10
) -> Calibration:
    """Compare P with what happened, in bins of equally many cells; equal P share a bin."""
    right, trials, p = _cells(counts, probability, test)
    edges = np.unique(np.quantile(p, np.arange(1, n_bins) / n_bins))
    _, place = np.unique(np.searchsorted(edges, p, side="left"), return_inverse=True)
    total = np.bincount(place, weights=trials)
    return Calibration(
        predicted=np.bincount(place, weights=trials * p) / total,
        observed=np.bincount(place, weights=right) / total,
        std_error=np.sqrt(np.bincount(place, weights=trials * p * (1 - p))) / total,
        n_cells=np.bincount(place),
    )


def unseen_accuracy(
    estimator: Callable[[Counts], Fitted],
    known: Counts,
    new: Counts,
    *,
    rng: np.random.Generator,
    confidence_level: float = 0.95,
    n_folds: int = 5,
) -> Accuracy:
    """Predict the share of right answers of new models on the items that none of them has seen.

    How far such predictions are off is measured on the known models: each in turn, a fold at a
    time, is held out and shown only the items that the new ones have seen. The interval is for the
    share that will be found, with errors beyond chance as large as there, and Student's t for their
    number.

    Parameters
    ----------
    known
        Models with answers to both kinds of items, shape (N, M).
    new
        Models that have seen the same part of those items, shape (n, M).

    Raises
    ------
    DesignError
        Fewer than two known models per fold, or the new models have seen different items, none or
        all of them.
    """
    tail = tail_probability(confidence_level)
    seen = _common(new)
    n = len(known.right)
    if n < 2 * n_folds:
        msg = f"{n} known models found, expected {2 * n_folds} or more for {n_folds} folds"
        raise DesignError(msg)
    fold = torch.from_numpy(rng.permutation(n) % n_folds).to(seen.device)
    expected, variance, found = (known.right.new_zeros(n) for _ in range(3))
    out_of_each = [fold == k for k in range(n_folds)]
    for out, shares in zip(
        out_of_each, mapped(partial(_of_fold, estimator, known, seen), out_of_each), strict=True
    ):
        expected[out], variance[out], found[out] = shares
    there = ~torch.isnan(found)
    error = (found - expected)[there]
    count = len(error)
    if count < 2:
        msg = f"{count} known models answered items that the new ones have not seen: 2 needed"
        raise DesignError(msg)
    excess = float((error.square() - variance[there]).mean().clamp_min(0))
    probability = estimator(known).for_models(_seen(new, seen)).probability()[:, ~seen]
    estimate = _numpy(probability.mean(1))
    chance = _numpy((probability * (1 - probability)).sum(1)) / probability.shape[1] ** 2
    half = -special.stdtrit(count, tail) * np.sqrt(chance + excess)
    low, high = (np.clip(estimate + sign * half, 0, 1) for sign in (-1, 1))
    return Accuracy(estimate, low, high, excess**0.5, count)


def _of_fold(
    estimator: Callable[[Counts], Fitted], known: Counts, seen: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of the models of one fold, placed by a fit of the others; see `_shares`."""
    placed = estimator(_rows(known, ~out)).for_models(_seen(_rows(known, out), seen))
    return _shares(_rows(known, out), placed.probability(), ~seen)


def _common(new: Counts) -> Tensor:
    """Items that all new models have seen, shape (M,)."""
    seen = new.trials > 0
    if not bool((seen == seen[0]).all()) or bool(seen[0].all()) or not bool(seen[0].any()):
        low, high = int(seen.sum(1).min()), int(seen.sum(1).max())
        msg = (
            f"the new models have seen {low} to {high} of {seen.shape[1]} items, expected the same "
            "items for all, some but not all: predict for one such group at a time"
        )
        raise DesignError(msg)
    return seen[0]


def _shares(counts: Counts, probability: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Expected share of right answers, its variance by chance, and the share found."""
    trials, p = counts.trials * items, probability
    total = trials.sum(1)
    found = (counts.right * items).sum(1) / total
    return (trials * p).sum(1) / total, (trials * p * (1 - p)).sum(1) / total**2, found


def _rows(counts: Counts, models: Tensor) -> Counts:
    return Counts(counts.right[models], counts.trials[models])


def _seen(counts: Counts, items: Tensor) -> Counts:
    return Counts(counts.right * items, counts.trials * items)


def _part(counts: Counts, cells: Tensor, models: Tensor, items: Tensor) -> Counts:
    """Some models and items, of which only `cells` are seen."""
    right, trials = ((x * cells)[models][:, items] for x in (counts.right, counts.trials))
    return Counts(right, trials)


def _check_exposed(split: Split) -> None:
    used = split.train | split.exposed
    for axis, what in ((1, "models"), (0, "items")):
        bare = int((split.test.any(axis) & ~used.any(axis)).sum())
        if bare:
            msg = (
                f"{bare} held-out {what} have no exposed cell, from which they could be placed: "
                "raise exposure_rate"
            )
            raise DesignError(msg)


def _cells(
    counts: Counts, probability: FloatArray, test: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Right answers, trials and P of the cells in `test` that were scored."""
    right, trials = _numpy(counts.right), _numpy(counts.trials)
    there = test & (trials > 0)
    if not there.any():
        raise ValueError("no cell to score: test and the scored cells do not overlap")
    return right[there], trials[there], probability[there]


def _numpy(tensor: Tensor) -> FloatArray:
    return tensor.detach().to("cpu", torch.float64).numpy()
