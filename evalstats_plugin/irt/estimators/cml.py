"""Conditional maximum likelihood of the Rasch model, without a distribution of models.

Given a model's number of right answers, which items are right depends on the items only [And70]_.

* `difficulties_given_model_totals`: the estimates, by Newton's method
* `given_totals`: elementary symmetric functions and moments of the parts given their total
* `fit_cml`: an `IRTFit`; abilities are estimated afterwards
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.irt.estimators.frozen import score
from evalstats_plugin.irt.model.curves import Items
from evalstats_plugin.irt.model.data import Counts, check_room, smoothed_logit
from evalstats_plugin.irt.model.fit import IRTFit, irt_fit, not_converged, run_facts
from evalstats_plugin.runtime.torch import linalg, unique

CML_NOTE = (
    "conditional on model totals: difficulties do not depend on how models vary, abilities are "
    "estimated after them; with few models they are stretched as in jml: take mml-items"
)

# Newton's method ends when the next step is predicted to raise the log-likelihood by less.
_TOLERANCE = 1e-13

_MAX_STEPS = 100

# Logits at which parts that are always right, or always wrong, are fixed.
_FAR = 30.0

# Parts up to which Newton's method uses the whole Hessian, not its diagonal.
_NEWTON = 300

# Distance of a total from its expectation that is near.
_CLOSE = 0.01

# Angles that change |P(S = r)| by a factor below exp(-_NEGLIGIBLE) are left out; up to _FEW parts
# none are.
_NEGLIGIBLE, _FEW = 50.0, 64

# Largest array of complex numbers.
_BLOCK = 2**20


def difficulties_given_model_totals(counts: Counts) -> ConditionalFit:
    """Estimate item difficulties given each model's number of right answers [And70]_.

    Models may have answered different items. The parameters are the M difficulties.

    Raises
    ------
    DesignError
        Scores between right and wrong, or no model with some answers right and some wrong.
    """
    right, trials = counts.right, counts.trials
    if bool((right != right.round()).any()):
        msg = (
            "conditional likelihood needs whole numbers of right answers, and there is partial "
            "credit: take another estimator"
        )
        raise DesignError(msg)
    totals = right.sum(1)
    informative = (totals > 0) & (totals < trials.sum(1))
    if not bool(informative.any()):
        msg = "nothing to compare: in every group of answers all are right, or all are wrong"
        raise DesignError(msg)
    rows = torch.cat([trials, totals[:, None]], dim=1)[informative]
    distinct, kind = unique(rows[:, -1] if _alike(trials) else rows, dim=0)
    kinds = (
        (trials[:1].expand(len(distinct), -1), distinct)
        if _alike(trials)
        else (distinct[:, :-1].contiguous(), distinct[:, -1].contiguous())
    )
    frequency = torch.zeros_like(kinds[1]).index_add_(0, kind, torch.ones_like(rows[:, 0]))
    return _solve(right, trials, kinds, frequency)


class ConditionalFit(NamedTuple):
    """Conditional estimates of M difficulties."""

    estimate: Tensor
    """Shape (M,): sums to 0 where finite; infinite for items all right or all wrong."""
    covariance: Tensor
    """Shape (M, M), from the exact Hessian; NaN where the estimate is not finite."""
    log_likelihood: float
    iterations: int
    converged: bool


def _solve(
    right: Tensor, trials: Tensor, kinds: tuple[Tensor, Tensor], frequency: Tensor
) -> ConditionalFit:
    """Newton's method; `kinds` are the trials and totals of distinct rows, by their frequency."""
    held = _fixed(right, trials)
    free = (held == 0).to(right)
    totals = right.sum(1)
    informative = ((totals > 0) & (totals < trials.sum(1))).to(right)
    # Whole numbers, so that the sums are exact in any order.
    target = informative @ right
    start = smoothed_logit(right.sum(0), trials.sum(0))
    easiness = torch.where(held == 0, start - start.mean(), held * _FAR)
    full, searching, iterations = right.shape[1] <= _NEWTON, True, 0
    while searching and iterations < _MAX_STEPS:
        iterations += 1
        sums = given_totals(easiness, *kinds, frequency, full=full)
        gradient = (target - sums.mean) * free
        step = _newton_step(gradient, sums.covariance, free)
        gain = gradient @ step
        easiness = easiness + step * (2 / step.abs().max()).clamp_max(1)
        searching = bool((gain >= _TOLERANCE) | ~torch.isfinite(gain))
    easiness = easiness - (easiness @ free) / free.sum() * free
    sums = given_totals(easiness, *kinds, frequency)
    # Parameters that diverge have no finite estimate, although none is all right or all wrong.
    converged = not searching and bool(((easiness * free).abs() < _FAR / 2).all())
    return ConditionalFit(
        -torch.where(held == 0, easiness, held * torch.inf),
        _covariance(sums.covariance, free),
        float(easiness @ target - sums.log_esf),
        iterations,
        converged,
    )


def _alike(trials: Tensor) -> bool:
    """Whether all rows have the same trials."""
    return bool((trials == trials[:1]).all())


def _fixed(right: Tensor, trials: Tensor) -> Tensor:
    """1 for parts always right in rows that count, -1 for always wrong, 0 for others, (P,).

    Fixing one part can make rows uninformative, and so fix another part.
    """
    held = right.new_zeros(right.shape[1])
    while True:
        free = (held == 0).to(right)
        left = right @ free
        counting = ((left > 0) & (left < trials @ free)).to(right)
        right_sum, all_sum = counting @ right, counting @ trials
        extreme = (right_sum == all_sum).to(right) - (right_sum == 0).to(right)
        # A part without a trial that counts stays free: its information is regularised.
        fresh = torch.where((held == 0) & (all_sum > 0), extreme, held)
        if torch.equal(fresh, held):
            return held
        held = fresh


def _newton_step(gradient: Tensor, covariance: Tensor, free: Tensor) -> Tensor:
    """Newton step that keeps the sum of the free parameters; diagonal if `covariance` is."""
    if covariance.ndim == 1:
        step = gradient / covariance.clamp_min(1e-9)
        return (step - (step @ free) / free.sum()) * free
    return linalg.solve_ex(_regularised(covariance, free), gradient)[0]


def _regularised(covariance: Tensor, free: Tensor) -> Tensor:
    """Information of the free parameters, made invertible along their common shift."""
    scale = covariance.diagonal().mean()
    pairs = torch.outer(free, free)
    return covariance * pairs + scale * pairs + torch.diag((1 - free) * scale)


def _covariance(information: Tensor, free: Tensor) -> Tensor:
    """Covariance of parameters that sum to 0."""
    pairs = torch.outer(free, free)
    inverse = linalg.inv(_regularised(information, free)) * pairs
    mean = inverse.sum(1, keepdim=True) / free.sum()
    covariance = inverse - mean - mean.T + mean.sum() / free.sum()
    return torch.where(pairs > 0, (covariance + covariance.T) / 2, torch.nan)


def given_totals(
    parameters: Tensor, trials: Tensor, totals: Tensor, frequency: Tensor, *, full: bool = True
) -> GivenTotals:
    """Sum log γ and the moments of the parts given their totals, over G totals.

    γ are elementary symmetric functions, computed as Fourier inversions of tilted distributions.

    Parameters
    ----------
    parameters : shape (P,)
        The easiness -b of each part.
    trials : shape (G, P)
        Whole numbers, 0 for parts that are not in a total.
    totals : shape (G,)
    frequency : shape (G,)
        How often each total occurs.
    full
        Return covariances; otherwise variances.
    """
    p = len(parameters)
    angles = _angles(parameters, trials, totals)
    log_esf, mean = parameters.new_zeros(()), torch.zeros_like(parameters)
    covariance = parameters.new_zeros((p, p) if full else (p,))
    step = max(1, _BLOCK // (p * len(angles.angle)) // 16)
    for part in (slice(start, start + step) for start in range(0, len(totals), step)):
        kinds = trials[part], totals[part]
        block = _block_given_totals(parameters, kinds, frequency[part], angles, full=full)
        log_esf, mean = log_esf + block.log_esf, mean + block.mean
        covariance += block.covariance
    return GivenTotals(log_esf, mean, covariance)


class GivenTotals(NamedTuple):
    """Sums over G totals, weighted by their frequencies."""

    log_esf: Tensor
    """Σ log γ, a scalar."""
    mean: Tensor
    """Σ of expected successes of each part given the total, shape (P,)."""
    covariance: Tensor
    """Σ of their covariances, shape (P, P), or only of their variances, (P,)."""


def _block_given_totals(
    parameters: Tensor,
    kinds: tuple[Tensor, Tensor],
    frequency: Tensor,
    angles: _Angles,
    *,
    full: bool,
) -> GivenTotals:
    trials, totals = kinds
    tilt = tilts(parameters, trials, totals)
    logit = parameters + tilt[:, None]
    p = torch.sigmoid(logit)
    turn = torch.polar(torch.ones_like(angles.angle), angles.angle)
    # (G, Q, P) from here on.
    factor = 1 + p[:, None] * (turn - 1)[:, None]
    phase = torch.polar(angles.weight, torch.zeros_like(angles.angle)) * torch.polar(
        torch.ones_like(angles.angle), -angles.angle * totals[:, None]
    )
    mass = _product(factor, trials[:, None]) * phase
    chance = mass.real.sum(-1)
    mass = mass / chance[..., None]
    share = p[:, None] * turn[:, None] / factor
    first = trials * (mass[..., None] * share).real.sum(1)
    log_esf = (trials * torch.nn.functional.softplus(logit)).sum(-1) - tilt * totals + chance.log()
    # Of n_i trials, n_i (n_i - 1) ordered pairs are of different ones.
    second = (mass[..., None] * share**2).real.sum(1)
    single = first - trials * second
    weighted = frequency[:, None] * first
    if not full:
        variance = frequency @ (trials**2 * second + single - first**2)
        return GivenTotals(frequency @ log_esf, weighted.sum(0), variance)
    root = torch.sqrt(mass * frequency[:, None])[..., None] * (trials[:, None] * share)
    real, imaginary = (x.flatten(0, 1) for x in (root.real, root.imag))
    covariance = real.T @ real - imaginary.T @ imaginary - weighted.T @ first
    return GivenTotals(
        frequency @ log_esf, weighted.sum(0), covariance + torch.diag(frequency @ single)
    )


def _product(factor: Tensor, power: Tensor) -> Tensor:
    """Product of powers over the last axis; without slow complex logarithms for single trials."""
    if bool((power <= 1).all()):
        return torch.where(power > 0, factor, 1).prod(-1)
    return torch.exp((power * torch.log(factor)).sum(-1))


class _Angles(NamedTuple):
    """Angles ω in [0, π] and their weights, both of shape (Q,); the others follow by symmetry."""

    angle: Tensor
    weight: Tensor


def _angles(parameters: Tensor, trials: Tensor, totals: Tensor) -> _Angles:
    """Choose the angles that the totals need: all roots of unity for few parts.

    Q equally spaced angles alias totals that differ by a multiple of Q; Q is chosen so that aliases
    are ten standard deviations or more away. Of these angles only the first matter, because the
    absolute value of the characteristic function is below exp(-variance (1 - cos ω)).
    """
    size = int(trials.sum(1).max())
    count = first = size + 1
    if size > _FEW:
        p = torch.sigmoid(parameters + tilts(parameters, trials, totals)[:, None])
        variance = (p * (1 - p) * trials).sum(-1)
        count = min(count, math.ceil(10 * math.sqrt(float(variance.max()))) + 40)
        reach = math.acos(max(-1.0, 1 - _NEGLIGIBLE / max(float(variance.min()), 1e-300)))
        first = math.ceil(reach * count / (2 * math.pi)) + 1
    k = torch.arange(min(first, count // 2 + 1), dtype=parameters.dtype, device=parameters.device)
    own_mirror = (k == 0) | (2 * k == count)
    return _Angles(2 * math.pi * k / count, torch.where(own_mirror, 1.0, 2.0).to(k.dtype) / count)


def tilts(parameters: Tensor, trials: Tensor, totals: Tensor) -> Tensor:
    """Tilt λ at which each total is close to its expectation, shape (G,).

    Parameters
    ----------
    parameters : shape (P,)
    trials : shape (G, P)
    totals : shape (G,)
        Above 0 and below the number of trials.
    """
    size = trials.sum(1)
    tilt = torch.logit(totals / size) - trials @ parameters / size
    low, high = tilt - 40, tilt + 40
    for turn in range(1, 13):
        p = torch.sigmoid(parameters + tilt[:, None])
        over = (p * trials).sum(-1) - totals
        low, high = torch.where(over < 0, tilt, low), torch.where(over < 0, high, tilt)
        newton = tilt - over / (p * (1 - p) * trials).sum(-1).clamp_min(1e-12)
        tilt = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        # Not in every turn: the host has to wait for the device.
        if turn % 4 == 0 and float(over.abs().max()) < _CLOSE:
            break
    return tilt


def fit_cml(matrix: ResponseMatrix, counts: Counts) -> IRTFit:
    """Difficulties given model totals, then abilities, shifted to sum to 0, as an `IRTFit`.

    Raises
    ------
    DesignError
        Nothing has a finite estimate, or see `difficulties_given_model_totals`.
    """
    began = time.perf_counter()
    m = counts.right.shape[1]
    check_room(6 * m * m, counts.right, f"the covariance of {counted(m, 'item')}")
    conditional = difficulties_given_model_totals(counts)
    free = torch.isfinite(conditional.estimate)
    if not bool(free.any()):
        msg = (
            "no finite estimate: models and items are in perfect order, each model right wherever "
            "one with fewer right answers is; take estimator mml-items"
        )
        raise DesignError(msg)
    item_covariance = conditional.covariance[free][:, free]
    able = warm(counts.right[:, free], counts.trials[:, free], -conditional.estimate[free])
    # Abilities rise with difficulties: the level of an item is -b.
    along = -able.lever @ item_covariance
    covariance = along @ -able.lever.T
    covariance.diagonal().add_(able.variance)
    mean = covariance.mean(1)
    covariance -= mean - mean.mean()
    covariance -= mean[:, None]
    difficulty, variance = conditional.estimate.clone(), torch.zeros_like(conditional.estimate)
    variance[free] = item_covariance.diagonal() - 2 * along.mean(0) + mean.mean()
    notes = [CML_NOTE]
    if not bool(free.all()):
        flat = warm(counts.right[:, ~free].T, counts.trials[:, ~free].T, able.value)
        difficulty[~free], variance[~free] = -flat.value, torch.nan
        notes.append(flat_note((~free).cpu().numpy()))
    if not conditional.converged:
        notes.append(not_converged(conditional.iterations))
    shift = able.value.mean()
    of_items = torch.zeros(m, 2, 2).to(variance)
    of_items[:, 1, 1] = variance
    return irt_fit(
        matrix,
        ability=able.value - shift,
        covariance=covariance,
        discrimination=torch.ones_like(difficulty),
        intercept=shift - difficulty,
        item_covariance=of_items,
        item_model="rasch",
        estimator="cml",
        identification="abilities sum to 0",
        diagnostics={
            "iterations": conditional.iterations,
            "converged": conditional.converged,
            "log_likelihood": conditional.log_likelihood,
            "likelihood": "conditional",
            **run_facts(counts, began),
        },
        notes=(*counts.notes, *notes),
    )


def warm(right: Tensor, trials: Tensor, level: Tensor) -> Warm:
    """Warm's estimates [War89]_ of x where P(right) = 1 / (1 + exp(-(x + level)))."""
    items = Items(torch.ones_like(level), level)
    if not _alike(trials):
        return _warm(right, trials, items)
    # Rows of the same total have the same estimate.
    totals, kind = unique(right.sum(1))
    rows = torch.arange(len(kind), device=kind.device)
    representative = torch.zeros_like(kind[: len(totals)]).scatter_reduce(
        0, kind, rows, "amin", include_self=False
    )
    estimates = _warm(right[representative], trials[representative], items)
    return Warm(*(part[kind] for part in estimates))


def _warm(right: Tensor, trials: Tensor, items: Items) -> Warm:
    abilities = score(Counts(right, trials), items, "wle")
    p = torch.sigmoid(abilities.ability[:, None] + items.intercept)
    weight = trials * p * (1 - p)
    return Warm(abilities.ability, abilities.std_error**2, -weight / weight.sum(1, keepdim=True))


class Warm(NamedTuple):
    """Warm's estimates of row parameters, given column parameters."""

    value: Tensor
    variance: Tensor
    """Given the column parameters."""
    lever: Tensor
    """Derivative of each value by each column's level, shape (rows, columns)."""


def flat_note(flat: NDArray[np.bool_]) -> str:
    """Note on items whose likelihood has no maximum."""
    return (
        f"{int(flat.sum())} items all right or all wrong have no estimate of this kind: their "
        "difficulty is Warm's, abilities taken as known, and has no error"
    )
