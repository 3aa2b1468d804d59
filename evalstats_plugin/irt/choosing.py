"""Which item model? Candidates side by side, by answers held out and by how they fit.

* `choose_model`: a row per candidate, and the simplest that predicts as well as the best
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from scipy import special

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.results import Results, finite
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.irt.answers import matrix_of
from evalstats_plugin.irt.fit_statistics import m2
from evalstats_plugin.irt.fitting import FEW_MODELS, choose, fit_irt, item_prior
from evalstats_plugin.irt.holdout import predicted
from evalstats_plugin.irt.methods import (
    CANDIDATES,
    ORDERED_MODELS,
    FactorOptions,
    FitOptions,
    MmlItemsOptions,
    MmlOptions,
    OrderedOptions,
)
from evalstats_plugin.irt.model.data import MOST_LEVELS
from evalstats_plugin.irt.suspects import q3
from evalstats_plugin.runtime.lazy import need_torch
from evalstats_plugin.runtime.progress import report_progress
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.clustered import cluster_moments

_FEWEST_FOR_MORE, _FEWEST_FOR_Q3 = 20, 10
"""Models from which on several abilities or ordered levels are tried, and Q3 is looked at."""

_LEAST = 1e-12
"""Smallest probability of an answer that happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One item model. Numbers are finite or ``None``."""

    item_model: str
    """A name of `CANDIDATES`."""
    estimator: str
    log_loss: float | None
    """Per answer held out, in nats."""
    log_loss_std_error: float | None
    """Over items, whose answers go together."""
    worse_by: float | None
    """Log loss less that of the best candidate, on the same answers."""
    worse_by_std_error: float | None
    n_parameters: int | None
    log_likelihood: float | None
    """Marginal; None of factor models, which have none. Of graded and gpcm that of the levels."""
    aic: float | None
    bic: float | None
    rmsea: float | None
    """Of M2, or of C2 of ordered scores, see `m2`; None where that cannot be computed."""
    largest_q3: float | None
    """Largest residual correlation of two items; None with fewer than 10 models."""
    converged: bool | None
    chosen: bool


@dataclass(frozen=True)
class Candidates(Results[Candidate]):
    """A row per candidate, the simplest first."""

    sentence: str = ""
    """Which to take, and why."""


def choose_model(
    responses: ResponsesLike,
    item_models: Sequence[str] | None = None,
    *,
    seeds: Sequence[int] = range(3),
    device: str = "auto",
) -> Candidates:
    """Compare item models by the answers that they predict, and choose the simplest good one.

    A fifth of the answers is held out, the same for all candidates, once for each seed. Chosen is
    the simplest candidate whose loss is within one standard error of the best one's, as measured on
    the same answers; one that did not converge is not chosen.

    Scores of 3 to 20 ordered levels, such as grades or numbers of right epochs, are predicted by
    ``"graded"`` and ``"gpcm"`` too. All candidates are judged by the expected score, as a share of
    the way from the lowest to the highest level where scores are outside [0, 1].

    Parameters
    ----------
    item_models
        Names of `CANDIDATES`; None for those that so many models can tell apart: ``"3pl"`` needs
        300, several abilities and ordered levels need 20.
    seeds
        Seeds of the random splits.

    Raises
    ------
    SelectionError
        No such candidate.
    DesignError
        Too few answers to hold some out, or none of the candidates converged.

    Examples
    --------
    >>> from evalstats_plugin.irt import choose_model, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=15, n_items=60, item_model="rasch")
    >>> comparison = choose_model(matrix, ["rasch", "2pl"], seeds=[0])
    >>> [row.item_model for row in comparison if row.chosen]
    ['rasch']
    """
    matrix = matrix_of(responses)
    n, count = len(matrix.models), _number_of_levels(matrix)
    names = list(item_models) if item_models is not None else _possible(n, ordered=count > 2)
    for name in names:
        if name not in CANDIDATES:
            raise SelectionError(
                no_such("candidate", name, tuple(CANDIDATES), ", ".join(CANDIDATES))
            )
    if not names:
        raise SelectionError(f"no candidate is named: choose of {', '.join(CANDIDATES)}")
    names = [name for name in CANDIDATES if name in names]
    need_torch("item response models")
    if count:
        low, high = float(np.nanmin(matrix.scores)), float(np.nanmax(matrix.scores))
        if (low < 0 or high > 1) and 0 < high - low < np.inf:
            # Brought to [0, 1], so that each candidate predicts the same numbers.
            note = f"scores from {low:g} to {high:g} are taken as shares of that way, from 0 to 1"
            scores = (matrix.scores - low) / (high - low)
            matrix = replace(matrix, scores=scores, notes=(*matrix.notes, note))
    tried = list[_Tried]()
    for k, name in enumerate(names, 1):
        report_progress("candidate", k, len(names))
        tried.append(_tried(matrix, name, seeds, device))
    return _compared(tried)


def _possible(n: int, *, ordered: bool = False) -> list[str]:
    return [
        name
        for name in CANDIDATES
        if (name != "3pl" or n >= FEW_MODELS)
        and (name not in ORDERED_MODELS or ordered)
        and (n >= _FEWEST_FOR_MORE or not name.startswith(("factor", *ORDERED_MODELS)))
    ]


def _number_of_levels(matrix: ResponseMatrix) -> int:
    """Number of ordered levels of the cells' mean scores; 0 where they are continuous."""
    seen = np.isfinite(matrix.scores)
    total = np.where(seen, matrix.scores, 0.0).sum(axis=2)
    count = len(np.unique(total[seen.any(axis=2)] / seen.sum(axis=2)[seen.any(axis=2)]))
    return count if count <= MOST_LEVELS else 0


class _Tried(NamedTuple):
    """A candidate with its losses by item: sums of losses and numbers of answers, (M,) each."""

    name: str
    loss: FloatArray
    answers: FloatArray
    row: Candidate


def _how(name: str, shape: tuple[int, int]) -> tuple[str, str, FitOptions | None]:
    """Item model, estimator and options of a candidate."""
    if name.startswith("factor"):
        return "factor", "map", FactorOptions(dimensions=int(name[-1]))
    if name in ORDERED_MODELS:
        return name, "mml", OrderedOptions(std_errors=False)
    usual, prior = choose("2pl", "auto", shape).estimator, item_prior(shape[1])
    if name == "common-c":
        if usual == "mml":
            return "3pl", "mml", MmlOptions(prior=prior, common_asymptotes=True)
        return "2pl", "mml-items", MmlItemsOptions(estimate_guessing=True)
    if name == "3pl" or usual == "mml":
        return name, "mml", MmlOptions(prior=prior)
    return name, usual, None


def _tried(matrix: ResponseMatrix, name: str, seeds: Sequence[int], device: str) -> _Tried:
    n, m, _ = matrix.scores.shape
    item_model, estimator, options = _how(name, (n, m))
    loss, count = np.zeros(m), np.zeros(m)
    for counts, chance, test in predicted(
        matrix, item_model, estimator, options, seeds=seeds, device=device
    ):
        right, trials = (
            np.where(test, x.cpu().numpy(), 0.0) for x in (counts.right, counts.trials)
        )
        p = np.clip(chance, _LEAST, 1 - _LEAST)
        loss -= (special.xlogy(right, p) + special.xlog1py(trials - right, -p)).sum(axis=0)
        count += trials.sum(axis=0)
    if not count.any():
        raise DesignError("no answer is held out: there are too few: add models or items")
    fit: Any = fit_irt(matrix, item_model, estimator, options=options, rng=0, device=device)
    rmsea = None
    if item_model != "factor" and fit.estimator == "mml":
        with suppress(DesignError):
            rmsea = finite(m2(fit, matrix).rmsea)
    row = Candidate(
        item_model=name,
        estimator=fit.estimator,
        log_loss=finite(float(loss.sum() / count.sum())),
        log_loss_std_error=finite(float(cluster_moments(loss, count).cr1)),
        worse_by=None,
        worse_by_std_error=None,
        rmsea=rmsea,
        largest_q3=_largest_q3(fit, matrix),
        converged=fit.diagnostics.get("converged"),
        chosen=False,
        **_about(fit, name, n, m),
    )
    return _Tried(name, loss, count, row)


def _about(fit: Any, name: str, n: int, m: int) -> dict[str, Any]:
    """Parameters, log-likelihood and information criteria; None of factor models."""
    log_likelihood = fit.diagnostics.get("log_likelihood")
    if fit.item_model == "factor" or log_likelihood is None:
        return dict.fromkeys(("n_parameters", "log_likelihood", "aic", "bic"))
    if fit.estimator == "mml":
        # Items are parameters, models are the sample.
        per_item = {"rasch": 1, "2pl": 2, "common-c": 2, "3pl": 3}
        of_levels = fit.diagnostics.get("n_parameters")
        k = m * per_item[name] + (name in ("rasch", "common-c")) if of_levels is None else of_levels
        size = n
    else:
        # Models but one and the distribution of items are parameters, items are the sample.
        k = int((fit.endless == 0).sum()) - 1
        k, size = k + {"rasch": 2, "2pl": 4, "common-c": 5}[name], m
    return {
        "n_parameters": k,
        "log_likelihood": finite(log_likelihood),
        "aic": finite(2 * k - 2 * log_likelihood),
        "bic": finite(k * float(np.log(size)) - 2 * log_likelihood),
    }


def _largest_q3(fit: Any, matrix: ResponseMatrix) -> float | None:
    if fit.item_model == "factor" or len(matrix.models) < _FEWEST_FOR_Q3:
        return None
    correlations = q3(fit, matrix)
    pairs = correlations[np.triu_indices(len(correlations), 1)]
    # -∞ without a pair, which no row shows.
    return finite(float(pairs[np.isfinite(pairs)].max(initial=-np.inf)))


def _compared(tried: list[_Tried]) -> Candidates:
    whole = [
        candidate
        for candidate in tried
        if candidate.row.converged is not False and candidate.row.log_loss is not None
    ]
    if not whole:
        raise DesignError("none of the candidates converged: fit item model rasch, or add answers")
    best = min(whole, key=lambda candidate: cast("float", candidate.row.log_loss))
    count = best.answers
    excess_loss = {
        candidate.name: (
            float((candidate.loss - best.loss).sum() / count.sum()),
            float(cluster_moments(candidate.loss - best.loss, count).cr1),
        )
        for candidate in tried
    }
    simplest = next(
        candidate
        for candidate in whole
        if excess_loss[candidate.name][0] <= excess_loss[candidate.name][1] or candidate is best
    )
    rows = tuple(
        replace(
            candidate.row,
            worse_by=finite(excess_loss[candidate.name][0]),
            worse_by_std_error=finite(excess_loss[candidate.name][1])
            if candidate is not best
            else None,
            chosen=candidate is simplest,
        )
        for candidate in tried
    )
    return Candidates(rows, _notes(tried), sentence=_sentence(best, simplest, excess_loss))


def _sentence(best: _Tried, chosen: _Tried, excess_loss: Mapping[str, tuple[float, float]]) -> str:
    loss, error = best.row.log_loss, best.row.log_loss_std_error
    said = f"Take {chosen.name}: "
    if chosen is best:
        return f"{said}it predicts answers held out best (log loss {loss:.4f}, s.e. {error:.4f})."
    worse, unsure = excess_loss[chosen.name]
    return (
        f"{said}the simplest within one standard error of {best.name}, which predicts answers held "
        f"out best (log loss {loss:.4f}, s.e. {error:.4f}; {chosen.name} {worse:+.4f}, s.e. "
        f"{unsure:.4f})."
    )


def _notes(tried: list[_Tried]) -> tuple[str, ...]:
    failed = [candidate.name for candidate in tried if candidate.row.converged is False]
    notes = [f"not converged, and not chosen: {', '.join(failed)}"] if failed else []
    kinds = {candidate.name in ORDERED_MODELS for candidate in tried}
    if len(kinds) > 1:
        notes.append(
            f"log-likelihoods of {' and '.join(ORDERED_MODELS)} are of levels, those of the others "
            "of expected scores: AIC and BIC compare candidates of one kind only"
        )
    if any(candidate.row.estimator == "mml" for candidate in tried):
        notes.append(
            "AIC and BIC count every item parameter, though an item prior holds them: they are too "
            "strict on models with many"
        )
    return tuple(notes)
