"""Keeps ``logs.json``, where an eval set lists the headers of its logs, true."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin import atomic
from evalstats_plugin.adapters.inspect_ai.members import from_bytes, to_bytes
from evalstats_plugin.adapters.inspect_ai.replace import local_path

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

NAME = "logs.json"


def update_manifest(log_file: Path, header: EvalLog) -> None:
    """Bring a log's entry up to date, where its folder has a manifest that lists it.

    Inspect's ``write_log_dir_manifest`` would do the same for all logs of the folder at once:
    reading every header again after each log.
    """
    manifest = log_file.parent / NAME
    if not manifest.is_file():
        return
    local = local_path(manifest)
    # Another process may be at another log of the same set.
    with nullcontext() if local is None else atomic.alone(local.parent):
        content = _updated(manifest, log_file.name, header)
        if content is None:
            return
        if local is None:
            manifest.write_bytes(content)
        else:
            atomic.write_bytes(manifest, content)


def _updated(manifest: Path, name: str, header: EvalLog) -> bytes | None:
    """Return a manifest with a log's new entry; None where there is nothing to change."""
    try:
        entries: Any = from_bytes(manifest.read_bytes())
        listed: Any = entries[name]
    except (ValueError, LookupError, TypeError):
        # Not a manifest, or one of other logs.
        return None
    entry = json.loads(header.model_dump_json(exclude_none=True))
    if isinstance(listed, Mapping) and "reductions" in listed:
        # We never change them, so that they were not read.
        entry["reductions"] = listed["reductions"]
    if entry == listed:
        return None
    return to_bytes({**entries, name: entry}, indent=2)
