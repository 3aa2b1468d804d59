"""How far judges agree on the pairs that several of them judged: Krippendorff's alpha [Kri70]_."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.ranking.contests import Contests, FloatArray

Metric = Literal["nominal", "interval"]
N_RESAMPLES = 1000


class Agreement(NamedTuple):
    """1 where judges always agree, 0 where no more than by chance, below 0 where less."""

    alpha: float
    low: float
    high: float
    """Limits from bootstraps of the units [Efr79]_; NaN with fewer than two units."""
    n_units: int
    """That two judges or more judged."""
    n_values: int


def judge_agreement(
    contests: Contests,
    *,
    confidence_level: float = 0.95,
    metric: Metric = "interval",
    rng: np.random.Generator | int | None = None,
) -> Agreement | None:
    """Agreement of judges on who won; a tie lies halfway between a win and a loss.

    A unit is a pair of players, on one item (cluster) where items are known. A judge who judged
    one unit several times has the mean of it, as a win, tie or loss.

    Returns
    -------
    None where there are no judges, or no unit that two of them judged.
    """
    if contests.judge is None:
        return None
    i, j = contests.first, contests.second
    swap = i > j
    outcome = np.where(swap, 1 - contests.outcome, contests.outcome)
    item = np.zeros_like(i) if contests.cluster is None else contests.cluster
    keys = np.stack([np.minimum(i, j), np.maximum(i, j), item, contests.judge], axis=1)
    of_judges, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.reshape(-1)
    mean = np.bincount(place, outcome) / np.bincount(place)
    value = (1 + np.sign((mean - 0.5).round(9))) / 2
    _, unit = np.unique(of_judges[:, :3], axis=0, return_inverse=True)
    found = krippendorff_alpha(
        value, unit.reshape(-1), metric=metric, confidence_level=confidence_level, rng=rng
    )
    return found if found.n_units else None


def krippendorff_alpha(
    values: ArrayLike,
    units: ArrayLike,
    *,
    metric: Metric,
    confidence_level: float = 0.95,
    rng: np.random.Generator | int | None = None,
) -> Agreement:
    """Krippendorff's alpha of values given to units.

    Parameters
    ----------
    values : shape (V,)
        One judgement each.
    units : shape (V,)
        What was judged, any integers. Units judged once say nothing about agreement.
    metric
        ``"nominal"``: two values agree or do not; ``"interval"``: by their squared difference.
    """
    kinds, kind = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
    _, unit = np.unique(np.asarray(units), return_inverse=True)
    n_kinds = len(kinds)
    cells = np.bincount(unit * n_kinds + kind, minlength=(unit.max(initial=-1) + 1) * n_kinds)
    counts = cells.reshape(-1, n_kinds).astype(np.float64)
    counts = counts[counts.sum(axis=1) >= 2]
    apart = kinds[:, None] - kinds
    distance = (apart != 0).astype(np.float64) if metric == "nominal" else apart**2
    n_units = len(counts)
    if not n_units:
        return Agreement(np.nan, np.nan, np.nan, 0, 0)
    alpha = float(_alpha(counts, distance, np.ones((1, n_units)))[0])
    low = high = np.nan
    if n_units > 1:
        share = np.full(n_units, 1 / n_units)
        times = np.random.default_rng(rng).multinomial(n_units, share, N_RESAMPLES)
        again = _alpha(counts, distance, times.astype(np.float64))
        tail = (1 - confidence_level) / 2
        low, high = (float(x) for x in np.nanquantile(again, [tail, 1 - tail]))
    return Agreement(alpha, low, high, n_units, int(counts.sum()))


def _alpha(counts: FloatArray, distance: FloatArray, times: FloatArray) -> FloatArray:
    """Alpha with each unit counted so many times, `times` of shape (B, units)."""
    within = np.einsum("uk,kl,ul->u", counts, distance, counts) / (counts.sum(axis=1) - 1)
    total = times @ counts
    n = total.sum(axis=1)
    observed = times @ within / n
    expected = np.einsum("bk,kl,bl->b", total, distance, total) / (n * (n - 1))
    # Judges who all say the same of everything agree, though chance would not tell.
    return 1 - np.divide(observed, expected, out=np.zeros_like(n), where=expected > 0)
