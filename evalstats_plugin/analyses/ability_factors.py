"""From a fitted factor model to records: abilities of each model, and what items ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.ability_data import irt_module, short
from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.results import Results, finite
from evalstats_plugin.stats.interval import normal_quantile

if TYPE_CHECKING:
    from evalstats_plugin.irt.factor_fit import FactorFit


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorAbility:
    """How able one model is in one dimension. Numbers are finite or ``None``."""

    model: str
    dimension: int
    """From 1."""
    task: str
    metric: str
    n_items: int
    n_models: int
    score: float | None
    """Mean over the items taken, the same in each dimension."""
    estimate: float | None
    low: float | None
    high: float | None
    std_error: float | None
    """Items taken as known."""
    confidence_level: float
    scale: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorLoading:
    """How much one item asks of one dimension. Numbers are finite or ``None``."""

    item: str
    dimension: int
    task: str
    metric: str
    score: float | None
    loading: float | None
    std_error: float | None
    """Abilities taken as known."""
    intercept: float | None
    """Logit of a model whose abilities are all 0."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FactorAbilities(Results[FactorAbility]):
    """The models, those of the highest score first, a row for each dimension."""

    items: tuple[FactorLoading, ...] = ()
    """Those that ask most of a dimension first."""
    fit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was fitted and how: see `FactorFit.summary`."""


def factor_abilities(
    fit: FactorFit, matrix: ResponseMatrix, *, confidence_level: float = 0.95
) -> FactorAbilities:
    """Return abilities and loadings of a fit to this matrix.

    Raises
    ------
    DesignError
        The confidence level is not between 0 and 1, or the matrix has other models or items.
    """
    if not 0 < confidence_level < 1:
        msg = f"confidence level {confidence_level} found, expected a number between 0 and 1"
        raise DesignError(msg)
    cells = irt_module("item_fit").cells_of(fit, matrix)
    there: NDArray[np.bool_] = np.asarray(cells.trials > 0)
    score = np.where(there, cells.right / np.maximum(cells.trials, 1), 0.0)
    metrics = dict.fromkeys(short(str(name)) for name in matrix.metrics)
    same = {
        "task": ", ".join(dict.fromkeys(matrix.tasks.astype(str).tolist())),
        "metric": ", ".join(metrics),
        "n_models": len(fit.models),
        "confidence_level": confidence_level,
        "scale": fit.identification,
    }
    with np.errstate(invalid="ignore"):
        by_model, by_item = (score.sum(axis=k) / there.sum(axis=k) for k in (1, 0))
    return FactorAbilities(
        rows=_models(fit, by_model.tolist(), there.sum(axis=1).tolist(), same),
        notes=fit.notes,
        items=_items(fit, matrix, by_item.tolist()),
        fit=fit.summary(),
    )


def _models(
    fit: FactorFit, score: list[float], n_items: list[int], same: Mapping[str, Any]
) -> tuple[FactorAbility, ...]:
    values = fit.ability
    error = fit.ability_std_error
    width = normal_quantile(same["confidence_level"]) * error
    low, high = (values - width).tolist(), (values + width).tolist()
    estimate, std_error = values.tolist(), error.tolist()
    return tuple(
        FactorAbility(
            model=fit.models[i],
            dimension=k + 1,
            n_items=n_items[i],
            score=finite(score[i]),
            estimate=finite(estimate[i][k]),
            low=finite(low[i][k]),
            high=finite(high[i][k]),
            std_error=finite(std_error[i][k]),
            **same,
        )
        for i in sorted(range(len(score)), key=lambda i: -score[i])
        for k in range(fit.n_dimensions)
    )


def _items(fit: FactorFit, matrix: ResponseMatrix, score: list[float]) -> tuple[FactorLoading, ...]:
    loading: list[list[float]] = fit.loading.tolist()
    error: list[list[float]] = fit.loading_std_error.tolist()
    intercept: list[float] = fit.intercept.tolist()
    return tuple(
        FactorLoading(
            item=str(fit.item_ids[j]),
            dimension=k + 1,
            task=str(fit.tasks[j]),
            metric=short(str(matrix.metrics[j])),
            score=finite(score[j]),
            loading=finite(loading[j][k]),
            std_error=finite(error[j][k]),
            intercept=finite(intercept[j]),
        )
        for k in range(fit.n_dimensions)
        for j in sorted(range(len(score)), key=lambda j: -abs(loading[j][k]))
    )
