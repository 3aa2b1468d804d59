"""Misfit factors: what models of equal ability differ in, estimated from the calibration.

* `calibrate_misfit`: the number of factors by cross-validation over models, and the error of
  predicted full scores that they leave
* `fit_factors`: EM with a Laplace approximation, at given abilities and item parameters
* `leave_out`: item parameters as calibrated without some models, for the cross-validation

The factors predict a new model's scores on items not asked better than its ability alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import Items, Response, respond
from evalstats_plugin.adaptive.scoring import Shares
from evalstats_plugin.adaptive.simulation import Options, run_sessions
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.stats.arrays import FloatArray, IntArray

_STEPS = 40
_MOST_FACTORS = 4
_AT = (10, 25, 50)
"""Numbers of items asked at which full scores are predicted."""

_FOLDS = 4
_LEAST_MODELS = 12
_MOST_ITEMS = 3000
_BETTER = 0.97
"""Largest ratio of mean squared errors that makes one more factor worth having."""


class Calibrated(NamedTuple):
    """Misfit of a bank."""

    loadings: FloatArray
    """λ, shape (M, K)."""
    misfit: dict[str, float]
    """Standard deviation that the factors leave, by task; see `ItemBank.misfit`."""
    notes: tuple[str, ...]


class Factors(NamedTuple):
    """K factors of N models on M items."""

    loadings: FloatArray
    """λ, shape (M, K)."""
    scores: FloatArray
    """f, shape (N, K)."""
    strength: FloatArray
    """Standard deviation of loadings, shape (K,)."""


class _Errors(NamedTuple):
    """Mean errors of predicted full scores by number of items asked, shape (C, 1 + T)."""

    squared: FloatArray
    excess: FloatArray
    """Squared error minus claimed variance, over the squared share of items not asked."""


def calibrate_misfit(
    bank: ItemBank,
    ability: FloatArray,
    right: FloatArray,
    trials: FloatArray,
    *,
    rng: np.random.Generator,
) -> Calibrated:
    """Estimate the misfit factors of a bank that has none, and the misfit that they leave.

    Parameters
    ----------
    ability
        Abilities of the calibrated models, shape (N,).
    right, trials
        Their answers, shape (N, M); 0 trials where one is missing.
    """
    rows, columns = _complete(trials > 0, rng)
    n_items = int(columns.sum())
    at = tuple(n for n in _AT if n <= n_items // 2 and n <= int(bank.usable[columns].sum()))
    if rows.sum() < _LEAST_MODELS or not at:
        msg = f"{int(rows.sum())} models answered the same {n_items} items: too few to tell how"
        note = f"{msg} well full scores are predicted; their intervals hold no misfit"
        return Calibrated(np.zeros((len(bank), 0)), {}, (note,))
    part = bank.subset(columns)
    answers = (ability[rows], right[np.ix_(rows, columns)], trials[np.ix_(rows, columns)])
    fold = rng.permutation(int(rows.sum())) % _FOLDS
    best, chosen = _errors(part, answers, fold, at, 0), 0
    for k in range(1, _MOST_FACTORS + 1):
        errors = _errors(part, answers, fold, at, k)
        if np.exp(np.log(errors.squared[:, 0] / best.squared[:, 0]).mean()) > _BETTER:
            break
        best, chosen = errors, k
    loadings = fit_factors(bank.items, ability, right, trials, chosen).loadings
    names = Shares.of(part).names
    spread = np.sqrt(np.maximum(best.excess.mean(axis=0), 0.0)).tolist()
    return Calibrated(loadings, dict(zip(names, spread, strict=True)), ())


def _complete(
    answered: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of models and items without missing answers: common items, then complete models."""
    rows = np.asarray(answered.mean(axis=1) >= 0.5)
    columns = np.asarray(answered[rows].mean(axis=0) >= 0.8 if rows.any() else answered.any(axis=0))
    if columns.sum() > _MOST_ITEMS:
        kept = rng.choice(np.flatnonzero(columns), _MOST_ITEMS, replace=False)
        columns = np.isin(np.arange(len(columns)), kept)
    rows = np.asarray(answered[:, columns].all(axis=1))
    return rows, columns


def _errors(
    bank: ItemBank,
    answers: tuple[FloatArray, FloatArray, FloatArray],
    fold: IntArray,
    at: tuple[int, ...],
    n_factors: int,
) -> _Errors:
    """Errors for models left out of the estimation, fold by fold."""
    run = partial(_errors_of_fold, bank, answers, at, n_factors)
    folds = [fold == number for number in range(_FOLDS)]
    squared, excess = zip(*parallel_map(run, enumerate(folds)), strict=True)
    joined = [np.concatenate(each, axis=1).mean(axis=1) for each in (squared, excess)]
    return _Errors(*joined)


def _errors_of_fold(
    bank: ItemBank,
    answers: tuple[FloatArray, FloatArray, FloatArray],
    at: tuple[int, ...],
    n_factors: int,
    fold: tuple[int, NDArray[np.bool_]],
) -> _Errors:
    """Errors of the models of one fold, shape (C, models, 1 + T)."""
    (seed, out), (ability, right, trials) = fold, answers
    items = leave_out(bank.items, ability[out], right[out], trials[out])
    factors = fit_factors(items, ability[~out], right[~out], trials[~out], n_factors)
    calibrated = replace(
        bank,
        discrimination=items.discrimination,
        intercept=items.intercept,
        misfit_loadings=factors.loadings,
        misfit={},
    )
    scores = right[out] / trials[out]
    run = run_sessions(calibrated, scores, at, Options(rule="full-score", fitting=True), rng=seed)
    shares = Shares.of(bank)
    truth = scores @ shares.weights
    full = [checkpoint.full for checkpoint in run.checkpoints]
    error = np.stack([(each.estimate - truth) ** 2 for each in full])
    asked = np.zeros((len(at), *scores.shape))
    for k, n in enumerate(at):
        np.put_along_axis(asked[k], run.places[:, :n], 1.0, axis=1)
    left = 1 - asked @ shares.weights
    claimed = np.stack([each.std_error**2 for each in full])
    return _Errors(error, (error - claimed) / np.maximum(left, 0.1) ** 2)


def fit_factors(
    items: Items, ability: FloatArray, right: FloatArray, trials: FloatArray, n_factors: int
) -> Factors:
    """Estimate misfit factors by EM with a Laplace approximation.

    Loadings of a factor are N(0, s²) with s² estimated, which shrinks noise to 0.

    Parameters
    ----------
    items
        Items of the bank; their loadings are ignored.
    ability
        Shape (N,).
    right, trials
        Shape (N, M); 0 trials where a score is missing.
    """
    n, m = right.shape
    if n_factors == 0:
        return Factors(np.zeros((m, 0)), np.zeros((n, 0)), np.zeros(0))
    base = respond(items, ability[:, None])
    loadings: FloatArray
    scores: FloatArray
    loadings, scores = _start(base, (right, trials), n_factors)
    spread: FloatArray = np.full(n_factors, max(float(loadings.var()), 1e-3))
    for _ in range(_STEPS):
        pull, weight = _pull(items, ability, (loadings, scores), (right, trials))
        scores, of_scores = _newton(scores, (pull, weight), loadings, np.eye(n_factors))
        pull, weight = _pull(items, ability, (loadings, scores), (right, trials))
        # The uncertainty of the scores adds to the curvature.
        extra = np.einsum("nm,nkl->mkl", weight, of_scores, optimize=True)
        loadings, of_loadings = _newton(
            loadings, (pull.T, weight.T), scores, np.diag(1 / spread), extra
        )
        variances = np.diagonal(of_loadings, axis1=1, axis2=2)
        spread = np.maximum((loadings**2 + variances).mean(axis=0), 1e-6)
        # The product is identified up to a scale: scores get variance 1.
        second = scores.T @ scores / n + of_scores.mean(axis=0)
        turn = np.asarray(np.linalg.cholesky(second), dtype=np.float64)
        turned = np.asarray(np.linalg.solve(turn, scores.T), dtype=np.float64)
        scores = turned.T
        loadings = loadings @ turn
        spread = spread * np.diagonal(second)
    return Factors(loadings, scores, np.sqrt(spread))


def _start(
    base: Response, answers: tuple[FloatArray, FloatArray], k: int
) -> tuple[FloatArray, FloatArray]:
    """Loadings and scores from a singular value decomposition of the residuals."""
    right, trials = answers
    p = base.probability
    noise = np.sqrt(trials * base.variance)
    residual = np.where(trials > 0, (right - trials * p) / np.maximum(noise, 1e-9), 0.0)
    residual = np.clip(residual, -5, 5)
    u, s, v = np.linalg.svd(residual, full_matrices=False)
    # Pure noise has singular values up to √N + √M.
    kept = np.sqrt(np.maximum(s[:k] ** 2 - np.square(np.sqrt(len(p)) + np.sqrt(p.shape[1])), 1e-2))
    unit = np.sqrt(len(p))
    slope = np.sqrt(np.mean(base.scale**2 / base.variance))
    return v[:k].T * kept / unit / slope, u[:, :k] * unit


def _pull(
    items: Items,
    ability: FloatArray,
    factors: tuple[FloatArray, FloatArray],
    answers: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Gradient and information of the log likelihood in the logits, each of shape (N, M)."""
    loadings, scores = factors
    return respond(items, ability[:, None], scores @ loadings.T).derivatives(*answers)


def _newton(
    at: FloatArray,
    derivatives: tuple[FloatArray, FloatArray],
    along: FloatArray,
    precision: FloatArray,
    extra: FloatArray | float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """One Fisher-scoring step for each row: new rows, and their covariances."""
    pull, weight = derivatives
    k = along.shape[1]
    squares = (along[:, :, None] * along[:, None, :]).reshape(len(along), k * k)
    curvature = (weight @ squares).reshape(len(at), k, k) + precision + extra
    gradient = pull @ along - at @ precision
    if not np.isscalar(extra):
        gradient = gradient - np.einsum("mkl,ml->mk", extra, at)
    solved = np.asarray(np.linalg.solve(curvature, gradient[..., None]), dtype=np.float64)
    step = solved[..., 0]
    length = np.abs(step).max(axis=-1, keepdims=True)
    covariance = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    return at + step / np.maximum(length, 1.0), covariance


def leave_out(items: Items, ability: FloatArray, right: FloatArray, trials: FloatArray) -> Items:
    """Item parameters without the answers of some models, by one Newton step.

    The information is the inverse of the parameters' covariance; items without one stay unchanged.

    Parameters
    ----------
    ability
        Abilities of the models to leave out, shape (N,).
    right, trials
        Their answers, shape (N, M).
    """
    # The calibration ignored errors of the items and partial credit.
    plain = items._replace(
        spread=np.zeros_like(items.spread), dispersion=np.ones_like(items.dispersion)
    )
    pull, weight = respond(plain, ability[:, None]).derivatives(right, trials)
    design = np.stack([ability, np.ones_like(ability)], axis=1)
    gradient = pull.T @ design
    own = np.einsum("nm,nk,nl->mkl", weight, design, design, optimize=True)
    a, both, d = (items.spread[:, k] for k in range(3))
    covariance = np.stack([np.stack([a, both], -1), np.stack([both, d], -1)], -2)
    has_covariance = np.linalg.det(covariance) > 1e-12
    covariance = np.where(has_covariance[:, None, None], covariance, np.eye(2))
    # (C⁻¹ - I)⁻¹ g with C known, at most 4 C if nearly all information is from these models.
    kept = np.eye(2) - covariance @ own
    values = np.linalg.det(kept)
    safe = (values > 0.06) & (np.trace(kept, axis1=1, axis2=2) > 0)
    kept = np.where(safe[:, None, None], kept, np.eye(2) / 4)
    step = np.linalg.solve(kept, covariance @ gradient[..., None])[..., 0]
    step = np.where(has_covariance[:, None], step, 0.0)
    return items._replace(
        discrimination=items.discrimination - step[:, 0], intercept=items.intercept - step[:, 1]
    )
