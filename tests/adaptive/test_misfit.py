import numpy as np
from scipy import special

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.misfit import calibrate_misfit, fit_factors, leave_out
from evalstats_plugin.adaptive.simulation import Options, run_sessions

N, M = 160, 140


def world(size, seed=0):
    """Bank of true items, abilities, and answers with one misfit factor of that size."""
    rng = np.random.default_rng(seed)
    a, d = np.exp(0.3 * rng.normal(size=M)), rng.normal(size=M)
    loadings = size * np.where(np.arange(M) % 2, 1.0, -1.0)[:, None] * rng.uniform(0.5, 1.5, (M, 1))
    theta, factor = rng.normal(size=N), rng.normal(size=(N, 1))
    p = special.expit(theta[:, None] * a + d + factor @ loadings.T)
    bank = ItemBank.from_arrays(a, d, item_covariance=np.tile(0.03 * np.eye(2), (M, 1, 1)))
    return bank, theta, loadings, factor, (rng.random((N, M)) < p).astype(float)


def test_a_factor_is_found_with_its_size_and_scores():
    bank, theta, loadings, factor, right = world(0.8)

    found = fit_factors(bank.items, theta, right, np.ones_like(right), 1)

    assert abs(np.corrcoef(found.loadings[:, 0], loadings[:, 0])[0, 1]) > 0.95
    assert abs(np.corrcoef(found.scores[:, 0], factor[:, 0])[0, 1]) > 0.9
    np.testing.assert_allclose(np.sqrt((loadings**2).mean()), found.strength[0], rtol=0.15)


def test_noise_is_no_factor():
    bank, theta, _, _, right = world(0.0)

    found = calibrate_misfit(bank, theta, right, np.ones_like(right), rng=np.random.default_rng(0))

    assert 0 == found.loadings.shape[1]
    assert found.misfit[""] < 0.03


def test_a_factor_makes_predicted_scores_better():
    bank, theta, _, _, right = world(1.2)
    bank = ItemBank.from_arrays(bank.discrimination, bank.intercept, tasks=["x", "y"] * (M // 2))
    known = np.arange(N) < 110
    found = calibrate_misfit(
        bank, theta[known], right[known], np.ones((110, M)), rng=np.random.default_rng(0)
    )
    better = ItemBank.from_arrays(
        bank.discrimination,
        bank.intercept,
        tasks=["x", "y"] * (M // 2),
        misfit_loadings=found.loadings,
        misfit=found.misfit,
    )

    def error(which):
        full = (
            run_sessions(which, right[~known], (30,), Options("full-score"), rng=0)
            .checkpoints[0]
            .full
        )
        truth = right[~known][:, ::2].mean(axis=1)
        return np.abs(full.estimate[:, 1] - truth).mean()

    assert 1 <= found.loadings.shape[1]
    assert error(better) < 0.75 * error(bank)


def test_too_few_models_are_reported():
    bank, theta, _, _, right = world(0.5)

    found = calibrate_misfit(
        bank, theta[:8], right[:8], np.ones((8, M)), rng=np.random.default_rng(0)
    )

    assert "too few to tell" in found.notes[0]
    assert {} == found.misfit


def test_items_without_some_models_are_nearly_those_fitted_without_them():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=400)
    x = np.stack([theta, np.ones(400)], axis=1)
    y = (rng.random(400) < special.expit(1.2 * theta - 0.4)).astype(float)

    def fitted(kept):
        beta = np.zeros(2)
        for _ in range(50):
            p = special.expit(x[kept] @ beta)
            h = (x[kept] * (p * (1 - p))[:, None]).T @ x[kept]
            beta = beta + np.linalg.solve(h, x[kept].T @ (y[kept] - p))
        return beta, np.linalg.inv(h)

    out = np.arange(400) < 60
    (a, d), covariance = fitted(np.ones(400, bool))
    exact, _ = fitted(~out)
    bank = ItemBank.from_arrays([a], [d], item_covariance=covariance[None])

    found = leave_out(bank.items, theta[out], y[out, None], np.ones((60, 1)))

    moved = np.abs(exact - [a, d]).max()
    assert np.abs(exact - [found.discrimination[0], found.intercept[0]]).max() < 0.25 * moved
