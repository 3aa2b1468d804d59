"""What `Responses` know besides scores of items, as JSON values: for formats that carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from types import NoneType
from typing import Any

from evalstats_plugin.responses import Group, Responses

_NUMBER = (int, float, NoneType)
_COUNT = (int, NoneType)
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "aggregation": (str,),
    "higher_is_better": (bool, NoneType),
    "logged": _NUMBER,
    "logged_std_error": _NUMBER,
    "logged_n": _COUNT,
    "population": _COUNT,
}
"""What is taken over as it is, and of what types it may be."""
_GROUP: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "depth": (int,),
    "weighting": (str,),
    "n_tasks": (int,),
    "logged": _NUMBER,
    "logged_std_error": _NUMBER,
}


def metadata_of(r: Responses) -> dict[str, Any]:
    """Return direction, aggregation, logged values, settings and groups, and when it was run."""
    return {
        **{name: getattr(r, name) for name in _PLAIN},
        "bounds": None if r.bounds is None else [float(b) for b in r.bounds],
        "settings": dict(r.settings),
        "groups": [{**asdict(group), "notes": list(group.notes)} for group in r.groups],
        "notes": list(r.notes),
        "when": r.source.when,
        "harness": r.source.harness,
        "version": r.source.version,
    }


def with_metadata(r: Responses, found: Mapping[str, Any]) -> Responses:
    """Return responses with what `metadata_of` gave, but their own source.

    Raises
    ------
    TypeError, KeyError, ValueError
        `metadata_of` never gave that.
    """
    bounds: list[float] | None = found["bounds"]
    settings = found["settings"].items()
    return replace(
        r,
        **_checked(found, _PLAIN),
        bounds=None if bounds is None else (float(bounds[0]), float(bounds[1])),
        settings=tuple((_text(key), _text(value)) for key, value in settings),
        groups=tuple(map(_group, found["groups"])),
        notes=tuple(map(_text, found["notes"])),
        source=replace(r.source, when=_text(found["when"])),
    )


def _group(found: Mapping[str, Any]) -> Group:
    notes = tuple(map(_text, found["notes"]))
    known: dict[str, Any] = {**_checked(found, _GROUP), "notes": notes}
    return Group(**known)


def _checked(found: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    for name, types in known.items():
        if not isinstance(found[name], types):
            msg = f"{name} is {found[name]!r}"
            raise TypeError(msg)
    return {name: found[name] for name in known}


def _text(value: object) -> str:
    if not isinstance(value, str):
        msg = f"{value!r} found, expected a text"
        raise TypeError(msg)
    return value


def origin(found: Mapping[str, Any]) -> str:
    """Return the harness and version that responses came from, for a source's version."""
    return f"{found['harness']} {found['version'] or ''}".strip()
