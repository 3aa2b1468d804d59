"""Notes on discriminations that few models cannot tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evalstats_plugin.irt.estimators.items_integrated import discriminations_note
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth

pytestmark = pytest.mark.needs("torch")


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


def test_implausibly_wide_discriminations_get_a_note():
    """A spread of 1.2 of the logarithms from three models; from fifty it is."""
    wide = {"log_discrimination_sd": 1.2}
    few = replace(fitted(3), hyperparameters=wide)
    many = replace(fitted(50), hyperparameters=wide, discrimination_std_error=np.full(200, 0.1))

    assert "spread widely (sd 1.20), on the word of 3 models" in discriminations_note(few)[0]
    assert [] == discriminations_note(many)
