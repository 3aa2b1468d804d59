"""Abilities (EAP, MAP, WLE) and predicted full scores of models in adaptive tests.

* `Belief`: the answers of S sessions and the posterior of their abilities on a grid; all sessions
  have answered equally many items, and arrays have an axis of sessions first
* `score`: abilities with standard errors, by a name of `SCORINGS`
* `laplace`, `project`: ability and misfit factors jointly, and from them the score on all items
* `abilities`: those of a bank of several, from the same joint posterior
* `predict`: the same, allowing for models that do not fit the bank (`KINDS`)
* `anchor_points`, `anchor_scores`: tinyBenchmarks' fixed weighted set of items [Pol24]_
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.adaptive.bank import ALL_TASKS, ItemBank
from evalstats_plugin.adaptive.curves import Items, Response, log_likelihood, respond
from evalstats_plugin.adaptive.several import Abilities, on_axes, quadrature
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.interval import normal_quantile, tail_probability
from evalstats_plugin.stats.streams import stream

_NODES = 201
_REACH = 6.0
"""Of the grid, in standard deviations of the prior to each side."""

_STEPS = 30
"""Largest number of Newton steps to the posterior mode."""

_BISECTIONS = 40

_COARSE = 4
"""Nodes of the grid for each at which the search for a mode begins."""

_TEMPER = 0.5
"""Weight of the evidence for a kind of model: answers of real models depend on each other."""

_OPTIMISM, _TRIED = 0.3, 10
"""Times √models, the standard deviation of full scores after so many items that calibrations hide:
of LiveBench with 53 models .04; see tests/validation/test_adaptive_unlike.py."""

_ROUNDS = 50
_STARTS = 5
"""Of k-means."""


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
    kinds: FloatArray | None = None
    """Shape (S, 3): share of answers right and share wrong whatever the item, and how many times
    more abilities vary; None for models like those of the bank. `posterior` is that of the latter
    all the same."""
    axes: FloatArray | None = None
    """Of `ItemBank`: with several abilities, estimates are from the joint posterior, and the grid
    serves as a first look along the items' main direction."""

    @classmethod
    def prior(cls, bank: ItemBank, n_sessions: int = 1) -> Belief:
        """The belief before the first answer: abilities as those of the bank's models."""
        nodes = bank.ability_mean + bank.ability_sd * np.linspace(-_REACH, _REACH, _NODES)
        log_prior = -0.5 * ((nodes - bank.ability_mean) / bank.ability_sd) ** 2
        empty = np.zeros((n_sessions, 0))
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
        found = log_likelihood(items, self.nodes, right[..., None], trials[..., None])
        return replace(
            self,
            log_likelihood=self.log_likelihood + found.sum(axis=1),
            places=np.concatenate([self.places, places], axis=1),
            right=np.concatenate([self.right, right], axis=1),
            trials=np.concatenate([self.trials, trials], axis=1),
        )

    @cached_property
    def asked(self) -> Items:
        """The items answered, shape (S, n)."""
        return self._of_kinds(self.items.take(self.places))

    @cached_property
    def all_items(self) -> Items:
        """All items, with curves of shape (M,), or (S, M) where sessions are of several kinds."""
        return self._of_kinds(self.items)

    def _of_kinds(self, items: Items) -> Items:
        if self.kinds is None:
            return items
        right, wrong = self.kinds[:, :1], self.kinds[:, 1:2]
        height = 1 - right - wrong
        guessing, upper = right + height * items.guessing, right + height * items.upper
        return items._replace(guessing=guessing, upper=upper)

    def ability_prior(self) -> tuple[float, FloatArray]:
        """Mean of abilities, and their variance, shape (S,), before the first answer."""
        prior = np.exp(self.log_prior)
        mean = float(prior @ self.nodes)
        wider = np.ones(len(self.places)) if self.kinds is None else self.kinds[:, 2]
        return mean, wider**2 * float(prior @ (self.nodes - mean) ** 2)

    @cached_property
    def posterior(self) -> FloatArray:
        """Probabilities of the nodes, shape (S, G)."""
        values = self.log_likelihood + self.log_prior
        chances = np.exp(values - values.max(axis=-1, keepdims=True))
        return chances / chances.sum(axis=-1, keepdims=True)

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
            squares = (points[:, 0] - centre) ** 2 / variance[session]
            return answers - (squares + (points[:, 1:] ** 2).sum(axis=1)) / 2

        return at

    def interval(self, confidence_level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Equal-tailed limits of the abilities, each of shape (S,)."""
        if self.axes is not None:
            ability, error = score(self)
            half = normal_quantile(confidence_level) * error
            return ability - half, ability + half
        tail = tail_probability(confidence_level)
        at = self.posterior
        # A node stands for the interval around it: half of it lies below.
        below = np.cumsum(at, axis=-1) - at / 2
        return _crossing(below, self.nodes, tail), _crossing(below, self.nodes, 1 - tail)


class Scored(NamedTuple):
    """Abilities of sessions, shape (S,)."""

    ability: FloatArray
    std_error: FloatArray


def score(belief: Belief, scoring: str = "eap") -> Scored:
    """Estimate abilities by a name of `SCORINGS`; of several, the items' main direction.

    Raises
    ------
    SelectionError
        No such name, or one that cannot estimate several abilities.
    """
    if scoring not in SCORINGS:
        raise SelectionError(no_such("scoring", scoring, SCORINGS, ", ".join(SCORINGS)))
    if belief.axes is None:
        return SCORINGS[scoring](belief)
    state = _joint(belief, scoring)
    return Scored(state.mean[:, 0], np.sqrt(state.covariance[:, 0, 0]))


def abilities(belief: Belief, scoring: str = "eap") -> Abilities:
    """Estimate the abilities of a bank of several: posterior means (`"eap"`) or modes (`"map"`).

    Raises
    ------
    SelectionError
        A scoring without a prior.
    """
    if belief.axes is None:
        raise ValueError("the bank has one ability: use score")
    return on_axes(*_joint(belief, scoring), belief.axes)


def _joint(belief: Belief, scoring: str) -> State:
    if scoring == "wle":
        msg = "scoring wle estimates one ability, and the bank has several: choose eap or map"
        raise SelectionError(msg)
    return laplace(belief) if scoring == "map" else belief.joint


def eap(belief: Belief) -> Scored:
    """Mean and standard deviation of the posterior [BM82]_."""
    at = belief.posterior
    mean = at @ belief.nodes
    return Scored(mean, np.sqrt(np.maximum(at @ belief.nodes**2 - mean**2, 1e-12)))


def maximum_a_posteriori(belief: Belief) -> Scored:
    """Mode of the posterior, with the standard error from its curvature there."""
    return _peak(belief.log_likelihood + belief.log_prior, belief.nodes)


def weighted_likelihood(belief: Belief) -> Scored:
    """Mode of the likelihood weighted by the square root of the information [War89]_.

    Uses no prior and is nearly unbiased at every ability. Before the first answer it is the
    prior's mean, with an infinite standard error.
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


def _peak(values: FloatArray, nodes: FloatArray) -> Scored:
    """Vertex of the parabola through the highest node and its neighbours."""
    top = np.clip(values.argmax(axis=-1), 1, len(nodes) - 2)[:, None]
    left, middle, right = (np.take_along_axis(values, top + k, axis=-1)[:, 0] for k in (-1, 0, 1))
    step = nodes[1] - nodes[0]
    curvature = np.minimum(left - 2 * middle + right, -1e-12)
    offset = np.clip(0.5 * (left - right) / curvature, -1, 1)
    return Scored(nodes[top[:, 0]] + step * offset, step / np.sqrt(-curvature))


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
    """Laplace approximation to the joint posterior of ability and misfit factors.

    Fisher scoring from the EAP ability, unless a better start is given; items' errors flatten
    their curves as in `curves.respond`.
    """
    n_sessions = len(belief.places)
    k = belief.items.loadings.shape[-1]
    centre, variance = belief.ability_prior()
    origin, mean = np.zeros((2, n_sessions, 1 + k))
    origin[:, 0], mean[:, 0] = centre, eap(belief).ability if start is None else centre
    mean: FloatArray = mean if start is None else start.mean
    precision = np.tile(np.eye(1 + k), (n_sessions, 1, 1))
    precision[:, 0, 0] = 1 / variance
    items = belief.asked
    directions = items.directions
    curvature = precision
    for _ in range(_STEPS):
        found = respond(items, mean[:, :1], (items.loadings @ mean[:, 1:, None])[..., 0])
        pull, weight = found.derivatives(belief.right, belief.trials)
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
    optimism: float = 0.0
    """Further standard deviation after 10 items: the misfit was found on models that the items were
    calibrated with, which hides the more of it the fewer they were."""

    @classmethod
    def of(cls, bank: ItemBank) -> Shares:
        """Scores of a bank's tasks; a single task has only the score over all items."""
        tasks = bank.task_names
        names = (ALL_TASKS, *tasks) if len(tasks) > 1 else (ALL_TASKS,)
        own = bank.tasks.astype(str)[:, None] == np.asarray(names)[None, :]
        own[:, 0] = True
        misfit = np.array([float(bank.misfit.get(name, 0.0)) for name in names])
        # Column-major: sums over items are fastest that way.
        optimism = _OPTIMISM / np.sqrt(len(bank.models)) if bank.models else 0.0
        return cls(names, np.asfortranarray(own / own.sum(axis=0)), misfit, float(optimism))

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
    belief: Belief, shares: Shares, *, state: State | None = None, confidence_level: float = 0.95
) -> FullScore:
    """Expected score on all items, with an interval for the score that asking all would give.

    The item response projection (p-IRT) of tinyBenchmarks [Pol24]_, with misfit factors in place
    of its mixture with the mean over the items asked. The variance has three parts: uncertainty of
    ability and factors, chance in the answers not seen, and misfit beyond the factors.
    """
    state = laplace(belief) if state is None else state
    rest, directions = rest_of(belief), belief.items.directions
    spread = _logit_variance(belief, state)
    # The mean of a curve over a normal logit is flatter than the curve at the mean logit.
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


class Kind(NamedTuple):
    """A kind of model that a new one may be: how its answers differ from those the bank knows.

    P(right) = right + (1 - right - wrong) · (the item's curve): asymptotes of a model, as those of
    a four-parameter item are of an item.
    """

    described: str
    right: float
    """Share of its answers that are right whatever the item: leaked or guessed."""
    wrong: float
    """Share that are wrong whatever the item. With both at 1 hard items are the easy ones."""
    misfit: float = 0.0
    """Standard deviation of full scores, over the share not asked, beyond that of the bank."""
    wider: float = 1.0
    """How many times larger the standard deviation of abilities is."""


_LEAKED = "right where its ability says wrong (leaked items?)"
_FAILING = "wrong where its ability says right"
_PARTLY = "partly guessing, or marked with other keys"
_GUESSING = "guessing, {} of it right"
_STRANGE = 0.03
"""Misfit of most kinds; see tests/validation/test_adaptive_unlike.py."""

KINDS = (
    Kind("a model like those of the bank", 0.0, 0.0),
    Kind("a model unlike those of the bank in ability", 0.0, 0.0, wider=3.0),
    *(Kind(_LEAKED, right, 0.0, _STRANGE) for right in (0.1, 0.2, 0.3, 0.5)),
    *(Kind(_FAILING, 0.0, wrong, _STRANGE) for wrong in (0.15, 0.3)),
    *(Kind(_PARTLY, share, share, _STRANGE) for share in (0.1, 0.25, 0.4)),
    *(Kind(_PARTLY, *each, _STRANGE) for each in ((0.4, 0.2), (0.2, 0.4), (0.2, 0.6))),
    Kind(_GUESSING.format("half"), 0.5, 0.5, _STRANGE),
    Kind(_GUESSING.format("a quarter"), 0.25, 0.75, _STRANGE),
    Kind("wrong on easy items and right on hard ones", 1.0, 1.0, 0.08),
)
"""The first two fit the bank."""

N_FITTING = 2


def _prior(fitting: float) -> FloatArray:
    """Probabilities of `KINDS`: of models like the bank's, and the others alike."""
    others = len(KINDS) - 1
    return np.r_[fitting, np.full(others, (1 - fitting) / others)]


_TRUSTING, _USUAL, _WARY = _prior(0.98), _prior(0.8), _prior(0.2)
"""For estimates, for what is said of a model, and for limits that hold for every kind."""


class Predicted(NamedTuple):
    """Full scores of S sessions, allowing for the kinds of models that they may be of."""

    full: FullScore
    kinds: FloatArray
    """Posterior probabilities of `KINDS`, of which 80 % are like the bank's: shape (S, K)."""
    scores: FloatArray
    """Expected score of each item, of items asked their mean score; shape (S, M)."""
    variances: FloatArray
    """Of one answer to each item, 0 for items asked; shape (S, M)."""
    common: FloatArray
    """Standard error of the full scores without the chance in single answers, (S, 1 + T)."""

    @property
    def fits(self) -> FloatArray:
        """Probability that answers are those of a model that fits the bank, shape (S,)."""
        return self.kinds[:, :N_FITTING].sum(axis=1)


def predict(
    belief: Belief, shares: Shares, *, insured: bool = True, confidence_level: float = 0.95
) -> Predicted:
    """Full scores as by `project`, allowing for models that do not fit the bank.

    Each of `KINDS` has its own curves, posterior and projection, weighted by how probable it makes
    the answers (Laplace's approximation). Answers that vary more than the kind that explains them
    best says count for less, by that factor (ĉ of quasi-likelihoods [BA02]_).

    Parameters
    ----------
    insured
        Whether limits and standard errors are to hold for every kind of model, however rare; else
        for models of which 98 % are like those of the bank. Estimates do not depend on it.

    Returns
    -------
    Predicted
        With standard errors that make normal limits hold at least what the limits do.
    """
    n_sessions = len(belief.places)
    several = _of_each_kind(belief)
    at = laplace(several, _near_mode(several))
    found = project(several, shares, state=at, confidence_level=confidence_level)
    curves = expected(several, at, _logit_variance(several, at)).probability

    def by_kind(values: FloatArray) -> FloatArray:
        return values.reshape(len(KINDS), n_sessions, *values.shape[1:])

    excess = np.maximum(by_kind(_dispersion(several, at)).min(axis=0), 1.0)
    evidence = _TEMPER * by_kind(_log_evidence(several, at)) / excess
    trusting, usual, weights = (
        special.softmax(np.log(prior)[:, None] + evidence, axis=0)
        for prior in (_TRUSTING, _USUAL, _WARY if insured else _TRUSTING)
    )
    asked = shares.weights[belief.places]
    scores = belief.right / np.maximum(belief.trials, 1e-9)
    seen = np.einsum("sn,snt->st", scores, asked)
    left = np.maximum(1 - asked.sum(axis=1), 0.0)
    centre, of_abilities = belief.ability_prior()
    # Full scores of abilities far from those of the calibration are the less certain.
    reach = (1 + (by_kind(at.mean[:, 0]) - centre) ** 2 / of_abilities) / 2
    more = shares.optimism**2 * _TRIED / max(belief.places.shape[1], 1) * reach
    more = more + np.array([kind.misfit**2 for kind in KINDS])[:, None]
    means, share = by_kind(found.estimate), weights[:, :, None]
    errors = np.sqrt(by_kind(found.std_error) ** 2 * excess[:, None] + more[:, :, None] * left**2)
    # The estimate leaves that of models that fit only on strong evidence; the limits hold more.
    estimate = (trusting[:, :, None] * means).sum(axis=0)
    variance = (share * (errors**2 + (means - estimate) ** 2)).sum(axis=0)
    tail = tail_probability(confidence_level)
    low, high = (_quantile(share, means, errors, p) for p in (tail, 1 - tail))
    low = np.minimum(np.maximum(low, seen), estimate)
    high = np.maximum(np.minimum(high, seen + left), estimate)
    # Differences between models take limits of equal width: those of the farther side.
    farther = np.maximum(estimate - low, high - estimate) / normal_quantile(confidence_level)
    variance = np.maximum(variance, farther**2)
    full = FullScore(estimate, low, high, np.sqrt(variance))
    of_items = (trusting[:, :, None] * by_kind(curves)).sum(axis=0)
    variances = rest_of(belief) * belief.items.dispersion * of_items * (1 - of_items)
    np.put_along_axis(of_items, belief.places, scores, axis=1)
    common = np.sqrt(np.maximum(variance - variances @ shares.squares, 0.0))
    return Predicted(full, usual.T, of_items, variances, common)


def _of_each_kind(belief: Belief) -> Belief:
    """The sessions once for each of `KINDS`."""
    n, k = len(belief.places), len(KINDS)
    each = np.array([(kind.right, kind.wrong, kind.wider) for kind in KINDS])
    places, right, trials = (
        np.tile(values, (k, 1)) for values in (belief.places, belief.right, belief.trials)
    )
    return replace(
        belief, places=places, right=right, trials=trials, kinds=np.repeat(each, n, axis=0)
    )


def _near_mode(belief: Belief) -> State:
    """The most probable of some abilities, without misfit.

    Where curves are steep, Fisher scoring from further off does not converge.
    """
    centre, variance = belief.ability_prior()
    nodes = belief.nodes[::_COARSE]
    # Items with an axis for the nodes.
    items = Items(*(np.expand_dims(values, 2) for values in belief.asked))
    right, trials = belief.right[..., None], belief.trials[..., None]
    p = respond(items, nodes).probability
    found = (right * np.log(p) + (trials - right) * np.log1p(-p)) / items.dispersion
    found = found.sum(axis=1)
    found = found - (nodes - centre) ** 2 / (2 * variance[:, None])
    k = 1 + belief.items.loadings.shape[1]
    mean = np.zeros((len(belief.places), k))
    mean[:, 0] = nodes[found.argmax(axis=1)]
    return State(mean, np.zeros((len(mean), k, k)))


def _log_evidence(belief: Belief, state: State) -> FloatArray:
    """Log probability of the answers by Laplace's approximation, up to a constant; shape (S,)."""
    items = belief.asked
    shift = (items.loadings @ state.mean[:, 1:, None])[..., 0]
    own = items._replace(intercept=items.intercept + shift)
    answers = log_likelihood(own, state.mean[:, :1], belief.right, belief.trials).sum(axis=1)
    centre, variance = belief.ability_prior()
    squares = (state.mean[:, 0] - centre) ** 2 / variance + (state.mean[:, 1:] ** 2).sum(axis=1)
    volume = np.linalg.slogdet(state.covariance)[1] - np.log(variance)
    return answers - squares / 2 + volume / 2


def _dispersion(belief: Belief, state: State) -> FloatArray:
    """Mean squared residual of the answers over its expectation, shape (S,); 1 without answers."""
    items = belief.asked
    shift = (items.loadings @ state.mean[:, 1:, None])[..., 0]
    found = respond(items, state.mean[:, :1], shift)
    away = belief.right - belief.trials * found.probability
    squares = away**2 / np.maximum(belief.trials * found.variance, 1e-12)
    return squares.mean(axis=1) if squares.shape[1] else np.ones(len(squares))


def _logit_variance(belief: Belief, state: State) -> FloatArray:
    """Variance of each item's logit by ability and factors, shape (S, M)."""
    directions = belief.items.directions
    return (along(state.covariance, directions) * directions.T).sum(axis=1)


def _quantile(
    weights: FloatArray, means: FloatArray, errors: FloatArray, probability: float
) -> FloatArray:
    """Quantiles of mixtures of normals, by bisection; components along the first axis."""
    reach = 10 * errors + 1e-12
    low: FloatArray = (means - reach).min(axis=0)
    high: FloatArray = (means + reach).max(axis=0)
    for _ in range(_BISECTIONS):
        middle: FloatArray = (low + high) / 2
        share: FloatArray = special.ndtr((middle - means) / (errors + 1e-12))
        below: FloatArray = (weights * share).sum(axis=0)
        low, high = (
            np.where(below < probability, middle, low),
            np.where(below < probability, high, middle),
        )
    return (low + high) / 2


def expected(belief: Belief, state: State, spread: FloatArray | float = 0.0) -> Response:
    """Curves of all items at the mean state of each session, shape (S, M).

    `spread` is a variance of the logits to average over, as in `curves.respond`.
    """
    shift = state.mean[:, 1:] @ belief.items.loadings.T
    return respond(belief.all_items, state.mean[:, :1], shift, spread)


def rest_of(belief: Belief) -> FloatArray:
    """1 for items that have not been asked, else 0: shape (S, M)."""
    rest = np.ones((len(belief.places), len(belief.items.discrimination)))
    np.put_along_axis(rest, belief.places, 0.0, axis=1)
    return rest


def sensitivity(slopes: FloatArray, directions: FloatArray, weights: FloatArray) -> FloatArray:
    """Derivatives of scores in (θ, f), shape (S, 1 + T, D).

    Parameters
    ----------
    slopes
        Derivatives of the curves in their logits, 0 for items asked; shape (S, M).
    directions
        Shape (M, D).
    weights
        Shape (M, 1 + T).
    """
    return np.swapaxes((slopes[:, None] * directions.T) @ weights, 1, 2)


def along(covariance: FloatArray, directions: FloatArray) -> FloatArray:
    """Covariance of (θ, f) with each item's logit: (S, D, M) for directions (M, D)."""
    return covariance @ directions.T


class Anchors(NamedTuple):
    """Items to ask every model, and the share of the benchmark that each represents."""

    places: IntArray
    """Shape (k,)."""
    weights: FloatArray
    """Shape (k,), summing to 1."""


def anchor_points(
    bank: ItemBank, k: int, *, rng: np.random.Generator | int | None = None
) -> Anchors:
    """Choose k anchor items by k-means on the parameters (a, d, λ) of usable items [Pol24]_.

    Raises
    ------
    DesignError
        Fewer usable items than anchors.
    """
    source = stream(rng, "anchor items")
    open_ones = np.flatnonzero(bank.usable)
    if not 0 < k <= len(open_ones):
        msg = f"{k} anchor points of {len(open_ones)} items that may be asked are not possible"
        raise DesignError(f"{msg}: choose 1 to {len(open_ones)}")
    points = np.column_stack([bank.discrimination, bank.intercept, bank.misfit_loadings])
    found = [_k_means(points[open_ones], k, source) for _ in range(_STARTS)]
    centres = min(found, key=lambda each: each[1])[0]
    distance = _distances(points[open_ones], centres)
    places = open_ones[_distinct_nearest(distance)]
    own = _distances(points, points[places]).argmin(axis=1)
    return Anchors(places, np.bincount(own, minlength=k) / len(bank))


def anchor_scores(
    bank: ItemBank, anchors: Anchors, answers: FloatArray
) -> tuple[FloatArray, FullScore]:
    """Predict full scores of S models from anchors: weighted means, and projections (p-IRT).

    Parameters
    ----------
    answers
        Scores in [0, 1], shape (S, M).
    """
    places = np.tile(anchors.places, (len(answers), 1))
    right = answers[:, anchors.places]
    belief = Belief.prior(bank, len(answers)).answered(places, right, np.ones_like(right))
    return right @ anchors.weights, project(belief, Shares.of(bank))


def _k_means(points: FloatArray, k: int, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Lloyd's algorithm from random points; centres and the remaining sum of squares."""
    centres = points[rng.permutation(len(points))[:k]].copy()
    for _ in range(_ROUNDS):
        own = _distances(points, centres).argmin(axis=1)
        member = np.zeros((k, len(points)))
        member[own, np.arange(len(points))] = 1.0
        size = member.sum(axis=1)
        new = np.where(size[:, None] > 0, member @ points / np.maximum(size, 1)[:, None], centres)
        if np.allclose(new, centres):
            break
        centres = new
    return centres, float(_distances(points, centres).min(axis=1).sum())


def _distances(points: FloatArray, centres: FloatArray) -> FloatArray:
    """Squared distances, shape (P, k)."""
    squares = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.maximum(squares - 2 * points @ centres.T, 0.0)


def _distinct_nearest(distance: FloatArray) -> IntArray:
    """Assign each centre a point of its own, with the least total distance."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(distance.T)
    return np.asarray(columns[np.argsort(rows)], dtype=np.int64)
