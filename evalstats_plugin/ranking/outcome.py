"""How the next comparison of two players may end, given what is believed of their ratings.

The difference d of two ratings is N(m, v), and the first wins with probability Φ(d) or 1/(1+e⁻ᵈ).
The logistic curve is written as a mixture of normal ones [MS92]_, so that everything has a closed
form for both. All functions broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.ranking.contests import FloatArray
from evalstats_plugin.wording import no_such

Link = Literal["probit", "logit"]

LEAST_VARIANCE = 1e-12
"""Of a difference: below it two ratings move as one."""


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
