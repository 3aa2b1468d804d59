"""What an item bank holds, task by task, and what it leaves out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import respond
from evalstats_plugin.adaptive.merging import DRIFT
from evalstats_plugin.analyses.ability_data import irt_module
from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.results import Results

if TYPE_CHECKING:
    from evalstats_plugin.irt.fit import IRTFit

_FEW = 30
"""Models with which item parameters are still rough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankTask:
    """One task of an item bank."""

    task: str
    metric: str
    n_items: int
    n_usable: int
    """Items that may be asked."""
    n_models: int
    """Calibrated."""
    difficulty: float | None
    """Median, of the items that may be asked; like `discrimination`."""
    discrimination: float | None
    std_error: float | None
    """Of the ability of a model like the calibrated ones, were all these items asked."""
    cost: float | None
    """Of asking all of them."""
    left_out: tuple[str, ...]
    """Items that are not asked, each as ``item: reason``."""
    notes: tuple[str, ...] = ()


def contents(bank: ItemBank, notes: Sequence[str] = ()) -> Results[BankTask]:
    """Say what a bank holds; `notes` come before its own."""
    rows = tuple(_row(bank.of_tasks([task]), task) for task in bank.task_names)
    few = f"calibrated on {len(bank.models)} models, where {_FEW} are few: intervals may be too"
    shaky = [f"{few} narrow"] if 0 < len(bank.models) < _FEW else []
    return Results(rows, tuple(dict.fromkeys((*notes, *bank.notes, *shaky))))


def left_out(bank: ItemBank) -> list[str]:
    """Say in a note how many items are never asked and why, where there are some."""
    reasons: Counter[str] = Counter(map(str, bank.reasons[~bank.usable].tolist()))
    if not reasons:
        return []
    named = ", ".join(f"{count} for {reason}" for reason, count in reasons.most_common())
    return [f"{reasons.total()} of the bank's {len(bank)} items are never asked: {named}"]


def _row(own: ItemBank, task: str) -> BankTask:
    asked = own.usable
    known = asked.any()
    safe = np.where(own.discrimination == 0, np.nan, own.discrimination)
    items = own.items.take(np.flatnonzero(asked))
    told = float(respond(items, np.array([[own.ability_mean]])).information.sum())
    left = zip(own.item_ids[~asked].tolist(), own.reasons[~asked].tolist(), strict=True)
    return BankTask(
        task=task,
        metric=", ".join(map(str, own.provenance.get("metrics", ()))),
        n_items=len(own),
        n_usable=int(asked.sum()),
        n_models=len(own.models),
        difficulty=float(np.median((-own.intercept / safe)[asked])) if known else None,
        discrimination=float(np.median(own.discrimination[asked])) if known else None,
        std_error=float((told + own.ability_sd**-2) ** -0.5) if known else None,
        cost=None if own.cost is None else float(own.cost[asked].sum()),
        left_out=tuple(f"{item}: {reason}" for item, reason in left),
    )


def recent_models(matrix: ResponseMatrix, responses: ResponseSet) -> list[str]:
    """Return the models of the later half of the logs, by the time of each model's last.

    Raises
    ------
    DesignError
        The logs do not say when they are from, or all of one time.
    """
    latest: dict[str, str] = {}
    for each in responses.responses:
        latest[each.model] = max(latest.get(each.model, ""), each.source.when)
    times = sorted(latest[model] for model in matrix.models)
    middle = times[len(times) // 2]
    recent = [model for model in matrix.models if latest[model] >= middle]
    if not times[0] or len(recent) == len(matrix.models):
        msg = "the logs are all of one time, or do not say theirs, and drift is a change over time"
        raise DesignError(f"{msg}: do not look for it (no --drift)")
    return recent


def without_drift(
    bank: ItemBank, fit: IRTFit, matrix: ResponseMatrix, recent: Sequence[str]
) -> ItemBank:
    """Leave out items that have become easier or harder for recent models of the same ability.

    By logistic regression, see `evalstats_plugin.irt.dif`. Items that differ beyond chance, and by
    much, are not asked: their answers may have leaked into training data, or their question may
    have changed.
    """
    found = irt_module("dif").dif(fit, matrix, recent)
    return bank.without(found.flagged & (found.size == "C"), DRIFT)
