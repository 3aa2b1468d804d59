"""Posterior of Bradley–Terry ratings under a normal prior: drawn, or the normal one at its mode."""

from __future__ import annotations

import math
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests import Contests, FloatArray
from evalstats_plugin.ranking.counted import Counted, counted
from evalstats_plugin.ranking.fit import RankingFit
from evalstats_plugin.ranking.maximum import Prior, Sample, maximise, start_of
from evalstats_plugin.ranking.ties import TieModel, check_ties
from evalstats_plugin.sampling.convergence import UNLIKE, convergence
from evalstats_plugin.wording import no_such

if TYPE_CHECKING:
    from evalstats_plugin.ranking.bradley_terry_gibbs import Options

Estimator = Literal["auto", "gibbs", "laplace"]
POSITION_SD, TIE_SD = 1.0, 2.0
"""Of the normal priors of the advantage of place, and of Davidson's log ν."""
# Pólya–Gamma numbers of a sweep up to which "auto" draws: some 10 seconds.
_DRAWN = 4000
_ALL_DRAWN = 64


class _Normal(NamedTuple):
    """At the mode: parameters (p,), covariance (p, p)."""

    mode: FloatArray
    covariance: FloatArray
    log_likelihood: float
    log_evidence: float
    converged: bool


def bradley_terry_posterior(
    contests: Contests,
    *,
    prior_mean: ArrayLike = 0.0,
    prior_covariance: ArrayLike | Literal["estimated"] = 1.0,
    estimator: Estimator = "auto",
    ties: TieModel = "half",
    options: Options | None = None,
    rng: np.random.Generator | int | None = None,
) -> RankingFit:
    """Rate players by the posterior under a normal prior of the ratings.

    Parameters
    ----------
    contests
        Where these are ordered, standing first may be an advantage, with prior N(0, 1).
    prior_mean : a number, or shape (n,)
    prior_covariance
        In squared logits: a variance, n variances, or shape (n, n); or ``"estimated"``: s² for all
        ratings, where s has a half-Cauchy(0, 1) prior.
    estimator
        ``"gibbs"`` draws; ``"laplace"`` is the normal distribution at the mode, within .1 standard
        deviations of it from some hundred contests of each player on. ``"auto"`` draws while that
        takes seconds, ties being no model of their own.
    ties
        ``"half"``, ``"drop"``, or, by ``"laplace"``, ``"davidson"`` with prior N(0, 2²) of log ν.
    options
        Of the draws: chains, draws, warm_up, device.

    Returns
    -------
    The ratings' posterior, whose place the prior gives: they need not have mean 0.

    Raises
    ------
    DesignError
        A prior that is none; weights that are no counts, where drawn.
    SelectionError
        An estimator, or a model of ties, that there is not.
    """
    start = perf_counter()
    if estimator not in get_args(Estimator):
        known = get_args(Estimator)
        raise SelectionError(no_such("estimator", estimator, known, ", ".join(known)))
    ties = check_ties(ties)
    if ties == "rao-kupper" or (ties == "davidson" and estimator == "gibbs"):
        msg = f"ties={ties!r} with estimator={estimator!r} found: a posterior knows 'half' and "
        raise SelectionError(msg + "'drop', and with estimator='laplace' 'davidson'")
    found = counted(contests, ties, position=contests.ordered)
    estimated = isinstance(prior_covariance, str)
    if estimated and prior_covariance != "estimated":
        raise SelectionError(no_such("prior", str(prior_covariance), ["estimated"], "estimated"))
    covariance: Any = 1.0 if estimated else prior_covariance
    prior = _prior(found, prior_mean, np.asarray(covariance, dtype=np.float64))
    reason = "asked for"
    if estimator == "auto":
        estimator, reason = _choose(found)
    if estimator == "laplace":
        fit = _laplace_fit(found, prior, estimated=estimated)
    else:
        drawn = np.random.default_rng(rng)
        fit = _gibbs_fit(found, prior, estimated=estimated, options=options, rng=drawn)
    about = {"reason": reason, "n_contests": len(found.contests), "ties": ties}
    fit.diagnostics.update(about, seconds=perf_counter() - start)
    return fit


def _choose(found: Counted) -> tuple[Estimator, str]:
    if found.design.with_ties:
        return "laplace", "ties have a model of their own"
    weights = found.weights()
    trials = (weights.won + weights.lost)[:, 0]
    if (np.abs(trials - np.round(trials)) > 1e-9).any():
        return "laplace", "weights are not whole numbers"
    work = int(np.where(trials > _ALL_DRAWN, 1, trials).sum())
    if work > _DRAWN:
        return "laplace", f"{work} numbers a sweep would take long to draw"
    return "gibbs", f"{work} numbers a sweep are soon drawn"


def _prior(found: Counted, mean: ArrayLike, covariance: FloatArray) -> Prior:
    """Of all parameters: ratings as given, the others about 0."""
    design = found.design
    n, size = design.n, design.size
    centre = np.zeros(size)
    given = np.asarray(mean, dtype=np.float64)
    if given.shape not in {(), (n,)} or covariance.shape not in {(), (n,), (n, n)}:
        msg = (
            f"a prior with mean of shape {given.shape} and covariance of shape {covariance.shape} "
            f"found, expected numbers, or shapes ({n},) and ({n}, {n}) for {n} players"
        )
        raise DesignError(msg)
    centre[:n] = given
    full = np.diag(np.broadcast_to(covariance, n)) if covariance.ndim < 2 else covariance
    value = np.linalg.eigvalsh(full) if np.isfinite(full).all() else np.array([-1.0])
    if not np.allclose(full, full.T) or value.min() <= 0 or not np.isfinite(centre).all():
        msg = "a prior covariance that is not positive definite found, or numbers not finite"
        raise DesignError(msg)
    precision = np.zeros((size, size))
    precision[:n, :n] = np.linalg.inv(full)
    for name, sd in (("position", POSITION_SD), ("tie", TIE_SD)):
        if name in design.names:
            k = n + design.names.index(name)
            precision[k, k] = sd**-2
    return Prior(centre, precision)


def _laplace(found: Counted, prior: Prior) -> _Normal:
    design = found.design
    start = start_of(design) + prior.mean[:, None]
    top = maximise(design, Sample(found.weights(), prior), start)
    mode, information = top.parameters[:, 0], top.information[0]
    away = mode - prior.mean
    log_prior = (np.linalg.slogdet(prior.precision)[1] - away @ prior.precision @ away) / 2
    log_likelihood = float(top.log_likelihood[0])
    # The factors (2π)^{p/2} of the prior and of the integral cancel.
    log_evidence = log_likelihood + log_prior - np.linalg.slogdet(information)[1] / 2
    return _Normal(
        mode, np.linalg.inv(information), log_likelihood, float(log_evidence),
        bool(top.converged[0]),
    )  # fmt: skip


def _rescaled(prior: Prior, n: int, sd: float) -> Prior:
    precision = prior.precision.copy()
    precision[:n, :n] = np.eye(n) / sd**2
    return Prior(prior.mean, precision)


def _laplace_fit(found: Counted, prior: Prior, *, estimated: bool) -> RankingFit:
    n, design = found.design.n, found.design
    diagnostics: dict[str, Any] = {}
    if estimated:

        def lost(log_sd: float) -> float:
            """Minus the log posterior of log s."""
            evidence = _laplace(found, _rescaled(prior, n, math.exp(log_sd))).log_evidence
            return -evidence - log_sd + math.log1p(math.exp(2 * log_sd))

        best = optimize.minimize_scalar(lost, bounds=(-4.0, 4.0), method="bounded")
        diagnostics["prior_sd"] = math.exp(float(best.x))
        prior = _rescaled(prior, n, diagnostics["prior_sd"])
    normal = _laplace(found, prior)
    errors = np.sqrt(np.diagonal(normal.covariance))
    return RankingFit(
        model="bradley-terry",
        estimator="laplace",
        players=found.contests.players,
        rating=normal.mode[:n],
        covariance=normal.covariance[:n, :n],
        parameters=dict(zip(design.names, normal.mode[n:].tolist(), strict=True)),
        parameter_std_errors=dict(zip(design.names, errors[n:].tolist(), strict=True)),
        log_likelihood=normal.log_likelihood,
        diagnostics={"log_evidence": normal.log_evidence, "converged": normal.converged}
        | diagnostics,
        notes=found.contests.notes,
    )


def _gibbs_fit(
    found: Counted,
    prior: Prior,
    *,
    estimated: bool,
    options: Options | None,
    rng: np.random.Generator,
) -> RankingFit:
    from evalstats_plugin.ranking.bradley_terry_gibbs import Options, gibbs

    options = options or Options()
    drawn = gibbs(found, prior, estimated=estimated, options=options, rng=rng)
    n, names = found.design.n, found.design.names
    every = drawn.parameters.reshape(-1, drawn.parameters.shape[2])
    mean, sd = every.mean(axis=0), every.std(axis=0, ddof=1)
    told = convergence(drawn.parameters)
    r_hat, ess = float(np.max(told.r_hat)), float(np.min(told.ess))
    diagnostics: dict[str, Any] = {"r_hat": r_hat, "ess": ess, "converged": r_hat < UNLIKE}
    diagnostics |= {"chains": options.chains, "draws": options.draws}
    if drawn.prior_sd is not None:
        diagnostics["prior_sd"] = float(drawn.prior_sd.mean())
    notes = list(found.contests.notes)
    if r_hat >= UNLIKE:
        notes.append(f"chains disagree (R-hat {r_hat:.3f}, expected below {UNLIKE}): draw more")
    return RankingFit(
        model="bradley-terry",
        estimator="gibbs",
        players=found.contests.players,
        rating=mean[:n],
        covariance=np.atleast_2d(np.cov(every[:, :n], rowvar=False)),
        draws=every[:, :n].copy(),
        parameters=dict(zip(names, mean[n:].tolist(), strict=True)),
        parameter_std_errors=dict(zip(names, sd[n:].tolist(), strict=True)),
        diagnostics=diagnostics,
        notes=tuple(notes),
    )
