"""Responses from plain arguments, those of their measure among them."""

from __future__ import annotations

from typing import Any

from evalstats_plugin import Responses
from evalstats_plugin.data.measure import Measure

_OF_MEASURE = (
    "task", "metric", "higher_is_better", "aggregation", "population", "n_cut", "filter", "reducer",
)  # fmt: skip


def given_responses(*, bounds: tuple[float, float] | None = None, **known: Any) -> Responses:
    """Return responses to task "t" under the metric "acc", unless others are given."""
    of_measure = {name: known.pop(name) for name in _OF_MEASURE if name in known}
    measure = Measure(**{"task": "t", "metric": "acc", **of_measure})
    return Responses(measure=measure.on(bounds, "logged"), **known)
