"""Files of Every Eval Ever: recognition by content, versions, and what they say of models.

`load_aggregate` parses and checks an aggregate file, `instances_of` finds its instances;
`metric_of` and `settings_of` name metric and model settings. Files that we annotate have our block
in each result (`block_of`, `logged_results`); files that we export have more details (`extra_of`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import LogFile, parse_json, section

HARNESS = "every_eval_ever"

READ = ("0.2", "0.3")
"""Versions of the schema that can be read; only the latest is written and annotated."""

WRITTEN = "0.3.0"
SAMPLES = "_samples.jsonl"

KEY = "evalstats"
"""Key of our block in the score details of a result."""

ORIGINAL = "original"
"""Key in the block: the score details before the annotation."""

EXTRA = "evalstats"
"""Key of a metric's additional details in exported files: what the schema has no field for."""

Json = Mapping[str, Any]
Settings = tuple[tuple[str, str], ...]
_KEYS = (b'"schema_version"', b'"evaluation_id"')
_OF_AGGREGATE = (b'"evaluation_results"', b'"retrieved_timestamp"')
_OF_INSTANCE = b'"sample_id"'

# The schema itself contains all of its keys, but begins with "$schema".
_OBJECT = re.compile(rb'\s*\{(?!\s*"\$schema"\s*:)')
_VERSION = re.compile(r"(\d+)\.(\d+)")
_LONGEST_NAME = 60

# Details that distinguish models of one name, as converters write them.
_OF_MODEL = ("dtype", "precision", "quantization", "revision", "sha")
_OF_RUN = ("temperature", "top_p", "top_k", "max_tokens", "reasoning", "num_fewshot")


def find_logs(files: Sequence[LogFile]) -> dict[Path, list[Path]]:
    """Return aggregate files with their instances, and instance files without aggregate."""
    aggregates = [f.path for f in files if f.path.suffix == ".json" and is_aggregate(f)]
    logs: dict[Path, list[Path]] = {path: [] for path in aggregates}
    by_stem = {path.stem: path for path in aggregates}
    for file in (f for f in files if f.path.suffix == ".jsonl"):
        if aggregate := by_stem.get(_stem(file.path)):
            logs[aggregate].append(file.path)
        elif is_instances(file):
            logs[file.path] = []
    return logs


def is_aggregate(log: LogFile) -> bool:
    """Whether a file is an aggregate file, by its first bytes."""
    head = log.head
    mine = all(key in head for key in _KEYS) and any(key in head for key in _OF_AGGREGATE)
    return mine and _OBJECT.match(head) is not None and not is_instances(log)


def is_instances(log: LogFile) -> bool:
    """Whether a file holds instances, one per line."""
    line = log.head.lstrip().partition(b"\n")[0]
    return line[:1] == b"{" and all(key in line for key in (*_KEYS, _OF_INSTANCE))


def _stem(instances: Path) -> str:
    return instances.name.removesuffix(".jsonl").removesuffix("_samples")


def load_aggregate(log: LogFile) -> Json | None:
    """Parse an aggregate file; None if the file is no aggregate file.

    Raises
    ------
    LogError
        It is cut off, not UTF-8, of another version of the schema, or lacks a required field.
    """
    if not is_aggregate(log):
        return None
    path = log.path
    parsed = parse_json(log.read_bytes(), path)
    if not isinstance(parsed, dict):
        return None
    aggregate = cast("Json", parsed)
    check_version(aggregate.get("schema_version"), str(path))
    wanted = {"model_info": dict, "evaluation_results": list, "evaluation_id": str}
    for name, kind in wanted.items():
        if not isinstance(aggregate.get(name), kind):
            raise LogError(f"{path} has no {name}, which the schema of Every Eval Ever asks for")
    if not isinstance(aggregate["model_info"].get("id"), str):
        raise LogError(f"{path} does not name its model (model_info.id)")
    for number, result in enumerate(aggregate["evaluation_results"], 1):
        score = section(result, "score_details").get("score")
        if not is_number(score) or not isinstance(section(result).get("evaluation_name"), str):
            raise LogError(
                f"{path}: evaluation result {number} has no evaluation_name or no number as "
                f"score_details.score (it is {score!r})"
            )
    return aggregate


def check_version(version: object, where: str) -> tuple[int, int]:
    """Return the version of the schema, such as ``(0, 3)``; raise `LogError` if not supported."""
    match = _VERSION.search(str(version))
    if match is None or f"{match[1]}.{match[2]}" not in READ:
        raise LogError(
            f"{where} is of schema version {version!r} of Every Eval Ever. Convert it to "
            f"{' or '.join(READ)} with that project's own tools."
        )
    return int(match[1]), int(match[2])


def instances_of(path: Path, aggregate: Json) -> Path | None:
    """Return the file of an aggregate's instances, None if it is not found.

    The aggregate names it by its path in the public database. Only a part of that database may have
    been copied: so the folder of the aggregate is searched first.
    """
    named = str(section(aggregate, "detailed_evaluation_results").get("file_path") or "")
    names = [Path(named).name] if named else []
    beside = [path.with_name(n) for n in (*names, path.stem + SAMPLES, path.stem + ".jsonl")]
    inside = named and not Path(named).is_absolute() and ".." not in Path(named).parts
    roots = [folder / named for folder in path.parents] if inside else []
    return next((p for p in (*beside, *roots) if p != path and p.is_file()), None)


def aggregate_beside(instances: Path) -> Path | None:
    """Return the aggregate file that a file of instances belongs to."""
    by_name = instances.with_name(_stem(instances) + ".json")
    if by_name.is_file() and is_aggregate(LogFile(by_name)):
        return by_name
    for path in sorted(instances.parent.glob("*.json")):
        aggregate = load_aggregate(LogFile(path))
        if aggregate is not None and instances_of(path, aggregate) == instances:
            return path
    return None


def metric_of(result: Json) -> str:
    """Return the name of a result's metric, from the first of three fields that converters use.

    Some repeat the name of the task there; the kind of the metric is its name then.
    """
    config, task = section(result, "metric_config"), str(result.get("evaluation_name"))
    named = config.get("metric_name")
    if named == task:
        named = config.get("metric_kind") or named
    names = (named, config.get("metric_id"), config.get("evaluation_description"))
    shown = (str(n).removesuffix(f" on {task}") for n in names if n)
    return next((n for n in shown if len(n) <= _LONGEST_NAME), "score")


def settings_of(aggregate: Json, result: Json) -> Settings:
    """Return settings that distinguish models of one name, such as platform and sampling."""
    model = section(aggregate, "model_info")
    engine = section(model, "inference_engine")
    details = section(model, "additional_details")
    config = section(result, "generation_config")
    run: dict[str, Any] = {
        **section(config, "additional_details"),
        **section(config, "generation_args"),
    }
    named = {
        "platform": model.get("inference_platform"),
        "engine": " ".join(str(v) for v in (engine.get("name"), engine.get("version")) if v),
        **{key: details.get(key) for key in _OF_MODEL},
        **{f"task.{key}": run.get(key) for key in _OF_RUN},
    }
    return tuple(sorted((k, str(v)) for k, v in named.items() if v not in (None, "")))


def extra_of(result: Json) -> dict[str, Any] | None:
    """Return the extra details of a result in a file that we exported; None in other files."""
    text = section(result, "metric_config", "additional_details").get(EXTRA)
    return json.loads(text) if text else None


def block_of(result: Json) -> dict[str, Any] | None:
    """Return our block in a result, None if it is not annotated."""
    text = section(result, "score_details", "details").get(KEY)
    return json.loads(text) if isinstance(text, str) else None


def logged_results(aggregate: Json) -> list[Json]:
    """Return the results of a file as they were before any annotation."""
    logged: list[Json] = []
    for result in aggregate["evaluation_results"]:
        block = block_of(result)
        restored = {} if block is None else {"score_details": json.loads(block[ORIGINAL])}
        logged.append({**result, **restored})
    return logged


def is_number(value: object) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
