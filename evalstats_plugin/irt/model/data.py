"""The data of a fit: successes and trials of every model on every item.

* `Counts`, `counts_of`: in memory, after checking that abilities can be estimated from them
* `levels_of`: the levels of ordered scores, and which one each answer has
* `settled_dispersion`, `residual_sums`, `dispersion_of`, `smoothed_logit`: what several estimators
  compute from them

Counts that stay on disk are in `stored`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix, check_unit_range
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.irt.model.arrays import Array, array_of, by_columns, namespace
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PARTIAL = "partial credit is taken as a fraction of a success (quasi-likelihood)"

_TELLING = 20
"""With as many items it is odd that two models have the same score on each."""

_BLOCK = 2**17
"""Numbers that are looked at together."""

MOST_LEVELS = 20
"""Scores of more levels are taken as continuous."""

DISPERSIONS = (0.003, 3.0)
"""Range of estimates of the dispersion."""

_ROUNDS, _SAME = 8, 0.005
"""Estimates of the dispersion, and the change of its logarithm at which they end."""

FittedT = TypeVar("FittedT")


@dataclass(frozen=True, eq=False)
class Counts:
    """Successes and trials, both of shape (N, M).

    Epochs are Binomial trials; a missing cell has none. Partial credit enters as a fraction of a
    success: the estimates are then those of a quasi-likelihood.
    """

    right: Array
    trials: Array
    notes: tuple[str, ...] = ()
    """Notes on the data: valid, but worth knowing."""
    guess: Array | None = None
    """P(right) of a model that does not know the answer, shape (M,); None where it is 0."""

    @property
    def fractional(self) -> bool:
        """Whether a score is a fraction of its trials."""
        return is_fractional(self.right)

    def tempered(self, dispersion: float) -> Counts:
        """Divide successes and trials by the dispersion."""
        if dispersion == 1:
            return self
        right, trials = (by_columns(x / dispersion) for x in (self.right, self.trials))
        return replace(self, right=right, trials=trials)

    def of_models(self, models: Array) -> Counts:
        """The counts of some models, by places."""
        return replace(self, right=self.right[models], trials=self.trials[models])

    def of_items(self, items: Array) -> Counts:
        """The counts of some items, by a mask or by places."""
        guess = None if self.guess is None else self.guess[items]
        return replace(self, right=self.right[:, items], trials=self.trials[:, items], guess=guess)


def is_fractional(right: Array) -> bool:
    """Whether any number is not whole; blocks of rows stay in the processor's cache."""
    rows = max(1, _BLOCK // max(right.shape[1], 1))
    for start in range(0, len(right), rows):
        block = right[start : start + rows]
        if bool((block != block.round()).any()):
            return True
    return False


def levels_of(scores: FloatArray) -> tuple[FloatArray, IntArray]:
    """Levels (L,), and the level of each answer, shape (N, M, R); -1 where there is none.

    Right and wrong answers of several epochs are counted: k right of R epochs is level k.

    Raises
    ------
    DesignError
        More than 20 levels, or epochs of right and wrong answers with some missing.
    """
    levels: FloatArray = np.unique(scores[np.isfinite(scores)])
    if len(levels) <= 2 and scores.shape[2] > 1:
        n_scored = np.isfinite(scores).sum(axis=2)
        if not np.isin(n_scored, (0, scores.shape[2])).all():
            raise DesignError(
                "models have other numbers of epochs on some items, so that numbers of right "
                "answers are not on one scale: fit item model 2pl, which takes each as it is"
            )
        scores = np.where(n_scored > 0, (scores == levels[-1]).sum(axis=2), np.nan)[:, :, None]
        levels = np.unique(scores[np.isfinite(scores)])
    if len(levels) > MOST_LEVELS:
        raise DesignError(
            f"scores have {len(levels)} levels, more than {MOST_LEVELS}: they are continuous, fit "
            "item model 2pl, whose dispersion says how much they vary"
        )
    places = np.searchsorted(levels, np.nan_to_num(scores, nan=levels[0]))
    return levels, np.where(np.isfinite(scores), places, -1)


def residual_sums(right: Array, trials: Array, mean: Array, square: Array) -> tuple[Array, Array]:
    """Sums of squared residuals and of P (1 - P), given means of P and P² (all of one shape).

    Sums, unlike Pearson's ratios, are not ruled by single cells where P is near 0 or 1.
    """
    seen, xp = trials > 0, namespace(right)
    share = xp.where(seen, right / trials, 0.0)
    squares = (right * share - 2 * right * mean + trials * square).sum()
    return squares, xp.where(seen, mean - square, 0.0).sum()


def settled_dispersion(
    phi: float, fitted: Callable[[float], FittedT], estimate: Callable[[float, FittedT], float]
) -> tuple[FittedT, float]:
    """Fit with a dispersion and estimate it from the fit, in turn, until it stays the same."""
    fit = fitted(phi)
    for _ in range(_ROUNDS):
        before, phi = phi, estimate(phi, fit)
        fit = fitted(phi)
        if abs(math.log(phi / before)) < _SAME:
            break
    return fit, phi


def dispersion_of(counts: Counts, squares: Array, spread: Array) -> float:
    """Dispersion by `residual_sums`, with a degree of freedom for each ability."""
    seen = float((counts.trials > 0).sum())
    low, high = DISPERSIONS
    freedom = seen / max(seen - len(counts.right), 1)
    return min(max(float(squares / spread) * freedom, low), high)


def counts_of(
    matrix: ResponseMatrix,
    *,
    device: str | torch.device | None = "auto",
    dtype: str | torch.dtype = "float64",
    linked: bool = True,
) -> Counts:
    """Count successes and trials, after checking that abilities can be estimated from them.

    Parameters
    ----------
    matrix
        Scores in [0, 1].
    device
        None for counts as NumPy arrays, which are float64; else they are tensors on this device.
    linked
        Refuse a single model, and models that answered no common items, directly or through
        others. False for models that are scored on items fitted before.

    Raises
    ------
    DesignError
        No models, items or scores; scores outside [0, 1]; one model; a duplicate name; items
        without scores; models that no common item links; not enough memory.
    """
    n, m, _ = matrix.scores.shape
    check_names(matrix.models, m, at_least=2 if linked else 1)
    like: Any = np.zeros(0)
    if device is not None:
        import torch

        from evalstats_plugin.runtime.torch import resolve_device, resolve_dtype

        like = torch.zeros(0, dtype=resolve_dtype(dtype), device=resolve_device(device))
        size = f"{counted(n, 'model')} × {counted(m, 'item')}"
        check_room(memory_needed(n, m, 1), like, size)
    check_unit_range(matrix)
    if matrix.scores.shape[2] == 1:
        # Without sums over an axis of one epoch, which are slow.
        scored = ~np.isnan(matrix.scores[:, :, 0])
        right, trials = np.where(scored, matrix.scores[:, :, 0], 0.0), scored.astype(np.float64)
    else:
        right = np.nansum(matrix.scores, axis=2)
        trials = (~np.isnan(matrix.scores)).sum(axis=2, dtype=np.float64)
    if linked:
        check_linked(matrix, trials > 0)
    return Counts(
        right=array_of(right, like),
        trials=array_of(trials, like),
        notes=(*matrix.notes, *_notes(matrix, right, trials)),
    )


def check_names(models: Sequence[str], n_items: int, at_least: int = 2) -> None:
    """Raise `DesignError` for too few models, a duplicate name, or no items."""
    n = len(models)
    if n < at_least:
        raise DesignError(
            f"ability is only defined in comparison, and there {'is' if n == 1 else 'are'} "
            f"{counted(n, 'model')}: give {at_least} or more, or score models on items fitted "
            "before (irt score; in Python: score_models)"
        )
    if n_items == 0:
        raise DesignError("there are no items: pass scores of at least one, in [0, 1]")
    if len(set(models)) < n:
        twice = next(name for name in models if models.count(name) > 1)
        msg = f"model {twice!r} is there twice: rename one, or stack the rows as epochs"
        raise DesignError(msg)


def components(answered: BoolArray) -> tuple[IntArray, IntArray]:
    """Number the groups of models (N,) and items (M,) linked by answers; -1 is an empty item.

    >>> components(np.array([[True, False], [True, False], [False, True]]))
    (array([0, 0, 1]), array([0, 1]))
    """
    models, items = (np.full(size, -1) for size in answered.shape)
    group = 0
    while (models < 0).any():
        fresh = np.array([int(np.argmax(models < 0))])
        while len(fresh):
            models[fresh] = group
            reached = answered[fresh].any(axis=0) & (items < 0)
            items[reached] = group
            fresh = np.flatnonzero(answered[:, reached].any(axis=1) & (models < 0))
        group += 1
    return models, items


def check_linked(matrix: ResponseMatrix, answered: BoolArray) -> None:
    """Raise `DesignError` for items without a score, and models that no common item links."""
    models, items = components(answered)
    check_answered(matrix.item_ids[items < 0])
    if models.max() == 0:
        return
    parts = [
        f"{few([matrix.models[i] for i in np.flatnonzero(models == g)])} "
        f"({counted(int((items == g).sum()), 'item')})"
        for g in range(int(models.max()) + 1)
    ]
    raise DesignError(
        f"the models fall apart into {len(parts)} groups that answered no common item, so their "
        f"abilities cannot be compared: {few([f'[{k + 1}] {p}' for k, p in enumerate(parts)])}. "
        "Fit each group by itself, or add items or models that link them"
    )


def check_answered(empty: NDArray[Any]) -> None:
    """Raise `DesignError` for the ids of items without a score."""
    if len(empty):
        names = few([str(item) for item in empty])
        msg = f"{counted(len(empty), 'item')} without a score of any model ({names}): leave out"
        raise DesignError(msg)


def _notes(matrix: ResponseMatrix, right: FloatArray, trials: FloatArray) -> list[str]:
    """Return notes on data that are odd, though they can be used."""
    notes: list[str] = []
    if is_fractional(cast("Array", right)):
        notes.append(PARTIAL)
    ends = {"model": "no limit on one side", "item": "finite only by the prior"}
    for axis, what in ((1, "model"), (0, "item")):
        total = right.sum(axis=axis)
        flat = int(((total == 0) | (total == trials.sum(axis=axis))).sum())
        if flat:
            are = "is" if flat == 1 else "are"
            notes.append(f"{counted(flat, what)} {are} all right or all wrong: {ends[what]}")
    if right.shape[1] < _TELLING:
        return notes
    # Equal rows have equal sums; only those are compared in full.
    weights = np.cos(np.arange(right.shape[1], dtype=np.float64))
    sums: FloatArray = right @ weights + trials.sum(axis=1)
    order = np.argsort(sums, kind="stable")
    alike = np.flatnonzero(np.isclose(np.diff(sums[order]), 0, atol=1e-9))
    same = [
        f"{matrix.models[a]} = {matrix.models[b]}"
        for a, b in zip(order[alike].tolist(), order[alike + 1].tolist(), strict=True)
        if np.array_equal(right[a], right[b]) and np.array_equal(trials[a], trials[b])
    ]
    if same:
        notes.append(f"models with the same score on every item: {few(same)}")
    return notes


def memory_needed(n_models: int, n_items: int, itemsize: int = 8) -> int:
    """Return the bytes of successes and trials, twice, as estimators need as much again."""
    return 4 * n_models * n_items * itemsize


def check_room(numbers: int, like: Tensor, what: str) -> None:
    """Raise `DesignError` if so many numbers of this dtype and device do not fit into memory."""
    from evalstats_plugin.runtime.torch import check_memory

    size = like.dtype.itemsize
    less = "in Python pass dtype='float32' to fit_irt" if size > 4 else ""
    check_memory(numbers * size, like.device, what, otherwise=less)


def smoothed_logit(right: Array, trials: Array) -> Array:
    """Logit of the share of right answers, with half an answer of each kind added."""
    share = (right + 0.5) / (trials + 1)
    return namespace(share).log(share / (1 - share))
