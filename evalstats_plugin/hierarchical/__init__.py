"""Hierarchical models: what do models and tasks tell about each other?

* `fitting`: `fit_hierarchical`, and which engine "auto" takes; `methods`: models and inferences
* `data`: counts by model and task; `fit`: the fit, its checks and evidence; `rows`: tables
* `engines`: how it is inferred (torch): crossed effects, nested effects, capabilities, plates
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.engines.capabilities import (
        fit_capabilities as fit_capabilities,
    )
    from evalstats_plugin.hierarchical.engines.posterior import CapabilityFit as CapabilityFit
    from evalstats_plugin.hierarchical.fit import HierarchicalFit as HierarchicalFit
    from evalstats_plugin.hierarchical.fitting import fit_hierarchical as fit_hierarchical

__all__ = [
    "CapabilityFit",
    "HierarchicalFit",
    "fit_capabilities",
    "fit_hierarchical",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "CapabilityFit": "engines.posterior",
        "HierarchicalFit": "fit",
        "fit_capabilities": "engines.capabilities",
        "fit_hierarchical": "fitting",
    },
)
