"""Thurstone's model for thousands of items: the mode, updated where an answer touches it.

The state is a list of pairs with their answers. An answer starts Newton steps of one item at a
time from its two items, which spread while they move others noticeably; `polish` solves for all
items, so that the result does not depend on the order of answers. Variances are those of a tree:
for item i, 1 / s_i is 1 / v plus κ / (1 + κ s_j) over its pairs, κ the curvature of the pair. No
matrix of items by items is made: an answer takes a millisecond with 10,000 items.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import cg

from evalstats_plugin.ranking.thurstone.design import POSITION_SD, AnswerCounts, Sites
from evalstats_plugin.stats.arrays import FloatArray, IntArray

REACH = 8
"""Most places between the items of a pair that is worth asking."""

_NOTICED = 0.02
"""Expected move of another item, in its standard deviations, from which steps spread to it."""
_MOST_MOVES = 300
_TOLERANCE = 1e-4
"""Largest step at which `polish` stops."""
_MOST_STEPS, _MOST_ROUNDS = 30, 200
_LONGEST = 3.0
"""Largest step of an item in `polish`."""
_SWEEPS = 6
"""Rounds of the tree's variances."""
_NARROWEST, _WIDEST, _FIRST_TIE = 0.02, 3.0, 0.3
"""Bounds and start of δ, half the width of a tie."""


class LocalState(AnswerCounts):
    """Mode and variances of n items' ratings, answer by answer.

    Parameters
    ----------
    players
        Number of items n.
    prior_variance
        Of each rating, in units of the variance of an answer's noise.
    ordered
        Whether the first of a pair was really shown first, so that there is a position effect.
    """

    def __init__(self, players: int, prior_variance: float = 1.0, *, ordered: bool = False) -> None:
        super().__init__(players, ordered=ordered)
        self.prior_variance = prior_variance
        self.rating: FloatArray = np.zeros(players)
        self.variance: FloatArray = np.full(players, prior_variance)
        self.tie = 0.0
        self.advantage, self._advantage_variance = 0.0, POSITION_SD**2
        self._pairs_of: list[list[int]] = [[] for _ in range(players)]

    @property
    def position(self) -> tuple[float, float] | None:
        """Advantage of the item shown first, and its error; None where that is not known."""
        return (self.advantage, self._advantage_variance**0.5) if self.ordered else None

    def _met(self, k: int, i: int, j: int) -> None:
        self._pairs_of[i].append(k)
        self._pairs_of[j].append(k)

    def add(self, i: int, j: int, outcome: float, weight: float = 1.0) -> None:
        """Count an answer, and move the items that it touches."""
        self.record(i, j, outcome, weight)
        if outcome == 0.5 and not self.tie:
            self.tie = _FIRST_TIE
        queue: list[tuple[float, int]] = [(-np.inf, i), (-np.inf, j)]
        urgent = {i: np.inf, j: np.inf}
        moves = 0
        while queue and moves < _MOST_MOVES:
            key, item = heappop(queue)
            if urgent.get(item) != -key:
                continue
            del urgent[item]
            moves += 1
            others, push = self._moved(item)
            felt = push > _NOTICED
            for other, size in zip(others[felt].tolist(), push[felt].tolist(), strict=True):
                before = urgent.get(other, 0.0)
                if before < np.inf:
                    urgent[other] = before + size
                    heappush(queue, (-urgent[other], other))

    def _moved(self, item: int) -> tuple[IntArray, FloatArray]:
        """Move one item by a Newton step; return its opponents, and how far that moves each."""
        places = self._pairs_of[item]
        ends, counts = self._ends[places], self._counts[places]
        first_is_item = ends[:, 0] == item
        others = np.where(first_is_item, ends[:, 1], ends[:, 0])
        difference = self.rating[ends[:, 0]] - self.rating[ends[:, 1]] + self.advantage
        slopes = _sites(counts).slopes(difference, self.tie)
        pull = float((slopes.first * np.where(first_is_item, 1.0, -1.0)).sum())
        curvature = -slopes.second
        bent = 1 / self.prior_variance + float(curvature.sum())
        move = (pull - self.rating[item] / self.prior_variance) / bent
        self.rating[item] += move
        passed = curvature / (1 + curvature * self.variance[others])
        self.variance[item] = 1 / (1 / self.prior_variance + float(passed.sum()))
        return others, np.abs(move) * curvature * np.sqrt(self.variance[others])

    def polish(self) -> None:
        """Solve for all items, the position effect and δ."""
        ends, counts = self._recorded()
        if not len(ends):
            return
        sites = _sites(counts)
        if sites.ties.any() and not self.tie:
            self.tie = _FIRST_TIE
        for _ in range(_MOST_STEPS):
            step = self._newton_step(ends, sites)
            self._solve_shared(ends, sites)
            if step < _TOLERANCE:
                break

    def _newton_step(self, ends: IntArray, sites: Sites) -> float:
        """Take one Newton step for all items, and renew variances; return its largest move."""
        n, ridge = self.players, 1 / self.prior_variance
        i, j = ends.T
        slopes = sites.slopes(self.rating[i] - self.rating[j] + self.advantage, self.tie)
        curvature = -slopes.second
        gradient = np.bincount(i, slopes.first, n) - np.bincount(j, slopes.first, n)
        gradient -= ridge * self.rating
        # By conjugate gradients, preconditioned by the diagonal.
        diagonal = ridge + np.bincount(i, curvature, n) + np.bincount(j, curvature, n)
        both = (np.concatenate([i, j]), np.concatenate([j, i]))
        between = sparse.coo_array((np.concatenate([curvature, curvature]), both), shape=(n, n))
        matrix = sparse.diags_array(diagonal) - between.tocsr()
        inverse = sparse.diags_array(1 / diagonal)
        step: Any = cg(matrix, gradient, rtol=1e-6, maxiter=_MOST_ROUNDS, M=inverse)[0]
        largest = float(np.abs(step).max())
        self.rating += step * min(1.0, _LONGEST / max(largest, 1e-300))
        for _ in range(_SWEEPS):
            to_first = curvature / (1 + curvature * self.variance[j])
            to_second = curvature / (1 + curvature * self.variance[i])
            self.variance = 1 / (ridge + np.bincount(i, to_first, n) + np.bincount(j, to_second, n))
        return largest

    def _solve_shared(self, ends: IntArray, sites: Sites) -> None:
        """Take a Newton step for the position effect, and one for log δ."""
        i, j = ends.T
        difference = self.rating[i] - self.rating[j]
        if self.ordered:
            slopes = sites.slopes(difference + self.advantage, self.tie)
            precision = 1 / POSITION_SD**2 - float(slopes.second.sum())
            pull = float(slopes.first.sum()) - self.advantage / POSITION_SD**2
            self.advantage += pull / precision
            self._advantage_variance = 1 / precision
        if sites.ties.any():
            steps = self.tie * np.exp([-0.05, 0.0, 0.05])
            at = [
                float(sites.log_likelihood(difference + self.advantage, tie).sum()) - tie**2 / 2
                for tie in steps.tolist()
            ]
            slope, bend = (at[2] - at[0]) / 0.1, (at[0] - 2 * at[1] + at[2]) / 0.05**2
            move = slope / max(-bend, 1.0)
            self.tie = float(np.clip(self.tie * np.exp(np.clip(move, -1, 1)), _NARROWEST, _WIDEST))

    def neighbours(self) -> tuple[IntArray, IntArray]:
        """Return pairs at most `REACH` places apart in the current order, the better item first."""
        order = np.argsort(-self.rating, kind="stable")
        distances = range(1, min(REACH, self.players - 1) + 1)
        return (
            np.concatenate([order[:-k] for k in distances]),
            np.concatenate([order[k:] for k in distances]),
        )


def _sites(counts: FloatArray) -> Sites:
    return Sites(design=None, wins=counts[:, 0], ties=counts[:, 1], losses=counts[:, 2])
