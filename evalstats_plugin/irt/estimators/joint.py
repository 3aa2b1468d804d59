"""Joint maximum likelihood (JML) and posterior modes (MAP) of Rasch and 2PL models.

Abilities and items are estimated together, for B sets of answers at once, by Fisher scoring with
the items eliminated: the systems solved are N × N. Without priors this is JML. Each item brings
parameters of its own, so more items do not reduce the bias: JML stretches abilities by about
N / (N - 1), and its intervals are too narrow [Hab77]_. It is here for comparison.

* `joint_fit`: the fit, with or without priors; `map_fit`, `choose_strength`: posterior modes
* `fit_jml`, `fit_map`: the same as an `IRTFit`
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.cml import flat_note, warm
from evalstats_plugin.irt.estimators.fitted import (
    Estimates,
    RaschOr2PL,
    as_array,
    irt_fit,
    not_converged,
    run_facts,
)
from evalstats_plugin.irt.estimators.optimise import log_likelihood, smoothed_logit
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.runtime.workers import report_progress
from evalstats_plugin.stats.arrays import FloatArray

FARTHEST = 15.0
"""Bound of every parameter: answers that abilities order perfectly have no finite estimate."""

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Precisions of the item prior that `choose_strength` compares."""

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


@dataclass(frozen=True)
class Penalty:
    """Precisions of normal priors: ability ~ N(0, 1/p), intercept ~ N(0, 1/q), slope ~ N(1, 1/r).

    A precision of 0 means no prior.
    """

    ability: float = 0.0
    intercept: float = 0.0
    discrimination: float = 0.0


class JointFit(NamedTuple):
    """Fits of B sets of answers; a single fit has no first axis."""

    ability: Tensor
    """Shape (B, N), sums to 0; in a 2PL without a prior of abilities the mean square is 1."""
    covariance: Tensor
    """Shape (B, N, N), from the Fisher information of all parameters together."""
    discrimination: Tensor
    """Shape (B, M)."""
    intercept: Tensor
    """Shape (B, M); NaN for items all right or all wrong, unless they have a prior."""
    item_covariance: Tensor
    """Shape (B, M, 2, 2), of discrimination and intercept, abilities taken as known."""
    log_likelihood: Tensor
    extreme: Tensor
    """Shape (B, N): 1 for models all right, -1 for all wrong. Without a prior of abilities they
    are fitted as if half an item had gone the other way."""
    iterations: int
    converged: Tensor
    """Shape (B,); False too where a parameter has reached `FARTHEST`."""


class _State(NamedTuple):
    """Parameters of B fits."""

    ability: Tensor
    slope: Tensor
    intercept: Tensor


class _Data(NamedTuple):
    """Answers of B fits (B, N, M), and what is maximised."""

    right: Tensor
    trials: Tensor
    penalty: Penalty
    kind: RaschOr2PL


def joint_fit(
    counts: Counts,
    kind: RaschOr2PL = "2pl",
    *,
    penalty: Penalty | None = None,
    weights: Tensor | None = None,
    max_iter: int = 500,
) -> JointFit:
    """Maximise the likelihood, or with a penalty the posterior, of abilities and items.

    Parameters
    ----------
    counts
        Of N models × M items, or (B, N, M) for B fits at once.
    penalty
        None is joint maximum likelihood.
    weights : shape (B, M)
        How often each item counts in each of B fits.
    """
    penalty = penalty or Penalty()
    data, extreme, flat = _prepared(counts, kind, penalty, weights)
    state, length = _start(data), torch.ones_like(data.right[:, 0, 0])
    value = _objective(data, state)
    active = torch.ones_like(value, dtype=torch.bool)
    iterations = 0
    while iterations < max_iter and bool(active.any()):
        iterations += 1
        report_progress("step", iterations)
        step, gain = _scoring_step(data, state)
        trial = _identified(data, _moved(state, step, length * active))
        reached = _objective(data, trial)
        better = reached >= value - 1e-12 * value.abs()
        active = active & ~(better & (gain < _GAIN)) & (length > 1e-6)
        pairs = zip(state, trial, strict=True)
        state = _State(*(torch.where(better[:, None], y, x) for x, y in pairs))
        value = torch.where(better, reached, value)
        length = torch.where(better, (2 * length).clamp_max(1), length / 2)
    information = _information(data, state)
    own = torch.linalg.inv(information.items)
    covariance = _ability_covariance(data, state, information, own)
    own = own.flip(2, 3) if kind == "2pl" else torch.nn.functional.pad(own, (1, 0, 1, 0))
    shift = state.ability.mean(1, keepdim=True)
    centre = torch.eye(covariance.shape[1]).to(covariance) - 1 / covariance.shape[1]
    far = torch.stack([x.abs().amax(1) for x in state]).amax(0) >= FARTHEST
    fit = JointFit(
        ability=state.ability - shift,
        covariance=centre @ covariance @ centre,
        discrimination=state.slope
        if kind == "rasch"
        else torch.where(flat, torch.nan, state.slope),
        intercept=torch.where(flat, torch.nan, state.intercept + state.slope * shift),
        item_covariance=torch.where(flat[..., None, None], torch.nan, own),
        log_likelihood=_log_likelihood(data, state),
        extreme=extreme,
        iterations=iterations,
        converged=~active & ~far,
    )
    if counts.right.ndim == 2 and weights is None:
        return fit._replace(**{k: v[0] for k, v in fit._asdict().items() if k != "iterations"})
    return fit


def _prepared(
    counts: Counts, kind: RaschOr2PL, penalty: Penalty, weights: Tensor | None
) -> tuple[_Data, Tensor, Tensor]:
    """Answers of each fit (B, N, M), its extreme models (B, N), and its flat items (B, M).

    Items all right or all wrong do not inform about abilities. Without a prior they are left out
    before the extreme models are determined.
    """
    hits, trials = counts.right, counts.trials
    if hits.ndim == 2:
        hits, trials = hits[None], trials[None]
    if weights is not None:
        hits, trials = (x * weights.to(hits)[:, None] for x in (hits, trials))
    flat = (hits.sum(1) <= 0) | (hits.sum(1) >= trials.sum(1))
    if penalty.intercept > 0:
        flat = torch.zeros_like(flat)
    hits, trials = (torch.where(flat[:, None], 0.0, x) for x in (hits, trials))
    total = trials.sum(2)
    extreme = (hits.sum(2) >= total).to(hits) - (hits.sum(2) <= 0).to(hits)
    if penalty.ability == 0:
        hits = hits - (extreme * 0.5 / total.clamp_min(1))[..., None] * trials
    return _Data(hits, trials, penalty, kind), extreme, flat


def _start(data: _Data) -> _State:
    ability = smoothed_logit(data.right.sum(2), data.trials.sum(2))
    item = smoothed_logit(data.right.sum(1), data.trials.sum(1))
    state = _State(ability - ability.mean(1, keepdim=True), torch.ones_like(item), item)
    return _identified(data, state)


def _identified(data: _Data, state: _State) -> _State:
    """Fix what the likelihood leaves open: location, and the scale of a 2PL."""
    if data.penalty.ability > 0:
        return state
    shift = state.ability.mean(1, keepdim=True)
    ability, intercept = state.ability - shift, state.intercept + state.slope * shift
    if data.kind == "rasch" or data.penalty.discrimination > 0:
        return _State(ability, state.slope, intercept)
    scale = ability.square().mean(1, keepdim=True).sqrt().clamp_min(1e-6)
    return _State(ability / scale, state.slope * scale, intercept)


def _logit(state: _State) -> Tensor:
    return torch.addcmul(state.intercept[:, None], state.ability[..., None], state.slope[:, None])


def _log_likelihood(data: _Data, state: _State) -> Tensor:
    return log_likelihood(data.right, data.trials, _logit(state)).sum((1, 2))


def _objective(data: _Data, state: _State) -> Tensor:
    p = data.penalty
    held = p.ability * state.ability.square().sum(1) + p.intercept * state.intercept.square().sum(1)
    held = held + p.discrimination * (state.slope - 1).square().sum(1)
    return _log_likelihood(data, state) - held / 2


class _Information(NamedTuple):
    """Fisher information: of abilities (B, N), of items (B, M, p, p), and across (B, N, M, p).

    The p item parameters are the intercept and, in a 2PL, the discrimination.
    """

    ability: Tensor
    items: Tensor
    across: Tensor
    residual: Tensor
    """Right answers less those expected, shape (B, N, M)."""


def _information(data: _Data, state: _State) -> _Information:
    p = torch.sigmoid(_logit(state))
    weight, one = data.trials * p * (1 - p), torch.ones_like(state.ability)
    levers = one[..., None]
    prior = [data.penalty.intercept]
    if data.kind == "2pl":
        levers, prior = torch.stack([one, state.ability], 2), [*prior, data.penalty.discrimination]
    slope = weight * state.slope[:, None]
    items = torch.einsum("bnm,bni,bnj->bmij", weight, levers, levers)
    items = items + torch.diag(torch.cat([items.new_full((1,), x + _FLAT) for x in prior]))
    across = slope[..., None] * levers[:, :, None]
    ability = (slope * state.slope[:, None]).sum(2) + data.penalty.ability
    return _Information(ability, items, across, data.right - data.trials * p)


def _scoring_step(data: _Data, state: _State) -> tuple[_State, Tensor]:
    """Step of Fisher scoring, and the rise of the objective that it predicts."""
    found = _information(data, state)
    by_ability = (found.residual * state.slope[:, None]).sum(2)
    by_ability = by_ability - data.penalty.ability * state.ability
    by_item = [found.residual.sum(1) - data.penalty.intercept * state.intercept]
    if data.kind == "2pl":
        by_slope = (found.residual * state.ability[..., None]).sum(1)
        by_item.append(by_slope - data.penalty.discrimination * (state.slope - 1))
    gradient = torch.stack(by_item, 2)
    own = torch.linalg.inv_ex(found.items)[0]
    alone = (own @ gradient[..., None])[..., 0]
    held = (found.across * alone[:, None]).sum((2, 3))
    covariance = _ability_covariance(data, state, found, own)
    ability = (covariance @ (by_ability - held)[..., None])[..., 0]
    coupled = torch.einsum("bnmi,bn->bmi", found.across, ability)
    items = alone - (own @ coupled[..., None])[..., 0]
    slope = items[..., 1] if data.kind == "2pl" else torch.zeros_like(items[..., 0])
    gain = (by_ability * ability).sum(1) + (gradient * items).sum((1, 2))
    return _State(ability, slope, items[..., 0]), gain


def _ability_covariance(data: _Data, state: _State, found: _Information, own: Tensor) -> Tensor:
    """Covariance of abilities with items eliminated, (B, N, N), in the identified directions.

    `own` is the inverse of the items' information.
    """
    part = (found.across[:, :, :, None] @ own[:, None])[..., 0, :]
    matrix = torch.diag_embed(found.ability) - part.flatten(2) @ found.across.flatten(2).mT
    if data.penalty.ability > 0:
        return torch.linalg.inv_ex(matrix)[0]
    free = [torch.ones_like(state.ability)]
    if data.kind == "2pl" and data.penalty.discrimination == 0:
        free.append(state.ability)
    basis = torch.linalg.qr(torch.stack(free, 2))[0]
    ridge = found.ability.mean(1)[:, None, None] * (basis @ basis.mT)
    inverse = torch.linalg.inv_ex(matrix + ridge)[0]
    one = torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    across = one - basis @ basis.mT
    return across @ inverse @ across


def _moved(state: _State, step: _State, length: Tensor) -> _State:
    """Take a share `length` of the step, by no more than 2 in any parameter."""
    longest = torch.stack([x.abs().amax(1) for x in step]).amax(0)
    share = (length * (2 / longest).clamp_max(1))[:, None]
    moved = ((x + share * y).clamp(-FARTHEST, FARTHEST) for x, y in zip(state, step, strict=True))
    return _State(*moved)


def map_fit(counts: Counts, kind: RaschOr2PL = "2pl", *, strength: float = 1.0) -> JointFit:
    """Mode under ability ~ N(0, 1), intercept ~ N(0, 1/strength), slope ~ N(1, 1/strength).

    The covariance is Laplace's, from the expected information.
    """
    return joint_fit(counts, kind, penalty=Penalty(1.0, strength, strength))


class StrengthChoice(NamedTuple):
    """Strength of the item prior, chosen by cross-validation."""

    strength: float
    strengths: FloatArray
    log_loss: FloatArray
    """Mean over held-out trials, of each strength."""
    std_error: FloatArray
    """Over folds."""


def choose_strength(
    counts: Counts,
    kind: RaschOr2PL,
    rng: np.random.Generator,
    *,
    strengths: Sequence[float] = STRENGTHS,
    folds: int = 5,
) -> StrengthChoice:
    """Choose the strength that predicts held-out cells best; all folds are fitted at once.

    Raises
    ------
    ValueError
        Fewer than two folds, or a strength that is not positive.
    """
    if folds < 2 or min(strengths) <= 0:
        msg = f"found {folds} folds, strengths {tuple(strengths)}: expected 2 or more, and > 0"
        raise ValueError(msg)
    draw = rng.permuted(np.arange(counts.right.numel()) % folds).reshape(counts.right.shape)
    fold = torch.as_tensor(draw, device=counts.right.device)
    held = (fold == torch.arange(folds, device=fold.device)[:, None, None]).to(counts.right)
    seen = Counts(counts.right * (1 - held), counts.trials * (1 - held))
    losses = [_log_loss(counts, held, map_fit(seen, kind, strength=s)) for s in strengths]
    loss = torch.stack(losses).cpu().numpy()
    mean = loss.mean(axis=1)
    error = loss.std(axis=1, ddof=1) / np.sqrt(folds)
    best = float(strengths[int(mean.argmin())])
    return StrengthChoice(best, np.asarray(strengths, dtype=np.float64), mean, error)


def _log_loss(counts: Counts, held: Tensor, fit: JointFit) -> Tensor:
    """Held-out log loss per trial of each fold, shape (B,)."""
    logit = fit.ability[..., None] * fit.discrimination[:, None] + fit.intercept[:, None]
    loss = -log_likelihood(counts.right, counts.trials, logit)
    return (held * loss).sum((1, 2)) / (held * counts.trials).sum((1, 2))


def fit_jml(
    matrix: ResponseMatrix, counts: Counts, item_model: str, options: Mapping[str, Any]
) -> IRTFit:
    """Joint maximum likelihood."""
    began = time.perf_counter()
    found = joint_fit(counts, cast("RaschOr2PL", item_model), **options)
    notes = [JML_NOTE, *_search_notes(found)]
    if bool((found.extreme != 0).any()):
        notes.append("models all right or all wrong: abilities as if half an item were otherwise")
    return _record(
        matrix,
        counts,
        found,
        item_model=item_model,
        estimator="jml",
        identification=f"abilities sum to 0{', mean square 1' if item_model == '2pl' else ''}",
        diagnostics=_diagnostics(found) | run_facts(counts, began),
        notes=(*counts.notes, *notes),
    )


def fit_map(
    matrix: ResponseMatrix,
    counts: Counts,
    item_model: str,
    options: Mapping[str, Any],
    rng: np.random.Generator,
) -> IRTFit:
    """Posterior mode under normal priors.

    Raises
    ------
    DesignError
        The option `strength` is neither a positive number nor ``"cross-validated"``.
    """
    began = time.perf_counter()
    kind, strength = cast("RaschOr2PL", item_model), options.get("strength", 1.0)
    if strength == "cross-validated":
        strength = choose_strength(counts, kind, rng).strength
    if not isinstance(strength, (int, float)) or not 0 < strength < np.inf:
        msg = f"strength is {strength!r}, expected a number above 0, or 'cross-validated'"
        raise DesignError(msg)
    found = map_fit(counts, kind, strength=float(strength))
    sd = float(strength) ** -0.5
    prior = {"ability_sd": 1.0, "intercept_sd": sd, "strength": float(strength)}
    if kind == "2pl":
        prior |= {"discrimination_mean": 1.0, "discrimination_sd": sd}
    return _record(
        matrix,
        counts,
        found,
        item_model=item_model,
        estimator="map",
        identification="abilities sum to 0, under ability ~ N(0, 1)",
        hyperparameters=prior,
        diagnostics=_diagnostics(found) | run_facts(counts, began),
        notes=(*counts.notes, MAP_NOTE, *_search_notes(found)),
    )


def _record(
    matrix: ResponseMatrix, counts: Counts, found: JointFit, *, item_model: str, **rest: Any
) -> IRTFit:
    """Record the fit; flat items get Warm's difficulty and the others' mean discrimination."""
    a, d = as_array(found.discrimination).copy(), as_array(found.intercept).copy()
    ability, flat = as_array(found.ability), np.isnan(d)
    if flat.any():
        a[flat] = 1.0 if item_model == "rasch" or flat.all() else float(a[~flat].mean())
        here = torch.as_tensor(flat, device=counts.right.device)
        level = counts.right.new_tensor(ability) * float(a[flat][0])
        d[flat] = as_array(warm(counts.right[:, here].T, counts.trials[:, here].T, level).value)
    estimates = Estimates(
        ability, as_array(found.covariance), a, d, as_array(found.item_covariance)
    )
    fit = irt_fit(matrix, estimates, item_model=item_model, **rest)
    return replace(fit, notes=(*fit.notes, flat_note(flat))) if flat.any() else fit


def _diagnostics(found: JointFit) -> dict[str, Any]:
    return {
        "iterations": found.iterations,
        "converged": bool(found.converged),
        "log_likelihood": float(found.log_likelihood),
        "likelihood": "joint",
    }


def _search_notes(found: JointFit) -> list[str]:
    notes = ["errors of items take abilities as known"]
    if not bool(found.converged):
        notes.append(not_converged(found.iterations))
    return notes
