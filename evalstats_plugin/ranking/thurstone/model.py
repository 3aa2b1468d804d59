"""Thurstone's model P(i beats j) = Φ(s_i - s_j), with a normal prior of the ratings s [Thu27]_.

* `fit_thurstone`: the posterior by any of `ESTIMATORS`
* `SkewNormal`: the exact posterior, a unified skew-normal distribution [AA06]_, [Dur19]_
* `EPState`: expectation propagation, updated answer by answer
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from evalstats_plugin.errors import DesignError, SelectionError, counted, no_such
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.hamiltonian import (
    LogPosterior,
    NormalApproximation,
    cholesky,
    split_hamiltonian,
)
from evalstats_plugin.ranking.ratings.fit import RankingFit
from evalstats_plugin.ranking.thurstone.approximation import (
    Normals,
    Posterior,
    Threshold,
    estimate_threshold,
    expectation_propagation,
    followed_threshold,
    laplace,
)
from evalstats_plugin.ranking.thurstone.design import (
    Answers,
    Prior,
    Sites,
    Ties,
    answers_of,
    bounds,
    difference_rows,
    entries,
    inverse_of,
    prior_of,
    sites_of,
    usable_contests,
)
from evalstats_plugin.ranking.thurstone.truncated import (
    LOG_ROOT_2PI,
    LogProbability,
    TiltedBox,
    acceptance,
    box_probability,
    draw,
    log_ndtr,
    log_probability,
    tilted_box,
)
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import chain_agreement
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.streams import stream

Estimator = Literal["auto", "exact", "hmc", "ep", "laplace"]


DRAWS = 4000
"""Default number of posterior draws."""


MOST_EXACT = 1000
"""Most answers for exact draws."""


LEAST_ACCEPTANCE = 1e-3
"""Smallest share of accepted proposals for exact draws."""


_EXACT, _ACCEPTED = 100, 0.1
"""Most answers, and smallest share of accepted proposals, for which "auto" draws exactly."""


_DRAWN = 10_000
"""Most pairs of players for which "auto" draws by HMC, which takes about 20 seconds."""


_CHAINS, _WARM_UP = 8, 50


_STEP = 0.05
"""Step in log δ of a numerical derivative."""


_FIRST_TIE = 0.3
"""Where the search for δ begins."""


_RESIDUAL = 1e-9
"""Residual at which expectation propagation has converged."""


_UPDATE_RESIDUAL = 1e-6
"""The same for updates of `EPState`: far below what is shown, and independent of the history."""


def fit_thurstone(
    contests: Contests,
    *,
    prior_mean: ArrayLike = 0.0,
    prior_covariance: ArrayLike = 1.0,
    estimator: Estimator = "auto",
    ties: Ties = "threshold",
    draws: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> RankingFit:
    """Fit the posterior of Thurstone's model to contests.

    Parameters
    ----------
    contests
        If these are ordered, a position effect with prior N(0, 1) is estimated. Without any
        contests the posterior is the prior.
    prior_mean : a number, or shape (n,)
    prior_covariance
        A variance, n variances, or shape (n, n); the unit is the variance of an answer's noise.
    estimator
        ``"exact"``: independent draws from the unified skew-normal posterior, for at most some
        hundred answers. ``"hmc"``: Markov chains for more. ``"ep"`` and ``"laplace"``: normal
        approximations, the first much closer: its means are within .05 standard deviations, its
        standard errors of players who nearly always win up to an eighth too small. ``"auto"``
        chooses, and says why.
    ties
        ``"threshold"``: differences below a threshold δ are ties [GD60]_; ``"hmc"`` draws δ with
        the ratings, other estimators maximise the evidence. ``"half"``: half a win and half a loss,
        not with ``"exact"``. ``"drop"``: ties are left out.
    draws
        Number of draws, default 4,000 for the estimators that draw. With ``"ep"`` and
        ``"laplace"``, draws from the normal, none by default.

    Returns
    -------
    Ratings in standard deviations of an answer's noise (probits).

    Raises
    ------
    SelectionError
        An unknown estimator or treatment of ties.
    DesignError
        An invalid prior, or answers that the estimator does not support.

    Examples
    --------
    >>> contests = Contests.of([0] * 4, [1] * 4, [1, 1, 1, 0], players=["ant", "bee"])
    >>> fit_thurstone(contests, estimator="ep").rating.round(2)
    array([ 0.3, -0.3])
    """
    for what, name, known in (
        ("estimator", estimator, get_args(Estimator)),
        ("way with ties", ties, get_args(Ties)),
    ):
        if name not in known:
            raise SelectionError(no_such(what, name, known, ", ".join(known)))
    if draws is not None and draws < 1:
        msg = f"draws is {draws}: give at least 1"
        raise DesignError(msg)
    started = perf_counter()
    if len(contests):
        contests.check()
    used = usable_contests(contests, ties)
    prior = prior_of(prior_mean, prior_covariance, len(contests.players), ordered=contests.ordered)
    sites = sites_of(used, ties)
    problem = Problem(used, prior, sites, ties, draws, stream(rng, "thurstone fit"))
    reason = "asked for"
    if estimator == "auto":
        estimator, reason = _choose(problem)
    found = ESTIMATORS[estimator](problem)
    found.diagnostics.update(reason=reason, seconds=perf_counter() - started)
    return _result(problem, estimator, found)


def _choose(problem: Problem) -> tuple[Estimator, str]:
    """Choose exact draws if they are accepted often, chains if they take seconds, else EP."""
    contests, pairs = problem.contests, len(problem.sites.wins)
    count, tied = contests.weight.sum(), bool(problem.sites.ties.any())
    whole = (contests.weight == np.round(contests.weight)).all()
    whole &= bool(np.isin(contests.outcome, (0.0, 1.0)).all())
    if count <= _EXACT and whole and not tied:
        share = SkewNormal.of(answers_of(contests), problem.prior, 0.0).acceptance(problem.rng)
        if share >= _ACCEPTED:
            return "exact", f"{count:.0f} answers: {share:.0%} of exact proposals are accepted"
    if pairs <= _DRAWN:
        return "hmc", f"{counted(pairs, 'pair')} of players, at most {_DRAWN} are drawn from"
    return "ep", f"{counted(pairs, 'pair')} of players, more than the {_DRAWN} that are drawn from"


def _result(problem: Problem, estimator: str, found: Fitted) -> RankingFit:
    contests, n = problem.contests, len(problem.contests.players)
    parameters: dict[str, float] = {}
    errors: dict[str, float] = {}
    if contests.ordered:
        parameters["position"] = float(found.mean[n])
        errors["position"] = float(found.covariance[n, n] ** 0.5)
    if problem.sites.ties.any():
        parameters["tie"], errors["tie"] = found.tie
    fitted = problem.sites.design @ found.mean
    log_likelihood = problem.sites.log_likelihood(fitted, found.tie.value).sum()
    notes = found.notes
    if not len(contests):
        notes += ("no comparisons: the ratings are the prior",)
    elif apart := contests.disconnected():
        notes += (f"how these stand to each other rests on the prior alone: {apart}",)
    return RankingFit(
        model="thurstone",
        estimator=estimator,
        players=contests.players,
        rating=found.mean[:n],
        covariance=found.covariance[:n, :n],
        draws=None if found.draws is None else found.draws[:, :n],
        parameters=parameters,
        parameter_std_errors=errors,
        log_likelihood=float(log_likelihood),
        diagnostics=found.diagnostics
        | {
            "n_contests": float(contests.weight.sum()),
            "n_ties": int(contests.tied.sum()),
            "ties": problem.ties,
        },
        notes=notes,
    )


class Problem(NamedTuple):
    """Data, prior and options of a fit."""

    contests: Contests
    prior: Prior
    sites: Sites
    ties: Ties
    size: int | None
    """Number of draws requested."""
    rng: np.random.Generator


class Fitted(NamedTuple):
    """Posterior of P parameters: n ratings, and the position effect if the order is known."""

    mean: FloatArray
    covariance: FloatArray
    tie: Threshold
    draws: FloatArray | None
    diagnostics: dict[str, Any]
    notes: tuple[str, ...] = ()


def by_exact_draws(problem: Problem) -> Fitted:
    """Draws from the skew-normal posterior; moments in closed form if pairs are independent."""
    count = problem.contests.weight.sum()
    if count > MOST_EXACT:
        msg = (
            f"{count:.0f} answers are too many for exact draws, which take {MOST_EXACT} at most: "
            "take estimator='hmc'"
        )
        raise DesignError(msg)
    tie, near = _approximation(problem)
    posterior = SkewNormal.of(answers_of(problem.contests, problem.ties), problem.prior, tie.value)
    sample = posterior.sample(problem.size or DRAWS, problem.rng)
    evidence = posterior.log_evidence(problem.rng)
    diagnostics = {
        "acceptance": sample.acceptance,
        "log_evidence": evidence.value,
        "log_evidence_std_error": evidence.std_error,
        "mean_std_error": sample.mean_std_error[: len(problem.contests.players)],
        "closed_form": problem.sites.independent(problem.prior),
        "converged": True,
    }
    mean, covariance = sample.mean, sample.covariance
    if diagnostics["closed_form"]:
        # Expectation propagation is exact for independent one-dimensional sites.
        mean, covariance = near.mean, near.covariance
        diagnostics |= {"log_evidence": near.log_evidence, "log_evidence_std_error": 0.0}
        diagnostics["mean_std_error"] = np.zeros(len(problem.contests.players))
    notes = ("exact given δ of the largest evidence",) if tie.value else ()
    return Fitted(mean, covariance, tie, sample.draws, diagnostics, notes)


def by_hmc(problem: Problem) -> Fitted:
    """Split Hamiltonian Monte Carlo around the normal with matched moments."""
    tie, near = _approximation(problem)
    sites, prior = problem.sites, problem.prior
    around = NormalApproximation(near.mean, near.covariance)
    if tie.value:
        # Derivative of the mode in log δ, by a central difference.
        ends = [laplace(sites, prior, tie.value * np.exp(h)).mean for h in (-_STEP, _STEP)]
        moved = np.append((ends[1] - ends[0]) / (2 * _STEP), 1.0)
        relative = tie.std_error / tie.value if np.isfinite(tie.std_error) else 0.3
        covariance = np.pad(near.covariance, (0, 1)) + relative**2 * np.outer(moved, moved)
        around = NormalApproximation(np.append(near.mean, np.log(tie.value)), covariance)
    size = problem.size or DRAWS
    # At least enough to compare the halves of each chain.
    length = ChainLength(chains=_CHAINS, draws=max(-(-size // _CHAINS), 16), warm_up=_WARM_UP)
    chains = split_hamiltonian(log_posterior_of(sites, prior), around, problem.rng, length)
    agreement = chain_agreement(chains)
    diagnostics = {"log_evidence": near.log_evidence, "log_evidence_by": "ep", "chains": _CHAINS}
    diagnostics |= agreement.diagnostics
    p = len(prior.mean)
    flat = chains[..., :p].reshape(-1, p)
    covariance = np.atleast_2d(np.cov(flat, rowvar=False)).astype(np.float64)
    if tie.value:
        widths = np.exp(chains[..., p])
        tie = Threshold(float(widths.mean()), float(widths.std()))
    return Fitted(flat.mean(axis=0), covariance, tie, flat[-size:], diagnostics, agreement.notes)


def by_ep(problem: Problem) -> Fitted:
    """Expectation propagation: a normal with matched moments."""
    tie, found = _approximation(problem)
    converged = found.residual < _RESIDUAL
    diagnostics = {"iterations": found.sweeps, "converged": converged, "residual": found.residual}
    diagnostics |= {"log_evidence": found.log_evidence}
    draws = _normal(problem, found.mean, found.covariance)
    notes = () if converged else (f"moments match to {found.residual:.1g} only",)
    return Fitted(found.mean, found.covariance, tie, draws, diagnostics, notes)


def by_laplace(problem: Problem) -> Fitted:
    """Laplace approximation: the normal with the posterior's mode and curvature."""
    tie = estimate_threshold(problem.sites, problem.prior, "laplace")
    mode = laplace(problem.sites, problem.prior, tie.value)
    iterations, why = mode.convergence.steps, mode.convergence.why
    diagnostics = {"iterations": iterations, "converged": not why}
    diagnostics |= {"log_evidence": mode.log_evidence}
    draws = _normal(problem, mode.mean, mode.covariance)
    notes = (f"the search for the mode {why}: ratings are where it stopped",) if why else ()
    return Fitted(mode.mean, mode.covariance, tie, draws, diagnostics, notes)


def _approximation(problem: Problem) -> tuple[Threshold, Posterior]:
    sites, prior = problem.sites, problem.prior
    tie = estimate_threshold(sites, prior, "ep")
    start = laplace(sites, prior, tie.value).normals
    return tie, expectation_propagation(sites, prior, tie.value, start, tolerance=_RESIDUAL)


def _normal(problem: Problem, mean: FloatArray, covariance: FloatArray) -> FloatArray | None:
    if problem.size is None:
        return None
    noise = problem.rng.normal(size=(problem.size, len(mean)))
    return mean + noise @ cholesky(covariance).T


ESTIMATORS = {
    "exact": by_exact_draws,
    "hmc": by_hmc,
    "ep": by_ep,
    "laplace": by_laplace,
}


@dataclass(frozen=True, eq=False)
class SkewNormal:
    """Unified skew-normal posterior of P parameters given m answers."""

    location: FloatArray
    """ξ, shape (P,)."""
    scale: FloatArray
    """Ω, shape (P, P)."""
    design: FloatArray
    """D, shape (m, P), with signs such that every win is a win of the first."""
    low: FloatArray
    """Bounds of z, shape (m,): δ and infinity of wins, -δ and δ of ties."""
    high: FloatArray

    @classmethod
    def of(cls, answers: Answers, prior: Prior, tie: float) -> SkewNormal:
        """Make the posterior of answers; ``tie`` is δ, half the width of a tie."""
        turn = np.where(answers.answer < 0, -1.0, 1.0)
        design = answers.design.toarray() * turn[:, None]
        low, high = bounds(np.abs(answers.answer), tie)
        return cls(prior.mean, prior.covariance, design, low, high)

    @property
    def skewness(self) -> FloatArray:
        """Δ, shape (P, m)."""
        return self.scale @ self.design.T

    @property
    def threshold(self) -> FloatArray:
        """τ of the lower bounds, shape (m,)."""
        return self.design @ self.location - self.low

    @cached_property
    def latent_covariance(self) -> FloatArray:
        """Γ, shape (m, m)."""
        return np.eye(len(self.low)) + self.design @ self.skewness

    @cached_property
    def box(self) -> TiltedBox:
        """Box of z - D ξ, with its tilted proposal."""
        shift = self.design @ self.location
        return tilted_box(self.latent_covariance, self.low - shift, self.high - shift)

    def acceptance(self, rng: np.random.Generator, size: int = 500) -> float:
        """Estimate the share of proposals that are accepted."""
        return acceptance(self.box, size, rng) if len(self.low) else 1.0

    def sample(self, size: int, rng: np.random.Generator) -> Sample:
        """Draw from the posterior: z inside its box, then x given z.

        Raises
        ------
        DesignError
            Fewer than `LEAST_ACCEPTANCE` of the proposals are accepted.
        """
        m = len(self.low)
        found = draw(self.box, size, rng, least=LEAST_ACCEPTANCE) if m else None
        latent = np.zeros((size, 0)) if found is None else found.values
        weights = np.linalg.solve(self.latent_covariance, self.skewness.T)
        expected = self.location + latent @ weights
        # Ω - Δ Γ⁻¹ Δ': covariance of x given z.
        rest = self.scale - self.skewness @ weights
        noise = cholesky(rest)
        draws = expected + rng.normal(size=expected.shape) @ noise.T
        away = expected - expected.mean(axis=0)
        between = away.T @ away / max(size - 1, 1)
        error = np.sqrt(np.diagonal(between) / size)
        accepted = 1.0 if found is None else found.acceptance
        return Sample(draws, expected.mean(axis=0), rest + between, error, accepted)

    def log_evidence(self, rng: np.random.Generator, size: int = 10_000) -> LogProbability:
        """Log probability of the answers; log Φ_m(τ; Γ) if all are wins."""
        if not len(self.low):
            return LogProbability(0.0, 0.0)
        return box_probability(self.box, size, rng)


class Sample(NamedTuple):
    """Independent draws of P parameters, and their moments."""

    draws: FloatArray
    """Shape (S, P)."""
    mean: FloatArray
    """Mean of E[x | z], which has a smaller error than the mean of the draws."""
    covariance: FloatArray
    mean_std_error: FloatArray
    """Simulation error of `mean`, shape (P,)."""
    acceptance: float


class EPState:
    """Posterior by expectation propagation that is updated as answers are added or removed.

    Updates start from the previous sites, so that few sweeps are needed: with 100 players and 1,000
    answers an update takes some hundredths of a second.

    δ, half the width of a tie, is that of the largest evidence, once there is a tie.

    Parameters
    ----------
    players
        Number of players n.
    prior_variance
        Of each rating; the unit is the variance of an answer's noise.
    ordered
        Whether the first of a pair was really shown first, so that there is a position effect.
    """

    def __init__(self, players: int, prior_variance: float = 1.0, *, ordered: bool = False) -> None:
        self.tie = 0.0
        self.players, self.ordered = players, ordered
        self.prior = prior_of(0.0, prior_variance, players, ordered=ordered)
        self._place: dict[int, int] = {}
        self._weights = np.zeros((3, 0))
        self._normals = np.zeros((2, 0))
        self._posterior = self._update()

    @classmethod
    def of(cls, contests: Contests, prior_variance: float = 1.0) -> EPState:
        """Start from existing contests, such as those of a saved session."""
        state = cls(len(contests.players), prior_variance, ordered=contests.ordered)
        sites = sites_of(usable_contests(contests, "threshold"), "threshold")
        first, second = entries(sites.design)[:, :2].T
        state._place = {int(code): k for k, code in enumerate(first * state.players + second)}
        state._weights = np.stack([sites.wins, sites.ties, sites.losses])
        state._normals = np.zeros((2, len(first)))
        state._posterior = state._update()
        return state

    @property
    def rating(self) -> FloatArray:
        """Posterior means, shape (n,)."""
        return self._posterior.mean[: self.players]

    @property
    def covariance(self) -> FloatArray:
        """Posterior covariance of the ratings, shape (n, n)."""
        return self._posterior.covariance[: self.players, : self.players]

    @property
    def position(self) -> tuple[float, float] | None:
        """Advantage of the player shown first, in units of the noise of an answer, and its error.

        None where it is not known which player was shown first.
        """
        if not self.ordered:
            return None
        found = self._posterior
        return float(found.mean[-1]), float(found.covariance[-1, -1] ** 0.5)

    def add(self, i: int, j: int, outcome: float, weight: float = 1.0) -> None:
        """Add an answer: 1 if i won, 0 if j won, ½ for a tie.

        Raises
        ------
        DesignError
            A player against itself or outside the list, or an outcome outside [0, 1].
        """
        self._change(i, j, outcome, weight)

    def remove(self, i: int, j: int, outcome: float, weight: float = 1.0) -> None:
        """Remove an answer that was added.

        Raises
        ------
        DesignError
            There is no such answer.
        """
        self._change(i, j, outcome, -weight)

    def _change(self, i: int, j: int, outcome: float, weight: float) -> None:
        n = self.players
        if i == j or not (min(i, j) >= 0 and max(i, j) < n and 0 <= outcome <= 1):
            msg = (
                f"no answer: players {i} and {j} with outcome {outcome}. Give two different places "
                f"from 0 to {n - 1} and an outcome from 0 to 1"
            )
            raise DesignError(msg)
        if i > j and not self.ordered:
            i, j, outcome = j, i, 1 - outcome
        share = np.array([outcome, 0.0, 1 - outcome])
        if outcome == 0.5:
            share = np.array([0.0, 1.0, 0.0])
        k = self._place.get(i * n + j, len(self._place))
        held = self._weights[:, k] if k < len(self._place) else np.zeros(3)
        if (held + weight * share < -1e-9).any():
            msg = f"there is no such answer about players {i} and {j} to take back"
            raise DesignError(msg)
        if k == len(self._place):
            self._place[i * n + j] = k
            self._weights = np.append(self._weights, np.zeros((3, 1)), axis=1)
            self._normals = np.append(self._normals, np.zeros((2, 1)), axis=1)
        self._weights[:, k] = np.maximum(held + weight * share, 0)
        self._posterior = self._update()

    def _update(self) -> Posterior:
        # Pairs whose answers were all removed keep their place, but are not fitted.
        used = self._weights.sum(axis=0) > 0
        codes = np.fromiter(self._place, dtype=np.int64, count=len(self._place))[used]
        wins, ties, losses = self._weights[:, used]
        n = self.players
        design = difference_rows(codes // n, codes % n, n, ordered=self.ordered)
        sites = Sites(design=design, wins=wins, ties=ties, losses=losses)
        start = Normals(*self._normals[:, used])
        if ties.any():
            self.tie, found = followed_threshold(
                sites, self.prior, self.tie or _FIRST_TIE, start, tolerance=_UPDATE_RESIDUAL
            )
        else:
            self.tie = 0.0
            found = expectation_propagation(
                sites, self.prior, 0.0, start, tolerance=_UPDATE_RESIDUAL
            )
        self._normals = np.zeros_like(self._normals)
        self._normals[:, used] = found.normals
        return found


def log_posterior_of(sites: Sites, prior: Prior) -> LogPosterior:
    """Make the log posterior of the P parameters, followed by log δ if there are ties."""
    wins, losses, ties = sites.wins, sites.losses, sites.ties
    # Differences, signed so that the first won.
    decided = sparse.vstack([sites.design[wins > 0], -sites.design[losses > 0]], format="csr")
    won = np.concatenate([wins[wins > 0], losses[losses > 0]])[:, None]
    tied, drawn = sites.design[ties > 0], ties[ties > 0][:, None]
    prior_mean, precision = prior.mean[:, None], inverse_of(prior.covariance).inverse

    def log_posterior(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        ratings, log_tie = x[: len(prior_mean)], x[len(prior_mean) :]
        tie = np.exp(log_tie).sum(axis=0)
        centred = ratings - prior_mean
        away = precision @ centred
        at: FloatArray = decided @ ratings - tie
        log_p = log_ndtr(at)
        pull = won * np.exp(-0.5 * at * at - LOG_ROOT_2PI - log_p)
        value = (won * log_p).sum(axis=0) - 0.5 * (centred * away).sum(axis=0)
        slope: FloatArray = decided.T @ pull - away
        if not len(drawn):
            return value, slope
        difference: FloatArray = tied @ ratings
        low, high = -tie - difference, tie - difference
        log_p = log_probability(low, high)
        at_low, at_high = (drawn * np.exp(-0.5 * y * y - LOG_ROOT_2PI - log_p) for y in (low, high))
        slope = slope + tied.T @ (at_low - at_high)
        by_tie = (at_low + at_high).sum(axis=0) - pull.sum(axis=0)
        value = value + (drawn * log_p).sum(axis=0) - tie**2 / 2 + log_tie[0]
        return value, np.concatenate([slope, (tie * (by_tie - tie) + 1)[None]])

    return log_posterior
