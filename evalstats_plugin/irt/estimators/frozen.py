"""Models scored on known items, items placed among known models, and held-out predictions.

* `score`: abilities of models on known items
* `fit_curves`: a one-dimensional fit that places other models and items, as factor models can too
* `predict_held_out`, `score_held_out`, `calibration`: how well a fit predicts cells that it has not
  seen
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

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
from evalstats_plugin.irt.estimators.item_population import Population
from evalstats_plugin.irt.estimators.items_integrated import (
    averaged_curves,
    items_integrated,
    population_of,
    taking_part,
)
from evalstats_plugin.irt.model.arrays import as_array
from evalstats_plugin.irt.model.curves import Items, curves
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.masks import Split
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, steady

ScoreMethod = Literal["eap", "map", "ml", "wle"]

Estimator: TypeAlias = Callable[[Counts], Any]
"""Fits counts. One that returns P(right) itself, (N, M), gets trained and exposed cells at once;
any other returns a fit with the methods of `CurvesFit`, as factor models have them."""

FARTHEST = 20.0
"""Bound of abilities in `score`, whose likelihood may have no maximum."""

# Nodes at which the curves of `CurvesFit` are tabulated, and their reach in standard deviations.
_NODES, _REACH = 241, 6.0

# Smallest standard deviation of abilities, for models that hardly differ.
_NARROWEST = 0.05


def score(counts: Counts, items: Items, method: ScoreMethod = "eap") -> AbilityScores:
    """Estimate abilities on known items.

    ``"eap"`` and ``"map"`` are mean and mode of the posterior under a standard normal ability,
    ``"ml"`` has no prior and is infinite for models all right or all wrong, ``"wle"`` is Warm's
    estimate [War89]_: finite, and free of the bias of order 1/M.
    """
    answers = arrange(counts)
    nodes = even_nodes(-6, 6, 61, counts.right)
    # The grid follows the posteriors, which each finer grid locates better.
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


class AbilityScores(NamedTuple):
    """Abilities on the scale on which they are N(0, 1), both of shape (N,)."""

    ability: Tensor
    std_error: Tensor


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
        # Steps that reverse are shortened, so that the iteration does not cycle.
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


def fit_curves(counts: Counts, kind: str = "2pl") -> CurvesFit:
    """Fit with items integrated out, and keep what is needed to place models and items.

    `kind` is ``"rasch"``, ``"2pl"`` or ``"2pl-signed"``; see `items_integrated`.
    """
    item_kind: Any = kind
    integrated = items_integrated(counts, item_kind)
    # Models all right, or all wrong, take no part: their abilities are taken as known.
    inner = taking_part(counts)
    told = integrated.ability[inner]
    centre, spread = told.mean(), told.std(correction=1).clamp_min(_NARROWEST)
    width = _REACH * float(spread)
    nodes = centre + torch.linspace(-width, width, _NODES).to(integrated.ability)
    std_error = integrated.covariance.diagonal().sqrt().nan_to_num(0.0)
    population = population_of(integrated, item_kind)
    part = counts.of_models(inner).tempered(integrated.dispersion)
    curve, _ = averaged_curves(part, told, std_error[inner], population, nodes)
    return CurvesFit(
        integrated.ability, None, curve, integrated.probability, std_error, nodes, population,
        integrated.dispersion, centre, spread,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class CurvesFit:
    """A one-dimensional fit with posteriors of models and items.

    Items are response curves averaged over their posteriors: uncertainty about an item makes its
    curve flatter.
    """

    ability: Tensor
    """Posterior mean or estimate of each model, shape (N,)."""
    weight: Tensor | None
    """Posterior of each model over `nodes`, (N, Q); None where abilities are parameters."""
    curve: Tensor
    """P(right) at the nodes, shape (Q, M)."""
    exact: Tensor
    """P(right) averaged over the errors of abilities, (N, M), where these are parameters."""
    std_error: Tensor
    """Standard errors of abilities that are parameters, shape (N,)."""
    nodes: Tensor
    population: Population
    dispersion: float
    centre: Tensor
    """Mean and standard deviation of the models that took part in the fit."""
    spread: Tensor

    def probability(self) -> Tensor:
        """P(right), shape (N, M)."""
        return self.exact if self.weight is None else self.weight @ self.curve

    def for_models(self, counts: Counts) -> CurvesFit:
        """Other models, under a normal prior with mean and sd of the models of the fit."""
        # Keeps logarithms finite.
        curve = self.curve.clamp(1e-12, 1 - 1e-12)
        log_odds, log_wrong = torch.logit(curve).T, torch.log1p(-curve).T
        prior = -0.5 * ((self.nodes - self.centre) / self.spread) ** 2
        score = (counts.right @ log_odds + counts.trials @ log_wrong) / self.dispersion
        weight = torch.softmax(score + prior, dim=1)
        return replace(self, ability=weight @ self.nodes, weight=weight)

    def for_items(self, counts: Counts) -> CurvesFit:
        """Other items, under the fit's population of items, abilities taken as known."""
        counts, models = counts.tempered(self.dispersion), (self.ability, self.std_error)
        curve, exact = averaged_curves(counts, *models, self.population, self.nodes)
        return replace(self, curve=curve, exact=exact)

    def crossed(self, other: CurvesFit) -> CurvesFit:
        """These models on the items of another fit."""
        return replace(other, ability=self.ability, weight=self.weight)


def predict_held_out(estimator: Estimator, counts: Counts, split: Split) -> FloatArray:
    """Predict P(right) of all cells, shape (N, M), from trained and exposed cells only.

    Raises
    ------
    DesignError
        A held-out model or item has no exposed cell.
    """
    device = counts.trials.device
    train, exposed = (torch.as_tensor(part).to(device) for part in (split.train, split.exposed))
    models, items = train.any(1), train.any(0)
    for axis, what in ((1, "models"), (0, "items")):
        bare = int((split.test.any(axis) & ~(split.train | split.exposed).any(axis)).sum())
        if bare:
            msg = f"{bare} held-out {what} have no exposed cell, from which they could be placed"
            raise DesignError(f"{msg}: add answers")
    fitted = estimator(_selected(counts, train, models, items))
    if isinstance(fitted, Tensor):
        if bool(exposed.any()):
            every = torch.ones_like(models), torch.ones_like(items)
            fitted = estimator(_selected(counts, train | exposed, *every))
        return as_array(fitted)
    predicted = torch.empty_like(counts.right)
    predicted[torch.outer(models, items)] = fitted.probability().flatten()
    new_models = fitted.for_models(_selected(counts, exposed, ~models, items))
    new_items = fitted.for_items(_selected(counts, exposed, models, ~items))
    predicted[torch.outer(~models, items)] = new_models.probability().flatten()
    predicted[torch.outer(models, ~items)] = new_items.probability().flatten()
    predicted[torch.outer(~models, ~items)] = new_models.crossed(new_items).probability().flatten()
    return as_array(predicted)


def _selected(counts: Counts, cells: Tensor, models: Tensor, items: Tensor) -> Counts:
    """Counts of some models and items, with only `cells` kept."""
    right, trials = ((x * cells)[models] for x in (counts.right, counts.trials))
    return replace(counts, right=right, trials=trials).of_items(items)


def score_held_out(counts: Counts, probability: FloatArray, test: BoolArray) -> HoldoutScores:
    """Score the predictions of the cells in `test`; partial credit is a share of a right answer."""
    right, trials, p = _cells(counts, probability, test)
    wrong, total = trials - right, float(trials.sum())
    # Cells without right or wrong answers count 0 even where log P is infinite.
    loss = special.xlogy(right, p) + special.xlog1py(wrong, -p)
    return HoldoutScores(
        auc=weighted_auc(p, right, wrong),
        log_loss=-float(loss.sum()) / total,
        brier=float((right * (1 - p) ** 2 + wrong * p**2).sum()) / total,
        n_cells=len(p),
    )


class HoldoutScores(NamedTuple):
    """Scores of predictions of held-out cells; each trial counts once."""

    auc: float
    """Probability that a right answer has a higher P than a wrong one, ties count half; NaN where
    all are right or all wrong."""
    log_loss: float
    """Per trial, in nats; infinite where a cell of probability 0 happened."""
    brier: float
    """Mean squared error of P, per trial."""
    n_cells: int


def weighted_auc(score: FloatArray, right: FloatArray, wrong: FloatArray) -> float:
    """Area under the ROC curve, where each score has counts of `right` and `wrong` answers.

    >>> right = np.array([0.0, 1.0, 0.0, 1.0])
    >>> weighted_auc(np.array([0.1, 0.4, 0.4, 0.8]), right, 1 - right)
    0.875
    """
    # Predictions that differ by rounding errors are equal.
    _, place = np.unique(steady(score), return_inverse=True)
    positive, negative = (np.bincount(place, weights=x) for x in (right, wrong))
    pairs = float(positive.sum() * negative.sum())
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below) / pairs if pairs else float("nan")


def calibration(counts: Counts, probability: FloatArray, test: BoolArray) -> Calibration:
    """Compare P with observed shares, in ten bins of equally many cells; equal P share a bin."""
    right, trials, p = _cells(counts, probability, test)
    p = steady(p)
    edges = np.unique(np.quantile(p, np.arange(1, 10) / 10))
    _, place = np.unique(np.searchsorted(edges, p, side="left"), return_inverse=True)
    total = np.bincount(place, weights=trials)
    return Calibration(
        predicted=np.bincount(place, weights=trials * p) / total,
        observed=np.bincount(place, weights=right) / total,
        std_error=np.sqrt(np.bincount(place, weights=trials * p * (1 - p))) / total,
        n_cells=np.bincount(place),
    )


class Calibration(NamedTuple):
    """Predicted and observed shares in bins of ascending P, each of shape (bins,)."""

    predicted: FloatArray
    observed: FloatArray
    std_error: FloatArray
    """Standard error of `observed` if the predictions are correct."""
    n_cells: IntArray


def _cells(
    counts: Counts, probability: FloatArray, test: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Right answers, trials and P of the cells in `test` that were scored."""
    right, trials = as_array(counts.right), as_array(counts.trials)
    scored = test & (trials > 0)
    if not scored.any():
        raise ValueError("no cell to score: test and the scored cells do not overlap")
    return right[scored], trials[scored], probability[scored]
