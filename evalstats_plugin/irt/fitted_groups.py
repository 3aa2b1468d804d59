"""What a fit says of groups of models: each one's mean and spread of ability, with errors."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from evalstats_plugin.irt.ability_groups import FEW
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.information import Covariances
from evalstats_plugin.irt.mml import Marginal
from evalstats_plugin.irt.px_em import Options
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.wording import few


def with_groups(
    fit: IRTFit, options: Options, found: Marginal, spread: Covariances | None
) -> IRTFit:
    """Add ``hyperparameters["groups"]``: mean, sd, their errors, and the number of models."""
    if found.groups is None or options.groups is None:
        return fit
    names, index = options.groups
    unit = float(found.items.slope[0]) if fit.item_model == "rasch" else 1.0
    mean, sd = (unit * x.cpu().numpy() for x in (found.groups.mean, found.groups.sd))
    mean_error, sd_error = _errors(fit, mean, sd, unit, spread)
    count = np.bincount(index)
    rows: dict[str, Any] = {
        name: {
            "n_models": int(count[k]),
            "mean": float(mean[k]),
            "mean_std_error": float(mean_error[k]),
            "sd": float(sd[k]),
            "sd_std_error": float(sd_error[k]),
        }
        for k, name in enumerate(names)
    }
    small = [f"{name} ({count[k]})" for k, name in enumerate(names) if count[k] < FEW]
    note = f"groups of few models, whose mean and spread are hardly known: {few(small)}"
    return replace(
        fit,
        identification=f"{fit.identification} in group {names[0]}",
        hyperparameters=fit.hyperparameters
        | {"groups": rows, "group_of_model": [names[k] for k in index]},
        notes=(*fit.notes, *([note] if small else [])),
    )


def _errors(
    fit: IRTFit, mean: FloatArray, sd: FloatArray, unit: float, spread: Covariances | None
) -> tuple[FloatArray, FloatArray]:
    """Standard errors of means and sds, NaN where none were computed; the first group has none."""
    none = np.full(len(mean), np.nan)
    if spread is None or spread.groups is None:
        return none, none
    covariance = spread.groups.cpu().numpy()
    g = len(mean) - 1
    # Of mean and log sd, on the scale of the first group; the scale itself may be a parameter.
    by = np.zeros((2 * g, len(covariance)))
    by[:g, :g], by[g:, g : 2 * g] = unit * np.eye(g), np.diag(sd[1:])
    if fit.item_model == "rasch":
        by[:, -1] = np.concatenate([mean[1:], sd[1:]]) / unit
    error = np.sqrt(np.diagonal(by @ covariance @ by.T))
    return np.concatenate([[0.0], error[:g]]), np.concatenate([[0.0], error[g:]])
