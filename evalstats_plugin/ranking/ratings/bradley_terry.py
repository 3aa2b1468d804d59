"""Bradley–Terry model by maximum likelihood [BT52]_, and its predictions.

The log odds that one player beats another are the difference of their ratings. Options are ties, a
position effect, features of the contests ("style") and judge effects; covariance by the model, by
the sandwich, or clustered.

* `fit_bradley_terry`: checks, the maximum (`fit_ratings`), a covariance, and a `RankingFit`
* `fit_judges`: judges who differ in discrimination, position bias and ties, by penalised likelihood
* `predict_outcomes`: probabilities of a win, a tie and a loss of given contests
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy import sparse

from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.ranking.contests.contests import (
    Contests,
    CountedContests,
    count_contests,
    extremes,
)
from evalstats_plugin.ranking.contests.outcomes import (
    Derivatives,
    TieModel,
    Weights,
    derivatives,
    probabilities,
)
from evalstats_plugin.ranking.ratings.fit import RankingFit
from evalstats_plugin.ranking.ratings.likelihood import (
    WEAK_SD,
    Covariance,
    Maximum,
    Prior,
    Sample,
    covariance_of,
    inverse,
    maximise,
    start_values,
)
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.newton import Convergence, line_search

CovarianceKind = Literal["auto", "model", "sandwich", "cluster", "judge"]
COVARIANCES: tuple[CovarianceKind, ...] = get_args(CovarianceKind)
FEW_CLUSTERS = 20
"""With fewer clusters, a note says that clustered intervals are rough."""

_START_SD, _LEAST_SD = 0.5, 1e-3
"""Standard deviation of judge effects: start, and lower bound."""
_MAX_STEPS, _TOLERANCE = 200, 1e-4


def fit_bradley_terry(
    contests: Contests,
    *,
    ties: TieModel | None = None,
    position: bool = False,
    features: Sequence[str] = (),
    judges: bool = False,
    covariance: CovarianceKind = "auto",
    prior_sd: float | None = None,
) -> RankingFit:
    """Fit Bradley–Terry ratings by maximum likelihood.

    Parameters
    ----------
    contests
        Outcomes may be shares, but not with a model of ties.
    ties
        ``"davidson"`` [Dav70]_, ``"rao-kupper"`` [RK67]_, ``"half"`` a win each, or ``"drop"``.
        Default: Davidson's model where there are ties, if no outcome is another share. Counting a
        tie as half a win makes the ratings log odds of the expected score, not of a win.
    position
        Whether to estimate a position effect: the advantage of being shown first, in logits.
    features
        Names from `Contests.feature_names` to adjust for; coefficients are per unit.
    judges
        Whether judges differ in discrimination, in how they favour the first and in how often they
        see a tie: see `fit_judges`.
    covariance
        ``"model"``, ``"sandwich"``, ``"cluster"`` or ``"judge"``; ``"auto"`` is by cluster if the
        contests have clusters, else the sandwich.
    prior_sd
        Standard deviation of a normal prior of the ratings; None is maximum likelihood. If some
        players won, or lost, every contest against all others, a prior of `WEAK_SD` logits keeps
        ratings finite, and a note says so.

    Returns
    -------
    Ratings with mean 0. ``parameters`` hold ``"position"``, each feature, and ``"tie"``: Davidson's
    log ν, or Rao and Kupper's η.

    Raises
    ------
    DesignError
        No chain of contests connects all players; the position effect or a feature is not
        identified by these contests; nothing to fit.
    SelectionError
        An unknown name of a covariance, a tie model or a feature.

    Examples
    --------
    >>> contests = Contests.of([0] * 4, [1] * 4, [1, 1, 1, 0], players=["ant", "bee"])
    >>> fit = fit_bradley_terry(contests)
    >>> print(np.exp(fit.rating[0] - fit.rating[1]).round(6))  # odds
    3.0
    """
    start = perf_counter()
    if covariance not in COVARIANCES:
        raise SelectionError(no_such("covariance", covariance, COVARIANCES, ", ".join(COVARIANCES)))
    if prior_sd is not None and not prior_sd > 0:
        msg = f"prior_sd is {prior_sd}: give a number above 0"
        raise DesignError(msg)
    tally = count_contests(contests, ties, position=position, features=features)
    kind = _kind(tally.contests, covariance)
    if judges and tally.contests.judge is None:
        msg = "effects of judges need to know who judged: name the column of the judge"
        raise DesignError(msg)
    fitted, effects = fit_ratings(tally, prior_sd), dict[str, Any]()
    if judges:
        fitted, spread, effects = fit_judges(fitted, kind)
    else:
        top = fitted.top
        spread = covariance_of(tally, top.parameters, top.information, kind, fitted.parts)
    notes = list(fitted.notes)
    if kind != "model" and not judges and extremes(tally.contests.weight)[1] > 1:
        notes.append(
            "some weights are above 1, and a comparison counts as one observation whatever its "
            "weight: intervals are too wide if weights are counts; repeat it, or take "
            "covariance='model'"
        )
    diagnostics: dict[str, Any] = {
        "ties": tally.design.ties,
        "converged": bool(fitted.top.convergence.converged.all()),
        "covariance": kind,
        "seconds": perf_counter() - start,
        "iterations": fitted.top.convergence.steps,
        "n_contests": len(tally.contests),
        "n_ties": int(tally.contests.tied.sum()),
        **effects,
    }
    if spread.groups is not None:
        freedom = spread.groups - 1
        diagnostics |= {"n_clusters": spread.groups, "degrees_of_freedom": freedom}
        if spread.groups < FEW_CLUSTERS:
            notes.append(
                f"only {counted(spread.groups, 'cluster')}: intervals are rough, of Student's t "
                f"with {freedom} degrees of freedom"
            )
    n, names, values = tally.design.n, tally.design.names, fitted.top.parameters
    errors = np.sqrt(np.diagonal(spread.covariance))
    return RankingFit(
        model="bradley-terry",
        estimator="ml" if fitted.sample.prior is None else "laplace",
        players=tally.contests.players,
        rating=values[:n],
        covariance=spread.covariance[:n, :n],
        parameters=dict(zip(names, values[n:].tolist(), strict=True)),
        parameter_std_errors=dict(zip(names, errors[n:].tolist(), strict=True)),
        log_likelihood=fitted.top.log_likelihood,
        diagnostics=diagnostics,
        notes=tuple(notes),
    )


def _kind(contests: Contests, covariance: CovarianceKind) -> CovarianceKind:
    if covariance != "auto":
        return covariance
    cluster = contests.cluster
    many = cluster is not None and cluster.min() != cluster.max()
    return "cluster" if many else "sandwich"


class Ratings(NamedTuple):
    """Maximum likelihood estimates, or the posterior mode under a weak prior."""

    tally: CountedContests
    top: Maximum
    sample: Sample
    parts: IntArray
    """Strongly connected component of each player, shape (n,)."""
    notes: tuple[str, ...]


def fit_ratings(tally: CountedContests, prior_sd: float | None = None) -> Ratings:
    """Maximise the likelihood, or the posterior under a normal prior of the ratings.

    If the maximum is infinite, a prior of `WEAK_SD` is used and a note says why.
    """
    reduced, design = tally.reduced, tally.design
    parts, notes = reduced.strong_components(), list(tally.contests.notes)
    if prior_sd is None and parts.any():
        check_connected(reduced)
        # No finite maximum: some group of players won every contest against the others.
        prior_sd = WEAK_SD
        notes.append(_separation_note(reduced, parts))
    weights = tally.weights()
    even = design.with_ties and not (weights.tied.any() and (weights.won + weights.lost).any())
    if even:
        which = "only ties" if weights.tied.any() else "no ties"
        notes.append(f"{which}: half a comparison between equals keeps their share finite")
    prior = None
    if prior_sd is not None:
        on_ratings = (np.arange(design.size) < design.n) / prior_sd**2
        prior = Prior(np.zeros(design.size), np.diag(on_ratings))
    sample = Sample(weights, prior, even)
    top = maximise(design, sample, start_values(design, weights))
    check_identified(tally, top.information)
    if top.convergence.why:
        notes.append(f"the fit {top.convergence.why}")
    return Ratings(tally, top, sample, parts, tuple(notes))


def _separation_note(contests: Contests, parts: IntArray) -> str:
    """Note which players are undefeated or winless, or that one group always beats another."""
    wins = contests.wins()
    names = np.array(contests.players, dtype=object)
    undefeated, winless = (
        [str(x) for x in names[~(counts > 0)]] for counts in (wins.sum(axis=0), wins.sum(axis=1))
    )
    described = [
        f"{few(players)} {verb} every comparison"
        for players, verb in ((undefeated, "won"), (winless, "lost"))
        if players
    ]
    if not described:
        described = [f"{parts.max() + 1} groups of players, of which one always beats the other"]
    return (
        f"{'; '.join(described)}: their ratings have no finite maximum likelihood, and a normal "
        f"prior with standard deviation {WEAK_SD:g} keeps all of them finite"
    )


def check_connected(contests: Contests) -> None:
    """Raise `DesignError` if no chain of contests connects all players."""
    if groups := contests.disconnected():
        msg = (
            f"ratings need a chain of comparisons between all players; found {groups}. Leave some "
            "out, compare across, or give a prior with --prior-sd (in Python: prior_sd)"
        )
        raise DesignError(msg)


def check_identified(tally: CountedContests, information: FloatArray) -> None:
    """Raise `DesignError` if a coefficient is collinear with the ratings or other coefficients."""
    design, n = tally.design, tally.design.n
    q = design.extra.shape[1]
    if not q:
        return
    regular: FloatArray = information[:n, :n] + np.abs(np.diagonal(information)[:n]).mean() / n
    across, block = information[n : n + q, :n], information[n : n + q, n : n + q]
    left: FloatArray = block - across @ np.linalg.solve(regular, across.T)
    scale = np.sqrt(np.maximum(np.diagonal(block), 1e-300))
    value, vectors = np.linalg.eigh(left / np.outer(scale, scale))
    if value[0] > 1e-9:
        return
    blamed = [design.names[k] for k in np.flatnonzero(np.abs(vectors[:, 0]) > 1e-3)]
    msg = (
        f"these comparisons cannot tell {few(blamed)} from the ratings or from each other: every "
        "pair was shown in one order only, or a feature is the same whenever a player appears; "
        "leave it out, or compare in both orders"
    )
    raise DesignError(msg)


def fit_judges(fitted: Ratings, kind: CovarianceKind) -> tuple[Ratings, Covariance, dict[str, Any]]:
    """Fit ratings with random effects of the judges, from those without; and the effects.

    Each judge has a log discrimination and, if the model has them, a position effect and a tie
    parameter, all normal around the common value. Their standard deviations maximise the marginal
    likelihood (empirical Bayes).

    Parameters
    ----------
    kind
        Kind of covariance, not ``"auto"``.

    Raises
    ------
    DesignError
        Fewer than two judges.
    """
    tally, prior = fitted.tally, fitted.sample.prior
    votes = count_votes(tally, None if prior is None else prior.precision)
    parameters = np.zeros(tally.design.size + votes.judges * len(votes.effects))
    parameters[: tally.design.size] = fitted.top.parameters
    if tally.design.ties == "rao-kupper":
        parameters[tally.design.size - 1] = np.log(parameters[tally.design.size - 1])
    parameters, sds, convergence = _estimate_effects(votes, parameters)
    at = point_at(votes, parameters, sds)
    common, spread = _common_parameters(votes, parameters, _covariance(votes, at, sds, kind))
    log_likelihood = float(votes.times @ at.votes.value)
    top = Maximum(common, fitted.top.information, log_likelihood, convergence)
    effects = {
        "judges": names_of_judges(tally.contests),
        "judge_effects": effects_of(votes, parameters),
        "judge_sds": dict(zip(votes.effects, sds.tolist(), strict=True)),
    }
    notes = fitted.notes
    if convergence.why:
        notes = (*notes, f"the fit of the judges' effects {convergence.why}")
    return fitted._replace(top=top, notes=notes), spread, effects


class Votes(NamedTuple):
    """V distinct votes: combinations of a row of contests and a judge."""

    tally: CountedContests
    row: IntArray
    """Row of each vote, shape (V,)."""
    judge: IntArray
    """Judge of each vote, shape (V,)."""
    times: FloatArray
    """Number of contests of each vote, shape (V,)."""
    of: IntArray
    """Vote of each contest, shape (C,)."""
    judges: int
    """Number of judges J."""
    effects: tuple[str, ...]
    """Names of the judge effects."""
    precision: FloatArray
    """Prior precision of the common parameters, shape (p, p)."""

    @property
    def cell(self) -> IntArray:
        """Cell of each vote, shape (V,)."""
        return self.tally.cell[self.row]

    @property
    def each(self) -> Weights:
        """Wins, ties and losses of one contest of each vote, shape (V,)."""
        return Weights(*(x[self.row] for x in self.tally.each))


def count_votes(tally: CountedContests, precision: FloatArray | None) -> Votes:
    """Count votes by row and judge.

    Parameters
    ----------
    precision : shape (p, p)
        Prior precision of the common parameters. Default: a flat prior.

    Raises
    ------
    DesignError
        There is only one judge.
    """
    names, judge = np.unique(np.asarray(tally.contests.judge, dtype=np.int64), return_inverse=True)
    if len(names) < 2:
        msg = "all comparisons have one judge: effects of judges need at least 2"
        raise DesignError(msg)
    code, of = np.unique(tally.row * len(names) + judge, return_inverse=True)
    effects = ["discrimination"]
    if "position" in tally.design.names:
        effects.append("position")
    if tally.design.with_ties:
        effects.append("tie")
    size = tally.design.size
    return Votes(
        tally,
        code // len(names),
        code % len(names),
        np.bincount(of).astype(np.float64),
        of.astype(np.int64),
        len(names),
        tuple(effects),
        np.zeros((size, size)) if precision is None else precision,
    )


def effects_of(votes: Votes, parameters: FloatArray) -> dict[str, FloatArray]:
    """Effects of each judge, by name, each of shape (J,)."""
    values = parameters[votes.tally.design.size :].reshape(len(votes.effects), -1)
    return dict(zip(votes.effects, values, strict=True))


def names_of_judges(contests: Contests) -> tuple[str, ...]:
    """Names of the judges with contests, in the order of their numbers."""
    present = np.unique(np.asarray(contests.judge, dtype=np.int64))
    return tuple(contests.judges[int(k)] if contests.judges else str(k) for k in present)


def _estimate_effects(
    votes: Votes, parameters: FloatArray
) -> tuple[FloatArray, FloatArray, Convergence]:
    """Alternate Fisher scoring of all parameters with updates of the standard deviations."""
    sds = np.full(len(votes.effects), _START_SD)
    steps, change = 0, np.inf
    while change >= _TOLERANCE and steps < _MAX_STEPS:
        steps += 1
        at = point_at(votes, parameters, sds)
        n = votes.tally.design.n
        information = information_at(votes, at, sds)
        covariance = inverse(information, n)
        step = (
            inverse(information + np.diag(_neglected_curvature(votes, at, parameters)), n)
            @ at.gradient
        )
        step *= min(1, 2 / np.abs(step).max(initial=1e-300))
        moved, _ = line_search(parameters, at, step, partial(point_at, votes, sds=sds))
        change = np.abs(moved - parameters).max()
        parameters = _recentred(votes, moved)
        fresh = _standard_deviations(votes, parameters, covariance, sds)
        change, sds = max(change, np.abs(np.log(fresh / sds)).max()), fresh
    done = np.array([change < _TOLERANCE])
    return parameters, sds, Convergence(done, steps, np.array([change]))


def _neglected_curvature(votes: Votes, at: Point, parameters: FloatArray) -> FloatArray:
    """Curvature that Fisher scoring leaves out, without which it overshoots.

    That of e^a in each judge's discrimination and, in Rao and Kupper's model, of e^{log η}.
    """
    design, count, out = votes.tally.design, votes.times, np.zeros(len(parameters))
    effects = effects_of(votes, out)
    x = at.slope_x[:, : design.n] @ parameters[: design.n]
    effects["discrimination"] += np.bincount(votes.judge, -count * at.votes.by_x * x)
    if design.ties == "rao-kupper":
        effects["tie"] += np.bincount(votes.judge, -count * at.votes.by_tie)
    return np.maximum(out, 0)


def _recentred(votes: Votes, parameters: FloatArray) -> FloatArray:
    """Move the mean judge effects to the common parameters, which changes no probability."""
    out, design = parameters.copy(), votes.tally.design
    for name, effect in effects_of(votes, out).items():
        if name == "discrimination" and votes.precision.any():
            # Scaling the ratings would change their prior density.
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
    """Maximise the marginal likelihood by the fixed-point iteration of [Mac92]_."""
    size, shape = votes.tally.design.size, (len(sds), -1)
    variance = np.diagonal(covariance)[size:].reshape(shape).sum(axis=1)
    # Effective number of judges that the data determine, rather than the prior.
    effective = np.maximum(votes.judges - variance / sds**2, 1e-3 * votes.judges)
    return np.maximum(
        np.sqrt((parameters[size:].reshape(shape) ** 2).sum(axis=1) / effective), _LEAST_SD
    )


class Point(NamedTuple):
    """Penalised log-likelihood at parameters: p common ones, then the J of each judge effect."""

    value: float
    gradient: FloatArray
    votes: Derivatives
    """Derivatives of one contest of each vote; for Rao–Kupper in log η instead of η."""
    slope_x: Any
    """Derivative of x in all parameters, sparse (V, P)."""
    slope_tie: Any
    """Derivative of the tie parameter in all parameters, sparse (V, P)."""


def point_at(votes: Votes, parameters: FloatArray, sds: FloatArray) -> Point:
    """Evaluate the penalised log-likelihood and the parts of its derivatives."""
    design = votes.tally.design
    common, effects = parameters[: design.size], effects_of(votes, parameters)
    steep = np.exp(effects["discrimination"])[votes.judge]
    difference = (design.against @ common[: design.n])[votes.cell]
    q = design.extra.shape[1]
    x = steep * difference + (design.extra @ common[design.n : design.n + q])[votes.cell]
    if "position" in effects:
        x = x + effects["position"][votes.judge]
    tie = np.zeros_like(x)
    if design.with_ties:
        tie = common[-1] + effects["tie"][votes.judge]
    terms = _derivatives(votes, x, tie)
    slope_x, slope_tie = _slopes(votes, steep, difference)
    gradient = slope_x.T @ (votes.times * terms.by_x) + slope_tie.T @ (votes.times * terms.by_tie)
    pull = precision_of(votes, sds) @ parameters
    value = float(votes.times @ terms.value - parameters @ pull / 2)
    return Point(value, gradient - pull, terms, slope_x, slope_tie)


def _derivatives(votes: Votes, x: FloatArray, tie: FloatArray) -> Derivatives:
    if votes.tally.design.ties != "rao-kupper":
        return derivatives(votes.tally.design.ties, x, tie, votes.each)
    eta = np.exp(np.clip(tie, -20, 5))
    d = derivatives("rao-kupper", x, eta, votes.each)
    # Chain rule for log η, without the second derivative of η, as in Fisher scoring.
    return d._replace(
        by_tie=d.by_tie * eta,
        information_x_tie=d.information_x_tie * eta,
        information_tie=d.information_tie * eta**2,
    )


def _slopes(votes: Votes, steep: FloatArray, difference: FloatArray) -> tuple[Any, Any]:
    """Sparse derivatives of x and of the tie parameter in all parameters, each (V, P)."""
    design, v = votes.tally.design, len(votes.row)
    shape = (v, votes.judges)
    at = (np.arange(v), votes.judge)
    theirs = {
        "discrimination": sparse.csr_array((steep * difference, at), shape),
        "position": sparse.csr_array((np.ones(v), at), shape),
    }
    ones, none = sparse.csr_array(np.ones((v, 1))), sparse.csr_array((v, 1))
    blank = sparse.csr_array(shape)
    x: list[Any] = [design.against[votes.cell] * steep[:, None]]
    if design.extra.shape[1]:
        x.append(sparse.csr_array(design.extra[votes.cell]))
    tie: list[Any] = [sparse.csr_array((v, design.size - design.with_ties))]
    if design.with_ties:
        x.append(none)
        tie.append(ones)
    for name in votes.effects:
        x.append(theirs.get(name, blank))
        tie.append(theirs["position"] if name == "tie" else blank)
    return sparse.hstack(x, format="csr"), sparse.hstack(tie, format="csr")


def information_at(votes: Votes, at: Point, sds: FloatArray) -> FloatArray:
    """Fisher information of all parameters, including the prior's."""
    x, tie, times = at.slope_x, at.slope_tie, votes.times
    cross = x.T @ (tie * (times * at.votes.information_x_tie)[:, None])
    by_x = x.T @ (x * (times * at.votes.information_x)[:, None])
    by_tie = tie.T @ (tie * (times * at.votes.information_tie)[:, None])
    return (by_x + cross + cross.T + by_tie).toarray() + precision_of(votes, sds)


def precision_of(votes: Votes, sds: FloatArray) -> FloatArray:
    """Prior precision of all parameters, given the standard deviation of each effect."""
    size = votes.tally.design.size
    out = np.diag(np.r_[np.zeros(size), np.repeat(sds**-2.0, votes.judges)])
    out[:size, :size] = votes.precision
    return out


def _covariance(votes: Votes, at: Point, sds: FloatArray, kind: str) -> Covariance:
    size = votes.tally.design.size
    bread = inverse(information_at(votes, at, sds), votes.tally.design.n)
    if kind == "model":
        return Covariance(bread[:size, :size], None)
    scores = at.slope_x * at.votes.by_x[:, None] + at.slope_tie * at.votes.by_tie[:, None]
    groups, factor = None, 1.0
    if kind == "sandwich":
        scores = scores * np.sqrt(votes.times)[:, None]
    else:
        members = votes.tally.groups(kind, votes.of)
        groups = int(members.shape[0])
        factor = groups / (groups - 1)
        scores = members @ scores
    middle = (scores.T @ scores).toarray() * factor + precision_of(votes, sds)
    return Covariance((bread @ middle @ bread)[:size, :size], groups)


def _common_parameters(
    votes: Votes, parameters: FloatArray, spread: Covariance
) -> tuple[FloatArray, Covariance]:
    """Common parameters, with ratings of mean 0 and Rao and Kupper's η instead of its logarithm."""
    design = votes.tally.design
    common, scale = parameters[: design.size].copy(), np.ones(design.size)
    common[: design.n] -= common[: design.n].mean()
    if design.ties == "rao-kupper":
        scale[-1] = common[-1] = np.exp(common[-1])
    return common, spread._replace(covariance=spread.covariance * np.outer(scale, scale))


def predict_outcomes(fit: RankingFit, contests: Contests) -> FloatArray:
    """Probabilities of a win, a tie and a loss of the first at the estimates, shape (C, 3).

    The position effect, features and judge effects are used if the fit has them; a judge without
    an estimated effect is treated as an average one.

    Raises
    ------
    DesignError
        The contests have other players than the fit, or lack a feature of it.
    """
    if contests.players != fit.players:
        msg = "the comparisons have other players than the fit: give the same list of players"
        raise DesignError(msg)
    x = fit.rating[contests.first] - fit.rating[contests.second]
    x = x * np.exp(_effect(fit, contests, "discrimination"))
    x = x + _effect(fit, contests, "position")
    tie = np.full(len(x), fit.parameters.get("tie", 0.0))
    ties: TieModel = fit.diagnostics["ties"]
    moved = _effect(fit, contests, "tie")
    tie = tie * np.exp(moved) if ties == "rao-kupper" else tie + moved
    for name, value in fit.parameters.items():
        if name == "position":
            x = x + value
        elif name != "tie":
            x = x + value * _feature(contests, name)
    return probabilities(ties, x, tie)


def _effect(fit: RankingFit, contests: Contests, name: str) -> FloatArray:
    """Effect of each contest's judge, shape (C,); 0 if unknown."""
    effects: dict[str, Any] = fit.diagnostics.get("judge_effects", {})
    if name not in effects or contests.judge is None:
        return np.zeros(len(contests))
    _, of = np.unique(contests.judge, return_inverse=True)
    place = {name: k for k, name in enumerate(fit.diagnostics["judges"])}
    at = np.array([place.get(name, -1) for name in names_of_judges(contests)], dtype=np.int64)
    by_judge = np.where(at >= 0, effects[name][at], 0.0)
    return by_judge[of]


def _feature(contests: Contests, name: str) -> FloatArray:
    if name not in contests.feature_names or contests.features is None:
        msg = f"the comparisons lack feature {name!r}, which the fit has: add it"
        raise DesignError(msg)
    return contests.features[:, contests.feature_names.index(name)]
