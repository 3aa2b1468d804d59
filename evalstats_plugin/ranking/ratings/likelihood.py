"""Maximum likelihood of contests by Newton's method, for many samples at once; covariances.

* `maximise`: `stats.newton.newton`. The log-likelihoods are concave, so every start
  leads to the maximum if there is one. Without a prior it exists exactly if no group of players
  won every contest against the others [Ford57]_: `has_finite_maximum`.
* `covariance_of`: by the model's information, or by the sandwich [Hub67]_, also clustered; with a
  jackknife's correction where units are few
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from evalstats_plugin.ranking.contests.contests import CountedContests, Design, components_of
from evalstats_plugin.ranking.contests.outcomes import Derivatives, Weights, derivatives
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.newton import Convergence, newton

WEAK_SD = 5.0
"""Standard deviation, in logits, of the prior that keeps ratings of undefeated players finite."""

CORRECTED = 100
"""Independent units a parameter up to which sandwiches have a small-sample correction."""
_TERMS = 3
"""Terms of the series of the correction, beyond the score itself."""
_CELLS = 2**23
"""About the most numbers that the correction keeps in memory."""
_EVEN = Weights(*(np.array([[x]]) for x in (0.125, 0.25, 0.125)))
"""Half a contest between equals, half of it a tie, for samples without ties or only with ties."""
_TOLERANCE = 1e-12
"""Newton decrement (twice the expected rise of the log-likelihood) at convergence."""
_MAX_STEPS = 200
_LONGEST = 5.0
"""Largest change of a parameter in one step, in logits."""
_SHRINK = 0.2
"""Smallest share of itself to which a Rao–Kupper threshold may shrink in one step."""


class Prior(NamedTuple):
    """Normal prior of the parameters; flat where the precision is 0."""

    mean: FloatArray
    """Shape (p,)."""
    precision: FloatArray
    """Shape (p, p)."""


class Sample(NamedTuple):
    """B weightings of the cells to fit, and which of them use a prior."""

    weights: Weights
    """Each of shape (K, B)."""
    prior: Prior | None = None
    with_prior: FloatArray | None = None
    """1 for samples that use the prior, else 0, shape (B,). Default: all use it."""
    even: FloatArray | None = None
    """1 for samples to which half a contest between equals is added, shape (B,)."""


class Maximum(NamedTuple):
    """Estimates of B samples."""

    parameters: FloatArray
    """Shape (p, B); without a prior the ratings keep the mean of the start."""
    information: FloatArray
    """Minus second derivatives, including the prior's, shape (B, p, p)."""
    log_likelihood: FloatArray
    """Log-likelihood of the contests without the prior, shape (B,)."""
    convergence: Convergence


def maximise(
    design: Design, sample: Sample, start: FloatArray, held: FloatArray | None = None
) -> Maximum:
    """Maximise the (penalised) log-likelihood of each sample.

    Parameters
    ----------
    start : shape (p, B)
    held : shape (p,)
        Coefficients of a linear combination of the parameters that keeps its value at the start.
    """

    def direction(parameters: FloatArray, at: _Point) -> tuple[FloatArray, FloatArray]:
        step = _step(design, _information(design, sample, parameters, at), at.gradient, held)
        return _shortened(design, parameters, step), (step * at.gradient).sum(axis=0)

    optimum = newton(
        start, partial(_point, design, sample), direction,
        tolerance=_TOLERANCE, max_steps=_MAX_STEPS,
    )  # fmt: skip
    return Maximum(
        optimum.parameters,
        _information(design, sample, optimum.parameters, optimum.at),
        optimum.at.cells.value.sum(axis=0),
        optimum.convergence,
    )


class _Point(NamedTuple):
    """Value and derivatives of the objective at parameters of shape (p, B)."""

    value: FloatArray
    gradient: FloatArray
    cells: Derivatives


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
    """Newton step, shape (p, B), which keeps the mean of the ratings."""
    diagonal = np.arange(design.size)
    scale = np.abs(information[:, diagonal, diagonal]).mean(axis=1)
    regular = information.copy()
    regular[:, : design.n, : design.n] += (scale / design.n)[:, None, None]
    # A ridge keeps coefficients that a sample does not identify where they are.
    regular[:, diagonal, diagonal] += 1e-11 * scale[:, None] + 1e-300
    step: Any = np.linalg.solve(regular, gradient.T[..., None])[..., 0]
    if held is not None:
        along = np.linalg.solve(regular, np.broadcast_to(held[:, None], (*gradient.T.shape, 1)))
        along = along[..., 0]
        step -= along * ((step @ held) / (along @ held))[:, None]
    return step.T


def _shortened(design: Design, parameters: FloatArray, step: FloatArray) -> FloatArray:
    """Scale steps down that change a parameter by more than `_LONGEST` or `_SHRINK` allow."""
    length = np.abs(step[: design.n]).max(axis=0)
    factor = np.minimum(1, _LONGEST / np.maximum(length, 1e-300))
    if design.with_ties:
        tie, change = parameters[-1], step[-1]
        if design.ties == "rao-kupper":
            room = (_SHRINK - 1) * tie / np.minimum(change, -1e-300)
            factor = np.minimum(factor, np.where(change < 0, room, 1))
        factor = np.minimum(factor, _LONGEST / np.maximum(np.abs(change), 1e-300))
    return step * factor


def has_finite_maximum(design: Design, weights: Weights) -> BoolArray:
    """Whether the maximum likelihood estimate is finite, for each of B samples (K, B).

    It is if the graph of wins is strongly connected.
    """
    n, (first, second) = design.n, (design.first, design.second)
    is_finite = np.zeros(weights.won.shape[1], dtype=np.bool_)
    for sample in range(len(is_finite)):
        tied = weights.tied[:, sample] > 0
        won, lost = tied | (weights.won[:, sample] > 0), tied | (weights.lost[:, sample] > 0)
        winner, loser = np.r_[first[won], second[lost]], np.r_[second[won], first[lost]]
        is_finite[sample] = not components_of(winner, loser, n, directed=True).any()
    return is_finite


def start_values(design: Design, weights: Weights | None = None) -> FloatArray:
    """Start values, shape (p, B): log odds of the shares won, or 0 without weights."""
    start = np.zeros((design.size, 1 if weights is None else weights.won.shape[1]))
    if weights is not None:
        net_wins = design.against.T @ (weights.won - weights.lost)
        total = abs(design.against).T @ (weights.won + weights.tied + weights.lost)
        start[: design.n] = np.log((total + net_wins + 1) / (total - net_wins + 1))
        start[: design.n] -= start[: design.n].mean(axis=0)
    if design.ties == "rao-kupper":
        start[-1] = np.log(2)
    return start


class Covariance(NamedTuple):
    """Covariance of all parameters, where ratings are relative to their mean."""

    covariance: FloatArray
    """Shape (p, p)."""
    groups: int | None
    """Number of clusters, if clustered."""


def covariance_of(
    tally: CountedContests,
    parameters: FloatArray,
    information: FloatArray,
    kind: str,
    parts: IntArray,
) -> Covariance:
    """Covariance of the estimates.

    With at most `CORRECTED` independent units (contests or clusters) a parameter, scores are those
    of a jackknife, CR3 [BM02]_; beyond, that would change errors by a hundredth or less, and the
    clustered covariance is multiplied by G / (G - 1) for G clusters, like CR1 of a mean.

    Parameters
    ----------
    parameters : shape (p,)
    information : shape (p, p)
        Minus second derivatives, including a prior's.
    kind
        ``"model"`` (the inverse information), ``"sandwich"``, ``"cluster"`` or ``"judge"``.
    parts : shape (n,)
        Strongly connected component of each player. Contests between components all have the same
        winner, so that their scores do not vary: their model information is used instead, and the
        prior's information for the prior.
    """
    design = tally.design
    bread = inverse(information, design.n)
    if kind == "model":
        return Covariance(bread, None)
    cells = derivatives(design.ties, *_predictors(tally, parameters), tally.weights())
    expected = design.outer(*cells[3:])[0]
    one_contest = Weights(*(each[:, None] for each in tally.each))
    rows = derivatives(design.ties, *_predictors(tally, parameters, tally.cell), one_contest)
    one_way = parts[design.first] != parts[design.second]
    varies = ~one_way[tally.cell]
    by_x, by_tie = rows.by_x[:, 0] * varies, rows.by_tie[:, 0] * varies
    rows = rows._replace(by_x=by_x[:, None], by_tie=by_tie[:, None])
    one_each: Any = sparse.eye_array(len(by_x), format="csr")
    members = one_each if kind == "sandwich" else tally.groups(kind)
    groups: int | None = None if kind == "sandwich" else members.shape[0]
    times = np.ones(groups) if groups else tally.count
    units = float(times.sum())
    if units <= CORRECTED * design.size:
        middle = np.zeros(information.shape)
        step = max(_CELLS // design.size, 1)
        for part in (slice(k, k + step) for k in range(0, len(times), step)):
            scores = _jackknifed(tally, rows, bread, members[part])
            middle += (scores.T @ (scores * times[part, None])).toarray() * (1 - 1 / units)
    elif groups:
        scores = members @ _scores(design, tally.cell, by_x, by_tie)
        middle = (scores.T @ scores).toarray() * (groups / (groups - 1))
    else:
        middle = design.outer(
            *(_by_cell(tally, each) for each in (by_x**2, by_x * by_tie, by_tie**2))
        )[0]
    if one_way.any():
        middle += design.outer(*(each * one_way[:, None] for each in cells[3:]))[0]
    middle += information - expected
    return Covariance(bread @ middle @ bread, groups)


def _jackknifed(tally: CountedContests, rows: Derivatives, bread: FloatArray, members: Any) -> Any:
    """Scores of the clusters at the estimate without them, sparse (G, p).

    (I - H)⁻¹ s for the score s of a cluster, and H its share of the information: s + H s + H² s + …
    up to `_TERMS`, which is finite for a player of a single cluster, too.

    Parameters
    ----------
    rows
        Derivatives of one contest of each row, shape (R, 1).
    members
        Number of contests of each row in each cluster, sparse (G, R).
    """
    design, n, q = tally.design, tally.design.n, tally.design.extra.shape[1]
    per_cluster: IntArray = np.diff(members.indptr)
    cluster = np.repeat(np.arange(len(per_cluster)), per_cluster)
    row, cell = members.indices, tally.cell[members.indices]
    gather = sparse.csr_array(
        (members.data, np.arange(len(row)), members.indptr), (members.shape[0], len(row))
    )
    first, second = design.first[cell], design.second[cell]
    _, by_x, by_tie, xx, x_tie, tie_tie = (
        np.broadcast_to(each, rows.by_x.shape)[row, 0] for each in rows
    )
    scores = term = gather @ _scores(design, cell, by_x, by_tie)
    for _ in range(_TERMS):
        moved: FloatArray = term @ bread
        x = moved[cluster, first] - moved[cluster, second]
        x += (design.extra[cell] * moved[cluster, n : n + q]).sum(axis=1)
        tie = moved[cluster, -1] if design.with_ties else np.zeros(len(x))
        term = gather @ _scores(design, cell, xx * x + x_tie * tie, x_tie * x + tie_tie * tie)
        scores = scores + term
    return scores


def _predictors(
    tally: CountedContests, parameters: FloatArray, cell: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Log odds of the first in each cell, or in each row; and the tie parameter."""
    x = tally.design.ahead(parameters[:, None])
    return (x if cell is None else x[cell]), tally.design.tie(parameters[:, None])


def _by_cell(tally: CountedContests, values: FloatArray) -> FloatArray:
    """Sum values of the rows of each cell, times their counts; shape (K, 1)."""
    cells = len(tally.design.first)
    summed = np.bincount(tally.cell, tally.count * values, cells)
    return summed.astype(np.float64)[:, None]


def _scores(design: Design, cell: IntArray, by_x: FloatArray, by_tie: FloatArray) -> Any:
    """Score vectors of contests in these cells, sparse (R, p)."""
    scale = by_x[:, None]
    parts: list[Any] = [sparse.csr_array(design.against[cell] * scale)]
    if design.extra.shape[1]:
        parts.append(sparse.csr_array(design.extra[cell] * scale))
    if design.with_ties:
        parts.append(sparse.csr_array(by_tie[:, None]))
    return sparse.hstack(parts, format="csr")


def inverse(information: FloatArray, n: int) -> FloatArray:
    """Covariance from an information matrix whose first n parameters are ratings summing to 0."""
    regular = information.copy()
    # Regularises the common shift of the ratings only, which is then projected out.
    regular[:n, :n] += np.abs(np.diagonal(information)).mean() / n
    inverted: Any = np.linalg.inv(regular)
    return centred(inverted, n)


def centred(covariance: FloatArray, n: int) -> FloatArray:
    """Covariance after subtracting the mean of the first n variables from each of them."""
    out = covariance.copy()
    out[:n] -= out[:n].mean(axis=0)
    out[:, :n] -= out[:, :n].mean(axis=1, keepdims=True)
    return (out + out.T) / 2
