"""What the logged values of a metric are: scores, pairs or labels of items, and lm-eval's errors.

What an item's value is (a score, a pair for a ratio, two labels) does not follow from the metric's
name (drop's f1 is a number, that of multiple choice a pair): the ``as_`` functions look at the
values, `aggregation_of` at the task. `disagreement` compares logged means and standard errors with
the items, by lm-eval's formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.measure import agree

_SPARSEST = 64
"""Cells allowed per score when rows of repeats are padded to one length."""

# lm-eval's aggregations where a task names none, if not the mean (0.4.13, api/metrics.py).
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

_UNIT = ("acc", "exact_match", "pass@")
"""How the names of metrics begin whose scores lie in [0, 1], whatever the task."""


def as_number(value: Any) -> float | None:
    """Read one logged number: a JSON number or boolean, or the text of one; None if it is neither.

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
        numbers = [math.nan if v is None else as_number(v) for v in values]
        return None if None in numbers else np.array(numbers, dtype=np.float64)
    return array if array.ndim == 1 else None


def as_pairs(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Read (log-likelihood, length) pairs, shape (M, 2); None if they are no pairs."""
    rows = [(math.nan, math.nan) if v is None else v for v in values]
    try:
        array = np.asarray(rows, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return None
    return array if array.ndim == 2 and array.shape[1] == 2 else None


def as_answers(values: Sequence[Any]) -> NDArray[Any] | None:
    """Read (expected, answered) labels or texts, shape (M, 2), None where missing.

    None if the values are no such pairs.
    """
    rows: list[tuple[Any, Any]] = []
    for value in values:
        pair = (None, None) if value is None else value
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:  # pyright: ignore[reportUnknownArgumentType]
            return None
        rows.append((_plain(pair[0]), _plain(pair[1])))
    if all(row == (None, None) for row in rows):
        return None
    answers = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        answers[i, 0], answers[i, 1] = row
    return answers


def _plain(value: Any) -> Any:
    """Return a label as a Python value; in results in memory, labels are NumPy numbers."""
    return cast("Any", value).item() if isinstance(value, np.generic) else value


def brier_scores(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Compute Brier scores, shape (M,), from (target, log-likelihoods) or (target, probabilities).

    As lm-eval does: the sum over the choices of (probability − 1 for the target)². None if the
    values are no such pairs.
    """
    scores = np.full(len(values), np.nan)
    of_size: dict[int, list[tuple[int, int, Any]]] = {}
    try:
        for i, value in enumerate(values):
            if value is not None:
                target, given = value
                if not 0 <= target < len(given):
                    return None
                of_size.setdefault(len(given), []).append((i, index(target), given))
        for rows in of_size.values():
            places, targets, all_given = zip(*rows, strict=True)
            numbers = np.array(all_given, dtype=np.float64)
            # Probabilities are never all 0.
            logs = (numbers <= 0).all(axis=1)
            if ((numbers < 0) | (numbers > 1))[~logs].any():
                return None
            exponents = np.exp(numbers[logs] - numbers[logs].max(axis=1, keepdims=True))
            numbers[logs] = exponents / exponents.sum(axis=1, keepdims=True)
            numbers[np.arange(len(rows)), targets] -= 1
            scores[list(places)] = np.einsum("mk,mk->m", numbers, numbers)
    except (IndexError, OverflowError, TypeError, ValueError):
        return None
    return scores


def repeat_scores(rows: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    """Read scores of repeats, shape (M, R), NaN where an item has fewer; None if not scores."""
    if not all(r is None or isinstance(r, Sequence) for r in rows):
        return None
    sizes = [len(r) for r in rows if r is not None]
    width = max(sizes, default=0)
    # One very long row would make the whole array as wide.
    if width * len(rows) > _SPARSEST * (sum(sizes) + _SPARSEST):
        return None
    scores = np.full((len(rows), width), np.nan)
    for i, row in enumerate(rows):
        row_scores = as_scores(row or [])
        if row_scores is None:
            return None
        scores[i, : len(row_scores)] = row_scores
    return scores if width else None


def kind_of(values: Sequence[Any]) -> str:
    """Describe, for messages, what was logged instead of a score."""
    value = next((v for v in values if v is not None and as_scores([v]) is None), None)
    if isinstance(value, (list, tuple)):
        inner = {"text" if isinstance(v, str) else type(v).__name__ for v in value}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return f"a list of {len(value)}: {', '.join(sorted(inner))}"  # pyright: ignore[reportUnknownArgumentType]
    return {"dict": "an object", "str": "a text"}.get(type(value).__name__, type(value).__name__)


def aggregation_of(metric: str, config: Mapping[str, Any]) -> str:
    """Return the name of a metric's aggregation; ``"custom"`` for the task's own function."""
    for entry in config.get("metric_list") or ():
        if entry.get("metric") == metric and entry.get("aggregation") is not None:
            name = str(entry["aggregation"])
            return name if name.isidentifier() or name == "chrf++" else "custom"
    return _REGISTRY.get(metric, "mean")


def mean_and_stderr(scores: NDArray[Any]) -> tuple[float, float]:
    """Return what lm-eval's ``mean`` and ``mean_stderr`` give for items that have a value.

    The standard error is s/√n with n − 1, NaN for n < 2 (lm-eval writes "N/A"). The dtype of the
    scores is kept: a task that scores in float32 logs values rounded as float32.
    """
    present = scores[~np.isnan(scores)]
    n = len(present)
    if n == 0:
        return math.nan, math.nan
    with np.errstate(invalid="ignore", over="ignore"):
        mean = present.sum() / present.dtype.type(n)
        if n < 2:
            return float(mean), math.nan
        squares = ((present - mean) ** 2).sum()
    return float(mean), math.sqrt(squares / present.dtype.type(n - 1)) / math.sqrt(n)


def disagreement(
    scores: NDArray[np.float64], logged: float | None, logged_stderr: float | None
) -> str | None:
    """Describe how a logged mean or standard error disagrees with the items; None if it agrees.

    Parameters
    ----------
    scores : shape (M,)
    logged, logged_stderr
        None where nothing was logged, or where lm-eval does not compute it from the items alone.
    """
    with np.errstate(over="ignore"):
        exact, rounded = (mean_and_stderr(scores.astype(d)) for d in (np.float64, np.float32))
    wrong = [
        f"{name} {value:.6g} where its items give {exact[i]:.6g}"
        for i, (name, value) in enumerate((("value", logged), ("stderr", logged_stderr)))
        if value is not None and not same(exact[i], value) and not same(rounded[i], value)
    ]
    return f"the log has {' and '.join(wrong)}" if wrong else None


def contradiction(metric: str, value: float | None, stderr: float | None, n: int) -> str | None:
    """Describe how a logged mean and its standard error contradict each other; None if not.

    A standard error of 0 means that every item has the same score. Scores from 0 to 1 with the mean
    p have one of √(p(1 − p)/(n − 1)) at most.

    >>> contradiction("acc", 0.5, 0.0, 100)
    'stderr 0 means that each of the 100 items scored 0.5; it may be left from another scoring'
    """
    if value is None or stderr is None or n < 2 or not 0 <= value <= 1:
        return None
    if stderr == 0 and 0 < value < 1:
        return (
            f"stderr 0 means that each of the {n} items scored {value:.6g}; it may be left from "
            "another scoring"
        )
    most = math.sqrt(value * (1 - value) / (n - 1))
    if metric.startswith(_UNIT) and stderr > most * (1 + 1e-6) + 1e-9:
        return (
            f"stderr {stderr:.6g} is more than {most:.6g}, the most that {n} scores from 0 to 1 "
            f"with the mean {value:.6g} can have"
        )
    return None


def same(a: float, b: float) -> bool:
    """Whether two numbers agree up to rounding; NaN agrees with NaN."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return agree(a, b)
