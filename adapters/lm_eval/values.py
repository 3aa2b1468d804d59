"""What a logged value is: a score of its item, a pair for a ratio, or neither.

The metric's name does not tell (drop's f1 is a number, that of multiple choice is a pair): the
value and the task's aggregation do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SPARSEST = 64
"""Cells per score of a repeat."""

# What lm-eval's registry uses where a task names no aggregation (0.4.13, api/metrics.py).
_REGISTRY = {
    "acc_all": "acc_all",
    "bits_per_byte": "bits_per_byte",
    "bleu": "bleu",
    "brier_score": "brier_score",
    "byte_perplexity": "weighted_perplexity",
    "bypass": "bypass",
    "chrf": "chrf",
    "chrf++": "chrf++",
    "f1": "f1",
    "likelihood": "likelihood",
    "mcc": "matthews_corrcoef",
    "perplexity": "perplexity",
    "ter": "ter",
    "word_perplexity": "weighted_perplexity",
}


def as_number(value: Any) -> float | None:
    """Read one number as logged: JSON number, truth value, or any of them as a text.

    lm-eval up to 0.4.12 writes NumPy values as texts, and "N/A" where there is no number.
    """
    if isinstance(value, str):
        if value in ("True", "False"):
            return float(value == "True")
        try:
            return float(value)
        except ValueError:
            return None
    if value is None or isinstance(value, (list, tuple, dict)):
        return None
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


def as_scores(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Read the scores of all items, shape (M,), NaN where missing; None if they are no scores."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return _one_by_one(values)
    return array if array.ndim == 1 else None


def _one_by_one(values: Sequence[Any]) -> NDArray[np.float64] | None:
    numbers = [math.nan if v is None else as_number(v) for v in values]
    return None if None in numbers else np.array(numbers, dtype=np.float64)


def as_pairs(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Read (log-likelihood, length) pairs, shape (M, 2); None if they are not."""
    rows = [(math.nan, math.nan) if v is None else v for v in values]
    try:
        array = np.asarray(rows, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return None
    return array if array.ndim == 2 and array.shape[1] == 2 else None


def aggregation_of(metric: str, config: Mapping[str, Any]) -> str:
    """Return the name of a metric's aggregation; ``"custom"`` for a function of the task's own."""
    for entry in config.get("metric_list") or ():
        if entry.get("metric") == metric and entry.get("aggregation") is not None:
            name = str(entry["aggregation"])
            return name if name.isidentifier() or name == "chrf++" else "custom"
    return _REGISTRY.get(metric, "mean")


def kind_of(values: Sequence[Any]) -> str:
    """Name what was logged instead of a score, for people."""
    value = next((v for v in values if v is not None and as_scores([v]) is None), None)
    if isinstance(value, (list, tuple)):
        inner = {"text" if isinstance(v, str) else type(v).__name__ for v in value}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return f"a list of {len(value)}: {', '.join(sorted(inner))}"  # pyright: ignore[reportUnknownArgumentType]
    return {"dict": "an object", "str": "a text"}.get(type(value).__name__, type(value).__name__)


def repeat_scores(rows: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    """Shape (M, R), NaN where an item has fewer repeats; None if they are no scores."""
    if not all(r is None or isinstance(r, Sequence) for r in rows):
        return None
    sizes = [len(r) for r in rows if r is not None]
    width = max(sizes, default=0)
    # One endless row would have to be made room for in all.
    if width * len(rows) > _SPARSEST * (sum(sizes) + _SPARSEST):
        return None
    scores = np.full((len(rows), width), np.nan)
    for i, row in enumerate(rows):
        one = as_scores(row or [])
        if one is None:
            return None
        scores[i, : len(one)] = one
    return scores if width else None
