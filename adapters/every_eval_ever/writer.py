"""Sets the uncertainty of each result of an aggregate file, and puts back what was there.

Only the score details of results that have an interval are written anew; everything around them
stays as it was to the byte, whatever its layout.
"""
# PART spans - Where values lie in the text of a JSON file, so that one can be replaced and the rest stays.

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from evalstats_plugin.adapters.every_eval_ever.instances import scale_of
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
from evalstats_plugin.adapters.every_eval_ever.reader import read_log
from evalstats_plugin.data.responses import Selection
from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.runtime import files
from evalstats_plugin.runtime.files import rebuilding
from evalstats_plugin.scores.rows import ScoreInterval

_BOM = b"\xef\xbb\xbf"


# The parts of an annotation that are of one task and metric.
_OF_RESULT = ("intervals", "comparisons", "ranks", "abilities", "suspect_items", "pooled")


_INDENT = 4


_DECODER = json.JSONDecoder()


_SPACE = re.compile(r"[ \t\r\n]*")


Span = tuple[int, int]
"""First character and the one after the last."""


def annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write an aggregate file with uncertainty (or as it was) to output; None for others' files.

    Raises
    ------
    LogError
        The file is of a version of the schema that has no place for it.
    WriteError
        Statistics of items are to be written, or the file cannot be.
    """
    if path.suffix == ".jsonl" and is_instances(path):
        msg = f"{path}: instances are never changed, annotate the aggregate file beside it"
        raise LogError(msg)
    read = files.revision(path)
    found = load_aggregate(path)
    if found is None:
        return None
    if annotation is not None and annotation.items is not None and annotation.abilities is None:
        msg = (
            f"{path}: files of instances have a checksum and are never changed, so items cannot be "
            "annotated; with --irt (in Python: irt=True) results list the items to look at"
        )
        raise WriteError(msg)
    content = path.read_bytes()
    bom = content[: len(_BOM)] if content.startswith(_BOM) else b""
    with rebuilding(path):
        text = stripped(content[len(bom) :].decode())
    if annotation is not None:
        if check_version(found["schema_version"], str(path)) < check_version(WRITTEN, ""):
            msg = (
                f"{path} is of schema version {found['schema_version']!r}, which has no place for "
                f"this uncertainty, expected {WRITTEN}: convert it first"
            )
            raise LogError(msg)
        text = _annotated(text, path, annotation)
    changed = bom + text.encode()
    if output.resolve() != path.resolve():
        return files.write_bytes(output, changed)
    return output if changed == content else files.write_bytes(output, changed, over=read)


def stripped(text: str) -> str:
    """Return an aggregate file's text as it was before it was annotated."""
    results: Sequence[Mapping[str, Any]] = json.loads(text)["evaluation_results"]
    blocks = [block_of(result) for result in results]
    return replaced(
        text,
        _spans(text),
        lambda i, details: details if (block := blocks[i]) is None else block[ORIGINAL],
    )


def _spans(text: str) -> list[Span]:
    """Return where the score details of each result lie."""
    start = member(text, text.index("{"), "evaluation_results")[0]
    return [member(text, begin, "score_details") for begin, _ in entries(text, start)]


def _annotated(text: str, path: Path, annotation: Annotation) -> str:
    # The results' own order and names, as they were read.
    read = read_log(path, Selection(header_only=True)) or []
    whole = annotation.block()
    rows = {(row.task, row.metric): row for row in annotation.intervals if row.kind == "task"}

    def new(i: int, details: str) -> str:
        key = read[i].task, read[i].metric
        row = rows.get(key)
        if row is None or row.low is None or row.high is None:
            return details
        block = {
            **{k: v for k, v in whole.items() if k not in _OF_RESULT},
            **{k: [x for x in whole[k] if _is_about(x, key)] for k in _OF_RESULT},
            ORIGINAL: details,
        }
        score = _scored(json.loads(details), row, rescore=annotation.rescore)
        score["details"] = {**section(score, "details"), KEY: _dumped(block)}
        return _laid_out(score, text)

    return replaced(text, _spans(text), new)


def _is_about(row: Mapping[str, Any], key: tuple[str, str]) -> bool:
    """Whether a row is of a task and metric; those over all tasks are of each."""
    return row["metric"] == key[1] and row["task"] in (key[0], None, "")


def _scored(details: dict[str, Any], row: ScoreInterval, *, rescore: bool) -> dict[str, Any]:
    """Return score details with the interval's uncertainty, in the units of the score.

    A score that its items contradict keeps its uncertainty: ours is of another number.
    """
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
        kept["standard_error"] = {"value": row.std_error * scale, "method": _error_method(row)}
    kept["confidence_interval"] = {
        "lower": row.low * scale,
        "upper": row.high * scale,
        "confidence_level": row.confidence_level,
        "method": row.method,
    }
    kept["num_samples"] = row.n_items
    return {**details, "uncertainty": kept}


def _error_method(row: ScoreInterval) -> Literal["analytic", "analytic, clustered"]:
    return "analytic" if row.n_clusters is None else "analytic, clustered"


def _dumped(block: Mapping[str, Any]) -> str:
    return json.dumps(block, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _laid_out(value: Mapping[str, Any], text: str) -> str:
    """Write an object as the file around it is: in one line, or indented as deep as it stands."""
    if "\n" not in text.strip():
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    lines = json.dumps(value, indent=_INDENT, ensure_ascii=False, allow_nan=False)
    return lines.replace("\n", "\n" + " " * 3 * _INDENT)


def members(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """Give the names and the places of the values of an object that begins at a character."""
    at = _after_space(text, start + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _after_space(text, _after_space(text, at) + 1)
        _, end = _DECODER.raw_decode(text, begin)
        yield name, (begin, end)
        at = _after_comma(text, end)


def entries(text: str, start: int) -> Iterator[Span]:
    """Give the places of the values of a list that begins at a character."""
    at = _after_space(text, start + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _after_comma(text, end)


def member(text: str, start: int, name: str) -> Span:
    """Return the place of one value of an object: the last of its name, as JSON has it."""
    return dict(members(text, start))[name]


def replaced(text: str, spans: list[Span], new: Callable[[int, str], str]) -> str:
    """Return a text with what is at some places replaced, given each one's number and text."""
    parts: list[str] = []
    at = 0
    for number, (begin, end) in enumerate(spans):
        parts += [text[at:begin], new(number, text[begin:end])]
        at = end
    return "".join([*parts, text[at:]])


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _after_comma(text: str, at: int) -> int:
    at = _after_space(text, at)
    return _after_space(text, at + 1) if text[at] == "," else at
