"""The model with items integrated out, for many sets of answers at once: its gradient."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_population import (
    DIFFICULTY_SPREAD,
    DISCRIMINATION_SPREAD,
    EXPLAINED_SPREAD,
    Kind,
    Population,
    discrimination_of,
    points,
)
from evalstats_plugin.irt.items_integrated import ItemsIntegratedFit


class Data(NamedTuple):
    """Answers item by item, (B or 1, M, N), and how often items (B, M) and models (B, N) count."""

    right: Tensor
    trials: Tensor | None
    """Shape (M, N); None where every cell has one and the same number of trials, `each`."""
    each: float
    items: Tensor
    models: Tensor
    taken: Tensor
    """Shape (B, N): share of a trial that is taken from models all right, or given to others."""

    def of(self, refits: Tensor) -> Data:
        """Some of the refits."""
        right = self.right if len(self.right) == 1 else self.right[refits]
        items, models, taken = (x[refits] for x in (self.items, self.models, self.taken))
        return self._replace(right=right, items=items, models=models, taken=taken)

    def rows(self) -> Tensor:
        """What is summed over items, one row each: 1, right answers of each model, its trials."""
        one = torch.ones_like(self.right[..., :1])
        parts = [one, self.right] if self.trials is None else [one, self.right, self.trials[None]]
        parts = [part.expand(len(self.right), -1, -1) for part in parts]
        return (torch.cat(parts, dim=2) * self.items[:, :, None]).mT.contiguous()


class Model(NamedTuple):
    """What refits share: the points of the integral, in units of the population of items."""

    kind: Kind
    n_models: int
    u: Tensor
    """Standard normal, shape (Q,); of the first item parameter."""
    r: Tensor
    """The same, of what the first does not tell of the second."""
    log_weight: Tensor


class Places(NamedTuple):
    """The points of each refit, each of shape (B, Q)."""

    discrimination: Tensor
    intercept: Tensor
    difficulty: Tensor


class Slope(NamedTuple):
    """Gradient by abilities and free hyper-parameters (B, P), and each item's place (B, M, Q)."""

    gradient: Tensor
    place: Tensor
    grid: Places


def weighted(
    counts: Counts,
    right: Tensor | None,
    item_weights: Tensor | None,
    model_weights: Tensor | None,
) -> Data:
    """Answers with their weights; see `Refitter.refit`."""
    n, m = counts.right.shape
    size = next(len(x) for x in (right, item_weights, model_weights) if x is not None)
    answers = counts.right[None] if right is None else right.to(counts.right)
    unit = answers.new_ones(())
    items = unit.expand(size, m) if item_weights is None else item_weights.to(unit)
    models = unit.expand(size, n) if model_weights is None else model_weights.to(unit)
    each = float(counts.trials[0, 0])
    equal = bool((counts.trials == each).all())
    # As in the fit: models all right or all wrong have no finite ability, but for half an item.
    total = items @ counts.trials.T
    hits = (answers @ items[:, :, None])[:, :, 0]
    extreme = (hits >= total).to(unit) - (hits <= 0).to(unit)
    return Data(
        right=answers.mT.contiguous(),
        trials=None if equal else counts.trials.T.contiguous(),
        each=each,
        items=items,
        models=models,
        taken=extreme * 0.5 / total.clamp_min(1),
    )


def start_of(fit: ItemsIntegratedFit, kind: Kind) -> Tensor:
    """Abilities and free hyper-parameters of the fit, shape (P,)."""
    known = fit.hyperparameters
    first, second = ("intercept", "discrimination") if kind == "2pl-signed" else (
        "difficulty", "log_discrimination")  # fmt: skip
    sd = known[f"{first}_sd"]
    values = [known[f"{first}_mean"], math.log(sd)]
    if kind != "rasch":
        spread, correlation = known[f"{second}_sd"], known["correlation"]
        own = spread * math.sqrt(max(1 - correlation**2, 1e-12))
        values += [correlation * spread / sd, math.log(max(own, 1e-12))]
    return torch.cat([fit.ability, fit.ability.new_tensor(values)])


def model_of(counts: Counts, fit: ItemsIntegratedFit, kind: Kind, start: Tensor) -> Model:
    """The points of the fit. They move with the population, and so fit that of each refit."""
    n = len(fit.ability)
    values = list(start[n:].unbind())
    if kind != "rasch":
        values.insert(2, start.new_tensor(_held(kind)))
    population = Population(kind, torch.stack(values))
    grid = points(population, fit.ability, counts.trials.amax(1))
    m1, s1 = values[0], torch.exp(values[1])
    u, r = (grid.x1 - m1) / s1, torch.zeros_like(grid.x1)
    if kind != "rasch":
        r = (grid.x2 - values[2] - values[3] * s1 * u) / torch.exp(values[4])
    return Model(kind, n, u, r, population.log_density(grid.x1, grid.x2) + grid.log_area)


def _held(kind: Kind) -> float:
    """m_2, the mean of the second item parameter."""
    return 1.0 if kind == "2pl-signed" else 0.0


def _places(model: Model, hyper: Tensor) -> Places:
    first = hyper[:, :1] + torch.exp(hyper[:, 1:2]) * model.u
    if model.kind == "rasch":
        return Places(torch.ones_like(first), -first, first)
    second = _held(model.kind) + hyper[:, 2:3] * torch.exp(hyper[:, 1:2]) * model.u
    second = second + torch.exp(hyper[:, 3:4]) * model.r
    if model.kind == "2pl-signed":
        return Places(second, first, first)
    a = discrimination_of(second)
    return Places(a, -a * first, first)


def slope_of(model: Model, data: Data, rows: Tensor, at: Tensor) -> Slope:
    """Gradient of the log-likelihood of each refit at its own parameters `at` (B, P)."""
    n = model.n_models
    ability, hyper = at[:, :n], at[:, n:]
    a, d, _ = grid = _places(model, hyper)
    logit = ability[:, :, None] * a[:, None] + d[:, None]
    chance = torch.sigmoid(logit) + data.taken[:, :, None]
    weight = data.models[:, :, None]
    level = (torch.nn.functional.softplus(logit) + data.taken[:, :, None] * logit) * weight
    score = data.right @ (logit * weight)
    prior = model.log_weight
    if data.trials is None:
        prior = prior - data.each * level.sum(1)
    else:
        score -= data.trials @ level
        prior = prior.expand(len(at), -1)
    # Shape (B, M, Q): where each item lies.
    place = torch.softmax(score.add_(prior[:, None]), dim=2)
    sums = rows @ place
    pooled, hits = sums[:, :1], sums[:, 1 : n + 1]
    expected = data.each * pooled if data.trials is None else sums[:, n + 1 :]
    residual = ((hits - expected * chance) @ a[:, :, None])[:, :, 0] * data.models
    by_hyper = _by_hyper(model, pooled[:, 0], hyper)
    return Slope(torch.cat([residual, by_hyper], dim=1), place, grid)


def _by_hyper(model: Model, pooled: Tensor, hyper: Tensor) -> Tensor:
    """Gradient by the free hyper-parameters, prior and all."""
    u, r = model.u, model.r
    moments = pooled @ torch.stack([u, u * u - 1, r, r * u, r * r - 1], dim=1)
    u_sum, u_square, r_sum, both, r_square = moments.unbind(1)
    v1 = torch.exp(2 * hyper[:, 1])
    s1 = v1.sqrt()
    by_sd = u_square + 1 - v1 / DIFFICULTY_SPREAD**2
    if model.kind == "rasch":
        return torch.stack([u_sum / s1, by_sd], dim=1)
    slope, s2 = hyper[:, 2], torch.exp(hyper[:, 3])
    square = v1 / EXPLAINED_SPREAD**2
    columns = [
        u_sum / s1 - slope * r_sum / s2,
        by_sd - slope**2 * square,
        both * s1 / s2 - slope * square,
        r_square + 1 - (s2 / DISCRIMINATION_SPREAD) ** 2,
    ]
    return torch.stack(columns, dim=1)
