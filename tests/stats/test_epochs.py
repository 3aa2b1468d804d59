"""Variance between and within items."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from evalstats_plugin.stats.clustered import (
    VarianceParts,
    epoch_noise,
    variance_parts,
)


def _over_all_outcomes(p: np.ndarray, epochs: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Every outcome of 0/1 epochs, NaN-padded, and its probability."""
    widest = max(epochs)
    cells = [(i, r) for i, n in enumerate(epochs) for r in range(n)]
    scores, weights = [], []
    for outcome in product((0.0, 1.0), repeat=len(cells)):
        answers = np.full((len(p), widest), np.nan)
        weight = 1.0
        for (i, r), x in zip(cells, outcome, strict=True):
            answers[i, r] = x
            weight *= p[i] if x else 1 - p[i]
        scores.append(answers)
        weights.append(weight)
    return np.array(scores), np.array(weights)


@pytest.mark.parametrize("epochs", [[3, 3, 3], [2, 4, 2], [2, 2, 2, 2]])
def test_both_parts_are_unbiased(epochs: list[int]) -> None:
    """Exactly: the mean over every outcome, items that differ in their epochs included."""
    p = np.array([0.9, 0.4, 0.6, 0.25])[: len(epochs)]
    scores, weights = _over_all_outcomes(p, epochs)
    parts = variance_parts(scores)

    assert abs(weights @ parts.within - (p * (1 - p)).mean()) < 1e-12
    assert abs(weights @ parts.between - p.var(ddof=1)) < 1e-12


def test_the_variance_of_item_means_alone_is_biased() -> None:
    """The negative control: it holds the noise of the epochs, too."""
    p = np.array([0.9, 0.4, 0.6])
    scores, weights = _over_all_outcomes(p, [3, 3, 3])

    assert weights @ variance_parts(scores).total - p.var(ddof=1) > 0.05


def test_variance_parts_agree_with_the_prototype() -> None:
    """Of 4,000 evals with 30 items × 4 epochs, θ ~ Beta(4, 1): .0269 on average, truly .0267."""
    rng = np.random.default_rng(1)
    theta = rng.beta(4, 1, size=(4000, 30))
    scores = 1.0 * (rng.uniform(size=(4000, 30, 4)) < theta[:, :, None])
    parts = variance_parts(scores)

    assert abs(parts.between.mean() - 4 / (25 * 6)) < 0.0007
    assert abs(parts.within.mean() - 4 / (5 * 6)) < 0.0012


def test_zero_one_epochs_have_the_variance_of_the_formula() -> None:
    """The mean of p(1 - p)K/(K - 1)."""
    scores = np.array([[1, 0, 0, 1.0], [1, 1, 1, 0], [0, 0, 0, 0]])
    p = scores.mean(axis=1)

    assert variance_parts(scores).within == pytest.approx((p * (1 - p) * 4 / 3).mean(), abs=1e-15)


def test_without_a_second_epoch_the_parts_are_unknown() -> None:
    """NaN; but not the variance of the item means."""
    parts = variance_parts([[1.0], [0.0], [1.0]])

    assert np.isnan([parts.within, parts.between]).all()
    assert parts.total == pytest.approx(1 / 3)


def test_an_item_with_one_epoch_has_the_noise_of_the_average_item() -> None:
    """And one without epochs has none."""
    nan = np.nan
    variance, noise = epoch_noise([[1.0, 0.0], [0.0, 0.0], [1.0, nan], [nan, nan]])

    assert variance == pytest.approx([0.5, 0.0, nan, nan], abs=1e-15, nan_ok=True)
    assert noise == pytest.approx([0.25, 0.0, 0.25, nan], abs=1e-15, nan_ok=True)


def _predicted_std_error(parts: VarianceParts, n_items: int, n_epochs: int) -> np.ndarray:
    return np.sqrt((np.maximum(parts.between, 0.0) + parts.within / n_epochs) / n_items)


def test_components_predict_the_standard_error_of_evals_of_other_sizes() -> None:
    """The prediction from one huge pilot is the spread of many evals of another size."""
    rng = np.random.default_rng(2)

    def draw(n_evals: int, n_items: int, n_epochs: int) -> np.ndarray:
        theta = rng.beta(2, 1, size=(n_evals, n_items))
        return 1.0 * (rng.uniform(size=(n_evals, n_items, n_epochs)) < theta[:, :, None])

    parts = variance_parts(draw(1, 50_000, 3)[0])
    for n_items, n_epochs in ((20, 1), (20, 6), (80, 2)):
        predicted = float(_predicted_std_error(parts, n_items, n_epochs))
        seen = draw(4000, n_items, n_epochs).mean(axis=(1, 2)).std()

        assert seen == pytest.approx(predicted, rel=0.05)


def test_components_predict_the_standard_error_of_the_same_eval() -> None:
    """Where nothing had to be clipped."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(7, 40, 5)) + rng.normal(size=(7, 40, 1))
    parts = variance_parts(scores)
    expected = scores.mean(axis=2).std(axis=1, ddof=1) / np.sqrt(40)

    assert _predicted_std_error(parts, 40, 5) == pytest.approx(expected, rel=1e-12)
