"""Particles on crossed evals: enough on few cells, where they agree with Gibbs; too few on many."""

import numpy as np
from scipy import special

from evalstats_plugin.hierarchical.engines.crossed_fit import (
    Counts,
    Length,
    crossed_model_of,
    fit_model,
)
from evalstats_plugin.hierarchical.engines.nested import fit_crossed, try_crossed

MODEL = crossed_model_of("task", {"default": ("gamma", 2.0, 2.0)})


def crossed(n, t, trials, missing=()):
    rng = np.random.default_rng(1)
    level = rng.normal(0, 0.7, (n, 1)) - rng.normal(0, 0.8, t) + rng.normal(0, 0.3, (n, t))
    taken = np.full((n, t), float(trials))
    for cell in missing:
        taken[cell] = 0.0
    right = rng.binomial(taken.astype(int), special.expit(level)).astype(float)
    return Counts(right, taken, np.arange(t), np.zeros((n, 0)), np.zeros((t, 0)))


def test_a_few_cells_are_inferred_as_by_gibbs():
    counts = crossed(2, 3, 25, missing=[(1, 2)])
    trial = try_crossed(counts, MODEL, np.random.default_rng(0), "cpu")
    found = fit_crossed(counts, MODEL, np.random.default_rng(0), (4, 500), "cpu").posterior
    other = fit_model(
        counts, MODEL, np.random.default_rng(0), Length(draws=200, warm_up=100), "cpu"
    )

    assert trial.ess > 10
    assert trial.whole
    away = np.abs(found.accuracy.mean((0, 1)) - other.accuracy.mean((0, 1)))
    assert (away / other.accuracy.std((0, 1))).max() < 0.35
    assert found.parameters.keys() == other.parameters.keys()
    assert (found.log_likelihood[:, :, 1, 2] == 0).all()


def test_many_tasks_leave_few_particles_and_only_a_part_is_tried():
    trial = try_crossed(crossed(8, 25, 100), MODEL, np.random.default_rng(0), "cpu")

    assert trial.ess < 10
    assert (trial.n_models, trial.n_tasks, trial.whole) == (4, 12, False)
