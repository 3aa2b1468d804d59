"""Hierarchical models: accuracies of models on tasks with partial pooling, and capabilities.

* `fitting`: `pool`, and how it chooses model and engine; `methods`: their names
* `capabilities`: what some items need beyond one ability, chosen, fitted, and looked for again
* `data`: counts by model and task; `fit`: the fit, its checks and evidence; `rows`: its records
* `judging`: models of one's own checked before a fit, and judged after
* `engines`: inference: crossed effects, nested effects, sparse codes, plates

`Model` of `Plate`, `Latent` and `Observed` declares a model of one's own, and `infer` fits it.

`find_capabilities` looks for sparse capabilities of items: `fit_capabilities` fits them,
`compare_held_out` compares their predictions with simpler models, `stability` checks whether they
are found again from other items.
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
