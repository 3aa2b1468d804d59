"""Hierarchical models: accuracies of models on tasks with partial pooling, and capabilities.

* `fitting`: `fit_hierarchical`, and how it chooses model and engine; `methods`: their names
* `data`: counts by model and task; `fit`: the fit, its checks and evidence; `rows`: its records
* `engines`: inference (torch): crossed effects, nested effects, capabilities, plates

`Model` of `Plate`, `Latent` and `Observed` declares a model of one's own, and `infer` fits it.

`fit_capabilities` fits sparse capabilities to items; `compare_held_out` compares its predictions
with simpler models, `stability` checks whether the capabilities are found again from other items.
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
