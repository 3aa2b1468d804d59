"""What is asked of a hierarchical fit, what an engine answers, and what all engines need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.analyses.hierarchical_data import EvalCounts, Standardised
from evalstats_plugin.analyses.hierarchical_options import HierarchicalOptions, all_priors
from evalstats_plugin.analyses.hierarchical_rows import Spread, spread
from evalstats_plugin.errors import DesignError

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.crossed import CrossedModel
    from evalstats_plugin.hierarchical.models import Counts
    from evalstats_plugin.hierarchical.posterior import Posterior


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for, checked."""

    model: str
    """A name of `HIERARCHICAL_MODELS`."""
    why: str
    """This model."""
    inference: str
    """A name of `INFERENCES`, or ``"auto"``."""
    options: HierarchicalOptions
    covariates: Mapping[str, Standardised]
    confidence_level: float
    device: str


@dataclass(frozen=True, kw_only=True)
class Inferred:
    """What an engine found."""

    inference: str
    why: str
    """This engine."""
    posterior: Posterior
    cells: Spread
    overall: Spread
    diagnostics: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    log_evidence: float | None = None
    log_evidence_error: float | None = None


def spreads(posterior: Posterior, request: Request) -> tuple[Spread, Spread]:
    """Sum up accuracies of cells, and over tasks."""
    level = request.confidence_level
    return spread(posterior.accuracy, level), spread(posterior.overall, level)


def need_torch() -> None:
    """Raise where torch is not installed."""
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        msg = "hierarchical models need torch: pip install 'evalstats-plugin[hierarchical]'"
        raise DesignError(msg) from error


def crossed_model_for(request: Request) -> CrossedModel:
    """Return the effects of the model, with the priors asked for."""
    from evalstats_plugin.hierarchical.models import crossed_model_of

    return crossed_model_of(request.model, all_priors(request.options))


def counted(counts: EvalCounts, request: Request, *, by_question: bool) -> Counts:
    """Return the counts and covariates as models take them."""
    from evalstats_plugin.hierarchical.models import Counts

    return Counts(
        counts.question_right if by_question else counts.right,
        counts.question_trials if by_question else counts.trials,
        counts.task if by_question else np.arange(len(counts.tasks)),
        request.covariates["models"].values,
        request.covariates["tasks"].values,
    )
