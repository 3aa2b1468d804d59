"""Single precision on the CPU: the tolerances that are stated hold, and it is not double."""

import numpy as np
import pytest
from model_fits import FITS, TALL, WIDE
from single_precision import TOLERANCES, in_single_precision

from evalstats_plugin import fit_irt
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.methods import FactorOptions
from evalstats_plugin.runtime import torch


@pytest.mark.parametrize("name", TOLERANCES)
def test_single_precision_is_near_double(name, agree, on_cpu, monkeypatch):
    expected = on_cpu(name)
    in_single_precision(monkeypatch)

    agree(FITS[name]("cpu"), expected, TOLERANCES[name])


def test_it_is_single():
    """The control: the same fit, in other digits."""
    double = fit_irt(WIDE, "2pl", device="cpu")
    single = fit_irt(WIDE, "2pl", device="cpu", dtype="float32")

    assert (double.diagnostics["dtype"], single.diagnostics["dtype"]) == ("float64", "float32")
    assert single.ability.dtype == np.float64
    assert 1e-9 < np.abs(single.ability - double.ability).max() < 1e-4


def test_searches_in_single_precision_end():
    """Rises below a rounding error were waited for, until the most steps were taken."""
    options = FactorOptions(dimensions=2, ridge=0.3)
    fit = fit_irt(TALL, "factor", device="cpu", dtype="float32", options=options)

    assert fit.diagnostics["converged"]
    assert fit.diagnostics["iterations"] < 100


def test_what_is_not_drawn_in_single_precision_is_said():
    with pytest.raises(SelectionError, match="mcmc draws in float64 only, not in float32"):
        fit_irt(WIDE, "2pl", "mcmc", dtype="float32")
    with pytest.raises(SelectionError, match="no dtype is called 'float16'"):
        fit_irt(WIDE, "2pl", dtype="float16")


def test_single_precision_is_advised_where_it_would_help(monkeypatch):
    """And not where it was asked for."""
    monkeypatch.setattr(torch, "_free_memory", lambda _device: 100)
    with pytest.raises(DesignError, match=r"or in Python pass dtype='float32' to fit_irt$"):
        fit_irt(WIDE, "2pl", device="cpu")
    with pytest.raises(DesignError, match=r"fit fewer at a time$"):
        fit_irt(WIDE, "2pl", device="cpu", dtype="float32")
