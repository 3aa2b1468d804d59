"""Where on the scale does a test measure well, and how well does it tell models apart?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.stats.interval import FloatArray


class Reliability(NamedTuple):
    """Share of the variance of estimated abilities that is of the abilities themselves."""

    reliability: float
    separation: float
    """True standard deviation in units of the standard error: √(r / (1 - r))."""
    kind: str
    """``"eap"``, of posterior means, which spread too little; ``"separation"``, of estimates that
    spread too much by their errors."""


def item_information(fit: IRTFit, ability: ArrayLike) -> FloatArray:
    """Fisher information on ability of one answer to each item, shape (Q, M).

    ``(∂P)² / (P (1 - P))``, for a 2PL a² P (1 - P): items tell most about models that get them
    right half the time [Lor80]_.

    Parameters
    ----------
    ability : shape (Q,)
    """
    at: FloatArray = np.asarray(ability, dtype=np.float64)
    logit = at[:, None] * fit.discrimination + fit.intercept
    up, down = special.expit(logit), special.expit(-logit)
    upper = float(fit.hyperparameters.get("upper", 1.0))
    height = upper - fit.guessing
    slope = fit.discrimination * height * up * down
    right, wrong = fit.guessing + height * up, (1 - upper) + height * down
    with np.errstate(invalid="ignore", divide="ignore"):
        # Divided one by one: the product of both may underflow.
        return np.where(slope == 0, 0.0, slope / right * (slope / wrong))


def total_information(fit: IRTFit, ability: ArrayLike) -> FloatArray:
    """Information of all items together, shape (Q,); one over its root is the standard error."""
    return item_information(fit, ability).sum(axis=1)


def reliability(fit: IRTFit) -> Reliability:
    """How well the models of the fit are told apart, 0 (not at all) to 1.

    With posterior means, var(mean) / (var(mean) + mean of their variances); with other estimates,
    1 - mean error variance / var(estimate) [WM82]_. What errors have in common moves all models
    alike, and does not count.
    """
    n = len(fit.models)
    finite = np.isfinite(fit.ability) & np.isfinite(fit.ability_std_error)
    seen = float(fit.ability[finite].var(ddof=1)) if finite.sum() > 1 else np.nan
    covariance = fit.ability_covariance[np.ix_(finite, finite)]
    n = int(finite.sum())
    error = float((np.trace(covariance) - covariance.mean() * n) / max(n - 1, 1))
    posterior = fit.estimator == "mml"
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.float64(seen) / (seen + error) if posterior else 1 - np.float64(error) / seen
        share = float(np.clip(share, 0, 1))
        separation = float(np.sqrt(np.float64(share) / (1 - np.float64(share))))
    return Reliability(share, separation, "eap" if posterior else "separation")


def marginal_reliability(fit: IRTFit) -> float:
    """Reliability expected of models drawn from the fit's distribution of abilities [GBR84]_.

    The mean of I / (I + 1/σ²), with I the information at an ability.
    """
    known = fit.hyperparameters
    centre = float(known.get("ability_mean", fit.ability.mean()))
    sd = float(known.get("ability_sd", fit.ability.std(ddof=1)))
    at = np.linspace(-6, 6, 241)
    weight = np.exp(-at * at / 2)
    information = sd**2 * total_information(fit, centre + sd * at)
    return float(weight @ (information / (information + 1)) / weight.sum())
