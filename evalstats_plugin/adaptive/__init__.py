"""Adaptive tests: which items to ask next, and what the answers say.

* `calibrate`: `item_bank` and `adaptive_session`; `bank`: the items with their parameters
* `session`: asks, records, resumes; `selection`, `stopping`: which item, and when to stop
* `scoring`, `curves`: abilities, item curves and predicted full scores; `design`: full scores of
  items that were drawn
* `plan`: options as users give them, and forecasts; `records`: results as logs hold them
* `replaying`: `replay` on recorded answers; `simulation`: `simulate`
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
