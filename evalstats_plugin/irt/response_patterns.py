"""A crowd of classifiers as models under test: machine response patterns [LWY19]_.

Item response models need many test takers. Small classifiers, each trained on another share of
the data with another share of its labels turned wrong, give thousands of them for the price of
their training; the difficulties that they find are those that people find.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.stats.interval import FloatArray

MOST_NOISE = 0.5
"""Greatest share of wrong labels."""


class ResponsePatterns(NamedTuple):
    """Graded answers, and how each model came to be."""

    matrix: ResponseMatrix
    """Scores 0 and 1 of N models on the M test items."""
    training_size: NDArray[np.int64]
    """Shape (N,)."""
    label_noise: FloatArray
    """Probability with which a label was turned wrong, shape (N,)."""


def simulate_response_patterns(
    classifier: Any,
    X_train: ArrayLike,  # noqa: N803 - as scikit-learn names them
    y_train: ArrayLike,
    X_test: ArrayLike,  # noqa: N803
    y_test: ArrayLike,
    *,
    n_models: int,
    rng: np.random.Generator | int | None = None,
) -> ResponsePatterns:
    """Train `n_models` classifiers on random parts of noisy data and grade their answers.

    Each draws a training size, uniform up to all of the data, and a noise η uniform on [0, ½];
    each label turns into one of the other labels with probability η. One example of each class is
    always there, with its own label, as most classifiers need two classes to learn from.

    Parameters
    ----------
    classifier
        With ``fit(X, y)`` and ``predict(X)`` as in scikit-learn; it is copied, never fitted
        itself. Or a function without arguments that makes one.
    rng
        Each model has a stream of its own: more models leave the first ones as they are.

    Raises
    ------
    DesignError
        Fewer than two classes, or features and labels that differ in number.
    """
    data = [np.asarray(part) for part in (X_train, y_train, X_test, y_test)]
    features, labels, test, answers = data
    classes, codes = np.unique(labels, return_inverse=True)
    _check(data, classes, n_models)
    runs = [
        _one(classifier, (features, codes, classes), test, stream)
        for stream in np.random.default_rng(rng).spawn(n_models)
    ]
    predictions = np.stack([prediction for prediction, _, _ in runs])
    return ResponsePatterns(
        ResponseMatrix.from_array((predictions == answers).astype(np.float64), metric="accuracy"),
        np.array([size for _, size, _ in runs]),
        np.array([noise for _, _, noise in runs]),
    )


def _check(data: list[NDArray[Any]], classes: NDArray[Any], n_models: int) -> None:
    for part, features, labels in (("training", *data[:2]), ("test", *data[2:])):
        if len(features) != len(labels) or labels.ndim != 1:
            msg = (
                f"{len(features)} {part} examples with labels of shape {labels.shape}, expected "
                "one label each"
            )
            raise DesignError(msg)
    if len(classes) < 2 or n_models < 1:
        msg = (
            f"{len(classes)} classes and {n_models} models found, expected 2 or more classes and a "
            "model"
        )
        raise DesignError(msg)


def _one(
    classifier: Any,
    training: tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]],
    test: NDArray[Any],
    rng: np.random.Generator,
) -> tuple[NDArray[Any], int, float]:
    """Predictions, training size and noise of one model."""
    features, codes, classes = training
    k = len(classes)
    order = rng.permutation(len(codes))
    first = np.unique(codes[order], return_index=True)[1]
    # One example of each class in front, the others in their random order.
    order = np.concatenate([order[first], np.delete(order, first)])
    size = int(rng.integers(k, len(order), endpoint=True))
    noise = float(rng.uniform(0, MOST_NOISE))
    chosen = order[:size]
    turned = rng.random(size) < noise
    turned[:k] = False
    shift = rng.integers(1, k, size=size)
    noisy = np.where(turned, (codes[chosen] + shift) % k, codes[chosen])
    model = _fresh(classifier)
    model.fit(features[chosen], classes[noisy])
    return np.asarray(model.predict(test)), size, noise


def _fresh(classifier: Any) -> Any:
    """Make an unfitted classifier: by its factory, or as a copy."""
    if hasattr(classifier, "fit") and not isinstance(classifier, type):
        return deepcopy(classifier)
    make: Callable[[], Any] = classifier
    return make()
