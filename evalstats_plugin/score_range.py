"""Whether scores are such as models of right and wrong answers take."""

from __future__ import annotations

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix


def check_unit_range(matrix: ResponseMatrix) -> None:
    """Raise `DesignError` where a score is outside [0, 1]."""
    outside = (matrix.scores < 0) | (matrix.scores > 1)
    if not outside.any():
        return
    i, j, r = (int(k) for k in np.argwhere(outside)[0])
    msg = (
        f"score {matrix.scores[i, j, r]:g} of model {matrix.models[i]!r} on item "
        f"{matrix.item_ids[j]} of task {str(matrix.tasks[j])!r}, expected scores in [0, 1] "
        f"({int(outside.sum())} such scores): rescale them, or choose another metric"
    )
    raise DesignError(msg)
