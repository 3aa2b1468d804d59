"""Elementary symmetric functions: how likely is a total, whichever of the parts it is made of?

With independent successes of probability ``p_i = 1 / (1 + exp(-(θ_i + λ)))`` the total S obeys

    log γ_r(θ) = Σ n_i log(1 + exp(θ_i + λ)) - λ r + log P(S = r)

for any tilt λ. At the λ that makes r the mean total, P(S = r) is not small, and the contour
integral ``P(S = r) = mean over ω of Π (1 - p_i + p_i exp(iω))^{n_i} exp(-iωr)`` is exact to
rounding with a few dozen angles ω, for five parts or ten thousand. Its derivatives come with it.
The recursions in use take time of the square of the parts, and of their cube with derivatives.
"""

# Torch's stubs leave many functions untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

# |P(S = r)| takes in all angles that change it by more than exp(-_NEGLIGIBLE).
_NEGLIGIBLE = 50.0
# Parts up to which all angles are taken.
_FEW = 64
# Complex numbers at a time.
_BLOCK = 2**20


class Angles(NamedTuple):
    """Angles ω in [0, π] and their weights, both of shape (Q,); the others follow by symmetry."""

    angle: Tensor
    weight: Tensor


class GivenTotals(NamedTuple):
    """Sums over G totals, each as often as it occurs, for B parameter vectors."""

    log_esf: Tensor
    """Σ log γ, shape (B,)."""
    mean: Tensor
    """Σ of the expected successes of each part given its total, shape (B, P)."""
    covariance: Tensor
    """Σ of their covariance, shape (B, P, P); of their variance, (B, P), where only that is
    asked for."""


def tilts(parameters: Tensor, trials: Tensor, totals: Tensor) -> Tensor:
    """λ at which each total is about the expected one, shape (B, G).

    Parameters
    ----------
    parameters : shape (B, P)
    trials : shape (G, P)
    totals : shape (G,)
        More than 0 and less than all trials.
    """
    size = trials.sum(1)
    middle = parameters @ (trials / size[:, None]).T
    tilt = torch.logit(totals / size) - middle
    low, high = tilt - 40, tilt + 40
    for _ in range(12):
        p = torch.sigmoid(parameters[:, None] + tilt[..., None])
        over = (p * trials).sum(-1) - totals
        low, high = torch.where(over < 0, tilt, low), torch.where(over < 0, high, tilt)
        newton = tilt - over / (p * (1 - p) * trials).sum(-1).clamp_min(1e-12)
        tilt = torch.where((newton > low) & (newton < high), newton, (low + high) / 2)
    return tilt


def choose_angles(parameters: Tensor, trials: Tensor, totals: Tensor) -> Angles:
    """As many angles as the totals need: all roots of unity for few parts, else the first ones.

    Q equally spaced angles confuse totals that differ by a multiple of Q, of which the others lie
    ten standard deviations or more away; |Π ...| falls below exp(-variance (1 - cos ω)).
    """
    size = int(trials.sum(1).max())
    if size <= _FEW:
        return _angles(size + 1, size + 1, parameters)
    variance = torch.stack(_variances(parameters, trials, totals))
    widest, narrowest = float(variance.max()), float(variance.min())
    count = min(size + 1, math.ceil(10 * math.sqrt(widest)) + 40)
    reach = math.acos(max(-1.0, 1 - _NEGLIGIBLE / max(narrowest, 1e-300)))
    return _angles(count, math.ceil(reach * count / (2 * math.pi)) + 1, parameters)


def _variances(parameters: Tensor, trials: Tensor, totals: Tensor) -> list[Tensor]:
    """Least and largest variance of the totals, in blocks."""
    found: list[Tensor] = []
    step = max(1, _BLOCK // parameters.numel())
    for part in (slice(k, k + step) for k in range(0, len(totals), step)):
        tilt = tilts(parameters, trials[part], totals[part])
        p = torch.sigmoid(parameters[:, None] + tilt[..., None])
        variance = (p * (1 - p) * trials[part]).sum(-1)
        found.append(torch.stack([variance.min(), variance.max()]))
    return found


def _angles(count: int, first: int, like: Tensor) -> Angles:
    """The `first` of `count` equally spaced angles, at most those up to π."""
    k = torch.arange(min(first, count // 2 + 1), dtype=like.dtype, device=like.device)
    own_mirror = (k == 0) | (2 * k == count)
    return Angles(2 * math.pi * k / count, torch.where(own_mirror, 1.0, 2.0).to(k.dtype) / count)


def given_totals(
    parameters: Tensor,
    trials: Tensor,
    totals: Tensor,
    frequency: Tensor,
    angles: Angles,
    *,
    full: bool = True,
) -> GivenTotals:
    """Sum log γ and the moments of the parts given the totals, over G totals.

    Parameters
    ----------
    parameters : shape (B, P)
        θ, or -b.
    trials : shape (G, P)
        Whole numbers, 0 for parts that a total does not hold.
    totals : shape (G,)
    frequency : shape (B, G)
        How often each total occurs.
    angles
        From `choose_angles`.
    full
        Covariances; otherwise variances.
    """
    b, p = parameters.shape
    shape = (b, p, p) if full else (b, p)
    log_esf, mean = parameters.new_zeros(b), torch.zeros_like(parameters)
    covariance = parameters.new_zeros(shape)
    # Blocks do not depend on B, so that a parameter vector's sums do not depend on its neighbours.
    step = max(1, _BLOCK // (p * len(angles.angle)) // 16)
    for start in range(0, len(totals), step):
        part = slice(start, start + step)
        kinds, often = (trials[part], totals[part]), frequency[:, part].contiguous()
        block = _block(parameters, kinds, often, angles, full=full)
        log_esf, mean = log_esf + block.log_esf, mean + block.mean
        covariance += block.covariance
    return GivenTotals(log_esf, mean, covariance)


def _product(factor: Tensor, power: Tensor) -> Tensor:
    """Over the last axis. Complex logarithms are slow, and single trials need none."""
    if bool((power <= 1).all()):
        return torch.where(power > 0, factor, 1).prod(-1)
    return torch.exp((power * torch.log(factor)).sum(-1))


def _block(
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
