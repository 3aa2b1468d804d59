"""Tails of weights against ArviZ, of either major, and against tails of known shape."""

import arviz
import numpy as np
import pytest
from scipy import special

from evalstats_plugin.runtime.chains import inference_data, pareto_shape, smoothed_weights


def _psislw(log_weights, efficiency=1.0):
    if hasattr(arviz, "psislw"):
        return arviz.psislw(log_weights, efficiency)
    from arviz_stats.base import array_stats

    weights, shape = array_stats.psislw(-log_weights, r_eff=efficiency)
    return special.log_softmax(weights, axis=1), shape


@pytest.mark.needs("arviz>=0.23")  # earlier ones fit another tail
@pytest.mark.parametrize("count", [100, 900])
@pytest.mark.parametrize("efficiency", [1, 0.25, 2.25])
def test_smoothed_weights_are_those_of_arviz(count, efficiency):
    """And their shape. Where majors round the length of the tail differently, it is whole."""
    rng = np.random.default_rng(0)
    log_weights = rng.standard_t([[2], [5], [50]], size=(3, count)) * 1.5
    weights, shape = smoothed_weights(log_weights, efficiency)
    expected, expected_shape = _psislw(log_weights, efficiency)

    np.testing.assert_allclose(weights, expected, atol=1e-10)
    np.testing.assert_allclose(shape, expected_shape, atol=1e-10)
    np.testing.assert_allclose(np.exp(weights).sum(axis=1), 1)
    if efficiency == 1:
        np.testing.assert_allclose(pareto_shape(np.exp(log_weights)), shape, atol=1e-8)


def test_smoothed_weights_are_nearer_to_the_truth():
    """Of E[x] = 1 under Exp(1), from draws of an exponential with half the mean."""
    x = np.random.default_rng(3).exponential(0.5, size=(400, 1000))
    log_weights = x  # log of exp(-x) / exp(-2 x)
    smooth = (np.exp(smoothed_weights(log_weights)[0]) * x).sum(axis=1)
    raw = (special.softmax(log_weights, axis=1) * x).sum(axis=1)

    assert np.square(smooth - 1).mean() < 0.8 * np.square(raw - 1).mean()


def test_weights_without_a_tail_stay():
    equal, shapes = smoothed_weights(np.zeros((2, 100)))
    few, of_few = smoothed_weights(np.log([[1.0, 3.0]]))

    np.testing.assert_allclose(equal, -np.log(100))
    assert shapes.tolist() == [-np.inf, -np.inf]
    np.testing.assert_allclose(np.exp(few), [[0.25, 0.75]])
    assert np.isnan(of_few).all()


def test_the_shape_of_pareto_numbers_is_found():
    """Shapes 0.2, 0.5 and 1; the prior pulls a little towards ½."""
    rng = np.random.default_rng(1)
    weights = rng.random((3, 50_000)) ** -np.array([[0.2], [0.5], [1.0]])

    np.testing.assert_allclose(pareto_shape(weights), [0.2, 0.5, 1.0], atol=0.12)


def test_equal_weights_have_no_tail_and_few_draws_no_answer():
    assert pareto_shape(np.ones((2, 100))).tolist() == [-np.inf, -np.inf]
    assert np.isnan(pareto_shape(np.ones((1, 20)))).all()


def test_groups_have_their_names_and_dimensions_in_either_major():
    rng = np.random.default_rng(2)
    data = inference_data(
        {"posterior": {"ability": rng.normal(size=(2, 5, 3))}, "observed_data": {"y": np.ones(3)},
         "constant_data": {}},
        coords={"model": ["a", "b", "c"]}, dims={"ability": ["model"], "y": ["model"]},
    )  # fmt: skip

    assert data["posterior"]["ability"].dims == ("chain", "draw", "model")
    assert data["posterior"]["ability"].sel(model="b").shape == (2, 5)
    assert data["observed_data"]["y"].dims == ("model",)
    assert not hasattr(data, "constant_data")
