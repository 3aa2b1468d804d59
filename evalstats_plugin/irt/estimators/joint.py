"""Joint maximum likelihood, and posterior modes: abilities and items are estimated together.

Each item brings parameters of its own, so that more items do not mend the bias: abilities are
stretched by about N / (N - 1), and intervals are too narrow [Hab77]_. Ninety-five percent intervals
were seen to cover .82 to .88 with 10 models and 500 items, .56 with 5. It is here for comparison,
and as the start of other estimators.

Fisher scoring with the items eliminated: what is solved is N × N, and B sets of answers at once.
"""
# PART map - Posterior modes under normal priors, and how strong the priors should be.
# PART fitted_jointly - From estimators of abilities and items together to an `IRTFit`: taken on request only.

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators import draws, variational
from evalstats_plugin.irt.estimators.cml import flat_note, warm
from evalstats_plugin.irt.estimators.fitted import (
    as_array,
    difficulty_error,
    not_converged,
    run_facts,
    suspects_note,
)
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.runtime.workers import tell_progress
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.draws import UNLIKE, convergence

JointKind = Literal["rasch", "2pl"]


FARTHEST = 15.0
"""Bound of every parameter: answers that abilities order perfectly have no finite estimate."""


JML_NOTE = (
    "joint maximum likelihood stretches abilities by about N / (N - 1), and its intervals are too "
    "narrow: 95 % intervals cover .56 with 5 models, .82 to .88 with 10; mml-items covers .95"
)


_FLAT = 1e-9


_GAIN = 1e-10


MAP_NOTE = (
    "fixed N(0, 1) priors shrink abilities: 95 % intervals cover .61 with 5 models, .69 to .76 "
    "with 10; mml-items covers .95"
)


STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Penalty:
    """Normal priors: ability ~ N(0, 1/p), intercept ~ N(0, 1/q), discrimination ~ N(1, 1/r)."""

    ability: float = 0.0
    intercept: float = 0.0
    discrimination: float = 0.0


class JointFit(NamedTuple):
    """Of B sets of answers; without the first axis where one was given."""

    ability: Tensor
    """Shape (B, N), sums to 0; without a prior of them, a 2pl's have mean square 1."""
    covariance: Tensor
    """Shape (B, N, N): from the Fisher information of all parameters together."""
    discrimination: Tensor
    """Shape (B, M)."""
    intercept: Tensor
    """Shape (B, M); NaN for items all right or all wrong that no prior holds."""
    item_covariance: Tensor
    """Shape (B, M, 2, 2), of discrimination and intercept, abilities taken as known."""
    log_likelihood: Tensor
    extreme: Tensor
    """Shape (B, N): 1 for models all right, -1 for all wrong; fitted as if half an item went the
    other way, where no prior holds them."""
    iterations: int
    converged: Tensor
    """Shape (B,); False too where a parameter has reached `FARTHEST`."""


class _State(NamedTuple):
    ability: Tensor
    slope: Tensor
    intercept: Tensor


class _Data(NamedTuple):
    right: Tensor
    trials: Tensor
    penalty: Penalty
    kind: JointKind


def joint_fit(
    counts: Counts,
    kind: JointKind = "2pl",
    *,
    penalty: Penalty | None = None,
    weights: Tensor | None = None,
    max_iter: int = 500,
) -> JointFit:
    """Maximise the likelihood, or the posterior, of abilities and items.

    Parameters
    ----------
    counts
        Of N models × M items, or (B, N, M) of B fits done at once.
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
        tell_progress("step", iterations)
        step, gain = _step(data, state)
        trial = _normal(data, _moved(state, step, length * active))
        reached = _objective(data, trial)
        better = reached >= value - 1e-12 * value.abs()
        active = active & ~(better & (gain < _GAIN)) & (length > 1e-6)
        pairs = zip(state, trial, strict=True)
        state = _State(*(torch.where(better[:, None], y, x) for x, y in pairs))
        value = torch.where(better, reached, value)
        length = torch.where(better, (2 * length).clamp_max(1), length / 2)
    far = torch.stack([x.abs().amax(1) for x in state]).amax(0) >= FARTHEST
    fit = _summary(data, state, (extreme, flat), (iterations, ~active & ~far))
    single = counts.right.ndim == 2 and weights is None
    return _only(fit) if single else fit


def _only(fit: JointFit) -> JointFit:
    """The one fit there is, without the axis of fits."""
    parts = {k: v[0] for k, v in fit._asdict().items() if k != "iterations"}
    return fit._replace(**parts)


def _prepared(
    counts: Counts, kind: JointKind, penalty: Penalty, weights: Tensor | None
) -> tuple[_Data, Tensor, Tensor]:
    """Answers of each fit, (B, N, M), which of its models are extreme, and which items say nothing.

    Items all right or all wrong tell nothing of abilities, and are left out where no prior holds
    them; only then is seen which models are extreme.
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
    hits, trials = data.right, data.trials
    ability = torch.logit((hits.sum(2) + 0.5) / (trials.sum(2) + 1))
    item = torch.logit((hits.sum(1) + 0.5) / (trials.sum(1) + 1))
    state = _State(ability - ability.mean(1, keepdim=True), torch.ones_like(item), item)
    return _normal(data, state)


def _normal(data: _Data, state: _State) -> _State:
    """Fix what the likelihood leaves open: location, and the scale of a 2pl."""
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


def _objective(data: _Data, state: _State) -> Tensor:
    p = data.penalty
    held = p.ability * state.ability.square().sum(1) + p.intercept * state.intercept.square().sum(1)
    held = held + p.discrimination * (state.slope - 1).square().sum(1)
    return _log_likelihood(data, state) - held / 2


def _log_likelihood(data: _Data, state: _State) -> Tensor:
    logit = _logit(state)
    return (data.right * logit - data.trials * torch.nn.functional.softplus(logit)).sum((1, 2))


class _Information(NamedTuple):
    """Fisher information: of abilities (B, N), of items (B, M, p, p), and across (B, N, M, p)."""

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


def _step(data: _Data, state: _State) -> tuple[_State, Tensor]:
    """Fisher scoring's step, and the rise it promises."""
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
    ability = (_reduced(data, state, found, own) @ (by_ability - held)[..., None])[..., 0]
    coupled = torch.einsum("bnmi,bn->bmi", found.across, ability)
    items = alone - (own @ coupled[..., None])[..., 0]
    slope = items[..., 1] if data.kind == "2pl" else torch.zeros_like(items[..., 0])
    gain = (by_ability * ability).sum(1) + (gradient * items).sum((1, 2))
    return _State(ability, slope, items[..., 0]), gain


def _reduced(data: _Data, state: _State, found: _Information, own: Tensor) -> Tensor:
    """Covariance of abilities with items eliminated, (B, N, N), along what the data tell."""
    part = (found.across[:, :, :, None] @ own[:, None])[..., 0, :]
    matrix = torch.diag_embed(found.ability) - part.flatten(2) @ found.across.flatten(2).mT
    if data.penalty.ability > 0:
        return torch.linalg.inv_ex(matrix)[0]
    open_ = [torch.ones_like(state.ability)]
    if data.kind == "2pl" and data.penalty.discrimination == 0:
        open_.append(state.ability)
    basis = torch.linalg.qr(torch.stack(open_, 2))[0]
    ridge = found.ability.mean(1)[:, None, None] * (basis @ basis.mT)
    inverse = torch.linalg.inv_ex(matrix + ridge)[0]
    one = torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    across = one - basis @ basis.mT
    return across @ inverse @ across


def _moved(state: _State, step: _State, length: Tensor) -> _State:
    longest = torch.stack([x.abs().amax(1) for x in step]).amax(0)
    share = (length * (2 / longest).clamp_max(1))[:, None]
    moved = ((x + share * y).clamp(-FARTHEST, FARTHEST) for x, y in zip(state, step, strict=True))
    return _State(*moved)


def _summary(
    data: _Data, state: _State, odd: tuple[Tensor, Tensor], search: tuple[int, Tensor]
) -> JointFit:
    extreme, flat = odd
    found = _information(data, state)
    own = torch.linalg.inv(found.items)
    covariance = _reduced(data, state, found, own)
    own = own.flip(2, 3) if data.kind == "2pl" else torch.nn.functional.pad(own, (1, 0, 1, 0))
    shift = state.ability.mean(1, keepdim=True)
    centre = torch.eye(covariance.shape[1]).to(covariance) - 1 / covariance.shape[1]
    return JointFit(
        state.ability - shift,
        centre @ covariance @ centre,
        state.slope if data.kind == "rasch" else torch.where(flat, torch.nan, state.slope),
        torch.where(flat, torch.nan, state.intercept + state.slope * shift),
        torch.where(flat[..., None, None], torch.nan, own),
        _log_likelihood(data, state),
        extreme,
        search[0],
        search[1],
    )


class Chosen(NamedTuple):
    """Strength of the item prior, by cross-validation."""

    strength: float
    strengths: FloatArray
    log_loss: FloatArray
    """Mean over held-out trials, of each strength."""
    std_error: FloatArray
    """Over folds."""


def map_fit(counts: Counts, kind: JointKind = "2pl", *, strength: float = 1.0) -> JointFit:
    """Mode under ability ~ N(0, 1), intercept ~ N(0, 1/strength), slope ~ N(1, 1/strength).

    With a strength of 1 and a Rasch model these are standard normal priors of all parameters. The
    covariance is Laplace's, from the expected information.
    """
    return joint_fit(counts, kind, penalty=Penalty(1.0, strength, strength))


def choose_strength(
    counts: Counts,
    kind: JointKind,
    rng: np.random.Generator,
    *,
    strengths: Sequence[float] = STRENGTHS,
    folds: int = 5,
) -> Chosen:
    """Choose the strength that predicts cells best that were held out, all folds fitted at once.

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
    return Chosen(best, np.asarray(strengths, dtype=np.float64), mean, error)


def _log_loss(counts: Counts, held: Tensor, fit: JointFit) -> Tensor:
    """Of each fold, per trial."""
    logit = fit.ability[..., None] * fit.discrimination[:, None] + fit.intercept[:, None]
    wrong = counts.trials * torch.nn.functional.softplus(logit) - counts.right * logit
    return (held * wrong).sum((1, 2)) / (held * counts.trials).sum((1, 2))


class _Estimates(NamedTuple):
    """What all these estimators find."""

    ability: FloatArray
    covariance: FloatArray
    discrimination: Tensor
    intercept: Tensor
    """NaN for items that nothing places."""
    item_covariance: Tensor


def fit_jml(
    matrix: ResponseMatrix, counts: Counts, item_model: str, options: Mapping[str, Any]
) -> IRTFit:
    """Joint maximum likelihood."""
    began = time.perf_counter()
    kind = cast("JointKind", item_model)
    found = joint_fit(counts, kind, **options)
    notes = [JML_NOTE, *_joint_notes(found)]
    if bool((found.extreme != 0).any()):
        notes.append("models all right or all wrong: abilities as if half an item were otherwise")
    return _fit(
        (matrix, counts),
        _joint(found),
        item_model=item_model,
        estimator="jml",
        identification=f"abilities sum to 0{', mean square 1' if kind == '2pl' else ''}",
        diagnostics=_joint_diagnostics(found) | run_facts(counts, began),
        notes=(*counts.notes, *notes),
    )


def fit_map(
    matrix: ResponseMatrix,
    counts: Counts,
    item_model: str,
    options: Mapping[str, Any],
    rng: np.random.Generator,
) -> IRTFit:
    """Posterior mode under normal priors."""
    began = time.perf_counter()
    kind, strength = cast("JointKind", item_model), options.get("strength", 1.0)
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
    return _fit(
        (matrix, counts),
        _joint(found),
        item_model=item_model,
        estimator="map",
        identification="abilities sum to 0, under ability ~ N(0, 1)",
        hyperparameters=prior,
        diagnostics=_joint_diagnostics(found) | run_facts(counts, began),
        notes=(*counts.notes, MAP_NOTE, *_joint_notes(found)),
    )


def fit_vi(
    matrix: ResponseMatrix, counts: Counts, item_model: str, options: Mapping[str, Any]
) -> IRTFit:
    """Variational posterior."""
    began = time.perf_counter()
    how = variational.VariationalOptions(**options)
    kind = cast("variational.VariationalKind", item_model)
    try:
        found = variational.variational(counts, kind, how)
    except ValueError as error:
        raise DesignError(str(error)) from error
    search = found.found
    notes = [variational.VI_NOTE, *([] if search.converged else [not_converged(search.steps)])]
    given = item_model == "2pl" or how.prior == "vague"
    return _fit(
        (matrix, counts),
        _Estimates(
            as_array(found.ability),
            as_array(found.covariance),
            found.discrimination,
            found.intercept,
            found.item_covariance,
        ),
        item_model=item_model,
        estimator="vi",
        identification=f"abilities sum to 0{', under ability ~ N(0, 1)' if given else ''}",
        hyperparameters=dict(found.hyperparameters),
        diagnostics={
            "iterations": search.steps,
            "converged": bool(search.converged),
            "bound": found.bound,
            **run_facts(counts, began),
        },
        notes=(*counts.notes, *notes),
    )


def fit_mcmc(
    matrix: ResponseMatrix,
    counts: Counts,
    item_model: str,
    options: Mapping[str, Any],
    rng: np.random.Generator,
) -> IRTFit:
    """Posterior mean and covariance of draws."""
    began = time.perf_counter()
    found, run = _drawn(counts, item_model, dict(options), rng)
    ability = as_array(found.ability).reshape(-1, counts.right.shape[0])
    hyper = {name: float(value.mean()) for name, value in found.hyper.items()}
    checked, notes = _checked(found)
    return _fit(
        (matrix, counts),
        _Estimates(
            ability.mean(axis=0),
            np.atleast_2d(np.cov(ability, rowvar=False)),
            found.discrimination,
            found.intercept,
            found.item_covariance,
        ),
        item_model=item_model,
        estimator="mcmc",
        identification=(
            f"abilities sum to 0{', under ability ~ N(0, 1)' if item_model == '2pl' else ''}"
        ),
        hyperparameters={"ability_sd": 1.0, **hyper},
        diagnostics={
            **run,
            **checked,
            **run_facts(counts, began),
        },
        notes=(*counts.notes, draws.GIBBS_NOTE, *notes, *_mirrored(found)),
    )


def _drawn(
    counts: Counts, item_model: str, options: dict[str, Any], rng: np.random.Generator
) -> tuple[draws.Draws, dict[str, Any]]:
    """Draw with the sampler asked for; return also how long, for the diagnostics."""
    kind = cast("draws.GibbsKind", item_model)
    sampler = options.pop("sampler", "gibbs")
    if sampler not in ("gibbs", "hmc"):
        raise DesignError(f"sampler {sampler!r} found, expected 'gibbs' or 'hmc'")
    how = draws.GibbsOptions(**options) if sampler == "gibbs" else draws.HmcOptions(**options)
    run: dict[str, Any] = {
        "sampler": sampler,
        "iterations": how.warm_up + how.draws,
        "chains": how.chains,
        "draws": how.draws,
    }
    if isinstance(how, draws.GibbsOptions):
        return draws.gibbs(counts, kind, rng, how), run
    sampled = draws.hmc(counts, kind, rng, how)
    return sampled.draws, {**run, "divergent": sampled.divergent}


def _mirrored(found: draws.Draws) -> list[str]:
    """Say so where few answers leave it open which end of the scale is the able one."""
    means = found.hyper.get("discrimination_mean")
    share = 0.0 if means is None else float((means < 0).double().mean())
    if share <= 0.01:
        return []
    return [
        f"in {share:.0%} of the draws the scale is turned round: too few answers to tell able from "
        "unable, and means over the draws mix both"
    ]


def _checked(found: draws.Draws) -> tuple[dict[str, Any], list[str]]:
    """Whether the chains agree, where ArviZ is there to tell."""
    try:
        seen = convergence(found.ability.cpu().numpy())
    except DesignError as error:
        return {"converged": None}, [f"whether the chains agree was not checked: {error}"]
    r_hat, ess = float(seen.r_hat.max()), float(seen.ess.min())
    agree = r_hat < UNLIKE
    notes = (
        [] if agree else [f"chains disagree (R-hat {r_hat:.3f}, expected < {UNLIKE}): draw more"]
    )
    return {"converged": agree, "r_hat": r_hat, "ess": ess}, notes


def _joint(found: JointFit) -> _Estimates:
    return _Estimates(
        as_array(found.ability),
        as_array(found.covariance),
        found.discrimination,
        found.intercept,
        found.item_covariance,
    )


def _joint_diagnostics(found: JointFit) -> dict[str, Any]:
    return {
        "iterations": found.iterations,
        "converged": bool(found.converged),
        "log_likelihood": float(found.log_likelihood),
        "likelihood": "joint",
    }


def _joint_notes(found: JointFit) -> list[str]:
    notes = ["errors of items take abilities as known"]
    if not bool(found.converged):
        notes.append(not_converged(found.iterations))
    return notes


def _fit(data: tuple[ResponseMatrix, Counts], found: _Estimates, **rest: Any) -> IRTFit:
    """Items on the scale on which they are reported."""
    matrix, counts = data
    rasch = rest["item_model"] == "rasch"
    a, d, notes = _placed(counts, found, rasch=rasch)
    covariance = as_array(found.item_covariance)
    none = np.full(len(a), np.nan)
    fit = IRTFit(
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        ability=found.ability,
        ability_covariance=found.covariance,
        discrimination=a,
        difficulty=-d / a,
        guessing=np.zeros(len(a)),
        discrimination_std_error=none if rasch else np.sqrt(covariance[:, 0, 0]),
        difficulty_std_error=difficulty_error(a, d, covariance),
        guessing_std_error=none,
        item_covariance=covariance,
        **rest,
    )
    return replace(fit, notes=(*fit.notes, *suspects_note(fit), *notes))


def _placed(
    counts: Counts, found: _Estimates, *, rasch: bool
) -> tuple[FloatArray, FloatArray, list[str]]:
    """Discriminations and intercepts; where answers give none, Warm's of a usual discrimination."""
    a, d = as_array(found.discrimination).copy(), as_array(found.intercept).copy()
    flat = np.isnan(d)
    a[flat] = 1.0 if rasch or flat.all() else float(a[~flat].mean())
    # No division by 0; such an item is as hard as can be.
    a = np.where(a == 0, np.finfo(float).tiny, a)
    if not flat.any():
        return a, d, []
    here = torch.as_tensor(flat, device=counts.right.device)
    level = counts.right.new_tensor(found.ability) * float(a[flat][0])
    d[flat] = as_array(warm(counts.right[:, here].T, counts.trials[:, here].T, level).value)
    return a, d, [flat_note(flat)]
