"""Marginal maximum likelihood by EM: abilities are integrated out, items are estimated [BA81]_.

Plain EM converges slowly in the location and scale of the abilities when tests are long. Parameter
expansion [LRW98]_ sets both exactly in every step, and SQUAREM accelerates the rest.

* `fit_marginal` with `MmlOptions`: the fit, on nodes that are placed to suit the posteriors
* `derivatives`, `newton_step`: the M-step of the items, given the posteriors
* `ItemPrior`: a normal distribution of the items' parameters, fixed or estimated with the items
* `from_shares`, `from_totals`: start values
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.estimators.grid import (
    FAINT,
    Answers,
    Nodes,
    Widths,
    arrange,
    blocks,
    even_nodes,
    fitting_nodes,
    moments,
    posterior,
    posterior_widths,
    windows,
)
from evalstats_plugin.irt.estimators.optimise import Solution, extrapolated, squarem
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.curves import (
    Curves,
    Items,
    ability_information,
    curves,
    gradients,
    log_odds_and_wrong,
)
from evalstats_plugin.irt.model.data import Counts, smoothed_logit
from evalstats_plugin.runtime.torch import cholesky, linalg

STEEPEST = 25.0
"""Bound of discriminations: the likelihood has no maximum where an item separates the models."""

# Cells from which on posteriors are restricted to windows, and found in single precision first.
_LONG = 2**17

# Largest change in a step at which the search in single precision ends, and its most steps.
_ROUGH, _FEW = 1e-3, 31

# Steps of single items that lower the objective by more than so many roundings are halved, up to so
# many times.
_ROUNDINGS, _HALVINGS = 64, 6

# EM steps of the estimated prior, in each step of the items: at most _ROUNDS rounds of three; they
# end at a change below _SETTLED, or below 20 roundings if that is more, checked every _LOOK rounds.
_ROUNDS, _SETTLED, _LOOK = 10, 1e-7, 2

# Longest extrapolation, in EM steps, and largest distance of a number from the last EM step.
_LONGEST, _FARTHEST = 16.0, 0.7

# So many items with so small a standard deviation are added to the items of an estimated prior.
_IDEAL, _FLOOR = 2.0, 0.1

# A chance of guessing that counts as 0, the standard deviation of the logit of an asymptote that is
# given, and where one without a prior starts.
_NO_GUESSING, _GIVEN, _NO_PRIOR = 1e-5, 1e-3, (-2.0, math.inf)

# Mean and standard deviation of the weak prior of discrimination and intercept.
_WEAK_MEAN, _WEAK_SD = (1.0, 0.0), (1.0, 3.0)

# StartValues values: groups of models with similar totals, and Newton steps.
_GROUPS, _STEPS = 24, 5


class AsymptotePrior(NamedTuple):
    """Normal prior of the logits of c, or of 1 - u."""

    mean: float | Tensor
    """Of all items, or shape (M,)."""
    sd: float
    """Infinite for maximum likelihood."""


class ItemForm(NamedTuple):
    """Parameters that items have besides intercepts, and which of them all items share."""

    common_slope: bool
    guess: AsymptotePrior | None
    """Prior of the logits of c; None where nothing is guessed."""
    slip: AsymptotePrior | None
    """Of the logits of 1 - u."""
    common_asymptotes: bool

    @classmethod
    def of(cls, counts: Counts, item_model: str, options: MmlOptions) -> ItemForm:
        """Form of an item model; the priors of asymptotes that are given hold them there."""
        guess = slip = None
        if counts.guess is not None:
            guess = AsymptotePrior(torch.logit(counts.guess.clamp_min(_NO_GUESSING)), _GIVEN)
        elif item_model in ("3pl", "4pl"):
            guess = AsymptotePrior(*(options.guessing_prior or _NO_PRIOR))
        if options.upper < 1:
            slip = AsymptotePrior(math.log(1 / options.upper - 1), _GIVEN)
        elif item_model == "4pl":
            slip = AsymptotePrior(*(options.upper_prior or _NO_PRIOR))
        return cls(item_model in ("rasch", "1pl"), guess, slip, options.common_asymptotes)

    def log_priors(self, items: Items) -> list[tuple[int, Tensor, float]]:
        """Column among the parameters, distance from the mean (M,), and precision of each prior.

        A prior of asymptotes that all items share counts once: each item has its share of it.
        """
        both = ((items.guess, self.guess), (items.slip, self.slip))
        present = [(values, prior) for values, prior in both if values is not None and prior]
        shared = len(items.slope) if self.common_asymptotes else 1
        return [
            (column, values - prior.mean, prior.sd**-2 / shared)
            for column, (values, prior) in enumerate(present, start=2)
        ]


class Marginal(NamedTuple):
    """A marginal maximum likelihood fit of N models and M items on Q nodes."""

    items: Items
    mean: Tensor
    """Posterior mean of each model, shape (N,)."""
    variance: Tensor
    weights: Tensor
    """Posterior of each model over the nodes, shape (N, Q)."""
    log_likelihood: float
    nodes: Nodes
    node_spacing: float
    """Distance of two nodes in units of the smallest posterior standard deviation."""
    prior: ItemPrior | None
    search: Solution
    answers: Answers
    """The answers fitted, with the windows of the search."""
    form: ItemForm


def fit_marginal(
    counts: Counts, options: MmlOptions, item_model: str = "2pl", form: ItemForm | None = None
) -> Marginal:
    """Fit by PX-EM with SQUAREM; every item needs right and wrong answers, or a prior.

    The form is that of the item model, unless another one is given.
    """
    form = form or ItemForm.of(counts, item_model, options)
    if form.guess or form.slip:
        # There are several optima. Starting from curves without guessing avoids those in which an
        # item is a step function.
        rough = replace(options, tolerance=1e-2, max_steps=_FEW)
        plain = form._replace(guess=None, slip=None)
        start = fit_marginal(counts, rough, item_model, plain).items
        zero = torch.zeros_like(start.slope)
        guess, slip = (zero + prior.mean if prior else None for prior in (form.guess, form.slip))
        start = start._replace(guess=guess, slip=slip)
    else:
        start = from_shares(counts.right.sum(dim=0), counts.trials.sum(dim=0))
    fit = _Fit(arrange(counts), start, options, form)
    point, steps = fit.rough_search() if fit.long else (fit.start(), 0)
    if not fit.long and options.nodes is None:
        fit.place(*fit.widths(fit.unpack(point))[1:])
    # One at least, which tells whether the search has settled.
    most = max(options.max_steps - steps, 1)
    solution, seen = fit.search(point, options.tolerance, most)
    at = fit.unpack(solution.at)
    if at.items.slope.sum() < 0:
        # Reflection does not change the likelihood: most items should have positive slopes.
        items = at.items._replace(slope=-at.items.slope)
        at = _State(items, at.prior and at.prior.reversed())
        fit.answers = fit.whole
        seen = fit.widths(at)
    nodes, last = fit.nodes, seen.posterior
    mean, variance = moments(last.weights, nodes.at)
    return Marginal(
        items=at.items,
        mean=mean,
        variance=variance,
        weights=last.weights,
        log_likelihood=float(last.log_likelihood.sum()),
        nodes=nodes,
        node_spacing=float(nodes.at[1] - nodes.at[0]) / float(seen.sd.min()),
        prior=at.prior,
        search=solution._replace(steps=steps + solution.steps),
        answers=fit.answers,
        form=form,
    )


class _Fit:
    """PX-EM on flat vectors: items (p, M), the estimated prior.

    The nodes, and in long tests windows of nodes, are placed to suit the posteriors.
    """

    def __init__(self, answers: Answers, items: Items, options: MmlOptions, form: ItemForm) -> None:
        self.answers = self.whole = answers
        self.options, self.form = options, form
        self.nodes = even_nodes(-6, 6, options.nodes or 61, items.slope)
        self.items = items
        self.prior: ItemPrior | None = None
        first = 1 if form.common_slope else 0
        if options.prior == "weak":
            mean, sd = (items.slope.new_tensor(x)[first:] for x in (_WEAK_MEAN, _WEAK_SD))
            self.prior = ItemPrior(mean, torch.diag(sd), estimated=False)
        elif options.prior == "estimated":
            # Moments of the start items, slopes within ±½.
            spread = items.intercept.std().clamp_min(0.1)
            mean = torch.stack([items.slope.mean(), items.intercept.mean()])
            sd = torch.stack([torch.full_like(spread, 0.5), spread])
            self.prior = ItemPrior(mean[first:], torch.diag(sd[first:]), estimated=True)

    def start(self) -> Tensor:
        """Start values as a flat vector."""
        return self.pack(_State(self.items, self.prior))

    def pack(self, at: _State) -> Tensor:
        """Flatten a state."""
        free = [at.prior.vector()] if at.prior is not None and at.prior.estimated else []
        return torch.cat([*at.items.free, *free])

    def unpack(self, point: Tensor) -> _State:
        """Invert `pack`."""
        m = len(self.items.slope)
        size = len(self.items.free) * m
        free = iter(point[:size].view(-1, m))
        items = Items(*(None if x is None else next(free) for x in self.items))  # pyrefly: ignore[bad-argument-type]
        prior = self.prior
        if prior is not None and prior.estimated:
            prior = prior.from_vector(point[size:])
        return _State(items, prior)

    @property
    def long(self) -> bool:
        """Whether products with the models' trials dominate the cost."""
        n, m = self.whole.right.shape
        return self.options.nodes is None and self.whole.separate and n * m >= _LONG

    def search(self, point: Tensor, tolerance: float, most: int) -> tuple[Solution, Widths]:
        """Iterate, and place the nodes anew until they suit the posteriors."""
        steps, wider = 0, 1.0
        while True:
            solution = squarem(self.step, point, tolerance=tolerance, max_steps=most - steps)
            point, steps = solution.at, steps + solution.steps
            missed = self.answers.windows is not None and not math.isfinite(float(solution.value))
            if missed:
                self.answers, wider = self.whole, 2 * wider
            seen = self.widths(self.unpack(point))
            fine = not missed and fitting_nodes(self.nodes, seen.mean, seen.sd) is None
            if self.options.nodes is not None or fine or steps >= most:
                return solution._replace(steps=steps), seen
            self.place(seen.mean, seen.sd, wider)

    def place(self, mean: Tensor, sd: Tensor, wider: float = 1.0) -> None:
        """Choose nodes for posteriors of these moments, and in long tests windows of nodes."""
        self.nodes = fitting_nodes(self.nodes, mean, sd) or self.nodes
        if self.long:
            by = windows(mean, sd, self.nodes.at, wider=wider)
            self.answers = self.whole.narrowed(by)

    def rough_search(self) -> tuple[Tensor, int]:
        """Approach the optimum in single precision, and place the nodes."""
        like, single = self.items.slope, torch.float32
        whole, same = self.whole.to(single), (self.options, self.form)
        if self.items.logistic:
            slope = self.form.common_slope
            start = from_totals(whole.right, whole.trials, common_slope=slope)
            rough, place = _Fit(whole, start.items, *same), start[1:]
        else:
            rough = _Fit(whole, self.items.to(single), *same)
            place = rough.widths(rough.unpack(rough.start()))[1:]
        rough.place(*place)
        solution, seen = rough.search(rough.start(), _ROUGH, min(_FEW, self.options.max_steps - 1))
        reach, count = float(rough.nodes.at[-1]), len(rough.nodes.at)
        # Frees its copies of the answers.
        del rough, whole
        self.nodes = even_nodes(-reach, reach, count, like)
        self.place(seen.mean.to(like), seen.sd.to(like))
        return solution.at.to(like), solution.steps

    def widths(self, at: _State) -> Widths:
        """Posteriors of the abilities."""
        return posterior_widths(self.answers, at.items, self.nodes)

    def step(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """One PX-EM step; return also the objective where it started."""
        items, prior = self.unpack(point)
        posteriors = posterior(self.answers, items, self.nodes)
        by = derivatives(self.answers, items, posteriors.weights, self.nodes)
        objective = posteriors.log_likelihood.sum()
        for column, away, precision in self.form.log_priors(items):
            by.gradient[:, column] -= away * precision
            by.information[:, column, column] += precision
            objective = objective - 0.5 * (precision * away.square()).sum()
        if prior is not None:
            prior = prior.updated(by, items) if prior.estimated else prior
            objective = objective + prior.add_to(by, items)
        if self.answers.windows is not None:
            far = self.answers.windows.lost(posteriors.weights) > FAINT
            objective = torch.where(far, torch.nan, objective)
        change = (
            _common_step(by)
            if self.form.common_asymptotes
            else newton_step(by, common_slope=self.form.common_slope)
        )
        if not items.logistic:
            change = self._halved(items, change, posteriors.weights, prior)
        items = self._stepped(items, change)
        # Parameter expansion: rescaled so that abilities are N(0, 1) again.
        share = posteriors.weights.mean(dim=0)
        shift, square = share @ self.nodes.at, share @ self.nodes.at.square()
        scale = (square - shift * shift).clamp_min(1e-6).sqrt()
        if prior is not None and prior.estimated:
            prior = prior.expanded(shift, scale, items.slope[0])
        elif prior is not None:
            shift, held = prior.expansion(shift, square, len(posteriors.weights), items)
            scale = scale if self.form.common_slope else held
        slope = (items.slope * scale).clamp(-STEEPEST, STEEPEST)
        intercept = items.intercept + items.slope * shift
        moved = items._replace(slope=slope, intercept=intercept)
        return self.pack(_State(moved, prior)), objective

    def _halved(
        self, items: Items, change: Tensor, weights: Tensor, prior: ItemPrior | None
    ) -> Tensor:
        """Halve steps of items whose objective would fall: with guessing it is not concave."""

        def objective(at: Items) -> Tensor:
            total = _expected_log_likelihood(self.answers, at, weights, self.nodes)
            for _, away, precision in self.form.log_priors(at):
                total = total - 0.5 * precision * away.square()
            total = total if prior is None else total + prior.log_density(at)
            return total.sum()[None] if self.form.common_asymptotes else total

        now = objective(items)
        # Beyond rounding: expected information may be so small that steps overshoot for ever.
        least = now - _ROUNDINGS * torch.finfo(now.dtype).eps * now.abs()
        for _ in range(_HALVINGS):
            falls = objective(self._stepped(items, change)) < least
            if not bool(falls.any()):
                break
            change = torch.where(falls[:, None], 0.5 * change, change)
        return change

    def _stepped(self, items: Items, change: Tensor) -> Items:
        return items._replace(
            slope=items.slope + change[:, 0],
            intercept=(items.intercept + change[:, 1]).clamp(-8 * STEEPEST, 8 * STEEPEST),
            guess=None if items.guess is None else (items.guess + change[:, 2]).clamp(-12, 5),
            slip=None if items.slip is None else (items.slip + change[:, -1]).clamp(-12, 0),
        )


class _State(NamedTuple):
    """What is estimated: items, and where asked for their prior."""

    items: Items
    prior: ItemPrior | None


class Derivatives(NamedTuple):
    """Derivatives of the log-likelihood by the p parameters of each item."""

    gradient: Tensor
    """Shape (M, p): exact, of the marginal likelihood."""
    information: Tensor
    """Shape (M, p, p): expected information if abilities were known."""


def derivatives(answers: Answers, items: Items, weights: Tensor, nodes: Nodes) -> Derivatives:
    """Gradient and complete-data information of every item, from posterior `weights` (N, Q)."""
    by_pattern = answers.of_patterns(weights)
    mean = weights @ nodes.at
    by_block: list[Derivatives] = []
    for part in blocks(answers.right.shape[1], len(nodes.at)):
        few = answers.near(items.part(part), nodes.at)
        at = few.at
        trials = answers.tried(part, few.gather(by_pattern))
        curve = curves(items.part(part), at)
        if items.logistic:
            right = answers.right[:, part]
            basis = torch.stack([at, torch.ones_like(at)], dim=1)
            seen = (torch.stack([mean, torch.ones_like(mean)]) @ right).T
            gradient = seen - (trials * curve.right) @ basis
            by_block.append(Derivatives(gradient, logistic_information(trials, curve, at)))
            continue
        right = (few.gather(weights).T @ answers.right[:, part]).T
        by = gradients(curve, at)
        # Both may underflow for items whose parameters diverge.
        scale = by / (curve.right * curve.wrong).clamp_min(torch.finfo(by.dtype).tiny)
        gradient = torch.einsum("pmq,mq->mp", scale, right - trials * curve.right)
        information = torch.einsum("pmq,rmq,mq->mpr", scale, by, trials)
        by_block.append(Derivatives(gradient, information))
    return Derivatives(*(torch.cat(parts) for parts in zip(*by_block, strict=True)))


def logistic_information(trials: Tensor, curve: Curves, at: Tensor) -> Tensor:
    """Information of logistic curves, (M, 2, 2), given the trials at each ability, (M, Q).

    Observed and expected information are the same: it does not depend on the answers.
    """
    spread = trials * curve.right * curve.wrong
    powers = spread @ torch.stack([at * at, at, at, torch.ones_like(at)], dim=1)
    return powers.reshape(-1, 2, 2)


def newton_step(
    item_derivatives: Derivatives, *, common_slope: bool, longest: float = 2.0
) -> Tensor:
    """Newton step of the parameters, shape (M, p), at most `longest` in any of them."""
    gradient, information = item_derivatives
    # Keeps flat items from dividing by zero.
    ridge = 1e-9 * torch.eye(gradient.shape[1], dtype=gradient.dtype, device=gradient.device)
    information = information + ridge
    if not common_slope:
        step: Tensor = linalg.solve_ex(information, gradient)[0]
        step = step * (longest / step.abs().amax(dim=1, keepdim=True)).clamp_max(1.0)
        # An item whose information has overflowed, as where its curve is a step, stays as it is.
        return torch.where(step.isfinite().all(dim=1, keepdim=True), step, 0.0)
    # A common slope: eliminate the intercepts first.
    cross = information[:, 0, 1] / information[:, 1, 1]
    slope = (gradient[:, 0] - cross * gradient[:, 1]).sum() / (
        information[:, 0, 0] - cross * information[:, 0, 1]
    ).sum()
    slope = slope.clamp(-0.5, 0.5)
    intercept = (gradient[:, 1] - information[:, 0, 1] * slope) / information[:, 1, 1]
    return torch.stack([slope.expand_as(intercept), intercept.clamp(-longest, longest)], dim=1)


def _common_step(item_derivatives: Derivatives, longest: float = 2.0) -> Tensor:
    """Newton step where all items have the same asymptotes: slopes and intercepts eliminated."""
    gradient, information = item_derivatives
    of_curves, across = information[:, :2, :2], information[:, :2, 2:]
    of_curves = of_curves + 1e-9 * torch.eye(2, dtype=of_curves.dtype, device=of_curves.device)
    both = torch.cat([gradient[:, :2, None], across], dim=2)
    solved: Tensor = linalg.solve_ex(of_curves, both)[0]
    alone, lever = solved[..., 0], solved[..., 1:]
    left = (information[:, 2:, 2:] - across.mT @ lever).sum(dim=0)
    wanted = (gradient[:, 2:] - (across.mT @ alone[..., None])[..., 0]).sum(dim=0)
    common = linalg.solve_ex(left, wanted)[0].clamp(-0.5, 0.5)
    step = alone - lever @ common
    step = step * (longest / step.abs().amax(dim=1, keepdim=True)).clamp_max(1.0)
    return torch.cat([step, common.expand(len(step), -1)], dim=1)


def _expected_log_likelihood(
    answers: Answers, items: Items, weights: Tensor, nodes: Nodes
) -> Tensor:
    """Expected complete-data log-likelihood of each item under `weights`, shape (M,)."""
    by_pattern = answers.of_patterns(weights)
    by_block: list[Tensor] = []
    for part in blocks(answers.right.shape[1], len(nodes.at)):
        few = answers.near(items.part(part), nodes.at)
        odds, wrong = log_odds_and_wrong(items.part(part), few.at)
        right = (few.gather(weights).T @ answers.right[:, part]).T
        trials = answers.tried(part, few.gather(by_pattern))
        by_block.append((right * odds + trials * wrong).sum(dim=1))
    return torch.cat(by_block)


class ItemPrior(NamedTuple):
    """Normal prior of discrimination and intercept; of the intercept alone with a common slope."""

    mean: Tensor
    """Shape (k,), k = 2 or 1."""
    factor: Tensor
    """Shape (k, k): lower Cholesky factor of the covariance."""
    estimated: bool

    @property
    def columns(self) -> slice:
        """Its columns among the parameters (a, d)."""
        return slice(2 - len(self.mean), 2)

    @property
    def precision(self) -> Tensor:
        """Inverse of the covariance."""
        return torch.cholesky_inverse(self.factor)

    def away(self, items: Items) -> Tensor:
        """Parameters minus their mean, shape (M, k)."""
        return torch.stack([items.slope, items.intercept], dim=1)[:, self.columns] - self.mean

    def log_density(self, items: Items) -> Tensor:
        """Log density of each item up to a constant, shape (M,)."""
        away = self.away(items)
        return -0.5 * (away @ self.precision * away).sum(dim=1)

    def add_to(self, item_derivatives: Derivatives, items: Items) -> Tensor:
        """Add gradient and information of the log prior in place; return the objective's change.

        The objective of an estimated prior is its likelihood with the items integrated out, by
        Laplace's approximation; with the mode alone the variance would collapse.
        """
        away, precision, at = self.away(items), self.precision, self.columns
        item_derivatives.gradient[:, at] -= away @ precision
        item_derivatives.information[:, at, at] += precision
        gain = self.log_density(items).sum()
        if self.estimated:
            gain = gain - len(away) * self.factor.diagonal().log().sum()
            gain = gain - 0.5 * torch.logdet(item_derivatives.information[:, at, at]).sum()
        return gain

    def updated(self, item_derivatives: Derivatives, items: Items) -> ItemPrior:
        """Maximum likelihood prior of these items, given their uncertainty.

        EM on the items' quadratic likelihoods, without the answers; every third step is
        extrapolated from the two before (SQUAREM). A few items with little spread are added, so
        that the variance converges to a positive value where items do not differ.
        """
        at, prior = self.columns, self
        information = item_derivatives.information[:, at, at]
        values = (self.away(items) + self.mean)[..., None]
        target = information @ values + item_derivatives.gradient[:, at, None]
        # Items last, so that memory is contiguous over items.
        information = information.permute(1, 2, 0).contiguous()
        target = target[..., 0].T.contiguous()
        settled = max(_SETTLED, 20 * torch.finfo(target.dtype).eps)
        for turn in range(1, _ROUNDS + 1):
            first = prior.em_step(information, target)
            second = first.em_step(information, target)
            middle, end = first.vector(), second.vector()
            jump = extrapolated(prior.vector(), middle, end, longest=_LONGEST)
            jump = end + (jump - end).clamp(-_FARTHEST, _FARTHEST)
            prior = prior.from_vector(jump).em_step(information, target)
            # Not in every round: the host has to wait for the device.
            if turn % _LOOK == 0 and float((end - middle).abs().max()) < settled:
                break
        return prior

    def em_step(self, precisions: Tensor, target: Tensor) -> ItemPrior:
        """One EM step, given the items' precisions (k, k, M) and precision times value (k, M)."""
        n, k = target.shape[1], len(self.mean)
        precision = self.precision
        precisions = precisions + precision[..., None]
        if k == 1:
            covariances = 1 / precisions
        else:
            a, b, _, c = precisions.flatten(0, 1).unbind()
            covariances = torch.stack([c, -b, -b, a]).div_(a * c - b * b).view(2, 2, -1)
        means = (covariances * (target + (precision @ self.mean)[:, None])).sum(dim=1)
        mean = means.mean(dim=1)
        deviations = means - mean[:, None]
        floor = _IDEAL * _FLOOR**2 * torch.eye(k, dtype=target.dtype, device=target.device)
        spread = deviations @ deviations.T + covariances.sum(dim=2) + floor
        return self._replace(mean=mean, factor=cholesky(spread / (n + _IDEAL)))

    def expansion(
        self, mean: Tensor, square: Tensor, n: int, items: Items
    ) -> tuple[Tensor, Tensor]:
        """Shift and scale of the abilities under a fixed prior, which limits how items can follow.

        A Newton step from the present ones, for `n` abilities of this mean and mean square.
        """
        pull, curve = mean.new_zeros(2), mean.new_zeros(2)
        pull[self.columns] = -(self.away(items) @ self.precision * items.slope[:, None]).sum(dim=0)
        curve[self.columns] = self.precision.diagonal() * items.slope.square().sum()
        log_scale = (n * (square - 1) + pull[0]) / (2 * n * square + curve[0])
        return (n * mean + pull[1]) / (n + curve[1]), log_scale.clamp(-0.5, 0.5).exp()

    def expanded(self, shift: Tensor, scale: Tensor, slope: Tensor) -> ItemPrior:
        """The same prior after abilities were shifted and scaled, and the items with them."""
        if len(self.mean) == 1:
            return self._replace(mean=self.mean + slope * shift)
        ones = torch.ones_like(scale)
        turn = torch.stack([torch.stack([scale, 0 * ones]), torch.stack([shift, ones])])
        return self._replace(mean=turn @ self.mean, factor=turn @ self.factor)

    def free_directions(self, items: Items) -> tuple[Tensor, Tensor]:
        """Directions in which an estimated prior does not constrain the items.

        Shifting and scaling abilities moves all items together, and the prior with them.
        Returns precision times direction, (2, g, M), and the precision of the directions, (g, g).
        """
        zero = torch.zeros_like(items.slope)
        shift = torch.stack([zero, items.slope], dim=1)
        both = [shift] if len(self.mean) == 1 else [shift, shift.flip(1)]
        directions = torch.stack(both)[:, :, self.columns]
        held = directions @ self.precision
        free_precision = torch.einsum("gmk,hmk->gh", held, directions)
        held = torch.nn.functional.pad(held, (self.columns.start, 0))
        return held.permute(2, 0, 1), free_precision

    def reversed(self) -> ItemPrior:
        """The same prior after a reflection of the ability scale."""
        if len(self.mean) == 1:
            return self
        sign = self.mean.new_tensor([-1.0, 1.0])
        return self._replace(mean=sign * self.mean, factor=sign[:, None] * self.factor * sign)

    def vector(self) -> Tensor:
        """Free parameters, shape (k + k(k + 1)/2,), with logarithms of the factor's diagonal."""
        below = [self.factor[1, 0][None]] if len(self.mean) == 2 else []
        return torch.cat([self.mean, self.factor.diagonal().log(), *below])

    def from_vector(self, numbers: Tensor) -> ItemPrior:
        """Invert `vector`."""
        k = len(self.mean)
        factor = torch.diag(numbers[k : 2 * k].exp())
        if k == 2:
            factor[1, 0] = numbers[4]
        return self._replace(mean=numbers[:k], factor=factor)


def from_shares(right: Tensor, trials: Tensor) -> Items:
    """Items with slope 1 and intercepts by shares of right answers; counts are of shape (M,)."""
    logit = smoothed_logit(right, trials)
    return Items(torch.ones_like(logit), 1.2 * logit)


def from_totals(right: Tensor, trials: Tensor, *, common_slope: bool) -> StartValues:
    """Logistic regressions of the items on the logit of each model's share of right answers.

    In a long test that logit is the ability up to its scale. Models of similar share are grouped,
    so that the regressions cost little more than two sums over the models.

    Parameters
    ----------
    right, trials
        Shape (N, M), of a hundred models or more.
    """
    total = trials.sum(dim=1)
    level = smoothed_logit(right.sum(dim=1), total)
    level = (level - level.mean()) / level.std().clamp_min(1e-3)
    member = torch.argsort(torch.argsort(level)) * _GROUPS // len(level)
    groups = torch.nn.functional.one_hot(member, _GROUPS).to(right)
    at = (level @ groups) / groups.sum(dim=0)
    hits, tried = (groups.T @ right).T, (groups.T @ trials).T
    basis = torch.stack([at, torch.ones_like(at)], dim=1)
    mean, precision = right.new_tensor(_WEAK_MEAN), right.new_tensor(_WEAK_SD) ** -2
    items = from_shares(hits.sum(dim=1), tried.sum(dim=1))
    for _ in range(_STEPS):
        curve = curves(items, at)
        away = torch.stack([items.slope, items.intercept], dim=1) - mean
        by = Derivatives(
            (hits - tried * curve.right) @ basis - precision * away,
            logistic_information(tried, curve, at) + torch.diag(precision),
        )
        change = newton_step(by, common_slope=common_slope)
        items = Items(items.slope + change[:, 0], items.intercept + change[:, 1])
    per_trial = ability_information(items, at).mean(dim=0)[member]
    return StartValues(items, level, (1 + total * per_trial).rsqrt())


class StartValues(NamedTuple):
    """Items, with approximate abilities."""

    items: Items
    ability: Tensor
    """Shape (N,)."""
    std_error: Tensor
