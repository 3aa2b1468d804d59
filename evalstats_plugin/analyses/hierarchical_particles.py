"""Massively parallel inference where it does, and word of where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evalstats_plugin.analyses.hierarchical_data import EvalCounts
from evalstats_plugin.analyses.hierarchical_notes import effort, worth
from evalstats_plugin.analyses.hierarchical_request import (
    Inferred,
    Request,
    counted,
    crossed_model_for,
    need_torch,
    spreads,
)
from evalstats_plugin.tables.hierarchical import BY_QUESTION

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.crossed_particles import Trial
    from evalstats_plugin.hierarchical.nested_fit import ParticleFit

HEAVIEST, CARRIED = 1.0, 0.05
"""Pareto k above which weights have no mean [VSG24]_, and the share of effective particles below
which such tails are what carries the weight. Where nearly all particles count, tails are long but
thin, and estimates agree with sums over a grid and with Gibbs sampling."""
FEWEST = 10.0
"""Particles that must count, in every group, for massively parallel inference to be relied on."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Whether particles do, what was found if they do, and what to say if not."""

    found: ParticleFit | None
    notes: tuple[str, ...] = ()


def try_particles(
    counts: EvalCounts, request: Request, rng: np.random.Generator, *, nested: bool
) -> Tried:
    """Run massively parallel inference; crossed evals are tried on a part first."""
    need_torch()
    from evalstats_plugin.hierarchical import crossed_particles, nested_fit

    given, structure = counted(counts, request, by_question=False), crossed_model_for(request)
    size = (request.options.chains, request.options.draws)
    if nested:
        found = nested_fit.fit_nested(given, structure, rng, size, request.device)
        return _enough(found)
    trial = crossed_particles.try_particles(given, structure, rng, request.device)
    n, t = counts.right.shape
    said = (
        f"massively parallel inference was tried on {trial.n_models} of {n} models × "
        f"{trial.n_tasks} of {t} tasks: {trial.ess:.1f} effective particles of {trial.group}"
    )
    if trial.ess < FEWEST:
        return Tried(found=None, notes=(
            f"{said}, at least {FEWEST:g} expected, as everywhere where models and tasks are "
            "crossed: Gibbs sampling instead",))  # fmt: skip
    why = _unfit(request, trial)
    if why:
        return Tried(found=None, notes=(f"{said}, but {why}: Gibbs sampling instead",))
    return _enough(crossed_particles.fit_crossed(given, structure, rng, size, request.device))


def _enough(found: ParticleFit) -> Tried:
    ess = {group: float(values.min()) for group, values in found.plated.ess.items()}
    tails = {group: float(np.nanmax(values)) for group, values in found.plated.k_hat.items()}
    few, heavy = min(ess, key=ess.__getitem__), max(tails, key=tails.__getitem__)
    if ess[few] < FEWEST:
        what = f"left {ess[few]:.1f} effective particles of {few}, at least {FEWEST:g} expected"
    elif tails[heavy] > HEAVIEST and ess[few] < CARRIED * found.particles:
        what = (
            f"left weights without a mean (Pareto k {tails[heavy]:.2f} of {heavy}, at most "
            f"{HEAVIEST:g} expected) and {ess[few]:.0f} effective particles of {found.particles}"
        )
    else:
        return Tried(found=found)
    return Tried(
        found=None, notes=(f"massively parallel inference {what}: Gibbs sampling instead",)
    )


def _unfit(request: Request, trial: Trial) -> str:
    """Say why particles do not do for all, though they did in the trial."""
    if request.model in BY_QUESTION:
        return "questions are told apart"
    if any(x.names for x in request.covariates.values()):
        return "there are covariates"
    return "" if trial.whole else "all models and tasks are too many"


def by_particles(counts: EvalCounts, request: Request, found: ParticleFit, why: str) -> Inferred:
    """Put what particles found into the form of all engines."""
    diagnostics, notes = effort(found.plated, found.posterior, found.particles)
    cells, overall = spreads(found.posterior, request)
    return Inferred(
        inference="mp",
        why=why,
        posterior=found.posterior,
        cells=cells,
        overall=overall,
        diagnostics=diagnostics,
        notes=(*notes, *worth(counts, cells, request.confidence_level)),
        log_evidence=found.plated.log_evidence,
        log_evidence_error=found.plated.log_evidence_error,
    )
