"""In and out of logs: read, annotate, export.

* `reading`: `read`, `read_contests`, and `check`, what to look at before a number is believed
* `texts`: questions and answers of items; `compare_items`
* `annotating`: `annotate`, `annotate_results`, `strip`
* `together`: analyses that cross logs; `exporting`: `export`
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
