"""Gibbs sampling of Bradley–Terry ratings with Pólya–Gamma augmentation [PSW13]_.

Given one Pólya–Gamma variable per cell of contests, the ratings are normal, so there is no step
size and no rejection. All chains are one batch of arrays. Ties count half for each.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import CountedContests
from evalstats_plugin.ranking.ratings.likelihood import Prior
from evalstats_plugin.runtime.torch import (
    MANY,
    check_memory,
    generator_of,
    polya_gamma,
    resolve_device,
)
from evalstats_plugin.stats.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class GibbsOptions:
    """Number of draws, and the device."""

    chains: int = 4
    draws: int = 1000
    """Kept draws of each chain."""
    warm_up: int = 200
    """Discarded draws of each chain."""
    device: str | torch.device = "auto"


class Draws(NamedTuple):
    """K chains of S draws."""

    parameters: FloatArray
    """Ratings, and the position effect if there is one, shape (K, S, p)."""
    prior_sd: FloatArray | None
    """Standard deviation of the ratings if it is estimated, shape (K, S)."""


class _Model(NamedTuple):
    """Cells and the prior, on the device; chains are the first axis of all draws."""

    n: int
    code: Tensor
    """first × n + second of each cell; all different."""
    first: Tensor
    second: Tensor
    many: Tensor
    """Number of contests of cells with many, 0 for others, shape (cells,)."""
    single: Tensor
    """1 for each contest of the other cells, padded with 0, shape (cells, most)."""
    pull: Tensor
    """Linear term of the likelihood, shape (p,)."""
    mean: Tensor
    precision: Tensor
    estimated: bool
    """Whether the ratings' prior is N(mean, s²) and s is drawn, too."""


def gibbs(
    found: CountedContests,
    prior: Prior,
    *,
    estimated: bool,
    options: GibbsOptions,
    rng: np.random.Generator,
) -> Draws:
    """Draw from the posterior under a normal prior.

    Parameters
    ----------
    estimated
        Whether ratings have a common standard deviation s with prior half-Cauchy(0, 1), instead of
        the prior's precision.

    Raises
    ------
    DesignError
        Weights that are not whole numbers, or not enough memory.
    """
    device = resolve_device(options.device)
    model = _model(found, prior, estimated=estimated, device=device)
    p, k = found.design.size, options.chains
    needed = (
        8
        * k
        * (12 * model.single.numel() + 8 * len(model.code) + 4 * p * p + options.draws * (p + 1))
    )
    check_memory(needed, device, f"{k} chains of {p} parameters")
    generator = generator_of(rng, device)
    sd = model.pull.new_ones(k, 1)
    theta = model.mean + 0.5 * _normal(model.pull.expand(k, -1), generator)
    kept = model.pull.new_empty(options.draws, k, p)
    sds = model.pull.new_empty(options.draws, k)
    for sweep in range(-options.warm_up, options.draws):
        theta = _sweep(model, theta, sd, generator)
        if estimated:
            sd = _spread(theta[:, : model.n] - model.mean[: model.n], sd, generator)
        if sweep >= 0:
            kept[sweep], sds[sweep] = theta, sd[:, 0]
    chains = kept.transpose(0, 1).contiguous().cpu().numpy()
    return Draws(chains, sds.T.contiguous().cpu().numpy() if estimated else None)


def _model(
    found: CountedContests, prior: Prior, *, estimated: bool, device: torch.device
) -> _Model:
    design, weights = found.design, found.weights()
    won, lost = weights.won[:, 0], weights.lost[:, 0]
    trials = won + lost
    if (np.abs(trials - np.round(trials)) > 1e-9).any():
        msg = (
            "weights that are not whole numbers found, expected whole ones for estimator='gibbs': "
            "take estimator='laplace'"
        )
        raise DesignError(msg)
    pull = design.summed(((won - lost) / 2)[:, None], np.zeros((len(won), 1)))[:, 0]

    def there(values: FloatArray) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float64, device=device)

    first, second = (torch.as_tensor(x, device=device) for x in (design.first, design.second))
    code = first * design.n + second
    many = np.where(trials > MANY, np.round(trials), 0)
    few = np.where(trials > MANY, 0, np.round(trials))
    single = (np.arange(int(few.max())) < few[:, None]).astype(np.float64)
    return _Model(design.n, code, first, second, there(many), there(single), there(pull),
                  there(prior.mean), there(prior.precision), estimated)  # fmt: skip


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _sweep(model: _Model, theta: Tensor, sd: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the Pólya–Gamma variables, then all parameters jointly."""
    n, with_position = model.n, theta.shape[1] > model.n
    x = theta[:, model.first] - theta[:, model.second]
    if with_position:
        x = x + theta[:, n:]
    omega = polya_gamma(model.many.expand_as(x), x, generator)
    each = x[..., None].expand(-1, -1, model.single.shape[1])
    omega = omega + polya_gamma(model.single.expand_as(each), each, generator).sum(2)
    # Assigned instead of scattered with addition: the same order of sums on every device.
    met = omega.new_zeros(len(omega), n * n)
    met[:, model.code] = omega
    met = met.view(-1, n, n)
    precision = model.precision.expand(len(omega), -1, -1).clone()
    if model.estimated:
        precision.diagonal(dim1=1, dim2=2)[:, :n] = sd**-2
    held = (precision @ model.mean[:, None])[..., 0]
    both = met + met.mT
    precision[:, :n, :n] += torch.diag_embed(both.sum(2)) - both
    if with_position:
        across = met.sum(2) - met.sum(1)
        precision[:, :n, n] += across
        precision[:, n, :n] += across
        precision[:, n, n] += omega.sum(1)
    factor = torch.linalg.cholesky(precision)
    centre = torch.cholesky_solve((model.pull + held)[..., None], factor)
    noise = _normal(centre, generator)
    return (centre + torch.linalg.solve_triangular(factor.mT, noise, upper=True))[..., 0]


def _spread(away: Tensor, sd: Tensor, generator: torch.Generator) -> Tensor:
    """Draw s given ratings about their mean: half-Cauchy(0, 1), as two inverse gammas [MS16]_."""
    n, one = away.shape[1], sd.new_ones(sd.shape)
    u = torch.rand(sd.shape, generator=generator, dtype=sd.dtype, device=sd.device)
    auxiliary = (1 + sd**-2) / -torch.log(u.clamp_min(1e-300))
    # A gamma variable of shape (n + 1)/2 is half the sum of n + 1 squared normals.
    gamma = _normal(one.expand(-1, n + 1), generator).square().sum(1, keepdim=True) / 2
    return ((away.square().sum(1, keepdim=True) / 2 + 1 / auxiliary) / gamma).sqrt()
