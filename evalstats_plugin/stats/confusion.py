"""Metrics of a confusion table: F1, precision, recall, MCC, balanced accuracy, macro averages.

A table has shape (..., K, K): how often gold label i (row) was predicted as label j (column);
counts, or the probabilities of them. Where there are two labels, the second is the positive one.
A metric is NaN where it is 0/0.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Not those of `interval`: logs with such metrics are read without SciPy.
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


def one_hot(gold: IntArray, predicted: IntArray, n_labels: int) -> FloatArray:
    """Each item's own confusion table, flat: shape (M, K²), whose sum is that of all."""
    cells = np.zeros((len(gold), n_labels * n_labels))
    cells[np.arange(len(gold)), gold * n_labels + predicted] = 1.0
    return cells


def precision(tables: FloatArray) -> FloatArray:
    """How many of those predicted to be positive are."""
    true_positives, wrong, _ = _positives(tables)
    return _share(true_positives, true_positives + wrong)


def recall(tables: FloatArray) -> FloatArray:
    """How many of the positive ones are found."""
    true_positives, _, missed = _positives(tables)
    return _share(true_positives, true_positives + missed)


def f1(tables: FloatArray) -> FloatArray:
    """Harmonic mean of precision and recall [Rij79]_.

    >>> float(f1(np.array([[50.0, 10.0], [5.0, 35.0]]))).__round__(4)
    0.8235
    """
    true_positives, wrong, missed = _positives(tables)
    return _share(2 * true_positives, 2 * true_positives + wrong + missed)


def mcc(tables: FloatArray) -> FloatArray:
    """Correlation of gold and predicted labels [Mat75]_, for any number of them [Gor04]_."""
    total = tables.sum(axis=(-2, -1))
    right = np.trace(tables, axis1=-2, axis2=-1)
    gold, predicted = tables.sum(axis=-1), tables.sum(axis=-2)
    spread = (total**2 - (gold**2).sum(axis=-1)) * (total**2 - (predicted**2).sum(axis=-1))
    # Rounding may leave a little where a label is never used.
    spread = np.where(spread > 1e-14 * total**4, spread, 0.0)
    return _share(right * total - (gold * predicted).sum(axis=-1), np.sqrt(spread))


def balanced_accuracy(tables: FloatArray) -> FloatArray:
    """Mean over the gold labels of the share that is predicted right [Bro10]_."""
    gold = tables.sum(axis=-1)
    return _mean_where(_share(np.diagonal(tables, axis1=-2, axis2=-1), gold), gold > 0)


def macro_f1(tables: FloatArray) -> FloatArray:
    """Mean of the labels' F1; of labels that are neither gold nor predicted there is none."""
    scores, support = _f1_of_labels(tables)
    return _mean_where(scores, support > 0)


def weighted_f1(tables: FloatArray) -> FloatArray:
    """Mean of the labels' F1, weighted by how often each is gold."""
    scores, _ = _f1_of_labels(tables)
    gold = tables.sum(axis=-1)
    return _share((np.where(gold > 0, scores, 0.0) * gold).sum(axis=-1), gold.sum(axis=-1))


METRICS: Mapping[str, Callable[[FloatArray], FloatArray]] = MappingProxyType(
    {
        "f1": f1,
        "precision": precision,
        "recall": recall,
        "mcc": mcc,
        "balanced_accuracy": balanced_accuracy,
        "macro_f1": macro_f1,
        "weighted_f1": weighted_f1,
    }
)

BINARY = frozenset({"f1", "precision", "recall"})
"""Metrics that have a positive label."""


def _positives(tables: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """True positives, false positives, false negatives."""
    if tables.shape[-2:] != (2, 2):
        msg = f"tables have shape {tables.shape}, expected (..., 2, 2): two labels"
        raise ValueError(msg)
    return tables[..., 1, 1], tables[..., 0, 1], tables[..., 1, 0]


def _f1_of_labels(tables: FloatArray) -> tuple[FloatArray, FloatArray]:
    """F1 of each label, and how often it is gold or predicted; both of shape (..., K)."""
    support = tables.sum(axis=-1) + tables.sum(axis=-2)
    return _share(2 * np.diagonal(tables, axis1=-2, axis2=-1), support), support


def _share(part: FloatArray, whole: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def _mean_where(values: FloatArray, there: ArrayLike) -> FloatArray:
    there = np.asarray(there)
    return _share(np.where(there, values, 0.0).sum(axis=-1), there.sum(axis=-1) * 1.0)
