"""Models of one's own, judged before they are fitted and by their fits."""

import re
from time import process_time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.distributions import Bernoulli, Binomial, HalfNormal, Normal, Uniform

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate, infer, judging
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions
from evalstats_plugin.hierarchical.engines.plates.model import bind, with_sizes
from evalstats_plugin.hierarchical.engines.plates.nuts import Posterior

NAN = float("nan")
RIGHT = np.array([[18, 15, 9, 12], [16, 10, 5, NAN], [10, 6, 2, 4]])
QUICK = FitOptions(iterations=15, sets=10, draws=400, wider=0)


def crossed(ability=None):
    latents = [
        Latent("ability", ability or Normal(0.0, 1.0), "model"),
        Latent("difficulty", Normal(0.0, 1.0), "task"),
    ]
    if ability is not None:
        latents.append(Latent("sd", HalfNormal(1.0)))

    def answers(ability, difficulty):
        return Binomial(20, logits=ability - difficulty)

    return Model(
        plates=[Plate("model"), Plate("task")],
        latents=latents,
        observed=[Observed("right", answers, ("model", "task"))],
    )


def of_logits(sd, n=40):
    return Model(
        plates=[Plate("item", n)],
        latents=[Latent("z", Normal(0.0, sd), "item")],
        observed=[Observed("right", lambda z: Bernoulli(logits=z), "item")],
    )


def two_groups(y, noise, spread=1.0):
    """Means of tasks around 0, with five answers each."""
    return Model(
        plates=[Plate("task", len(y)), Plate("item", 5, within="task")],
        latents=[Latent("mu", Normal(0.0, spread), "task")],
        observed=[Observed("y", lambda mu: Normal(mu, noise), "item")],
    ), {"y": y}


def test_parts_are_described():
    checked = crossed().check({"right": RIGHT})
    ability, _, right = checked.rows

    assert (ability.kind, ability.on, ability.values) == ("latent", "model 3", "numbers")
    assert ability.low == pytest.approx(-1.64, abs=0.1)
    assert ability.high == pytest.approx(1.64, abs=0.1)
    assert (right.on, right.values) == ("model 3, task 4", "whole numbers from 0 to 20")
    assert right.observed == "2 to 18; 1 missing"


def test_impossible_data_are_a_problem_and_no_error():
    checked = crossed().check({"right": RIGHT + 30})

    assert checked.method is None
    assert "48 is not possible" in checked.problem
    assert "cannot be fitted" in str(checked)


def test_the_method_and_its_cost():
    checked = crossed().check({"right": RIGHT})
    qem, nuts = checked.engines

    assert (checked.method, qem.seconds) == ("nuts", None)
    assert 0.1 < nuts.seconds < 600
    assert "Take 'nuts': Markov chains" in str(checked)
    assert any("'qem' does not fit: plates 'model' and 'task' are crossed" in x
               for x in checked.notes)  # fmt: skip
    model, data = two_groups(np.zeros((2, 5)), 1.0)
    assert model.check(data).method == "qem"


def test_recording_takes_as_long_as_the_cost_says(monkeypatch):
    """Of a gradient that takes no time, the cost is that of recording it."""
    monkeypatch.setattr(judging, "_timed", lambda step: (step(), 0.0))
    said = crossed().check({"right": RIGHT}).engines[1].seconds
    bound = bind(with_sizes(crossed(), {"right": RIGHT}), {"right": RIGHT}, torch.device("cpu"))
    spent = []
    for _ in range(3):
        posterior = Posterior(bound, torch.Generator().manual_seed(0))
        began = process_time()
        posterior.record({16, 4})
        spent.append(process_time() - began)

    assert said / 5 < min(spent) < 5 * said


def test_a_prior_without_proposals_is_for_chains():
    model = Model(
        plates=[Plate("task", 2)],
        latents=[Latent("z", Uniform(0.0, 2.0))],
        observed=[Observed("y", lambda z: Normal(z, 1.0), "task")],
    )
    checked = model.check({"y": [0.1, 0.5]})

    assert checked.method == "nuts"
    assert checked.rows[0].values == "numbers from 0 to 2"


def test_a_common_shift_of_crossed_effects_is_left_to_priors():
    notes = crossed().check({"right": RIGHT}).notes

    assert any("1 direction of 'ability' and 'difficulty' open" in x for x in notes)


def test_a_zero_mean_given_another_latent_holds_a_shift():
    """Negative control: with a standard deviation of their own, abilities are around 0."""
    model = crossed(lambda sd: Normal(0 * sd, sd))

    assert not any("open" in x for x in model.check({"right": RIGHT}).notes)


def test_a_member_without_data_is_named():
    model, data = two_groups(np.array([[0.1] * 5, [NAN] * 5, [0.3] * 5]), 1.0)
    notes = model.check(data).notes

    assert notes == ("nothing observed depends on 'mu' of task 1: its posterior is the prior",)


def test_a_product_of_two_latents_has_a_scale_of_its_own():
    model = Model(
        plates=[Plate("task", 6)],
        latents=[Latent("a", HalfNormal(1.0)), Latent("z", Normal(0.0, 1.0), "task")],
        observed=[Observed("y", lambda a, z: Normal(a * z, 1.0), "task")],
    )
    notes = model.check({"y": np.linspace(-1, 1, 6)}).notes

    assert any("1 direction of 'a' and 'z' open" in x for x in notes)


def test_members_that_a_ragged_plate_lacks_are_not_missed():
    model = Model(
        plates=[Plate("task", 2), Plate("item", (3, 1), within="task")],
        latents=[Latent("z", Normal(0.0, 1.0), "item")],
        observed=[Observed("y", lambda z: Normal(z, 0.5), "item")],
    )

    assert model.check({"y": [[0.4, 1.2, 0.9], [-0.7]]}).notes == ()


@pytest.mark.parametrize(("sd", "noted"), [(1.0, False), (20.0, True)])
def test_priors_that_make_answers_certain_are_named(sd, noted):
    notes = of_logits(sd).check({"right": [0, 1] * 20}).notes

    assert any("nearly certain" in x for x in notes) == noted


def test_data_far_from_what_priors_predict_are_named():
    model, data = two_groups(np.array([[9.0] * 5, [0.0] * 5]), 1.0)
    wide, near = two_groups(np.array([[0.01, 0.02, 0, -0.01, 0.01]] * 2), 1.0, spread=50.0)

    assert any("5 of 10 values of 'y' lie beyond" in x for x in model.check(data).notes)
    assert any("times as wide as the data" in x for x in wide.check(near).notes)


def test_latents_with_few_values_are_not_checked_for_identification():
    model = Model(
        plates=[Plate("task", 2)],
        latents=[Latent("easy", Bernoulli(0.5), "task")],
        observed=[Observed("y", lambda easy: Normal(easy, 1.0), "task")],
    )
    checked = model.check({"y": [0.0, 1.0]})

    assert checked.method == "qem"
    assert any("not checked: some latents are not numbers" in x for x in checked.notes)


def test_a_fit_of_the_right_model_is_trusted():
    rng = np.random.default_rng(1)
    model, data = two_groups(rng.standard_normal((8, 1)) + 0.5 * rng.standard_normal((8, 5)), 0.5)
    judged = model.doctor(infer(model, data, options=QUICK, rng=0))
    p = {row.statistic: row.p_value for row in judged}

    assert "predictions match the data" in judged.answer
    assert 0.02 < p["sd of task means of y"] < 0.98
    assert 0.01 < p["left-out y within 90 % limits"] < 0.99
    assert judged.loo.n_cells == 40
    assert str(judged).startswith(judged.answer[:40])


def test_noise_that_is_too_small_fails_the_checks():
    """Negative control."""
    rng = np.random.default_rng(1)
    model, data = two_groups(rng.standard_normal((8, 5)), 0.3)
    judged = model.doctor(infer(model, data, options=QUICK, rng=0))
    row = next(row for row in judged if row.statistic == "left-out y within 90 % limits")

    assert "does not reproduce" in judged.answer
    assert row.observed < row.low


def test_a_member_that_fits_worst_is_named():
    y = np.zeros((8, 5)) + 0.1 * np.arange(5)
    y[6] += 4.0
    model = Model(
        plates=[Plate("task", 8), Plate("item", 5, within="task")],
        latents=[Latent("mu", Normal(0.0, 1.0))],
        observed=[Observed("y", lambda mu: Normal(mu, 0.5), "item")],
    )
    judged = model.doctor(infer(model, {"y": y}, options=QUICK, rng=0))
    worst = [row for row in judged if row.statistic.startswith("mean of y, task")]

    assert worst[0].statistic == "mean of y, task 6"
    assert worst[0].p_value == 0.0


def test_probabilities_of_left_out_answers_are_calibrated():
    """Half of the items are answered by chance, the other half nearly always."""
    rng = np.random.default_rng(0)
    easy = np.repeat([0.0, 2.0], 40)
    y = 1.0 * (rng.random(80) < 1 / (1 + np.exp(-easy)))
    model = Model(
        plates=[Plate("item", 80)],
        inputs={"easy": "item"},
        latents=[Latent("slope", Normal(0.0, 1.0))],
        observed=[Observed("right", lambda slope, easy: Bernoulli(logits=slope * easy), "item")],
    )
    judged = model.doctor(infer(model, {"right": y, "easy": easy}, options=QUICK, rng=0))
    rows = [row for row in judged if "is predicted" in row.statistic]

    assert [row.statistic[-29:] for row in rows] == [
        "where 40 to 60 % is predicted", "where 80 to 100 % is predicted"[-29:]
    ]  # fmt: skip
    assert rows[0].predicted == pytest.approx(0.5, abs=0.02)
    assert rows[1].predicted == pytest.approx(0.88, abs=0.06)
    assert all(row.low <= row.observed <= row.high for row in rows)


def test_counts_are_placed_at_random_among_equal_predictions():
    """A count of few values lies beyond or within limits by its share of what equals it."""
    y = np.random.default_rng(0).binomial(2, 0.5, 80) * 1.0
    model = Model(
        plates=[Plate("item", 80)],
        latents=[Latent("z", Normal(0.0, 1.0))],
        observed=[Observed("right", lambda z: Binomial(2, logits=z), "item")],
    )
    fit = infer(model, {"right": y}, options=QUICK, rng=0)
    p = {row.statistic: row.p_value for row in model.doctor(fit)}

    assert 0.02 < p["left-out right within 50 % limits"] < 0.98
    # The fit of a formula holds that of its plates.
    assert model.doctor(SimpleNamespace(plated=fit)).answer == model.doctor(fit).answer


def test_a_density_without_a_distribution_cannot_be_judged():
    model = Model(
        plates=[Plate("item", 3)],
        latents=[Latent("z", Normal(0.0, 1.0))],
        observed=[Observed("y", lambda y, z: -((y - z) ** 2) / 2, "item")],
    )
    data = {"y": [0.1, 0.2, 0.3]}
    fit = infer(model, data, options=QUICK, rng=0)

    assert model.check(data).rows[-1].low is None
    with pytest.raises(DesignError, match=re.escape("'y' is given by a log density")):
        model.doctor(fit)


@pytest.mark.usefixtures("short_warm_up")
def test_chains_that_do_not_mix_are_not_trusted():
    model, data = two_groups(np.zeros((2, 5)) + 0.1, 1.0)
    fit = infer(model, data, "nuts", n_particles=2, steps=10, rng=0)
    judged = model.doctor(fit)

    assert judged.answer.startswith("Do not trust this fit yet")
    assert torch.is_tensor(fit.bound.arrays["y"])
