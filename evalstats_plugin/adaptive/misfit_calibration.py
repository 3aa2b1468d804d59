"""How many factors of misfit there are, and how wrong predicted full scores still are.

By cross-validation over the models of the calibration: their tests are run again with items and
factors that have not seen them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import Items, respond
from evalstats_plugin.adaptive.misfit import fit_factors
from evalstats_plugin.adaptive.projection import Shares
from evalstats_plugin.adaptive.simulate import Options, run_sessions
from evalstats_plugin.engines import mapped
from evalstats_plugin.stats.interval import FloatArray, IntArray

_MOST_FACTORS = 4
_AT = (10, 25, 50)
_FOLDS = 4
_LEAST_MODELS = 12
_MOST_ITEMS = 3000
_BETTER = 0.97
"""Of the mean squared error that one more factor must leave at most."""


class Calibrated(NamedTuple):
    """The misfit that a bank should know of."""

    loadings: FloatArray
    misfit: dict[str, float]
    notes: tuple[str, ...]


class _Errors(NamedTuple):
    """Of full scores, by number of items asked; arrays of shape (C, 1 + T)."""

    squared: FloatArray
    excess: FloatArray
    """Squared errors beyond the variance claimed, per share of items not asked squared."""


def calibrate_misfit(
    bank: ItemBank,
    ability: FloatArray,
    right: FloatArray,
    trials: FloatArray,
    *,
    rng: np.random.Generator,
) -> Calibrated:
    """Find the misfit factors of a bank without any, and the standard deviation of the rest.

    Parameters
    ----------
    ability
        Of the calibrated models, shape (N,).
    right, trials
        Their answers, shape (N, M); no trials where one is missing.
    """
    rows, columns = _complete(trials > 0, rng)
    n_items = int(columns.sum())
    at = tuple(n for n in _AT if n <= n_items // 2 and n <= int(bank.usable[columns].sum()))
    if rows.sum() < _LEAST_MODELS or not at:
        msg = f"{int(rows.sum())} models answered the same {n_items} items: too few to tell how"
        note = f"{msg} well full scores are predicted; their intervals hold no misfit"
        return Calibrated(np.zeros((len(bank), 0)), {}, (note,))
    part = bank.subset(columns)
    answers = (ability[rows], right[np.ix_(rows, columns)], trials[np.ix_(rows, columns)])
    fold = rng.permutation(int(rows.sum())) % _FOLDS
    best, chosen = _errors(part, answers, fold, at, 0), 0
    for k in range(1, _MOST_FACTORS + 1):
        found = _errors(part, answers, fold, at, k)
        if np.exp(np.log(found.squared[:, 0] / best.squared[:, 0]).mean()) > _BETTER:
            break
        best, chosen = found, k
    loadings = fit_factors(bank.items, ability, right, trials, chosen).loadings
    names = Shares.of(part).names
    spread = np.sqrt(np.maximum(best.excess.mean(axis=0), 0.0)).tolist()
    return Calibrated(loadings, dict(zip(names, spread, strict=True)), ())


def _complete(
    there: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Models and items without a missing answer: items most models have, models that have them."""
    rows = np.asarray(there.mean(axis=1) >= 0.5)
    columns = np.asarray(there[rows].mean(axis=0) >= 0.8 if rows.any() else there.any(axis=0))
    if columns.sum() > _MOST_ITEMS:
        kept = rng.choice(np.flatnonzero(columns), _MOST_ITEMS, replace=False)
        columns = np.isin(np.arange(len(columns)), kept)
    rows = np.asarray(there[:, columns].all(axis=1))
    return rows, columns


def _errors(
    bank: ItemBank,
    answers: tuple[FloatArray, FloatArray, FloatArray],
    fold: IntArray,
    at: tuple[int, ...],
    n_factors: int,
) -> _Errors:
    run = partial(_errors_of_fold, bank, answers, at, n_factors)
    folds = [fold == one for one in range(_FOLDS)]
    squared, excess = zip(*mapped(run, enumerate(folds)), strict=True)
    joined = [np.concatenate(each, axis=1).mean(axis=1) for each in (squared, excess)]
    return _Errors(*joined)


def _errors_of_fold(
    bank: ItemBank,
    answers: tuple[FloatArray, FloatArray, FloatArray],
    at: tuple[int, ...],
    n_factors: int,
    fold: tuple[int, NDArray[np.bool_]],
) -> _Errors:
    """Errors of the models of one fold, shape (C, models, 1 + T)."""
    (seed, out), (ability, right, trials) = fold, answers
    items = leave_out(bank.items, ability[out], right[out], trials[out])
    found = fit_factors(items, ability[~out], right[~out], trials[~out], n_factors)
    known = replace(
        bank,
        discrimination=items.discrimination,
        intercept=items.intercept,
        misfit_loadings=found.loadings,
        misfit={},
    )
    scores = right[out] / trials[out]
    run = run_sessions(known, scores, at, Options(rule="auto"), rng=seed)
    shares = Shares.of(bank)
    truth = scores @ shares.weights
    full = [checkpoint.full for checkpoint in run.checkpoints]
    error = np.stack([(each.estimate - truth) ** 2 for each in full])
    asked = np.zeros((len(at), *scores.shape))
    for k, n in enumerate(at):
        np.put_along_axis(asked[k], run.places[:, :n], 1.0, axis=1)
    left = 1 - asked @ shares.weights
    claimed = np.stack([each.std_error**2 for each in full])
    return _Errors(error, (error - claimed) / np.maximum(left, 0.1) ** 2)


def leave_out(items: Items, ability: FloatArray, right: FloatArray, trials: FloatArray) -> Items:
    """Items as calibrated without some models: one Newton step back from where they are.

    Their information is that of the covariance known; without one, items stay as they are.
    """
    # As the calibration saw them: their errors and partial credit were not looked at.
    plain = items._replace(
        spread=np.zeros_like(items.spread), dispersion=np.ones_like(items.dispersion)
    )
    found = respond(plain, ability[:, None])
    noise = found.variance
    pull = (right - trials * found.probability) * found.scale / noise
    weight = trials * found.scale**2 / noise
    design = np.stack([ability, np.ones_like(ability)], axis=1)
    gradient = pull.T @ design
    own = np.einsum("nm,nk,nl->mkl", weight, design, design, optimize=True)
    a, both, d = (items.spread[:, k] for k in range(3))
    covariance = np.stack([np.stack([a, both], -1), np.stack([both, d], -1)], -2)
    known = np.linalg.det(covariance) > 1e-12
    covariance = np.where(known[:, None, None], covariance, np.eye(2))
    # (C⁻¹ - I)⁻¹ g with C known, and never more than 4 C, should these models be all there is.
    kept = np.eye(2) - covariance @ own
    values = np.linalg.det(kept)
    safe = (values > 0.06) & (np.trace(kept, axis1=1, axis2=2) > 0)
    kept = np.where(safe[:, None, None], kept, np.eye(2) / 4)
    step = np.linalg.solve(kept, covariance @ gradient[..., None])[..., 0]
    step = np.where(known[:, None], step, 0.0)
    return items._replace(
        discrimination=items.discrimination - step[:, 0], intercept=items.intercept - step[:, 1]
    )
