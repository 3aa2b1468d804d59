"""Which files are Inspect's logs: told by their first bytes, without loading Inspect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from zipfile import BadZipFile, ZipFile

Form = Literal["eval", "json"]

HEADER = "header.json"
START = "_journal/start.json"
"""Stands in for the header while a run goes on, or where it died."""

_ZIP = b"PK"
_SNIFFED = 1024
_JSON_LOG = re.compile(
    rb'\s*\{\s*"version"\s*:\s*(\d+)\s*,\s*"status"\s*:\s*"\w+"\s*,\s*"eval"\s*:'
)


def find_logs(folder: Path) -> list[Path]:
    """Return the logs directly in a folder; its manifests (``logs.json``) are none."""
    return [
        p
        for p in sorted(folder.iterdir(), key=lambda p: p.name)
        if not p.name.startswith(".") and _is_log(p)
    ]


def _is_log(path: Path) -> bool:
    if path.suffix == ".eval":
        return path.is_file()
    return path.suffix == ".json" and path.is_file() and json_version(path) is not None


def form_of(path: Path) -> Form | None:
    """Return the form of an Inspect log; None for others' files.

    A file named ``.eval`` that is no archive at all is Inspect's, and broken.
    """
    with path.open("rb") as file:
        if file.read(len(_ZIP)) == _ZIP:
            try:
                with ZipFile(file) as archive:
                    names = archive.NameToInfo
            except (BadZipFile, OSError, ValueError, LookupError, NotImplementedError):
                return "eval" if path.suffix == ".eval" else None
            return "eval" if HEADER in names or START in names else None
    if path.suffix == ".eval":
        return "eval"
    return None if json_version(path) is None else "json"


def json_version(path: Path) -> int | None:
    """Return the schema version of a ``.json`` log; None for other files."""
    with path.open("rb") as file:
        found = _JSON_LOG.match(file.read(_SNIFFED))
    # Longer numbers are no versions, and Python refuses to read the longest.
    return int(found.group(1)[:9]) if found else None
