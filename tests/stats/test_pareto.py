"""Tails of weights against ArviZ and against tails of known shape."""

import arviz
import numpy as np
import pytest

from evalstats_plugin.runtime.chains import pareto_shape


@pytest.mark.needs("arviz>=0.23")  # earlier ones fit another tail
@pytest.mark.parametrize("count", [100, 1000])
def test_the_shape_is_that_of_arviz(count):
    rng = np.random.default_rng(0)
    log_weights = rng.standard_t([[2], [5], [50]], size=(3, count)) * 1.5
    _, expected = arviz.psislw(log_weights)

    np.testing.assert_allclose(pareto_shape(np.exp(log_weights)), expected, atol=0.02)


def test_the_shape_of_pareto_numbers_is_found():
    """Shapes 0.2, 0.5 and 1; the prior pulls a little towards ½."""
    rng = np.random.default_rng(1)
    weights = rng.random((3, 50_000)) ** -np.array([[0.2], [0.5], [1.0]])

    np.testing.assert_allclose(pareto_shape(weights), [0.2, 0.5, 1.0], atol=0.12)


def test_equal_weights_have_no_tail_and_few_draws_no_answer():
    assert pareto_shape(np.ones((2, 100))).tolist() == [-np.inf, -np.inf]
    assert np.isnan(pareto_shape(np.ones((1, 20)))).all()
