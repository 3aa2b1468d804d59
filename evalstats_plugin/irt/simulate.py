"""Answers of known truth, from every item model: to test estimators on, and to plan with."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.wording import no_such

ItemModel = Literal["rasch", "2pl", "3pl", "factor", "partial-credit"]
ITEM_MODELS = ("rasch", "2pl", "3pl", "factor", "partial-credit")
Rng = np.random.Generator | int | None


class Truth(NamedTuple):
    """What answers are drawn from."""

    item_model: ItemModel
    ability: FloatArray
    """Shape (N,), standard normal; (N, K) for ``"factor"``."""
    discrimination: FloatArray
    """Shape (M,), or the loadings (M, K)."""
    difficulty: FloatArray
    """Shape (M,): b, or for ``"factor"`` the negative intercept."""
    guessing: FloatArray
    """Shape (M,)."""
    steps: FloatArray
    """Shape (M, S): thresholds of partial credit around the difficulty; S = 0 for others."""

    @property
    def probability(self) -> FloatArray:
        """Expected score of one trial, shape (N, M)."""
        if self.item_model == "partial-credit":
            shares = _shares(self)
            return shares @ np.linspace(0, 1, shares.shape[-1])
        return self.guessing + (1 - self.guessing) * special.expit(_logit(self))


def simulate_responses(
    *,
    rng: Rng,
    n_models: int,
    n_items: int,
    item_model: ItemModel = "2pl",
    n_epochs: int = 1,
    missing: float = 0.0,
    n_dimensions: int = 2,
) -> tuple[ResponseMatrix, Truth]:
    """Draw models, items and answers.

    Abilities and difficulties are N(0, 1), log discriminations N(0, 0.3²), guessing is uniform on
    [0.1, 0.3], loadings are N(0, 1 / K) with positive sum, and partial credit has 4 steps.

    Parameters
    ----------
    n_epochs
        Takes of every item: Binomial counts.
    missing
        Share of the takes left out at random.
    n_dimensions
        K, of ``"factor"``.

    Raises
    ------
    SelectionError
        No such item model.

    Examples
    --------
    >>> matrix, truth = simulate_responses(rng=0, n_models=3, n_items=4, n_epochs=2)
    >>> matrix.scores.shape, truth.probability.shape
    ((3, 4, 2), (3, 4))
    """
    source = np.random.default_rng(rng)
    truth = draw_truth(source, n_models, n_items, item_model, n_dimensions=n_dimensions)
    return draw_responses(truth, source, n_epochs=n_epochs, missing=missing), truth


def draw_truth(
    rng: np.random.Generator,
    n_models: int,
    n_items: int,
    item_model: ItemModel = "2pl",
    *,
    n_dimensions: int = 2,
    n_steps: int = 4,
) -> Truth:
    """Draw abilities and items; see `simulate_responses`."""
    if item_model not in ITEM_MODELS:
        raise SelectionError(no_such("item model", item_model, ITEM_MODELS, ", ".join(ITEM_MODELS)))
    ability, difficulty = rng.standard_normal(n_models), rng.standard_normal(n_items)
    slope = np.ones(n_items)
    if item_model in ("2pl", "3pl"):
        slope = np.exp(0.3 * rng.standard_normal(n_items))
    if item_model == "factor":
        ability = rng.standard_normal((n_models, n_dimensions))
        slope = rng.standard_normal((n_items, n_dimensions)) / np.sqrt(n_dimensions)
        slope *= np.where(slope.sum(axis=1, keepdims=True) < 0, -1, 1)
    guessing = rng.uniform(0.1, 0.3, n_items) if item_model == "3pl" else np.zeros(n_items)
    steps = rng.normal(0, 0.7, (n_items, n_steps if item_model == "partial-credit" else 0))
    if item_model == "partial-credit":
        steps -= steps.mean(axis=1, keepdims=True)
    return Truth(item_model, ability, slope, difficulty, guessing, steps)


def draw_responses(
    truth: Truth, rng: np.random.Generator, *, n_epochs: int = 1, missing: float = 0.0
) -> ResponseMatrix:
    """Draw answers from a truth.

    Raises
    ------
    ValueError
        No epochs, or a share of missing takes outside [0, 1).
    """
    if n_epochs < 1 or not 0 <= missing < 1:
        msg = f"expected 1 epoch or more and missing in [0, 1), got {n_epochs} and {missing}"
        raise ValueError(msg)
    shape = (len(truth.ability), len(truth.difficulty), n_epochs)
    chance = rng.random(shape)
    if truth.item_model == "partial-credit":
        passed = np.cumsum(_shares(truth), axis=-1)[..., None, :-1]
        scores = (chance[..., None] > passed).mean(axis=-1)
    else:
        scores = (chance < truth.probability[..., None]).astype(np.float64)
    scores[rng.random(shape) < missing] = np.nan
    return ResponseMatrix.from_array(scores)


def _logit(truth: Truth) -> FloatArray:
    if truth.item_model == "factor":
        return truth.ability @ truth.discrimination.T - truth.difficulty
    return truth.discrimination * (truth.ability[:, None] - truth.difficulty)


def _shares(truth: Truth) -> FloatArray:
    """Probability of each number of steps taken, shape (N, M, S + 1) [Mas82]_."""
    each = _logit(truth)[..., None] - truth.steps
    total = np.cumsum(each, axis=-1)
    return special.softmax(np.concatenate([np.zeros_like(total[..., :1]), total], axis=-1), axis=-1)
