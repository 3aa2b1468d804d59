"""``.eval`` logs: of the archive, Inspect gets to see a copy of the members it needs.

Each member is measured while it is copied, because the size an archive declares can be a lie, and
two readers of one archive can be made to see different members.
"""
# PART source - A log opened: its header, and its takes read on demand by the cheapest way that suffices.

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from evalstats_plugin.adapters.inspect_ai.archive import guard
from evalstats_plugin.adapters.inspect_ai.archive.guard import HEADER, START, Form, json_version
from evalstats_plugin.adapters.inspect_ai.archive.members import from_bytes, to_bytes
from evalstats_plugin.adapters.inspect_ai.archive.takes import (
    EVERY,
    EXCLUDED,
    SCORES,
    Take,
    of_sample,
    of_summary,
)
from evalstats_plugin.errors import LogError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


SUMMARIES = "summaries.json"


_JOURNAL = "_journal/summaries/"


_CONFIG = "_journal/config_updates/"


_SAMPLES = "samples/"


_CHUNKED = "/sample.json"


_BLOCK = 1 << 16
"""Read at a time, of what is unpacked no further than asked."""


_BLOCK_ZSTANDARD = 1 << 12
"""It can make 32,000 bytes of one, and unpacks all of a block at once."""


_BATCH = 1 << 26
"""Bytes of samples that are unpacked at a time."""


Edit = Callable[[bytes], bytes]


# Of a summary: what says nothing about scores, and would be shortened again by Inspect, which
# takes it 10 s for 20,000 samples.
_LEFT_OUT = ("model_usage", "role_usage", "description", "model_fallbacks")


_LEFT_OUT_OF_SCORES = ("answer", "explanation", "metadata", "history")


Fields = Collection[str]


ReadTakes = Callable[[Fields], list[Take]]
"""Reads the takes, with some fields of the items' metadata."""


_READ_BLOCK = 1 << 24


class Archive:
    """An open ``.eval`` log."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.path = path
        # Method 93 (zstandard) is unknown to zipfile until Inspect has taught it.
        guard.load_inspect()
        self._zip = ZipFile(file)
        if len(self._zip.filelist) > guard.MAX_MEMBERS:
            msg = f"{path} has {len(self._zip.filelist)} members, expected {guard.MAX_MEMBERS}"
            raise LogError(msg)
        # Of members of one name the last counts, for Inspect too.
        self._members = self._zip.NameToInfo

    @property
    def header_members(self) -> list[ZipInfo]:
        """The header, or what stands in for it until a run has ended."""
        if HEADER in self._members:
            return [self._members[HEADER]]
        return [m for n, m in self._members.items() if n == START or n.startswith(_CONFIG)]

    @property
    def summary_members(self) -> list[ZipInfo]:
        """The summaries of all samples, or the journal they were collected in."""
        if SUMMARIES in self._members:
            return [self._members[SUMMARIES]]
        return [m for n, m in self._members.items() if n.startswith(_JOURNAL)]

    @property
    def sample_members(self) -> list[ZipInfo]:
        """The samples that are whole."""
        return [
            m
            for n, m in self._members.items()
            if n.startswith(_SAMPLES) and n.endswith(".json") and n.count("/") == 1
        ]

    @property
    def is_chunked(self) -> bool:
        """Whether some samples are stored in pieces, which Inspect itself cannot read yet."""
        return any(n.startswith(_SAMPLES) and n.endswith(_CHUNKED) for n in self._members)

    @contextmanager
    def header(self) -> Generator[str, None, None]:
        """Give a log that holds the header only."""
        with self._copied({}) as log:
            yield log

    @contextmanager
    def summaries(self, edit: Edit) -> Generator[str, None, None]:
        """Give a log that holds the summaries, each file of them edited."""
        members = self.summary_members
        total = sum(m.file_size for m in members)
        guard.check_size(total, guard.MAX_SUMMARIES, "summaries", self.path)
        with self._copied({m.filename: m for m in members}, guard.MAX_SUMMARIES, edit) as log:
            yield log

    def sample_batches(self) -> Iterator[AbstractContextManager[str]]:
        """Give logs that hold some of the samples each."""
        batch: dict[str, ZipInfo] = {}
        size = 0
        for member in self.sample_members:
            guard.check_size(member.file_size, guard.MAX_SAMPLE, member.filename, self.path)
            if batch and size + member.file_size > _BATCH:
                yield self._copied(batch, guard.MAX_SAMPLE)
                batch, size = {}, 0
            batch[member.filename] = member
            size += member.file_size
        if batch:
            yield self._copied(batch, guard.MAX_SAMPLE)

    @contextmanager
    def _copied(
        self, members: dict[str, ZipInfo], limit: int = 0, edit: Edit | None = None
    ) -> Generator[str, None, None]:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log.eval"
            with ZipFile(log, "w", ZIP_STORED) as target:
                self._copy(self.header_members, target, guard.MAX_HEADER, None)
                self._copy(members.values(), target, limit, edit)
            yield str(log)

    def _copy(
        self, members: Iterable[ZipInfo], target: ZipFile, limit: int, edit: Edit | None
    ) -> None:
        for member in members:
            content = self._content(member, limit)
            if edit is not None:
                whole = b"".join(content)
                guard.check_density(whole, member.filename, self.path)
                target.writestr(member.filename, edit(whole))
                continue
            with target.open(member.filename, "w", force_zip64=True) as out:
                for block in content:
                    out.write(block)

    def _content(self, member: ZipInfo, limit: int) -> Iterator[bytes]:
        name = member.filename
        guard.check_size(member.file_size, limit, name, self.path)
        largest = max(guard.RATIO_FROM, guard.MAX_RATIO * member.compress_size)
        guard.check_size(member.file_size, largest, name, self.path)
        # With a larger size declared, zipfile reads on to the true end.
        measured = copy.copy(member)
        measured.file_size = member.file_size + 1
        size = 0
        bounded = member.compress_type in (ZIP_STORED, ZIP_DEFLATED)
        at_once = _BLOCK if bounded else _BLOCK_ZSTANDARD
        with self._zip.open(measured) as source:
            while block := source.read(at_once):
                size += len(block)
                if size > member.file_size:
                    break
                yield block
        if size != member.file_size:
            msg = f"{self.path}: {name} is not as long as the archive says; it may be a trap"
            raise LogError(msg)


def version_in(log: str) -> int:
    """Return the schema version of a log with its header only."""
    with ZipFile(log) as archive:
        name = HEADER if HEADER in archive.NameToInfo else START
        version: Any = json.loads(archive.read(name)).get("version")
    return version if isinstance(version, int) else 0


def slim(fields: Iterable[str]) -> Edit:
    """Return an edit that leaves out of summaries all but scores and some metadata fields.

    What does not look like summaries is left as it is, for Inspect to judge.
    """
    kept = {f for field in fields for f in (field, field.partition(".")[0])}
    every = EVERY in kept

    def edit(content: bytes) -> bytes:
        found: Any = from_bytes(content)
        if not isinstance(found, list):
            return content
        for summary in cast("list[Any]", found):
            if isinstance(summary, dict):
                _slim_one(cast("dict[str, Any]", summary), None if every else kept)
        return to_bytes(cast("list[Any]", found))

    return edit


def _slim_one(summary: dict[str, Any], kept: set[str] | None) -> None:
    for key in _LEFT_OUT:
        summary.pop(key, None)
    metadata = summary.get("metadata")
    if isinstance(metadata, dict) and kept is not None:
        found = cast("dict[str, Any]", metadata)
        summary["metadata"] = {k: v for k, v in found.items() if k in kept}
    scores = summary.get("scores")
    if isinstance(scores, dict):
        for score in cast("dict[str, Any]", scores).values():
            if isinstance(score, dict):
                for key in _LEFT_OUT_OF_SCORES:
                    cast("dict[str, Any]", score).pop(key, None)


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
            while block := source.read(_READ_BLOCK):
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
