"""Outcome models of a contest: probabilities and derivatives, with and without ties.

``x`` is the log odds of the first against the second. Without ties, P(first) = 1 / (1 + e^-x),
and a tie counts half for each ("half") or not at all ("drop"). With ties,

- Davidson: win, tie and loss are as e^{x/2} : ν : e^{-x/2} [Dav70]_; the tie parameter is log ν;
- Rao–Kupper: P(win) = 1 / (1 + e^{η - x}), P(loss) = 1 / (1 + e^{η + x}) [RK67]_, otherwise a tie;
  the tie parameter is η > 0.

All log-likelihoods are concave in x and the tie parameter, so that Newton's method finds the only
maximum. The second part, from `prob_win` on, predicts the next contest of two players whose ratings
are believed to be normal, by a probit or logit link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.errors import check_known
from evalstats_plugin.stats.arrays import FloatArray

TieModel = Literal["half", "drop", "davidson", "rao-kupper"]
TIE_MODELS: tuple[TieModel, ...] = get_args(TieModel)
WITH_TIES = ("davidson", "rao-kupper")
"""The models that have a tie parameter."""
Link = Literal["probit", "logit"]
LEAST_VARIANCE = 1e-12
"""Smallest variance of a difference of two ratings, which keeps divisions finite."""


class Weights(NamedTuple):
    """Total weights of the first's wins, ties and losses; arrays of one shape."""

    won: FloatArray
    tied: FloatArray
    lost: FloatArray


class Derivatives(NamedTuple):
    """Log-likelihood and its derivatives in x and the tie parameter.

    The information is minus the second derivative.
    """

    value: FloatArray
    by_x: FloatArray
    by_tie: FloatArray
    information_x: FloatArray
    information_x_tie: FloatArray
    information_tie: FloatArray


def tie_model(ties: str | None, outcome: FloatArray) -> TieModel:
    """Return the tie model of a name, or the default of these outcomes.

    The default is Davidson's model where there are ties. Without ties that is Bradley–Terry's
    model, and shares (outcomes other than 0, ½ and 1) count partly as wins and losses.

    Raises
    ------
    SelectionError
        No model of this name.

    Examples
    --------
    >>> tie_model(None, np.array([1.0, 0.5])), tie_model(None, np.array([1.0, 0.0]))
    ('davidson', 'half')
    """
    if ties is None:
        tied = outcome == 0.5
        whole = bool((tied | (outcome == 0.0) | (outcome == 1.0)).all())
        return "davidson" if whole and bool(tied.any()) else "half"
    check_known("model of ties", ties, TIE_MODELS)
    return cast("TieModel", ties)


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
        Log odds of the first.
    tie
        log ν or η, broadcast against ``x``; ignored by models without ties.
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
    """Probabilities of a win, a tie and a loss of the first, along a new last axis."""
    if ties == "davidson":
        parts = np.stack(np.broadcast_arrays(x / 2, tie, -x / 2), axis=-1)
        parts = np.exp(parts - parts.max(axis=-1, keepdims=True))
        return parts / parts.sum(axis=-1, keepdims=True)
    if ties == "rao-kupper":
        won, lost = _logistic(x - tie)[0], _logistic(-x - tie)[0]
        # Not as 1 - won - lost, which loses digits if ties are rare.
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
    # Without ties η tends to 0, where these terms are infinite.
    any_tied = weights.tied > 0
    value = np.where(any_tied, weights.tied * np.log(grown), 0.0)
    slope = np.where(any_tied, weights.tied * 2 * (1 + 1 / grown), 0.0)
    curvature = np.where(any_tied, weights.tied / np.sinh(tie) ** 2, 0.0)
    return Derivatives(
        value - above * softplus_p - below * softplus_q,
        up - down,
        slope - up - down,
        steep_up + steep_down,
        steep_down - steep_up,
        steep_up + steep_down + curvature,
    )


class _Mixture(NamedTuple):
    """Link as a mixture of probits: ``P(win | d) = Σ weight · Φ(scale · d)``."""

    weights: tuple[float, ...]
    scales: tuple[float, ...]


LINKS: Mapping[str, _Mixture] = MappingProxyType(
    {
        "probit": _Mixture((1.0,), (1.0,)),
        # Minimax fit; largest error against 1/(1+e⁻ᵈ): 4.8e-6.
        "logit": _Mixture(
            (0.458357937815, 0.060953133166, 0.374189054071, 0.106499874948),
            (0.698774540831, 0.321066422531, 0.475129101202, 1.023134054379),
        ),
    }
)
"""How a difference of ratings makes a probability to win, by name."""


def prob_win(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Probability that the first wins, E[F(d)], for a normal difference d of the ratings.

    >>> float(prob_win(0.0, 3.0, "probit"))
    0.5
    """
    m, v = _floored(mean, variance)
    return _over_mixture(link, lambda scale: special.ndtr(scale * m / np.sqrt(1 + scale**2 * v)))


def prob_win_slope(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Derivative of the probability of a win in the mean of d, E[F'(d)]."""
    m, v = _floored(mean, variance)

    def density(scale: float) -> FloatArray:
        spread = np.sqrt(1 + scale**2 * v)
        return scale / spread * np.exp(-0.5 * (scale * m / spread) ** 2) / np.sqrt(2 * np.pi)

    return _over_mixture(link, density)


def prob_win_and_ahead(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Probability that the first wins and is truly better: P(win, d > 0).

    The orthant probability of two normals, d and d + noise, by Owen's T function [Owe56]_.
    """
    m, v = _floored(mean, variance)
    ahead = special.ndtr(m / np.sqrt(v))

    def orthant(scale: float) -> FloatArray:
        seen = scale * m / np.sqrt(1 + scale**2 * v)
        both = (ahead + special.ndtr(seen)) / 2
        return both - special.owens_t(seen, 1 / (scale * np.sqrt(v)))

    return _over_mixture(link, orthant)


def shrinkage(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Factor c of the expected posterior covariance ``Σ - c (Σa)(Σa)'`` after one contest.

    a is the difference of the two players' unit vectors. E[ratings | outcome] varies along Σa only,
    with variance factor E[F'(d)]² / (p (1 - p)). Exact for normal ratings.
    """
    p = prob_win(mean, variance, link)
    return prob_win_slope(mean, variance, link) ** 2 / np.maximum(p * (1 - p), np.finfo(float).tiny)


def entropy(p: ArrayLike) -> FloatArray:
    """Entropy of an event of probability p, in bits.

    >>> float(entropy(0.5))
    1.0
    """
    value = np.asarray(p, dtype=np.float64)
    return (special.entr(value) + special.entr(1 - value)) / np.log(2)


def _floored(mean: ArrayLike, variance: ArrayLike) -> tuple[FloatArray, FloatArray]:
    v = np.maximum(np.asarray(variance, dtype=np.float64), LEAST_VARIANCE)
    return np.asarray(mean, dtype=np.float64), v


def _over_mixture(link: Link, part: Callable[[float], FloatArray]) -> FloatArray:
    mixture = LINKS[link]
    parts = [w * part(s) for w, s in zip(mixture.weights, mixture.scales, strict=True)]
    return np.sum(parts, axis=0)
