"""Open a log: its header, and its samples, read on demand in the cheapest way that suffices.

`opened` gives the header of a log and a function that reads samples: from the summaries if these
say enough, else from the samples themselves. Inspect never sees the archive (`Archive`) but copies
of the members that it needs. Each is measured while it is copied, because the size that an archive
declares can be false, and two readers can be made to see different members of one archive.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from evalstats_plugin.adapters.inspect_ai.archive import guard
from evalstats_plugin.adapters.inspect_ai.archive.members import (
    Edit,
    elements,
    from_bytes,
    in_parts,
    to_bytes,
)
from evalstats_plugin.adapters.inspect_ai.archive.samples import (
    COSTS,
    EVERY,
    EXCLUDED,
    SCORES,
    LoggedSample,
    from_sample,
    from_summary,
)
from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.untrusted import printable_name
from evalstats_plugin.runtime.writing import scratch_folder

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample


Fields = Collection[str]

ReadSamples = Callable[[Fields], list[LoggedSample]]
"""Reads the samples, with some fields of their metadata."""

_CONFIG = "_journal/config_updates/"
_CHUNKED = "/sample.json"

_BLOCK = 1 << 16
"""Bytes unpacked at a time, by methods that stop after a given number of bytes."""

_BLOCK_ZSTANDARD = 1 << 12
"""Bytes at a time of zstandard, which unpacks a whole block, up to 32,000 times as many bytes."""

_PART = 1000
"""Summaries that Inspect reads at a time; most logs have fewer."""

_BATCH = 1 << 26
"""Bytes of samples that are unpacked at a time."""

_JSON_BLOCK = 1 << 24

# Fields of a summary that say nothing about scores, nor about costs; Inspect would shorten them
# again, which takes 10 s for 20,000 samples.
_LEFT_OUT = ("description", "model_fallbacks")
_USAGE = (COSTS, "role_usage")
_LEFT_OUT_OF_SCORES = ("answer", "explanation", "metadata", "history")


@contextmanager
def opened(
    log: LogFile, form: guard.Form, *, header_only: bool
) -> Generator[tuple[EvalLog, ReadSamples], None, None]:
    """Give a log's header, and a function that reads its samples.

    Raises
    ------
    LogError
        The log is damaged, too large or of a later format.
    """
    if form == "json":
        whole = _read_json(log, header_only=header_only)
        yield whole, lambda fields: [from_sample(s, fields) for s in whole.samples or ()]
        return
    with log.open() as file:
        with guard.parsing(log.path):
            archive = Archive(file, log.path)
            header = _read_header(archive)
        yield header, lambda fields: _read_samples(archive, header, fields)


def read_outputs(
    log: LogFile, form: guard.Form, items: Mapping[str, Collection[str]]
) -> tuple[str, list[EvalSample]]:
    """Return a log's task, and the samples, with their output, of those of its items asked for.

    None are of a log that keeps its samples in pieces, which Inspect cannot read yet.

    Raises
    ------
    LogError
        The log is damaged, too large or of a later format.
    """
    if form == "json":
        whole = _read_json(log, header_only=False)
        task = printable_name(whole.eval.task)
        samples = whole.samples or []
    else:
        with log.open() as file, guard.parsing(log.path):
            archive = Archive(file, log.path)
            task = printable_name(_read_header(archive).eval.task)
            wanted = () if archive.is_chunked else items.get(task, ())
            samples = list(_from_archive(archive, EXCLUDED - {"output"}, wanted))
    # A damaged archive holds a sample under the name of another.
    return task, [s for s in samples if printable_name(str(s.id)) in items.get(task, ())]


def _read_json(log: LogFile, *, header_only: bool) -> EvalLog:
    with guard.parsing(log.path), json_copy(log) as copy:
        return guard.load_inspect().read_eval_log(copy, header_only=header_only)


@contextmanager
def json_copy(log: LogFile) -> Generator[str, None, None]:
    """Give a temporary copy of a ``.json`` log with the keys in the order that Inspect needs.

    Inspect reads no header whose version stands after the samples, as in a log with sorted keys. It
    also caches the last log it read by file name, even if the file has changed.
    """
    path = log.path
    guard.check_size(path.stat().st_size, guard.MAX_JSON, "the file", path)
    with scratch_folder() as folder:
        copy = folder / "log.json"
        with log.open() as source, copy.open("wb") as target:
            blocks = iter(partial(source.read, _JSON_BLOCK), b"")
            for block in guard.without_traps(blocks, "the file", path):
                target.write(block)
        if not guard.IN_ORDER.match(log.head):
            document: dict[str, Any] = from_bytes(copy.read_bytes())
            first = {
                name: document[name] for name in ("version", "status", "eval") if name in document
            }
            last = {name: document[name] for name in ("samples", "reductions") if name in document}
            rest = {k: v for k, v in document.items() if k not in first and k not in last}
            copy.write_bytes(to_bytes({"version": guard.FORMAT, **first, **rest, **last}))
        yield str(copy)


def _read_header(archive: Archive) -> EvalLog:
    inspect = guard.load_inspect()
    with archive.header() as copy:
        try:
            return inspect.read_eval_log(copy, header_only=True)
        except Exception:
            with ZipFile(copy) as log:
                name = guard.HEADER if guard.HEADER in log.NameToInfo else guard.START
                version: Any = json.loads(log.read(name)).get("version")
            # Of a log in a later format its version says more than what Inspect misses in it.
            guard.check_version(version if isinstance(version, int) else 0, archive.path)
            raise


def _read_samples(archive: Archive, log: EvalLog, fields: Fields) -> list[LoggedSample]:
    with guard.parsing(archive.path):
        # Summaries do not say which samples were invalidated, nor everything about a score.
        if not log.invalidated and not any(f.startswith(SCORES) for f in fields):
            samples = _from_summaries(archive, fields)
            if samples and not any(sample.is_cut for sample in samples):
                return samples
            if not samples and not archive.sample_members and not archive.is_chunked:
                return []
        if archive.is_chunked:
            raise LogError(
                f"{archive.path} keeps its samples in pieces, which inspect_ai cannot read yet, "
                "and its summaries do not tell enough; write it again with 'inspect log convert'"
            )
        return [from_sample(sample, fields) for sample in _from_archive(archive, EXCLUDED)]


def _from_summaries(archive: Archive, fields: Fields) -> list[LoggedSample]:
    inspect = guard.load_inspect()
    # Of a sample that was run again the last summary counts, as for Inspect.
    by_sample: dict[tuple[str, int], LoggedSample] = {}
    for part in archive.summaries(slim(fields)):
        with part as copy:
            for summary in inspect.read_eval_log_sample_summaries(copy):
                by_sample[str(summary.id), summary.epoch] = from_summary(summary, fields)
    return list(by_sample.values())


def slim(fields: Collection[str]) -> Callable[[Any], Any]:
    """Return an edit that keeps of a summary only scores and some metadata fields.

    A summary of another shape is left as it is; Inspect then reports the error.
    """
    kept = {f for field in fields for f in (field, field.partition(".")[0])}
    left_out = _LEFT_OUT if COSTS in fields else (*_USAGE, *_LEFT_OUT)

    def edit(summary: object) -> object:
        if not isinstance(summary, dict):
            return summary
        document = cast("dict[str, Any]", summary)
        for key in left_out:
            document.pop(key, None)
        metadata = document.get("metadata")
        if isinstance(metadata, dict) and EVERY not in kept:
            values = cast("dict[str, Any]", metadata)
            document["metadata"] = {k: v for k, v in values.items() if k in kept}
        scores = document.get("scores")
        if isinstance(scores, dict):
            for score in cast("dict[str, Any]", scores).values():
                if isinstance(score, dict):
                    for key in _LEFT_OUT_OF_SCORES:
                        cast("dict[str, Any]", score).pop(key, None)
        return document

    return edit


def _from_archive(
    archive: Archive, excluded: set[str], wanted: Collection[str] | None = None
) -> Iterator[EvalSample]:
    """Yield all samples, or those of some items, without some fields."""
    inspect = guard.load_inspect()
    for batch in archive.sample_batches(wanted):
        with batch as copy:
            part: Any = inspect.read_eval_log(copy, exclude_fields=excluded)
            yield from part.samples


class Archive:
    """An open ``.eval`` log."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.path = path
        # Importing Inspect teaches zipfile method 93 (zstandard).
        guard.load_inspect()
        self._zip = ZipFile(file)
        if len(self._zip.filelist) > guard.MAX_MEMBERS:
            msg = f"{path} has {len(self._zip.filelist)} members, more than {guard.MAX_MEMBERS}"
            raise LogError(msg)
        # Of several members with one name the last counts, for Inspect too.
        self._members = self._zip.NameToInfo

    @property
    def sample_members(self) -> list[ZipInfo]:
        """The samples that are not stored in pieces."""
        return [
            m
            for n, m in self._members.items()
            if n.startswith(guard.SAMPLES) and n.endswith(".json") and n.count("/") == 1
        ]

    @property
    def is_chunked(self) -> bool:
        """Whether some samples are stored in pieces, which Inspect itself cannot read yet."""
        return any(n.startswith(guard.SAMPLES) and n.endswith(_CHUNKED) for n in self._members)

    def header(self) -> AbstractContextManager[str]:
        """Give a temporary log that holds only the header."""
        return self._copied({})

    def summaries(self, edit: Edit) -> Iterator[AbstractContextManager[str]]:
        """Give temporary logs, each with a part of the summaries, which are edited."""
        whole = self._members.get(guard.SUMMARIES)
        journal = [m for n, m in self._members.items() if n.startswith(guard.JOURNAL)]
        total = sum(m.file_size for m in (journal if whole is None else [whole]))
        guard.check_size(total, guard.MAX_SUMMARIES, "summaries", self.path)
        if whole is not None:
            for part in in_parts(map(edit, self._elements(whole)), _PART):
                yield self._copied({}, edited={guard.SUMMARIES: part})
        elif journal:
            # All in one log, because Inspect finds out whether one of a journal is missing.
            edited = {m.filename: [*map(edit, self._elements(m))] for m in journal}
            yield self._copied({}, edited=edited)

    def _elements(self, member: ZipInfo) -> Iterator[Any]:
        content = self._content(member, guard.MAX_SUMMARIES)
        return elements(guard.without_traps(content, member.filename, self.path))

    def sample_batches(
        self, wanted: Collection[str] | None = None
    ) -> Iterator[AbstractContextManager[str]]:
        """Give temporary logs, each with a part of the samples, of all items or of some."""
        batch: dict[str, ZipInfo] = {}
        size = 0
        for member in self.sample_members:
            if wanted is not None and _item_in(member.filename) not in wanted:
                continue
            guard.check_size(member.file_size, guard.MAX_SAMPLE, member.filename, self.path)
            if batch and size + member.file_size > _BATCH:
                yield self._copied(batch)
                batch, size = {}, 0
            batch[member.filename] = member
            size += member.file_size
        if batch:
            yield self._copied(batch)

    @contextmanager
    def _copied(
        self, samples: dict[str, ZipInfo], edited: Mapping[str, object] | None = None
    ) -> Generator[str, None, None]:
        if guard.HEADER in self._members:
            header = [self._members[guard.HEADER]]
        else:
            # The journal that replaces it until a run has ended.
            names = [n for n in self._members if n == guard.START or n.startswith(_CONFIG)]
            header = [self._members[n] for n in names]
        with scratch_folder() as folder:
            log = folder / "log.eval"
            with ZipFile(log, "w", ZIP_STORED) as target:
                self._copy(header, target, guard.MAX_HEADER)
                self._copy(samples.values(), target, guard.MAX_SAMPLE)
                for name, value in (edited or {}).items():
                    target.writestr(name, to_bytes(value))
            yield str(log)

    def _copy(self, members: Iterable[ZipInfo], target: ZipFile, limit: int) -> None:
        for member in members:
            with target.open(member.filename, "w", force_zip64=True) as out:
                for block in self._content(member, limit):
                    out.write(block)

    def _content(self, member: ZipInfo, limit: int) -> Iterator[bytes]:
        guard.check_member(member, limit, self.path)
        # With a larger declared size, zipfile reads on to the true end.
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
            name = member.filename
            msg = f"{self.path}: {name} is not as long as the archive says; it may be a trap"
            raise LogError(msg)


def _item_in(member: str) -> str:
    """Return the item that a sample is of, by the name that Inspect gives its file.

    >>> _item_in("samples/arith/7_epoch_2.json")
    'arith/7'
    """
    return printable_name(member.removeprefix(guard.SAMPLES).rpartition("_epoch_")[0])
