"""The top of concave log-likelihoods of contests, of many samples at once, by Newton's method.

Steps that would lower the log-likelihood are halved, so that every start leads to the top where
there is one. Without a prior there is one exactly if no group of players won every contest against
the others [Ford57]_.
"""
# PART sandwich - How sure estimates from contests are, without trusting the model of their chances [Hub67]_.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from evalstats_plugin.ranking.contests.contests import Counted, Design
from evalstats_plugin.ranking.contests.outcomes import Derivatives, Weights, derivatives
from evalstats_plugin.stats.arrays import FloatArray, IntArray

WEAK_SD = 5.0
"""Standard deviation of the prior under which undefeated players get finite ratings, in logits."""


# Half a contest between equals, half of it a tie, for samples without ties or of nothing else.
_EVEN = Weights(*(np.array([[x]]) for x in (0.125, 0.25, 0.125)))


# Rise of the log-likelihood, doubled, that the next step promises, at which it is the last.
_TOLERANCE = 1e-12


_MAX_STEPS = 200


# Logits by which a step may change a parameter at most.
_LONGEST = 5.0


# A Rao–Kupper threshold may shrink to this share of itself in a step.
_SHRINK = 0.2


class Prior(NamedTuple):
    """Normal prior of the parameters; flat where the precision is 0."""

    mean: FloatArray
    """Shape (p,)."""
    precision: FloatArray
    """Shape (p, p)."""


class Sample(NamedTuple):
    """What is fitted: B weightings of the cells, and which of them need a prior."""

    weights: Weights
    """Each of shape (K, B)."""
    prior: Prior | None = None
    with_prior: FloatArray | None = None
    """1 where the prior counts, else 0, shape (B,); default: for all."""
    even: FloatArray | None = None
    """1 where half a contest between equals is added, for the tie parameter; shape (B,)."""


class Maximum(NamedTuple):
    """Estimates of B samples."""

    parameters: FloatArray
    """Shape (p, B); ratings keep the mean of the start, unless a prior moves them."""
    information: FloatArray
    """Minus second derivatives, the prior's among them, shape (B, p, p)."""
    log_likelihood: FloatArray
    """Of the contests alone, shape (B,)."""
    converged: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    iterations: int


class _Point(NamedTuple):
    """The objective at parameters (p, B)."""

    value: FloatArray
    gradient: FloatArray
    cells: Derivatives


def maximise(
    design: Design, sample: Sample, start: FloatArray, held: FloatArray | None = None
) -> Maximum:
    """Climb from the start to the top.

    Parameters
    ----------
    start : shape (p, B)
    held : shape (p,)
        A linear combination of the parameters that keeps the value that it has at the start.
    """
    parameters = start.copy()
    at = _point(design, sample, parameters)
    active, iterations = np.ones(start.shape[1], dtype=np.bool_), 0
    while active.any() and iterations < _MAX_STEPS:
        iterations += 1
        step = _step(design, _information(design, sample, parameters, at), at.gradient, held)
        gain = (step * at.gradient).sum(axis=0)
        step = _shortened(design, parameters, step) * active
        parameters, at = _climb(design, sample, parameters, (step, at))
        active &= ~(gain < _TOLERANCE)
    return Maximum(
        parameters,
        _information(design, sample, parameters, at),
        _log_likelihood(at),
        ~active,
        iterations,
    )


def has_top(design: Design, weights: Weights) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether ratings of maximum likelihood are finite, for each of B samples (K, B).

    From one player, every other must be reached along wins, and along losses.
    """
    kind = np.abs(design.against)
    edges = [(weights.won + weights.tied > 0), (weights.lost + weights.tied > 0)]
    first, second = (kind + s * design.against for s in (1, -1))
    found = np.ones(weights.won.shape[1], dtype=np.bool_)
    for forth, back in (edges, edges[::-1]):
        reached = np.zeros((design.n, len(found)))
        reached[0] = 1
        while True:
            to = second.T @ ((first @ reached > 0) & forth).astype(np.float64)
            fro = first.T @ ((second @ reached > 0) & back).astype(np.float64)
            fresh = ((reached + to + fro) > 0).astype(np.float64)
            if np.array_equal(fresh, reached):
                break
            reached = fresh
        found &= reached.all(axis=0)
    return found


def start_of(design: Design, weights: Weights | None = None) -> FloatArray:
    """Ratings by the share of contests won, or everybody equal; ties as likely as not, (p, B)."""
    start = np.zeros((design.size, 1 if weights is None else weights.won.shape[1]))
    if weights is not None:
        # Of the weight of all contests, ahead is what a player won more than it lost.
        ahead = design.against.T @ (weights.won - weights.lost)
        every = abs(design.against).T @ (weights.won + weights.tied + weights.lost)
        start[: design.n] = np.log((every + ahead + 1) / (every - ahead + 1))
        start[: design.n] -= start[: design.n].mean(axis=0)
    if design.ties == "rao-kupper":
        start[-1] = np.log(2)
    return start


def _point(design: Design, sample: Sample, parameters: FloatArray) -> _Point:
    tie = design.tie(parameters)
    cells = derivatives(design.ties, design.ahead(parameters), tie, sample.weights)
    value, gradient = cells.value.sum(axis=0), design.summed(cells.by_x, cells.by_tie)
    if sample.prior is not None:
        away = parameters - sample.prior.mean[:, None]
        pull = sample.prior.precision @ away * _share(sample)
        value, gradient = value - (away * pull).sum(axis=0) / 2, gradient - pull
    if sample.even is not None:
        extra = derivatives(design.ties, 0 * tie, tie, _EVEN.times(sample.even))
        value, gradient[-1] = value + extra.value[0], gradient[-1] + extra.by_tie[0]
    return _Point(value, gradient, cells)


def _share(sample: Sample) -> FloatArray:
    return np.ones(1) if sample.with_prior is None else sample.with_prior


def _log_likelihood(at: _Point) -> FloatArray:
    return at.cells.value.sum(axis=0)


def _information(design: Design, sample: Sample, parameters: FloatArray, at: _Point) -> FloatArray:
    out = design.outer(*at.cells[3:])
    if sample.prior is not None:
        out += sample.prior.precision * _share(sample)[:, None, None]
    if sample.even is not None:
        tie = design.tie(parameters)
        extra = derivatives(design.ties, 0 * tie, tie, _EVEN.times(sample.even))
        out[:, -1, -1] += extra.information_tie[0]
    return out


def _step(
    design: Design, information: FloatArray, gradient: FloatArray, held: FloatArray | None
) -> FloatArray:
    """Newton's step, shape (p, B), which leaves the mean of the ratings where it is."""
    own = np.arange(design.size)
    scale = np.abs(information[:, own, own]).mean(axis=1)
    regular = information.copy()
    regular[:, : design.n, : design.n] += (scale / design.n)[:, None, None]
    # Samples may not tell of a coefficient at all: then it stays.
    regular[:, own, own] += 1e-11 * scale[:, None] + 1e-300
    step: Any = np.linalg.solve(regular, gradient.T[..., None])[..., 0]
    if held is not None:
        along = np.linalg.solve(regular, np.broadcast_to(held[:, None], (*gradient.T.shape, 1)))
        along = along[..., 0]
        step -= along * ((step @ held) / (along @ held))[:, None]
    return step.T


def _shortened(design: Design, parameters: FloatArray, step: FloatArray) -> FloatArray:
    length = np.abs(step[: design.n]).max(axis=0)
    factor = np.minimum(1, _LONGEST / np.maximum(length, 1e-300))
    if design.with_ties:
        tie, change = parameters[-1], step[-1]
        if design.ties == "rao-kupper":
            room = (_SHRINK - 1) * tie / np.minimum(change, -1e-300)
            factor = np.minimum(factor, np.where(change < 0, room, 1))
        factor = np.minimum(factor, _LONGEST / np.maximum(np.abs(change), 1e-300))
    return step * factor


def _climb(
    design: Design, sample: Sample, parameters: FloatArray, way: tuple[FloatArray, _Point]
) -> tuple[FloatArray, _Point]:
    """Go the step, or half of it, or a quarter, where that is up."""
    step, at = way
    floor = at.value - 1e-10 * (1 + np.abs(at.value))
    lower = np.zeros(len(floor), dtype=np.bool_)
    for _ in range(40):
        tried = parameters + step
        found = _point(design, sample, tried)
        lower = ~(found.value >= floor)
        if not lower.any():
            return tried, found
        step = np.where(lower, step / 2, step)
    tried = parameters + np.where(lower, 0, step)
    return tried, _point(design, sample, tried)


class Covariance(NamedTuple):
    """Of all parameters, those of ratings being of ratings less their mean."""

    covariance: FloatArray
    """Shape (p, p)."""
    groups: int | None
    """Number of clusters, where these are what varies."""


def covariance_of(
    found: Counted, parameters: FloatArray, information: FloatArray, kind: str, parts: IntArray
) -> Covariance:
    """Covariance of estimates.

    Clustered, it is multiplied by G / (G - 1) for G clusters, as CR1 of a mean is.

    Parameters
    ----------
    parameters : shape (p,)
    information : shape (p, p)
        Minus second derivatives, a prior's among them.
    kind
        ``"model"`` (the inverse information), ``"sandwich"``, ``"cluster"`` or ``"judge"``.
    parts : shape (n,)
        Strong components of the players. Contests between them all ended alike, so that their
        scores do not vary: for these the model's own information stands in, and the prior's for
        the prior.
    """
    design = found.design
    bread = inverse(information, design.n)
    if kind == "model":
        return Covariance(bread, None)
    cells = derivatives(design.ties, *_predictors(found, parameters), found.weights())
    expected = design.outer(*cells[3:])[0]
    rows = derivatives(design.ties, *_predictors(found, parameters, found.cell), _column(found))
    one_way = parts[design.first] != parts[design.second]
    varies = ~one_way[found.cell]
    by_x, by_tie = rows.by_x[:, 0] * varies, rows.by_tie[:, 0] * varies
    groups = None
    if kind == "sandwich":
        middle = design.outer(
            *(_by_cell(found, each) for each in (by_x**2, by_x * by_tie, by_tie**2))
        )[0]
    else:
        members = found.groups(kind)
        groups = members.shape[0]
        scores = members @ _scores(found, by_x, by_tie)
        middle = (scores.T @ scores).toarray() * (groups / (groups - 1))
    if one_way.any():
        middle += design.outer(*(each * one_way[:, None] for each in cells[3:]))[0]
    middle += information - expected
    return Covariance(bread @ middle @ bread, groups)


def inverse(information: FloatArray, n: int) -> FloatArray:
    """Covariance of n ratings that sum to 0, and of what else there is."""
    regular = information.copy()
    # Moves along the common shift of the ratings only, which is then taken out.
    regular[:n, :n] += np.abs(np.diagonal(information)).mean() / n
    inverted: Any = np.linalg.inv(regular)
    return centred(inverted, n)


def centred(covariance: FloatArray, n: int) -> FloatArray:
    """Covariance with the mean of the first n taken off each of them."""
    out = covariance.copy()
    out[:n] -= out[:n].mean(axis=0)
    out[:, :n] -= out[:, :n].mean(axis=1, keepdims=True)
    return (out + out.T) / 2


def _predictors(
    found: Counted, parameters: FloatArray, cell: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """How far the first is ahead in each cell, or in each row; and the tie parameter."""
    x = found.design.ahead(parameters[:, None])
    return (x if cell is None else x[cell]), found.design.tie(parameters[:, None])


def _column(found: Counted) -> Weights:
    return Weights(*(each[:, None] for each in found.each))


def _by_cell(found: Counted, values: FloatArray) -> FloatArray:
    cells = len(found.design.first)
    summed = np.bincount(found.cell, found.count * values, cells)
    return summed.astype(np.float64)[:, None]


def _scores(found: Counted, by_x: FloatArray, by_tie: FloatArray) -> Any:
    """Scores of one contest of each row, sparse (R, p)."""
    design, scale = found.design, by_x[:, None]
    parts: list[Any] = [sparse.csr_array(design.against[found.cell] * scale)]
    if design.extra.shape[1]:
        parts.append(sparse.csr_array(design.extra[found.cell] * scale))
    if design.with_ties:
        parts.append(sparse.csr_array(by_tie[:, None]))
    return sparse.hstack(parts, format="csr")
