"""Results of adaptive tests as written into logs, and sentences about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.session import AdaptiveSession


RECORD = "adaptive_test"
"""Key of the record in a results file whose format has no field for it."""


def record_of(
    session: AdaptiveSession, *, metric: str | None, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the result of a session with its trace, ready for JSON."""
    found = session.result().to_dict()
    trace = [
        {
            "task": step.task,
            "item": step.item,
            "score": step.score,
            "trials": step.trials,
            "ability": step.ability,
            "std_error": step.std_error if isfinite(step.std_error) else None,
            "full_score": step.full_score,
        }
        for step in session.trace
    ]
    return {
        **found,
        "metric": metric,
        "n_calibrated_models": len(session.bank.models),
        "notes": [*found["notes"], *notes],
        "trace": trace,
    }


def biased(record: Mapping[str, Any]) -> list[str]:
    """Return a note that the mean over the items asked is not the score, if not all were asked.

    >>> biased({"n_items": 9, "n_in_bank": 100, "metric": "acc",
    ...         "full_score": {"estimate": 0.6, "low": 0.5, "high": 0.7}})
    ['items were chosen adaptively, so the mean over those asked is not the score: over all 100 \
items acc is predicted to be 0.600 [0.500, 0.700]']
    """
    if record["n_items"] >= record["n_in_bank"]:
        return []
    predicted = _full_score(record)
    msg = "items were chosen adaptively, so the mean over those asked is not the score: over all"
    metric = record.get("metric") or "it"
    return [f"{msg} {record['n_in_bank']} items {metric} is predicted to be {predicted}"]


def with_record(block: Mapping[str, Any], record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an annotation with the result of the adaptive test in it, if there was one."""
    if record is None:
        return dict(block)
    shown = {name: value for name, value in record.items() if name != "trace"}
    notes = dict.fromkeys([*block["notes"], *biased(record)])
    return {**block, "adaptive": shown, "notes": list(notes)}


def sentence(record: Mapping[str, Any]) -> str:
    """Return the result of an adaptive test in one sentence.

    >>> sentence({"ability": 0.5, "low": -0.1, "high": 1.1, "confidence_level": 0.95,
    ...           "n_items": 9, "n_in_bank": 100, "stopped": "9 items asked",
    ...           "full_score": {"estimate": 0.6, "low": 0.5, "high": 0.7}})
    'ability +0.50 [-0.10, +1.10], predicted full score 0.600 [0.500, 0.700] (95%, 9 of 100 items \
asked adaptively: 9 items asked)'
    """
    limits = f"[{record['low']:+.2f}, {record['high']:+.2f}]"
    why = record["stopped"] or "not stopped"
    how = f"{record['n_items']} of {record['n_in_bank']} items asked adaptively: {why}"
    level = f"{100 * record['confidence_level']:g}%"
    ability = f"ability {record['ability']:+.2f} {limits}"
    return f"{ability}, predicted full score {_full_score(record)} ({level}, {how})"


def _full_score(record: Mapping[str, Any]) -> str:
    score = record["full_score"]
    return f"{score['estimate']:.3f} [{score['low']:.3f}, {score['high']:.3f}]"
