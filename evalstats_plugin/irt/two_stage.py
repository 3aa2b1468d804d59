"""What can be frozen: models on given items, and items among given models."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_population import Points, Population, points
from evalstats_plugin.irt.items_integrated import ItemsIntegratedFit, items_integrated

# Abilities at which the response curves are tabulated, and how far out, in standard deviations.
_NODES, _REACH = 241, 6.0
_BLOCK = 2**22
# Points of a standard normal, with their shares: exact for polynomials up to the fifth degree.
_NORMAL = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
# Least standard deviation of abilities, for models that hardly differ.
_NARROWEST = 0.05


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
