"""What a log says about one sample, an item in one epoch: from its summary or the sample itself.

`LoggedSample` holds scores and metadata fields, and a hash of the question (`question_hash`);
`texts_of` gives the texts of samples read whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING, Any

from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.runtime.files import field_of
from evalstats_plugin.runtime.untrusted import printable_name

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample, EvalSampleSummary


# Fields of a sample that are not about scores, and can be very long.
EXCLUDED = {
    "messages", "events", "store", "attachments", "output", "timelines", "error_retries",
}  # fmt: skip

HASH_KIND = "inspect:"
"""Prefix of our hashes; only hashes of the same kind are compared."""

SCORES = "scores."
"""Prefix of the fields beside a score's value, such as its answer; summaries lack them."""

EVERY = "*"
"""Requests the names of all fields, without their values."""

COSTS = "model_usage"
"""Requests what samples cost."""

COST_NAMES: tuple[str, ...] = ("usd_per_1000", "tokens", "seconds")
"""Metrics of costs: dollars for 1,000 samples, tokens, and the working time of a sample."""

_REMOVED = "Key removed from summary (> 1k)"
_CUT = "..."

_CUT_FROM = 900
"""Inspect shortens texts in summaries to 1,024 characters, at a space."""


@dataclass(frozen=True, slots=True)
class LoggedSample:
    """One sample: an item in one epoch."""

    item: str
    raw_id: int | str
    epoch: int
    question: str
    """Hash of the question."""
    prompt: str = ""
    """Hash of the question as it was put, with its choices in order."""
    chance: float = nan
    """P(right) of a choice at random; NaN without choices, or where several are right."""
    scores: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values by scorer, as logged."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    """The requested fields of the metadata."""
    failed: bool = False
    """Whether it ended in an error."""
    invalidated: bool = False
    limit: str = ""
    """The limit that stopped it, such as "token"."""
    usage: EvalSampleSummary | None = None
    """What holds the tokens and the time that it took, if costs are requested."""

    @property
    def is_cut(self) -> bool:
        """Whether a field was shortened or removed, so that the sample itself must be read."""
        return any(
            v == _REMOVED or (v.endswith(_CUT) and len(v) > _CUT_FROM) for v in self.fields.values()
        )


def from_summary(summary: EvalSampleSummary, fields: Collection[str]) -> LoggedSample:
    """Return what a summary says about its sample."""
    choices = summary.choices or []
    several = not isinstance(summary.target, str) and len(summary.target) > 1
    return LoggedSample(
        item=printable_name(str(summary.id)),
        raw_id=summary.id,
        epoch=summary.epoch,
        question=question_hash(summary),
        prompt=_hashed([_input_text(summary), choices])[:16],
        chance=1 / len(choices) if len(choices) > 1 and not several else nan,
        scores={name: score.value for name, score in (summary.scores or {}).items()},
        fields=_fields(summary.metadata, fields),
        failed=summary.error is not None,
        limit=summary.limit or "",
        usage=summary if COSTS in fields else None,
    )


def from_sample(sample: EvalSample, fields: Collection[str]) -> LoggedSample:
    """Return what a sample says about itself."""
    kept = _fields(sample.metadata, fields)
    # Those such as ``scores.judge.answer``.
    beside = [name for name in fields if name.startswith(SCORES)]
    if beside:
        scores = {
            name: {"answer": s.answer, "explanation": s.explanation, "metadata": s.metadata}
            for name, s in (sample.scores or {}).items()
        }
        kept |= _fields({"scores": scores}, beside)
    # A summary shortens the texts of scores and metadata.
    return replace(
        from_summary(sample.summary(), fields),
        scores={name: score.value for name, score in (sample.scores or {}).items()},
        fields=kept,
        invalidated=sample.invalidation is not None,
    )


def _fields(metadata: Mapping[str, Any], fields: Collection[str]) -> dict[str, str]:
    whole = dict.fromkeys(metadata, "") if EVERY in fields else dict[str, str]()
    values = whole | {name: field_of(metadata, name) for name in fields}
    return {name: value for name, value in values.items() if value is not None}


def costs_of(sample: LoggedSample, model: str, same_in_roles: Collection[str]) -> dict[str, float]:
    """Return what a model cost in a sample, NaN where that is not logged.

    Parameters
    ----------
    model
        The model evaluated: what other models used, such as a grader, is left out.
    same_in_roles
        Roles in which the same model served, whose usage is left out, too.
    """
    costs = dict.fromkeys(COST_NAMES, nan)
    if sample.usage is None:
        return costs
    if (used := sample.usage.model_usage.get(model)) is not None:
        in_roles = [u for role, u in sample.usage.role_usage.items() if role in same_in_roles]
        costs["tokens"] = float(used.total_tokens - sum(u.total_tokens for u in in_roles))
        if used.total_cost is not None:
            usd = used.total_cost - sum(u.total_cost or 0.0 for u in in_roles)
            costs["usd_per_1000"] = 1000 * max(usd, 0.0)
    if sample.usage.working_time is not None:
        costs["seconds"] = sample.usage.working_time
    return costs


def question_hash(summary: EvalSampleSummary) -> str:
    """Return a hash of the input, choices and target that summaries hold.

    It does not depend on the order of the choices, which a task may shuffle in every run: the
    target counts by its text.
    """
    choices = summary.choices or []
    target = [summary.target] if isinstance(summary.target, str) else summary.target
    right = sorted(_choice_text(t, choices) for t in target)
    return HASH_KIND + _hashed([_input_text(summary), sorted(choices), right])


def _hashed(asked: list[Any]) -> str:
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _input_text(summary: EvalSampleSummary) -> str | list[tuple[str, str]]:
    """Return the input; messages without the ids that differ between runs."""
    text: Any = summary.input
    return text if isinstance(text, str) else [(m.role, m.text) for m in text]


def _choice_text(target: str, choices: list[str]) -> str:
    place = ord(target) - ord("A") if len(target) == 1 else -1
    return choices[place] if 0 <= place < len(choices) else target


def texts_of(samples: Iterable[EvalSample]) -> dict[str, ItemText]:
    """Return the texts of samples by item id; the epochs of an item are one."""
    by_item: dict[str, dict[int, EvalSample]] = {}
    for sample in sorted(samples, key=lambda s: s.epoch):
        by_item.setdefault(printable_name(str(sample.id)), {})[sample.epoch] = sample
    return {item: _text_of(item, epochs) for item, epochs in by_item.items()}


def _text_of(item: str, epochs: Mapping[int, EvalSample]) -> ItemText:
    from evalstats_plugin.logs.texts import together, with_response

    first = next(iter(epochs.values()))
    summary, several = first.summary(), f"epochs {', '.join(map(str, epochs))}"
    choices = first.choices or []
    asked = first.input
    text = asked if isinstance(asked, str) else "\n\n".join(f"{m.role}: {m.text}" for m in asked)
    listed = [_lettered(chr(ord("A") + i), choices) for i in range(len(choices))]
    targets = [summary.target] if isinstance(summary.target, str) else summary.target
    answers = {f"epoch {epoch}": _answer(sample) for epoch, sample in epochs.items()}
    answer = together(answers)
    if len(epochs) == 1:
        answer = with_response(answer, first.output.completion)
    return ItemText(
        question="\n".join((text, *listed)),
        target=", ".join(_lettered(target, choices) for target in targets),
        answer=answer,
        where=f"sample {item}, {several if len(epochs) > 1 else f'epoch {first.epoch}'}",
    )


def _answer(sample: EvalSample) -> str:
    """Return the answer that each scorer found, or what the model wrote."""
    from evalstats_plugin.logs.texts import together

    choices = sample.choices or []
    texts = {
        name: _lettered(score.answer, choices)
        for name, score in (sample.scores or {}).items()
        if score.answer
    }
    return together(texts) or sample.output.completion


def _lettered(letter: str, choices: list[str]) -> str:
    """Return a choice behind its letter; any other text as it is."""
    text = _choice_text(letter, choices)
    return letter if text == letter else f"{letter}) {text}"
