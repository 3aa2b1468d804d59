"""`fit_irt(response="beta")`: the Beta model through the common door."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt import IRTFit
from evalstats_plugin.irt.estimators.beta_response import BETA_NOTE, beta_fit, beta_scores
from evalstats_plugin.irt.fitting import fit_irt


def beta_matrix(n=12, m=200, phi=8.0, seed=0):
    """Scores strictly between 0 and 1 from a Rasch-like Beta model."""
    rng = np.random.default_rng(seed)
    theta, b = np.linspace(-1.2, 1.2, n), rng.standard_normal(m)
    mean = special.expit(theta[:, None] - b)
    return ResponseMatrix.from_array(rng.beta(mean * phi, (1 - mean) * phi)), theta, mean


@pytest.mark.parametrize("item_model", ["rasch", "2pl"])
def test_it_is_the_beta_fit_on_the_scale_of_other_fits(item_model):
    """The same numbers; b = -d / a, and the covariance in the order a, d."""
    matrix, theta, _ = beta_matrix()
    fit = fit_irt(matrix, item_model, response="beta", device="cpu")
    raw = beta_fit(beta_scores(matrix.scores, device="cpu"), item_model)

    np.testing.assert_array_equal(raw.ability.numpy(), fit.ability)
    np.testing.assert_allclose(raw.intercept.numpy(), fit.intercept, rtol=1e-10)
    np.testing.assert_array_equal(raw.precision.numpy(), fit.precision)
    np.testing.assert_array_equal(raw.item_covariance[:, 0, 0], fit.item_covariance[:, 1, 1])
    np.testing.assert_allclose(raw.expected().numpy(), fit.predict(), atol=1e-10)
    assert np.corrcoef(theta, fit.ability)[0, 1] > 0.99
    assert np.median(fit.precision) == pytest.approx(8, rel=0.15)
    assert ("beta", "map") == (fit.response, fit.estimator)
    assert BETA_NOTE in fit.notes
    assert not any("quasi-likelihood)" in note for note in fit.notes)


def test_only_the_beta_model_estimates_the_spread():
    """Of scores twice as spread the precision falls, and errors of abilities grow."""
    narrow, wide = (fit_irt(beta_matrix(phi=p)[0], "rasch", response="beta") for p in (40, 4))
    plain = fit_irt(beta_matrix(phi=40)[0], "rasch")

    assert np.median(narrow.precision) > 5 * np.median(wide.precision)
    assert (wide.ability_std_error > 2 * narrow.ability_std_error).all()
    assert plain.precision is None
    assert "binomial" == plain.response
    # The quasi-likelihood takes each score for one right or wrong answer.
    assert (plain.ability_std_error > 2 * narrow.ability_std_error).all()


def test_scores_drawn_inwards_are_predicted_outwards_again():
    """Means of scores, some of which are exactly 0 and 1, come back without bias."""
    matrix, *_ = beta_matrix()
    scores = matrix.scores.copy()
    scores[scores > 0.9] = 1.0
    whole = ResponseMatrix.from_array(scores)
    fit = fit_irt(whole, "rasch", response="beta")
    raw = beta_scores(whole.scores, device="cpu")

    assert raw.inwards == fit.hyperparameters["inwards"] > 0
    expected = beta_fit(raw, "rasch").expected(raw.inwards).numpy()
    np.testing.assert_allclose(expected, fit.predict(), atol=1e-9)
    assert any("of the scores are exactly 0 or 1" in note for note in fit.notes)


def test_a_saved_fit_keeps_its_precision(tmp_path):
    """And what response it is of."""
    fit = fit_irt(beta_matrix(m=20)[0], "2pl", response="beta")
    back = IRTFit.load(fit.save(tmp_path / "beta.parquet"))

    np.testing.assert_array_equal(fit.precision, back.precision)
    assert "beta" == back.response
    assert "precision" in back.to_frame("items").columns
    with pytest.raises(ValueError, match="precision has shape"):
        IRTFit(**{**fit.__dict__, "precision": np.ones(3)})


def test_what_has_no_beta_is_refused():
    """Right and wrong alone; two models; other item models, estimators and options."""
    matrix = beta_matrix(m=20)[0]
    binary = ResponseMatrix.from_array(np.round(matrix.scores))
    two = ResponseMatrix.from_array(matrix.scores[:2])
    with pytest.raises(DesignError, match="every score is 0 or 1"):
        fit_irt(binary, "2pl", response="beta")
    with pytest.raises(DesignError, match="2 models found, expected 3 or more"):
        fit_irt(two, "2pl", response="beta")
    with pytest.raises(SelectionError, match="expected item model rasch or 2pl"):
        fit_irt(matrix, "3pl", response="beta")
    with pytest.raises(SelectionError, match="expected its only estimator, map"):
        fit_irt(matrix, "2pl", "mml", response="beta")
    with pytest.raises(SelectionError, match="no response is called 'gaussian'"):
        fit_irt(matrix, "2pl", response="gaussian")
    with pytest.raises(SelectionError, match="no option of response 'beta' is called 'strength'"):
        fit_irt(matrix, "2pl", response="beta", options={"strength": 1})


def test_scores_follow_the_beta_that_was_fitted():
    """Their probability transforms are uniform; of a wrong precision they are not."""
    matrix, *_ = beta_matrix(n=20, m=400)
    fit = fit_irt(matrix, "rasch", response="beta")
    mean = fit.predict()
    for factor, fits in ((1.0, True), (2.0, False)):
        phi = factor * fit.precision
        u = stats.beta.cdf(matrix.scores[..., 0], mean * phi, (1 - mean) * phi)
        distance = stats.kstest(u.ravel(), "uniform").statistic
        assert (distance < 0.02) == fits
