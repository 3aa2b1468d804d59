"""Formulas of metrics that are not means of item scores: F1, MCC, AUC, BLEU, chrF, TER.

* confusion tables (..., K, K), rows gold and columns predicted: `one_hot`, `CONFUSION_METRICS`
* area under the ROC curve of a 0/1 label and a score: `auc`
* text metrics of a whole corpus: `corpus_counts`, `CORPUS_METRICS`
* two raters: `agreement` (kappa, AC1), with `quadratic_weights`

Confusion and corpus metrics are functions of sums over units. A unit is an item, or a cluster of
items, that adds S numbers to the sums: its cell of the confusion table, its n-grams, its words.
`metric_intervals` holds their intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.errors import install_hint
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

Value: TypeAlias = Callable[[FloatArray], FloatArray]
"""A metric as a function of sums over units: shape (..., S) to shape (...)."""

BINARY = frozenset({"f1", "precision", "recall"})
"""Metrics that have a positive label."""

_COUNTERS: Mapping[str, tuple[str, dict[str, int]]] = {
    "bleu": ("BLEU", {}),
    "chrf": ("CHRF", {}),
    "chrf++": ("CHRF", {"word_order": 2}),
    "ter": ("TER", {}),
}


def one_hot(gold: IntArray, predicted: IntArray, n_labels: int) -> FloatArray:
    """Confusion table of each item alone, flat: shape (M, K²); they add up to the table of all."""
    cells = np.zeros((len(gold), n_labels * n_labels))
    cells[np.arange(len(gold)), gold * n_labels + predicted] = 1.0
    return cells


def f1(tables: FloatArray) -> FloatArray:
    """Harmonic mean of precision and recall [Rij79]_.

    >>> float(f1(np.array([[50.0, 10.0], [5.0, 35.0]]))).__round__(4)
    0.8235
    """
    true_positives, wrong, missed = _positives(tables)
    return _share(2 * true_positives, 2 * true_positives + wrong + missed)


def precision(tables: FloatArray) -> FloatArray:
    """Share of true positives among the items predicted to be positive."""
    true_positives, wrong, _ = _positives(tables)
    return _share(true_positives, true_positives + wrong)


def recall(tables: FloatArray) -> FloatArray:
    """Share of true positives among the items whose gold label is positive."""
    true_positives, _, missed = _positives(tables)
    return _share(true_positives, true_positives + missed)


def mcc(tables: FloatArray) -> FloatArray:
    """Matthews correlation of gold and predicted labels [Mat75]_, for K labels [Gor04]_."""
    total = tables.sum(axis=(-2, -1))
    right = np.trace(tables, axis1=-2, axis2=-1)
    labels = np.stack([tables.sum(axis=-1), tables.sum(axis=-2)])
    # Rounding errors may leave a little where only one label is used.
    spread = total**2 - (labels**2).sum(axis=-1)
    spread = np.where(spread > 1e-14 * total**2, spread, 0.0).prod(axis=0)
    return _share(right * total - labels.prod(axis=0).sum(axis=-1), np.sqrt(spread))


def balanced_accuracy(tables: FloatArray) -> FloatArray:
    """Mean recall over the gold labels [Bro10]_."""
    gold = tables.sum(axis=-1)
    return _mean_where(_share(np.diagonal(tables, axis1=-2, axis2=-1), gold), gold > 0)


def macro_f1(tables: FloatArray) -> FloatArray:
    """Mean F1 over the labels that are gold or predicted at least once."""
    scores, support = _f1_of_labels(tables)
    return _mean_where(scores, support > 0)


def weighted_f1(tables: FloatArray) -> FloatArray:
    """Mean F1 over the labels, weighted by how often each is gold."""
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
        msg = f"tables must have shape (..., 2, 2), for two labels; they have {tables.shape}"
        raise ValueError(msg)
    return tables[..., 1, 1], tables[..., 0, 1], tables[..., 1, 0]


def _f1_of_labels(tables: FloatArray) -> tuple[FloatArray, FloatArray]:
    """F1 of each label, and how often it is gold or predicted; both of shape (..., K)."""
    support = tables.sum(axis=-1) + tables.sum(axis=-2)
    return _share(2 * np.diagonal(tables, axis1=-2, axis2=-1), support), support


def _mean_where(values: FloatArray, mask: ArrayLike) -> FloatArray:
    mask = np.asarray(mask)
    return _share(np.where(mask, values, 0.0).sum(axis=-1), mask.sum(axis=-1) * 1.0)


def _share(part: FloatArray, whole: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def auc(positive: BoolArray, scores: FloatArray) -> float:
    """Area under the ROC curve: P(a positive item scores higher), a tie counting half.

    NaN if all items are positive, or none is.

    >>> auc(np.array([False, False, True, True]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.75
    """
    if np.isnan(scores).any():
        raise ValueError("scores must not be missing")
    negatives = np.sort(scores[~positive])
    if positive.all() or not positive.any():
        return float("nan")
    below, up_to = (
        np.searchsorted(negatives, scores[positive], side=side)  # type: ignore[call-overload]
        for side in ("left", "right")
    )
    return float((below + up_to).mean()) / (2 * len(negatives))


def corpus_counts(
    metric: str, references: Sequence[Sequence[str]], hypotheses: Sequence[str]
) -> FloatArray:
    """Counts that each document adds to the sums of a corpus metric, shape (M, S), by sacrebleu.

    Parameters
    ----------
    metric
        A name of `CORPUS_METRICS`.
    references : length M
        One or more texts for each document, the same number for all.
    hypotheses : length M

    Raises
    ------
    ModuleNotFoundError
        If sacrebleu is not installed; the message says how to install it.
    """
    name, settings = _COUNTERS[metric]
    try:
        metrics: Any = import_module("sacrebleu.metrics")
    except ModuleNotFoundError as error:
        msg = f"{metric} is computed with sacrebleu, which is not installed: {install_hint('text')}"
        raise ModuleNotFoundError(msg, name=error.name) from error
    if not hypotheses:
        return np.zeros((0, 0))
    counter = getattr(metrics, name)(**settings)
    by_place = list(zip(*references, strict=True))
    # The statistics that its corpus_score sums; a test compares the scores.
    statistics = counter._extract_corpus_statistics(hypotheses, by_place)
    return np.asarray(statistics, dtype=np.float64)


def bleu(sums: FloatArray) -> FloatArray:
    """BLEU of four orders with sacrebleu's default smoothing [Pap02]_.

    Sums are the lengths of hypotheses and references, matching n-grams, and all n-grams of each
    order.
    """
    length, wanted = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2:6], sums[..., 6:]
    # Exponential smoothing: each order without a match halves the precision put in its place.
    halvings = np.cumsum(correct == 0, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = np.log(np.where(correct > 0, correct, 0.5**halvings) / total)
        # From the first order without n-grams on, precisions are 0.
        reached = np.logical_and.accumulate(total > 0, axis=-1).all(axis=-1)
        brevity = np.where(length < wanted, 1 - wanted / length, 0.0)
        score = 100 * np.exp(brevity + logs.mean(axis=-1))
    return np.where(reached & np.any(correct > 0, axis=-1), score, 0.0)


def chrf(sums: FloatArray) -> FloatArray:
    """F2 score of character (and word) n-grams [Pop15]_.

    Sums are, for each order, the n-grams of the hypotheses, of the references, and of both.
    """
    orders = sums.reshape(*sums.shape[:-1], -1, 3)
    in_hypotheses, in_references, both = orders[..., 0], orders[..., 1], orders[..., 2]
    used = (in_hypotheses > 0) & (in_references > 0)
    n_used = np.maximum(used.sum(axis=-1), 1)
    precision = np.where(used, both / np.where(used, in_hypotheses, 1.0), 0.0).sum(axis=-1) / n_used
    recall = np.where(used, both / np.where(used, in_references, 1.0), 0.0).sum(axis=-1) / n_used
    whole = 4 * precision + recall
    return np.where(whole > 0, 500 * precision * recall / np.where(whole > 0, whole, 1.0), 0.0)


def ter(sums: FloatArray) -> FloatArray:
    """Translation edit rate: edits that turn hypotheses into references, per 100 words [Sno06]_."""
    edits, words = sums[..., 0], sums[..., 1]
    without_words = np.where(edits > 0, 100.0, 0.0)
    return np.where(words > 0, 100 * edits / np.where(words > 0, words, 1.0), without_words)


CORPUS_METRICS: Mapping[str, Callable[[FloatArray], FloatArray]] = MappingProxyType(
    {"bleu": bleu, "chrf": chrf, "chrf++": chrf, "ter": ter}
)


class Agreement(NamedTuple):
    """How far two raters agree; arrays of one shape, NaN where it is undefined."""

    raw: FloatArray
    """Share of items with the same score; near ones count in part where there are weights."""
    kappa: FloatArray
    """Cohen's, beyond what two raters agree on who draw by their own frequencies [Coh60]_."""
    ac1: FloatArray
    """Gwet's: beyond what they agree on by chance on items that are hard to tell [Gwe08]_."""


def agreement(tables: ArrayLike, weights: ArrayLike | None = None) -> Agreement:
    """Agreement of two raters, from how often one gave category i and the other j.

    Parameters
    ----------
    tables : shape (..., q, q)
        Counts or shares.
    weights : shape (q, q)
        How much of an agreement i and j are: 1 on the diagonal. Without, nothing beside it is one;
        with `quadratic_weights` kappa is [Coh68]_'s and ac1 is AC2.

    Examples
    --------
    >>> found = agreement([[118, 5], [2, 0]])
    >>> print(f"{found.raw:.3f} {found.kappa:.3f} {found.ac1:.3f}")
    0.944 -0.023 0.941
    """
    counts = np.asarray(tables, dtype=np.float64)
    q = counts.shape[-1]
    w = np.eye(q) if weights is None else np.asarray(weights, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = counts / counts.sum(axis=(-2, -1), keepdims=True)
        first, second = p.sum(axis=-1), p.sum(axis=-2)
        raw = (w * p).sum(axis=(-2, -1))
        by_chance = np.einsum("...i,ij,...j->...", first, w, second)
        mean = (first + second) / 2
        of_hard = w.sum() / (q * (q - 1)) * (mean * (1 - mean)).sum(axis=-1) if q > 1 else np.nan
        kappa = np.where(by_chance < 1, (raw - by_chance) / (1 - by_chance), np.nan)
        return Agreement(raw, kappa, np.asarray((raw - of_hard) / (1 - of_hard)))


def quadratic_weights(categories: ArrayLike) -> FloatArray:
    """Weights of near agreements on an ordinal scale, 1 - (distance / range)², shape (q, q).

    >>> quadratic_weights([1, 2, 3])[0].tolist()
    [1.0, 0.75, 0.0]
    """
    at = np.asarray(categories, dtype=np.float64)
    span = float(at.max() - at.min()) or 1.0
    return 1 - ((at[:, None] - at[None, :]) / span) ** 2
