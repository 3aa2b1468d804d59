"""Profile likelihood intervals: values that the contests do not rule out, whatever the rest is.

They need no curve to be a parabola, and where a player is undefeated the upper limit is infinite,
as it should be. The likelihood must be right: contests that resemble each other want clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, special

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.ranking.bradley_terry import Ratings, check_connected, fit_ratings
from evalstats_plugin.ranking.contests import Contests, FloatArray
from evalstats_plugin.ranking.counted import counted
from evalstats_plugin.ranking.maximum import Sample, maximise
from evalstats_plugin.ranking.sandwich import inverse
from evalstats_plugin.ranking.ties import TieModel, check_ties
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.wording import few, no_such

# Logits from the estimate beyond which a limit counts as infinite.
_FAR = 40.0


def profile_interval(
    contests: Contests,
    player: str,
    against: str | None = None,
    *,
    confidence_level: float = 0.95,
    ties: TieModel = "half",
    position: bool = False,
) -> Interval:
    """Interval of a rating, or of the difference between two, by the likelihood ratio [VM88]_.

    Parameters
    ----------
    player
        Whose rating, less the mean of all.
    against
        Whose rating is subtracted instead.

    Raises
    ------
    SelectionError
        No player is called so.
    """
    found = counted(contests, check_ties(ties), position=position)
    check_connected(found.contests)
    contrast = np.zeros(found.design.size)
    contrast[_place(contests, player)] = 1
    if against is None:
        contrast[: found.design.n] -= 1 / found.design.n
    else:
        contrast[_place(contests, against)] -= 1
    fitted = fit_ratings(found)
    drop = special.chdtri(1, 1 - confidence_level)
    return _interval(fitted, contrast, float(drop))


def _place(contests: Contests, name: str) -> int:
    if name not in contests.players:
        raise SelectionError(no_such("player", name, contests.players, few(contests.players)))
    return contests.players.index(name)


def _interval(fitted: Ratings, contrast: FloatArray, drop: float) -> Interval:
    design = fitted.found.design
    # Without the prior that made ratings finite: close to the supremum, where there is no top.
    plain = Sample(fitted.sample.weights, None, None, fitted.sample.even)
    top = maximise(design, plain, fitted.top.parameters)
    best, estimate = float(top.log_likelihood[0]), float(contrast @ top.parameters[:, 0])
    covariance = inverse(fitted.top.information[0], design.n)
    variance = float(contrast @ covariance @ contrast)
    along = (covariance @ contrast / variance)[:, None]

    def excess(value: float) -> float:
        moved = top.parameters + along * (value - estimate)
        found = maximise(design, plain, moved, contrast)
        return 2 * (best - float(found.log_likelihood[0])) - drop

    step = math.sqrt(variance * drop)
    low, high = (_limit(excess, estimate, sign * step) for sign in (-1.0, 1.0))
    return Interval(np.asarray(low), np.asarray(high))


def _limit(excess: Callable[[float], float], estimate: float, step: float) -> float:
    """Where the excess becomes positive, in the direction of the step."""
    inside, length = estimate, step
    while excess(estimate + length) < 0:
        if abs(length) > _FAR:
            return math.copysign(math.inf, step)
        inside, length = estimate + length, 2 * length
    return float(optimize.brentq(excess, inside, estimate + length, xtol=1e-8))
