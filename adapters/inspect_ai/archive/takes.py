"""What a log says about one take of an item: from its summary, or from the sample itself."""
# PART values - What a scorer's value is worth, as Inspect's own metrics take it.

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evalstats_plugin.adapters.inspect_ai.archive.guard import printable

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample, EvalSampleSummary


# Long samples are read without what is not about scores.
EXCLUDED = {
    "messages", "events", "store", "attachments", "output", "timelines", "error_retries",
}  # fmt: skip


HASH_KIND = "inspect:"
"""Hashes of different kinds say nothing about each other."""


SCORES = "scores."
"""Start of the fields that lie beside a score's value; summaries leave them out."""


EVERY = "*"
"""Asks for the names of all fields; their values are left out."""


_REMOVED = "Key removed from summary (> 1k)"


_CUT = "..."


_CUT_FROM = 900
"""Inspect shortens texts in summaries to 1,024 characters, at a space."""


LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partial, incorrect, no answer."""


_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def question(summary: EvalSampleSummary) -> str:
    """Return a fingerprint of input, choices and target, as far as summaries hold them.

    Choices count in any order, with the target by its text: a task may shuffle them anew in
    every run.
    """
    choices = summary.choices or []
    target = [summary.target] if isinstance(summary.target, str) else summary.target
    asked = [_text(summary.input), sorted(choices), sorted(_chosen(t, choices) for t in target)]
    return HASH_KIND + hashlib.sha256(json.dumps(asked).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Take:
    """One take of an item."""

    item: str
    raw_id: int | str
    epoch: int
    question: str
    """Fingerprint of what was asked."""
    scores: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By scorer, as logged."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the metadata, those that were asked for."""
    failed: bool = False
    """Whether it ended in an error."""
    invalidated: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether a field was shortened or removed, so that the sample itself must be read."""
        return any(
            v == _REMOVED or (v.endswith(_CUT) and len(v) > _CUT_FROM) for v in self.fields.values()
        )


def of_summary(summary: EvalSampleSummary, fields: Collection[str]) -> Take:
    """Return the take a summary tells of."""
    return Take(
        item=printable(str(summary.id)),
        raw_id=summary.id,
        epoch=summary.epoch,
        question=question(summary),
        scores={name: score.value for name, score in (summary.scores or {}).items()},
        fields=_fields(summary.metadata, fields),
        failed=summary.error is not None,
    )


def of_sample(sample: EvalSample, fields: Collection[str]) -> Take:
    """Return the take a sample tells of."""
    return Take(
        item=printable(str(sample.id)),
        raw_id=sample.id,
        epoch=sample.epoch,
        question=question(sample.summary()),
        scores={name: score.value for name, score in (sample.scores or {}).items()},
        fields=_fields(sample.metadata, fields) | _beside_scores(sample, fields),
        failed=sample.error is not None,
        invalidated=sample.invalidation is not None,
    )


def _fields(metadata: Mapping[str, Any], fields: Collection[str]) -> dict[str, str]:
    known = dict.fromkeys(metadata, "") if EVERY in fields else dict[str, str]()
    found = known | {name: field_of(metadata, name) for name in fields}
    return {name: value for name, value in found.items() if value is not None}


def _beside_scores(sample: EvalSample, fields: Collection[str]) -> dict[str, str]:
    """Return fields such as ``scores.judge.answer``."""
    wanted = [name for name in fields if name.startswith(SCORES)]
    if not wanted:
        return {}
    scores = {
        name: {"answer": s.answer, "explanation": s.explanation, "metadata": s.metadata}
        for name, s in (sample.scores or {}).items()
    }
    return _fields({"scores": scores}, wanted)


def field_of(metadata: Mapping[str, Any], path: str) -> str | None:
    """Return a field as text, by its name or a dotted path; None where there is none.

    >>> field_of({"source": {"page": 3}}, "source.page")
    '3'
    """
    if path in metadata:
        value: Any = metadata[path]
    else:
        value = metadata
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return None
            value = value[key]  # pyright: ignore[reportUnknownVariableType]
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _text(content: Any) -> Any:
    """Return an input without the ids that differ between runs."""
    return content if isinstance(content, str) else [(m.role, m.text) for m in content]


def _chosen(target: str, choices: list[str]) -> str:
    place = ord(target) - ord("A") if len(target) == 1 else -1
    return choices[place] if 0 <= place < len(choices) else target


def as_score(value: object) -> float | None:
    """Return a value as a number, NaN where it was not scored; None where it is no number.

    Inspect counts what is no number as 0, after a warning nobody sees later; otherwise this is
    its ``value_to_float``.

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
    """Whether a value is NaN, by which Inspect marks what could not be scored."""
    return isinstance(value, float) and math.isnan(value)


def is_grade(value: object) -> bool:
    """Whether a value can only lie between 0 and 1: a letter, a word for yes or no, or a bool."""
    if isinstance(value, str):
        return value in LETTERS or value.lower() in _WORDS
    return isinstance(value, bool)
