"""What item response models are fitted to: successes and trials of every model on every item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.sampling.devices import check_memory, resolve_device, resolve_dtype
from evalstats_plugin.score_range import check_unit_range
from evalstats_plugin.wording import few

PARTIAL = "partial credit is taken as a fraction of a success (quasi-likelihood)"
_TELLING = 20
"""Items from which on it is odd that two models have the same score on each."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Successes and trials, both of shape (N, M).

    Epochs are Binomial trials; a missing cell has none. Partial credit enters as a fraction of a
    success: the estimates are then those of a quasi-likelihood.
    """

    right: Tensor
    trials: Tensor
    notes: tuple[str, ...] = ()
    """On the data: valid, but worth knowing."""


def counts_of(
    matrix: ResponseMatrix,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "float64",
    linked: bool = True,
) -> Counts:
    """Count successes and trials, after checking that abilities can be estimated from them.

    Parameters
    ----------
    matrix
        Scores in [0, 1].
    linked
        Refuse a single model, and models and items that fall apart into groups without a common
        answer; False for models that are scored on items fitted before.

    Raises
    ------
    DesignError
        No models, items or scores; scores outside [0, 1]; one model; a name there twice; items or
        models apart from the others; not enough memory.
    """
    place = resolve_device(device)
    n, m, _ = matrix.scores.shape
    check_names(matrix.models, m, at_least=2 if linked else 1)
    number = resolve_dtype(dtype)
    what = f"{n} models × {m} items"
    check_memory(memory_needed(n, m, number), place, what, otherwise=_smaller(number))
    check_unit_range(matrix)
    right, trials = _summed(matrix.scores)
    if linked:
        _check_linked(matrix, trials > 0)
    return Counts(
        right=torch.from_numpy(right).to(place, number),  # pyright: ignore[reportUnknownMemberType]
        trials=torch.from_numpy(trials).to(place, number),  # pyright: ignore[reportUnknownMemberType]
        notes=(*matrix.notes, *_notes(matrix, right, trials)),
    )


def _summed(
    scores: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Successes and trials over the epochs, each of shape (N, M)."""
    there = ~np.isnan(scores)
    if scores.shape[2] == 1:
        one, only = there[:, :, 0], scores[:, :, 0]
        return np.where(one, only, 0.0), one.astype(np.float64)
    return np.nansum(scores, axis=2), there.sum(axis=2, dtype=np.float64)


def check_room(numbers: int, like: Tensor, what: str) -> None:
    """Raise `DesignError` where there is no memory for so many numbers like these."""
    check_memory(numbers * like.dtype.itemsize, like.device, what, otherwise=_smaller(like.dtype))


def _smaller(dtype: torch.dtype) -> str:
    """What to do where memory is not enough for numbers of this kind."""
    return "in Python pass dtype='float32' to fit_irt" if dtype == torch.float64 else ""


def memory_needed(n_models: int, n_items: int, dtype: torch.dtype = torch.float64) -> int:
    """Bytes of successes and trials, twice: estimators hold as much again while they work."""
    return 4 * n_models * n_items * dtype.itemsize


def check_names(models: Sequence[str], n_items: int, at_least: int = 2) -> None:
    """Raise `DesignError` for too few models, a name there twice, or no items."""
    n = len(models)
    if n < at_least:
        msg = (
            f"{n} {'model' if n == 1 else 'models'} found, expected {at_least} or more: ability is "
            "only defined in comparison. For a model on items fitted before use score_models"
        )
        raise DesignError(msg)
    if n_items == 0:
        msg = "no items found, expected items with scores in [0, 1]"
        raise DesignError(msg)
    if len(set(models)) < n:
        twice = next(name for name in models if models.count(name) > 1)
        msg = f"model {twice!r} is there twice, expected one row per model: rename or stack epochs"
        raise DesignError(msg)


def components(there: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the groups of models (N,) and items (M,) that answers connect; -1 is an empty item.

    >>> components(np.array([[True, False], [True, False], [False, True]]))
    (array([0, 0, 1]), array([0, 1]))
    """
    models, items = (np.full(size, -1) for size in there.shape)
    group = 0
    while (models < 0).any():
        fresh = np.array([int(np.argmax(models < 0))])
        while len(fresh):
            models[fresh] = group
            reached = there[fresh].any(axis=0) & (items < 0)
            items[reached] = group
            fresh = np.flatnonzero(there[:, reached].any(axis=1) & (models < 0))
        group += 1
    return models, items


def _check_linked(matrix: ResponseMatrix, there: NDArray[np.bool_]) -> None:
    models, items = components(there)
    empty = np.flatnonzero(items < 0)
    if len(empty):
        names = few([str(matrix.item_ids[j]) for j in empty])
        msg = f"{len(empty)} items have no score of any model ({names}): leave them out"
        raise DesignError(msg)
    if models.max() == 0:
        return
    parts = [
        f"{few([matrix.models[i] for i in np.flatnonzero(models == g)])} "
        f"({int((items == g).sum())} items)"
        for g in range(int(models.max()) + 1)
    ]
    msg = (
        f"the models fall apart into {len(parts)} groups that answered no common item, so their "
        f"abilities cannot be compared: {few([f'[{k + 1}] {p}' for k, p in enumerate(parts)])}. "
        "Fit each group by itself, or add items or models that link them"
    )
    raise DesignError(msg)


def _notes(
    matrix: ResponseMatrix, right: NDArray[np.float64], trials: NDArray[np.float64]
) -> list[str]:
    """What is odd about the data, though they can be used."""
    notes: list[str] = []
    if (right != np.round(right)).any():
        notes.append(PARTIAL)
    for axis, what in ((1, "models"), (0, "items")):
        total = right.sum(axis=axis)
        flat = int(((total == 0) | (total == trials.sum(axis=axis))).sum())
        if flat:
            notes.append(f"{flat} {what} are all right or all wrong: finite only by their prior")
    if right.shape[1] < _TELLING:
        return notes
    # Equal rows have equal sums; only those are compared in full.
    weights = np.cos(np.arange(right.shape[1], dtype=np.float64))
    sums: NDArray[np.float64] = right @ weights + trials.sum(axis=1)
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
