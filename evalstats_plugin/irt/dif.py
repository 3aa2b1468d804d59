"""Differential item functioning (DIF): items that are harder for one group of models than another.

Models of a focal group are compared with all others at the same ability, item by item.

* `item_dif`: the items as records, most significant first; `dif`: the same as arrays
* `firth_logistic`: logistic regression of many items with Firth's penalty, finite even where
  groups separate perfectly [Fir93]_
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.results import Results, finite, records
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.irt.answers import matrix_of, short_metric
from evalstats_plugin.irt.fit_statistics import Cells, cells_of, check_level
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, steady
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.multiplicity import holm

ETS_SCALE = 2.35
"""Factor from log odds to the delta scale of ETS [HT88]_."""

# Groups of fewer models are noted.
_FEW = 10
# Most rounds of purification.
_ROUNDS = 10
# Cells of items × models held at a time.
_BLOCK = 2**18
# Of Newton steps: convergence, and the longest one.
_TOLERANCE = 1e-9
_LONGEST = 5.0


def item_dif(
    fit: IRTFit,
    responses: ResponsesLike,
    focal: Sequence[str],
    *,
    confidence_level: float = 0.95,
) -> ItemDifferences:
    """Test items for DIF: harder or easier for focal models than for others of equal ability.

    Parameters
    ----------
    fit
        Fit of the same models and items as the matrix.
    focal
        Names of the models of the focal group; all others are the reference group.

    Raises
    ------
    SelectionError
        A model of the group is not in the matrix.
    DesignError
        Fewer than 2 models in either group, or a confidence level that is not between 0 and 1.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, item_dif, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=30, n_items=8, item_model="rasch")
    >>> differences = item_dif(fit_irt(matrix, "rasch"), matrix, matrix.models[:15])
    >>> len(differences), differences.flagged
    (8, ())
    """
    matrix, focal = matrix_of(responses), tuple(dict.fromkeys(focal))
    tests = dif(fit, matrix, focal, confidence_level=confidence_level)
    doubtful = np.nan_to_num(tests.p_value, nan=2)
    order = np.lexsort((-steady(np.abs(np.nan_to_num(tests.log_odds))), steady(doubtful)))
    width = normal_quantile(confidence_level) * tests.std_error
    numbers = {
        "log_odds": tests.log_odds,
        "low": tests.log_odds - width,
        "high": tests.log_odds + width,
        "std_error": tests.std_error,
        "delta": tests.delta,
        "p_value": tests.p_value,
        "p_adjusted": tests.p_adjusted,
    }
    columns: dict[str, Sequence[Any]] = {
        "item": tests.item_ids[order].astype(str).tolist(),
        "task": tests.tasks[order].astype(str).tolist(),
        "metric": [short_metric(name) for name in matrix.metrics[order].astype(str).tolist()],
        "size": tests.size[order].tolist(),
        "flagged": tests.flagged[order].tolist(),
        **{name: [finite(v) for v in values[order].tolist()] for name, values in numbers.items()},
    }
    rows = tuple(records(ItemDifference, columns, {"confidence_level": confidence_level}))
    silent = int(np.isnan(tests.log_odds).sum())
    notes = [
        f"{counted(silent, 'item')} not tested: all right, all wrong, or not answered by both "
        "groups"
    ]
    return ItemDifferences(
        rows,
        (*fit.notes, *tests.notes, *(notes if silent else [])),
        focal=focal,
        n_others=len(matrix.models) - len(focal),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDifference:
    """DIF of one item. Numbers are finite or ``None``."""

    item: str
    task: str
    metric: str
    log_odds: float | None
    """Log odds ratio of a right answer, focal group over the others, at the same ability."""
    low: float | None
    high: float | None
    std_error: float | None
    delta: float | None
    """`log_odds` on the delta scale of ETS; below 0 the item is harder for the focal group."""
    p_value: float | None
    p_adjusted: float | None
    """Adjusted for all items (Holm)."""
    size: str
    """ETS class ``"A"`` negligible, ``"B"`` moderate or ``"C"`` large, by `p_value`."""
    flagged: bool
    """Whether `p_adjusted` is significant."""
    confidence_level: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ItemDifferences(Results[ItemDifference]):
    """DIF of all items, the smallest p-values first."""

    focal: tuple[str, ...] = ()
    """Models of the focal group."""
    n_others: int = 0

    @property
    def flagged(self) -> tuple[ItemDifference, ...]:
        """Items with significant DIF."""
        return tuple(row for row in self.rows if row.flagged)


def dif(
    fit: IRTFit,
    matrix: ResponseMatrix,
    focal: Sequence[str],
    *,
    confidence_level: float = 0.95,
    purify: bool = True,
) -> DIF:
    """Test items for DIF between a focal group of models and all others; arrays of `item_dif`.

    Answers are regressed on ability and group [SR90]_, with Firth's penalty and its
    likelihood-ratio test [HS02]_, so that groups may be small, and unequal.

    Parameters
    ----------
    fit
        Fit of the same models and items; its predictions stand in for missing cells when models
        are matched.
    focal
        Names of the models of the focal group.
    purify
        Match on the items without sign of DIF, and repeat until these stay the same.

    Raises
    ------
    SelectionError
        A model of the group is not in the matrix.
    DesignError
        Fewer than 2 models in either group.
    """
    check_level(confidence_level)
    for name in focal:
        if name not in matrix.models:
            raise SelectionError(no_such("model", name, matrix.models, few(matrix.models)))
    group = np.isin(matrix.models, list(focal))
    sizes = int(group.sum()), int((~group).sum())
    if min(sizes) < 2:
        msg = f"{sizes[0]} focal and {sizes[1]} other models are too few: name 2 or more of each"
        raise DesignError(msg)
    notes: list[str] = []
    if min(sizes) < _FEW:
        notes.append(f"only {min(sizes)} models in one group: large differences alone can be found")
    cells = cells_of(fit, matrix)
    anchor = np.ones(len(matrix.item_ids), dtype=bool)
    tried: set[bytes] = set()
    while True:
        log_odds, std_error, p_value = _by_regression(cells, group, anchor)
        tried.add(anchor.tobytes())
        # Unadjusted p-values: an anchor item with DIF does harm, a sound one left out hardly any.
        clean = ~(p_value <= 1 - confidence_level)
        if not purify or clean.tobytes() in tried or len(tried) >= _ROUNDS:
            break
        if not clean.any():
            notes.append("every item differs: ability is matched on all of them")
            break
        anchor = clean
    return DIF(
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        log_odds=log_odds,
        std_error=std_error,
        p_value=p_value,
        p_adjusted=holm(p_value),
        anchor=anchor,
        confidence_level=confidence_level,
        notes=tuple(notes),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class DIF:
    """DIF of all items; arrays of shape (M,), NaN where an item is not informative."""

    item_ids: NDArray[Any]
    tasks: NDArray[Any]
    log_odds: FloatArray
    """Log odds ratio, focal over reference group, at the same ability."""
    std_error: FloatArray
    p_value: FloatArray
    """Two-sided, for no difference."""
    p_adjusted: FloatArray
    anchor: BoolArray
    """Items on which models were matched: those without sign of DIF, if purified."""
    confidence_level: float
    notes: tuple[str, ...] = ()

    @property
    def delta(self) -> FloatArray:
        """`log_odds` on the delta scale of ETS; below 0 the item is harder for the focal group."""
        return ETS_SCALE * self.log_odds

    @property
    def flagged(self) -> BoolArray:
        """Whether each item has significant DIF, adjusted for all items."""
        return self.p_adjusted <= 1 - self.confidence_level

    @property
    def size(self) -> NDArray[np.str_]:
        """ETS classes "A" negligible, "B" moderate, "C" large [HT88]_, by each p-value."""
        delta = np.abs(self.delta)
        negligible = (delta < 1) | ~(self.p_value < 0.05)
        large = (delta >= 1.5) & (delta - 1.645 * ETS_SCALE * self.std_error > 1)
        return np.where(negligible, "A", np.where(large, "C", "B"))


def _by_regression(cells: Cells, focal: BoolArray, anchor: BoolArray) -> list[FloatArray]:
    """Log odds ratios of the items, their errors and p-values, (M,) each."""
    right, trials = cells.right, cells.trials
    # A prediction stands for a cell that is missing.
    score = np.where(trials > 0, right / np.maximum(trials, 1), cells.probability)
    # Matched on the item itself too: else groups that differ in ability would seem to differ on
    # sound items.
    total, added = score @ anchor.astype(np.float64), ~anchor
    share = (total[:, None] + added * score + 0.5) / (anchor.sum() + added + 1)
    ability = special.logit(share).T
    n, m = right.shape
    step = max(_BLOCK // n, 1)
    parts: list[tuple[FloatArray, ...]] = []
    for start in range(0, m, step):
        at = slice(start, start + step)
        hits, tried = right[:, at].T, trials[:, at].T
        # Centred at the models of the item, so that the intercept is not extreme.
        weight = np.maximum(tried.sum(axis=1, keepdims=True), 1)
        level = ability[at] - (ability[at] * tried).sum(axis=1, keepdims=True) / weight
        group = np.broadcast_to(focal.astype(np.float64), level.shape)
        columns = np.stack([np.ones_like(level), level, group], axis=-1)
        full, null = (
            firth_logistic(columns, hits, tried, np.array([True, True, with_group]))
            for with_group in (True, False)
        )
        ratio = np.maximum(2 * (full.log_likelihood - null.log_likelihood), 0)
        error = np.sqrt(full.covariance[:, 2, 2])
        parts.append((full.coefficients[:, 2], error, special.chdtrc(1, ratio)))
    groups = [(trials * side[:, None]).sum(axis=0) for side in (focal, ~focal)]
    hits = right.sum(axis=0)
    tells = (groups[0] > 0) & (groups[1] > 0) & (hits > 0) & (hits < sum(groups))
    whole = (np.concatenate(part) for part in zip(*parts, strict=True))
    return [np.where(tells, part, np.nan) for part in whole]


def firth_logistic(
    columns: FloatArray, right: FloatArray, trials: FloatArray, free: BoolArray
) -> Regression:
    """Fit logistic regressions with Firth's penalty by Newton steps [Fir93]_.

    Steps are halved where the penalised likelihood would fall.

    Parameters
    ----------
    columns : shape (M, N, P)
    right, trials : shape (M, N)
        Successes and trials; a cell with 0 trials is left out.
    free : shape (P,)
        Columns to estimate. The others stay 0 but count in the penalty, as likelihood-ratio tests
        need [HS02]_.
    """
    m, _, p = columns.shape
    at = np.zeros((m, p))
    here = _evaluate(columns, right, trials, at)
    for _ in range(100):
        step = np.zeros_like(at)
        part = here.information[:, free][:, :, free]
        step[:, free] = np.linalg.solve(part, here.score[:, free, None])[..., 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        step *= np.minimum(1, _LONGEST / np.maximum(longest, _LONGEST))
        if longest.max() < _TOLERANCE:
            break
        proposal = _evaluate(columns, right, trials, at + step)
        for _ in range(12):
            falls = proposal.log_likelihood < here.log_likelihood - 1e-12
            if not falls.any():
                break
            step[falls] /= 2
            proposal = _evaluate(columns, right, trials, at + step)
        at, here = at + step, proposal
    return Regression(at, np.linalg.inv(here.information).astype(np.float64), here.log_likelihood)


class Regression(NamedTuple):
    """Regressions of M items on P columns."""

    coefficients: FloatArray
    """Shape (M, P)."""
    covariance: FloatArray
    """Inverse information, shape (M, P, P)."""
    log_likelihood: FloatArray
    """Penalised, shape (M,)."""


class _Point(NamedTuple):
    log_likelihood: FloatArray
    score: FloatArray
    information: FloatArray


def _evaluate(columns: FloatArray, right: FloatArray, trials: FloatArray, at: FloatArray) -> _Point:
    logit = np.einsum("mnp,mp->mn", columns, at)
    probability = np.asarray(special.expit(logit), dtype=np.float64)
    weight = trials * probability * (1 - probability)
    information = np.einsum("mnp,mn,mnr->mpr", columns, weight, columns, optimize=True)
    # Keep the matrix regular where a column does not vary among the models of an item.
    information += 1e-10 * np.eye(at.shape[1])
    inverse = np.linalg.inv(np.asarray(information, dtype=np.float64))
    leverage = weight * np.einsum("mnp,mpr,mnr->mn", columns, inverse, columns, optimize=True)
    pull = right - trials * probability + leverage * (0.5 - probability)
    log_likelihood = (right * logit - trials * np.logaddexp(0, logit)).sum(axis=1)
    return _Point(
        log_likelihood + 0.5 * np.linalg.slogdet(information)[1],
        np.einsum("mnp,mn->mp", columns, pull),
        information,
    )
