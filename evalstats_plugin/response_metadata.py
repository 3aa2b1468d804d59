"""What `Responses` know besides scores of items, as JSON values: for formats that carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from evalstats_plugin.responses import Group, Responses

_PLAIN = (
    "aggregation", "higher_is_better", "logged", "logged_std_error", "logged_n", "population",
)  # fmt: skip


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
    """Return responses with what `metadata_of` gave, but their own source."""
    bounds = found["bounds"]
    return replace(
        r,
        **{name: found[name] for name in _PLAIN},
        bounds=None if bounds is None else (bounds[0], bounds[1]),
        settings=tuple(found["settings"].items()),
        groups=tuple(map(_group, found["groups"])),
        notes=tuple(found["notes"]),
        source=replace(r.source, when=found["when"]),
    )


def _group(found: Mapping[str, Any]) -> Group:
    known: dict[str, Any] = {**found, "notes": tuple(found["notes"])}
    return Group(**known)


def origin(found: Mapping[str, Any]) -> str:
    """Return the harness and version that responses came from, for a source's version."""
    return f"{found['harness']} {found['version'] or ''}".strip()
