"""Adaptive tests: which items to ask next, and what the answers say.

* `calibrate`: `item_bank` and `adaptive_session`; `bank`: the items with their parameters
* `session`: asks, records, resumes; `selection`, `stopping`: which item, and when to stop
* `scoring`, `curves`, `misfit`: abilities, item curves, misfit factors and predicted full scores
* `plan`: options as users give them, and forecasts; `records`: results as logs hold them
* `replaying`: `replay` on recorded answers; `simulation`: `simulate` and `exposure_control`
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.bank import ItemBank, merge
    from evalstats_plugin.adaptive.calibrate import adaptive_session, item_bank, pilot_items
    from evalstats_plugin.adaptive.plan import Plan
    from evalstats_plugin.adaptive.replaying import replay
    from evalstats_plugin.adaptive.scoring import anchor_points, anchor_scores
    from evalstats_plugin.adaptive.session import AdaptiveSession
    from evalstats_plugin.adaptive.simulation import exposure_control, simulate

__all__ = [
    "AdaptiveSession",
    "ItemBank",
    "Plan",
    "adaptive_session",
    "anchor_points",
    "anchor_scores",
    "exposure_control",
    "item_bank",
    "merge",
    "pilot_items",
    "replay",
    "simulate",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "AdaptiveSession": "session",
        "ItemBank": "bank",
        "Plan": "plan",
        "adaptive_session": "calibrate",
        "anchor_points": "scoring",
        "anchor_scores": "scoring",
        "exposure_control": "simulation",
        "item_bank": "calibrate",
        "merge": "bank",
        "pilot_items": "calibrate",
        "replay": "replaying",
        "simulate": "simulation",
    },
)
