"""Bootstraps of Bradley–Terry ratings: contests, clusters or judges drawn anew, all fitted at once.

Contests that do not differ are drawn together, by how often they come up [Efr79]_, so that a
million take no longer than ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Literal

import numpy as np

from evalstats_plugin.engines import mapped
from evalstats_plugin.ranking.bradley_terry import Ratings, as_fit, fit_ratings, notes_on_weights
from evalstats_plugin.ranking.contests import Contests, FloatArray, IntArray
from evalstats_plugin.ranking.counted import Counted, counted
from evalstats_plugin.ranking.fit import RankingFit
from evalstats_plugin.ranking.maximum import WEAK_SD, Prior, Sample, has_top, maximise
from evalstats_plugin.ranking.sandwich import Covariance
from evalstats_plugin.ranking.ties import TieModel, check_ties

Unit = Literal["contest", "cluster", "judge"]
# Samples fitted together, at most; as many numbers in memory, about.
_TOGETHER, _ROOM = 32, 2**22


def bootstrap_bradley_terry(
    contests: Contests,
    *,
    unit: Unit | None = None,
    n_resamples: int = 1000,
    ties: TieModel = "half",
    position: bool = False,
    features: Sequence[str] = (),
    rng: np.random.Generator | int | None = None,
) -> RankingFit:
    """Rate players, and again in every bootstrap sample.

    Parameters
    ----------
    unit
        What is drawn: ``"contest"``, or whole ``"cluster"`` or ``"judge"`` with their contests.
        Default: the cluster where contests have one.
    ties, position, features
        As for `fit_bradley_terry`.

    Returns
    -------
    The fit to all contests, with ``draws`` (n_resamples, n) and their covariance. A sample is the
    same whatever is drawn after it. Samples in which some are undefeated or not compared get the
    weak prior that `fit_bradley_terry` states; a note says how many.
    """
    start = perf_counter()
    rng = np.random.default_rng(rng)
    if unit is None:
        unit = "contest" if contests.cluster is None else "cluster"
    found = counted(contests, check_ties(ties), position=position, features=features)
    fitted = fit_ratings(found)
    draws: list[FloatArray] = []
    weak = stuck = 0
    # Single contests, of which there may be a million, need not go to other processes.
    slim = fitted._replace(found=replace(found, contests=contests.take(np.zeros(0, np.int64))))
    samples = _samples(found, unit, n_resamples, rng)
    for parameters, without_top, not_converged in mapped(partial(_refitted, slim), samples):
        draws.append(parameters)
        weak += without_top
        stuck += not_converged
    every = np.concatenate(draws, axis=1).T[:n_resamples]
    spread = Covariance(np.atleast_2d(np.cov(every, rowvar=False)), None)
    diagnostics = {
        "covariance": "bootstrap",
        "unit": unit,
        "n_resamples": n_resamples,
        "n_contests": len(found.contests),
        "seconds": perf_counter() - start,
    }
    notes = [*fitted.notes, *notes_on_weights(found.contests)]
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
    fit = as_fit(fitted._replace(notes=tuple(notes)), spread, diagnostics)
    return replace(fit, draws=every[:, : found.design.n].copy())


def _samples(
    found: Counted, unit: Unit, n_resamples: int, rng: np.random.Generator
) -> Iterator[tuple[FloatArray, int]]:
    """Counts of rows, shape (R, B), and how many of the B samples are wanted."""
    rows, cells = len(found.cell), len(found.design.first)
    held = max(rows, cells, found.design.size**2)
    # Of the problem alone: the same samples whatever n_resamples. The last samples are drawn in
    # vain, so that all are fitted in company of the same size and get the same bits.
    together = max(1, min(_TOGETHER, _ROOM // held))
    groups = None if unit == "contest" else found.groups(unit)
    for begin in range(0, n_resamples, together):
        if groups is None:
            counts = drawn_anew(found.count.astype(np.int64), together, rng)
        else:
            size = groups.shape[0]
            drawn = rng.multinomial(size, np.full(size, 1 / size), size=together)
            counts = groups.T @ drawn.T.astype(np.float64)
        yield counts, min(together, n_resamples - begin)


def drawn_anew(count: IntArray, samples: int, rng: np.random.Generator) -> FloatArray:
    """How often each comes up when as many as there are, are drawn with replacement, (R, B).

    Poisson counts given their sum are multinomial. They are drawn a little too few, which is
    quicker than binomial ones, and one by one what is missing.

    Parameters
    ----------
    count : shape (R,)
        How many there are of each.
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
    """Parameters (p, B), how many needed a prior, and how many did not converge."""
    found, design, (counts, wanted) = fitted.found, fitted.found.design, drawn
    weights = found.weights(counts)
    without_top = ~has_top(design, weights)
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
    lost = (~top.converged)[:wanted].sum()
    return top.parameters, int(without_top[:wanted].sum()), int(lost)
