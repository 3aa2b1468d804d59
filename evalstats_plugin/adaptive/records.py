"""Results of adaptive tests as written into logs, and sentences about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.adaptive.bank import ALL_TASKS
from evalstats_plugin.data.responses import DrawnItems, Prediction, Responses
from evalstats_plugin.data.results import finite
from evalstats_plugin.errors import LogError

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.session import AdaptiveSession


RECORD = "adaptive_test"
"""Key of the record in a results file whose format has no field for it."""

_DIGITS = 5


def record_of(
    session: AdaptiveSession, *, metric: str | None, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the result of a session with its trace, ready for JSON."""
    result = session.result().to_dict()
    trace = [
        answer._asdict() | {"std_error": finite(answer.std_error)} for answer in session.answers
    ]
    bank, expectation = session.bank, session.expected()
    tasks, ids = bank.tasks.astype(str), bank.item_ids.astype(str)
    single = len(bank.task_names) == 1
    # For comparisons with other models. Scores and variances are those of one answer to each item;
    # of items asked, the mean score and a variance of 0.
    items: dict[str, Any] = {}
    for place, name in enumerate(bank.task_names):
        inside = tasks == name
        items[name] = {
            "ids": ids[inside].tolist(),
            "scores": expectation.scores[0, inside].round(_DIGITS).tolist(),
            "variances": expectation.variances[0, inside].round(_DIGITS).tolist(),
            "common": float(expectation.common[0, 0 if single else 1 + place].round(_DIGITS)),
        }
    drawn, draws = session.shared_draws(), None
    if drawn is not None:
        # Of each score, what the items drawn were off.
        draws = {
            "items": list(drawn[ALL_TASKS].items),
            "probabilities": drawn[ALL_TASKS].probabilities.tolist(),
            "residuals": {n: each.residuals.round(_DIGITS).tolist() for n, each in drawn.items()},
        }
    return {
        **result,
        "metric": metric,
        "n_calibrated_models": len(bank.models),
        "notes": [*result["notes"], *notes],
        "items": items,
        "draws": draws,
        "trace": trace,
    }


def with_prediction(r: Responses, record: Mapping[str, Any]) -> Responses:
    """Return the responses of an adaptive test with the score that its record predicts.

    Of a metric that the bank does not predict, no score is known: the items asked were chosen.

    Raises
    ------
    LogError
        The record is damaged.
    """
    n, size = record.get("n_items"), record.get("n_in_bank")
    try:
        by_task = record["full_score_by_task"]
        if by_task and r.task not in by_task:
            return r
        score = by_task.get(r.task, record["full_score"])
        draws = None
        if record.get("draws"):
            name = r.task if by_task else ALL_TASKS
            keys = ("items", "probabilities", "residuals")
            drawn, chances, residuals = (record["draws"][key] for key in keys)
            off = np.asarray(residuals[name], dtype=np.float64)
            draws = DrawnItems(tuple(map(str, drawn)), np.asarray(chances, dtype=np.float64), off)
            if not len(draws.items) == len(draws.probabilities) == len(draws.residuals):
                raise ValueError("draws")
        same_metric = r.metric in str(record["metric"]).split(", ")
        by_name: Mapping[str, Any] = record.get("items", {})
        items: Mapping[str, Any] = by_name.get(r.task) or (
            next(iter(by_name.values())) if len(by_name) == 1 else {}
        )
        estimate, low, high = (float(score[name]) for name in ("estimate", "low", "high"))
        prediction = Prediction(
            estimate=estimate if same_metric else None,
            low=low if same_metric else None,
            high=high if same_metric else None,
            confidence_level=float(record["confidence_level"]),
            n_in_bank=len(items["ids"]) if items else int(record["n_in_bank"]),
            item_ids=np.asarray(items.get("ids", ()), dtype=np.str_),
            scores=np.asarray(items.get("scores", ()), dtype=np.float64),
            variances=np.asarray(items.get("variances", ()), dtype=np.float64),
            common=float(items.get("common", 0.0)),
            draws=draws,
        )
        if not len(prediction.item_ids) == len(prediction.scores) == len(prediction.variances):
            raise ValueError("items and scores")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        msg = f"{r.source.path} has a damaged record of its adaptive test: run the test again"
        raise LogError(msg) from error
    if n == size:
        return r
    note = f"{n} of {size} items asked, chosen adaptively"
    beside = tuple(with_prediction(other, record) for other in r.beside)
    return replace(r, predicted=prediction, beside=beside, notes=(*r.notes, note))


def with_record(block: Mapping[str, Any], record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an annotation with the result of the adaptive test in it, if there was one."""
    if record is None:
        return dict(block)
    shown = {
        name: value for name, value in record.items() if name not in ("trace", "items", "draws")
    }
    return {**block, "adaptive": shown}


def sentence(record: Mapping[str, Any]) -> str:
    """Return the result of an adaptive test in one sentence.

    >>> sentence({"ability": 0.5, "low": -0.1, "high": 1.1, "confidence_level": 0.95,
    ...           "n_items": 9, "n_in_bank": 100, "stopped": "9 items asked",
    ...           "full_score": {"estimate": 0.6, "low": 0.5, "high": 0.7}})
    'ability +0.50 [-0.10, +1.10], full score 0.600 [0.500, 0.700] (95%, 9 of 100 items \
asked adaptively: 9 items asked)'
    """
    limits = f"[{record['low']:+z.2f}, {record['high']:+z.2f}]"
    why = record["stopped"] or "not stopped"
    how = f"{record['n_items']} of {record['n_in_bank']} items asked adaptively: {why}"
    level = f"{100 * record['confidence_level']:g}%"
    score = record["full_score"]
    full = f"{score['estimate']:.3f} [{score['low']:.3f}, {score['high']:.3f}]"
    return f"ability {record['ability']:+z.2f} {limits}, full score {full} ({level}, {how})"
