"""From the factor model's estimates to a `FactorFit`: dimensions chosen, turned, with errors."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.data import Counts, check_room
from evalstats_plugin.irt.factor import FactorSolution, check_dimensions, fit_factor
from evalstats_plugin.irt.factor_fit import ROTATIONS, FactorFit
from evalstats_plugin.irt.fitted import as_array, not_converged, run_facts
from evalstats_plugin.irt.logistic import posterior_mode
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.wording import no_such

NOTE = (
    "errors of abilities take the items as known, and those of items the abilities: with few "
    "models both are too small"
)


def fit_factor_model(
    matrix: ResponseMatrix, counts: Counts, options: Mapping[str, Any], rng: np.random.Generator
) -> FactorFit:
    """Fit so many dimensions, or as many as predict answers held out best.

    Raises
    ------
    DesignError
        More dimensions than models or items can tell apart, or options that are no numbers.
    SelectionError
        No such rotation.
    """
    began = time.perf_counter()
    rotation = options.get("rotation", "none")
    if rotation not in ROTATIONS:
        raise SelectionError(no_such("rotation", rotation, ROTATIONS, ", ".join(ROTATIONS)))
    dimensions, ridge = _dimensions(options), _ridge(options)
    n, m = counts.right.shape
    if dimensions != "auto":
        check_dimensions(counts, dimensions)
    check_room(12 * n * m, counts.right, f"{n} models × {m} items")
    found = fit_factor(counts, dimensions, ridge, rng=rng)
    fit = _record(matrix, counts, found)
    if fit.empty and dimensions == "auto":
        # Held-out losses that differ by rounding alone chose dimensions that came out empty.
        fewer = fit_factor(counts, fit.n_dimensions - len(fit.empty), found.ridge)
        fit = _record(matrix, counts, fewer._replace(choices=found.choices))
    fit = replace(fit, diagnostics=fit.diagnostics | run_facts(counts, began))
    if not fit.empty:
        return fit.rotated(rotation)
    note = f"{len(fit.empty)} of {fit.n_dimensions} dimensions explain nothing: fewer say as much"
    turned = "" if rotation == "none" else f"; not turned by {rotation}"
    return replace(fit, notes=(*fit.notes, note + turned))


def _record(matrix: ResponseMatrix, counts: Counts, found: FactorSolution) -> FactorFit:
    return FactorFit(
        estimator="map",
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        ability=as_array(found.ability),
        ability_covariance=as_array(_ability_covariance(counts, found)),
        loading=as_array(found.loading),
        intercept=as_array(found.intercept),
        item_covariance=as_array(_item_covariance(counts, found)),
        correlation=np.eye(found.loading.shape[1]),
        prior_precision=as_array(found.prior_precision),
        hyperparameters={"ridge": found.ridge},
        diagnostics={
            "iterations": found.iterations,
            "converged": found.converged,
            "log_likelihood": found.log_likelihood,
            "likelihood": "joint",
            "choices": [choice._asdict() for choice in found.choices],
        },
        notes=(*counts.notes, NOTE, *_notes(found)),
    )


def score_on_factors(fit: FactorFit, matrix: ResponseMatrix, counts: Counts) -> FactorFit:
    """Score other models on the items of a fit, which stay; `counts` are of the same items."""
    known = _solution(fit, counts.right)
    # Under the fit's own prior, so that its models would come out where they are.
    prior = (torch.zeros_like(known.prior_precision[0]), known.prior_precision)
    found = known._replace(ability=posterior_mode(counts, known.loading, known.intercept, prior))
    return replace(
        fit,
        models=matrix.models,
        ability=as_array(found.ability),
        ability_covariance=as_array(_ability_covariance(counts, found)),
    )


def _dimensions(options: Mapping[str, Any]) -> int | Literal["auto"]:
    given = options.get("dimensions", "auto")
    if given == "auto":
        return "auto"
    if not isinstance(given, int):
        raise DesignError(f"dimensions is {given!r}, expected a whole number or 'auto'")
    return given


def _ridge(options: Mapping[str, Any]) -> float | Literal["auto"]:
    given = options.get("ridge", "auto")
    if given == "auto":
        return "auto"
    if not isinstance(given, (int, float)) or not 0 < given < np.inf:
        raise DesignError(f"ridge is {given!r}, expected a number above 0 or 'auto'")
    return float(given)


def _solution(fit: FactorFit, like: Tensor) -> FactorSolution:
    arrays = (fit.ability, fit.loading, fit.intercept, fit.correlation, fit.prior_precision)
    parts = (torch.from_numpy(x).to(like) for x in arrays)
    return FactorSolution(*parts, ridge=0.0, log_likelihood=0.0, iterations=0, converged=True)


def _ability_covariance(counts: Counts, found: FactorSolution) -> Tensor:
    """Of each model's posterior, items known; (N, K, K)."""
    chance = found.probability()
    return _inverse_information(counts, found.loading, chance, found.prior_precision)


def _item_covariance(counts: Counts, found: FactorSolution) -> Tensor:
    """Of each item's posterior, abilities known and the items found as a prior; (M, K+1, K+1)."""
    items = torch.cat([found.loading, found.intercept[:, None]], dim=1)
    spread = torch.atleast_2d(torch.cov(items.T)) + 1e-3 * torch.eye(items.shape[1]).to(items)
    design = torch.cat([found.ability, torch.ones_like(found.ability[:, :1])], dim=1)
    turned = Counts(counts.right.T, counts.trials.T)
    return _inverse_information(turned, design, found.probability().T, torch.linalg.inv(spread))


def _inverse_information(counts: Counts, design: Tensor, chance: Tensor, prior: Tensor) -> Tensor:
    k = design.shape[1]
    products = (design[:, :, None] * design[:, None]).flatten(1)
    weight = counts.trials * chance * (1 - chance)
    return torch.linalg.inv((weight @ products).view(-1, k, k) + prior)


def _notes(found: FactorSolution) -> list[str]:
    notes: list[str] = []
    if not found.converged:
        notes.append(not_converged(found.iterations))
    tried = {choice.n_dimensions for choice in found.choices}
    if len(tried) > 1 and found.loading.shape[1] == 1:
        notes.append(
            "one dimension predicts answers held out best: item model 2pl fits it with errors that "
            "hold"
        )
    return notes
