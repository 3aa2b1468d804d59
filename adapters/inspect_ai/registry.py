"""Entry point of Inspect, loaded in each of its processes: our hook, task and metrics.

Inspect names them after the import package, such as ``evalstats_plugin/beta_interval``, in
editable installs and in wheels alike. Nothing heavy is imported.
"""

from evalstats_plugin.adapters.inspect_ai.adaptive.run import adaptive_task
from evalstats_plugin.adapters.inspect_ai.hooks import EvalStatsHooks
from evalstats_plugin.adapters.inspect_ai.metrics import (
    beta_interval,
    clopper_pearson,
    cluster_interval,
    jeffreys,
    wilson,
)

__all__ = [
    "EvalStatsHooks",
    "adaptive_task",
    "beta_interval",
    "clopper_pearson",
    "cluster_interval",
    "jeffreys",
    "wilson",
]
