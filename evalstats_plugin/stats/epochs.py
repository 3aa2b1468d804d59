"""Items that are taken several times: what varies between items, and what between their takes.

`scores` has shape (..., M, R), NaN where a take is missing. Epochs are repeats of an item, never
further items: more of them cannot remove the variance between items.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.stats.mean import moments


class VarianceParts(NamedTuple):
    """Where the variance of a mean score comes from; arrays of one shape, NaN where unknown."""

    n_items: FloatArray
    mean: FloatArray
    """Over items, each counting the same."""
    total: FloatArray
    """Variance of the item means (n - 1): what the standard error now comes from."""
    within: FloatArray
    """Variance of one take around its item's true mean, on average over items."""
    noise: FloatArray
    """What `within` adds to `total` with the takes there are; with R takes of all, within/R."""
    between: FloatArray
    """Variance of the items' true means. Unbiased, hence below 0 now and then."""


def take_noise(scores: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Variance of a take, and of the mean of the takes, of each item; both of shape (..., M).

    The variance of a take is unbiased (R - 1, for 0/1 takes p(1 - p)R/(R - 1)) and NaN for an item
    taken once. The noise of such an item's mean is taken to be the average item's variance.
    """
    n_takes, _, std = moments(scores)
    variance = np.where(n_takes > 1, std, np.nan) ** 2
    average = moments(variance).mean[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = np.where(n_takes > 1, variance, average) / n_takes
    return variance, np.where(n_takes > 0, noise, np.nan)


def variance_parts(scores: ArrayLike) -> VarianceParts:
    """Split the variance of a mean score, without bias, whatever the scores [SCM92]_.

    Items may differ in how often they were taken, as long as that does not depend on their scores.
    Without an item taken twice both parts are NaN.

    >>> parts = variance_parts([[1, 1], [1, 0], [0, 1], [0, 0], [1, 1], [1, 1]])
    >>> print(f"{parts.within:.4f} {parts.between:.4f}")
    0.1667 0.0833
    """
    n, mean, std = moments(moments(scores).mean)
    variance, noise = take_noise(scores)
    on_mean = moments(noise).mean
    total = std**2
    return VarianceParts(n, mean, total, moments(variance).mean, on_mean, total - on_mean)


def share_within(parts: VarianceParts) -> FloatArray:
    """Share of a single take's variance that lies within items, between 0 and 1.

    One minus the intra-class correlation. NaN where nothing varies.
    """
    between = np.maximum(parts.between, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(parts.within / (between + parts.within))


def predicted_std_error(
    parts: VarianceParts, *, n_items: ArrayLike, n_epochs: ArrayLike
) -> FloatArray:
    """Standard error of the mean that `n_items` items in `n_epochs` epochs each would have.

    >>> parts = variance_parts([[1, 1], [1, 0], [0, 1], [0, 0], [1, 1], [1, 1]])
    >>> print(f"{predicted_std_error(parts, n_items=6, n_epochs=2):.4f}")
    0.1667
    """
    items, epochs = (np.asarray(x, dtype=np.float64) for x in (n_items, n_epochs))
    if np.any(items <= 0) or np.any(epochs <= 0):
        raise ValueError("numbers of items and epochs must be positive")
    variance = np.maximum(parts.between, 0.0) + parts.within / epochs
    return np.sqrt(variance / items)
