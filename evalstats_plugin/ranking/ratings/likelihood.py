"""Maximum likelihood of contests by Newton's method, and covariances of the estimates.

* `maximise`: `stats.newton.newton`. The log-likelihoods are concave, so every start
  leads to the maximum if there is one. Without a prior it exists exactly if no group of players
  won every contest against the others [Ford57]_: `Contests.strong_components`.
* `covariance_of`: by the model's information, or by the sandwich [Hub67]_, also clustered; with a
  jackknife's correction where units are few
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import CountedContests, Design
from evalstats_plugin.ranking.contests.outcomes import Derivatives, Weights, derivatives
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.newton import Convergence, newton

WEAK_SD = 5.0
"""Standard deviation, in logits, of the prior that keeps ratings of undefeated players finite."""

CORRECTED = 100
"""Independent units a parameter up to which sandwiches have a small-sample correction."""
_TERMS = 3
"""Terms of the series of the correction, beyond the score itself."""
_CELLS = 2**23
"""About the most numbers that the correction keeps in memory."""
_EVEN = Weights(*(np.array([x]) for x in (0.125, 0.25, 0.125)))
"""Half a contest between equals, half of it a tie, for contests without ties or only with ties."""
_TOLERANCE = 1e-12
"""Newton decrement (twice the expected rise of the log-likelihood) at convergence."""
_MAX_STEPS, _ROUNDING = 200, 1e-9
"""Most steps, and decrement that rounding errors beside heavy weights may leave after them."""
_LONGEST = 5.0
"""Largest change in one step by ratings, or by coefficients, in logits."""
_SHRINK = 0.2
"""Smallest share of itself to which a Rao–Kupper threshold may shrink in one step."""


class Sample(NamedTuple):
    """Weights of the cells to fit, and what else holds the parameters."""

    weights: Weights
    """Each of shape (K,)."""
    precision: FloatArray
    """Of a normal prior of each parameter around 0, which is flat where this is 0; shape (p,)."""
    even: bool
    """Whether half a contest between equals is added."""


class Maximum(NamedTuple):
    """Estimates."""

    parameters: FloatArray
    """Shape (p,); the mean of the ratings is that of the start."""
    information: FloatArray
    """Minus second derivatives, shape (p, p)."""
    added: FloatArray
    """Part of them that a prior and half a contest between equals add, shape (p, p)."""
    log_likelihood: float
    """Log-likelihood of the contests without the prior."""
    convergence: Convergence


def maximise(
    design: Design, sample: Sample, start: FloatArray, held: FloatArray | None = None
) -> Maximum:
    """Maximise the (penalised) log-likelihood.

    Parameters
    ----------
    start : shape (p,)
    held : shape (p,)
        Coefficients of a linear combination of the parameters that keeps its value at the start.
    """

    def direction(parameters: FloatArray, at: _Point) -> tuple[FloatArray, float]:
        information = design.outer(*at.cells[3:]) + _added(sample, at)
        step = _step(design, information, at.gradient, held)
        return _shortened(design, parameters, step), float(step @ at.gradient)

    optimum = newton(
        start, partial(_point, design, sample), direction,
        tolerance=_TOLERANCE, max_steps=_MAX_STEPS,
    )  # fmt: skip
    at, added, ended = optimum.at, _added(sample, optimum.at), optimum.convergence
    settled = ended.converged | (ended.change < _ROUNDING)
    return Maximum(
        optimum.parameters,
        design.outer(*at.cells[3:]) + added,
        added,
        float(at.cells.value.sum()),
        ended._replace(converged=settled),
    )


class _Point(NamedTuple):
    """Value and derivatives of the objective at some parameters."""

    value: float
    gradient: FloatArray
    cells: Derivatives
    even: Derivatives | None


def _point(design: Design, sample: Sample, parameters: FloatArray) -> _Point:
    tie = design.tie(parameters)
    cells = derivatives(design.ties, design.ahead(parameters), tie, sample.weights)
    pull = sample.precision * parameters
    value = cells.value.sum() - parameters @ pull / 2
    gradient = design.summed(cells.by_x, cells.by_tie) - pull
    even = None
    if sample.even:
        even = derivatives(design.ties, 0 * tie, tie, _EVEN)
        value, gradient[-1] = value + even.value[0], gradient[-1] + even.by_tie[0]
    return _Point(float(value), gradient, cells, even)


def _added(sample: Sample, at: _Point) -> FloatArray:
    """Information of the prior and of half a contest between equals, shape (p, p)."""
    out = np.diag(sample.precision)
    if at.even is not None:
        out[-1, -1] += at.even.information_tie[0]
    return out


def _step(
    design: Design, information: FloatArray, gradient: FloatArray, held: FloatArray | None
) -> FloatArray:
    """Newton step, shape (p,), which keeps the mean of the ratings."""
    regular = _without_shift(information, design.n)
    # A ridge keeps coefficients that the contests do not identify where they are.
    regular[np.diag_indices(design.size)] += 1e-11 * np.diagonal(information) + 1e-300
    step: Any = np.linalg.solve(regular, gradient)
    if held is not None:
        along: Any = np.linalg.solve(regular, held)
        step -= along * ((step @ held) / (along @ held))
    return step


def _shortened(design: Design, parameters: FloatArray, step: FloatArray) -> FloatArray:
    """Scale a step down that changes a parameter by more than `_LONGEST` or `_SHRINK` allow."""
    changes, q = np.abs(step), design.extra.shape[1]
    longest = changes[: design.n].max()
    if q:
        by_extra = (design.extra**2).mean(axis=0) ** 0.5 * changes[design.n : design.n + q]
        longest = max(longest, by_extra.max())
    factor = _LONGEST / max(longest, _LONGEST)
    if design.ties == "rao-kupper":
        factor = min(factor, (_SHRINK - 1) * parameters[-1] / min(step[-1], -1e-300))
    return step * factor


def covariance_of(
    tally: CountedContests, top: Maximum, kind: str, parts: IntArray
) -> tuple[FloatArray, int | None]:
    """Covariance of the estimates, shape (p, p), and the number of clusters, if clustered.

    Ratings are relative to their mean.

    With at most `CORRECTED` independent units (contests or clusters) a parameter, scores are those
    of a jackknife, CR3 [BM02]_; beyond, that would change errors by a hundredth or less, and the
    clustered covariance is multiplied by G / (G - 1) for G clusters, like CR1 of a mean.

    Parameters
    ----------
    kind
        ``"model"`` (the inverse information), ``"sandwich"``, ``"cluster"`` or ``"judge"``.
    parts : shape (n,)
        Strongly connected component of each player. Contests between components all have the same
        winner, so that their scores do not vary: their model information is used instead, as it is
        for the prior.

    Raises
    ------
    DesignError
        No such groups of contests, or rounding leaves nothing of a variance.
    """
    out = bread = inverse(top.information, tally.design.n)
    groups: int | None = None
    if kind != "model":
        members = None if kind == "sandwich" else tally.groups(kind)
        groups = None if members is None else members.shape[0]
        out = bread @ (_middle(tally, top, bread, parts, members) + top.added) @ bread
    again = np.diagonal(bread @ top.information @ bread)
    if (np.diagonal(out) < 0).any() or not np.allclose(
        again, np.diagonal(bread), rtol=0.01, atol=0
    ):
        raise DesignError(
            "weights or features differ too much in size: rounding leaves no digit of standard "
            "errors; leave the lightest comparisons out"
        )
    return out, groups


def _middle(
    tally: CountedContests, top: Maximum, bread: FloatArray, parts: IntArray, members: Any
) -> FloatArray:
    """Covariance of the contests' score in a sandwich, shape (p, p).

    Parameters
    ----------
    bread
        The model's covariance.
    members
        Number of contests of each row in each cluster, sparse (G, R); None: each is its own.
    """
    design = tally.design
    x, tie = design.ahead(top.parameters), design.tie(top.parameters)
    rows = derivatives(design.ties, x[tally.cell], tie, tally.each)
    one_way = parts[design.first] != parts[design.second]
    varies = ~one_way[tally.cell]
    by_x, by_tie = rows.by_x * varies, rows.by_tie * varies
    rows = rows._replace(by_x=by_x, by_tie=by_tie)
    times = tally.rows.times if members is None else np.ones(members.shape[0])
    units = float(times.sum())
    if units <= CORRECTED * design.size:
        middle = np.zeros(bread.shape)
        of_units: Any = sparse.eye_array(len(by_x), format="csr") if members is None else members
        step = _CELLS // design.size
        for part in (slice(k, k + step) for k in range(0, len(times), step)):
            scores = _jackknifed(tally, rows, bread, of_units[part])
            middle += (scores.T @ (scores * times[part, None])).toarray() * (1 - 1 / units)
    elif members is None:
        squares = (by_x**2, by_x * by_tie, by_tie**2)
        middle = design.outer(*(tally.by_cell(times * each) for each in squares))
    else:
        scores = members @ _scores(design, tally.cell, by_x, by_tie)
        middle = (scores.T @ scores).toarray() * (units / (units - 1))
    if one_way.any():
        cells = derivatives(design.ties, x, tie, tally.weights())
        middle += design.outer(*(each * one_way for each in cells[3:]))
    return middle


def _jackknifed(tally: CountedContests, rows: Derivatives, bread: FloatArray, members: Any) -> Any:
    """Scores of the clusters at the estimate without them, sparse (G, p).

    (I - H)⁻¹ s for the score s of a cluster, and H its share of the information: s + H s + H² s + …
    up to `_TERMS`, which is finite for a player of a single cluster, too.

    Parameters
    ----------
    rows
        Derivatives of one contest of each row, shape (R,).
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
    _, by_x, by_tie, xx, x_tie, tie_tie = (each[row] for each in rows)
    scores = term = gather @ _scores(design, cell, by_x, by_tie)
    for _ in range(_TERMS):
        moved: FloatArray = term @ bread
        x = moved[cluster, first] - moved[cluster, second]
        x += (design.extra[cell] * moved[cluster, n : n + q]).sum(axis=1)
        tie = moved[cluster, -1]  # Where no parameter is of ties, it is multiplied by 0.
        term = gather @ _scores(design, cell, xx * x + x_tie * tie, x_tie * x + tie_tie * tie)
        scores = scores + term
    return scores


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
    inverted: Any = np.linalg.inv(_without_shift(information, n))
    # Of the shift every rating has the same share.
    inverted[:, :n] -= inverted[:, :n].mean(axis=1, keepdims=True)
    return (inverted + inverted.T) / 2


def _without_shift(information: FloatArray, n: int) -> FloatArray:
    """Information with some on the common shift of the ratings, about which contests say none."""
    regular = information.copy()
    regular[:n, :n] += np.diagonal(information)[:n].mean() / n
    return regular
