"""How results are compared."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def on_cpu() -> Callable[[str], Mapping[str, Any]]:
    """Give a function that returns the numbers of a model on the CPU, fitted once."""
    from model_fits import FITS

    return cache(lambda name: FITS[name]("cpu"))


@pytest.fixture
def agree() -> Callable[[Mapping[str, Any], Mapping[str, Any], float], None]:
    """Check that all numbers are within a tolerance, absolute and relative."""

    def check(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> None:
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(
                np.asarray(found[name], dtype=np.float64),
                np.asarray(value, dtype=np.float64),
                rtol=tolerance,
                atol=tolerance,
                err_msg=name,
            )

    return check
