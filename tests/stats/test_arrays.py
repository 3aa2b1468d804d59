"""Numbers that decide or multiply draws are the same on every processor."""

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.ranking.ratings.fit import normal_draws
from evalstats_plugin.stats.arrays import log_mean_exp, root_of, steady
from evalstats_plugin.stats.ranks import prob_best


@pytest.fixture
def other_processor(monkeypatch):
    """Eigenvectors as another processor may give them: turned, and mixed where values are equal."""
    eigh = np.linalg.eigh

    def turned(matrix):
        values, vectors = eigh(matrix)
        alike = np.isclose(values[1:], values[:-1], rtol=1e-9, atol=1e-9 * abs(values).max())
        for k in np.flatnonzero(alike):
            mixed = (vectors[:, k] + vectors[:, k + 1]) / np.sqrt(2)
            other = (vectors[:, k] - vectors[:, k + 1]) / np.sqrt(2)
            vectors[:, k], vectors[:, k + 1] = mixed, other
        values = values + 1e-15 * abs(values).max() * (-1.0) ** np.arange(len(values))
        return values, -vectors

    def begin():
        monkeypatch.setattr(np.linalg, "eigh", turned)

    return begin


def _singular(n=12):
    half = np.random.default_rng(1).normal(size=(n, n + 8))
    half = half - half.mean(axis=0)
    return half @ half.T / n


@pytest.mark.parametrize("covariance", [_singular(), np.eye(5), np.ones((3, 3)), np.zeros((2, 2))])
def test_a_root_is_symmetric_and_its_square_is_the_covariance(covariance):
    root = root_of(covariance)
    assert np.allclose(root, root.T)
    assert np.allclose(root @ root, covariance, atol=1e-10)


def test_draws_do_not_depend_on_signs_and_order_of_eigenvectors(other_processor):
    covariance = _singular()

    def drawn():
        return normal_draws(np.zeros(12), covariance, (500,), np.random.default_rng(0))

    here = drawn()
    other_processor()
    assert np.abs(drawn() - here).max() < 1e-10


def test_the_probability_of_being_best_does_not_depend_on_them(other_processor):
    scores = (np.random.default_rng(2).random((7, 30)) < 0.6).astype(float)

    def found():
        return prob_best(scores, spread=1.0, rng=np.random.default_rng(0), n_draws=4000)

    here = found()
    other_processor()
    assert found().tolist() == here.tolist()


def test_steady_numbers_are_equal_where_only_roundings_differ():
    values = np.random.default_rng(0).normal(size=10_000) * 10.0 ** np.arange(-50, 50).repeat(100)
    other = values * (1 + 1e-15)
    assert (values != other).mean() > 0.9
    assert (steady(values) == steady(other)).mean() > 0.9999
    assert np.abs(steady(values) / values - 1).max() < 2**-32


def test_steady_leaves_what_is_not_finite():
    assert np.array_equal(steady([np.nan, np.inf, 0.0]), [np.nan, np.inf, 0.0], equal_nan=True)
    assert steady(-1.5) == -1.5


@pytest.mark.parametrize("shape", [(7,), (3, 7)])
def test_the_log_of_a_mean_of_exponentials_is_that_of_scipy(shape):
    values = np.random.default_rng(0).normal(-900, 200, shape)
    log_mean, relative = log_mean_exp(values)

    np.testing.assert_allclose(log_mean, special.logsumexp(values, axis=-1) - np.log(7), rtol=1e-14)
    assert (relative.max(axis=-1) == 1).all()
    share = relative / relative.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(share, special.softmax(values, axis=-1), rtol=1e-14)
