"""Conditional maximum likelihood of the Rasch model, without distributions of models or items.

Given a model's number of right answers, which items are right depends on the items only; given an
item's number of right answers, which models are right depends on the models only [And70]_. The
second is an estimator for few models and many items: the items need no estimates.

* `abilities_given_item_totals`, `difficulties_given_model_totals`: the estimates, by Newton's
  method for many weightings at once
* `given_totals`: elementary symmetric functions and moments of the parts given their total
* `fit_cml_items`, `fit_cml`: an `IRTFit`; what was conditioned away is estimated afterwards
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.irt.estimators.frozen import score
from evalstats_plugin.irt.model.arrays import as_array
from evalstats_plugin.irt.model.curves import Items
from evalstats_plugin.irt.model.data import Counts, check_room, smoothed_logit
from evalstats_plugin.irt.model.fit import Estimates, IRTFit, irt_fit, not_converged, run_facts
from evalstats_plugin.runtime.torch import linalg, split, unique

CML_ITEMS_NOTE = (
    "conditional on item totals: 95 % intervals cover .95 with 5, 10 and 40 models where all items "
    "discriminate alike; .92 to .94 with 10 where they do not: mml-items with a 2pl covers .95"
)

CML_NOTE = (
    "conditional on model totals: difficulties do not depend on how models vary, abilities are "
    "estimated after them; with few models they are stretched as in jml: take cml-items"
)

# Newton's method ends when the next step is predicted to raise the log-likelihood by less.
_TOLERANCE = 1e-13

_MAX_STEPS = 100

# Logits at which parts that are always right, or always wrong, are fixed.
_FAR = 30.0

# Parts up to which Newton's method uses the whole Hessian, not its diagonal.
_NEWTON = 300

# Weightings are fitted in multiples of this many.
_TOGETHER = 64

# Distance of a total from its expectation that is near.
_CLOSE = 0.01

# Angles that change |P(S = r)| by a factor below exp(-_NEGLIGIBLE) are left out; up to _FEW parts
# none are.
_NEGLIGIBLE, _FEW = 50.0, 64

# Largest array of complex numbers.
_BLOCK = 2**20


def abilities_given_item_totals(
    counts: Counts, *, weights: Tensor | None = None, block: int = 256
) -> ConditionalFit:
    """Estimate abilities given how many models get each item right.

    This is conditional maximum likelihood with models and items exchanged.

    Parameters
    ----------
    counts
        N models × M items; cells may be missing.
    weights : shape (M,) or (B, M)
        How often each item counts, for example in B bootstrap samples, which are fitted at once.
    block
        Weightings at a time; changes memory and speed but no result.

    Raises
    ------
    ValueError
        Scores between right and wrong, or no item that some get right and some get wrong.
    """
    return _fit_rows(counts.right.T, counts.trials.T, weights, block)


def difficulties_given_model_totals(counts: Counts) -> ConditionalFit:
    """Estimate item difficulties given each model's number of right answers [And70]_.

    Models may have answered different items. The parameters are the M difficulties.

    Raises
    ------
    ValueError
        Scores between right and wrong, or no model with some answers right and some wrong.
    """
    fit = _fit_rows(counts.right, counts.trials, None, 1)
    return fit._replace(estimate=-fit.estimate)


class ConditionalFit(NamedTuple):
    """Conditional estimates of P parameters; with B weightings every field has B in front."""

    estimate: Tensor
    """Shape (P,): sums to 0 where finite; infinite for parameters all right or all wrong."""
    covariance: Tensor
    """Shape (P, P), from the exact Hessian; NaN where the estimate is not finite."""
    log_likelihood: Tensor
    iterations: int
    converged: Tensor


def _fit_rows(right: Tensor, trials: Tensor, weights: Tensor | None, block: int) -> ConditionalFit:
    """Fit the parameters of columns, conditional on the totals of rows."""
    if bool((right != right.round()).any()):
        msg = (
            "conditional likelihood needs whole numbers of right answers, and there is partial "
            "credit: take another estimator"
        )
        raise ValueError(msg)
    totals = _distinct_rows(right, trials)
    unit = right.new_ones(1, right.shape[0])
    start = smoothed_logit(right.sum(0), trials.sum(0))[None]
    whole = _solve(right, totals, unit, start - start.mean(), None)
    if weights is None:
        return _sliced(whole, 0)
    many = (weights if weights.ndim > 1 else weights[None]).to(right)
    start = whole.estimate.clamp(-_FAR, _FAR)
    angles = choose_angles(start, totals.trials, totals.totals)
    block = -(-block // _TOGETHER) * _TOGETHER
    parts = [_solve_padded(right, totals, w, start, angles) for w in split(many, block)]
    columns = list(zip(*parts, strict=True))
    estimate, covariance, log_likelihood = (torch.cat(column) for column in columns[:3])
    iterations, converged = max(columns[3]), torch.cat(columns[4])
    fit = ConditionalFit(estimate, covariance, log_likelihood, iterations, converged)
    return fit if weights.ndim > 1 else _sliced(fit, 0)


def _sliced(fit: ConditionalFit, keep: int | slice) -> ConditionalFit:
    """Some weightings of a fit; an integer also drops their axis."""
    return ConditionalFit(
        fit.estimate[keep],
        fit.covariance[keep],
        fit.log_likelihood[keep],
        fit.iterations,
        fit.converged[keep],
    )


def _solve_padded(
    right: Tensor, totals: _Totals, weights: Tensor, start: Tensor, angles: Angles
) -> ConditionalFit:
    """Fit a multiple of `_TOGETHER` weightings, so that results do not depend on their number.

    Vector instructions round differently from the scalar code for the rest of an array.
    """
    count = len(weights)
    padding = weights[-1:].expand(-count % _TOGETHER, -1)
    fit = _solve(right, totals, torch.cat([weights, padding]), start, angles)
    return _sliced(fit, slice(count))


def _solve(
    right: Tensor, totals: _Totals, weights: Tensor, start: Tensor, angles: Angles | None
) -> ConditionalFit:
    """Newton's method for B weightings (B, rows) at once; each stops by itself."""
    weights = weights * totals.informative
    held = _fixed(right, totals, weights)
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
    # Parameters that diverge have no finite estimate, although none is all right or all wrong.
    converged = ~active & (parameters * free).abs().lt(_FAR / 2).all(1)
    return ConditionalFit(
        torch.where(held == 0, parameters, held * torch.inf),
        _covariance(sums.covariance, free),
        (parameters * target).sum(1) - sums.log_esf,
        iterations,
        converged,
    )


class _Totals(NamedTuple):
    """The G distinct rows that are conditioned on: trials (G, P) and totals (G,)."""

    trials: Tensor
    totals: Tensor
    row_kind: Tensor
    """Index among the distinct rows of each informative row."""
    informative: Tensor
    """Shape (rows,): whether a row is neither all right nor all wrong."""


def _distinct_rows(right: Tensor, trials: Tensor) -> _Totals:
    """Group rows with the same trials and the same total."""
    totals = right.sum(1)
    informative = (totals > 0) & (totals < trials.sum(1))
    if not bool(informative.any()):
        msg = "nothing to compare: in every group of answers all are right, or all are wrong"
        raise ValueError(msg)
    if _alike(trials):
        kinds, row_kind = unique(totals[informative])
        return _Totals(trials[:1].repeat(len(kinds), 1), kinds, row_kind, informative)
    rows = torch.cat([trials, totals[:, None]], dim=1)[informative]
    kinds, row_kind = unique(rows, dim=0)
    return _Totals(kinds[:, :-1].contiguous(), kinds[:, -1].contiguous(), row_kind, informative)


def _alike(trials: Tensor) -> bool:
    """Whether all rows have the same trials."""
    return bool((trials == trials[:1]).all())


def _fixed(right: Tensor, totals: _Totals, weights: Tensor) -> Tensor:
    """1 for parts always right in rows that count, -1 for always wrong, 0 for others, (B, P).

    Fixing one part can make rows uninformative, and so fix another part.
    """
    trials = totals.trials[totals.row_kind]
    hits, count = right[totals.informative], weights[:, totals.informative]
    held = right.new_zeros(len(weights), right.shape[1])
    while True:
        free = (held == 0).to(right)
        left = free @ hits.T
        counts = count * ((left > 0) & (left < free @ trials.T))
        right_sum, all_sum = counts @ hits, counts @ trials
        extreme = (right_sum == all_sum).to(right) - (right_sum == 0).to(right)
        # A part without a trial that counts stays free: its information is regularised.
        fresh = torch.where((held == 0) & (all_sum > 0), extreme, held)
        if torch.equal(fresh, held):
            return held
        held = fresh


def _newton_step(gradient: Tensor, covariance: Tensor, free: Tensor) -> Tensor:
    """Newton step that keeps the sum of the free parameters; diagonal if `covariance` is."""
    if covariance.ndim == 2:
        step = gradient / covariance.clamp_min(1e-9)
        return (step - (step * free).sum(1, keepdim=True) / free.sum(1, keepdim=True)) * free
    return linalg.solve_ex(_regularised(covariance, free), gradient)[0]


def _regularised(covariance: Tensor, free: Tensor) -> Tensor:
    """Information of the free parameters, made invertible along their common shift."""
    scale = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    pairs = free[:, :, None] * free[:, None]
    return covariance * pairs + scale * pairs + torch.diag_embed((1 - free) * scale[:, 0])


def _covariance(information: Tensor, free: Tensor) -> Tensor:
    """Covariance of parameters that sum to 0."""
    pairs = free[:, :, None] * free[:, None]
    inverse = linalg.inv(_regularised(information, free)) * pairs
    mean = inverse.sum(2, keepdim=True) / free.sum(1)[:, None, None]
    middle = mean.sum(1, keepdim=True) / free.sum(1)[:, None, None]
    covariance = inverse - mean - mean.mT + middle
    return torch.where(pairs > 0, (covariance + covariance.mT) / 2, torch.nan)


def given_totals(
    parameters: Tensor,
    trials: Tensor,
    totals: Tensor,
    frequency: Tensor,
    angles: Angles,
    *,
    full: bool = True,
) -> GivenTotals:
    """Sum log γ and the moments of the parts given their totals, over G totals.

    γ are elementary symmetric functions, computed as Fourier inversions of tilted distributions.

    Parameters
    ----------
    parameters : shape (B, P)
        θ, or -b.
    trials : shape (G, P)
        Whole numbers, 0 for parts that are not in a total.
    totals : shape (G,)
    frequency : shape (B, G)
        How often each total occurs.
    angles
        From `choose_angles`.
    full
        Return covariances; otherwise variances.
    """
    b, p = parameters.shape
    shape = (b, p, p) if full else (b, p)
    log_esf, mean = parameters.new_zeros(b), torch.zeros_like(parameters)
    covariance = parameters.new_zeros(shape)
    # Blocks do not depend on B, so that results do not depend on the other parameter vectors.
    step = max(1, _BLOCK // (p * len(angles.angle)) // 16)
    for start in range(0, len(totals), step):
        part = slice(start, start + step)
        kinds, often = (trials[part], totals[part]), frequency[:, part].contiguous()
        block = _block_given_totals(parameters, kinds, often, angles, full=full)
        log_esf, mean = log_esf + block.log_esf, mean + block.mean
        covariance += block.covariance
    return GivenTotals(log_esf, mean, covariance)


class GivenTotals(NamedTuple):
    """Sums over G totals, weighted by their frequencies, for B parameter vectors."""

    log_esf: Tensor
    """Σ log γ, shape (B,)."""
    mean: Tensor
    """Σ of expected successes of each part given the total, shape (B, P)."""
    covariance: Tensor
    """Σ of their covariances, shape (B, P, P), or only of their variances, (B, P)."""


def _block_given_totals(
    parameters: Tensor,
    kinds: tuple[Tensor, Tensor],
    frequency: Tensor,
    angles: Angles,
    *,
    full: bool,
) -> GivenTotals:
    trials, totals = kinds
    tilt = tilts(parameters, trials, totals)
    logit = parameters[:, None] + tilt[..., None]
    p = torch.sigmoid(logit)
    turn = torch.polar(torch.ones_like(angles.angle), angles.angle)
    # (B, G, Q, P) from here on.
    factor = 1 + p[:, :, None] * (turn - 1)[:, None]
    phase = torch.polar(angles.weight, torch.zeros_like(angles.angle)) * torch.polar(
        torch.ones_like(angles.angle), -angles.angle * totals[:, None]
    )
    mass = _product(factor, trials[:, None]) * phase
    chance = mass.real.sum(-1)
    mass = mass / chance[..., None]
    share = p[:, :, None] * turn[:, None] / factor
    first = trials * (mass[..., None] * share).real.sum(2)
    log_esf = (trials * torch.nn.functional.softplus(logit)).sum(-1) - tilt * totals + chance.log()
    # Of n_i trials, n_i (n_i - 1) ordered pairs are of different ones.
    second = (mass[..., None] * share**2).real.sum(2)
    own = first - trials * second
    weighted = frequency[..., None] * first
    if not full:
        variance = frequency[..., None] * (trials**2 * second + own - first**2)
        return GivenTotals((frequency * log_esf).sum(1), weighted.sum(1), variance.sum(1))
    root = torch.sqrt(mass * frequency[..., None])[..., None] * (trials[:, None] * share)
    real, imaginary = (x.flatten(1, 2) for x in (root.real, root.imag))
    covariance = (
        real.mT @ real
        - imaginary.mT @ imaginary
        - weighted.mT @ first
        + torch.diag_embed((frequency[..., None] * own).sum(1))
    )
    return GivenTotals((frequency * log_esf).sum(1), weighted.sum(1), covariance)


def _product(factor: Tensor, power: Tensor) -> Tensor:
    """Product of powers over the last axis; without slow complex logarithms for single trials."""
    if bool((power <= 1).all()):
        return torch.where(power > 0, factor, 1).prod(-1)
    return torch.exp((power * torch.log(factor)).sum(-1))


class Angles(NamedTuple):
    """Angles ω in [0, π] and their weights, both of shape (Q,); the others follow by symmetry."""

    angle: Tensor
    weight: Tensor


def choose_angles(parameters: Tensor, trials: Tensor, totals: Tensor) -> Angles:
    """Choose the angles that the totals need: all roots of unity for few parts.

    Q equally spaced angles alias totals that differ by a multiple of Q; Q is chosen so that aliases
    are ten standard deviations or more away. Of these angles only the first matter, because the
    absolute value of the characteristic function is below exp(-variance (1 - cos ω)).
    """
    size = int(trials.sum(1).max())
    if size <= _FEW:
        return _equally_spaced(size + 1, size + 1, parameters)
    variance = torch.stack(_variances(parameters, trials, totals))
    widest, narrowest = float(variance.max()), float(variance.min())
    count = min(size + 1, math.ceil(10 * math.sqrt(widest)) + 40)
    reach = math.acos(max(-1.0, 1 - _NEGLIGIBLE / max(narrowest, 1e-300)))
    return _equally_spaced(count, math.ceil(reach * count / (2 * math.pi)) + 1, parameters)


def _variances(parameters: Tensor, trials: Tensor, totals: Tensor) -> list[Tensor]:
    """Smallest and largest variance of the totals, block by block."""
    extremes: list[Tensor] = []
    step = max(1, _BLOCK // parameters.numel())
    for part in (slice(k, k + step) for k in range(0, len(totals), step)):
        tilt = tilts(parameters, trials[part], totals[part])
        p = torch.sigmoid(parameters[:, None] + tilt[..., None])
        variance = (p * (1 - p) * trials[part]).sum(-1)
        extremes.append(torch.stack([variance.min(), variance.max()]))
    return extremes


def _equally_spaced(count: int, first: int, like: Tensor) -> Angles:
    """The `first` of `count` equally spaced angles, at most those up to π."""
    k = torch.arange(min(first, count // 2 + 1), dtype=like.dtype, device=like.device)
    own_mirror = (k == 0) | (2 * k == count)
    return Angles(2 * math.pi * k / count, torch.where(own_mirror, 1.0, 2.0).to(k.dtype) / count)


def tilts(parameters: Tensor, trials: Tensor, totals: Tensor) -> Tensor:
    """Tilt λ at which each total is close to its expectation, shape (B, G).

    Parameters
    ----------
    parameters : shape (B, P)
    trials : shape (G, P)
    totals : shape (G,)
        Above 0 and below the number of trials.
    """
    size = trials.sum(1)
    middle = parameters @ (trials / size[:, None]).T
    tilt = torch.logit(totals / size) - middle
    low, high = tilt - 40, tilt + 40
    for turn in range(1, 13):
        p = torch.sigmoid(parameters[:, None] + tilt[..., None])
        over = (p * trials).sum(-1) - totals
        low, high = torch.where(over < 0, tilt, low), torch.where(over < 0, high, tilt)
        newton = tilt - over / (p * (1 - p) * trials).sum(-1).clamp_min(1e-12)
        tilt = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        # Not in every turn: the host has to wait for the device.
        if turn % 4 == 0 and float(over.abs().max()) < _CLOSE:
            break
    return tilt


def fit_cml_items(matrix: ResponseMatrix, counts: Counts) -> IRTFit:
    """Abilities given item totals, then difficulties, as an `IRTFit`."""
    began = time.perf_counter()
    conditional = _run(abilities_given_item_totals, counts)
    free = torch.isfinite(conditional.estimate)
    ability, covariance = conditional.estimate.clone(), conditional.covariance.nan_to_num(0.0)
    easy = warm(counts.right[free].T, counts.trials[free].T, ability[free])
    carried = ((easy.lever @ covariance[free][:, free]) * easy.lever).sum(1)
    notes = [CML_ITEMS_NOTE]
    if not bool(free.all()):
        others = warm(counts.right[~free], counts.trials[~free], easy.value)
        ability[~free] = others.value
        covariance = covariance + torch.diag(
            torch.zeros_like(ability).masked_scatter(~free, others.variance)
        )
        notes.append(
            "models all right or all wrong have no conditional estimate: theirs is Warm's, items "
            "taken as known, and the others' abilities sum to 0"
        )
    return _record(
        matrix,
        (ability, covariance, easy.value, easy.variance + carried),
        estimator="cml-items",
        diagnostics=_diagnostics(conditional) | run_facts(counts, began),
        notes=(*counts.notes, *notes, *_search_notes(conditional)),
    )


def fit_cml(matrix: ResponseMatrix, counts: Counts) -> IRTFit:
    """Difficulties given model totals, then abilities, shifted to sum to 0, as an `IRTFit`."""
    began = time.perf_counter()
    m = counts.right.shape[1]
    check_room(6 * m * m, counts.right, f"the covariance of {counted(m, 'item')}")
    conditional = _run(difficulties_given_model_totals, counts)
    free = torch.isfinite(conditional.estimate)
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
    shift = able.value.mean()
    return _record(
        matrix,
        (able.value - shift, covariance, shift - difficulty, variance),
        estimator="cml",
        diagnostics=_diagnostics(conditional) | run_facts(counts, began),
        notes=(*counts.notes, *notes, *_search_notes(conditional)),
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


def _run(run: Callable[[Counts], ConditionalFit], counts: Counts) -> ConditionalFit:
    try:
        fit = run(counts)
    except ValueError as error:
        raise DesignError(str(error)) from error
    if not bool(torch.isfinite(fit.estimate).any()):
        msg = (
            "no finite estimate: models and items are in perfect order, each model right wherever "
            "one with fewer right answers is; take estimator mml-items"
        )
        raise DesignError(msg)
    return fit


def _diagnostics(fit: ConditionalFit) -> dict[str, Any]:
    return {
        "iterations": fit.iterations,
        "converged": bool(fit.converged),
        "log_likelihood": float(fit.log_likelihood),
        "likelihood": "conditional",
    }


def _search_notes(fit: ConditionalFit) -> list[str]:
    return [] if bool(fit.converged) else [not_converged(fit.iterations)]


def _record(
    matrix: ResponseMatrix, estimates: tuple[Tensor, Tensor, Tensor, Tensor], **rest: Any
) -> IRTFit:
    """Record abilities with their covariance, and the items' intercepts with their variances."""
    ability, covariance, intercept, variance = (as_array(part) for part in estimates)
    item_covariance = np.zeros((len(intercept), 2, 2))
    item_covariance[:, 1, 1] = variance
    found_all = Estimates(ability, covariance, np.ones_like(intercept), intercept, item_covariance)
    return irt_fit(
        matrix, found_all, item_model="rasch", identification="abilities sum to 0", **rest
    )
