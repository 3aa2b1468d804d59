"""Every model on a device: nothing is left on the host, and loops do not wait for it."""

from collections import Counter

import pytest
import torch
from model_fits import FITS
from model_loops import LOOPS
from pretended_device import DEVICE, pretended_device

from evalstats_plugin.runtime.torch import cholesky, generator_of

# Whole searches and cross-validations, made of fits that are here too: each takes 5 to 30 seconds.
# `pytest -m validation tests/device` runs them.
LONG = (
    "capabilities held out", "capabilities", "held out factor", "held out 2pl", "factor chosen",
    "parametric bootstrap", "bootstrap of models",
)  # fmt: skip
ALL = [pytest.param(x, marks=[pytest.mark.validation] if x in LONG else []) for x in FITS]


@pytest.mark.parametrize("name", ALL)
def test_a_model_is_the_same_on_a_device(name, agree, on_cpu):
    expected = on_cpu(name)
    with pretended_device() as trips:
        found = FITS[name](str(DEVICE))

    agree(found, expected, 1e-8)
    # It was computed there, and came back.
    assert {"up", "down"} <= {x.kind for x in trips}


@pytest.mark.parametrize("name", LOOPS)
def test_an_iteration_does_not_wait_for_the_device(name):
    """Trips of three more iterations."""
    fit, allowed = LOOPS[name]
    few, many = Counter[str](), Counter[str]()
    for steps, count in ((2, few), (5, many)):
        with pretended_device() as trips:
            fit(str(DEVICE), steps)
        count.update(x.kind for x in trips)

    assert (many["down"] - few["down"]) / 3 <= allowed
    assert many["up"] == few["up"]


def test_a_loop_that_waits_is_found():
    """The control of the test above."""
    with pretended_device() as trips:
        x = torch.ones(3, device=DEVICE)
        for _ in range(12):
            x = x / float(x.sum())

    assert Counter(t.kind for t in trips)["down"] == 12


def test_a_matrix_without_a_factor_is_no_number():
    matrix = torch.stack([2 * torch.eye(2), -torch.eye(2)]).double()
    with pretended_device() as trips:
        found = cholesky(matrix.to(DEVICE))

    assert torch.isfinite(found.numbers).all(dim=(1, 2)).tolist() == [True, False]
    assert [t.kind for t in trips] == ["up"]


def test_random_numbers_are_of_the_device(rng):
    with pretended_device():
        assert generator_of(rng, "test", DEVICE).device == DEVICE
