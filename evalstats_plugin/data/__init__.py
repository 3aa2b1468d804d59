"""Data: responses of models to tasks, matrices and stores of them, and the base of results.

* `responses`: scores of one model on one task; `runs`: sets of them, labels, repeated runs
* `matrix`: models × items × epochs; `store`: the same on disk, larger than memory
* `tables`: CSV, JSON and Parquet as columns; `importing`: large tables to stores
* `results`: the base of all results; `methods`: what a statistical method is
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.data.importing import store_table, write_store
    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.data.methods import Method
    from evalstats_plugin.data.responses import Group, Provenance, Responses, Source
    from evalstats_plugin.data.results import Results
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.data.store import ResponseStore

__all__ = [
    "Group",
    "Method",
    "Provenance",
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
        "Provenance": "responses",
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
