"""Which items should a person look at, and why?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.irt.dimensionality import local_dependence
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.item_fit import Cells, MeanSquares, cells_of, item_totals, mean_squares
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.results import Results, finite
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.stats.multiplicity import benjamini_hochberg

NOISY = 1.3
"""Mean square from which on misfit matters, not only shows [WL94]_."""

# Chance of so negative a slope where there is none, for an item seen by itself.
_OWN = 0.05
# Of discriminations, in units of their mean: items of little discrimination are no suspects yet.
_LEAST_SPREAD = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectItem:
    """An item that does not behave as the others do. Numbers are finite or None."""

    item: str
    task: str
    reasons: tuple[str, ...]
    """In words, the gravest first."""
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
    """Items to look at, those with the gravest reasons first."""

    def by_item(self, task: str | None = None) -> dict[str, dict[str, float | str]]:
        """By the item's id as text: a ``suspect`` text and the numbers there are, by name."""
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


def suspects(fit: IRTFit, matrix: ResponseMatrix, *, confidence_level: float = 0.95) -> Suspects:
    """List the items to look at, each with its reasons.

    An item is listed if, among all items at a false discovery rate of ``1 - confidence_level``
    [BH95]_: abler models get it right *less* often (its key may be wrong); its answers are noisier
    than the model allows (infit or outfit of 1.3 or more); no model gets it right although its
    neighbours, the items of its cluster or task, make that hardly possible; or it goes together
    with another item beyond ability (Q3), as copies do.

    Parameters
    ----------
    fit
        Of the same models and items as the matrix.
    """
    cells = cells_of(fit, matrix)
    level = 1 - confidence_level
    squares = mean_squares(cells)
    reasons: _Reasons = [[] for _ in range(len(matrix.item_ids))]
    _reversed(fit, cells, level, reasons)
    _unanswered(cells, _neighbours(matrix), level, reasons)
    _noisy(squares, level, reasons)
    _together(cells, confidence_level, matrix.item_ids.astype(str).tolist(), reasons)
    found = [j for j, why in enumerate(reasons) if why]
    found.sort(key=lambda j: max(reason.gravity for reason in reasons[j]), reverse=True)
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
        for j in found
    )
    return Suspects(rows, notes=fit.notes)


class SlopeTest(NamedTuple):
    """Does ability matter for an item? Score tests, shape (M,), standard normal if so it is."""

    none: FloatArray
    """Of no discrimination: below 0 abler models get it right less often."""
    typical: FloatArray
    """Of a discrimination such as others have: below 0 the item has less."""


def slope_tests(cells: Cells, ability: FloatArray, mean: float, sd: float) -> SlopeTest:
    """Correlate answers with ability; needs no estimate of the item's own discrimination.

    So it tells of reversed items even where a fit holds all discriminations equal, or positive.

    Parameters
    ----------
    mean, sd
        Of the discriminations of items.
    """
    known = np.isfinite(ability)
    theta, trials = ability[known, None], cells.trials[known]
    right = cells.right[known].sum(axis=0)
    total = np.maximum(trials.sum(axis=0), 1)
    share = right / total
    off = theta - (trials * theta).sum(axis=0) / total
    seen = (cells.right[known] * off).sum(axis=0)
    p = _curve(off, trials, right, mean)
    information = (trials * p * (1 - p) * off**2).sum(axis=0)
    spread = share * (1 - share) * (trials * off**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        less = (seen - (trials * p * off).sum(axis=0)) / np.sqrt(
            information + (sd * information) ** 2
        )
        none = seen / np.sqrt(spread)
    return SlopeTest(*(np.where(spread > 0, z, np.nan) for z in (none, less)))


def _curve(off: FloatArray, trials: FloatArray, right: FloatArray, slope: float) -> FloatArray:
    """P(right) with the slope given, and as many right answers as were seen."""
    total = np.maximum(trials.sum(axis=0), 1)
    share = np.clip(right / total, 1e-3, 1 - 1e-3)
    level = np.log(share / (1 - share))
    for _ in range(10):
        p = np.asarray(special.expit(slope * off + level), dtype=np.float64)
        variance = np.maximum((trials * p * (1 - p)).sum(axis=0), 1e-9)
        level = np.clip(level + (right - (trials * p).sum(axis=0)) / variance, -30, 30)
    return np.asarray(special.expit(slope * off + level), dtype=np.float64)


def _reversed(fit: IRTFit, cells: Cells, level: float, reasons: _Reasons) -> None:
    mean = float(np.mean(np.abs(fit.discrimination)))
    sd = max(float(np.std(fit.discrimination)), _LEAST_SPREAD * mean)
    found = slope_tests(cells, fit.ability, mean, sd)
    sure = benjamini_hochberg(special.ndtr(found.none)) <= level
    # Few models seldom show among many items that a slope is negative, but soon that it is not as
    # others are: then the item's own evidence is enough.
    own = special.ndtr(found.none) <= _OWN
    less = (benjamini_hochberg(special.ndtr(found.typical)) <= level) & own
    for j in np.flatnonzero(sure | less):
        z = found.none[j]
        known = f", discrimination {fit.discrimination[j]:.2f}" if fit.discrimination[j] < 0 else ""
        text = f"abler models get it right less often (z {z:.1f}{known}): its key may be wrong"
        reasons[j].append(_Reason(3 - z / 1000, text))


def _neighbours(matrix: ResponseMatrix) -> NDArray[np.int64]:
    """Number of each item's group: its cluster, or else its task."""
    names = matrix.tasks.astype(str)
    if matrix.clusters is not None:
        clusters = matrix.clusters.astype(str)
        names = np.char.add(np.char.add(names, "\0"), clusters)
        _, place, size = np.unique(names, return_inverse=True, return_counts=True)
        few = (size[place] < 3) | (clusters == "")
        names = np.where(few, matrix.tasks.astype(str), names)
    return np.unique(names, return_inverse=True)[1]


def _unanswered(cells: Cells, group: NDArray[np.int64], level: float, reasons: _Reasons) -> None:
    """Items that no model gets right, though neighbours would be so only by a rare chance."""
    right, total = cells.right.sum(axis=0), cells.trials.sum(axis=0)
    none = (right == 0) & (total > 0)
    with np.errstate(divide="ignore"):
        all_wrong = np.exp((cells.trials * np.log1p(-np.minimum(cells.probability, 1))).sum(axis=0))
    others = ~none
    count = np.bincount(group, others)
    chance = np.bincount(group, all_wrong * others) / np.maximum(count, 1)
    easy = np.bincount(group, right * others) / np.maximum(np.bincount(group, total * others), 1)
    p = np.where(none & (count[group] >= 2), chance[group], 1.0)
    for j in np.flatnonzero(benjamini_hochberg(p) <= level):
        text = (
            f"no model gets it right, {easy[group[j]]:.0%} do on its neighbours: broken or miskeyed"
        )
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
    """The strongest partner of each item."""
    found = local_dependence(cells, confidence_level=confidence_level)
    named: set[int] = set()
    pairs: list[tuple[int, int]] = np.stack([found.first, found.second], axis=1).tolist()
    for (j, k), value in zip(pairs, found.q3, strict=True):
        for one, other in ((j, k), (k, j)):
            if one not in named:
                named.add(one)
                text = f"goes with item {names[other]} beyond ability (Q3 {value:.2f}): a copy?"
                reasons[one].append(_Reason(float(value), text))
