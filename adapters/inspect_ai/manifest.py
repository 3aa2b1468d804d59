"""Keeps ``logs.json``, where an eval set lists the headers of its logs, true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin import atomic
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
    try:
        entries: Any = json.loads(manifest.read_bytes())
        listed: Any = entries[log_file.name]
    except (ValueError, LookupError, TypeError):
        # Not a manifest, or one of other logs.
        return
    entry = json.loads(header.model_dump_json(exclude_none=True))
    if "reductions" in listed:
        # We never change them, so that they were not read.
        entry["reductions"] = listed["reductions"]
    if entry == listed:
        return
    entries[log_file.name] = entry
    content = json.dumps(entries, indent=2, ensure_ascii=False).encode()
    if local_path(manifest) is None:
        manifest.write_bytes(content)
    else:
        atomic.write_bytes(manifest, content)
