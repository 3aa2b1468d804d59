"""How the Thurstone posterior is found: exact draws, Markov chains, or a normal like it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.albert_chib import Chains, Options, gibbs, start_around
from evalstats_plugin.ranking.contests import Contests, FloatArray
from evalstats_plugin.ranking.expectation_propagation import Posterior, expectation_propagation
from evalstats_plugin.ranking.skew_normal import SkewNormal
from evalstats_plugin.ranking.split_hamiltonian import Around, split_hamiltonian
from evalstats_plugin.ranking.thurstone_design import Prior, Sites, Ties, answers_of, cholesky
from evalstats_plugin.ranking.thurstone_laplace import laplace
from evalstats_plugin.ranking.thurstone_tie import Threshold, most_evident_tie
from evalstats_plugin.sampling.convergence import UNLIKE, convergence

DRAWS = 4000
"""Draws from the posterior, where it is drawn from."""
MOST_EXACT = 1000
"""Answers up to which exact draws are tried when asked for."""
_CHAINS = 8
# Of log δ, in which a slope is taken.
_STEP = 0.05
_RESIDUAL = 1e-9


class Problem(NamedTuple):
    """What is to be fitted."""

    contests: Contests
    prior: Prior
    sites: Sites
    ties: Ties
    size: int | None
    """Draws asked for."""
    rng: np.random.Generator


class Fitted(NamedTuple):
    """Posterior of P parameters: n ratings, and the advantage of place where that is told."""

    mean: FloatArray
    covariance: FloatArray
    tie: Threshold
    draws: FloatArray | None
    diagnostics: dict[str, Any]
    notes: tuple[str, ...] = ()


def by_laplace(problem: Problem) -> Fitted:
    """Normal of the posterior's curvature at its mode."""
    tie = most_evident_tie(problem.sites, problem.prior, "laplace")
    mode = laplace(problem.sites, problem.prior, tie.value)
    told = {"iterations": mode.iterations, "converged": mode.converged}
    told |= {"log_evidence": mode.log_evidence}
    draws = _normal(problem, mode.mean, mode.covariance)
    notes = () if mode.converged else ("the mode was not found: ratings are where it stopped",)
    return Fitted(mode.mean, mode.covariance, tie, draws, told, notes)


def by_ep(problem: Problem) -> Fitted:
    """Normal of matched moments."""
    tie, found = _approximation(problem)
    converged = found.residual < _RESIDUAL
    told = {"iterations": found.sweeps, "converged": converged, "residual": found.residual}
    told |= {"log_evidence": found.log_evidence}
    draws = _normal(problem, found.mean, found.covariance)
    notes = () if converged else (f"moments match to {found.residual:.1g} only",)
    return Fitted(found.mean, found.covariance, tie, draws, told, notes)


def _approximation(problem: Problem) -> tuple[Threshold, Posterior]:
    sites, prior = problem.sites, problem.prior
    tie = most_evident_tie(sites, prior, "ep")
    start = laplace(sites, prior, tie.value).normals
    return tie, expectation_propagation(sites, prior, tie.value, start, tolerance=_RESIDUAL)


def _normal(problem: Problem, mean: FloatArray, covariance: FloatArray) -> FloatArray | None:
    if problem.size is None:
        return None
    noise = problem.rng.normal(size=(problem.size, len(mean)))
    return mean + noise @ cholesky(covariance).T


def by_exact_draws(problem: Problem) -> Fitted:
    """Draws of the skew-normal; moments in closed form where pairs tell nothing of each other."""
    count = problem.contests.weight.sum()
    if count > MOST_EXACT:
        msg = (
            f"{count:.0f} answers found, exact draws take {MOST_EXACT} at most: take "
            "estimator='hmc' or 'gibbs'"
        )
        raise DesignError(msg)
    tie, near = _approximation(problem)
    posterior = SkewNormal.of(answers_of(problem.contests, problem.ties), problem.prior, tie.value)
    sample = posterior.sample(problem.size or DRAWS, problem.rng)
    evidence = posterior.log_evidence(problem.rng)
    told = {
        "acceptance": sample.acceptance,
        "log_evidence": evidence.value,
        "log_evidence_std_error": evidence.std_error,
        "mean_std_error": sample.mean_std_error[: len(problem.contests.players)],
        "closed_form": problem.sites.apart(problem.prior),
        "converged": True,
    }
    mean, covariance = sample.mean, sample.covariance
    if told["closed_form"]:
        # Every site's one dimension is integrated exactly, and there is nothing else.
        mean, covariance = near.mean, near.covariance
        told |= {"log_evidence": near.log_evidence, "log_evidence_std_error": 0.0}
        told["mean_std_error"] = np.zeros(len(problem.contests.players))
    notes = ("exact given δ of the largest evidence",) if tie.value else ()
    return Fitted(mean, covariance, tie, sample.draws, told, notes)


def by_gibbs(problem: Problem) -> Fitted:
    """Chains of noisy differences and ratings in turn."""
    answers, (tie, near) = answers_of(problem.contests, problem.ties), _approximation(problem)
    start = start_around(near.mean, near.covariance, tie.value, _CHAINS, problem.rng)
    chains = gibbs(answers, problem.prior, start, problem.rng, _options(problem))
    return _from_chains(problem, near, chains)


def by_hmc(problem: Problem) -> Fitted:
    """Chains of Hamiltonian steps around the normal of matched moments."""
    tie, near = _approximation(problem)
    sites, prior = problem.sites, problem.prior
    around = Around(near.mean, near.covariance)
    if tie.value:
        # How ratings move as log δ does, by the difference of two modes.
        ends = [laplace(sites, prior, tie.value * np.exp(h)).mean for h in (-_STEP, _STEP)]
        moved = np.append((ends[1] - ends[0]) / (2 * _STEP), 1.0)
        relative = tie.std_error / tie.value if np.isfinite(tie.std_error) else 0.3
        covariance = np.pad(near.covariance, (0, 1)) + relative**2 * np.outer(moved, moved)
        around = Around(np.append(near.mean, np.log(tie.value)), covariance)
    chains = split_hamiltonian(sites, prior, around, problem.rng, _options(problem))
    return _from_chains(problem, near, chains)


def _options(problem: Problem) -> Options:
    # Enough at least that the halves of a chain can be compared.
    return Options(chains=_CHAINS, draws=max(-(-(problem.size or DRAWS) // _CHAINS), 16))


def _from_chains(problem: Problem, near: Posterior, chains: Chains) -> Fitted:
    draws = chains.draws.reshape(-1, chains.draws.shape[2])[-(problem.size or DRAWS) :]
    told: dict[str, Any] = {"log_evidence": near.log_evidence, "log_evidence_by": "ep"}
    told |= {"chains": len(chains.draws)}
    tied = bool(problem.sites.ties.any())
    everything = np.concatenate([chains.draws, chains.tie[..., None]], axis=2)
    try:
        found = convergence(everything if tied else chains.draws)
    except DesignError as error:
        notes = (f"whether chains agree was not checked: {error}",)
    else:
        told |= {"r_hat": float(found.r_hat.max()), "ess": float(found.ess.min())}
        told["converged"] = told["r_hat"] < UNLIKE
        shaky = f"chains disagree, R-hat {told['r_hat']:.3f}: take more draws"
        notes = () if told["converged"] else (shaky,)
    tie = Threshold(float(chains.tie.mean()), float(chains.tie.std()))
    return Fitted(chains.mean, chains.covariance, tie, draws, told, notes)


ESTIMATORS = {
    "exact": by_exact_draws,
    "gibbs": by_gibbs,
    "hmc": by_hmc,
    "ep": by_ep,
    "laplace": by_laplace,
}
