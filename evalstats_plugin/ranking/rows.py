"""Result of a ranking: one `RankedPlayer` per player, in a `Ranking` with the fit behind them.

* `ranked`: the rows of a `RankingFit`, on the scale of its model or in Elo points [Elo78]_
* `scale_meaning`: what a difference of two ratings means under the fitted model
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.data.results import Results, finite, records
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.goodness import (
    Agreement,
    PredictiveFit,
    Transitivity,
    expected_scores,
)
from evalstats_plugin.ranking.ratings import fit as ratings_fit
from evalstats_plugin.ranking.ratings.fit import OrderEntropy, RankingFit
from evalstats_plugin.stats import ranks as stats_ranks
from evalstats_plugin.stats.arrays import FloatArray, steady
from evalstats_plugin.stats.interval import tail_probability

if TYPE_CHECKING:
    import pandas as pd


Scale = Literal["model", "elo"]
ELO_ANCHOR = 1000.0
"""Elo points of a rating of 0."""
POINTS = 400 / math.log(10)
"""Elo points of one logit."""
MOST_LETTERED = 200
"""Most players that get letters."""
N_DRAWS = 4000
"""Draws of the ratings if the fit has none: probabilities have a standard error of at most .008."""
MOST_WORK = 4e8
"""Most differences of pairs, over all draws, for the simultaneous tests of all pairs."""

_ELO = {"bradley-terry": POINTS, "thurstone": 200 * 2**0.5}
"""Elo points of one unit. In Elo's own normal model, the noise of an answer is 200√2 [Elo78]_."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlayer:
    """Rating and rank of one player.

    Numbers are finite or ``None``, never NaN.
    """

    shown: ClassVar[tuple[str, ...]] = (
        "player", "mean", "low", "high", "rank_low", "rank_high", "prob_best", "letters",
        "n_contests",
    )  # fmt: skip

    player: str
    mean: float | None
    """Estimate, or posterior mean, of the rating relative to the mean of all ratings."""
    std_error: float | None
    low: float | None
    high: float | None
    """Limits of this rating alone (pointwise)."""
    expected_rank: float | None
    rank_low: int
    """Best possible rank; 1 is the best of all."""
    rank_high: int
    """Worst possible rank; the ranges of all players hold simultaneously."""
    prob_best: float | None
    letters: str = ""
    """Two players that share a letter are not distinguishable; two that share no letter are."""
    n_contests: float
    """Total weight of the player's contests."""
    n_players: int
    confidence_level: float
    scale: str
    """Unit of the rating: ``"log odds"``, ``"probit"`` or ``"elo"``."""
    scale_meaning: str
    """What a difference of two ratings means under the fitted model."""
    method: str
    category: str = ""
    """Of a leaderboard: the category whose votes count; "" for all votes."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Goodness:
    """Goodness of fit of the whole ranking; None if not computed."""

    entropy: OrderEntropy | None = None
    """Entropy of the order, for normal ratings."""
    transitivity: Transitivity | None = None
    predictive_fit: PredictiveFit | None = None
    agreement: Agreement | None = None


@dataclass(frozen=True)
class Ranking(Results[RankedPlayer]):
    """The players, the best first, with the fit and its draws."""

    drawn_as: ClassVar[tuple[str, ...]] = ("ranking",)

    fit: RankingFit = field(kw_only=True, compare=False, repr=False)
    """On the model's own scale, players in the order of the contests."""
    draws: FloatArray = field(kw_only=True, compare=False, repr=False)
    """Draws of the ratings, shape (S, n), players in the order of the fit."""
    goodness: Goodness = field(default_factory=Goodness, kw_only=True, compare=False)

    def prob_better(self) -> pd.DataFrame:
        """Probability that the player of the row is better than that of the column."""
        ahead = self.fit.ahead
        shown = ratings_fit.prob_better(self.draws) if ahead is None else ahead
        return self._square(shown, self.fit.players)

    def rank_distribution(self) -> pd.DataFrame:
        """Probability that the player of the row has the rank of the column; 1 is the best."""
        shown = _rank_distribution(self.fit, self.draws)
        return self._square(shown, tuple(range(1, len(shown) + 1)))

    def expected_scores(self) -> pd.DataFrame:
        """Expected share of wins of the player of the row against the column's, ties half.

        Averaged over the draws of the ratings, without a position effect.
        """
        return self._square(expected_scores(self.fit, self.draws), self.fit.players)

    def _square(self, values: FloatArray, columns: tuple[Any, ...]) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame(values, pd.Index(self.fit.players, name="player"), list(columns))
        names = [row.player for row in self.rows]
        return frame.loc[names, names if columns == self.fit.players else list(columns)]


@dataclass(frozen=True)
class Leaderboard(Results[RankedPlayer]):
    """Rankings from all votes, and from those of each category; rows one after another."""

    overall: Ranking = field(kw_only=True, compare=False, repr=False)
    by_category: Mapping[str, Ranking] = field(
        default_factory=dict[str, Ranking], kw_only=True, compare=False, repr=False
    )
    anchor: str = field(default="", kw_only=True)
    """What fixes the scale, such as ``"bee has 1000"``; empty where the mean does."""
    wins: FloatArray = field(kw_only=True, compare=False, repr=False)
    """Weight of the wins of the player of the row against that of the column, ties counted half
    for each; shape (n, n), players in the order of the overall ranking."""


def scale_meaning(fit: RankingFit, scale: str) -> str:
    """Say what a difference of two ratings means under the fitted model, its ties and covariates.

    Parameters
    ----------
    scale
        `RankedPlayer.scale`: ``"log odds"``, ``"probit"`` or ``"elo"``.

    Examples
    --------
    >>> fit = RankingFit(
    ...     model="bradley-terry", estimator="ml", players=("ant", "bee"), rating=np.zeros(2),
    ...     covariance=np.eye(2), diagnostics={"ties": "half", "n_ties": 3})
    >>> scale_meaning(fit, "elo")
    '400 points: expected score 10/11, a tie counting half'
    """
    ties, tied = fit.diagnostics.get("ties"), bool(fit.diagnostics.get("n_ties"))
    elo = scale == "elo"
    unit = "A difference of 1"
    step, odds, score = ("400 points", "10", "10/11") if elo else (unit, "2.72", "0.73")
    if fit.model == "thurstone" and tied:
        return f"{'283 points' if elo else unit}: one standard deviation of an answer's noise"
    if fit.model == "thurstone":
        meaning = f"{'378 points' if elo else f'{unit}.34'}: 10 wins for 1 loss"
    elif not tied:
        meaning = f"{step}: {odds} wins for 1 loss"
    elif ties == "half":
        meaning = f"{step}: expected score {score}, a tie counting half"
    elif ties == "rao-kupper":
        meaning = f"{step}: {odds} times the odds of a win against a tie or loss"
    else:
        meaning = f"{step}: {odds} wins for 1 loss, ties left out"
    covariates = set(fit.parameters) - {"tie"}
    equal = ["position"] if "position" in covariates else []
    equal += ["style"] if covariates - {"position"} else []
    return f"{meaning}, at equal {' and '.join(equal)}" if equal else meaning


def ranked(
    fit: RankingFit,
    contests: Contests,
    *,
    confidence_level: float,
    scale: Scale,
    rng: np.random.Generator,
) -> tuple[list[RankedPlayer], FloatArray]:
    """Rows of a centred fit, the best first, and the draws they are based on."""
    draws, deviations = _draws(fit, rng)
    distribution = _rank_distribution(fit, draws)
    # With hundreds of players, thin the draws to save time, but keep at least a thousand.
    thin = max(min(len(draws) // 1000, int(len(draws) * len(fit.rating) ** 2 / MOST_WORK)), 1)
    better = ratings_fit.significantly_better(
        fit.rating, fit.covariance, deviations[::thin], confidence_level=confidence_level
    )
    limits = stats_ranks.rank_limits(better)
    low, high = _limits(fit, confidence_level)
    factor, zero = (_ELO[fit.model], ELO_ANCHOR) if scale == "elo" else (1.0, 0.0)
    order = np.argsort(-steady(fit.rating), kind="stable")
    n = len(order)
    letters = [""] * n
    if n <= MOST_LETTERED:
        alike = stats_ranks.groups_alike((better | better.T)[np.ix_(order, order)])
        letters = stats_ranks.letters(alike)
    weights = np.concatenate([contests.weight] * 2)
    met = np.bincount(np.concatenate([contests.first, contests.second]), weights, n)
    columns: dict[str, Any] = {
        "player": [fit.players[i] for i in order.tolist()],
        "mean": _numbers(zero + factor * fit.rating[order]),
        "std_error": _numbers(factor * fit.std_error[order]),
        "low": _numbers(zero + factor * low[order]),
        "high": _numbers(zero + factor * high[order]),
        "expected_rank": _numbers(_expected_ranks(fit, distribution)[order]),
        "rank_low": limits.best[order].tolist(),
        "rank_high": limits.worst[order].tolist(),
        "prob_best": _numbers(distribution[order, 0]),
        "letters": letters,
        "n_contests": met[order].tolist(),
    }
    unit = "log odds" if fit.model == "bradley-terry" else "probit"
    shown_scale = "elo" if scale == "elo" else unit
    same = {
        "n_players": n,
        "confidence_level": confidence_level,
        "scale": shown_scale,
        "scale_meaning": scale_meaning(fit, shown_scale),
        "method": _method(fit),
    }
    return records(RankedPlayer, columns, same), draws


def _method(fit: RankingFit) -> str:
    """Name the model and the estimator; "exact" only where the stated error is 1e-4 or less."""
    about = fit.diagnostics
    if fit.ranks is not None and not about["exact"]:
        error = max(about["moments_error"], about["probabilities_error"])
        return f"{fit.model} integrated to ±{error:.1g}"
    covariance = about.get("covariance")
    return f"{fit.model} {fit.estimator}" + (f", {covariance}" if covariance else "")


def _rank_distribution(fit: RankingFit, draws: FloatArray) -> FloatArray:
    if fit.ranks is not None:
        return fit.ranks
    return ratings_fit.rank_distribution(ratings_fit.ranks_of(draws))


def _draws(fit: RankingFit, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draws of the ratings, and their sampling errors, both of shape (S, n).

    With few clusters the covariance itself is uncertain, and Student's t replaces the normal.
    """
    if fit.draws is not None:
        centre = fit.draws.mean(axis=0) if fit.estimator == "exact" else fit.rating
        return fit.draws, fit.draws - centre
    normal = ratings_fit.normal_draws(fit.rating, fit.covariance, (N_DRAWS,), rng) - fit.rating
    freedom = fit.diagnostics.get("degrees_of_freedom")
    if freedom:
        normal = normal * np.sqrt(freedom / rng.chisquare(freedom, size=(len(normal), 1)))
    return fit.rating + normal, normal


def _expected_ranks(fit: RankingFit, distribution: FloatArray) -> FloatArray:
    """One more than the probabilities of the others to be better."""
    if fit.draws is not None:
        return np.asarray(distribution @ np.arange(1, len(distribution) + 1), dtype=np.float64)
    mean, variance = ratings_fit.pairwise_differences(fit.rating, fit.covariance)
    freedom = float(fit.diagnostics.get("degrees_of_freedom", np.inf))
    t = mean / np.sqrt(variance)
    behind = special.stdtr(freedom, -t) if np.isfinite(freedom) else special.ndtr(-t)
    # Half for the player itself, whose difference is 0.
    return np.asarray(0.5 + behind.sum(axis=1), dtype=np.float64)


def _limits(fit: RankingFit, confidence_level: float) -> tuple[FloatArray, FloatArray]:
    """Equal-tailed limits of each rating: quantiles of the draws, or normal or Student's t."""
    if fit.draws is not None:
        tail = tail_probability(confidence_level)
        low, high = np.quantile(fit.draws, [tail, 1 - tail], axis=0)
        if fit.labels is not None:
            labels = np.diagonal(fit.labels)
            low, high = (ratings_fit.averaged(limit, labels) for limit in (low, high))
        return low, high
    half = fit.reach(confidence_level) * fit.std_error
    return fit.rating - half, fit.rating + half


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [finite(value) for value in values.tolist()]
