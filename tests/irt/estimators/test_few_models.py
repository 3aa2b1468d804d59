"""Notes on discriminations that few models cannot tell."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from evalstats_plugin.irt.estimators.items_integrated import discriminations_note
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth

pytestmark = pytest.mark.needs("torch")


@cache
def fitted(n, item_model="2pl"):
    """Give a fit of n models to 200 items."""
    rng = np.random.default_rng(n)
    return fit_irt(draw_responses(draw_truth(rng, n, 200, "2pl"), rng), item_model)


@pytest.mark.parametrize("n", [2, 3])
def test_two_or_three_models_get_a_note_on_discriminations(n):
    """And the fit says so."""
    assert f"{n} models tell hardly anything of discriminations" in " ".join(fitted(n).notes)


def test_forty_models_and_rasch_get_no_note():
    """No note."""
    for fit in (fitted(40), fitted(3, "rasch")):
        assert "discriminations" not in " ".join(fit.notes)


@pytest.mark.parametrize(
    ("n", "spread", "noise", "words"),
    [
        (10, 0.61, 0.1, "spread widely (sd 0.61), on the word of 10 models"),
        (10, 0.59, 0.1, ""),
        (11, 0.61, 0.1, ""),
        (11, 0.3, 8.99, ""),
        (11, 0.3, 9.01, "11 models tell hardly anything of discriminations (10 %"),
        (10, 0.61, 9.01, "spread widely"),
    ],
)
def test_notes_begin_at_a_spread_of_06_and_end_at_a_tenth_of_the_variance(n, spread, noise, words):
    """The former of up to ten models; the latter is the share that the answers explain."""
    fit = replace(
        fitted(11),
        models=tuple("abcdefghijk"[:n]), ability=np.zeros(n), ability_covariance=np.eye(n),
        hyperparameters={"log_discrimination_sd": spread}, ability_quantiles=None,
        discrimination=np.repeat([0.0, 2.0], 100),
        discrimination_std_error=np.full(200, noise**0.5),
    )  # fmt: skip
    notes = discriminations_note(fit)

    assert len(notes) == bool(words)
    assert words in " ".join(notes)
    assert not discriminations_note(replace(fit, item_model="rasch"))
