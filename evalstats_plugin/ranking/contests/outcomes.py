"""How a contest ends, given by how much the first is ahead: in a win, a tie or a loss.

``x`` is the log odds of the first against the second. Without ties, P(first) = 1 / (1 + e^-x),
and a tie counts half for each ("half") or not at all ("drop"). With them,

- Davidson: win, tie and loss are as e^{x/2} : ν : e^{-x/2} [Dav70]_; the tie parameter is log ν;
- Rao–Kupper: P(win) = 1 / (1 + e^{η - x}), P(loss) = 1 / (1 + e^{η + x}) [RK67]_: whoever is not
  ahead by η ties; the tie parameter is η > 0.

All log-likelihoods are concave in both, so that Newton's method climbs to the only top.
"""
# PART outcome - How the next comparison of two players may end, given what is believed of their ratings.

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.stats.arrays import FloatArray

TieModel = Literal["half", "drop", "davidson", "rao-kupper"]


TIE_MODELS: tuple[TieModel, ...] = get_args(TieModel)


WITH_TIES = ("davidson", "rao-kupper")


Link = Literal["probit", "logit"]


LEAST_VARIANCE = 1e-12
"""Of a difference: below it two ratings move as one."""


class Weights(NamedTuple):
    """How often, by weight, the first won, tied and lost; arrays of one shape."""

    won: FloatArray
    tied: FloatArray
    lost: FloatArray

    def times(self, factor: Any) -> Weights:
        """Return all three, times a factor."""
        return Weights(self.won * factor, self.tied * factor, self.lost * factor)


class Derivatives(NamedTuple):
    """Of the log-likelihood in x and in the tie parameter; information is minus the second ones."""

    value: FloatArray
    by_x: FloatArray
    by_tie: FloatArray
    information_x: FloatArray
    information_x_tie: FloatArray
    information_tie: FloatArray


def check_ties(ties: str) -> TieModel:
    """Return the model of ties by this name.

    Raises
    ------
    SelectionError
        There is none.
    """
    for known in TIE_MODELS:
        if ties == known:
            return known
    raise SelectionError(no_such("model of ties", ties, TIE_MODELS, ", ".join(TIE_MODELS)))


def weights_of(ties: TieModel, outcome: FloatArray, weight: FloatArray) -> Weights:
    """Split contests' weights into wins, ties and losses of the first."""
    if ties in WITH_TIES:
        return Weights(weight * (outcome == 1), weight * (outcome == 0.5), weight * (outcome == 0))
    none = np.broadcast_to(0.0, weight.shape)
    return Weights(weight * outcome, none, weight * (1 - outcome))


def derivatives(ties: TieModel, x: FloatArray, tie: FloatArray, weights: Weights) -> Derivatives:
    """Log-likelihood and its derivatives, of the shape of ``x``.

    Parameters
    ----------
    x
        By how much the first is ahead.
    tie
        log ν or η, broadcast against ``x``; not used without ties.
    """
    if ties == "davidson":
        return _davidson(x, tie, weights)
    if ties == "rao-kupper":
        return _rao_kupper(x, tie, weights)
    total = weights.won + weights.lost
    p, softplus = _logistic(x)
    zero = np.zeros_like(x)
    return Derivatives(
        weights.won * x - total * softplus,
        weights.won - total * p,
        zero,
        total * p * (1 - p),
        zero,
        zero,
    )


def probabilities(ties: TieModel, x: FloatArray, tie: FloatArray) -> FloatArray:
    """P(the first wins), P(tie) and P(it loses), along a new last axis."""
    if ties == "davidson":
        parts = np.stack(np.broadcast_arrays(x / 2, tie, -x / 2), axis=-1)
        parts = np.exp(parts - parts.max(axis=-1, keepdims=True))
        return parts / parts.sum(axis=-1, keepdims=True)
    if ties == "rao-kupper":
        won, lost = _logistic(x - tie)[0], _logistic(-x - tie)[0]
        # Not as 1 less both, which loses digits where ties are rare.
        return np.stack([won, np.expm1(2 * tie) * won * lost, lost], axis=-1)
    return np.stack([_logistic(x)[0], np.zeros_like(x), _logistic(-x)[0]], axis=-1)


def _logistic(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """1 / (1 + e^-x) and log(1 + e^x)."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1 + small), np.maximum(x, 0) + np.log1p(small)


def _davidson(x: FloatArray, tie: FloatArray, weights: Weights) -> Derivatives:
    total = weights.won + weights.tied + weights.lost
    top = np.maximum(np.abs(x) / 2, tie)
    parts = [np.exp(each - top) for each in (x / 2, tie + 0 * x, -x / 2)]
    normaliser = parts[0] + parts[1] + parts[2]
    won, tied, lost = (part / normaliser for part in parts)
    ahead, log_total = (won - lost) / 2, top + np.log(normaliser)
    return Derivatives(
        (weights.won - weights.lost) * x / 2 + weights.tied * tie - total * log_total,
        (weights.won - weights.lost) / 2 - total * ahead,
        weights.tied - total * tied,
        total * ((won + lost) / 4 - ahead**2),
        -total * ahead * tied,
        total * tied * (1 - tied),
    )


def _rao_kupper(x: FloatArray, tie: FloatArray, weights: Weights) -> Derivatives:
    """P(tie) = (e^{2η} - 1) P(win) P(loss), which makes each part a logistic one."""
    above, below = weights.won + weights.tied, weights.lost + weights.tied
    (p, softplus_p), (q, softplus_q) = _logistic(tie - x), _logistic(tie + x)
    up, down = above * p, below * q
    steep_up, steep_down = up * (1 - p), down * (1 - q)
    grown = np.expm1(2 * tie)
    # Without ties η goes to 0, where these are infinite.
    told = weights.tied > 0
    value = np.where(told, weights.tied * np.log(grown), 0.0)
    slope = np.where(told, weights.tied * 2 * (1 + 1 / grown), 0.0)
    bend = np.where(told, weights.tied / np.sinh(tie) ** 2, 0.0)
    return Derivatives(
        value - above * softplus_p - below * softplus_q,
        up - down,
        slope - up - down,
        steep_up + steep_down,
        steep_down - steep_up,
        steep_up + steep_down + bend,
    )


class _Mixture(NamedTuple):
    """``P(win | d) = Σ weight · Φ(scale · d)``."""

    weights: tuple[float, ...]
    scales: tuple[float, ...]


_LINKS: Mapping[str, _Mixture] = MappingProxyType(
    {
        "probit": _Mixture((1.0,), (1.0,)),
        # Largest error against 1/(1+e⁻ᵈ): 4.8e-6, by minimax fit.
        "logit": _Mixture(
            (0.458357937815, 0.060953133166, 0.374189054071, 0.106499874948),
            (0.698774540831, 0.321066422531, 0.475129101202, 1.023134054379),
        ),
    }
)


def prob_win(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Probability that the first wins, E[F(d)].

    >>> float(prob_win(0.0, 3.0, "probit"))
    0.5
    """
    m, v = _arrays(mean, variance)
    return _summed(link, lambda scale: special.ndtr(scale * m / np.sqrt(1 + scale**2 * v)))


def slope(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """How fast the probability to win grows with the mean, E[F'(d)]."""
    m, v = _arrays(mean, variance)

    def density(scale: float) -> FloatArray:
        spread = np.sqrt(1 + scale**2 * v)
        return scale / spread * np.exp(-0.5 * (scale * m / spread) ** 2) / np.sqrt(2 * np.pi)

    return _summed(link, density)


def prob_win_and_ahead(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Probability that the first wins and is truly the better: P(win, d > 0).

    An orthant of two normals, d and d + noise, by Owen's T function [Owe56]_.
    """
    m, v = _arrays(mean, variance)
    ahead = special.ndtr(m / np.sqrt(v))

    def orthant(scale: float) -> FloatArray:
        seen = scale * m / np.sqrt(1 + scale**2 * v)
        both = (ahead + special.ndtr(seen)) / 2
        return both - special.owens_t(seen, 1 / (scale * np.sqrt(v)))

    return _summed(link, orthant)


def shrinkage(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Factor c: the answer is expected to leave the covariance ``Σ - c (Σa)(Σa)'``.

    With a the difference of two players' unit vectors, and whatever the answer: E[ratings | answer]
    varies along Σa only, by E[F'(d)]² / (p (1 - p)). Exact for a normal belief.
    """
    p = prob_win(mean, variance, link)
    return slope(mean, variance, link) ** 2 / np.maximum(p * (1 - p), np.finfo(float).tiny)


def entropy(p: ArrayLike) -> FloatArray:
    """Entropy of an event of probability p, in bits.

    >>> float(entropy(0.5))
    1.0
    """
    value = np.asarray(p, dtype=np.float64)
    return (special.entr(value) + special.entr(1 - value)) / np.log(2)


def check_link(link: str) -> None:
    """Raise `SelectionError` where there is no such link."""
    if link not in _LINKS:
        raise SelectionError(no_such("link", link, _LINKS, ", ".join(_LINKS)))


def _arrays(mean: ArrayLike, variance: ArrayLike) -> tuple[FloatArray, FloatArray]:
    v = np.maximum(np.asarray(variance, dtype=np.float64), LEAST_VARIANCE)
    return np.asarray(mean, dtype=np.float64), v


def _summed(link: Link, part: Callable[[float], FloatArray]) -> FloatArray:
    mixture = _LINKS[link]
    parts = [w * part(s) for w, s in zip(mixture.weights, mixture.scales, strict=True)]
    return np.sum(parts, axis=0)
