"""Profile likelihood intervals of Bradley–Terry ratings [VM88]_.

`profile_interval`: the likelihood ratio interval of one rating, or of the difference of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, special

from evalstats_plugin.errors import SelectionError, few, no_such
from evalstats_plugin.ranking.contests.contests import Contests, count_contests
from evalstats_plugin.ranking.contests.outcomes import TieModel
from evalstats_plugin.ranking.ratings.bradley_terry import check_connected, fit_ratings
from evalstats_plugin.ranking.ratings.likelihood import inverse, maximise
from evalstats_plugin.stats.interval import Interval

_FAR = 40.0
"""Logits from the estimate beyond which a profile limit counts as infinite."""


def profile_interval(
    contests: Contests,
    player: str,
    against: str | None = None,
    *,
    confidence_level: float = 0.95,
    ties: TieModel | None = None,
    position: bool = False,
) -> Interval:
    """Profile likelihood interval of a rating, or of the difference of two [VM88]_.

    It contains the values that a likelihood ratio test does not reject, and is not symmetric. A
    limit is infinite if the player is undefeated or winless.

    Parameters
    ----------
    player
        Whose rating, relative to the mean of all.
    against
        Whose rating is subtracted instead of the mean.

    Raises
    ------
    DesignError
        No chain of contests connects all players.
    SelectionError
        No player of this name, or one against itself.

    Examples
    --------
    >>> contests = Contests.of([0] * 10, [1] * 10, [1] * 9 + [0], players=["ant", "bee"])
    >>> found = profile_interval(contests, "ant", "bee")
    >>> print(found.low.round(2), found.high.round(2))
    0.53 5.11
    """
    if player == against:
        raise SelectionError(f"{player!r} against itself: name two players, or one")
    tally = count_contests(contests, ties, position=position)
    check_connected(tally.contests)
    contrast = np.zeros(tally.design.size)
    contrast[_place(contests, player)] = 1
    if against is None:
        contrast[: tally.design.n] -= 1 / tally.design.n
    else:
        contrast[_place(contests, against)] -= 1
    fitted, design = fit_ratings(tally), tally.design
    drop = float(special.chdtri(1, 1 - confidence_level))
    # Without the weak prior: close to the supremum if there is no finite maximum.
    plain = fitted.sample._replace(precision=np.zeros(design.size))
    top = maximise(design, plain, fitted.top.parameters)
    best, estimate = top.log_likelihood, float(contrast @ top.parameters)
    covariance = inverse(fitted.top.information, design.n)
    along = covariance @ contrast / (contrast @ covariance @ contrast)

    def excess(value: float) -> float:
        moved = top.parameters + along * (value - estimate)
        constrained = maximise(design, plain, moved, contrast)
        return 2 * (best - constrained.log_likelihood) - drop

    low, high = (_limit(excess, estimate, sign) for sign in (-1.0, 1.0))
    return Interval(np.asarray(low), np.asarray(high))


def _place(contests: Contests, name: str) -> int:
    if name not in contests.players:
        raise SelectionError(no_such("player", name, contests.players, few(contests.players)))
    return contests.players.index(name)


def _limit(excess: Callable[[float], float], estimate: float, sign: float) -> float:
    """Find the zero of the excess above or below the estimate."""
    length = 1.0
    while excess(estimate + sign * length) < 0:
        if length == _FAR:
            return sign * math.inf
        length = min(2 * length, _FAR)
    return float(optimize.brentq(excess, estimate, estimate + sign * length, xtol=1e-8))
