"""Sparse factor model: items load on few of K features, and never below 0.

P(right) = 1 / (1 + exp(-(θ·a + d))) with a ≥ 0, as in a sparse autoencoder: a feature is a skill
that helps wherever it is called for. Sparse by an L1 penalty, or by the `top` largest loadings of
each item. Items and models take turns: items by accelerated proximal gradient steps [BT09]_, models
by Newton's method, both for all of them at once.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.factor import INTERCEPT_RIDGE, check_dimensions, fit_factor
from evalstats_plugin.irt.logistic import posterior_mode

_INNER = 20
_RIDGE = 10.0


class SparseFit(NamedTuple):
    """N models and M items on K features, in the order of the logits' variance they explain."""

    ability: Tensor
    """θ, shape (N, K): mean 0 and variance 1 on each feature in use."""
    loading: Tensor
    """a ≥ 0, shape (M, K)."""
    intercept: Tensor
    """d, shape (M,)."""
    objective: float
    """Penalised log-likelihood at the end."""
    iterations: int
    converged: bool

    def probability(self) -> Tensor:
        """P(right) of every model on every item, shape (N, M)."""
        return torch.sigmoid(torch.addmm(self.intercept, self.ability, self.loading.T))

    @property
    def density(self) -> float:
        """Share of loadings above 0."""
        return float((self.loading > 0).double().mean())


class _Items(NamedTuple):
    loading: Tensor
    intercept: Tensor


def fit_sparse_factor(
    counts: Counts,
    n_dimensions: int,
    *,
    penalty: float = 3.0,
    top: int | None = None,
    tolerance: float = 1e-7,
    max_steps: int = 500,
) -> SparseFit:
    """Fit K features, starting from the varimax rotation of the dense model.

    Parameters
    ----------
    penalty
        Of the sum of all loadings; abilities are N(0, I). With `top`, half the ridge instead.
    top
        Loadings that each item may have; None for as many as the L1 penalty leaves. The rule is
        not convex: the result is a local optimum.
    tolerance
        Share by which the objective rises in a round, under which the search ends.

    Raises
    ------
    DesignError
        More dimensions than the models and items can tell apart.
    ValueError
        `penalty` below 0, or `top` outside 1 to K.
    """
    check_dimensions(counts, n_dimensions)
    if penalty < 0 or (top is not None and not 1 <= top <= n_dimensions):
        raise ValueError(
            f"penalty must be at least 0 and top in 1 to {n_dimensions}, got {penalty} and {top}"
        )
    ability, items, value, search = _search(
        counts, n_dimensions, (penalty, top), (tolerance, max_steps)
    )
    return _standardised(ability, items, value, search)


def _search(
    counts: Counts, size: int, rule: tuple[float, int | None], stop: tuple[float, int]
) -> tuple[Tensor, _Items, float, tuple[int, bool]]:
    """Items and models in turn, until the objective has settled."""
    ability, items = _start(counts, size)
    value, done, converged = -math.inf, 0, False
    origin = ability.new_zeros(size), torch.eye(size).to(ability)
    while done < stop[1] and not converged:
        done += 1
        items = _items_step(counts, ability, items, *rule)
        ability = posterior_mode(counts, items.loading, items.intercept, origin)
        fresh = _objective(counts, ability, items, *rule)
        converged = fresh - value <= stop[0] * abs(fresh)
        value = fresh
    return ability, items, value, (done, converged)


def _start(counts: Counts, size: int) -> tuple[Tensor, _Items]:
    fit = fit_factor(counts, size, _RIDGE, tolerance=1e-2)
    turned = fit.rotated("varimax") if size > 1 else fit
    return turned.ability, _Items(turned.loading.clamp_min(0), turned.intercept)


def _shrunk(loading: Tensor, penalty: Tensor, top: int | None) -> Tensor:
    """Proximal map: the nearest loadings that the penalty, or the rule of the top k, allows."""
    if top is None:
        return (loading - penalty).clamp_min(0)
    kept = (loading / (1 + penalty)).clamp_min(0)
    weakest = kept.topk(top, dim=1).values[:, -1:]
    return torch.where(kept >= weakest, kept, 0.0)


def _items_step(
    counts: Counts, ability: Tensor, items: _Items, penalty: float, top: int | None
) -> _Items:
    """Some accelerated proximal steps, of a length that each item's curvature allows."""
    design = torch.cat([ability, torch.ones_like(ability[:, :1])], dim=1)
    # A logistic likelihood bends by at most a quarter of that of least squares.
    square = design.square() @ torch.ones_like(design[0])
    most = torch.linalg.matrix_norm(design, ord=2).square() * counts.trials.max() / 4
    bound = torch.minimum(counts.trials.T @ square / 4, most) + INTERCEPT_RIDGE
    step = (1 / bound)[:, None]
    at = ahead = torch.cat([items.loading, items.intercept[:, None]], dim=1)
    middle, pace = items.intercept.mean(), 1.0
    for _ in range(_INNER):
        logit = design @ ahead.T
        slope = (counts.right - counts.trials * torch.sigmoid(logit)).T @ design
        slope[:, -1] -= INTERCEPT_RIDGE * (ahead[:, -1] - middle)
        moved = ahead + step * slope
        moved[:, :-1] = _shrunk(moved[:, :-1], penalty * step, top)
        # Items that turn back start afresh, so that none overshoots [OC15].
        back = ((ahead - moved) * (moved - at)).sum(1, keepdim=True) > 0
        faster = (1 + (1 + 4 * pace * pace) ** 0.5) / 2
        push = 0.0 if top is not None else (pace - 1) / faster
        ahead = torch.where(back, moved, moved + push * (moved - at))
        at, pace = moved, faster
    return _Items(at[:, :-1], at[:, -1])


def _objective(
    counts: Counts, ability: Tensor, items: _Items, penalty: float, top: int | None
) -> float:
    logit = torch.addmm(items.intercept, ability, items.loading.T)
    fit = counts.right * logit - counts.trials * torch.nn.functional.softplus(logit)
    size = items.loading.sum() if top is None else items.loading.square().sum() / 2
    off = items.intercept - items.intercept.mean()
    prior = ability.square().sum() / 2 + INTERCEPT_RIDGE * off.square().sum() / 2
    return float(fit.sum() - penalty * size - prior)


def _standardised(
    ability: Tensor, items: _Items, value: float, search: tuple[int, bool]
) -> SparseFit:
    """Abilities to mean 0 and variance 1; predictions stay."""
    middle, spread = ability.mean(0), ability.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    loading = items.loading * spread
    order = loading.square().sum(0).argsort(descending=True, stable=True)
    return SparseFit(
        ability=((ability - middle) / spread)[:, order],
        loading=loading[:, order],
        intercept=items.intercept + items.loading @ middle,
        objective=value,
        iterations=search[0],
        converged=search[1],
    )
