"""How sparse codes should be: by the log loss of answers held out."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from torch import Tensor

from evalstats_plugin.engines import mapped
from evalstats_plugin.hierarchical.sparse_codes import SparseCodes, fit_sparse_codes, start
from evalstats_plugin.hierarchical.sparse_codes_amortised import ROUGH_STEPS, fit_amortised_codes
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.factor import fold_masks, held_out_loss

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
