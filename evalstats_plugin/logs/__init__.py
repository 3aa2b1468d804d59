"""In and out of logs: read, annotate, export.

* `reading`: `read` and `read_contests`; `annotating`: `annotate`, `annotate_results`, `strip`
* `checking`: `check`, what to look at before a number is believed
* `together`: analyses that cross logs; `exporting`: `export`
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.logs.annotating import annotate, annotate_results, strip
    from evalstats_plugin.logs.checking import check
    from evalstats_plugin.logs.exporting import export
    from evalstats_plugin.logs.reading import read, read_contests

__all__ = [
    "annotate",
    "annotate_results",
    "check",
    "export",
    "read",
    "read_contests",
    "strip",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "annotate": "annotating",
        "annotate_results": "annotating",
        "check": "checking",
        "export": "exporting",
        "read": "reading",
        "read_contests": "reading",
        "strip": "annotating",
    },
)
