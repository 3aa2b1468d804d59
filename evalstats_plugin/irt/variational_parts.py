"""What variational fits share: options, priors, the bound of a cell, results."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.acceleration import Solution
from evalstats_plugin.irt.data import Counts

VariationalKind = Literal["rasch", "2pl"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a fit is done."""

    family: Literal["mean-field", "full-rank"] = "mean-field"
    """``"full-rank"`` keeps all covariances of abilities and items; of the Rasch model only."""
    prior: Literal["hierarchical", "vague"] = "hierarchical"
    """Distributions of items (and of a Rasch model's abilities) estimated with the fit, as in
    py-irt's hierarchical models; or θ ~ N(0, 1), d ~ N(0, 10³), a ~ N(1, 1), as py-irt's vague
    priors were meant, in which a variance of 10³ was passed as a precision [LWY19]_."""
    tolerance: float = 1e-7
    max_steps: int = 1000


class Variational(NamedTuple):
    """Means and covariances of the normal distribution found; abilities sum to 0."""

    ability: Tensor
    """Shape (N,)."""
    covariance: Tensor
    """Shape (N, N)."""
    discrimination: Tensor
    """Shape (M,)."""
    intercept: Tensor
    item_covariance: Tensor
    """Shape (M, 2, 2), of discrimination and intercept."""
    hyperparameters: dict[str, float]
    bound: float
    """On the log-likelihood with abilities and items integrated out, from below."""
    found: Solution


class Prior(NamedTuple):
    """θ ~ N(0, τ²), a ~ N(μ_a, σ_a²), d ~ N(μ, σ²): means and variances."""

    ability: Tensor
    mean: Tensor
    """Shape (2,), of a and d."""
    variance: Tensor


class Moments(NamedTuple):
    """Of q: θ (N,), items (M, 2) and (M, 2, 2)."""

    ability: Tensor
    variance: Tensor
    items: Tensor
    spread: Tensor


def mean_precision(trials: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """Mean Pólya–Gamma number of each cell given E ψ², and log(2 cosh) of the bound."""
    c = square.clamp_min(1e-12).sqrt()
    return trials * torch.tanh(c / 2) / (2 * c), c / 2 + torch.nn.functional.softplus(-c)


def start_items(counts: Counts) -> Tensor:
    """Logits of the items' shares of right answers, shape (M,)."""
    right, trials = counts.right.sum(0), counts.trials.sum(0)
    return torch.logit((right + 0.5) / (trials + 1))


def start_abilities(counts: Counts) -> Tensor:
    """Logits of the models' shares of right answers, shape (N,), of mean 0."""
    right, trials = counts.right.sum(1), counts.trials.sum(1)
    ability = torch.logit((right + 0.5) / (trials + 1))
    return ability - ability.mean()


def divergence(mean: Tensor, variance: Tensor, at: Tensor, prior: Tensor) -> Tensor:
    """KL of normal distributions with equal determinant terms left out: Σ of its square parts."""
    return 0.5 * (((mean - at) ** 2 + variance) / prior + torch.log(prior) - 1).sum()


def result(
    q: Moments, covariance: Tensor, prior: Prior, kind: VariationalKind, found: Solution
) -> Variational:
    """From what was found to abilities that sum to 0."""
    n = len(q.ability)
    shift = q.ability.mean()
    centre = torch.eye(n).to(covariance) - 1 / n
    turn = torch.eye(2).to(q.items)
    turn[1, 0] = shift
    items = q.items @ turn.T
    names = {
        "ability_sd": math.sqrt(float(prior.ability)),
        "intercept_mean": float(prior.mean[1]),
        "intercept_sd": math.sqrt(float(prior.variance[1])),
    }
    if kind == "2pl":
        names["discrimination_mean"] = float(prior.mean[0])
        names["discrimination_sd"] = math.sqrt(float(prior.variance[0]))
    return Variational(
        q.ability - shift,
        centre @ covariance @ centre,
        items[:, 0],
        items[:, 1],
        turn @ q.spread @ turn.T,
        names,
        found.objective,
        found,
    )
