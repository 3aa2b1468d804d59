"""A log opened: its header, and its takes read on demand by the cheapest way that suffices."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin.adapters.inspect_ai import guard
from evalstats_plugin.adapters.inspect_ai.archive import Archive, slim, version_in
from evalstats_plugin.adapters.inspect_ai.layout import Form, json_version
from evalstats_plugin.adapters.inspect_ai.takes import EXCLUDED, SCORES, Take, of_sample, of_summary
from evalstats_plugin.errors import LogError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

Fields = Collection[str]
ReadTakes = Callable[[Fields], list[Take]]
"""Reads the takes, with some fields of the items' metadata."""

_BLOCK = 1 << 24


@contextmanager
def opened(
    path: Path, form: Form, *, header_only: bool
) -> Generator[tuple[EvalLog, ReadTakes], None, None]:
    """Give a log's header, and what reads its takes.

    Raises
    ------
    LogError
        When the log is broken, too large or of a later format.
    """
    if form == "json":
        log = _read_json(path, header_only=header_only)
        yield log, lambda fields: [of_sample(s, fields) for s in log.samples or ()]
        return
    with path.open("rb") as file:
        with guard.parsing(path):
            archive = Archive(file, path)
            log = _read_header(archive)
        yield log, lambda fields: _read_takes(archive, log, fields)


def _read_json(path: Path, *, header_only: bool) -> EvalLog:
    inspect = guard.load_inspect()
    guard.check_version(json_version(path) or 0, path)
    guard.check_size(path.stat().st_size, guard.MAX_JSON, "the file", path)
    with guard.parsing(path), tempfile.TemporaryDirectory() as folder:
        # Inspect keeps the last log it read under the name it had, whatever became of the file.
        copy = Path(folder) / "log.json"
        with path.open("rb") as source, copy.open("wb") as target:
            while block := source.read(_BLOCK):
                guard.check_density(block, "the file", path)
                target.write(block)
        return inspect.read_eval_log(str(copy), header_only=header_only)


def _read_header(archive: Archive) -> EvalLog:
    inspect = guard.load_inspect()
    with archive.header() as copy:
        guard.check_version(version_in(copy), archive.path)
        return inspect.read_eval_log(copy, header_only=True)


def _read_takes(archive: Archive, log: EvalLog, fields: Fields) -> list[Take]:
    with guard.parsing(archive.path):
        # Summaries do not tell which samples were invalidated, nor all of a score.
        if not log.invalidated and not any(f.startswith(SCORES) for f in fields):
            takes = _from_summaries(archive, fields)
            if takes and not any(take.is_cut for take in takes):
                return takes
            if not takes and not archive.sample_members and not archive.is_chunked:
                return []
        if archive.is_chunked:
            msg = (
                f"{archive.path} keeps its samples in pieces, which inspect_ai cannot read yet, "
                "and its summaries do not tell enough; write it again with 'inspect log convert'"
            )
            raise LogError(msg)
        return _from_samples(archive, fields)


def _from_summaries(archive: Archive, fields: Fields) -> list[Take]:
    inspect = guard.load_inspect()
    with archive.summaries(slim(fields)) as copy:
        return [of_summary(s, fields) for s in inspect.read_eval_log_sample_summaries(copy)]


def _from_samples(archive: Archive, fields: Fields) -> list[Take]:
    inspect = guard.load_inspect()
    takes: list[Take] = []
    for batch in archive.sample_batches():
        with batch as copy:
            part: Any = inspect.read_eval_log(copy, exclude_fields=EXCLUDED)
            takes.extend(of_sample(sample, fields) for sample in part.samples)
    return takes
