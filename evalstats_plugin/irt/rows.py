"""Tables of a fit: abilities of models with intervals, and the items, as records.

* `abilities`: models of a fit of one ability, most able first, with differences and items
* `factor_abilities`: models and loadings of a `FactorFit`
* `items`: items of a fit of any kind
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.data.results import Results, finite_values, records
from evalstats_plugin.data.runs import place_of
from evalstats_plugin.irt.answers import item_keys, matrix_of, places_in, short_metric
from evalstats_plugin.irt.fit_statistics import (
    cells_of,
    check_level,
    check_matrix,
    check_same,
    item_totals,
    mean_squares,
)
from evalstats_plugin.irt.model.fit import FactorFit, IRTFit, OrderedFit, SavedFit, expect_kind
from evalstats_plugin.irt.suspects import suspect_items
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, steady
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.multiplicity import holm

# Rank correlation of ability and score below which items may measure more than one ability, and
# the least number of models with all items to judge it by.
_ODD_ORDER = 0.9
_FEWEST_IN_ORDER = 10

HELD: Mapping[str, tuple[int, tuple[float, float], tuple[float, float]]] = MappingProxyType(
    {"mml-items": (40, (0.81, 0.60), (0.93, 0.89)), "mml": (300, (0.87, 0.68), (0.92, 0.79))}
)
"""Number of models, and share of 95 % intervals of discriminations that held the truth on average
and in the worst of the designs drawn, with fewer models and with as many or more; of estimators
that take the spread of items as known (fixtures/validation: slopes.json; irt_drawn.json from 300).
"""


def abilities(
    fit: IRTFit | OrderedFit,
    responses: ResponsesLike,
    *,
    confidence_level: float = 0.95,
    baseline: str | None = None,
    items: bool = False,
) -> Abilities:
    """Return the abilities of the models of a fit with intervals, the most able first.

    Parameters
    ----------
    fit
        Fit of the models of the answers. Items that only one of both has count for nothing.
    baseline
        Name of a model to which the others are compared, by the covariance of the abilities.
    items
        Whether to return the items as well, those to look at first.

    Raises
    ------
    DesignError
        The confidence level is not between 0 and 1; other models than those of the fit; or items
        of ordered scores, see `items`.
    SelectionError
        No model has the baseline's name.

    Examples
    --------
    >>> from evalstats_plugin.irt import abilities, fit_irt, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=5, n_items=30, item_model="rasch")
    >>> for row in abilities(fit_irt(matrix, "rasch"), matrix)[:2]:
    ...     print(row.model, round(row.low, 1), round(row.estimate, 1), round(row.high, 1))
    model_1 -0.1 1.0 2.0
    model_3 -0.1 1.0 2.0
    """
    matrix, fit = matrix_of(responses), expect_kind(fit, IRTFit, OrderedFit)
    check_level(confidence_level)
    check_same("models", fit.models, matrix.models)
    in_fit = places_in(fit, matrix) >= 0
    if not in_fit.all():
        matrix = submatrix(matrix, slice(None), np.flatnonzero(in_fit))
    against = None if baseline is None else place_of(baseline, fit.models)
    listed, differences = list[ItemEstimate](), list[Comparison]()
    notes = [*fit.notes, *_note_on_order(fit, matrix)]
    if items:
        notes += _notes_on_discriminations(fit)
        listed = item_estimates(expect_kind(fit, IRTFit), matrix, confidence_level)
    if against is not None:
        differences = _differences(fit, matrix, confidence_level, against)
    return Abilities(
        rows=tuple(_ability_rows(fit, matrix, confidence_level)),
        notes=tuple(notes),
        items=tuple(listed),
        differences=tuple(differences),
        fit=fit.summary(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """Ability of one model, on a scale shared with the others. Numbers are finite or ``None``."""

    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "n_items", "score", "estimate", "low", "high",
    )  # fmt: skip

    model: str
    task: str
    """Names of the tasks whose items make the scale, joined by commas."""
    metric: str
    n_items: int
    """Items that the model answered."""
    n_models: int
    """Models on the scale."""
    score: float | None
    """Mean over the answered items, each the mean of its epochs."""
    estimate: float | None
    """The ability, θ."""
    low: float | None
    high: float | None
    std_error: float | None
    confidence_level: float
    item_model: str
    estimator: str
    scale: str
    """What fixes the scale: where 0 is."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Abilities(Results[Ability]):
    """Abilities of the models, the most able first."""

    drawn_as: ClassVar[tuple[str, ...]] = ("abilities", "items")

    items: tuple[ItemEstimate, ...] = ()
    """Those to look at first; empty unless requested."""
    differences: tuple[Comparison, ...] = ()
    """Each other model's ability minus that of the baseline."""
    fit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was fitted and how, see `IRTFit.summary`."""

    @property
    def flagged(self) -> tuple[ItemEstimate, ...]:
        """Items that a person should look at."""
        return tuple(item for item in self.items if item.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEstimate:
    """Parameters and fit of one item. Numbers are finite or ``None``."""

    shown: ClassVar[tuple[str, ...]] = (
        "item", "task", "difficulty", "difficulty_std_error", "discrimination",
        "discrimination_std_error", "infit", "outfit",
    )  # fmt: skip

    item: str
    task: str
    metric: str
    n_models: int
    """Models that answered it."""
    score: float | None
    """Mean over models and epochs."""
    difficulty: float | None
    difficulty_std_error: float | None
    discrimination: float | None
    discrimination_std_error: float | None
    """With few models too small, as a note says; see `HELD`."""
    guessing: float | None
    upper: float | None
    """P(right) of a model of very high ability."""
    infit: float | None
    """Information-weighted mean square; 1 is as the model expects, more is noise."""
    outfit: float | None
    """Unweighted mean square."""
    item_rest: float | None
    """Correlation with the models' mean scores on the other items."""
    notes: tuple[str, ...] = ()
    """Why a person should look at it, the most serious reason first; empty for most items."""


def items(
    fit: SavedFit, responses: ResponsesLike, *, confidence_level: float = 0.95
) -> Results[Any]:
    """Return the items of a fit of any kind.

    Of right and wrong answers those to look at first, an `ItemEstimate` each; of ordered scores a
    row for each step between two levels, an `ItemStep`; of a factor model one for each dimension, a
    `FactorLoading`.

    Raises
    ------
    DesignError
        The confidence level is not between 0 and 1, or the matrix has other models or items.

    Examples
    --------
    >>> import numpy as np
    >>> from evalstats_plugin import ResponseMatrix, irt
    >>> ability, noise = np.random.default_rng(0).normal(size=30), np.random.default_rng(1)
    >>> grades = np.clip(np.round(2 + ability[:, None] + noise.normal(size=(30, 4))), 1, 3)
    >>> matrix = ResponseMatrix.from_array(grades)
    >>> steps = irt.fit_irt(matrix, "graded").items()
    >>> [(row.item, row.level, round(row.step, 1)) for row in steps[:2]]
    [('item_0', 2.0, -1.7), ('item_0', 3.0, 1.7)]
    """
    matrix = matrix_of(responses)
    if isinstance(fit, OrderedFit):
        check_level(confidence_level)
        check_matrix(fit, matrix)
        values = np.asarray(fit.diagnostics["levels"], dtype=np.float64)
        j, k = np.nonzero(np.isfinite(fit.level[:, 1:]))
        columns: dict[str, Sequence[Any]] = {
            "item": fit.item_ids[j].astype(str).tolist(),
            "task": fit.tasks[j].astype(str).tolist(),
            "metric": [short_metric(str(matrix.metrics[i])) for i in j],
            "score": finite_values(_totals(matrix).mean(axis=0)[j]),
            "discrimination": finite_values(fit.discrimination[j]),
            "discrimination_std_error": finite_values(fit.discrimination_std_error[j]),
            "level": values[fit.level[j, k + 1].astype(np.int64)].tolist(),
            "step": finite_values(fit.steps[j, k]),
            "step_std_error": finite_values(fit.steps_std_error[j, k]),
        }
        return Results(tuple(records(ItemStep, columns, {})), fit.notes)
    if isinstance(fit, FactorFit):
        loadings = factor_abilities(fit, matrix, confidence_level=confidence_level)
        return Results(loadings.items, loadings.notes)
    estimated = abilities(
        expect_kind(fit, IRTFit), matrix, confidence_level=confidence_level, items=True
    )
    return Results(estimated.items, estimated.notes)


def factor_abilities(
    fit: FactorFit, responses: ResponsesLike, *, confidence_level: float = 0.95
) -> FactorAbilities:
    """Return the abilities and loadings of a factor model fitted to this matrix.

    Raises
    ------
    DesignError
        The confidence level is not between 0 and 1, or the matrix has other models or items.
    """
    matrix, fit = matrix_of(responses), expect_kind(fit, FactorFit)
    check_level(confidence_level)
    # Checks that the matrix is that of the fit.
    cells_of(fit, matrix)
    totals = _totals(matrix)
    k, score = fit.n_dimensions, totals.mean(axis=1)
    order = np.argsort(-score, kind="stable")
    width = normal_quantile(confidence_level) * fit.ability_std_error
    numbers = {
        "estimate": fit.ability,
        "low": fit.ability - width,
        "high": fit.ability + width,
        "std_error": fit.ability_std_error,
    }
    columns: dict[str, Sequence[Any]] = {
        "model": [fit.models[i] for i in order for _ in range(k)],
        "dimension": [*range(1, k + 1)] * len(order),
        "n_items": totals.answered.sum(axis=1)[order].repeat(k).tolist(),
        "score": finite_values(score[order].repeat(k)),
        **{name: finite_values(values[order].ravel()) for name, values in numbers.items()},
    }
    same = {
        **_tasks_and_metrics(matrix),
        "n_models": len(fit.models),
        "confidence_level": confidence_level,
        "scale": fit.identification,
    }
    item = np.argsort(-np.abs(steady(fit.loading)), axis=0, kind="stable").T.ravel()
    at = item, np.arange(k, dtype=np.int64).repeat(len(fit.loading))
    of_items: dict[str, Sequence[Any]] = {
        "item": fit.item_ids[item].astype(str).tolist(),
        "dimension": (at[1] + 1).tolist(),
        "task": fit.tasks[item].astype(str).tolist(),
        "metric": [short_metric(str(matrix.metrics[j])) for j in item],
        "score": finite_values(totals.mean(axis=0)[item]),
        "loading": finite_values(fit.loading[at]),
        "std_error": finite_values(fit.loading_std_error[at]),
        "intercept": finite_values(fit.intercept[item]),
    }
    return FactorAbilities(
        rows=tuple(records(FactorAbility, columns, same)),
        notes=fit.notes,
        items=tuple(records(FactorLoading, of_items, {})),
        fit=fit.summary(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorAbility:
    """Ability of one model in one dimension. Numbers are finite or ``None``."""

    model: str
    dimension: int
    """From 1."""
    task: str
    metric: str
    n_items: int
    n_models: int
    score: float | None
    """Mean over the answered items, the same in each dimension."""
    estimate: float | None
    low: float | None
    high: float | None
    std_error: float | None
    """Given the items."""
    confidence_level: float
    scale: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FactorAbilities(Results[FactorAbility]):
    """A row per model and dimension, models of the highest score first."""

    items: tuple[FactorLoading, ...] = ()
    """Loadings by dimension, the largest first."""
    fit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was fitted and how, see `FactorFit.summary`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorLoading:
    """Loading of one item on one dimension. Numbers are finite or ``None``."""

    item: str
    dimension: int
    task: str
    metric: str
    score: float | None
    loading: float | None
    std_error: float | None
    """Given the abilities."""
    intercept: float | None
    """Logit at abilities 0."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemStep:
    """A step of one item, from a level to the next. Numbers are finite or ``None``."""

    item: str
    task: str
    metric: str
    score: float | None
    """Mean over models and epochs."""
    discrimination: float | None
    discrimination_std_error: float | None
    level: float
    """The level that the step leads to."""
    step: float | None
    """Ability at which the step is taken half of the time, see `OrderedFit.steps`."""
    step_std_error: float | None


def _ability_rows(fit: IRTFit | OrderedFit, matrix: ResponseMatrix, level: float) -> list[Ability]:
    totals = _totals(matrix)
    low, high = fit.limits(level)
    order = np.argsort(-steady(fit.ability), kind="stable")
    ends, texts = (0.0, 1.0), ("no answer right", "every answer right")
    if isinstance(fit, OrderedFit):
        ends = float(np.nanmin(matrix.scores)), float(np.nanmax(matrix.scores))
        texts = "the lowest score on every item", "the highest score on every item"
    notes: list[tuple[str, ...]] = [()] * len(fit.models)
    for end, text, more in zip(ends, texts, ("less", "more"), strict=True):
        at_end = (matrix.scores == end) | np.isnan(matrix.scores)
        for i in np.flatnonzero(at_end.all(axis=(1, 2))):
            unlimited = f": it may be {more} able by any amount" if fit.endless[i] else ""
            notes[i] = (text + unlimited,)
    columns: dict[str, Sequence[Any]] = {
        "model": [fit.models[i] for i in order],
        "n_items": totals.answered.sum(axis=1)[order].tolist(),
        "score": finite_values(totals.mean(axis=1)[order]),
        "estimate": finite_values(fit.ability[order]),
        "low": finite_values(low[order]),
        "high": finite_values(high[order]),
        "std_error": finite_values(fit.ability_std_error[order]),
        "notes": [notes[i] for i in order],
    }
    same = {
        **_tasks_and_metrics(matrix),
        "n_models": len(fit.models),
        "item_model": fit.item_model,
        "estimator": fit.estimator,
        "scale": fit.identification,
        "confidence_level": level,
    }
    return records(Ability, columns, same)


def _differences(
    fit: IRTFit | OrderedFit, matrix: ResponseMatrix, level: float, against: int
) -> list[Comparison]:
    """Each other model's ability minus that of model `against`; p-values adjusted by Holm."""
    covariance = fit.ability_covariance
    variance = np.diagonal(covariance)
    difference = fit.ability - fit.ability[against]
    error = np.sqrt(np.maximum(variance + variance[against] - 2 * covariance[against], 0.0))
    order = np.argsort(-steady(fit.ability), kind="stable")
    order = order[order != against]
    difference, error = difference[order], error[order]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(difference == 0, 0.0, difference / error)
    width = normal_quantile(level) * error
    p = 2 * special.ndtr(-np.abs(z))
    # Models without an error are no comparison.
    compared, p_adjusted = np.isfinite(p), np.full(len(p), np.nan)
    p_adjusted[compared] = holm(p[compared])
    scored = _totals(matrix).answered
    columns: dict[str, Sequence[Any]] = {
        "model_b": [fit.models[i] for i in order],
        "n_items": (scored[order] & scored[against]).sum(axis=1).tolist(),
        "difference": finite_values(difference),
        "low": finite_values(difference - width),
        "high": finite_values(difference + width),
        "p_value": finite_values(p),
        "p_adjusted": finite_values(p_adjusted),
        "prob_better": finite_values(special.ndtr(z)),
    }
    about = _tasks_and_metrics(matrix)
    same = {
        "task": about["task"],
        "metric": f"ability on {about['metric']}",
        "model_a": fit.models[against],
        "method": fit.estimator,
        "confidence_level": level,
        "higher_is_better": True,
    }
    return records(Comparison, columns, same)


def item_estimates(fit: IRTFit, matrix: ResponseMatrix, level: float) -> list[ItemEstimate]:
    """Return the items, those to look at first, then the others from the hardest."""
    fit, matrix = _common_items(fit, matrix)
    cells = cells_of(fit, matrix)
    squares = mean_squares(cells)
    listed = suspect_items(fit, matrix, confidence_level=level)
    reasons = {(row.task, row.item): row.reasons for row in listed}
    place = {key: k for k, key in enumerate(reasons)}
    keys = item_keys(matrix)
    last, hardness = len(place), steady(fit.difficulty)
    order = sorted(range(len(keys)), key=lambda j: (place.get(keys[j], last), -float(hardness[j])))
    totals = _totals(matrix)
    numbers = {
        "score": totals.mean(axis=0),
        "difficulty": fit.difficulty,
        "difficulty_std_error": fit.difficulty_std_error,
        "discrimination": fit.discrimination,
        "discrimination_std_error": fit.discrimination_std_error,
        "guessing": fit.guessing,
        "upper": fit.upper,
        "infit": squares.infit,
        "outfit": squares.outfit,
        "item_rest": item_totals(cells.right, cells.trials).item_rest,
    }
    columns: dict[str, Sequence[Any]] = {
        "item": [keys[j][1] for j in order],
        "task": [keys[j][0] for j in order],
        "metric": [short_metric(str(matrix.metrics[j])) for j in order],
        "n_models": totals.answered.sum(axis=0)[order].tolist(),
        "notes": [reasons.get(keys[j], ()) for j in order],
        **{name: finite_values(values[order]) for name, values in numbers.items()},
    }
    return records(ItemEstimate, columns, {})


def _common_items(fit: IRTFit, matrix: ResponseMatrix) -> tuple[IRTFit, ResponseMatrix]:
    """Restrict both to their common items, in the order of the matrix: a bank has others, too."""
    places = places_in(fit, matrix)
    if np.array_equal(places, np.arange(len(fit.item_ids))):
        return fit, matrix
    here = np.flatnonzero(places >= 0)
    at = places[here]
    per_item = {"item_ids", "tasks", "item_covariance"} | {
        name + suffix
        for name in ("discrimination", "difficulty", "guessing", "upper")
        for suffix in ("", "_std_error")
    }
    cut: Mapping[str, Any] = {
        f.name: getattr(fit, f.name)[at]
        for f in fields(fit)
        if f.name in per_item and getattr(fit, f.name) is not None
    }
    predicted = None if fit.predicted is None else fit.predicted[:, at]
    matrix = submatrix(matrix, np.arange(len(matrix.models)), here)
    return replace(fit, **cut, predicted=predicted), matrix


def _note_on_order(fit: IRTFit | OrderedFit, matrix: ResponseMatrix) -> list[str]:
    """Note abilities that order the models otherwise than their scores on the same items."""
    totals = _totals(matrix)
    same = totals.answered.all(axis=1) & np.isfinite(fit.ability)
    if same.sum() < _FEWEST_IN_ORDER:
        return []
    score = totals.mean(axis=1)
    ranks = _ranks(fit.ability[same]), _ranks(score[same])
    if min(map(np.ptp, ranks)) == 0:
        return []
    correlation = float(np.corrcoef(*ranks)[0, 1])
    if correlation >= _ODD_ORDER:
        return []
    return [
        "abilities order the models otherwise than their scores on the same items (rank "
        f"correlation {correlation:.2f}): these items may measure more than one ability; "
        'look at those with negative discrimination, or fit item model "rasch"'
    ]


def _ranks(values: FloatArray) -> FloatArray:
    """Rank from 1, with mean ranks for ties; values that differ by rounding are tied."""
    _, place, size = np.unique(values.round(9), return_inverse=True, return_counts=True)
    return (np.cumsum(size) - (size - 1) / 2)[place]


def _notes_on_discriminations(fit: IRTFit | OrderedFit) -> list[str]:
    """Note uncertain discriminations, and intervals of them that hold less than they say."""
    n, notes = len(fit.models), list[str]()
    unsure = int((fit.discrimination_std_error > np.abs(fit.discrimination)).sum())
    if unsure:
        notes.append(
            f"{unsure} of {len(fit.item_ids)} items have a discrimination with a standard error "
            f"larger than itself: {n} models are too few for it, and infit and "
            "outfit of these items mean little"
        )
    by_spread = fit.item_model != "1pl" and fit.diagnostics.get("prior", "estimated") == "estimated"
    if fit.estimator in HELD and by_spread and np.isfinite(fit.discrimination_std_error).any():
        few, with_few, with_more = HELD[fit.estimator]
        held = with_few if n < few else with_more
        notes.append(
            "errors of discriminations take as known how far items vary: of 95 % intervals "
            f"{100 * held[0]:.0f} % held in drawn designs of a 2pl, {100 * held[1]:.0f} % in the "
            "worst. Read discriminations as a ranking"
        )
    return notes


class _Totals(NamedTuple):
    right: FloatArray
    """Mean score over epochs, shape (N, M); 0 where missing."""
    answered: BoolArray
    """Whether there is a score, shape (N, M)."""

    def mean(self, axis: int) -> FloatArray:
        with np.errstate(invalid="ignore"):
            return self.right.sum(axis=axis) / self.answered.sum(axis=axis)


def _totals(matrix: ResponseMatrix) -> _Totals:
    trials = (~np.isnan(matrix.scores)).sum(axis=2)
    return _Totals(np.nansum(matrix.scores, axis=2) / np.maximum(trials, 1), trials > 0)


def _tasks_and_metrics(matrix: ResponseMatrix) -> dict[str, str]:
    metrics = (short_metric(name) for name in matrix.metrics.astype(str).tolist())
    return {
        "task": ", ".join(dict.fromkeys(matrix.tasks.astype(str).tolist())),
        "metric": ", ".join(dict.fromkeys(metrics)),
    }
