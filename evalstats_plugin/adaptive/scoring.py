"""Abilities (posterior means) and predicted full scores of models in adaptive tests.

* `Belief`: the answers of S sessions and the posterior of their abilities on a grid; all sessions
  have answered equally many items, and arrays have an axis of sessions first
* `eap`: abilities with standard errors; `abilities`: those of a bank of several
* `laplace`, `project`: all abilities jointly, and from them the score on all items
* `predictions`: expected scores of single items, in agreement with a full score
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.adaptive.bank import ALL_TASKS, ItemBank
from evalstats_plugin.adaptive.curves import Items, Response, log_likelihood, respond
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import normal_quantile, tail_probability

_NODES = 201
_REACH = 6.0
"""Of the grid, in standard deviations of the prior to each side."""

_FINER, _RESOLVED = 32, 1.5
"""Points for each node where the posterior is taken between nodes; and standard deviation, in
distances of two nodes, above which sums over the nodes are exact."""

_STEPS = 30
"""Largest number of Newton steps to the posterior mode."""

_POINTS = 7
"""Of the Gauss–Hermite rule, in each dimension."""

_MOST_NODES = 7**3
"""Number of nodes up to which the posterior of abilities is integrated: three abilities."""


@dataclass(frozen=True, slots=True)
class AbilityEstimate:
    """One of several abilities, in standard deviations of the calibrated models."""

    ability: float
    std_error: float
    low: float
    high: float


class Abilities(NamedTuple):
    """K abilities of S sessions."""

    ability: FloatArray
    """Shape (S, K)."""
    covariance: FloatArray
    """Shape (S, K, K)."""

    @property
    def std_error(self) -> FloatArray:
        """Shape (S, K)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    def estimates(self, confidence_level: float) -> tuple[AbilityEstimate, ...]:
        """Return the abilities of the first session with their limits."""
        mean, error = self.ability[0], self.std_error[0]
        half = normal_quantile(confidence_level) * error
        columns = (each.tolist() for each in (mean, error, mean - half, mean + half))
        return tuple(AbilityEstimate(*each) for each in zip(*columns, strict=True))


def quadrature(
    log_density: Callable[[FloatArray], FloatArray], mean: FloatArray, covariance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of a density by adaptive Gauss–Hermite quadrature [NS82]_.

    Parameters
    ----------
    log_density
        Of points of shape (Q, D), up to a constant: shape (Q,).
    mean, covariance
        Of the normal approximation that places the nodes, shapes (D,) and (D, D). It is returned
        as it is beyond three dimensions.
    """
    z, log_weight = _nodes(len(mean))
    if not len(z):
        return mean, covariance
    points = mean + z @ np.linalg.cholesky(covariance).T
    weight = log_density(points) + log_weight
    weight = np.exp(weight - weight.max())
    weight = weight / weight.sum()
    centre = weight @ points
    away = points - centre
    return centre, (away * weight[:, None]).T @ away


@cache
def _nodes(dimensions: int) -> tuple[FloatArray, FloatArray]:
    """Nodes (Q, D) of a standard normal, and log weights less the normal's log density."""
    if _POINTS**dimensions > _MOST_NODES:
        return np.zeros((0, dimensions)), np.zeros(0)
    x, w = np.polynomial.hermite_e.hermegauss(_POINTS)
    log_weights = np.log(w) + x**2 / 2
    z = np.array(list(product(x, repeat=dimensions)))
    return z, np.array([sum(each) for each in product(log_weights, repeat=dimensions)])


@dataclass(frozen=True, eq=False)
class Belief:
    """Answers of S sessions and the posterior of their abilities, on a grid of G nodes."""

    items: Items
    """All items of the bank."""
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
    axes: FloatArray | None = None
    """Of `ItemBank`: with several abilities, estimates are from the joint posterior, and the grid
    serves as a first look along the items' main direction."""

    @classmethod
    def prior(cls, bank: ItemBank, n_sessions: int = 1) -> Belief:
        """The belief before the first answer: abilities as those of the bank's models."""
        nodes = bank.ability_mean + bank.ability_sd * np.linspace(-_REACH, _REACH, _NODES)
        log_prior = -0.5 * ((nodes - bank.ability_mean) / bank.ability_sd) ** 2
        empty = np.empty((n_sessions, 0))
        return cls(
            bank.items,
            nodes,
            log_prior - special.logsumexp(log_prior),
            np.zeros((n_sessions, _NODES)),
            empty.astype(np.int64),
            empty,
            empty,
            axes=bank.axes,
        )

    def answered(self, places: IntArray, right: FloatArray, trials: FloatArray) -> Belief:
        """Return the belief after further answers; arrays of shape (S, k)."""
        items = self.items.take(places[..., None])
        added = log_likelihood(items, self.nodes, right[..., None], trials[..., None])
        return replace(
            self,
            log_likelihood=self.log_likelihood + added.sum(axis=1),
            places=np.concatenate([self.places, places], axis=1),
            right=np.concatenate([self.right, right], axis=1),
            trials=np.concatenate([self.trials, trials], axis=1),
        )

    @cached_property
    def asked(self) -> Items:
        """The items answered, shape (S, n)."""
        return self.items.take(self.places)

    @property
    def scores(self) -> FloatArray:
        """Mean score of each item answered, shape (S, n)."""
        return self.right / np.maximum(self.trials, 1e-9)

    def ability_prior(self) -> tuple[float, float]:
        """Mean and variance of abilities before the first answer."""
        prior = np.exp(self.log_prior)
        mean = float(prior @ self.nodes)
        return mean, float(prior @ (self.nodes - mean) ** 2)

    @cached_property
    def posterior(self) -> FloatArray:
        """Probabilities of the nodes, shape (S, G)."""
        return _chances(self.log_likelihood + self.log_prior)

    @cached_property
    def joint(self) -> State:
        """Mean and covariance of (θ, f), by quadrature for up to three abilities."""
        near = laplace(self)
        pairs = [
            quadrature(self._log_density(s), near.mean[s], near.covariance[s])
            for s in range(len(self.places))
        ]
        mean, covariance = zip(*pairs, strict=True)
        return State(np.stack(mean), np.stack(covariance))

    def _log_density(self, session: int) -> Callable[[FloatArray], FloatArray]:
        """Log posterior density of (θ, f) in one session, at points of shape (Q, D)."""
        centre, variance = self.ability_prior()
        items = Items(*(values[session] for values in self.asked))
        right, trials = self.right[session], self.trials[session]

        def at(points: FloatArray) -> FloatArray:
            shifted = items._replace(intercept=items.intercept + points[:, 1:] @ items.loadings.T)
            answers = log_likelihood(shifted, points[:, :1], right, trials).sum(axis=1)
            squares = (points[:, 0] - centre) ** 2 / variance
            return answers - (squares + (points[:, 1:] ** 2).sum(axis=1)) / 2

        return at

    def interval(self, confidence_level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Equal-tailed limits of the abilities, each of shape (S,)."""
        if self.axes is not None:
            ability, error = eap(self)
            half = normal_quantile(confidence_level) * error
            return ability - half, ability + half
        tail = tail_probability(confidence_level)
        nodes, at = self.between_nodes()
        # A point stands for the interval around it: half of it lies below.
        below = np.cumsum(at, axis=-1) - at / 2
        return _crossing(below, nodes, tail), _crossing(below, nodes, 1 - tail)

    def between_nodes(self) -> tuple[FloatArray, FloatArray]:
        """Points from the first node to the last (F,), and their probabilities, shape (S, F).

        By splines of the log density, which is nearly quadratic: so limits, and posteriors of long
        tests, which few nodes reach, have no error of the grid.
        """
        from scipy import interpolate

        points = np.linspace(self.nodes[0], self.nodes[-1], _FINER * (len(self.nodes) - 1) + 1)
        log_density = self.log_likelihood + self.log_prior
        return points, _chances(interpolate.CubicSpline(self.nodes, log_density, axis=-1)(points))


class Scored(NamedTuple):
    """Abilities of sessions, shape (S,)."""

    ability: FloatArray
    std_error: FloatArray


def abilities(belief: Belief) -> Abilities:
    """Posterior means of the abilities of a bank of several."""
    if belief.axes is None:
        raise ValueError("the bank has one ability: use eap")
    mean, covariance = belief.joint
    return Abilities(mean @ belief.axes.T, belief.axes @ covariance @ belief.axes.T)


def eap(belief: Belief) -> Scored:
    """Mean and standard deviation of the posterior [BM82]_; of several, the main direction."""
    if belief.axes is not None:
        state = belief.joint
        return Scored(state.mean[:, 0], np.sqrt(state.covariance[:, 0, 0]))
    scored = on_grid(belief)
    if (scored.std_error > _RESOLVED * (belief.nodes[1] - belief.nodes[0])).all():
        return scored
    return _moments(*belief.between_nodes())


def on_grid(belief: Belief) -> Scored:
    """Mean and standard deviation of the posterior along the items' main direction alone."""
    return _moments(belief.nodes, belief.posterior)


def _moments(nodes: FloatArray, chances: FloatArray) -> Scored:
    """Mean and standard deviation of probabilities of nodes, shape (S, G)."""
    mean = chances @ nodes
    return Scored(mean, np.sqrt(np.maximum(chances @ nodes**2 - mean**2, 1e-12)))


def _chances(log_density: FloatArray) -> FloatArray:
    """Probabilities, shape (S, G), of densities up to a factor."""
    chances = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    return chances / chances.sum(axis=-1, keepdims=True)


def _crossing(below: FloatArray, nodes: FloatArray, probability: float) -> FloatArray:
    """Quantiles of distribution functions on the grid, shape (S, G)."""
    after = np.clip((below < probability).sum(axis=-1), 1, len(nodes) - 1)[:, None]
    low = np.take_along_axis(below, after - 1, axis=-1)[:, 0]
    high = np.take_along_axis(below, after, axis=-1)[:, 0]
    share = np.clip((probability - low) / np.maximum(high - low, 1e-300), 0, 1)
    return nodes[after[:, 0] - 1] + share * (nodes[1] - nodes[0])


class State(NamedTuple):
    """Normal approximation to the posterior of (θ, f) of S sessions; D = 1 + K dimensions."""

    mean: FloatArray
    """Shape (S, D)."""
    covariance: FloatArray
    """Shape (S, D, D)."""


def laplace(belief: Belief, start: State | None = None) -> State:
    """Laplace approximation to the joint posterior of all abilities, (θ, f).

    Fisher scoring from the EAP ability, unless a better start is given; items' errors flatten
    their curves as in `curves.respond`.
    """
    n_sessions = len(belief.places)
    k = belief.items.loadings.shape[-1]
    centre, variance = belief.ability_prior()
    origin, mean = np.zeros((2, n_sessions, 1 + k))
    origin[:, 0], mean[:, 0] = centre, on_grid(belief).ability if start is None else centre
    mean: FloatArray = mean if start is None else start.mean
    precision = np.tile(np.eye(1 + k), (n_sessions, 1, 1))
    precision[:, 0, 0] = 1 / variance
    items = belief.asked
    directions = items.directions
    curvature = precision
    for _ in range(_STEPS):
        response = respond(items, mean[:, :1], (items.loadings @ mean[:, 1:, None])[..., 0])
        pull, weight = response.derivatives(belief.right, belief.trials)
        gradient = np.einsum("sn,snd->sd", pull, directions)
        gradient = gradient - np.einsum("sd,sde->se", mean - origin, precision)
        weighted = np.swapaxes(directions * weight[..., None], 1, 2)
        curvature = weighted @ directions + precision
        solved = np.linalg.solve(np.asarray(curvature), np.asarray(gradient)[..., None])
        newton = np.asarray(solved[..., 0], dtype=np.float64)
        step = np.clip(newton, -2.0, 2.0)
        mean = mean + step
        if np.abs(step).max(initial=0.0) < 1e-6:
            break
    return State(mean, np.asarray(np.linalg.inv(curvature), dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Shares:
    """Weight of each item in each score: the mean over all items, and over each task's."""

    names: tuple[str, ...]
    """`ALL_TASKS`, then the tasks."""
    weights: FloatArray
    """Shape (M, 1 + T)."""
    misfit: FloatArray
    """Standard deviation of scores around their predictions, shape (1 + T,); see
    `ItemBank.misfit`."""

    @classmethod
    def of(cls, bank: ItemBank) -> Shares:
        """Scores of a bank's tasks; a single task has only the score over all items."""
        tasks, misfits = bank.task_names, bank.misfit_by_task
        names = (ALL_TASKS, *tasks) if len(tasks) > 1 else (ALL_TASKS,)
        member = bank.tasks.astype(str)[:, None] == np.asarray(names)[None, :]
        member[:, 0] = True
        misfit = np.array([misfits.get(name, 0.0) for name in names], dtype=np.float64)
        # Column-major: sums over items are fastest that way.
        return cls(names, np.asfortranarray(member / member.sum(axis=0)), misfit)

    def of_items(self, kept: BoolArray) -> Shares:
        """Return the parts of the scores that some items have, a mask of shape (M,)."""
        return replace(self, weights=np.asfortranarray(self.weights * kept[:, None]))

    @cached_property
    def squares(self) -> FloatArray:
        """Squared weights."""
        return self.weights**2


class FullScore(NamedTuple):
    """Scores on all items, over all of them and by task: arrays of shape (S, 1 + T)."""

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    std_error: FloatArray


def project(
    belief: Belief, shares: Shares, *, state: State, confidence_level: float = 0.95
) -> FullScore:
    """Expected score on all items, with an interval for the score that asking all would give.

    The item response projection (p-IRT) of tinyBenchmarks [Pol24]_, without its mixture
    with the mean over the items asked. The variance has three parts: uncertainty of abilities,
    chance in the answers not seen, and misfit.
    """
    is_unasked, directions = unasked(belief), belief.items.directions
    p = is_unasked * curves_of(belief, state)
    asked = shares.weights[belief.places]
    seen = np.einsum("sn,snt->st", belief.scores, asked)
    estimate = seen + p @ shares.weights
    changes = (is_unasked * expected(belief, state).scale)[:, None] * directions.T
    # Derivatives of the scores in (θ, f), shape (S, 1 + T, D).
    slopes = np.swapaxes(changes @ shares.weights, 1, 2)
    from_ability = ((slopes @ state.covariance) * slopes).sum(axis=-1)
    unseen = (belief.items.dispersion * p * (1 - p)) @ shares.squares
    share = np.maximum(shares.weights.sum(axis=0) - asked.sum(axis=1), 0.0)
    variance = from_ability + unseen + (shares.misfit * share) ** 2
    std_error = np.sqrt(variance)
    half = normal_quantile(confidence_level) * std_error
    low, high = np.maximum(estimate - half, seen), np.minimum(estimate + half, seen + share)
    return FullScore(estimate, low, high, std_error)


class Predictions(NamedTuple):
    """Expected scores of single items, in agreement with the full scores of S sessions."""

    scores: FloatArray
    """Expected score of each item, of items asked their mean score; shape (S, M)."""
    variances: FloatArray
    """Of one answer to each item, 0 for items asked; shape (S, M)."""
    common: FloatArray
    """Standard error of the full scores without the chance in single answers, (S, 1 + T)."""


def predictions(belief: Belief, shares: Shares, state: State, full: FullScore) -> Predictions:
    """Expected scores of items by the bank's curves, moved so that their mean is the full score."""
    curves, is_unasked = curves_of(belief, state), unasked(belief)
    variances = is_unasked * belief.items.dispersion * curves * (1 - curves)
    np.put_along_axis(curves, belief.places, belief.scores, axis=1)
    weight = is_unasked @ shares.weights[:, :1]
    off = full.estimate[:, :1] - curves @ shares.weights[:, :1]
    scores = curves + is_unasked * off / np.maximum(weight, 1e-12)
    common = np.sqrt(np.maximum(full.std_error**2 - variances @ shares.squares, 0.0))
    return Predictions(scores, variances, common)


def curves_of(belief: Belief, state: State) -> FloatArray:
    """Expected score of each item by the bank's curves, shape (S, M).

    The mean of a curve over a normal logit, which is flatter than the curve at the mean logit.
    """
    directions = belief.items.directions
    spread = ((state.covariance @ directions.T) * directions.T).sum(axis=1)
    return expected(belief, state, spread).probability


def expected(belief: Belief, state: State, spread: FloatArray | float = 0.0) -> Response:
    """Curves of all items at the mean state of each session, shape (S, M).

    `spread` is a variance of the logits to average over, as in `curves.respond`.
    """
    shift = state.mean[:, 1:] @ belief.items.loadings.T
    return respond(belief.items, state.mean[:, :1], shift, spread)


def unasked(belief: Belief) -> FloatArray:
    """1 for items that have not been asked, else 0: shape (S, M)."""
    is_unasked = np.ones((len(belief.places), len(belief.items.discrimination)))
    np.put_along_axis(is_unasked, belief.places, 0.0, axis=1)
    return is_unasked
