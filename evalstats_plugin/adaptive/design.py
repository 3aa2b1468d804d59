"""Full scores by design: items drawn with known probabilities, the bank's curves as covariate.

* `Draws`: the draws of S sessions: the chances of the items, what was predicted, and the estimates
* `full_score`: scores on all items, from the draws and, of items that cannot be drawn, the curves
* `Steps`: the estimate of the full score by each draw

Before each draw the bank's curves, given the answers so far, predict every item. The predicted full
score, corrected by the residual of the item drawn over its probability, has the full score as its
expectation whatever the model is (difference estimator [SSW92]_, active inference [ZC24b]_). How
far predictions follow the curves is fitted to the draws (regression estimator [SSW92]_), so that
curves that are wrong cost little width. Each draw counts by the variance that its probabilities
give it, not by what the curves predict: so an early, wrong guess of the ability gives no draw a
large weight. The dispersion of the estimates gives the error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.adaptive.scoring import Belief, FullScore, Shares, State, project
from evalstats_plugin.adaptive.selection import Targets
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import normal_quantile, tail_probability

_COIN, _DOUBT = 0.25, 0.3
"""Largest variance of an answer, and its share in each variance that the curves predict."""

_PRIOR_DRAWS = 4.0
"""Number of draws for which the predicted dispersion counts."""

_TRUSTED_DRAWS = 2.0
"""Number of draws for which the curves as they are count."""

_LEAST_SLOPE = -1.0
"""Of predictions by the curves: below 0 where hard items are answered better than easy ones."""

_NEAREST = 0.005
"""Of a prediction to 0 and 1."""

_LEAST_VARIANCE = 1e-12


class Ahead(NamedTuple):
    """What is known before a draw, for S sessions, M items and 1 + T scores."""

    probability: FloatArray
    """Of each item to be drawn, shape (S, M); 0 where it is not open."""
    curves: FloatArray
    """Expected score of each item by the bank's curves, shape (S, M)."""
    centre: FloatArray
    """Their mean over the items open, shape (S,)."""
    variance: FloatArray
    """Predicted, of the scores by this draw, shape (S, 1 + T)."""
    unit_variance: FloatArray
    """The same if every answer had variance 1, shape (S, 1 + T)."""
    slope: FloatArray
    """How far predictions follow the curves, shape (S, 1 + T)."""


class Draw(NamedTuple):
    """One item drawn for each of S sessions."""

    place: IntArray
    """Shape (S,)."""
    probability: FloatArray
    """Shape (S,)."""
    curve: FloatArray
    """Expected score of the item by the bank's curves, shape (S,)."""
    centre: FloatArray
    """Shape (S,); see `Ahead`."""
    told: FloatArray
    """Scores, with the centre for items that had no answer; shape (S, 1 + T)."""
    leaning: FloatArray
    """What the curves of these items add, shape (S, 1 + T)."""
    variance: FloatArray
    unit_variance: FloatArray
    waiting: IntArray
    """Items drawn before that had no answer then, shape (S, W)."""
    waiting_curves: FloatArray
    """Shape (S, W)."""
    slope: FloatArray
    """Shape (S, 1 + T)."""
    range: FloatArray
    """Least and largest residual of the first score that the draw could give, shape (2, S)."""


class Steps(NamedTuple):
    """Estimates of the scores by each of n draws, shape (n, S, 1 + T)."""

    plain: FloatArray
    """With the same prediction for every item."""
    leaning: FloatArray
    """What predictions by the curves add; its expectation is 0."""
    weight: FloatArray
    """Inverse of the variance if every answer varied alike; 0 where the item has no answer."""
    variance: FloatArray
    """Predicted."""
    n_inside: FloatArray
    """Number of items drawn that count in a score, shape (S, 1 + T)."""


class Draws:
    """Items that were drawn in S sessions, and what was predicted before each draw.

    Parameters
    ----------
    shares
        Weight in each score of the items that may be drawn; 0 for all others.
    alike
        Whether all items have the same probability; else that of an item is in proportion to the
        standard deviation of its answer.
    targets
        Tasks whose shares of the draws are given.
    """

    def __init__(self, shares: Shares, *, alike: bool, targets: Targets | None) -> None:
        self._shares, self._alike, self._targets = shares, alike, targets
        self._draws: list[Draw] = []

    def __len__(self) -> int:
        return len(self._draws)

    def ahead(self, belief: Belief, curves: FloatArray, open_items: BoolArray) -> Ahead:
        """Give each item open, a mask of shape (S, M), its probability to be drawn.

        Parameters
        ----------
        belief
            Answers so far.
        curves
            Expected score of each item by the bank's curves, shape (S, M).
        """
        curves = np.clip(curves, _NEAREST, 1 - _NEAREST)
        centre = (curves * open_items).sum(axis=1) / open_items.sum(axis=1)
        slope = np.ones((len(belief.places), self._shares.weights.shape[1]))
        if self._draws:
            slope = _slope_of(self.steps(belief))
        followed = np.clip(slope[:, :1], 0.0, 1.0)
        prediction = centre[:, None] + followed * (curves - centre[:, None])
        spread = belief.items.dispersion * prediction * (1 - prediction)
        variance = (1 - _DOUBT) * spread + _DOUBT * _COIN
        spread_of_answers = np.ones_like(variance) if self._alike else np.sqrt(variance)
        size: FloatArray = np.where(open_items, spread_of_answers, 0.0)
        size = size if self._targets is None else self._targets.spread(size)
        probability = size / size.sum(axis=1, keepdims=True)
        once = np.divide(1.0, probability, out=np.zeros_like(curves), where=probability > 0)
        unit = once - open_items
        squares = self._shares.squares
        return Ahead(
            probability,
            curves,
            centre,
            np.maximum((variance * unit) @ squares, _LEAST_VARIANCE),
            np.maximum(unit @ squares, _LEAST_VARIANCE),
            slope,
        )

    def record(
        self,
        belief: Belief,
        ahead: Ahead,
        places: IntArray,
        waiting: IntArray,
        probability: FloatArray | None = None,
    ) -> None:
        """Record the items drawn, shape (S,), while others wait for their answers, shape (S, W).

        `probability` is that of an earlier run, where one is resumed.
        """
        rows, weights = np.arange(len(places)), self._shares.weights
        away = ahead.curves - ahead.centre[:, None]
        prediction = ahead.centre[:, None] + ahead.slope[:, :1] * away
        once = np.divide(
            weights[:, 0], ahead.probability, out=np.zeros_like(away), where=ahead.probability > 0
        )
        low, high = -prediction * once, (1 - prediction) * once
        chance = ahead.probability[rows, places] if probability is None else probability
        np.put_along_axis(away, belief.places, 0.0, axis=1)
        told = np.tile(ahead.centre[:, None], (1, away.shape[1]))
        np.put_along_axis(told, belief.places, belief.scores, axis=1)
        draw = Draw(
            places,
            chance,
            ahead.curves[rows, places],
            ahead.centre,
            told @ weights,
            away @ weights,
            ahead.variance,
            ahead.unit_variance,
            waiting,
            np.take_along_axis(ahead.curves, waiting, axis=1),
            ahead.slope,
            np.stack([low.min(axis=1), high.max(axis=1)]),
        )
        self._draws.append(draw)

    def _each(self, *names: str) -> list[NDArray[Any]]:
        """Fields of all n draws, each of shape (n, S, ...)."""
        return [np.stack([getattr(draw, name) for draw in self._draws]) for name in names]

    def steps(self, belief: Belief) -> Steps:
        """Estimates by each draw, given the answers so far."""
        answers = np.full((len(belief.places), len(self._shares.weights)), np.nan)
        np.put_along_axis(answers, belief.places, belief.scores, axis=1)
        weights, draws = self._shares.weights, self._draws
        place, chance, curve, centre = self._each("place", "probability", "curve", "centre")
        plain, leaning, variance, unit = self._each("told", "leaning", "variance", "unit_variance")
        for n, draw in enumerate(draws):
            if draw.waiting.shape[1]:
                late = np.take_along_axis(answers, draw.waiting, axis=1)
                came, middle = np.isfinite(late), draw.centre[:, None]
                late = np.where(came, np.nan_to_num(late) - middle, 0.0)
                away = np.where(came, draw.waiting_curves - middle, 0.0)
                plain[n] += np.einsum("sw,swt->st", late, weights[draw.waiting])
                leaning[n] -= np.einsum("sw,swt->st", away, weights[draw.waiting])
        answer = np.take_along_axis(answers, place.T, axis=1).T
        answered = np.isfinite(answer)[..., None]
        weight = weights[place] / chance[..., None]
        plain = plain + weight * (np.nan_to_num(answer) - centre)[..., None]
        leaning = leaning - weight * (curve - centre)[..., None]
        n_inside = ((weight > 0) & answered).sum(axis=0)
        return Steps(plain, leaning, answered / unit, variance, n_inside.astype(np.float64))

    def residuals(self, belief: Belief) -> FloatArray:
        """What the estimate by each draw is off, in standard deviations, shape (n, S, 1 + T)."""
        steps, (step, estimate, _) = self._combined(belief)
        return (steps.weight > 0) * (step - estimate) / np.sqrt(steps.variance)

    def _combined(self, belief: Belief) -> tuple[Steps, tuple[FloatArray, FloatArray, FloatArray]]:
        """Estimates by each draw and by all draws, and the sum of the weights."""
        steps = self.steps(belief)
        total = np.maximum(steps.weight.sum(axis=0), _LEAST_VARIANCE)
        step = steps.plain + _slope_of(steps) * steps.leaning
        return steps, (step, (steps.weight * step).sum(axis=0) / total, total)

    def bets(self, belief: Belief) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Estimates of one session's first score by single draws, shape (n,), and their range.

        Predictions follow the curves as they were before each draw, so that the expectation of each
        estimate, given all before it, is the score.
        """
        steps, draws = self.steps(belief), self._draws
        place, chance, curve, centre = (
            values[:, 0] for values in self._each("place", "probability", "curve", "centre")
        )
        slope = np.array([draw.slope[0, 0] for draw in draws])
        low, high = np.array([draw.range[:, 0] for draw in draws]).T
        answers = np.full(len(self._shares.weights), np.nan)
        answers[belief.places[0]] = belief.scores[0]
        step = steps.plain[:, 0, 0] + slope * steps.leaning[:, 0, 0]
        residual = answers[place] - centre - slope * (curve - centre)
        told = step - self._shares.weights[place, 0] / chance * residual
        answered = np.isfinite(told)
        return step[answered], (told + low)[answered], (told + high)[answered]

    def estimate(self, belief: Belief, confidence_level: float) -> FullScore:
        """Scores of the items that may be drawn, with limits by Student's t.

        Where the interval for a share [Wil27]_ with the sample's effective size is narrower, it is
        taken: residuals vary no more than answers do.
        """
        steps, (step, estimate, total) = self._combined(belief)
        tail = tail_probability(confidence_level)
        whole = np.maximum(self._shares.weights.sum(axis=0), _LEAST_VARIANCE)
        answered, inside = steps.weight > 0, steps.n_inside
        squares = (answered * (step - estimate) ** 2 / steps.variance).sum(axis=0)
        # The mean and the slope are fitted.
        dispersion = _PRIOR_DRAWS + np.maximum(answered.sum(axis=0) - 2, 0)
        dispersion = (_PRIOR_DRAWS + squares) / dispersion
        std_error = np.sqrt(dispersion * (steps.weight**2 * steps.variance).sum(axis=0)) / total
        df = _PRIOR_DRAWS + np.maximum(inside - 2, 0)
        half: FloatArray = -np.asarray(special.stdtrit(df, tail)) * std_error
        per_item = 1 / (total * whole**2)
        share = np.clip(estimate / whole, 0, 1)
        spread: FloatArray = normal_quantile(confidence_level) ** 2 * per_item
        middle: FloatArray = (share + spread / 2) / (1 + spread)
        wilson = np.sqrt(spread * share * (1 - share) + (spread / 2) ** 2) / (1 + spread)
        narrower = wilson * whole < half
        at = np.asarray(np.where(narrower, middle * whole, estimate), dtype=np.float64)
        half = np.asarray(np.where(narrower, wilson * whole, half), dtype=np.float64)
        return FullScore(estimate, at - half, at + half, std_error)


def full_score(
    draws: Draws | None,
    belief: Belief,
    shares: Shares,
    state: State,
    drawable: BoolArray,
    *,
    confidence_level: float = 0.95,
) -> FullScore:
    """Scores on all items: by the draws, and by the curves for what cannot be drawn.

    Parameters
    ----------
    draws
        None, or none that is answered: scores by the curves alone (`scoring.project`).
    shares
        Weight of each item in each score.
    drawable
        Mask of the items that may be drawn, shape (M,).
    """
    if draws is None or not belief.places.shape[1] or not len(draws):
        return project(belief, shares, state=state, confidence_level=confidence_level)
    score = draws.estimate(belief, confidence_level)
    if not drawable.all():
        other = project(belief, shares.of_items(~drawable), state=state)
        z = normal_quantile(confidence_level)
        below, above = (np.abs(limit - score.estimate) for limit in (score.low, score.high))
        below, above = (np.hypot(half, z * other.std_error) for half in (below, above))
        estimate = score.estimate + other.estimate
        std_error = np.hypot(score.std_error, other.std_error)
        score = FullScore(estimate, estimate - below, estimate + above, std_error)
    asked = shares.weights[belief.places]
    seen = np.einsum("sn,snt->st", belief.scores, asked)
    most = seen + np.maximum(shares.weights.sum(axis=0) - asked.sum(axis=1), 0.0)
    estimate, low, high = (np.clip(values, seen, most) for values in score[:3])
    low, high = np.minimum(low, estimate), np.maximum(high, estimate)
    # Differences between models take limits of equal width: those of the farther side.
    farther = np.maximum(estimate - low, high - estimate) / normal_quantile(confidence_level)
    return FullScore(estimate, low, high, np.maximum(score.std_error, farther))


def _slope_of(steps: Steps) -> FloatArray:
    """Slope of the predictions that makes the estimates by single draws most alike, (S, 1 + T)."""
    weight = steps.weight
    total = np.maximum(weight.sum(axis=0), _LEAST_VARIANCE)
    plain, leaning = (
        each - (weight * each).sum(axis=0) / total for each in (steps.plain, steps.leaning)
    )
    n = np.maximum((weight > 0).sum(axis=0), 1)
    prior = _TRUSTED_DRAWS / n * (weight * steps.leaning**2).sum(axis=0)
    products = prior - (weight * leaning * plain).sum(axis=0)
    squares = prior + (weight * leaning**2).sum(axis=0)
    slope = np.divide(products, squares, out=np.ones_like(squares), where=squares > 0)
    return np.clip(slope, _LEAST_SLOPE, 1.0)
