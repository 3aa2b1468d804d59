"""What a ranking by comparisons says of each player, as records."""
# PART elo - Elo's scale: 400 points are odds of 10 to 1 [Elo78]_.

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.data.results import Results, finite, records
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.goodness import Agreement, Foretold, Transitivity
from evalstats_plugin.ranking.ratings import fit as ratings_fit
from evalstats_plugin.ranking.ratings.fit import EntropyBounds, OrderEntropy, RankingFit
from evalstats_plugin.stats import many
from evalstats_plugin.stats.arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd


Scale = Literal["model", "elo"]


MOST_LETTERED = 200
"""Players up to which they are given letters; nobody could read more."""


N_DRAWS = 4000
"""Of ratings where the fit has none: probabilities to a standard error of .008 at most."""


MOST_WORK = 4e8
"""Differences of pairs over all draws that are looked at for who is told apart."""


ELO_ANCHOR = 1000.0


POINTS = 400 / math.log(10)
"""Elo points of one logit."""


_ELO = {"bradley-terry": POINTS, "thurstone": 200 * 2**0.5}
"""Points of one unit. Elo's own model is the normal one, an answer's noise being 200√2 [Elo78]_."""


_BY_SAMPLING = ("exact", "gibbs", "hmc")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlayer:
    """Where one player stands among those compared.

    Numbers are finite or ``None``, never NaN.
    """

    player: str
    mean: float | None
    """Estimate, or posterior mean, of the rating less the mean of all ratings."""
    std_error: float | None
    low: float | None
    high: float | None
    """Limits of this rating alone."""
    expected_rank: float | None
    rank_low: int
    """The best rank that is open; 1 is the best of all."""
    rank_high: int
    """The worst; the ranges of all players hold together with the confidence level."""
    prob_best: float | None
    letters: str = ""
    """Two players that share a letter cannot be told apart; two that share none can."""
    n_contests: float
    """By weight."""
    n_players: int
    confidence_level: float
    scale: str
    """What the rating counts: ``"log odds"``, ``"probit"`` or ``"elo"``."""
    method: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Goodness:
    """What can be said of the ranking as a whole; None where it cannot."""

    entropy: OrderEntropy | None = None
    """Of the order, as if ratings were normal."""
    entropy_bounds: EntropyBounds | None = None
    """The same from draws of the posterior, whatever its shape."""
    transitivity: Transitivity | None = None
    foretold: Foretold | None = None
    agreement: Agreement | None = None


@dataclass(frozen=True)
class Ranking(Results[RankedPlayer]):
    """The players, the best first, and what goes with them."""

    fit: RankingFit = field(kw_only=True, compare=False, repr=False)
    """On the model's own scale, players as in the contests."""
    draws: FloatArray = field(kw_only=True, compare=False, repr=False)
    """Of the ratings, shape (S, n), players as in the fit."""
    goodness: Goodness = field(default_factory=Goodness, kw_only=True, compare=False)

    def prob_better(self) -> pd.DataFrame:
        """Probability that the player of the row is better than that of the column."""
        return self._square(ratings_fit.prob_better(self.draws), self.fit.players)

    def rank_distribution(self) -> pd.DataFrame:
        """Probability of each player (row) to have each rank (column, 1 is the best)."""
        found = ratings_fit.rank_distribution(ratings_fit.ranks_of(self.draws))
        return self._square(found, tuple(range(1, len(found) + 1)))

    def expected_scores(self) -> pd.DataFrame:
        """Share of contests the player of the row is to win from that of the column, ties half.

        An average over what is not known of the ratings; places and judges even.
        """
        from evalstats_plugin.ranking.goodness import expected_scores

        return self._square(expected_scores(self.fit, self.draws), self.fit.players)

    def top(self, k: int) -> ratings_fit.TopK:
        """Who is among the k best; places are those of ``fit.players``."""
        return ratings_fit.top_k(ratings_fit.ranks_of(self.draws), k)

    def joint_rank_intervals(self) -> pd.DataFrame:
        """Ranges of ranks that hold all players' ranks at once in the share of draws asked for."""
        return self._limits(ratings_fit.joint_rank_intervals)

    def rank_intervals(self) -> pd.DataFrame:
        """Range of ranks of each player alone, with equal tails."""
        return self._limits(ratings_fit.rank_intervals)

    def _limits(self, of: Any) -> pd.DataFrame:
        import pandas as pd

        limits = of(ratings_fit.ranks_of(self.draws), self.rows[0].confidence_level)
        columns = {"rank_low": limits.best, "rank_high": limits.worst}
        frame = pd.DataFrame(columns, index=pd.Index(self.fit.players, name="player"))
        return frame.loc[[row.player for row in self.rows]]

    def _square(self, values: FloatArray, columns: tuple[Any, ...]) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame(values, pd.Index(self.fit.players, name="player"), list(columns))
        names = [row.player for row in self.rows]
        return frame.loc[names, names if columns == self.fit.players else list(columns)]


def ranked(
    fit: RankingFit,
    contests: Contests,
    *,
    confidence_level: float,
    scale: Scale,
    rng: np.random.Generator,
) -> tuple[list[RankedPlayer], FloatArray]:
    """Rows of a fit, the best first, and the draws they are made from."""
    draws, deviations = _draws(fit, rng)
    found = ratings_fit.ranks_of(draws)
    distribution = ratings_fit.rank_distribution(found)
    # Of hundreds of players fewer draws do, evenly out of all: a thousand at least.
    thin = max(min(len(draws) // 1000, int(len(draws) * len(fit.rating) ** 2 / MOST_WORK)), 1)
    apart = ratings_fit.told_apart(
        fit.rating, fit.covariance, deviations[::thin], confidence_level=confidence_level
    )
    limits = many.rank_limits(apart)
    low, high = _limits(fit, confidence_level)
    factor, zero = (_ELO[fit.model], ELO_ANCHOR) if scale == "elo" else (1.0, 0.0)
    order = np.argsort(-fit.rating, kind="stable")
    n = len(order)
    letters = [""] * n
    if n <= MOST_LETTERED:
        letters = many.letters(many.groups_alike((apart | apart.T)[np.ix_(order, order)]))
    weights = np.concatenate([contests.weight] * 2)
    met = np.bincount(np.concatenate([contests.first, contests.second]), weights, n)
    columns: dict[str, Any] = {
        "player": [fit.players[i] for i in order.tolist()],
        "mean": _numbers(zero + factor * fit.rating[order]),
        "std_error": _numbers(factor * fit.std_error[order]),
        "low": _numbers(zero + factor * low[order]),
        "high": _numbers(zero + factor * high[order]),
        "expected_rank": _numbers(found.mean(axis=0)[order]),
        "rank_low": limits.best[order].tolist(),
        "rank_high": limits.worst[order].tolist(),
        "prob_best": _numbers(distribution[order, 0]),
        "letters": letters,
        "n_contests": met[order].tolist(),
    }
    own = "log odds" if fit.model == "bradley-terry" else "probit"
    same = {
        "n_players": n,
        "confidence_level": confidence_level,
        "scale": "elo" if scale == "elo" else own,
        "method": _method(fit),
    }
    return records(RankedPlayer, columns, same), draws


def _method(fit: RankingFit) -> str:
    """Name the model, the estimator, and what the covariance is by where there is a choice."""
    by = fit.diagnostics.get("covariance")
    return f"{fit.model} {fit.estimator}" + (f", {by}" if by else "")


def _draws(fit: RankingFit, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Ratings as they may be, and what chance does to them, both of shape (S, n).

    With few clusters the covariance is itself uncertain, and normal draws become Student's t.
    """
    if fit.draws is not None:
        centre = fit.draws.mean(axis=0) if fit.estimator in _BY_SAMPLING else fit.rating
        return fit.draws, fit.draws - centre
    normal = fit.sample(N_DRAWS, rng) - fit.rating
    freedom = fit.diagnostics.get("degrees_of_freedom")
    if freedom:
        normal = normal * np.sqrt(freedom / rng.chisquare(freedom, size=(len(normal), 1)))
    return fit.rating + normal, normal


def _limits(fit: RankingFit, confidence_level: float) -> tuple[FloatArray, FloatArray]:
    """Equal-tailed limits of each rating: of the draws, or normal or Student's t."""
    tail = (1 - confidence_level) / 2
    if fit.draws is not None:
        low, high = np.quantile(fit.draws, [tail, 1 - tail], axis=0)
        return low, high
    freedom = float(fit.diagnostics.get("degrees_of_freedom", np.inf))
    reach = -float(special.stdtrit(freedom, tail) if np.isfinite(freedom) else special.ndtri(tail))
    return fit.rating - reach * fit.std_error, fit.rating + reach * fit.std_error


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [finite(value) for value in values.tolist()]


def elo(rating: ArrayLike, *, anchor: float = 1000.0) -> FloatArray:
    """Ratings in Elo points, those of rating 0 having `anchor` points.

    Differences, standard errors and limits of differences are multiplied by `POINTS`.

    >>> print(elo([0.0, math.log(10)]))
    [1000. 1400.]
    """
    return anchor + POINTS * np.asarray(rating, dtype=np.float64)
