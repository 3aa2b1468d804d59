"""Do sparse codes predict answers that they have not seen, and better than simpler models?"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.engines import mapped
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.hierarchical.capabilities import KINDS, CodeRule, columns_of, find_codes
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.factor import fit_factor
from evalstats_plugin.irt.holdout import Estimator, predict_held_out, score_held_out
from evalstats_plugin.irt.masks import Split, random_entries
from evalstats_plugin.irt.two_stage import fit_curves
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.wording import no_such

COMPARED = ("rasch", "dense", *KINDS)


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
