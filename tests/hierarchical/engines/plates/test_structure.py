"""Models that cannot be: cycles, unknown parents, crossed plates, data that do not fit."""

import re

import numpy as np
import pytest
import torch

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.hierarchical.engines.plates.distributions import Beta, Gamma, Normal
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions, infer
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate

MU = Latent("mu", Normal(0.0, 1.0))
X = Observed("x", lambda z: Normal(z, 1.0), "task")
Z = Latent("z", lambda mu: Normal(mu, 1.0), "task")
TASK = Plate("task", 3)
QUICK = FitOptions(k=5, iterations=2, sets=2, draws=3)


def model(*latents, observed=X, plates=(TASK,), inputs=None):
    return Model(plates=plates, latents=latents, observed=[observed], inputs=inputs or {})


def refused(expected, *latents, **parts):
    with pytest.raises(DesignError, match=re.escape(expected)):
        model(*latents, **parts)


def test_latents_may_be_declared_in_any_order():
    assert list(model(Z, MU).structure.latents) == ["mu", "z"]


def test_a_cycle_is_named():
    a = Latent("a", lambda b: Normal(b, 1.0))
    b = Latent("b", lambda a: Normal(a, 1.0))

    refused("in a cycle: a → b → a", a, b, MU, Z)


def test_a_cycle_of_groups_is_named():
    a = Latent("a", Normal(0.0, 1.0), group="g")
    b = Latent("b", lambda a: Normal(a, 1.0))
    c = Latent("c", lambda b: Normal(b, 1.0), group="g")

    refused("groups of latents depend on each other in a cycle", a, b, c, MU, Z)


def test_an_unknown_parent_is_named_with_those_like_it():
    refused("'z' depends on 'muu', which is neither a latent nor an input; like it: 'mu'", MU,
            Latent("z", lambda muu: Normal(muu, 1.0), "task"))  # fmt: skip
    refused("'z' depends on 'x', which is observed", MU,
            Latent("z", lambda x: Normal(x, 1.0), "task"))  # fmt: skip


def test_crossed_plates_are_refused():
    ability = Latent("ability", Normal(0.0, 1.0), "model")
    observed = Observed("x", lambda z, ability: Normal(z + ability, 1.0), "task")

    refused("only nested plates can be inferred here, crossed ones", MU, Z, ability,
            observed=observed, plates=(TASK, Plate("model", 2)))  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "latents", "parts"),
    [
        ("'z' is of plate 'tusk', which is not declared; like it: 'task'",
         (MU, Latent("z", Normal(0.0, 1.0), "tusk")), {}),
        ("plate 'item' is within 'tasks', which is not declared before it; like it: 'task'",
         (MU, Z), {"plates": (TASK, Plate("item", 2, within="tasks"))}),
        ("plate 'task' is declared twice", (MU, Z), {"plates": (TASK, TASK)}),
        ("plate 'task' has 0 members", (MU, Z), {"plates": (Plate("task", 0),)}),
        ("'z' is declared twice", (MU, Z, Z), {}),
        ("group 'g' has latents of plates None and task",
         (Latent("mu", Normal(0.0, 1.0), group="g"),
          Latent("z", Normal(0.0, 1.0), "task", group="g")), {}),
        ("a model with 0 latents and 1 observations", (), {}),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_is_refused(expected, latents, parts):
    refused(expected, *latents, **parts)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"x": np.zeros(4)}, "'x' has shape (4,), not (3,) first: task 3"),
        ({"x": [0.0, np.nan, 1.0]}, "'x' has 1 values that are not finite, of 3"),
        ({}, "misses 'x'"),
        ({"x": np.zeros(3), "y": 1.0}, "has 'y', which the model does not declare"),
    ],
)
def test_data_that_do_not_fit_are_refused(data, expected):
    with pytest.raises(DesignError, match=re.escape(expected)):
        infer(model(MU, Z), data, options=QUICK)


@pytest.mark.parametrize(
    ("latents", "observed", "expected"),
    [
        ((MU, Z), Observed("x", lambda z: Normal(z, z * 0), "task"), "log density of 'x' is NaN"),
        ((MU, Latent("z", lambda mu: Normal(mu, mu.log()), "task", proposal=Normal(0, 1))), X,
         "log density of 'z' is NaN"),
        ((MU, Z), Observed("x", lambda z, x: torch.where(z > 9, z, -torch.inf) + 0 * x, "task"),
         "log density of 'x' is −∞ for all 5 particles of 3 of 3 members"),
        ((MU, Z), Observed("x", lambda z: z.sum(-1), "task"), "'x' has 2 axes, not 3"),
        ((MU, Latent("z", lambda mu: torch.distributions.Normal(mu, 1.0), "task")), X,
         "the prior of 'z' is a Normal, from which no proposal is made: give proposal="),
        ((MU, Latent("z", Gamma(1.0, 1.0), "task", proposal=Normal(-5.0, 0.1))), X,
         "log density of 'z' is −∞ for all 5 particles of 3 of 3 members"),
        ((MU, Z), Observed("x", lambda z: torch.distributions.Normal(z, -1.0), "task"),
         "the distribution of 'x' cannot be made from z"),
    ],
)  # fmt: skip
def test_densities_that_are_no_numbers_are_named(latents, observed, expected):
    with pytest.raises(DesignError, match=re.escape(expected)):
        infer(model(*latents, observed=observed), {"x": np.zeros(3)}, options=QUICK, rng=0)


def test_methods_and_options_are_checked():
    with pytest.raises(SelectionError, match="no method is called 'em'; there are: qem, vi"):
        infer(model(MU, Z), {"x": np.zeros(3)}, "em")
    with pytest.raises(ValueError, match="k=0"):
        infer(model(MU, Z), {"x": np.zeros(3)}, options=FitOptions(k=0))
    with pytest.raises(ValueError, match="step=2 is out of range: choose above 0"):
        infer(model(MU, Z), {"x": np.zeros(3)}, options=FitOptions(step=2))


def test_distributions_of_torch_will_do_where_a_proposal_is_given():
    """The same numbers as with our own, for the same random numbers."""
    ours = model(MU, Latent("z", lambda mu: Normal(mu, 0.7), "task", proposal=Normal(0.0, 1.0)))
    theirs = model(
        MU,
        Latent("z", lambda mu: torch.distributions.Normal(mu, 0.7), "task",
               proposal=Normal(0.0, 1.0)),
    )  # fmt: skip
    found = [infer(m, {"x": np.arange(3.0)}, options=QUICK, rng=1) for m in (ours, theirs)]

    assert found[0].log_evidence == pytest.approx(found[1].log_evidence, abs=1e-10)


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
