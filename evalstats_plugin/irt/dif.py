"""Do items treat two groups of models alike? Differential item functioning.

An item that base models and chat models of the same ability do not get right equally often
measures something besides ability: a format, a language, a leaked answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.firth import firth_logistic
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.item_fit import cells_of
from evalstats_plugin.irt.mantel_haenszel import mantel_haenszel
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.stats.multiplicity import benjamini_hochberg, holm
from evalstats_plugin.wording import few, no_such

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["logistic", "mantel-haenszel"]
ETS_SCALE = 2.35
"""Of log odds to the delta scale of ETS [HT88]_."""
_FEW = 10
_ROUNDS = 10
# Cells of items × models at a time.
_BLOCK = 2**18


@dataclass(frozen=True, eq=False, kw_only=True)
class DIF:
    """What the items do; arrays of shape (M,), NaN where an item tells nothing."""

    item_ids: NDArray[Any]
    tasks: NDArray[Any]
    log_odds: FloatArray
    """Of the focal group over those of the reference group, at the same ability."""
    std_error: FloatArray
    p_value: FloatArray
    """Of no difference, two-sided."""
    p_adjusted: FloatArray
    anchor: NDArray[np.bool_]
    """Items that ability was matched on: those without sign of a difference, where purified."""
    method: str
    confidence_level: float
    notes: tuple[str, ...] = ()

    @property
    def delta(self) -> FloatArray:
        """Log odds on ETS' delta scale; below 0 the item is harder for the focal group."""
        return ETS_SCALE * self.log_odds

    @property
    def flagged(self) -> NDArray[np.bool_]:
        """Items that differ beyond chance, all items considered."""
        return self.p_adjusted <= 1 - self.confidence_level

    @property
    def size(self) -> NDArray[np.str_]:
        """ETS' classes: "A" negligible, "B" moderate, "C" large [HT88]_; by each p-value."""
        delta = np.abs(self.delta)
        negligible = (delta < 1) | ~(self.p_value < 0.05)
        large = (delta >= 1.5) & (delta - 1.645 * ETS_SCALE * self.std_error > 1)
        return np.where(negligible, "A", np.where(large, "C", "B"))

    def to_frame(self) -> pd.DataFrame:
        """One line per item."""
        import pandas as pd

        names = ("log_odds", "std_error", "delta", "p_value", "p_adjusted", "size", "flagged")
        table = {"item": self.item_ids, "task": self.tasks}
        return pd.DataFrame(table | {name: getattr(self, name) for name in names})


class _Test(NamedTuple):
    log_odds: FloatArray
    std_error: FloatArray
    p_value: FloatArray


class _Data(NamedTuple):
    right: FloatArray
    trials: FloatArray
    score: FloatArray
    """Mean of the epochs, expected where the cell is missing."""
    focal: NDArray[np.bool_]


def dif(
    fit: IRTFit,
    matrix: ResponseMatrix,
    focal: Sequence[str],
    *,
    method: Method = "logistic",
    correction: Literal["holm", "bh"] = "holm",
    confidence_level: float = 0.95,
    purify: bool = True,
) -> DIF:
    """Compare a focal group of models with all others, item by item, at the same ability.

    Parameters
    ----------
    fit
        Of the same models and items; it fills in missing cells when models are matched.
    focal
        Names of the models of the group.
    method
        ``"logistic"`` regresses answers on ability and group [SR90]_, with Firth's penalty and its
        likelihood-ratio test [HS02]_: for few models, or unequal groups. ``"mantel-haenszel"``
        compares models within strata of about ten of like scores: for hundreds of models.
    purify
        Match on the items without sign of a difference, and look again.

    Raises
    ------
    SelectionError
        A model of the group is not in the matrix, or there is no such method.
    DesignError
        Fewer than 2 models on either side.
    """
    if method not in _TESTS:
        raise SelectionError(no_such("DIF method", method, _TESTS, ", ".join(_TESTS)))
    adjust = {"holm": holm, "bh": benjamini_hochberg}[correction]
    data, notes = _data(fit, matrix, focal)
    anchor = np.ones(len(matrix.item_ids), dtype=bool)
    tried: set[bytes] = set()
    while True:
        test = _TESTS[method](data, anchor)
        p_adjusted = adjust(test.p_value)
        tried.add(anchor.tobytes())
        # Before adjusting: an unfair anchor does harm, a fair item left out of it hardly any.
        clean = ~(test.p_value <= 1 - confidence_level)
        if not purify or clean.tobytes() in tried or len(tried) >= _ROUNDS:
            break
        if not clean.any():
            notes.append("every item differs: ability is matched on all of them")
            break
        anchor = clean
    return DIF(
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        log_odds=test.log_odds,
        std_error=test.std_error,
        p_value=test.p_value,
        p_adjusted=p_adjusted,
        anchor=anchor,
        method=method,
        confidence_level=confidence_level,
        notes=tuple(notes),
    )


def _data(fit: IRTFit, matrix: ResponseMatrix, focal: Sequence[str]) -> tuple[_Data, list[str]]:
    for name in focal:
        if name not in matrix.models:
            raise SelectionError(no_such("model", name, matrix.models, few(matrix.models)))
    group = np.isin(matrix.models, list(focal))
    sizes = int(group.sum()), int((~group).sum())
    if min(sizes) < 2:
        msg = f"{sizes[0]} focal and {sizes[1]} other models, expected 2 or more of each"
        raise DesignError(msg)
    notes: list[str] = []
    if min(sizes) < _FEW:
        notes.append(f"only {min(sizes)} models in one group: large differences alone can be found")
    cells = cells_of(fit, matrix)
    there = cells.trials > 0
    score = np.where(there, cells.right / np.maximum(cells.trials, 1), cells.probability)
    return _Data(cells.right, cells.trials, score, group), notes


def _matching(data: _Data, anchor: NDArray[np.bool_]) -> FloatArray:
    """Share of right answers of each model, (N, M): on the anchor items and the item itself.

    Without the item itself, groups that differ in ability would differ on items that are fair.
    """
    total = data.score @ anchor.astype(np.float64)
    own = ~anchor
    return (total[:, None] + own * data.score + 0.5) / (anchor.sum() + own + 1)


def _by_strata(data: _Data, anchor: NDArray[np.bool_]) -> _Test:
    matched = _matching(data, anchor)
    n, m = matched.shape
    count = int(np.clip(n // 10, 2, 100))
    edges = np.quantile(matched[:, anchor][:, 0], np.linspace(0, 1, count + 1)[1:-1])
    stratum = np.searchsorted(edges, matched, side="right")
    other = (~data.focal).astype(np.int64)[:, None]
    place = (np.arange(m, dtype=np.int64) * count + stratum.astype(np.int64)) * 2 + other
    tables = [
        np.bincount(place.ravel(), weights=part.ravel(), minlength=m * count * 2)
        for part in (data.right, data.trials - data.right)
    ]
    found = mantel_haenszel(np.stack(tables, axis=-1).reshape(m, count, 2, 2))
    finite = np.isfinite(found.log_odds)
    return _Test(
        np.where(finite, found.log_odds, np.nan),
        np.where(finite, found.std_error, np.nan),
        found.p_value,
    )


def _by_regression(data: _Data, anchor: NDArray[np.bool_]) -> _Test:
    ability = special.logit(_matching(data, anchor)).T
    n, m = data.right.shape
    step = max(_BLOCK // n, 1)
    parts: list[_Test] = []
    for start in range(0, m, step):
        at = slice(start, start + step)
        right, trials = data.right[:, at].T, data.trials[:, at].T
        # Measured from the models of the item, so that the intercept is not far out.
        weight = trials.sum(axis=1, keepdims=True)
        level = ability[at] - (ability[at] * trials).sum(axis=1, keepdims=True) / np.maximum(
            weight, 1
        )
        group = np.broadcast_to(data.focal.astype(np.float64), level.shape)
        columns = np.stack([np.ones_like(level), level, group], axis=-1)
        full, null = (
            firth_logistic(columns, right, trials, np.array([True, True, with_group]))
            for with_group in (True, False)
        )
        ratio = np.maximum(2 * (full.log_likelihood - null.log_likelihood), 0)
        parts.append(
            _Test(
                full.coefficients[:, 2],
                np.sqrt(full.covariance[:, 2, 2]),
                special.chdtrc(1, ratio),
            )
        )
    found = _Test(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    groups = [(data.trials * side[:, None]).sum(axis=0) for side in (data.focal, ~data.focal)]
    total = data.right.sum(axis=0)
    tells = (groups[0] > 0) & (groups[1] > 0) & (total > 0) & (total < sum(groups))
    return _Test(*(np.where(tells, part, np.nan) for part in found))


_TESTS = {"logistic": _by_regression, "mantel-haenszel": _by_strata}
