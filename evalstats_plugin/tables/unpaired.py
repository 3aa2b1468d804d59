"""Methods for two models that were given items of their own; the defaults, and why."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from evalstats_plugin.methods import Kind, Method

_UNPAIRED = "evalstats_plugin.stats.unpaired:"
_BETA = "evalstats_plugin.stats.unpaired_beta:"
_SCORES = "evalstats_plugin.stats.unpaired_scores:"

UNPAIRED: tuple[Method, ...] = (
    Method(
        "newcombe-unpaired", "unpaired", _UNPAIRED + "newcombe",
        "difference by two Wilson intervals, squared and added", "Newcombe 1998, method 10",
        "comparison",
    ),
    Method(
        "miettinen-nurminen", "unpaired", _UNPAIRED + "miettinen_nurminen",
        "score interval of the difference", "Miettinen, Nurminen 1985", "comparison",
    ),
    Method(
        "beta-difference", "unpaired", _BETA + "difference",
        "difference of two Beta posteriors (prior ½, ½)",
        "Brown, Cai, DasGupta 2001; docs/methods.md", "comparison",
        MappingProxyType({"prior": (0.5, 0.5)}),
    ),
    Method(
        "mn-ratio", "unpaired", _UNPAIRED + "mn_ratio", "score interval of the ratio",
        "Miettinen, Nurminen 1985", "comparison",
    ),
    Method(
        "mn-odds", "unpaired", _UNPAIRED + "mn_odds", "score interval of the odds ratio",
        "Miettinen, Nurminen 1985", "comparison",
    ),
    Method(
        "beta-ratio", "unpaired", _BETA + "ratio",
        "ratio of two Beta posteriors (prior 1, 1)",
        "Bowyer et al. 2025; docs/methods.md", "comparison",
        MappingProxyType({"prior": (1.0, 1.0)}),
    ),
    Method(
        "beta-odds", "unpaired", _BETA + "odds_ratio",
        "odds ratio of two Beta posteriors (prior 1, 1)", "Bowyer et al. 2025; docs/methods.md",
        "comparison", MappingProxyType({"prior": (1.0, 1.0)}),
    ),
    Method(
        "dp-difference", "unpaired-bounded", _SCORES + "dp_difference",
        "difference of two Dirichlet-process posteriors, a Beta variable standing for each",
        "Ferguson 1973; docs/methods.md", "comparison", MappingProxyType({"mass": 0.5}),
    ),
    Method(
        "mover-dp", "unpaired-bounded", _SCORES + "mover_dp",
        "two Dirichlet-process intervals, squared and added", "Zou, Donner 2008; docs/methods.md",
        "comparison", MappingProxyType({"mass": 0.5}),
    ),
    Method(
        "welch-t", "unpaired-real", _SCORES + "welch_t",
        "t interval with unequal variances, clustered where items come in clusters",
        "Welch 1947; Miller 2024", "comparison",
    ),
)  # fmt: skip
"""For models that were given items of their own."""

MEASURES: Mapping[str, Literal["ratio", "odds ratio"]] = MappingProxyType(
    {
        "mn-ratio": "ratio",
        "beta-ratio": "ratio",
        "mn-odds": "odds ratio",
        "beta-odds": "odds ratio",
    }
)
"""What methods give an interval of, where that is not the difference."""

UNPAIRED_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "newcombe-unpaired",
            "its coverage reaches the level on average at n = 10 to 100 and for unequal n too, "
            "which the posterior's just misses, and it is shorter than the score interval",
        ),
        "bounded": (
            "dp-difference",
            "of two for partial credit that reach the level on average it is the shorter, and it "
            "falls short of it less; never of zero width",
        ),
        "real": ("welch-t", "without bounds there is nothing better for few items"),
    }
)
"""The same as `COMPARISON_DEFAULTS`, for models that were given items of their own."""
