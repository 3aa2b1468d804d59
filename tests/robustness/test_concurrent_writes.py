"""Two processes at one log: it is what one of them, or one after the other, would have made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from writers import timeless

from evalstats_plugin import annotate
from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.logs import annotating
from evalstats_plugin.logs.annotating import strip
from evalstats_plugin.runtime import writing
from evalstats_plugin.runtime.writing import revision

CONTENDED = Path(__file__).parent / "contended.py"
LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
LM_EVAL = min(LOGS.glob("lm_eval/0.4.13/out_samples/*/results*.json"))
INSPECT = min(LOGS.glob("inspect_ai/0.3.285/tiny_perfect/*.eval"))
ROUNDS = 4


@pytest.mark.parametrize("log", [LM_EVAL, INSPECT], ids=["lm-eval", "Inspect"])
def test_two_processes_at_one_log(log: Path, tmp_path: Path) -> None:
    """Whoever comes second finds the log changed, says so, and reads it again."""
    tasks = (("annotate", "annotate"), ("annotate", "strip"))
    done = subprocess.run(
        [sys.executable, CONTENDED, tmp_path, log, str(ROUNDS), *tasks[0], *tasks[1]],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert "" == done.stderr
    results: list[list[dict[str, Any]]] = list(map(json.loads, done.stdout.splitlines()))

    assert [ROUNDS] * len(tasks) == [len(of_tasks) for of_tasks in results]
    for pair, of_tasks in zip(tasks, results, strict=True):
        for result in of_tasks:
            assert [0, 0] == result["codes"]
            assert [] == result["left"]
            assert result["state"] in {"annotated", *(["plain"] if "strip" in pair else [])}


def _annotation_that(change: Any) -> Any:
    """Give an analysis during which something happens to the log."""
    inner = annotating.default_analysis()

    def analysis(responses: Any) -> Any:
        change()
        return inner(responses)

    return analysis


@pytest.mark.parametrize("log", [LM_EVAL, INSPECT], ids=["lm-eval", "Inspect"])
def test_a_log_changed_while_it_is_analysed(
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A harness writes a new log under the same name: numbers of the old do not get into it."""
    copy = tmp_path / log.name
    copy.write_bytes(log.read_bytes())
    new = log.read_bytes() + b"\n"

    def write_once() -> None:
        if copy.read_bytes() != new:
            copy.write_bytes(new)

    # It is read again, and gets numbers of its own.
    annotate(copy, in_place=True, analysis=_annotation_that(write_once))
    assert "changed by another program meanwhile, read again" in capsys.readouterr().err
    strip(copy, in_place=True)
    assert timeless(new) == timeless(copy.read_bytes())

    monkeypatch.setattr(annotating, "_PAUSES", (0.0, 0.0))
    copy.write_bytes(log.read_bytes())
    with pytest.raises(WriteError, match="was changed by another process meanwhile"):
        annotate(copy, in_place=True, analysis=_annotation_that(lambda: copy.write_bytes(new)))
    assert new == copy.read_bytes()
    assert [copy] == list(tmp_path.iterdir())


@pytest.mark.parametrize("log", [LM_EVAL, INSPECT], ids=["lm-eval", "Inspect"])
def test_a_log_removed_while_it_is_analysed(log: Path, tmp_path: Path) -> None:
    """It does not come back."""
    copy = tmp_path / log.name
    copy.write_bytes(log.read_bytes())

    with pytest.raises(LogError, match="does not exist"):
        annotate(copy, in_place=True, analysis=_annotation_that(copy.unlink))
    assert [] == list(tmp_path.iterdir())


def test_the_error_says_how_far_it_got(tmp_path: Path) -> None:
    """Of several logs, all but the one that failed are written."""
    logs = [tmp_path / f"results_2026-11-21T00-00-0{i}.000000.json" for i in range(3)]
    for log in logs:
        log.write_bytes(LM_EVAL.read_bytes())

    seen: list[int] = []

    def change_at_the_end() -> None:
        seen.append(1)
        if len(seen) == len(logs):
            logs[1].write_bytes(b'{"results": {}}')

    with pytest.raises(LogError, match="2 of 3 logs were written"):
        annotate(tmp_path, in_place=True, analysis=_annotation_that(change_at_the_end))
    assert b'"evalstats"' in logs[0].read_bytes()
    assert b'"evalstats"' in logs[2].read_bytes()
    assert logs[1].read_bytes() == b'{"results": {}}'


def test_a_write_over_what_was_not_read_is_refused(tmp_path: Path) -> None:
    """Told by inode, size and time of change."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    read = revision(path)
    assert read is not None
    writing.write_bytes(path, b"own", over=read)

    with pytest.raises(WriteError, match="was changed"):
        writing.write_bytes(path, b"new", over=read)
    assert b"own" == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())
