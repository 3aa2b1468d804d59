"""Statistics for the results that an LLM evaluation harness already logged.

Public names load on first use, so that importing the package costs nothing. What is not here is
in the package of its question:

* `scores`: how sure is each score?
* `comparisons`: which model is better?
* `irt`: how able is each model, how hard is each item?
* `hierarchical`: what do models and tasks tell about each other?
* `ranking`: in what order, by comparisons?
* `adaptive`: what to ask next?
* `data`, `logs`: what was answered, and the logs it is read from and written to
* `report`: text, figures and pages
"""

from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.lazy import public_names

__version__ = VERSION
__getattr__, __dir__ = public_names(__name__, __file__)
