"""`fit_mml`: marginal maximum likelihood with abilities integrated out, as an `IRTFit`.

See `mml` and `information` for the estimates, and for their covariances.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.irt.estimators.extremes import common_errors, extremes_note, limited
from evalstats_plugin.irt.estimators.grid import LOOSEST, even_nodes, posterior
from evalstats_plugin.irt.estimators.information import Covariances, covariances, is_quick
from evalstats_plugin.irt.estimators.mml import STEEPEST, Marginal, fit_marginal
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.arrays import as_array
from evalstats_plugin.irt.model.curves import Items, curves
from evalstats_plugin.irt.model.data import (
    Counts,
    check_room,
    dispersion_of,
    residual_sums,
    settled_dispersion,
)
from evalstats_plugin.irt.model.fit import (
    IRTFit,
    below_chance_note,
    difficulty_error,
    dispersion_note,
    not_converged,
    run_facts,
    suspects_note,
)
from evalstats_plugin.irt.model.stored import StoredCells
from evalstats_plugin.stats.arrays import FloatArray

_UNTOLD = 0.9
"""Standard error, as a share of the prior's, from which on answers hardly tell an asymptote."""


def fit_mml(
    matrix: ResponseMatrix | ResponseStore, counts: Counts, item_model: str, options: MmlOptions
) -> IRTFit:
    """Marginal maximum likelihood with abilities integrated out, as an `IRTFit`.

    Raises
    ------
    DesignError
        Every item is all right or all wrong and has no prior.
    """
    began = time.perf_counter()
    if item_model in ("3pl", "4pl"):
        # Asymptotes and abilities cannot be told apart where no item tells models apart.
        _varied_items(counts)
    prior = options.prior or "none"
    kept, flat = _varied_items(counts) if prior == "none" else (counts, None)
    n, m = kept.right.shape
    check_room(6 * n * (options.nodes or 300), counts.right, f"{n} models × {m} items")
    marginal, dispersion = _fit_with_dispersion(kept, item_model, options)
    node_error = 0.0 if options.nodes is None else _node_error(marginal, options.nodes)
    wanted = is_quick(n, marginal) if options.std_errors is None else options.std_errors
    spread = covariances(marginal.answers, marginal, sandwich=options.sandwich) if wanted else None
    notes = [*counts.notes, *dispersion_note(dispersion), *_search_notes(marginal, kept)]
    if node_error:
        notes.append(
            f"not converged: with twice as many nodes the log-likelihood is {node_error:+.2g} "
            "other: take more, or leave the choice to the data"
        )
    if not wanted:
        notes.append(
            "abilities' errors take items as known, and items have none: std_errors=True "
            "computes them"
        )
    fit = _record(matrix, item_model, flat, marginal, spread)
    right, trials = (as_array(x.sum(dim=1)) for x in (counts.right, counts.trials))
    # Models all right (1) or all wrong (-1) stay in the fit, where abilities are integrated out:
    # left out, all others would move two to five times as far as with one more wrong answer. Their
    # own posterior would be the population's.
    extreme = (right == trials) * 1.0 - (right == 0)
    given: dict[str, Any] = {}
    if counts.guess is not None:
        notes += below_chance_note(matrix, as_array(counts.guess))
        given = {
            "guessing": as_array(counts.guess),
            "guessing_std_error": np.full_like(fit.guessing, np.nan),
        }
    if options.upper < 1:
        upper = np.full_like(fit.upper, options.upper)
        given |= {"upper": upper, "upper_std_error": np.full_like(upper, np.nan)}
    sure = (extreme == 0) & np.isfinite(fit.ability_covariance.diagonal())
    common = common_errors(fit, np.flatnonzero(sure)) if wanted else None
    fit = replace(fit, scale_covariance=common, **given)
    at = np.flatnonzero(extreme)
    if len(at):
        each = torch.eye(n, dtype=counts.right.dtype, device=counts.right.device)[at]
        fit = limited(fit, extreme, as_array(each @ counts.trials))
        notes += extremes_note(
            matrix.models, fit.endless.astype(np.float64), "They hardly move the others;"
        )
    return replace(
        fit,
        diagnostics={
            "iterations": marginal.search.steps,
            "converged": bool(marginal.search.converged) and not node_error,
            "last_change": marginal.search.change,
            "log_likelihood": marginal.log_likelihood,
            "n_nodes": len(marginal.nodes.at),
            "node_spacing": marginal.node_spacing,
            **run_facts(counts, began),
            "prior": prior,
        },
        hyperparameters=fit.hyperparameters
        | {"dispersion": dispersion}
        | ({"upper": options.upper} if options.upper < 1 else {}),
        notes=(*fit.notes, *notes, *suspects_note(fit), *_item_notes(fit, flat, marginal, spread)),
    )


def _fit_with_dispersion(
    counts: Counts, item_model: str, options: MmlOptions
) -> tuple[Marginal, float]:
    """Fit, and where scores are fractions in memory, repeat with the dispersion they show."""

    def fitted(phi: float) -> Marginal:
        return fit_marginal(counts.tempered(phi), options, item_model)

    def estimate(_: float, marginal: Marginal) -> float:
        curve = curves(marginal.items, marginal.nodes.at).right
        mean, square = (marginal.weights @ x.T for x in (curve, curve.square()))
        return dispersion_of(counts, *residual_sums(counts.right, counts.trials, mean, square))

    phi = 1.0 if options.dispersion is None else options.dispersion
    in_memory = not isinstance(counts.right, StoredCells)
    if options.dispersion is None and in_memory and counts.fractional:
        return settled_dispersion(phi, fitted, estimate)
    return fitted(phi), phi


def _node_error(marginal: Marginal, count: int) -> float:
    """Change of the log-likelihood with twice as many nodes; 0 if it hardly changes."""
    nodes = even_nodes(-6, 6, 2 * count - 1, marginal.nodes.at)
    finer = posterior(marginal.answers._replace(windows=None), marginal.items, nodes)
    error = float(finer.log_likelihood.sum()) - marginal.log_likelihood
    return 0.0 if abs(error) <= max(0.01, 1e-7 * abs(marginal.log_likelihood)) else error


def _varied_items(counts: Counts) -> tuple[Counts, FloatArray | None]:
    """Set aside items all right or all wrong: their likelihood has no maximum.

    Returns the other items, and the difficulty logit of the items set aside as if half an answer
    were otherwise, shape (M,), NaN for the others; None where no item is set aside.
    """
    right, trials = counts.right.sum(dim=0), counts.trials.sum(dim=0)
    flat = (right == 0) | (right == trials)
    if not bool(flat.any()):
        return counts, None
    if bool(flat.all()):
        raise DesignError(
            f"each of {len(flat)} items is all right or all wrong, so none tells models apart: "
            'take estimator "mml-items", or an item prior (option prior)'
        )
    kept = counts.of_items(~flat)
    as_if_half = torch.log((trials - right + 0.5) / (right + 0.5))
    return kept, as_array(torch.where(flat, as_if_half, torch.nan))


def _record(
    matrix: ResponseMatrix | ResponseStore,
    item_model: str,
    flat: FloatArray | None,
    marginal: Marginal,
    spread: Covariances | None,
) -> IRTFit:
    m = len(matrix.item_ids)
    kept = np.ones(m, dtype=bool) if flat is None else np.isnan(flat)
    values = _item_parameters(marginal.items, spread, rasch=item_model == "rasch")

    def full(part: FloatArray, fill: float = np.nan) -> FloatArray:
        whole = np.full((m, *part.shape[1:]), fill)
        whole[kept] = part
        return whole

    ability, covariance, variance = _abilities(marginal, spread, rasch=item_model == "rasch")
    slopes = full(values["discrimination"], float(values["discrimination"].mean()))
    difficulty = full(values["difficulty"])
    if flat is not None:
        difficulty = np.where(kept, difficulty, flat / slopes)
    scale = "N(0, σ²), discriminations are 1" if item_model == "rasch" else "N(0, 1)"
    return IRTFit(
        item_model=item_model,
        estimator="mml",
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        ability=ability,
        ability_covariance=covariance,
        discrimination=slopes,
        difficulty=difficulty,
        guessing=full(values["guessing"], 0.0),
        discrimination_std_error=full(values["discrimination_std_error"]),
        difficulty_std_error=full(values["difficulty_std_error"]),
        guessing_std_error=full(values["guessing_std_error"]),
        upper=full(values["upper"], 1.0),
        upper_std_error=full(values["upper_std_error"]),
        item_covariance=None if spread is None else full(values["covariance"]),
        identification=f"ability ~ {scale}",
        hyperparameters={"ability_mean": 0.0, **variance, **_prior_moments(marginal)},
    )


def _item_parameters(
    items: Items, spread: Covariances | None, *, rasch: bool
) -> dict[str, FloatArray]:
    """Item parameters on the reported scale, with standard errors by the delta method."""
    a, d = as_array(items.slope), as_array(items.intercept)
    a = np.ones_like(a) if rasch else a
    a = np.where(a == 0, np.finfo(float).tiny, a)
    none = np.full_like(a, np.nan)
    c, above = (
        np.zeros_like(a) if x is None else as_array(torch.sigmoid(x))
        for x in (items.guess, items.slip)
    )
    values = {"discrimination": a, "difficulty": -d / a, "guessing": c, "upper": 1 - above}
    for name in tuple(values):
        values[f"{name}_std_error"] = none
    if spread is None:
        return values
    of_items = as_array(spread.items)
    if rasch:
        of_items[:, 0] = of_items[:, :, 0] = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        values["discrimination_std_error"] = none if rasch else np.sqrt(of_items[:, 0, 0])
        values["difficulty_std_error"] = difficulty_error(a, d, of_items)
    if items.guess is not None:
        values["guessing_std_error"] = c * (1 - c) * np.sqrt(of_items[:, 2, 2])
    if items.slip is not None:
        values["upper_std_error"] = above * (1 - above) * np.sqrt(of_items[:, -1, -1])
    return values | {"covariance": of_items}


def _abilities(
    marginal: Marginal, spread: Covariances | None, *, rasch: bool
) -> tuple[FloatArray, FloatArray, dict[str, float]]:
    """Abilities, their covariance, and the standard deviation of their distribution."""
    mean = as_array(marginal.mean)
    covariance = (
        np.diag(as_array(marginal.variance)) if spread is None else as_array(spread.abilities)
    )
    if not rasch:
        return mean, covariance, {"ability_sd": 1.0}
    slope = float(marginal.items.slope[0])
    sizes = {"ability_sd": slope, "ability_variance": slope**2}
    covariance = slope**2 * covariance
    if spread is not None and spread.with_slope is not None:
        shared = as_array(spread.with_slope)
        cross = slope * np.outer(shared[:-1], mean)
        covariance = covariance + cross + cross.T + shared[-1] * np.outer(mean, mean)
        # NaN where the variance is below 0 because the information is not positive definite.
        with np.errstate(invalid="ignore"):
            sizes["ability_variance_std_error"] = float(2 * slope * np.sqrt(shared[-1]))
    return slope * mean, covariance, sizes


def _prior_moments(marginal: Marginal) -> dict[str, Any]:
    if marginal.prior is None:
        return {}
    sd = marginal.prior.factor.square().sum(dim=1).sqrt()
    names = ("discrimination", "intercept")[marginal.prior.columns]
    mean = as_array(marginal.prior.mean).tolist()
    return {f"item_{name}": {"mean": mean[k], "sd": float(sd[k])} for k, name in enumerate(names)}


def _search_notes(marginal: Marginal, counts: Counts) -> list[str]:
    notes: list[str] = []
    if not marginal.search.converged:
        notes.append(not_converged(marginal.search.steps))
    if marginal.node_spacing > LOOSEST:
        notes.append(
            f"{len(marginal.nodes.at)} nodes are {marginal.node_spacing:.1f} posterior standard "
            f"deviations apart, more than {LOOSEST:g}: take more, or leave the choice to the data"
        )
    steep = int((marginal.items.slope.abs() >= STEEPEST).sum())
    if steep:
        notes.append(
            f"{steep} of {counts.right.shape[1]} items separate the models perfectly; their "
            f"discrimination is held at {STEEPEST:g}: an item prior keeps it finite"
        )
    return notes


def _item_notes(
    fit: IRTFit, flat: FloatArray | None, marginal: Marginal, spread: Covariances | None
) -> list[str]:
    """Note on items about which the answers say nothing, or hardly tell a parameter."""
    notes: list[str] = []
    if flat is not None:
        n = int((~np.isnan(flat)).sum())
        notes.append(
            f"{counted(n, 'item')} all right or all wrong {'tells' if n == 1 else 'tell'} nothing "
            "without an item prior: set aside, with a difficulty as if half an answer were "
            "otherwise"
        )
    if spread is None:
        return notes
    items = counted(len(spread.items), "item")
    # With few models all asymptotes follow their prior.
    priors = [] if marginal.form.common_asymptotes else marginal.form.log_priors(marginal.items)
    for column, _, precision in priors:
        untold = int((spread.items[:, column, column] * precision > _UNTOLD**2).sum())
        if untold:
            notes.append(
                f"the {'upper' if column > 2 else 'lower'} asymptote of {untold} of {items} is "
                "that of the prior: the answers hardly tell it"
            )
    # NaN where the likelihood is flat.
    errors = [fit.difficulty_std_error]
    errors += [] if fit.item_model == "rasch" else [fit.discrimination_std_error]
    missing = len(spread.items) - int(np.isfinite(errors).all(axis=0).sum())
    if missing:
        notes.append(
            f"{counted(missing, 'item')} {'has' if missing == 1 else 'have'} no standard error of "
            "difficulty or discrimination: the answers hardly tell it. Take an item prior (option "
            "prior), or estimator mml-items"
        )
    return notes
