"""The table of methods for comparisons of two models, and which is the default, and why."""

from collections.abc import Mapping
from types import MappingProxyType

from evalstats_plugin.methods import Kind, Method

_PAIRED = "evalstats_plugin.stats.paired_binary:"

COMPARISONS: tuple[Method, ...] = (
    Method(
        "dirichlet", "paired", _PAIRED + "dirichlet",
        "Dirichlet posterior of who gets an item right (prior ½ on each of the four cells)",
        "Bowyer et al. 2025; docs/methods.md", "comparison",
        MappingProxyType({"prior": (0.5, 1.0)}),
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
        "agresti-min", "paired", _PAIRED + "agresti_min",
        "Wald after adding half an item to each cell", "Agresti, Min 2005", "comparison",
    ),
    Method(
        "paired-wald", "paired", _PAIRED + "wald",
        "difference ± z standard errors, no width without discordance: only to compare with",
        "Fagerland, Lydersen, Laake 2014", "comparison",
    ),
    Method(
        "latent", "paired", "evalstats_plugin.stats.latent_pairs:latent",
        "posterior of a latent bivariate normal model, both scores uniform a priori",
        "Bowyer et al. 2025", "comparison",
    ),
    Method(
        "dp-jeffreys", "bounded", "evalstats_plugin.stats.bounded:dirichlet_process",
        "Dirichlet-process posterior of the mean difference, mass ½ at each end",
        "Ferguson 1973; docs/methods.md", "comparison", MappingProxyType({"mass": 0.5}),
    ),
    Method(
        "paired-t", "real", "evalstats_plugin.stats.mean:t_interval",
        "Student's t interval of the mean difference", "Student 1908", "comparison",
    ),
    Method(
        "percentile", "resampling", "evalstats_plugin.stats.bootstrap:percentile",
        "percentile bootstrap of the mean difference: only to compare with", "Efron 1979",
        "comparison",
    ),
    Method(
        "bca", "resampling", "evalstats_plugin.stats.bootstrap:bca",
        "bias-corrected and accelerated bootstrap of the mean difference", "Efron 1987",
        "comparison",
    ),
    Method(
        "logit-t-cr1", "clustered-bounded", "evalstats_plugin.stats.clustered:logit_t_cr1",
        "t interval on the logit scale, clustered standard error",
        "Liang, Zeger 1986; Miller 2024", "comparison",
    ),
    Method(
        "t-cr1", "clustered-real", "evalstats_plugin.stats.clustered:t_cr1",
        "t interval with clustered standard error", "Liang, Zeger 1986; Miller 2024", "comparison",
    ),
    Method(
        "t-cr2", "clustered-real", "evalstats_plugin.stats.clustered:t_cr2",
        "the same, corrected for few and unequal clusters", "Bell, McCaffrey 2002", "comparison",
    ),
    Method(
        "dirichlet-multinomial", "clustered-paired",
        "evalstats_plugin.stats.dirichlet_multinomial:difference",
        "posterior of who gets an item right, intra-cluster correlation ~ U(0, 1)",
        "docs/methods.md", "comparison", MappingProxyType({"prior": (0.5, 1.0)}),
    ),
)  # fmt: skip

CLUSTERED_NAMES = frozenset({"logit-t-cr1", "t-cr1", "t-cr2", "dirichlet-multinomial"})
"""Those that are told which items belong together."""

COMPARISON_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "dirichlet",
            "of all intervals for a paired difference its coverage is the closest to the level at "
            "n = 10 to 100, and it is the shortest of those that reach it on average",
        ),
        "bounded": (
            "dp-jeffreys",
            "it is what `dirichlet` is for 0/1 scores: never of zero width, and at the level for "
            "few items too",
        ),
        "real": ("paired-t", "without bounds there is nothing better for few items"),
    }
)
"""Method of a comparison used for ``"auto"`` on each kind of score, and why."""

CLUSTERED_COMPARISON_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "dirichlet-multinomial",
            "at the level or a little above from six clusters on, narrower than the clustered t "
            "where clusters matter, and never of zero width",
        ),
        "bounded": ("logit-t-cr1", "never of zero width, close to the level from 20 clusters on"),
        "real": ("t-cr1", "without bounds there is nothing better for few clusters"),
    }
)
"""The same, for items in clusters."""
