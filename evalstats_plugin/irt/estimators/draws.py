"""Posterior draws of hierarchical Rasch and 2PL models, by Gibbs sampling.

Rasch: θ ~ N(0, τ²), intercept d ~ N(μ, σ²). 2PL: θ ~ N(0, 1), d ~ N(μ, σ²) and discrimination
a ~ N(μ_a, σ_a²), of either sign. Priors: μ ~ N(0, 3²), τ ~ half-normal(2), σ ~ half-normal(3),
μ_a ~ N(1, 1), σ_a ~ half-normal(1). All chains are one batch of arrays.

* `gibbs`: with one Pólya–Gamma number per cell [PSW13]_, abilities are normal given items and items
  normal given abilities; a sweep has no step size and rejects nothing
* `fit_mcmc`: mean and covariance of the draws as an `IRTFit`
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.methods import McmcOptions
from evalstats_plugin.irt.model.arrays import as_array
from evalstats_plugin.irt.model.data import Counts, smoothed_logit
from evalstats_plugin.irt.model.fit import IRTFit, RaschOr2PL, irt_fit, run_facts
from evalstats_plugin.runtime.chains import chain_agreement, run_chains
from evalstats_plugin.runtime.torch import check_memory, generator_of, normal, polya_gamma, uniform

GIBBS_NOTE = (
    "posterior draws: with 10 models and 500 items that discriminate alike, abilities agreed with "
    "mml-items to .03 and their errors to 1 %, at 400 times its cost"
)

# Prior standard deviation of μ, and points at which the density of a standard deviation is
# tabulated.
_MEAN_SD = 3.0

_TABLE = 400


class Draws(NamedTuple):
    """K chains of S draws."""

    ability: Tensor
    """Shape (K, S, N); each draw sums to 0, and items are shifted with it."""
    hyper: dict[str, Tensor]
    """By name, each of shape (K, S)."""
    discrimination: Tensor
    """Posterior means, shape (M,)."""
    intercept: Tensor
    item_covariance: Tensor
    """Posterior covariance of discrimination and intercept, shape (M, 2, 2)."""


def gibbs(
    counts: Counts, kind: RaschOr2PL, rng: np.random.Generator, options: McmcOptions | None = None
) -> Draws:
    """Draw from the posterior by Gibbs sampling.

    Raises
    ------
    DesignError
        Trials are not whole numbers, which Pólya–Gamma numbers need (right answers may be
        fractions), or not enough memory.
    """
    options = options or McmcOptions()
    if bool((counts.trials != counts.trials.round()).any()):
        raise DesignError("mcmc needs whole numbers of trials: take another estimator")
    device, (n, m) = counts.right.device, counts.right.shape
    needed = 8 * options.chains * (12 * n * m + options.draws * n)
    check_memory(needed, device, f"{options.chains} chains of {n} models × {m} items")
    generator = generator_of(rng, "chains of an item response model", device)
    start = _start(counts, kind, options.chains, generator)

    def sweep(state: _State, _: int) -> _State:
        return _sweep(counts, kind, state, generator)

    kept = counts.right.new_empty(options.draws, options.chains, n)
    hyper = counts.right.new_empty(options.draws, 5, options.chains)
    sums = counts.right.new_zeros(5, m)
    for k, state in enumerate(run_chains(start, sweep, options)):
        shift = state.ability.mean(1, keepdim=True)
        kept[k] = state.ability - shift
        hyper[k] = torch.stack([x[:, 0] for x in state[3:]])
        a, d = state.slope, state.intercept + state.slope * shift
        sums += torch.stack([x.sum(0) for x in (a, d, a * a, a * d, d * d)])
    names = ("ability_sd", "intercept_mean", "intercept_sd")
    names += ("discrimination_mean", "discrimination_sd")
    named = dict(zip(names, hyper.permute(1, 2, 0), strict=True))
    estimated = names[:3] if kind == "rasch" else names[1:]
    a, d, aa, ad, dd = sums / (options.draws * options.chains)
    rows = ((aa - a * a, ad - a * d), (ad - a * d, dd - d * d))
    covariance = torch.stack([torch.stack(row, 1) for row in rows], 1)
    chains = kept.transpose(0, 1).contiguous()
    return Draws(chains, {name: named[name] for name in estimated}, a, d, covariance)


class _State(NamedTuple):
    """State of the Gibbs sampler: θ (K, N), a and d (K, M), hyper-parameters (K, 1)."""

    ability: Tensor
    slope: Tensor
    intercept: Tensor
    ability_sd: Tensor
    mean: Tensor
    sd: Tensor
    slope_mean: Tensor
    slope_sd: Tensor


def _start(counts: Counts, kind: RaschOr2PL, chains: int, generator: torch.Generator) -> _State:
    """Start values that are more dispersed than the posterior."""
    right, trials = counts.right, counts.trials
    ability = smoothed_logit(right.sum(1), trials.sum(1))
    item = smoothed_logit(right.sum(0), trials.sum(0))
    ones = right.new_ones(chains, 1)

    def dispersed(centre: Tensor) -> Tensor:
        return centre + 0.5 * normal(centre.expand(chains, -1), generator)

    slope = right.new_ones(chains, right.shape[1])
    if kind == "2pl":
        slope = slope * torch.exp(0.3 * normal(slope, generator))
    middle = item.mean() * ones
    ability = dispersed(ability - ability.mean())
    return _State(ability, slope, dispersed(item), ones, middle, ones, ones, 0.5 * ones)


def _sweep(counts: Counts, kind: RaschOr2PL, state: _State, generator: torch.Generator) -> _State:
    """Draw every parameter once, given the others."""
    logit = state.ability[..., None] * state.slope[:, None] + state.intercept[:, None]
    omega = polya_gamma(counts.trials.expand_as(logit), logit, generator)
    kappa = counts.right - counts.trials / 2
    a, d = state.slope, state.intercept
    precision = (omega @ (a * a)[..., None])[..., 0] + state.ability_sd**-2
    pull = a @ kappa.T - (omega @ (a * d)[..., None])[..., 0]
    ability = pull / precision + normal(pull, generator) / precision.sqrt()
    state = _draw_items(kind, state._replace(ability=ability), (omega, kappa), generator)
    state = _shift_move(state, generator)
    if kind == "2pl":
        state = _scale_move(state, generator)
    mean = _draw_mean(state.intercept, state.sd, (0.0, _MEAN_SD), generator)
    state = state._replace(mean=mean, sd=_draw_sd(state.intercept - mean, 3.0, generator))
    if kind == "rasch":
        return state._replace(ability_sd=_draw_sd(state.ability, 2.0, generator))
    slope_mean = _draw_mean(state.slope, state.slope_sd, (1.0, 1.0), generator)
    slope_sd = _draw_sd(state.slope - slope_mean, 1.0, generator)
    return state._replace(slope_mean=slope_mean, slope_sd=slope_sd)


def _draw_items(
    kind: RaschOr2PL, state: _State, cells: tuple[Tensor, Tensor], generator: torch.Generator
) -> _State:
    omega, kappa = cells
    theta = state.ability[:, None]
    held = omega.sum(1) + state.sd**-2
    pull = kappa.sum(0) + state.mean * state.sd**-2
    across = (theta @ omega)[:, 0]
    if kind == "rasch":
        pull = pull - across
        return state._replace(intercept=pull / held + normal(pull, generator) / held.sqrt())
    steep = (theta.square() @ omega)[:, 0] + state.slope_sd**-2
    by_slope = state.ability @ kappa + state.slope_mean * state.slope_sd**-2
    # The 2 × 2 normal, d first and then a given d.
    precision = held - across**2 / steep
    centre = (pull - across / steep * by_slope) / precision
    d = centre + normal(precision, generator) / precision.sqrt()
    a = (by_slope - across * d) / steep + normal(precision, generator) / steep.sqrt()
    return state._replace(slope=a, intercept=d)


def _shift_move(state: _State, generator: torch.Generator) -> _State:
    """Shift abilities up, and intercepts down: the likelihood does not change.

    Single draws would mix slowly in this direction. Residuals d - μ change by the share a - μ_a.
    The mean of the intercepts moves too, but is drawn anew next, whatever it was.
    """
    odd, above = state.slope - state.slope_mean, state.intercept - state.mean
    count, m = state.ability.shape[1], state.slope_mean
    precision = count * state.ability_sd**-2 + (m / _MEAN_SD) ** 2
    precision = precision + (odd * odd).sum(1, keepdim=True) * state.sd**-2
    pull = (odd * above).sum(1, keepdim=True) * state.sd**-2 + m * state.mean / _MEAN_SD**2
    pull = pull - state.ability.sum(1, keepdim=True) * state.ability_sd**-2
    shift = pull / precision + normal(pull, generator) / precision.sqrt()
    return state._replace(
        ability=state.ability + shift,
        intercept=state.intercept - state.slope * shift,
    )


def _scale_move(state: _State, generator: torch.Generator) -> _State:
    """Scale abilities up, and discriminations and their spread down, in a 2PL [LS00]_.

    Their mean is drawn anew next, whatever it was.
    """
    count, square = state.ability.shape[1], state.ability.square().sum(1, keepdim=True)
    table, step = _table(count, square)
    inverse = torch.exp(-table)
    log_density = (count - 2) * table - square / 2 * inverse**-2
    log_density = log_density - (state.slope_mean * inverse - 1).square() / 2
    log_density = log_density - (state.slope_sd * inverse).square() / 2
    scale = torch.exp(_draw_from_table(table, log_density, step, generator))
    return state._replace(
        ability=state.ability * scale,
        slope=state.slope / scale,
        slope_sd=state.slope_sd / scale,
    )


def _draw_mean(
    values: Tensor, sd: Tensor, prior: tuple[float, float], generator: torch.Generator
) -> Tensor:
    precision = values.shape[1] * sd**-2 + prior[1] ** -2
    pull = values.sum(1, keepdim=True) * sd**-2 + prior[0] * prior[1] ** -2
    return pull / precision + normal(pull, generator) / precision.sqrt()


def _draw_sd(away: Tensor, prior: float, generator: torch.Generator) -> Tensor:
    """Draw a standard deviation given values of mean 0, under a half-normal prior."""
    count, square = away.shape[1], away.square().sum(1, keepdim=True).clamp_min(1e-12)
    table, step = _table(count, count**2 / square)
    # On the log scale, hence count - 1.
    log_density = (1 - count) * table - square / 2 * torch.exp(-2 * table)
    log_density = log_density - torch.exp(2 * table) / (2 * prior**2)
    return torch.exp(_draw_from_table(table, log_density, step, generator))


def _table(count: int, square: Tensor) -> tuple[Tensor, float]:
    """Logarithms around ½ log(count / square) that cover the scale of `count` values; spacing."""
    width = 10 / (2 * count) ** 0.5
    table = torch.linspace(-width, width, _TABLE, dtype=square.dtype, device=square.device)
    return 0.5 * torch.log(count / square) + table, 2 * width / (_TABLE - 1)


def _draw_from_table(
    table: Tensor, log_density: Tensor, step: float, generator: torch.Generator
) -> Tensor:
    """Draw by inverting the distribution function, uniformly within a cell of the table."""
    share = torch.softmax(log_density, dim=1).cumsum(1)
    like = share[:, :1].contiguous()
    u, inside = uniform(like, generator), uniform(like, generator)
    place = torch.searchsorted(share, u * share[:, -1:]).clamp_max(_TABLE - 1)
    return table.gather(1, place) + (inside - 0.5) * step


def fit_mcmc(
    matrix: ResponseMatrix,
    counts: Counts,
    item_model: RaschOr2PL,
    options: McmcOptions,
    rng: np.random.Generator,
) -> IRTFit:
    """Posterior mean and covariance of draws, as an `IRTFit`.

    Raises
    ------
    DesignError
        Trials that are not whole numbers, or not enough memory.
    """
    began = time.perf_counter()
    draws = gibbs(counts, item_model, rng, options)
    ability = as_array(draws.ability).reshape(-1, counts.right.shape[0])
    hyper = {name: float(value.mean()) for name, value in draws.hyper.items()}
    agreement = chain_agreement(draws.ability.cpu().numpy())
    unit_scale = item_model == "2pl"
    notes = [*counts.notes, GIBBS_NOTE, *agreement.notes]
    means = draws.hyper.get("discrimination_mean")
    turned = 0.0 if means is None else float((means < 0).double().mean())
    if turned > 0.01:
        notes.append(
            f"in {100 * turned:.0f} % of the draws the scale is turned round: too few answers to "
            "tell able from unable, and means over the draws mix both"
        )
    return irt_fit(
        matrix,
        ability=torch.as_tensor(ability.mean(axis=0)),
        covariance=torch.as_tensor(np.atleast_2d(np.cov(ability, rowvar=False))),
        discrimination=draws.discrimination,
        intercept=draws.intercept,
        item_covariance=draws.item_covariance,
        ability_draws=np.moveaxis(as_array(draws.ability), 2, 0).copy(),
        item_model=item_model,
        estimator="mcmc",
        identification=f"abilities sum to 0{', under ability ~ N(0, 1)' if unit_scale else ''}",
        hyperparameters={"ability_sd": 1.0, **hyper},
        diagnostics={
            "iterations": options.warm_up + options.draws,
            "chains": options.chains,
            "draws": options.draws,
            **agreement.diagnostics,
            **run_facts(counts, began),
        },
        notes=tuple(notes),
    )
