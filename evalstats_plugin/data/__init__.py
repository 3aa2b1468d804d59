"""What was answered: responses, their join to a matrix, stores, and what all results share.

* `responses`: what one model answered to one task; `runs`: which runs count
* `matrix`: models × items × epochs; `store`: the same on disk, larger than memory
* `importing`, `tables`: from CSV, JSONL and Parquet
* `results`: what all results share; `methods`: what a method is
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.data.importing import store_table as store_table
    from evalstats_plugin.data.importing import write_store as write_store
    from evalstats_plugin.data.matrix import ResponseMatrix as ResponseMatrix
    from evalstats_plugin.data.methods import Method as Method
    from evalstats_plugin.data.responses import Group as Group
    from evalstats_plugin.data.responses import Responses as Responses
    from evalstats_plugin.data.responses import Source as Source
    from evalstats_plugin.data.results import Results as Results
    from evalstats_plugin.data.runs import ResponseSet as ResponseSet
    from evalstats_plugin.data.store import ResponseStore as ResponseStore

__all__ = [
    "Group",
    "Method",
    "ResponseMatrix",
    "ResponseSet",
    "ResponseStore",
    "Responses",
    "Results",
    "Source",
    "store_table",
    "write_store",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "Group": "responses",
        "Method": "methods",
        "ResponseMatrix": "matrix",
        "ResponseSet": "runs",
        "ResponseStore": "store",
        "Responses": "responses",
        "Results": "results",
        "Source": "responses",
        "store_table": "importing",
        "write_store": "importing",
    },
)
