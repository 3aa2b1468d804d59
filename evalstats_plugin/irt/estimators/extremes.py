"""Abilities of models that are right, or wrong, on all items or on all but a few.

Their likelihood has no maximum, or is so skew that a standard error misleads. What the answers say
is a one-sided limit: the ability at which so many right answers, or more, have probability α. The
estimate of a model all right is where all right is as likely as not (median unbiased).
"""

from __future__ import annotations

import numpy as np
from scipy import special

from evalstats_plugin.irt.model.fit import TAILS
from evalstats_plugin.stats.arrays import FloatArray

FEW = 5
"""Wrong answers (right ones beyond guessing) up to which limits invert the number right."""

# Nodes of ability, in logits of the estimator's scale from 0.
_NODES: FloatArray = np.linspace(-30, 30, 601)

_LEAST = 1e-280


def nodes() -> FloatArray:
    """Abilities at which `placed` needs the items' curves, shape (Q,)."""
    return _NODES


def placed(
    right: FloatArray, trials: FloatArray, extreme: FloatArray, guess: FloatArray, curve: FloatArray
) -> FloatArray:
    """Abilities at which the number right has each tail probability of `TAILS`.

    Of models with whole numbers of right answers, of which only a few, or none, are wrong (or
    right beyond guessing). Half the probability of the number itself counts (mid-p), except where
    all are right or wrong.

    Parameters
    ----------
    right, trials : shape (N, M)
    extreme : shape (N,)
        1 for models all right, -1 for models that know nothing, else 0.
    guess : shape (M,)
    curve : shape (Q, M)
        P(right) at the `nodes`, averaged over the items' errors.

    Returns
    -------
    array of shape (N, T)
        NaN for other models; ∞ above a model that is all right, -∞ below one that knows nothing.
    """
    found = np.full((len(right), len(TAILS)), np.nan)
    few = few_answers(right, trials, extreme, guess)
    for i in np.flatnonzero(few):
        hits, tried = right[i], trials[i]
        whole = (hits == hits.round()).all()
        if extreme[i] > 0 and not whole:
            found[i] = _inverted(np.exp(np.log(np.maximum(curve, _LEAST)) @ tried), TAILS)
        elif few[i] > 0:
            found[i] = _few_of(round(float((tried - hits).sum())), tried, 1 - curve, sign=1)
        else:
            found[i] = _few_of(int(np.floor(hits.sum())), tried, curve, sign=-1)
        if extreme[i]:
            # However able, a model can be all right: there is no limit on that side.
            beyond = TAILS > 0.5 if extreme[i] > 0 else TAILS < 0.5
            found[i] = np.where(beyond, extreme[i] * np.inf, found[i])
    return found


def few_answers(
    right: FloatArray, trials: FloatArray, extreme: FloatArray, guess: FloatArray
) -> FloatArray:
    """1 for models that are wrong on a few items or none, -1 for right ones, else 0; shape (N,)."""
    wrong, known = (trials - right).sum(axis=1), (right - guess * trials).sum(axis=1)
    whole = (right == right.round()).all(axis=1)
    able = (extreme > 0) | (whole & (wrong <= np.minimum(FEW, known)))
    unable = (extreme < 0) | (whole & (known <= FEW))
    return np.where(able, 1, np.where(unable, -1, 0))


def _few_of(count: int, tried: FloatArray, chance: FloatArray, *, sign: int) -> FloatArray:
    """Abilities at which `count` of a kind with this `chance` (Q, M), or fewer, have each tail."""
    mass = _number_of(count, tried, chance)
    at_most = mass.sum(axis=1)
    if count > 0:
        at_most = at_most - 0.5 * mass[:, -1]
    # Few wrong: more probable the abler a model is; few right: the less able.
    return _inverted(at_most, TAILS if sign > 0 else 1 - TAILS, sign)


def _number_of(most: int, tried: FloatArray, chance: FloatArray) -> FloatArray:
    """P(0), …, P(most) of the number of a kind among all answers, shape (Q, most + 1)."""
    mass = np.zeros((len(chance), most + 1))
    mass[:, 0] = 1.0
    for j in np.flatnonzero(tried):
        p = chance[:, j : j + 1]
        for _ in range(round(float(tried[j]))):
            moved = mass * (1 - p)
            moved[:, 1:] += mass[:, :-1] * p
            mass = moved
    return mass


def _inverted(probability: FloatArray, tails: FloatArray, sign: int = 1) -> FloatArray:
    """Abilities at which a probability that rises (sign 1) or falls (-1) is each of the tails."""
    score = sign * special.ndtri(np.clip(probability, _LEAST, 1 - 1e-15))
    return np.interp(sign * special.ndtri(tails), np.maximum.accumulate(score), _NODES)
