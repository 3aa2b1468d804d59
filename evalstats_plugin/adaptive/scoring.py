"""What answers so far say of a model's ability: EAP, MAP and WLE with standard errors.

Many sessions at once: arrays have an axis of S sessions first, each of which has answered as many
items as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import Items, log_likelihood, respond
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.stats.interval import FloatArray, IntArray, tail_probability
from evalstats_plugin.wording import no_such

N_NODES = 201
_REACH = 6.0
"""Of the grid, in standard deviations of the prior to each side."""


class Scored(NamedTuple):
    """Abilities of sessions, shape (S,)."""

    ability: FloatArray
    std_error: FloatArray


@dataclass(frozen=True, eq=False)
class Belief:
    """Answers of S sessions and what they say of the abilities, on a grid of G nodes."""

    items: Items
    """Of the bank."""
    nodes: FloatArray
    """Abilities, shape (G,)."""
    log_prior: FloatArray
    """Shape (G,)."""
    log_likelihood: FloatArray
    """Shape (S, G)."""
    places: IntArray
    """Items answered, shape (S, n), in order."""
    right: FloatArray
    """Sum of scores, shape (S, n)."""
    trials: FloatArray

    @classmethod
    def prior(cls, bank: ItemBank, n_sessions: int = 1) -> Belief:
        """What is believed before the first answer: abilities as those of the bank's models."""
        nodes = bank.ability_mean + bank.ability_sd * np.linspace(-_REACH, _REACH, N_NODES)
        log_prior = -0.5 * ((nodes - bank.ability_mean) / bank.ability_sd) ** 2
        empty = np.zeros((n_sessions, 0))
        return cls(
            bank.items,
            nodes,
            log_prior - special.logsumexp(log_prior),
            np.zeros((n_sessions, N_NODES)),
            empty.astype(np.int64),
            empty,
            empty,
        )

    def answered(self, places: IntArray, right: FloatArray, trials: FloatArray) -> Belief:
        """Return the belief after further answers, arrays of shape (S, k)."""
        items = self.items.take(places[..., None])
        found = log_likelihood(items, self.nodes, right[..., None], trials[..., None])
        return replace(
            self,
            log_likelihood=self.log_likelihood + found.sum(axis=1),
            places=np.concatenate([self.places, places], axis=1),
            right=np.concatenate([self.right, right], axis=1),
            trials=np.concatenate([self.trials, trials], axis=1),
        )

    @cached_property
    def posterior(self) -> FloatArray:
        """Probabilities of the nodes, shape (S, G)."""
        values = self.log_likelihood + self.log_prior
        chances = np.exp(values - values.max(axis=-1, keepdims=True))
        return chances / chances.sum(axis=-1, keepdims=True)

    def interval(self, confidence_level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Equal-tailed limits of the abilities, each of shape (S,)."""
        tail = tail_probability(confidence_level)
        at = self.posterior
        # A node stands for what is around it: half of it lies below.
        below = np.cumsum(at, axis=-1) - at / 2
        return _crossing(below, self.nodes, tail), _crossing(below, self.nodes, 1 - tail)

    def prob_above(self, ability: float) -> FloatArray:
        """Probability that abilities lie above a value, shape (S,)."""
        at = self.posterior
        step = self.nodes[1] - self.nodes[0]
        return at @ np.clip((self.nodes - ability) / step + 0.5, 0, 1)

    def log_ratio(self, above: float, below: float) -> FloatArray:
        """Log likelihood ratio of one ability to another, between nodes by a line, shape (S,)."""
        at = np.interp([above, below], self.nodes, np.arange(len(self.nodes)))
        left = np.minimum(at.astype(np.int64), len(self.nodes) - 2)
        values = self.log_likelihood
        found = values[:, left] + (at - left) * (values[:, left + 1] - values[:, left])
        return found[:, 0] - found[:, 1]

    def entropy(self) -> FloatArray:
        """Of the posterior over the nodes, in nats, shape (S,)."""
        return special.entr(self.posterior).sum(axis=-1)


def eap(belief: Belief) -> Scored:
    """Mean and standard deviation of the posterior [BM82]_."""
    at = belief.posterior
    mean = at @ belief.nodes
    return Scored(mean, np.sqrt(np.maximum(at @ belief.nodes**2 - mean**2, 1e-12)))


def maximum_a_posteriori(belief: Belief) -> Scored:
    """Mode of the posterior, and its curvature there."""
    return _peak(belief.log_likelihood + belief.log_prior, belief.nodes)


def weighted_likelihood(belief: Belief) -> Scored:
    """Mode of the likelihood weighted by the root of the information [War89]_.

    No prior: nearly unbiased whatever the ability. Before the first answer it is the prior's mean,
    with an infinite standard error.
    """
    n_sessions, n = belief.places.shape
    if n == 0:
        mean = np.full(n_sessions, belief.nodes @ np.exp(belief.log_prior))
        return Scored(mean, np.full(n_sessions, np.inf))
    items = belief.items.take(belief.places[..., None])
    each = respond(items, belief.nodes).information * belief.trials[..., None]
    information = each.sum(axis=1)
    found = _peak(belief.log_likelihood + 0.5 * np.log(information + 1e-300), belief.nodes)
    at = np.abs(belief.nodes - found.ability[:, None]).argmin(axis=-1)
    there = np.take_along_axis(information, at[:, None], axis=-1)[:, 0]
    return Scored(found.ability, 1 / np.sqrt(np.maximum(there, 1e-12)))


SCORINGS: Mapping[str, Callable[[Belief], Scored]] = MappingProxyType(
    {"eap": eap, "map": maximum_a_posteriori, "wle": weighted_likelihood}
)


def score(belief: Belief, scoring: str = "eap") -> Scored:
    """Abilities by a name of `SCORINGS`.

    Raises
    ------
    SelectionError
        No such name.
    """
    if scoring not in SCORINGS:
        raise SelectionError(no_such("scoring", scoring, SCORINGS, ", ".join(SCORINGS)))
    return SCORINGS[scoring](belief)


def _peak(values: FloatArray, nodes: FloatArray) -> Scored:
    """Vertex of the parabola through the highest node and its neighbours."""
    top = np.clip(values.argmax(axis=-1), 1, len(nodes) - 2)[:, None]
    left, middle, right = (np.take_along_axis(values, top + k, axis=-1)[:, 0] for k in (-1, 0, 1))
    step = nodes[1] - nodes[0]
    curvature = np.minimum(left - 2 * middle + right, -1e-12)
    offset = np.clip(0.5 * (left - right) / curvature, -1, 1)
    return Scored(nodes[top[:, 0]] + step * offset, step / np.sqrt(-curvature))


def _crossing(below: FloatArray, nodes: FloatArray, probability: float) -> FloatArray:
    """Where distribution functions, shape (S, G), pass a probability."""
    after = np.clip((below < probability).sum(axis=-1), 1, len(nodes) - 1)[:, None]
    low = np.take_along_axis(below, after - 1, axis=-1)[:, 0]
    high = np.take_along_axis(below, after, axis=-1)[:, 0]
    share = np.clip((probability - low) / np.maximum(high - low, 1e-300), 0, 1)
    return nodes[after[:, 0] - 1] + share * (nodes[1] - nodes[0])
