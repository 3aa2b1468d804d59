"""What a test will cost before it starts: what models drawn from the bank would take."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import respond
from evalstats_plugin.adaptive.plan import Plan

_SECONDS = 1.5
"""Time for each model, after which a forecast gives up."""


def forecast(plan: Plan, bank: ItemBank) -> str:
    """Say how many items, and at what cost, tests of three models would take.

    Their abilities are the mean of calibrated models and one standard deviation either way;
    answers are drawn from the bank's curves.
    """
    rng = np.random.default_rng(plan.seed)
    counts, costs, unfinished = list[int](), list[float](), list[int]()
    for ability in bank.ability_mean + bank.ability_sd * np.array([-1.0, 0.0, 1.0]):
        session = replace(plan, max_seconds=None).session(bank)
        chances = respond(bank.items, np.array([[ability]])).probability[0]
        right = rng.random(len(bank)) < chances
        until = monotonic() + _SECONDS
        while session.stopped is None and monotonic() < until:
            for place in session.next(1).tolist():
                session.record(place, float(right[place]))
        unfinished += [session.n] if session.stopped is None else []
        counts.append(session.n)
        costs.append(float(session.result()["cost"] or 0.0))
    text = f"{_span(counts)} of {len(bank)} items"
    if unfinished:
        text = f"more than {max(unfinished):,} of {len(bank)} items"
    if bank.cost is not None and not unfinished:
        text += f", cost {_span(costs)} of {float(bank.cost.sum()):,.0f} for all"
    return f"{text} (tests of three models like those of the bank)"


def _span(values: list[int] | list[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"
