"""Item selection: rules that value items, content balancing and exposure control.

* `DRAWING`: rules by which items are drawn by chance (`design.Draws`)
* `RULES`, `worth`: rules that choose, by the value of each item for the next question
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

_COARSE = 4
"""Nodes of the grid for each node of the tables: curves are smoother than posteriors."""

_TABLES: WeakKeyDictionary[ItemBank, Tables] = WeakKeyDictionary()
Content: TypeAlias = Mapping[str, float] | Literal["tasks"] | None
"""Share of the questions by task; ``"tasks"``: as in the bank; None: no balancing."""


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
        response = respond(items, mean[:, :1], shift)
        weight = (response.scale**2 / response.variance)[:, 0]
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
    response, directions = expected(belief, state), belief.items.directions
    share = candidates.tables.shares.weights[:, :1]
    slope = sensitivity(rest_of(belief) * response.scale, directions, share)
    towards = along(state.covariance, directions)
    weight = response.scale**2 / response.variance
    total = 1 + weight * (towards * directions.T).sum(axis=1)
    covariance = (slope @ towards)[:, 0]
    # An item asked need not be predicted any more, which matters when few are left.
    return weight * covariance**2 / total + response.variance * share[:, 0] ** 2


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "information": information,
        "posterior-information": posterior_information,
        "kl": kullback_leibler,
        "d-optimal": d_optimal,
        "a-optimal": a_optimal,
        "full-score": full_score,
    }
)
DESIGN, RANDOM = "design", "random"
DRAWING = (DESIGN, RANDOM)
"""Items drawn in proportion to the standard deviation of their answers, or all alike."""

RULE_NAMES = (*DRAWING, *RULES)


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


def check_exposure(rule: str, exposure: Exposure) -> None:
    """Raise `SelectionError` for exposure control of items that are drawn by chance."""
    if rule in DRAWING and exposure is not None:
        msg = f"rule {rule} draws items by chance, so that models see different ones already"
        raise SelectionError(f"{msg}: leave exposure control out, or choose another rule")


def worth(candidates: Candidates, rule: str) -> FloatArray:
    """Worth of every item, shape (S, M), by a name of `RULES`."""
    return RULES[rule](candidates)


def drawn_from(probability: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw an item for each of S sessions by probabilities of shape (S, M)."""
    reached = probability.cumsum(axis=1)
    at = rng.random(len(probability))[:, None] * reached[:, -1:]
    # An item of probability 0 is never reached first.
    return (reached <= at).sum(axis=1).clip(max=probability.shape[1] - 1)


def _gain_and_along(candidates: Candidates) -> tuple[FloatArray, FloatArray]:
    """Information of each item times its logit's variance, and times squared covariances."""
    response = expected(candidates.belief, candidates.state)
    directions = candidates.belief.items.directions
    weight = response.scale**2 / response.variance
    towards = along(candidates.state.covariance, directions)
    return weight * (towards * directions.T).sum(axis=1), weight * (towards**2).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Targets:
    """Content balancing: the task furthest behind its share is next [KZ89]_."""

    task: IntArray
    """Of each item, shape (M,)."""
    share: FloatArray
    """Shape (T,)."""

    @classmethod
    def of(cls, bank: ItemBank, content: Content) -> Targets | None:
        """Targets of a bank, or None for no balancing.

        Raises
        ------
        SelectionError
            A task that is not in the bank, or shares that are negative or all 0.
        """
        if content is None:
            return None
        task = bank.task_places
        in_bank = np.bincount(task) / len(bank)
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
        due_items = open_items & (left & (due >= bar)).take(self.task, axis=1)
        # If all tasks with a share are exhausted, whatever is left.
        return np.where(left.any(axis=1, keepdims=True), due_items, open_items)

    def spread(self, size: FloatArray) -> FloatArray:
        """Sizes of the items, shape (S, M), with their sum in each task in proportion to shares."""
        tasks = self.task[:, None] == np.arange(len(self.share))
        total = size @ tasks
        factor = np.divide(self.share, total, out=np.zeros_like(total), where=total > 0)
        spread = size * factor.take(self.task, axis=1)
        # If all tasks with a share are exhausted, whatever is left.
        return np.where(spread.any(axis=1, keepdims=True), spread, size)

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
    preferred = allowed & eligible_ones
    return np.where(preferred.any(axis=1, keepdims=True), preferred, allowed)


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
