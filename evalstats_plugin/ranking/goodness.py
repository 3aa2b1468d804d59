"""Goodness of fit of a ranking: predicted outcomes, transitivity, and agreement of judges.

* `predictive_fit`: log loss of the outcomes under the fit and under a constant prediction
* `transitivity`: cyclic triads, observed and expected from the fit [KBS40]_
* `judge_agreement`: Krippendorff's alpha of the judges [Kri70]_
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.outcomes import probabilities
from evalstats_plugin.ranking.ratings.fit import BLOCK_SIZE, RankingFit
from evalstats_plugin.stats.arrays import FloatArray, steady
from evalstats_plugin.stats.streams import stream

N_SIMULATIONS = 999
MOST_WORK = 4e9
"""Most products of triads over all simulations; with many players, fewer are simulated."""
ROUNDING = 1e-12
"""Probabilities of less are rounding errors."""
MOST_DRAWN = 2**22
"""Most outcomes of pairs over all simulations."""
N_RESAMPLES = 4000


class PredictiveFit(NamedTuple):
    """Mean log loss of outcomes, in nats per contest."""

    log_loss: float
    constant: float
    """Log loss of predicting the shares of wins, ties and losses for every pair."""


def predictive_fit(fit: RankingFit, contests: Contests) -> PredictiveFit:
    """Log loss of the contests' outcomes, by weight, compared to a constant prediction.

    A share counts partly as a win and partly as a loss, as do ties if the model has none. The
    contests may be those fitted to or new ones.
    """
    p = outcome_probabilities(fit, contests)
    tied = contests.tied & (p[:, 1] > 0)
    kept = contests.tied if fit.diagnostics.get("ties") == "drop" else np.zeros_like(tied)
    weight = np.where(kept, 0.0, contests.weight)
    won = np.where(tied, 0.0, contests.outcome)
    parts = np.stack([won, tied.astype(np.float64), 1 - won - tied], axis=-1) * weight[:, None]
    total = parts.sum()
    share = parts.sum(axis=0) / total
    if not contests.ordered:
        share[[0, 2]] = (share[0] + share[2]) / 2
    log_p = np.log(np.maximum(p, np.finfo(float).tiny))
    even = share[share > 0]
    constant = -float(even @ np.log(even))
    return PredictiveFit(-float((parts * log_p).sum() / total), constant)


def outcome_probabilities(fit: RankingFit, contests: Contests) -> FloatArray:
    """Probabilities of a win, a tie and a loss of the first at the estimates, shape (C, 3).

    The position effect and features are used if the fit has them.

    Raises
    ------
    DesignError
        The contests have other players than the fit, or lack a feature of it.
    """
    if contests.players != fit.players:
        msg = "the comparisons have other players than the fit: give the same list of players"
        raise DesignError(msg)
    x = fit.rating[contests.first] - fit.rating[contests.second]
    x = x + fit.parameters.get("position", 0.0)
    for name in (name for name in fit.parameters if name not in ("position", "tie")):
        if name not in contests.feature_names or contests.features is None:
            raise DesignError(f"the comparisons lack feature {name!r}, which the fit has: add it")
        x = x + fit.parameters[name] * contests.features[:, contests.feature_names.index(name)]
    return probabilities_at(fit, x)


def expected_scores(fit: RankingFit, draws: FloatArray) -> FloatArray:
    """P(win) + ½ P(tie) of row against column, averaged over draws of ratings; shape (n, n).

    Parameters
    ----------
    draws : shape (S, n)
    """
    size, n = draws.shape
    total = np.zeros((n, n))
    step = max(BLOCK_SIZE // 8 // (n * n), 1)
    for start in range(0, size, step):
        part = draws[start : start + step]
        p = probabilities_at(fit, part[:, :, None] - part[:, None, :])
        total += (p[..., 0] + p[..., 1] / 2).sum(axis=0)
    return total / size


def probabilities_at(fit: RankingFit, x: FloatArray) -> FloatArray:
    """Probabilities of a win, a tie and a loss at a difference x, along a new last axis."""
    tie = fit.parameters.get("tie", 0.0)
    if fit.model == "bradley-terry":
        return probabilities(fit.diagnostics["ties"], x, np.full_like(x, tie))
    won, lost = special.ndtr(x - tie), special.ndtr(-x - tie)
    return np.stack([won, np.maximum(1 - won - lost, 0), lost], axis=-1)


class Transitivity(NamedTuple):
    """Cyclic triads: a beat b, b beat c, and c beat a, by the majority of each pair [KBS40]_."""

    n_triads: int
    """Triads of players in which every pair has a majority winner."""
    cyclic: float
    """Share of cyclic triads; NaN if there are no triads."""
    expected: float
    """Mean share in simulations from the fit: close pairs are reversed by chance."""
    p_value: float
    """Probability of at least this share under the fit."""
    n_simulations: int


def transitivity(fit: RankingFit, contests: Contests, *, rng: np.random.Generator) -> Transitivity:
    """Share of cyclic triads, and its distribution in as many simulations as are fast."""
    n = len(contests.players)
    i, j, _ = contests.in_order()
    p = outcome_probabilities(fit, contests)
    p = np.where((contests.first > contests.second)[:, None], p[:, ::-1], p)
    pair, place = np.unique(i * n + j, return_inverse=True)
    each = np.stack([np.bincount(place, contests.weight * p[:, k]) for k in range(3)], axis=-1)
    weight = np.bincount(place, contests.weight)
    each, weight, pair = each[weight > 0], weight[weight > 0], pair[weight > 0]
    fast = min(MOST_WORK / n**3, MOST_DRAWN / max(len(pair), 1))
    size = int(np.clip(fast, 19, N_SIMULATIONS))
    counts = np.maximum(np.rint(weight), 1).astype(np.int64)
    # Half exactly where players are equal, 0 exactly where there are no ties: of a hair more an
    # outcome is drawn otherwise, and all that follow with it.
    each = steady(each / each.sum(axis=1, keepdims=True))
    each[each < ROUNDING] = 0.0
    drawn = rng.multinomial(counts, each / each.sum(axis=1, keepdims=True), (size, len(pair)))
    ahead = contests.wins() - contests.wins().T
    seen, n_triads = _cyclic(ahead[pair // n, pair % n][None].round(9), pair, n)
    by_fit, triads = _cyclic(drawn[..., 0] - drawn[..., 2], pair, n)
    expected = (
        float(np.mean(by_fit[triads > 0] / triads[triads > 0])) if (triads > 0).any() else np.nan
    )
    cyclic = float(seen[0] / n_triads[0]) if n_triads[0] else np.nan
    share = np.divide(by_fit, triads, out=np.zeros(size), where=triads > 0)
    p_value = (1 + float((share >= cyclic - 1e-12).sum())) / (1 + size) if n_triads[0] else np.nan
    return Transitivity(int(n_triads[0]), cyclic, expected, p_value, size)


def _cyclic(ahead: Any, pair: NDArray[np.int64], n: int) -> tuple[FloatArray, ...]:
    """Numbers of cyclic triads and of all triads, shapes (B,), from net wins (B, P) of pairs."""
    beats = np.zeros((len(ahead), n * n), dtype=np.float32)
    beats[:, pair] = ahead > 0
    beats[:, pair % n * n + pair // n] = ahead < 0
    beats = beats.reshape(-1, n, n)
    either = beats + beats.transpose(0, 2, 1)
    closed = [np.einsum("bij,bji->b", x @ x, x, dtype=np.float64) for x in (beats, either)]
    return closed[0] / 3, closed[1] / 6


class Agreement(NamedTuple):
    """Krippendorff's alpha: 1 is perfect agreement, 0 agreement by chance; it may be below 0."""

    alpha: float
    low: float
    high: float
    """Bootstrap limits over units [Efr79]_; NaN with fewer than two units."""
    n_units: int
    """Units with at least two judges."""
    n_values: int
    """Judgements of these units."""


def judge_agreement(
    contests: Contests,
    *,
    confidence_level: float = 0.95,
    rng: np.random.Generator | int | None = None,
) -> Agreement | None:
    """Agreement of judges on who won; a tie is halfway between a win and a loss.

    A unit is a pair of players, on one item (cluster) if items are known. Several judgements of a
    unit by one judge are averaged and rounded to a win, tie or loss.

    Returns
    -------
    None if there are no judges, or no unit with two of them.
    """
    if contests.judge is None:
        return None
    counts = contests.weight > 0
    i, j, outcome = (values[counts] for values in contests.in_order())
    item = np.zeros_like(i) if contests.cluster is None else contests.cluster[counts]
    keys = np.stack([i, j, item, contests.judge[counts]], axis=1)
    of_judges, place = np.unique(keys, axis=0, return_inverse=True)
    place = place.reshape(-1)
    mean = np.bincount(place, outcome) / np.bincount(place)
    value = (1 + np.sign((mean - 0.5).round(9))) / 2
    _, unit = np.unique(of_judges[:, :3], axis=0, return_inverse=True)
    agreement = krippendorff_alpha(
        value, unit.reshape(-1), confidence_level=confidence_level, rng=rng
    )
    return agreement if agreement.n_units else None


def krippendorff_alpha(
    values: ArrayLike,
    units: ArrayLike,
    *,
    confidence_level: float = 0.95,
    rng: np.random.Generator | int | None = None,
) -> Agreement:
    """Krippendorff's alpha of values given to units, with the interval metric.

    Parameters
    ----------
    values : shape (V,)
        One judgement each.
    units : shape (V,)
        Unit of each judgement, any integers. Units with a single judgement are ignored.
    """
    kinds, kind = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
    _, unit = np.unique(np.asarray(units), return_inverse=True)
    n_kinds = len(kinds)
    cells = np.bincount(unit * n_kinds + kind, minlength=(unit.max(initial=-1) + 1) * n_kinds)
    counts = cells.reshape(-1, n_kinds).astype(np.float64)
    counts = counts[counts.sum(axis=1) >= 2]
    distance = (kinds[:, None] - kinds) ** 2
    n_units = len(counts)
    if not n_units:
        return Agreement(np.nan, np.nan, np.nan, 0, 0)
    alpha = float(_alpha(counts, distance, np.ones((1, n_units)))[0])
    low = high = np.nan
    if n_units > 1:
        share = np.full(n_units, 1 / n_units)
        times = stream(rng, "agreement of judges").multinomial(n_units, share, N_RESAMPLES)
        again = _alpha(counts, distance, times.astype(np.float64))
        tail = (1 - confidence_level) / 2
        low, high = (float(x) for x in np.nanquantile(again, [tail, 1 - tail]))
    return Agreement(alpha, low, high, n_units, int(counts.sum()))


def _alpha(counts: FloatArray, distance: FloatArray, times: FloatArray) -> FloatArray:
    """Alpha with each unit counted ``times``, shape (B, units); shape (B,)."""
    within = np.einsum("uk,kl,ul->u", counts, distance, counts) / (counts.sum(axis=1) - 1)
    total = times @ counts
    n = total.sum(axis=1)
    observed = times @ within / n
    expected = np.einsum("bk,kl,bl->b", total, distance, total) / (n * (n - 1))
    # If all judgements are equal, chance agreement is perfect, too; alpha is then 1.
    return 1 - np.divide(observed, expected, out=np.zeros_like(n), where=expected > 0)
