"""Samples files, streamed: of each line the ids, the hash, the metric values and the cluster.

A line holds the whole few-shot prompt once per choice, often 95 % of its length, before the fields
that are needed. So each line is cut at its last ``, "filter": "`` and only the tail is parsed. This
is sound: quotes inside JSON strings are escaped, so the bytes cannot occur in a text, and a tail
without ``target_hash`` (a metric value that is an object with such a key) is parsed in full.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.adapters.lm_eval.layout import section
from evalstats_plugin.errors import LogError

MAX_LINE = 1 << 28
"""Bytes of the longest line; far above any real one (64 answers of 16,000 tokens are 4 MB)."""

MAX_NAME = 1000
"""Characters of the longest item id or hash."""

_BUFFER = 1 << 20
_TAIL = b', "filter": "'
_DOC_ID = re.compile(rb'\{"doc_id": (-?\d+), ')

_FIXED = frozenset(
    {
        "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
        "doc_hash", "prompt_hash", "target_hash", "scores_per_repeat",
    }
)  # fmt: skip


def read_samples(
    path: Path, filters: Sequence[str], cluster: str | None = None
) -> dict[str, FilterSamples]:
    """Read one samples file of any layout, by filter.

    Parameters
    ----------
    filters
        Names of the task's filters, for layouts before 0.4.7, which do not log them: there the
        k-th line of an item belongs to the k-th filter.
    cluster
        Field of the doc to read too, as a dotted path; lines are then parsed in full.

    Raises
    ------
    LogError
        A line is cut off, not JSON, not UTF-8, too long, or a duplicate.
    """
    return collect(_records(path, in_full=cluster is not None), filters, str(path), cluster)


def read_records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the samples of a file of any layout in full; raises `LogError` as `read_samples`."""
    return (record for _, _, record in _records(path, in_full=True))


@dataclass(slots=True)
class FilterSamples:
    """The samples of one task under one filter, as columns of equal length."""

    doc_ids: list[Any] = field(default_factory=list[Any])
    doc_hashes: list[str | None] = field(default_factory=list[str | None])
    values: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Per metric, the values as logged; None where a line lacks the metric."""
    repeats: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Per metric, the scores of each repeat, where logged."""
    clusters: list[str | None] = field(default_factory=list[str | None])
    """The field of the doc that names the item's cluster; empty if none was requested."""
    seen: set[Any] = field(default_factory=set[Any])

    def add(self, record: Mapping[str, Any], doc_id: Any) -> None:
        """Append one line."""
        row = len(self.doc_ids)
        self.doc_ids.append(doc_id)
        self.seen.add(doc_id)
        self.doc_hashes.append(record.get("doc_hash"))
        names = record.get("metrics")
        logged: Iterable[str] = (k for k in record if k not in _FIXED) if names is None else names
        for name in logged:
            _put(self.values.setdefault(name, []), row, record.get(name))
        repeats: Mapping[str, Any] = record.get("scores_per_repeat") or {}
        for name, scores in repeats.items():
            _put(self.repeats.setdefault(name, []), row, scores)

    def finish(self) -> None:
        """Pad all columns to the same length."""
        for column in (*self.values.values(), *self.repeats.values()):
            column.extend([None] * (len(self.doc_ids) - len(column)))


def _put(column: list[Any], row: int, value: Any) -> None:
    # A line that names a metric twice still has one value of it.
    if len(column) <= row:
        column.extend([None] * (row - len(column)))
        column.append(value)


def collect(
    records: Iterable[tuple[int, Any, Mapping[str, Any]]],
    filters: Sequence[str],
    where: str,
    cluster: str | None = None,
) -> dict[str, FilterSamples]:
    """Group records (line number, item id, sample) by filter, each item once per filter."""
    found: dict[str, FilterSamples] = {}
    n_lines: dict[Any, int] = {}
    number, record = 0, dict[str, Any]()
    try:
        for number, doc_id, record in records:
            name = record.get("filter")
            if name is None:
                nth = n_lines.get(doc_id, 0)
                n_lines[doc_id] = nth + 1
                if nth >= len(filters):
                    msg = (
                        f"{where}: line {number} is line {nth + 1} of item {doc_id}, expected one "
                        f"for each filter ({', '.join(filters)})"
                    )
                    raise LogError(msg)
                name = filters[nth]
            samples = found.get(name)
            if samples is None:
                samples = found[name] = FilterSamples()
            if doc_id in samples.seen:
                msg = (
                    f"{where}: line {number} has item {doc_id} under filter {name!r} again, "
                    "expected each once; two runs may have been appended to one file"
                )
                raise LogError(msg)
            samples.add(record, doc_id)
            if cluster is not None:
                samples.clusters.append(field_of(record.get("doc"), cluster))
    except (AttributeError, TypeError) as error:
        # Checking the type of each field would take longer than reading the file.
        names = ("doc_id", "filter", "metrics", "scores_per_repeat")
        shown = ", ".join(f"{name} {record[name]!r:.40}" for name in names if name in record)
        msg = (
            f"{where}: line {number} holds {shown or 'none of its fields'}, expected a sample as "
            "lm-eval logs it: an id, the name of a filter, a list of metrics, an object of scores"
        )
        raise LogError(msg) from error
    for samples in found.values():
        samples.finish()
        _check_names(samples, where)
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise LogError(f"{where}: filter {wrong[0]!r:.40} found, expected the name of one")
    return found


def _check_names(samples: FilterSamples, where: str) -> None:
    """Refuse item ids and hashes of a wrong type or length: an array is as wide as its longest."""
    for what, values, kinds in (
        ("doc_id", samples.doc_ids, {int, str}),
        ("doc_hash", samples.doc_hashes, {str, type(None)}),
    ):
        wrong = set(map(type, values)) - kinds
        texts = [value for value in values if isinstance(value, str)]
        if wrong:
            found = next(value for value in values if type(value) in wrong)
            msg = f"{where}: {what} {found!r:.40} found, expected a text or a whole number"
            raise LogError(msg)
        if texts and max(map(len, texts)) > MAX_NAME:
            msg = f"{where}: {what} of {max(map(len, texts))} characters found, expected a name"
            raise LogError(msg)


def number_records(
    records: Iterable[Any], where: str
) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield parsed samples with their number and item id."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or "doc_id" not in record:
            msg = f"{where}: record {number} has no doc_id, expected a sample as lm-eval logs it"
            raise LogError(msg)
        yield number, record["doc_id"], record


def _records(path: Path, *, in_full: bool) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield line number, item id and sample."""
    with path.open("rb", buffering=_BUFFER) as file:
        first = file.read(64).lstrip()[:1]
    return _records_of_list(path) if first == b"[" else _records_of_lines(path, in_full=in_full)


def _records_of_list(path: Path) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Read the layout of 0.4.0 to 0.4.2: one JSON list, despite the name .jsonl."""
    try:
        records = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not a JSON list of samples ({error}); it may have been cut off"
        raise LogError(msg) from error
    yield from number_records(records, str(path))


def _records_of_lines(path: Path, *, in_full: bool) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    loads, find_id = json.loads, _DOC_ID.match
    number = 0
    with path.open("rb", buffering=_BUFFER) as file:
        while line := file.readline(MAX_LINE):
            number += 1
            cut = -1 if in_full else line.rfind(_TAIL)
            head = find_id(line)
            if cut > 0 and head is not None:
                try:
                    # Decoded first: `json` would guess the encoding of bytes, 25 % of the time.
                    record = loads((b"{" + line[cut + 2 :]).decode())
                except (ValueError, RecursionError):
                    record = {}
                if "target_hash" in record:
                    yield number, int(head.group(1)), record
                    continue
            if line.strip():
                record = _parse_in_full(line, path, number)
                yield number, record["doc_id"], record


def _parse_in_full(line: bytes, path: Path, number: int) -> dict[str, Any]:
    where = f"{path}: line {number}"
    if len(line) >= MAX_LINE:
        msg = f"{where} is longer than {MAX_LINE >> 20} MiB, expected one sample per line"
        raise LogError(msg)
    try:
        record: Any = json.loads(line)
    except UnicodeDecodeError as error:
        msg = f"{where} is not UTF-8 text ({error.reason} at byte {error.start} of the line)"
        raise LogError(msg) from error
    except json.JSONDecodeError as error:
        if line.endswith(b"\n"):
            msg = f"{where} is not JSON ({error.msg} at character {error.pos})"
        else:
            msg = (
                f"{where}, the last, is cut off: the run was killed while writing, or the copy is "
                "incomplete; run it again, or remove the line to go on without that item"
            )
        raise LogError(msg) from error
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits; thousands of nested brackets.
        raise LogError(f"{where} cannot be read as JSON ({error}); it may be damaged") from error
    if not isinstance(record, dict) or "doc_id" not in record:
        msg = f"{where} has no doc_id, expected a sample as lm-eval logs it"
        raise LogError(msg)
    return cast("dict[str, Any]", record)


def cluster_field(asked: str | None, config: Mapping[str, Any]) -> str | None:
    """Return the doc field that names clusters: the caller's, else the task's ``cluster_key``."""
    return asked or section(config, "metadata").get("cluster_key")


def field_of(doc: object, path: str) -> str | None:
    """Return a field of a doc as text, by a dotted path; None where there is none.

    >>> field_of({"idx": {"paragraph": 3}}, "idx.paragraph")
    '3'
    """
    for key in path.split("."):
        if not isinstance(doc, Mapping) or key not in doc:
            return None
        doc = doc[key]  # pyright: ignore[reportUnknownVariableType]
    return doc if isinstance(doc, str) else json.dumps(doc, sort_keys=True)
