"""Methods for scores whose items come in clusters; the defaults, and why."""

from collections.abc import Mapping
from types import MappingProxyType

from evalstats_plugin.methods import Kind, Method

CLUSTERED: tuple[Method, ...] = (
    Method(
        "betabinomial", "clustered", "evalstats_plugin.stats.beta_binomial:interval",
        "Beta-Binomial posterior, intra-cluster correlation ~ U(0, 1)",
        "Bowyer et al. 2025; docs/methods.md", options=MappingProxyType({"prior": "uniform-icc"}),
    ),
    Method(
        "betabinomial-gamma", "clustered", "evalstats_plugin.stats.beta_binomial:interval",
        "the same with the paper's prior, dispersion ~ Gamma(1, 1): strong clusters expected",
        "Bowyer et al. 2025", options=MappingProxyType({"prior": "gamma-dispersion"}),
    ),
    Method(
        "logit-t-cr1", "clustered-bounded", "evalstats_plugin.stats.clustered:logit_t_cr1",
        "t interval on the logit scale, clustered standard error",
        "Liang, Zeger 1986; Miller 2024",
    ),
    Method(
        "t-cr1", "clustered-real", "evalstats_plugin.stats.clustered:t_cr1",
        "t interval with clustered standard error", "Liang, Zeger 1986; Miller 2024",
    ),
    Method(
        "t-cr2", "clustered-real", "evalstats_plugin.stats.clustered:t_cr2",
        "the same, corrected for few and unequal clusters", "Bell, McCaffrey 2002",
    ),
    Method(
        "cluster-bootstrap", "clustered-resampling", "evalstats_plugin.stats.clustered:bootstrap",
        "percentile bootstrap of whole clusters: only to compare with", "Efron, Tibshirani 1993",
    ),
)  # fmt: skip
"""For scores whose items come in clusters."""

CLUSTERED_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "betabinomial",
            "at the level from two clusters on, and narrower than the clustered t",
        ),
        "bounded": ("logit-t-cr1", "never of zero width, close to the level from 20 clusters on"),
        "real": ("t-cr1", "without bounds there is nothing better for few clusters"),
    }
)
"""The same, for items in clusters."""
