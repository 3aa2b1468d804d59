"""The methods for comparisons of two models, and which is the default, and why.

* `COMPARISONS`: means on the same items; `COMPARISON_DEFAULTS`
* `COMPOSITE_COMPARISONS`: metrics that are not means; `COMPOSITE_COMPARISON_DEFAULTS`
* `PAIRED`: both of these
* `UNPAIRED`: different items; `UNPAIRED_DEFAULTS`, `EFFECTS`
* `with_prior`: all methods have Jeffreys' prior unless another is asked for
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from evalstats_plugin.data.methods import Kind, Method
from evalstats_plugin.scores.methods import CLUSTER_FAMILIES, CLUSTERED

_PAIRED = "evalstats_plugin.stats.pairs.paired:"
_UNPAIRED = "evalstats_plugin.stats.pairs.unpaired:"
_BOUNDED = "evalstats_plugin.stats.bounded:"
_DIFFERENCES = "evalstats_plugin.stats.pairs.differences:"
_MEANS = "evalstats_plugin.stats.means:"
_METRICS = "evalstats_plugin.stats.metric_intervals:"

ENGINE = "symmetric-bootstrap"
"""The default for any score on the same items."""

COMPARISONS: tuple[Method, ...] = (
    Method(
        ENGINE, "paired-mean", _DIFFERENCES + "Differences",
        "Bayesian bootstrap of the mean difference with half an item more on either side of it, "
        "where the largest differences are: what one model did, the other can do",
        "Rubin 1981; docs/explanation/methods.md", "comparison", mass=0.5,
    ),
    Method(
        "dirichlet", "paired", _PAIRED + "dirichlet",
        "Dirichlet posterior of who gets an item right (prior ½ on each of the four cells)",
        "Bowyer et al. 2025; docs/explanation/methods.md", "comparison",
        prior=(0.5, 1.0),
    ),
    Method(
        "tango", "paired", _PAIRED + "tango", "score interval of a paired difference",
        "Tango 1998", "comparison",
    ),
    Method(
        "newcombe", "paired", _PAIRED + "newcombe", "two Wilson intervals and their correlation",
        "Newcombe 1998, method 10", "comparison",
    ),
    Method(
        "bonett-price", "paired", _PAIRED + "bonett_price",
        "Wald after adding one item either way", "Bonett, Price 2012", "comparison",
    ),
    Method(
        "paired-wald", "paired", _PAIRED + "wald",
        "difference ± z standard errors, no width without discordance: only to compare with",
        "Fagerland, Lydersen, Laake 2014", "comparison",
    ),
    Method(
        "dp-jeffreys", "bounded", _BOUNDED + "dirichlet_process",
        "Dirichlet-process posterior of the mean difference, mass ½ at each end",
        "Ferguson 1973; docs/explanation/methods.md", "comparison", mass=0.5,
    ),
    Method(
        "paired-t", "real", _MEANS + "t_interval",
        "Student's t interval of the mean difference", "Student 1908", "comparison",
    ),
    Method(
        "percentile", "resampling", _MEANS + "percentile_bootstrap",
        "percentile bootstrap of the mean difference: only to compare with", "Efron 1979",
        "comparison",
    ),
    Method(
        "bca", "resampling", _MEANS + "bca_bootstrap",
        "bias-corrected and accelerated bootstrap of the mean difference", "Efron 1987",
        "comparison",
    ),
    # Those of one score that take differences as well.
    *(replace(m, question="comparison") for m in CLUSTERED if m.name.endswith("t-cr2")),
)  # fmt: skip
"""For the mean difference of two models on the same items."""

CLUSTERED_NAMES = frozenset(m.name for m in COMPARISONS if m.family in CLUSTER_FAMILIES)
"""Names of those that allow for clusters."""

COMPARISON_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            ENGINE,
            "one procedure for any score; p of 0/1 scores is that of `dirichlet`; its "
            "limits hold the truth .94 of the time at worst, at n = 10 to 100",
        ),
        "bounded": (
            ENGINE,
            "of equal models it finds 5 % different and no more whatever their scores are like, "
            "rare failures included, with about the power of Student's t where that is valid",
        ),
        "real": (ENGINE, "the same; bounds only clip its limits"),
    }
)
"""Method used for ``"auto"`` on each kind of score, of items, clusters or tasks, and why (``make
validate`` measures it)."""

COMPOSITE_COMPARISONS: tuple[Method, ...] = (
    Method(
        "dirichlet-joint", "confusion", _METRICS + "posterior_differences",
        "Dirichlet posterior of what both models answer (prior ½ on each of both right, one, "
        "the other, neither, for each gold label)",
        "docs/explanation/methods.md", "comparison", prior=0.5,
    ),
    Method(
        "sums-jackknife-t", "sums", _METRICS + "jackknife_t",
        "t interval with the jackknife's standard error of the difference, unit by unit",
        "Efron, Tibshirani 1993", "comparison",
    ),
    Method(
        "sums-percentile", "sums", _METRICS + "percentile_bootstrap",
        "percentile bootstrap of the difference, both models on the same units",
        "Koehn 2004", "comparison",
    ),
)  # fmt: skip
"""For metrics that are not means, such as F1, BLEU and perplexity, on the same items."""

COMPOSITE_COMPARISON_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "f1": ("dirichlet-joint", "close to the level for few items, where resampling is not"),
        "confusion": ("dirichlet-joint", "the same"),
        "corpus": ("sums-jackknife-t", "it covers no less than the bootstrap of documents"),
        "ratio": ("sums-jackknife-t", "the same"),
    }
)
"""The same as `COMPARISON_DEFAULTS`, for metrics that are not means."""

PAIRED = (*COMPARISONS, *COMPOSITE_COMPARISONS)
"""All methods for two models on the same items."""

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
        "beta-difference", "unpaired", _UNPAIRED + "beta_difference",
        "difference of two Beta posteriors (prior ½, ½)",
        "Brown, Cai, DasGupta 2001; docs/explanation/methods.md", "comparison",
        prior=(0.5, 0.5),
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
        "beta-ratio", "unpaired", _UNPAIRED + "beta_ratio",
        "ratio of two Beta posteriors (prior ½, ½)",
        "Bowyer et al. 2025; docs/explanation/methods.md", "comparison",
        prior=(0.5, 0.5),
    ),
    Method(
        "beta-odds", "unpaired", _UNPAIRED + "beta_odds_ratio",
        "odds ratio of two Beta posteriors (prior ½, ½)",
        "Bowyer et al. 2025; docs/explanation/methods.md", "comparison",
        prior=(0.5, 0.5),
    ),
    Method(
        "dp-difference", "unpaired-bounded", _UNPAIRED + "dp_difference",
        "difference of two Dirichlet-process posteriors, a Beta variable standing for each",
        "Ferguson 1973; docs/explanation/methods.md", "comparison", mass=0.5,
    ),
    Method(
        "welch-t", "unpaired-real", _UNPAIRED + "welch_t",
        "t interval with unequal variances, clustered where items come in clusters",
        "Welch 1947; Miller 2024", "comparison",
    ),
)  # fmt: skip
"""For two models on different items: independent samples."""

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
"""The same as `COMPARISON_DEFAULTS`, for models on different items."""

EFFECTS: Mapping[str, Literal["ratio", "odds ratio"]] = MappingProxyType(
    {
        "mn-ratio": "ratio",
        "beta-ratio": "ratio",
        "mn-odds": "odds ratio",
        "beta-odds": "odds ratio",
    }
)
"""What a method gives an interval of, where that is not the difference."""


def with_prior(method: Method, weight: float | None) -> Method:
    """Give a method that has a prior this weight for each outcome: ½ is Jeffreys', 1 uniform.

    Without a weight it keeps its own.
    """
    if weight is None or method.name == ENGINE:
        return method
    prior, mass, weight = method.prior, method.mass, float(weight)
    if isinstance(prior, tuple):
        # Of answers to the same items: each discordant cell, and the two others together.
        alike = 2 if method.family == "paired" else 1
        prior = (weight, alike * weight)
    elif isinstance(prior, float):
        prior = weight
    return replace(method, prior=prior, mass=None if mass is None else weight)
