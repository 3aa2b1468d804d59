"""What is asked of a comparison, whatever its design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from evalstats_plugin.analyses.cells import Bounds
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.methods import Method
from evalstats_plugin.tables import check_name

Correction = Literal["holm", "bh", "maxt", "none"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `compare`, checked."""

    baseline: str | None
    """Model with which the others are compared; None for every two."""
    confidence_level: float
    method: str
    """Name of a method of the table, or ``"auto"``."""
    table: Mapping[str, Method]
    """Methods for comparisons by name, those of plugins among them."""
    correction: Correction
    bounds: Bounds
    rng: np.random.Generator

    def __post_init__(self) -> None:
        if not 0 < self.confidence_level < 1:
            msg = (
                f"confidence level {self.confidence_level} found, expected a number between 0 and 1"
            )
            raise DesignError(msg)
        if self.correction not in get_args(Correction):
            there = ", ".join(get_args(Correction))
            msg = f"no correction is called {self.correction!r}; there are: {there}"
            raise SelectionError(msg)
        check_name(self.method, self.table)
