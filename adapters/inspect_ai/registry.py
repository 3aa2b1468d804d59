"""What Inspect loads in every process of its own: our hook, task and metrics, nothing heavy.

Inspect names what it finds here after the import package, ``evalstats_plugin/beta_interval``, in
editable installs and in wheels alike.
"""

from evalstats_plugin.adapters.inspect_ai.adaptive_task import adaptive_task
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
