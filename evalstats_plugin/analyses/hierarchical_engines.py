"""Which engine infers a hierarchical model of these counts, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evalstats_plugin.analyses.hierarchical_data import EvalCounts
from evalstats_plugin.analyses.hierarchical_notes import agreement, worth
from evalstats_plugin.analyses.hierarchical_particles import by_particles, try_particles
from evalstats_plugin.analyses.hierarchical_request import (
    Inferred,
    Request,
    counted,
    crossed_model_for,
    need_torch,
    spreads,
)
from evalstats_plugin.analyses.hierarchical_rows import Spread, spread
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.stats.interval import tail_probability
from evalstats_plugin.tables.hierarchical import BY_QUESTION, CLOSED_FORM

_WHY: Mapping[str, str] = {
    "exact": "every share has its own Beta posterior",
    "mp": "nested, not crossed, every score hanging on one effect of its own",
    "gibbs": "models and tasks are crossed, so that every cell hangs on every other",
    "questions": "questions are told apart, which particles are not made for here",
    "asked": "asked for",
    "enough": "asked for, and enough particles count",
}


def infer_counts(counts: EvalCounts, request: Request, rng: np.random.Generator) -> Inferred:
    """Choose the engine by the structure of the model and the counts, and run it.

    Raises
    ------
    SelectionError
        The engine that is asked for does not fit the model.
    DesignError
        Covariates that the model does not know; torch is not installed; not enough memory.
    """
    if request.model in CLOSED_FORM:
        if request.inference not in ("auto", "exact"):
            raise SelectionError(_does_not_fit(request, "exact"))
        return _exact(counts, request, rng)
    if request.inference == "exact":
        raise SelectionError(_does_not_fit(request, "gibbs"))
    narrow = min(counts.right.shape) == 1
    nested = narrow and request.model not in BY_QUESTION
    wanted = request.inference if request.inference != "auto" else ("mp" if nested else "gibbs")
    why = _WHY["asked" if nested else "questions" if narrow else "gibbs"]
    if wanted == "gibbs" or (narrow and not nested):
        return _by_gibbs(counts, request, rng, (why, ()))
    tried = try_particles(counts, request, rng, nested=nested)
    if tried.found is None:
        return _by_gibbs(counts, request, rng, ("particles do not do", tried.notes))
    why = _WHY["mp" if nested else "enough"]
    return by_particles(counts, request, tried.found, why)


def _does_not_fit(request: Request, fits: str) -> str:
    return (
        f"inference {request.inference!r} does not fit model {request.model!r}: choose {fits!r} or "
        "'auto'"
    )


def _exact(counts: EvalCounts, request: Request, rng: np.random.Generator) -> Inferred:
    """The posterior of each share; the mean of several shares by independent draws."""
    from evalstats_plugin.hierarchical import beta_binomial

    if any(x.names for x in request.covariates.values()):
        msg = f"model {request.model!r} takes no covariates: choose 'task' or 'across-task'"
        raise DesignError(msg)
    pooled = request.model == "beta-binomial"
    found = beta_binomial.shares(counts.right, counts.trials, pooled=pooled)
    size = (request.options.chains, request.options.draws)
    posterior = beta_binomial.draw(found, counts.right, counts.trials, size, rng)
    tail = tail_probability(request.confidence_level)
    limits = (found.quantile(tail), found.quantile(1 - tail))
    error = np.sqrt(found.mean * (1 - found.mean) / (found.a + found.b + 1))
    cells = Spread(found.mean, *limits, error)
    if pooled or len(counts.tasks) == 1:
        overall = Spread(*(x[:, 0] for x in cells))
    else:
        drawn = spread(posterior.overall, request.confidence_level)
        own = np.sqrt((cells.std_error**2).sum(axis=1)) / len(counts.tasks)
        overall = Spread(cells.mean.mean(axis=1), drawn.low, drawn.high, own)
    return Inferred(
        inference="exact",
        why=_WHY["exact"],
        posterior=posterior,
        cells=cells,
        overall=overall,
        diagnostics={"draws": int(np.prod(posterior.accuracy.shape[:2]))},
        log_evidence=beta_binomial.log_evidence(found, counts.right, counts.trials),
        log_evidence_error=0.0,
    )


def _by_gibbs(
    counts: EvalCounts,
    request: Request,
    rng: np.random.Generator,
    said: tuple[str, tuple[str, ...]],
) -> Inferred:
    need_torch()
    from evalstats_plugin.hierarchical import crossed_fit, models

    options = request.options
    given = counted(counts, request, by_question=request.model in BY_QUESTION)
    length = crossed_fit.Length(chains=options.chains, draws=options.draws, warm_up=options.warm_up)
    posterior = models.fit_model(given, crossed_model_for(request), rng, length, request.device)
    diagnostics, notes = agreement(posterior, options)
    cells, overall = spreads(posterior, request)
    return Inferred(
        inference="gibbs",
        why=said[0],
        posterior=posterior,
        cells=cells,
        overall=overall,
        diagnostics=diagnostics,
        notes=(*said[1], *notes, *worth(counts, cells, request.confidence_level)),
    )
