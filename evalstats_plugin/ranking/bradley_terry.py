"""Bradley–Terry: the log odds that one player beats another are the difference of their ratings.

Maximum likelihood [BT52]_, with ties, an advantage of place, features of the contests ("style")
and effects of judges; covariance as the model has it, by the sandwich, or clustered.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests import Contests, FloatArray, IntArray, extremes
from evalstats_plugin.ranking.counted import Counted, counted
from evalstats_plugin.ranking.fit import RankingFit
from evalstats_plugin.ranking.maximum import (
    WEAK_SD,
    Maximum,
    Prior,
    Sample,
    maximise,
    start_of,
)
from evalstats_plugin.ranking.sandwich import Covariance, covariance_of
from evalstats_plugin.ranking.ties import TieModel, check_ties
from evalstats_plugin.wording import few, no_such

CovarianceKind = Literal["auto", "model", "sandwich", "cluster", "judge"]
COVARIANCES: tuple[CovarianceKind, ...] = get_args(CovarianceKind)
FEW_CLUSTERS = 20
"""Below, a note says that clustered intervals are rough."""


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
        from evalstats_plugin.ranking.judges import fit_judges

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
