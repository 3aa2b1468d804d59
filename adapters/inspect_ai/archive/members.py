"""Edit the samples of a log one at a time, as JSON.

With Inspect's own objects the time to write a log grows with the square of its samples: hours for
what needs less than a minute here. Everything that is not a sample keeps its content. Summaries are
read and written a part at a time (`elements`, `in_parts`), because all of them together take more
memory than the rest of the program.
"""

from __future__ import annotations

import json
import re
from codecs import iterdecode
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo
from zlib import crc32

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

_PART = 200
"""Summaries that are in memory at a time while they are edited."""

_BLOCK = 1 << 16
"""Bytes unpacked at a time."""

_BEFORE_FIRST = re.compile(r"[ \t\n\r]*+(\[[ \t\n\r]*+\]|\[)[ \t\n\r]*+")
_BEFORE_NEXT = re.compile(r"[ \t\n\r]*+([,\]])[ \t\n\r]*+")
"""What stands before an element of a list in JSON; the list has ended with a closing bracket."""


def would_change(file: Path, form: Form, edit: Edit) -> bool:
    """Whether an edit changes anything; checked on the summaries if the log has them."""
    if form == "json":
        with guard.parsing(file):
            samples: list[Sample] = from_bytes(file.read_bytes()).get("samples") or []
            return any(edit(sample) != sample for sample in samples)
    with guard.parsing(file), _opened(file) as log:
        # Of several members with one name the last one counts.
        live = log.NameToInfo.items()
        summaries = [info for name, info in live if name.startswith(_SUMMARIES)]
        if summaries:
            each = (s for info in summaries for s in elements(_blocks(log, info)))
        else:
            each = (from_bytes(_content(log, i)) for name, i in live if name.startswith(SAMPLES))
        return any(edit(sample) != sample for sample in each)


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
        live = old.NameToInfo
        if any(n.startswith(SAMPLES) and n.endswith("/sample.json") for n in live):
            msg = "samples are kept in chunks, which cannot be annotated; only the header can"
            raise WriteError(msg)
        # Members of a kind are laid out alike.
        layouts: dict[str, Callable[[object], bytes]] = {}
        for info in live.values():
            member = member_like(info)
            with new.open(member, "w", force_zip64=_is_streamed(old, info)) as out:
                for part in _edited(old, info, edit, layouts):
                    out.write(part)
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
    archive: ZipFile, info: ZipInfo, edit: Edit, layouts: dict[str, Callable[[object], bytes]]
) -> Iterator[bytes]:
    """Yield the new content of a member, in parts."""
    name = info.filename
    kind = next((kind for kind in (SAMPLES, *_SUMMARIES) if name.startswith(kind)), None)
    with guard.parsing(Path(archive.filename or "")):
        if kind in _SUMMARIES and kind not in layouts and _is_compact(archive, info):
            layouts[kind] = to_bytes
        if kind in _SUMMARIES and layouts.get(kind) is to_bytes:
            parts = in_parts(elements(_blocks(archive, info)), _PART)
            yield from _listed([edit(summary) for summary in part] for part in parts)
            return
        content = _content(archive, info)
        if kind is None:
            yield content
            return
        document = from_bytes(content)
        write = layouts.setdefault(kind, layout_of(content) if kind not in layouts else to_bytes)
        yield write(edit(document) if kind == SAMPLES else [edit(summary) for summary in document])


def _is_compact(archive: ZipFile, info: ZipInfo) -> bool:
    """Whether a member is a list as `to_bytes` writes it, so that parts of it keep every byte."""
    size = checksum = 0
    for part in _listed(in_parts(elements(_blocks(archive, info)), _PART)):
        size, checksum = size + len(part), crc32(part, checksum)
    return (size, checksum) == (info.file_size, info.CRC)


def _listed(parts: Iterable[list[Any]]) -> Iterator[bytes]:
    """Yield a list as `to_bytes` writes it, from the parts of the list."""
    start = b"["
    for part in parts:
        yield start + to_bytes(part)[1:-1]
        start = b","
    yield b"[]" if start == b"[" else b"]"


def member_like(info: ZipInfo) -> ZipInfo:
    """Return a member for new content with the date, compression and attributes of an old one."""
    member = ZipInfo(info.filename, info.date_time)
    member.compress_type = info.compress_type
    member.external_attr = info.external_attr
    return member


def _opened(file: Path) -> ZipFile:
    # Importing Inspect teaches zipfile method 93 (zstandard).
    guard.load_inspect()
    return ZipFile(file)


def _content(archive: ZipFile, info: ZipInfo) -> bytes:
    return b"".join(_blocks(archive, info))


def _blocks(archive: ZipFile, info: ZipInfo) -> Iterator[bytes]:
    is_sample = info.filename.startswith(SAMPLES)
    limit = guard.MAX_SAMPLE if is_sample else guard.MAX_SUMMARIES
    guard.check_member(info, limit, Path(archive.filename or ""))
    with archive.open(info) as source:
        while block := source.read(_BLOCK):
            yield block


def elements(blocks: Iterable[bytes]) -> Iterator[Any]:
    """Parse a list in JSON one element after another; only one at a time is in memory.

    Parameters
    ----------
    blocks
        The text, cut anywhere.

    Raises
    ------
    ValueError
        The text is no list, or no JSON.

    >>> list(elements([b'[{"a": 1', b'2}, "b"]']))
    [{'a': 12}, 'b']
    """
    texts = iterdecode(blocks, "utf-8-sig", "surrogatepass")
    scan = json.JSONDecoder().raw_decode
    text, place, before, is_all = "", 0, _BEFORE_FIRST, False
    while True:
        match = before.match(text, place)
        if match is not None and match[1].endswith("]"):
            break
        value, end = None, len(text)
        if match is not None:
            try:
                value, end = scan(text, match.end())
            except json.JSONDecodeError:
                if is_all:
                    raise
        # A number that is cut behind "0." or "1e" is no 0 or 1.
        if end < len(text) and (is_all or text[end] not in ".eE"):
            yield value
            place, before = end, _BEFORE_NEXT
        elif is_all:
            raise ValueError("no list in JSON, or one that was cut off")
        else:
            # At the end of the text at hand even a number may go on.
            rest = text[place:]
            text, place = _longer(rest, texts), 0
            is_all = len(text) == len(rest)
    if text[match.end() :] or any(part.strip(" \t\n\r") for part in texts):
        raise ValueError("a list in JSON, and more behind it")


def _longer(text: str, more: Iterator[str]) -> str:
    """Return a text with at least as much again behind it, or all that there is.

    So an element that is cut again and again takes time in proportion to its length.
    """
    parts, size = [text], 0
    for part in more:
        parts.append(part)
        size += len(part)
        if size > len(text):
            break
    return "".join(parts)


def in_parts(each: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield elements in lists of this size, the last of which may be shorter."""
    rest = iter(each)
    while part := list(islice(rest, size)):
        yield part


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
    document = from_bytes(content)
    own = (to_bytes, partial(to_bytes, indent=2))
    return next((way for way in own if way(document) == content), None) or json_like(content)[0]


def to_bytes(value: object, indent: int | None = None) -> bytes:
    """Return a value as JSON text, as Inspect writes it, so that unedited parts keep every byte."""
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(value, indent=indent, inf_nan_mode="constants")
    except PydanticSerializationError:
        return json.dumps(value, indent=indent).encode()
