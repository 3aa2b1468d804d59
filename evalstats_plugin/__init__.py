"""Honest statistics on LLM eval results that a harness already logged.

Every public name is loaded on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalstats_plugin.analyses.compare import compare as compare
    from evalstats_plugin.analyses.intervals import intervals as intervals
    from evalstats_plugin.analyses.rank import rank_sets as rank_sets
    from evalstats_plugin.annotations import annotate as annotate
    from evalstats_plugin.annotations import annotate_results as annotate_results
    from evalstats_plugin.annotations import strip as strip
    from evalstats_plugin.hookspecs import hookimpl as hookimpl
    from evalstats_plugin.logs import read as read
    from evalstats_plugin.matrix import ResponseMatrix as ResponseMatrix
    from evalstats_plugin.methods import Method as Method
    from evalstats_plugin.response_set import ResponseSet as ResponseSet
    from evalstats_plugin.responses import Group as Group
    from evalstats_plugin.responses import Responses as Responses
    from evalstats_plugin.responses import Source as Source
    from evalstats_plugin.results import Comparison as Comparison
    from evalstats_plugin.results import ScoreInterval as ScoreInterval

__version__ = "0.1.0"

_HOME = {
    "Comparison": "results",
    "Group": "responses",
    "Method": "methods",
    "ResponseMatrix": "matrix",
    "ResponseSet": "response_set",
    "Responses": "responses",
    "ScoreInterval": "results",
    "Source": "responses",
    "annotate": "annotations",
    "annotate_results": "annotations",
    "compare": "analyses.compare",
    "hookimpl": "hookspecs",
    "intervals": "analyses.intervals",
    "rank_sets": "analyses.rank",
    "read": "logs",
    "strip": "annotations",
}

__all__ = [
    "Comparison",
    "Group",
    "Method",
    "ResponseMatrix",
    "ResponseSet",
    "Responses",
    "ScoreInterval",
    "Source",
    "__version__",
    "annotate",
    "annotate_results",
    "compare",
    "hookimpl",
    "intervals",
    "rank_sets",
    "read",
    "strip",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
