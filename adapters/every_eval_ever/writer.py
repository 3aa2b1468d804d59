"""Annotate an aggregate file: set the uncertainty of each result, or restore the original.

Only the score details of results that have an interval are replaced, in the text of the file
(`replaced`); everything around them keeps every byte. The original details are kept in our block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.every_eval_ever.layout import (
    KEY,
    ORIGINAL,
    WRITTEN,
    block_of,
    check_version,
    is_instances,
    load_aggregate,
    section,
)
from evalstats_plugin.adapters.every_eval_ever.reader import read_log, scale_of
from evalstats_plugin.data.responses import Selection
from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.logs.withholding import is_withheld
from evalstats_plugin.runtime import writing
from evalstats_plugin.runtime.files import LogFile, reporting_damage
from evalstats_plugin.runtime.writing import revision
from evalstats_plugin.scores.rows import ScoreInterval

Span = tuple[int, int]
"""Position of a value in a text: its first character and the one after its last."""

_BOM = b"\xef\xbb\xbf"

# The parts of an annotation whose rows are about one task and metric.
_OF_RESULT = (
    "intervals", "comparisons", "ranks", "abilities", "suspect_items", "pooled", "capabilities",
)  # fmt: skip
_INDENT = 4
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write an aggregate file with uncertainty (None: as it was) to ``output``.

    Returns None if the file is no aggregate file.

    Raises
    ------
    LogError
        The file is damaged, holds instances, or its version of the schema has no uncertainty.
    WriteError
        Items are to be annotated, or the file cannot be written.
    """
    if path.suffix == ".jsonl" and is_instances(LogFile(path)):
        msg = f"{path}: instances are never changed, annotate the aggregate file beside it"
        raise LogError(msg)
    read = revision(path)
    aggregate = load_aggregate(LogFile(path))
    if aggregate is None:
        return None
    if annotation is not None and annotation.items is not None and annotation.abilities is None:
        raise WriteError(
            f"{path}: files of instances have a checksum and are never changed, so items cannot be "
            "annotated; with --fit irt (in Python: fits=['irt']) results list the items to look at"
        )
    content = path.read_bytes()
    bom = content[: len(_BOM)] if content.startswith(_BOM) else b""
    with reporting_damage(path):
        text = stripped(content[len(bom) :].decode())
    if annotation is not None:
        if check_version(aggregate["schema_version"], str(path)) < check_version(WRITTEN, ""):
            raise LogError(
                f"{path} is of schema version {aggregate['schema_version']!r}, which has no place "
                f"for this uncertainty. Convert it to {WRITTEN} first."
            )
        text = _annotated(text, path, annotation)
    changed = bom + text.encode()
    if output.resolve() != path.resolve():
        return writing.write_bytes(output, changed, times_of=path)
    if changed == content:
        return output
    return writing.write_bytes(output, changed, over=read, times_of=path)


def stripped(text: str) -> str:
    """Return an aggregate file's text as it was before it was annotated."""
    results: Sequence[Mapping[str, Any]] = json.loads(text)["evaluation_results"]
    blocks = [block_of(result) for result in results]
    return replaced(
        text,
        _spans(text),
        lambda i, details: details if (block := blocks[i]) is None else block[ORIGINAL],
    )


def _annotated(text: str, path: Path, annotation: Annotation) -> str:
    # The tasks and metrics of the results, in their order.
    read = read_log(LogFile(path), Selection(header_only=True)) or []
    whole = annotation.block()
    rows = {(row.task, row.metric): row for row in annotation.intervals if row.kind == "task"}

    def new(i: int, details: str) -> str:
        task, metric = read[i].task, read[i].metric
        row = rows.get((task, metric))
        if row is None:
            return details
        has_interval = row.low is not None and row.high is not None
        if not (has_interval or is_withheld(row)):
            return details
        block = {k: v for k, v in whole.items() if k not in _OF_RESULT}
        for part in _OF_RESULT:
            of_metric = [each for each in whole[part] if each["metric"] == metric]
            # Rows over all tasks are about each task.
            block[part] = [each for each in of_metric if each.get("task") in (task, None, "")]
        block[ORIGINAL] = details
        score = json.loads(details)
        if has_interval:
            score = _with_uncertainty(score, row, rescore=annotation.rescore)
        dumped = json.dumps(block, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        score["details"] = {**section(score, "details"), KEY: dumped}
        if "\n" not in text.strip():
            return json.dumps(score, ensure_ascii=False, allow_nan=False)
        # Indented to its depth in the file.
        lines = json.dumps(score, indent=_INDENT, ensure_ascii=False, allow_nan=False)
        return lines.replace("\n", "\n" + " " * 3 * _INDENT)

    return replaced(text, _spans(text), new)


def _with_uncertainty(
    details: dict[str, Any], row: ScoreInterval, *, rescore: bool
) -> dict[str, Any]:
    """Return score details with the interval's uncertainty, in the units of the score."""
    assert row.estimate is not None and row.low is not None and row.high is not None  # noqa: S101, PT018
    scale = scale_of(float(details["score"]), row.estimate)
    if scale is None:
        if not rescore:
            return details
        details["score"], scale = row.estimate, 1.0
    kept: dict[str, Any] = dict(section(details, "uncertainty"))
    for name in ("standard_error", "num_bootstrap_samples"):
        kept.pop(name, None)
    if row.std_error is not None:
        method = "analytic" if row.n_clusters is None else "analytic, clustered"
        kept["standard_error"] = {"value": row.std_error * scale, "method": method}
    kept["confidence_interval"] = {
        "lower": row.low * scale,
        "upper": row.high * scale,
        "confidence_level": row.confidence_level,
        "method": row.method,
    }
    kept["num_samples"] = row.n_items
    return {**details, "uncertainty": kept}


def replaced(text: str, spans: list[Span], new: Callable[[int, str], str]) -> str:
    """Return a text in which each span is replaced by ``new(number, text)``."""
    parts: list[str] = []
    at = 0
    for number, (begin, end) in enumerate(spans):
        parts += [text[at:begin], new(number, text[begin:end])]
        at = end
    return "".join([*parts, text[at:]])


def _spans(text: str) -> list[Span]:
    """Return the positions of the score details of each result."""
    start = member(text, text.index("{"), "evaluation_results")[0]
    return [member(text, begin, "score_details") for begin, _ in entries(text, start)]


def member(text: str, start: int, name: str) -> Span:
    """Return the position of one value of an object: the last of its name, as in `json`."""
    return dict(members(text, start))[name]


def members(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """Yield the names and positions of the values of an object that begins at ``start``."""
    at = _after_space(text, start + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _after_space(text, _after_space(text, at) + 1)
        _, end = _DECODER.raw_decode(text, begin)
        yield name, (begin, end)
        at = _after_comma(text, end)


def entries(text: str, start: int) -> Iterator[Span]:
    """Yield the positions of the values of a list that begins at ``start``."""
    at = _after_space(text, start + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _after_comma(text, end)


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _after_comma(text: str, at: int) -> int:
    at = _after_space(text, at)
    return _after_space(text, at + 1) if text[at] == "," else at
