"""Abilities of models that are right, or wrong, on all items or on all but a few.

Their likelihood has no maximum, or is so skew that a standard error misleads. What the answers say
is a one-sided limit: the ability at which so many right answers, or more, have probability α. The
estimate of a model all right is where all right is as likely as not (median unbiased).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from evalstats_plugin.errors import few
from evalstats_plugin.irt.model.fit import TAILS, IRTFit
from evalstats_plugin.stats.arrays import FloatArray, IntArray

FEW = 5
"""Wrong answers (right ones beyond guessing) up to which limits invert the number right."""

NODES: FloatArray = np.linspace(-30, 30, 601)
"""Abilities at which `placed` needs the items' curves, on the estimator's scale, shape (Q,)."""

_LEAST = 1e-280


def placed(
    right: FloatArray, trials: FloatArray, extreme: FloatArray, guess: FloatArray, curve: FloatArray
) -> FloatArray:
    """Abilities at which the number right has each tail probability of `TAILS`.

    Of models with whole numbers of right answers, and only a few wrong ones or none (or few that
    are right beyond guessing). Half the probability of the number itself counts (mid-p), except
    where all are right or wrong.

    Parameters
    ----------
    right, trials : shape (N, M)
    extreme : shape (N,)
        1 for models all right, -1 for models that know nothing, else 0.
    guess : shape (M,)
    curve : shape (Q, M)
        P(right) at the `NODES`, averaged over the items' errors.

    Returns
    -------
    array of shape (N, T)
        NaN for other models; ∞ above a model that is all right, -∞ below one that knows nothing.
    """
    quantiles = np.full((len(right), len(TAILS)), np.nan)
    sides = few_answers(right, trials, extreme, guess)
    for i in np.flatnonzero(sides):
        hits, tried = right[i], trials[i]
        whole = (hits == hits.round()).all()
        if extreme[i] > 0 and not whole:
            quantiles[i] = _of_all(tried, curve, sign=1)
        elif sides[i] > 0:
            quantiles[i] = _few_of(round(float((tried - hits).sum())), tried, 1 - curve, sign=1)
        else:
            quantiles[i] = _few_of(int(np.floor(hits.sum())), tried, curve, sign=-1)
        if extreme[i]:
            quantiles[i] = _without_end(quantiles[i], float(extreme[i]))
    return quantiles


def common_errors(fit: IRTFit, models: IntArray) -> FloatArray:
    """Covariance (2, 2) of the zero and the unit of the scale, from those of pairs of models.

    Abilities integrated out have the zero and unit of their population, and few models are an
    unsure sample of it: all abilities and items share that error. Where discriminations are given
    there is no unit to be unsure of.
    """
    levers = np.stack([np.ones(len(models)), fit.ability[models]], axis=1)
    covariance = fit.ability_covariance[np.ix_(models, models)]
    # Least squares over the pairs i ≠ j: over all i and j, less those where they are the same.
    own = (levers[:, :, None] * levers[:, None]).reshape(-1, 4)
    gram = levers.T @ levers
    squares = np.kron(gram, gram) - own.T @ own
    products = (levers.T @ covariance @ levers).ravel() - own.T @ covariance.diagonal()
    common = np.linalg.lstsq(squares, products)[0].reshape(2, 2)
    values, vectors = np.linalg.eigh(common)
    common = vectors * np.maximum(values, 0) @ vectors.T
    if fit.item_model == "rasch":
        common[1] = common[:, 1] = 0.0
    return common


def limited(fit: IRTFit, extreme: FloatArray, trials: FloatArray) -> IRTFit:
    """Give models all right or all wrong their estimate and limit, on the items of a fit.

    Curves are flattened by the errors of discriminations and intercepts, as a normal average is;
    not by those of the scale, which move these models along. Where no ability makes such a result
    as likely as not, as with an upper asymptote below 1, they keep what they have.

    Parameters
    ----------
    extreme : shape (N,)
        1 for models all right, -1 for models all wrong, else 0.
    trials : shape (K, M)
        Of the K models that are either, in their order.
    """
    at = np.flatnonzero(extreme)
    if not len(at):
        return fit
    nodes = NODES[:, None]
    logit = nodes * fit.discrimination + fit.intercept
    if fit.item_covariance is not None:
        covariance = np.nan_to_num(fit.item_covariance[:, :2, :2])
        if fit.scale_covariance is not None:
            shared = fit.scale_covariance[::-1, ::-1]
            covariance = covariance - fit.discrimination[:, None, None] ** 2 * shared
        (aa, ad), (_, dd) = np.moveaxis(covariance, 0, 2)
        variance = np.maximum(nodes**2 * aa + 2 * nodes * ad + dd, 0)
        logit = logit / np.sqrt(1 + np.pi / 8 * variance)
    curve = fit.guessing + (fit.upper - fit.guessing) * special.expit(logit)
    ability, covariance = fit.ability.copy(), fit.ability_covariance.copy()
    quantiles = np.full((len(ability), len(TAILS)), np.nan)
    for i, tried in zip(at, trials, strict=True):
        sign = int(extreme[i])
        whole = _of_all(tried, curve if sign > 0 else 1 - curve, sign)
        middle = whole[len(TAILS) // 2]
        if abs(middle) < NODES[-1]:
            ability[i], quantiles[i] = middle, _without_end(whole, sign)
            covariance[i], covariance[:, i] = np.nan, np.nan
    return replace(fit, ability=ability, ability_covariance=covariance, ability_quantiles=quantiles)


def _of_all(tried: FloatArray, chance: FloatArray, sign: int) -> FloatArray:
    """Abilities at which all answers, of this chance (Q, M), have each tail probability."""
    whole = np.exp(np.log(np.maximum(chance, _LEAST)) @ tried)
    return _inverted(whole, TAILS if sign > 0 else 1 - TAILS, sign)


def _without_end(row: FloatArray, sign: float) -> FloatArray:
    """Quantiles without a limit above (sign 1), however able a model may be, or below (-1)."""
    return np.where(TAILS > 0.5 if sign > 0 else TAILS < 0.5, sign * np.inf, row)


def few_answers(
    right: FloatArray, trials: FloatArray, extreme: FloatArray, guess: FloatArray
) -> FloatArray:
    """1 for models that are wrong on a few items or none, -1 for right ones, else 0; shape (N,)."""
    wrong, net_right = (trials - right).sum(axis=1), (right - guess * trials).sum(axis=1)
    whole = (right == right.round()).all(axis=1)
    able = (extreme > 0) | (whole & (wrong <= np.minimum(FEW, net_right)))
    unable = (extreme < 0) | (whole & (net_right <= FEW))
    return np.where(able, 1, np.where(unable, -1, 0))


def _few_of(count: int, tried: FloatArray, chance: FloatArray, *, sign: int) -> FloatArray:
    """Abilities at which `count` of a kind with this `chance` (Q, M), or fewer, have each tail."""
    # P(0), …, P(count) of the number of the kind among all answers.
    mass = np.zeros((len(chance), count + 1))
    mass[:, 0] = 1.0
    for j in np.flatnonzero(tried):
        p = chance[:, j : j + 1]
        for _ in range(round(float(tried[j]))):
            moved = mass * (1 - p)
            moved[:, 1:] += mass[:, :-1] * p
            mass = moved
    at_most = mass.sum(axis=1)
    if count > 0:
        at_most = at_most - 0.5 * mass[:, -1]
    # Few wrong: more probable the abler a model is; few right: the less able.
    return _inverted(at_most, TAILS if sign > 0 else 1 - TAILS, sign)


def _inverted(probability: FloatArray, tails: FloatArray, sign: int = 1) -> FloatArray:
    """Abilities at which a probability that rises (sign 1) or falls (-1) is each of the tails."""
    score = sign * special.ndtri(np.clip(probability, _LEAST, 1 - 1e-15))
    return np.interp(sign * special.ndtri(tails), np.maximum.accumulate(score), NODES)


def extremes_note(
    models: Sequence[str], extreme: FloatArray, said: str, *, guessed: bool = False
) -> list[str]:
    """Say what is known of models all right, or right no more often than by guessing.

    Parameters
    ----------
    extreme : shape (N,)
        1 for the former, -1 for the latter, else 0.
    said
        What part they take in the fit.
    """
    kinds = (
        (1, "all right", "more"),
        (-1, "right no more often than by guessing" if guessed else "all wrong", "less"),
    )
    return [
        f"{what}: {few([m for m, e in zip(models, extreme, strict=True) if e == sign])}. {said} "
        "the ability shown would be as likely as not to have this result, and these items cannot "
        f"say how much {more} able they are"
        for sign, what, more in kinds
        if (extreme == sign).any()
    ]
