"""Conditional maximum likelihood: the Rasch model without any distribution of models or items.

Given how many items a model gets right, which ones these are tells of the items only; given how
many models get an item right, which ones these are tells of the models only [And70]_. The second
is the estimator for few models and many items: the items, however many, need no estimates.
"""

# Torch's stubs leave many functions untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.esf import Angles, choose_angles, given_totals

# Change of the log-likelihood that the next Newton step promises, at which it is the last.
_TOLERANCE = 1e-13
# Logits at which parts that are always right, or always wrong, are held.
_FAR = 30.0
_MAX_STEPS = 100
# Samples of a bootstrap are fitted in multiples of so many.
_TOGETHER = 64
# Parts up to which each Newton step takes the whole Hessian, not its diagonal.
_NEWTON = 300


class ConditionalFit(NamedTuple):
    """Conditional estimates; with weights (B, M) every field has B in front."""

    estimate: Tensor
    """Shape (P,): sums to 0 where finite; infinite where all that counts is right, or is wrong."""
    covariance: Tensor
    """Shape (P, P), from the exact Hessian; NaN where the estimate is not finite."""
    log_likelihood: Tensor
    iterations: int
    converged: Tensor


class _Totals(NamedTuple):
    """What is conditioned on: G kinds of rows with trials (G, P) and totals (G,)."""

    trials: Tensor
    totals: Tensor
    row_kind: Tensor
    """Which kind each informative row is of."""
    informative: Tensor
    """Shape (rows,): neither all right nor all wrong."""


def difficulties_given_model_totals(counts: Counts) -> ConditionalFit:
    """Item difficulties given each model's number of right answers: Rasch's CML [And70]_.

    Models may have answered different items. Parameters are the M items.

    Raises
    ------
    ValueError
        Scores between right and wrong, or no model with some answers right and some wrong.
    """
    fit = _fit(counts.right, counts.trials, None, 1)
    return fit._replace(estimate=-fit.estimate)


def abilities_given_item_totals(
    counts: Counts, *, weights: Tensor | None = None, block: int = 256
) -> ConditionalFit:
    """Abilities given how many models get each item right: CML with models and items exchanged.

    Parameters
    ----------
    counts
        N models × M items; cells may be missing.
    weights : shape (M,) or (B, M)
        How often each item counts, such as in B bootstrap samples, which are fitted at once.
    block
        Samples at a time, which changes memory and speed but no number.

    Raises
    ------
    ValueError
        Scores between right and wrong, or no item that some get right and some get wrong.
    """
    return _fit(counts.right.T, counts.trials.T, weights, block)


def _fit(right: Tensor, trials: Tensor, weights: Tensor | None, block: int) -> ConditionalFit:
    """Parameters are columns; rows are conditioned on their totals."""
    if bool((right != right.round()).any()):
        msg = (
            "conditional likelihood needs whole numbers of right answers, found partial credit: "
            "take another estimator"
        )
        raise ValueError(msg)
    totals = _kinds(right, trials)
    unit = right.new_ones(1, right.shape[0])
    start = torch.logit((right.sum(0) + 0.5) / (trials.sum(0) + 1))[None]
    whole = _solve(right, totals, unit, start - start.mean(), None)
    if weights is None:
        return _only(whole)
    many = torch.atleast_2d(weights).to(right)
    start = whole.estimate.clamp(-_FAR, _FAR)
    angles = choose_angles(start, totals.trials, totals.totals)
    block = -(-block // _TOGETHER) * _TOGETHER
    parts = [_padded(right, totals, w, start, angles) for w in many.split(block)]
    columns = list(zip(*parts, strict=True))
    estimate, covariance, log_likelihood = (torch.cat(column) for column in columns[:3])
    iterations, converged = max(columns[3]), torch.cat(columns[4])
    fit = ConditionalFit(estimate, covariance, log_likelihood, iterations, converged)
    return fit if weights.ndim > 1 else _only(fit)


def _only(fit: ConditionalFit) -> ConditionalFit:
    """The one sample of a fit, without the axis of samples."""
    return _sliced(fit, 0)


def _sliced(fit: ConditionalFit, keep: int | slice) -> ConditionalFit:
    return ConditionalFit(
        fit.estimate[keep],
        fit.covariance[keep],
        fit.log_likelihood[keep],
        fit.iterations,
        fit.converged[keep],
    )


def _padded(
    right: Tensor, totals: _Totals, weights: Tensor, start: Tensor, angles: Angles
) -> ConditionalFit:
    """Fit so many samples that each gets the same bits, whatever others are fitted with it.

    Vector instructions round otherwise than what is left over at the end of an array.
    """
    count = len(weights)
    padding = weights[-1:].expand(-count % _TOGETHER, -1)
    fit = _solve(right, totals, torch.cat([weights, padding]), start, angles)
    return _sliced(fit, slice(count))


def _kinds(right: Tensor, trials: Tensor) -> _Totals:
    """Rows of the same trials and the same total count as one."""
    totals = right.sum(1)
    informative = (totals > 0) & (totals < trials.sum(1))
    if not bool(informative.any()):
        msg = "nothing to compare: in every group of answers all are right, or all are wrong"
        raise ValueError(msg)
    rows = torch.cat([trials, totals[:, None]], dim=1)[informative]
    kinds, row_kind = torch.unique(rows, dim=0, return_inverse=True)
    return _Totals(kinds[:, :-1].contiguous(), kinds[:, -1].contiguous(), row_kind, informative)


def _solve(
    right: Tensor, totals: _Totals, weights: Tensor, start: Tensor, angles: Angles | None
) -> ConditionalFit:
    """Newton's method for B weightings (B, rows) at once, each stopping by itself."""
    weights = weights * totals.informative
    held = _held(right, totals, weights)
    # Whole numbers, so that the sums are exact in any order.
    target = weights @ right
    frequency = right.new_zeros(len(weights), len(totals.totals))
    frequency.index_add_(1, totals.row_kind, weights[:, totals.informative])
    parameters = torch.where(held == 0, start, held * _FAR).expand(len(weights), -1).clone()
    active, free = right.new_ones(len(weights), dtype=torch.bool), (held == 0).to(right)
    full = right.shape[1] <= _NEWTON
    kinds, iterations = (totals.trials, totals.totals), 0
    for _ in range(_MAX_STEPS):
        iterations += 1
        ways = angles or choose_angles(parameters, *kinds)
        sums = given_totals(parameters, *kinds, frequency, ways, full=full)
        gradient = (target - sums.mean) * free
        step = _newton_step(gradient, sums.covariance, free)
        gain = (gradient * step).sum(1)
        step = step * (2 / step.abs().amax(1, keepdim=True)).clamp_max(1)
        parameters = torch.where(active[:, None], parameters + step, parameters)
        active = active & ~(gain < _TOLERANCE) & torch.isfinite(gain)
        if not bool(active.any()):
            break
    free_count = free.sum(1, keepdim=True)
    parameters -= (parameters * free).sum(1, keepdim=True) / free_count * free
    ways = angles or choose_angles(parameters, *kinds)
    sums = given_totals(parameters, *kinds, frequency, ways)
    # Parameters that run away have no finite estimate, though none is all right or all wrong.
    converged = ~active & (parameters * free).abs().lt(_FAR / 2).all(1)
    return ConditionalFit(
        torch.where(held == 0, parameters, held * torch.inf),
        _covariance(sums.covariance, free),
        _log_likelihood(parameters, target, sums.log_esf),
        iterations,
        converged,
    )


def _log_likelihood(parameters: Tensor, target: Tensor, log_esf: Tensor) -> Tensor:
    return (parameters * target).sum(1) - log_esf


def _held(right: Tensor, totals: _Totals, weights: Tensor) -> Tensor:
    """1 for parts always right where it counts, -1 for those always wrong, 0 for others (B, P).

    To take one out may leave totals that no longer count, and so another such part.
    """
    trials = totals.trials[totals.row_kind]
    hits, count = right[totals.informative], weights[:, totals.informative]
    held = right.new_zeros(len(weights), right.shape[1])
    while True:
        free = (held == 0).to(right)
        left = free @ hits.T
        counts = count * ((left > 0) & (left < free @ trials.T))
        right_sum, all_sum = counts @ hits, counts @ trials
        found = (right_sum == all_sum).to(right) - (right_sum == 0).to(right)
        # Without a trial that counts, the whole row is 0: it is held at the middle, see below.
        fresh = torch.where((held == 0) & (all_sum > 0), found, held)
        if torch.equal(fresh, held):
            return held
        held = fresh


def _newton_step(gradient: Tensor, covariance: Tensor, free: Tensor) -> Tensor:
    """Solve for the step that keeps the sum of the free parameters; diagonally for many parts."""
    if covariance.ndim == 2:
        step = gradient / covariance.clamp_min(1e-9)
        return (step - (step * free).sum(1, keepdim=True) / free.sum(1, keepdim=True)) * free
    return torch.linalg.solve_ex(_bordered(covariance, free), gradient)[0]


def _bordered(covariance: Tensor, free: Tensor) -> Tensor:
    """Information of the free parameters, made regular along their common shift."""
    scale = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    pairs = free[:, :, None] * free[:, None]
    return covariance * pairs + scale * pairs + torch.diag_embed((1 - free) * scale[:, 0])


def _covariance(information: Tensor, free: Tensor) -> Tensor:
    """Of parameters that sum to 0."""
    pairs = free[:, :, None] * free[:, None]
    inverse = torch.linalg.inv(_bordered(information, free)) * pairs
    mean = inverse.sum(2, keepdim=True) / free.sum(1)[:, None, None]
    middle = mean.sum(1, keepdim=True) / free.sum(1)[:, None, None]
    covariance = inverse - mean - mean.mT + middle
    return torch.where(pairs > 0, (covariance + covariance.mT) / 2, torch.nan)
