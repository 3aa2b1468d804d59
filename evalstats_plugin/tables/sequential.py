"""Methods for scores that are looked at again and again while items come in."""

from evalstats_plugin.methods import Method

SEQUENTIAL: tuple[Method, ...] = (
    Method(
        "beta-mixture", "binary", "evalstats_plugin.stats.sequential:beta_mixture",
        "confidence sequence: valid however often one looks", "Robbins 1970",
    ),
    Method(
        "betting-mixture", "bounded", "evalstats_plugin.stats.sequential:betting_mixture",
        "the same for scores between bounds; beta-mixture on binary scores",
        "Howard et al. 2021; docs/methods.md",
    ),
)  # fmt: skip
"""Intervals of a score that hold at all looks together."""
