"""Judges who differ: in how well they tell players apart, in favouring the first, in seeing ties.

The log odds that judge j sees are e^{a_j} (r_i - r_k) + the common effects + p_j, and the tie
parameter (log ν, or log η) is moved by t_j. Effects are normal about 0, with standard deviations
that are themselves estimated, by the (Laplace) marginal likelihood.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.bradley_terry import (
    CovarianceKind,
    as_fit,
    described,
    fit_ratings,
)
from evalstats_plugin.ranking.contests import Contests, FloatArray
from evalstats_plugin.ranking.counted import Counted
from evalstats_plugin.ranking.fit import RankingFit
from evalstats_plugin.ranking.judged_votes import (
    Point,
    Votes,
    effects_of,
    information_at,
    point_at,
    precision_of,
    votes_of,
)
from evalstats_plugin.ranking.maximum import Maximum
from evalstats_plugin.ranking.sandwich import Covariance, inverse

_START_SD, _LEAST_SD = 0.5, 1e-3
_MAX_STEPS, _TOLERANCE = 200, 1e-4


def fit_judges(found: Counted, kind: CovarianceKind, prior_sd: float | None) -> RankingFit:
    """Ratings that allow for differences between judges, whose effects are in the diagnostics.

    Parameters
    ----------
    kind
        Of covariance, not ``"auto"``.

    Raises
    ------
    DesignError
        There is one judge, or none.
    """
    start = perf_counter()
    if found.contests.judge is None:
        msg = "effects of judges need to know who judged: name the column of the judge"
        raise DesignError(msg)
    fitted = fit_ratings(found, prior_sd)
    votes = votes_of(found, None if fitted.sample.prior is None else fitted.sample.prior.precision)
    parameters = np.zeros(found.design.size + votes.judges * len(votes.effects))
    parameters[: found.design.size] = fitted.top.parameters[:, 0]
    if found.design.ties == "rao-kupper":
        parameters[found.design.size - 1] = np.log(parameters[found.design.size - 1])
    parameters, sds, iterations = _climbed(votes, parameters)
    at = point_at(votes, parameters, sds)
    common, sure = _on_its_scale(votes, parameters, _covariance(votes, at, sds, kind))
    log_likelihood = np.array([(votes.times * at.votes.value[:, 0]).sum()])
    top = Maximum(common[:, None], fitted.top.information, log_likelihood,
                  np.array([iterations < _MAX_STEPS]), iterations)  # fmt: skip
    diagnostics: dict[str, Any] = {
        "covariance": kind,
        "seconds": perf_counter() - start,
        "iterations": iterations,
        "judges": names_of_judges(found.contests),
        "judge_effects": effects_of(votes, parameters),
        "judge_sds": dict(zip(votes.effects, sds.tolist(), strict=True)),
    }
    notes = list(fitted.notes)
    if iterations >= _MAX_STEPS:
        notes.append(f"effects of judges did not converge in {iterations} steps")
    fitted = fitted._replace(top=top, notes=tuple(notes))
    return as_fit(fitted, sure, diagnostics | described(found, sure))


def _on_its_scale(
    votes: Votes, parameters: FloatArray, sure: Covariance
) -> tuple[FloatArray, Covariance]:
    """Common parameters, ratings with mean 0 and Rao and Kupper's η instead of its logarithm."""
    design = votes.found.design
    common, scale = parameters[: design.size].copy(), np.ones(design.size)
    common[: design.n] -= common[: design.n].mean()
    if design.ties == "rao-kupper":
        scale[-1] = common[-1] = np.exp(common[-1])
    return common, sure._replace(covariance=sure.covariance * np.outer(scale, scale))


def names_of_judges(contests: Contests) -> tuple[str, ...]:
    """Names of the judges that judged, in the order of their numbers."""
    present = np.unique(np.asarray(contests.judge, dtype=np.int64))
    return tuple(contests.judges[int(k)] if contests.judges else str(k) for k in present)


def _climbed(votes: Votes, parameters: FloatArray) -> tuple[FloatArray, FloatArray, int]:
    """Fisher scoring of all parameters, and then their standard deviations, in turns."""
    sds = np.full(len(votes.effects), _START_SD)
    for iteration in range(1, _MAX_STEPS + 1):
        at = point_at(votes, parameters, sds)
        n = votes.found.design.n
        information = information_at(votes, at, sds)
        covariance = inverse(information, n)
        step = inverse(information + np.diag(_bend(votes, at, parameters)), n) @ at.gradient
        step *= min(1, 2 / np.abs(step).max(initial=1e-300))
        for _ in range(30):
            if point_at(votes, parameters + step, sds).value >= at.value - 1e-9 * abs(at.value):
                break
            step = step / 2
        parameters = _recentred(votes, parameters + step)
        fresh = _standard_deviations(votes, parameters, covariance, sds)
        moved = max(np.abs(step).max(), np.abs(np.log(fresh / sds)).max())
        sds = fresh
        if moved < _TOLERANCE:
            return parameters, sds, iteration
    return parameters, sds, _MAX_STEPS


def _bend(votes: Votes, at: Point, parameters: FloatArray) -> FloatArray:
    """Curvature that Fisher scoring leaves out, which made it overshoot.

    That of e^a in each judge's discrimination and, of Rao and Kupper's, of e^{log η}.
    """
    design, count, out = votes.found.design, votes.times, np.zeros(len(parameters))
    own = effects_of(votes, out)
    x = at.slope_x[:, : design.n] @ parameters[: design.n]
    own["discrimination"] += np.bincount(votes.judge, -count * at.votes.by_x[:, 0] * x)
    if design.ties == "rao-kupper":
        own["tie"] += np.bincount(votes.judge, -count * at.votes.by_tie[:, 0])
    return np.maximum(out, 0)


def _recentred(votes: Votes, parameters: FloatArray) -> FloatArray:
    """Move what all judges have in common to the common parameters, which changes no chance."""
    out, design = parameters.copy(), votes.found.design
    for name, effect in effects_of(votes, out).items():
        if name == "discrimination" and votes.precision.any():
            # To stretch ratings would move them against their prior.
            continue
        mean = effect.mean()
        np.subtract(effect, mean, out=effect)
        if name == "discrimination":
            out[: design.n] *= np.exp(mean)
        else:
            out[design.n if name == "position" else design.size - 1] += mean
    return out


def _standard_deviations(
    votes: Votes, parameters: FloatArray, covariance: FloatArray, sds: FloatArray
) -> FloatArray:
    """What maximises the marginal likelihood, by the fixed point of [Mac92]_."""
    size, shape = votes.found.design.size, (len(sds), -1)
    variance = np.diagonal(covariance)[size:].reshape(shape).sum(axis=1)
    told = np.maximum(votes.judges - variance / sds**2, 1e-3 * votes.judges)
    return np.maximum(
        np.sqrt((parameters[size:].reshape(shape) ** 2).sum(axis=1) / told), _LEAST_SD
    )


def _covariance(votes: Votes, at: Point, sds: FloatArray, kind: str) -> Covariance:
    size = votes.found.design.size
    bread = inverse(information_at(votes, at, sds), votes.found.design.n)
    if kind == "model":
        return Covariance(bread[:size, :size], None)
    scores = at.slope_x * at.votes.by_x + at.slope_tie * at.votes.by_tie
    groups, factor = None, 1.0
    if kind == "sandwich":
        scores = scores * np.sqrt(votes.times)[:, None]
    else:
        contests = votes.found.contests
        votes.found.groups(kind)  # says where there are none
        group = contests.cluster if kind == "cluster" else contests.judge
        _, group = np.unique(np.asarray(group), return_inverse=True)
        groups = int(group.max()) + 1
        factor = groups / (groups - 1)
        shape = (groups, len(votes.row))
        scores = sparse.csr_array((np.ones(len(group)), (group, votes.of)), shape) @ scores
    middle = (scores.T @ scores).toarray() * factor + precision_of(votes, sds)
    return Covariance((bread @ middle @ bread)[:size, :size], groups)
