"""Does each item fit, among models with the same number of right answers? S-X² [OT00]_.

The share of models with s right answers that got an item right is compared with what the fit
expects of them. Models are grouped by what was seen, not by estimated ability, and so the statistic
is nearly chi-squared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.item_fit import Cells, cells_of
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.stats.multiplicity import benjamini_hochberg

if TYPE_CHECKING:
    import pandas as pd

_REACH = 6.0
_NODES = np.linspace(-_REACH, _REACH, 121)
"""Of the integral over abilities, in standard deviations of their distribution."""
_RAREST = 1e-10
"""Chance of a score below which nothing is expected of it."""
_N_PARAMETERS = {"rasch": 1, "1pl": 1, "2pl": 2, "3pl": 3}


class SumScoreFit(NamedTuple):
    """S-X² of each item; arrays of shape (M,), NaN where too few models tell anything."""

    item_ids: NDArray[Any]
    tasks: NDArray[Any]
    statistic: FloatArray
    df: FloatArray
    """Groups of scores less the parameters of the item."""
    p_value: FloatArray
    """That a fitting item has so large a statistic."""
    p_adjusted: FloatArray
    """At a false discovery rate, all items considered [BH95]_."""
    n_models: int
    """That took every item."""
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One line per item."""
        import pandas as pd

        names = ("statistic", "df", "p_value", "p_adjusted")
        table = {"item": self.item_ids, "task": self.tasks}
        return pd.DataFrame(table | {name: getattr(self, name) for name in names})


def sum_score_fit(
    fit: IRTFit, matrix: ResponseMatrix, *, least_expected: float = 1.0
) -> SumScoreFit:
    """Test every item by S-X².

    Parameters
    ----------
    fit
        Of the same models and items, best by estimator ``"mml"``, whose distribution of abilities
        is used; other fits are taken to have normal abilities, which is noted.
    matrix
        One take of each item, right or wrong. Models that did not take all items are left out.
    least_expected
        Neighbouring scores are joined until so many right and wrong answers are expected in each.

    Raises
    ------
    DesignError
        Partial credit, epochs, fewer than 3 items, or too few models with all items.
    """
    cells = cells_of(fit, matrix)
    kept, notes = _complete(cells)
    right = cells.right[kept]
    n, m = right.shape
    total = right.sum(axis=1).astype(np.int64)
    expected = expected_shares(*_curves(fit, notes))
    # Scores of 0 and of all items are the same answers on every item.
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
    there = size > 0
    statistic = np.where(there, parts, 0).sum(axis=0)
    df: NDArray[np.int64] = there.sum(axis=0, dtype=np.int64) - _N_PARAMETERS[fit.item_model]
    tells: NDArray[np.bool_] = np.asarray(df > 0)
    chance = np.asarray(special.chdtrc(np.maximum(df, 1), statistic), dtype=np.float64)
    p = np.where(tells, chance, np.nan)
    if not tells.any():
        msg = (
            f"{n} models with all {m} items are too few to compare groups of scores: expected "
            "hundreds; infit and outfit (item_fit) do with fewer"
        )
        raise DesignError(msg)
    if not tells.all():
        notes.append(f"{int((~tells).sum())} items are too easy or too hard for these models")
    return SumScoreFit(
        fit.item_ids, fit.tasks, np.where(tells, statistic, np.nan), np.where(tells, df, np.nan),
        p, benjamini_hochberg(p), n, tuple(notes),
    )  # fmt: skip


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
    """P(item right | s right answers in all), shape (M + 1, M); NaN at s that have no chance.

    Parameters
    ----------
    probability : shape (Q, M)
        P(right) at the nodes of the distribution of abilities.
    weight : shape (Q,)
        Of the nodes, adding up to 1.
    """
    every = sum_score_shares(probability)
    m = probability.shape[1]
    low, up = probability <= 0.5, probability
    odds = np.where(low, up, 1 - up) / np.where(low, 1 - up, up)
    over = np.where(low, 1 - up, up)
    # Taking an item out of the recursion again, from the end where errors shrink.
    upward, downward = np.zeros_like(up), np.zeros_like(up)
    right = np.zeros((m + 1, m))
    for s in range(m):
        upward = every[:, s, None] / over - odds * upward
        downward = every[:, m - s, None] / over - odds * downward
        right[s + 1] += weight @ np.where(low, up * upward, 0)
        right[m - s] += weight @ np.where(low, 0, up * downward)
    chance = (weight @ every)[:, None]
    # What the recursion lost in rounding would show in scores that hardly any model can have.
    return np.where(chance > _RAREST, np.clip(right / np.maximum(chance, _RAREST), 0, 1), np.nan)


def _complete(cells: Cells) -> tuple[NDArray[np.bool_], list[str]]:
    """Models with all items, after checking that answers are right or wrong, once each."""
    if (cells.trials > 1).any() or not np.isin(cells.right, (0.0, 1.0)).all():
        msg = (
            "epochs or partial credit found, expected one answer to each item, right or wrong: "
            "item_fit tests such items by infit and outfit"
        )
        raise DesignError(msg)
    kept: NDArray[np.bool_] = np.asarray((cells.trials > 0).all(axis=1))
    n, m = cells.trials.shape
    if m < 3 or not kept.any():
        msg = (
            f"{int(kept.sum())} of {n} models took all of {m} items, expected 3 items or more and "
            "models that took all of them"
        )
        raise DesignError(msg)
    left = n - int(kept.sum())
    return kept, [f"{left} of {n} models did not take all items: left out"] if left else []


def _curves(fit: IRTFit, notes: list[str]) -> tuple[FloatArray, FloatArray]:
    """P(right) at the nodes, (Q, M), and the nodes' weights."""
    at, weight = _distribution(fit, notes)
    upper = float(fit.hyperparameters.get("upper", 1.0))
    logit = at[:, None] * fit.discrimination + fit.intercept
    curve = fit.guessing + (upper - fit.guessing) * special.expit(logit)
    return curve, weight / weight.sum()


def _distribution(fit: IRTFit, notes: list[str]) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights: of the models' groups together, of the fit, or of the models' spread."""
    known = fit.hyperparameters
    if "groups" in known:
        groups: list[dict[str, float]] = list(known["groups"].values())
        mean, sd, size = (
            np.array([g[k] for g in groups], dtype=np.float64) for k in ("mean", "sd", "n_models")
        )
        count = 2 * len(_NODES) * len(groups)
        low, high = (mean - _REACH * sd).min(), (mean + _REACH * sd).max()
        at: FloatArray = np.linspace(float(low), float(high), count)
        z: FloatArray = (at[:, None] - mean) / sd
        weight: FloatArray = np.exp(-(z**2) / 2) @ (size / sd)
        return at, weight
    mean = float(known.get("ability_mean", fit.ability.mean()))
    if "ability_sd" not in known:
        notes.append("abilities are taken as normal with the mean and spread of these models")
    sd = float(known.get("ability_sd", fit.ability.std(ddof=1)))
    return mean + sd * _NODES, np.exp(-(_NODES**2) / 2)


def _joined(
    right: FloatArray, expected: FloatArray, count: FloatArray, least: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Join neighbouring scores until enough is expected; seen, expected and models, (S, M) each.

    What is left over at the end joins the last group; groups that are not there have no models.
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
    last: NDArray[np.int64] = np.maximum(place - 1, 0)
    cell: NDArray[np.int64] = np.minimum(group, last) * m + np.arange(m, dtype=np.int64)
    sizes = np.broadcast_to(count[:, None], expected.shape)

    def summed(values: FloatArray) -> FloatArray:
        total = np.bincount(cell.ravel(), values.ravel(), n_scores * m)
        return total.astype(np.float64).reshape(n_scores, m)

    return summed(right), summed(expected), summed(sizes)
