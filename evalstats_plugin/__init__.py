"""Honest statistics on LLM eval results that a harness already logged.

Every public name is loaded on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalstats_plugin.analyses.abilities import fit_irt as fit_irt
    from evalstats_plugin.analyses.abilities import score_models as score_models
    from evalstats_plugin.analyses.compare import compare as compare
    from evalstats_plugin.analyses.epochs import at_k as at_k
    from evalstats_plugin.analyses.epochs import variance_parts as variance_parts
    from evalstats_plugin.analyses.hierarchical import fit_hierarchical as fit_hierarchical
    from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit as HierarchicalFit
    from evalstats_plugin.analyses.intervals import intervals as intervals
    from evalstats_plugin.analyses.power import PowerAssumptions as PowerAssumptions
    from evalstats_plugin.analyses.power import PowerDesign as PowerDesign
    from evalstats_plugin.analyses.power import power as power
    from evalstats_plugin.analyses.rank import rank_sets as rank_sets
    from evalstats_plugin.analyses.ranking import rank as rank
    from evalstats_plugin.analyses.ranking_rows import RankedPlayer as RankedPlayer
    from evalstats_plugin.analyses.ranking_rows import Ranking as Ranking
    from evalstats_plugin.annotations import annotate as annotate
    from evalstats_plugin.annotations import annotate_results as annotate_results
    from evalstats_plugin.annotations import strip as strip
    from evalstats_plugin.hierarchical.capabilities import fit_capabilities as fit_capabilities
    from evalstats_plugin.hierarchical.capabilities_fit import CapabilityFit as CapabilityFit
    from evalstats_plugin.hookspecs import hookimpl as hookimpl
    from evalstats_plugin.irt.factor_fit import FactorFit as FactorFit
    from evalstats_plugin.irt.fit import IRTFit as IRTFit
    from evalstats_plugin.logs import read as read
    from evalstats_plugin.logs import read_contests as read_contests
    from evalstats_plugin.matrix import ResponseMatrix as ResponseMatrix
    from evalstats_plugin.methods import Method as Method
    from evalstats_plugin.ranking.acquisition import next_contests as next_contests
    from evalstats_plugin.response_set import ResponseSet as ResponseSet
    from evalstats_plugin.responses import Group as Group
    from evalstats_plugin.responses import Responses as Responses
    from evalstats_plugin.responses import Source as Source
    from evalstats_plugin.results import Comparison as Comparison
    from evalstats_plugin.results import ScoreInterval as ScoreInterval

__version__ = "0.1.0"

_HOME = {
    "CapabilityFit": "hierarchical.capabilities_fit",
    "Comparison": "results",
    "FactorFit": "irt.factor_fit",
    "Group": "responses",
    "HierarchicalFit": "analyses.hierarchical_fit",
    "IRTFit": "irt.fit",
    "Method": "methods",
    "PowerAssumptions": "analyses.power",
    "PowerDesign": "analyses.power",
    "RankedPlayer": "analyses.ranking_rows",
    "Ranking": "analyses.ranking_rows",
    "ResponseMatrix": "matrix",
    "ResponseSet": "response_set",
    "Responses": "responses",
    "ScoreInterval": "results",
    "Source": "responses",
    "annotate": "annotations",
    "annotate_results": "annotations",
    "at_k": "analyses.epochs",
    "compare": "analyses.compare",
    "fit_capabilities": "hierarchical.capabilities",
    "fit_hierarchical": "analyses.hierarchical",
    "fit_irt": "analyses.abilities",
    "hookimpl": "hookspecs",
    "intervals": "analyses.intervals",
    "next_contests": "ranking.acquisition",
    "power": "analyses.power",
    "rank": "analyses.ranking",
    "rank_sets": "analyses.rank",
    "read": "logs",
    "read_contests": "logs",
    "score_models": "analyses.abilities",
    "strip": "annotations",
    "variance_parts": "analyses.epochs",
}

__all__ = [
    "CapabilityFit",
    "Comparison",
    "FactorFit",
    "Group",
    "HierarchicalFit",
    "IRTFit",
    "Method",
    "PowerAssumptions",
    "PowerDesign",
    "RankedPlayer",
    "Ranking",
    "ResponseMatrix",
    "ResponseSet",
    "Responses",
    "ScoreInterval",
    "Source",
    "__version__",
    "annotate",
    "annotate_results",
    "at_k",
    "compare",
    "fit_capabilities",
    "fit_hierarchical",
    "fit_irt",
    "hookimpl",
    "intervals",
    "next_contests",
    "power",
    "rank",
    "rank_sets",
    "read",
    "read_contests",
    "score_models",
    "strip",
    "variance_parts",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
