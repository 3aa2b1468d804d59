"""Item selection: items drawn by chance or chosen, and content balancing.

* `DRAWING`: rules by which items are drawn by chance (`design.Draws`)
* `worth`: value of each item by the rule that chooses, `INFORMATION`
* `Targets`: content balancing over tasks
* `pick`: the best item allowed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import respond
from evalstats_plugin.adaptive.scoring import Belief, State, expected, on_grid
from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, steady

_NOTHING = 1e-16
"""Probability below which a node is ignored: it changes no digit of a mean."""

_COARSE = 4
"""Nodes of the grid for each node of the tables: curves are smoother than posteriors."""

_TABLES: WeakKeyDictionary[ItemBank, Tables] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Tables:
    """Information of a bank's items at a few abilities, computed once."""

    spreading: FloatArray
    """Interpolation weights of the grid's nodes on the table's nodes, shape (G, Q)."""
    information: FloatArray
    """Fisher information, shape (Q, M)."""

    @classmethod
    def of(cls, bank: ItemBank) -> Tables:
        """Tables of a bank; sessions on the same bank share them."""
        if bank not in _TABLES:
            nodes = Belief.prior(bank).nodes
            few = nodes[::_COARSE]
            spreading = np.maximum(1 - np.abs(nodes[:, None] - few) / (few[1] - few[0]), 0)
            _TABLES[bank] = cls(spreading, respond(bank.items, few[:, None]).information)
        return _TABLES[bank]


@dataclass(frozen=True, eq=False)
class Candidates:
    """What items are valued by: the belief of S sessions, the tables, the state of abilities."""

    belief: Belief
    tables: Tables
    find_state: Callable[[], State]

    @cached_property
    def state(self) -> State:
        """Normal approximation of the abilities, computed on first use."""
        return self.find_state()

    def expecting(self, chosen: np.ndarray) -> Candidates:
        """Return the candidates expected after one item per session, shape (S,), is answered.

        Only the answer's information is used: posteriors narrow around their present means.
        """
        ability, _ = on_grid(self.belief)
        items = self.belief.items.take(chosen[:, None])
        gained = respond(items, ability[:, None]).information[:, 0]
        narrower = -0.5 * gained[:, None] * (self.belief.nodes - ability[:, None]) ** 2
        belief = replace(self.belief, log_likelihood=self.belief.log_likelihood + narrower)
        return replace(self, belief=belief, find_state=lambda: self._informed(chosen))

    def _informed(self, chosen: np.ndarray) -> State:
        mean, covariance = self.state
        items = self.belief.items.take(chosen[:, None])
        shift = np.einsum("sk,sk->s", items.loadings[:, 0], mean[:, 1:])[:, None]
        response = respond(items, mean[:, :1], shift)
        weight = (response.scale**2 / response.variance)[:, 0]
        direction = items.directions[:, 0]
        towards = (covariance @ direction[..., None])[..., 0]
        total = 1 + weight * np.einsum("sd,sd->s", direction, towards)
        lost = (weight / total)[:, None, None] * towards[:, :, None] * towards[:, None, :]
        return State(mean, covariance - lost)


def worth(candidates: Candidates) -> FloatArray:
    """What an answer to each item tells of the ability, or of several together: shape (S, M).

    Of one ability, the Fisher information averaged over the posterior and over the item's errors.
    Of several, the log determinant gained (Bayesian D-optimality [Seg96]_).
    """
    if candidates.belief.axes is not None:
        return d_optimality(candidates.belief, candidates.state)
    few = candidates.belief.posterior @ candidates.tables.spreading
    reached = np.flatnonzero((few > _NOTHING).any(axis=0))
    # The posterior's mass lies in one slice of the grid.
    piece = slice(reached[0], reached[-1] + 1)
    return few[:, piece] @ candidates.tables.information[piece]


def d_optimality(belief: Belief, state: State) -> FloatArray:
    """Log determinant of the abilities' precision that an answer to each item adds [Seg96]_."""
    response, directions = expected(belief, state), belief.items.directions
    variance = ((state.covariance @ directions.T) * directions.T).sum(axis=1)
    return np.log1p(response.scale**2 / response.variance * variance)


DESIGN, RANDOM = "design", "random"
DRAWING = (DESIGN, RANDOM)
"""Items drawn in proportion to the standard deviation of their answers, or all alike."""

INFORMATION = "information"
"""The rule that chooses the item that tells most of the ability."""

RULE_NAMES = (*DRAWING, INFORMATION)


def rule_for(rule: str) -> str:
    """Resolve a rule's name: ``"auto"`` is ``"design"``.

    Raises
    ------
    SelectionError
        No such rule.
    """
    if rule not in ("auto", *RULE_NAMES):
        raise SelectionError(no_such("rule", rule, RULE_NAMES, f"auto, {', '.join(RULE_NAMES)}"))
    return DESIGN if rule == "auto" else rule


def drawn_from(probability: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw an item for each of S sessions by probabilities of shape (S, M)."""
    reached = probability.cumsum(axis=1)
    at = rng.random(len(probability))[:, None] * reached[:, -1:]
    # An item of probability 0 is never reached first, and the last is, as `at` is below all of it.
    return (reached <= at).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Targets:
    """Content balancing: the task furthest behind its share is next [KZ89]_."""

    task: IntArray
    """Of each item, shape (M,)."""
    share: FloatArray
    """Shape (T,)."""

    @classmethod
    def of(cls, bank: ItemBank) -> Targets:
        """Every task's share of the bank's items."""
        order = {name: place for place, name in enumerate(bank.task_names)}
        task = np.array([order[name] for name in bank.tasks.astype(str).tolist()], dtype=np.int64)
        return cls(task, np.bincount(task) / len(bank))

    def allowed(self, open_items: NDArray[np.bool_], asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Keep the items of tasks that are due, of those open to each session, (S, M)."""
        counts = self._counts(asked)
        behind = self.share * (counts.sum(axis=1, keepdims=True) + 1) - counts
        left = self._counts(open_items) > 0
        due = np.where(left, behind, -np.inf)
        # At least one task is always behind or at its share.
        bar = due.max(axis=1, keepdims=True)
        return open_items & (left & (due >= bar)).take(self.task, axis=1)

    def spread(self, size: FloatArray) -> FloatArray:
        """Sizes of the items, shape (S, M), with their sum in each task in proportion to shares."""
        tasks = self.task[:, None] == np.arange(len(self.share))
        total = size @ tasks
        factor = np.divide(self.share, total, out=np.zeros_like(total), where=total > 0)
        return size * factor.take(self.task, axis=1)

    def _counts(self, items: BoolArray) -> IntArray:
        """Number of items of a mask, (S, M), by task: shape (S, T)."""
        shape = len(items), len(self.share)
        codes = self.task + shape[1] * np.arange(shape[0])[:, None]
        return np.bincount(codes[items], minlength=shape[0] * shape[1]).reshape(shape)


def pick(worth: FloatArray, allowed: NDArray[np.bool_]) -> IntArray:
    """Choose the item worth most for each session, shape (S,).

    Parameters
    ----------
    worth, allowed
        Shape (S, M); every session needs at least one item allowed.
    """
    return np.where(allowed, steady(worth), -np.inf).argmax(axis=1)
