"""Marginal maximum likelihood: abilities are integrated out, items are estimated [BA81]_.

Plain EM crawls along the location and scale of the abilities when tests are long; parameter
expansion [LRW98]_ sets both right in every step, and SQUAREM takes the rest in a few.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.ability_groups import AbilityGroups
from evalstats_plugin.irt.ability_windows import windows
from evalstats_plugin.irt.acceleration import Solution, squarem
from evalstats_plugin.irt.curves import Items
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_prior import ItemPrior
from evalstats_plugin.irt.posterior import Answers, Nodes, arrange, moments
from evalstats_plugin.irt.px_em import PXEM, Options, State
from evalstats_plugin.irt.quadrature import Widths, even_nodes, fitting_nodes, spacing
from evalstats_plugin.irt.start_values import from_shares, from_totals

_LONG = 2**17
"""Cells from which on posteriors are sought in windows, and in single precision at first."""
_ROUGH, _FEW = 1e-3, 30
"""Change of a step in single precision below which double is worth it, or so many steps."""


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
    answers: Answers
    """What it was fitted to, with the windows of the search."""


class _Search(PXEM):
    """The search for its fixed point, on nodes that fit the posteriors."""

    def __init__(self, answers: Answers, items: Items, options: Options) -> None:
        super().__init__(answers, items, options)
        self.whole = answers

    @property
    def long(self) -> bool:
        """Whether products with the trials of many models take most of the time."""
        n, m = self.whole.right.shape
        return self.options.nodes is None and self.whole.separate and n * m >= _LONG

    def search(self, point: Tensor, tolerance: float, most: int) -> tuple[Solution, Widths]:
        """Iterate on nodes that fit the posteriors, placed anew until they do."""
        steps, wider = 0, 1.0
        while True:
            found = squarem(self.step, point, tolerance=tolerance, max_steps=most - steps)
            point, steps = found.at, steps + found.steps
            missed = self.answers.windows is not None and not math.isfinite(found.objective)
            if missed:
                self.answers, wider = self.whole, 2 * wider
            seen = self.widths(self.unpack(point))
            fine = not missed and fitting_nodes(self.nodes, seen.mean, seen.sd) is None
            if self.options.nodes is not None or fine or steps >= most:
                return found._replace(steps=steps), seen
            self.place(seen.mean, seen.sd, wider)

    def place(self, mean: Tensor, sd: Tensor, wider: float = 1.0) -> None:
        """Choose nodes for posteriors of these moments, and windows where these save much."""
        self.nodes = fitting_nodes(self.nodes, mean, sd) or self.nodes
        if self.long:
            by = windows(mean, sd, self.nodes.at, wider=wider)
            self.answers = self.whole.narrowed(by)

    def near(self) -> tuple[Tensor, int]:
        """Come near the optimum in single precision, and place the nodes."""
        like, single = self.items.slope, torch.float32
        whole = self.whole.to(single)
        if self.items.logistic:
            slope = self.options.common_slope
            start = from_totals(whole.right, whole.trials, common_slope=slope)
            rough, place = _Search(whole, start.items, self.options), start[1:]
        else:
            rough = _Search(whole, self.items.to(single), self.options)
            place = rough.widths(rough.unpack(rough.start()))[1:]
        rough.place(*place)
        found, seen = rough.search(rough.start(), _ROUGH, _FEW)
        reach, count = float(rough.nodes.at[-1]), len(rough.nodes.at)
        # Its copies of the answers are not needed any more.
        del rough, whole
        self.nodes = even_nodes(-reach, reach, count, like)
        self.place(seen.mean.to(like), seen.sd.to(like))
        return found.at.to(like), found.steps


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
    fit = _Search(arrange(counts), _start(counts, options), options)
    point, steps = fit.near() if fit.long else (fit.start(), 0)
    if not fit.long and options.nodes is None:
        fit.place(*fit.widths(fit.unpack(point))[1:])
    found, seen = fit.search(point, options.tolerance, options.max_steps - steps)
    at = fit.unpack(found.at)
    if at.items.slope.sum() < 0:
        # Turned round, the model is the same: ability is what most items reward.
        items = at.items._replace(slope=-at.items.slope)
        at = State(items, at.prior and at.prior.turned(), at.groups and at.groups.turned())
        fit.answers = fit.whole
        seen = fit.widths(at)
    return _result(fit, at, seen, found._replace(steps=steps + found.steps))


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
    return from_shares(counts.right.sum(dim=0), counts.trials.sum(dim=0))


def _result(fit: _Search, at: State, seen: Widths, found: Solution) -> Marginal:
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
        answers=fit.answers,
    )
