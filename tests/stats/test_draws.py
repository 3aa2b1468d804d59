"""R-hat and effective draws of chains that agree, that do not, and that stick."""

import numpy as np
import pytest
from scipy import signal

from evalstats_plugin.runtime.chains import R_HAT_LIMIT, convergence, mean_efficiency


def test_independent_draws_count_in_full():
    found = convergence(np.random.default_rng(0).normal(size=(4, 1000, 3)))

    assert found.r_hat.shape == found.ess.shape == (3,)
    assert (found.r_hat < R_HAT_LIMIT).all()
    np.testing.assert_allclose(found.ess, 4000, rtol=0.15)


def test_draws_that_follow_each_other_count_for_less():
    """AR(1) draws with correlation ρ are worth (1 - ρ) / (1 + ρ) of their number."""
    noise = np.random.default_rng(1).normal(size=(4, 5000, 1))
    walk = signal.lfilter([1], [1, -0.8], noise, axis=1)

    np.testing.assert_allclose(convergence(walk).ess, 20_000 / 9, rtol=0.15)


def test_chains_apart_are_found():
    draws = np.random.default_rng(2).normal(size=(4, 500, 1))
    draws[0] += 1

    assert convergence(draws).r_hat[0] > 1.05


@pytest.mark.needs("arviz")
@pytest.mark.parametrize(("chains", "draws", "follows"), [(4, 101, 0.9), (2, 40, -0.5), (5, 7, 0)])
def test_r_hat_and_effective_draws_are_those_of_arviz(chains, draws, follows):
    """Repeated draws are ties."""
    import xarray as xr
    from arviz import ess, rhat

    noise = np.random.default_rng(3).normal(size=(chains, draws, 12))
    walk = signal.lfilter([1], [1, -follows], noise, axis=1)
    walk[:, 3:5] = walk[:, 2:3]
    found = convergence(walk)
    known = xr.Dataset({"x": (("chain", "draw", "quantity"), walk)})

    np.testing.assert_allclose(found.r_hat, rhat(known)["x"], rtol=1e-12)
    np.testing.assert_allclose(found.ess, ess(known)["x"], rtol=1e-12)
    effective = ess(known, method="mean")["x"].mean() / (chains * draws)
    assert mean_efficiency(walk) == pytest.approx(float(effective), rel=1e-12)
