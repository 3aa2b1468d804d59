"""Thurstone's model: P(i beats j) = Φ(s_i - s_j), with a normal prior on the ratings s [Thu27]_."""
# PART thurstone_estimators - How the Thurstone posterior is found: exact draws, Markov chains, or a normal like it.
# PART skew_normal - The Thurstone posterior itself: a unified skew-normal distribution [AA06]_, [Dur19]_.
# PART thurstone_state - A Thurstone posterior that takes one more answer, or one back, between two key presses.

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings.fit import RankingFit
from evalstats_plugin.ranking.thurstone.approximation import (
    Normals,
    Posterior,
    Threshold,
    expectation_propagation,
    laplace,
    most_evident_tie,
)
from evalstats_plugin.ranking.thurstone.chains import (
    Around,
    ChainOptions,
    Chains,
    gibbs,
    split_hamiltonian,
    start_around,
)
from evalstats_plugin.ranking.thurstone.design import (
    Answers,
    Prior,
    Sites,
    Ties,
    answers_of,
    bounds,
    cholesky,
    differences,
    entries,
    prior_of,
    sites_of,
    without_empty,
)
from evalstats_plugin.ranking.thurstone.truncated import (
    LogProbability,
    TiltedBox,
    acceptance,
    box_probability,
    draw,
    tilted_box,
)
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.draws import UNLIKE, convergence

Estimator = Literal["auto", "exact", "gibbs", "hmc", "ep", "laplace"]


# Answers up to which exact draws are taken, and the share of proposals that must be accepted.
_EXACT, _ACCEPTED = 100, 0.1


# Pairs of players up to which the posterior is drawn from: about 20 seconds.
_DRAWN = 10_000


DRAWS = 4000
"""Draws from the posterior, where it is drawn from."""


MOST_EXACT = 1000
"""Answers up to which exact draws are tried when asked for."""


_CHAINS = 8


# Of log δ, in which a slope is taken.
_STEP = 0.05


_RESIDUAL = 1e-9


LEAST_ACCEPTANCE = 1e-3
"""Share of accepted proposals below which exact draws are refused."""


# Residual at which an update stops: far below what is shown, and the same whatever came before.
_TOLERANCE = 1e-6


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
    """Fit Thurstone's model to contests: the posterior of the ratings.

    Parameters
    ----------
    contests
        Where these are ordered, standing first may be an advantage, with prior N(0, 1). None at
        all give the prior.
    prior_mean : a number, or shape (n,)
    prior_covariance
        A variance, n variances, or shape (n, n); in squares of the noise of one answer.
    estimator
        ``"exact"``: independent draws of the unified skew-normal posterior, for some hundred
        answers at most. ``"hmc"`` and ``"gibbs"``: Markov chains for more, of which the second
        takes long where some players nearly always win. ``"ep"`` and ``"laplace"``: normal
        approximations, the first much closer: means within .05 standard deviations, and errors of
        players who nearly always win up to an eighth too small. ``"auto"`` chooses, and says why.
    ties
        ``"threshold"``: differences below some δ are ties [GD60]_; δ is drawn with the ratings by
        Markov chains, and otherwise that of the largest evidence. ``"half"``: half a win and half a
        loss, not by `exact` and `gibbs`. ``"drop"``: as though there were none.
    draws
        How many, default 4,000 where the posterior is drawn from; normal ones for `ep` and
        `laplace`, which draw none by default.

    Raises
    ------
    SelectionError
        No such estimator, or way with ties.
    DesignError
        A prior that is none, or answers that the estimator cannot take.
    """
    _named("estimator", estimator, get_args(Estimator))
    _named("way with ties", ties, get_args(Ties))
    if draws is not None and draws < 1:
        msg = f"draws={draws} found, expected at least 1"
        raise DesignError(msg)
    started = perf_counter()
    if len(contests):
        contests.check()
    told = without_empty(contests, ties)
    prior = prior_of(prior_mean, prior_covariance, len(contests.players), ordered=contests.ordered)
    sites = sites_of(told, ties)
    problem = Problem(told, prior, sites, ties, draws, np.random.default_rng(rng))
    reason = "asked for"
    if estimator == "auto":
        estimator, reason = _choose(problem)
    found = ESTIMATORS[estimator](problem)
    found.diagnostics.update(reason=reason, seconds=perf_counter() - started)
    return _result(problem, estimator, found)


def _named(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise SelectionError(no_such(what, name, known, ", ".join(known)))


def _choose(problem: Problem) -> tuple[Estimator, str]:
    """Exact draws while they come easily, chains while they take seconds, then a normal."""
    contests, pairs = problem.contests, len(problem.sites.wins)
    count, tied = contests.weight.sum(), bool(problem.sites.ties.any())
    whole = (contests.weight == np.round(contests.weight)).all()
    whole &= bool(np.isin(contests.outcome, (0.0, 1.0)).all())
    if count <= _EXACT and whole and not tied:
        share = SkewNormal.of(answers_of(contests), problem.prior, 0.0).acceptance(problem.rng)
        if share >= _ACCEPTED:
            return "exact", f"{count:.0f} answers: {share:.0%} of exact proposals are accepted"
    if pairs <= _DRAWN:
        return "hmc", f"{pairs} pairs of players, at most {_DRAWN} are drawn from"
    return "ep", f"{pairs} pairs of players, more than the {_DRAWN} that are drawn from"


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
        diagnostics=found.diagnostics | {"n_contests": float(contests.weight.sum())},
        notes=found.notes + _never_compared(contests),
    )


def _never_compared(contests: Contests) -> tuple[str, ...]:
    if not len(contests):
        return ("no comparisons: the ratings are the prior",)
    apart = contests.apart()
    return (f"how these stand to each other rests on the prior alone: {apart}",) if apart else ()


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


def _options(problem: Problem) -> ChainOptions:
    # Enough at least that the halves of a chain can be compared.
    return ChainOptions(chains=_CHAINS, draws=max(-(-(problem.size or DRAWS) // _CHAINS), 16))


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


class Sample(NamedTuple):
    """Independent draws of P parameters, and their moments."""

    draws: FloatArray
    """Shape (S, P)."""
    mean: FloatArray
    """Over what is expected given each z, which errs less than the draws' own mean."""
    covariance: FloatArray
    mean_std_error: FloatArray
    """Of `mean`, by simulation; shape (P,)."""
    acceptance: float


@dataclass(frozen=True, eq=False)
class SkewNormal:
    """Unified skew-normal posterior of P parameters given m answers."""

    location: FloatArray
    """ξ, shape (P,)."""
    scale: FloatArray
    """Ω, shape (P, P)."""
    design: FloatArray
    """D, shape (m, P), turned so that every win is a win of the first."""
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
        """τ, shape (m,): that of the lower bounds."""
        return self.design @ self.location - self.low

    @cached_property
    def latent_covariance(self) -> FloatArray:
        """Γ, shape (m, m)."""
        return np.eye(len(self.low)) + self.design @ self.skewness

    @cached_property
    def box(self) -> TiltedBox:
        """The box of z less D ξ, tilted."""
        shift = self.design @ self.location
        return tilted_box(self.latent_covariance, self.low - shift, self.high - shift)

    def acceptance(self, rng: np.random.Generator, size: int = 500) -> float:
        """Estimate the share of proposals that are accepted."""
        return acceptance(self.box, size, rng) if len(self.low) else 1.0

    def sample(
        self, size: int, rng: np.random.Generator, *, least: float = LEAST_ACCEPTANCE
    ) -> Sample:
        """Draw from the posterior.

        Raises
        ------
        DesignError
            Fewer than ``least`` of the proposals are accepted.
        """
        m = len(self.low)
        found = draw(self.box, size, rng, least=least) if m else None
        latent = np.zeros((size, 0)) if found is None else found.values
        weights = np.linalg.solve(self.latent_covariance, self.skewness.T)
        expected = self.location + latent @ weights
        # Ω - Δ Γ⁻¹ Δ': what remains of x when z is known.
        rest = self.scale - self.skewness @ weights
        noise = cholesky(rest)
        draws = expected + rng.normal(size=expected.shape) @ noise.T
        away = expected - expected.mean(axis=0)
        told = away.T @ away / max(size - 1, 1)
        error = np.sqrt(np.diagonal(told) / size)
        accepted = 1.0 if found is None else found.acceptance
        return Sample(draws, expected.mean(axis=0), rest + told, error, accepted)

    def log_evidence(self, rng: np.random.Generator, size: int = 10_000) -> LogProbability:
        """Log probability of the answers, log Φ_m(τ; Γ) where all are wins."""
        if not len(self.low):
            return LogProbability(0.0, 0.0)
        return box_probability(self.box, size, rng)

    def log_probability(
        self, rows: FloatArray, rng: np.random.Generator, size: int = 10_000
    ) -> LogProbability:
        """Log of the posterior probability that every entry of ``rows`` times x is above 0.

        The ratio of two boxes' probabilities, small ones included: rows of a player less each
        other one tell how likely it is the best, those of neighbours in an order how likely the
        order is right.

        Parameters
        ----------
        rows : shape (r, P)
            Linearly independent.
        """
        both = np.concatenate([self.design, rows])
        covariance = both @ self.scale @ both.T
        m = len(self.low)
        covariance[:m, :m] += np.eye(m)
        shift = both @ self.location
        low = np.concatenate([self.low, np.zeros(len(rows))]) - shift
        high = np.concatenate([self.high, np.full(len(rows), np.inf)]) - shift
        joint = box_probability(tilted_box(covariance, low, high), size, rng)
        alone = self.log_evidence(rng, size)
        error = float(np.hypot(joint.std_error, alone.std_error))
        return LogProbability(joint.value - alone.value, error)


def rows_of_best(player: int, players: int, parameters: int) -> FloatArray:
    """Rows that are all above 0 where one player is the best of them, shape (n - 1, P)."""
    rows = np.zeros((players, parameters))
    rows[:, player] = 1
    rows[np.arange(players), np.arange(players)] -= 1
    return np.delete(rows, player, axis=0)


class EPState:
    """Normal posterior by expectation propagation, kept as answers come and go.

    What each pair's answers said before is where the next update starts, so that few sweeps are
    needed: with 100 players and 1,000 answers one takes some hundredths of a second.

    Parameters
    ----------
    players
        Their number n.
    prior_mean, prior_covariance
        As of `fit_thurstone`.
    tie
        δ, half the width of a tie; without it a tie counts as half a win and half a loss.
    ordered
        Whether the first of a pair was really shown first, so that this may be an advantage.
    """

    def __init__(
        self,
        players: int,
        *,
        prior_mean: ArrayLike = 0.0,
        prior_covariance: ArrayLike = 1.0,
        tie: float | None = None,
        ordered: bool = False,
    ) -> None:
        if tie is not None and not 0 < tie < np.inf:
            msg = f"tie={tie} found, expected half the width of a tie above 0, or None"
            raise DesignError(msg)
        self.players = players
        self.tie, self.ordered = tie, ordered
        self.prior = prior_of(prior_mean, prior_covariance, players, ordered=ordered)
        self._place: dict[int, int] = {}
        self._weights = np.zeros((3, 0))
        self._normals = np.zeros((2, 0))
        self._posterior = self._update()

    @classmethod
    def of(
        cls,
        contests: Contests,
        *,
        prior_mean: ArrayLike = 0.0,
        prior_covariance: ArrayLike = 1.0,
        tie: float | None = None,
    ) -> EPState:
        """Start from contests there are already, such as those of a saved session."""
        state = cls(
            len(contests.players),
            prior_mean=prior_mean,
            prior_covariance=prior_covariance,
            tie=tie,
            ordered=contests.ordered,
        )
        ties = "half" if tie is None else "threshold"
        told = without_empty(contests, ties)
        sites = sites_of(told, ties)
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
        """Of the ratings, shape (n, n)."""
        return self._posterior.covariance[: self.players, : self.players]

    @property
    def log_evidence(self) -> float:
        """Of the answers, as expectation propagation has it."""
        return self._posterior.log_evidence

    @property
    def n_contests(self) -> float:
        """Weight of the answers."""
        return float(self._weights.sum())

    def add(self, i: int, j: int, outcome: float, weight: float = 1.0) -> None:
        """Take one more answer: 1 where i won, 0 where j won, ½ for a tie.

        Raises
        ------
        DesignError
            A player against itself or outside the list, or an outcome outside [0, 1].
        """
        self._change(i, j, outcome, weight)

    def remove(self, i: int, j: int, outcome: float, weight: float = 1.0) -> None:
        """Take back an answer that was added.

        Raises
        ------
        DesignError
            There is no such answer.
        """
        self._change(i, j, outcome, -weight)

    def fit(self, players: tuple[str, ...]) -> RankingFit:
        """Return what is known now, under the players' names."""
        parameters = {} if self.tie is None else {"tie": self.tie}
        errors: dict[str, float] = {}
        if self.ordered:
            parameters["position"] = float(self._posterior.mean[-1])
            errors["position"] = float(self._posterior.covariance[-1, -1] ** 0.5)
        found = self._posterior
        return RankingFit(
            model="thurstone",
            estimator="ep",
            players=players,
            rating=self.rating,
            covariance=self.covariance,
            parameters=parameters,
            parameter_std_errors=errors,
            diagnostics={
                "iterations": found.sweeps,
                "converged": found.residual < _TOLERANCE,
                "log_evidence": found.log_evidence,
                "n_contests": self.n_contests,
            },
        )

    def _change(self, i: int, j: int, outcome: float, weight: float) -> None:
        n = self.players
        if i == j or not (min(i, j) >= 0 and max(i, j) < n and 0 <= outcome <= 1):
            msg = (
                f"players {i} and {j} with outcome {outcome} found, expected two different places "
                f"from 0 to {n - 1} and an outcome from 0 to 1"
            )
            raise DesignError(msg)
        if i > j and not self.ordered:
            i, j, outcome = j, i, 1 - outcome
        share = np.array([outcome, 0.0, 1 - outcome])
        if outcome == 0.5 and self.tie is not None:
            share = np.array([0.0, 1.0, 0.0])
        k = self._place.get(i * n + j, len(self._place))
        held = self._weights[:, k] if k < len(self._place) else np.zeros(3)
        if (held + weight * share < -1e-9).any():
            msg = f"no such answer about players {i} and {j} found: nothing to take back"
            raise DesignError(msg)
        if k == len(self._place):
            self._place[i * n + j] = k
            self._weights = np.append(self._weights, np.zeros((3, 1)), axis=1)
            self._normals = np.append(self._normals, np.zeros((2, 1)), axis=1)
        self._weights[:, k] = np.maximum(held + weight * share, 0)
        self._posterior = self._update()

    def _update(self) -> Posterior:
        # Pairs without answers left stay as sites that say nothing.
        told = self._weights.sum(axis=0) > 0
        codes = np.fromiter(self._place, dtype=np.int64, count=len(self._place))[told]
        wins, ties, losses = self._weights[:, told]
        n = self.players
        design = differences(codes // n, codes % n, n, ordered=self.ordered)
        sites = Sites(design=design, wins=wins, ties=ties, losses=losses)
        start = Normals(*self._normals[:, told])
        found = expectation_propagation(
            sites, self.prior, self.tie or 0.0, start, tolerance=_TOLERANCE
        )
        self._normals = np.zeros_like(self._normals)
        self._normals[:, told] = found.normals
        return found
