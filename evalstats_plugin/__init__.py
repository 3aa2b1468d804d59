"""Honest statistics on LLM eval results that a harness already logged.

Every public name is loaded on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.bank import ItemBank as ItemBank
    from evalstats_plugin.analyses.abilities import fit_irt as fit_irt
    from evalstats_plugin.analyses.abilities import score_models as score_models
    from evalstats_plugin.analyses.adaptive import adaptive_session as adaptive_session
    from evalstats_plugin.analyses.adaptive import item_bank as item_bank
    from evalstats_plugin.analyses.compare import compare as compare
    from evalstats_plugin.analyses.epochs import at_k as at_k
    from evalstats_plugin.analyses.epochs import variance_parts as variance_parts
    from evalstats_plugin.analyses.hierarchical import fit_hierarchical as fit_hierarchical
    from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit as HierarchicalFit
    from evalstats_plugin.analyses.intervals import intervals as intervals
    from evalstats_plugin.analyses.power import PowerAssumptions as PowerAssumptions
    from evalstats_plugin.analyses.power import PowerDesign as PowerDesign
    from evalstats_plugin.analyses.power import power as power
    from evalstats_plugin.analyses.power_curve import power_curve as power_curve
    from evalstats_plugin.analyses.rank import rank_sets as rank_sets
    from evalstats_plugin.analyses.ranking import rank as rank
    from evalstats_plugin.analyses.ranking_rows import RankedPlayer as RankedPlayer
    from evalstats_plugin.analyses.ranking_rows import Ranking as Ranking
    from evalstats_plugin.annotations import annotate as annotate
    from evalstats_plugin.annotations import annotate_results as annotate_results
    from evalstats_plugin.annotations import strip as strip
    from evalstats_plugin.contest_logs import read_contests as read_contests
    from evalstats_plugin.engines import workers as workers
    from evalstats_plugin.exports import export as export
    from evalstats_plugin.hierarchical.capabilities import fit_capabilities as fit_capabilities
    from evalstats_plugin.hierarchical.capabilities_fit import CapabilityFit as CapabilityFit
    from evalstats_plugin.hookspecs import hookimpl as hookimpl
    from evalstats_plugin.irt.factor_fit import FactorFit as FactorFit
    from evalstats_plugin.irt.fit import IRTFit as IRTFit
    from evalstats_plugin.logs import read as read
    from evalstats_plugin.matrix import ResponseMatrix as ResponseMatrix
    from evalstats_plugin.methods import Method as Method
    from evalstats_plugin.ranking.acquisition import next_contests as next_contests
    from evalstats_plugin.report.figures.adaptive import plot_accuracy as plot_accuracy
    from evalstats_plugin.report.figures.adaptive import plot_trace as plot_trace
    from evalstats_plugin.report.figures.coverage import plot_coverage as plot_coverage
    from evalstats_plugin.report.figures.differences import plot_differences as plot_differences
    from evalstats_plugin.report.figures.forest import plot_forest as plot_forest
    from evalstats_plugin.report.figures.item_curves import plot_information as plot_information
    from evalstats_plugin.report.figures.item_curves import plot_item_curves as plot_item_curves
    from evalstats_plugin.report.figures.item_fit import plot_item_fit as plot_item_fit
    from evalstats_plugin.report.figures.matrix import (
        plot_comparison_matrix as plot_comparison_matrix,
    )
    from evalstats_plugin.report.figures.power import plot_power as plot_power
    from evalstats_plugin.report.figures.ranks import plot_ranks as plot_ranks
    from evalstats_plugin.report.figures.shrinkage import plot_shrinkage as plot_shrinkage
    from evalstats_plugin.report.figures.variance import plot_variance_parts as plot_variance_parts
    from evalstats_plugin.report.figures.wright import plot_wright_map as plot_wright_map
    from evalstats_plugin.response_set import ResponseSet as ResponseSet
    from evalstats_plugin.response_store import ResponseStore as ResponseStore
    from evalstats_plugin.responses import Group as Group
    from evalstats_plugin.responses import Responses as Responses
    from evalstats_plugin.responses import Source as Source
    from evalstats_plugin.results import Comparison as Comparison
    from evalstats_plugin.results import ScoreInterval as ScoreInterval
    from evalstats_plugin.store_importing import store_table as store_table
    from evalstats_plugin.store_writing import write_store as write_store

__version__ = "0.1.0"

_HOME = {
    "CapabilityFit": "hierarchical.capabilities_fit",
    "Comparison": "results",
    "FactorFit": "irt.factor_fit",
    "Group": "responses",
    "HierarchicalFit": "analyses.hierarchical_fit",
    "IRTFit": "irt.fit",
    "ItemBank": "adaptive.bank",
    "Method": "methods",
    "PowerAssumptions": "analyses.power",
    "PowerDesign": "analyses.power",
    "RankedPlayer": "analyses.ranking_rows",
    "Ranking": "analyses.ranking_rows",
    "ResponseMatrix": "matrix",
    "ResponseSet": "response_set",
    "ResponseStore": "response_store",
    "Responses": "responses",
    "ScoreInterval": "results",
    "Source": "responses",
    "adaptive_session": "analyses.adaptive",
    "annotate": "annotations",
    "annotate_results": "annotations",
    "at_k": "analyses.epochs",
    "compare": "analyses.compare",
    "export": "exports",
    "fit_capabilities": "hierarchical.capabilities",
    "fit_hierarchical": "analyses.hierarchical",
    "fit_irt": "analyses.abilities",
    "hookimpl": "hookspecs",
    "intervals": "analyses.intervals",
    "item_bank": "analyses.adaptive",
    "next_contests": "ranking.acquisition",
    "plot_accuracy": "report.figures.adaptive",
    "plot_comparison_matrix": "report.figures.matrix",
    "plot_coverage": "report.figures.coverage",
    "plot_differences": "report.figures.differences",
    "plot_forest": "report.figures.forest",
    "plot_information": "report.figures.item_curves",
    "plot_item_curves": "report.figures.item_curves",
    "plot_item_fit": "report.figures.item_fit",
    "plot_power": "report.figures.power",
    "plot_ranks": "report.figures.ranks",
    "plot_shrinkage": "report.figures.shrinkage",
    "plot_trace": "report.figures.adaptive",
    "plot_variance_parts": "report.figures.variance",
    "plot_wright_map": "report.figures.wright",
    "power": "analyses.power",
    "power_curve": "analyses.power_curve",
    "rank": "analyses.ranking",
    "rank_sets": "analyses.rank",
    "read": "logs",
    "read_contests": "contest_logs",
    "score_models": "analyses.abilities",
    "store_table": "store_importing",
    "strip": "annotations",
    "variance_parts": "analyses.epochs",
    "workers": "engines",
    "write_store": "store_writing",
}

__all__ = [
    "CapabilityFit",
    "Comparison",
    "FactorFit",
    "Group",
    "HierarchicalFit",
    "IRTFit",
    "ItemBank",
    "Method",
    "PowerAssumptions",
    "PowerDesign",
    "RankedPlayer",
    "Ranking",
    "ResponseMatrix",
    "ResponseSet",
    "ResponseStore",
    "Responses",
    "ScoreInterval",
    "Source",
    "__version__",
    "adaptive_session",
    "annotate",
    "annotate_results",
    "at_k",
    "compare",
    "export",
    "fit_capabilities",
    "fit_hierarchical",
    "fit_irt",
    "hookimpl",
    "intervals",
    "item_bank",
    "next_contests",
    "plot_accuracy",
    "plot_comparison_matrix",
    "plot_coverage",
    "plot_differences",
    "plot_forest",
    "plot_information",
    "plot_item_curves",
    "plot_item_fit",
    "plot_power",
    "plot_ranks",
    "plot_shrinkage",
    "plot_trace",
    "plot_variance_parts",
    "plot_wright_map",
    "power",
    "power_curve",
    "rank",
    "rank_sets",
    "read",
    "read_contests",
    "score_models",
    "store_table",
    "strip",
    "variance_parts",
    "workers",
    "write_store",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
