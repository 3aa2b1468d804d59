"""What models share beyond ability: factors of misfit, from the models of the calibration.

An ability explains how well a model does on the whole; on a family of items models that are
equally able differ together. Those factors are found in the answers that calibrated the items, at
the abilities and items as estimated, and tell of a new model's items not asked what its ability
cannot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evalstats_plugin.adaptive.curves import Items, Response, respond
from evalstats_plugin.stats.interval import FloatArray

_STEPS = 40


class Factors(NamedTuple):
    """K factors of N models on M items."""

    loadings: FloatArray
    """λ, shape (M, K)."""
    scores: FloatArray
    """f, shape (N, K)."""
    strength: FloatArray
    """Standard deviation of loadings, shape (K,)."""


def fit_factors(
    items: Items, ability: FloatArray, right: FloatArray, trials: FloatArray, n_factors: int
) -> Factors:
    """Find factors by EM around the mode (a Laplace approximation).

    Loadings of a factor are N(0, s²), s² estimated: what is no more than noise shrinks away.

    Parameters
    ----------
    items
        Of the bank; their loadings are not looked at.
    ability
        Shape (N,).
    right, trials
        Shape (N, M); no trials where a score is missing.
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
        # Scores that are only known so well explain less.
        extra = np.einsum("nm,nkl->mkl", weight, of_scores, optimize=True)
        loadings, of_loadings = _newton(
            loadings, (pull.T, weight.T), scores, np.diag(1 / spread), extra
        )
        variances = np.diagonal(of_loadings, axis1=1, axis2=2)
        spread = np.maximum((loadings**2 + variances).mean(axis=0), 1e-6)
        # Both sides of the product are free up to a scale: scores have variance 1.
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
    right, trials = answers
    p = base.probability
    noise = np.sqrt(trials * base.variance)
    residual = np.where(trials > 0, (right - trials * p) / np.maximum(noise, 1e-9), 0.0)
    residual = np.clip(residual, -5, 5)
    u, s, v = np.linalg.svd(residual, full_matrices=False)
    # Singular values of noise alone reach √N + √M.
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
    """Gradient and information of the log likelihood by the logit: each (N, M)."""
    loadings, scores = factors
    right, trials = answers
    found = respond(items, ability[:, None], scores @ loadings.T)
    noise = found.variance
    return (
        (right - trials * found.probability) * found.scale / noise,
        trials * found.scale**2 / noise,
    )


def _newton(
    at: FloatArray,
    derivatives: tuple[FloatArray, FloatArray],
    along: FloatArray,
    precision: FloatArray,
    extra: FloatArray | float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """One step of Fisher scoring for each row; rows, and their covariances."""
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
    found = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    return at + step / np.maximum(length, 1.0), found
