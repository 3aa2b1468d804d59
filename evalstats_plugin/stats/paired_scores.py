"""Two models on the same items, with scores of any kind: what their differences say.

`differences` has shape (P, M), one row per pair of models, NaN where an item lacks a score of one
of the two. Intervals of their mean are those of `bounded` and `mean`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.stats import dirichlet_mean
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.stats.mean import moments

# Up to this many differences other than 0, every assignment of signs is counted.
MOST_ENUMERATED = 16
# From here on the distribution over all signs is normal, to more digits than drawn signs give.
LIMIT_IS_NORMAL = 10_000
# Sums are formed in blocks of about this many numbers; results do not depend on it.
BLOCK_SIZE = 2**22
# Sums that differ by no more than rounding errors are ties.
ROUNDING = 1e-9


def dirichlet_process_prob(
    differences: ArrayLike, *, bounds: tuple[float, float], mass: float
) -> FloatArray:
    """Posterior probability that the mean difference is positive [Fer73]_.

    Of the posterior behind `bounded.dirichlet_process` with these bounds and mass; ½ exactly if
    every difference is 0, NaN without any.
    """
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    seen = ~np.isnan(values)
    values = np.where(seen, values, 0.0)
    # Only where some difference is not 0: the integral of the others is slow, and known.
    told_apart = np.any(values != 0, axis=1)
    atoms, n_atoms = values[told_apart], values.shape[1] + 2
    ends = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (len(atoms), 2))
    atoms = np.concatenate([ends, atoms], axis=1)
    weights = np.concatenate([np.full_like(ends, mass), seen[told_apart]], axis=1)
    rows = max(dirichlet_mean.BLOCK_SIZE // n_atoms, 1)
    parts = [
        dirichlet_mean.cdf_and_density(
            atoms[i : i + rows],
            weights[i : i + rows],
            np.zeros(len(atoms[i : i + rows])),
            refinements=dirichlet_mean.REFINEMENTS,
        )[0]
        for i in range(0, len(atoms), rows)
    ]
    prob = np.where(seen.any(axis=1), 0.5, np.nan)
    prob[told_apart] = 1 - np.concatenate([np.zeros(0), *parts])
    return prob


def t_prob(differences: ArrayLike) -> FloatArray:
    """Posterior probability that the mean difference is positive, of normal differences.

    Under the prior for which the posterior's quantiles are the limits of `mean.t_interval`; NaN
    where all differences are equal and not 0, for want of any spread to judge by.
    """
    n, mean, std = moments(differences)
    with np.errstate(divide="ignore", invalid="ignore"):
        prob = special.stdtr(np.where(n > 1, n - 1, np.nan), mean * np.sqrt(n) / std)
    return np.where(std > 0, prob, np.where((std == 0) & (mean == 0), 0.5, np.nan))


def sign_flip(differences: ArrayLike, *, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """Two-sided p-value of the mean difference, over all signs of the differences [Fis35]_.

    If the models are exchangeable, each difference was as likely to have the opposite sign. Exact
    if no more than 16 differ from 0; with 10,000 and more by the normal limit; between, by
    `n_flips` drawn assignments of signs, the same for all pairs. 1 if all are 0, NaN without any.
    """
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    empty = np.isnan(values).all(axis=1)
    values = np.where(np.isnan(values), 0.0, values)
    n_nonzero = (values != 0).sum(axis=1)
    few, many = n_nonzero <= MOST_ENUMERATED, n_nonzero >= LIMIT_IS_NORMAL
    between = ~few & ~many
    p_values = np.ones(len(values))
    if few.any():
        p_values[few] = _enumerated(values[few], int(n_nonzero[few].max()))
    if between.any():
        p_values[between] = _drawn(values[between], rng, n_flips)
    z = np.abs(values[many].sum(axis=1)) / np.sqrt((values[many] ** 2).sum(axis=1))
    p_values[many] = 2 * special.ndtr(-z)
    return np.where(empty, np.nan, p_values)


def random_signs(rng: np.random.Generator, n_items: int, n_flips: int) -> FloatArray:
    """Draw -1 and 1 with equal probability, shape (M, n_flips)."""
    bits = rng.integers(0, 2, size=(n_flips, n_items), dtype=np.int8).T
    return 2.0 * bits.astype(np.float64) - 1.0


def _enumerated(values: FloatArray, n_nonzero: int) -> FloatArray:
    """Share of all 2^n sums at least as far from 0 as the one seen."""
    largest_first = np.argsort(-np.abs(values), axis=1)[:, : max(n_nonzero, 1)]
    values = np.take_along_axis(values, largest_first, axis=1)
    n = int(values.shape[1])
    # Opposite signs throughout give the same size: one of them can stay.
    half_of_all = np.arange(2.0 ** (n - 1))
    signs: FloatArray = 1 - 2 * (np.floor(half_of_all / 2.0 ** np.arange(n)[:, None]) % 2)
    step = max(BLOCK_SIZE // signs.shape[1], 1)
    parts = [_as_far(values[i : i + step], signs).mean(axis=1) for i in range(0, len(values), step)]
    return np.concatenate(parts)


def _drawn(values: FloatArray, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """As `_enumerated`, by drawn signs; what was seen counts as one of them."""
    count = np.ones(len(values))
    step = max(BLOCK_SIZE // max(values.shape), 1)
    for start in range(0, n_flips, step):
        signs = random_signs(rng, values.shape[1], min(step, n_flips - start))
        count += _as_far(values, signs).sum(axis=1)
    return count / (n_flips + 1)


def _as_far(values: FloatArray, signs: FloatArray) -> NDArray[np.bool_]:
    """Which sums with these signs are at least as far from 0 as those without, shape (P, B)."""
    slack = ROUNDING * np.abs(values).sum(axis=1)
    seen = np.abs(values.sum(axis=1)) - slack
    return np.abs(values @ signs) >= seen[:, None]
