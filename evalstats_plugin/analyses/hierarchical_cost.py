"""How long will drawing from a hierarchical model take? Said before a long fit starts."""

from __future__ import annotations

from evalstats_plugin.analyses.hierarchical_data import EvalCounts
from evalstats_plugin.analyses.hierarchical_options import HierarchicalOptions
from evalstats_plugin.tables.hierarchical import BY_QUESTION, CLOSED_FORM

_SWEEP, _CELL = 6e-3, 3.3e-7
"""Seconds of one core for a sweep, and for each cell of each chain in it, as timed for 10 × 10 to
100 × 60 cells, and for 29 × 2,400 questions."""


def expected_seconds(
    counts: EvalCounts, model: str, inference: str, options: HierarchicalOptions
) -> float:
    """Estimate the time of a fit on one core, right within a factor of about 3."""
    n, t = counts.right.shape
    nested = min(n, t) == 1 and model not in BY_QUESTION
    if model in CLOSED_FORM or (nested and inference != "gibbs"):
        return 2.0
    cells = n * (len(counts.task) if model in BY_QUESTION else t)
    sweeps = options.warm_up + options.draws
    return sweeps * (_SWEEP + _CELL * options.chains * cells)
