"""Item response models in single precision."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from evalstats_plugin.irt.model import data, stored

TOLERANCES = {
    "mml rasch": 1e-5,
    "mml 1pl": 1e-5,
    "mml 2pl": 1e-5,
    "mml 3pl": 2e-3,
    "mml 2pl without holes": 1e-5,
    "mml-items 2pl": 2e-5,
    "mml-items signed": 2e-5,
    "map": 2e-2,
    "jml rasch": 1e-5,
    "jml 2pl": 2e-4,
    "vi": 1e-4,
    "vi vague": 2e-5,
    "factor": 2e-2,
    "factor chosen": 5e-3,
    "scoring 2pl": 2e-5,
    "scoring factor": 5e-3,
    "store": 1e-4,
    "store with holes": 1e-4,
    "parametric bootstrap": 5e-4,
    "held out 2pl": 1e-5,
    "held out factor": 1e-3,
}
"""By model: how far, absolutely and relatively, results may be from those in double precision.

Some ten times what was seen. Where the optimum is flat (map, factor, 3pl) the search ends within a
loss of its rounding, which the parameters show as its square root. Draws and quantiles of few
refits are left out: one rounding more, and another draw is taken.
"""


def _in_single(given: Callable[..., Any], *data: Any, **how: Any) -> Any:
    """Whatever dtype is asked for."""
    return given(*data, **{**how, "dtype": torch.float32})


def in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have fits count answers in single precision, all else being as it is."""
    for module, name in ((data, "counts_of"), (stored, "stored_counts")):
        monkeypatch.setattr(module, name, partial(_in_single, getattr(module, name)))
