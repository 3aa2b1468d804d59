"""The order of N models: who cannot be told apart, which ranks are open, who may be the best."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.stats.interval import FloatArray, IntArray

BoolArray = NDArray[np.bool_]

# Ratios of noise to noise and spread, each as likely as the other beforehand.
NOISE_SHARES = (np.arange(200) + 0.5) / 200
# Weight, in items, of the prior belief that any model may err on its own.
PRIOR_ITEMS = 1.0


class Ranks(NamedTuple):
    """The best and the worst rank that each model can have, 1 being the best; shape (N,)."""

    best: IntArray
    worst: IntArray


def rank_limits(beats: ArrayLike) -> Ranks:
    """Ranks that findings about pairs leave open [MRS24]_.

    Parameters
    ----------
    beats : shape (N, N)
        Whether the model of the row is better than the one of the column, beyond chance.
    """
    found = np.asarray(beats, dtype=np.bool_)
    return Ranks(
        (1 + found.sum(axis=0)).astype(np.int64),
        (len(found) - found.sum(axis=1)).astype(np.int64),
    )


def groups_alike(apart: ArrayLike) -> BoolArray:
    """Few groups of models such that two share one exactly if they are not told apart [GGH07]_.

    The columns of a compact letter display, found greedily: while two models that are not told
    apart share no group, one is grown around them, always by the model that settles the most pairs.

    Parameters
    ----------
    apart : shape (N, N)
        Whether two models are told apart; symmetric. In order of the models' scores the groups
        are as compact as they can be read.

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
    found = _without_idle(np.array(groups, dtype=np.bool_).reshape(-1, n))
    # By their members from the first model on, as words are sorted.
    return found[np.lexsort(~found.T[::-1])]


def letters(groups: ArrayLike) -> list[str]:
    """Letters of the groups that each model is in: two models that share one are not told apart.

    >>> letters([[True, True, False], [False, True, True]])
    ['a', 'ab', 'b']
    """
    found = np.asarray(groups, dtype=np.bool_)
    names = [_letter(i) for i in range(len(found))]
    between = "," if len(found) > 26 else ""
    return [between.join(names[i] for i in np.flatnonzero(column).tolist()) for column in found.T]


def prob_best(
    scores: ArrayLike, *, spread: float, rng: np.random.Generator, n_draws: int
) -> FloatArray:
    """Posterior probability of each model to have the highest true mean [Dan99]_ [LW04]_.

    Observed means are normal about the true ones, with the covariance that the common items give
    them; true means are normal about their own mean, their variance τ² unknown: the share s/(s+τ²)
    of noise s in what is seen is uniform. It draws true means together where they look
    alike, because the one that looks best is in part the luckiest.

    Parameters
    ----------
    scores : shape (N, M)
        Of every model on every item; higher is better.
    spread
        Greatest score less the least: models that never err get the error of one item more.
    """
    values = np.asarray(scores, dtype=np.float64)
    n = len(values)
    if np.isnan(values).any():
        raise ValueError("prob_best needs a score of every model on every item")
    if n < 2 or not spread > 0 or not values.shape[1]:
        return np.full(n, 1 / n if values.shape[1] and n else np.nan)
    # Only differences between models matter: n - 1 contrasts, free of how hard the items are.
    contrasts = _contrasts(n)
    seen = contrasts.T @ values
    noise, axes = np.linalg.eigh(_covariance_of_mean(seen, spread))
    estimates = axes.T @ seen.mean(axis=1)
    variance = noise.mean() * (1 / NOISE_SHARES - 1)
    total = variance[:, None] + noise
    log_likelihood = -0.5 * (np.log(total) + estimates**2 / total).sum(axis=1)
    weights = np.exp(log_likelihood - log_likelihood.max())
    drawn = rng.choice(variance, size=(n_draws, 1), p=weights / weights.sum())
    # The noise is itself estimated, from as many items as there are.
    freedom = values.shape[1] - 1 + PRIOR_ITEMS
    noise = noise * (freedom / rng.chisquare(freedom, size=(n_draws, 1)))
    kept = drawn / (drawn + noise)
    true = kept * estimates + np.sqrt(kept * noise) * rng.standard_normal((n_draws, n - 1))
    winners = np.argmax(true @ (contrasts @ axes).T, axis=1)
    return np.bincount(winners, minlength=n) / n_draws


def _without_idle(groups: BoolArray) -> BoolArray:
    """Leave out groups whose every pair is in another one, too."""
    held = groups.astype(np.float64)
    times = held.T @ held
    keep = np.ones(len(groups), dtype=np.bool_)
    for i, members in enumerate(groups):
        if times[np.ix_(members, members)].min() >= 2:
            keep[i] = False
            times -= np.outer(members, members)
    return groups[keep]


def _letter(index: int) -> str:
    """Name groups a to z, then aa, ab and so on."""
    name = ""
    while index >= 0:
        index, rest = index // 26 - 1, index % 26
        name = chr(ord("a") + rest) + name
    return name


def _contrasts(n: int) -> FloatArray:
    """Orthonormal columns, shape (n, n - 1), each adding up to 0 (Helmert's)."""
    k = np.arange(1.0, n)
    return (np.triu(np.ones((n, n - 1))) - k * np.eye(n, n - 1, -1)) / np.sqrt(k * (k + 1))


def _covariance_of_mean(values: FloatArray, spread: float) -> FloatArray:
    """Covariance of the means of rows, drawn towards equal and independent errors.

    As strongly as [LW04]_ finds best for so few items, and by one item more that has the largest
    variance scores can have.
    """
    n, m = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    sample = centred @ centred.T / m
    level = np.trace(sample) / n
    distance = ((sample - level * np.eye(n)) ** 2).sum()
    error = ((centred**2).sum(axis=0) ** 2).sum() / m**2 - (sample**2).sum() / m
    share = min(max(error, 0.0) / distance, 1.0) if distance > 0 else 1.0
    # Unbiased: m - 1 items' worth of information, the last one being the prior's.
    pooled = m * ((1 - share) * sample + share * level * np.eye(n))
    return (pooled + PRIOR_ITEMS * spread**2 / 4 * np.eye(n)) / (m - 1 + PRIOR_ITEMS) / m
