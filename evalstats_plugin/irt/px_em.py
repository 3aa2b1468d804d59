"""The map that marginal maximum likelihood iterates: EM with its parameters expanded [LRW98]_."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.ability_groups import AbilityGroups, Named, alike
from evalstats_plugin.irt.ability_windows import FAINT
from evalstats_plugin.irt.curves import Items
from evalstats_plugin.irt.item_prior import ItemPrior, first_guess, weak_prior
from evalstats_plugin.irt.item_step import (
    Derivatives,
    derivatives,
    expected_log_likelihood,
    newton_step,
)
from evalstats_plugin.irt.posterior import Answers, Nodes, posterior
from evalstats_plugin.irt.quadrature import Widths, even_nodes, posterior_widths

STEEPEST = 25.0
"""Bound of discriminations: where models separate perfectly, the likelihood has none."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a fit is done."""

    common_slope: bool = False
    guessing: bool = False
    guessing_prior: tuple[float, float] | None = (-1.1, 0.5)
    """Mean and standard deviation of logit c; None for maximum likelihood."""
    upper: float = 1.0
    prior: Literal["none", "weak", "estimated"] = "none"
    """Of discrimination and intercept."""
    nodes: int | None = None
    """So many on [-6, 6]; None chooses them from the data."""
    groups: Named | None = None
    """Of models, each with its own distribution of abilities; None for one of all."""
    tolerance: float = 1e-5
    max_steps: int = 2000


class State(NamedTuple):
    """What is estimated."""

    items: Items
    prior: ItemPrior | None
    groups: AbilityGroups | None


class PXEM:
    """The map that EM iterates, on flat vectors: items (p, M), groups, the estimated prior."""

    def __init__(self, answers: Answers, items: Items, options: Options) -> None:
        self.answers, self.options = answers, options
        self.nodes = even_nodes(-6, 6, options.nodes or 61, items.slope)
        self.items = items
        self.groups = None if options.groups is None else alike(options.groups, items.slope)
        self.prior: ItemPrior | None = None
        if options.prior == "weak":
            self.prior = weak_prior(items.slope, common_slope=options.common_slope)
        elif options.prior == "estimated":
            self.prior = first_guess(items, common_slope=options.common_slope)

    def start(self) -> Tensor:
        """Where the search begins."""
        return self.pack(State(self.items, self.prior, self.groups))

    def pack(self, at: State) -> Tensor:
        """As one vector."""
        guess = [] if at.items.guess is None else [at.items.guess]
        groups = [] if at.groups is None else [at.groups.vector()]
        free = [at.prior.vector()] if at.prior is not None and at.prior.estimated else []
        return torch.cat([at.items.slope, at.items.intercept, *guess, *groups, *free])

    def unpack(self, point: Tensor) -> State:
        """From one vector."""
        m = len(self.items.slope)
        size = (2 if self.items.guess is None else 3) * m
        guess = None if self.items.guess is None else point[2 * m : size]
        items = Items(point[:m], point[m : 2 * m], guess, self.options.upper)
        groups, prior, rest = self.groups, self.prior, point[size:]
        if groups is not None:
            free = 2 * len(groups.mean) - 2
            groups, rest = groups.of_vector(rest[:free]), rest[free:]
        if prior is not None and prior.estimated:
            prior = prior.of_vector(rest)
        return State(items, prior, groups)

    def nodes_of(self, at: State) -> Nodes:
        """Give the grid the weights of the models' distributions."""
        return self.nodes if at.groups is None else at.groups.weighted(self.nodes)

    def widths(self, at: State) -> Widths:
        """Posteriors of the abilities."""
        prior = 1.0 if at.groups is None else at.groups.precision
        return posterior_widths(self.answers, at.items, self.nodes_of(at), prior)

    def step(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """One PX-EM step, with the objective where it started."""
        items, prior, groups = state = self.unpack(point)
        found = posterior(self.answers, items, self.nodes_of(state))
        by = derivatives(self.answers, items, found.weights, self.nodes)
        objective = found.log_likelihood.sum() + self._add_guessing_prior(by, items)
        if prior is not None:
            prior = prior.updated(by, items) if prior.estimated else prior
            objective = objective + prior.add_to(by, items)
        if self.answers.windows is not None:
            far = self.answers.windows.lost(found.weights) > FAINT
            objective = torch.where(far, torch.nan, objective)
        change = newton_step(by, common_slope=self.options.common_slope)
        if not items.logistic:
            change = self._held_back(items, change, found.weights, prior)
        moved = State(self._moved(items, change), prior, groups)
        return self.pack(self._expanded(moved, found.weights)), objective

    def _expanded(self, state: State, weights: Tensor) -> State:
        """Bring abilities, which the step shifted and stretched, back to N(0, 1)."""
        items, prior, groups = state
        share = weights.mean(dim=0)
        shift, square = share @ self.nodes.at, share @ self.nodes.at.square()
        scale = (square - shift * shift).clamp_min(1e-6).sqrt()
        if groups is not None:
            groups = groups.moments(weights, self.nodes.at)
            if prior is not None and not prior.estimated:
                return state._replace(groups=groups.anchored())
            groups, shift, scale = groups.relative()
        if prior is not None and prior.estimated:
            prior = prior.expanded(shift, scale, items.slope[0])
        elif prior is not None:
            n = len(weights)
            shift, held = prior.expansion(shift, square, n, items)
            scale = scale if self.options.common_slope else held
        slope, intercept = items.slope * scale, items.intercept + items.slope * shift
        return State(items._replace(slope=slope, intercept=intercept), prior, groups)

    def _add_guessing_prior(self, by: Derivatives, items: Items) -> Tensor:
        prior = self.options.guessing_prior
        if items.guess is None or prior is None:
            return items.slope.new_zeros(())
        away = (items.guess - prior[0]) / prior[1]
        by.gradient[:, 2] -= away / prior[1]
        by.information[:, 2, 2] += prior[1] ** -2
        return -0.5 * away.square().sum()

    def _held_back(
        self, items: Items, change: Tensor, weights: Tensor, prior: ItemPrior | None
    ) -> Tensor:
        """Halve the steps of items that would fall: with guessing, their part is not concave."""

        def height(at: Items) -> Tensor:
            total = expected_log_likelihood(self.answers, at, weights, self.nodes)
            if at.guess is not None and self.options.guessing_prior is not None:
                mean, sd = self.options.guessing_prior
                total = total - 0.5 * ((at.guess - mean) / sd).square()
            return total if prior is None else total + prior.log_density(at)

        now = height(items)
        for _ in range(6):
            falls = height(self._moved(items, change)) < now - 1e-9 * now.abs()
            if not bool(falls.any()):
                break
            change = torch.where(falls[:, None], 0.5 * change, change)
        return change

    def _moved(self, items: Items, change: Tensor) -> Items:
        guess = None if items.guess is None else (items.guess + change[:, 2]).clamp(-12, 5)
        return items._replace(
            slope=(items.slope + change[:, 0]).clamp(-STEEPEST, STEEPEST),
            intercept=(items.intercept + change[:, 1]).clamp(-8 * STEEPEST, 8 * STEEPEST),
            guess=guess,
        )
