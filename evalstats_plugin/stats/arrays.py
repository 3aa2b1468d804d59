"""Types of arrays and of random sources, and numbers that every processor has the same.

Processors add in different orders, so that the last digits of a sum differ. That is harmless until
something is chosen by them: the sign of an eigenvector, the first of equal scores, a direction
without variance. From there on two runs with one seed have nothing in common.

* `as_floats`: arrays of one shape
* `root_of`: the root of a covariance that has no arbitrary signs
* `steady`: numbers without their last digits, to choose and to sort by
* `log_mean_exp`: the logarithm of a mean of exponentials
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

Rng: TypeAlias = np.random.Generator | int | None
"""A generator, a seed, or None for fresh randomness; resolved once, where a public call begins."""

_NOTHING = 1e-12
"""Variances of less than this share of the largest are rounding errors."""
_HALF = np.int64(2**20)
"""Half a unit of the last binary digit that is kept, of 52 after the point."""


def as_floats(*values: ArrayLike) -> tuple[FloatArray, ...]:
    """Return arrays of double precision, broadcast against each other.

    >>> [x.tolist() for x in as_floats(1, [2, 3])]
    [[1.0, 1.0], [2.0, 3.0]]
    """
    return tuple(np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in values)))


def root_of(covariance: ArrayLike) -> FloatArray:
    """Return the symmetric root R of a covariance that may be singular, R R = covariance.

    Eigenvectors have arbitrary signs, and where eigenvalues are equal an arbitrary basis; a root
    of them changes with the processor, and with it whatever is drawn as z @ R.T. The symmetric root
    is the only one that does not depend on them.

    Parameters
    ----------
    covariance
        Shape (n, n).

    Examples
    --------
    >>> root_of([[4.0, 0.0], [0.0, 9.0]]).round(6).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    matrix = np.asarray(covariance, dtype=np.float64)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = np.where(values > _NOTHING * values.max(initial=0.0), values, 0.0)
    return np.asarray((vectors * np.sqrt(kept)) @ vectors.T, dtype=np.float64)


def steady(values: ArrayLike) -> FloatArray:
    """Return numbers rounded to 32 binary digits, which processors do not differ in.

    Those that differ by rounding errors alone become equal: the first of them can be chosen, and
    what is drawn with them is drawn alike.

    >>> bool(0.1 + 0.2 == 0.3), bool(steady(0.1 + 0.2) == steady(0.3))
    (False, True)
    """
    given = np.array(values, dtype=np.float64)
    bits = given.view(np.int64)
    rounded = ((bits + _HALF) & ~(2 * _HALF - 1)).view(np.float64)
    return np.where(np.isfinite(given), rounded, given)


def log_mean_exp(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of the mean of exponentials along the last axis, and these over their largest.

    SciPy's `logsumexp` takes twice the time.

    >>> log_mean, relative = log_mean_exp(np.log([1.0, 2.0, 3.0]))
    >>> float(np.exp(log_mean).round(12)), relative.round(3).tolist()
    (2.0, [0.333, 0.667, 1.0])
    """
    most = values.max(axis=-1, keepdims=True)
    relative = np.exp(values - most)
    return most[..., 0] + np.log(relative.mean(axis=-1)), relative
