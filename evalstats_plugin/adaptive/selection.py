"""Which item to ask next: how much each is worth, by rule."""
# PART constraints - Which of the good items to take: content balanced over tasks, exposure held down.

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import Items, Response, respond
from evalstats_plugin.adaptive.scoring import (
    Belief,
    Shares,
    State,
    along,
    eap,
    expected,
    laplace,
    rest_of,
    sensitivity,
)
from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

_NOTHING = 1e-16
"""Probability of a node that changes no digit of a mean."""


_AT_HAND, _MOST_AT_HAND = 128, 30_000_000
"""Bytes: of each item in the arrays that a step makes and drops; and what glibc keeps at most."""


_COARSE = 4
"""Nodes of the grid to one of the tables of curves: curves bend less than posteriors."""


_TABLES: WeakKeyDictionary[ItemBank, Tables] = WeakKeyDictionary()


MIXED = "mixed"
"""Every other item by ``"full-score"``, the others at random."""


Content: TypeAlias = Mapping[str, float] | Literal["tasks"] | None
"""Share of the questions by task; ``"tasks"``: as in the bank; None: whatever the rule likes,
which for the rule ``"auto"`` means near the shares of the bank."""


_SLACK = 2.0
"""Items that a task may be ahead of its share for the rule ``"auto"``: the best items still come
first, and abilities of a kind of their own do not pass for the ability."""


@dataclass(frozen=True, eq=False)
class Tables:
    """Curves of a bank's items at a few nodes, each of shape (Q, M): made when asked for, once."""

    items: Items
    nodes: FloatArray
    """Of the grid, shape (G,)."""
    shares: Shares

    @classmethod
    def of(cls, bank: ItemBank) -> Tables:
        """Tables of a bank; sessions on the same bank share them."""
        if bank not in _TABLES:
            # Once a block has been freed, the C library keeps smaller ones at hand; it would
            # return those of each step to the system and fetch them again, at twice the time.
            np.empty(min(_AT_HAND * len(bank), _MOST_AT_HAND), dtype=np.uint8)
            _TABLES[bank] = cls(bank.items, Belief.prior(bank).nodes, Shares.of(bank))
        return _TABLES[bank]

    @cached_property
    def spreading(self) -> FloatArray:
        """How a node of the grid is shared out among the few: shape (G, Q)."""
        few = self._few
        return np.maximum(1 - np.abs(self.nodes[:, None] - few) / (few[1] - few[0]), 0)

    @cached_property
    def information(self) -> FloatArray:
        """Fisher information."""
        return self._curves.information

    @cached_property
    def log_right(self) -> FloatArray:
        """Log P(right)."""
        return np.log(self._curves.probability)

    @cached_property
    def log_wrong(self) -> FloatArray:
        """Log P(wrong)."""
        return np.log1p(-self._curves.probability)

    @property
    def _few(self) -> FloatArray:
        return self.nodes[::_COARSE]

    @property
    def _curves(self) -> Response:
        return respond(self.items, self._few[:, None])


@dataclass(frozen=True, eq=False)
class Candidates:
    """What rules look at: the belief of S sessions, the tables, and the state of abilities."""

    belief: Belief
    tables: Tables
    rng: np.random.Generator
    find_state: Callable[[], State]

    @classmethod
    def of(
        cls, belief: Belief, tables: Tables, rng: np.random.Generator, start: State | None = None
    ) -> Candidates:
        """Candidates for the next item."""
        return cls(belief, tables, rng, lambda: laplace(belief, start))

    @cached_property
    def state(self) -> State:
        """Of abilities and misfit factors; not every rule asks for it."""
        return self.find_state()

    def averaged(self, table: Callable[[Tables], FloatArray]) -> FloatArray:
        """Mean of a table over the posterior: shape (S, M)."""
        few = self.belief.posterior @ self.tables.spreading
        reached = np.flatnonzero((few > _NOTHING).any(axis=0))
        # What is believed lies in one piece of the grid.
        piece = slice(reached[0], reached[-1] + 1)
        return few[:, piece] @ table(self.tables)[piece]

    def expecting(self, chosen: np.ndarray) -> Candidates:
        """Return what will be believed once an item of each session, shape (S,), is answered.

        Of the answer only its information counts: posteriors become narrower, around where they
        are.
        """
        ability, _ = eap(self.belief)
        items = self.belief.items.take(chosen[:, None])
        gained = respond(items, ability[:, None]).information[:, 0]
        narrower = -0.5 * gained[:, None] * (self.belief.nodes - ability[:, None]) ** 2
        belief = replace(self.belief, log_likelihood=self.belief.log_likelihood + narrower)
        return replace(self, belief=belief, find_state=lambda: self._informed(chosen))

    def _informed(self, chosen: np.ndarray) -> State:
        mean, covariance = self.state
        items = self.belief.items.take(chosen[:, None])
        shift = np.einsum("sk,sk->s", items.loadings[:, 0], mean[:, 1:])[:, None]
        found = respond(items, mean[:, :1], shift)
        weight = (found.scale**2 / found.variance)[:, 0]
        direction = items.directions[:, 0]
        towards = (covariance @ direction[..., None])[..., 0]
        total = 1 + weight * np.einsum("sd,sd->s", direction, towards)
        lost = (weight / total)[:, None, None] * towards[:, :, None] * towards[:, None, :]
        return State(mean, covariance - lost)


Rule = Callable[[Candidates], FloatArray]
"""Gives the worth of every item for every session, shape (S, M)."""


def information(candidates: Candidates) -> FloatArray:
    """Fisher information at the ability as estimated [Lor80]_."""
    ability, _ = eap(candidates.belief)
    return respond(candidates.belief.items, ability[:, None]).information


def posterior_information(candidates: Candidates) -> FloatArray:
    """Fisher information averaged over what the ability and the item's parameters may be."""
    return candidates.averaged(lambda tables: tables.information)


def kullback_leibler(candidates: Candidates) -> FloatArray:
    """How well answers tell the ability as estimated from all it may be [CY96]_."""
    ability, _ = eap(candidates.belief)
    p = respond(candidates.belief.items, ability[:, None]).probability
    right = candidates.averaged(lambda tables: tables.log_right)
    wrong = candidates.averaged(lambda tables: tables.log_wrong)
    told = p * (np.log(p) - right) + (1 - p) * (np.log1p(-p) - wrong)
    return told / candidates.belief.items.dispersion


def d_optimal(candidates: Candidates) -> FloatArray:
    """Fall of the log volume of what ability and misfit factors may be [Seg96]_."""
    gain, _ = _gain_and_along(candidates)
    return np.log1p(gain)


def a_optimal(candidates: Candidates) -> FloatArray:
    """Fall of the summed variances of ability and misfit factors."""
    gain, squares = _gain_and_along(candidates)
    return squares / (1 + gain)


def full_score(candidates: Candidates) -> FloatArray:
    """Fall of the variance of the full score that asking an item brings.

    Optimal for one function of the state (c-optimality): items count as far as they tell what the
    model would score on those not asked.
    """
    belief, state = candidates.belief, candidates.state
    found, directions = expected(belief, state), belief.items.directions
    share = candidates.tables.shares.weights[:, :1]
    slope = sensitivity(rest_of(belief) * found.scale, directions, share)
    towards = along(state.covariance, directions)
    weight = found.scale**2 / found.variance
    total = 1 + weight * (towards * directions.T).sum(axis=1)
    told = (slope @ towards)[:, 0]
    # An item asked is no longer to be predicted, which counts where few are left.
    return weight * told**2 / total + found.variance * share[:, 0] ** 2


def at_random(candidates: Candidates) -> FloatArray:
    """Any item is as good as another: the baseline."""
    shape = len(candidates.belief.places), len(candidates.belief.items.discrimination)
    return candidates.rng.random(shape)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "information": information,
        "posterior-information": posterior_information,
        "kl": kullback_leibler,
        "d-optimal": d_optimal,
        "a-optimal": a_optimal,
        "full-score": full_score,
        "random": at_random,
    }
)


RULE_NAMES = (*RULES, MIXED)


def rule_for(bank: ItemBank, rule: str) -> str:
    """Name of the rule; ``"auto"`` goes by what the bank knows.

    Raises
    ------
    SelectionError
        No such rule.
    """
    if rule == "auto":
        return "full-score" if bank.misfit_loadings.shape[1] else "posterior-information"
    if rule not in RULE_NAMES:
        raise SelectionError(no_such("rule", rule, RULE_NAMES, f"auto, {', '.join(RULE_NAMES)}"))
    return rule


def worth(candidates: Candidates, rule: str, n_asked: int) -> FloatArray:
    """Worth of every item, shape (S, M), by a name of `RULE_NAMES`, after `n_asked` items."""
    if rule == MIXED:
        rule = "random" if n_asked % 2 else "full-score"
    return RULES[rule](candidates)


def _gain_and_along(candidates: Candidates) -> tuple[FloatArray, FloatArray]:
    """Information of each item times variance of its logit, and times covariances squared."""
    found, directions = (
        expected(candidates.belief, candidates.state),
        candidates.belief.items.directions,
    )
    weight = found.scale**2 / found.variance
    towards = along(candidates.state.covariance, directions)
    return weight * (towards * directions.T).sum(axis=1), weight * (towards**2).sum(axis=1)


@dataclass(frozen=True)
class Randomesque:
    """One of the best `size` items, at random [KZ89]_."""

    size: int = 5

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SelectionError(f"randomesque of {self.size} items found, expected at least 1")


@dataclass(frozen=True, eq=False)
class SympsonHetter:
    """An item that is chosen is asked with its own probability, else the next best [SH85]_.

    An item that was refused is refused for the whole test, so all items are drawn for before it
    [vdLV04]_.
    """

    probability: FloatArray
    """Shape (M,); `exposure.exposure_control` finds them."""


Exposure: TypeAlias = Randomesque | SympsonHetter | None


def eligible(exposure: Exposure, shape: tuple[int, int], rng: np.random.Generator) -> BoolArray:
    """Draw the items that S sessions may be asked at all: shape (S, M)."""
    if not isinstance(exposure, SympsonHetter):
        return np.ones(shape, dtype=np.bool_)
    return np.asarray(rng.random(shape) < exposure.probability)


def preferring(allowed: BoolArray, eligible_ones: BoolArray) -> BoolArray:
    """Keep of the items allowed, (S, M), those eligible; where there is none, all of them."""
    found = allowed & eligible_ones
    return np.where(found.any(axis=1, keepdims=True), found, allowed)


@dataclass(frozen=True, eq=False)
class Targets:
    """Content balancing: the task furthest behind its share is next [KZ89]_.

    With slack any task is allowed that is not so many items ahead of its share.
    """

    task: IntArray
    """Of each item, shape (M,)."""
    share: FloatArray
    """Shape (T,)."""
    slack: float | None = None

    @classmethod
    def of(cls, bank: ItemBank, content: Content, rule: str = "") -> Targets | None:
        """Targets of a bank, for a rule as it was asked for.

        Raises
        ------
        SelectionError
            A task that is not in the bank, or shares that no question can have.
        """
        loose = rule == "auto" and len(bank.task_names) > 1
        if content is None and not loose:
            return None
        task = bank.task_places
        in_bank = np.bincount(task) / len(bank)
        if content is None:
            return cls(task, in_bank, _SLACK)
        if isinstance(content, str):
            if content != "tasks":
                raise SelectionError(f"content {content!r} found, expected 'tasks' or shares")
            return cls(task, in_bank)
        for name, share in content.items():
            if name not in bank.task_names:
                shown = ", ".join(bank.task_names)
                raise SelectionError(no_such("task", name, bank.task_names, shown))
            if not 0 <= share < np.inf:
                raise SelectionError(f"share {share} of task {name!r}, expected 0 or above")
        share = np.array([float(content.get(name, 0.0)) for name in bank.task_names])
        if not share.sum() > 0:
            raise SelectionError("all shares of tasks are 0, expected one above 0")
        return cls(task, share / share.sum())

    def described(self, names: tuple[str, ...]) -> str:
        """Say how questions are shared out over the bank's tasks."""
        if self.slack is not None:
            return "near the shares of the bank"
        shares = zip(names, self.share.tolist(), strict=True)
        return ", ".join(f"{name} {share:.0%}" for name, share in shares if share > 0)

    def allowed(self, open_items: NDArray[np.bool_], asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Keep of the items open to each session, (S, M), those of the tasks that are due."""
        counts = self._counts(asked)
        behind = self.share * (counts.sum(axis=1, keepdims=True) + 1) - counts
        left = (self._counts(open_items) > 0) & (self.share > 0)
        due = np.where(left, behind, -np.inf)
        # Some task is always behind its share, or just on it.
        bar = due.max(axis=1, keepdims=True)
        bar = bar if self.slack is None else np.minimum(bar, 1 - self.slack)
        found = open_items & (left & (due >= bar)).take(self.task, axis=1)
        # Where all tasks with a share are used up, whatever is left.
        return np.where(left.any(axis=1, keepdims=True), found, open_items)

    def _counts(self, items: BoolArray) -> IntArray:
        """Items of a mask, (S, M), by task: shape (S, T)."""
        shape = len(items), len(self.share)
        codes = self.task + shape[1] * np.arange(shape[0])[:, None]
        return np.bincount(codes[items], minlength=shape[0] * shape[1]).reshape(shape)


def pick(
    worth: FloatArray,
    allowed: NDArray[np.bool_],
    exposure: Exposure,
    rng: np.random.Generator,
) -> IntArray:
    """Take one item for each session: shape (S,).

    Parameters
    ----------
    worth, allowed
        Shape (S, M); every session has an item allowed.
    """
    values = np.where(allowed, worth, -np.inf)
    if not isinstance(exposure, Randomesque):
        return values.argmax(axis=1)
    size = min(exposure.size, values.shape[1])
    best = np.argpartition(-values, size - 1, axis=1)[:, :size]
    open_ones = np.take_along_axis(allowed, best, axis=1)
    drawn = np.where(open_ones, rng.random(best.shape), -1.0).argmax(axis=1)
    return np.take_along_axis(best, drawn[:, None], axis=1)[:, 0]
