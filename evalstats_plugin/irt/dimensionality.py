"""Do items share more than the ability? Yen's Q3: correlations of what the fit leaves unexplained.

Copies of a question, questions on one passage, or a second ability show as pairs of items whose
residuals go together [Yen84]_.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.irt.item_fit import Cells
from evalstats_plugin.stats.interval import FloatArray

# At which the Chernoff bound is tried: it holds at each, and is best at one.
_TILTS = np.geomspace(0.1, 300, 60)
# Pairs of items held at a time.
_BLOCK = 2**22


class LocalDependence(NamedTuple):
    """Pairs of items that go together beyond ability, strongest first."""

    first: NDArray[np.int64]
    """Place of the item, shape (P,), like the next four."""
    second: NDArray[np.int64]
    q3: FloatArray
    n_models: FloatArray
    """Models that took both."""
    p_adjusted: FloatArray
    """For all pairs together (Holm)."""
    mean: float
    """Of all pairs: below 0, as abilities are fitted to the same answers."""
    sd: float
    n_pairs: int
    """Pairs looked at."""


def q3(cells: Cells) -> FloatArray:
    """Correlate the residuals of every two items over the models that took both [Yen84]_.

    Shape (M, M); NaN where fewer than 3 models took both or nothing varies. Epochs are averaged.
    """
    return np.concatenate([part for _, part, _ in _blocks(cells)])


def local_dependence(
    cells: Cells, *, threshold: float = 0.2, confidence_level: float = 0.95
) -> LocalDependence:
    """Find pairs of items whose Q3 lies above the mean Q3 by more than `threshold` [CMH17]_.

    Such a pair must also be beyond chance among all pairs: by Fisher's z, and, as that is not to be
    relied on with few models or rare answers, by a Chernoff bound on the sum of the products of
    residuals, which holds for any number of models if their abilities are known.
    """
    count, total, square = 0, 0.0, 0.0
    for rows, part, _ in _blocks(cells):
        upper = _above(rows, part)
        values = part[upper & np.isfinite(part)]
        count, total = count + len(values), total + float(values.sum())
        square += float((values**2).sum())
    mean = total / count if count else np.nan
    sd = np.sqrt(max(square / count - mean**2, 0.0)) if count else np.nan
    found: list[tuple[NDArray[np.int64], ...]] = []
    kept: list[tuple[FloatArray, FloatArray]] = []
    for rows, part, common in _blocks(cells):
        with np.errstate(invalid="ignore"):
            far = _above(rows, part) & (part - mean > threshold) & (common > 3)
        j, k = np.nonzero(far)
        found.append((rows.start + j, k))
        kept.append((part[far], common[far]))
    first, second = (np.concatenate(x) for x in zip(*found, strict=True))
    value, common = (np.concatenate(x) for x in zip(*kept, strict=True))
    with np.errstate(divide="ignore"):
        z = np.arctanh(np.clip(value, -1, 1)) - np.arctanh(mean)
    p = np.asarray(special.ndtr(-z * np.sqrt(common - 3)), dtype=np.float64)
    level = 1 - confidence_level
    likely = p * count <= level
    first, second, value, common = (x[likely] for x in (first, second, value, common))
    p = np.maximum(p[likely], _chance_of_products(cells, first, second))
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * (count - np.arange(len(p))))
    order, adjusted = order[adjusted <= level], adjusted[adjusted <= level]
    return LocalDependence(
        first[order], second[order], value[order], common[order], adjusted, mean, float(sd), count
    )


def _chance_of_products(
    cells: Cells, first: NDArray[np.int64], second: NDArray[np.int64]
) -> FloatArray:
    """Upper bound on the chance of as large a sum of products of two items' residuals.

    Answers are Binomial and independent given ability; partial credit varies less, so that the
    bound holds for it as well.
    """
    best = np.zeros(len(first))
    step = max(_BLOCK // (8 * len(cells.right)), 1)
    for start in range(0, len(first), step):
        at = slice(start, start + step)
        j, k = first[at], second[at]
        n, size = cells.trials[:, j], cells.trials[:, k]
        p, q = cells.probability[:, j], cells.probability[:, k]
        seen = (cells.residual[:, j] * cells.residual[:, k]).sum(axis=0)
        scale = np.sqrt((cells.variance[:, j] * cells.variance[:, k]).sum(axis=0))
        for tilt in _TILTS:
            t = tilt / np.maximum(scale, 1e-12)
            best[at] = np.minimum(best[at], _log_mean_exp(n, p, size, q, t) - t * seen)
    return np.exp(best)


def _log_mean_exp(
    n: FloatArray, p: FloatArray, size: FloatArray, q: FloatArray, tilt: FloatArray
) -> FloatArray:
    """Log E exp(t Σ (X - np)(Y - sq)) of Binomial X and Y, summed over models."""
    total = np.full(n.shape, -np.inf)
    p, q = np.clip(p, 1e-300, 1 - 1e-16), np.clip(q, 1e-300, 1 - 1e-16)
    log_p, log_not_p = np.log(p), np.log1p(-p)
    for right in range(int(n.max(initial=0)) + 1):
        there = right <= n
        missed = np.where(there, n - right, 0.0)
        ways = special.gammaln(n + 1) - special.gammaln(right + 1) - special.gammaln(missed + 1)
        share = np.where(there, ways + right * log_p + missed * log_not_p, -np.inf)
        pull = tilt * (right - n * p)
        given = size * (np.logaddexp(np.log1p(-q), np.log(q) + pull) - pull * q)
        total = np.logaddexp(total, np.asarray(share + given, dtype=np.float64))
    return np.asarray(total, dtype=np.float64).sum(axis=0)


def _blocks(cells: Cells) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Rows of the matrix of correlations, and of how many models took both."""
    there = (cells.trials > 0).astype(np.float64)
    residual = cells.residual / np.maximum(cells.trials, 1)
    # Centred beforehand, sums of squares lose no digits.
    residual = (residual - residual.sum(0) / np.maximum(there.sum(0), 1)) * there
    squares = residual**2
    m = there.shape[1]
    step = max(_BLOCK // max(m, 1), 1)
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        ours, mine, own = there[:, rows].T, residual[:, rows].T, squares[:, rows].T
        n, x, y = ours @ there, mine @ there, ours @ residual
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = (n * (own @ there) - x * x) * (n * (ours @ squares) - y * y)
            part = (n * (mine @ residual) - x * y) / np.sqrt(spread)
        part[(n < 3) | (spread <= 1e-20 * n**4)] = np.nan
        yield rows, np.clip(part, -1, 1), n


def _above(rows: slice, part: FloatArray) -> NDArray[np.bool_]:
    """Each pair once: the later item second."""
    start, stop, _ = rows.indices(int(part.shape[1]))
    later = np.arange(part.shape[1], dtype=np.int64)
    return later > np.arange(start, stop, dtype=np.int64)[:, None]
