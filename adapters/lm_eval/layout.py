"""Files of an lm-eval run, in every layout since 0.4.0, and the shape of a results file.

`find_logs`, `looks_like_results` and `is_samples` recognise files by first bytes; `load_results`
parses a results file, checks its shape once, so that no other code has to, and returns it as
lm-eval logged it: without our block, and with replaced values restored (`without_block`).
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import LogFile, parse_json, section

KEY = "evalstats"
"""Key of our block in a results file."""

Change = dict[str, Any]
"""A replaced value: task, key, the logged value as JSON text, the new value (null for "N/A")."""

_STAMP = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
# What browsers and file managers add to a second file of one name: " (1)", " - Copy".
_AGAIN = r"(?:[ (][^.]*)?"
_RESULTS_NAME = re.compile(rf"results_{_STAMP}{_AGAIN}\.json")
_ENDS_IN_STAMP = re.compile(rf"_({_STAMP}){_AGAIN}\.json$")
# Details of the Open LLM Leaderboard (v2) end in ".json", and hold lines or one list.
_SAMPLES_NAME = re.compile(rf"samples_(?P<task>.+)_(?P<stamp>{_STAMP}){_AGAIN}\.jsonl?")
# lmms-eval, which has lm-eval's formats and other names.
_LMMS_RESULTS = re.compile(r"(\d{8}_\d{6})_results\.json")
_LMMS_SAMPLES = re.compile(r"(?P<stamp>\d{8}_\d{6})_samples_(?P<task>.+)\.jsonl")
# 0.4.0 to 0.4.2: the model's arguments, with "=" and "/" as "__", and the task.
_OLD_SAMPLES_NAME = re.compile(r"(?:.*__.*)?_.+\.jsonl")

# Keys that no other harness has, some of them early in whatever order.
_OWN_KEYS = re.compile(
    rb'"(?:lm_eval_version|model_name_sanitized|task_hashes|n-shot|n-samples|doc_to_text'
    rb'|fewshot_as_multiturn|chat_template_sha)"\s*:'
)
_OF_LIGHTEVAL = b'"config_general"'
"""A key of lighteval's results, whose files have names like lm-eval's."""

_RESULTS_FIRST = re.compile(rb'\s*\{\s*"results"\s*:\s*\{')
_SAMPLES_FIRST = re.compile(rb'\s*\[?\s*\{\s*"doc_id"\s*:')
_SAMPLE_KEYS = tuple(re.compile(rb'"%b"\s*:' % key) for key in (b"doc_id", b"doc", b"arguments"))


def find_logs(files: Sequence[LogFile]) -> dict[Path, list[Path]]:
    """Return results files with their samples files, and samples files without a results file."""
    named = [f for f in files if f.path.suffix == ".json" and not _samples_name(f.path)]
    logs = [f.path for f in named if looks_like_results(f)]
    samples: dict[str, list[Path]] = {}
    for path in (f.path for f in files):
        if name := _samples_name(path):
            samples.setdefault(name["stamp"], []).append(path)
        elif _OLD_SAMPLES_NAME.fullmatch(path.name):
            samples.setdefault("", []).append(path)
    by_log = {log: samples.get(stamp_of(log), []) for log in logs}
    strays = [path for stamp in {*samples} - {"", *map(stamp_of, logs)} for path in samples[stamp]]
    return by_log | {path: [] for path in strays}


def looks_like_results(log: LogFile) -> bool:
    """Whether a file is lm-eval's, by its name or its first bytes, whatever the order of keys."""
    named = _RESULTS_NAME.fullmatch(log.path.name) or _RESULTS_FIRST.match(log.head)
    own = log.head.lstrip()[:1] == b"{" and _OWN_KEYS.search(log.head) is not None
    return _OF_LIGHTEVAL not in log.head and (bool(named) or own)


def is_samples(log: LogFile) -> bool:
    """Whether a file is to be read as samples: of a name or content that results do not have."""
    if log.path.suffix == ".json" and not stamp_of_samples(log.path):
        return False
    named = _samples_name(log.path) or _SAMPLES_FIRST.match(log.head)
    is_json = log.head.lstrip()[:1] in (b"{", b"[")
    return bool(named) or (is_json and all(key.search(log.head) for key in _SAMPLE_KEYS))


def _samples_name(path: Path) -> re.Match[str] | None:
    return _SAMPLES_NAME.fullmatch(path.name) or _LMMS_SAMPLES.fullmatch(path.name)


def is_results(data: object) -> bool:
    """Whether a value is a results object of lm-eval."""
    top = section(data)
    return isinstance(top.get("results"), Mapping) and ("versions" in top or "configs" in top)


def load_results(log: LogFile) -> dict[str, Any] | None:
    """Parse a results file as lm-eval logged it; None if it is not lm-eval's.

    Raises as `load_annotated`.
    """
    data = load_annotated(log)
    return None if data is None else without_block(data)


def load_annotated(log: LogFile, *, old: bool = False) -> dict[str, Any] | None:
    """Parse a results file, with our block where it has one; None if it is not lm-eval's.

    Raises
    ------
    LogError
        The file is damaged, not as lm-eval writes it, or, unless `old`, of lm-eval 0.3 or older.
    """
    if not looks_like_results(log):
        return None
    path, content = log.path, log.read_bytes()
    if not content.strip():
        raise LogError(f"{path} is empty: the run may have been killed while it wrote its results")
    data = parse_json(content, path)
    if not is_results(data):
        return None
    if "configs" not in data and not old:
        raise LogError(
            f"{path} was written by lm-eval 0.3 or older, which logs neither items nor filters; "
            "run again with lm-eval 0.4.2 or later and --log_samples"
        )
    check_shape({"configs": {}, **data}, path)
    return data


def check_shape(data: Mapping[str, Any], path: Path) -> None:
    """Raise `LogError` on the first part of results that is not of the type lm-eval writes."""
    for pattern, kind in _SHAPE:
        for where, value in _values_at(data, pattern.split(".")):
            if not _KINDS[kind](value):
                shown = repr(value)
                shown = shown if len(shown) <= 40 else shown[:40] + "…"
                msg = f"{path}: {where} is {shown} and not {kind}"
                raise LogError(f"{msg}, so lm-eval did not write it")


def _values_at(value: Any, keys: Sequence[str], where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values under keys, ``*`` for each: not missing ones or null, but at a ``KEY!``."""
    if not keys:
        yield where, value
        return
    key, rest = keys[0].rstrip("!"), keys[1:]
    if key == "*" and isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _values_at(each, rest, f"{where}: ")
    elif isinstance(value, Mapping):
        inside = cast("Mapping[str, Any]", value)
        for name in inside if key == "*" else (key,):
            if inside.get(name) is not None or keys[0].endswith("!"):
                dot = "." if where and not where.endswith(": ") else ""
                yield from _values_at(inside.get(name), rest, f"{where}{dot}{name}")


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, kind) for v in cast("list[Any]", value))


def _is_json(text: Any) -> bool:
    try:
        json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "an object": lambda v: isinstance(v, dict),
    "a list of objects": lambda v: _is_list_of(dict, v),
    "a list of names": lambda v: _is_list_of(str, v),
    "a text": lambda v: isinstance(v, str),
    "a number of items": lambda v: isinstance(v, (int, float)) and 0 <= v < math.inf,
    "true or false": lambda v: v in (True, False),
    "a value as JSON": _is_json,
}

_SHAPE = (
    ("results!", "an object"), ("configs!", "an object"), ("groups", "an object"),
    ("n-samples", "an object"), ("group_subtasks", "an object"), (KEY, "an object"),
    ("results.*!", "an object"), ("configs.*!", "an object"), ("groups.*!", "an object"),
    ("n-samples.*!", "an object"), ("group_subtasks.*!", "a list of names"),
    ("configs.*.filter_list", "a list of objects"), ("configs.*.metric_list", "a list of objects"),
    ("configs.*.filter_list.*.name", "a text"),
    ("configs.*.filter_list.*.filter", "a list of objects"),
    ("configs.*.metadata.cluster_key", "a text"),
    ("higher_is_better.*", "an object"), ("higher_is_better.*.*", "true or false"),
    ("n-samples.*.original", "a number of items"), ("n-samples.*.effective", "a number of items"),
    ("results.*.sample_len", "a number of items"),
    (f"{KEY}.rescored", "a list of objects"), (f"{KEY}.rescored.*.task!", "a text"),
    (f"{KEY}.rescored.*.key!", "a text"), (f"{KEY}.rescored.*.logged!", "a text"),
    (f"{KEY}.rescored.*.logged", "a value as JSON"),
)  # fmt: skip
"""What is read of results, and of what kind it must be."""


def without_block(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return results as lm-eval logged them: without our block, with replaced values restored."""
    block: dict[str, Any] = data.get(KEY) or {}
    clean = {key: value for key, value in data.items() if key != KEY}
    changes: list[Change] = block.get("rescored") or []
    if not changes:
        return clean
    clean = copy.deepcopy(clean)
    for change in changes:
        for place in places(clean, change["task"]):
            if change["key"] in place:
                place[change["key"]] = json.loads(change["logged"])
    return clean


def places(data: Mapping[str, Any], task: str) -> Iterator[dict[str, Any]]:
    """Yield every object in results that holds the values of a task or group."""
    for part in ("results", "groups"):
        inside: Mapping[str, Any] = data.get(part) or {}
        if task in inside:
            yield inside[task]


def filters_of(config: Mapping[str, Any]) -> list[str]:
    """Return the names of a task's filters, in order."""
    return [each["name"] for each in config.get("filter_list") or () if "name" in each] or ["none"]


def stderr_key(key: str) -> str:
    """Return the key of a metric's standard error.

    >>> stderr_key("acc,none")
    'acc_stderr,none'
    """
    name, _, filter_name = key.partition(",")
    return f"{name}_stderr,{filter_name}"


def stamp_of(path: Path) -> str:
    """Return the time in a results file's name, which its samples files share; "" if none."""
    match = _ENDS_IN_STAMP.search(path.name) or _LMMS_RESULTS.fullmatch(path.name)
    return match.group(1) if match else ""


def stamp_of_samples(path: Path) -> str:
    """Return the time in a samples file's name; "" if none."""
    name = _samples_name(path)
    return name["stamp"] if name else ""


def samples_path(results: Path, task: str, data: Mapping[str, Any]) -> Path:
    """Return where a run logs the samples of a task, whether or not the file exists."""
    stamp = stamp_of(results)
    # lm-eval cannot log samples of a task with a slash in its name; no name may lead elsewhere.
    task = task.replace("/", "_")
    if _LMMS_RESULTS.fullmatch(results.name):
        return results.with_name(f"{stamp}_samples_{task}.jsonl")
    if stamp:
        path = results.with_name(f"samples_{task}_{stamp}.jsonl")
        if path.exists():
            return path
        # With another ending, or as a browser named it.
        for other in sorted(path.parent.glob("samples_*.json*")):
            name = _SAMPLES_NAME.fullmatch(other.name)
            if name and (name["task"], name["stamp"]) == (task, stamp):
                return other
        return path
    # 0.4.0 to 0.4.2: named after the model's arguments, no time anywhere.
    arguments = section(data, "config").get("model_args") or ""
    return results.with_name(f"{re.sub('/|=', '__', str(arguments))}_{task}.jsonl")


def results_beside(samples: Path) -> Path | None:
    """Return the results file of the run that wrote a samples file, or None."""
    name = _samples_name(samples)
    if name is None:
        old = samples.with_name("results.json")
        return old if old.exists() else None
    for path in sorted(samples.parent.glob("*.json")):
        if stamp_of(path) == name["stamp"] and looks_like_results(LogFile(path)):
            return path
    return None


def task_of(samples: Path, data: Mapping[str, Any]) -> str | None:
    """Return the task that a samples file belongs to, or None."""
    name = _samples_name(samples)
    if name is not None:
        return name["task"]
    by_path = {samples_path(samples.with_name("results.json"), t, data): t for t in data["configs"]}
    return by_path.get(samples)


def samples_of(log: LogFile) -> tuple[dict[str, Any], dict[str, Path]] | None:
    """Return the results of a run, and its samples file of each task; None if it is not lm-eval's.

    Of a samples file alone the results are empty.
    """
    path = log.path
    if is_samples(log):
        beside = results_beside(path)
        data = (load_results(LogFile(beside)) if beside else None) or {}
        return data, {task_of(path, {"configs": {}, **data}) or path.stem: path}
    data = load_results(log)
    if data is None:
        return None
    logged = ((task, samples_path(path, task, data)) for task in section(data, "configs"))
    return data, {task: samples for task, samples in logged if samples.is_file()}
