"""Joint maximum likelihood (JML) and posterior modes (MAP) of Rasch and 2PL models.

Abilities and items are estimated together by Fisher scoring with the items eliminated: the systems
solved are N × N; or, for teaching, by gradients alone. Without priors this is JML. Each item brings
parameters of its own, so more items do not reduce the bias: JML stretches abilities by about
N / (N - 1), and its intervals are too narrow [Hab77]_. It is here for comparison.

* `joint_fit`: the fit, with or without priors; `map_fit`: posterior modes
* `fit_jml`, `fit_map`: the same as an `IRTFit`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.irt.estimators.frozen import score
from evalstats_plugin.irt.estimators.optimise import FirstOrder, ascend, log_likelihood
from evalstats_plugin.irt.methods import JmlOptions, MapOptions, Optimiser, SlopePrior
from evalstats_plugin.irt.model.arrays import as_array
from evalstats_plugin.irt.model.curves import Items
from evalstats_plugin.irt.model.data import Counts, smoothed_logit
from evalstats_plugin.irt.model.fit import IRTFit, RaschOr2PL, irt_fit, not_converged, run_facts
from evalstats_plugin.runtime.torch import linalg, split

FARTHEST = 15.0
"""Bound of every parameter: answers that abilities order perfectly have no finite estimate."""

JML_NOTE = (
    "joint maximum likelihood stretches abilities by about N / (N - 1), and its intervals are too "
    "narrow: 95 % intervals cover .56 with 5 models, .82 to .88 with 10; mml-items covers .95"
)

MAP_NOTE = (
    "fixed N(0, 1) priors shrink abilities: 95 % intervals cover .61 with 5 models, .69 to .76 "
    "with 10; mml-items covers .95"
)

# Added to the information of each item parameter, so that a flat item can be inverted.
_FLAT = 1e-9
# The search ends when a step is predicted to raise the objective by less than this.
_GAIN = 1e-10
# The same by gradients alone, whose steps are shorter than the way that is left.
_GAIN_OF_GRADIENTS = 1e-13
# Smallest discrimination under a prior of positive ones.
_LEAST = 1e-3
# Largest change of a parameter in a step.
_LONGEST = 2.0


@dataclass(frozen=True)
class Penalty:
    """Precisions of normal priors, ability ~ N(0, 1/p) and intercept ~ N(0, 1/q), and of slopes.

    A precision of 0 means no prior.
    """

    ability: float = 0.0
    intercept: float = 0.0
    discrimination: Slopes | None = None


class Slopes(NamedTuple):
    """Prior of discriminations, as in `MapOptions`."""

    kind: SlopePrior
    first: float
    second: float

    def log_density(self, slope: Tensor) -> Tensor:
        """Up to a constant, of each slope."""
        if self.kind == "gamma":
            return (self.first - 1) * slope.log() - slope / self.second
        if self.kind == "lognormal":
            return -slope.log() - ((slope.log() - self.first) / self.second).square() / 2
        return -((slope - self.first) / self.second).square() / 2

    def gradient(self, slope: Tensor) -> Tensor:
        """Derivative of the log density."""
        if self.kind == "gamma":
            return (self.first - 1) / slope - 1 / self.second
        if self.kind == "lognormal":
            return -(1 + (slope.log() - self.first) / self.second**2) / slope
        return -(slope - self.first) / self.second**2

    def curvature(self, slope: Tensor) -> Tensor:
        """Minus the second derivative; 0 where it is negative."""
        if self.kind == "gamma":
            return (self.first - 1) / slope.square()
        if self.kind == "lognormal":
            bend = 1 - self.second**2 - slope.log() + self.first
            return (bend / (self.second * slope).square()).clamp_min(0)
        return torch.full_like(slope, self.second**-2)


class JointFit(NamedTuple):
    """Estimates of N abilities and M items."""

    ability: Tensor
    """Shape (N,), sums to 0; in a 2PL without a prior of abilities the mean square is 1."""
    covariance: Tensor
    """Shape (N, N), from the Fisher information of all parameters together."""
    discrimination: Tensor
    """Shape (M,)."""
    intercept: Tensor
    """Shape (M,); NaN for items all right or all wrong, unless they have a prior."""
    item_covariance: Tensor
    """Shape (M, 2, 2), of discrimination and intercept, abilities taken as known."""
    log_likelihood: Tensor
    extreme: Tensor
    """Shape (N,): 1 for models all right, -1 for all wrong. Without a prior of abilities they are
    fitted as if half an item had gone the other way."""
    iterations: int
    converged: bool
    """False too where a parameter has reached `FARTHEST`."""


class _State(NamedTuple):
    """Abilities (N,), slopes and intercepts (M,)."""

    ability: Tensor
    slope: Tensor
    intercept: Tensor


class _Data(NamedTuple):
    """Answers (N, M), and what is maximised."""

    right: Tensor
    trials: Tensor
    penalty: Penalty
    kind: RaschOr2PL

    def state(self, at: Tensor) -> _State:
        """Parameters of a flat point (1, N + 2M)."""
        n, m = self.right.shape
        return _State(*split(at[0], [n, m, m]))


def joint_fit(
    counts: Counts,
    kind: RaschOr2PL = "2pl",
    *,
    penalty: Penalty | None = None,
    optimiser: Optimiser = "newton",
    max_steps: int = 500,
) -> JointFit:
    """Maximise the likelihood, or with a penalty the posterior, of abilities and items.

    Parameters
    ----------
    penalty
        None is joint maximum likelihood.
    """
    penalty = penalty or Penalty()
    data, start, extreme, flat = _prepared(counts, kind, penalty)
    by_gradient = None if optimiser == "newton" else FirstOrder(optimiser)

    def climb(at: Tensor) -> tuple[Tensor, Callable[[], tuple[Tensor, Tensor]]]:
        state = data.state(at)

        def onward() -> tuple[Tensor, Tensor]:
            information_here = _information(data, state)
            uphill = _gradient(data, state, information_here)
            if by_gradient is None:
                step, gain = _scoring_step(data, state, information_here, uphill)
                return torch.cat(step)[None], gain[None]
            # Blocks of a matrix that is not negative: its largest eigenvalue is at most their sum.
            of_items = information_here.items.diagonal(dim1=1, dim2=2).sum(1).max()
            curvature = information_here.ability.max() + of_items
            gradient = torch.cat(uphill)[None]
            gain = gradient.square().sum(1) / curvature
            return by_gradient.step(at, gradient, curvature), gain

        return _objective(data, state)[None], onward

    def kept(at: Tensor) -> Tensor:
        state = data.state(at.clamp(-FARTHEST, FARTHEST))
        if penalty.discrimination is not None and penalty.discrimination.kind != "normal":
            state = state._replace(slope=state.slope.clamp_min(_LEAST))
        return torch.cat(_identified(data, state))[None]

    optimum = ascend(
        climb,
        start,
        tolerance=_GAIN if by_gradient is None else _GAIN_OF_GRADIENTS,
        max_steps=max_steps,
        longest=_LONGEST,
        kept=kept,
    )
    state = data.state(optimum.at)
    information = _information(data, state)
    item_inverse = linalg.inv(information.items)
    covariance = _ability_covariance(data, state, information, item_inverse)
    if kind == "2pl":
        item_inverse = item_inverse.flip(1, 2)
    else:
        item_inverse = torch.nn.functional.pad(item_inverse, (1, 0, 1, 0))
    shift = state.ability.mean()
    centre = torch.eye(len(covariance)).to(covariance) - 1 / len(covariance)
    slope = state.slope if kind == "rasch" else torch.where(flat, torch.nan, state.slope)
    far = bool(optimum.at.abs().max() >= FARTHEST)
    return JointFit(
        ability=state.ability - shift,
        covariance=centre @ covariance @ centre,
        discrimination=slope,
        intercept=torch.where(flat, torch.nan, state.intercept + state.slope * shift),
        item_covariance=torch.where(flat[:, None, None], torch.nan, item_inverse),
        log_likelihood=log_likelihood(data.right, data.trials, _logit(state)).sum(),
        extreme=extreme,
        iterations=optimum.steps,
        converged=bool(optimum.converged) and not far,
    )


def _prepared(
    counts: Counts, kind: RaschOr2PL, penalty: Penalty
) -> tuple[_Data, Tensor, Tensor, Tensor]:
    """Answers to fit (N, M), where to start, extreme models (N,), and flat items (M,).

    Items all right or all wrong do not inform about abilities. Without a prior they are left out
    before the extreme models are determined.
    """
    hits, trials = counts.right, counts.trials
    flat = (hits.sum(0) <= 0) | (hits.sum(0) >= trials.sum(0))
    if penalty.intercept > 0:
        flat = torch.zeros_like(flat)
    hits, trials = (torch.where(flat, 0.0, x) for x in (hits, trials))
    total = trials.sum(1)
    extreme = (hits.sum(1) >= total).to(hits) - (hits.sum(1) <= 0).to(hits)
    if penalty.ability == 0:
        hits = hits - (extreme * 0.5 / total.clamp_min(1))[:, None] * trials
    data, ability = _Data(hits, trials, penalty, kind), smoothed_logit(hits.sum(1), trials.sum(1))
    item = smoothed_logit(hits.sum(0), trials.sum(0))
    start = _State(ability - ability.mean(), torch.ones_like(item), item)
    return data, torch.cat(_identified(data, start))[None], extreme, flat


def _identified(data: _Data, state: _State) -> _State:
    """Fix what the likelihood leaves open: location, and the scale of a 2PL."""
    if data.penalty.ability > 0:
        return state
    shift = state.ability.mean()
    ability, intercept = state.ability - shift, state.intercept + state.slope * shift
    if data.kind == "rasch" or data.penalty.discrimination is not None:
        return _State(ability, state.slope, intercept)
    scale = ability.square().mean().sqrt().clamp_min(1e-6)
    return _State(ability / scale, state.slope * scale, intercept)


def _logit(state: _State) -> Tensor:
    return torch.addcmul(state.intercept, state.ability[:, None], state.slope)


def _objective(data: _Data, state: _State) -> Tensor:
    p = data.penalty
    held = p.ability * state.ability.square().sum() + p.intercept * state.intercept.square().sum()
    value = log_likelihood(data.right, data.trials, _logit(state)).sum() - held / 2
    if p.discrimination is None:
        return value
    return value + p.discrimination.log_density(state.slope).sum()


class _Information(NamedTuple):
    """Fisher information: of abilities (N,), of items (M, p, p), and across (N, M, p).

    The p item parameters are the intercept and, in a 2PL, the discrimination.
    """

    ability: Tensor
    items: Tensor
    across: Tensor
    residual: Tensor
    """Right answers less those expected, shape (N, M)."""


def _information(data: _Data, state: _State) -> _Information:
    p = torch.sigmoid(_logit(state))
    weight, ones = data.trials * p * (1 - p), torch.ones_like(state.ability)
    levers = ones[:, None] if data.kind == "rasch" else torch.stack([ones, state.ability], 1)
    slope = weight * state.slope
    items = torch.einsum("nm,ni,nj->mij", weight, levers, levers)
    items.diagonal(dim1=1, dim2=2).add_(_FLAT)
    items[:, 0, 0] += data.penalty.intercept
    if data.kind == "2pl" and data.penalty.discrimination is not None:
        items[:, 1, 1] += data.penalty.discrimination.curvature(state.slope)
    across = slope[..., None] * levers[:, None]
    ability = (slope * state.slope).sum(1) + data.penalty.ability
    return _Information(ability, items, across, data.right - data.trials * p)


def _gradient(data: _Data, state: _State, information: _Information) -> _State:
    """Derivatives of the objective; 0 by slopes that are all 1."""
    by_slope = torch.zeros_like(state.slope)
    if data.kind == "2pl":
        by_slope = state.ability @ information.residual
        if data.penalty.discrimination is not None:
            by_slope = by_slope + data.penalty.discrimination.gradient(state.slope)
    return _State(
        information.residual @ state.slope - data.penalty.ability * state.ability,
        by_slope,
        information.residual.sum(0) - data.penalty.intercept * state.intercept,
    )


def _scoring_step(
    data: _Data, state: _State, information: _Information, uphill: _State
) -> tuple[_State, Tensor]:
    """Step of Fisher scoring, and the rise of the objective that it predicts.

    With a prior of abilities it is Newton's wherever the objective is concave: the expected
    information is up to half as large, and its steps then oscillate.
    """
    by_item = [uphill.intercept, *([uphill.slope] if data.kind == "2pl" else [])]
    gradient = torch.stack(by_item, 1)
    item_inverse = linalg.inv_ex(information.items)[0]
    covariance = _ability_covariance(data, state, information, item_inverse)
    if data.kind == "2pl" and data.penalty.ability > 0:
        seen = information._replace(across=information.across.clone())
        seen.across[..., 1] -= information.residual
        observed = _ability_covariance(data, state, seen, item_inverse)
        concave = linalg.cholesky_ex(observed)[1] == 0
        covariance = torch.where(concave, observed, covariance)
        information = information._replace(
            across=torch.where(concave, seen.across, information.across)
        )
    alone = (item_inverse @ gradient[..., None])[..., 0]
    held = (information.across * alone).sum((1, 2))
    ability = covariance @ (uphill.ability - held)
    coupled = torch.einsum("nmi,n->mi", information.across, ability)
    items = alone - (item_inverse @ coupled[..., None])[..., 0]
    slope = items[:, 1] if data.kind == "2pl" else torch.zeros_like(items[:, 0])
    gain = uphill.ability @ ability + (gradient * items).sum()
    return _State(ability, slope, items[:, 0]), gain


def _ability_covariance(
    data: _Data, state: _State, information: _Information, item_inverse: Tensor
) -> Tensor:
    """Covariance of abilities with items eliminated, (N, N), in the identified directions.

    `item_inverse` is the inverse of the items' information.
    """
    part = (information.across[:, :, None] @ item_inverse)[:, :, 0]
    matrix = torch.diag(information.ability) - part.flatten(1) @ information.across.flatten(1).T
    if data.penalty.ability > 0:
        return linalg.inv_ex(matrix)[0]
    free = [torch.ones_like(state.ability)]
    if data.kind == "2pl" and data.penalty.discrimination is None:
        free.append(state.ability)
    basis = linalg.qr(torch.stack(free, 1))[0]
    inverse = linalg.inv_ex(matrix + information.ability.mean() * (basis @ basis.T))[0]
    across = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device) - basis @ basis.T
    return across @ inverse @ across


def map_fit(
    counts: Counts, kind: RaschOr2PL = "2pl", options: MapOptions | None = None
) -> JointFit:
    """Mode under the priors of `MapOptions`.

    The covariance is Laplace's, from the expected information.
    """
    how = options or MapOptions()
    intercept = how.strength if how.intercept_sd is None else how.intercept_sd**-2
    penalty = Penalty(how.ability_sd**-2, intercept, Slopes(how.discrimination, *how.slope_prior))
    return joint_fit(
        counts, kind, penalty=penalty, optimiser=how.optimiser, max_steps=how.max_steps
    )


def fit_jml(
    matrix: ResponseMatrix, counts: Counts, item_model: RaschOr2PL, options: JmlOptions
) -> IRTFit:
    """Joint maximum likelihood."""
    began = time.perf_counter()
    joint = joint_fit(counts, item_model, optimiser=options.optimiser, max_steps=options.max_steps)
    return _record(
        matrix,
        counts,
        joint,
        began,
        [JML_NOTE],
        item_model=item_model,
        estimator="jml",
        identification=f"abilities sum to 0{', mean square 1' if item_model == '2pl' else ''}",
    )


def fit_map(
    matrix: ResponseMatrix, counts: Counts, item_model: RaschOr2PL, options: MapOptions
) -> IRTFit:
    """Posterior mode under fixed priors."""
    began = time.perf_counter()
    joint = map_fit(counts, item_model, options)
    sd, strength = options.ability_sd, options.strength
    prior: dict[str, Any] = {
        "ability_sd": sd,
        "intercept_sd": options.intercept_sd or strength**-0.5,
        "strength": strength,
    }
    if item_model == "2pl":
        names = {"lognormal": ("log_mean", "log_sd"), "gamma": ("shape", "scale")}
        chosen = names.get(options.discrimination, ("mean", "sd"))
        prior |= {
            f"discrimination_{name}": value
            for name, value in zip(chosen, options.slope_prior, strict=True)
        }
    unit = "1" if sd == 1 else f"{sd:g}²"
    return _record(
        matrix,
        counts,
        joint,
        began,
        [MAP_NOTE] if sd == 1 else [],
        item_model=item_model,
        estimator="map",
        identification=f"abilities sum to 0, under ability ~ N(0, {unit})",
        hyperparameters=prior,
    )


def _record(
    matrix: ResponseMatrix,
    counts: Counts,
    joint: JointFit,
    began: float,
    about: list[str],
    **rest: Any,
) -> IRTFit:
    """Record the fit; flat items get Warm's difficulty and the others' mean discrimination."""
    notes = [*counts.notes, *about, "errors of items take abilities as known"]
    if not joint.converged:
        notes.append(not_converged(joint.iterations))
    if rest["estimator"] == "jml" and bool(joint.extreme.any()):
        notes.append("models all right or all wrong: abilities as if half an item were otherwise")
    a, d = as_array(joint.discrimination).copy(), as_array(joint.intercept).copy()
    ability, flat = as_array(joint.ability), np.isnan(d)
    if flat.any():
        a[flat] = 1.0 if rest["item_model"] == "rasch" or flat.all() else float(a[~flat].mean())
        here = torch.as_tensor(flat, device=counts.right.device)
        level = counts.right.new_tensor(ability) * float(a[flat][0])
        # Items and models exchanged.
        answers = Counts(counts.right[:, here].T, counts.trials[:, here].T)
        d[flat] = as_array(score(answers, Items(torch.ones_like(level), level), "wle").ability)
    fit = irt_fit(
        matrix, ability=joint.ability, covariance=joint.covariance,
        discrimination=torch.as_tensor(a), intercept=torch.as_tensor(d),
        item_covariance=joint.item_covariance, **rest,
        diagnostics={
            "iterations": joint.iterations,
            "converged": joint.converged,
            "log_likelihood": float(joint.log_likelihood),
            "likelihood": "joint",
            **run_facts(counts, began),
        },
        notes=tuple(notes),
    )  # fmt: skip
    if not flat.any():
        return fit
    note = (
        f"{int(flat.sum())} items all right or all wrong have no estimate of this kind: their "
        "difficulty is Warm's, abilities taken as known, and has no error"
    )
    return replace(fit, notes=(*fit.notes, note))
