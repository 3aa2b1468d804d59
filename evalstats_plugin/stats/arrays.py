"""Type aliases for arrays and random sources, shared by all packages."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

Rng: TypeAlias = np.random.Generator | int | None
"""A generator, a seed, or None for fresh randomness; resolved once, where a public call begins."""
