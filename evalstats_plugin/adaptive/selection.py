"""Which item to ask next: how much each is worth, by rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import respond
from evalstats_plugin.adaptive.projection import (
    Shares,
    State,
    expected,
    laplace,
    rest_of,
    sensitivity,
)
from evalstats_plugin.adaptive.scoring import Belief, eap
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.wording import no_such

_COARSE = 4
"""Nodes of the grid to one of the tables of curves: curves bend less than posteriors."""


@dataclass(frozen=True, eq=False)
class Tables:
    """Curves of a bank's items at a few nodes, made once: each of shape (M, Q)."""

    information: FloatArray
    log_right: FloatArray
    log_wrong: FloatArray
    spreading: FloatArray
    """Shape (G, Q): how a node of the grid is shared out among the few."""
    shares: Shares

    @classmethod
    def of(cls, bank: ItemBank) -> Tables:
        """Tables of a bank."""
        nodes = Belief.prior(bank).nodes
        few = nodes[::_COARSE]
        found = respond(bank.items.take(np.arange(len(bank))[:, None]), few)
        spreading = np.maximum(1 - np.abs(nodes[:, None] - few) / (few[1] - few[0]), 0)
        p = found.probability
        return cls(found.information, np.log(p), np.log1p(-p), spreading, Shares.of(bank))


@dataclass(frozen=True, eq=False)
class Candidates:
    """What rules look at: the belief of S sessions, the tables, and the state of abilities."""

    belief: Belief
    tables: Tables
    state: State
    rng: np.random.Generator

    @classmethod
    def of(
        cls, belief: Belief, tables: Tables, rng: np.random.Generator, start: State | None = None
    ) -> Candidates:
        """Candidates for the next item."""
        return cls(belief, tables, laplace(belief, start), rng)

    @property
    def few(self) -> FloatArray:
        """Posterior on the nodes of the tables, shape (S, Q)."""
        return self.belief.posterior @ self.tables.spreading

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
        return replace(self, belief=belief, state=self._informed(chosen))

    def _informed(self, chosen: np.ndarray) -> State:
        mean, covariance = self.state
        items = self.belief.items.take(chosen[:, None])
        shift = np.einsum("sk,sk->s", items.loadings[:, 0], mean[:, 1:])[:, None]
        found = respond(items, mean[:, :1], shift)
        weight = (found.scale**2 / found.variance)[:, 0]
        direction = items.directions[:, 0]
        along = (covariance @ direction[..., None])[..., 0]
        total = 1 + weight * np.einsum("sd,sd->s", direction, along)
        lost = (weight / total)[:, None, None] * along[:, :, None] * along[:, None, :]
        return State(mean, covariance - lost)


Rule = Callable[[Candidates], FloatArray]
"""Gives the worth of every item for every session, shape (S, M)."""


def information(candidates: Candidates) -> FloatArray:
    """Fisher information at the ability as estimated [Lor80]_."""
    ability, _ = eap(candidates.belief)
    return respond(candidates.belief.items, ability[:, None]).information


def posterior_information(candidates: Candidates) -> FloatArray:
    """Fisher information averaged over what the ability and the item's parameters may be."""
    return candidates.few @ candidates.tables.information.T


def kullback_leibler(candidates: Candidates) -> FloatArray:
    """How well answers tell the ability as estimated from all it may be [CY96]_."""
    ability, _ = eap(candidates.belief)
    p = respond(candidates.belief.items, ability[:, None]).probability
    few = candidates.few
    right, wrong = (
        few @ table.T for table in (candidates.tables.log_right, candidates.tables.log_wrong)
    )
    told = p * (np.log(p) - right) + (1 - p) * (np.log1p(-p) - wrong)
    return told / candidates.belief.items.dispersion


def d_optimal(candidates: Candidates) -> FloatArray:
    """Fall of the log volume of what ability and misfit factors may be [Seg96]_."""
    weight, along = _weight_and_along(candidates)
    directions = candidates.belief.items.directions
    return np.log1p(weight * np.einsum("smd,md->sm", along, directions, optimize=True))


def a_optimal(candidates: Candidates) -> FloatArray:
    """Fall of the summed variances of ability and misfit factors."""
    weight, along = _weight_and_along(candidates)
    directions = candidates.belief.items.directions
    total = 1 + weight * np.einsum("smd,md->sm", along, directions, optimize=True)
    return weight / total * (along**2).sum(axis=-1)


def full_score(candidates: Candidates) -> FloatArray:
    """Fall of the variance of the full score that asking an item brings.

    Optimal for one function of the state (c-optimality): items count as far as they tell what the
    model would score on those not asked.
    """
    belief, state = candidates.belief, candidates.state
    found = expected(belief, state)
    rest = rest_of(belief)
    weights = candidates.tables.shares.weights[:, :1]
    slope = sensitivity(belief, found, weights, rest)[:, 0]
    noise = found.variance
    weight = found.scale**2 / noise
    directions = belief.items.directions
    towards = (state.covariance @ slope[..., None])[..., 0]
    total = 1 + weight * _quadratic(state.covariance, directions)
    # An item asked is no longer to be predicted, which counts where few are left.
    return weight * (towards @ directions.T) ** 2 / total + noise * weights[:, 0] ** 2


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


def _quadratic(covariance: FloatArray, directions: FloatArray) -> FloatArray:
    return np.einsum("md,sde,me->sm", directions, covariance, directions, optimize=True)


def _weight_and_along(candidates: Candidates) -> tuple[FloatArray, FloatArray]:
    """Information of each item on its logit (S, M), and its direction times the covariance."""
    found = expected(candidates.belief, candidates.state)
    weight = found.scale**2 / found.variance
    directions = candidates.belief.items.directions
    along = np.einsum("sde,me->smd", candidates.state.covariance, directions, optimize=True)
    return weight, along
