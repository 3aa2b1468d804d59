"""Bradley–Terry: the log odds that one player beats another are the difference of their ratings.

Maximum likelihood [BT52]_, with ties, an advantage of place, features of the contests ("style")
and effects of judges; covariance as the model has it, by the sandwich, or clustered.
"""
# PART judges - Judges who differ: in how well they tell players apart, in favouring the first, in seeing ties.
# PART judged_votes - Votes of judges who differ, and the penalised log-likelihood of what they said.
# PART bradley_terry_chances - What a fitted Bradley–Terry model expects of contests: wins, ties and losses of the first.

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
from scipy import sparse

from evalstats_plugin.errors import DesignError, SelectionError, few, no_such
from evalstats_plugin.ranking.contests.contests import Contests, Counted, counted, extremes
from evalstats_plugin.ranking.contests.outcomes import (
    Derivatives,
    TieModel,
    Weights,
    check_ties,
    derivatives,
    probabilities,
    weights_of,
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
    start_of,
)
from evalstats_plugin.stats.arrays import FloatArray, IntArray

CovarianceKind = Literal["auto", "model", "sandwich", "cluster", "judge"]


COVARIANCES: tuple[CovarianceKind, ...] = get_args(CovarianceKind)


FEW_CLUSTERS = 20
"""Below, a note says that clustered intervals are rough."""


_START_SD, _LEAST_SD = 0.5, 1e-3


_MAX_STEPS, _TOLERANCE = 200, 1e-4


class Ratings(NamedTuple):
    """Estimates, and what had to be done to get them."""

    found: Counted
    top: Maximum
    sample: Sample
    parts: IntArray
    """Strong components of the players."""
    notes: tuple[str, ...]


def fit_bradley_terry(
    contests: Contests,
    *,
    ties: TieModel = "half",
    position: bool = False,
    features: Sequence[str] = (),
    judges: bool = False,
    covariance: CovarianceKind = "auto",
    prior_sd: float | None = None,
) -> RankingFit:
    """Rate players by their contests.

    Parameters
    ----------
    contests
        Outcomes may be shares, but not with a model of ties.
    ties
        ``"half"`` a win each, ``"drop"``, ``"davidson"`` or ``"rao-kupper"``.
    position
        Whether who is shown first has an advantage, in logits.
    features
        Those of `Contests.feature_names` to adjust for; coefficients are per unit.
    judges
        Whether judges differ in how well they tell players apart, in how they favour the first and
        in how often they see a tie: see `judges`.
    covariance
        ``"model"``, ``"sandwich"``, ``"cluster"`` or ``"judge"``; ``"auto"`` is by cluster where
        contests have one, else the sandwich.
    prior_sd
        Of a normal prior of the ratings; None is maximum likelihood. Where some players won, or
        lost, every contest against all others, a prior of `WEAK_SD` logits keeps ratings finite,
        and a note says so.

    Returns
    -------
    Ratings of mean 0. ``parameters`` hold ``"position"``, each feature, and ``"tie"``: Davidson's
    log ν, or Rao and Kupper's η.

    Raises
    ------
    DesignError
        Players that no chain of contests connects; an advantage or a feature that these contests
        cannot tell from ratings; nothing to fit.
    SelectionError
        Something is called by a name that there is not.
    """
    start = perf_counter()
    if covariance not in COVARIANCES:
        raise SelectionError(no_such("covariance", covariance, COVARIANCES, ", ".join(COVARIANCES)))
    if prior_sd is not None and not prior_sd > 0:
        msg = f"prior_sd {prior_sd} found, expected a number above 0"
        raise DesignError(msg)
    found = counted(contests, check_ties(ties), position=position, features=features)
    kind = _kind(found.contests, covariance)
    if judges:
        return fit_judges(found, kind, prior_sd)
    fitted = fit_ratings(found, prior_sd)
    if kind != "model":
        fitted = fitted._replace(notes=(*fitted.notes, *notes_on_weights(found.contests)))
    parameters = fitted.top.parameters[:, 0]
    sure = covariance_of(found, parameters, fitted.top.information[0], kind, fitted.parts)
    diagnostics = {
        "covariance": kind,
        "seconds": perf_counter() - start,
        "iterations": fitted.top.iterations,
    }
    return as_fit(fitted, sure, {**diagnostics, **described(found, sure)})


def fit_ratings(found: Counted, prior_sd: float | None = None) -> Ratings:
    """Maximum likelihood, or the mode under a normal prior of the ratings."""
    reduced, design = found.reduced, found.design
    parts, notes = reduced.strong_components(), list(found.contests.notes)
    if prior_sd is None and parts.any():
        check_connected(reduced)
        # No finite maximum: some group won every contest against the others.
        prior_sd = WEAK_SD
        notes.append(_separation_note(reduced, parts))
    weights = found.weights()
    even = None
    if design.with_ties and not (weights.tied.any() and (weights.won + weights.lost).any()):
        even = np.ones(1)
        which = "only ties" if weights.tied.any() else "no ties"
        notes.append(f"{which} found: half a comparison between equals keeps their share finite")
    prior = None
    if prior_sd is not None:
        on_ratings = (np.arange(design.size) < design.n) / prior_sd**2
        prior = Prior(np.zeros(design.size), np.diag(on_ratings))
    sample = Sample(weights, prior, None, even)
    top = maximise(design, sample, start_of(design, weights))
    check_identified(found, top.information[0])
    if not top.converged.all():
        notes.append(f"the fit did not converge in {top.iterations} steps")
    return Ratings(found, top, sample, parts, tuple(notes))


def as_fit(fitted: Ratings, sure: Covariance, diagnostics: dict[str, Any]) -> RankingFit:
    """Put together what was found."""
    design, n = fitted.found.design, fitted.found.design.n
    values = fitted.top.parameters[:, 0]
    errors = np.sqrt(np.diagonal(sure.covariance))
    notes = fitted.notes
    if sure.groups is not None and sure.groups < FEW_CLUSTERS:
        notes = (*notes, f"only {sure.groups} clusters: intervals are rough, take Student's t with "
                 f"{sure.groups - 1} degrees of freedom")  # fmt: skip
    return RankingFit(
        model="bradley-terry",
        estimator="ml" if fitted.sample.prior is None else "laplace",
        players=fitted.found.contests.players,
        rating=values[:n],
        covariance=sure.covariance[:n, :n],
        parameters=dict(zip(design.names, values[n:].tolist(), strict=True)),
        parameter_std_errors=dict(zip(design.names, errors[n:].tolist(), strict=True)),
        log_likelihood=float(fitted.top.log_likelihood[0]),
        diagnostics={"ties": design.ties, "converged": bool(fitted.top.converged.all())}
        | diagnostics,
        notes=notes,
    )


def described(found: Counted, sure: Covariance) -> dict[str, Any]:
    """Counts that go into the diagnostics."""
    about: dict[str, Any] = {"n_contests": len(found.contests)}
    if sure.groups is not None:
        about |= {"n_clusters": sure.groups, "degrees_of_freedom": sure.groups - 1}
    return about


def notes_on_weights(contests: Contests) -> tuple[str, ...]:
    """Say that weights are no counts, where they look like it."""
    if not extremes(contests.weight)[1] > 1:
        return ()
    return (
        "weights above 1 found: a comparison counts as one observation whatever its weight, so "
        "that intervals are too wide if weights are counts; repeat it, or take covariance='model'",
    )


def check_connected(contests: Contests) -> None:
    """Raise `DesignError` where some players cannot be compared with others at all."""
    if apart := contests.apart():
        msg = (
            f"ratings need a chain of comparisons between all players; found {apart}. Leave some "
            "out, compare across, or give a prior with --prior-sd (in Python: prior_sd)"
        )
        raise DesignError(msg)


def check_identified(found: Counted, information: FloatArray) -> None:
    """Raise `DesignError` where a coefficient cannot be told from ratings."""
    design, n = found.design, found.design.n
    q = design.extra.shape[1]
    if not q:
        return
    regular: FloatArray = information[:n, :n] + np.abs(np.diagonal(information)[:n]).mean() / n
    across, own = information[n : n + q, :n], information[n : n + q, n : n + q]
    left: FloatArray = own - across @ np.linalg.solve(regular, across.T)
    scale = np.sqrt(np.maximum(np.diagonal(own), 1e-300))
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


def _kind(contests: Contests, covariance: CovarianceKind) -> CovarianceKind:
    if covariance != "auto":
        return covariance
    cluster = contests.cluster
    many = cluster is not None and cluster.min() != cluster.max()
    return "cluster" if many else "sandwich"


def _separation_note(contests: Contests, parts: IntArray) -> str:
    """Say who is undefeated or winless, or that groups are one above the other."""
    wins = contests.wins()
    names = np.array(contests.players, dtype=object)
    undefeated, winless = (
        [str(x) for x in names[~(counts > 0)]] for counts in (wins.sum(axis=0), wins.sum(axis=1))
    )
    said = [
        f"{few(found)} {verb} every comparison"
        for found, verb in ((undefeated, "won"), (winless, "lost"))
        if found
    ]
    if not said:
        said = [f"{parts.max() + 1} groups of players, of which one always beats the other"]
    return (
        f"{'; '.join(said)}: their ratings have no finite maximum likelihood, and a normal prior "
        f"with standard deviation {WEAK_SD:g} keeps all of them finite"
    )


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


class Votes(NamedTuple):
    """Distinct votes: V rows with their judge."""

    found: Counted
    row: IntArray
    judge: IntArray
    times: FloatArray
    """How many contests are this vote, shape (V,)."""
    of: IntArray
    """Of each contest, shape (C,)."""
    judges: int
    effects: tuple[str, ...]
    precision: FloatArray
    """Of the prior of the common parameters, shape (p, p)."""

    @property
    def cell(self) -> IntArray:
        """Of each vote, shape (V,)."""
        return self.found.cell[self.row]

    @property
    def each(self) -> Weights:
        """One vote's."""
        return Weights(*(x[self.row] for x in self.found.each))


class Point(NamedTuple):
    """Everything at parameters: p common ones, then those of each judge, effect by effect."""

    value: float
    gradient: FloatArray
    votes: Derivatives
    """Of one vote of each kind; those by the tie parameter in log η for Rao–Kupper."""
    slope_x: Any
    """How x changes with the parameters, sparse (V, P)."""
    slope_tie: Any


def votes_of(found: Counted, precision: FloatArray | None) -> Votes:
    """Count votes by judge; the precision is of a prior of the common parameters, (p, p).

    Raises
    ------
    DesignError
        There is one judge only.
    """
    names, judge = np.unique(np.asarray(found.contests.judge, dtype=np.int64), return_inverse=True)
    if len(names) < 2:
        msg = "all comparisons have one judge, expected at least 2 to tell how judges differ"
        raise DesignError(msg)
    code, of = np.unique(found.row * len(names) + judge, return_inverse=True)
    effects = ["discrimination"]
    if "position" in found.design.names:
        effects.append("position")
    if found.design.with_ties:
        effects.append("tie")
    size = found.design.size
    return Votes(
        found,
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
    own = parameters[votes.found.design.size :].reshape(len(votes.effects), -1)
    return dict(zip(votes.effects, own, strict=True))


def point_at(votes: Votes, parameters: FloatArray, sds: FloatArray) -> Point:
    """Penalised log-likelihood, and what its derivatives are made of."""
    design = votes.found.design
    common, own = parameters[: design.size, None], effects_of(votes, parameters)
    steep = np.exp(own["discrimination"])[votes.judge, None]
    apart = (design.against @ common[: design.n])[votes.cell]
    q = design.extra.shape[1]
    x = steep * apart + (design.extra @ common[design.n : design.n + q])[votes.cell]
    if "position" in own:
        x = x + own["position"][votes.judge, None]
    tie = np.zeros_like(x)
    if design.with_ties:
        tie = common[-1] + own["tie"][votes.judge, None]
    each = Weights(*(w[:, None] for w in votes.each))
    found = _derivatives(votes, x, tie, each)
    slope_x, slope_tie = _slopes(votes, steep, apart)
    by_x, by_tie = (votes.times[:, None] * d for d in (found.by_x, found.by_tie))
    gradient = (slope_x.T @ by_x + slope_tie.T @ by_tie)[:, 0]
    pull = precision_of(votes, sds) @ parameters
    value = float(votes.times @ found.value[:, 0] - parameters @ pull / 2)
    return Point(value, gradient - pull, found, slope_x, slope_tie)


def _derivatives(votes: Votes, x: FloatArray, tie: FloatArray, each: Weights) -> Derivatives:
    if votes.found.design.ties != "rao-kupper":
        return derivatives(votes.found.design.ties, x, tie, each)
    eta = np.exp(np.clip(tie, -20, 5))
    d = derivatives("rao-kupper", x, eta, each)
    # In log η. The slope's own change is left out, as Fisher scoring does.
    return d._replace(
        by_tie=d.by_tie * eta,
        information_x_tie=d.information_x_tie * eta,
        information_tie=d.information_tie * eta**2,
    )


def _slopes(votes: Votes, steep: FloatArray, apart: FloatArray) -> tuple[Any, Any]:
    design, v = votes.found.design, len(votes.row)
    shape = (v, votes.judges)
    at = (np.arange(v), votes.judge)
    theirs = {
        "discrimination": sparse.csr_array(((steep * apart)[:, 0], at), shape),
        "position": sparse.csr_array((np.ones(v), at), shape),
    }
    one, none = sparse.csr_array(np.ones((v, 1))), sparse.csr_array((v, 1))
    blank = sparse.csr_array(shape)
    x: list[Any] = [design.against[votes.cell] * steep]
    if design.extra.shape[1]:
        x.append(sparse.csr_array(design.extra[votes.cell]))
    tie: list[Any] = [sparse.csr_array((v, design.size - design.with_ties))]
    if design.with_ties:
        x.append(none)
        tie.append(one)
    for name in votes.effects:
        x.append(theirs.get(name, blank))
        tie.append(theirs["position"] if name == "tie" else blank)
    return sparse.hstack(x, format="csr"), sparse.hstack(tie, format="csr")


def precision_of(votes: Votes, sds: FloatArray) -> FloatArray:
    """Of the prior of all parameters, given the standard deviation of each effect."""
    size = votes.found.design.size
    out = np.diag(np.r_[np.zeros(size), np.repeat(sds**-2.0, votes.judges)])
    out[:size, :size] = votes.precision
    return out


def information_at(votes: Votes, at: Point, sds: FloatArray) -> FloatArray:
    """Fisher's information of all parameters, the prior's with it."""
    x, tie, scale = at.slope_x, at.slope_tie, votes.times[:, None]
    cross = x.T @ (tie * (scale * at.votes.information_x_tie))
    own = x.T @ (x * (scale * at.votes.information_x))
    other = tie.T @ (tie * (scale * at.votes.information_tie))
    return (own + cross + cross.T + other).toarray() + precision_of(votes, sds)


def chances(fit: RankingFit, contests: Contests) -> FloatArray:
    """P(the first wins), P(tie) and P(it loses), shape (C, 3), at the estimates.

    An advantage of place, features and judges count where the fit has them; a judge who was not
    among those fitted is an average one.

    Raises
    ------
    DesignError
        A player, or a feature, is not among those of the other.
    """
    place = _places(fit.players, contests.players)
    seen = np.union1d(contests.first, contests.second)
    strange = seen[place[seen] < 0]
    if len(strange):
        names = [contests.players[int(k)] for k in strange]
        msg = f"players found that were not fitted: {few(names)}"
        raise DesignError(msg)
    rating = fit.rating[place]
    x = rating[contests.first] - rating[contests.second]
    x = x * np.exp(_effect(fit, contests, "discrimination"))
    x = x + _effect(fit, contests, "position")
    tie = np.full(len(x), fit.parameters.get("tie", 0.0))
    ties = check_ties(cast(str, fit.diagnostics["ties"]))
    moved = _effect(fit, contests, "tie")
    tie = tie * np.exp(moved) if ties == "rao-kupper" else tie + moved
    for name, value in fit.parameters.items():
        if name == "position":
            x = x + value
        elif name != "tie":
            x = x + value * _feature(contests, name)
    return probabilities(ties, x, tie)


def log_loss(fit: RankingFit, contests: Contests) -> float:
    """Mean log loss of what came of the contests, by weight; a share counts in part for each."""
    ties: TieModel = check_ties(cast(str, fit.diagnostics["ties"]))
    kept = contests.take(~contests.tied) if ties == "drop" else contests
    p = np.maximum(chances(fit, kept), 1e-300)
    weights = np.stack(weights_of(ties, kept.outcome, kept.weight), axis=-1)
    return float(-(weights * np.log(p)).sum() / kept.weight.sum())


def _places(known: tuple[str, ...], names: tuple[str, ...]) -> IntArray:
    at = {name: k for k, name in enumerate(known)}
    return np.array([at.get(name, -1) for name in names], dtype=np.int64)


def _effect(fit: RankingFit, contests: Contests, name: str) -> FloatArray:
    """Each contest's judge's effect; 0 where there is none."""
    effects: dict[str, Any] = fit.diagnostics.get("judge_effects", {})
    if name not in effects or contests.judge is None:
        return np.zeros(len(contests))
    _, of = np.unique(contests.judge, return_inverse=True)
    at = _places(fit.diagnostics["judges"], names_of_judges(contests))
    theirs = np.where(at >= 0, effects[name][at], 0.0)
    return theirs[of]


def _feature(contests: Contests, name: str) -> FloatArray:
    if name not in contests.feature_names or contests.features is None:
        msg = f"feature {name!r}, which the fit has, not found in the comparisons"
        raise DesignError(msg)
    return contests.features[:, contests.feature_names.index(name)]
