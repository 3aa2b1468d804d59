"""Samples files, streamed: of each line the ids, the hashes, the metric values and the cluster.

A line holds the whole few-shot prompt once per choice, often 95 % of its length, before the fields
that are needed. So each line is cut at its last ``, "filter": "`` and only the tail is parsed. This
is sound: quotes inside JSON strings are escaped, so the bytes cannot occur in a text, and a tail
without ``target_hash`` (a metric value that is an object with such a key) is parsed in full.

The second part is about the values that are logged: scores, pairs and labels of items, lm-eval's
own errors, and groups of tasks. What an item's value is (a score, a pair for a ratio, two labels)
does not follow from the metric's name (drop's f1 is a number, that of multiple choice a pair): the
``as_`` functions look at the values, `aggregation_of` at the task. `disagreement` compares logged
means and standard errors with the items, by lm-eval's formulas. `Tree` is the groups of tasks of
one run.

The third part is about texts: `texts_of` finds the question, the target and the answer of samples.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.measure import agree
from evalstats_plugin.data.responses import Weighting
from evalstats_plugin.errors import LogError
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.logs.texts import together, with_response
from evalstats_plugin.runtime.files import field_of, parse_line, section

MAX_LINE = 1 << 28
"""Bytes of the longest line; far above any real one (64 answers of 16,000 tokens are 4 MB)."""


MAX_NAME = 1000
"""Characters of the longest item id or hash."""


_BUFFER = 1 << 20


_TAIL = b', "filter": "'
_TAIL_WITH_RESPONSES = b', "filtered_resps": '
"""The same with the answers, of which multiple choice has one for each choice."""


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


_SPARSEST = 64
"""Cells allowed per score when rows of repeats are padded to one length."""


# lm-eval's aggregations where a task names none, if not the mean (0.4.13, api/metrics.py).
_REGISTRY = {
    "acc_all": "acc_all",
    "bits_per_byte": "bits_per_byte",
    "bleu": "bleu",
    "brier_score": "brier_score",
    "byte_perplexity": "weighted_perplexity",
    "bypass": "bypass",
    "chrf": "chrf",
    "chrf++": "chrf++",
    "f1": "f1",
    "likelihood": "likelihood",
    "mcc": "matthews_corrcoef",
    "perplexity": "perplexity",
    "ter": "ter",
    "word_perplexity": "weighted_perplexity",
}


_CHOSEN = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")
"""Metrics of multiple choice that are 1 where the right choice was chosen, and else 0."""


_UNIT = ("acc", "exact_match", "pass@")
"""How the names of metrics begin whose scores lie in [0, 1], whatever the task."""


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
    records = _records(path, in_full=in_full, tail=tail)
    return collect(records, filters, str(path), cluster, by=by, choices=choices)


def read_records(path: Path, wanted: Collection[str] | None = None) -> Iterator[Mapping[str, Any]]:
    """Yield samples of a file of any layout in full; raises `LogError` as `read_samples`.

    Of all items, or of those wanted: ids as text. The lines of others are not parsed.
    """
    records = _records(path, in_full=True, wanted=wanted)
    return (record for _, i, record in records if wanted is None or str(i) in wanted)


def numbered(path: Path) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield line number, item id and sample in full; raises `LogError` as `read_samples`."""
    return _records(path, in_full=True)


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


def _records(
    path: Path, *, in_full: bool, tail: bytes = _TAIL, wanted: Collection[str] | None = None
) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield line number, item id and sample."""
    with path.open("rb", buffering=_BUFFER) as file:
        is_list = file.read(64).lstrip()[:1] == b"["
        file.seek(0)
        if is_list:
            yield from _records_of_list(file.read(), path)
        else:
            yield from _records_of_lines(file, path, in_full=in_full, tail=tail, wanted=wanted)


def _records_of_list(content: bytes, path: Path) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Read the layout of 0.4.0 to 0.4.2: one JSON list, despite the name .jsonl."""
    try:
        records = json.loads(content)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not a JSON list of samples ({error}); it may have been cut off"
        raise LogError(msg) from error
    yield from number_records(records, str(path))


def _records_of_lines(
    file: BinaryIO, path: Path, *, in_full: bool, tail: bytes, wanted: Collection[str] | None
) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    loads, find_id = json.loads, _DOC_ID.match
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        cut = -1 if in_full else line.rfind(tail)
        head = find_id(line)
        if wanted is not None and head is not None and head.group(1).decode() not in wanted:
            continue
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
        msg = f"{where} is longer than {MAX_LINE >> 20} MiB: it holds more than one sample"
        raise LogError(msg)
    record = parse_line(line, where)
    if "doc_id" not in record:
        raise LogError(f"{where} has no doc_id, so it is not a sample of lm-eval")
    return record


def cluster_field(asked: str | None, config: Mapping[str, Any]) -> str | None:
    """Return the doc field that names clusters: the caller's, else the task's ``cluster_key``."""
    return asked or section(config, "metadata").get("cluster_key")


def as_number(value: Any) -> float | None:
    """Read one logged number: a JSON number or boolean, or the text of one; None if it is neither.

    lm-eval up to 0.4.12 writes NumPy values as texts, and "N/A" where there is no number.
    """
    if isinstance(value, str):
        if value in ("True", "False"):
            return float(value == "True")
        try:
            return float(value)
        except ValueError:
            return None
    if value is None or isinstance(value, (list, tuple, dict)):
        return None
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


def as_scores(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Read the scores of all items, shape (M,), NaN where missing; None if they are no scores."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        numbers = [math.nan if v is None else as_number(v) for v in values]
        return None if None in numbers else np.array(numbers, dtype=np.float64)
    return array if array.ndim == 1 else None


def as_pairs(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Read (log-likelihood, length) pairs, shape (M, 2); None if they are no pairs."""
    rows = [(math.nan, math.nan) if v is None else v for v in values]
    try:
        array = np.asarray(rows, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        return None
    return array if array.ndim == 2 and array.shape[1] == 2 else None


def as_answers(values: Sequence[Any]) -> NDArray[Any] | None:
    """Read (expected, answered) labels or texts, shape (M, 2), None where missing.

    None if the values are no such pairs.
    """
    rows: list[tuple[Any, Any]] = []
    for value in values:
        pair = (None, None) if value is None else value
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:  # pyright: ignore[reportUnknownArgumentType]
            return None
        rows.append((_plain(pair[0]), _plain(pair[1])))
    if all(row == (None, None) for row in rows):
        return None
    answers = np.empty((len(rows), 2), dtype=object)
    for i, row in enumerate(rows):
        answers[i, 0], answers[i, 1] = row
    return answers


def _plain(value: Any) -> Any:
    """Return a label as a Python value; in results in memory, labels are NumPy numbers."""
    return cast("Any", value).item() if isinstance(value, np.generic) else value


def brier_scores(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Compute Brier scores, shape (M,), from (target, log-likelihoods) or (target, probabilities).

    As lm-eval does: the sum over the choices of (probability − 1 for the target)². None if the
    values are no such pairs.
    """
    scores = np.full(len(values), np.nan)
    of_size: dict[int, list[tuple[int, int, Any]]] = {}
    try:
        for i, value in enumerate(values):
            if value is not None:
                target, given = value
                if not 0 <= target < len(given):
                    return None
                of_size.setdefault(len(given), []).append((i, index(target), given))
        for rows in of_size.values():
            places, targets, all_given = zip(*rows, strict=True)
            numbers = np.array(all_given, dtype=np.float64)
            # Probabilities are never all 0.
            logs = (numbers <= 0).all(axis=1)
            if ((numbers < 0) | (numbers > 1))[~logs].any():
                return None
            exponents = np.exp(numbers[logs] - numbers[logs].max(axis=1, keepdims=True))
            numbers[logs] = exponents / exponents.sum(axis=1, keepdims=True)
            numbers[np.arange(len(rows)), targets] -= 1
            scores[list(places)] = np.einsum("mk,mk->m", numbers, numbers)
    except (IndexError, OverflowError, TypeError, ValueError):
        return None
    return scores


def repeat_scores(rows: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    """Read scores of repeats, shape (M, R), NaN where an item has fewer; None if not scores."""
    if not all(r is None or isinstance(r, Sequence) for r in rows):
        return None
    sizes = [len(r) for r in rows if r is not None]
    width = max(sizes, default=0)
    # One very long row would make the whole array as wide.
    if width * len(rows) > _SPARSEST * (sum(sizes) + _SPARSEST):
        return None
    scores = np.full((len(rows), width), np.nan)
    for i, row in enumerate(rows):
        row_scores = as_scores(row or [])
        if row_scores is None:
            return None
        scores[i, : len(row_scores)] = row_scores
    return scores if width else None


def kind_of(values: Sequence[Any]) -> str:
    """Describe, for messages, what was logged instead of a score."""
    value = next((v for v in values if v is not None and as_scores([v]) is None), None)
    if isinstance(value, (list, tuple)):
        inner = {"text" if isinstance(v, str) else type(v).__name__ for v in value}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return f"a list of {len(value)}: {', '.join(sorted(inner))}"  # pyright: ignore[reportUnknownArgumentType]
    return {"dict": "an object", "str": "a text"}.get(type(value).__name__, type(value).__name__)


def aggregation_of(metric: str, config: Mapping[str, Any]) -> str:
    """Return the name of a metric's aggregation; ``"custom"`` for the task's own function."""
    for entry in config.get("metric_list") or ():
        if entry.get("metric") == metric and entry.get("aggregation") is not None:
            name = str(entry["aggregation"])
            return name if name.isidentifier() or name == "chrf++" else "custom"
    return _REGISTRY.get(metric, "mean")


def mean_and_stderr(scores: NDArray[Any]) -> tuple[float, float]:
    """Return what lm-eval's ``mean`` and ``mean_stderr`` give for items that have a value.

    The standard error is s/√n with n − 1, NaN for n < 2 (lm-eval writes "N/A"). The dtype of the
    scores is kept: a task that scores in float32 logs values rounded as float32.
    """
    present = scores[~np.isnan(scores)]
    n = len(present)
    if n == 0:
        return math.nan, math.nan
    with np.errstate(invalid="ignore", over="ignore"):
        mean = present.sum() / present.dtype.type(n)
        if n < 2:
            return float(mean), math.nan
        squares = ((present - mean) ** 2).sum()
    return float(mean), math.sqrt(squares / present.dtype.type(n - 1)) / math.sqrt(n)


def disagreement(
    scores: NDArray[np.float64], logged: float | None, logged_stderr: float | None
) -> str | None:
    """Describe how a logged mean or standard error disagrees with the items; None if it agrees.

    Parameters
    ----------
    scores : shape (M,)
    logged, logged_stderr
        None where nothing was logged, or where lm-eval does not compute it from the items alone.
    """
    with np.errstate(over="ignore"):
        exact, rounded = (mean_and_stderr(scores.astype(d)) for d in (np.float64, np.float32))
    wrong = [
        f"{name} {value:.6g} where its items give {exact[i]:.6g}"
        for i, (name, value) in enumerate((("value", logged), ("stderr", logged_stderr)))
        if value is not None and not same(exact[i], value) and not same(rounded[i], value)
    ]
    return f"the log has {' and '.join(wrong)}" if wrong else None


def contradiction(metric: str, value: float | None, stderr: float | None, n: int) -> str | None:
    """Describe how a logged mean and its standard error contradict each other; None if not.

    A standard error of 0 means that every item has the same score. Scores from 0 to 1 with the mean
    p have one of √(p(1 − p)/(n − 1)) at most.

    >>> contradiction("acc", 0.5, 0.0, 100)
    'stderr 0 means that each of the 100 items scored 0.5; it may be left from another scoring'
    """
    if value is None or stderr is None or n < 2 or not 0 <= value <= 1:
        return None
    if stderr == 0 and 0 < value < 1:
        return (
            f"stderr 0 means that each of the {n} items scored {value:.6g}; it may be left from "
            "another scoring"
        )
    most = math.sqrt(value * (1 - value) / (n - 1))
    if metric.startswith(_UNIT) and stderr > most * (1 + 1e-6) + 1e-9:
        return (
            f"stderr {stderr:.6g} is more than {most:.6g}, the most that {n} scores from 0 to 1 "
            f"with the mean {value:.6g} can have"
        )
    return None


def same(a: float, b: float) -> bool:
    """Whether two numbers agree up to rounding; NaN agrees with NaN."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return agree(a, b)


def pooled_stderr(stderrs: Sequence[float], sizes: Sequence[float]) -> float:
    """Return lm-eval's standard error of a micro mean: ``pooled_sample_stderr``."""
    s, n = np.asarray(stderrs), np.asarray(sizes, dtype=np.float64)
    variance = ((n - 1) * s**2 * n).sum() / (n.sum() - len(n))
    return math.sqrt(variance / n.sum())


def unweighted_stderr(stderrs: Sequence[float]) -> float:
    """Return lm-eval's standard error of a macro mean (0.4.13): ``unweighted_mean_stderr``."""
    return math.sqrt(sum(s**2 for s in stderrs)) / len(stderrs)


class Tree:
    """The groups of tasks of one run, in the order of lm-eval's own table."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.results: Mapping[str, Any] = data["results"]
        self.sizes: Mapping[str, Any] = data.get("n-samples") or {}
        # Up to 0.4.11 plain tasks are listed too, without children.
        subtasks: Mapping[str, list[str]] = data.get("group_subtasks") or {}
        self.children = {name: sorted(inside) for name, inside in subtasks.items() if inside}
        self._around: dict[str, tuple[str, ...]] = {}
        contained = {child for inside in self.children.values() for child in inside}
        for root in sorted(self.children):
            if root not in contained:
                self._visit(root, ())
        for task in sorted(self.results):
            if task not in self.children:
                self._around.setdefault(task, ())

    def _visit(self, name: str, around: tuple[str, ...]) -> None:
        if name not in self.children:
            self._around.setdefault(name, around)
            return
        for child in self.children[name]:
            if child not in around:
                self._visit(child, (*around, name))

    def tasks(self) -> list[str]:
        """Return the tasks, not groups, in table order: those in groups first, top down."""
        return [task for task in self._around if task in self.results]

    def groups_around(self, task: str) -> tuple[str, ...]:
        """Return the groups that contain a task, outermost first."""
        return self._around.get(task, ())

    def leaves(self, group: str) -> Iterator[str]:
        """Yield the tasks of a group and of its subgroups."""
        for child in self.children.get(group, ()):
            if child in self.children:
                yield from self.leaves(child)
            else:
                yield child

    def n_tasks(self, group: str, key: str) -> int:
        """Count the tasks of a group that have a metric."""
        return sum(key in (self.results.get(task) or {}) for task in self.leaves(group))

    def weighting(self, group: str, key: str) -> tuple[Weighting, tuple[str, ...]]:
        """Return a group's weighting, and a note if its logged value is neither mean.

        The weighting is not logged; it is inferred from the group's logged value, and where tasks
        of one value leave it open, from those of its other metrics.
        """
        fits = self._fits(group, key)
        if isinstance(fits, str):
            return "micro", (fits,)
        if len(fits) > 1:
            logged = self.results.get(group, {})
            others = [k for k in logged if k != key and not k.partition(",")[0].endswith("_stderr")]
            of_others = [self._fits(group, other) for other in others]
            alone = [each for each in of_others if not isinstance(each, str) and len(each) == 1]
            fits = alone[0] if alone else fits
        return (fits[0] if len(fits) == 1 else "either"), ()

    def _fits(self, group: str, key: str) -> Sequence[Literal["micro", "macro"]] | str:
        """Return the weightings that give the logged value; or what is wrong with it."""
        logged = as_number(self.results.get(group, {}).get(key))
        if logged is None:
            return ("micro",)
        tasks = [t for t in self.leaves(group)
                 if as_number(section(self.results, t).get(key)) is not None]  # fmt: skip
        values = [as_number(self.results[task][key]) or 0.0 for task in tasks]
        sizes = [self.size(task) for task in tasks]
        if not values:
            return "mismatch: no task of this group has the metric"
        if not all(sizes) or len(set(sizes)) == 1:
            return ("micro",)  # up to 0.4.2 the numbers of items are not logged
        micro = sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)
        macro = sum(values) / len(values)
        means: dict[Literal["micro", "macro"], float] = {"micro": micro, "macro": macro}
        fits: list[Literal["micro", "macro"]] = [
            name for name, value in means.items() if same(value, logged)
        ]
        return fits or (
            f"mismatch: the log has value {logged:.6g} where its tasks give {micro:.6g} weighted "
            f"by items and {macro:.6g} unweighted"
        )

    def size(self, task: str) -> float:
        """Return the number of items that lm-eval weights a task by."""
        logged = self.results.get(task, {}).get("sample_len")
        return float(self.sizes.get(task, {}).get("effective", logged) or 0)


def texts_of(records: Iterable[Mapping[str, Any]]) -> dict[str, ItemText]:
    """Return the texts of samples by item id as text; several filters of an item are one."""
    by_item: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        filters = by_item.setdefault(str(record["doc_id"]), {})
        filters[str(record.get("filter", f"filter {len(filters) + 1}"))] = record
    return {item: _text_of(item, filters) for item, filters in by_item.items()}


def _text_of(item: str, filters: Mapping[str, Mapping[str, Any]]) -> ItemText:
    first = next(iter(filters.values()))
    choices = _choices(_requests(first))
    if choices:
        answer = _chosen(first, choices)
    else:
        answers = {name: _answer(r.get("filtered_resps")) for name, r in filters.items()}
        response = _alone(_alone(first.get("resps")))
        # Several responses are repeats, of which the filters have what counts.
        response = response if isinstance(response, str) else ""
        answer = with_response(together(answers), response)
    return ItemText(
        _question(first, choices), _target(first.get("target"), choices), answer, f"doc_id {item}"
    )


def _requests(record: Mapping[str, Any]) -> list[list[Any]]:
    """Return what was sent for a sample: a prompt, and a continuation or settings, for each."""
    logged = record.get("arguments")
    every: Any = cast("Any", logged).values() if isinstance(logged, dict) else logged
    parts: list[Any] = list(every) if isinstance(logged, list | dict) else []
    requests: list[Any] = [list(p.values()) if isinstance(p, dict) else p for p in parts]  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return [cast("list[Any]", p) for p in requests if isinstance(p, list) and p]


def _choices(requests: Sequence[Sequence[Any]]) -> list[str]:
    """Return the choices of multiple choice; [] for one request, or for other kinds."""
    texts = [tuple(r[:2]) for r in requests if all(isinstance(part, str) for part in r[:2])]
    if len(texts) < max(2, len(requests)) or any(len(pair) < 2 for pair in texts):
        return []
    if len({after for _, after in texts}) == 1:
        return [before for before, _ in texts]  # the choice comes first, the text goes on alike
    # acc_mutual_info asks for each choice a second time, without the question.
    return [after for before, after in texts if before == texts[0][0]]


def _chosen(record: Mapping[str, Any], choices: Sequence[str]) -> str:
    """Return the most likely choice, and the most likely by length where that is scored too."""
    try:
        logged = np.array([float(r[0]) for r in record["filtered_resps"][: len(choices)]])
        chosen = {"acc": choices[int(logged.argmax())].strip()}
        if "acc_norm" in record:
            lengths = np.array([max(len(choice), 1) for choice in choices])
            chosen["acc_norm"] = choices[int((logged / lengths).argmax())].strip()
    except (TypeError, ValueError, IndexError, KeyError):
        return _shown(record.get("filtered_resps"))
    return together(chosen)


def _answer(filtered: Any) -> str:
    """Return an answer as filtered: a text, a log-likelihood, or those of several repeats."""
    value = _alone(_alone(filtered))
    if not isinstance(value, list):
        return _shown(value)
    parts = cast("list[Any]", value)
    if len(parts) == 2 and str(parts[1]) in ("True", "False"):
        likeliest = "the likeliest text" if str(parts[1]) == "True" else "another text is likelier"
        return f"log-likelihood {_shown(parts[0]):.8}, {likeliest}"
    return together({f"repeat {i}": _shown(part) for i, part in enumerate(parts, 1)})


def _question(record: Mapping[str, Any], choices: Sequence[str]) -> str:
    """Return the prompt from where the doc's own text begins in it: without examples before it."""
    requests = _requests(record)
    prompt = requests[0][0] if requests and isinstance(requests[0][0], str) else ""
    doc = record.get("doc")
    fields: list[Any] = list(doc.values()) if isinstance(doc, dict) else [doc]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    texts = sorted((f.strip() for f in fields if isinstance(f, str)), key=len, reverse=True)
    if prompt.lstrip().startswith("[{"):
        prompt = _last_message(prompt)
    if choices and prompt in choices:
        prompt = ""  # one of several beginnings
    for text in texts:
        start = prompt.rfind(text) if text else -1
        if start >= 0:
            return prompt[prompt.rfind("\n", 0, start) + 1 :].strip()
    return prompt.strip() or next(iter(texts), "")


def _last_message(prompt: str) -> str:
    """Return the last message of a user, of a prompt that is a list of messages as JSON."""
    try:
        messages: Any = json.loads(prompt)
        return str([m["content"] for m in messages if m["role"] == "user"][-1])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return prompt


def _target(target: Any, choices: Sequence[str]) -> str:
    """Return the target; for multiple choice, the text of the choice whose number is logged."""
    number = as_number(target)
    if choices and number in range(len(choices)):
        return choices[int(number or 0)].strip()
    return _shown(target)


def _alone(value: Any) -> Any:
    """Return the one element of a list, any other value as it is."""
    elements: Any = value
    return elements[0] if isinstance(value, list) and len(elements) == 1 else elements


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
