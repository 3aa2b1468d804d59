"""The table of methods for metrics that are not means, and which is the default, and why."""

from collections.abc import Mapping
from types import MappingProxyType

from evalstats_plugin.methods import Kind, Method

_CONFUSION = "evalstats_plugin.stats.confusion_posterior:"
_AUC = "evalstats_plugin.stats.auc:"
_SUMS = "evalstats_plugin.stats.function_of_sums:"

COMPOSITES: tuple[Method, ...] = (
    Method(
        "wilson-f1", "f1", _CONFUSION + "wilson_f1",
        "score interval of the share of true positives among what is or is called positive",
        "Wilson 1927; docs/methods.md",
    ),
    Method(
        "dirichlet-f1", "f1", _CONFUSION + "dirichlet_f1",
        "Dirichlet posterior of the confusion table (prior 1 on each cell), in closed form",
        "Bowyer et al. 2025", options=MappingProxyType({"prior": 1.0}),
    ),
    Method(
        "jeffreys-f1", "f1", _CONFUSION + "dirichlet_f1",
        "the same with prior ½", "Bowyer et al. 2025", options=MappingProxyType({"prior": 0.5}),
    ),
    Method(
        "dirichlet-table", "confusion", _CONFUSION + "dirichlet_interval",
        "Dirichlet posterior of the confusion table (prior ½ right, ½ wrong for each gold label)",
        "docs/methods.md", options=MappingProxyType({"prior": 1.0}),
    ),
    Method(
        "newcombe-auc", "auc", _AUC + "newcombe",
        "score interval of the area under the curve, never of zero width", "Newcombe 2006",
    ),
    Method(
        "delong", "auc", _AUC + "delong_logit",
        "DeLong's variance on the logit scale", "DeLong, DeLong, Clarke-Pearson 1988",
    ),
    Method(
        "sums-jackknife-t", "sums", _SUMS + "jackknife_t",
        "t interval with the jackknife's standard error, of any function of sums over units",
        "Efron, Tibshirani 1993",
    ),
    Method(
        "sums-percentile", "sums", _SUMS + "percentile",
        "percentile bootstrap of the same", "Efron 1979; Koehn 2004",
    ),
)  # fmt: skip
"""For metrics that are not means of item scores."""

COMPOSITE_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "f1": (
            "wilson-f1",
            "closed form, close to the level from 3 items on, and it holds the estimate even if "
            "all are right",
        ),
        "confusion": (
            "dirichlet-table",
            "at the level or close to it where the bootstrap covers much too little",
        ),
        "auc": ("newcombe-auc", "it keeps its level for few items and for perfect separation"),
        "corpus": (
            "sums-jackknife-t",
            "it needs no random numbers and covers no less than the bootstrap of documents",
        ),
    }
)
"""Method used for ``"auto"`` on each kind, and why."""

CLUSTERED_COMPOSITE_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    dict.fromkeys(
        ("f1", "confusion", "corpus"),
        ("sums-jackknife-t", "it takes a whole cluster as one unit"),
    )
)
"""The same, for items in clusters."""

COMPOSITE_COMPARISONS: tuple[Method, ...] = (
    Method(
        "dirichlet-joint", "confusion", _SUMS + "posterior_differences",
        "Dirichlet posterior of what both models answer (prior ½ on each of both right, one, "
        "the other, neither, for each gold label)",
        "docs/methods.md", "comparison", MappingProxyType({"prior": 0.5}),
    ),
    Method(
        "sums-jackknife-t", "sums", _SUMS + "jackknife_t",
        "t interval with the jackknife's standard error of the difference, unit by unit",
        "Efron, Tibshirani 1993", "comparison",
    ),
    Method(
        "sums-percentile", "sums", _SUMS + "percentile",
        "percentile bootstrap of the difference, both models on the same units",
        "Koehn 2004", "comparison",
    ),
)  # fmt: skip

COMPOSITE_COMPARISON_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "f1": ("dirichlet-joint", "close to the level for few items, where resampling is not"),
        "confusion": ("dirichlet-joint", "the same"),
        "corpus": ("sums-jackknife-t", "it covers no less than the bootstrap of documents"),
        "ratio": ("sums-jackknife-t", "the same"),
    }
)
"""Method of a comparison used for ``"auto"`` on each kind, and why."""
