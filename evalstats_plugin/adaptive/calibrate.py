"""Item banks from fitted models, and adaptive sessions on them.

* `item_bank`: an item bank from a fit and the answers it was fitted to; which items are not asked
* `adaptive_session`: begin a test of a new model
* `contents`: what a bank holds, a row per task
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from evalstats_plugin.adaptive.bank import MISFIT, NEGATIVE, UNCALIBRATED, ItemBank
from evalstats_plugin.adaptive.curves import expit, respond
from evalstats_plugin.adaptive.scoring import Shares
from evalstats_plugin.adaptive.selection import INFORMATION
from evalstats_plugin.adaptive.session import AdaptiveSession, Settings
from evalstats_plugin.adaptive.simulation import SimulationOptions, run_sessions
from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import check_known
from evalstats_plugin.irt.answers import matrix_of
from evalstats_plugin.irt.fit_statistics import check_matrix, item_fit
from evalstats_plugin.irt.model.fit import FactorFit, IRTFit, expect_kind
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.stats.arrays import FloatArray, Rng
from evalstats_plugin.stats.streams import stream

_WIDEST_FIT = 1.4
"""Infit mean square above which an item degrades the measurement [WL94]_."""

_SURE = 3.0
"""z value beyond which a deviation is not put down to chance."""

_POPULATION_STEPS = 30
"""Of EM for the covariance of several abilities: it changes by less than 1 % after 20."""

_ASKED, _LEAST_MODELS, _MOST_MODELS, _MOST_ITEMS = 50, 12, 200, 3000
"""Items asked, and numbers of models and items, from which misfit is estimated."""

_FEW = 30
"""Number of models below which item parameters are still rough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankTask:
    """One task of an item bank."""

    task: str
    metric: str
    n_items: int
    n_usable: int
    """Items that may be asked."""
    n_models: int
    """Calibrated models."""
    difficulty: float | None
    """Median over usable items, as `discrimination`."""
    discrimination: float | None
    std_error: float | None
    """Of the ability of an average model after all usable items; of several the largest."""
    cost: float | None
    """Of asking all usable items."""
    left_out: tuple[str, ...]
    """Items that are not asked, each as ``item: reason``."""
    notes: tuple[str, ...] = ()


def item_bank(
    fit: IRTFit | FactorFit,
    responses: ResponsesLike,
    *,
    cost: Sequence[float] | None = None,
    provenance: dict[str, Any] | None = None,
    rng: Rng = None,
) -> ItemBank:
    """Make an item bank from a fitted model and the answers it was fitted to.

    Parameters
    ----------
    fit
        Of any item model. A factor model of K dimensions makes a bank of K abilities, each with
        variance 1 over models.
    responses
        The answers, from which item fit and the error of predicted scores are estimated. Item
        parameters are those of `fit`.
    cost
        Cost of asking each item once, such as tokens.
    provenance
        Where the answers are from; estimator, metric and number of models are added.

    Raises
    ------
    DesignError
        Fit and matrix have different models or items, or no item may be asked.
    """
    matrix = matrix_of(responses)
    source = stream(rng, "misfit of a bank")
    fit = expect_kind(fit, IRTFit, FactorFit)
    check_matrix(fit, matrix)
    if isinstance(fit, FactorFit):
        bank = _of_factors(fit, matrix)
        bank = bank.without(bank.discrimination < 0, NEGATIVE)
    else:
        bank = _flagged(_of_one_ability(fit, matrix), fit, matrix)
    bank = replace(
        bank,
        cost=None if cost is None else np.asarray(cost, dtype=np.float64),
        hashes=matrix.item_hashes,
        dispersion=_dispersion(bank, matrix),
        provenance={
            "item_model": fit.item_model,
            "estimator": fit.estimator,
            "n_models": len(fit.models),
            "metrics": sorted(set(matrix.metrics.astype(str).tolist())),
            "version": VERSION,
            **(provenance or {}),
        },
    )
    bank.require_usable()
    if fit.item_model == "factor":
        note = "a factor model's misfit is its own dimensions; intervals hold no more than these"
        if bank.n_abilities > 1:
            note = f"{bank.n_abilities} abilities of each model; intervals hold no misfit but these"
        return replace(bank, notes=(*bank.notes, note))
    right, trials = _counts(matrix)
    misfit, notes = _misfit(bank, right, trials, source)
    return replace(bank, misfit=misfit, notes=(*bank.notes, *notes))


def adaptive_session(
    bank: ItemBank,
    *,
    tasks: Sequence[str] | None = None,
    rng: Rng = None,
    **settings: Unpack[Settings],
) -> AdaptiveSession:
    """Begin an adaptive test of one model.

    Parameters
    ----------
    tasks
        Tasks of the bank to test; all by default.
    settings
        ``rule``, ``stop``, ``batch``, ``balance`` and ``confidence_level``, as for
        `AdaptiveSession`.

    Raises
    ------
    SelectionError
        A task that is not in the bank.
    DesignError
        No item may be asked.
    """
    if tasks is not None:
        for task in tasks:
            check_known("task of the bank", task, bank.task_names)
        bank = bank.of_tasks(tasks)
    return AdaptiveSession(bank, rng=rng, **settings)


def contents(bank: ItemBank, notes: Sequence[str] = ()) -> Results[BankTask]:
    """Return a row per task of a bank; `notes` come before the bank's own."""
    rows: list[BankTask] = []
    for task in bank.task_names:
        part = bank.of_tasks([task])
        asked = part.usable
        has_usable = asked.any()
        safe = np.where(part.discrimination == 0, np.nan, part.discrimination)
        left = zip(part.item_ids[~asked].tolist(), part.reasons[~asked].tolist(), strict=True)
        row = BankTask(
            task=task,
            metric=", ".join(map(str, part.provenance.get("metrics", ()))),
            n_items=len(part),
            n_usable=int(asked.sum()),
            n_models=len(part.models),
            difficulty=float(np.median((-part.intercept / safe)[asked])) if has_usable else None,
            discrimination=float(np.median(part.discrimination[asked])) if has_usable else None,
            std_error=_std_error(part) if has_usable else None,
            cost=None if part.cost is None else float(part.cost[asked].sum()),
            left_out=tuple(f"{item}: {reason}" for item, reason in left),
        )
        rows.append(row)
    few = f"calibrated on {len(bank.models)} models, where {_FEW} are few: intervals may be too"
    shaky = [f"{few} narrow"] if 0 < len(bank.models) < _FEW else []
    return Results(tuple(rows), tuple(dict.fromkeys((*notes, *bank.notes, *shaky))))


def _std_error(bank: ItemBank) -> float:
    """Standard error of an average model's ability after all usable items."""
    items = bank.items.take(np.flatnonzero(bank.usable))
    response = respond(items, np.array([[bank.ability_mean]]))
    if bank.axes is None:
        return float((response.information.sum() + bank.ability_sd**-2) ** -0.5)
    weighed = items.directions * (response.scale**2 / response.variance).T
    covariance = np.linalg.inv(weighed.T @ items.directions + np.eye(len(bank.axes)))
    return float(np.sqrt(np.diagonal(bank.axes @ covariance @ bank.axes.T).max()))


def _of_one_ability(fit: IRTFit, matrix: ResponseMatrix) -> ItemBank:
    """Bank of a fit with one ability per model."""
    mean, spread = fit.ability_distribution
    if "ability_sd" not in fit.hyperparameters:
        known = fit.ability_std_error[np.isfinite(fit.ability_std_error)]
        error, told = float((known**2).sum()) / max(len(known), 1), fit.ability[fit.endless == 0]
        spread = float(np.sqrt(max(told.var() - error, 0.05 * told.var(), 1e-6)))
    covariance = None if fit.item_covariance is None else fit.item_covariance[:, :2, :2]
    guessing = np.where(np.isfinite(fit.guessing), fit.guessing, 0.0)
    bank = _raw_bank(fit, matrix, fit.discrimination, fit.intercept, covariance)
    return replace(
        bank,
        guessing=guessing,
        upper=fit.upper,
        ability_mean=mean,
        ability_sd=spread,
        abilities=fit.ability,
    )


def _of_factors(fit: FactorFit, matrix: ResponseMatrix) -> ItemBank:
    """Bank of a factor model, rotated so that the first dimension is the items' main direction."""
    population, ability = _population(fit, *_counts(matrix))
    root = np.linalg.cholesky(population)
    loading = fit.loading @ root
    k = loading.shape[1]
    main = loading.mean(axis=0)
    main = main / np.linalg.norm(main)
    basis = np.linalg.qr(np.column_stack([main, np.eye(k)]))[0][:, :k]
    basis[:, 0] = main
    turned = loading @ basis
    project = np.zeros((2, k + 1))
    project[0, :k], project[1, k] = root @ main, 1.0
    covariance = project @ fit.item_covariance @ project.T
    # Errors of the other loadings matter as much as errors of the intercept: f has variance 1.
    across = (root @ basis[:, 1:]).T
    covariance[:, 1, 1] += np.einsum("ki,mij,kj->m", across, fit.item_covariance[:, :k, :k], across)
    bank = _raw_bank(fit, matrix, turned[:, 0], fit.intercept, covariance)
    along = np.linalg.solve(root, ability.T).T @ main
    bank = replace(bank, misfit_loadings=turned[:, 1:], abilities=along)
    if k == 1:
        return bank
    axes = root @ basis
    return replace(bank, axes=axes / np.linalg.norm(axes, axis=1, keepdims=True))


def _population(
    fit: FactorFit, right: FloatArray, trials: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Covariance of the abilities over models, (K, K), and abilities with it as their prior.

    By EM with a Laplace approximation, items as the fit has them: modes of a joint fit vary less
    or more than the abilities do, by the strength of its priors.
    """
    ability, population, loading = fit.ability, np.asarray(fit.correlation), fit.loading
    squares = (loading[:, :, None] * loading[:, None, :]).reshape(len(loading), -1)
    for _ in range(_POPULATION_STEPS):
        precision = np.linalg.inv(population)
        p = expit(ability @ loading.T + fit.intercept)
        curvature = (trials * p * (1 - p)) @ squares
        curvature = curvature.reshape(-1, *population.shape) + precision
        gradient = (right - trials * p) @ loading - ability @ precision
        ability = ability + np.clip(np.linalg.solve(curvature, gradient[..., None])[..., 0], -1, 1)
        population = ability.T @ ability / len(ability) + np.linalg.inv(curvature).mean(axis=0)
    return population, ability


def _raw_bank(
    fit: IRTFit | FactorFit,
    matrix: ResponseMatrix,
    a: FloatArray,
    d: FloatArray,
    covariance: FloatArray | None,
) -> ItemBank:
    """Bank without abilities or item fit.

    An item that could not be calibrated is predicted by its mean score and not asked.
    """
    unknown = ~(np.isfinite(a) & np.isfinite(d))
    right, trials = _counts(matrix)
    total, n = right.sum(axis=0), trials.sum(axis=0)
    logit = np.log((total + 0.5) / (n - total + 0.5))
    answered = trials > 0
    means = np.divide(right, trials, out=np.zeros_like(right), where=answered)
    return ItemBank.from_arrays(
        np.where(unknown, 0.0, a),
        np.where(unknown, logit, d),
        item_ids=fit.item_ids.tolist(),
        tasks=fit.tasks.tolist(),
        item_covariance=covariance,
        reasons=np.where(unknown, UNCALIBRATED, "").astype(object),
        models=tuple(fit.models),
        abilities=np.zeros(len(fit.models)),
        scores=means.sum(axis=1) / np.maximum(answered.sum(axis=1), 1),
    )


def _flagged(bank: ItemBank, fit: IRTFit, matrix: ResponseMatrix) -> ItemBank:
    """Leave out items that fit badly or discriminate negatively."""
    statistics = item_fit(fit, matrix)
    names = ("n_models", "mean", "outfit", "infit", "infit_z", "item_rest")
    table = {name: statistics[name].to_numpy(dtype=np.float64) for name in names}
    # Estimators with a prior on discriminations keep them above 0 whatever the answers: there the
    # correlation with the rest tells, if it is below 0 beyond chance, by Fisher's z.
    correlation = np.clip(np.nan_to_num(table["item_rest"]), -1 + 1e-12, 1 - 1e-12)
    z = np.arctanh(correlation) * np.sqrt(np.maximum(table["n_models"] - 3, 0))
    bank = bank.without((bank.discrimination < 0) | (z < -_SURE), NEGATIVE)
    wide = (table["infit"] > _WIDEST_FIT) & (table["infit_z"] > _SURE)
    bank = bank.without(wide, MISFIT)
    return replace(bank, item_fit=table)


def _counts(matrix: ResponseMatrix) -> tuple[FloatArray, FloatArray]:
    """Sum of scores and number of scored epochs, each of shape (N, M)."""
    scored = np.isfinite(matrix.scores)
    return np.where(scored, matrix.scores, 0.0).sum(axis=2), scored.sum(axis=2).astype(np.float64)


def _dispersion(bank: ItemBank, matrix: ResponseMatrix) -> FloatArray:
    """Variance of scores as a share of that of right or wrong answers: 1 without partial credit.

    From squared residuals of the calibrated models, shrunk a little towards 1; shape (M,).
    """
    scores = np.where(np.isfinite(matrix.scores), matrix.scores, 0.0)
    partial = ((scores > 0) & (scores < 1)).any(axis=(0, 2))
    right, trials = _counts(matrix)
    p = respond(bank.items, bank.abilities[:, None]).probability
    squared = ((right - trials * p) ** 2 / np.maximum(trials, 1)).sum(axis=0)
    binary = (np.minimum(trials, 1) * p * (1 - p)).sum(axis=0)
    n = (trials > 0).sum(axis=0)
    # Two parameters were fitted to the same answers.
    squared = squared * n / np.maximum(n - 2, 1)
    return np.where(partial, np.clip((squared + 1) / (binary + 1), 0.05, 1.0), 1.0)


def _misfit(
    bank: ItemBank, right: FloatArray, trials: FloatArray, rng: np.random.Generator
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Misfit of a bank's curves by task, and a note if it is unknown; see `ItemBank.misfit`.

    From the calibrated models that answered the same items, each tested by its answers.
    """
    answered = trials > 0
    same = answered.mean(axis=0) >= 0.8
    same[rng.permutation(np.flatnonzero(same))[_MOST_ITEMS:]] = False
    models = rng.permutation(np.flatnonzero(answered[:, same].all(axis=1)))[:_MOST_MODELS]
    part = bank.subset(same)
    n_asked = min(_ASKED, int(part.usable.sum()) // 2)
    if len(models) < _LEAST_MODELS or n_asked == 0:
        msg = f"{len(models)} models answered the same {len(part)} items: too few to tell how"
        return {}, (f"{msg} well the curves predict scores; their intervals hold no misfit",)
    scores = (right / np.maximum(trials, 1))[np.ix_(models, np.flatnonzero(same))]
    options, shares = SimulationOptions(rule=INFORMATION, fitting=True), Shares.of(part)
    run = run_sessions(part, scores, (n_asked,), options, rng=rng)
    full = run.checkpoints[0].full
    left = 1 - shares.weights[run.places].sum(axis=1)
    excess = (full.estimate - scores @ shares.weights) ** 2 - full.std_error**2
    spread = np.sqrt(np.maximum((excess / np.maximum(left, 0.1) ** 2).mean(axis=0), 0.0))
    return dict(zip(shares.names, spread.tolist(), strict=True)), ()
