"""Files that are replaced as a whole or not at all, JSON of harnesses, and signed Parquet.

* writing: `check_output_path`, `write_bytes`, `replacing`
* `parse_json`: files of harnesses, which may be cut off or damaged
* `write_signed`, `read_signed`, `signed_metadata`, `verified_metadata`, `reporting_damage`:
  Parquet files of this package, with JSON and its digest in the metadata
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from evalstats_plugin.errors import LogError, SelectionError, WriteError
from evalstats_plugin.runtime.transactions import Revision, transaction

_DIGEST = b"_sha256"


def check_output_path(
    path: str | Path, endings: Sequence[str], *, asked: str = "", makes_folder: bool = False
) -> Path:
    """Return the path of an output file, after checks that would otherwise fail after the work.

    Parameters
    ----------
    endings
        Allowed endings of the file name, in lower case.
    asked
        The option that named the file, for messages.
    makes_folder
        Whether the folder is created on writing.

    Raises
    ------
    SelectionError
        The name has another ending; it might be that of a log.
    WriteError
        The path is a folder, or its folder does not exist.
    """
    place = Path(path)
    called = f"{asked} {path}".lstrip()
    if place.is_dir():
        msg = f"{called} is a folder: name a file in it"
        raise WriteError(msg)
    if place.suffix.lower() not in endings:
        *most, last = endings
        fitting = f"{', '.join(most)} or {last}" if most else last
        msg = f"{called}: the name of this file must end in {fitting}"
        raise SelectionError(msg)
    if not makes_folder and not place.parent.is_dir():
        msg = f"{called}: there is no folder {place.parent}"
        raise WriteError(msg)
    return place


def write_bytes(
    path: Path, content: bytes, *, over: Revision | None = None, times_of: Path | None = None
) -> Path:
    """Write a file atomically: readers find either the old content or the new one.

    The content goes to a hidden file beside it, is forced to disk, and is renamed. A symbolic link
    stays a link; owner, group, permissions and attributes stay as they were.

    Parameters
    ----------
    over, times_of
        As of `transactions.Transaction.stage`.

    Raises
    ------
    WriteError
        When the folder or file cannot be written, or has changed; what was there is still there.
    """
    with replacing(path, over=over, times_of=times_of) as temporary, temporary.open("wb") as file:
        file.write(content)
    return path


@contextmanager
def replacing(
    path: Path, *, over: Revision | None = None, times_of: Path | None = None
) -> Generator[Path]:
    """Yield a temporary file that replaces `path` if the block raises nothing.

    As `write_bytes`, for content too large to hold in memory.

    Raises
    ------
    WriteError
        When the folder or file cannot be written, or has changed; what was there is still there.
    """
    with transaction(path.resolve().parent, named=path) as staged:
        yield staged.stage(path, over=over, times_of=times_of)


def parse_json(content: bytes, path: Path) -> Any:
    """Parse the JSON content of a file, with or without a byte order mark.

    Raises
    ------
    LogError
        It is not UTF-8, not JSON, or JSON with numbers of thousands of digits.
    """
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text ({error.reason} at byte {error.start})"
        raise LogError(msg) from error
    except json.JSONDecodeError as error:
        msg = f"{path} is not JSON: {error.msg} in line {error.lineno}; it may have been cut off"
        raise LogError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{path} cannot be read as JSON ({error}); it may be damaged"
        raise LogError(msg) from error


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
    path: Path, found: Mapping[bytes, bytes] | None, key: bytes, other: str
) -> Any:
    """Return the JSON of `signed_metadata` after checking its digest.

    Raises
    ------
    LogError
        The key is missing (the message ends in ``other``), or the JSON is damaged.
    """
    meta = found or {}
    if key not in meta:
        raise LogError(f"{path} is a Parquet file, but {other}")
    digest = meta.get(key + _DIGEST)
    if digest is not None and hashlib.sha256(meta[key]).hexdigest().encode() != digest:
        raise LogError(f"{path} is damaged: restore it from a copy, or make it again")
    with reporting_damage(path):
        return json.loads(meta[key])


def read_signed(path: Path, key: bytes, *, expected: str, other: str) -> tuple[Any, dict[str, Any]]:
    """Read a file of `write_signed`: its table, and the JSON under the key.

    Raises
    ------
    LogError
        No such file (the message ends in ``expected``), not Parquet, damaged, or without this key
        (the message ends in ``other``).
    """
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise LogError(f"{path}: {found}, {expected}")
    try:
        table: Any = pq.read_table(path, page_checksum_verification=True)
        table.validate(full=True)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise LogError(f"{path} is no Parquet file, or damaged, {expected}") from error
    return table, verified_metadata(path, table.schema.metadata, key, other)


@contextmanager
def reporting_damage(path: Path) -> Generator[None]:
    """Turn errors while unpacking a file of this package into a `LogError` about the file.

    The package wrote it: what does not fit has been damaged since, or is of a later version.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        msg = f"{path} is damaged, or of a later version ({problem}): make it again"
        raise LogError(msg) from error
