"""Factor model: P(right) = 1 / (1 + exp(-(θ·a + d))), with K abilities per model.

The estimate is the mode of the posterior: abilities N(0, I), loadings normal around their mean with
precision `ridge`, intercepts normal around theirs. As loadings shrink towards their mean, not to 0,
one dimension with a large ridge is the Rasch model, and with a small one the 2PL. Many folds of one
matrix are fitted as one batch of matrix products.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.lbfgs import SETTLED, Minimum, minimise
from evalstats_plugin.irt.logistic import posterior_mode
from evalstats_plugin.irt.rotation import turned

RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Tried where the ridge is to be chosen, from weak to strong."""
INTERCEPT_RIDGE = 0.1
"""Precision of intercepts around their mean: a standard deviation of about 3 logits."""
MEAN_RIDGE = 1.0
"""Precision of the mean of the loadings around 0: the scale is shared with that of abilities."""
MOST_DIMENSIONS = 8
# Of Minimum: largest gradient, most steps, and change of the objective, while candidates compete.
_ROUGH = (0.1, 150, 1e-7)
# Of the prior of abilities in a dimension that no item loads on.
_LEAST_PRECISION = 1e-3
_BLOCK = 2**23
"""Numbers of folds × models × items at a time."""


class Choice(NamedTuple):
    """Held-out log loss per trial of one candidate."""

    n_dimensions: int
    ridge: float
    log_loss: float


class FactorSolution(NamedTuple):
    """N models and M items in K dimensions; abilities have mean 0 and, unrotated, covariance I.

    Dimensions are ordered by the variance of the logits that they explain, and turned so that their
    loadings have a positive sum.
    """

    ability: Tensor
    """θ, shape (N, K)."""
    loading: Tensor
    """a, shape (M, K)."""
    intercept: Tensor
    """d, shape (M,)."""
    correlation: Tensor
    """Of the abilities, shape (K, K): I unless rotated obliquely."""
    prior_precision: Tensor
    """Of abilities, shape (K, K): modes vary less than the N(0, I) that they were drawn towards."""
    ridge: float
    log_likelihood: float
    """Of the answers at the estimates, without the priors."""
    iterations: int
    converged: bool
    choices: tuple[Choice, ...] = ()
    """What cross-validation tried, if it chose."""

    def probability(self) -> Tensor:
        """P(right) of every model on every item, shape (N, M)."""
        return torch.sigmoid(torch.addmm(self.intercept, self.ability, self.loading.T))

    def for_models(self, counts: Counts) -> FactorSolution:
        """Score other models on these items, which stay: the mode under N(0, correlation)."""
        # The fit's own prior, which is wider, predicted their other answers worse.
        precision = torch.linalg.inv(self.correlation)
        prior = (torch.zeros_like(precision[0]), precision)
        ability = posterior_mode(counts, self.loading, self.intercept, prior)
        return self._replace(ability=ability)

    def for_items(self, counts: Counts) -> FactorSolution:
        """Place other items among these models, which stay, with these items as their prior."""
        items = torch.cat([self.loading, self.intercept[:, None]], dim=1)
        design = torch.cat([self.ability, torch.ones_like(self.ability[:, :1])], dim=1)
        covariance = torch.atleast_2d(torch.cov(items.T)) + 1e-3 * torch.eye(items.shape[1]).to(
            items
        )
        turned = Counts(counts.right.T, counts.trials.T)
        prior = (items.mean(0), torch.linalg.inv(covariance))
        found = posterior_mode(turned, design, torch.zeros_like(design[:, 0]), prior)
        return self._replace(loading=found[:, :-1], intercept=found[:, -1])

    def crossed(self, other: FactorSolution) -> FactorSolution:
        """These models on the items of another."""
        return other._replace(ability=self.ability)

    def rotated(self, how: Literal["varimax", "promax"]) -> FactorSolution:
        """Turn the dimensions, so that most items load on few; predictions stay as they are."""
        turn = torch.from_numpy(turned(self.loading.cpu().numpy(), how)).to(self.loading)
        back = torch.linalg.inv(turn)
        return self._replace(
            ability=self.ability @ back.T,
            loading=self.loading @ turn,
            correlation=back @ self.correlation @ back.T,
            prior_precision=turn.T @ self.prior_precision @ turn,
        )


def fit_factor(
    counts: Counts,
    n_dimensions: int | Literal["auto"] = 1,
    ridge: float | Literal["auto"] = 3.0,
    *,
    rng: np.random.Generator | None = None,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
) -> FactorSolution:
    """Fit K dimensions by L-BFGS; ``"auto"`` chooses by held-out log loss, which needs `rng`.

    Raises
    ------
    DesignError
        More dimensions than N - 1 models or M items can tell apart.
    """
    choices: tuple[Choice, ...] = ()
    if n_dimensions == "auto" or ridge == "auto":
        if rng is None:
            raise ValueError("rng is needed to choose n_dimensions or ridge by cross-validation")
        sizes = range(1, MOST_DIMENSIONS + 1) if n_dimensions == "auto" else (n_dimensions,)
        choices = cross_validate(counts, sizes, RIDGES if ridge == "auto" else (ridge,), rng=rng)
        best = min(choices, key=lambda choice: choice.log_loss)
        n_dimensions, ridge = best.n_dimensions, best.ridge
    check_dimensions(counts, n_dimensions)
    right, trials = counts.right[None], counts.trials[None]
    start = _start(right, trials, n_dimensions)
    found = _solve(right, trials, ridge, start, (tolerance, max_steps, SETTLED))
    ability, loading, intercept = (x[0] for x in _parts(found.at, right, n_dimensions))
    return _standardised(counts, (ability, loading, intercept), ridge, found)._replace(
        choices=choices
    )


def check_dimensions(counts: Counts, n_dimensions: int) -> None:
    """Raise `DesignError` where there are too few models or items for so many dimensions."""
    n, m = counts.right.shape
    if not 1 <= n_dimensions <= min(n - 1, m):
        msg = (
            f"{n_dimensions} dimensions asked for, {n} models and {m} items can tell 1 to "
            f"{min(n - 1, m)} apart: choose fewer dimensions, or add models"
        )
        raise DesignError(msg)


def fold_masks(counts: Counts, n_folds: int, rng: np.random.Generator) -> Tensor:
    """Which fold holds out each cell, shape (N, M); cells are shared out evenly, -1 is missing."""
    there = (counts.trials > 0).cpu().numpy()
    fold = np.full(there.shape, -1)
    fold[there] = rng.permutation(int(there.sum())) % n_folds
    return torch.from_numpy(fold).to(counts.trials.device)


def held_out_loss(counts: Counts, probability: Tensor, held_out: Tensor) -> float:
    """Log loss per trial of the cells held out."""
    p = probability.clamp(1e-12, 1 - 1e-12)
    loss = -(counts.right * p.log() + (counts.trials - counts.right) * torch.log1p(-p))
    return float((loss * held_out).sum() / (counts.trials * held_out).sum())


def cross_validate(
    counts: Counts,
    sizes: Sequence[int],
    ridges: Sequence[float],
    *,
    rng: np.random.Generator,
    n_folds: int = 5,
) -> tuple[Choice, ...]:
    """Held-out log loss of the candidates.

    More dimensions are tried while that helps, with ridges about the best of fewer and stronger.
    """
    fold = fold_masks(counts, n_folds, rng)
    step = max(1, _BLOCK // counts.right.numel())
    choices: list[Choice] = []
    best = float("inf")
    for size in sizes:
        if len(sizes) > 1 and size > min(counts.right.shape[0] - 1, counts.right.shape[1]):
            break
        check_dimensions(counts, size)
        losses = np.zeros(len(ridges))
        for first in range(0, n_folds, step):
            folds = torch.arange(first, min(first + step, n_folds), device=fold.device)
            losses += _path_losses(counts, fold == folds[:, None, None], size, ridges)
        losses /= float(counts.trials.sum())
        choices += [Choice(size, r, float(x)) for r, x in zip(ridges, losses, strict=True)]
        if losses.min() >= best:
            break
        best = float(losses.min())
        ridges = ridges[max(0, int(losses.argmin()) - 1) :]
    return tuple(choices)


def _path_losses(
    counts: Counts, held_out: Tensor, size: int, ridges: Sequence[float]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Total log loss over some folds, by ridge: each fit starts from that of the weaker ridge."""
    right, trials = counts.right * ~held_out, counts.trials * ~held_out
    at, losses = _start(right, trials, size), np.zeros(len(ridges))
    for place, ridge in enumerate(ridges):
        at = _solve(right, trials, ridge, at, _ROUGH).at
        ability, loading, intercept = _parts(at, right, size)
        logit = ability @ loading.mT + intercept[:, None]
        loss = counts.trials * torch.nn.functional.softplus(logit) - counts.right * logit
        losses[place] = float((loss * held_out).sum())
    return losses


def _parts(at: Tensor, right: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Abilities (B, N, K), loadings (B, M, K) and intercepts (B, M) of points (B, P)."""
    batch, n, m = right.shape
    ability, loading, intercept = at.split([n * size, m * size, m], dim=1)
    return ability.view(batch, n, size), loading.view(batch, m, size), intercept


def _start(right: Tensor, trials: Tensor, size: int) -> Tensor:
    """Share of right answers by item, and the main axes of what they leave."""
    share = (right.sum(1, keepdim=True) + 0.5) / (trials.sum(1, keepdim=True) + 1)
    left, scale, across = torch.linalg.svd(right - trials * share, full_matrices=False)
    # A difference in P is at most a quarter of that in the logit.
    root = torch.sqrt(2 * scale[:, None, :size])
    ability, loading = left[..., :size] * root, across[:, :size].mT * root
    return torch.cat([ability.flatten(1), loading.flatten(1), torch.logit(share)[:, 0]], dim=1)


def _solve(
    right: Tensor, trials: Tensor, ridge: float, start: Tensor, stop: tuple[float, int, float]
) -> Minimum:
    m = right.shape[2]
    size = (start.shape[1] - m) // (right.shape[1] + m)

    def objective(at: Tensor) -> tuple[Tensor, Tensor]:
        ability, loading, intercept = _parts(at, right, size)
        logit = torch.baddbmm(intercept[:, None], ability, loading.mT)
        residual = right - trials * torch.sigmoid(logit)
        fit = (right * logit).sum((1, 2)) - (trials * torch.nn.functional.softplus(logit)).sum(
            (1, 2)
        )
        # The mean of the loadings is at its best, given them.
        middle = ridge * loading.sum(1, keepdim=True) / (ridge * m + MEAN_RIDGE)
        away, off = loading - middle, intercept - intercept.mean(1, keepdim=True)
        penalty = ability.square().sum((1, 2)) + INTERCEPT_RIDGE * off.square().sum(1)
        penalty = penalty + ridge * away.square().sum((1, 2))
        penalty = penalty + MEAN_RIDGE * middle.square().sum((1, 2))
        gradient = [
            ability - residual @ loading,
            ridge * away - residual.mT @ ability,
            INTERCEPT_RIDGE * off - residual.sum(1),
        ]
        return penalty / 2 - fit, torch.cat([part.flatten(1) for part in gradient], dim=1)

    return minimise(objective, start, tolerance=stop[0], max_steps=stop[1], settled_at=stop[2])


def _signs(loading: Tensor) -> Tensor:
    return torch.where(loading.sum(0) < 0, -1.0, 1.0).to(loading)


def _standardised(
    counts: Counts, parts: tuple[Tensor, Tensor, Tensor], ridge: float, found: Minimum
) -> FactorSolution:
    """Give abilities mean 0 and covariance I along the main axes of the logits."""
    ability, loading, intercept = parts
    middle, n = ability.mean(0), len(ability)
    # Triangular factors first: the SVD is then of a K × K matrix.
    left, a = torch.linalg.qr(ability - middle)
    right, b = torch.linalg.qr(loading)
    turn, scale, back = torch.linalg.svd(a @ b.T)
    loading_new = right @ back.T * scale / n**0.5
    sign = _signs(loading_new)
    raw = (turn * sign).T @ a / n**0.5
    floor = _LEAST_PRECISION * torch.eye(len(middle)).to(raw)
    logit = torch.addmm(intercept, ability, loading.T)
    fit = counts.right * logit - counts.trials * torch.nn.functional.softplus(logit)
    return FactorSolution(
        ability=left @ turn * n**0.5 * sign,
        loading=loading_new * sign,
        intercept=intercept + loading @ middle,
        correlation=torch.eye(len(middle)).to(ability),
        prior_precision=raw @ raw.T + floor,
        ridge=ridge,
        log_likelihood=float(fit.sum()),
        iterations=found.steps,
        converged=bool(found.converged.all()),
    )
