"""The order of N models: ranks that they may have, letters, and who is probably the best.

* `rank_limits`, `groups_alike`, `letters`: from which pairs are told apart
* `prob_best`: from the scores
* `shrunk`: P(better) of every two, shrunk over all of them
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

NOISE_SHARES = (np.arange(200) + 0.5) / 200
"""Shares of noise in the observed variance of means, uniform a priori."""

PRIOR_ITEMS = 1.0
"""Weight, in items, of the prior of equal and independent errors."""

SHRUNK_PRIOR, SHRUNK_STEPS = 0.6, 60
"""Of the mixture of normals that differences are shrunk to: weight of its prior in models, and
steps of EM."""

SHRUNK_SPREAD = np.geomspace(0.1, 30.0, 12)
"""Standard deviations of the mixture, in standard errors."""


class Ranks(NamedTuple):
    """Best and worst possible rank of each model, 1 being the best; shape (N,)."""

    best: IntArray
    worst: IntArray


def rank_limits(beats: ArrayLike) -> Ranks:
    """Ranks compatible with the significant pairwise differences [MRS24]_.

    Parameters
    ----------
    beats : shape (N, N)
        Whether the row's model is significantly better than the column's.
    """
    better = np.asarray(beats, dtype=np.bool_)
    return Ranks(
        (1 + better.sum(axis=0)).astype(np.int64),
        (len(better) - better.sum(axis=1)).astype(np.int64),
    )


def groups_alike(apart: ArrayLike) -> BoolArray:
    """Groups of a compact letter display: two models share one iff not distinguishable [GGH07]_.

    Found greedily: while two models that are not distinguishable share no group, a new one is
    grown around them, each time by the model that covers the most open pairs.

    Parameters
    ----------
    apart : shape (N, N)
        Whether two models are distinguishable; symmetric. Groups read best if the models are in
        the order of their scores.

    Returns
    -------
    shape (G, N), in the order of their first members; every model is in at least one.
    """
    alike = ~np.asarray(apart, dtype=np.bool_)
    np.fill_diagonal(alike, val=True)
    n = len(alike)
    open_pairs = np.triu(alike)
    groups: list[BoolArray] = []
    while open_pairs.any():
        pair = np.argmax(open_pairs)
        members = np.zeros(n, dtype=np.bool_)
        members[[pair // n, pair % n]] = True
        candidates = alike[pair // n] & alike[pair % n] & ~members
        while candidates.any():
            settled = open_pairs[members].sum(axis=0) + open_pairs[:, members].sum(axis=1)
            best = np.argmax(np.where(candidates, settled, -1))
            members[best] = True
            candidates &= alike[best] & ~members
        open_pairs[np.ix_(members, members)] = False
        groups.append(members)
    distinct = _without_redundant(np.array(groups, dtype=np.bool_).reshape(-1, n))
    # Lexicographic order of members.
    return distinct[np.lexsort(~distinct.T[::-1])]


def _without_redundant(groups: BoolArray) -> BoolArray:
    """Leave out groups whose pairs are all in other groups too."""
    held = groups.astype(np.float64)
    times = held.T @ held
    keep = np.ones(len(groups), dtype=np.bool_)
    for i, members in enumerate(groups):
        if times[np.ix_(members, members)].min() >= 2:
            keep[i] = False
            times -= np.outer(members, members)
    return groups[keep]


def letters(groups: ArrayLike) -> list[str]:
    """Letters of each model's groups: two models that share one are not distinguishable.

    >>> letters([[True, True, False], [False, True, True]])
    ['a', 'ab', 'b']
    """
    members = np.asarray(groups, dtype=np.bool_)
    names = [letter_name(i) for i in range(len(members))]
    between = "," if len(members) > 26 else ""
    return [between.join(names[i] for i in np.flatnonzero(column).tolist()) for column in members.T]


def letter_name(index: int) -> str:
    """Return a to z for indices from 0, then aa, ab and so on."""
    name = ""
    while index >= 0:
        index, rest = index // 26 - 1, index % 26
        name = chr(ord("a") + rest) + name
    return name


def prob_best(
    scores: ArrayLike, *, spread: float, rng: np.random.Generator, n_draws: int
) -> FloatArray:
    """Posterior probability of each model to have the highest true mean [Dan99]_ [LW04]_.

    Observed means are normal around the true ones, with the covariance due to the common items.
    True means are normal around their own mean with unknown variance τ²; the share s/(s + τ²) of
    noise s is uniform a priori. This shrinks true means towards each other: the model that looks
    best is in part the luckiest.

    Parameters
    ----------
    scores : shape (N, M)
        Scores of every model on every item; higher is better.
    spread
        Greatest possible score less the least: the prior adds the error of one further item.
    """
    values = np.asarray(scores, dtype=np.float64)
    n = len(values)
    if np.isnan(values).any():
        raise ValueError("prob_best needs a score of every model on every item")
    if n < 2 or not spread > 0 or not values.shape[1]:
        return np.full(n, 1 / n if values.shape[1] and n else np.nan)
    # Only differences between models matter: n - 1 contrasts, free of item difficulty.
    contrasts = _contrasts(n)
    seen = contrasts.T @ values
    noise, axes = np.linalg.eigh(_covariance_of_mean(seen, spread))
    estimates = axes.T @ seen.mean(axis=1)
    variance = noise.mean() * (1 / NOISE_SHARES - 1)
    total = variance[:, None] + noise
    log_likelihood = -0.5 * (np.log(total) + estimates**2 / total).sum(axis=1)
    drawn = rng.choice(variance, size=(n_draws, 1), p=special.softmax(log_likelihood))
    # The noise is itself estimated from the items.
    freedom = values.shape[1] - 1 + PRIOR_ITEMS
    noise = noise * (freedom / rng.chisquare(freedom, size=(n_draws, 1)))
    kept = drawn / (drawn + noise)
    # Drawn before the axes are known, whose signs and order are arbitrary.
    normal = rng.standard_normal((n_draws, n - 1)) @ axes
    true = kept * estimates + np.sqrt(kept * noise) * normal
    winners = np.argmax(true @ (contrasts @ axes).T, axis=1)
    return np.bincount(winners, minlength=n) / n_draws


def shrunk(difference: FloatArray, std_error: FloatArray, *, n_models: int) -> FloatArray:
    """P(b is higher) of every two models, shrunk over all pairs [Ste17]_.

    True differences, in standard errors of their pair, are a mixture of normals about 0, from a
    tenth to thirty; its weights are fitted to the pairs by EM, with `SHRUNK_PRIOR` of one model's
    worth of prior weight, alike for all. In standard errors because models that differ more have
    more items that tell them apart: a mixture of differences as they are shrinks just those. The
    likelihood is composite: the pairs of N models count as N - 1. Near ties are shrunk and clear
    differences are not. Above ½ exactly where the difference is above 0.

    Parameters
    ----------
    difference, std_error : shape (P,)
        Of b minus a; NaN for a pair without either.
    n_models
        Models of all pairs, three or more: one pair says nothing about others.

    Examples
    --------
    >>> prob = shrunk(np.array([0.01, 0.02, 0.03]), np.full(3, 0.02), n_models=3)
    >>> prob.round(2).tolist()
    [0.57, 0.65, 0.72]
    """
    observed = np.isfinite(difference) & (std_error > 0)
    probability = np.full(len(difference), np.nan)
    z: FloatArray = (difference[observed] / std_error[observed])[:, None]
    total = 1 + SHRUNK_SPREAD**2
    # Far differences would have no likelihood at all.
    likelihood = np.maximum(np.exp(-0.5 * z**2 / total) / np.sqrt(total), 1e-280)
    prior = np.full(len(total), 1 / len(total))
    weights = prior
    for _ in range(SHRUNK_STEPS if observed.any() else 0):
        share = weights * likelihood
        share /= share.sum(axis=1, keepdims=True)
        weights = (n_models - 1) * share.mean(axis=0) + SHRUNK_PRIOR * prior
        weights /= weights.sum()
    share = weights * likelihood
    share /= share.sum(axis=1, keepdims=True)
    probability[observed] = (share * special.ndtr(SHRUNK_SPREAD / np.sqrt(total) * z)).sum(axis=1)
    # Free of rounding errors.
    probability[difference == 0] = 0.5
    return probability


def errors_of(
    difference: FloatArray,
    prob: FloatArray,
    limits: tuple[FloatArray, FloatArray],
    confidence_level: float,
) -> FloatArray:
    """Standard errors of normal differences with the tails of these, shape (P,).

    With them P(b is higher) is `prob`, the tail of each pair's own distribution, so that few units
    have the tails that they should; of pairs near ½ it is their interval that tells.
    """
    low, high = limits
    with np.errstate(invalid="ignore", divide="ignore"):
        z = special.ndtri(np.clip(prob, 1e-15, 1 - 1e-15))
        by_tail = difference / z
    by_width = (high - low) / (2 * special.ndtri((1 + confidence_level) / 2))
    return np.where((np.abs(z) > 0.5) & (by_tail > 0), by_tail, by_width)


def _contrasts(n: int) -> FloatArray:
    """Orthonormal columns, shape (n, n - 1), each adding up to 0 (Helmert's)."""
    k = np.arange(1.0, n)
    return (np.triu(np.ones((n, n - 1))) - k * np.eye(n, n - 1, -1)) / np.sqrt(k * (k + 1))


def _covariance_of_mean(values: FloatArray, spread: float) -> FloatArray:
    """Covariance of the means of rows, shrunk towards equal and independent errors.

    By the optimal intensity of [LW04]_, and by one further item with the largest possible variance.
    """
    n, m = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    sample = centred @ centred.T / m
    level = np.trace(sample) / n
    distance = ((sample - level * np.eye(n)) ** 2).sum()
    error = ((centred**2).sum(axis=0) ** 2).sum() / m**2 - (sample**2).sum() / m
    share = min(max(error, 0.0) / distance, 1.0) if distance > 0 else 1.0
    # m - 1 degrees of freedom of the items and those of the prior.
    pooled = m * ((1 - share) * sample + share * level * np.eye(n))
    return (pooled + PRIOR_ITEMS * spread**2 / 4 * np.eye(n)) / (m - 1 + PRIOR_ITEMS) / m
