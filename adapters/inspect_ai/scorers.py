"""Scorers of a log, the keys of those with several values, and how their values are read.

`scorers_of` lists the scorers of a log; `as_score` reads one value as Inspect's metrics do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from evalstats_plugin.runtime.untrusted import printable_name

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalScore

    from evalstats_plugin.adapters.inspect_ai.archive.samples import LoggedSample


SCORE = "evalstats_item"
"""Name of our score with item statistics, in samples and among the header's scorers."""

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partial, incorrect, no answer."""

_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


class Scorer(NamedTuple):
    """A scorer, or one key of a scorer that gives several values."""

    name: str
    key: str | None = None

    @property
    def label(self) -> str:
        """The name of the metric: ``"match"``, ``"rubric:style"``."""
        return printable_name(self.name if self.key is None else f"{self.name}:{self.key}")

    def value_in(self, sample: LoggedSample) -> Any:
        """Return its value as logged; NaN if there is none."""
        value = sample.scores.get(self.name, math.nan)
        if self.key is None:
            return value
        # A value that is no dict has nothing for this key.
        return value.get(self.key, math.nan) if isinstance(value, Mapping) else math.nan  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def of_result(score: EvalScore) -> Scorer:
    """Return the scorer of a logged result."""
    return Scorer(score.scorer, None if score.name == score.scorer else score.name)


def scorers_of(log: EvalLog, samples: Iterable[LoggedSample] = ()) -> list[Scorer]:
    """Return all scorers in the header and the samples, in order."""
    found = dict.fromkeys(of_result(s) for s in (log.results.scores if log.results else ()))
    if not found:
        found.update(dict.fromkeys(Scorer(s.name) for s in log.eval.scorers or ()))
    plain: set[str] = set()
    keyed: set[str] = set()
    for sample in samples:
        for name, value in sample.scores.items():
            if isinstance(value, Mapping):
                keyed.add(name)
                found.update(dict.fromkeys(Scorer(name, str(k)) for k in value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            elif not is_unscored(value):
                plain.add(name)
                found.setdefault(Scorer(name))
    # A scorer with several values has no value of its own, even if the header lists it. The item
    # statistics that we wrote beside the scores are no metric of the task.
    found = [s for s in found if s.name != SCORE]
    return [s for s in found if s.key is not None or s.name not in keyed - plain]


def as_score(value: object) -> float | None:
    """Return a value as a number, NaN if it was not scored, None if it is no number.

    This is Inspect's ``value_to_float``, except that Inspect counts what is no number as 0, after
    a warning.

    >>> as_score("P"), as_score("Yes"), as_score(" 3e-1"), as_score("correct")
    (0.5, 1.0, 0.3, None)
    """
    if isinstance(value, str):
        known = LETTERS.get(value, _WORDS.get(value.lower()))
        return _number(value) if known is None else known
    if isinstance(value, (bool, int, float)):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_unscored(value: object) -> bool:
    """Whether a value is NaN, Inspect's mark of a sample that could not be scored."""
    return isinstance(value, float) and math.isnan(value)


def is_grade(value: object) -> bool:
    """Whether a value is a grade between 0 and 1: a letter, yes or no, or a boolean."""
    if isinstance(value, str):
        return value in LETTERS or value.lower() in _WORDS
    return isinstance(value, bool)
