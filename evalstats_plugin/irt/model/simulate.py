"""Simulated responses: from item response models, or from classifiers trained on noisy data.

* `simulate_responses` draws models, items and answers; `draw_truth` and `draw_responses` are its
  two steps
* `simulate_response_patterns` trains classifiers as the models under test [LWY19]_
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, Rng
from evalstats_plugin.stats.streams import children, stream

ItemModel = Literal["rasch", "2pl", "3pl", "4pl", "factor", "partial-credit"]
ITEM_MODELS: tuple[ItemModel, ...] = ("rasch", "2pl", "3pl", "4pl", "factor", "partial-credit")
# Largest probability of a wrong label.
_MOST_NOISE = 0.5


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
    """Simulate abilities, items and answers.

    Abilities and difficulties are N(0, 1), log discriminations N(0, 0.3²), guessing is uniform on
    [0.1, 0.3] and the upper asymptote of ``"4pl"`` on [0.8, 1], loadings are N(0, 1 / K) with
    positive sum, and partial credit has 4 steps.

    Parameters
    ----------
    n_epochs
        Epochs of every item.
    missing
        Share of the answers left out at random.
    n_dimensions
        K, the number of abilities for ``"factor"``.

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
    source = stream(rng, "simulated answers")
    truth = draw_truth(source, n_models, n_items, item_model, n_dimensions=n_dimensions)
    return draw_responses(truth, source, n_epochs=n_epochs, missing=missing), truth


class Truth(NamedTuple):
    """Parameters that answers are drawn from."""

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
    """Thresholds of partial credit around the difficulty, shape (M, S); S = 0 for other models."""
    upper: FloatArray
    """Shape (M,)."""

    @property
    def probability(self) -> FloatArray:
        """Expected score of one trial, shape (N, M)."""
        if self.item_model == "partial-credit":
            shares = _shares(self)
            return shares @ np.linspace(0, 1, shares.shape[-1])
        return self.guessing + (self.upper - self.guessing) * special.expit(_logit(self))


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
    if item_model in ("2pl", "3pl", "4pl"):
        slope = np.exp(0.3 * rng.standard_normal(n_items))
    if item_model == "factor":
        ability = rng.standard_normal((n_models, n_dimensions))
        slope = rng.standard_normal((n_items, n_dimensions)) / np.sqrt(n_dimensions)
        slope *= np.where(slope.sum(axis=1, keepdims=True) < 0, -1, 1)
    guessing, upper = np.zeros(n_items), np.ones(n_items)
    if item_model in ("3pl", "4pl"):
        guessing = rng.uniform(0.1, 0.3, n_items)
    if item_model == "4pl":
        upper = rng.uniform(0.8, 1.0, n_items)
    steps = rng.normal(0, 0.7, (n_items, n_steps if item_model == "partial-credit" else 0))
    if item_model == "partial-credit":
        steps -= steps.mean(axis=1, keepdims=True)
    return Truth(item_model, ability, slope, difficulty, guessing, steps, upper)


def draw_responses(
    truth: Truth, rng: np.random.Generator, *, n_epochs: int = 1, missing: float = 0.0
) -> ResponseMatrix:
    """Draw answers from known parameters; see `simulate_responses`.

    Raises
    ------
    ValueError
        No epochs, or a share of missing answers outside [0, 1).
    """
    if n_epochs < 1 or not 0 <= missing < 1:
        msg = f"{n_epochs} epochs with a share {missing} missing: pass 1 or more, and below 1"
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
    """Probability of each number of passed steps, shape (N, M, S + 1) [Mas82]_."""
    each = _logit(truth)[..., None] - truth.steps
    total = np.cumsum(each, axis=-1)
    return special.softmax(np.concatenate([np.zeros_like(total[..., :1]), total], axis=-1), axis=-1)


def simulate_response_patterns(
    classifier: Any,
    X_train: ArrayLike,  # noqa: N803 - as scikit-learn names them
    y_train: ArrayLike,
    X_test: ArrayLike,  # noqa: N803
    y_test: ArrayLike,
    *,
    n_models: int,
    rng: Rng = None,
) -> ResponsePatterns:
    """Train `n_models` classifiers on random parts of noisy data and grade their answers [LWY19]_.

    Each model draws a training size, uniform up to all of the data, and a noise η, uniform on
    [0, ½]; each label is replaced by one of the other labels with probability η. One example of
    each class always keeps its label, as most classifiers need two classes to learn from.

    Parameters
    ----------
    classifier
        With ``fit(X, y)`` and ``predict(X)`` as in scikit-learn; it is copied, not fitted itself.
        Or a function without arguments that makes one.
    rng
        Each model has a stream of its own: more models leave the first ones as they are.

    Raises
    ------
    DesignError
        Fewer than two classes, or features and labels that differ in number.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from evalstats_plugin.irt import simulate_response_patterns
    >>> x, y = load_iris(return_X_y=True)
    >>> train, test = slice(0, None, 2), slice(1, None, 2)
    >>> patterns = simulate_response_patterns(
    ...     GaussianNB(), x[train], y[train], x[test], y[test], n_models=8, rng=0
    ... )
    >>> patterns.matrix.scores.shape, int(patterns.training_size.max()) <= 75
    ((8, 75, 1), True)
    """
    data = [np.asarray(part) for part in (X_train, y_train, X_test, y_test)]
    features, labels, test, answers = data
    classes, codes = np.unique(labels, return_inverse=True)
    _check(data, classes, n_models)
    k = len(classes)
    right, sizes, noises = list[BoolArray](), list[int](), list[float]()
    for source in children(rng, "training of classifiers", n_models):
        order = source.permutation(len(codes))
        first = np.unique(codes[order], return_index=True)[1]
        # One example of each class first, then the others in their random order.
        order = np.concatenate([order[first], np.delete(order, first)])
        sizes.append(int(source.integers(k, len(order), endpoint=True)))
        noises.append(float(source.uniform(0, _MOST_NOISE)))
        chosen = order[: sizes[-1]]
        wrong = source.random(len(chosen)) < noises[-1]
        wrong[:k] = False
        shift = source.integers(1, k, size=len(chosen))
        noisy = np.where(wrong, (codes[chosen] + shift) % k, codes[chosen])
        if hasattr(classifier, "fit") and not isinstance(classifier, type):
            model = deepcopy(classifier)
        else:
            model = classifier()
        model.fit(features[chosen], classes[noisy])
        right.append(np.asarray(model.predict(test)) == answers)
    scores = np.stack(right).astype(np.float64)
    matrix = ResponseMatrix.from_array(scores, metric="accuracy")
    return ResponsePatterns(matrix, np.array(sizes), np.array(noises))


class ResponsePatterns(NamedTuple):
    """Graded answers, and how each model was trained."""

    matrix: ResponseMatrix
    """Scores 0 and 1 of N models on the M test items."""
    training_size: IntArray
    """Training examples of each model, shape (N,)."""
    label_noise: FloatArray
    """Probability of a wrong label in each model's training data, shape (N,)."""


def _check(data: list[NDArray[Any]], classes: NDArray[Any], n_models: int) -> None:
    for part, features, labels in (("training", *data[:2]), ("test", *data[2:])):
        if len(features) != len(labels) or labels.ndim != 1:
            raise DesignError(
                f"{len(features)} {part} examples have labels of shape {labels.shape}: pass one "
                "label for each"
            )
    if len(classes) < 2 or n_models < 1:
        raise DesignError(
            f"{len(classes)} classes and {n_models} models make no answers: pass 2 classes or "
            "more, and a model"
        )
