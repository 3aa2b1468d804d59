"""Capability models: fit sparse codes to responses, and check the fit.

* `find_capabilities`: compare predictions of held-out answers, fit, and look again in halves
* `fit_capabilities`: choose the penalty by held-out log loss, fit, and return a `CapabilityFit`
* `compare_held_out`: predict held-out answers by sparse codes and by a plain model
* `stability`: compare the capabilities found from two halves of the items
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from scipy import optimize, special
from torch import Tensor

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.engines.posterior import CapabilityFit
from evalstats_plugin.hierarchical.engines.sparse_codes import (
    SparseCodes,
    fit_sparse_codes,
    standardised,
    start,
)
from evalstats_plugin.hierarchical.methods import MOST_CAPABILITIES
from evalstats_plugin.hierarchical.rows import Capabilities, Capability, HeldOutScore, Stability
from evalstats_plugin.irt.answers import matrix_of
from evalstats_plugin.irt.estimators.factor import (
    check_dimensions,
    fold_masks,
    held_out_loss,
)
from evalstats_plugin.irt.estimators.frozen import (
    Estimator,
    HoldoutScores,
    predict_held_out,
    score_held_out,
)
from evalstats_plugin.irt.model.arrays import as_array
from evalstats_plugin.irt.model.data import Counts, counts_of
from evalstats_plugin.irt.model.fit import run_facts
from evalstats_plugin.irt.model.masks import Split, random_entries
from evalstats_plugin.runtime.torch import check_memory
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.streams import child, stream

PENALTIES = (13.0, 9.0, 6.0, 4.0, 2.5, 1.5, 1.0, 0.5, 0.25)
"""Candidates for the penalty, from strong to weak."""

_FOLDS = 5

_HELD_OUT_CELLS = 10_000
"""Held-out cells that suffice: with more cells in a fold, fewer folds are fitted."""

_ROUGH_TOLERANCE = 1e-6
"""Tolerance while candidates are compared."""

_ALIKE = 1e-4
"""Difference of log losses below which two are alike: searches end at different places."""

AS_GOOD = (
    "a plain hierarchical model predicts as well: these answers do not show more than how good a "
    "model is, overall and on each task, and how hard an item"
)
BETTER = "capabilities predict held-out answers better than a plain hierarchical model"

_LISTED = 5
"""Tasks, items and models that are listed for a capability."""

_ROUNDS, _STILL = 200, 1e-4
"""Most rounds of the plain model, and the change of probabilities at which it ends."""

_LEAST_VARIANCE = 1e-3

_SHUFFLES = 1000
"""Permutations for the cosines expected by chance."""


def fit_capabilities(
    responses: ResponsesLike,
    n_features: int,
    *,
    penalty: float | Literal["auto"] = "auto",
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
) -> CapabilityFit:
    """Fit a capability model: sparse item codes on F features, and model capabilities.

    Parameters
    ----------
    responses
        Scores in [0, 1]; epochs are counts, and cells may be missing.
    n_features
        F, at most N - 1. Features that the answers do not support stay empty.
    penalty
        Penalty of the sum of all codes; ``"auto"`` chooses it by held-out log loss.

    Raises
    ------
    DesignError
        Scores outside [0, 1], models without a common item, more features than models and items
        can identify, an invalid penalty, not enough memory.
    SelectionError
        No such device.

    Examples
    --------
    >>> scores = np.random.default_rng(0).integers(0, 2, (8, 40))
    >>> fit = fit_capabilities(ResponseMatrix.from_array(scores), 2, penalty=3.0, rng=0)
    >>> fit.code.shape, bool((fit.code >= 0).all())
    ((40, 2), True)
    """
    matrix = matrix_of(responses)
    began = time.perf_counter()
    if penalty != "auto" and not 0 < penalty < np.inf:
        raise DesignError(f"penalty {penalty!r} is not above 0: choose a number above 0, or 'auto'")
    counts = counts_of(matrix, device=device)
    codes, diagnostics = _find_codes(counts, n_features, penalty, stream(rng, "capabilities"))
    fit = CapabilityFit(
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        capability=as_array(codes.capability),
        performance=as_array(codes.performance),
        code=as_array(codes.code),
        intercept=as_array(codes.intercept),
        penalty=diagnostics.pop("penalty"),
        diagnostics=diagnostics | run_facts(counts, began),
    )
    notes = list(counts.notes)
    if fit.empty:
        notes.append(
            f"{n_features - len(fit.empty)} of {n_features} capabilities are used: these answers "
            "do not support more under this penalty"
        )
    if not fit.diagnostics["converged"]:
        notes.append(
            f"not converged after {fit.diagnostics['iterations']} steps: these are the last "
            "estimates; look for fewer capabilities, or use a stronger penalty"
        )
    return replace(fit, notes=tuple(notes))


def find_capabilities(
    responses: ResponsesLike,
    n_features: int | None = None,
    *,
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
) -> Capabilities:
    """Find what answers have in common beyond how good models are and how hard items.

    A sparse model and a plain hierarchical one predict a fifth of the answers from the others; the
    sparse one is fitted to all, and again to either half of the items. This is what the command
    ``irt capabilities`` prints and ``annotate --fit capabilities`` writes.

    Parameters
    ----------
    responses
        Scores in [0, 1], as of `fit_capabilities`.
    n_features
        F, at most; by default half the number of models, at most 3.

    Returns
    -------
    One row for each capability that items need, and a first note that says whether the plain model
    predicts as well.

    Raises
    ------
    DesignError, SelectionError
        See `fit_capabilities` and `compare_held_out`.

    Examples
    --------
    >>> scores = np.random.default_rng(0).integers(0, 2, (8, 40))
    >>> found = find_capabilities(ResponseMatrix.from_array(scores), 1, rng=0)
    >>> len(found.rows), found.plain_is_as_good
    (0, True)
    """
    matrix = matrix_of(responses)
    most = n_features or min(MOST_CAPABILITIES, max(1, len(matrix.models) // 2))
    compared = compare_held_out(matrix, most, rng=rng, device=device)
    fit = fit_capabilities(matrix, most, rng=rng, device=device)
    again = None
    if len(matrix.item_ids) >= 2 * most:
        again = stability(fit, matrix, rng=rng, device=device)
    plain_is_as_good = not compared[1].gain > 2 * compared[1].gain_error
    return Capabilities(
        rows=_rows(fit, again),
        notes=(AS_GOOD if plain_is_as_good else BETTER, *fit.notes),
        seed=rng if isinstance(rng, int) else None,
        fit=fit,
        compared=compared,
        plain_is_as_good=plain_is_as_good,
    )


def _rows(fit: CapabilityFit, again: Stability | None) -> tuple[Capability, ...]:
    """Describe the capabilities that items need, without those that none does."""
    names, place = np.unique(fit.tasks.astype(str), return_inverse=True)
    of_tasks = np.zeros((len(names), fit.n_features))
    np.add.at(of_tasks, place, fit.code)
    of_tasks /= np.bincount(place)[:, None]
    rows: list[Capability] = []
    for f in (k for k in range(fit.n_features) if k + 1 not in fit.empty):
        tasks = [k for k in np.argsort(-of_tasks[:, f], kind="stable") if of_tasks[k, f] > 0]
        items = np.argsort(-fit.code[:, f], kind="stable")[: int((fit.code[:, f] > 0).sum())]
        models = np.array(fit.models)[np.argsort(-fit.capability[:, f], kind="stable")].tolist()
        rows.append(
            Capability(
                capability=f + 1,
                variance=float(fit.use[f]),
                n_items=len(items),
                found_again=None if again is None else float(again.halves[f]),
                by_chance=None if again is None else float(again.chance[f]),
                tasks=tuple(names[tasks[:_LISTED]].tolist()),
                items=tuple(fit.item_ids[items[:_LISTED]].astype(str).tolist()),
                strongest=tuple(models[:_LISTED]),
                weakest=tuple(models[: -_LISTED - 1 : -1]),
            )
        )
    return tuple(rows)


def _find_codes(
    counts: Counts, n_features: int, penalty: float | Literal["auto"], rng: np.random.Generator
) -> tuple[SparseCodes, dict[str, Any]]:
    """Fit codes, and return diagnostics; choose the penalty by held-out log loss where it is open.

    Codes have the order and the scale of results.
    """
    check_dimensions(counts, n_features)
    n, m = counts.right.shape
    check_memory(8 * 16 * n * m, counts.right.device, f"{n} models × {m} items")
    tried: list[float] = []
    if penalty == "auto":
        tried = held_out_losses(counts, n_features, PENALTIES, rng)
        # The strongest of those as good as the best.
        penalty = PENALTIES[int(np.argmax(np.array(tried) <= min(tried) + _ALIKE))]
    search = fit_sparse_codes(counts, start(counts, n_features), penalty)
    return standardised(search.codes), {
        "penalty": penalty,
        "choices": [
            {"penalty": each, "log_loss": loss}
            for each, loss in zip(PENALTIES, tried, strict=False)
        ],
        "converged": search.converged,
        "objective": search.objective,
        "iterations": search.steps,
    }


def held_out_losses(
    counts: Counts, n_features: int, penalties: Sequence[float], rng: np.random.Generator
) -> list[float]:
    """Cross-validated log loss per trial of penalties in order, until two are worse than the best.

    Small matrices need more folds than large ones: folds are fitted until enough cells are held
    out, at most five.
    """
    fold = fold_masks(counts, _FOLDS, rng)
    share = max(1, int((fold >= 0).sum()) // _FOLDS)
    folds = range(min(_FOLDS, math.ceil(_HELD_OUT_CELLS / share)))
    held_out = [fold == k for k in folds]
    starts = list(parallel_map(partial(_start, counts, n_features), held_out))
    ready = list(zip(held_out, starts, strict=True))
    losses: list[float] = []
    for penalty in penalties:
        of_folds = list(parallel_map(partial(_loss, counts, penalty), ready))
        losses.append(float(np.mean(of_folds)))
        if len(losses) > 2 and min(losses[-2:]) > min(losses[:-2]) + _ALIKE:
            break
    return losses


def _start(counts: Counts, n_features: int, held_out: Tensor) -> SparseCodes:
    return start(_without(counts, held_out), n_features)


def _loss(counts: Counts, penalty: float, fold: tuple[Tensor, SparseCodes]) -> float:
    """Log loss of a fold, for codes fitted to the other cells."""
    held_out, first = fold
    kept = _without(counts, held_out)
    codes = fit_sparse_codes(kept, first, penalty, tolerance=_ROUGH_TOLERANCE).codes
    return held_out_loss(counts, codes.probability(), held_out)


def _without(counts: Counts, held_out: Tensor) -> Counts:
    return Counts(counts.right * ~held_out, counts.trials * ~held_out)


def compare_held_out(
    matrix: ResponseMatrix,
    n_features: int,
    *,
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
) -> tuple[HeldOutScore, HeldOutScore]:
    """Compare capabilities with a plain hierarchical model by predictions of held-out cells.

    The penalty is chosen without these cells.

    Returns
    -------
    tuple
        Of the plain hierarchical model, and of the sparse one.

    Raises
    ------
    DesignError
        See `fit_capabilities`; or too few cells to fit or to predict.
    SelectionError
        No such device.
    """
    generator = stream(rng, "answers held out of capabilities")
    counts = counts_of(matrix, device=device)
    task = torch.as_tensor(np.unique(matrix.tasks.astype(str), return_inverse=True)[1])
    split = random_entries((counts.trials > 0).cpu().numpy(), rng=generator)
    folds = child(generator, "folds that choose a penalty")
    estimators: list[Estimator] = [
        partial(fit_plain, task=task), partial(_sparse, n_features=n_features, rng=folds)
    ]  # fmt: skip
    (plain, own), (sparse, loss) = parallel_map(partial(_scored, counts, split), estimators)
    trials = (as_array(counts.trials) * split.test).sum(axis=0)
    gain = float((own - loss).sum() / trials.sum())
    # Items are drawn.
    used = trials > 0
    off, n = (own - loss - gain * trials)[used], int(used.sum())
    error = math.sqrt(n / max(n - 1, 1) * float(off @ off)) / float(trials.sum())
    return (
        HeldOutScore("hierarchical", plain.auc, plain.log_loss, plain.n_cells, 0.0, 0.0),
        HeldOutScore("sparse", sparse.auc, sparse.log_loss, sparse.n_cells, gain, error),
    )


def _sparse(counts: Counts, n_features: int, rng: np.random.Generator) -> Tensor:
    return _find_codes(counts, n_features, "auto", rng)[0].probability()


def _scored(counts: Counts, split: Split, estimator: Estimator) -> tuple[HoldoutScores, FloatArray]:
    """Return the scores of a model, and its log loss by item."""
    predicted = predict_held_out(estimator, counts, split)
    right, trials = as_array(counts.right), as_array(counts.trials)
    loss = -(special.xlogy(right, predicted) + special.xlog1py(trials - right, -predicted))
    scores = score_held_out(counts, predicted, split.test)
    return scores, np.where(split.test, loss, 0.0).sum(axis=0)


def fit_plain(counts: Counts, task: Tensor) -> Tensor:
    """Fit models, items, and models on tasks, and return P(right), shape (N, M).

    logit P(right) = u_nt + d_i with u_nt ~ N(c_n, .), c_n ~ N(0, .) and d_i ~ N(b_t, .): posterior
    modes, with variances that maximise their marginal likelihood by Laplace's method.
    """
    right, trials = counts.right, counts.trials
    n, t = len(right), int(task.max()) + 1
    task = task.to(right.device)

    def by_task(values: Tensor) -> Tensor:
        return values.new_zeros(*values.shape[:-1], t).index_add_(-1, task, values)

    size = by_task(torch.ones_like(right[0]))
    level, easy = right.new_zeros(n, t), torch.zeros_like(right[0])
    of_models, of_cells, of_items = (right.new_ones(()) for _ in range(3))
    p = torch.full_like(right, 0.5)
    for _ in range(_ROUNDS):
        before = p
        middle = (by_task(easy) / size)[task]
        curve = (trials * p * (1 - p)).sum(0) + 1 / of_items
        slope = (right - trials * p).sum(0) - (easy - middle) / of_items
        easy = easy + (slope / curve).clamp(-1, 1)
        of_items = ((easy - middle).square() + 1 / curve).mean().clamp_min(_LEAST_VARIANCE)
        p = torch.sigmoid(level[:, task] + easy)
        precision = t / of_cells + 1 / of_models
        model = level.sum(1) / of_cells / precision
        of_models = (model.square() + 1 / precision).mean().clamp_min(_LEAST_VARIANCE)
        off = level - model[:, None]
        curve = by_task(trials * p * (1 - p)) + 1 / of_cells
        slope = by_task(right - trials * p) - off / of_cells
        of_cells = (off.square() + 1 / curve).mean().clamp_min(_LEAST_VARIANCE)
        level = level + (slope / curve).clamp(-1, 1)
        p = torch.sigmoid(level[:, task] + easy)
        if float((p - before).abs().max()) < _STILL:
            break
    return p


def stability(
    fit: CapabilityFit,
    matrix: ResponseMatrix,
    *,
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
) -> Stability:
    """Split-half stability of capabilities: are they found again from other items?

    Two random halves of the items are fitted with the penalty of the fit.

    Parameters
    ----------
    matrix
        The scores that were fitted.

    Raises
    ------
    DesignError
        Another matrix, or fewer items in a half than features.
    """
    generator = stream(rng, "stability of capabilities")
    counts, m = counts_of(matrix, device=device), len(matrix.item_ids)
    same = np.array_equal(matrix.item_ids.astype(str), fit.item_ids.astype(str))
    if matrix.models != fit.models or not same:
        raise DesignError(
            f"the fit has {len(fit.models)} models and {len(fit.item_ids)} items, and the "
            f"matrix {len(matrix.models)} and {m}, or others by name: give the matrix that "
            "was fitted"
        )
    if m < 2 * fit.n_features:
        msg = f"{m} items in two halves are too few for {fit.n_features} features"
        raise DesignError(f"{msg}: fit fewer, or more than {2 * fit.n_features - 1} items")
    split = np.array_split(generator.permutation(m), 2)
    halves = parallel_map(partial(_half, counts, fit.n_features, fit.penalty), split)
    first, second = (half[:, matched(half, fit.capability)[0]] for half in halves)
    # By chance: the best cosines after shuffling the models.
    order = generator.permuted(np.tile(np.arange(len(first)), (_SHUFFLES, 1)), axis=1)
    by_chance = np.quantile(cosines(first[order], second).max(axis=2), 0.95, axis=0)
    used = fit.capability.any(axis=0)
    return Stability(
        halves=np.where(used, np.diagonal(cosines(first, second)), np.nan),
        chance=np.where(used, by_chance, np.nan),
    )


def _half(counts: Counts, n_features: int, penalty: float, items: IntArray) -> FloatArray:
    place = torch.as_tensor(items, device=counts.right.device)
    part = Counts(counts.right[:, place], counts.trials[:, place])
    search = fit_sparse_codes(part, start(part, n_features), penalty)
    return as_array(standardised(search.codes).capability)


def matched(found: FloatArray, truth: FloatArray) -> tuple[IntArray, FloatArray]:
    """Match each column of `truth` (N, F) to a column of `found` (N, G ≥ F).

    The matching maximises the sum of cosines of centred columns; a column without variance has
    cosine 0 with all. Returns the places in `found`, and the cosines.

    >>> place, cosine = matched(np.array([[1.0, 4], [0, 5], [0, 9]]), np.array([[4.0], [5], [9]]))
    >>> place.tolist(), cosine.round(3).tolist()
    ([1], [1.0])
    """
    cosine = cosines(found, truth)
    columns, place = optimize.linear_sum_assignment(cosine.T, maximize=True)
    return place, cosine[place, columns]


def cosines(a: FloatArray, b: FloatArray) -> FloatArray:
    """Cosines of centred columns (..., N, F) and (..., N, G): (..., F, G); 0 without variance."""
    return np.swapaxes(_unit(a), -1, -2) @ _unit(b)


def _unit(columns: FloatArray) -> FloatArray:
    away = columns - columns.mean(axis=-2, keepdims=True)
    size = np.linalg.norm(away, axis=-2, keepdims=True)
    return np.divide(away, size, out=np.zeros_like(away), where=size > 0)
