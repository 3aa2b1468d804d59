"""Puts edits into a header as it was logged, so that what was not edited stays to the byte.

Inspect's own round trip fills in what older headers leave out and drops what it does not know: an
annotation that is taken out again would leave another header than there was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

_NOT_IN_HEADER = {"samples", "reductions", "location", "etag"}


def as_json(log: EvalLog) -> dict[str, Any]:
    """Return a header as Inspect writes it."""
    return log.model_dump(mode="json", exclude_none=True, exclude=_NOT_IN_HEADER)


def merged(logged: Any, before: Any, after: Any) -> Any:
    """Return the JSON of a file with the edits that lead from one reading of it to another.

    Parameters
    ----------
    logged
        What the file holds.
    before, after
        What Inspect makes of it, without and with the edits.

    >>> merged({"b": 1, "old": 2}, {"b": 1, "default": 0}, {"new": 3, "b": 1, "default": 0})
    {'new': 3, 'b': 1, 'old': 2}
    """
    values: tuple[Any, Any, Any] = (logged, before, after)
    if all(isinstance(value, dict) for value in values):
        return _of_objects(*values)
    if all(isinstance(value, list) for value in values) and len({len(v) for v in values}) == 1:
        return [merged(*each) for each in zip(*values, strict=True)]
    return logged if before == after else after


def _of_objects(
    logged: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    """Merge objects: what Inspect leaves out stays, what it fills in by itself stays out."""
    found: dict[str, Any] = {}
    for key, value in logged.items():
        if key in before and key in after:
            found[key] = merged(value, before[key], after[key])
        elif key in after or key not in before:
            found[key] = after.get(key, value)
    added = {k: v for k, v in after.items() if k not in logged and (k, v) not in before.items()}
    values = found | added
    return {key: values[key] for key in _in_order(list(found), list(after), added)}


def _in_order(kept: list[str], after: list[str], added: dict[str, Any]) -> list[str]:
    """Return the keys in the order of the file; each new one comes after its neighbour."""
    common = [key for key in after if key in kept]
    order = [key for key in kept if key in common]
    # Moved by an edit: where metrics stand decides whether the viewer shows them.
    order = kept if order == common else [*common, *(k for k in kept if k not in common)]
    place = 0
    for key in after:
        if key in added:
            order.insert(place, key)
        if key in order:
            place = order.index(key) + 1
    return order
