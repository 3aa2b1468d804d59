"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.irt.answers import ability_matrix as ability_matrix
from evalstats_plugin.irt.bootstrap import RECIPES as RECIPES
from evalstats_plugin.irt.bootstrap import bootstrap_abilities as bootstrap_abilities
from evalstats_plugin.irt.bootstrap import uncertainty as uncertainty
from evalstats_plugin.irt.choosing import choose_model as choose_model
from evalstats_plugin.irt.dif import item_dif as item_dif
from evalstats_plugin.irt.fit_statistics import item_fit as item_fit
from evalstats_plugin.irt.fit_statistics import m2 as m2
from evalstats_plugin.irt.fit_statistics import person_fit as person_fit
from evalstats_plugin.irt.fit_statistics import s_x2 as s_x2
from evalstats_plugin.irt.fitting import fit_irt as fit_irt
from evalstats_plugin.irt.holdout import hold_out as hold_out
from evalstats_plugin.irt.linking import link as link
from evalstats_plugin.irt.methods import CANDIDATES as CANDIDATES
from evalstats_plugin.irt.methods import ESTIMATORS as ESTIMATORS
from evalstats_plugin.irt.methods import ITEM_MODELS as ITEM_MODELS
from evalstats_plugin.irt.methods import MASKS as MASKS
from evalstats_plugin.irt.methods import ORDERED_MODELS as ORDERED_MODELS
from evalstats_plugin.irt.methods import FactorOptions as FactorOptions
from evalstats_plugin.irt.methods import JmlOptions as JmlOptions
from evalstats_plugin.irt.methods import MapOptions as MapOptions
from evalstats_plugin.irt.methods import McmcOptions as McmcOptions
from evalstats_plugin.irt.methods import MmlItemsOptions as MmlItemsOptions
from evalstats_plugin.irt.methods import MmlOptions as MmlOptions
from evalstats_plugin.irt.methods import OrderedOptions as OrderedOptions
from evalstats_plugin.irt.methods import SviOptions as SviOptions
from evalstats_plugin.irt.methods import ViOptions as ViOptions
from evalstats_plugin.irt.model.fit import FactorFit as FactorFit
from evalstats_plugin.irt.model.fit import IRTFit as IRTFit
from evalstats_plugin.irt.model.fit import OrderedFit as OrderedFit
from evalstats_plugin.irt.model.fit import item_information as item_information
from evalstats_plugin.irt.model.fit import marginal_reliability as marginal_reliability
from evalstats_plugin.irt.model.fit import reliability as reliability
from evalstats_plugin.irt.model.fit import test_information as test_information
from evalstats_plugin.irt.model.simulate import (
    simulate_response_patterns as simulate_response_patterns,
)
from evalstats_plugin.irt.model.simulate import simulate_responses as simulate_responses
from evalstats_plugin.irt.new_items import NewItem as NewItem
from evalstats_plugin.irt.new_items import NewItems as NewItems
from evalstats_plugin.irt.new_items import predict_items as predict_items
from evalstats_plugin.irt.new_items import text_features as text_features
from evalstats_plugin.irt.rows import Abilities as Abilities
from evalstats_plugin.irt.rows import abilities as abilities
from evalstats_plugin.irt.rows import factor_abilities as factor_abilities
from evalstats_plugin.irt.scoring import score_models as score_models
from evalstats_plugin.irt.suspects import q3 as q3
from evalstats_plugin.irt.suspects import suspect_items as suspect_items
