"""Metrics of a whole corpus of texts: BLEU, chrF, chrF++ and TER, from sums over its documents.

Each document adds its counts (of n-grams that match, of edits, …), and the metric is a function of
their sums. Counted by sacrebleu with its own settings [Pos18]_; computed from sums of shape
(..., S) here, for all resamples of the documents at once.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Not that of `interval`: logs with such metrics are read without SciPy.
FloatArray: TypeAlias = NDArray[np.float64]

_COUNTERS: Mapping[str, tuple[str, dict[str, int]]] = MappingProxyType(
    {
        "bleu": ("BLEU", {}),
        "chrf": ("CHRF", {}),
        "chrf++": ("CHRF", {"word_order": 2}),
        "ter": ("TER", {}),
    }
)


def counts(
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


METRICS: Mapping[str, Callable[[FloatArray], FloatArray]] = MappingProxyType(
    {"bleu": bleu, "chrf": chrf, "chrf++": chrf, "ter": ter}
)
