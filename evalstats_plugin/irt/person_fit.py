"""Does each model answer as a model of its ability would?

A model that gets hard items right and easy ones wrong, such as one that saw part of the test, does
not fit, however good its score is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.item_fit import Cells, cells_of, mean_squares
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.stats.interval import FloatArray

if TYPE_CHECKING:
    import pandas as pd


class LikelihoodFit(NamedTuple):
    """Standardised log-likelihoods of the models' answers, each of shape (N,).

    Low values mean answers that are unlikely at that ability; about -1.64 is the lowest 5 %.
    """

    lz: FloatArray
    """As if abilities were known [DLW85]_: spreads too little, as they are estimated."""
    lz_corrected: FloatArray
    """The same with the estimate of ability counted in [Sni01]_."""


def likelihood_fit(
    cells: Cells, slope: FloatArray, prior_score: FloatArray | float = 0.0
) -> LikelihoodFit:
    """Standardise the log-likelihood of each model's answers.

    Parameters
    ----------
    cells
        With P(right) at the estimated abilities.
    slope : shape (N, M)
        Derivative of P(right) by ability.
    prior_score : shape (N,)
        Derivative of the log prior of ability at the estimate; 0 for maximum likelihood.
    """
    p = cells.probability
    used = (cells.trials > 0) & (p > 0) & (p < 1)
    p = np.where(used, p, 0.5)
    one = p * (1 - p)
    weight = np.where(used, special.logit(p), 0.0)
    variance = np.where(used, cells.trials * one, 0.0)
    residual = np.where(used, cells.residual, 0.0)
    surprise = (residual * weight).sum(axis=1)
    # Ability solves Σ residual · score + prior_score = 0: what it follows of the likelihood is
    # taken out.
    score = np.where(used, slope / one, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        lz = surprise / np.sqrt((variance * weight**2).sum(axis=1))
        share = (variance * weight * score).sum(axis=1) / (variance * score**2).sum(axis=1)
        left = weight - share[:, None] * score
        rest, whole = ((variance * w**2).sum(axis=1) for w in (left, weight))
        # Where all but one answer is certain, nothing is left to be surprised at.
        spread = np.sqrt(np.where(rest > 1e-8 * whole, rest, np.nan))
        return LikelihoodFit(lz, (surprise + share * prior_score) / spread)


def model_fit(fit: IRTFit, matrix: ResponseMatrix) -> pd.DataFrame:
    """One line per model: how many items it took, and how its answers fit its ability.

    Parameters
    ----------
    fit
        Of the same models and items as the matrix.
    """
    import pandas as pd

    cells = cells_of(fit, matrix)
    guessing, upper = fit.guessing, float(fit.hyperparameters.get("upper", 1.0))
    height = np.maximum(upper - guessing, 1e-12)
    up = (cells.probability - guessing) / height
    # Abilities of "mml" are drawn to the mean of their distribution, those of others are not.
    pull: FloatArray | float = 0.0
    if fit.estimator == "mml":
        known = fit.hyperparameters
        away = fit.ability - float(known.get("ability_mean", 0.0))
        pull = -away / float(known.get("ability_sd", 1.0)) ** 2
    return pd.DataFrame(
        {
            "model": fit.models,
            "n_items": (cells.trials > 0).sum(axis=1),
            **mean_squares(cells, axis=1)._asdict(),
            **likelihood_fit(cells, fit.discrimination * height * up * (1 - up), pull)._asdict(),
        }
    )
