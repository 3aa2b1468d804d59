"""Item response theory: abilities of models and difficulties of items.

A model fits ``P(right) = c + (u - c) / (1 + exp(-a (θ - b)))`` with ability θ, difficulty b,
discrimination a of either sign, guessing c and upper asymptote u.

* `fit_irt` fits, `score_models` estimates abilities from items fitted before (`fitting`, with the
  names and options of estimators in `methods`; `answers`, the matrix a fit is made of; `scoring`)
* `abilities`, `factor_abilities`, `bootstrap_abilities`, `uncertainty`: the tables of models and
  items, and how sure abilities are by each recipe (`rows`, `bootstrap`)
* `reliability`, `marginal_reliability`, `item_information`, `test_information`: precision of a test
* `item_fit`, `s_x2`, `m2`, `person_fit`, `suspect_items`, `q3`, `item_dif`, `hold_out`: does it
  fit? (`fit_statistics`, `suspects`, `dif`, `holdout`)
* `choose_model`: item models side by side, and which to take (`choosing`)
* `predict_items`, `text_features`: items that no model answered (`new_items`)
* `link`: several fits on one scale (`linking`)
* `simulate_responses`, `simulate_response_patterns`: answers with a known truth

`model` holds curves, data, the fitted model and its file; `estimators` how it is fitted (torch).
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
