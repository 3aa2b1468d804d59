"""How much memory work may take: what would need more goes by blocks, or is refused with its size.

The budget is half of the machine's memory, or of the container's, and no more than is free, unless
``--memory`` or the variable `VARIABLE` says another. Sizes are known before anything is read: from
the footers of Parquet, from the sizes of files, from numbers of models and items.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from evalstats_plugin.errors import DesignError, LogError, SelectionError

VARIABLE = "EVALSTATS_MEMORY"
"""Environment variable with a budget such as ``4GB``, here and in processes that are started."""

_UNITS = {
    "": 1, **{f"{p}b": 1000**k for k, p in enumerate(("", "k", "m", "g", "t"))},
    **{f"{p}ib": 1024**k for k, p in enumerate(("k", "m", "g", "t"), 1)},
}  # fmt: skip

_CELL_BYTES, _VALUE_BYTES = 16, 32
"""Memory of a cell of Parquet while it is read, and of each byte of its values: measured, 1.9 GB
for 5,000,000 rows, each of another item."""

_CHARACTER_BYTES = 8
"""Memory of a byte of text while it is parsed: measured, 5 to 9 of JSON and CSV in which most names
are there again."""


_SMALL = 2**26
"""Bytes that are not worth a look at the machine, for each of thousands of logs."""


def parse_size(text: str) -> int:
    """Return a number of bytes.

    >>> parse_size("4GB"), parse_size("512 MiB")
    (4000000000, 536870912)

    Raises
    ------
    SelectionError
        It is not a size in bytes.
    """
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", text, re.ASCII | re.IGNORECASE)
    unit = _UNITS.get(parts[2].lower()) if parts else None
    if parts is None or unit is None or float(parts[1]) * unit < 1:
        raise SelectionError(f"{text!r} is no amount of memory: write it like 4GB or 512MB")
    return int(float(parts[1]) * unit)


def size_in_words(n: float) -> str:
    """Return a number of bytes in the unit that fits.

    >>> size_in_words(6_812_000_000), size_in_words(900)
    ('6.8 GB', '900 bytes')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if n >= unit:
            return f"{n / unit:,.1f} {name}"
    return f"{n:,.0f} bytes"


@contextmanager
def limited(size: str | None) -> Generator[None]:
    """Use another budget inside the block, also in processes that are started there."""
    if size is None:
        yield
        return
    parse_size(size)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = size
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def budget() -> int | None:
    """Return the bytes that work may take; None where nothing is known of the machine."""
    if given := os.environ.get(VARIABLE):
        return parse_size(given)
    whole, free = _of_machine(), free_memory()
    return min((n for n in (whole and whole // 2, free) if n is not None), default=None)


def _of_machine() -> int | None:
    limits: list[int] = []
    if sys.platform != "win32":
        # Not every system that has the function knows these names, nor do all have it.
        with suppress(AttributeError, OSError, ValueError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return min((n for n in limits if n > 0), default=None)


def free_memory() -> int | None:
    """Return the bytes that this process may still allocate; None where unknown."""
    limits: list[int] = []
    with suppress(OSError):
        lines = [line.split() for line in Path("/proc/meminfo").read_text("ascii").splitlines()]
        limits += [int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"]
    # A container may have less than the machine.
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text("ascii"))
        limits.append(max(limit - int((group / "memory.current").read_text("ascii")), 0))
    return min(limits, default=None)


def check_memory(
    needed: float, what: str, instead: str, error: type[DesignError | LogError] = DesignError
) -> None:
    """Refuse work that needs more memory than it may take, before it allocates any.

    Parameters
    ----------
    needed
        Bytes.
    what
        What needs them, in the plural, for the message.
    instead
        What to do, for the message.
    error
        Its class.

    Examples
    --------
    >>> with limited("16GB"):
    ...     check_memory(1e18, "5,000,000 pairs", "name a baseline")
    Traceback (most recent call last):
    ...
    evalstats_plugin.errors.DesignError: 5,000,000 pairs need about 1,000,000.0 TB (...
    """
    if needed < _SMALL and VARIABLE not in os.environ:
        return
    most = budget()
    if most is not None and needed > most:
        raise error(
            f"{what} need about {size_in_words(needed)} ({needed:,.0f} bytes) of memory, and "
            f"{size_in_words(most)} may be used: {instead}. --memory (or {VARIABLE}) allows more"
        )


def check_file(n_bytes: int, where: object) -> None:
    """Refuse a file, known by its size, that would not fit."""
    what = f"the {size_in_words(n_bytes)} of {where}"
    check_memory(n_bytes, what, "read a part of it", LogError)


def check_text(n_bytes: int, where: object) -> None:
    """Refuse a file of text, known by its size, that would not fit when it is parsed."""
    what = f"the {size_in_words(n_bytes)} of text in {where}"
    check_memory(_CHARACTER_BYTES * n_bytes, what, "read a part of it", LogError)


def check_parquet(metadata: Any, where: object, columns: Collection[str] | None = None) -> None:
    """Refuse columns of Parquet, known by the footer, that would not fit when they are read.

    Parameters
    ----------
    metadata
        `pyarrow.parquet.FileMetaData`.
    columns
        Those that are read; None for all.
    """
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    sizes = sum(
        _VALUE_BYTES * group.total_byte_size + _CELL_BYTES * group.num_rows * group.num_columns
        for group in groups
    )
    most = budget()
    if columns is not None and most is not None and sizes > most:
        # Only now: of damaged footers, pyarrow ends the process where it is asked for columns.
        sizes = sum(
            _VALUE_BYTES * column.total_uncompressed_size + _CELL_BYTES * column.num_values
            for group in groups
            for column in (group.column(j) for j in range(group.num_columns))
            if column.path_in_schema.partition(".")[0] in columns
        )
    rows = f"the {metadata.num_rows:,} rows of {where}"
    check_memory(sizes, rows, "read a part of it, or make a response store of it", LogError)
