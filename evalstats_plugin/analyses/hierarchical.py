"""How well does each model do, what models and tasks say of each other being taken together?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evalstats_plugin.analyses.hierarchical_data import (
    Covariates,
    EvalCounts,
    Responded,
    covariates_of,
    eval_counts,
)
from evalstats_plugin.analyses.hierarchical_engines import infer_counts
from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit
from evalstats_plugin.analyses.hierarchical_notes import extremes
from evalstats_plugin.analyses.hierarchical_options import (
    HierarchicalOptions,
    all_priors,
    check_names,
    options_of,
)
from evalstats_plugin.analyses.hierarchical_records import Prior
from evalstats_plugin.analyses.hierarchical_request import Request
from evalstats_plugin.analyses.hierarchical_rows import performance_rows
from evalstats_plugin.errors import DesignError
from evalstats_plugin.tables.hierarchical import CLOSED_FORM

FEWEST_UNITS = 3
"""Tasks of one model, or models on one task, from which on they tell of each other."""

Rng = np.random.Generator | int | None


def fit_hierarchical(  # noqa: PLR0913 - each is a choice of its own
    responses: Responded,
    model: str = "auto",
    inference: str = "auto",
    *,
    covariates: Covariates | None = None,
    confidence_level: float = 0.95,
    device: str = "auto",
    rng: Rng = None,
    options: HierarchicalOptions | Mapping[str, Any] | None = None,
) -> HierarchicalFit:
    """Estimate every model's accuracy on every task, each borrowing from the others.

    Parameters
    ----------
    responses
        Scores in [0, 1], each task under one metric. Tasks need not be of one size, and models
        need not have run all. Takes of a question are averaged, or counted where questions are
        told apart.
    model
        A name of `HIERARCHICAL_MODELS`, or ``"auto"``: ``"task"``, or ``"per-task"`` for one model
        on one or two tasks, or one task of two models.
    inference
        ``"exact"``, ``"mp"``, ``"gibbs"``, or ``"auto"``, which goes by structure: closed forms
        are exact, ``"mp"`` (massively parallel importance sampling) is for nested evals, one model
        or one task, ``"gibbs"`` for crossed ones. Where ``"mp"`` is asked for and too few particles
        count, ``"gibbs"`` takes over, with a note; ``fit.reason`` says why.
    covariates
        Of ``"models"`` and of ``"tasks"``: by covariate the number of each, such as
        ``{"models": {"log_size": {"a": 7.0, "b": 8.5}}}``. Standardised; coefficients ~ N(0, 1).
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: CUDA where there is one.
    options
        A `HierarchicalOptions` or its fields, and ``"device"`` where none is passed.

    Raises
    ------
    SelectionError
        No such model, inference, option, prior or device.
    DesignError
        No scores or scores outside [0, 1]; covariates that are missing; not enough memory.

    Examples
    --------
    >>> from evalstats_plugin.matrix import ResponseMatrix
    >>> scores = ResponseMatrix.from_array([[1, 0, 1, 1], [0, 0, 1, 0]])
    >>> for row in fit_hierarchical(scores, "per-task", rng=0):
    ...     print(row.model, row.task, f"{row.estimate:.2f} [{row.low:.2f}, {row.high:.2f}]")
    model_0 None 0.67 [0.28, 0.95]
    model_0 task 0.67 [0.28, 0.95]
    model_1 None 0.33 [0.05, 0.72]
    model_1 task 0.33 [0.05, 0.72]
    """
    if not 0 < confidence_level < 1:
        msg = f"confidence level {confidence_level} found, expected a number between 0 and 1"
        raise DesignError(msg)
    chosen, place = options_of(options)
    check_names(model, inference)
    counts = eval_counts(responses)
    found, why = _model(model, counts)
    request = Request(
        model=found,
        why=why,
        inference=inference,
        options=chosen,
        covariates=covariates_of(covariates, counts.models, counts.tasks),
        confidence_level=confidence_level,
        device=place if device == "auto" else device,
    )
    seed = rng if isinstance(rng, int) else None
    return _fitted(counts, request, np.random.default_rng(rng), seed)


def _model(name: str, counts: EvalCounts) -> tuple[str, str]:
    n, t = counts.right.shape
    if name != "auto":
        return name, "asked for"
    size = f"{n} {'model' if n == 1 else 'models'} on {t} {'task' if t == 1 else 'tasks'}"
    if max(n, t) < FEWEST_UNITS and min(n, t) == 1:
        return "per-task", f"{size} leave too little to borrow from"
    return "task", f"{size}, each of which tells of the others"


def _fitted(
    counts: EvalCounts, request: Request, rng: np.random.Generator, seed: int | None
) -> HierarchicalFit:
    found = infer_counts(counts, request, rng)
    same = {
        "metric": counts.metric,
        "confidence_level": request.confidence_level,
        "method": request.model,
    }

    def refit(priors: Mapping[str, Prior], again: int) -> HierarchicalFit:
        other = replace(request, options=replace(request.options, priors=priors))
        return _fitted(counts, other, np.random.default_rng(again), again)

    def with_model(name: str, again: int) -> HierarchicalFit:
        plain = covariates_of(None, counts.models, counts.tasks)
        kept = plain if name in CLOSED_FORM else request.covariates
        other = replace(request, model=name, inference="auto", covariates=kept)
        return _fitted(counts, other, np.random.default_rng(again), again)

    return HierarchicalFit(
        rows=tuple(performance_rows(counts, found.cells, found.overall, same)),
        notes=(*counts.notes, *extremes(counts), *found.notes),
        seed=seed,
        model=request.model,
        inference=found.inference,
        reason=f"model {request.model}: {request.why}; inference {found.inference}: {found.why}",
        counts=counts,
        posterior=found.posterior,
        diagnostics=found.diagnostics,
        confidence_level=request.confidence_level,
        priors=all_priors(request.options),
        covariates=request.covariates,
        log_evidence=found.log_evidence,
        log_evidence_error=found.log_evidence_error,
        refit=refit,
        with_model=with_model,
    )
