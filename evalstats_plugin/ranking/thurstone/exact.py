"""Moments, ranks and pairs of the exact posterior, by integration in the space of the ratings.

The posterior of P parameters is proportional to the prior times the likelihood of all answers.
Importance sampling integrates it with lattice points around the normal N(μ, Σ) of expectation
propagation, widened to N(μ, c Σ). Only differences from that normal are integrated, by Stein's
identity: with g the gradient of the log posterior and y = x - μ,

    E[x] = μ + E[e],  E[y y'] = Σ + E[e e' + Σ (∇²log p + Σ⁻¹) Σ],  e = y + Σ g,

and likewise for P(x_i > x_j) and P(rank of i ≤ k), so that no integrand is an indicator. The same
points with eight fixed shifts give the error. Everything is deterministic, and averaged over the
permutations that leave the answers as they are: equal records have equal numbers.

* `integrate`: the posterior given δ, half the width of a tie, or averaged over δ
* `symmetry_of`: which pairs of players the answers do not tell apart
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse, special
from scipy.sparse import csgraph

from evalstats_plugin.ranking.ratings.fit import averaged
from evalstats_plugin.ranking.thurstone.design import Prior, Sites, entries, inverse_of
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.streams import stream

MOST_PLAYERS = 30
"""Most players that are integrated: as many as the lattice has dimensions."""
TARGET = 1e-4
"""Stated error at which integration stops."""

_GENERATOR = np.array(
    [
        1, 51995, 1867, 23925, 27801, 38691, 30225, 9707, 27279, 22177,
        22915, 26075, 33193, 62761, 42301, 62887, 59441, 57517, 49857, 41429,
        10131, 52089, 15825, 1173, 58329, 36027, 33849, 6627, 50009, 7247,
    ]
)  # fmt: skip
"""Generating vector of the lattice, made by tests/generate/ranking/lattice.py."""
_SHIFTS = 8
"""Number of shifts of the lattice, from which the error comes."""
_FIRST, _LAST = 9, 16
"""Binary logarithms of the least and the largest number of points with one shift."""
_WORK = 30_000_000
"""Most points times targets: about five seconds."""
_WIDER = 3.0
"""The proposal's variance is 1 + this / dimensions times the normal's, for longer tails."""
_CELLS = 400_000
"""Most numbers in a table at a time."""
_ERRORS = 4.0
"""Stated error in standard errors over the shifts."""
_NODES = 20
"""About as many values of δ as there are with ties."""
_MOST_TRIED = 20_000
"""Most steps of the search for a permutation."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Integrated:
    """Posterior of P parameters; n of them are ratings."""

    mean: FloatArray
    """Shape (P,)."""
    covariance: FloatArray
    """Shape (P, P)."""
    ranks: FloatArray
    """Probability that player i has rank k, shape (n, n)."""
    ahead: FloatArray
    """Probability that player i is better than player j, shape (n, n)."""
    tie_weight: FloatArray
    """Posterior probability of each value of δ."""
    log_evidence: float
    moments_error: float
    """Stated error of `mean` and `covariance`: 4 standard errors of the worst entry."""
    probabilities_error: float
    """Stated error of `ranks` and `ahead`."""
    points: int
    """Number of points, all shifts and values of δ together."""
    effective: float
    """Effective share of the points, at the likeliest δ."""
    draws: FloatArray
    """Points in proportion to their weights, shape (S, P)."""


class Near(NamedTuple):
    """Value of δ, half the width of a tie, with the normal near the posterior of P parameters."""

    tie: float
    mean: FloatArray
    covariance: FloatArray
    log_weight: float = 0.0
    """Log of δ's prior density and of the step, without which the evidence has no weight."""
    share: float = 1.0
    """About the posterior probability of this value."""


def integrate(
    sites: Sites,
    prior: Prior,
    near: Sequence[Near],
    *,
    players: int,
    symmetry: Symmetry | None = None,
    draws: int = 4000,
) -> Integrated:
    """Integrate the posterior given each δ, and average over these.

    Points double until the stated error is at most `TARGET`, or about five seconds are used up.

    Parameters
    ----------
    near
        One δ, or nodes of the trapezoidal rule; each with the normal of expectation propagation.
    players
        Number of ratings n; further parameters follow.
    draws
        How many points to return as draws.
    """
    parts = [_given(_Problem(sites, prior, node, players), symmetry, draws) for node in near]
    # Of all shifts together, and of each.
    log_evidence = np.stack([part.log_evidence for part in parts], axis=1)
    log_evidence += [node.log_weight for node in near]
    top = log_evidence.max(axis=1, keepdims=True)
    weight = np.exp(log_evidence - top)
    total = weight.sum(axis=1, keepdims=True)
    weight /= total
    results = [_mixed(each, [part.results[k] for part in parts]) for k, each in enumerate(weight)]
    errors = _stated_errors(results[1:])
    mean, covariance, ranks, ahead = results[0]
    counts = np.diff(np.floor(np.cumsum(weight[0]) * draws + 0.5).astype(int), prepend=0)
    taken = [part.draws(int(count)) for part, count in zip(parts, counts, strict=True)]
    return Integrated(
        mean=mean,
        covariance=covariance,
        ranks=ranks,
        ahead=ahead,
        tie_weight=weight[0],
        log_evidence=float(top[0, 0] + np.log(total[0, 0])),
        moments_error=max(errors[:2]),
        probabilities_error=max(errors[2:]),
        points=sum(part.points for part in parts),
        effective=parts[int(weight[0].argmax())].effective,
        draws=np.concatenate(taken),
    )


class _Result(NamedTuple):
    mean: FloatArray
    covariance: FloatArray
    ranks: FloatArray
    ahead: FloatArray


def _stated_errors(by_shift: Sequence[_Result]) -> list[float]:
    """Error of the worst entry of each field, by the results of single shifts."""
    return [
        _ERRORS / _SHIFTS**0.5 * float(np.std(np.stack(values), axis=0, ddof=1).max())
        for values in zip(*by_shift, strict=True)
    ]


def _mixed(weight: FloatArray, parts: Sequence[_Result]) -> _Result:
    """Average posteriors; the covariance has that of their means."""
    mean, covariance, ranks, ahead = (
        np.einsum("k,k...->...", weight, np.stack(values)) for values in zip(*parts, strict=True)
    )
    for share, part in zip(weight.tolist(), parts, strict=True):
        covariance = covariance + share * np.outer(part.mean - mean, part.mean - mean)
    return _Result(mean, covariance, ranks, ahead)


class _Given(NamedTuple):
    """Posterior given δ: of all shifts together, followed by that of each."""

    problem: _Problem
    results: list[_Result]
    log_evidence: FloatArray
    kept: list[_Points]
    points: int
    effective: float

    def draws(self, size: int) -> FloatArray:
        """Points by systematic resampling with their weights, and a level as a priori."""
        problem = self.problem
        weight = np.concatenate([points.weight for points in self.kept])
        y = np.concatenate([points.y for points in self.kept])
        reached = np.cumsum(weight) / weight.sum()
        at = np.searchsorted(reached, (np.arange(size) + 0.5) / size)
        draws = problem.near.mean + y[np.minimum(at, len(y) - 1)]
        level = stream(0, "level of points").standard_normal((size, 1))
        draws[:, : problem.n] += (problem.level / problem.n) ** 0.5 * level
        return draws


def _given(problem: _Problem, symmetry: Symmetry | None, draws: int) -> _Given:
    share = problem.near.share
    sums = [_Sums.empty(problem) for _ in range(_SHIFTS)]
    shifts = stream(0, "shifts of lattice points").random((_SHIFTS, problem.dimensions))
    work = _WORK * share / _SHIFTS / problem.targets
    most = int(np.clip(np.log2(max(work, 1)), _FIRST, _LAST))
    # Errors add up over several values of δ; unlikely ones matter little.
    target = TARGET if share == 1 else TARGET / 2 / min(1, _NODES * share)
    kept: list[_Points] = []
    level = _FIRST
    while True:
        for total, shift in zip(sums, shifts, strict=True):
            for lattice in _lattice(level, shift, problem.block):
                points = problem.points(lattice)
                total.add(points, problem)
                kept.append(points.only(draws))
        whole = sum(sums[1:], sums[0])
        slope = whole.slope()
        results = [total.result(problem, slope, symmetry) for total in (whole, *sums)]
        if max(_stated_errors(results[1:])) < target or level == most:
            break
        level += 1
    mass = np.array([total.weight / total.count for total in (whole, *sums)])
    return _Given(
        problem, results, np.log(mass) + problem.log_scale, kept, whole.count,
        whole.weight**2 / whole.square / whole.count,
    )  # fmt: skip


class _Points(NamedTuple):
    """Points y = x - μ with their weights and the derivatives of the log posterior there."""

    y: FloatArray
    """Shape (B, P)."""
    weight: FloatArray
    """Shape (B,)."""
    gradient: FloatArray
    """Shape (B, P)."""
    curvature: FloatArray
    """Second derivatives of the sites' log likelihoods, shape (B, S)."""

    def only(self, most: int) -> _Points:
        """Keep what draws need, of a regular selection of the points."""
        step = max(len(self.y) // most, 1)
        none = np.empty((0, 0))
        return _Points(self.y[::step], self.weight[::step] * step, none, none)


class _Problem:
    """What stays the same from point to point."""

    def __init__(self, sites: Sites, prior: Prior, near: Near, n: int) -> None:
        self.sites, self.prior, self.near, self.n = sites, prior, near, n
        self.size = len(near.mean)
        self.rows: FloatArray = sites.design.toarray()
        self.prior_precision, prior_scale = inverse_of(prior.covariance)
        self.precision, near_scale = inverse_of(near.covariance)
        # Variance of the ratings' level, times n, if their differences do not depend on it; or 0.
        sums = prior.covariance[:n, :n].sum(axis=0)
        level = self.level = float(sums[0]) if np.ptp(sums) <= 1e-12 * sums[0] else 0.0
        covariance = near.covariance
        if level:
            # It is independent of the answers, too, and left out.
            ones = np.zeros(self.size)
            ones[:n] = n**-0.5
            covariance = covariance - level * np.outer(ones, ones)
        self.dimensions = self.size - (level > 0)
        self.root = _root(covariance, self.dimensions)
        self.wider = 1 + _WIDER / max(self.dimensions, 1)
        # Precision of a rating given the others, at a flat level.
        flat = 1 / (n * level) if level else 0.0
        self.bend = (np.diagonal(self.precision)[:n] - flat) ** -0.5
        self.pairs = np.triu_indices(n, 1)
        self.upper = np.triu_indices(self.size)
        i, j = self.pairs
        variances = np.diagonal(near.covariance)
        self.apart = np.sqrt(variances[i] + variances[j] - 2 * near.covariance[i, j])
        self.bar = (near.mean[j] - near.mean[i]) / self.apart
        self.tails = special.ndtr(self.bar), special.ndtr(-self.bar)
        lean = self.rows @ near.covariance
        self.leaning: FloatArray = lean[:, self.upper[0]] * lean[:, self.upper[1]]
        fixed = near.covariance - near.covariance @ self.prior_precision @ near.covariance
        self.fixed = fixed[self.upper]
        self.targets = self.size + len(self.upper[0]) + len(i) + n * (n - 1)
        self.block = max(_CELLS // max(self.targets, len(self.rows)), 16)
        # Weights are relative to that at the centre, so that none underflows.
        away = near.mean - prior.mean
        centre = sites.log_likelihood(self.rows @ near.mean, near.tie).sum()
        self.offset = float(centre - 0.5 * away @ self.prior_precision @ away)
        # log of the normal's density over the prior's, and what weights leave out.
        self.log_scale = 0.5 * (near_scale - prior_scale) + self.offset

    def points(self, lattice: FloatArray) -> _Points:
        """Weigh lattice points in (0, 1), shape (B, dimensions)."""
        z = special.ndtri(lattice) * self.wider**0.5
        y = z @ self.root.T
        x = self.near.mean + y
        difference = x @ self.rows.T
        value, first, second = self.sites.slopes(difference, self.near.tie)
        away = x - self.prior.mean
        pull = away @ self.prior_precision
        log_weight = value.sum(axis=1) - 0.5 * (away * pull).sum(axis=1) - self.offset
        log_weight += 0.5 * (z * z).sum(axis=1) / self.wider
        log_weight += 0.5 * self.dimensions * np.log(self.wider)
        return _Points(y, np.exp(log_weight), first @ self.rows - pull, second)

    def of(self, points: _Points) -> FloatArray:
        """Integrands of all targets, shape (B, targets)."""
        y, _, gradient, curvature = points
        e = y + gradient @ self.near.covariance
        i, j = self.upper
        square = e[:, i] * e[:, j] + self.fixed
        if len(self.rows):
            square += curvature @ self.leaning
        # P(x_i > x_j) less that of the normal, for i < j.
        i, j = self.pairs
        z = (y[:, i] - y[:, j]) / self.apart
        solved = _stein(z, self.bar, np.where(z < 0, *self.tails))
        ahead = solved * (e[:, i] - e[:, j]) / self.apart
        return np.concatenate([e, square, ahead, self._above(points)], axis=1)

    def _above(self, points: _Points) -> FloatArray:
        """P(rank of i ≤ k) for k < n: given all others, x_i is nearly normal."""
        n = self.n
        x = (self.near.mean + points.y)[:, :n]
        pull = (points.y @ self.precision)[:, :n]
        pulled, rest = pull * self.bend, (points.gradient[:, :n] + pull) * self.bend
        centre = x - pulled * self.bend
        falling = np.sort(x, axis=1)[:, ::-1]
        place = np.argsort(np.argsort(-x, axis=1, kind="stable"), axis=1, kind="stable")
        at = np.arange(n - 1) + (np.arange(n - 1) >= place[:, :, None])
        others = np.take_along_axis(falling[:, None, :], at, axis=2)
        bar = (others - centre[:, :, None]) / self.bend[:, None]
        z = pulled[:, :, None]
        beyond = special.ndtr(np.where(z < 0, bar, -bar))
        above = np.where(z < 0, 1 - beyond, beyond)
        above += _stein(z, bar, beyond) * rest[:, :, None]
        return above.reshape(len(x), -1)


def _root(covariance: FloatArray, rank: int) -> FloatArray:
    """Factor a covariance of this rank, the widest direction first, where a lattice is best.

    Cholesky's method with pivots; of equal variances the first, on any processor.
    """
    rest = covariance.copy()
    root = np.zeros((len(rest), rank))
    for k in range(rank):
        left = np.diagonal(rest)
        pivot = int(np.argmax(left >= left.max() * (1 - 1e-9)))
        root[:, k] = rest[:, pivot] / max(left[pivot], 1e-300) ** 0.5
        rest -= np.outer(root[:, k], root[:, k])
    return root


def _stein(z: FloatArray, bar: FloatArray, beyond: FloatArray) -> FloatArray:
    """Minus the solution of f'(z) - z f(z) = 1{z > bar} - Φ(-bar); positive and continuous.

    By the tail of the normal beyond the bar, on that side of 0 where z is: no factor loses digits.
    """
    ratio = math.sqrt(np.pi / 2) * special.erfcx(np.abs(z) * math.sqrt(0.5))
    whole = math.sqrt(2 * np.pi) * np.exp(z * z / 2) - ratio
    return np.where((z > bar) == (z < 0), whole * beyond, ratio * (1 - beyond))


def _lattice(level: int, shift: FloatArray, block: int) -> Iterator[FloatArray]:
    """Points that 2**level have beyond half of them; all of them at the first level."""
    size = 1 << level
    places = np.arange(size) if level == _FIRST else np.arange(1, size, 2)
    vector = _GENERATOR[: len(shift)]
    for start in range(0, len(places), block):
        at = places[start : start + block, None] * vector % size / size + shift
        # The tent makes a smooth integrand periodic.
        folded = 1 - np.abs(2 * (at % 1) - 1)
        yield np.clip(folded, 1e-15, 1 - 1e-15)


@dataclass
class _Sums:
    """Weighted sums over points of K targets h, and of the P gradients g, which average to 0."""

    weight: float
    square: float
    count: int
    h: FloatArray
    g: FloatArray
    square_g: FloatArray
    gg: FloatArray
    """Σ w² g g', shape (P, P)."""
    gh: FloatArray
    """Σ w² g h', shape (P, K)."""

    @classmethod
    def empty(cls, problem: _Problem) -> _Sums:
        p, k = problem.size, problem.targets
        zeros = np.zeros
        return cls(0.0, 0.0, 0, zeros(k), zeros(p), zeros(p), zeros((p, p)), zeros((p, k)))

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            *(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    def add(self, points: _Points, problem: _Problem) -> None:
        h, g, w = problem.of(points), points.gradient, points.weight
        squares = w * w
        weighted = g.T * squares
        self.weight += float(w.sum())
        self.square += float(squares.sum())
        self.count += len(w)
        self.h += w @ h
        self.g += w @ g
        self.square_g += squares @ g
        self.gg += weighted @ g
        self.gh += weighted @ h

    def slope(self) -> FloatArray:
        """Regression of the targets on the gradients, shape (P, K)."""
        across = self.gh - np.outer(self.square_g, self.h / self.weight)
        return np.asarray(np.linalg.lstsq(self.gg, across, rcond=1e-10)[0], dtype=np.float64)

    def result(self, problem: _Problem, slope: FloatArray, symmetry: Symmetry | None) -> _Result:
        n, p, near = problem.n, problem.size, problem.near
        h = (self.h - self.g @ slope) / self.weight
        sizes = np.cumsum([p, len(problem.upper[0]), len(problem.pairs[0])])
        shift, square, ahead_of, above = np.split(h, sizes)
        covariance = np.zeros((p, p))
        covariance[problem.upper] = square
        covariance += np.triu(covariance, 1).T
        covariance += near.covariance - np.outer(shift, shift)
        i, j = problem.pairs
        ahead = np.full((n, n), 0.5)
        ahead[i, j] = problem.tails[1] + ahead_of
        ahead[j, i] = 1 - ahead[i, j]
        cumulative = np.concatenate([above.reshape(n, n - 1), np.ones((n, 1))], axis=1)
        ranks = np.maximum(np.diff(cumulative, axis=1, prepend=0), 0)
        for _ in range(20):  # Each player has one rank, each rank one player.
            ranks /= np.maximum(ranks.sum(axis=0), 1e-300)
            ranks /= np.maximum(ranks.sum(axis=1, keepdims=True), 1e-300)
        moments = _Result(near.mean + shift, covariance, ranks, ahead)
        return moments if symmetry is None else _symmetrised(moments, symmetry, n)


def _symmetrised(result: _Result, symmetry: Symmetry, n: int) -> _Result:
    """Average over players, and over pairs of players, that the answers do not tell apart."""
    labels, reverse = symmetry
    players = np.diagonal(labels)
    mean, covariance = result.mean.copy(), result.covariance.copy()
    mean[:n] = averaged(mean[:n], players)
    between = averaged(covariance[:n, :n].ravel(), labels.ravel()).reshape(n, n)
    for k in range(n, len(mean)):
        covariance[:n, k] = covariance[k, :n] = averaged(covariance[:n, k], players)
    ranks = np.stack([averaged(column, players) for column in result.ranks.T], axis=1)
    ahead = averaged(result.ahead.ravel(), labels.ravel()).reshape(n, n)
    if reverse is not None:
        mean[:n] = (mean[:n] - mean[reverse]) / 2
        between = (between + between[np.ix_(reverse, reverse)]) / 2
        ranks = (ranks + ranks[reverse, ::-1]) / 2
        ahead = (ahead + ahead[np.ix_(reverse, reverse)].T) / 2
    covariance[:n, :n] = (between + between.T) / 2
    return _Result(mean, covariance, ranks, (ahead + 1 - ahead.T) / 2)


class Symmetry(NamedTuple):
    """Permutations of n players that leave the answers as they are, or turn all of them round."""

    labels: IntArray
    """Pairs with one label are mapped on each other, shape (n, n). Players with one label on the
    diagonal have the same record against the same opposition."""
    reverse: IntArray | None
    """A permutation that makes every win a loss, shape (n,), if there is one."""


def symmetry_of(sites: Sites, n: int) -> Symmetry:
    """Find permutations of the players that the answers do not notice."""
    edges = _edges(sites, n)
    colours = _colours(edges, edges)[0]
    i, j = np.divmod(np.arange(n * n), n)
    start, to = [np.arange(n * n)], [np.arange(n * n)]
    for a in range(n):
        for b in range(a + 1, n):
            if colours[a] == colours[b]:
                permutation = _extended(edges, edges, (colours, colours), {a: b}, [_MOST_TRIED])
                if permutation is not None:
                    start.append(start[0])
                    to.append(permutation[i] * n + permutation[j])
    ends = np.concatenate(start), np.concatenate(to)
    graph = sparse.coo_array((np.ones(len(ends[0])), ends), shape=(n * n, n * n))
    labels: IntArray = csgraph.connected_components(graph, directed=False)[1].astype(np.int64)
    reverse = None
    if sites.design.shape[1] == n:
        both = _colours(edges, edges.T)
        reverse = _extended(edges, edges.T, both, {}, [_MOST_TRIED])
    return Symmetry(labels.reshape(n, n), reverse)


def _edges(sites: Sites, n: int) -> IntArray:
    """Number the different records of i against j, in this order; shape (n, n)."""
    records = np.zeros((n, n, 6))
    i, j = entries(sites.design)[:, :2].T
    ordered = sites.design.shape[1] > n
    shown = np.stack([sites.wins, sites.ties, sites.losses], axis=1)
    turned = shown if ordered else shown[:, ::-1]
    records[i, j, :3] += shown
    records[j, i, 3 if ordered else 0 : None if ordered else 3] += turned
    _, number = np.unique(records.reshape(n * n, 6), axis=0, return_inverse=True)
    return np.asarray(number, dtype=np.int64).reshape(n, n)


def _colours(edges: IntArray, image: IntArray) -> tuple[IntArray, IntArray]:
    """Refine colours of players by their records against players of each colour, until stable."""
    n = len(edges)
    colours = [0] * (2 * n)
    while True:
        keys = [
            (colour[i], *sorted((colour[k], table[i, k], table[k, i]) for k in range(n) if k != i))
            for colour, table in ((colours[:n], edges), (colours[n:], image))
            for i in range(n)
        ]
        number = {key: at for at, key in enumerate(sorted(set(keys)))}
        if len(number) == len(set(colours)):
            whole: IntArray = np.array(colours, dtype=np.int64)
            return whole[:n], whole[n:]
        colours = [number[key] for key in keys]


def _extended(
    edges: IntArray,
    image: IntArray,
    colours: tuple[IntArray, IntArray],
    to: dict[int, int],
    left: list[int],
) -> IntArray | None:
    """Extend a partial permutation so that edges[a, b] == image[to a, to b], by backtracking."""
    n = len(edges)
    if len(to) == n:
        return np.array([to[k] for k in range(n)])
    left[0] -= 1
    if left[0] < 0:
        return None
    placed, images = list(to), list(to.values())
    a = next(k for k in range(n) if k not in to)
    # Its own place first, so that permutations move few players.
    for b in (a, *range(n)):
        if b in images or colours[0][a] != colours[1][b]:
            continue
        same = (edges[a, placed] == image[b, images]).all()
        if same and (edges[placed, a] == image[images, b]).all():
            permutation = _extended(edges, image, colours, {**to, a: b}, left)
            if permutation is not None:
                return permutation
    return None
