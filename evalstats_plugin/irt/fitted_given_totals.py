"""From conditional estimates to an `IRTFit`: what was conditioned away is estimated afterwards.

Conditional likelihood tells of models only, or of items only. The other side is then given Warm's
estimates [War89]_, finite for all right and all wrong too, with the errors of the first carried on.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.cml import (
    ConditionalFit,
    abilities_given_item_totals,
    difficulties_given_model_totals,
)
from evalstats_plugin.irt.curves import Items
from evalstats_plugin.irt.data import Counts, check_room
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.fitted import as_array, not_converged, run_facts
from evalstats_plugin.irt.scores import score
from evalstats_plugin.matrix import ResponseMatrix

NOTE_ITEMS = (
    "conditional on item totals: 95 % intervals cover .95 with 5, 10 and 40 models where all items "
    "discriminate alike; .92 to .94 with 10 where they do not: mml-items with a 2pl covers .95"
)
NOTE = (
    "conditional on model totals: difficulties do not depend on how models vary, abilities are "
    "estimated after them; with few models they are stretched as in jml: take cml-items"
)


class Warm(NamedTuple):
    """Estimates of rows, given the level of columns."""

    value: Tensor
    variance: Tensor
    """Of the answers alone."""
    lever: Tensor
    """How a row's value moves with each column's level, shape (rows, columns)."""


def fit_cml_items(
    matrix: ResponseMatrix,
    counts: Counts,
    item_model: str,  # noqa: ARG001 - it is rasch
    options: Mapping[str, Any],  # noqa: ARG001 - there are none
) -> IRTFit:
    """Abilities given item totals, and then difficulties."""
    began = time.perf_counter()
    found = _conditional(abilities_given_item_totals, counts)
    free = torch.isfinite(found.estimate)
    ability, covariance = found.estimate.clone(), found.covariance.nan_to_num(0.0)
    easy = warm(counts.right[free].T, counts.trials[free].T, ability[free])
    carried = ((easy.lever @ covariance[free][:, free]) * easy.lever).sum(1)
    notes = [NOTE_ITEMS]
    if not bool(free.all()):
        others = warm(counts.right[~free], counts.trials[~free], easy.value)
        ability[~free] = others.value
        covariance = covariance + torch.diag(
            torch.zeros_like(ability).masked_scatter(~free, others.variance)
        )
        notes.append(
            "models all right or all wrong have no conditional estimate: theirs is Warm's, items "
            "taken as known, and the others' abilities sum to 0"
        )
    return _fit(
        matrix,
        (ability, covariance, -easy.value, easy.variance + carried),
        estimator="cml-items",
        diagnostics=_diagnostics(found) | run_facts(counts, began),
        notes=(*counts.notes, *notes, *_search_notes(found)),
    )


def fit_cml(
    matrix: ResponseMatrix,
    counts: Counts,
    item_model: str,  # noqa: ARG001 - it is rasch
    options: Mapping[str, Any],  # noqa: ARG001 - there are none
) -> IRTFit:
    """Difficulties given model totals, and then abilities, which are made to sum to 0."""
    began = time.perf_counter()
    m = counts.right.shape[1]
    check_room(6 * m * m, counts.right, f"the covariance of {m} items")
    found = _conditional(difficulties_given_model_totals, counts)
    free = torch.isfinite(found.estimate)
    known = found.covariance[free][:, free]
    able = warm(counts.right[:, free], counts.trials[:, free], -found.estimate[free])
    # Abilities move along with difficulties: down with their level -b, so up with b.
    along = -able.lever @ known
    covariance = along @ -able.lever.T
    covariance.diagonal().add_(able.variance)
    mean = covariance.mean(1)
    covariance -= mean - mean.mean()
    covariance -= mean[:, None]
    difficulty, variance = found.estimate.clone(), torch.zeros_like(found.estimate)
    variance[free] = known.diagonal() - 2 * along.mean(0) + mean.mean()
    notes = [NOTE]
    if not bool(free.all()):
        flat = warm(counts.right[:, ~free].T, counts.trials[:, ~free].T, able.value)
        difficulty[~free], variance[~free] = -flat.value, torch.nan
        notes.append(flat_note((~free).cpu().numpy()))
    shift = able.value.mean()
    return _fit(
        matrix,
        (able.value - shift, covariance, difficulty - shift, variance),
        estimator="cml",
        diagnostics=_diagnostics(found) | run_facts(counts, began),
        notes=(*counts.notes, *notes, *_search_notes(found)),
    )


def flat_note(flat: NDArray[np.bool_]) -> str:
    """Note on items that no likelihood places."""
    return (
        f"{int(flat.sum())} items all right or all wrong have no estimate of this kind: their "
        "difficulty is Warm's, abilities taken as known, and has no error"
    )


def _conditional(run: Callable[[Counts], ConditionalFit], counts: Counts) -> ConditionalFit:
    try:
        found = run(counts)
    except ValueError as error:
        raise DesignError(str(error)) from error
    if not bool(torch.isfinite(found.estimate).any()):
        msg = (
            "no finite estimate: models and items are in perfect order, each model right wherever "
            "one with fewer right answers is; expected answers that deviate, or take mml-items"
        )
        raise DesignError(msg)
    return found


def warm(right: Tensor, trials: Tensor, level: Tensor) -> Warm:
    """Estimate values x of rows where P(right) = 1 / (1 + exp(-(x + level)))."""
    found = score(Counts(right, trials), Items(torch.ones_like(level), level), "wle")
    p = torch.sigmoid(found.ability[:, None] + level)
    weight = trials * p * (1 - p)
    return Warm(found.ability, found.std_error**2, -weight / weight.sum(1, keepdim=True))


def _diagnostics(found: ConditionalFit) -> dict[str, Any]:
    return {
        "iterations": found.iterations,
        "converged": bool(found.converged),
        "log_likelihood": float(found.log_likelihood),
        "likelihood": "conditional",
    }


def _search_notes(found: ConditionalFit) -> list[str]:
    return [] if bool(found.converged) else [not_converged(found.iterations)]


def _fit(
    matrix: ResponseMatrix, found: tuple[Tensor, Tensor, Tensor, Tensor], **rest: Any
) -> IRTFit:
    ability, covariance, difficulty, variance = (as_array(part) for part in found)
    m = len(difficulty)
    item_covariance = np.zeros((m, 2, 2))
    item_covariance[:, 1, 1] = variance
    none = np.full(m, np.nan)
    return IRTFit(
        item_model="rasch",
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        ability=ability,
        ability_covariance=covariance,
        discrimination=np.ones(m),
        difficulty=difficulty,
        guessing=np.zeros(m),
        discrimination_std_error=none,
        difficulty_std_error=np.sqrt(variance),
        guessing_std_error=none,
        item_covariance=item_covariance,
        identification="abilities sum to 0",
        **rest,
    )
