"""From the Beta response model's estimates to an `IRTFit`: for scores anywhere in [0, 1].

To be taken where the spread of scores is itself of interest, as it is modelled here. To predict
scores, and wherever many are exactly 0 or 1, the quasi-likelihood of fractional counts does as well
or better: it is the default.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt import beta_response
from evalstats_plugin.irt.data import PARTIAL, Counts
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.fitted import (
    as_array,
    difficulty_error,
    not_converged,
    run_facts,
    suspects_note,
)
from evalstats_plugin.matrix import ResponseMatrix

MANY_EXACT = 0.05
"""Share of scores of exactly 0 or 1 from which on a fit says that they are not from a Beta."""


def fit_beta(
    matrix: ResponseMatrix, counts: Counts, item_model: str, options: Mapping[str, Any]
) -> IRTFit:
    """Mode of abilities, items and their precision under weak priors of the items.

    Raises
    ------
    DesignError
        Too few models, or scores that all are 0 or 1.
    """
    began = time.perf_counter()
    scores = beta_response.beta_scores(
        matrix.scores, device=counts.right.device, dtype=counts.right.dtype
    )
    if scores.exact == 1:
        msg = (
            "every score is 0 or 1, expected scores in between for a Beta response: take response "
            "'binomial'"
        )
        raise DesignError(msg)
    kind = cast("Any", item_model)
    try:
        found = beta_response.beta_fit(scores, kind, beta_response.Options(**options))
    except ValueError as error:
        raise DesignError(str(error)) from error
    fit = _record(matrix, item_model, found)
    how = {
        "iterations": found.steps,
        "converged": found.converged,
        "log_likelihood": float(found.log_likelihood),
        "likelihood": "joint",
        "exact_scores": scores.exact,
        **run_facts(counts, began),
    }
    notes = [*(note for note in counts.notes if note != PARTIAL), beta_response.NOTE]
    return replace(
        fit,
        hyperparameters={"inwards": scores.inwards} if scores.inwards else {},
        diagnostics=how,
        notes=(*notes, *suspects_note(fit), *_notes(found, scores)),
    )


def _record(matrix: ResponseMatrix, item_model: str, found: beta_response.BetaFit) -> IRTFit:
    a, d = as_array(found.discrimination), as_array(found.intercept)
    a = np.where(a == 0, np.finfo(float).tiny, a)
    # From intercept, discrimination, log φ to discrimination, intercept.
    covariance = as_array(found.item_covariance)[:, [1, 0]][:, :, [1, 0]]
    rasch = item_model == "rasch"
    none = np.full(len(a), np.nan)
    return IRTFit(
        item_model=item_model,
        estimator="map",
        response="beta",
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        ability=as_array(found.ability),
        ability_covariance=as_array(found.covariance),
        discrimination=a,
        difficulty=-d / a,
        guessing=np.zeros(len(a)),
        discrimination_std_error=none if rasch else np.sqrt(covariance[:, 0, 0]),
        difficulty_std_error=difficulty_error(a, d, covariance),
        guessing_std_error=none,
        item_covariance=covariance,
        precision=as_array(found.precision),
        identification=f"abilities sum to 0{'' if rasch else ', mean square 1'}",
    )


def _notes(found: beta_response.BetaFit, scores: beta_response.BetaScores) -> list[str]:
    notes = [] if found.converged else [not_converged(found.steps)]
    if scores.exact >= MANY_EXACT:
        notes.append(
            f"{scores.exact:.0%} of the scores are exactly 0 or 1, which no Beta gives: response "
            "'binomial' takes them as they are"
        )
    return notes
