"""A value that is a function of sums over units: intervals, and what two models' values differ by.

A unit is an item, or a cluster of items, that adds S numbers to the sums: its cell of a confusion
table, its n-grams, its loglikelihood and its words. `value` takes sums of shape (..., S) and
answers with shape (...). Units of models that are compared are the same, in the same order.
"""
# PART confusion - Metrics of a confusion table: F1, precision, recall, MCC, balanced accuracy, macro averages.
# PART confusion_posterior - Intervals of what a confusion table says: of F1 in closed form, of the others by drawn tables.
# PART auc - Area under the ROC curve: how likely a positive item gets the higher score; a tie counts half.
# PART corpus - Metrics of a whole corpus of texts: BLEU, chrF, chrF++ and TER, from sums over its documents.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.arrays import FloatArray, IntArray

Value: TypeAlias = Callable[[FloatArray], FloatArray]


BINARY = frozenset({"f1", "precision", "recall"})
"""Metrics that have a positive label."""


_COUNTERS: Mapping[str, tuple[str, dict[str, int]]] = MappingProxyType(
    {
        "bleu": ("BLEU", {}),
        "chrf": ("CHRF", {}),
        "chrf++": ("CHRF", {"word_order": 2}),
        "ter": ("TER", {}),
    }
)


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


CONFUSION_METRICS: Mapping[str, Callable[[FloatArray], FloatArray]] = MappingProxyType(
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


def corpus_counts(
    metric: str, references: Sequence[Sequence[str]], hypotheses: Sequence[str]
) -> FloatArray:
    """What each document adds to the sums of a metric, shape (M, S).

    Parameters
    ----------
    metric
        A name of `METRICS`.
    references : length M
        One or more texts for each document, the same number for all.
    hypotheses : length M

    Raises
    ------
    ModuleNotFoundError
        If sacrebleu is not installed, with what to do.
    """
    name, settings = _COUNTERS[metric]
    try:
        metrics: Any = import_module("sacrebleu.metrics")
    except ModuleNotFoundError as error:
        msg = (
            f"{metric} is computed with sacrebleu, which is not installed; "
            "pip install 'evalstats-plugin[text]'"
        )
        raise ModuleNotFoundError(msg, name=error.name) from error
    if not hypotheses:
        return np.zeros((0, 0))
    counter = getattr(metrics, name)(**settings)
    by_place = list(zip(*references, strict=True))
    # What its corpus_score sums, and its own bootstrap resamples; a test compares the scores.
    found = counter._extract_corpus_statistics(hypotheses, by_place)
    return np.asarray(found, dtype=np.float64)


def bleu(sums: FloatArray) -> FloatArray:
    """BLEU of four orders with sacrebleu's default smoothing [Pap02]_.

    Sums are the lengths of hypotheses and references, matching n-grams, and all n-grams.
    """
    length, wanted = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2:6], sums[..., 6:10]
    # Every order without a match so far halves what stands in for its precision.
    halvings = np.cumsum((correct == 0) & (total > 0), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = np.log(np.where(correct > 0, correct, 0.5**halvings) / total)
        # From an order without n-grams on, precisions are 0.
        reached = np.logical_and.accumulate(total > 0, axis=-1).all(axis=-1)
        brevity = np.where(length < wanted, 1 - wanted / length, 0.0)
        score = 100 * np.exp(brevity + logs.mean(axis=-1))
    return np.where(reached & np.any(correct > 0, axis=-1) & (length > 0), score, 0.0)


def chrf(sums: FloatArray) -> FloatArray:
    """F score of character (and word) n-grams, recall counted twice [Pop15]_.

    Sums are n-grams of the hypotheses, of the references, and in both, of each order.
    """
    orders = sums.reshape(*sums.shape[:-1], -1, 3)
    answered, wanted, both = orders[..., 0], orders[..., 1], orders[..., 2]
    used = (answered > 0) & (wanted > 0)
    n_used = np.maximum(used.sum(axis=-1), 1)
    precision = np.where(used, both / np.where(used, answered, 1.0), 0.0).sum(axis=-1) / n_used
    recall = np.where(used, both / np.where(used, wanted, 1.0), 0.0).sum(axis=-1) / n_used
    whole = 4 * precision + recall
    return np.where(whole > 0, 500 * precision * recall / np.where(whole > 0, whole, 1.0), 0.0)


def ter(sums: FloatArray) -> FloatArray:
    """Edits that turn hypotheses into references, per 100 words of these [Sno06]_."""
    edits, words = sums[..., 0], sums[..., 1]
    without_words = np.where(edits > 0, 100.0, 0.0)
    return np.where(words > 0, 100 * edits / np.where(words > 0, words, 1.0), without_words)


CORPUS_METRICS: Mapping[str, Callable[[FloatArray], FloatArray]] = MappingProxyType(
    {"bleu": bleu, "chrf": chrf, "chrf++": chrf, "ter": ter}
)
