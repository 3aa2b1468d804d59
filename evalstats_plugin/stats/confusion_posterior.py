"""Intervals of what a confusion table says: of F1 in closed form, of the others by drawn tables."""

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats import binomial
from evalstats_plugin.stats.confusion import METRICS
from evalstats_plugin.stats.function_of_sums import Prior
from evalstats_plugin.stats.interval import FloatArray, Interval, tail_probability

# Tables are drawn in blocks of about this many numbers; results do not depend on it.
BLOCK_SIZE = 2**22


def wilson_f1(true_positives: ArrayLike, n: ArrayLike, *, confidence_level: float) -> Interval:
    """Interval of F1 by the score interval of a proportion [Wil27]_.

    F1 = 2r/(1 + r), where r is the share of true positives among the `n` items that are positive
    or predicted to be: a proportion, of a binomial number of items. NaN where `n` is 0.

    >>> low, high = wilson_f1(35, 50, confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    0.7200 0.8944
    """
    return _f1_of_share(binomial.wilson(true_positives, n, confidence_level=confidence_level))


def dirichlet_f1(
    true_positives: ArrayLike, n: ArrayLike, *, confidence_level: float, prior: float
) -> Interval:
    """Interval of F1 from the Dirichlet posterior of the table, in closed form [BAI25]_.

    With `prior` on each of the four cells, r as in `wilson_f1` is Beta(tp + a, fp + fn + 2a).
    Equal tails: where all are right, F1 = 1 is not in it.
    """
    share = binomial.beta_equal_tailed(
        true_positives, n, confidence_level=confidence_level, prior=(prior, 2 * prior)
    )
    return _f1_of_share(share)


def dirichlet_interval(
    tables: FloatArray,
    *,
    metric: str,
    prior: float,
    confidence_level: float,
    rng: np.random.Generator,
    n_resamples: int,
) -> Interval:
    """Interval from the Dirichlet posterior of the table, equal tails, by drawing tables.

    Parameters
    ----------
    tables : shape (C, K, K)
        Counts.
    metric
        A name of `METRICS`.
    prior
        Counts added to each row: half of them to its right cell, half spread over the wrong ones,
        so that 1 is Jeffreys' prior of the row where there are two labels. A row that has no
        count gets none: a label that is never gold stays so.

    Notes
    -----
    A prior spread evenly over the cells of a row would say that with K labels a model is right
    once in K times: its intervals lie too low. The limits are moved to the estimate where they
    would leave it out (no mistakes at all).
    """
    tail = tail_probability(confidence_level)
    function, n_labels = METRICS[metric], tables.shape[-1]
    right = np.eye(n_labels)
    per_row = prior * (right + (1 - right) / max(n_labels - 1, 1)) / 2
    shapes = tables + np.where(tables.sum(axis=-1, keepdims=True) > 0, per_row, 0.0)
    step = max(BLOCK_SIZE // (n_resamples * n_labels**2), 1)
    limits = [
        np.quantile(
            function(rng.standard_gamma(block, size=(n_resamples, *block.shape))),
            [tail, 1 - tail],
            axis=0,
        )
        for block in (shapes[i : i + step] for i in range(0, len(shapes), step))
    ]
    low, high = np.concatenate([np.zeros((2, 0)), *limits], axis=1)
    estimate = function(tables)
    return Interval(np.fmin(low, estimate), np.fmax(high, estimate))


def prior_of_pairs(table: FloatArray, *, prior: float) -> Prior:
    """Counts that come before the data when two models label the same items.

    For each gold label seen: `prior` each on both right, only the first, only the second, and
    neither; wrong answers are spread evenly over the wrong labels.

    Parameters
    ----------
    table : shape (K, K)
        Counts of either model: its row sums tell the gold labels seen.
    """
    n_labels = len(table)
    right = np.eye(n_labels)
    wrong = (1 - right) / max(n_labels - 1, 1)
    seen = table.sum(axis=1) > 0

    def rows(cells: FloatArray) -> FloatArray:
        """Put what is answered to each gold label into that row of a table of its own."""
        return (right[:, :, None] * cells[:, None, :])[seen].reshape(-1, n_labels**2)

    first = np.concatenate([rows(x) for x in (right, right, wrong, wrong)])
    second = np.concatenate([rows(x) for x in (right, wrong, right, wrong)])
    return Prior(first, second, np.full(len(first), prior))


def _f1_of_share(share: Interval) -> Interval:
    low, high = (2 * r / (1 + r) for r in share)
    return Interval(low, high)
