"""Which files belong to one lm-eval run, under every layout since 0.4.0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.lm_eval import shape
from evalstats_plugin.adapters.lm_eval.block import without_block
from evalstats_plugin.errors import LogError
from evalstats_plugin.json_text import parsed

_STAMP = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
_RESULTS_NAME = re.compile(rf"results_{_STAMP}\.json")
_ENDS_IN_STAMP = re.compile(rf"_({_STAMP})\.json$")
_SAMPLES_NAME = re.compile(rf"samples_(.+)_({_STAMP})\.jsonl")
_RESULTS_FIRST = re.compile(rb'\s*\{\s*"results"\s*:\s*\{')
_VERSION_KEY = b'"lm_eval_version"'
_SNIFFED = 65536


def find_logs(folder: Path) -> list[Path]:
    """Return the results files directly in a folder, and samples files without one."""
    names = [p for p in sorted(folder.iterdir(), key=lambda p: p.name) if p.is_file()]
    logs = [p for p in names if p.suffix == ".json" and looks_like_results(p)]
    stamps = {stamp_of(p) for p in logs}
    orphans = [
        p for p in names if (m := _SAMPLES_NAME.fullmatch(p.name)) and m.group(2) not in stamps
    ]
    return [*logs, *orphans]


def looks_like_results(path: Path) -> bool:
    """Whether a file is lm-eval's, by its first bytes; a broken one by its name."""
    with path.open("rb") as file:
        head = file.read(_SNIFFED)
    if _RESULTS_FIRST.match(head) or (head.lstrip()[:1] == b"{" and _VERSION_KEY in head):
        return True
    return bool(_RESULTS_NAME.fullmatch(path.name))


def looks_like_samples(path: Path) -> bool:
    """Whether a file holds lm-eval's samples: the first record begins as they do."""
    with path.open("rb") as file:
        head = file.read(256).lstrip().removeprefix(b"[").lstrip()
    by_name = bool(_SAMPLES_NAME.fullmatch(path.name))
    return by_name or re.match(rb'\{\s*"doc_id"\s*:', head) is not None


def is_results(data: object) -> bool:
    """Whether a value is what lm-eval calls results."""
    if not isinstance(data, Mapping):
        return False
    return isinstance(data.get("results"), Mapping) and ("versions" in data or "configs" in data)  # pyright: ignore[reportUnknownMemberType]


def section(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return an object inside results, empty where it is missing or null."""
    found: Any = data
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return found if isinstance(found, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]


def stamp_of(path: Path) -> str:
    """Return the time in a results file's name, which its samples files share; or nothing."""
    found = _ENDS_IN_STAMP.search(path.name)
    return found.group(1) if found else ""


def load_results(path: Path) -> dict[str, Any] | None:
    """Parse a results file; None if it is somebody else's.

    Raises
    ------
    LogError
        When the file is named as lm-eval's, but is no JSON, or comes from lm-eval 0.3 or older.
    """
    if not looks_like_results(path):
        return None
    content = path.read_bytes()
    if not content.strip():
        msg = f"{path} is empty, expected lm-eval's results; the run may have been killed"
        raise LogError(msg)
    data = parsed(content, path)
    if not is_results(data):
        return None
    if "configs" not in data:
        msg = (
            f"{path} was written by lm-eval 0.3 or older, which logs neither items nor filters; "
            "run again with lm-eval 0.4.2 or later and --log_samples"
        )
        raise LogError(msg)
    shape.check(data, path)
    return without_block(data)


def results_beside(samples: Path) -> Path | None:
    """Return the results file of the run that wrote a samples file."""
    name = _SAMPLES_NAME.fullmatch(samples.name)
    if name is None:
        old = samples.with_name("results.json")
        return old if old.exists() else None
    for path in sorted(samples.parent.glob("*.json")):
        if stamp_of(path) == name.group(2) and looks_like_results(path):
            return path
    return None


def task_of(samples: Path, data: Mapping[str, Any]) -> str | None:
    """Return the task a samples file is of."""
    name = _SAMPLES_NAME.fullmatch(samples.name)
    if name is not None:
        return name.group(1)
    by_path = {samples_path(samples.with_name("results.json"), t, data): t for t in data["configs"]}
    return by_path.get(samples)


def samples_path(results: Path, task: str, data: Mapping[str, Any]) -> Path:
    """Return where a run logged the samples of a task, whether or not it did."""
    stamp = stamp_of(results)
    # lm-eval cannot log samples of a task with a slash in its name, and no name leads elsewhere.
    task = task.replace("/", "_")
    if stamp:
        return results.with_name(f"samples_{task}_{stamp}.jsonl")
    # 0.4.0 to 0.4.2: named after the model's arguments, no time anywhere.
    arguments = section(data, "config").get("model_args") or ""
    return results.with_name(f"{re.sub('/|=', '__', str(arguments))}_{task}.jsonl")
