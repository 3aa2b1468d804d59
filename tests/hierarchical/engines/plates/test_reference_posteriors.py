"""The sampler beside posteriors that are known; more of them are in tests/validation.

Means are within .1 standard deviations, and standard deviations within 10 %.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from reference_posteriors import GRID, exact, funnel, near, of_one_number, schools
from scipy import stats
from torch.distributions import Dirichlet, Exponential, Multinomial, Normal, Uniform

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate, infer
from evalstats_plugin.hierarchical.engines.plates.fit import METHODS
from evalstats_plugin.hierarchical.engines.plates.model import bind
from evalstats_plugin.hierarchical.engines.plates.nuts import Posterior, tail_ess

NAN = float("nan")


def test_all_engines_pass_the_gate_in_the_study():
    """By tests/validation/test_reference_posteriors.py."""
    folder = Path(__file__).parents[4] / "fixtures" / "validation"
    study = json.loads((folder / "reference_posteriors.json").read_text(encoding="utf-8"))
    models = {name.split(",")[0] for name in study}

    assert len(models) >= 20
    assert {name.rsplit(", ", 1)[1] for name in study} == set(METHODS)
    for name, errors in study.items():
        assert errors["error_of_mean"] < 0.1, name
        assert errors["ratio_of_sd"] < np.log(1.1), name


def test_the_posterior_of_one_number():
    model, data = of_one_number("counts")
    fit = infer(model, data, "nuts", n_particles=8, steps=250, rng=0)

    assert near(fit, "z", *exact(*GRID["counts"]))


@pytest.mark.parametrize("method", ["qem", "mp-vi"])
@pytest.mark.parametrize("seed", range(2))
def test_particles_that_miss_a_part_say_so(method, seed):
    """Of N(0, 3), they find .2 to .9 of the spread."""
    fit = infer(funnel(), {}, method, rng=seed)

    assert not near(fit, "v", 0.0, 3.0)
    assert any("heavy tails" in note or "wider proposals move" in note for note in fit.notes)


@pytest.mark.parametrize("seed", range(2))
def test_particles_that_miss_nothing_are_not_doubted(seed):
    model, data = of_one_number("mean")
    assert infer(model, data, rng=seed).moved == {}


@pytest.mark.usefixtures("short_warm_up")
def test_shares_of_a_dirichlet_distribution():
    model = Model(
        plates=[Plate("task", 2)],
        latents=[Latent("share", Dirichlet(torch.tensor([1.0, 2.0, 3.0])), shape=(3,))],
        observed=[Observed("n", lambda share: Multinomial(10, share), "task")],
    )
    fit = infer(
        model, {"n": [[2.0, 3.0, 5.0], [0.0, 6.0, 4.0]]}, "nuts", n_particles=8, steps=150, rng=0
    )
    after = stats.dirichlet([3.0, 11.0, 12.0])

    assert near(fit, "share", after.mean(), after.var() ** 0.5)


@pytest.mark.usefixtures("short_warm_up")
def test_a_wrong_posterior_fails_the_gate():
    model, data = of_one_number("mean")
    mean, sd = exact(*GRID["mean"])
    options = {"n_particles": 8, "steps": 150, "rng": 0}
    moved = infer(model, {"y": [x + 0.3 for x in data["y"]]}, "nuts", **options)
    wide = infer(model, {"y": [*data["y"][:2], NAN]}, "nuts", **options)

    assert not near(moved, "z", mean, sd)
    assert not near(wide, "z", mean, sd)


@pytest.mark.usefixtures("short_warm_up")
def test_divergent_paths_are_counted_and_said():
    """A density with a cliff, of which the gradient says nothing."""
    model = Model(
        latents=[Latent("z", Normal(0.0, 1.0))],
        observed=[Observed("y", lambda y, z: torch.where(z > 0.3, -1e5, 0.0) + 0 * y)],
    )
    fit = infer(model, {"y": 0.0}, "nuts", n_particles=1, steps=40, rng=0)

    assert fit.divergent > 0
    assert any("diverged" in note for note in fit.notes)


def test_supports_that_depend_on_others_are_refused():
    model = Model(
        latents=[Latent("top", Exponential(1.0)), Latent("z", lambda top: Uniform(0 * top, top))],
        observed=[Observed("y", lambda z: Normal(z, 1.0))],
    )
    with pytest.raises(DesignError, match="support of latent 'z' depends on other latents"):
        infer(model, {"y": 0.3}, "nuts", rng=0)


def test_models_are_recorded_and_centring_is_learned():
    model, data = schools()
    bound = bind(model, data, torch.device("cpu"))
    posterior = Posterior(bound, torch.Generator().manual_seed(0))
    rows = np.random.default_rng(0).normal(size=(5, posterior.size))
    plain = posterior(rows)
    posterior.record({8})

    assert set(posterior.recorded) == {8}
    for recorded, known in zip(posterior(rows), plain, strict=True):
        np.testing.assert_allclose(recorded, known)
    old = posterior.centring
    posterior.centring = torch.full_like(old, 0.6)
    moved = posterior.recentred(rows, old)
    before, after = posterior.natural(moved), None
    posterior.centring = old
    after = posterior.natural(rows)
    for name, x in before.items():
        np.testing.assert_allclose(x, after[name])


def test_tail_draws_are_as_arviz_counts_them():
    import arviz as az

    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(4, 500)), axis=1) * 0.05 + rng.normal(size=(4, 500))
    assert float(tail_ess(x)) == pytest.approx(float(az.ess(x, method="tail")), rel=0.05)
