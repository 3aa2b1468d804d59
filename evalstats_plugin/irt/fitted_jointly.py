"""From estimators of abilities and items together to an `IRTFit`: taken on request only.

Each fit carries a note that says how its intervals did where the truth was known.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt import gibbs as draw
from evalstats_plugin.irt import hmc as hamiltonian
from evalstats_plugin.irt import jml, variational_parts
from evalstats_plugin.irt import map as mode
from evalstats_plugin.irt import variational as bound
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.fitted import (
    as_array,
    difficulty_error,
    not_converged,
    run_facts,
    suspects_note,
)
from evalstats_plugin.irt.fitted_given_totals import flat_note, warm
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.sampling.convergence import UNLIKE, convergence
from evalstats_plugin.stats.interval import FloatArray


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
    kind = cast("jml.JointKind", item_model)
    found = jml.joint_fit(counts, kind, **options)
    notes = [jml.NOTE, *_joint_notes(found)]
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
    kind, strength = cast("jml.JointKind", item_model), options.get("strength", 1.0)
    if strength == "cross-validated":
        strength = mode.choose_strength(counts, kind, rng).strength
    if not isinstance(strength, (int, float)) or not 0 < strength < np.inf:
        msg = f"strength is {strength!r}, expected a number above 0, or 'cross-validated'"
        raise DesignError(msg)
    found = mode.map_fit(counts, kind, strength=float(strength))
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
        notes=(*counts.notes, mode.NOTE, *_joint_notes(found)),
    )


def fit_vi(
    matrix: ResponseMatrix, counts: Counts, item_model: str, options: Mapping[str, Any]
) -> IRTFit:
    """Variational posterior."""
    began = time.perf_counter()
    how = variational_parts.Options(**options)
    kind = cast("variational_parts.VariationalKind", item_model)
    try:
        found = bound.variational(counts, kind, how)
    except ValueError as error:
        raise DesignError(str(error)) from error
    search = found.found
    notes = [bound.NOTE, *([] if search.converged else [not_converged(search.steps)])]
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
        notes=(*counts.notes, draw.NOTE, *notes, *_mirrored(found)),
    )


def _drawn(
    counts: Counts, item_model: str, options: dict[str, Any], rng: np.random.Generator
) -> tuple[draw.Draws, dict[str, Any]]:
    """Draw with the sampler asked for; return also how long, for the diagnostics."""
    kind = cast("draw.GibbsKind", item_model)
    sampler = options.pop("sampler", "gibbs")
    if sampler not in ("gibbs", "hmc"):
        raise DesignError(f"sampler {sampler!r} found, expected 'gibbs' or 'hmc'")
    how = draw.Options(**options) if sampler == "gibbs" else hamiltonian.Options(**options)
    run: dict[str, Any] = {
        "sampler": sampler,
        "iterations": how.warm_up + how.draws,
        "chains": how.chains,
        "draws": how.draws,
    }
    if isinstance(how, draw.Options):
        return draw.gibbs(counts, kind, rng, how), run
    sampled = hamiltonian.hmc(counts, kind, rng, how)
    return sampled.draws, {**run, "divergent": sampled.divergent}


def _mirrored(found: draw.Draws) -> list[str]:
    """Say so where few answers leave it open which end of the scale is the able one."""
    means = found.hyper.get("discrimination_mean")
    share = 0.0 if means is None else float((means < 0).double().mean())
    if share <= 0.01:
        return []
    return [
        f"in {share:.0%} of the draws the scale is turned round: too few answers to tell able from "
        "unable, and means over the draws mix both"
    ]


def _checked(found: draw.Draws) -> tuple[dict[str, Any], list[str]]:
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


def _joint(found: jml.JointFit) -> _Estimates:
    return _Estimates(
        as_array(found.ability),
        as_array(found.covariance),
        found.discrimination,
        found.intercept,
        found.item_covariance,
    )


def _joint_diagnostics(found: jml.JointFit) -> dict[str, Any]:
    return {
        "iterations": found.iterations,
        "converged": bool(found.converged),
        "log_likelihood": float(found.log_likelihood),
        "likelihood": "joint",
    }


def _joint_notes(found: jml.JointFit) -> list[str]:
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
