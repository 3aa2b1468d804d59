"""A fitted hierarchical model, and the questions that it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.analyses import hierarchical_checks as checks
from evalstats_plugin.analyses import hierarchical_rows as rows_of
from evalstats_plugin.analyses.hierarchical_data import EvalCounts, Standardised
from evalstats_plugin.analyses.hierarchical_evidence import evidence_rows
from evalstats_plugin.analyses.hierarchical_records import (
    Check,
    Contrast,
    Effect,
    Elpd,
    Evidence,
    Performance,
    Prior,
    PriorChange,
    TaskDifficulty,
)
from evalstats_plugin.results import Results

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.posterior import Posterior


@dataclass(frozen=True, kw_only=True)
class HierarchicalFit(Results[Performance]):
    """Rows of each model on each task and over all, the best first, and what goes with them.

    Accuracy is the expected share of right answers: on all questions like those of a task, and,
    over tasks, the mean over the tasks of the fit.
    """

    model: str
    """A name of `HIERARCHICAL_MODELS`."""
    inference: str
    """A name of `INFERENCES`."""
    reason: str
    """Why this model and this engine."""
    counts: EvalCounts
    posterior: Posterior
    diagnostics: Mapping[str, Any]
    """R-hat, effective number of draws, length; plain numbers, ready for JSON."""
    confidence_level: float
    priors: Mapping[str, Prior]
    """Of standard deviations; ``"default"`` of those not named."""
    covariates: Mapping[str, Standardised]
    log_evidence: float | None
    """Log probability of the answers under the model, where the engine knows it."""
    log_evidence_error: float | None
    """Its standard error."""
    refit: Callable[[Mapping[str, Prior], int], HierarchicalFit]
    """Fit the same data with other priors, given the seed."""
    with_model: Callable[[str, int], HierarchicalFit]
    """Fit another model to the same data, given its name and the seed."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names, in the order of axes."""
        return self.counts.models

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names, in the order of axes."""
        return self.counts.tasks

    def difficulties(self) -> Results[TaskDifficulty]:
        """Return the tasks, the hardest first; empty for models that know no difficulty."""
        return Results(tuple(rows_of.difficulty_rows(self)), self.notes, self.seed)

    def contrasts(
        self, *, baseline: str | None = None, task: str | None = None
    ) -> Results[Contrast]:
        """Compare every two models, or all with a baseline, over all tasks or on one.

        Raises
        ------
        SelectionError
            No model, or no task, has the name.
        """
        found = rows_of.contrast_rows(self, baseline, task)
        return Results(tuple(found), self.notes, self.seed)

    def effects(self) -> Results[Effect]:
        """Return what covariates of models and tasks do."""
        return Results(tuple(rows_of.effect_rows(self)), self.notes, self.seed)

    def predict_task(
        self, covariates: Mapping[str, float] | None = None, *, rng: int = 0
    ) -> Results[Performance]:
        """Predict each model's accuracy on a task that is not in the fit, drawn as these were.

        Parameters
        ----------
        covariates
            Of the task, where the fit has some.

        Raises
        ------
        DesignError
            The model knows no other tasks, or a covariate is missing.
        """
        found = rows_of.prediction_rows(self, covariates or {}, np.random.default_rng(rng))
        return Results(tuple(found), (), rng)

    def check(self, *, prior: bool = False, rng: int = 0) -> Results[Check]:
        """Compare the data with data drawn from the posterior, or from the prior."""
        return Results(tuple(checks.predictive(self, np.random.default_rng(rng), prior=prior)))

    def loo(self) -> Elpd:
        """Predict each cell, a model's answers to one task, from all others [VGG17]_.

        Exact in closed form; otherwise by Pareto-smoothed importance sampling.
        """
        return checks.expected_density(self, "loo")

    def waic(self) -> Elpd:
        """Estimate the same by the widely applicable information criterion [Wat10]_."""
        return checks.expected_density(self, "waic")

    def evidence(self, *, rng: int = 0) -> Results[Evidence]:
        """Compare models by how probable they make these answers, the best first.

        For one model, or one task: of crossed evals no engine gives the evidence.

        Raises
        ------
        DesignError
            Several models on several tasks: compare by `loo`.
        """
        return Results(tuple(evidence_rows(self, rng)), (), rng)

    def prior_sensitivity(
        self, priors: Mapping[str, Prior] | None = None, *, rng: int = 0
    ) -> Results[PriorChange]:
        """Say what other priors of the standard deviations would change.

        Draws are reweighted; where too few of them carry the weight, the model is fitted again.

        Parameters
        ----------
        priors
            By any name, each for all standard deviations; by default half as wide and twice as
            wide as Gamma(2, 2), and half-normal.
        """
        return Results(tuple(checks.prior_changes(self, priors, rng)), (), rng)

    def to_arviz(self) -> Any:
        """Return ArviZ's InferenceData: posterior, log likelihood, predictions and data."""
        return checks.inference_data(self)

    def summary(self) -> dict[str, Any]:
        """What was fitted and how, in plain values."""
        return {
            "model": self.model,
            "inference": self.inference,
            "reason": self.reason,
            "priors": {name: list(prior) for name, prior in self.priors.items()},
            "log_evidence": self.log_evidence,
            "diagnostics": dict(self.diagnostics),
        }
