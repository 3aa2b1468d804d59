"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.adaptive.bank import ItemBank as ItemBank
from evalstats_plugin.adaptive.bank import merge as merge
from evalstats_plugin.adaptive.calibrate import adaptive_session as adaptive_session
from evalstats_plugin.adaptive.calibrate import item_bank as item_bank
from evalstats_plugin.adaptive.plan import Plan as Plan
from evalstats_plugin.adaptive.replaying import replay as replay
from evalstats_plugin.adaptive.session import AdaptiveSession as AdaptiveSession
from evalstats_plugin.adaptive.simulation import simulate as simulate
