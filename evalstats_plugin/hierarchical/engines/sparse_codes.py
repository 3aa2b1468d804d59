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


def _momentum(steps: int) -> list[float]:
    """Share of the last change by which each step goes on, for so many steps [BT09]_."""
    pace, shares = 1.0, list[float]()
    for _ in range(steps):
        faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
        shares.append((pace - 1) / faster)
        pace = faster
    return shares


_MOMENTUM = _momentum(_INNER)

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
    step = 1 / (torch.minimum(square @ counts.trials / 4, most) + INTERCEPT_RIDGE)
    at = ahead = torch.cat([codes.code.T, codes.intercept[None]])
    # What does not change from step to step: codes have a penalty and are at least 0, intercepts
    # have a ridge around their mean.
    is_code = torch.ones_like(at[:, :1])
    is_code[-1:].fill_(0)
    shrink = 1 - INTERCEPT_RIDGE * (1 - is_code) * step
    prior = INTERCEPT_RIDGE * codes.intercept.mean() * (1 - is_code) - penalty * is_code
    # Logarithms are 0 for codes, and -inf for intercepts, which may be any number.
    pull, least = step * (design.T @ counts.right + prior), torch.log(is_code)
    level, momentum = codes.performance[:, None], step.new_tensor(_MOMENTUM)
    count = torch.zeros_like(step, dtype=torch.long)
    for _ in range(_INNER):
        expected = counts.trials * torch.sigmoid(torch.addmm(level, design, ahead))
        moved = torch.addcmul(pull, ahead, shrink).addcmul_(design.T @ expected, step, value=-1)
        moved = torch.maximum(moved, least)
        change = moved - at
        # Restart the momentum of items that turn back [OC15]_.
        count.masked_fill_(((ahead - moved) * change).sum(0) > 0, 0)
        ahead = torch.addcmul(moved, momentum.index_select(0, count), change)
        at, count = moved, count + 1
    return codes._replace(code=at[:-1].T.contiguous(), intercept=at[-1])


def fit_models(counts: Counts, codes: SparseCodes) -> SparseCodes:
    """Return the optimal capabilities and performances for these codes."""
    design = torch.cat([codes.code, torch.ones_like(codes.code[:, :1])], dim=1)
    precision = torch.diag(torch.ones_like(design[0]))
    precision[-1:, -1:].fill_(INTERCEPT_RIDGE)
    prior = torch.zeros_like(design[0]), precision
    before = torch.cat([codes.capability, codes.performance[:, None]], dim=1)
    modes = posterior_mode(counts, design, codes.intercept, prior, before)
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
