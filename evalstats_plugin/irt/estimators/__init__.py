"""Estimators of item response models, on torch tensors.

* `mml`, `grid`, `information`: marginal maximum likelihood by EM, its E-step, its covariances
* `items_integrated`, `item_population`: marginal maximum likelihood with items integrated out
* `joint`, `variational`, `draws`, `factor`: the other estimators
* `fitted`: `fit_mml`, and how estimates become an `IRTFit`; other files have their own `fit_…`
* `refits`: the bootstrap; `frozen`: scoring and held-out predictions; `optimise`: optimisers
"""
