"""Our block inside a results file, and how to read the file as if it were not there."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

KEY = "evalstats"

Change = dict[str, Any]
"""task, key, the logged value as JSON text, the new value (null for "N/A")."""


def without_block(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return results as lm-eval logged them: no block, and replaced values put back."""
    block: dict[str, Any] = data.get(KEY) or {}
    clean = {key: value for key, value in data.items() if key != KEY}
    changes: list[Change] = block.get("rescored") or []
    if not changes:
        return clean
    clean = copy.deepcopy(clean)
    for change in changes:
        for place in places(clean, change["task"]):
            if change["key"] in place:
                place[change["key"]] = json.loads(change["logged"])
    return clean


def places(data: Mapping[str, Any], task: str) -> Iterator[dict[str, Any]]:
    """Yield every object that holds the values of a task or group."""
    for part in ("results", "groups"):
        inside: Mapping[str, Any] = data.get(part) or {}
        if task in inside:
            yield inside[task]
