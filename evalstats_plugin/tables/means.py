"""Methods for the mean of item scores, and for ratios of sums; the defaults, and why."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from evalstats_plugin.methods import Kind, Method


def _prior(a: float, b: float) -> Mapping[str, Any]:
    return MappingProxyType({"prior": (a, b)})


def _mass(mass: float) -> Mapping[str, Any]:
    return MappingProxyType({"mass": mass})


_BINOMIAL = "evalstats_plugin.stats.binomial:"
_BOUNDED = "evalstats_plugin.stats.bounded:"
_MEAN = "evalstats_plugin.stats.mean:"
_RATIO = "evalstats_plugin.stats.ratio:"
_BOOTSTRAP = "evalstats_plugin.stats.bootstrap:"

METHODS: tuple[Method, ...] = (
    Method(
        "beta-hpd", "binary", _BINOMIAL + "beta_hpd",
        "Beta posterior (prior 1, 1), shortest interval: always holds the estimate",
        "Bowyer et al. 2025", options=_prior(1.0, 1.0),
    ),
    Method(
        "beta", "binary", _BINOMIAL + "beta_equal_tailed",
        "Beta posterior (prior 1, 1), equal tails", "Bowyer et al. 2025", options=_prior(1.0, 1.0),
    ),
    Method(
        "jeffreys", "binary", _BINOMIAL + "jeffreys",
        "Beta posterior (prior ½, ½), equal tails, open at 0 and n",
        "Brown, Cai, DasGupta 2001",
    ),
    Method("wilson", "binary", _BINOMIAL + "wilson", "score interval", "Wilson 1927"),
    Method(
        "wilson-cc", "binary", _BINOMIAL + "wilson_cc",
        "score interval with continuity correction", "Newcombe 1998",
    ),
    Method(
        "clopper-pearson", "binary", _BINOMIAL + "clopper_pearson",
        "exact: never covers less than the level", "Clopper, Pearson 1934",
    ),
    Method(
        "mid-p", "binary", _BINOMIAL + "mid_p",
        "Clopper–Pearson with half of the observed outcome", "Newcombe 1998",
    ),
    Method(
        "agresti-coull", "binary", _BINOMIAL + "agresti_coull",
        "Wald after adding z²/2 successes and failures", "Agresti, Coull 1998",
    ),
    Method(
        "wald", "binary", _BINOMIAL + "wald",
        "estimate ± z standard errors; zero width at 0 and n: only to compare with",
        "Brown, Cai, DasGupta 2001",
    ),
    Method(
        "dp-jeffreys", "bounded", _BOUNDED + "dirichlet_process",
        "Dirichlet-process posterior of a bounded mean, mass ½ at each end",
        "Ferguson 1973; docs/methods.md", options=_mass(0.5),
    ),
    Method(
        "dp-uniform", "bounded", _BOUNDED + "dirichlet_process",
        "the same with mass 1 at each end: Beta(1, 1) on binary scores",
        "Ferguson 1973; docs/methods.md", options=_mass(1.0),
    ),
    Method(
        "gaffke", "bounded", _BOUNDED + "gaffke",
        "guarantee-style bound on a bounded mean; Clopper–Pearson on binary scores",
        "Gaffke 2005; Learned-Miller, Thomas 2019",
    ),
    Method(
        "logit-t", "bounded", _BOUNDED + "logit_t",
        "t interval on the logit scale", "docs/methods.md",
    ),
    Method("t", "real", _MEAN + "t_interval", "Student's t interval of a mean", "Student 1908"),
    Method(
        "z", "real", _MEAN + "z_interval",
        "mean ± z standard errors, the central limit theorem: only to compare with",
        "Miller 2024",
    ),
    Method(
        "percentile", "resampling", _BOOTSTRAP + "percentile",
        "percentile bootstrap", "Efron 1979",
    ),
    Method(
        "bca", "resampling", _BOOTSTRAP + "bca",
        "bias-corrected and accelerated bootstrap", "Efron 1987",
    ),
    Method(
        "bootstrap-t", "resampling", _BOOTSTRAP + "studentised",
        "studentised bootstrap", "Efron, Tibshirani 1993",
    ),
    Method(
        "jackknife-t", "ratio", _RATIO + "ratio_jackknife",
        "t interval of a ratio of sums, jackknife, effective number of items; "
        "perplexities on the log scale",
        "docs/methods.md",
    ),
    Method(
        "ratio-t", "ratio", _RATIO + "ratio_t",
        "the same by linearisation", "Cochran 1977, ch. 6",
    ),
)  # fmt: skip

DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "beta-hpd",
            "coverage averaged over all true scores is exactly the level at every n, it always "
            "holds the estimate and is the shortest such interval",
        ),
        "bounded": (
            "dp-jeffreys",
            "of all that reach the level on average over six kinds of partial credit at n = 5 to "
            "200 it is the narrowest, and it is never of zero width",
        ),
        "real": (
            "t",
            "without bounds, skewed scores need many items whatever the method: the bootstrap "
            "covers less, its studentised form is twice as wide",
        ),
        "ratio": (
            "jackknife-t",
            "it keeps its level where a few long texts carry much of the weight",
        ),
    }
)
"""Method used for ``"auto"`` on each kind of score, and why (``make validate`` measures it)."""
