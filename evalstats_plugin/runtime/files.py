"""What is in files: JSON of harnesses, and signed Parquet.

* `LogFile`: a file that may be a log
* `check_plain`, `plain_bytes`, `number_in`: files and cells that are read
* `parse_json`: files of harnesses, which may be cut off or damaged; `json_like`: JSON laid out as
  another tool wrote it
* `write_signed`, `read_signed`, `signed_metadata`, `verified_metadata`, `reporting_damage`,
  `check_fields`, `kinds_of`, `numbers_in`, `texts_in`: Parquet files of this package, with JSON and
  its digest in the metadata
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from importlib import import_module
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.memory import check_file, check_parquet, check_text
from evalstats_plugin.runtime.writing import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_DIGEST = b"_sha256"
_BY_TYPE = {"str": "a text", "tuple[str, ...]": "texts", "dict[str, Any]": "fields"}
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

HEAD = 1 << 16
"""Bytes at the start of a file by which adapters recognise it."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


_NOT_FILES: Mapping[str, Callable[[int], bool]] = {
    "a pipe": stat.S_ISFIFO, "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
    "a socket": stat.S_ISSOCK,
}  # fmt: skip


def check_plain(path: Path, called: str = "") -> None:
    """Refuse what is no file: who opens a pipe waits for its other end.

    Raises
    ------
    LogError
        It is a pipe, a device or a socket. What does not exist is left to who opens it.
    """
    with suppress(OSError):
        mode = path.stat().st_mode
        for kind, is_one in _NOT_FILES.items():
            if is_one(mode):
                msg = f"{called or path} is {kind}, not a file: write what it gives into a file"
                raise LogError(msg)


def plain_bytes(path: Path, called: str = "") -> bytes:
    """Return the content of a file that an option names.

    Raises
    ------
    LogError
        It cannot be read, or is no file.
    """
    check_plain(path, called)
    try:
        return path.read_bytes()
    except OSError as error:
        raise LogError(f"{called or path} cannot be read ({error.strerror or error})") from error


def number_in(text: str) -> float:
    """Return the number that a cell of a table holds, in which ``_`` separates no digits.

    >>> number_in(" 1e3 ")
    1000.0

    Raises
    ------
    ValueError
        It holds none.
    """
    if "_" in text:
        raise ValueError(f"{text!r} is no number")
    return float(text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _list_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, cast("list[object]", value)))


KINDS: Mapping[str, Callable[[object], bool]] = {
    "a text": lambda value: isinstance(value, str),
    "texts": _list_of(lambda value: isinstance(value, str)),
    "a number": _is_number,
    "numbers": _list_of(_is_number),
    "numbers or null": _list_of(lambda value: value is None or _is_number(value)),
    "a count": _is_count,
    "a count or null": lambda value: value is None or _is_count(value),
    "counts": _list_of(_is_count),
    "true or false": lambda value: isinstance(value, bool),
    "fields": lambda value: isinstance(value, dict),
}
"""What a field of JSON may hold."""


def parse_json(content: bytes, path: Path) -> Any:
    """Parse the JSON content of a file, with or without a byte order mark.

    Raises
    ------
    LogError
        It is not UTF-8, not JSON, or JSON with numbers of thousands of digits.
    """
    check_text(len(content), path)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text ({error.reason} at byte {error.start})"
        raise LogError(msg) from error
    except json.JSONDecodeError as error:
        msg = f"{path} is not JSON: {error.msg} in line {error.lineno}; it may have been cut off"
        raise LogError(msg) from error
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path} cannot be read as JSON ({error}); it may be damaged") from error


def section(document: Any, *keys: str) -> Mapping[str, Any]:
    """Return an object inside JSON, empty if it is missing, null or of another kind."""
    for key in keys:
        document = (
            cast("Mapping[str, Any]", document).get(key) if isinstance(document, Mapping) else None
        )
    return cast("Mapping[str, Any]", document) if isinstance(document, Mapping) else {}


def field_of(document: Any, path: str) -> str | None:
    """Return a field as text, by its name or a dotted path; None if there is none.

    >>> field_of({"idx": {"paragraph": 3}}, "idx.paragraph")
    '3'
    """
    whole = isinstance(document, Mapping) and path in document
    for key in [path] if whole else path.split("."):
        if not isinstance(document, Mapping) or key not in document:
            return None
        document = cast("Mapping[str, Any]", document)[key]
    return (
        document if isinstance(document, str) else json.dumps(document, sort_keys=True, default=str)
    )


def parse_line(line: bytes, where: str) -> dict[str, Any]:
    """Parse one line of JSON lines: an object.

    Raises
    ------
    LogError
        It is cut off, not UTF-8, not JSON or no object; the message begins with its place.
    """
    try:
        record: Any = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        msg = f"{where} is not UTF-8 text ({error.reason} at byte {error.start} of the line)"
        raise LogError(msg) from error
    except json.JSONDecodeError as error:
        if line.endswith(b"\n"):
            raise LogError(f"{where} is not JSON ({error.msg} at character {error.pos})") from error
        raise LogError(
            f"{where}, the last, is cut off: the run was killed while writing, or the copy is "
            "incomplete; run it again, or remove the line to go on without that item"
        ) from error
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits; thousands of nested brackets.
        raise LogError(f"{where} cannot be read as JSON ({error}); it may be damaged") from error
    if not isinstance(record, dict):
        raise LogError(f"{where} holds no object of JSON")
    return cast("dict[str, Any]", record)


def json_like(content: bytes) -> tuple[Callable[[object], bytes], bool]:
    r"""Return what writes JSON in the layout of a text, and whether it gives that text itself.

    The layout is indentation, separators, escapes, line ends and what follows the last bracket.

    >>> write, exact = json_like(b'{"a": 1,\r\n"b": 2}')
    >>> write({"a": 1}), exact
    (b'{"a": 1}', False)
    """
    inside = re.match(rb"\s*[\[{]\r?\n([ \t]+)", content)
    text = content.replace(b"\r\n", b"\n")
    ends = b"\r\n" if b"\r\n" in content else b"\n"
    end = text[len(text.rstrip()) :]
    value_in_text = json.loads(text)

    def write(value: object, **layout: Any) -> bytes:
        return (json.dumps(value, **layout).encode(errors="surrogatepass") + end).replace(
            b"\n", ends
        )

    indent = inside[1].decode() if inside else None
    ways = [
        partial(write, indent=indent, ensure_ascii=ascii_only, separators=separators)
        for separators in ((None,) if inside else (None, (",", ":")))
        for ascii_only in (False, True)
    ]
    exact = next((way for way in ways if way(value_in_text) == content), None)
    return exact or ways[0], exact is not None


def write_signed(table: Any, path: Path, key: bytes, meta: Mapping[str, Any]) -> Path:
    """Write an Arrow table atomically, with JSON under a key of its metadata.

    Pages and the JSON have checksums, so that damage is detected.
    """
    pq: Any = import_module("pyarrow.parquet")
    buffer = BytesIO()
    pq.write_table(
        table.replace_schema_metadata(signed_metadata(key, meta)), buffer, write_page_checksum=True
    )
    return write_bytes(path, buffer.getvalue())


def signed_metadata(key: bytes, meta: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return schema metadata: JSON under a key, and its digest."""
    text = json.dumps(meta).encode()
    return {key: text, key + _DIGEST: hashlib.sha256(text).hexdigest().encode()}


def verified_metadata(
    path: Path,
    metadata: Mapping[bytes, bytes] | None,
    key: bytes,
    other: str,
    kinds: Mapping[str, str],
) -> Any:
    """Return the JSON of `signed_metadata` after checking its digest and its fields.

    Raises
    ------
    LogError
        The key is missing (the message ends in ``other``), or the JSON is damaged.
    """
    meta = metadata or {}
    if key not in meta:
        raise LogError(f"{path} is a Parquet file, but {other}")
    digest = meta.get(key + _DIGEST)
    if digest is not None and hashlib.sha256(meta[key]).hexdigest().encode() != digest:
        raise LogError(f"{path} is damaged: restore it from a copy, or make it again")
    with reporting_damage(path):
        held = json.loads(meta[key])
        check_fields(held, kinds)
    return held


def read_signed(
    path: Path, key: bytes, kinds: Mapping[str, str], *, wanted: str, other: str
) -> tuple[Any, dict[str, Any]]:
    """Read a file of `write_signed`: its table, and the JSON under the key.

    Parameters
    ----------
    kinds
        Of the fields of the JSON, as of `check_fields`.
    wanted
        What to give instead, in messages: "give a …".
    other
        What a Parquet file without the key is, in messages: "is no …".

    Raises
    ------
    LogError
        No such file, not Parquet, damaged, or without this key.
    """
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    check_plain(path)
    if not path.is_file():
        raise LogError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}: {wanted}")
    try:
        check_parquet(pq.read_metadata(path), path)
        table: Any = pq.read_table(path, page_checksum_verification=True)
        table.validate(full=True)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise LogError(f"{path} is no Parquet file, or damaged: {wanted}") from error
    return table, verified_metadata(path, table.schema.metadata, key, other, kinds)


def check_fields(document: Any, kinds: Mapping[str, str]) -> None:
    """Raise `ValueError`, which names the field, unless JSON has fields of these `KINDS`."""
    if not isinstance(document, dict):
        raise ValueError("its JSON is no object")
    for name, kind in kinds.items():
        if name not in document:
            raise ValueError(f"the field {name!r} is missing")
        if not KINDS[kind](cast("dict[str, Any]", document)[name]):
            raise ValueError(f"the field {name!r} does not hold {kind}")


def kinds_of(record: Any, without: Sequence[str] = ()) -> dict[str, str]:
    """Return the kinds of the fields of a record that are texts, lists of texts, or fields."""
    named = {f.name: _BY_TYPE.get(str(f.type)) for f in fields(record) if f.name not in without}
    return {name: kind for name, kind in named.items() if kind is not None}


def numbers_in(
    table: Any, name: str, shape: Sequence[int], rows: slice = slice(None)
) -> NDArray[np.float64]:
    """Return the numbers of a column of numbers or lists; `ValueError` if it holds others."""
    import numpy as np

    try:
        part = table[name][rows].combine_chunks()
        flat = part if len(shape) == 1 else part.flatten()
        return np.array(flat.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(shape)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        size = " × ".join(map(str, shape))
        raise ValueError(f"the column {name!r} does not hold {size} numbers") from error


def texts_in(table: Any, name: str, rows: slice = slice(None)) -> list[str]:
    """Return the texts of a column; `ValueError` if it holds others."""
    texts: list[Any] = table[name][rows].to_pylist() if name in table.column_names else [None]
    if not all(isinstance(value, str) for value in texts):
        raise ValueError(f"the column {name!r} does not hold texts")
    return texts


@contextmanager
def reporting_damage(path: Path) -> Generator[None]:
    """Turn errors while unpacking a file into a `LogError` about the file.

    A program wrote it: what does not fit has been damaged since, or is of a later version. Adapters
    read their logs inside it.
    """
    try:
        yield
    except _DAMAGE as error:
        problem = f"{error}" if type(error) is ValueError else f"{type(error).__name__}: {error}"
        msg = f"{path} is damaged, or of a later version ({problem}): make it again"
        raise LogError(msg) from error


class LogFile:
    """A file that may be a log, with its first bytes for every adapter that asks.

    Inside ``with`` it is opened once, on first use, however often it is read; outside, each time.
    A copy for another process opens the file again.
    """

    __slots__ = ("_content", "_file", "_head", "_held", "path")

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path = path
        self._content = content
        """In place of a file's, where it is in memory."""
        self._file: IO[bytes] | None = None
        self._head: bytes | None = None
        self._held = 0

    @property
    def head(self) -> bytes:
        """The first 65,536 bytes, without a byte-order mark; none of a folder."""
        if self._head is None:
            try:
                with self.open() as file:
                    first_bytes = file.read(HEAD).removeprefix(_BYTE_ORDER_MARK)
            except IsADirectoryError:
                first_bytes = b""
            self._head = first_bytes
        return self._head

    @property
    def is_open(self) -> bool:
        """Whether the file was opened and is kept open."""
        return self._file is not None

    @contextmanager
    def open(self) -> Generator[IO[bytes]]:
        """Give the file, at its start; raise `LogError` if it cannot be opened."""
        with self:
            if self._file is None:
                if self._content is None:
                    check_plain(self.path)
                try:
                    content = self._content
                    self._file = self.path.open("rb") if content is None else BytesIO(content)
                except IsADirectoryError:
                    raise
                except OSError as error:
                    msg = f"{self.path} cannot be read ({error.strerror or error})"
                    raise LogError(msg) from error
            self._file.seek(0)
            yield self._file

    def read_bytes(self) -> bytes:
        """Return the whole content."""
        with self.open() as file:
            if isinstance(file, BufferedReader):
                check_file(os.fstat(file.fileno()).st_size, self.path)
            return file.read()

    def __enter__(self) -> LogFile:
        self._held += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._held -= 1
        if not self._held:
            self._head = None  # of thousands of logs they would fill the memory
            if self._file is not None:
                self._file.close()
                self._file = None

    def __reduce__(self) -> tuple[Any, ...]:
        return LogFile, (self.path, self._content)
