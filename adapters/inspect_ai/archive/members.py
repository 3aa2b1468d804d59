"""Edit the samples of a log one at a time, as JSON.

With Inspect's own objects the time to write a log grows with the square of its samples: hours for
what needs less than a minute here. Everything that is not a sample keeps its content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from evalstats_plugin.adapters.inspect_ai.archive import guard
from evalstats_plugin.adapters.inspect_ai.archive.guard import JOURNAL, SAMPLES, SUMMARIES, Form
from evalstats_plugin.errors import WriteError
from evalstats_plugin.runtime.files import json_like

Sample = dict[str, Any]
"""A sample, or the summary of one, as JSON."""

Edit = Callable[[Sample], Sample]
"""Returns an edited copy of a sample or summary."""

_SUMMARIES = (SUMMARIES, JOURNAL)

_LOCAL_EXTRA = 28
"""Offset of the length of the extra fields in the header of an archive's member."""


def would_change(file: Path, form: Form, edit: Edit) -> bool:
    """Whether an edit changes anything; checked on the summaries if the log has them."""
    if form == "json":
        with guard.parsing(file):
            samples: list[Sample] = from_bytes(file.read_bytes()).get("samples") or []
            return any(edit(sample) != sample for sample in samples)
    with guard.parsing(file), _opened(file) as log:
        names = set(log.namelist())
        summaries = [n for n in names if n.startswith(_SUMMARIES)]
        parts = summaries or [n for n in names if n.startswith(SAMPLES)]
        return any(edit(s) != s for name in parts for s in _parsed(name, log))


def _parsed(name: str, log: ZipFile) -> Iterator[Sample]:
    found = from_bytes(_content(log, log.getinfo(name)))
    yield from [found] if name.startswith(SAMPLES) else found


def rewrite(file: Path, target: Path, form: Form, edit: Edit) -> None:
    """Write a log with every sample and every summary edited.

    Raises
    ------
    WriteError
        The log keeps a sample in several parts.
    """
    if form == "json":
        with guard.parsing(file):
            content = file.read_bytes()
            write, log = layout_of(content), from_bytes(content)
            samples: list[Sample] = log.get("samples") or []
            log["samples"] = [edit(sample) for sample in samples]
            content = write(log)
        target.write_bytes(content)
        return
    with _opened(file) as old, ZipFile(target, "w") as new:
        # Of several members with one name the last one counts.
        live = {info.filename: info for info in old.infolist()}
        if any(n.startswith(SAMPLES) and n.endswith("/sample.json") for n in live):
            msg = "samples are kept in chunks, which cannot be annotated; only the header can"
            raise WriteError(msg)
        # Members of a kind are laid out alike.
        layouts: dict[str, Callable[[object], bytes]] = {}
        for info in live.values():
            with guard.parsing(file):
                content = _edited(info.filename, _content(old, info), edit, layouts)
            member = member_like(info, content)
            with new.open(member, "w", force_zip64=_is_streamed(old, info)) as out:
                out.write(content)
            # In the directory of the archive only; the member itself may need a lower version.
            member.extract_version = info.extract_version
            member.create_version = info.create_version


def _is_streamed(archive: ZipFile, info: ZipInfo) -> bool:
    """Whether a member was written as a stream, with zip64 fields for any size."""
    if archive.fp is None:
        return False
    archive.fp.seek(info.header_offset + _LOCAL_EXTRA)
    return archive.fp.read(2) != b"\0\0"


def _edited(
    name: str, content: bytes, edit: Edit, layouts: dict[str, Callable[[object], bytes]]
) -> bytes:
    kind = next((kind for kind in (SAMPLES, *_SUMMARIES) if name.startswith(kind)), None)
    if kind is None:
        return content
    found = from_bytes(content)
    write = layouts.setdefault(kind, layout_of(content) if kind not in layouts else to_bytes)
    return write(edit(found) if kind == SAMPLES else [edit(summary) for summary in found])


def member_like(info: ZipInfo, content: bytes) -> ZipInfo:
    """Return a member for new content with the date, compression and attributes of an old one."""
    member = ZipInfo(info.filename, info.date_time)
    member.compress_type = info.compress_type
    member.external_attr = info.external_attr
    member.file_size = len(content)
    return member


def _opened(file: Path) -> ZipFile:
    # Importing Inspect teaches zipfile method 93 (zstandard).
    guard.load_inspect()
    return ZipFile(file)


def _content(archive: ZipFile, info: ZipInfo) -> bytes:
    is_sample = info.filename.startswith(SAMPLES)
    limit = guard.MAX_SAMPLE if is_sample else guard.MAX_SUMMARIES
    guard.check_member(info, limit, Path(archive.filename or ""))
    return archive.read(info)


def from_bytes(content: bytes) -> Any:
    """Parse JSON with the library that Inspect uses."""
    from pydantic_core import from_json

    try:
        return from_json(content, cache_strings="keys")
    except ValueError:
        # It refuses half a surrogate pair, which models can produce.
        return json.loads(content)


def layout_of(content: bytes) -> Callable[[object], bytes]:
    """Return the function that writes JSON as it is laid out in a text, so that parts keep bytes.

    Inspect writes archives without line breaks and, once, with; tools rewrite files otherwise.
    """
    found = from_bytes(content)
    own = (to_bytes, partial(to_bytes, indent=2))
    return next((way for way in own if way(found) == content), None) or json_like(content)[0]


def to_bytes(value: object, indent: int | None = None) -> bytes:
    """Return a value as JSON text, as Inspect writes it, so that unedited parts keep every byte."""
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(value, indent=indent, inf_nan_mode="constants")
    except PydanticSerializationError:
        return json.dumps(value, indent=indent).encode()
