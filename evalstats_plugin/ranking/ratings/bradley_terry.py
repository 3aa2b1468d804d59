"""Bradley–Terry model by maximum likelihood [BT52]_.

The log odds that one player beats another are the difference of their ratings. Options are ties, a
position effect and features of the contests ("style"); covariance by the model, by the sandwich, or
clustered. Predictions are in `ranking.goodness`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy import sparse

from evalstats_plugin.errors import DesignError, check_known, counted, few
from evalstats_plugin.ranking.contests.contests import (
    Contests,
    CountedContests,
    Design,
    count_contests,
    extremes,
)
from evalstats_plugin.ranking.contests.outcomes import TieModel, Weights
from evalstats_plugin.ranking.ratings.fit import RankingFit
from evalstats_plugin.ranking.ratings.likelihood import (
    WEAK_SD,
    Maximum,
    Sample,
    covariance_of,
    maximise,
)
from evalstats_plugin.stats.arrays import FloatArray, IntArray

CovarianceKind = Literal["auto", "model", "sandwich", "cluster", "judge"]
COVARIANCES: tuple[CovarianceKind, ...] = get_args(CovarianceKind)
FEW_CLUSTERS = 20
"""With fewer clusters, a note says that clustered intervals are rough."""


def fit_bradley_terry(
    contests: Contests,
    *,
    ties: TieModel | None = None,
    position: bool = False,
    features: Sequence[str] = (),
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
    covariance
        ``"model"``, ``"sandwich"``, ``"cluster"`` or ``"judge"``; ``"auto"`` is by cluster if the
        contests have clusters, else the sandwich.
    prior_sd
        Standard deviation of a normal prior of the ratings; None is maximum likelihood. If some
        players won, or lost, every contest against all others, a prior of `WEAK_SD` logits keeps
        ratings finite, and a note says so. The same holds for the effect of position, or of a
        feature, where nothing contradicts it, such as a judge who always favours the first.

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
    check_known("covariance", covariance, COVARIANCES)
    if prior_sd is not None and not prior_sd > 0:
        raise DesignError(f"prior_sd is {prior_sd}: give a number above 0")
    tally = count_contests(contests, ties, position=position, features=features)
    kind = covariance
    if kind == "auto":
        cluster = tally.contests.cluster
        many = cluster is not None and cluster.min() != cluster.max()
        kind = "cluster" if many else "sandwich"
    fitted = fit_ratings(tally, prior_sd)
    top = fitted.top
    if fitted.unvaried:
        kind = "model"
    spread, n_groups = covariance_of(tally, top, kind, fitted.parts)
    notes = list(fitted.notes)
    if kind != "model" and extremes(tally.contests.weight)[1] > 1:
        notes.append(
            "some weights are above 1, and a comparison counts as one observation whatever its "
            "weight: intervals are too wide if weights are counts; repeat it, or take "
            "covariance='model'"
        )
    diagnostics: dict[str, Any] = {
        "ties": tally.design.ties,
        "converged": bool(top.convergence.converged),
        "covariance": kind,
        "iterations": top.convergence.steps,
        "n_contests": len(tally.contests),
        "n_ties": int(tally.contests.tied.sum()),
    }
    if n_groups is not None:
        freedom = n_groups - 1
        diagnostics |= {"n_clusters": n_groups, "degrees_of_freedom": freedom}
        if n_groups < FEW_CLUSTERS:
            notes.append(
                f"only {counted(n_groups, 'cluster')}: intervals are rough, of Student's t "
                f"with {counted(freedom, 'degree')} of freedom"
            )
    n, names, values = tally.design.n, tally.design.names, top.parameters
    errors = np.sqrt(np.diagonal(spread))
    return RankingFit(
        model="bradley-terry",
        estimator="laplace" if fitted.sample.precision.any() else "ml",
        players=tally.contests.players,
        rating=values[:n],
        covariance=spread[:n, :n],
        parameters=dict(zip(names, values[n:].tolist(), strict=True)),
        parameter_std_errors=dict(zip(names, errors[n:].tolist(), strict=True)),
        log_likelihood=top.log_likelihood,
        diagnostics=diagnostics,
        notes=tuple(notes),
    )


class Ratings(NamedTuple):
    """Maximum likelihood estimates, or the posterior mode under a weak prior."""

    top: Maximum
    sample: Sample
    parts: IntArray
    """Strongly connected component of each player, shape (n,)."""
    unvaried: bool
    """Whether outcomes vary too little for any covariance but the model's."""
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
    decided = (tally.rows.outcome != 0.5).any()
    even = design.with_ties and not (weights.tied.any() and decided)
    if even:
        which = "no ties" if decided else "only ties"
        notes.append(f"{which}: half a comparison between equals keeps their share finite")
    separate = decided and ties_separate(design, weights)
    if separate and prior_sd is None:
        prior_sd = WEAK_SD
        notes.append(
            "wins go one way, but for ties: ratings and the share of ties have no finite maximum "
            f"likelihood, and a normal prior with standard deviation {WEAK_SD:g} keeps them finite"
        )
    check_identified(tally)
    precision = np.zeros(design.size)
    if prior_sd is not None:
        precision[: design.n] = prior_sd**-2
    sample, start = Sample(weights, precision, even), np.zeros(design.size)
    if design.ties == "rao-kupper":
        start[-1] = 1.0
    top = maximise(design, sample, start)
    # Where the search ends, answers are certain, and without information.
    endless = _without_information(tally, top.information)
    if endless:
        of_extra = slice(design.n, design.n + design.extra.shape[1])
        precision[of_extra] = (design.extra**2).mean(axis=0) / WEAK_SD**2
        top = maximise(design, sample, start)
        notes.append(
            f"wins and losses are separated by {few(endless)} and the ratings: there is no finite "
            f"maximum likelihood, and a normal prior with standard deviation {WEAK_SD:g} of the "
            f"effect of {few(endless)} keeps estimates finite"
        )
    if top.convergence.why:
        notes.append(f"the fit {top.convergence.why}")
    unvaried = bool(separate or endless or not decided)
    return Ratings(top, sample, parts, unvaried, tuple(notes))


def ties_separate(design: Design, weights: Weights) -> bool:
    """Whether ratings may grow without end together with the chance of a tie.

    So they do where players have values v with v_i ≥ v_j + 1 for each win of i over j, and
    |v_i - v_j| ≤ 1 for each tie: along 2v, with one for the logarithm of the chance, no outcome
    that was seen becomes less likely. There are none exactly where some cycle of players has more
    wins than ties.
    """
    if not weights.tied.any():
        return False
    i, j = design.first, design.second
    n = design.n
    winner, loser = (
        np.concatenate([a[weights.won > 0], b[weights.lost > 0]]) for a, b in ((i, j), (j, i))
    )
    beaten = sparse.csr_array((np.ones(len(winner)), (winner, loser)), shape=(n, n))
    # The usual case, which the search would take longer for.
    if beaten.multiply(beaten.T).nnz:
        return False
    tied = weights.tied > 0
    cells = np.concatenate([winner * n + loser, (i * n + j)[tied], (j * n + i)[tied]])
    # A win is listed before a tie of the same two, which says less.
    cells, at = np.unique(cells, return_index=True)
    step = np.where(at < len(winner), -1.0, 1.0)
    # Ways lead to all players from one more, so that each cycle is found.
    ways = np.r_[cells // n, np.full(n, n)], np.r_[cells % n, np.arange(n)]
    graph = sparse.csr_array((np.r_[step, np.ones(n)], ways), shape=(n + 1, n + 1))
    try:
        sparse.csgraph.bellman_ford(graph, indices=[n])
    except sparse.csgraph.NegativeCycleError:
        return False
    return True


def _separation_note(contests: Contests, parts: IntArray) -> str:
    """Note which players are undefeated or winless, or that one group always beats another."""
    beat = contests.wins() > 0
    names = np.array(contests.players, dtype=object)
    undefeated, winless = ([str(x) for x in names[~beat.any(axis=axis)]] for axis in (0, 1))
    described = [
        f"{few(players)} {verb} every comparison"
        for players, verb in ((undefeated, "won"), (winless, "lost"))
        if players
    ]
    if not described:
        described = [f"{parts.max() + 1} groups of players: one always beats another"]
    return (
        f"{'; '.join(described)}: their ratings have no finite maximum likelihood, and a normal "
        f"prior with standard deviation {WEAK_SD:g} keeps all of them finite"
    )


def check_connected(contests: Contests) -> None:
    """Raise `DesignError` if no chain of contests connects all players."""
    if groups := contests.disconnected():
        raise DesignError(
            f"ratings need a chain of comparisons between all players; {groups}. Leave some "
            "out, compare across, or give a prior with --prior-sd (in Python: prior_sd)"
        )


def check_identified(tally: CountedContests) -> None:
    """Raise `DesignError` if a coefficient is collinear with the ratings or other coefficients."""
    blamed = _without_information(tally, _among_equals(tally))
    if not blamed:
        return
    raise DesignError(
        f"these comparisons cannot tell {few(blamed)} from the ratings or from each other: every "
        "pair was shown in one order only, or a feature is the same whenever a player appears; "
        "leave it out, or compare in both orders"
    )


def _among_equals(tally: CountedContests) -> FloatArray:
    """Information of the contests, up to a factor, if all were between equals; shape (p, p)."""
    won, tied, lost = tally.weights()
    total = won + tied + lost
    return tally.design.outer(total, np.zeros_like(total), total)


def _without_information(tally: CountedContests, information: FloatArray) -> list[str]:
    """Return the coefficients about which contests say next to nothing.

    Ratings are estimated too; contests between equals would say much.
    """
    design, n, q = tally.design, tally.design.n, tally.design.extra.shape[1]
    if not q:
        return []
    equals = np.diagonal(_among_equals(tally))
    regular: FloatArray = information[:n, :n] + np.abs(np.diagonal(information)[:n]).mean() / n
    # A ridge: under a prior, players whom no contest connects move freely; and of certain answers
    # the information is 0.
    regular[np.diag_indices(n)] += 1e-12 * equals[:n].mean()
    # With the tie parameter, which may grow with a coefficient.
    across, block = information[n:, :n], information[n:, n:]
    left: FloatArray = block - across @ np.linalg.solve(regular, across.T)
    scale = np.sqrt(np.maximum(equals[n:], 1e-300))
    value, vectors = np.linalg.eigh(left / np.outer(scale, scale))
    if value[0] > 1e-9:
        return []
    return [design.names[k] for k in np.flatnonzero(np.abs(vectors[:q, 0]) > 1e-3)]
