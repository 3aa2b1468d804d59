"""Declared models: order, densities, distributions of torch, inputs."""

import re

import numpy as np
import pytest
import torch
from torch.distributions import Beta, Gamma, Normal, Uniform

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions, infer
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate

MU = Latent("mu", Normal(0.0, 1.0))
X = Observed("x", lambda z: Normal(z, 1.0), "task")
Z = Latent("z", lambda mu: Normal(mu, 1.0), "task")
TASK = Plate("task", 3)
QUICK = FitOptions(k=5, iterations=2, sets=2, draws=3)


def model(*latents, observed=X, plates=(TASK,), inputs=None):
    return Model(plates=plates, latents=latents, observed=[observed], inputs=inputs or {})


def test_latents_may_be_declared_in_any_order():
    assert list(model(Z, MU).structure.latents) == ["mu", "z"]


@pytest.mark.parametrize(
    ("latents", "observed", "expected"),
    [
        ((MU, Z), Observed("x", lambda z: Normal(z, z * 0), "task"),
         "the log density of x is no number"),
        ((MU, Latent("z", Gamma(1.0, 1.0), "task", proposal=Normal(-5.0, 0.1))), X,
         "latent 'z': the proposal has values beyond the prior's support"),
        ((MU, Latent("z", Uniform(0.0, 1.0), "task", proposal=Normal(-5.0, 0.1))), X,
         "no combination of particles has a density above 0"),
    ],
)  # fmt: skip
def test_densities_that_are_no_numbers_are_refused(latents, observed, expected):
    with pytest.raises(DesignError, match=re.escape(expected)):
        infer(model(*latents, observed=observed), {"x": np.zeros(3)}, options=QUICK, rng=0)


def test_inputs_come_on_the_axes_of_their_plates():
    """Z ~ N(μ + c, 1), c given: the same as shifted data."""
    with_input = model(
        MU, Latent("z", lambda mu, c: Normal(mu + c, 1.0), "task", proposal=Normal(0.0, 1.5)),
        observed=Observed("x", lambda z, c: Normal(z - c, 1.0), "task"), inputs={"c": "task"},
    )  # fmt: skip
    c = np.array([5.0, -3.0, 0.5])
    fit = infer(with_input, {"x": np.arange(3.0), "c": c}, rng=0)
    without = infer(model(MU, Z), {"x": np.arange(3.0)}, rng=0)

    assert fit.log_evidence == pytest.approx(without.log_evidence, abs=0.05)
    np.testing.assert_allclose(fit.moments["z"].mean - c, without.moments["z"].mean, atol=0.1)


def test_a_beta_prior_starts_from_a_beta_proposal():
    p = Latent("p", Beta(1.0, 1.0), "task")
    observed = Observed("x", lambda p, x: x * p.log() + (10 - x) * torch.log1p(-p), "task")
    fit = infer(model(MU, p, observed=observed), {"x": [3.0, 9.0, 10.0]}, rng=0)

    # Beta(1 + x, 11 − x).
    np.testing.assert_allclose(fit.moments["p"].mean, np.array([4, 10, 11]) / 12, atol=0.01)
