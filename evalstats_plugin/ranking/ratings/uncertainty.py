"""Uncertainty of Bradley–Terry ratings: bootstrap and profile likelihood.

* `bootstrap_bradley_terry`: contests, clusters or judges resampled, many samples fitted at once
* `profile_interval`: likelihood ratio interval of one rating or difference
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Literal

import numpy as np
from scipy import optimize, special

from evalstats_plugin.errors import SelectionError, few, no_such
from evalstats_plugin.ranking.contests.contests import Contests, CountedContests, count_contests
from evalstats_plugin.ranking.contests.outcomes import TieModel
from evalstats_plugin.ranking.ratings.bradley_terry import (
    Ratings,
    check_connected,
    contest_counts,
    fit_ratings,
    notes_on_weights,
    ranking_fit,
)
from evalstats_plugin.ranking.ratings.fit import RankingFit
from evalstats_plugin.ranking.ratings.likelihood import (
    WEAK_SD,
    Covariance,
    Prior,
    Sample,
    has_finite_maximum,
    inverse,
    maximise,
)
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.streams import stream

Unit = Literal["contest", "cluster", "judge"]
_TOGETHER, _ROOM = 32, 2**22
"""Most bootstrap samples fitted together, and about the most numbers they keep in memory."""
_FAR = 40.0
"""Logits from the estimate beyond which a profile limit counts as infinite."""


def bootstrap_bradley_terry(
    contests: Contests,
    *,
    unit: Unit | None = None,
    n_resamples: int = 1000,
    ties: TieModel | None = None,
    position: bool = False,
    features: Sequence[str] = (),
    rng: np.random.Generator | int | None = None,
) -> RankingFit:
    """Fit Bradley–Terry ratings to the contests and to bootstrap samples of them.

    Parameters
    ----------
    unit
        Resampling unit: ``"contest"``, or ``"cluster"`` or ``"judge"`` with all their contests.
        Default: the cluster if contests have one.
    ties, position, features
        As for `fit_bradley_terry`.

    Returns
    -------
    The fit to all contests, with ``draws`` (n_resamples, n) and their covariance. The first samples
    are the same for any ``n_resamples``. Samples in which players are undefeated or not compared
    use the weak prior of `fit_bradley_terry`; a note says how many.
    """
    start = perf_counter()
    rng = stream(rng, "resampled contests")
    if unit is None:
        unit = "contest" if contests.cluster is None else "cluster"
    tally = count_contests(contests, ties, position=position, features=features)
    fitted = fit_ratings(tally)
    draws: list[FloatArray] = []
    weak = stuck = 0
    # Worker processes do not need the single contests, of which there may be a million.
    none = contests.take(np.zeros(0, np.int64))
    slim = fitted._replace(tally=replace(tally, contests=none, row_of_each=None))
    samples = _samples(tally, unit, n_resamples, rng)
    for parameters, without_top, not_converged in parallel_map(partial(_refitted, slim), samples):
        draws.append(parameters)
        weak += without_top
        stuck += not_converged
    every = np.concatenate(draws, axis=1).T[:n_resamples]
    spread = Covariance(np.atleast_2d(np.cov(every, rowvar=False)), None)
    diagnostics = {
        "covariance": "bootstrap",
        "unit": unit,
        "n_resamples": n_resamples,
        "seconds": perf_counter() - start,
        **contest_counts(tally),
    }
    notes = [*fitted.notes, *notes_on_weights(tally.contests)]
    if fitted.sample.prior is not None:
        notes.append("who wins always wins in every sample, too: a bootstrap cannot show how "
                     "uncertain such ratings are; the sandwich and a posterior can")  # fmt: skip
    if weak:
        notes.append(
            f"in {weak} of {n_resamples} bootstrap samples someone is undefeated, winless or not "
            f"compared: there a normal prior with standard deviation {WEAK_SD:g} keeps ratings "
            "finite"
        )
    if stuck:
        notes.append(f"{stuck} of {n_resamples} bootstrap samples did not converge")
    fit = ranking_fit(fitted._replace(notes=tuple(notes)), spread, diagnostics)
    return replace(fit, draws=every[:, : tally.design.n].copy())


def _samples(
    tally: CountedContests, unit: Unit, n_resamples: int, rng: np.random.Generator
) -> Iterator[tuple[FloatArray, int]]:
    """Yield counts of rows, shape (R, B), and how many of the B samples are used."""
    rows, cells = len(tally.cell), len(tally.design.first)
    held = max(rows, cells, tally.design.size**2)
    # The batch size depends on the problem only, and the last batch is filled up, so that samples
    # and their fits are bitwise the same for any n_resamples.
    together = max(1, min(_TOGETHER, _ROOM // held))
    groups = None if unit == "contest" else tally.groups(unit)
    for begin in range(0, n_resamples, together):
        if groups is None:
            counts = resample_counts(tally.count.astype(np.int64), together, rng)
        else:
            size = groups.shape[0]
            drawn = rng.multinomial(size, np.full(size, 1 / size), size=together)
            counts = groups.T @ drawn.T.astype(np.float64)
        yield counts, min(together, n_resamples - begin)


def resample_counts(count: IntArray, samples: int, rng: np.random.Generator) -> FloatArray:
    """Multinomial bootstrap counts of each row, shape (R, B).

    Poisson counts given their sum are multinomial. Slightly too few are drawn as Poisson counts,
    which is faster than binomial ones, and the remainder one by one.

    Parameters
    ----------
    count : shape (R,)
        Number of contests of each row.
    """
    total = int(count.sum())
    share = max(0.0, 1 - 3 / np.sqrt(total))
    drawn = rng.poisson(share * count, size=(samples, len(count)))
    while (many := np.flatnonzero(drawn.sum(axis=1) > total)).size:
        drawn[many] = rng.poisson(share * count, size=(len(many), len(count)))
    missing = total - drawn.sum(axis=1)
    one_of = np.repeat(np.arange(len(count)), count)[rng.integers(total, size=missing.sum())]
    cells = np.repeat(np.arange(samples), missing) * len(count) + one_of
    drawn += np.bincount(cells, minlength=drawn.size).reshape(drawn.shape)
    return drawn.T.astype(np.float64, order="C")


def _refitted(fitted: Ratings, drawn: tuple[FloatArray, int]) -> tuple[FloatArray, int, int]:
    """Fit B samples: parameters (p, B), and how many used a prior or did not converge."""
    tally, design, (counts, wanted) = fitted.tally, fitted.tally.design, drawn
    weights = tally.weights(counts)
    without_top = ~has_finite_maximum(design, weights)
    precision = np.diag((np.arange(design.size) < design.n) / WEAK_SD**2)
    sample = Sample(
        weights,
        Prior(np.zeros(design.size), precision) if without_top.any() else None,
        without_top.astype(np.float64),
    )
    if design.with_ties:
        tied = weights.tied.any(axis=0)
        one_kind = ~(tied & (weights.won + weights.lost).any(axis=0))
        if one_kind.any():
            sample = sample._replace(even=one_kind.astype(np.float64))
    start = np.repeat(fitted.top.parameters, counts.shape[1], axis=1)
    top = maximise(design, sample, start)
    lost = (~top.convergence.converged)[:wanted].sum()
    return top.parameters, int(without_top[:wanted].sum()), int(lost)


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
        No player of this name.

    Examples
    --------
    >>> contests = Contests.of([0] * 10, [1] * 10, [1] * 9 + [0], players=["ant", "bee"])
    >>> found = profile_interval(contests, "ant", "bee")
    >>> print(found.low.round(2), found.high.round(2))
    0.53 5.11
    """
    tally = count_contests(contests, ties, position=position)
    check_connected(tally.contests)
    contrast = np.zeros(tally.design.size)
    contrast[_place(contests, player)] = 1
    if against is None:
        contrast[: tally.design.n] -= 1 / tally.design.n
    else:
        contrast[_place(contests, against)] -= 1
    fitted = fit_ratings(tally)
    drop = special.chdtri(1, 1 - confidence_level)
    return _interval(fitted, contrast, float(drop))


def _place(contests: Contests, name: str) -> int:
    if name not in contests.players:
        raise SelectionError(no_such("player", name, contests.players, few(contests.players)))
    return contests.players.index(name)


def _interval(fitted: Ratings, contrast: FloatArray, drop: float) -> Interval:
    design = fitted.tally.design
    # Without the weak prior: close to the supremum if there is no finite maximum.
    plain = Sample(fitted.sample.weights, None, None, fitted.sample.even)
    top = maximise(design, plain, fitted.top.parameters)
    best, estimate = float(top.log_likelihood[0]), float(contrast @ top.parameters[:, 0])
    covariance = inverse(fitted.top.information[0], design.n)
    variance = float(contrast @ covariance @ contrast)
    along = (covariance @ contrast / variance)[:, None]

    def excess(value: float) -> float:
        moved = top.parameters + along * (value - estimate)
        constrained = maximise(design, plain, moved, contrast)
        return 2 * (best - float(constrained.log_likelihood[0])) - drop

    step = math.sqrt(variance * drop)
    low, high = (_limit(excess, estimate, sign * step) for sign in (-1.0, 1.0))
    return Interval(np.asarray(low), np.asarray(high))


def _limit(excess: Callable[[float], float], estimate: float, step: float) -> float:
    """Find the zero of the excess in the direction of the step."""
    inside, length = estimate, step
    while excess(estimate + length) < 0:
        if abs(length) > _FAR:
            return math.copysign(math.inf, step)
        inside, length = estimate + length, 2 * length
    return float(optimize.brentq(excess, inside, estimate + length, xtol=1e-8))
