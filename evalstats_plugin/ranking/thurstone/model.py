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
    LOG_ROOT_2PI,
    Answers,
    Prior,
    Sites,
    Ties,
    bounds,
    difference_rows,
    entries,
    inverse_of,
    log_ndtr,
    log_probability,
    prior_of,
    sites_of,
    usable_contests,
)
from evalstats_plugin.ranking.thurstone.exact import (
    MOST_PLAYERS,
    TARGET,
    Near,
    Normal,
    integrate,
    symmetry_of,
)
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import chain_agreement
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.streams import stream

Estimator = Literal["auto", "exact", "hmc", "ep"]


DRAWS = 4000
"""Default number of posterior draws."""


_CHAINS, _WARM_UP = 8, 50


_STEP = 0.05
"""Step in log δ of a numerical derivative."""


_NODE_STEP, _FAR_DOWN, _MOST_NODES = 0.65, 14.0, 40
"""Step of the average over log δ, in its standard errors; where it ends, in log density; and the
most steps on a side."""


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
        ``"exact"``: deterministic integration with a stated error, for at most 30 players.
        ``"ep"``: the normal with matched moments (expectation propagation), whose means are within
        .05 standard deviations and whose standard errors of players who nearly always win are up to
        an eighth too small. ``"hmc"``: Markov chains. ``"auto"``: exact up to 30 players, beyond
        ``"ep"``, or ``"hmc"`` if draws are asked for.
    ties
        ``"threshold"``: differences below a threshold δ are ties [GD60]_; ``"exact"`` and ``"hmc"``
        average over δ, ``"ep"`` takes that of the largest evidence. ``"half"``: half a win and half
        a loss. ``"drop"``: ties are left out.
    draws
        Number of draws, default 4,000 for ``"hmc"``. With ``"exact"`` the points of integration in
        proportion to their weights, with ``"ep"`` draws from the normal, none by default.

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
    for what, name, allowed in (
        ("estimator", estimator, get_args(Estimator)),
        ("way with ties", ties, get_args(Ties)),
    ):
        if name not in allowed:
            raise SelectionError(no_such(what, name, allowed, ", ".join(allowed)))
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
    fitted = ESTIMATORS[estimator](problem)
    fitted.diagnostics.update(reason=reason, seconds=perf_counter() - started)
    return _result(problem, estimator, fitted)


def _choose(problem: Problem) -> tuple[Estimator, str]:
    """Integrate where that takes seconds; else match moments, or run chains for draws."""
    n = len(problem.contests.players)
    if n <= MOST_PLAYERS:
        return "exact", f"{counted(n, 'player')}, of whom up to {MOST_PLAYERS} are integrated over"
    reason = f"{counted(n, 'player')}, more than the {MOST_PLAYERS} that are integrated over"
    return ("ep", reason) if problem.size is None else ("hmc", f"{reason}; draws are asked for")


def _result(problem: Problem, estimator: str, fit: Fitted) -> RankingFit:
    contests, n = problem.contests, len(problem.contests.players)
    parameters: dict[str, float] = {}
    errors: dict[str, float] = {}
    if contests.ordered:
        parameters["position"] = float(fit.mean[n])
        errors["position"] = float(fit.covariance[n, n] ** 0.5)
    if problem.sites.ties.any():
        parameters["tie"], errors["tie"] = fit.tie
    fitted = problem.sites.design @ fit.mean
    log_likelihood = problem.sites.log_likelihood(fitted, fit.tie.value).sum()
    notes = fit.notes
    if not len(contests):
        notes += ("no comparisons: the ratings are the prior",)
    elif groups := contests.disconnected():
        notes += (f"how these stand to each other rests on the prior alone: {groups}",)
    return RankingFit(
        model="thurstone",
        estimator=estimator,
        players=contests.players,
        rating=fit.mean[:n],
        covariance=fit.covariance[:n, :n],
        draws=None if fit.draws is None else fit.draws[:, :n],
        ranks=fit.ranks,
        ahead=fit.ahead,
        labels=fit.labels,
        parameters=parameters,
        parameter_std_errors=errors,
        log_likelihood=float(log_likelihood),
        diagnostics=fit.diagnostics
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
    ranks: FloatArray | None = None
    """Probability of each rank, shape (n, n), where it is integrated; likewise `ahead`."""
    ahead: FloatArray | None = None
    labels: IntArray | None = None
    """Labels of pairs that the answers do not tell apart, shape (n, n)."""


def by_integration(problem: Problem) -> Fitted:
    """Lattice points around the normal with matched moments, with a stated error."""
    n = len(problem.contests.players)
    if n > MOST_PLAYERS:
        msg = (
            f"{n} players are too many to integrate over, of whom at most {MOST_PLAYERS} can be: "
            "take estimator='ep', or 'hmc' for draws"
        )
        raise DesignError(msg)
    sites, prior = problem.sites, problem.prior
    tie, near = _approximation(problem)
    symmetry = symmetry_of(sites, n) if _exchangeable(prior, n) else None
    nodes = [Near(0.0, Normal(near.mean, near.covariance))]
    if tie.value:
        nodes = _tie_nodes(problem, tie, near.normals)
    integrated = integrate(
        sites, prior, nodes, players=n, symmetry=symmetry, draws=problem.size or 4 * DRAWS
    )
    if tie.value:
        ties = np.array([node.tie for node in nodes])
        mean = float(integrated.tie_weight @ ties)
        tie = Threshold(mean, float(integrated.tie_weight @ (ties - mean) ** 2) ** 0.5)
    error = max(integrated.moments_error, integrated.probabilities_error)
    diagnostics = {
        "log_evidence": integrated.log_evidence,
        "moments_error": integrated.moments_error,
        "probabilities_error": integrated.probabilities_error,
        "exact": error <= TARGET,
        "points": integrated.points,
        "effective_share": integrated.effective,
        "converged": True,
    }
    labels = None if symmetry is None else symmetry.labels
    return Fitted(
        integrated.mean, integrated.covariance, tie, integrated.draws, diagnostics,
        ranks=integrated.ranks, ahead=integrated.ahead, labels=labels,
    )  # fmt: skip


def _exchangeable(prior: Prior, n: int) -> bool:
    """Whether the prior of the ratings is the same for all players, with mean 0."""
    between = prior.covariance[:n, :n]
    same = np.full((n, n), between[0, -1]) + (between[0, 0] - between[0, -1]) * np.eye(n)
    return not prior.mean.any() and bool((between == same).all())


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
    tie, posterior = _approximation(problem)
    converged = posterior.residual < _RESIDUAL
    diagnostics = {
        "iterations": posterior.sweeps,
        "converged": converged,
        "residual": posterior.residual,
    }
    diagnostics |= {"log_evidence": posterior.log_evidence}
    draws = _normal(problem, posterior.mean, posterior.covariance)
    notes = () if converged else (f"moments match to {posterior.residual:.1g} only",)
    return Fitted(posterior.mean, posterior.covariance, tie, draws, diagnostics, notes)


def _approximation(problem: Problem) -> tuple[Threshold, Posterior]:
    sites, prior = problem.sites, problem.prior
    tie = estimate_threshold(sites, prior)
    start = laplace(sites, prior, tie.value).normals
    return tie, expectation_propagation(sites, prior, tie.value, start, tolerance=_RESIDUAL)


def _tie_nodes(problem: Problem, tie: Threshold, start: Normals) -> list[Near]:
    """Nodes of the trapezoidal rule in log δ, as far as its posterior density matters."""
    width = min(tie.std_error / tie.value, 1.0) if np.isfinite(tie.std_error) else 0.5
    step = _NODE_STEP * width

    def at(log_tie: float) -> tuple[Near, float]:
        value = float(np.exp(log_tie))
        near = expectation_propagation(
            problem.sites, problem.prior, value, start, tolerance=_UPDATE_RESIDUAL
        )
        # Half-normal(1) prior of δ, and its derivative by log δ.
        log_weight = -(value**2) / 2 + log_tie
        return (
            Near(value, Normal(near.mean, near.covariance), log_weight),
            near.log_evidence + log_weight,
        )

    middle = float(np.log(tie.value))
    nodes = [at(middle)]
    for sign in (-1, 1):
        for k in range(1, _MOST_NODES):
            nodes.append(at(middle + sign * k * step))
            if nodes[-1][1] < max(height for _, height in nodes) - _FAR_DOWN:
                break
    nodes.sort(key=lambda node: node[0].tie)
    share = np.exp([height - max(h for _, h in nodes) for _, height in nodes])
    share /= share.sum()
    return [node._replace(share=own) for (node, _), own in zip(nodes, share.tolist(), strict=True)]


def _normal(problem: Problem, mean: FloatArray, covariance: FloatArray) -> FloatArray | None:
    if problem.size is None:
        return None
    noise = problem.rng.normal(size=(problem.size, len(mean)))
    return mean + noise @ cholesky(covariance).T


ESTIMATORS = {
    "exact": by_integration,
    "hmc": by_hmc,
    "ep": by_ep,
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
        posterior = self._posterior
        return float(posterior.mean[-1]), float(posterior.covariance[-1, -1] ** 0.5)

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
            self.tie, posterior = followed_threshold(
                sites, self.prior, self.tie or _FIRST_TIE, start, tolerance=_UPDATE_RESIDUAL
            )
        else:
            self.tie = 0.0
            posterior = expectation_propagation(
                sites, self.prior, 0.0, start, tolerance=_UPDATE_RESIDUAL
            )
        self._normals = np.zeros_like(self._normals)
        self._normals[:, used] = posterior.normals
        return posterior


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
