"""Changes the samples of a log one at a time, as JSON.

Through Inspect's own objects the time to write a log grows with the square of its samples: hours
for what takes less than a minute here. Everything that is not a sample keeps its content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from evalstats_plugin.adapters.inspect_ai.archive import guard
from evalstats_plugin.adapters.inspect_ai.archive.guard import Form
from evalstats_plugin.errors import WriteError

Sample = dict[str, Any]


Edit = Callable[[Sample], Sample]
"""Returns a sample, or a sample's summary, changed; the one given stays as it is."""


_SAMPLES = "samples/"


_LOCAL_EXTRA = 28
"""Where, in a member of an archive, stands how long its extra fields are."""


_SUMMARIES = ("summaries.json", "_journal/summaries/")


def would_change(file: Path, form: Form, edit: Edit) -> bool:
    """Whether an edit changes anything: known from the summaries, where a log has them."""
    if form == "json":
        with guard.parsing(file):
            samples: list[Sample] = from_bytes(file.read_bytes()).get("samples") or []
            return any(edit(sample) != sample for sample in samples)
    with guard.parsing(file), _opened(file) as log:
        names = set(log.namelist())
        summaries = [n for n in names if n.startswith(_SUMMARIES)]
        parts = summaries or [n for n in names if n.startswith(_SAMPLES)]
        return any(edit(s) != s for name in parts for s in _parsed(name, log))


def rewrite(file: Path, target: Path, form: Form, edit: Edit) -> None:
    """Write a log with every sample, and every summary of one, edited.

    Raises
    ------
    WriteError
        For a log that keeps a sample in several parts.
    """
    if form == "json":
        with guard.parsing(file):
            log = from_bytes(file.read_bytes())
            samples: list[Sample] = log.get("samples") or []
            log["samples"] = [edit(sample) for sample in samples]
            content = to_bytes(log, indent=2)
        target.write_bytes(content)
        return
    with _opened(file) as old, ZipFile(target, "w") as new:
        # Of several members with one name the last one counts.
        live = {info.filename: info for info in old.infolist()}
        if any(n.startswith(_SAMPLES) and n.endswith("/sample.json") for n in live):
            msg = "samples are kept in chunks, which cannot be annotated; only the header can"
            raise WriteError(msg)
        for info in live.values():
            with guard.parsing(file):
                content = _edited(info.filename, _content(old, info), edit)
            member = like(info, content)
            with new.open(member, "w", force_zip64=_has_room(old, info)) as out:
                out.write(content)
            # Said in the list of members only; the member itself may need less.
            member.extract_version = info.extract_version
            member.create_version = info.create_version


def _opened(file: Path) -> ZipFile:
    # Method 93 (zstandard) is unknown to zipfile until Inspect has taught it.
    guard.load_inspect()
    return ZipFile(file)


def _content(archive: ZipFile, info: ZipInfo) -> bytes:
    whole = info.filename.startswith(_SAMPLES)
    most = guard.MAX_SAMPLE if whole else guard.MAX_SUMMARIES
    most = min(most, max(guard.RATIO_FROM, guard.MAX_RATIO * info.compress_size))
    guard.check_size(info.file_size, most, info.filename, Path(archive.filename or ""))
    return archive.read(info)


def like(info: ZipInfo, content: bytes) -> ZipInfo:
    """Return what content is to be written with, so that it looks like an earlier member."""
    member = ZipInfo(info.filename, info.date_time)
    member.compress_type = info.compress_type
    member.external_attr = info.external_attr
    member.file_size = len(content)
    return member


def _has_room(archive: ZipFile, info: ZipInfo) -> bool:
    """Whether a member was written with room for any size, as one is that is streamed."""
    if archive.fp is None:
        return False
    archive.fp.seek(info.header_offset + _LOCAL_EXTRA)
    return archive.fp.read(2) != b"\0\0"


def _edited(name: str, content: bytes, edit: Edit) -> bytes:
    if name.startswith(_SAMPLES):
        return to_bytes(edit(from_bytes(content)))
    if name.startswith(_SUMMARIES):
        return to_bytes([edit(summary) for summary in from_bytes(content)])
    return content


def _parsed(name: str, log: ZipFile) -> Iterator[Sample]:
    found = from_bytes(_content(log, log.getinfo(name)))
    yield from [found] if name.startswith(_SAMPLES) else found


# Inspect writes through the same library: what is not edited comes out byte for byte.
def from_bytes(content: bytes) -> Any:
    """Return what a JSON text holds."""
    from pydantic_core import from_json

    try:
        return from_json(content, cache_strings="keys")
    except ValueError:
        # It refuses half a surrogate pair, as models make them.
        return json.loads(content)


def to_bytes(value: object, indent: int | None = None) -> bytes:
    """Return a value as JSON text."""
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(value, indent=indent, inf_nan_mode="constants")
    except PydanticSerializationError:
        return json.dumps(value, indent=indent).encode()
