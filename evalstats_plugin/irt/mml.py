"""Marginal maximum likelihood: abilities are integrated out, items are estimated [BA81]_.

Plain EM crawls along the location and scale of the abilities when tests are long; parameter
expansion [LRW98]_ sets both right in every step, and SQUAREM takes the rest in a few.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.ability_groups import AbilityGroups, Named, alike
from evalstats_plugin.irt.acceleration import Solution, squarem
from evalstats_plugin.irt.curves import Items
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_prior import ItemPrior, first_guess, weak_prior
from evalstats_plugin.irt.item_step import (
    Derivatives,
    derivatives,
    expected_log_likelihood,
    newton_step,
)
from evalstats_plugin.irt.posterior import Nodes, arrange, moments, posterior
from evalstats_plugin.irt.quadrature import (
    Widths,
    even_nodes,
    fitting_nodes,
    posterior_widths,
    spacing,
)

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


class Marginal(NamedTuple):
    """What the fit found."""

    items: Items
    mean: Tensor
    """Of each model's posterior, shape (N,)."""
    variance: Tensor
    weights: Tensor
    """The posterior itself, shape (N, Q)."""
    log_likelihood: float
    nodes: Nodes
    looseness: float
    """Spacing of the nodes in units of the smallest posterior standard deviation."""
    prior: ItemPrior | None
    groups: AbilityGroups | None
    found: Solution


class _State(NamedTuple):
    items: Items
    prior: ItemPrior | None
    groups: AbilityGroups | None


class _Fit:
    """The map that EM iterates, on flat vectors: items (p, M), groups, the estimated prior."""

    def __init__(self, counts: Counts, options: Options) -> None:
        self.answers, self.options = arrange(counts), options
        self.nodes = even_nodes(-6, 6, options.nodes or 61, counts.right)
        self.items = _start(counts, options)
        self.groups = None if options.groups is None else alike(options.groups, counts.right)
        self.prior: ItemPrior | None = None
        if options.prior == "weak":
            self.prior = weak_prior(counts.right, common_slope=options.common_slope)
        elif options.prior == "estimated":
            self.prior = first_guess(self.items, common_slope=options.common_slope)

    def pack(self, at: _State) -> Tensor:
        guess = [] if at.items.guess is None else [at.items.guess]
        groups = [] if at.groups is None else [at.groups.vector()]
        free = [at.prior.vector()] if at.prior is not None and at.prior.estimated else []
        return torch.cat([at.items.slope, at.items.intercept, *guess, *groups, *free])

    def unpack(self, point: Tensor) -> _State:
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
        return _State(items, prior, groups)

    def nodes_of(self, at: _State) -> Nodes:
        """Give the grid the weights of the models' distributions."""
        return self.nodes if at.groups is None else at.groups.weighted(self.nodes)

    def widths(self, at: _State) -> Widths:
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
        change = newton_step(by, common_slope=self.options.common_slope)
        if not items.logistic:
            change = self._held_back(items, change, found.weights, prior)
        moved = _State(self._moved(items, change), prior, groups)
        return self.pack(self._expanded(moved, found.weights)), objective

    def _expanded(self, state: _State, weights: Tensor) -> _State:
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
        return _State(items._replace(slope=slope, intercept=intercept), prior, groups)

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


def fit_marginal(counts: Counts, options: Options) -> Marginal:
    """Fit by PX-EM with SQUAREM; every item must have right and wrong answers, or a prior.

    Raises
    ------
    ValueError
        Fewer than 3 nodes.
    """
    if options.nodes is not None and options.nodes < 3:
        msg = f"{options.nodes} nodes found, expected 3 or more"
        raise ValueError(msg)
    fit = _Fit(counts, options)
    point, steps = fit.pack(_State(fit.items, fit.prior, fit.groups)), 0
    seen = None if options.nodes is not None else fit.widths(fit.unpack(point))
    while True:
        if seen is not None:
            fit.nodes = fitting_nodes(fit.nodes, seen) or fit.nodes
        most = options.max_steps - steps
        found = squarem(fit.step, point, tolerance=options.tolerance, max_steps=most)
        point, steps = found.at, steps + found.steps
        at = fit.unpack(point)
        seen = fit.widths(at)
        enough = options.nodes is not None or steps >= options.max_steps
        if enough or fitting_nodes(fit.nodes, seen) is None:
            break
    if at.items.slope.sum() < 0:
        # Turned round, the model is the same: ability is what most items reward.
        items = at.items._replace(slope=-at.items.slope)
        at = _State(items, at.prior and at.prior.turned(), at.groups and at.groups.turned())
        seen = fit.widths(at)
    return _result(fit, at, seen, found._replace(steps=steps))


def _start(counts: Counts, options: Options) -> Items:
    """Shares of right answers on the logit scale, all slopes 1; guessing starts from no guessing.

    With guessing there are several optima: from the curves that fit without it one comes to
    those of which no item is a step.
    """
    if options.guessing or options.upper < 1:
        plain = replace(options, guessing=False, upper=1.0, tolerance=1e-2, max_steps=30)
        items = fit_marginal(counts, plain).items
        guess = torch.full_like(items.slope, (options.guessing_prior or (-2.0, 0))[0])
        return items._replace(guess=guess if options.guessing else None, upper=options.upper)
    share = (counts.right.sum(dim=0) + 0.5) / (counts.trials.sum(dim=0) + 1)
    return Items(torch.ones_like(share), 1.2 * torch.logit(share))


def _result(fit: _Fit, at: _State, seen: Widths, found: Solution) -> Marginal:
    nodes, last = fit.nodes_of(at), seen.posterior
    mean, variance = moments(last.weights, nodes.at)
    return Marginal(
        items=at.items,
        mean=mean,
        variance=variance,
        weights=last.weights,
        log_likelihood=float(last.log_likelihood.sum()),
        nodes=nodes,
        looseness=spacing(nodes) / float(seen.sd.min()),
        prior=at.prior,
        groups=at.groups,
        found=found,
    )
