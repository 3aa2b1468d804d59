"""Adaptive tests: what to ask next, and what the answers say.

* `calibrate`: `item_bank` and `adaptive_session`; `bank`: the items with their parameters
* `session`: asks, records, resumes; `selection`, `stopping`: which item, and when to stop
* `scoring`, `curves`: abilities and the predicted full score
* `plan`, `records`, `simulate`, `replay`, `misfit`: forecasts, simulations, checks
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.bank import ItemBank as ItemBank
    from evalstats_plugin.adaptive.calibrate import adaptive_session as adaptive_session
    from evalstats_plugin.adaptive.calibrate import item_bank as item_bank

__all__ = [
    "ItemBank",
    "adaptive_session",
    "item_bank",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "ItemBank": "bank",
        "adaptive_session": "calibrate",
        "item_bank": "calibrate",
    },
)
