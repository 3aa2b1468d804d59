"""What to know of a hierarchical fit before it is trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.analyses.hierarchical_data import EvalCounts
from evalstats_plugin.analyses.hierarchical_options import HierarchicalOptions
from evalstats_plugin.analyses.hierarchical_rows import Spread
from evalstats_plugin.stats.interval import FloatArray, tail_probability

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.plated_fit import PlatedFit
    from evalstats_plugin.hierarchical.posterior import Posterior

AS_GOOD = 0.95
"""Median width of pooled intervals over unpooled ones, from which on pooling buys nothing."""

FEW_COUNT = 0.2
"""Share of effective particles below which heavy tails of their weights are told."""

CHECKED = 500
"""Cells, evenly chosen, whose chains are compared; parameters and models are all."""


def agreement(
    posterior: Posterior, options: HierarchicalOptions
) -> tuple[dict[str, Any], list[str]]:
    """R-hat and effective draws of all that is reported, and what to do where they are poor."""
    from evalstats_plugin.sampling.convergence import UNLIKE, convergence

    cells = posterior.accuracy.reshape(*posterior.accuracy.shape[:2], -1)
    step = -(-cells.shape[2] // CHECKED)
    watched = {**posterior.parameters, "overall": posterior.overall, "accuracy": cells[..., ::step]}
    found = {name: convergence(_halves(values)) for name, values in watched.items()}
    r_hat = {name: float(np.max(x.r_hat)) for name, x in found.items()}
    ess = {name: float(np.min(x.ess)) for name, x in found.items()}
    worst, least = max(r_hat.values()), min(ess.values())
    notes: list[str] = []
    wanted = 100 * options.chains
    if not worst <= UNLIKE or not least >= wanted:
        apart, slow = max(r_hat, key=r_hat.__getitem__), min(ess, key=ess.__getitem__)
        notes.append(
            f"too few draws: R-hat {worst:.3f} of {apart} (at most {UNLIKE} expected), "
            f"{least:.0f} effective draws of {slow} (at least {wanted} expected): take more"
        )
    diagnostics: dict[str, Any] = {
        "chains": options.chains,
        "draws": options.draws,
        "warm_up": options.warm_up,
        "kept": int(posterior.accuracy.shape[1]),
        "worst_r_hat": worst,
        "least_ess": least,
        "r_hat": r_hat,
        "ess": ess,
    }
    return diagnostics, notes


def _halves(draws: FloatArray) -> FloatArray:
    """Compare one chain with itself: its halves in place of chains."""
    if len(draws) > 1:
        return draws
    half = draws.shape[1] // 2
    return np.stack([draws[0, :half], draws[0, half : 2 * half]])


def effort(
    plated: PlatedFit, posterior: Posterior, particles: int
) -> tuple[dict[str, Any], list[str]]:
    """Effective particles and the tails of their weights, and what to do where they are poor."""
    from evalstats_plugin.hierarchical.pareto import UNRELIABLE

    ess = {group: float(values.min()) for group, values in plated.ess.items()}
    worst = max(float(np.nanmax(values)) for values in plated.k_hat.values())
    least, notes = min(ess.values()), list[str]()
    if worst > UNRELIABLE and least < FEW_COUNT * particles:
        notes.append(
            f"weights of particles have heavy tails (Pareto k {worst:.2f}, at most {UNRELIABLE} "
            f"expected; {least:.0f} of {particles} particles count): estimates may be a little "
            "off, inference 'gibbs' has no such limit"
        )
    diagnostics: dict[str, Any] = {
        "draws": int(np.prod(posterior.accuracy.shape[:2])),
        "particles": particles,
        "least_ess": least,
        "ess": ess,
        # All weights alike have no tail.
        "worst_pareto_k": worst if np.isfinite(worst) else None,
        "log_evidence": plated.log_evidence,
        "log_evidence_error": plated.log_evidence_error,
        "iterations": len(plated.history),
    }
    return diagnostics, notes


def worth(counts: EvalCounts, cells: Spread, level: float) -> list[str]:
    """Say what pooling bought, against one Beta posterior for each cell."""
    from evalstats_plugin.hierarchical import beta_binomial

    run = counts.trials > 0
    alone = beta_binomial.shares(counts.right, counts.trials, pooled=False)
    tail = tail_probability(level)
    width = alone.quantile(1 - tail) - alone.quantile(tail)
    ratio = float(np.median(((cells.high - cells.low) / width)[run]))
    if ratio < AS_GOOD:
        return [f"pooling makes intervals of tasks {1 - ratio:.0%} narrower (median)"]
    return [
        f"pooling leaves intervals of tasks as wide as without ({ratio:.0%}, median): use model "
        "'per-task', which is simpler and says the same"
    ]


def extremes(counts: EvalCounts) -> list[str]:
    """Say where nothing but the prior bounds an effect."""
    right, trials = counts.right.sum(axis=0), counts.trials.sum(axis=0)
    flat = int(((right == 0) | (right == trials)).sum())
    own = counts.right.sum(axis=1), counts.trials.sum(axis=1)
    models = int(((own[0] == 0) | (own[0] == own[1])).sum())
    said = [(flat, "task"), (models, "model")]
    return [
        f"{_counted(count, what)} all right or all wrong: how far from the others rests on the "
        "prior"
        for count, what in said
        if count
    ]


def _counted(count: int, what: str) -> str:
    return f"1 {what} is" if count == 1 else f"{count} {what}s are"
