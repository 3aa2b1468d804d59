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

from typing import TYPE_CHECKING

from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin import (
        adaptive,
        comparisons,
        data,
        hierarchical,
        irt,
        logs,
        ranking,
        report,
        scores,
    )
    from evalstats_plugin.adaptive.calibrate import adaptive_session, item_bank
    from evalstats_plugin.comparisons.compare import compare
    from evalstats_plugin.comparisons.power import power
    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.data.methods import Method
    from evalstats_plugin.data.responses import Group, Responses, Source
    from evalstats_plugin.data.results import Results
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.data.store import ResponseStore
    from evalstats_plugin.hierarchical.fitting import fit_hierarchical
    from evalstats_plugin.hookspecs import hookimpl
    from evalstats_plugin.irt.fitting import fit_irt
    from evalstats_plugin.irt.scoring import score_models
    from evalstats_plugin.logs.annotating import annotate, strip
    from evalstats_plugin.logs.exporting import export
    from evalstats_plugin.logs.reading import read, read_contests
    from evalstats_plugin.ranking.rank import rank
    from evalstats_plugin.runtime.workers import workers
    from evalstats_plugin.scores.intervals import intervals

__version__ = VERSION
__all__ = [
    "Group",
    "Method",
    "ResponseMatrix",
    "ResponseSet",
    "ResponseStore",
    "Responses",
    "Results",
    "Source",
    "__version__",
    "adaptive",
    "adaptive_session",
    "annotate",
    "compare",
    "comparisons",
    "data",
    "export",
    "fit_hierarchical",
    "fit_irt",
    "hierarchical",
    "hookimpl",
    "intervals",
    "irt",
    "item_bank",
    "logs",
    "power",
    "rank",
    "ranking",
    "read",
    "read_contests",
    "report",
    "score_models",
    "scores",
    "strip",
    "workers",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "Group": "data.responses",
        "Method": "data.methods",
        "ResponseMatrix": "data.matrix",
        "ResponseSet": "data.runs",
        "ResponseStore": "data.store",
        "Responses": "data.responses",
        "Results": "data.results",
        "Source": "data.responses",
        "adaptive": "",
        "adaptive_session": "adaptive.calibrate",
        "annotate": "logs.annotating",
        "compare": "comparisons.compare",
        "comparisons": "",
        "data": "",
        "export": "logs.exporting",
        "fit_hierarchical": "hierarchical.fitting",
        "fit_irt": "irt.fitting",
        "hierarchical": "",
        "hookimpl": "hookspecs",
        "intervals": "scores.intervals",
        "irt": "",
        "item_bank": "adaptive.calibrate",
        "logs": "",
        "power": "comparisons.power",
        "rank": "ranking.rank",
        "ranking": "",
        "read": "logs.reading",
        "read_contests": "logs.reading",
        "report": "",
        "score_models": "irt.scoring",
        "scores": "",
        "strip": "logs.annotating",
        "workers": "runtime.workers",
    },
)
