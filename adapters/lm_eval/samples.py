"""Samples files, streamed: of each line the ids, the hashes, the metric values and the cluster.

A line holds the whole few-shot prompt once per choice, often 95 % of its length, before the fields
that are needed. So each line is cut at its last ``, "filter": "`` and only the tail is parsed. This
is sound: quotes inside JSON strings are escaped, so the bytes cannot occur in a text, and a tail
without ``target_hash`` (a metric value that is an object with such a key) is parsed in full.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.lm_eval.values import as_scores
from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import field_of, parse_line

MAX_LINE = 1 << 28
"""Bytes of the longest line; far above any real one (64 answers of 16,000 tokens are 4 MB)."""

MAX_NAME = 1000
"""Characters of the longest item id or hash."""

_BUFFER = 1 << 20

_TAIL = b', "filter": "'

_TAIL_WITH_RESPONSES = b', "filtered_resps": '
"""The same with the answers: multiple choice has one for each choice."""

_DOC_ID = re.compile(rb'\{"doc_id": (-?\d+), ')

HASHES = ("doc_hash", "prompt_hash", "target_hash")
"""What the checksum of a task (``task_hashes``) is made of, line by line."""

BRIER = "brier_score"
"""The metric whose items are logged as text, rounded: they are computed from log-likelihoods."""

_FIXED = frozenset(
    {
        "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
        "doc_hash", "prompt_hash", "target_hash", "scores_per_repeat",
    }
)  # fmt: skip

_CHOSEN = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info")
"""Metrics of multiple choice that are 1 where the right choice was chosen, and else 0.

``exact_match`` is not one of them: it is 1 where the right choice is what the model would write.
"""


def read_samples(
    path: Path,
    filters: Sequence[str],
    cluster: str | None = None,
    *,
    by: str | None = None,
    likelihoods: bool = False,
    choices: bool = False,
) -> Samples:
    """Read one samples file of any layout, by filter.

    Parameters
    ----------
    filters
        Names of the task's filters, for layouts before 0.4.7, which do not log them: there the
        k-th line of an item belongs to the k-th filter.
    cluster, by
        Fields of the doc to read too, as dotted paths; lines are then parsed in full.
    likelihoods
        Also read the log-likelihoods that Brier scores come from.
    choices
        Also count the choices of each item: of multiple choice.

    Raises
    ------
    LogError
        A line is cut off, not JSON, not UTF-8, too long, or a duplicate.
    """
    tail = _TAIL_WITH_RESPONSES if choices or likelihoods else _TAIL
    in_full = cluster is not None or by is not None
    records = numbered(path, tail=None if in_full else tail)
    return collect(records, filters, str(path), cluster, by=by, choices=choices)


def read_records(path: Path, wanted: Collection[str] | None = None) -> Iterator[Mapping[str, Any]]:
    """Yield samples of a file of any layout in full; raises `LogError` as `read_samples`.

    Of all items, or of those wanted: ids as text. The lines of others are not parsed.
    """
    records = numbered(path, wanted=wanted)
    return (record for _, i, record in records if wanted is None or str(i) in wanted)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one task."""

    by_filter: Mapping[str, FilterSamples]
    checksum: str = ""
    """As lm-eval logs it in ``task_hashes``, over all lines; empty where a line has no hashes."""

    @property
    def n_items(self) -> int:
        """Items of the filter that has most: all have the same in a whole file."""
        return max((len(column.doc_ids) for column in self.by_filter.values()), default=0)


@dataclass(slots=True)
class FilterSamples:
    """The samples of one task under one filter, as columns of equal length."""

    doc_ids: list[Any] = field(default_factory=list[Any])
    doc_hashes: list[str | None] = field(default_factory=list[str | None])
    prompt_hashes: list[str | None] = field(default_factory=list[str | None])
    values: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Per metric, the values as logged; None where a line lacks the metric."""
    repeats: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """Per metric, the scores of each repeat, where logged."""
    clusters: list[str | None] = field(default_factory=list[str | None])
    """The field of the doc that names the item's cluster; empty if none was requested."""
    tags: list[str | None] = field(default_factory=list[str | None])
    """The field of the doc that makes slices, alike."""
    n_choices: list[int] = field(default_factory=list[int])
    """Number of choices of each item, 0 where unknown; empty if not requested."""
    seen: set[Any] = field(default_factory=set[Any])

    def add(self, record: Mapping[str, Any], doc_id: Any) -> None:
        """Append one line."""
        row = len(self.doc_ids)
        self.doc_ids.append(doc_id)
        self.seen.add(doc_id)
        self.doc_hashes.append(record.get("doc_hash"))
        self.prompt_hashes.append(record.get("prompt_hash"))
        names = record.get("metrics")
        logged: Iterable[str] = (k for k in record if k not in _FIXED) if names is None else names
        for name in logged:
            value = record.get(name)
            if name == BRIER:
                value = _with_likelihoods(value, record.get("filtered_resps"))
            _put(self.values.setdefault(name, []), row, value)
        repeats: Mapping[str, Any] = record.get("scores_per_repeat") or {}
        for name, scores in repeats.items():
            _put(self.repeats.setdefault(name, []), row, scores)

    def chance(self, metric: str) -> NDArray[np.float64] | None:
        """P(right) of a choice at random, shape (M,), NaN where unknown; None if it is of none."""
        if metric not in _CHOSEN or max(self.n_choices, default=0) < 2:
            return None
        # acc_mutual_info asks for each choice a second time, without the question.
        n = np.array(self.n_choices) // (2 if "acc_mutual_info" in self.values else 1)
        scores = as_scores(self.values[metric])
        if scores is None or not np.isin(scores[~np.isnan(scores)], (0, 1)).all():
            return None
        return np.where(n > 1, 1 / np.maximum(n, 1), np.nan)

    def finish(self) -> None:
        """Pad all columns to the same length."""
        for column in (*self.values.values(), *self.repeats.values()):
            column.extend([None] * (len(self.doc_ids) - len(column)))


def _with_likelihoods(value: Any, responses: Any) -> Any:
    """Return (target, log-likelihoods) in place of (target, probabilities as text)."""
    try:
        target, probabilities = value
        # acc_mutual_info asks for as many again.
        n_choices = len(str(probabilities).strip("[]").split())
        return target, [float(response[0]) for response in responses[:n_choices]]
    except (TypeError, ValueError, IndexError, KeyError):
        return value


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
    *,
    by: str | None = None,
    choices: bool = False,
) -> Samples:
    """Group records (line number, item id, sample) by filter, each item once per filter."""
    by_filter: dict[str, FilterSamples] = {}
    n_lines: dict[Any, int] = {}
    digest, complete = hashlib.sha256(), True
    number, record = 0, dict[str, Any]()
    try:
        for number, doc_id, record in records:
            name = record.get("filter")
            if name is None:
                nth = n_lines.get(doc_id, 0)
                n_lines[doc_id] = nth + 1
                if nth >= len(filters):
                    raise LogError(
                        f"{where}: line {number} is line {nth + 1} of item {doc_id}, but the task "
                        f"has {len(filters)} filter{'s'[: len(filters) > 1]} "
                        f"({', '.join(filters)}); two runs may have been appended to one file"
                    )
                name = filters[nth]
            samples = by_filter.get(name)
            if samples is None:
                samples = by_filter[name] = FilterSamples()
            if doc_id in samples.seen:
                raise LogError(
                    f"{where}: line {number} repeats item {doc_id} under filter {name!r}; "
                    "two runs may have been appended to one file: remove one of them"
                )
            samples.add(record, doc_id)
            hashes: list[Any] = [record.get(which) for which in HASHES]
            complete = complete and None not in hashes
            if complete:
                digest.update("".join(hashes).encode(errors="surrogatepass"))
            if cluster is not None:
                samples.clusters.append(field_of(record.get("doc"), cluster))
            if by is not None:
                samples.tags.append(field_of(record.get("doc"), by))
            if choices:
                samples.n_choices.append(len(record.get("filtered_resps") or ()))
    except (AttributeError, TypeError) as error:
        # Checking the type of each field would take longer than reading the file.
        hashes = [name for name in HASHES if not isinstance(record.get(name), str)]
        names = ("doc_id", "filter", "metrics", "scores_per_repeat", *hashes)
        shown = ", ".join(f"{name} {record[name]!r:.40}" for name in names if name in record)
        raise LogError(
            f"{where}: line {number} is not a sample as lm-eval logs it ({shown or 'no fields'}): "
            "it needs an id, the name of a filter, a list of metrics and an object of scores"
        ) from error
    for samples in by_filter.values():
        samples.finish()
        _check_names(samples, where)
    if wrong := [name for name in by_filter if not isinstance(name, str)]:
        raise LogError(f"{where}: filter {wrong[0]!r:.40} is not a name")
    return Samples(by_filter, digest.hexdigest() if complete and by_filter else "")


def _check_names(samples: FilterSamples, where: str) -> None:
    """Refuse item ids and hashes of a wrong type or length: an array is as wide as its longest."""
    for what, values, kinds in (
        ("doc_id", samples.doc_ids, {int, str}),
        ("doc_hash", samples.doc_hashes, {str, type(None)}),
        ("prompt_hash", samples.prompt_hashes, {str, type(None)}),
    ):
        wrong = set(map(type, values)) - kinds
        texts = [value for value in values if isinstance(value, str)]
        if wrong:
            example = next(value for value in values if type(value) in wrong)
            raise LogError(f"{where}: {what} {example!r:.40} is neither a text nor a whole number")
        if texts and max(map(len, texts)) > MAX_NAME:
            msg = f"{where}: {what} has {max(map(len, texts))} characters, which is no name"
            raise LogError(msg)


def number_records(
    records: Iterable[Any], where: str
) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield parsed samples with their number and item id."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or "doc_id" not in record:
            msg = f"{where}: record {number} has no doc_id, so it is not a sample of lm-eval"
            raise LogError(msg)
        yield number, record["doc_id"], record


def numbered(
    path: Path, *, tail: bytes | None = None, wanted: Collection[str] | None = None
) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield line number, item id and sample; raises `LogError` as `read_samples`.

    Samples are read in full, or from the last place of ``tail`` in their line.
    """
    with path.open("rb", buffering=_BUFFER) as file:
        is_list = file.read(64).lstrip()[:1] == b"["
        file.seek(0)
        if not is_list:
            yield from _records_of_lines(file, path, tail, wanted)
            return
        # The layout of 0.4.0 to 0.4.2: one JSON list, despite the name .jsonl.
        try:
            records = json.loads(file.read())
        except (ValueError, RecursionError) as error:
            msg = f"{path} is not a JSON list of samples ({error}); it may have been cut off"
            raise LogError(msg) from error
    yield from number_records(records, str(path))


def _records_of_lines(
    file: BinaryIO, path: Path, tail: bytes | None, wanted: Collection[str] | None
) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    # `json.loads` does the same, after looking for a byte order mark and spaces.
    decode, find_id = json.JSONDecoder().raw_decode, _DOC_ID.match
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        cut = -1 if tail is None else line.rfind(tail)
        head = find_id(line)
        if wanted is not None and head is not None and head.group(1).decode() not in wanted:
            continue
        if cut > 0 and head is not None:
            try:
                # Decoded first: `json` would guess the encoding of bytes, 25 % of the time.
                text = (b"{" + line[cut + 2 :]).decode()
                record, end = decode(text)
            except (ValueError, RecursionError):
                record, text, end = {}, "", 0
            if "target_hash" in record and not text[end:].strip():
                yield number, int(head.group(1)), record
                continue
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        if len(line) >= MAX_LINE:
            msg = f"{where} is longer than {MAX_LINE >> 20} MiB: it holds more than one sample"
            raise LogError(msg)
        record = parse_line(line, where)
        if "doc_id" not in record:
            raise LogError(f"{where} has no doc_id, so it is not a sample of lm-eval")
        yield number, record["doc_id"], record
