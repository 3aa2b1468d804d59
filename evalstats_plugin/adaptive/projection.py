"""What the full benchmark would say: scores of items asked, and those expected of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evalstats_plugin.adaptive.bank import ALL_TASKS, ItemBank
from evalstats_plugin.adaptive.curves import Items, Response, respond
from evalstats_plugin.adaptive.scoring import Belief, eap
from evalstats_plugin.stats.interval import FloatArray, normal_quantile

_STEPS = 30


class State(NamedTuple):
    """Normal approximation of (θ, f) of S sessions, in D = 1 + K dimensions."""

    mean: FloatArray
    """Shape (S, D)."""
    covariance: FloatArray
    """Shape (S, D, D)."""


class FullScore(NamedTuple):
    """Scores on all items, over all of them and by task: arrays of shape (S, 1 + T)."""

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    std_error: FloatArray


@dataclass(frozen=True, eq=False)
class Shares:
    """How much an item counts in each score: the mean of all items, and of each task's."""

    names: tuple[str, ...]
    """`ALL_TASKS`, then tasks."""
    weights: FloatArray
    """Shape (M, 1 + T)."""
    misfit: FloatArray
    """Standard deviation of scores that nothing else explains, shape (1 + T,)."""

    @classmethod
    def of(cls, bank: ItemBank) -> Shares:
        """Scores of a bank's tasks; of one task alone there is no other than that of all items."""
        tasks = bank.task_names
        names = (ALL_TASKS, *tasks) if len(tasks) > 1 else (ALL_TASKS,)
        own = bank.tasks.astype(str)[:, None] == np.asarray(names)[None, :]
        own[:, 0] = True
        misfit = np.array([float(bank.misfit.get(name, 0.0)) for name in names])
        # A score lies in memory in one piece: sums over items are quickest so.
        return cls(names, np.asfortranarray(own / own.sum(axis=0)), misfit)

    @cached_property
    def squares(self) -> FloatArray:
        """Of the weights."""
        return self.weights**2


def laplace(belief: Belief, start: State | None = None) -> State:
    """Mode and curvature of the joint posterior of ability and misfit factors.

    Fisher scoring, from the ability as estimated where there is no better start; items' errors
    flatten their curves as in `curves.respond`.
    """
    n_sessions = len(belief.places)
    k = belief.items.loadings.shape[-1]
    prior = np.exp(belief.log_prior)
    centre = float(prior @ belief.nodes)
    variance = float(prior @ (belief.nodes - centre) ** 2)
    origin, mean = np.zeros((2, n_sessions, 1 + k))
    origin[:, 0], mean[:, 0] = centre, eap(belief).ability
    mean: FloatArray = mean if start is None else start.mean
    precision = np.diag(np.array([1 / variance, *([1.0] * k)]))
    items = belief.items.take(belief.places)
    directions = items.directions
    curvature = np.broadcast_to(precision, (n_sessions, 1 + k, 1 + k))
    for _ in range(_STEPS):
        found = _at(items, mean)
        noise = found.variance
        pull = (belief.right - belief.trials * found.probability) * found.scale / noise
        weight = belief.trials * found.scale**2 / noise
        gradient = np.einsum("sn,snd->sd", pull, directions) - (mean - origin) @ precision
        weighted = np.swapaxes(directions * weight[..., None], 1, 2)
        curvature = weighted @ directions + precision
        solved = np.linalg.solve(np.asarray(curvature), np.asarray(gradient)[..., None])
        newton = np.asarray(solved[..., 0], dtype=np.float64)
        step = np.clip(newton, -2.0, 2.0)
        mean = mean + step
        if np.abs(step).max(initial=0.0) < 1e-6:
            break
    return State(mean, np.asarray(np.linalg.inv(curvature), dtype=np.float64))


def _at(items: Items, mean: FloatArray) -> Response:
    shift = (items.loadings @ mean[:, 1:, None])[..., 0]
    return respond(items, mean[:, :1], shift)


def expected(belief: Belief, state: State, spread: FloatArray | float = 0.0) -> Response:
    """Curves of all items at the state of each session, shape (S, M), `spread` averaged over."""
    shift = state.mean[:, 1:] @ belief.items.loadings.T
    return respond(belief.items, state.mean[:, :1], shift, spread)


def rest_of(belief: Belief) -> FloatArray:
    """1 where an item has not been asked: shape (S, M)."""
    rest = np.ones((len(belief.places), len(belief.items.discrimination)))
    np.put_along_axis(rest, belief.places, 0.0, axis=1)
    return rest


def sensitivity(slopes: FloatArray, directions: FloatArray, weights: FloatArray) -> FloatArray:
    """Derivative of scores by (θ, f): (S, 1 + T, D).

    Parameters
    ----------
    slopes
        Of the curves not answered yet by their logits, shape (S, M).
    directions
        Shape (M, D).
    weights
        Shape (M, 1 + T).
    """
    return np.swapaxes((slopes[:, None] * directions.T) @ weights, 1, 2)


def along(covariance: FloatArray, directions: FloatArray) -> FloatArray:
    """Covariance of a state with each item's logit: (S, D, M) for directions (M, D)."""
    return covariance @ directions.T


def project(
    belief: Belief, shares: Shares, *, state: State | None = None, confidence_level: float = 0.95
) -> FullScore:
    """Expected score on all items, with an interval for the score that asking all would give.

    The item response projection (p-IRT) of tinyBenchmarks [Pol24]_, with misfit factors in place
    of its mixture with the mean of the items asked. The variance is that of the state, of the
    answers not seen yet, and of misfit that the factors do not tell.
    """
    state = laplace(belief) if state is None else state
    rest, directions = rest_of(belief), belief.items.directions
    spread = (along(state.covariance, directions) * directions.T).sum(axis=1)
    # The mean of a curve over a normal logit: flatter than the curve at its mean.
    p = rest * expected(belief, state, spread).probability
    asked = shares.weights[belief.places]
    scores = belief.right / np.maximum(belief.trials, 1e-9)
    seen = np.einsum("sn,snt->st", scores, asked)
    estimate = seen + p @ shares.weights
    slopes = sensitivity(rest * expected(belief, state).scale, directions, shares.weights)
    known = ((slopes @ state.covariance) * slopes).sum(axis=-1)
    unseen = (belief.items.dispersion * p * (1 - p)) @ shares.squares
    share = np.maximum(1 - asked.sum(axis=1), 0.0)
    variance = known + unseen + (shares.misfit * share) ** 2
    std_error = np.sqrt(variance)
    half = normal_quantile(confidence_level) * std_error
    low, high = np.maximum(estimate - half, seen), np.minimum(estimate + half, seen + share)
    return FullScore(estimate, low, high, std_error)
