"""Fit statistics of items and models: infit and outfit, S-X², lz.

Does each item, and each model under test, answer as the fitted model predicts?

* `item_fit`: infit, outfit and item-total correlations of every item
* `s_x2`: S-X² of every item, a test by sum score, for hundreds of models [OT00]_
* `person_fit`: infit, outfit and lz of every model

`cells_of` puts the answers beside the predictions. `mean_squares`, `item_totals` and
`log_likelihood_z` compute from those arrays, of N models × M items; missing cells are allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.irt.answers import matrix_of
from evalstats_plugin.irt.model.data import levels_of
from evalstats_plugin.irt.model.fit import (
    AnyFit,
    FactorFit,
    IRTFit,
    OrderedFit,
    SavedFit,
    expect_kind,
)
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.multiplicity import benjamini_hochberg

if TYPE_CHECKING:
    import pandas as pd


# Wilson and Hilferty's cube root fails for wider distributions; R's mirt stops here as well.
_WIDEST = 2**0.5
# Quadrature nodes over ability, in standard deviations of its distribution, and their weights.
_NODES = np.linspace(-6, 6, 121)
_WEIGHT = np.exp(-(_NODES**2) / 2)
_WEIGHT /= _WEIGHT.sum()
# Sum scores with a smaller probability have no expected share.
_RAREST = 1e-10
# Parameters that an item has alone.
_N_PARAMETERS = {"rasch": 1, "1pl": 1, "2pl": 2, "3pl": 3, "4pl": 4}


def item_fit(fit: IRTFit, responses: ResponsesLike) -> pd.DataFrame:
    """Return infit, outfit and item-total correlations, one line per item.

    Columns: item, task, n_models (that answered it), mean (share of right answers), the fields of
    `MeanSquares` and those of `ItemTotals`.

    Parameters
    ----------
    fit
        Fit of the same models and items as the matrix.

    Raises
    ------
    DesignError
        The matrix has other models or items than the fit.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, item_fit, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=30, n_items=8, item_model="rasch")
    >>> table = item_fit(fit_irt(matrix, "rasch"), matrix)
    >>> table.set_index("item").loc["item_0", ["infit", "outfit", "item_rest"]].round(2).tolist()
    [0.91, 0.44, 0.12]
    """
    matrix = matrix_of(responses)
    import pandas as pd

    cells = cells_of(fit, matrix)
    with np.errstate(invalid="ignore"):
        mean = cells.right.sum(axis=0) / cells.trials.sum(axis=0)
    return pd.DataFrame(
        {
            "item": fit.item_ids,
            "task": fit.tasks,
            "n_models": (cells.trials > 0).sum(axis=0),
            "mean": mean,
            **mean_squares(cells)._asdict(),
            **item_totals(cells.right, cells.trials)._asdict(),
        }
    )


def s_x2(fit: IRTFit, responses: ResponsesLike, *, least_expected: float = 1.0) -> SumScoreFit:
    """Test the fit of every item by Orlando and Thissen's S-X² [OT00]_.

    Models are grouped by their number of right answers; in each group the observed share of right
    answers to an item is compared with the expected one by a chi-square statistic.

    Parameters
    ----------
    fit
        Fit of the same models and items, best by estimator ``"mml"``, whose distribution of
        abilities is used. For other fits abilities are assumed normal, with a note.
    responses
        One epoch of each item, right or wrong. Models that did not answer all items are left out.
    least_expected
        Neighbouring scores are joined until so many right and wrong answers are expected in each.

    Raises
    ------
    DesignError
        Partial credit, epochs, fewer than 3 items, or too few models with all items.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, s_x2, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=400, n_items=6, item_model="rasch")
    >>> of_items = s_x2(fit_irt(matrix, "rasch"), matrix)
    >>> of_items.n_models, of_items.df.tolist()
    (400, [4.0, 4.0, 4.0, 4.0, 4.0, 3.0])
    """
    matrix, fit = matrix_of(responses), expect_kind(fit, IRTFit)
    cells = cells_of(fit, matrix)
    kept, notes = _complete(cells)
    right = cells.right[kept]
    n, m = right.shape
    total = right.sum(axis=1).astype(np.int64)
    mean, sd = fit.ability_distribution
    if "ability_sd" not in fit.hyperparameters:
        notes.append("abilities are taken as normal with the mean and spread of these models")
    expected = expected_shares(fit.chance(mean + sd * _NODES), _WEIGHT)
    # A score of 0 or of all items fixes every answer.
    inner = slice(1, m)
    possible = np.isfinite(expected[:, 0])
    count = np.bincount(total, minlength=m + 1) * possible.astype(np.float64)
    seen = np.zeros((m + 1, m))
    np.add.at(seen, total, right * possible[total, None])
    observed, wanted, size = _joined(
        seen[inner], count[inner, None] * expected[inner], count[inner], least_expected
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = (observed - wanted) ** 2 * (1 / wanted + 1 / (size - wanted))
    present = size > 0
    statistic = np.where(present, parts, 0).sum(axis=0)
    n_parameters = 2 if _is_common(fit) else _N_PARAMETERS[fit.item_model]
    df: IntArray = present.sum(axis=0, dtype=np.int64) - n_parameters
    tells: BoolArray = np.asarray(df > 0)
    chance = np.asarray(special.chdtrc(np.maximum(df, 1), statistic), dtype=np.float64)
    p = np.where(tells, chance, np.nan)
    if not tells.any():
        raise DesignError(
            f"{n} models with all {m} items are too few to compare groups of scores, which takes "
            "hundreds: take infit and outfit (item_fit)"
        )
    if not tells.all():
        out = int((~tells).sum())
        are = "is" if out == 1 else "are"
        notes.append(f"{counted(out, 'item')} {are} too easy or too hard for these models")
    return SumScoreFit(
        fit.item_ids, fit.tasks, np.where(tells, statistic, np.nan), np.where(tells, df, np.nan),
        p, benjamini_hochberg(p), n, tuple(notes),
    )  # fmt: skip


MOST_ITEMS_OF_M2 = 40
"""Items up to which M2 is computed: its matrices have a row for each pair."""


def m2(fit: IRTFit | OrderedFit, responses: ResponsesLike) -> PairFit:
    """Test the fit of a whole model by M2, from the shares right on items and pairs of items.

    Limited information: with many items most patterns of answers are seen once or never, but every
    pair is seen by all models [MO06]_. Of ordered scores it is C2, from the shares of all levels of
    items and the mean products of two items' levels, 0, 1, … [CM14]_; with two levels that is M2.

    Parameters
    ----------
    fit
        Fit of the same models and items by estimator ``"mml"``, Rasch, 2PL, 3PL, graded or GPCM, of
        up to 40 items.
    responses
        One answer to each item, right or wrong, or one ordered score; models that did not answer
        all are left out.

    Raises
    ------
    DesignError
        Another estimator or item model, more items, partial credit or epochs, or too few answers.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, m2, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=400, n_items=6, item_model="rasch")
    >>> pairs = m2(fit_irt(matrix, "rasch"), matrix)
    >>> pairs.df, pairs.p_value > 0.01
    (14, True)
    """
    matrix = matrix_of(responses)
    check_matrix(fit, matrix)
    if fit.estimator != "mml" or fit.item_model == "4pl":
        msg = "M2 is of estimator mml, item models rasch, 1pl, 2pl, 3pl, graded and gpcm"
        raise DesignError(msg)
    mean, sd = fit.ability_distribution
    seen, curves = _levels_at(fit, matrix, mean + sd * _NODES)
    n, m = seen.shape
    if m > MOST_ITEMS_OF_M2 or m < 3 or n < 2:
        raise DesignError(f"M2 needs 3 to {MOST_ITEMS_OF_M2} items and models that took all")
    first, second = np.triu_indices(m, 1)
    item, level = np.nonzero(curves.chance.max(axis=0)[:, 1:])
    level = level + 1
    score = curves.expected(curves.chance)
    margins = np.concatenate(
        [curves.chance[:, item, level], score[:, first] * score[:, second]], axis=1
    )
    observed = np.concatenate(
        [(seen[:, item] == level).mean(axis=0), (seen.T @ seen / n)[first, second]]
    )
    spread = _margin_covariance(curves, margins, (item, level), (first, second))
    by = _margin_derivatives(curves, (item, level), (first, second))
    if fit.item_model in ("rasch", "1pl"):
        by = np.concatenate([by[:, :m], by[:, m:].sum(axis=1, keepdims=True)], axis=1)
    elif _is_common(fit):
        by = np.concatenate([by[:, : 2 * m], by[:, 2 * m :].sum(axis=1, keepdims=True)], axis=1)
    inverse = np.linalg.pinv(spread, hermitian=True)
    held = inverse @ by
    inverse = inverse - held @ np.linalg.pinv(by.T @ held) @ held.T
    away = observed - _WEIGHT @ margins
    statistic, df = float(n * away @ inverse @ away), len(away) - int(np.linalg.matrix_rank(by))
    p = float(special.chdtrc(df, statistic)) if df > 0 else np.nan
    rmsea = float(np.sqrt(max(statistic - df, 0.0) / (df * (n - 1)))) if df > 0 else np.nan
    return PairFit(statistic, df, p, rmsea)


def _is_common(fit: IRTFit | OrderedFit) -> bool:
    """Whether all items have the same asymptotes, estimated once for all of them."""
    return bool(fit.diagnostics.get("options", {}).get("common_asymptotes"))


class PairFit(NamedTuple):
    """M2 or C2, and how far a model is from the truth for each degree of freedom."""

    statistic: float
    df: int
    p_value: float
    rmsea: float
    """Root-mean-square error of approximation; below .05 is called close."""


_Places: TypeAlias = tuple[IntArray, IntArray]


class _LevelCurves(NamedTuple):
    """Levels 0, …, K - 1 of M items at Q abilities; right answers are level 1 of two."""

    chance: FloatArray
    """P of each level, shape (Q, M, K); 0 of levels that an item has not."""
    by: list[FloatArray]
    """Derivatives of `chance` by each parameter of the item."""

    @staticmethod
    def expected(chance: FloatArray) -> FloatArray:
        """Mean level, shape (Q, M), or its derivative."""
        return chance @ np.arange(chance.shape[2], dtype=np.float64)


def _levels_at(
    fit: IRTFit | OrderedFit, matrix: ResponseMatrix, at: FloatArray
) -> tuple[IntArray, _LevelCurves]:
    """Levels of the models that answered all items, (n, M), and their curves at abilities."""
    if isinstance(fit, IRTFit):
        right = matrix.scores[np.isfinite(matrix.scores[:, :, 0]).all(axis=1)]
        if right.shape[2] > 1 or not np.isin(right, (0, 1)).all():
            raise DesignError("M2 needs right or wrong answers of one epoch")
        up = special.expit(at[:, None] * fit.discrimination + fit.intercept)
        height = fit.upper - fit.guessing
        slope = height * up * (1 - up)
        by = [slope, slope * _NODES[:, None]] + ([1 - up] if fit.item_model == "3pl" else [])
        chance = fit.guessing + height * up
        return right[:, :, 0].astype(np.int64), _LevelCurves(
            np.stack([1 - chance, chance], axis=2), [np.stack([-x, x], axis=2) for x in by]
        )
    _, places = _levels_fitted(fit, matrix)
    if places.shape[2] > 1:
        raise DesignError("C2 needs one score of each model on each item, and there are epochs")
    # Items on which all models have one score tell nothing.
    items = np.isfinite(fit.level[:, 1])
    places = places[:, items][(places[:, :, 0] >= 0).all(axis=1)]
    chance = fit.chances(at)[:, items]
    # By the logit of each step, and by the discrimination.
    by, by_slope = list[FloatArray](), np.zeros_like(chance)
    for k in range(1, chance.shape[2]):
        step: FloatArray = np.eye(chance.shape[2])[k]
        if fit.item_model == "graded":
            above = chance[:, :, k:].sum(axis=2, keepdims=True)
            by.append(above * (1 - above) * (step - np.roll(step, -1)))
            by_slope += _NODES[:, None, None] * by[-1]
        else:
            by.append(chance * (step - chance[:, :, k : k + 1]))
            by_slope += k * _NODES[:, None, None] * by[-1]
    by.append(by_slope)
    return (places == fit.level[items]).argmax(axis=2), _LevelCurves(chance, by)


def _margin_covariance(
    curves: _LevelCurves, margins: FloatArray, levels: _Places, pairs: _Places
) -> FloatArray:
    """Covariance of the margins of one model: between abilities, and given ability."""
    (item, level), (first, second) = levels, pairs
    expected, n_levels = _WEIGHT @ margins, len(item)
    total = margins.T @ (_WEIGHT[:, None] * margins) - np.outer(expected, expected)
    chance, score = margins[:, :n_levels], curves.expected(curves.chance)
    square = np.arange(curves.chance.shape[2], dtype=np.float64) ** 2
    variance = curves.chance @ square - score**2
    # Given ability items are independent, and a product of two moves with either by the other.
    lever = np.zeros((len(_NODES), len(first), score.shape[1]))
    rows = np.arange(len(first))
    lever[:, rows, first], lever[:, rows, second] = score[:, second], score[:, first]
    same = item[:, None] == item
    total[:n_levels, :n_levels] += np.diag(_WEIGHT @ chance) - same * (
        chance.T @ (_WEIGHT[:, None] * chance)
    )
    with_score = _WEIGHT[:, None] * chance * (level - score[:, item])
    cross = np.stack([with_score[:, s] @ lever[:, :, j] for s, j in enumerate(item)])
    total[:n_levels, n_levels:] += cross
    total[n_levels:, :n_levels] += cross.T
    half = lever * np.sqrt(_WEIGHT[:, None] * variance)[:, None]
    half = half.swapaxes(0, 1).reshape(len(first), -1)
    total[n_levels:, n_levels:] += half @ half.T
    total[n_levels:, n_levels:] += np.diag(_WEIGHT @ (variance[:, first] * variance[:, second]))
    return total


def _margin_derivatives(curves: _LevelCurves, levels: _Places, pairs: _Places) -> FloatArray:
    """Derivatives of the margins by the parameters, each by item, shape (S, P)."""
    (item, level), (first, second) = levels, pairs
    score, m = curves.expected(curves.chance), curves.chance.shape[1]
    every_level, rows = np.arange(len(item)), len(item) + np.arange(len(first))
    by_parameter: list[FloatArray] = []
    for by in curves.by:
        columns, of_score = np.zeros((len(item) + len(first), m)), curves.expected(by)
        columns[every_level, item] = _WEIGHT @ by[:, item, level]
        columns[rows, first] = _WEIGHT @ (of_score[:, first] * score[:, second])
        columns[rows, second] = _WEIGHT @ (of_score[:, second] * score[:, first])
        by_parameter.append(columns)
    return np.concatenate(by_parameter, axis=1)


def person_fit(fit: IRTFit, responses: ResponsesLike) -> pd.DataFrame:
    """Return infit, outfit and lz of each model's answers, one line per model.

    Columns: model, n_items (answered), the fields of `MeanSquares` and those of `LogLikelihoodZ`. A
    low ``lz_corrected`` (lz*) means a model whose answers its ability does not explain.

    Parameters
    ----------
    fit
        Fit of the same models and items as the matrix.

    Raises
    ------
    DesignError
        The matrix has other models or items than the fit.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, person_fit, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=5, n_items=40, item_model="rasch")
    >>> table = person_fit(fit_irt(matrix, "rasch"), matrix)
    >>> table[["model", "lz_corrected"]].round(1).values.tolist()[:2]
    [['model_0', 1.8], ['model_1', 1.0]]
    """
    matrix, fit = matrix_of(responses), expect_kind(fit, IRTFit)
    import pandas as pd

    cells = cells_of(fit, matrix)
    height = np.maximum(fit.upper - fit.guessing, 1e-12)
    up = (cells.probability - fit.guessing) / height
    slope = fit.discrimination * height * up * (1 - up)
    pull: FloatArray | float = 0.0
    if fit.shrinks:
        mean, sd = fit.ability_distribution
        pull = -(fit.ability - mean) / sd**2
    elif fit.diagnostics.get("scored_by") == "wle":
        # What Warm's estimate adds to the score [War89]_.
        variance = cells.probability * (1 - cells.probability)
        weight = np.divide(slope, variance, out=np.zeros_like(slope), where=variance > 0)
        weight *= cells.trials
        bend = fit.discrimination * slope * (1 - 2 * up)
        pull = (weight * bend).sum(axis=1) / np.maximum(2 * (weight * slope).sum(axis=1), 1e-300)
    return pd.DataFrame(
        {
            "model": fit.models,
            "n_items": (cells.trials > 0).sum(axis=1),
            **mean_squares(cells, axis=1)._asdict(),
            **log_likelihood_z(cells, slope, pull)._asdict(),
        }
    )


class Cells(NamedTuple):
    """Observed answers and their predictions; each of shape (N, M)."""

    right: FloatArray
    """Sum of the scores of the epochs."""
    trials: FloatArray
    """Epochs scored; 0 where the cell is missing."""
    probability: FloatArray
    """Predicted P(right) of one trial."""

    @property
    def variance(self) -> FloatArray:
        """Binomial variance of `right`, n p (1 - p)."""
        return self.trials * self.probability * (1 - self.probability)

    @property
    def residual(self) -> FloatArray:
        """Observed minus expected right answers; 0 where the cell is missing."""
        return self.right - self.trials * self.probability


def cells_of(fit: AnyFit, matrix: ResponseMatrix) -> Cells:
    """Return the answers of `matrix` beside the predictions of `fit`.

    Raises
    ------
    DesignError
        The matrix has other models or items than the fit, or the same in another order; or the
        fit is of ordered scores.
    """
    fit = expect_kind(fit, IRTFit, FactorFit)
    check_matrix(fit, matrix)
    trials = (~np.isnan(matrix.scores)).sum(axis=2, dtype=np.float64)
    # Residuals are taken from predictions at the estimates.
    expected = fit.predict(plug_in=True) if isinstance(fit, IRTFit) else fit.predict()
    return Cells(np.nansum(matrix.scores, axis=2), trials, expected)


def check_matrix(fit: SavedFit, matrix: ResponseMatrix) -> None:
    """Raise `DesignError` where a matrix has other models or items than the fit."""
    check_same("models", fit.models, matrix.models)
    both = (
        [f"{task}/{item}" for task, item in zip(part.tasks, part.item_ids, strict=True)]
        for part in (fit, matrix)
    )
    check_same("items", *map(tuple, both))


def check_level(confidence_level: float) -> None:
    """Raise `DesignError` for a confidence level that is not between 0 and 1."""
    if not 0 < confidence_level < 1:
        raise DesignError(f"confidence level {confidence_level} is not between 0 and 1: try 0.95")


def _levels_fitted(fit: OrderedFit, matrix: ResponseMatrix) -> tuple[FloatArray, IntArray]:
    """Return `levels_of` the scores, which are those of the fit."""
    levels, places = levels_of(matrix.scores)
    if levels.tolist() != fit.diagnostics["levels"]:
        msg = "scores have other levels than the fit: expected the matrix that was fitted"
        raise DesignError(msg)
    return levels, places


def check_same(what: str, expected: tuple[str, ...], given: tuple[str, ...]) -> None:
    """Raise `DesignError` where the models, or items, of a matrix are not those of the fit."""
    if expected == given:
        return
    odd = [
        name for name in dict.fromkeys(given + expected) if (name in given) != (name in expected)
    ]
    seen = f": only one of them has {few(odd)}" if odd else ", in another order"
    raise DesignError(
        f"the matrix has {len(given)} {what} and the fit has {len(expected)}{seen}; expected the "
        "matrix that was fitted. For new models score_models(fit, matrix) gives a fit of them"
    )


def residuals_of(fit: AnyFit, matrix: ResponseMatrix) -> tuple[FloatArray, FloatArray]:
    """Answers less those expected, averaged over epochs, and number of answers, (N, M) each.

    Of ordered scores the answers are levels' values, or how many epochs are right. 0 where missing.

    Raises
    ------
    DesignError
        See `cells_of`.
    """
    if not isinstance(fit, OrderedFit):
        cells = cells_of(fit, matrix)
        return cells.residual / np.maximum(cells.trials, 1), cells.trials
    check_matrix(fit, matrix)
    levels, places = _levels_fitted(fit, matrix)
    seen = places >= 0
    count = seen.sum(axis=2, dtype=np.float64)
    total = np.where(seen, levels[places], 0.0).sum(axis=2)
    mean = total / np.maximum(count, 1)
    return np.where(count > 0, mean - fit.predict(), 0.0), count


class MeanSquares(NamedTuple):
    """Mean squared standardised residuals; 1 is as expected, more is noise [WM82]_.

    The z values are nearly standard normal if the model holds.
    """

    outfit: FloatArray
    """Unweighted: sensitive to surprising answers far from a model's level."""
    outfit_z: FloatArray
    infit: FloatArray
    """Weighted by information: sensitive to answers near a model's level."""
    infit_z: FloatArray


def mean_squares(cells: Cells, axis: int = 0) -> MeanSquares:
    """Infit and outfit of items (``axis=0``) or of models (``axis=1``) [WM82]_.

    Missing cells and cells with P(right) of exactly 0 or 1 are left out. NaN where none is left.
    """
    variance = cells.variance
    used = variance > 0
    safe = np.where(used, variance, 1.0)
    square = np.where(used, cells.residual**2, 0.0)
    # Fourth central moment of a Binomial: v (1 + 3 v - 6 p (1 - p)).
    fourth = variance * (1 + 3 * variance - 6 * cells.probability * (1 - cells.probability))
    count, total = used.sum(axis=axis), variance.sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        outfit = (square / safe).sum(axis=axis) / count
        outfit_spread = (np.where(used, fourth, 0) / safe**2).sum(axis=axis) / count**2 - 1 / count
        infit = square.sum(axis=axis) / total
        infit_spread = (fourth - variance**2).sum(axis=axis) / total**2
        return MeanSquares(
            outfit, _cube_root_z(outfit, outfit_spread), infit, _cube_root_z(infit, infit_spread)
        )


def _cube_root_z(mean_square: FloatArray, variance: FloatArray) -> FloatArray:
    """Standardise by Wilson and Hilferty's cube root."""
    spread = np.minimum(np.sqrt(np.maximum(variance, 0)), _WIDEST)
    return (np.cbrt(mean_square) - 1) * 3 / spread + spread / 3


class ItemTotals(NamedTuple):
    """Correlations of item scores with the models' mean scores, each of shape (M,)."""

    item_total: FloatArray
    """With the mean of all items; the point-biserial correlation if scores are 0 and 1."""
    item_rest: FloatArray
    """With the mean of the other items (corrected item-total correlation)."""


def item_totals(right: FloatArray, trials: FloatArray) -> ItemTotals:
    """Correlate each item with the models' mean scores on all items and on the other items.

    A model's mean is over the items it answered. NaN where nothing varies.

    >>> right = np.array([[1.0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]])
    >>> print(np.round(item_totals(right, np.ones((4, 3))).item_rest, 3))
    [0.522 0.707 0.522]
    """
    answered = trials > 0
    score = np.where(answered, right / np.where(answered, trials, 1), 0.0)
    total, count = score.sum(axis=1, keepdims=True), answered.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = (total - score) / (count - answered)
        mean = np.broadcast_to(total / count, score.shape)
        return ItemTotals(_correlation(score, mean, answered), _correlation(score, rest, answered))


def _correlation(x: FloatArray, y: FloatArray, answered: np.ndarray) -> FloatArray:
    """Correlate column by column, over the cells that are there."""
    answered = answered & np.isfinite(y)
    count = answered.sum(axis=0)
    x, y = (np.where(answered, v - np.where(answered, v, 0).sum(axis=0) / count, 0) for v in (x, y))
    # Rounding errors of a constant column must not count as variation.
    spread = [np.where(s := (v * v).sum(axis=0), s, np.nan) for v in (x, y)]
    tiny = [s <= 1e-24 * count for s in spread]
    return np.where(tiny[0] | tiny[1], np.nan, (x * y).sum(axis=0) / np.sqrt(spread[0] * spread[1]))


class SumScoreFit(NamedTuple):
    """S-X² of each item; arrays of shape (M,), NaN where too few models are informative."""

    item_ids: NDArray[Any]
    tasks: NDArray[Any]
    statistic: FloatArray
    df: FloatArray
    """Score groups less the number of parameters of the item."""
    p_value: FloatArray
    """Chance of so large a statistic if the item fits."""
    p_adjusted: FloatArray
    """Adjusted for all items (false discovery rate) [BH95]_."""
    n_models: int
    """Models that answered every item, the ones used."""
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One line per item."""
        import pandas as pd

        names = ("statistic", "df", "p_value", "p_adjusted")
        table = {"item": self.item_ids, "task": self.tasks}
        return pd.DataFrame(table | {name: getattr(self, name) for name in names})


def sum_score_shares(probability: FloatArray) -> FloatArray:
    """Chance of each number of right answers, shape (..., M + 1), from P(right), (..., M) [LW84]_.

    >>> sum_score_shares(np.array([0.5, 0.5])).tolist()
    [0.25, 0.5, 0.25]
    """
    m = probability.shape[-1]
    shares = np.zeros((*probability.shape[:-1], m + 1))
    shares[..., 0] = 1.0
    for j in range(m):
        p = probability[..., j, None]
        shares[..., 1 : j + 2] = shares[..., 1 : j + 2] * (1 - p) + shares[..., : j + 1] * p
        shares[..., :1] *= 1 - p
    return shares


def expected_shares(probability: FloatArray, weight: FloatArray) -> FloatArray:
    """P(item right | s right answers in all), shape (M + 1, M); NaN at impossible s.

    Parameters
    ----------
    probability : shape (Q, M)
        P(right) at the nodes of the distribution of abilities.
    weight : shape (Q,)
        Weights of the nodes, adding up to 1.
    """
    every = sum_score_shares(probability)
    m = probability.shape[1]
    low, up = probability <= 0.5, probability
    odds = np.where(low, up, 1 - up) / np.where(low, 1 - up, up)
    over = np.where(low, 1 - up, up)
    # Take each item out of the recursion again, from the end where errors shrink.
    upward, downward = np.zeros_like(up), np.zeros_like(up)
    right = np.zeros((m + 1, m))
    for s in range(m):
        upward = every[:, s, None] / over - odds * upward
        downward = every[:, m - s, None] / over - odds * downward
        right[s + 1] += weight @ np.where(low, up * upward, 0)
        right[m - s] += weight @ np.where(low, 0, up * downward)
    chance = (weight @ every)[:, None]
    # Scores that hardly any model can have would show the recursion's rounding errors.
    return np.where(chance > _RAREST, np.clip(right / np.maximum(chance, _RAREST), 0, 1), np.nan)


def _complete(cells: Cells) -> tuple[BoolArray, list[str]]:
    """Return which models answered all items; refuse epochs and partial credit."""
    if (cells.trials > 1).any() or not np.isin(cells.right, (0.0, 1.0)).all():
        raise DesignError(
            "S-X² needs one answer to each item, right or wrong, and there are epochs or partial "
            "credit: take infit and outfit (item_fit)"
        )
    kept: BoolArray = np.asarray((cells.trials > 0).all(axis=1))
    n, m = cells.trials.shape
    if m < 3 or not kept.any():
        raise DesignError(
            f"{int(kept.sum())} of {n} models answered all of {m} items: S-X² needs some, and "
            "3 items or more"
        )
    left = n - int(kept.sum())
    return kept, [f"{left} of {n} models did not answer all items: left out"] if left else []


def _joined(
    right: FloatArray, expected: FloatArray, count: FloatArray, least: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Join neighbouring scores until enough is expected.

    Returns observed and expected right answers and models of each group, (S, M) each; unused groups
    have no models. Scores left over at the end join the last group.
    """
    expected = np.nan_to_num(expected)
    n_scores, m = expected.shape
    group = np.zeros((n_scores, m), dtype=np.int64)
    place = np.zeros(m, dtype=np.int64)
    hits, misses = np.zeros(m), np.zeros(m)
    for s in range(n_scores):
        group[s] = place
        hits, misses = hits + expected[s], misses + count[s] - expected[s]
        full = (hits >= least) & (misses >= least)
        place += full
        hits, misses = np.where(full, 0, hits), np.where(full, 0, misses)
    last: IntArray = np.maximum(place - 1, 0)
    cell: IntArray = np.minimum(group, last) * m + np.arange(m, dtype=np.int64)
    sizes = np.broadcast_to(count[:, None], expected.shape)

    def summed(values: FloatArray) -> FloatArray:
        total = np.bincount(cell.ravel(), values.ravel(), n_scores * m)
        return total.astype(np.float64).reshape(n_scores, m)

    return summed(right), summed(expected), summed(sizes)


class LogLikelihoodZ(NamedTuple):
    """Standardised log-likelihood of each model's answers, each of shape (N,).

    Low values mean answers that are unlikely at that ability; about -1.64 is the lowest 5 %.
    """

    lz: FloatArray
    """lz, as if abilities were known [DLW85]_; varies too little, since they are estimated."""
    lz_corrected: FloatArray
    """lz*, corrected for the estimation of ability [Sni01]_."""


def log_likelihood_z(
    cells: Cells, slope: FloatArray, prior_score: FloatArray | float = 0.0
) -> LogLikelihoodZ:
    """Standardise the log-likelihood of each model's answers: lz and lz*.

    Parameters
    ----------
    cells
        Answers, and P(right) at the estimated abilities.
    slope : shape (N, M)
        Derivative of P(right) by ability.
    prior_score : shape (N,)
        What the estimate adds to the derivative of the log-likelihood by ability, such as that of
        a log prior; 0 for maximum likelihood.
    """
    p = cells.probability
    used = (cells.trials > 0) & (p > 0) & (p < 1)
    p = np.where(used, p, 0.5)
    binomial_variance = p * (1 - p)
    weight = np.where(used, special.logit(p), 0.0)
    variance = np.where(used, cells.trials * binomial_variance, 0.0)
    residual = np.where(used, cells.residual, 0.0)
    surprise = (residual * weight).sum(axis=1)
    score = np.where(used, slope / binomial_variance, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        lz = surprise / np.sqrt((variance * weight**2).sum(axis=1))
        # Ability solves Σ residual · score + prior_score = 0: project that direction out.
        share = (variance * weight * score).sum(axis=1) / (variance * score**2).sum(axis=1)
        left = weight - share[:, None] * score
        rest, whole = ((variance * w**2).sum(axis=1) for w in (left, weight))
        # Where all answers but one are certain, no variance is left.
        spread = np.sqrt(np.where(rest > 1e-8 * whole, rest, np.nan))
        return LogLikelihoodZ(lz, (surprise + share * prior_score) / spread)
