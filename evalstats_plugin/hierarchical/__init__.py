"""Hierarchical models: accuracies of models on tasks with partial pooling, and capabilities.

* `fitting`: `fit_hierarchical`, and how it chooses model and engine; `methods`: their names
* `data`: counts by model and task; `fit`: the fit, its checks and evidence; `rows`: its records
* `engines`: inference (torch): crossed effects, nested effects, capabilities, plates

`fit_capabilities` fits sparse capabilities to items; `compare_held_out` compares its predictions
with simpler models, `stability` checks whether the capabilities are found again from other items.
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.engines.capabilities import (
        compare_held_out as compare_held_out,
    )
    from evalstats_plugin.hierarchical.engines.capabilities import (
        fit_capabilities as fit_capabilities,
    )
    from evalstats_plugin.hierarchical.engines.capabilities import stability as stability
    from evalstats_plugin.hierarchical.engines.posterior import CapabilityFit
    from evalstats_plugin.hierarchical.fit import HierarchicalFit
    from evalstats_plugin.hierarchical.fitting import HierarchicalOptions, fit_hierarchical

__all__ = [
    "CapabilityFit",
    "HierarchicalFit",
    "HierarchicalOptions",
    "compare_held_out",
    "fit_capabilities",
    "fit_hierarchical",
    "stability",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "CapabilityFit": "engines.posterior",
        "HierarchicalFit": "fit",
        "HierarchicalOptions": "fitting",
        "compare_held_out": "engines.capabilities",
        "fit_capabilities": "engines.capabilities",
        "fit_hierarchical": "fitting",
        "stability": "engines.capabilities",
    },
)
