"""Votes of judges who differ, and the penalised log-likelihood of what they said.

The log odds that judge j sees are e^{a_j} (r_i - r_k) + the common effects + p_j, and the tie
parameter (log ν, or log η) is moved by t_j. Parameters are the common ones, then those of each
judge, effect by effect; judges' effects are normal about 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests import FloatArray, IntArray
from evalstats_plugin.ranking.counted import Counted
from evalstats_plugin.ranking.ties import Derivatives, Weights, derivatives


class Votes(NamedTuple):
    """Distinct votes: V rows with their judge."""

    found: Counted
    row: IntArray
    judge: IntArray
    times: FloatArray
    """How many contests are this vote, shape (V,)."""
    of: IntArray
    """Of each contest, shape (C,)."""
    judges: int
    effects: tuple[str, ...]
    precision: FloatArray
    """Of the prior of the common parameters, shape (p, p)."""

    @property
    def cell(self) -> IntArray:
        """Of each vote, shape (V,)."""
        return self.found.cell[self.row]

    @property
    def each(self) -> Weights:
        """One vote's."""
        return Weights(*(x[self.row] for x in self.found.each))


class Point(NamedTuple):
    """Everything at parameters: p common ones, then those of each judge, effect by effect."""

    value: float
    gradient: FloatArray
    votes: Derivatives
    """Of one vote of each kind; those by the tie parameter in log η for Rao–Kupper."""
    slope_x: Any
    """How x changes with the parameters, sparse (V, P)."""
    slope_tie: Any


def votes_of(found: Counted, precision: FloatArray | None) -> Votes:
    """Count votes by judge; the precision is of a prior of the common parameters, (p, p).

    Raises
    ------
    DesignError
        There is one judge only.
    """
    names, judge = np.unique(np.asarray(found.contests.judge, dtype=np.int64), return_inverse=True)
    if len(names) < 2:
        msg = "all comparisons have one judge, expected at least 2 to tell how judges differ"
        raise DesignError(msg)
    code, of = np.unique(found.row * len(names) + judge, return_inverse=True)
    effects = ["discrimination"]
    if "position" in found.design.names:
        effects.append("position")
    if found.design.with_ties:
        effects.append("tie")
    size = found.design.size
    return Votes(
        found,
        code // len(names),
        code % len(names),
        np.bincount(of).astype(np.float64),
        of.astype(np.int64),
        len(names),
        tuple(effects),
        np.zeros((size, size)) if precision is None else precision,
    )


def effects_of(votes: Votes, parameters: FloatArray) -> dict[str, FloatArray]:
    """Effects of each judge, by name, each of shape (J,)."""
    own = parameters[votes.found.design.size :].reshape(len(votes.effects), -1)
    return dict(zip(votes.effects, own, strict=True))


def point_at(votes: Votes, parameters: FloatArray, sds: FloatArray) -> Point:
    """Penalised log-likelihood, and what its derivatives are made of."""
    design = votes.found.design
    common, own = parameters[: design.size, None], effects_of(votes, parameters)
    steep = np.exp(own["discrimination"])[votes.judge, None]
    apart = (design.against @ common[: design.n])[votes.cell]
    q = design.extra.shape[1]
    x = steep * apart + (design.extra @ common[design.n : design.n + q])[votes.cell]
    if "position" in own:
        x = x + own["position"][votes.judge, None]
    tie = np.zeros_like(x)
    if design.with_ties:
        tie = common[-1] + own["tie"][votes.judge, None]
    each = Weights(*(w[:, None] for w in votes.each))
    found = _derivatives(votes, x, tie, each)
    slope_x, slope_tie = _slopes(votes, steep, apart)
    by_x, by_tie = (votes.times[:, None] * d for d in (found.by_x, found.by_tie))
    gradient = (slope_x.T @ by_x + slope_tie.T @ by_tie)[:, 0]
    pull = precision_of(votes, sds) @ parameters
    value = float(votes.times @ found.value[:, 0] - parameters @ pull / 2)
    return Point(value, gradient - pull, found, slope_x, slope_tie)


def _derivatives(votes: Votes, x: FloatArray, tie: FloatArray, each: Weights) -> Derivatives:
    if votes.found.design.ties != "rao-kupper":
        return derivatives(votes.found.design.ties, x, tie, each)
    eta = np.exp(np.clip(tie, -20, 5))
    d = derivatives("rao-kupper", x, eta, each)
    # In log η. The slope's own change is left out, as Fisher scoring does.
    return d._replace(
        by_tie=d.by_tie * eta,
        information_x_tie=d.information_x_tie * eta,
        information_tie=d.information_tie * eta**2,
    )


def _slopes(votes: Votes, steep: FloatArray, apart: FloatArray) -> tuple[Any, Any]:
    design, v = votes.found.design, len(votes.row)
    shape = (v, votes.judges)
    at = (np.arange(v), votes.judge)
    theirs = {
        "discrimination": sparse.csr_array(((steep * apart)[:, 0], at), shape),
        "position": sparse.csr_array((np.ones(v), at), shape),
    }
    one, none = sparse.csr_array(np.ones((v, 1))), sparse.csr_array((v, 1))
    blank = sparse.csr_array(shape)
    x: list[Any] = [design.against[votes.cell] * steep]
    if design.extra.shape[1]:
        x.append(sparse.csr_array(design.extra[votes.cell]))
    tie: list[Any] = [sparse.csr_array((v, design.size - design.with_ties))]
    if design.with_ties:
        x.append(none)
        tie.append(one)
    for name in votes.effects:
        x.append(theirs.get(name, blank))
        tie.append(theirs["position"] if name == "tie" else blank)
    return sparse.hstack(x, format="csr"), sparse.hstack(tie, format="csr")


def precision_of(votes: Votes, sds: FloatArray) -> FloatArray:
    """Of the prior of all parameters, given the standard deviation of each effect."""
    size = votes.found.design.size
    out = np.diag(np.r_[np.zeros(size), np.repeat(sds**-2.0, votes.judges)])
    out[:size, :size] = votes.precision
    return out


def information_at(votes: Votes, at: Point, sds: FloatArray) -> FloatArray:
    """Fisher's information of all parameters, the prior's with it."""
    x, tie, scale = at.slope_x, at.slope_tie, votes.times[:, None]
    cross = x.T @ (tie * (scale * at.votes.information_x_tie))
    own = x.T @ (x * (scale * at.votes.information_x))
    other = tie.T @ (tie * (scale * at.votes.information_tie))
    return (own + cross + cross.T + other).toarray() + precision_of(votes, sds)
