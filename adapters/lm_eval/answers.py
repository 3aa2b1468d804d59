"""Metrics made of labels or texts: what was expected of each item, and what was answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.composite_data import NAMES, recognise
from evalstats_plugin.responses import Responses


def with_answers(
    base: Responses, values: Sequence[Any], items: Mapping[str, Any]
) -> Responses | None:
    """Add what was logged for each item; None if there is no formula that makes a value of it."""
    pairs = as_answers(values)
    if pairs is None:
        return None
    found = replace(base, pairs=pairs, scores=np.empty((len(pairs), 0)), **items)
    if found.aggregation in NAMES:
        return found
    name = recognise(found) if found.aggregation == "custom" else None
    if name is None:
        return None
    note = f"its aggregation gives what {name} gives, and is taken for it"
    return replace(found, aggregation=name, notes=(*found.notes, note))


def as_answers(values: Sequence[Any]) -> NDArray[Any] | None:
    """Read [expected, answered] of all items, shape (M, 2), None where missing.

    None if that is not what was logged for each: two labels, or two texts.
    """
    rows: list[tuple[Any, Any]] = []
    for value in values:
        pair = (None, None) if value is None else value
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:  # pyright: ignore[reportUnknownArgumentType]
            return None
        rows.append((_plain(pair[0]), _plain(pair[1])))
    if all(row == (None, None) for row in rows):
        return None
    answers = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        answers[i, 0], answers[i, 1] = row
    return answers


def _plain(value: Any) -> Any:
    """In memory, labels are NumPy numbers."""
    return cast("Any", value).item() if isinstance(value, np.generic) else value
