"""Thurstone's model P(i beats j) = Φ(s_i - s_j), with a normal prior of the ratings s [Thu27]_.

* `fit_thurstone`: the posterior by integration, or by expectation propagation
* `skew_normal`: the exact posterior, a unified skew-normal distribution [AA06]_, [Dur19]_
* `EPState`: expectation propagation, updated answer by answer
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.errors import DesignError, check_known, counted
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings.fit import RankingFit, normal_draws
from evalstats_plugin.ranking.thurstone.approximation import (
    Normals,
    Posterior,
    estimate_threshold,
    near_posterior,
    threshold_error,
)
from evalstats_plugin.ranking.thurstone.design import (
    MOST_ANSWERS,
    AnswerCounts,
    Prior,
    Sites,
    Ties,
    difference_rows,
    prior_of,
    sites_of,
)
from evalstats_plugin.ranking.thurstone.exact import (
    MOST_PLAYERS,
    TARGET,
    Near,
    integrate,
    symmetry_of,
)
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.streams import stream

Estimator = Literal["auto", "exact", "ep"]

WIDEST_PRIOR = 1000.0
"""Largest prior variance that is integrated over: of wider priors hardly a point is where answers
leave the ratings."""

_POINTS_KEPT = 16_000
"""Points of integration that serve as draws, unless fewer or more are asked for."""

_NODE_STEP, _FAR_DOWN, _MOST_NODES = 0.65, 14.0, 40
"""Step of the average over log δ, in its standard errors; where it ends, in log density; and the
most steps on a side."""

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
        ``"exact"``: deterministic integration with a stated error, for at most 30 players and
        prior variances of at most 1,000.
        ``"ep"``: the normal with matched moments (expectation propagation), whose means are within
        .05 standard deviations and whose standard errors of players who nearly always win are up to
        an eighth too small. ``"auto"``: exact where that is possible, else ``"ep"``.
    ties
        ``"threshold"``: differences below a threshold δ are ties [GD60]_; ``"exact"`` averages
        over δ, ``"ep"`` takes that of the largest evidence. ``"half"``: half a win and half a loss.
        ``"drop"``: ties are left out.
    draws
        Number of draws. With ``"exact"`` the points of integration in proportion to their weights,
        with ``"ep"`` draws from the normal, none by default.

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
    check_known("estimator", estimator, get_args(Estimator))
    check_known("way with ties", ties, get_args(Ties))
    if draws is not None and draws < 1:
        raise DesignError(f"draws is {draws}: give at least 1")
    if len(contests):
        contests.check()
    n = len(contests.players)
    prior = prior_of(prior_mean, prior_covariance, n, ordered=contests.ordered)
    counts = contests.weight > 0
    used = contests.take(counts & ~contests.tied if ties == "drop" else counts)
    sites = sites_of(used, ties)
    problem = _not_integrated(n, prior, sites)
    reason = "asked for"
    if estimator == "auto":
        estimator = "ep" if problem else "exact"
        by_size = f"{counted(n, 'player')}; up to {MOST_PLAYERS} are integrated over"
        reason = problem if problem and n <= MOST_PLAYERS else by_size
    if estimator == "exact" and problem:
        raise DesignError(f"{problem}: take estimator='ep'")
    value, near = estimate_threshold(sites, prior, tolerance=_RESIDUAL)
    tie = Threshold(value, threshold_error(sites, prior, value, near))
    if estimator == "exact":
        fit = _integrated(sites, prior, tie, near, players=n, draws=draws or _POINTS_KEPT)
    else:
        fit = _matched(tie, near, draws, stream(rng, "thurstone fit"))
    parameters: dict[str, float] = {}
    errors: dict[str, float] = {}
    if contests.ordered:
        parameters["position"] = float(fit.mean[n])
        errors["position"] = float(fit.covariance[n, n] ** 0.5)
    if sites.ties.any():
        parameters["tie"], errors["tie"] = fit.tie
    notes = fit.notes
    if not len(used):
        notes += ("no comparisons: the ratings are the prior",)
    elif groups := used.disconnected():
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
        log_likelihood=float(sites.log_likelihood(sites.design @ fit.mean, fit.tie.value).sum()),
        diagnostics=fit.diagnostics
        | {
            "n_contests": float(used.weight.sum()),
            "n_ties": int(used.tied.sum()),
            "ties": ties,
            "reason": reason,
        },
        notes=notes,
    )


def _not_integrated(n: int, prior: Prior, sites: Sites) -> str:
    """Why the posterior is not integrated over; "" if it is."""
    if n > MOST_PLAYERS:
        return f"{n} players are too many to integrate over (at most {MOST_PLAYERS})"
    widest = float(np.diagonal(prior.covariance).max(initial=0.0))
    if widest > WIDEST_PRIOR:
        most = f"(at most {WIDEST_PRIOR:g})"
        return f"a prior variance of {widest:g} is too wide to integrate over {most}"
    weight = float(sites.count.max(initial=0.0))
    if weight * widest > MOST_ANSWERS:
        msg = f"a prior variance of {widest:g} is lost by rounding beside answers of weight"
        return f"{msg} {weight:g} about a pair"
    return ""


class Threshold(NamedTuple):
    """δ, half the width of a tie; 0 if no answer is a tie."""

    value: float
    std_error: float


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


def _integrated(
    sites: Sites, prior: Prior, tie: Threshold, near: Posterior, *, players: int, draws: int
) -> Fitted:
    """Lattice points around the normal with matched moments, with a stated error."""
    between = prior.covariance[:players, :players]
    alike = np.full_like(between, between[0, -1])
    alike += (between[0, 0] - between[0, -1]) * np.eye(players)
    exchangeable = not prior.mean.any() and bool((between == alike).all())
    symmetry = symmetry_of(sites, players) if exchangeable else None
    nodes = [Near(0.0, near.mean, near.covariance)]
    if tie.value:
        nodes = _tie_nodes(sites, prior, tie, near.normals)
    integrated = integrate(sites, prior, nodes, players=players, symmetry=symmetry, draws=draws)
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


def _matched(
    tie: Threshold, posterior: Posterior, draws: int | None, rng: np.random.Generator
) -> Fitted:
    """Expectation propagation: a normal with matched moments."""
    converged = posterior.residual < _RESIDUAL
    diagnostics = {
        "iterations": posterior.sweeps,
        "converged": converged,
        "residual": posterior.residual,
        "log_evidence": posterior.log_evidence,
    }
    drawn = None
    if draws is not None:
        drawn = normal_draws(posterior.mean, posterior.covariance, (draws,), rng)
    notes = () if converged else (f"moments match to {posterior.residual:.1g} only",)
    return Fitted(posterior.mean, posterior.covariance, tie, drawn, diagnostics, notes)


def _tie_nodes(sites: Sites, prior: Prior, tie: Threshold, start: Normals) -> list[Near]:
    """Nodes of the trapezoidal rule in log δ, where its posterior density matters."""
    # Of few ties the density is wide, and yet falls off within half a unit at its upper end.
    width = min(tie.std_error / tie.value, 0.5) if np.isfinite(tie.std_error) else 0.5
    step = _NODE_STEP * width

    def at(log_tie: float) -> tuple[Near, float]:
        value = float(np.exp(log_tie))
        near = near_posterior(sites, prior, value, start, tolerance=_UPDATE_RESIDUAL)
        # Half-normal(1) prior of δ, its derivative by log δ, and the step.
        log_weight = 0.5 * np.log(2 / np.pi) - value**2 / 2 + log_tie + np.log(step)
        return (
            Near(value, near.mean, near.covariance, log_weight),
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
    return [
        node._replace(share=each) for (node, _), each in zip(nodes, share.tolist(), strict=True)
    ]


class SkewNormal(NamedTuple):
    """Unified skew-normal posterior of n ratings given m wins."""

    location: FloatArray
    """ξ, shape (n,)."""
    scale: FloatArray
    """Ω, shape (n, n)."""
    skewness: FloatArray
    """Δ, shape (n, m)."""
    threshold: FloatArray
    """τ, shape (m,)."""
    latent_covariance: FloatArray
    """Γ, shape (m, m)."""


def skew_normal(contests: Contests, prior_variance: float = 1.0) -> SkewNormal:
    """Return the exact posterior given wins and losses; a win of weight w counts as w wins.

    Raises
    ------
    DesignError
        Outcomes other than 1 and 0, or weights that are not whole numbers.
    """
    outcome, weight = contests.outcome, contests.weight
    if not (np.isin(outcome, (0.0, 1.0)).all() and (weight == np.round(weight)).all()):
        raise DesignError(
            "a skew-normal posterior takes wins and losses: some outcomes are ties or shares of a "
            "win, or weights are not whole numbers"
        )
    n = len(contests.players)
    prior = prior_of(0.0, prior_variance, n, ordered=False)
    rows = difference_rows(contests.first, contests.second, n, ordered=False).toarray()
    wins = np.repeat(rows * (2 * outcome - 1)[:, None], weight.astype(np.int64), axis=0)
    skewness = prior.covariance @ wins.T
    latent = np.eye(len(wins)) + wins @ skewness
    return SkewNormal(prior.mean, prior.covariance, skewness, wins @ prior.mean, latent)


class EPState(AnswerCounts):
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
        super().__init__(players, ordered=ordered)
        self.tie = 0.0
        self.prior = prior_of(0.0, prior_variance, players, ordered=ordered)
        self._normals = np.zeros((2, 0))
        self.polish()

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
        """Count an answer as `record` does, and update the posterior."""
        self.record(i, j, outcome, weight)
        if abs(weight) > 1:
            # Too far from the normals so far to start from them.
            self._normals = np.zeros((2, 0))
        self.polish()

    def polish(self) -> None:
        """Update the posterior to what was recorded."""
        ends, counts = self._recorded()
        # Pairs whose answers were all removed keep their place, but are not fitted.
        used = counts.sum(axis=1) > 0
        wins, ties, losses = counts[used].T
        first, second = ends[used].T
        design = difference_rows(first, second, self.players, ordered=self.ordered)
        sites = Sites(design=design, wins=wins, ties=ties, losses=losses)
        normals = np.zeros((2, len(ends)))
        normals[:, : self._normals.shape[1]] = self._normals
        start = Normals(*normals[:, used]) if self._normals.any() else None
        self.tie, self._posterior = estimate_threshold(
            sites, self.prior, start, tie=self.tie, tolerance=_UPDATE_RESIDUAL
        )
        self._normals = np.zeros_like(normals)
        self._normals[:, used] = self._posterior.normals
