"""Capability models: from responses to a `CapabilityFit`."""
# PART capabilities_choice - How sparse codes should be: by the log loss of answers held out.
# PART capabilities_holdout - Do sparse codes predict answers that they have not seen, and better than simpler models?
# PART stability - Are capabilities found again from other items?

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.hierarchical.engines.posterior import CapabilityFit
from evalstats_plugin.hierarchical.engines.sparse_codes import (
    ROUGH_STEPS,
    Encoder,
    SparseCodes,
    fit_amortised_codes,
    fit_sparse_codes,
    standardised,
    start,
)
from evalstats_plugin.irt.estimators.factor import (
    check_dimensions,
    fit_factor,
    fold_masks,
    held_out_loss,
)
from evalstats_plugin.irt.estimators.fitted import as_array, run_facts
from evalstats_plugin.irt.estimators.frozen import (
    Estimator,
    fit_curves,
    predict_held_out,
    score_held_out,
)
from evalstats_plugin.irt.model.data import Counts, counts_of
from evalstats_plugin.irt.model.masks import Split, random_entries
from evalstats_plugin.runtime.torch import check_memory
from evalstats_plugin.runtime.workers import mapped
from evalstats_plugin.stats.arrays import FloatArray, IntArray

Kind = Literal["l1", "topk"]


Level = Literal["item", "task"]


KINDS, LEVELS = ("l1", "topk"), ("item", "task")


FEATURES_NOTE = (
    "features are what answers have in common, not skills by name: see how stable they are"
)


PENALTIES = (13.0, 9.0, 6.0, 4.0, 2.5, 1.5, 1.0, 0.5, 0.25)
"""Tried where the penalty is to be chosen, from strong to weak."""


ACTIVE = (1, 2, 3, 5, 8)
"""Features that an item may have, tried where that is to be chosen."""


AMORTISED_PENALTY = 3.0
"""Of top-k codes, which the rule makes sparse: the penalty only keeps them small."""


_FOLDS = 5


_ENOUGH = 10_000
"""Cells held out, from which on more folds are not worth their time."""


_ROUGH = 1e-5


COMPARED = ("rasch", "dense", *KINDS)


_SHUFFLES = 1000


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """What is seldom changed."""

    active: int | Literal["auto"] = "auto"
    """Features that an item may have, of top-k codes; ``"auto"`` goes by held-out answers."""
    level: Level = "item"
    """``"task"``: the answers of a task are summed, and tasks have codes."""


class CodeRule(NamedTuple):
    """How sparse codes are to be; None where held-out answers are to tell."""

    kind: str
    penalty: float | None = None
    active: int | None = None


class CodesFound(NamedTuple):
    """Codes of one search, in the order and on the scale of results."""

    codes: SparseCodes
    encoder: Encoder | None
    diagnostics: dict[str, Any]
    penalty: float
    active: int | None


def fit_capabilities(
    matrix: ResponseMatrix,
    n_features: int,
    *,
    kind: Kind = "l1",
    penalty: float | Literal["auto"] = "auto",
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
    options: CodeOptions | None = None,
) -> CapabilityFit:
    """Find up to F features, few of which each item asks for, and how good models are at each.

    Parameters
    ----------
    matrix
        Scores in [0, 1]; epochs are counts, and cells may be missing.
    n_features
        F, at most N - 1. Of more than the answers support, some stay empty.
    kind
        ``"l1"``: every item's code is fitted; ``"topk"``: codes are read off by an encoder, which
        can then read those of other items.
    penalty
        Of the sum of all codes; ``"auto"`` goes by held-out answers, or is 3 for top-k codes, which
        are sparse by rule.

    Raises
    ------
    DesignError
        Scores outside [0, 1], models without a common item, more features than models and items
        can tell apart, a penalty or number of active features that cannot be, not enough memory.
    SelectionError
        No such kind, level or device.

    Examples
    --------
    >>> scores = np.random.default_rng(0).integers(0, 2, (8, 40))
    >>> fit = fit_capabilities(ResponseMatrix.from_array(scores), 2, penalty=3.0, rng=0)
    >>> fit.code.shape, bool((fit.code >= 0).all())
    ((40, 2), True)
    """
    began = time.perf_counter()
    chosen = options or CodeOptions()
    rule = _rule(kind, penalty, chosen.active, n_features)
    counts, ids, tasks = columns_of(matrix, chosen.level, device)
    found = find_codes(counts, n_features, rule, np.random.default_rng(rng))
    encoder = found.encoder
    fit = CapabilityFit(
        kind=kind,
        level=chosen.level,
        models=matrix.models,
        item_ids=ids,
        tasks=tasks,
        capability=as_array(found.codes.capability),
        performance=as_array(found.codes.performance),
        code=as_array(found.codes.code),
        intercept=as_array(found.codes.intercept),
        encoder=None
        if encoder is None
        else as_array(torch.cat([encoder.weight, encoder.bias[None], encoder.scale[None]])),
        usual=None if encoder is None else as_array(encoder.usual),
        hyperparameters={"penalty": found.penalty, "active": found.active},
        diagnostics=found.diagnostics | run_facts(counts, began),
    )
    return replace(fit, notes=(*counts.notes, *_notes(fit)))


def columns_of(
    matrix: ResponseMatrix, level: str, device: str | torch.device
) -> tuple[Counts, NDArray[Any], NDArray[Any]]:
    """Counts of items or of tasks, and the names of both.

    Raises
    ------
    DesignError
        See `counts_of`.
    SelectionError
        No such level or device.
    """
    if level not in LEVELS:
        raise SelectionError(no_such("level", level, LEVELS, ", ".join(LEVELS)))
    counts = counts_of(matrix, device=device)
    if level == "item":
        return counts, matrix.item_ids, matrix.tasks
    names, first, place = np.unique(
        matrix.tasks.astype(str), return_index=True, return_inverse=True
    )
    # In the order in which tasks come.
    order = np.argsort(first)
    task = torch.from_numpy(np.argsort(order)[place]).to(counts.right.device)
    right, trials = (
        x.new_zeros(len(x), len(names)).index_add_(1, task, x)
        for x in (counts.right, counts.trials)
    )
    return Counts(right, trials, counts.notes), names[order], names[order]


def find_codes(
    counts: Counts, n_features: int, rule: CodeRule, rng: np.random.Generator
) -> CodesFound:
    """Choose how sparse codes are, where that is asked for, and find them."""
    check_dimensions(counts, n_features)
    n, m = counts.right.shape
    check_memory(8 * 16 * n * m, counts.right.device, f"{n} models × {m} items")
    rules, tried = candidates(rule.kind, n_features, *rule[1:]), tuple[Tried, ...]()
    best = rules[0]
    if len(rules) > 1:
        tried = choose(counts, n_features, rules, rng)
        best = rules[min(range(len(tried)), key=lambda k: tried[k].log_loss)]
    diagnostics: dict[str, Any] = {"choices": [t._asdict() for t in tried]}
    first = start(counts, n_features)
    if best.active is None:
        search = fit_sparse_codes(counts, first, best.penalty)
        diagnostics |= {"objective": search.objective, "iterations": search.steps}
        diagnostics["converged"] = search.converged
        return CodesFound(standardised(search.codes).codes, None, diagnostics, *best)
    learnt = fit_amortised_codes(counts, first, best.penalty, best.active)
    diagnostics |= {"objective": learnt.objective, "iterations": learnt.steps}
    codes, order, scale = standardised(learnt.codes)
    return CodesFound(codes, learnt.encoder.reordered(order, scale), diagnostics, *best)


def _rule(
    kind: str,
    penalty: float | Literal["auto"],
    active: int | Literal["auto"],
    n_features: int,
) -> CodeRule:
    """Check what codes are to be."""
    if kind not in KINDS:
        raise SelectionError(no_such("kind", kind, KINDS, ", ".join(KINDS)))
    if penalty != "auto" and not 0 < penalty < np.inf:
        raise DesignError(f"penalty is {penalty!r}, expected a number above 0 or 'auto'")
    if active != "auto" and kind == "l1":
        msg = f"active is {active!r}, but the penalty makes codes of kind 'l1' sparse: take 'topk'"
        raise DesignError(msg)
    if active != "auto" and not 1 <= active <= n_features:
        msg = f"active is {active!r}, expected 'auto' or a number from 1 to {n_features} features"
        raise DesignError(msg)
    known = None if penalty == "auto" else penalty
    return CodeRule(kind, known, None if active == "auto" else active)


def _notes(fit: CapabilityFit) -> list[str]:
    notes = [FEATURES_NOTE]
    used = fit.n_features - len(fit.empty)
    if used < fit.n_features:
        notes.append(
            f"{used} of {fit.n_features} features are used: these answers do not support more "
            "under this penalty"
        )
    if not fit.diagnostics.get("converged", True):
        notes.append(
            f"not converged after {fit.diagnostics['iterations']} steps: these are the last "
            "estimates; take fewer features or a stronger penalty"
        )
    return notes


class Sparsity(NamedTuple):
    """How sparse codes are made."""

    penalty: float
    active: int | None
    """Features that an item may have; None for as many as the penalty leaves."""


class Tried(NamedTuple):
    """Held-out log loss per trial of one candidate."""

    penalty: float
    active: int | None
    log_loss: float


def candidates(
    kind: str, n_features: int, penalty: float | None, active: int | None
) -> list[Sparsity]:
    """Return what is to be tried, in order; a single one needs no trial."""
    if kind == "l1":
        penalties = PENALTIES if penalty is None else (penalty,)
        return [Sparsity(value, None) for value in penalties]
    known = AMORTISED_PENALTY if penalty is None else penalty
    sizes = [k for k in ACTIVE if k <= n_features] if active is None else [active]
    return [Sparsity(known, k) for k in sizes]


def choose(
    counts: Counts, n_features: int, tried: Sequence[Sparsity], rng: np.random.Generator
) -> tuple[Tried, ...]:
    """Log loss of candidates on the cells of up to five folds, until it has risen twice.

    Small matrices need more folds than large ones: they stop once enough cells were held out.
    """
    fold = fold_masks(counts, _FOLDS, rng)
    share = max(1, int((fold >= 0).sum()) // _FOLDS)
    folds = range(min(_FOLDS, math.ceil(_ENOUGH / share)))
    held_out = [fold == k for k in folds]
    starts = list(mapped(partial(_start, counts, n_features), held_out))
    ready = list(zip(held_out, starts, strict=True))
    found: list[Tried] = []
    for sparsity in tried:
        losses = list(mapped(partial(_loss, counts, sparsity), ready))
        found.append(Tried(*sparsity, float(np.mean(losses))))
        best = min(range(len(found)), key=lambda k: found[k].log_loss)
        if len(found) - 1 - best >= 2:
            break
    return tuple(found)


def _without(counts: Counts, held_out: Tensor) -> Counts:
    return Counts(counts.right * ~held_out, counts.trials * ~held_out)


def _start(counts: Counts, n_features: int, held_out: Tensor) -> SparseCodes:
    return start(_without(counts, held_out), n_features)


def _loss(counts: Counts, sparsity: Sparsity, fold: tuple[Tensor, SparseCodes]) -> float:
    """Log loss of a fold, fitted from its start without its cells."""
    held_out, first = fold
    codes = _rough(_without(counts, held_out), first, sparsity)
    return held_out_loss(counts, codes.probability(), held_out)


def _rough(counts: Counts, first: SparseCodes, sparsity: Sparsity) -> SparseCodes:
    if sparsity.active is None:
        return fit_sparse_codes(counts, first, sparsity.penalty, tolerance=_ROUGH).codes
    penalty, active = sparsity.penalty, sparsity.active
    return fit_amortised_codes(counts, first, penalty, active, steps=ROUGH_STEPS).codes


class HeldOutScore(NamedTuple):
    """How well one model predicts a fifth of the cells from the others."""

    item_model: str
    """``"rasch"``, ``"dense"`` (the factor model), ``"l1"`` or ``"topk"``."""
    auc: float
    """NaN where all held out are right, or all wrong."""
    log_loss: float
    """Per answer, in nats."""
    n_cells: int
    seconds: float


def compare_held_out(
    matrix: ResponseMatrix,
    n_features: int,
    item_models: Sequence[str] = COMPARED,
    *,
    level: str = "item",
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
) -> tuple[HeldOutScore, ...]:
    """Predict the same held-out cells by each model, penalties and ridges chosen without them.

    Parameters
    ----------
    item_models
        Of `COMPARED`. The dense model has as many dimensions as there are features.

    Raises
    ------
    DesignError
        See `fit_capabilities`; or too little is left to fit or to predict.
    SelectionError
        No such model, level or device.
    """
    for name in item_models:
        if name not in COMPARED:
            raise SelectionError(no_such("model", name, COMPARED, ", ".join(COMPARED)))
    generator = np.random.default_rng(rng)
    counts, _, _ = columns_of(matrix, level, device)
    split = random_entries((counts.trials > 0).cpu().numpy(), rng=generator)
    asked = zip(item_models, generator.spawn(len(item_models)), strict=True)
    return tuple(mapped(partial(_scored, counts, split, n_features), asked))


def _scored(
    counts: Counts, split: Split, n_features: int, asked: tuple[str, np.random.Generator]
) -> HeldOutScore:
    name, rng = asked
    began = time.perf_counter()
    found = predict_held_out(_estimator(name, n_features, rng), counts, split)
    scores = score_held_out(counts, found, split.test)
    spent = time.perf_counter() - began
    return HeldOutScore(name, scores.auc, scores.log_loss, scores.n_cells, spent)


def _estimator(name: str, n_features: int, rng: np.random.Generator) -> Estimator:
    if name == "rasch":
        return partial(fit_curves, kind="rasch")
    if name == "dense":
        return partial(fit_factor, n_dimensions=n_features, ridge="auto", rng=rng)

    def predicted(counts: Counts) -> Tensor:
        return find_codes(counts, n_features, CodeRule(name), rng).codes.probability()

    return predicted


class Stability(NamedTuple):
    """How like each other the features of two halves of the items are, each of shape (F,).

    In the order of the features of the whole fit. Cosines are between models' capabilities, with
    their sign; NaN where a feature is not in use.
    """

    halves: FloatArray
    """Cosine of a feature of one half with its like of the other half."""
    whole: FloatArray
    """The smaller of the cosines with the feature of the whole fit."""
    chance: FloatArray
    """95 % of features whose models are shuffled have a best cosine with the other half below."""


def matched(found: FloatArray, truth: FloatArray) -> tuple[IntArray, FloatArray]:
    """Give each column of `truth` (N, F) the column of `found` (N, G ≥ F) that is its like.

    Pairs have the largest sum of cosines of centred columns; a column without variance is like
    none. Returns the places in `found`, and the cosines.

    >>> place, cosine = matched(np.array([[1.0, 4], [0, 5], [0, 9]]), np.array([[4.0], [5], [9]]))
    >>> place.tolist(), cosine.round(3).tolist()
    ([1], [1.0])
    """
    cosine = cosines(found, truth)
    rows, columns = optimize.linear_sum_assignment(cosine, maximize=True)
    place = np.empty(truth.shape[1], dtype=np.int64)
    place[columns] = rows
    return place, cosine[place, np.arange(truth.shape[1])]


def cosines(a: FloatArray, b: FloatArray) -> FloatArray:
    """Of centred columns (..., N, F) and (..., N, G): shape (..., F, G); 0 without variance."""
    return np.swapaxes(_unit(a), -1, -2) @ _unit(b)


def _unit(columns: FloatArray) -> FloatArray:
    away = columns - columns.mean(axis=-2, keepdims=True)
    size = np.linalg.norm(away, axis=-2, keepdims=True)
    return np.divide(away, size, out=np.zeros_like(away), where=size > 0)


def stability(
    fit: CapabilityFit,
    matrix: ResponseMatrix,
    *,
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
) -> Stability:
    """Fit two random halves of the items, or of the tasks, with the penalty of the fit.

    Parameters
    ----------
    matrix
        What the fit was made from.

    Raises
    ------
    DesignError
        Another matrix, or fewer items in a half than features.
    """
    generator = np.random.default_rng(rng)
    counts, ids, _ = columns_of(matrix, fit.level, device)
    if matrix.models != fit.models or not np.array_equal(ids.astype(str), fit.item_ids.astype(str)):
        msg = (
            f"the fit has {len(fit.models)} models and {len(fit.item_ids)} {fit.level}s, and the "
            f"matrix {len(matrix.models)} and {len(ids)}, or others by name: give the matrix that "
            "was fitted"
        )
        raise DesignError(msg)
    if len(ids) < 2 * fit.n_features:
        msg = f"{len(ids)} {fit.level}s in two halves are too few for {fit.n_features} features"
        raise DesignError(f"{msg}: expected {2 * fit.n_features} or more, or fewer features")
    rule = CodeRule(fit.kind, fit.hyperparameters["penalty"], fit.hyperparameters["active"])
    split = np.array_split(generator.permutation(len(ids)), 2)
    halves = mapped(partial(_half, counts, fit.n_features, rule, generator), split)
    first, second = (half[:, matched(half, fit.capability)[0]] for half in halves)
    whole = [np.diagonal(cosines(half, fit.capability)) for half in (first, second)]
    used = fit.capability.any(axis=0)
    return Stability(
        halves=np.where(used, np.diagonal(cosines(first, second)), np.nan),
        whole=np.where(used, np.minimum(*whole), np.nan),
        chance=np.where(used, _chance(first, second, generator), np.nan),
    )


def _half(
    counts: Counts,
    n_features: int,
    rule: CodeRule,
    rng: np.random.Generator,
    items: IntArray,
) -> FloatArray:
    # The rule leaves nothing to choose, so that nothing is drawn.
    place = torch.from_numpy(items).to(counts.right.device)  # pyright: ignore[reportUnknownMemberType]
    part = Counts(counts.right[:, place], counts.trials[:, place])
    return as_array(find_codes(part, n_features, rule, rng).codes.capability)


def _chance(first: FloatArray, second: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Best cosines of features whose models are shuffled, their 95 % quantile."""
    order = rng.permuted(np.tile(np.arange(len(first)), (_SHUFFLES, 1)), axis=1)
    best = cosines(first[order], second).max(axis=2)
    return np.asarray(np.quantile(best, 0.95, axis=0), dtype=np.float64)
