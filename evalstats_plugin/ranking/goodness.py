"""Does one scale describe the contests? Cyclic triads, and how well outcomes are foretold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.ranking.contests import Contests, FloatArray
from evalstats_plugin.ranking.fit import RankingFit
from evalstats_plugin.ranking.orders import BLOCK_SIZE

BoolArray = NDArray[np.bool_]
N_SIMULATIONS = 199
MOST_WORK = 4e9
"""Products of triads to form over all simulations; fewer are made of many players."""


class Transitivity(NamedTuple):
    """Triads in which a beat b, b beat c, and c beat a, by the majority of each pair [KBS40]_."""

    n_triads: int
    """Of three players each of whom has a majority over, or against, the other two."""
    cyclic: float
    """Share of these; NaN without any."""
    expected: float
    """The share in simulations from the fit: chance turns close pairs around."""
    p_value: float
    """Probability of so many or more cyclic ones by the fit."""


class Foretold(NamedTuple):
    """Mean log loss of the outcomes, in nats per contest, on the contests fitted to."""

    log_loss: float
    constant: float
    """Of foretelling the same for every pair: the shares of wins, ties and losses."""


def outcome_probabilities(fit: RankingFit, contests: Contests) -> FloatArray:
    """P(the first wins), P(tie) and P(it loses) at the estimates, shape (C, 3)."""
    if fit.model == "bradley-terry":
        from evalstats_plugin.ranking.bradley_terry_chances import chances

        return chances(fit, contests)
    x = fit.rating[contests.first] - fit.rating[contests.second]
    x = x + fit.parameters.get("position", 0.0)
    return _probabilities(fit, x)


def expected_scores(fit: RankingFit, draws: FloatArray) -> FloatArray:
    """P(win) + ½ P(tie) of row against column, on average over draws of ratings; shape (n, n).

    Parameters
    ----------
    draws : shape (S, n)
    """
    size, n = draws.shape
    total = np.zeros((n, n))
    step = max(BLOCK_SIZE // 8 // (n * n), 1)
    for start in range(0, size, step):
        part = draws[start : start + step]
        p = _probabilities(fit, part[:, :, None] - part[:, None, :])
        total += (p[..., 0] + p[..., 1] / 2).sum(axis=0)
    return total / size


def _probabilities(fit: RankingFit, x: FloatArray) -> FloatArray:
    """Win, tie and loss of one who is ahead by x, along a new last axis."""
    tie = fit.parameters.get("tie", 0.0)
    if fit.model == "bradley-terry":
        from evalstats_plugin.ranking.ties import check_ties, probabilities

        return probabilities(check_ties(fit.diagnostics["ties"]), x, np.full_like(x, tie))
    won, lost = special.ndtr(x - tie), special.ndtr(-x - tie)
    return np.stack([won, np.maximum(1 - won - lost, 0), lost], axis=-1)


def foretold(fit: RankingFit, contests: Contests) -> Foretold:
    """How much better the fit foretells outcomes than a constant does.

    A share counts in part for a win and a loss, as do ties where the fit has none.
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
    return Foretold(-float((parts * log_p).sum() / total), constant)


def transitivity(
    fit: RankingFit,
    contests: Contests,
    *,
    rng: np.random.Generator,
    n_simulations: int | None = None,
) -> Transitivity:
    """Count cyclic triads, and how many the fit expects with as many contests of each pair.

    Parameters
    ----------
    n_simulations
        None: as many as are quick, 199 at most.
    """
    n = len(contests.players)
    i, j = np.minimum(contests.first, contests.second), np.maximum(contests.first, contests.second)
    p = outcome_probabilities(fit, contests)
    p = np.where((contests.first > contests.second)[:, None], p[:, ::-1], p)
    pair, place = np.unique(i * n + j, return_inverse=True)
    each = np.stack([np.bincount(place, contests.weight * p[:, k]) for k in range(3)], axis=-1)
    weight = np.bincount(place, contests.weight)
    each, weight, pair = each[weight > 0], weight[weight > 0], pair[weight > 0]
    size = n_simulations or int(np.clip(MOST_WORK / n**3, 19, N_SIMULATIONS))
    counts = np.maximum(np.rint(weight), 1).astype(np.int64)
    drawn = rng.multinomial(counts, each / each.sum(axis=1, keepdims=True), (size, len(pair)))
    ahead = contests.wins() - contests.wins().T
    seen, n_triads = _cyclic(ahead[pair // n, pair % n][None].round(9), pair, n)
    by_fit, of = _cyclic(drawn[..., 0] - drawn[..., 2], pair, n)
    expected = float(np.mean(by_fit[of > 0] / of[of > 0])) if (of > 0).any() else np.nan
    cyclic = float(seen[0] / n_triads[0]) if n_triads[0] else np.nan
    share = np.divide(by_fit, of, out=np.zeros(size), where=of > 0)
    p_value = (1 + float((share >= cyclic - 1e-12).sum())) / (1 + size) if n_triads[0] else np.nan
    return Transitivity(int(n_triads[0]), cyclic, expected, p_value)


def _cyclic(ahead: Any, pair: NDArray[np.int64], n: int) -> tuple[FloatArray, ...]:
    """Cyclic triads and all triads, shapes (B,), of net wins over the pairs (B, P)."""
    beats = np.zeros((len(ahead), n * n), dtype=np.float32)
    beats[:, pair] = ahead > 0
    beats[:, pair % n * n + pair // n] = ahead < 0
    beats = beats.reshape(-1, n, n)
    either = beats + beats.transpose(0, 2, 1)
    closed = [np.einsum("bij,bji->b", x @ x, x, dtype=np.float64) for x in (beats, either)]
    return closed[0] / 3, closed[1] / 6
