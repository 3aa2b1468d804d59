"""Item response theory: how able is each model, how hard is each item?

A model fits ``P(right) = c + (1 - c) / (1 + exp(-a (θ - b)))`` with ability θ, difficulty b,
discrimination a of either sign and guessing c.

* `fitting`: `fit_irt`, and which estimator "auto" takes; `methods`: the estimators
* `answers`: the matrix a fit stands on; `scoring`: abilities from items that are known
* `bootstrap`, `holdout`, `dif`, `item_fit`, `suspects`, `linking`: checks and what follows
* `model`: curves, data, the fit and how it is saved; `estimators`: how it is fitted (torch)
* `rows`: what tables show
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.irt.fitting import fit_irt as fit_irt
    from evalstats_plugin.irt.model.fit import FactorFit as FactorFit
    from evalstats_plugin.irt.model.fit import IRTFit as IRTFit
    from evalstats_plugin.irt.scoring import score_models as score_models

__all__ = [
    "FactorFit",
    "IRTFit",
    "fit_irt",
    "score_models",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "FactorFit": "model.fit",
        "IRTFit": "model.fit",
        "fit_irt": "fitting",
        "score_models": "scoring",
    },
)
