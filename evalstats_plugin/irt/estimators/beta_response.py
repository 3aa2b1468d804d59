"""The Beta response model, for scores anywhere in [0, 1] [ND07]_.

A score is Beta(μφ, (1 - μ)φ) with logit μ = a θ + d: its mean follows the ability as the chance of
a right answer does, and its variance is μ(1 - μ) / (1 + φ). Epochs are scores of their own.

Beta densities need scores strictly between 0 and 1. Where any score is exactly 0 or 1, all n scores
are shrunk, y to (y (n - 1) + ½) / n [SV06]_. With many exact zeros and ones the quasi-likelihood of
fractional `Counts` is the better model. It needs the mean only; it predicted held-out scores as
well where they were Beta, and better elsewhere. The Beta model adds the spread of scores.

Abilities and items are estimated together, under weak priors of the items. Joint estimates
overestimate the precision φ by about N / (N - 2) with N scores an item; Cox and Reid's adjustment
[CR87]_ for the parameters estimated from the same scores corrects most of that. With 5 to 10 models
and 60 to 500 items, 95 % intervals of ability differences covered .92 to .94 (Rasch) and .90 to .94
(2PL).

* `beta_scores`: sufficient statistics; `beta_fit`: the fit; `fit_beta`: the same as an `IRTFit`
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.fitted import (
    Estimates,
    RaschOr2PL,
    as_array,
    irt_fit,
    not_converged,
    run_facts,
)
from evalstats_plugin.irt.estimators.optimise import Minimum, complement, minimise
from evalstats_plugin.irt.model.data import PARTIAL, Counts, components
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.runtime.torch import check_memory, resolve_device
from evalstats_plugin.stats.arrays import FloatArray

BETA_NOTE = (
    "Beta model: with 5 to 10 models, 95 % intervals cover .92 to .94 (rasch), .90 to .94 (2pl); "
    "held-out scores are predicted no better than by the quasi-likelihood, and worse with many "
    "exact 0 and 1"
)

MANY_EXACT = 0.05
"""Share of scores of exactly 0 or 1 from which on a note says that they are not from a Beta."""

# Largest gradient of `minimise`, with parameters in units of their standard errors.
_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class BetaOptions:
    """Standard deviations of normal priors, and the search."""

    intercept_sd: float = 3.0
    """Around 0."""
    discrimination_sd: float = 0.5
    """Around their mean."""
    precision_sd: float = 0.5
    """Of log φ, around its mean."""
    adjusted: bool = True
    """Use Cox and Reid's adjustment of φ."""
    max_steps: int = 1000


def beta_scores(
    scores: FloatArray, *, device: str | torch.device = "auto", dtype: torch.dtype = torch.float64
) -> BetaScores:
    """Sufficient statistics of scores (N, M, R), NaN where missing.

    Raises
    ------
    ValueError
        Scores outside [0, 1], or not of three axes.
    DesignError
        Items or models without scores, or not connected to the others.
    """
    if scores.ndim != 3 or bool(((scores < 0) | (scores > 1)).any()):
        msg = f"found scores of shape {scores.shape}, expected (N, M, R) with values in [0, 1]"
        raise ValueError(msg)
    there = ~np.isnan(scores)
    groups, items = components(np.asarray(there.any(axis=2)))
    if groups.max() > 0 or items.min() < 0:
        msg = (
            f"found {int(groups.max()) + 1} groups of models without a common item and "
            f"{int((items < 0).sum())} items without scores, expected 1 and 0: fit each group alone"
        )
        raise DesignError(msg)
    count = int(there.sum())
    exact = int(((scores == 0) | (scores == 1)).sum())
    inwards = 0.5 / count if exact else 0.0
    drawn = inwards + (1 - 2 * inwards) * np.where(there, scores, 0.5)
    parts = (np.log(drawn), np.log1p(-drawn), np.ones_like(drawn))
    place = resolve_device(device)
    one, two, trials = (torch.as_tensor((there * x).sum(axis=2)).to(place, dtype) for x in parts)
    return BetaScores(one, two, trials, inwards, exact / count)


class BetaScores(NamedTuple):
    """Sufficient statistics of a Beta likelihood, each of shape (N, M)."""

    log_score: Tensor
    """Σ over epochs of log y, 0 where a cell is missing."""
    log_rest: Tensor
    """Σ over epochs of log(1 - y)."""
    trials: Tensor
    """Number of epochs scored."""
    inwards: float
    """Distance by which scores of 0 and 1 were moved inwards; 0 if there were none."""
    exact: float
    """Share of scores of exactly 0 or 1."""


def beta_fit(
    scores: BetaScores, kind: RaschOr2PL = "2pl", options: BetaOptions | None = None
) -> BetaFit:
    """Fit abilities, items and their precisions by L-BFGS.

    Raises
    ------
    ValueError
        Fewer than 2 models, of a 2PL fewer than 3.
    DesignError
        Not enough memory.
    """
    options = options or BetaOptions()
    (n, m), least = scores.trials.shape, 2 if kind == "rasch" else 3
    if n < least:
        msg = f"{n} models found, expected {least} or more for item model {kind!r}"
        raise ValueError(msg)
    check_memory(8 * 30 * n * m, scores.trials.device, f"{n} models × {m} items")
    problem = _Problem(scores, kind, options)
    start = problem.start()
    # L-BFGS needs comparable scales: units are the standard errors at the start.
    unit = problem.conditional_errors(start)

    def objective(at: Tensor) -> tuple[Tensor, Tensor]:
        point = (at * unit).detach().requires_grad_()
        value = -problem.log_posterior(point)
        (slope,) = torch.autograd.grad(value.sum(), point)
        return value.detach(), slope * unit

    found = minimise(
        objective, (start / unit)[None], tolerance=_TOLERANCE, max_steps=options.max_steps
    )
    return problem.summary(found._replace(at=found.at * unit))


class BetaFit(NamedTuple):
    """A fit of the Beta response model."""

    ability: Tensor
    """Shape (N,), sums to 0; a 2pl's have mean square 1."""
    covariance: Tensor
    """Shape (N, N): from the expected information of all parameters together."""
    discrimination: Tensor
    """Shape (M,); 1 in a Rasch model."""
    intercept: Tensor
    precision: Tensor
    """φ, shape (M,)."""
    item_covariance: Tensor
    """Of intercept, discrimination and log φ, shape (M, 3, 3); 0 for what is fixed."""
    log_likelihood: Tensor
    steps: int
    converged: bool

    def expected(self, inwards: float = 0.0) -> Tensor:
        """Mean scores (N, M), with the shrinkage of the scores undone."""
        mean = torch.sigmoid(self.ability[:, None] * self.discrimination + self.intercept)
        return ((mean - inwards) / (1 - 2 * inwards)).clamp(0, 1)


class _Problem:
    """Penalised likelihood on flat points (B, P): θ, d, log φ, ψ and, in a 2PL, a."""

    def __init__(self, scores: BetaScores, kind: RaschOr2PL, options: BetaOptions) -> None:
        self.scores, self.two_pl, self.options = scores, kind == "2pl", options
        n, m = scores.trials.shape
        self.sizes = [n, m, m, 1, *([m] if self.two_pl else [])]

    def unpack(self, at: Tensor) -> _Parameters:
        """Parameters, with abilities centred and, in a 2PL, scaled."""
        ability, intercept, log_precision, middle, *rest = at.split(self.sizes, -1)
        ability = ability - ability.mean(-1, keepdim=True)
        if self.two_pl:
            ability = ability / ability.square().mean(-1, keepdim=True).sqrt()
        slope = rest[0] if rest else torch.ones_like(intercept)
        return _Parameters(ability, intercept, slope, log_precision, middle)

    def start(self) -> Tensor:
        # Halved, because it varies far more than the logit of a mean.
        logit = (self.scores.log_score - self.scores.log_rest) / 2
        trials = self.scores.trials
        ability, item = (logit.sum(k) / trials.sum(k).clamp_min(1) for k in (1, 0))
        ability = ability - ability.mean()
        precision = torch.full_like(item, 1.5)
        slope = [torch.ones_like(item) * ability.std(correction=0)] if self.two_pl else []
        # Breaks the tie where all models are equal.
        ability = ability + 1e-3 * torch.linspace(-1, 1, len(ability)).to(ability)
        return torch.cat([ability, item, precision, precision[:1], *slope])

    def log_likelihood(self, p: _Parameters) -> Tensor:
        mean, phi = self._mean(p), p.log_precision.exp()[..., None, :]
        one, two = mean * phi, (1 - mean) * phi
        constant = torch.lgamma(phi) - torch.lgamma(one) - torch.lgamma(two)
        kernel = (one - 1) * self.scores.log_score + (two - 1) * self.scores.log_rest
        return (self.scores.trials * constant + kernel).sum((-2, -1))

    def _mean(self, p: _Parameters) -> Tensor:
        logit = p.ability[..., None] * p.slope[..., None, :] + p.intercept[..., None, :]
        # Keeps the mean from rounding to 0 or 1.
        return torch.sigmoid(logit.clamp(-30, 30))

    def log_posterior(self, at: Tensor) -> Tensor:
        """Log posterior with the adjustment of φ, shape (B,)."""
        p, o = self.unpack(at), self.options
        held = (p.intercept / o.intercept_sd).square().sum(-1)
        odd = (p.slope - p.slope.mean(-1, keepdim=True)) / o.discrimination_sd
        held = held + odd.square().sum(-1)
        away = (p.log_precision - p.middle) / o.precision_sd
        held = held + away.square().sum(-1)
        if o.adjusted:
            # Half the log determinant of the information, which grows with φ.
            held = held + self._n_estimated() * p.log_precision.sum(-1)
        return self.log_likelihood(p) - held / 2

    def _n_estimated(self) -> float:
        """Parameters per item without φ: those of the item and its share of the abilities."""
        n, m = self.scores.trials.shape
        fixed = 2 if self.two_pl else 1
        return fixed + (n - fixed) / m

    def conditional_errors(self, at: Tensor) -> Tensor:
        """Standard errors (P,) of each parameter given the others."""
        ability, items, _ = self.information(self.unpack(at))
        d, a, log_precision = items.diagonal(dim1=1, dim2=2).unbind(1)
        middle = log_precision.new_tensor([len(d) / self.options.precision_sd**2])
        return torch.cat([ability, d, log_precision, middle, *([a] if self.two_pl else [])]).rsqrt()

    def information(self, p: _Parameters) -> tuple[Tensor, Tensor, Tensor]:
        """Expected information: abilities (N,), items with priors (M, 3, 3), across (N, M, 3)."""
        mean, phi, trials = self._mean(p), p.log_precision.exp(), self.scores.trials
        one, two = (torch.special.polygamma(1, x * phi) for x in (mean, 1 - mean))
        slope = mean * (1 - mean)
        by_logit = trials * (phi * slope).square() * (one + two)
        both = trials * phi.square() * slope * (mean * one - (1 - mean) * two)
        by_precision = mean.square() * one + (1 - mean).square() * two
        by_precision = by_precision - torch.special.polygamma(1, phi)
        by_precision = trials * phi.square() * by_precision
        of_logit = torch.stack([torch.ones_like(mean), p.ability[:, None].expand_as(mean)], 2)
        if not self.two_pl:
            of_logit = of_logit * of_logit.new_tensor([1.0, 0.0])
        items = phi.new_zeros(len(phi), 3, 3)
        items[:, :2, :2] = torch.einsum("nm,nmp,nmq->mpq", by_logit, of_logit, of_logit)
        items[:, 2, :2] = items[:, :2, 2] = torch.einsum("nm,nmp->mp", both, of_logit)
        items[:, 2, 2] = by_precision.sum(0)
        o = self.options
        prior = items.new_tensor([o.intercept_sd, o.discrimination_sd, o.precision_sd]) ** -2
        items = items + torch.diag(prior)
        across = torch.cat([by_logit[..., None] * of_logit, both[..., None]], 2)
        return (by_logit @ p.slope.square()), items, across * p.slope[:, None]

    def summary(self, found: Minimum) -> BetaFit:
        p = self.unpack(found.at[0])
        if p.slope.sum() < 0:
            p = p._replace(ability=-p.ability, slope=-p.slope)
        covariance, item_covariance = self._covariances(p)
        return BetaFit(
            p.ability,
            covariance,
            p.slope,
            p.intercept,
            p.log_precision.exp(),
            item_covariance,
            log_likelihood=self.log_likelihood(p),
            steps=found.steps,
            converged=bool(found.converged[0]),
        )

    def _covariances(self, p: _Parameters) -> tuple[Tensor, Tensor]:
        """Covariances of abilities and of items, each with the others eliminated."""
        ability, items, across = self.information(p)
        inverse = torch.linalg.inv(items)
        shared = torch.einsum("nmp,mpq->nmq", across, inverse)
        left = torch.diag(ability) - torch.einsum("nmp,kmp->nk", shared, across)
        # Abilities vary only in directions that keep location and, in a 2PL, scale.
        fixed = [torch.ones_like(p.ability), *([p.ability] if self.two_pl else [])]
        basis = complement(torch.stack(fixed, 1))
        covariance = basis @ torch.linalg.inv(basis.T @ left @ basis) @ basis.T
        item = inverse + torch.einsum("nmp,nk,kmq->mpq", shared, covariance, shared)
        if not self.two_pl:
            free = item.new_tensor([1.0, 0.0, 1.0])
            item = item * free.outer(free)
        return covariance, item


class _Parameters(NamedTuple):
    """Parameters at B points: θ (B, N), d, a, log φ (B, M), and ψ, the mean of log φ (B, 1)."""

    ability: Tensor
    intercept: Tensor
    slope: Tensor
    log_precision: Tensor
    middle: Tensor


def fit_beta(
    matrix: ResponseMatrix, counts: Counts, item_model: str, options: Mapping[str, Any]
) -> IRTFit:
    """Posterior mode of the Beta response model, as an `IRTFit`.

    Raises
    ------
    DesignError
        Too few models, or scores that all are 0 or 1.
    """
    began = time.perf_counter()
    scores = beta_scores(matrix.scores, device=counts.right.device, dtype=counts.right.dtype)
    if scores.exact == 1:
        msg = (
            "every score is 0 or 1, expected scores in between for a Beta response: take response "
            "'binomial'"
        )
        raise DesignError(msg)
    try:
        found = beta_fit(scores, cast("RaschOr2PL", item_model), BetaOptions(**options))
    except ValueError as error:
        raise DesignError(str(error)) from error
    # From intercept, discrimination, log φ to discrimination, intercept.
    item_covariance = as_array(found.item_covariance)[:, [1, 0]][:, :, [1, 0]]
    fit = irt_fit(
        matrix,
        Estimates(
            as_array(found.ability),
            as_array(found.covariance),
            as_array(found.discrimination),
            as_array(found.intercept),
            item_covariance,
        ),
        item_model=item_model,
        estimator="map",
        response="beta",
        precision=as_array(found.precision),
        identification=f"abilities sum to 0{'' if item_model == 'rasch' else ', mean square 1'}",
        hyperparameters={"inwards": scores.inwards} if scores.inwards else {},
        diagnostics={
            "iterations": found.steps,
            "converged": found.converged,
            "log_likelihood": float(found.log_likelihood),
            "likelihood": "joint",
            "exact_scores": scores.exact,
            **run_facts(counts, began),
        },
        notes=(*(note for note in counts.notes if note != PARTIAL), BETA_NOTE),
    )
    return replace(fit, notes=(*fit.notes, *_notes(found, scores)))


def _notes(found: BetaFit, scores: BetaScores) -> list[str]:
    notes = [] if found.converged else [not_converged(found.steps)]
    if scores.exact >= MANY_EXACT:
        notes.append(
            f"{scores.exact:.0%} of the scores are exactly 0 or 1, which no Beta gives: response "
            "'binomial' takes them as they are"
        )
    return notes
