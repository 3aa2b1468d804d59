"""Which item to ask next: how much each is worth, by rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import Items, Response, respond
from evalstats_plugin.adaptive.projection import (
    Shares,
    State,
    along,
    expected,
    laplace,
    rest_of,
    sensitivity,
)
from evalstats_plugin.adaptive.scoring import Belief, eap
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.wording import no_such

_NOTHING = 1e-16
"""Probability of a node that changes no digit of a mean."""
_AT_HAND, _MOST_AT_HAND = 128, 30_000_000
"""Bytes: of each item in the arrays that a step makes and drops; and what glibc keeps at most."""
_COARSE = 4
"""Nodes of the grid to one of the tables of curves: curves bend less than posteriors."""


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


_TABLES: WeakKeyDictionary[ItemBank, Tables] = WeakKeyDictionary()


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
MIXED = "mixed"
"""Every other item by ``"full-score"``, the others at random."""
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
