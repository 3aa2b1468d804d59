"""Factor models: P(right) = 1 / (1 + exp(-(θ·a + d))), with K abilities per model.

* `fit_factor`: dense loadings. The estimate is the posterior mode, with abilities N(0, I), loadings
  normal around their mean with precision `ridge`, and intercepts normal around theirs. Loadings
  shrink towards their mean, not to 0: one dimension with a large ridge is the Rasch model, and
  with a small one the 2PL. `cross_validate` fits all folds as one batch of matrix products.
* `fit_factor_model`, `score_on_factors`: a `FactorFit`, with rotation and standard errors
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.irt.estimators.optimise import (
    FirstOrder,
    Solution,
    ascend,
    log_likelihood,
    posterior_mode,
)
from evalstats_plugin.irt.methods import FactorOptions
from evalstats_plugin.irt.model.arrays import as_array
from evalstats_plugin.irt.model.data import Counts, check_room
from evalstats_plugin.irt.model.fit import FactorFit, not_converged, run_facts
from evalstats_plugin.runtime.torch import linalg, split

RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Candidates where the ridge is chosen by cross-validation, in ascending order."""

INTERCEPT_RIDGE = 0.1
"""Precision of intercepts around their mean: a standard deviation of about 3 logits."""

MEAN_RIDGE = 1.0
"""Precision of the mean of the loadings around 0: it fixes the scale along with the abilities."""

MOST_DIMENSIONS = 8
"""Most dimensions that cross-validation tries."""

FACTOR_NOTE = (
    "errors of abilities take the items as known, and those of items the abilities: with few "
    "models both are too small"
)

# Stopping rule while candidates compete: tolerance, and most steps.
_ROUGH = (0.01, 150)

# Added to the prior precision of abilities, for dimensions that no item loads on.
_LEAST_PRECISION = 1e-3

# Folds, and largest array of folds × models × items.
_FOLDS, _BLOCK = 5, 2**23


def fit_factor(
    counts: Counts,
    n_dimensions: int | Literal["auto"] = 1,
    ridge: float | Literal["auto"] = 3.0,
    *,
    rng: np.random.Generator | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 1000,
) -> FactorSolution:
    """Fit K dimensions by L-BFGS; ``"auto"`` chooses by held-out log loss and needs `rng`.

    Parameters
    ----------
    tolerance
        Root of the rise of the log posterior that the last step predicts: about the error of
        abilities, whose digits are then those of any processor.

    Raises
    ------
    DesignError
        More dimensions than N - 1 models or M items can tell apart.
    """
    check_dimensions(counts, 1 if n_dimensions == "auto" else n_dimensions)
    choices: tuple[Choice, ...] = ()
    if n_dimensions == "auto" or ridge == "auto":
        if rng is None:
            raise ValueError("rng is needed to choose n_dimensions or ridge by cross-validation")
        sizes = range(1, MOST_DIMENSIONS + 1) if n_dimensions == "auto" else (n_dimensions,)
        choices = cross_validate(counts, sizes, RIDGES if ridge == "auto" else (ridge,), rng=rng)
        best = min(choices, key=lambda choice: choice.log_loss)
        n_dimensions, ridge = best.n_dimensions, best.ridge
    right, trials = counts.right[None], counts.trials[None]
    start = _start_values(right, trials, n_dimensions)
    optimum = _solve(right, trials, ridge, start, (tolerance, max_steps))
    ability, loading, intercept = (x[0] for x in _parts(optimum.at, right, n_dimensions))
    return _standardised(counts, (ability, loading, intercept), ridge, optimum)._replace(
        choices=choices
    )


class FactorSolution(NamedTuple):
    """N models and M items in K dimensions; abilities have mean 0 and covariance I.

    Dimensions are in descending order of the variance of the logits that they explain, with signs
    such that their loadings have a positive sum.
    """

    ability: Tensor
    """θ, shape (N, K)."""
    loading: Tensor
    """a, shape (M, K)."""
    intercept: Tensor
    """d, shape (M,)."""
    prior_precision: Tensor
    """Prior precision of abilities on this scale, (K, K): modes vary less than their prior."""
    ridge: float
    log_likelihood: float
    """Log-likelihood of the answers at the estimates, without the priors."""
    iterations: int
    converged: bool
    choices: tuple[Choice, ...] = ()
    """Candidates of the cross-validation, if there was one."""

    def probability(self) -> Tensor:
        """P(right) of every model on every item, shape (N, M)."""
        return torch.sigmoid(torch.addmm(self.intercept, self.ability, self.loading.T))

    def item_prior(self) -> tuple[Tensor, Tensor]:
        """Mean (K + 1,) and precision (K + 1, K + 1) of these items' loadings and intercepts."""
        items = torch.cat([self.loading, self.intercept[:, None]], dim=1)
        spread = torch.cov(items.T) + 1e-3 * torch.eye(items.shape[1]).to(items)
        return items.mean(0), linalg.inv(spread)

    def for_models(self, counts: Counts) -> FactorSolution:
        """Other models on these items: posterior modes under N(0, I)."""
        # `prior_precision`, the wider prior of the fit, predicted their other answers worse.
        precision = torch.eye(self.loading.shape[1]).to(self.loading)
        prior = (torch.zeros_like(precision[0]), precision)
        ability = posterior_mode(counts, self.loading, self.intercept, prior)
        return self._replace(ability=ability)

    def for_items(self, counts: Counts) -> FactorSolution:
        """Other items among these models: posterior modes, with these items as their prior."""
        transposed = Counts(counts.right.T, counts.trials.T)
        design = torch.cat([self.ability, torch.ones_like(self.ability[:, :1])], dim=1)
        modes = posterior_mode(
            transposed, design, torch.zeros_like(design[:, 0]), self.item_prior()
        )
        return self._replace(loading=modes[:, :-1], intercept=modes[:, -1])

    def crossed(self, other: FactorSolution) -> FactorSolution:
        """These models on the items of another solution."""
        return other._replace(ability=self.ability)


def check_dimensions(counts: Counts, n_dimensions: int) -> None:
    """Raise `DesignError` where there are too few models or items for so many dimensions."""
    n, m = counts.right.shape
    if not 1 <= n_dimensions <= min(n - 1, m):
        raise DesignError(
            f"{n} models and {m} items cannot tell {n_dimensions} dimensions apart: choose 1 to "
            f"{min(n - 1, m)}, or add models"
        )


class Choice(NamedTuple):
    """Held-out log loss per trial of one candidate."""

    n_dimensions: int
    ridge: float
    log_loss: float


def cross_validate(
    counts: Counts,
    sizes: Sequence[int],
    ridges: Sequence[float],
    *,
    rng: np.random.Generator,
) -> tuple[Choice, ...]:
    """Held-out log loss of the candidates.

    Dimensions are added while the loss falls. With each, ridges start one below the best so far.
    """
    fold = fold_masks(counts, _FOLDS, rng)
    step = max(1, _BLOCK // counts.right.numel())
    choices: list[Choice] = []
    best = float("inf")
    for size in sizes:
        if len(sizes) > 1 and size > min(counts.right.shape[0] - 1, counts.right.shape[1]):
            break
        losses = np.zeros(len(ridges))
        for first in range(0, _FOLDS, step):
            folds = torch.arange(first, min(first + step, _FOLDS), device=fold.device)
            held_out = fold == folds[:, None, None]
            right, trials = counts.right * ~held_out, counts.trials * ~held_out
            at = _start_values(right, trials, size)
            # Each fit starts from that of the ridge before.
            for place, ridge in enumerate(ridges):
                at = _solve(right, trials, ridge, at, _ROUGH).at
                ability, loading, intercept = _parts(at, right, size)
                logit = ability @ loading.mT + intercept[:, None]
                loss = -log_likelihood(counts.right, counts.trials, logit)
                losses[place] += float((loss * held_out).sum())
        losses /= float(counts.trials.sum())
        choices += [Choice(size, r, float(x)) for r, x in zip(ridges, losses, strict=True)]
        if losses.min() >= best:
            break
        best = float(losses.min())
        ridges = ridges[max(0, int(losses.argmin()) - 1) :]
    return tuple(choices)


def fold_masks(counts: Counts, n_folds: int, rng: np.random.Generator) -> Tensor:
    """Assign cells to folds of equal size at random, shape (N, M); -1 is missing."""
    answered = (counts.trials > 0).cpu().numpy()
    fold = np.full(answered.shape, -1)
    fold[answered] = rng.permutation(int(answered.sum())) % n_folds
    return torch.as_tensor(fold).to(counts.trials.device)


def held_out_loss(counts: Counts, probability: Tensor, held_out: Tensor) -> float:
    """Log loss per trial of the cells held out."""
    p = probability.clamp(1e-12, 1 - 1e-12)
    loss = -(counts.right * p.log() + (counts.trials - counts.right) * torch.log1p(-p))
    return float((loss * held_out).sum() / (counts.trials * held_out).sum())


def _solve(
    right: Tensor, trials: Tensor, ridge: float, start: Tensor, stop: tuple[float, int]
) -> Solution:
    """Posterior modes of B folds; `stop` are tolerance and most steps."""
    m, by_gradient = right.shape[2], FirstOrder("lbfgs")
    size = (start.shape[1] - m) // (right.shape[1] + m)

    def climb(at: Tensor) -> tuple[Tensor, Callable[[], tuple[Tensor, Tensor]]]:
        ability, loading, intercept = _parts(at, right, size)
        logit = torch.baddbmm(intercept[:, None], ability, loading.mT)
        fit = (right * logit).sum((1, 2)) - (trials * torch.nn.functional.softplus(logit)).sum(
            (1, 2)
        )
        # The mean of the loadings is optimal given the loadings.
        middle = ridge * loading.sum(1, keepdim=True) / (ridge * m + MEAN_RIDGE)
        away, off = loading - middle, intercept - intercept.mean(1, keepdim=True)
        penalty = ability.square().sum((1, 2)) + INTERCEPT_RIDGE * off.square().sum(1)
        penalty = penalty + ridge * away.square().sum((1, 2))
        penalty = penalty + MEAN_RIDGE * middle.square().sum((1, 2))

        def onward() -> tuple[Tensor, Tensor]:
            residual = right - trials * torch.sigmoid(logit)
            parts = [
                residual @ loading - ability,
                residual.mT @ ability - ridge * away,
                residual.sum(1) - INTERCEPT_RIDGE * off,
            ]
            gradient = torch.cat([part.flatten(1) for part in parts], dim=1)
            length = linalg.vector_norm(gradient, dim=1, keepdim=True).clamp_min(1e-300)
            step = by_gradient.step(at, gradient, length)
            return step, (gradient * step).sum(1)

        return fit - penalty / 2, onward

    return ascend(climb, start, tolerance=stop[0] ** 2, max_steps=stop[1])


def _parts(at: Tensor, right: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Abilities (B, N, K), loadings (B, M, K) and intercepts (B, M) of points (B, P)."""
    batch, n, m = right.shape
    ability, loading, intercept = split(at, [n * size, m * size, m], 1)
    return ability.view(batch, n, size), loading.view(batch, m, size), intercept


def _start_values(right: Tensor, trials: Tensor, size: int) -> Tensor:
    """Logits of the items' shares of right answers, and principal axes of the residuals."""
    share = (right.sum(1, keepdim=True) + 0.5) / (trials.sum(1, keepdim=True) + 1)
    left, scale, across = linalg.svd(right - trials * share, full_matrices=False)
    # A difference in P is at most a quarter of that in the logit.
    root = torch.sqrt(2 * scale[:, None, :size])
    ability, loading = left[..., :size] * root, across[:, :size].mT * root
    return torch.cat([ability.flatten(1), loading.flatten(1), torch.logit(share)[:, 0]], dim=1)


def _standardised(
    counts: Counts, parts: tuple[Tensor, Tensor, Tensor], ridge: float, optimum: Solution
) -> FactorSolution:
    """Give abilities mean 0 and covariance I, along the principal axes of the logits."""
    ability, loading, intercept = parts
    middle, n = ability.mean(0), len(ability)
    # Triangular factors first: the SVD is then of a K × K matrix.
    left, a = linalg.qr(ability - middle)
    right, b = linalg.qr(loading)
    turn, scale, back = linalg.svd(a @ b.T)
    loading_new = right @ back.T * scale / n**0.5
    sign = torch.where(loading_new.sum(0) < 0, -1.0, 1.0).to(loading_new)
    raw = (turn * sign).T @ a / n**0.5
    floor = _LEAST_PRECISION * torch.eye(len(middle)).to(raw)
    logit = torch.addmm(intercept, ability, loading.T)
    fit = log_likelihood(counts.right, counts.trials, logit)
    return FactorSolution(
        ability=left @ turn * n**0.5 * sign,
        loading=loading_new * sign,
        intercept=intercept + loading @ middle,
        prior_precision=raw @ raw.T + floor,
        ridge=ridge,
        log_likelihood=float(fit.sum()),
        iterations=optimum.steps,
        converged=bool(optimum.converged.all()),
    )


def fit_factor_model(
    matrix: ResponseMatrix, counts: Counts, options: FactorOptions, rng: np.random.Generator
) -> FactorFit:
    """Factor model as a `FactorFit`, by default with the dimensions that predict best.

    Raises
    ------
    DesignError
        More dimensions than models or items can tell apart.
    """
    began = time.perf_counter()
    dimensions, rotation, ridge = options.dimensions, options.rotation, options.ridge
    n, m = counts.right.shape
    check_room(12 * n * m, counts.right, f"{counted(n, 'model')} × {counted(m, 'item')}")
    solution = fit_factor(counts, dimensions, ridge, rng=rng)
    fit = _record(matrix, counts, solution)
    if fit.empty and dimensions == "auto":
        # Held-out losses that differ by rounding alone can choose empty dimensions.
        fewer = fit_factor(counts, fit.n_dimensions - len(fit.empty), solution.ridge)
        fit = _record(matrix, counts, fewer._replace(choices=solution.choices))
    fit = replace(fit, diagnostics=fit.diagnostics | run_facts(counts, began))
    if not fit.empty:
        return fit.rotated(rotation)
    note = f"{len(fit.empty)} of {fit.n_dimensions} dimensions explain nothing: fewer say as much"
    unrotated = "" if rotation == "none" else f"; not turned by {rotation}"
    return replace(fit, notes=(*fit.notes, note + unrotated))


def score_on_factors(fit: FactorFit, matrix: ResponseMatrix, counts: Counts) -> FactorFit:
    """Score other models on the items of a fit; `counts` are of the same items."""
    arrays = (fit.ability, fit.loading, fit.intercept, fit.prior_precision)
    parts = (torch.as_tensor(x).to(counts.right) for x in arrays)
    bank = FactorSolution(*parts, ridge=0.0, log_likelihood=0.0, iterations=0, converged=True)
    # With the prior of the fit, so that its own models would get their own abilities.
    prior = (torch.zeros_like(bank.prior_precision[0]), bank.prior_precision)
    scored = bank._replace(ability=posterior_mode(counts, bank.loading, bank.intercept, prior))
    return replace(
        fit,
        models=matrix.models,
        ability=as_array(scored.ability),
        ability_covariance=as_array(_ability_covariance(counts, scored)),
    )


def _record(matrix: ResponseMatrix, counts: Counts, solution: FactorSolution) -> FactorFit:
    # Of items, abilities taken as known.
    transposed, chance = Counts(counts.right.T, counts.trials.T), solution.probability().T
    design = torch.cat([solution.ability, torch.ones_like(solution.ability[:, :1])], dim=1)
    item_covariance = _inverse_information(transposed, design, chance, solution.item_prior()[1])
    notes = [*counts.notes, FACTOR_NOTE]
    if not solution.converged:
        notes.append(not_converged(solution.iterations))
    tried = {choice.n_dimensions for choice in solution.choices}
    if len(tried) > 1 and solution.loading.shape[1] == 1:
        notes.append(
            "one dimension predicts answers held out best: item model 2pl fits it with errors that "
            "hold"
        )
    return FactorFit(
        estimator="map",
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        ability=as_array(solution.ability),
        ability_covariance=as_array(_ability_covariance(counts, solution)),
        loading=as_array(solution.loading),
        intercept=as_array(solution.intercept),
        item_covariance=as_array(item_covariance),
        correlation=np.eye(solution.loading.shape[1]),
        prior_precision=as_array(solution.prior_precision),
        hyperparameters={"ridge": solution.ridge},
        diagnostics={
            "iterations": solution.iterations,
            "converged": solution.converged,
            "log_likelihood": solution.log_likelihood,
            "likelihood": "joint",
            "choices": [choice._asdict() for choice in solution.choices],
        },
        notes=tuple(notes),
    )


def _ability_covariance(counts: Counts, solution: FactorSolution) -> Tensor:
    """Posterior covariance of each model, items taken as known, (N, K, K)."""
    chance = solution.probability()
    return _inverse_information(counts, solution.loading, chance, solution.prior_precision)


def _inverse_information(counts: Counts, design: Tensor, chance: Tensor, prior: Tensor) -> Tensor:
    k = design.shape[1]
    products = (design[:, :, None] * design[:, None]).flatten(1)
    weight = counts.trials * chance * (1 - chance)
    return linalg.inv((weight @ products).view(-1, k, k) + prior)
