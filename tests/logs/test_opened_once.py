"""Reading a folder opens each of its files once, and loads what the logs' own adapter needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evalstats_plugin import export, read
from evalstats_plugin.logs import reading

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
RUN = LOGS / "lm_eval" / "0.4.13" / "out"

COUNTED = Path(__file__).with_name("counted_opens.py")


def _files_in(folder: Path) -> set[str]:
    return {str(p) for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}


def _open_files(folder: Path) -> int:
    held = (each.resolve() for each in Path("/proc/self/fd").iterdir())
    return sum(path.parent == folder for path in held)


def test_each_of_the_files_of_lm_eval_is_opened_once() -> None:
    """63 files: results, and samples that only their reader opens."""
    done = subprocess.run(
        [sys.executable, COUNTED, RUN], capture_output=True, text=True, check=True
    )
    opens, modules = json.loads(done.stdout)

    assert opens == dict.fromkeys(_files_in(RUN), 1)
    assert len(opens) == 63
    others = [name for name in modules if ".lm_eval" not in name]
    assert sorted(others) == [
        f"evalstats_plugin.adapters.{name}"
        for name in ("every_eval_ever", "helm", "inspect_ai", "lighteval", "mapped", "tabular")
    ]


def test_each_file_of_the_other_formats_is_opened_once(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Archives and JSON of Inspect, aggregates and instances, and four kinds of tables."""
    inspect = tmp_path / "inspect"
    for name in ("tiny_perfect", "json", "set"):
        shutil.copytree(LOGS / "inspect_ai" / "0.3.285" / name, inspect / name)
    every = LOGS / "every_eval_ever" / "0.3.0"
    tables = tmp_path / "tables"
    found = read(RUN / "models__m2", task="es_mc", metric="acc")
    for ending in ("csv", "tsv", "jsonl", "parquet"):
        export(found, tables / f"{ending}.{ending}")
    place = {"module": COUNTED.stem, "folder": tmp_path, "PYTHONPATH": str(COUNTED.parent)}
    done = run(inspect, every, tables, **place)
    assert done.returncode == 0, done.stderr
    opens, _ = json.loads(done.stdout)

    assert opens == dict.fromkeys(_files_in(inspect) | _files_in(every) | _files_in(tables), 1)


def test_a_folder_may_hold_more_logs_than_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are opened a second time."""
    monkeypatch.setattr(reading, "_MOST_OPEN", 3)
    for k in range(10):
        (tmp_path / f"m{k}.csv").write_text(f"item,score\nq1,{k % 2}\n")
    seen: list[int] = []
    found = read(tmp_path, on_log=lambda *_: seen.append(_open_files(tmp_path)))

    assert [r.scores.item() for r in found] == [k % 2 for k in range(10)]
    assert seen == [3] * 10
    assert _open_files(tmp_path) == 0
