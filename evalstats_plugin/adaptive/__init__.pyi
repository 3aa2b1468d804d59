"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.adaptive.bank import ItemBank as ItemBank
from evalstats_plugin.adaptive.bank import merge as merge
from evalstats_plugin.adaptive.calibrate import adaptive_session as adaptive_session
from evalstats_plugin.adaptive.calibrate import item_bank as item_bank
from evalstats_plugin.adaptive.calibrate import pilot_items as pilot_items
from evalstats_plugin.adaptive.plan import Plan as Plan
from evalstats_plugin.adaptive.replaying import replay as replay
from evalstats_plugin.adaptive.scoring import anchor_points as anchor_points
from evalstats_plugin.adaptive.scoring import anchor_scores as anchor_scores
from evalstats_plugin.adaptive.session import AdaptiveSession as AdaptiveSession
from evalstats_plugin.adaptive.simulation import exposure_control as exposure_control
from evalstats_plugin.adaptive.simulation import simulate as simulate
