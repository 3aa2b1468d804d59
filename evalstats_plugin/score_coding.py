"""Scores as bytes, where that loses nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import DesignError

Codes = NDArray[Any]
"""Bytes, or 64-bit floats."""


@dataclass(frozen=True)
class Coding:
    """How a score is kept: as a byte, score = code / levels, or as it is."""

    levels: int | None
    """1 for scores 0 and 1; None for 64-bit floats."""

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Coding:
        """The least number of levels that holds these scores exactly.

        >>> Coding.of(np.array([0, .25, 1, np.nan])).levels
        4
        """
        values = np.unique(scores[~np.isnan(scores)])
        if len(values) > 256 or not ((values >= 0) & (values <= 1)).all():
            return cls(None)
        return cls(next((k for k in range(1, 256) if _are_whole(values * k)), None))

    def encode(self, scores: NDArray[np.float64]) -> Codes:
        """Missing scores become 0 where bytes are kept: the mask tells them.

        Raises
        ------
        DesignError
            A score that is none of the levels.
        """
        if self.levels is None:
            return scores
        codes = np.nan_to_num(scores * self.levels)
        if not _are_whole(codes) or codes.min(initial=0) < 0 or codes.max(initial=0) > 255:
            worst = float(codes[~np.isclose(codes, np.round(codes))].flat[0]) / self.levels
            msg = (
                f"score {worst:g} found, expected multiples of 1/{self.levels} from 0 to 1, as in "
                "the first block: pass as_float=True to keep any number"
            )
            raise DesignError(msg)
        return np.round(codes).astype(np.uint8)

    @property
    def dtype(self) -> type[np.uint8 | np.float64]:
        """Of the codes."""
        return np.float64 if self.levels is None else np.uint8


def _are_whole(values: NDArray[np.float64]) -> bool:
    return bool(np.allclose(values, np.round(values), rtol=0, atol=1e-9))
