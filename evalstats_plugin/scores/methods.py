"""The methods for the interval of one score, and which is the default, and why.

* `METHODS`: means of independent items and ratios of sums; `DEFAULTS`
* `CLUSTERED`: means of items in clusters; `CLUSTERED_DEFAULTS`
* `COMPOSITES`: metrics that are not means; `COMPOSITE_DEFAULTS`, `CLUSTERED_COMPOSITE_DEFAULTS`
* `SEQUENTIAL`: means, valid at every look
* `INTERVALS`: all of these
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from evalstats_plugin.data.methods import Kind, Method

_BOUNDED = "evalstats_plugin.stats.bounded:"
_REACH = "evalstats_plugin.stats.reach:"
_MEANS = "evalstats_plugin.stats.means:"
_CLUSTERED = "evalstats_plugin.stats.clustered:"
_POSTERIOR = "evalstats_plugin.stats.grid_posteriors:"
_METRICS = "evalstats_plugin.stats.metric_intervals:"
_SEQUENTIAL = "evalstats_plugin.stats.sequential:"

CLUSTER_FAMILIES = (
    "clustered", "clustered-sized", "clustered-bounded", "clustered-real",
)  # fmt: skip
"""Families of methods that allow for clusters."""

COMPOSITE_FAMILIES = ("f1", "confusion", "auc", "sums", "left-out")
"""Families of methods for metrics that are not means.

``f1`` is ``f(true_positives, n, *, confidence_level)``, arrays of one length; ``confusion``
``f(tables, *, metric, confidence_level, rng, n_resamples)``, tables (cells, K, K); ``auc``
``f(positive, scores, *, confidence_level)``; ``sums`` ``f(statistics, value, *,
confidence_level)``, statistics (units, S); ``left-out`` ``f(estimate, without, *,
confidence_level)``, values without each unit (units,).
"""


AS_PRINTED = frozenset({"wald"})
"""Methods kept to compare with: their limits may leave the scale, as those of harnesses do."""

METHODS: tuple[Method, ...] = (
    Method(
        "beta-hpd", "binary", _BOUNDED + "beta_hpd",
        "Beta posterior (prior 1, 1), shortest interval: always holds the estimate",
        "Bowyer et al. 2025", prior=(1.0, 1.0),
    ),
    Method(
        "beta", "binary", _BOUNDED + "beta_equal_tailed",
        "Beta posterior (prior 1, 1), equal tails", "Bowyer et al. 2025", prior=(1.0, 1.0),
    ),
    Method(
        "jeffreys", "binary", _BOUNDED + "jeffreys",
        "Beta posterior (prior ½, ½), equal tails, open at 0 and n",
        "Brown, Cai, DasGupta 2001",
    ),
    Method("wilson", "binary", _BOUNDED + "wilson", "score interval", "Wilson 1927"),
    Method(
        "wilson-cc", "binary", _BOUNDED + "wilson_cc",
        "score interval with continuity correction", "Newcombe 1998",
    ),
    Method(
        "clopper-pearson", "binary", _BOUNDED + "clopper_pearson",
        "exact: never covers less than the level", "Clopper, Pearson 1934",
    ),
    Method(
        "mid-p", "binary", _BOUNDED + "mid_p",
        "Clopper–Pearson with half of the observed outcome", "Newcombe 1998",
    ),
    Method(
        "agresti-coull", "binary", _BOUNDED + "agresti_coull",
        "Wald after adding z²/2 successes and failures", "Agresti, Coull 1998",
    ),
    Method(
        "wald", "binary", _BOUNDED + "wald",
        "estimate ± z standard errors; zero width at 0 and n: only to compare with",
        "Brown, Cai, DasGupta 2001",
    ),
    Method(
        "reach", "bounded-attained", _REACH + "mean_interval",
        "Dirichlet-weighted mean, weight ½ where the farthest scores not yet seen may lie",
        "Ferguson 1973; docs/explanation/methods.md",
    ),
    Method(
        "dp-jeffreys", "bounded", _BOUNDED + "dirichlet_process",
        "Dirichlet-process posterior of a bounded mean, mass ½ at each end",
        "Ferguson 1973; docs/explanation/methods.md", mass=0.5,
    ),
    Method(
        "dp-uniform", "bounded", _BOUNDED + "dirichlet_process",
        "the same with mass 1 at each end: Beta(1, 1) on binary scores",
        "Ferguson 1973; docs/explanation/methods.md", mass=1.0,
    ),
    Method(
        "gaffke", "bounded", _BOUNDED + "gaffke",
        "guarantee-style bound on a bounded mean; Clopper–Pearson on binary scores",
        "Gaffke 2005; Learned-Miller, Thomas 2019",
    ),
    Method(
        "logit-t", "bounded", _BOUNDED + "logit_t",
        "t interval on the logit scale", "docs/explanation/methods.md",
    ),
    Method("t", "real", _MEANS + "t_interval", "Student's t interval of a mean", "Student 1908"),
    Method(
        "z", "real", _MEANS + "z_interval",
        "mean ± z standard errors, the central limit theorem: only to compare with",
        "Miller 2024",
    ),
    Method(
        "percentile", "resampling", _MEANS + "percentile_bootstrap",
        "percentile bootstrap", "Efron 1979",
    ),
    Method(
        "bca", "resampling", _MEANS + "bca_bootstrap",
        "bias-corrected and accelerated bootstrap", "Efron 1987",
    ),
    Method(
        "bootstrap-t", "resampling", _MEANS + "studentised_bootstrap",
        "studentised bootstrap", "Efron, Tibshirani 1993",
    ),
    Method(
        "jackknife-t", "ratio", _MEANS + "ratio_jackknife",
        "t interval of a ratio of sums, jackknife, effective number of items; "
        "perplexities on the log scale",
        "docs/explanation/methods.md",
    ),
    Method(
        "ratio-t", "ratio", _MEANS + "ratio_t",
        "the same by linearisation", "Cochran 1977, ch. 6",
    ),
)  # fmt: skip
"""For means of independent items, and for ratios of sums of item scores."""

DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "beta-hpd",
            "coverage averaged over all true scores is exactly the level at every n, it always "
            "holds the estimate and is the shortest such interval",
        ),
        "bounded": (
            "reach",
            "of all that reach the level on average over 23 kinds of partial credit at n = 5 to "
            "200 it is the narrowest, as narrow as Student's t for concentrated scores, Jeffreys' "
            "for zeros and ones, and never of zero width",
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

CLUSTERED: tuple[Method, ...] = (
    Method(
        "size-betabinomial", "clustered-sized", _POSTERIOR + "size_beta_binomial",
        "Beta-Binomial posterior, intra-cluster correlation ~ U(0, 1); scores may go with the size "
        "of a cluster",
        "Bowyer et al. 2025; Rubin 1981; docs/explanation/methods.md",
    ),
    Method(
        "betabinomial-gamma", "clustered", _POSTERIOR + "beta_binomial",
        "mean over clusters, the paper's prior, dispersion ~ Gamma(1, 1): strong clusters expected",
        "Bowyer et al. 2025", prior="gamma-dispersion",
    ),
    Method(
        "logit-t-cr2", "clustered-bounded", _CLUSTERED + "logit_t_cr2",
        "t interval on the logit scale, clustered standard error corrected for few and unequal "
        "clusters",
        "Bell, McCaffrey 2002",
    ),
    Method(
        "t-cr2", "clustered-real", _CLUSTERED + "t_cr2",
        "t interval with the same standard error", "Bell, McCaffrey 2002",
    ),
)  # fmt: skip
"""For means of scores whose items come in clusters."""

CLUSTERED_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "size-betabinomial",
            "at the level for few clusters whether or not scores go with their size; from 20 "
            "degrees of freedom `logit-t-cr2`, which assumes nothing of sizes and is as narrow",
        ),
        "bounded": ("logit-t-cr2", "never of zero width, close to the level from 20 clusters on"),
        "real": ("t-cr2", "without bounds there is nothing better for few clusters"),
    }
)
"""The same as `DEFAULTS`, for items in clusters."""

COMPOSITES: tuple[Method, ...] = (
    Method(
        "wilson-f1", "f1", _METRICS + "wilson_f1",
        "score interval of the share of true positives among what is or is called positive",
        "Wilson 1927; docs/explanation/methods.md",
    ),
    Method(
        "dirichlet-f1", "f1", _METRICS + "dirichlet_f1",
        "Dirichlet posterior of the confusion table (prior 1 on each cell), in closed form",
        "Bowyer et al. 2025", prior=1.0,
    ),
    Method(
        "dirichlet-table", "confusion", _METRICS + "dirichlet_interval",
        "Dirichlet posterior of the confusion table (prior ½ right, ½ wrong for each gold label)",
        "docs/explanation/methods.md", prior=1.0,
    ),
    Method(
        "newcombe-auc", "auc", _METRICS + "auc_newcombe",
        "score interval of the area under the curve, never of zero width", "Newcombe 2006",
    ),
    Method(
        "sums-jackknife-t", "sums", _METRICS + "jackknife_t",
        "t interval with the jackknife's standard error, of any function of sums over units",
        "Efron, Tibshirani 1993",
    ),
    Method(
        "sums-percentile", "sums", _METRICS + "percentile_bootstrap",
        "percentile bootstrap of the same", "Efron 1979; Koehn 2004",
    ),
    Method(
        "jackknife", "left-out", _METRICS + "jackknife_limits",
        "t interval with the jackknife's standard error, of a metric that its harness recomputes "
        "without each item, cluster or block in turn",
        "Efron, Tibshirani 1993",
    ),
)  # fmt: skip
"""For metrics that are not means of item scores, such as F1, AUC and BLEU."""

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
        "left-out": ("jackknife", "it asks for no formula, only for the metric of fewer items"),
    }
)
"""The same as `DEFAULTS`, for metrics that are not means."""

CLUSTERED_COMPOSITE_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    dict.fromkeys(
        ("f1", "confusion", "corpus"),
        ("sums-jackknife-t", "it takes a whole cluster as one unit"),
    )
)
"""The same as `COMPOSITE_DEFAULTS`, for items in clusters."""

SEQUENTIAL: tuple[Method, ...] = (
    Method(
        "beta-mixture", "binary", _SEQUENTIAL + "beta_mixture",
        "confidence sequence: valid however often one looks", "Robbins 1970",
    ),
    Method(
        "betting-mixture", "bounded", _SEQUENTIAL + "betting_mixture",
        "the same for scores between bounds; beta-mixture on binary scores",
        "Howard et al. 2021; docs/explanation/methods.md",
    ),
)  # fmt: skip
"""Confidence sequences: valid at every look while items come in. Never the default."""

INTERVALS = (*METHODS, *CLUSTERED, *COMPOSITES, *SEQUENTIAL)
"""All methods for the interval of one score."""
