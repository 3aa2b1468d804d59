"""The order of models in words: who shares a letter with whom, and who may be the best."""

from __future__ import annotations

from collections.abc import Sequence

from evalstats_plugin.analyses.rank import ranks_of
from evalstats_plugin.results import Comparison
from evalstats_plugin.wording import few

MOST_NAMED = 30
"""Models of one task up to which their order is written out."""


def order_line(rows: Sequence[Comparison]) -> str:
    """Say the order of the models of one task; nothing without every pair of three or more."""
    ranks = ranks_of(rows)
    if not 2 < len(ranks) <= MOST_NAMED:
        return ""
    order = ", ".join(f"{one.model} ({one.letters})" for one in ranks)
    best = [one.model for one in ranks if one.best_rank == 1]
    return (
        f"In order, with letters: {order}. Models that share a letter cannot be told apart. "
        f"May be the best: {few(best, MOST_NAMED)}."
    )
