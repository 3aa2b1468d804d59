"""Suspect items: reversed keys, unanswered or noisy items, and pairs that go together (Q3).

* `suspect_items` lists the items to look at, with reasons
* `slope_tests`: is an item's relation to ability absent or negative?
* `q3` and `local_dependence`: residual correlations of pairs of items [Yen84]_
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import special

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.results import Results, finite
from evalstats_plugin.irt.answers import matrix_of
from evalstats_plugin.irt.fit_statistics import (
    Cells,
    MeanSquares,
    cells_of,
    check_level,
    item_totals,
    mean_squares,
    residuals_of,
)
from evalstats_plugin.irt.model.fit import AnyFit, IRTFit, expect_kind
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, steady
from evalstats_plugin.stats.multiplicity import benjamini_hochberg

NOISY = 1.3
"""Mean square from which on misfit is large, not only significant [WL94]_."""

# Level of an item's own test of a negative slope.
_OWN = 0.05
# Least standard deviation of discriminations, in units of their mean: an item of low
# discrimination is no suspect yet.
_LEAST_SPREAD = 0.5
# Exponents at which the Chernoff bound is computed: it holds at each, the smallest is used.
_TILTS = np.geomspace(0.1, 300, 60)
# Q3 above the mean from which on a pair is far apart from the others.
_FAR = 0.2
# Pairs of items held at a time.
_BLOCK = 2**22


def suspect_items(
    fit: IRTFit, responses: ResponsesLike, *, confidence_level: float = 0.95
) -> Suspects:
    """List the items to look at, each with its reasons.

    An item is listed if, at a false discovery rate of ``1 - confidence_level`` over all items
    [BH95]_,

    * more able models get it right *less* often, or do not get it right more often, unlike on the
      other items: its key may be wrong; the reason says which of the two is beyond chance;
    * no model gets it right, although that is improbable for its neighbours (the items of its
      cluster or task): it may be broken;
    * its answers are noisier than the model allows: infit or outfit of 1.3 or more;
    * its residuals correlate with those of another item (Q3), as copies do.

    Parameters
    ----------
    fit
        Fit of the same models and items as the matrix.

    Raises
    ------
    DesignError
        The matrix has other models or items than the fit, or the confidence level is not between 0
        and 1.

    Examples
    --------
    >>> from evalstats_plugin import ResponseMatrix
    >>> from evalstats_plugin.irt import fit_irt, simulate_responses, suspect_items
    >>> matrix, _ = simulate_responses(rng=0, n_models=60, n_items=12, item_model="rasch")
    >>> scores = matrix.scores[:, :, 0].copy()
    >>> scores[:, 3] = 1 - scores[:, 3]  # a wrong key
    >>> matrix = ResponseMatrix.from_array(scores)
    >>> [row.item for row in suspect_items(fit_irt(matrix, "rasch"), matrix)]
    ['item_3']
    """
    matrix, fit = matrix_of(responses), expect_kind(fit, IRTFit)
    check_level(confidence_level)
    cells = cells_of(fit, matrix)
    level = 1 - confidence_level
    squares = mean_squares(cells)
    reasons: _Reasons = [[] for _ in range(len(matrix.item_ids))]
    _reversed(fit, cells, level, reasons)
    _unanswered(cells, _neighbours(matrix), level, reasons)
    _noisy(squares, level, reasons)
    _together(cells, confidence_level, matrix.item_ids.astype(str).tolist(), reasons)
    suspects = [j for j, why in enumerate(reasons) if why]
    suspects.sort(key=lambda j: max(reason.gravity for reason in reasons[j]), reverse=True)
    rest = item_totals(cells.right, cells.trials).item_rest
    share = cells.right.sum(axis=0) / np.maximum(cells.trials.sum(axis=0), 1)
    rows = tuple(
        SuspectItem(
            item=str(matrix.item_ids[j]),
            task=str(matrix.tasks[j]),
            reasons=tuple(r.text for r in sorted(reasons[j], reverse=True)),
            mean=finite(share[j]),
            discrimination=finite(fit.discrimination[j]),
            difficulty=finite(fit.difficulty[j]),
            infit=finite(squares.infit[j]),
            outfit=finite(squares.outfit[j]),
            item_rest=finite(rest[j]),
        )
        for j in suspects
    )
    return Suspects(rows, notes=fit.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectItem:
    """An item to look at, with its reasons. Numbers are finite or ``None``."""

    item: str
    task: str
    reasons: tuple[str, ...]
    """In words, the most serious first."""
    mean: float | None
    """Share of right answers."""
    discrimination: float | None
    difficulty: float | None
    infit: float | None
    outfit: float | None
    item_rest: float | None
    """Correlation with the mean of the other items."""


@dataclass(frozen=True)
class Suspects(Results[SuspectItem]):
    """Items to look at, those with the most serious reasons first."""

    def by_item(self, task: str | None = None) -> dict[str, dict[str, float | str]]:
        """Return, by the item's id as text, a ``suspect`` text and the numbers that are known."""
        numbers = ("discrimination", "difficulty", "infit", "outfit", "item_rest")
        return {
            row.item: {"suspect": "; ".join(row.reasons)}
            | {name: v for name in numbers if (v := getattr(row, name)) is not None}
            for row in self.rows
            if task is None or row.task == task
        }


class _Reason(NamedTuple):
    gravity: float
    text: str


_Reasons: TypeAlias = list[list[_Reason]]
"""Of each item."""


def _reversed(fit: IRTFit, cells: Cells, level: float, reasons: _Reasons) -> None:
    mean = float(np.mean(np.abs(fit.discrimination)))
    sd = max(float(np.std(fit.discrimination)), _LEAST_SPREAD * mean)
    tests = slope_tests(cells, fit.ability, mean, sd)
    sure = benjamini_hochberg(special.ndtr(tests.none)) <= level
    # With few models and many items a negative slope is seldom significant, but one unlike the
    # others soon is: then the item's own test is enough.
    alone = special.ndtr(tests.none) <= _OWN
    less = (benjamini_hochberg(special.ndtr(tests.typical)) <= level) & alone
    for j in np.flatnonzero(sure | less):
        z = tests.none[j]
        negative = (
            f", discrimination {fit.discrimination[j]:.2f}" if fit.discrimination[j] < 0 else ""
        )
        text = f"more able models get it right less often, beyond chance (z {z:.1f}{negative})"
        if not sure[j]:
            text = (
                f"unlike the other items beyond chance (z {tests.typical[j]:.1f}): ability does "
                f"not help; that it is reversed may be chance (z {z:.1f}{negative})"
            )
        text += ": its key may be wrong"
        reasons[j].append(_Reason(3 - z / 1000, text))


def _neighbours(matrix: ResponseMatrix) -> IntArray:
    """Number each item's group: its cluster, or its task if the cluster is small."""
    names = matrix.tasks.astype(str)
    if matrix.clusters is not None:
        clusters = matrix.clusters.astype(str)
        names = np.char.add(np.char.add(names, "\0"), clusters)
        _, place, size = np.unique(names, return_inverse=True, return_counts=True)
        few = (size[place] < 3) | (clusters == "")
        names = np.where(few, matrix.tasks.astype(str), names)
    return np.unique(names, return_inverse=True)[1]


def _unanswered(cells: Cells, group: IntArray, level: float, reasons: _Reasons) -> None:
    """Items that no model gets right, although that is improbable for their neighbours."""
    right, total = cells.right.sum(axis=0), cells.trials.sum(axis=0)
    none = (right == 0) & (total > 0)
    # A cell without an answer counts nothing, even where P is 1.
    sure = np.where(cells.trials > 0, np.minimum(cells.probability, 1), 0.0)
    with np.errstate(divide="ignore"):
        all_wrong = np.exp((cells.trials * np.log1p(-sure)).sum(axis=0))
    others = ~none
    count = np.bincount(group, others)
    chance = np.bincount(group, all_wrong * others) / np.maximum(count, 1)
    easy = np.bincount(group, right * others) / np.maximum(np.bincount(group, total * others), 1)
    p = np.where(none & (count[group] >= 2), chance[group], 1.0)
    for j in np.flatnonzero(benjamini_hochberg(p) <= level):
        near = f"{100 * easy[group[j]]:.0f} % do on its neighbours"
        text = f"no model gets it right, {near}: broken or miskeyed"
        reasons[j].append(_Reason(2 + float(easy[group[j]]), text))


def _noisy(squares: MeanSquares, level: float, reasons: _Reasons) -> None:
    both: Sequence[tuple[str, FloatArray, FloatArray]] = (
        ("infit", squares.infit, squares.infit_z),
        ("outfit", squares.outfit, squares.outfit_z),
    )
    for name, value, z in both:
        p = benjamini_hochberg(special.ndtr(-z))
        for j in np.flatnonzero((p <= level) & (value >= NOISY)):
            text = (
                f"answers are noisier than ability explains ({name} {value[j]:.2f}, z {z[j]:.1f})"
            )
            reasons[j].append(_Reason(1 + (name == "infit") / 2, text))


def _together(cells: Cells, confidence_level: float, names: list[str], reasons: _Reasons) -> None:
    """The item of the strongest residual correlation with each item."""
    dependence = local_dependence(cells, confidence_level=confidence_level)
    named: set[int] = set()
    pairs: list[tuple[int, int]] = np.stack([dependence.first, dependence.second], axis=1).tolist()
    for (j, k), value in zip(pairs, dependence.q3, strict=True):
        for item, other in ((j, k), (k, j)):
            if item not in named:
                named.add(item)
                text = f"goes with item {names[other]} beyond ability (Q3 {value:.2f}): a copy?"
                reasons[item].append(_Reason(float(value), text))


def slope_tests(cells: Cells, ability: FloatArray, mean: float, sd: float) -> SlopeTest:
    """Test the slope of each item, without an estimate of its discrimination.

    This finds reversed items even if the fit holds all discriminations equal or positive.

    Parameters
    ----------
    ability : shape (N,)
    mean, sd
        Mean and standard deviation of the discriminations of items.
    """
    is_finite = np.isfinite(ability)
    theta, trials = ability[is_finite, None], cells.trials[is_finite]
    right = cells.right[is_finite].sum(axis=0)
    total = np.maximum(trials.sum(axis=0), 1)
    share = right / total
    off = theta - (trials * theta).sum(axis=0) / total
    seen = (cells.right[is_finite] * off).sum(axis=0)
    # P(right) with the mean slope, and levels that match the observed numbers of right answers.
    clipped = np.clip(share, 1e-3, 1 - 1e-3)
    level = np.log(clipped / (1 - clipped))
    for _ in range(10):
        p = np.asarray(special.expit(mean * off + level), dtype=np.float64)
        variance = np.maximum((trials * p * (1 - p)).sum(axis=0), 1e-9)
        level = np.clip(level + (right - (trials * p).sum(axis=0)) / variance, -30, 30)
    p = np.asarray(special.expit(mean * off + level), dtype=np.float64)
    information = (trials * p * (1 - p) * off**2).sum(axis=0)
    spread = share * (1 - share) * (trials * off**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        less = (seen - (trials * p * off).sum(axis=0)) / np.sqrt(
            information + (sd * information) ** 2
        )
        none = seen / np.sqrt(spread)
    return SlopeTest(*(np.where(spread > 0, z, np.nan) for z in (none, less)))


class SlopeTest(NamedTuple):
    """Score tests of an item's slope, z values of shape (M,)."""

    none: FloatArray
    """Against no discrimination: below 0, more able models get it right less often."""
    typical: FloatArray
    """Against the discrimination of other items: below 0, the item has less."""


def q3(fit: AnyFit, responses: ResponsesLike) -> FloatArray:
    """Yen's Q3: residual correlation of every pair of items, shape (M, M) [Yen84]_.

    Correlations are over the models that answered both, with epochs averaged; NaN where fewer than
    3 models did or nothing varies. High values mean items that have more in common than ability.
    Of ordered scores residuals are from the expected score.

    Parameters
    ----------
    fit
        Fit of the same models and items as the matrix.

    Raises
    ------
    DesignError
        The matrix has other models or items than the fit.
    """
    residual, trials = residuals_of(fit, matrix_of(responses))
    return np.concatenate([part for _, part, _ in _blocks(residual, trials)])


def local_dependence(cells: Cells, *, confidence_level: float = 0.95) -> LocalDependence:
    """Find pairs of items whose Q3 exceeds the mean Q3 by more than 0.2 [CMH17]_.

    Such a pair must also be significant among all pairs by Fisher's z and by a Chernoff bound on
    the sum of the products of residuals. Fisher's z is not valid with few models or rare answers;
    the bound holds for any number of models if their abilities are known.
    """
    count, total = 0, 0.0
    residual, trials = cells.residual / np.maximum(cells.trials, 1), cells.trials
    for rows, part, _ in _blocks(residual, trials):
        upper = _above(rows, part)
        values = part[upper & np.isfinite(part)]
        count, total = count + len(values), total + float(values.sum())
    mean = total / count if count else np.nan
    pairs: list[tuple[IntArray, ...]] = []
    kept: list[tuple[FloatArray, FloatArray]] = []
    for rows, part, common in _blocks(residual, trials):
        with np.errstate(invalid="ignore"):
            far = _above(rows, part) & (part - mean > _FAR) & (common > 3)
        j, k = np.nonzero(far)
        pairs.append((rows.start + j, k))
        kept.append((part[far], common[far]))
    first, second = (np.concatenate(x) for x in zip(*pairs, strict=True))
    value, common = (np.concatenate(x) for x in zip(*kept, strict=True))
    with np.errstate(divide="ignore"):
        z = np.arctanh(np.clip(value, -1, 1)) - np.arctanh(mean)
    p = np.asarray(special.ndtr(-z * np.sqrt(common - 3)), dtype=np.float64)
    level = 1 - confidence_level
    likely = p * count <= level
    first, second, value = (x[likely] for x in (first, second, value))
    p = np.maximum(p[likely], _chance_of_products(cells, first, second))
    order = np.argsort(steady(p), kind="stable")
    adjusted = np.maximum.accumulate(p[order] * (count - np.arange(len(p))))
    order = order[adjusted <= level]
    return LocalDependence(first[order], second[order], value[order])


class LocalDependence(NamedTuple):
    """Pairs of items with correlated residuals, the most significant first."""

    first: IntArray
    """Index of the item, shape (P,), like the others."""
    second: IntArray
    q3: FloatArray


def _chance_of_products(cells: Cells, first: IntArray, second: IntArray) -> FloatArray:
    """Upper bound on the p-value of the sum of products of two items' residuals.

    Answers are Binomial and independent given ability; partial credit varies less, so the bound
    holds for it as well.
    """
    best = np.zeros(len(first))
    step = max(_BLOCK // (8 * len(cells.right)), 1)
    for start in range(0, len(first), step):
        at = slice(start, start + step)
        j, k = first[at], second[at]
        n, size = cells.trials[:, j], cells.trials[:, k]
        p, q = cells.probability[:, j], cells.probability[:, k]
        seen = (cells.residual[:, j] * cells.residual[:, k]).sum(axis=0)
        scale = np.sqrt((cells.variance[:, j] * cells.variance[:, k]).sum(axis=0))
        for tilt in _TILTS:
            t = tilt / np.maximum(scale, 1e-12)
            best[at] = np.minimum(best[at], _log_mean_exp(n, p, size, q, t) - t * seen)
    return np.exp(best)


def _log_mean_exp(
    n: FloatArray, p: FloatArray, size: FloatArray, q: FloatArray, tilt: FloatArray
) -> FloatArray:
    """Log E exp(t Σ (X - np)(Y - sq)) of Binomial X and Y, summed over models."""
    total = np.full(n.shape, -np.inf)
    p, q = np.clip(p, 1e-300, 1 - 1e-16), np.clip(q, 1e-300, 1 - 1e-16)
    log_p, log_not_p = np.log(p), np.log1p(-p)
    for right in range(int(n.max(initial=0)) + 1):
        possible = right <= n
        missed = np.where(possible, n - right, 0.0)
        ways = special.gammaln(n + 1) - special.gammaln(right + 1) - special.gammaln(missed + 1)
        share = np.where(possible, ways + right * log_p + missed * log_not_p, -np.inf)
        pull = tilt * (right - n * p)
        given = size * (np.logaddexp(np.log1p(-q), np.log(q) + pull) - pull * q)
        total = np.logaddexp(total, np.asarray(share + given, dtype=np.float64))
    return np.asarray(total, dtype=np.float64).sum(axis=0)


def _blocks(
    residual: FloatArray, trials: FloatArray
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Yield rows of the matrix of correlations, and of how many models answered both items."""
    answered = (trials > 0).astype(np.float64)
    # Centre first, so that sums of squares lose no digits.
    residual = (residual - residual.sum(0) / np.maximum(answered.sum(0), 1)) * answered
    squares = residual**2
    m = answered.shape[1]
    step = max(_BLOCK // max(m, 1), 1)
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        ours, mine, our_squares = answered[:, rows].T, residual[:, rows].T, squares[:, rows].T
        n, x, y = ours @ answered, mine @ answered, ours @ residual
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = (n * (our_squares @ answered) - x * x) * (n * (ours @ squares) - y * y)
            part = (n * (mine @ residual) - x * y) / np.sqrt(spread)
        part[(n < 3) | (spread <= 1e-20 * n**4)] = np.nan
        yield rows, np.clip(part, -1, 1), n


def _above(rows: slice, part: FloatArray) -> BoolArray:
    """Select each pair once, with the later item second."""
    start, stop, _ = rows.indices(int(part.shape[1]))
    later = np.arange(part.shape[1], dtype=np.int64)
    return later > np.arange(start, stop, dtype=np.int64)[:, None]
