"""Published numbers without items: which counts are behind a printed value and standard error.

`Printed` is a number with the digits it was printed in; `counts_behind` finds every k of n answers
that round to a value and its standard error (none: by the GRIM test, Brown and Heathers 2017,
they cannot be right); `published` makes `Responses` of one value, with notes on what was found.
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

import numpy as np

from evalstats_plugin.data.measure import SHARE, Measure
from evalstats_plugin.data.metrics import stock_metric
from evalstats_plugin.data.responses import TABULAR, Responses, Source
from evalstats_plugin.stats.arrays import FloatArray

LARGEST_N = 1_000_000
"""Items of a benchmark that has more are not looked for."""

_SMALLEST_ERROR = 1e-7
"""Standard errors below it are of more items than are looked for."""

_EXACT = 1e-9
"""Relative error of numbers printed in full, which were computed in another order than here."""

_DIGITS = re.compile(r"[-+]?\d*(?:[.,](\d*))?(?:e([-+]?\d{1,4}))?")

_GRADED = {
    "average", "avg", "bleu", "brier", "chrf", "ece", "elo", "f1", "kappa", "macro", "mc2", "mean",
    "mrr", "ndcg", "pearson", "rating", "rouge", "spearman",
}  # fmt: skip
"""Words in names of metrics that count no right answers, though their values may lie in [0, 1]."""


class Printed(NamedTuple):
    """A number as it was printed, and the most by which rounding may have changed it."""

    value: float
    half: float = 0.0

    @classmethod
    def of(cls, value: float, text: str, unit: float = 1.0) -> Printed:
        """Return a number whose digits `text` has, in units of `unit` (.01 of percentages).

        >>> Printed.of(0.226, "22.6%", 0.01).half
        0.0005
        """
        digits = _DIGITS.fullmatch(text.strip(" %").lower())
        if digits is None:
            return cls(value, _EXACT)
        decimals = min(max(len(digits[1] or "") - int(digits[2] or 0), -99), 99)
        return cls(value, max(unit * 0.5 * 10.0**-decimals, _EXACT * abs(value)))

    @property
    def per_cent(self) -> Printed:
        """The share that a percentage is."""
        return Printed(self.value / 100, self.half / 100)


class Counts(NamedTuple):
    """Right answers and items that round to printed numbers: see `published` for which."""

    k: int
    n: int
    n_pairs: int
    """Different k of n that do."""
    largest_n: int
    divisor: str
    """Of the variance p(1 - p) in the standard error: ``"n - 1"`` or ``"n"``."""


def is_share(metric: str) -> bool:
    """Whether a metric is a share of right answers in whatever table."""
    metric_entry = stock_metric(metric.partition(",")[0], TABULAR, "")
    return metric_entry is not None and metric_entry.scale == SHARE


def _may_count(metric: str) -> bool:
    """Whether a metric may count right answers: nothing is known to the contrary."""
    graded = _GRADED & set(re.split(r"[^a-z0-9]+", metric.lower()))
    unknown = stock_metric(metric.partition(",")[0], TABULAR, "") is None
    return not graded and (unknown or is_share(metric))


def counts_behind(
    value: Printed, std_error: Printed | None = None, n: int | None = None
) -> Counts | None:
    """Return the counts k of n with value k/n and standard error √(p(1 - p)/(n - 1)), or of n.

    None where no counts do: the numbers are not of answers that are right or wrong.

    >>> counts_behind(Printed(0.8, 5e-4), Printed(0.133333, 5e-7))
    Counts(k=8, n=10, n_pairs=1, largest_n=10, divisor='n - 1')
    >>> counts_behind(Printed(0.81, 5e-3), n=17) is None
    True
    """
    for less, divisor in ((1, "n - 1"), (0, "n")):
        sizes = np.array([n or 0.0]) if std_error is None else _sizes(value, std_error, n, less)
        ranges = _right(value, std_error, sizes, less)
        pairs = sum(np.maximum(high - low + 1, 0) for low, high in ranges)
        possible = np.flatnonzero(pairs)
        if len(possible):
            # The smallest n with a share nearest to the value, rather than any.
            nearest = np.round(value.value * sizes)
            fits = np.any([(low <= nearest) & (nearest <= high) for low, high in ranges], axis=0)
            i = int(np.flatnonzero(fits)[0]) if fits.any() else int(possible[0])
            held = [(float(low[i]), float(high[i])) for low, high in ranges if low[i] <= high[i]]
            # Ranges on both sides of one half are of that value, and as far from it.
            k = min(min(max(float(nearest[i]), low), high) for low, high in held)
            total, largest = int(np.asarray(pairs).sum()), int(sizes[possible[-1]])
            return Counts(round(k), int(sizes[i]), total, largest, divisor)
        if std_error is None:
            break
    return None


def counts_in_full(metric: str, value: float, std_error: float) -> Counts | None:
    """Return the counts behind numbers that were not rounded, as in JSON; None where none are.

    >>> counts_in_full("acc", 0.8, (0.8 * 0.2 / 9) ** 0.5)
    Counts(k=8, n=10, n_pairs=1, largest_n=10, divisor='n - 1')
    """
    exact = Printed(value, _EXACT), Printed(std_error, _EXACT * std_error)
    return counts_behind(*exact) if _may_count(metric) else None


def _sizes(value: Printed, std_error: Printed, n: int | None, less: int) -> FloatArray:
    """Numbers of items that may give a standard error."""
    if n is not None:
        return np.array([n] if n > less else [], dtype=np.float64)
    ends = [min(max(value.value + by, 0.0), 1.0) for by in (-value.half, value.half)]
    spread = [p * (1 - p) for p in ends]
    widest = 0.25 if ends[0] <= 0.5 <= ends[1] else max(spread)
    least, most = std_error.value - std_error.half, std_error.value + std_error.half
    if most < _SMALLEST_ERROR:
        return np.empty(0)
    low = less + min(spread) / most**2
    high = less + widest / least**2 if least > _SMALLEST_ERROR else LARGEST_N
    # Even what rounding leaves open of numbers printed in full is more than these sums err.
    return np.arange(
        max(1 + less, math.ceil(low)), math.floor(min(high, LARGEST_N)) + 1, dtype=np.float64
    )


def _right(
    value: Printed, std_error: Printed | None, n: FloatArray, less: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Ranges of right answers, below and above one half, that round to both numbers."""
    share = max(value.value - value.half, 0.0), min(value.value + value.half, 1.0)
    if std_error is None:
        parts = [(share[0] + 0 * n, share[1] + 0 * n)]
    else:
        least = max(std_error.value - std_error.half, 0.0) ** 2 * (n - less)
        most = (std_error.value + std_error.half) ** 2 * (n - less)
        # |p - ½| for which p(1 - p) lies between these.
        near, far = np.sqrt(np.maximum(0.25 - most, 0)), np.sqrt(np.maximum(0.25 - least, 0))
        far = np.where(least <= 0.25, far, -1.0)
        both = near == 0
        parts = [(0.5 - far, np.where(both, 0.5 + far, 0.5 - near)),
                 (np.where(both, 2.0, 0.5 + near), 0.5 + far)]  # fmt: skip
    room = 1e-9
    return [
        (
            np.ceil(np.maximum(low, share[0]) * n - room),
            np.floor(np.minimum(high, share[1]) * n + room),
        )
        for low, high in parts
    ]


def published(
    model: str,
    measure: Measure,
    source: Source,
    *,
    value: Printed | None,
    std_error: Printed | None = None,
    n: int | None = None,
    notes: tuple[str, ...] = (),
    in_full: bool = False,
    may_count: bool = True,
) -> Responses:
    """Return responses without items: their counts where these can be recovered.

    Where several counts give the printed numbers, those of the smallest n whose nearest share fits
    the value are taken: others would move the value. Where no counts do, value and
    standard error stay as printed. With `in_full` the numbers were not rounded, as in JSON: 0.5 is
    no rounded 0.46. Without `may_count` a value from 0 to 1 is not taken for a share of right
    answers: other values of its metric are larger.
    """
    logged, error = (None if each is None else each.value for each in (value, std_error))
    counts = None
    behind: Literal["", "counts", "error"] = ""
    if value is None:
        notes = (*notes, "no interval: no value")
    elif std_error is None and n is None:
        notes = (*notes, "no interval: a value without its items, their number or a standard error")
    elif n is None and std_error is not None and std_error.value <= 0:
        notes = (*notes, "no interval: a standard error of 0 does not say of how many items")
    elif may_count and _may_count(measure.metric) and 0 <= value.value <= 1:
        if in_full and std_error is not None:
            counts = counts_in_full(measure.metric, value.value, std_error.value)
        counts = counts or counts_behind(value, std_error, n)
        notes = (*notes, *_about(counts, std_error, n))
    if counts is not None:
        behind = "counts"
        logged, n = counts.k / counts.n, counts.n
        error = math.sqrt(logged * (1 - logged) / (n - 1)) if n > 1 else None
    elif value is not None and std_error is not None and std_error.value > 0:
        behind = "error"
        notes = (*notes, "limits from the published standard error alone")
    return Responses(
        model=model, measure=measure, source=source, logged=logged, logged_std_error=error,
        logged_n=n, published=behind, notes=notes,
    )  # fmt: skip


def _about(counts: Counts | None, std_error: Printed | None, n: int | None) -> tuple[str, ...]:
    """Say what was found, in the same words for all values of a kind: a table has hundreds."""
    if counts is None:
        of = " of its items" if n is not None else ""
        why = "partial credit, a standard error of another kind, or a misprint"
        none = "" if std_error else "no interval: "
        what = f"{none}impossible for right and wrong answers"
        return (f"{what}: no whole numbers{of} give the value ({why})",)
    if std_error is None:
        text = "taken for right and wrong answers, and none in part"
        return (text if counts.n_pairs == 1 else f"{text}: one of several counts that give it",)
    taken = "right answers and n are those that give value and standard error"
    if counts.n_pairs == 1:
        more = ", the only ones"
    elif counts.largest_n == counts.n:
        more = ", one of several counts"
    else:
        more = ": n is the smallest of several, and may be larger"
    by = "; standard error by n, not n - 1" if counts.divisor == "n" else ""
    return (taken + more + by,)
