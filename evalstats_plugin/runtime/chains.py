"""Markov chains: the loop that all samplers share, and diagnostics of their draws.

* `run_chains`: warm-up, then draws, with progress
* `convergence`, `chain_agreement`: R-hat, effective sample size, a note where chains disagree
* `pareto_shape`, `smoothed_weights`: how heavy the tail of importance weights is, and the weights
  with a smooth tail
* `inference_data`: draws as ArviZ holds them, whose majors 0 and 1 are given them in two ways
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.errors import DesignError, install_hint
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.stats.arrays import FloatArray

StateT = TypeVar("StateT")


R_HAT_LIMIT = 1.01
"""R-hat from which chains count as not converged."""


PARETO_K_LIMIT = 0.7
"""k-hat above which importance sampling is unreliable."""


# Sets of weights processed together.
_BLOCK = 1000


# Prior of the shape: ½, with the weight of so many draws; and its scale.
_WORTH, _SCALE = 10, 3


def run_chains(
    state: StateT, sweep: Callable[[StateT, int], StateT], length: ChainLength
) -> Iterator[StateT]:
    """Yield the state of all chains after each sweep that follows the warm-up.

    Parameters
    ----------
    state
        State of all chains at once.
    sweep
        Returns the next state, given the state and the number of the sweep: negative during the
        warm-up, when the sampler may adapt, then from 0.

    Examples
    --------
    >>> list(run_chains(0, lambda x, k: x + 1, ChainLength(draws=3, warm_up=10)))
    [11, 12, 13]
    """
    from evalstats_plugin.runtime.progress import with_progress

    for k in with_progress("warm-up draw", range(-length.warm_up, 0)):
        state = sweep(state, k)
    for k in with_progress("draw", range(length.draws)):
        state = sweep(state, k)
        yield state


class Agreement(NamedTuple):
    """Whether Markov chains agree: the worst of all quantities."""

    r_hat: float
    """Largest R-hat."""
    ess: float
    """Smallest bulk effective sample size."""
    converged: bool
    """Whether R-hat is below `R_HAT_LIMIT`."""
    why: str
    """Why the chains have not converged; else empty."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The reason as a note of a fit."""
        return (self.why,) if self.why else ()

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Entries of a fit's diagnostics."""
        return {"r_hat": self.r_hat, "ess": self.ess, "converged": self.converged}


def chain_agreement(draws: ArrayLike) -> Agreement:
    """Compare Markov chains by R-hat and effective sample size [VGS21]_.

    Parameters
    ----------
    draws : shape (chains, draws, ...)
    """
    by_quantity = convergence(draws)
    r_hat, ess = float(by_quantity.r_hat.max()), float(by_quantity.ess.min())
    if r_hat < R_HAT_LIMIT:
        return Agreement(r_hat, ess, converged=True, why="")
    why = f"the chains disagree (R-hat {r_hat:.3f}, limit {R_HAT_LIMIT}): take more draws"
    return Agreement(r_hat, ess, converged=False, why=why)


class Convergence(NamedTuple):
    """Diagnostics of each quantity, in the shape of one draw."""

    r_hat: FloatArray
    ess: FloatArray
    """Bulk effective sample size."""


def convergence(draws: ArrayLike) -> Convergence:
    """Rank-normalised split R-hat, the larger of bulk and tail, and bulk ESS [VGS21]_.

    Parameters
    ----------
    draws : shape (chains, draws, ...)

    Returns
    -------
    Convergence
        NaN for fewer than 4 draws or draws that are not finite, and R-hat also for a single chain.
    """
    x = np.asarray(draws, dtype=np.float64)
    shape, flat = x.shape[2:], x.reshape(*x.shape[:2], -1)
    r_hat, ess = np.full((2, flat.shape[2]), np.nan)
    good = np.flatnonzero(np.isfinite(flat).all(axis=(0, 1)))
    if x.shape[1] >= 4:
        for i in np.split(good, range(_BLOCK, len(good), _BLOCK)):
            halves = _halves(flat[..., i])
            bulk = _normal_scores(halves)
            ess[i] = _effective(bulk)
            if len(x) > 1:
                middle = np.median(halves, axis=(1, 2), keepdims=True)
                r_hat[i] = np.maximum(_r_hat(bulk), _r_hat(_normal_scores(abs(halves - middle))))
    return Convergence(r_hat.reshape(shape), ess.reshape(shape))


def _halves(x: FloatArray) -> FloatArray:
    """Halves of chains (C, S, Q), so that one that drifts disagrees with itself: (Q, 2C, S / 2)."""
    half, chains = x.shape[1] // 2, np.moveaxis(x, 2, 0)
    return np.concatenate([chains[..., :half], chains[..., -half:]], axis=1)


def _normal_scores(x: FloatArray) -> FloatArray:
    """Normal quantiles of the ranks of draws (Q, C, S), ties with their mean rank."""
    from scipy import special

    flat = x.reshape(len(x), -1)
    size = flat.shape[1]
    order = np.argsort(flat, axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    # By twice the rank less 1, so that mean ranks of ties are among them.
    scores = special.ndtri((np.arange(2 * size - 1) / 2 + 0.625) / (size + 0.25))
    place, differs = np.arange(size), ordered[:, 1:] != ordered[:, :-1]
    normal, twice = np.empty_like(flat), 2 * place[None]
    if not differs.all():
        edge = np.ones((len(x), 1), dtype=bool)
        first = np.maximum.accumulate(np.where(np.hstack([edge, differs]), place, 0), axis=1)
        ends = np.where(np.hstack([differs, edge]), place, size)
        twice = first + np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    np.put_along_axis(normal, order, scores[twice], axis=1)
    return normal.reshape(x.shape)


def _r_hat(x: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = x.mean(axis=2).var(axis=1, ddof=1) / x.var(axis=2, ddof=1).mean(axis=1)
    return np.sqrt(ratio + 1 - 1 / x.shape[2])


def _effective(x: FloatArray) -> FloatArray:
    """Effective number of draws (Q, C, S), by Geyer's initial monotone sequence."""
    _, chains, draws = x.shape
    noise = np.fft.rfft(x - x.mean(axis=2, keepdims=True), n=2 * draws, axis=2)
    power = (noise * noise.conj()).real.mean(axis=1)
    covariance = np.fft.irfft(power, n=2 * draws, axis=1)[:, :draws] / draws
    within = covariance[:, :1] * draws / (draws - 1)
    total = covariance[:, :1] + x.mean(axis=2).var(axis=1, ddof=1)[:, None]
    same = np.ptp(x, axis=(1, 2)) < 1e-15
    rho = 1 - (within - covariance) / np.where(same[:, None], 1.0, total)
    rho[:, 0] = 1.0
    # Sums of neighbouring lags: positive and falling in theory, so only while they are, in noise.
    lags = rho[:, : max(2, (draws - 1) // 2 * 2)].reshape(len(x), -1, 2)
    pairs = np.minimum.accumulate(lags.sum(axis=2), axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=1)
    positive[:, -1] = False
    count = positive.sum(axis=1)
    following = np.take_along_axis(lags[..., 0], count[:, None], axis=1)[:, 0]
    time = 2 * np.where(positive, pairs, 0.0).sum(axis=1) - 1 + np.maximum(following, 0.0)
    size = chains * draws
    ess = np.asarray(size / np.maximum(time, 1 / np.log10(size)), dtype=np.float64)
    ess[same] = size
    return ess


def pareto_shape(weights: ArrayLike) -> FloatArray:
    """Pareto k-hat of the largest weights of each set.

    Parameters
    ----------
    weights : shape (sets, draws)
        Not negative; need not add up to 1.

    Returns
    -------
    ndarray of shape (sets,)
        −∞ where the largest weights are all equal; NaN below 25 draws.
    """
    w = np.asarray(weights, dtype=np.float64)
    tail = _tail_length(w.shape[1], 1.0)
    if tail < 5:
        return np.full(len(w), np.nan)
    largest = np.sort(w, axis=1)[:, -tail - 1 :]
    excess = largest[:, 1:] - largest[:, :1]
    # Equal but for rounding.
    excess[excess < 1e-9 * largest[:, 1:]] = 0.0
    return _pareto(excess)[0]


def smoothed_weights(
    log_weights: ArrayLike, efficiency: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Importance weights whose largest are replaced by quantiles of a Pareto tail [VSG24]_.

    Parameters
    ----------
    log_weights : shape (sets, draws)
        Up to a constant of each set.
    efficiency
        Effective draws per draw, as `mean_efficiency` gives it: the tail is longer where draws
        are correlated.

    Returns
    -------
    ndarray of shape (sets, draws)
        Logarithms of weights that sum to 1 in each set.
    ndarray of shape (sets,)
        Pareto k-hat: weights are as they were where it is not finite, as in `pareto_shape`.
    """
    x = np.asarray(log_weights, dtype=np.float64)
    x = x - x.max(axis=1, keepdims=True)
    tail, shape = _tail_length(x.shape[1], efficiency), np.full(len(x), np.nan)
    if tail >= 5:
        place = np.argsort(x, axis=1)[:, -tail - 1 :]
        largest = np.exp(np.take_along_axis(x, place, axis=1))
        shape, scale = _pareto(largest[:, 1:] - largest[:, :1])
        smooth = np.flatnonzero(np.isfinite(shape))
        k = shape[smooth, None]
        level = -np.log1p(-(np.arange(tail) + 0.5) / tail)
        # At k = 0 the tail is exponential.
        quantile = np.where(abs(k) < 1e-15, level, np.expm1(k * level) / np.where(k == 0, 1, k))
        values = np.log(scale[smooth, None] * quantile + largest[smooth, :1])
        x[smooth[:, None], place[smooth, 1:]] = np.minimum(values, 0)
    return x - _log_sum(x)[:, None], shape


def mean_efficiency(draws: ArrayLike) -> float:
    """Return effective draws per draw, for means, averaged over quantities [VGS21]_.

    Parameters
    ----------
    draws : shape (chains, draws, ...)
    """
    x = np.asarray(draws, dtype=np.float64)
    if len(x) == 1:
        return 1.0
    halves = _halves(x.reshape(*x.shape[:2], -1))
    return float(_effective(halves).mean() / (len(x) * x.shape[1]))


def _log_sum(x: FloatArray) -> FloatArray:
    """Return the logarithm of the sum of exponentials of each row."""
    most = x.max(axis=1)
    return most + np.log(np.exp(x - most[:, None]).sum(axis=1))


def _tail_length(count: int, efficiency: float) -> int:
    return int(np.ceil(min(0.2 * count, 3 * (count / efficiency) ** 0.5)))


def _pareto(excess: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return shape and scale of the tail of each sorted row."""
    parts = [_pareto_block(part) for part in np.split(excess, range(_BLOCK, len(excess), _BLOCK))]
    shapes, scales = zip(*parts, strict=True)
    return np.concatenate(shapes), np.concatenate(scales)


def _pareto_block(excess: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior mean of the shape, and the scale, for sorted rows, by Zhang and Stephens (2009)."""
    n = excess.shape[1]
    points = 30 + int(n**0.5)
    flat = excess[:, -1] <= 0
    x = np.where(flat[:, None], 1.0, excess)
    # Their eq. 7: values of b, scaled by the first quartile of the tail.
    place = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    quarter = np.maximum(x[:, int(n / 4 + 0.5) - 1], 1e-300)
    b = place / (_SCALE * quarter[:, None]) + 1 / x[:, -1:]
    k = np.log1p(-b[:, :, None] * x[:, None]).mean(2)
    log_likelihood = n * (np.log(-b / k) - k - 1)
    weight = np.exp(log_likelihood - log_likelihood.max(1, keepdims=True))
    b_mean = (b * weight).sum(1) / weight.sum(1)
    shape = np.log1p(-b_mean[:, None] * x).mean(1)
    return np.where(flat, -np.inf, (n * shape + _WORTH * 0.5) / (n + _WORTH)), -shape / b_mean


def inference_data(
    groups: Mapping[str, Mapping[str, Any]],
    coords: Mapping[str, Sequence[Any]],
    dims: Mapping[str, list[str]],
) -> Any:
    """Return groups of variables as ``InferenceData`` (ArviZ 0) or ``DataTree`` (ArviZ 1).

    Parameters
    ----------
    groups
        Arrays by name, by group: of shape (chains, draws, ...) in ``"posterior"``,
        ``"log_likelihood"`` and ``"posterior_predictive"``, without draws in ``"observed_data"``
        and ``"constant_data"``. Empty groups are left out.
    coords
        Names along each dimension.
    dims
        Dimensions of each variable, after those of chains and draws.

    Raises
    ------
    DesignError
        ArviZ is not installed; the message says how to install it.
    """
    try:
        az: Any = import_module("arviz")
    except ModuleNotFoundError as error:
        msg = f"{error.name} is not installed, and this needs ArviZ: {install_hint('models')}"
        raise DesignError(msg) from error
    filled = {name: dict(group) for name, group in groups.items() if group}
    names = {"coords": dict(coords), "dims": dict(dims)}
    if az.__version__.startswith("0."):
        return az.from_dict(**filled, **names)
    return az.from_dict(filled, **names)
