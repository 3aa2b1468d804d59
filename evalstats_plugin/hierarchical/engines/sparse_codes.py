"""Sparse codes: alternating estimation of item codes and model capabilities.

logit P(right) = c_m + d_i + Σ_f s_if w_mf with s ≥ 0: model m's performance c and capabilities w,
item i's intercept d and code s. Codes have an L1 penalty, capabilities and intercepts a ridge.
`fit_sparse_codes` alternates between items (accelerated proximal gradient steps [BT09]_) and models
(Newton's method); the scale shared by codes and capabilities has a closed form.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.estimators.factor import INTERCEPT_RIDGE, check_dimensions, fit_factor
from evalstats_plugin.irt.estimators.optimise import posterior_mode
from evalstats_plugin.irt.model.curves import rotation_matrix
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.runtime.progress import report_progress

_LINALG: Any = torch.linalg
"""Its functions have no type stubs."""

_INNER = 20
"""Proximal gradient steps of the items in each round."""

_RIDGE, _TOLERANCE = 10.0, 1e-6
"""Ridge and tolerance of the dense model that codes start from."""


class SparseCodes(NamedTuple):
    """Codes and capabilities of N models and M items with F features."""

    capability: Tensor
    """w, shape (N, F)."""
    performance: Tensor
    """c, shape (N,)."""
    code: Tensor
    """s ≥ 0, shape (M, F)."""
    intercept: Tensor
    """d, shape (M,)."""

    def logit(self) -> Tensor:
        """Logits of every model on every item, shape (N, M)."""
        level = self.performance[:, None] + self.intercept
        return torch.addmm(level, self.capability, self.code.T)

    def probability(self) -> Tensor:
        """P(right) of every model on every item, shape (N, M)."""
        return torch.sigmoid(self.logit())

    def objective(self, counts: Counts, penalty: float) -> Tensor:
        """Penalised log-likelihood."""
        logit = self.logit()
        fit = counts.right * logit - counts.trials * torch.nn.functional.softplus(logit)
        off = self.intercept - self.intercept.mean()
        ridge = self.capability.square().sum() + INTERCEPT_RIDGE * (
            off.square().sum() + self.performance.square().sum()
        )
        return fit.sum() - penalty * self.code.sum() - ridge / 2


class Search(NamedTuple):
    """Result of a search for codes."""

    codes: SparseCodes
    objective: float
    steps: int
    converged: bool


def fit_sparse_codes(
    counts: Counts,
    codes: SparseCodes,
    penalty: float,
    *,
    tolerance: float = 1e-7,
    max_steps: int = 300,
) -> Search:
    """Update codes and capabilities in turn until the objective converges.

    Parameters
    ----------
    codes
        Starting values. The objective has several optima: the result is a local one.
    penalty
        Penalty of the sum of all codes; capabilities have a ridge of 1.
    tolerance
        Relative increase of the objective in a round below which the search ends.
    """
    value, done, converged = -math.inf, 0, False
    while done < max_steps and not converged:
        done += 1
        report_progress("step", done)
        codes = fit_models(counts, _items_step(counts, balanced(codes, penalty), penalty))
        fresh = float(codes.objective(counts, penalty))
        converged = fresh - value <= tolerance * abs(fresh)
        value = fresh
    return Search(codes, value, done, converged)


def start(counts: Counts, n_features: int) -> SparseCodes:
    """Return starting values: the dense factor model after varimax, negative loadings set to 0.

    Raises
    ------
    DesignError
        More features than the models and items can tell apart.
    """
    check_dimensions(counts, n_features)
    fit = fit_factor(counts, n_features, _RIDGE, tolerance=_TOLERANCE)
    ability, loading = fit.ability, fit.loading
    if n_features > 1:
        turn = torch.as_tensor(rotation_matrix(loading.cpu().numpy(), "varimax")).to(loading)
        ability, loading = ability @ _LINALG.inv(turn).T, loading @ turn
    return SparseCodes(
        ability, torch.zeros_like(ability[:, 0]), loading.clamp_min(0), fit.intercept
    )


def _items_step(counts: Counts, codes: SparseCodes, penalty: float) -> SparseCodes:
    """Accelerated proximal gradient steps, with a step length for each item."""
    design = torch.cat([codes.capability, torch.ones_like(codes.capability[:, :1])], dim=1)
    # The curvature of a logistic likelihood is at most a quarter of that of least squares.
    square = design.square().sum(1)
    most: Tensor = _LINALG.matrix_norm(design, ord=2).square() * counts.trials.max() / 4
    step = 1 / (torch.minimum(counts.trials.T @ square / 4, most) + INTERCEPT_RIDGE)[:, None]
    at = ahead = torch.cat([codes.code, codes.intercept[:, None]], dim=1)
    middle, pace = codes.intercept.mean(), torch.ones_like(step)
    for _ in range(_INNER):
        logit = design @ ahead.T + codes.performance[:, None]
        slope = (counts.right - counts.trials * torch.sigmoid(logit)).T @ design
        slope[:, -1] -= INTERCEPT_RIDGE * (ahead[:, -1] - middle)
        moved = ahead + step * slope
        moved[:, :-1] = (moved[:, :-1] - penalty * step).clamp_min(0)
        # Restart the momentum of items that turn back [OC15]_.
        back = ((ahead - moved) * (moved - at)).sum(1, keepdim=True) > 0
        pace = torch.where(back, 1.0, pace)
        faster = (1 + (1 + 4 * pace.square()).sqrt()) / 2
        ahead = torch.where(back, moved, moved + (pace - 1) / faster * (moved - at))
        at, pace = moved, faster
    return codes._replace(code=at[:, :-1], intercept=at[:, -1])


def fit_models(counts: Counts, codes: SparseCodes) -> SparseCodes:
    """Return the optimal capabilities and performances for these codes."""
    design = torch.cat([codes.code, torch.ones_like(codes.code[:, :1])], dim=1)
    precision = torch.diag(torch.ones_like(design[0]))
    precision[-1:, -1:].fill_(INTERCEPT_RIDGE)
    prior = torch.zeros_like(design[0]), precision
    modes = posterior_mode(counts, design, codes.intercept, prior)
    return codes._replace(capability=modes[:, :-1], performance=modes[:, -1])


def balanced(codes: SparseCodes, penalty: float) -> SparseCodes:
    """Rescale codes against capabilities of each feature to minimise the sum of both penalties.

    Predictions do not change: λ t Σs + Σw² / (2 t²) is least at t³ = Σw² / (λ Σs).
    """
    size, square = codes.code.sum(0), codes.capability.square().sum(0)
    used = (size > 0) & (square > 0)
    by = torch.where(used, square / torch.where(used, penalty * size, 1.0), 1.0).pow(1 / 3)
    return codes._replace(capability=codes.capability / by, code=codes.code * by)


def standardised(codes: SparseCodes) -> SparseCodes:
    """Scale capabilities to mean 0 and variance 1, and sort features by their use.

    A feature's use is the variance that it gives the logits. Performances get mean 0; predictions
    do not change. Features that no item uses come last, with capabilities 0.
    """
    middle = codes.capability.mean(0)
    away = codes.capability - middle
    spread = away.square().mean(0).sqrt()
    used = (codes.code > 0).any(0) & (spread > 0)
    scale = torch.where(used, spread, 0.0)
    away = torch.where(used, away / torch.where(used, spread, 1.0), 0.0)
    order = (codes.code * scale).square().sum(0).argsort(descending=True, stable=True)
    level = codes.performance.mean()
    return SparseCodes(
        capability=away[:, order],
        performance=codes.performance - level,
        code=(codes.code * scale)[:, order],
        intercept=codes.intercept + level + codes.code @ middle,
    )
