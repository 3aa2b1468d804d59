"""Person fit by exact sums over all patterns of answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt.fit_statistics import Cells, log_likelihood_z, person_fit
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MapOptions, MmlOptions
from evalstats_plugin.irt.model.fit import reliability
from evalstats_plugin.irt.model.simulate import simulate_responses
from evalstats_plugin.irt.scoring import METHODS, score_models

B = np.linspace(-1.5, 1.5, 11)
A = np.linspace(0.6, 1.6, 11)[[5, 0, 8, 2, 10, 4, 1, 9, 3, 7, 6]]
PATTERNS = np.array(list(itertools.product([0.0, 1.0], repeat=11)))


def chances(theta):
    p = special.expit(A * (theta - B))
    return np.prod(np.where(PATTERNS == 1, p, 1 - p), axis=1)


def fitted(ability):
    p = special.expit(A * (ability[:, None] - B))
    return log_likelihood_z(Cells(PATTERNS, np.ones_like(p), p), A * p * (1 - p))


@pytest.mark.parametrize("theta", [-1.0, 0.3])
def test_lz_is_standardised_at_the_true_ability(theta):
    """Mean 0 and variance 1, by the exact sum over 2048 patterns."""
    lz, chance = fitted(np.full(len(PATTERNS), theta)).lz, chances(theta)

    assert chance @ lz == pytest.approx(0, abs=1e-12)
    assert chance @ lz**2 == pytest.approx(1, abs=1e-12)


def test_the_correction_for_estimated_ability_brings_the_spread_back():
    """With maximum likelihood abilities lz spreads too little, its correction hardly does."""
    total, count = PATTERNS @ A, PATTERNS.sum(axis=1)
    inner = (count > 0) & (count < 11)
    at = np.zeros(len(PATTERNS))
    for _ in range(100):
        p = special.expit(A * (at[:, None] - B))
        step = (total - p @ A) / ((p * (1 - p)) @ A**2)
        at = np.where(inner, at + np.clip(step, -1, 1), 0)
    found = [x[inner] for x in fitted(at)]
    for theta in (-1.0, 0.2, 1.0):
        chance = chances(theta)[inner] / chances(theta)[inner].sum()
        plain, corrected = (np.sqrt(chance @ (x - chance @ x) ** 2) for x in found)

        assert plain < 0.95
        assert 0.9 < corrected < 1.1


@pytest.mark.needs("torch")
def test_models_fit_alike_however_they_are_scored():
    """lz* of maximum likelihood was corrected as if a prior had shrunk it: its spread was 2.8."""
    answers, _ = simulate_responses(rng=0, n_models=200, n_items=20, item_model="rasch")
    bank, new = (
        ResponseMatrix.from_array(part) for part in (answers.scores[:80], answers.scores[80:])
    )
    bank = fit_irt(bank, "rasch", options=MmlOptions(std_errors=False))
    scored = {method: score_models(bank, new, method=method) for method in METHODS}

    for method, fit in scored.items():
        lz = person_fit(fit, new)["lz_corrected"][np.isfinite(fit.ability)]
        assert abs(lz.mean()) < 0.3, method
        assert 0.8 < lz.std() < 1.3, method
        assert reliability(fit).kind == ("eap" if method in ("eap", "map") else "separation")


@pytest.mark.needs("torch")
def test_the_pull_of_a_prior_balances_the_answers():
    """At a posterior mode the derivatives of log-likelihood and log prior add up to 0."""
    matrix, _ = simulate_responses(rng=1, n_models=20, n_items=40, item_model="rasch")
    fit = fit_irt(matrix, "rasch", options=MapOptions(), zero="models")
    right_beyond = (matrix.scores[:, :, 0] - fit.predict(plug_in=True)).sum(axis=1)

    assert fit.shrinks
    # The abilities reported sum to 0.
    assert right_beyond - right_beyond.mean() == pytest.approx(fit.ability, abs=1e-4)


@pytest.mark.needs("torch")
def test_a_model_that_answers_by_coin_does_not_fit():
    matrix, _ = simulate_responses(rng=0, n_models=60, n_items=150)
    scores = matrix.scores.copy()
    scores[0, :, 0] = np.random.default_rng(1).integers(0, 2, 150)
    coin = ResponseMatrix.from_array(scores)
    found = person_fit(fit_irt(coin), coin)

    assert 0 == found["lz_corrected"].argmin()
    assert found["lz_corrected"][0] < -4
    assert found["lz_corrected"][1:].min() > -4
    assert found["infit_z"][0] > 3
