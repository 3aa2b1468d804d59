"""Two models, a and b, on the same items in clusters, each right or wrong: how much better is b?

In each cluster only b is right on some items, only a on others, and the rest do not tell them
apart. Each cluster has its own probabilities of the three, drawn from a Dirichlet distribution with
means θ_b, θ_a and θ_0 and intra-cluster correlation ρ ~ U(0, 1). The posterior is integrated over
all of them, without sampling: m = θ_a + θ_b, q = θ_b / m and ρ on a grid of their log odds.
Exchanging a and b changes the sign of the limits, exactly.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import clustered
from evalstats_plugin.stats.cluster_counts import Tails, log_product, tails
from evalstats_plugin.stats.interval import (
    FloatArray,
    IntArray,
    increasing_root,
    tail_probability,
)
from evalstats_plugin.stats.posterior_grid import Axis, Grid, cardinal, grids, joined

# Nodes along logit m, logit q and logit ρ to begin with.
NODES = (36, 36, 40)
COARSE_NODES = 9
# Nodes of the integral that each limit is the root of.
LIMIT_NODES = 48
# They reach down to exp(-24) of the usual m - x.
LONGEST = 24.0
LIMITS_AT_ONCE = 64


class Counts(NamedTuple):
    """Items of each cluster, all of shape (pairs, C), size 0 for padding."""

    only_a: FloatArray
    only_b: FloatArray
    size: FloatArray


class Difference(NamedTuple):
    """P(b is right) - P(a is right): an interval, and how likely it is to be positive."""

    low: FloatArray
    high: FloatArray
    prob_better: FloatArray
    """½ exactly where the clusters are as much for a as for b."""


def difference(
    only_a: ArrayLike,
    only_b: ArrayLike,
    sizes: ArrayLike,
    *,
    confidence_level: float,
    prior: tuple[float, float],
) -> Difference:
    """Dirichlet-multinomial posterior of the difference: equal tails, and P(b is better).

    Limits are good to about 1e-8, and extended where necessary to hold the estimate.

    Parameters
    ----------
    only_a, only_b : shape (pairs, C)
        Items of each cluster that only one of the two gets right.
    sizes : shape (pairs, C)
        Items in all, 0 for padding. NaN where a pair has no items.
    prior
        Dirichlet prior of θ_a and of θ_b, and of θ_0: as for `paired_binary.dirichlet`.

    Examples
    --------
    >>> a, b, of = [[1, 0, 2, 0, 1]], [[2, 4, 1, 3, 0]], [[6, 6, 6, 6, 6]]
    >>> found = difference(a, b, of, confidence_level=0.95, prior=(0.5, 1.0))
    >>> print(f"{found.low[0]:.4f} {found.high[0]:.4f} {found.prob_better[0]:.4f}")
    -0.1304 0.4230 0.8673
    """
    tail = tail_probability(confidence_level)
    if min(prior) <= 0:
        raise ValueError(f"a Dirichlet prior needs positive numbers, got {prior}")
    a, b, size = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (only_a, only_b, sizes))
    )
    counts, sign = _ordered(Counts(a, b, size))
    found = np.full((3, len(size)), np.nan)
    for grid in _gathered(_posteriors(counts, prior)):
        found[:, grid.cells] = _of_grid(grid, tail)
    low, high, prob = found
    # Where a and b are alike, so are both limits, whatever the rounding.
    half = (high - low) / 2
    low, high = np.where(sign == 0, -half, low), np.where(sign == 0, half, high)
    low, high = np.where(sign < 0, -high, low), np.where(sign < 0, -low, high)
    prob = np.where(sign < 0, 1 - prob, np.where((sign == 0) & ~np.isnan(prob), 0.5, prob))
    with np.errstate(invalid="ignore"):
        estimate = (b - a).sum(axis=1) / size.sum(axis=1)
    return Difference(np.minimum(low, estimate), np.maximum(high, estimate), prob)


def _ordered(counts: Counts) -> tuple[Counts, FloatArray]:
    """Exchange a and b where that puts them into order: signs -1 where exchanged, 0 where alike.

    What is alike is what the posterior depends on, how many clusters have how many; so that the
    results do not depend, by a rounding error, on which model is called a.
    """
    a, b = (np.sort(x, axis=1)[:, ::-1] for x in (counts.only_a, counts.only_b))
    differ = a != b
    first = np.argmax(differ, axis=1)[:, None]
    step = np.take_along_axis(b, first, axis=1) - np.take_along_axis(a, first, axis=1)
    sign = np.sign(step[:, 0])
    exchanged = sign[:, None] < 0
    return Counts(
        np.where(exchanged, counts.only_b, counts.only_a),
        np.where(exchanged, counts.only_a, counts.only_b),
        counts.size,
    ), sign


def _posteriors(counts: Counts, prior: tuple[float, float]) -> Iterator[Grid]:
    """Posteriors of logit m, logit q and logit ρ; pairs without items are left out."""
    there = np.nonzero(counts.size.sum(axis=1) > 0)[0]
    counts = Counts(*(x[there] for x in counts))
    a, b, size = counts
    outcomes = tails(a), tails(b), tails(size - a - b), tails(size)

    def log_density(parameters: list[FloatArray], cells: IntArray) -> FloatArray:
        of_these: list[Tails] = [outcome.part(cells) for outcome in outcomes]
        return _log_posterior(of_these, prior, parameters)

    centres, scales = _guess(counts)
    for grid in grids(log_density, centres, scales, sizes=NODES, n_series=2, coarse=COARSE_NODES):
        yield grid._replace(cells=there[grid.cells])


def _guess(counts: Counts) -> tuple[list[FloatArray], list[FloatArray]]:
    """Where the parameters may be, and on what scale: normal tails, and beyond them wider ones."""
    n, a, b = (x.sum(axis=1) for x in (counts.size, counts.only_a, counts.only_b))
    m, q = (a + b + 0.5) / (n + 1), (b + 0.5) / (a + b + 1)
    plain = np.maximum(m * (1 - m) / (n + 1), 1e-300)
    effect = 1 + clustered.moments(counts.only_a + counts.only_b, counts.size).cr0 ** 2 / plain
    scale_m = 3 * np.sqrt(effect / ((n + 1) * m * (1 - m)))
    scale_q = 3 * np.sqrt(effect / ((a + b + 1) * q * (1 - q)))
    centres: list[FloatArray] = [special.logit(m), special.logit(q), np.full_like(n, -2.0)]
    return centres, [np.minimum(scale_m, 1), np.minimum(scale_q, 2), np.full_like(n, 2.0)]


def _log_posterior(
    outcomes: list[Tails], prior: tuple[float, float], parameters: list[FloatArray]
) -> FloatArray:
    """Up to a constant, shape (pairs, n_m, n_q, n_ρ)."""
    only_a, only_b, rest, either = outcomes
    m, q, w = (
        np.expand_dims(x, [axis for axis in (1, 2, 3) if axis != i + 1])
        for i, x in enumerate(parameters)
    )
    differ, alike = special.expit(m), special.expit(-m)
    odds = np.exp(w)
    found = log_product(only_b, differ * special.expit(q), odds)
    found += log_product(only_a, differ * special.expit(-q), odds)
    found += log_product(rest, alike, odds) - log_product(either, np.ones_like(w), odds)
    # Dirichlet in m and q, and ρ ~ U(0, 1), times the derivatives of all three.
    found += 2 * prior[0] * special.log_expit(m) + prior[1] * special.log_expit(-m)
    found += prior[0] * (special.log_expit(q) + special.log_expit(-q))
    found += special.log_expit(w) + special.log_expit(-w)
    return found


def _gathered(posteriors: Iterator[Grid]) -> Iterator[Grid]:
    """Posteriors of logit m and logit q alone, many pairs with the same number of nodes at once."""
    waiting: dict[tuple[int, ...], list[Grid]] = {}
    for grid in posteriors:
        flat = grid.without_last()
        same = waiting.setdefault(flat.weights.shape[1:], [])
        same.append(flat)
        if sum(len(one.cells) for one in same) >= LIMITS_AT_ONCE:
            yield joined(same)
            same.clear()
    yield from (joined(same) for same in waiting.values() if same)


def _of_grid(grid: Grid, tail: float) -> FloatArray:
    """Limits and P(b better), shape (3, pairs)."""
    share = grid.nodes[1]
    even = grid.axes[1].place(np.zeros((len(share), 1)))
    below, _ = cardinal(share, even)
    prob = 1 - np.einsum("ck,ck->c", below[:, 0], grid.marginal(1))
    prob = np.clip(prob, 0.0, 1.0)
    x = special.expit(grid.values(0))[:, :, None] * np.tanh(grid.values(1) / 2)[:, None, :]
    mean = (x * grid.weights).sum(axis=(1, 2))
    half = -special.ndtri(tail) * np.sqrt((x**2 * grid.weights).sum(axis=(1, 2)) - mean**2)
    # P(difference > high) = tail: above 0 where P(better) is larger than that; and so for low.
    worse_enough, better_enough = 1 - prob > tail, prob > tail
    low, high = (
        _limit(grid, np.where(on, sign, -sign), np.where(on, tail, 1 - tail), mean + sign * half)
        for sign, on in ((-1.0, worse_enough), (1.0, better_enough))
    )
    return np.stack([low, high, prob])


def _limit(grid: Grid, side: FloatArray, probability: FloatArray, start: FloatArray) -> FloatArray:
    """The difference x, of sign `side`, beyond which, away from 0, there is this probability."""
    axis = grid.axes[0]
    greatest = special.expit(axis.values(axis.last[:, None])[:, 0])

    def excess(at: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        share = special.expit(at)
        x = greatest[cells] * share
        beyond, density = _beyond(grid, cells, x, side[cells])
        return probability[cells] - beyond, density * x * (1 - share)

    guess = special.logit(np.clip(side * start / greatest, 1e-3, 1 - 1e-3))
    root = increasing_root(excess, guess, bracket=(-40.0, 30.0), tolerance=1e-5)
    return side * greatest * special.expit(root)


def _beyond(
    grid: Grid, cells: IntArray, x: FloatArray, side: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """P(side · difference > x), and the density of the difference there.

    An integral over m > x of the probability that q is far enough from ½; near m = x it is that
    of a distribution's end, so that v = log((m - x) / (1 - m)) is the variable.
    """
    axes = [axis.part(cells) for axis in grid.axes]
    v, step = _places(axes[0], x)
    ratio = np.exp(v)
    m_place = axes[0].place(np.log(x[:, None] + ratio) - np.log1p(-x)[:, None])
    m = (x[:, None] + ratio) / (1 + ratio)
    above = (1 - x[:, None]) * ratio / (1 + ratio)
    share = side[:, None] * np.log((m + x[:, None]) / above)
    q_place = axes[1].place(share)
    below, density = cardinal(grid.nodes[1][cells], q_place)
    beyond = np.where(side[:, None, None] > 0, 1 - below, below)
    _, at_m = cardinal(grid.nodes[0][cells], m_place)
    # dt/dv of m, and dt/dx of q.
    jacobian = step * ratio / (x[:, None] + ratio) / np.exp(axes[0].log_slope(m_place))
    slope = 2 * m / (above * (m + x[:, None])) / np.exp(axes[1].log_slope(q_place))
    of_m = np.matmul(at_m, grid.weights[cells])
    total = np.einsum("cvk,cvk,cv->c", of_m, beyond, jacobian)
    return total, np.einsum("cvk,cvk,cv->c", of_m, density, jacobian * slope)


def _places(axis: Axis, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes v of the integral over m > x, and the weight of each, shape (pairs, LIMIT_NODES)."""
    logit = axis.values(np.stack([axis.first, 0 * axis.first, axis.last], axis=1))
    m, log_rest = special.expit(logit), special.log_expit(-logit)
    above = m - x[:, None]
    last = np.log(above[:, 2]) - log_rest[:, 2]
    with np.errstate(divide="ignore"):
        first = np.log(np.maximum(above[:, 0], 0)) - log_rest[:, 0]
    centre = np.log(np.maximum(above[:, 1], above[:, 2] / 4)) - log_rest[:, 1]
    first = np.maximum(first, np.minimum(centre, last) - LONGEST)
    inner = Axis(np.clip(centre, first, last), np.clip((last - centre) / 4, 1e-3, 1), first, last)
    ends = inner.place(np.stack([first, last], axis=1))
    inner = inner._replace(first=ends[:, 0], last=ends[:, 1])
    t = inner.nodes(LIMIT_NODES)
    step = (t[:, 1] - t[:, 0])[:, None]
    return inner.values(t), step * np.exp(inner.log_slope(t))
