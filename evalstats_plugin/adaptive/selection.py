"""Item selection: rules that value items, content balancing and exposure control.

* `RULES`, `worth`: the value of each item for the next question, from `Candidates`
* `Targets`: content balancing over tasks
* `Randomesque`, `SympsonHetter`: exposure control
* `pick`: the best item allowed
"""

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
    rest_of,
    sensitivity,
)
from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.steady import steady

_NOTHING = 1e-16
"""Probability below which a node is ignored: it changes no digit of a mean."""

_AT_HAND, _MOST_AT_HAND = 128, 30_000_000
"""Bytes per item of the temporary arrays of a step; and the largest block that glibc reuses."""

_ROUNDING = 1e-9

_COARSE = 4
"""Nodes of the grid for each node of the tables: curves are smoother than posteriors."""

_TABLES: WeakKeyDictionary[ItemBank, Tables] = WeakKeyDictionary()
_SLACK = 2.0
"""Items that a task may be ahead of its share under the rule ``"auto"``: the best items still come
first, but no single task dominates the ability."""

Content: TypeAlias = Mapping[str, float] | Literal["tasks"] | None
"""Share of the questions by task; ``"tasks"``: as in the bank; None: no balancing, except that the
rule ``"auto"`` keeps near the shares of the bank."""


@dataclass(frozen=True, eq=False)
class Tables:
    """Curves of a bank's items at a few nodes, each of shape (Q, M), computed once on first use."""

    items: Items
    nodes: FloatArray
    """Of the grid, shape (G,)."""
    shares: Shares

    @classmethod
    def of(cls, bank: ItemBank) -> Tables:
        """Tables of a bank; sessions on the same bank share them."""
        if bank not in _TABLES:
            # After a large block was freed, glibc reuses smaller ones. Without that it returns the
            # arrays of each step to the system, and steps take twice as long.
            np.empty(min(_AT_HAND * len(bank), _MOST_AT_HAND), dtype=np.uint8)
            _TABLES[bank] = cls(bank.items, Belief.prior(bank).nodes, Shares.of(bank))
        return _TABLES[bank]

    @cached_property
    def spreading(self) -> FloatArray:
        """Interpolation weights of the grid's nodes on the table's nodes, shape (G, Q)."""
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
    """What rules use: the belief of S sessions, the tables, and the state of the abilities."""

    belief: Belief
    tables: Tables
    rng: np.random.Generator
    find_state: Callable[[], State]

    @cached_property
    def state(self) -> State:
        """Normal approximation of ability and misfit factors, computed on first use."""
        return self.find_state()

    def averaged(self, table: Callable[[Tables], FloatArray]) -> FloatArray:
        """Mean of a table over the posterior: shape (S, M)."""
        few = self.belief.posterior @ self.tables.spreading
        reached = np.flatnonzero((few > _NOTHING).any(axis=0))
        # The posterior's mass lies in one slice of the grid.
        piece = slice(reached[0], reached[-1] + 1)
        return few[:, piece] @ table(self.tables)[piece]

    def expecting(self, chosen: np.ndarray) -> Candidates:
        """Return the candidates expected after one item per session, shape (S,), is answered.

        Only the answer's information is used: posteriors narrow around their present means.
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
"""Returns the worth of every item for every session, shape (S, M)."""


def information(candidates: Candidates) -> FloatArray:
    """Fisher information at the estimated ability [Lor80]_."""
    ability, _ = eap(candidates.belief)
    return respond(candidates.belief.items, ability[:, None]).information


def posterior_information(candidates: Candidates) -> FloatArray:
    """Fisher information averaged over the posterior of the ability and the item's errors."""
    return candidates.averaged(lambda tables: tables.information)


def kullback_leibler(candidates: Candidates) -> FloatArray:
    """Kullback–Leibler information: the estimated ability against the posterior [CY96]_."""
    ability, _ = eap(candidates.belief)
    p = respond(candidates.belief.items, ability[:, None]).probability
    right = candidates.averaged(lambda tables: tables.log_right)
    wrong = candidates.averaged(lambda tables: tables.log_wrong)
    divergence = p * (np.log(p) - right) + (1 - p) * (np.log1p(-p) - wrong)
    return divergence / candidates.belief.items.dispersion


def d_optimal(candidates: Candidates) -> FloatArray:
    """D-optimality: log determinant gained for ability and misfit factors [Seg96]_."""
    gain, _ = _gain_and_along(candidates)
    return np.log1p(gain)


def a_optimal(candidates: Candidates) -> FloatArray:
    """A-optimality: reduction of the summed variances of ability and misfit factors."""
    gain, squares = _gain_and_along(candidates)
    return squares / (1 + gain)


def full_score(candidates: Candidates) -> FloatArray:
    """Reduction of the variance of the full score by asking an item (c-optimality).

    Items are worth as much as they reveal of the model's score on the items not asked.
    """
    belief, state = candidates.belief, candidates.state
    found, directions = expected(belief, state), belief.items.directions
    share = candidates.tables.shares.weights[:, :1]
    slope = sensitivity(rest_of(belief) * found.scale, directions, share)
    towards = along(state.covariance, directions)
    weight = found.scale**2 / found.variance
    total = 1 + weight * (towards * directions.T).sum(axis=1)
    covariance = (slope @ towards)[:, 0]
    # An item asked need not be predicted any more, which matters when few are left.
    return weight * covariance**2 / total + found.variance * share[:, 0] ** 2


def at_random(candidates: Candidates) -> FloatArray:
    """Random worth: the baseline."""
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
MIXED = "mixed"
"""Every other item by ``"full-score"``, the others at random."""

RULE_NAMES = (*RULES, MIXED)


def rule_for(bank: ItemBank, rule: str) -> str:
    """Resolve a rule's name; ``"auto"`` depends on whether the bank has misfit factors.

    For several abilities it is ``"d-optimal"``: what narrows their joint posterior most.

    Raises
    ------
    SelectionError
        No such rule.
    """
    if rule == "auto" and bank.axes is not None:
        return "d-optimal"
    if rule == "auto":
        return "full-score" if bank.misfit_loadings.shape[1] else "posterior-information"
    if rule not in RULE_NAMES:
        raise SelectionError(no_such("rule", rule, RULE_NAMES, f"auto, {', '.join(RULE_NAMES)}"))
    return rule


INSURANCE = 0.1
"""Share of items drawn at random by default; see the study in tests/validation."""


def check_insurance(share: float) -> None:
    """Raise `SelectionError` for a share of random items outside [0, 1)."""
    if not 0 <= share < 1:
        msg = f"a share of {share:g} random items is not possible"
        raise SelectionError(f"{msg}: give 0 or more and less than 1, such as {INSURANCE:g}")


def is_insured(share: float, n_asked: int) -> bool:
    """Whether the next item is drawn at random, after `n_asked`: each 1/share-th is.

    >>> [n for n in range(1, 21) if is_insured(0.15, n - 1)]
    [7, 14, 20]
    """
    return int((n_asked + 1) * share + _ROUNDING) > int(n_asked * share + _ROUNDING)


def worth(
    candidates: Candidates,
    rule: str,
    n_asked: int,
    insurance: float = 0.0,
    against: float | None = None,
) -> FloatArray:
    """Worth of every item, shape (S, M), by a name of `RULE_NAMES`, after `n_asked` items.

    To find out on which side of an ability a model lies, items are worth their information there.
    """
    if against is not None and not is_insured(insurance, n_asked):
        return respond(candidates.belief.items, np.array([[against]])).information
    if rule == MIXED:
        rule = "random" if n_asked % 2 else "full-score"
    return RULES["random" if is_insured(insurance, n_asked) else rule](candidates)


def _gain_and_along(candidates: Candidates) -> tuple[FloatArray, FloatArray]:
    """Information of each item times its logit's variance, and times squared covariances."""
    found = expected(candidates.belief, candidates.state)
    directions = candidates.belief.items.directions
    weight = found.scale**2 / found.variance
    towards = along(candidates.state.covariance, directions)
    return weight * (towards * directions.T).sum(axis=1), weight * (towards**2).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Targets:
    """Content balancing: the task furthest behind its share is next [KZ89]_.

    With slack, every task is allowed that is less than so many items ahead of its share.
    """

    task: IntArray
    """Of each item, shape (M,)."""
    share: FloatArray
    """Shape (T,)."""
    slack: float | None = None

    @classmethod
    def of(cls, bank: ItemBank, content: Content, rule: str = "") -> Targets | None:
        """Targets of a bank, or None for no balancing; `rule` is the unresolved name.

        Raises
        ------
        SelectionError
            A task that is not in the bank, or shares that are negative or all 0.
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
                msg = f"content {content!r} is not possible: give 'tasks', or a share by task"
                raise SelectionError(msg)
            return cls(task, in_bank)
        for name, share in content.items():
            if name not in bank.task_names:
                shown = ", ".join(bank.task_names)
                raise SelectionError(no_such("task", name, bank.task_names, shown))
            if not 0 <= share < np.inf:
                msg = f"share {share} of task {name!r} is not possible: give 0 or more"
                raise SelectionError(msg)
        share = np.array([float(content.get(name, 0.0)) for name in bank.task_names])
        if not share.sum() > 0:
            raise SelectionError("all shares of tasks are 0: give at least one above 0")
        return cls(task, share / share.sum())

    def described(self, names: tuple[str, ...]) -> str:
        """Describe the shares of the tasks in words."""
        if self.slack is not None:
            return "near the shares of the bank"
        shares = zip(names, self.share.tolist(), strict=True)
        return ", ".join(f"{name} {share:.0%}" for name, share in shares if share > 0)

    def allowed(self, open_items: NDArray[np.bool_], asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Keep the items of tasks that are due, of those open to each session, (S, M)."""
        counts = self._counts(asked)
        behind = self.share * (counts.sum(axis=1, keepdims=True) + 1) - counts
        left = (self._counts(open_items) > 0) & (self.share > 0)
        due = np.where(left, behind, -np.inf)
        # At least one task is always behind or at its share.
        bar = due.max(axis=1, keepdims=True)
        bar = bar if self.slack is None else np.minimum(bar, 1 - self.slack)
        found = open_items & (left & (due >= bar)).take(self.task, axis=1)
        # If all tasks with a share are exhausted, whatever is left.
        return np.where(left.any(axis=1, keepdims=True), found, open_items)

    def _counts(self, items: BoolArray) -> IntArray:
        """Number of items of a mask, (S, M), by task: shape (S, T)."""
        shape = len(items), len(self.share)
        codes = self.task + shape[1] * np.arange(shape[0])[:, None]
        return np.bincount(codes[items], minlength=shape[0] * shape[1]).reshape(shape)


@dataclass(frozen=True)
class Randomesque:
    """Ask one of the best `size` items, at random [KZ89]_."""

    size: int = 5

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SelectionError(f"Randomesque({self.size}) has no item: choose 1 or more")


@dataclass(frozen=True, eq=False)
class SympsonHetter:
    """Ask a chosen item with its own probability, else the next best [SH85]_.

    An item refused once is refused for the whole test, so eligibility of all items is drawn before
    it starts [vdLV04]_.
    """

    probability: FloatArray
    """Shape (M,); see `simulation.exposure_control`."""


Exposure: TypeAlias = Randomesque | SympsonHetter | None


def eligible(exposure: Exposure, shape: tuple[int, int], rng: np.random.Generator) -> BoolArray:
    """Draw the items that each of S sessions may be asked, shape (S, M)."""
    if not isinstance(exposure, SympsonHetter):
        return np.ones(shape, dtype=np.bool_)
    return np.asarray(rng.random(shape) < exposure.probability)


def preferring(allowed: BoolArray, eligible_ones: BoolArray) -> BoolArray:
    """Keep the eligible ones of the items allowed, (S, M); all of them if none is eligible."""
    found = allowed & eligible_ones
    return np.where(found.any(axis=1, keepdims=True), found, allowed)


def pick(
    worth: FloatArray,
    allowed: NDArray[np.bool_],
    exposure: Exposure,
    rng: np.random.Generator,
) -> IntArray:
    """Choose one item for each session, shape (S,).

    Parameters
    ----------
    worth, allowed
        Shape (S, M); every session needs at least one item allowed.
    """
    values = np.where(allowed, steady(worth), -np.inf)
    if not isinstance(exposure, Randomesque):
        return values.argmax(axis=1)
    size = min(exposure.size, values.shape[1])
    best = np.argpartition(-values, size - 1, axis=1)[:, :size]
    open_ones = np.take_along_axis(allowed, best, axis=1)
    drawn = np.where(open_ones, rng.random(best.shape), -1.0).argmax(axis=1)
    return np.take_along_axis(best, drawn[:, None], axis=1)[:, 0]
