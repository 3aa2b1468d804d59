"""Item response theory: abilities of models and difficulties of items.

A model fits ``P(right) = c + (1 - c) / (1 + exp(-a (θ - b)))`` with ability θ, difficulty b,
discrimination a of either sign and guessing c.

* `fit_irt` fits, `score_models` estimates abilities from items fitted before (`fitting`, with the
  names of estimators in `methods` and their `options`; `answers`, the matrix a fit is made of;
  `scoring`)
* `abilities`, `factor_abilities`, `bootstrap_abilities`: the tables of models and items (`rows`,
  `bootstrap`)
* `reliability`, `marginal_reliability`, `item_information`, `test_information`: precision of a test
* `item_fit`, `s_x2`, `person_fit`, `suspect_items`, `q3`, `item_dif`, `hold_out`: does the model
  fit? (`fit_statistics`, `suspects`, `dif`, `holdout`)
* `link`, `seed_spread`: several fits on one scale (`linking`)
* `simulate_responses`, `simulate_response_patterns`: answers with a known truth

`model` holds curves, data, the fitted model and its file; `estimators` how it is fitted (torch).
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.irt.answers import ability_matrix
    from evalstats_plugin.irt.bootstrap import bootstrap_abilities
    from evalstats_plugin.irt.dif import item_dif
    from evalstats_plugin.irt.fit_statistics import item_fit, person_fit, s_x2
    from evalstats_plugin.irt.fitting import fit_irt
    from evalstats_plugin.irt.holdout import hold_out
    from evalstats_plugin.irt.linking import link, seed_spread
    from evalstats_plugin.irt.methods import ESTIMATORS, ITEM_MODELS, MASKS
    from evalstats_plugin.irt.model.fit import (
        FactorFit,
        IRTFit,
        item_information,
        marginal_reliability,
        reliability,
        test_information,
    )
    from evalstats_plugin.irt.model.simulate import (
        simulate_response_patterns,
        simulate_responses,
    )
    from evalstats_plugin.irt.options import (
        FactorOptions,
        JmlOptions,
        MapOptions,
        McmcOptions,
        MmlItemsOptions,
        MmlOptions,
        ViOptions,
    )
    from evalstats_plugin.irt.rows import (
        Abilities,
        abilities,
        factor_abilities,
    )
    from evalstats_plugin.irt.scoring import score_models
    from evalstats_plugin.irt.suspects import q3, suspect_items

__all__ = [
    "ESTIMATORS",
    "ITEM_MODELS",
    "MASKS",
    "Abilities",
    "FactorFit",
    "FactorOptions",
    "IRTFit",
    "JmlOptions",
    "MapOptions",
    "McmcOptions",
    "MmlItemsOptions",
    "MmlOptions",
    "ViOptions",
    "abilities",
    "ability_matrix",
    "bootstrap_abilities",
    "factor_abilities",
    "fit_irt",
    "hold_out",
    "item_dif",
    "item_fit",
    "item_information",
    "link",
    "marginal_reliability",
    "person_fit",
    "q3",
    "reliability",
    "s_x2",
    "score_models",
    "seed_spread",
    "simulate_response_patterns",
    "simulate_responses",
    "suspect_items",
    "test_information",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "Abilities": "rows",
        "ESTIMATORS": "methods",
        "FactorFit": "model.fit",
        "FactorOptions": "options",
        "IRTFit": "model.fit",
        "ITEM_MODELS": "methods",
        "JmlOptions": "options",
        "MASKS": "methods",
        "MapOptions": "options",
        "McmcOptions": "options",
        "MmlItemsOptions": "options",
        "MmlOptions": "options",
        "ViOptions": "options",
        "abilities": "rows",
        "ability_matrix": "answers",
        "bootstrap_abilities": "bootstrap",
        "factor_abilities": "rows",
        "fit_irt": "fitting",
        "hold_out": "holdout",
        "item_dif": "dif",
        "item_fit": "fit_statistics",
        "item_information": "model.fit",
        "link": "linking",
        "marginal_reliability": "model.fit",
        "person_fit": "fit_statistics",
        "q3": "suspects",
        "reliability": "model.fit",
        "s_x2": "fit_statistics",
        "score_models": "scoring",
        "seed_spread": "linking",
        "simulate_response_patterns": "model.simulate",
        "simulate_responses": "model.simulate",
        "suspect_items": "suspects",
        "test_information": "model.fit",
    },
)
