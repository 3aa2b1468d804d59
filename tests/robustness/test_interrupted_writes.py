"""Killed, or refused by the system, at any step of writing: files are old or new, and whole."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import syscalls
from writers import WRITERS

from evalstats_plugin import read
from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import LogFile

INTERRUPTED = Path(__file__).parent / "interrupted.py"
LM_EVAL = min(
    (Path(__file__).parents[2] / "fixtures" / "logs").glob("lm_eval/0.4.13/out_samples/*")
)

pytestmark = pytest.mark.skipif(
    not syscalls.AVAILABLE, reason="system calls are followed on Linux, x86-64"
)


Plan = list[tuple[int, list[str], list[str]]]
"""Each so many of the steps, with what errors, of which writers."""
FORBIDDEN = "forbidden folder"
STEPWISE: Plan = [
    (2, ["disk full", "permission denied"], ["votes .csv"]),
    (1, ["disk full"], ["answers of an adaptive test", "replies of a model"]),
    (9, ["disk full"], ["lm-eval annotate", "answer of a judge", "new fit"]),
    (32, ["disk full"], ["export to Every Eval Ever"]),
    (40, ["disk full"], ["response store", "table into a store"]),
    (80, ["disk full"], ["paper"]),
    (52, ["disk full"], ["Inspect annotate .eval"]),
    (23, ["disk full"], ["Inspect annotate .json"]),
    (60, ["disk full"], ["Inspect items .eval"]),
    (50, ["disk full"], ["Inspect eval set"]),
]  # fmt: skip
"""At a step in the middle, and at the last two, where old becomes new."""
OFTENER: Plan = [
    (1, ["disk full", "permission denied", "disk broken"], ["votes .csv"]),
    (4, ["disk full"], [
        "lm-eval annotate", "votes of Fullrank", "answer of a judge", "lm-eval strip",
        "export .csv", "matrix", "Every Eval Ever annotate", "page", "figure .svg",
    ]),
    (12, ["disk full"], ["export to Every Eval Ever"]),
    (20, ["disk full"], ["response store", "table into a store"]),
    (50, ["disk full"], ["paper"]),
    (25, ["disk full"], ["Inspect annotate .eval", "Inspect strip .eval"]),
    (12, ["disk full"], ["Inspect annotate .json"]),
    (40, ["disk full"], ["Inspect items .eval"]),
    (17, ["disk full"], ["Inspect eval set"]),
    (4, ["disk full"], ["new fit"]),
]  # fmt: skip
"""At more steps, by `make validate`; `tests/validation/test_kills.py` interrupts all writers at
random steps."""
LATER = ["figure .pdf", "figure .png"]
"""Writers that `make validate` alone keeps out of a folder: they save as "figure .svg" does."""
OF_OTHER_STEPS = {"Inspect strip .eval", "rescore"}
"""Writers not among `STEPWISE` that do more than to replace a file."""


def _names(plan: Plan) -> list[str]:
    return [name for *_, names in plan for name in names]


def _others() -> list[str]:
    """Return the writers that are not interrupted stepwise."""
    names = sorted(set(WRITERS) - {*_names(STEPWISE), *LATER})
    if find_spec("lm_eval") is None:
        names.remove("rescore")
    return names


def _interrupted(folder: Path, plan: Plan) -> dict[str, dict[str, Any]]:
    """Interrupt writers, all in one process, since loading what they need takes seconds.

    Those that load little come first: the larger a process, the longer it takes to copy.
    """
    plan = [(every, [*errors, FORBIDDEN], names) for every, errors, names in plan]
    done = subprocess.run(
        [sys.executable, INTERRUPTED, folder, json.dumps(plan)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    # Rescoring says what it refuses to the task's code, and lm-eval how far it is.
    said = ("note: what logs name was limited", "%|")
    assert [] == [
        line for line in done.stderr.splitlines() if line and not any(s in line for s in said)
    ]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert _names(plan) == [r["writer"] for r in results]
    return {result["writer"]: result for result in results}


@pytest.fixture(scope="module")
def interruptions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Interrupt every writer, at a few steps at least."""
    plan = [*STEPWISE, (0, [], _others())]
    return _interrupted(tmp_path_factory.mktemp("interrupted"), plan)


@pytest.fixture(scope="module")
def more_interruptions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Interrupt them at more steps."""
    plan = [*OFTENER, (0, [], LATER)]
    return _interrupted(tmp_path_factory.mktemp("more"), plan)


def _check_old_or_new(result: dict[str, Any]) -> None:
    codes = dict(result["codes"])

    assert [] == result["problems"]
    assert result["kills"] >= 3
    # Kills before the last step leave the old files, those after it the new.
    assert ["new", "old"] == result["seen"]
    assert ["2"] == codes.pop(FORBIDDEN)
    assert codes
    for found in codes.values():
        assert "2" in found
        assert {"0", "2"} >= set(found)


def _check_forbidden(results: Mapping[str, dict[str, Any]], writer: str) -> None:
    """Check that one is refused, and that whatever interrupts votes interrupts it in like state."""
    result = results[writer]

    assert [] == result["problems"]
    assert {FORBIDDEN: ["2"]} == result["codes"]
    # Nobody is refused who does not write.
    assert result["steps"] >= 4
    if writer not in OF_OTHER_STEPS:
        assert result["calls"] == results["votes .csv"]["calls"]


@pytest.mark.parametrize("writer", _names(STEPWISE))
def test_old_or_new_at_every_step(interruptions: Mapping[str, dict[str, Any]], writer: str) -> None:
    """After a kill the next run ends as if there had been none; a refusal is one message."""
    _check_old_or_new(interruptions[writer])


@pytest.mark.validation
@pytest.mark.parametrize("writer", _names(OFTENER))
def test_old_or_new_at_more_steps(
    more_interruptions: Mapping[str, dict[str, Any]], writer: str
) -> None:
    _check_old_or_new(more_interruptions[writer])


@pytest.mark.parametrize("writer", _others())
def test_a_folder_that_may_not_be_written_to(
    interruptions: Mapping[str, dict[str, Any]], writer: str
) -> None:
    """Writers that are not among those above too say so in one message, and change no file.

    Those that replace one file do it by the steps by which votes do.
    """
    _check_forbidden(interruptions, writer)


@pytest.mark.validation
@pytest.mark.parametrize("writer", LATER)
def test_a_folder_that_may_not_be_written_to_by_others_of_a_kind(
    more_interruptions: Mapping[str, dict[str, Any]], writer: str
) -> None:
    _check_forbidden(more_interruptions, writer)


def test_every_writer_is_interrupted() -> None:
    """Whoever calls what replaces files is one of the writers, or is not to be killed."""
    root = Path(__file__).parents[2]
    calls = re.compile(
        r"\b(?:write_bytes|replacing|write_signed|edit|new_folder|scratch_folder|AnswersFile)\("
    )
    found = {
        str(path.relative_to(root))
        for folder in ("evalstats_plugin", "adapters")
        for path in (root / folder).rglob("*.py")
        if calls.search(path.read_text())
    }

    assert {*_OF_WRITERS, *_BELOW} == found
    assert {name for names in _OF_WRITERS.values() for name in names} <= set(WRITERS)


_OF_WRITERS = {
    "adapters/every_eval_ever/exporting.py": ("export to Every Eval Ever",),
    "adapters/every_eval_ever/writer.py": ("Every Eval Ever annotate",),
    "adapters/inspect_ai/archive/editing.py": ("Inspect annotate .eval", "Inspect eval set"),
    "adapters/inspect_ai/archive/members.py": ("Inspect items .eval",),
    "adapters/lm_eval/adaptive/recording.py": ("replies of a model",),
    "adapters/lm_eval/replay/command.py": ("rescore",),
    "adapters/lm_eval/writer.py": ("lm-eval annotate",),
    "adapters/tabular/writer.py": ("export .csv",),
    "evalstats_plugin/adaptive/bank.py": ("bank",),
    "evalstats_plugin/cli/gate.py": ("verdict",),
    "evalstats_plugin/cli/judge.py": ("answers to label",),
    "evalstats_plugin/cli/report.py": ("page",),
    "evalstats_plugin/cli/table.py": ("references",),
    "evalstats_plugin/cli/rank/results.py": ("draws of ratings",),
    "evalstats_plugin/data/importing.py": ("response store",),
    "evalstats_plugin/irt/model/fit.py": ("fit",),
    "evalstats_plugin/ranking/contests/files.py": ("votes .csv", "votes of Fullrank"),
    "evalstats_plugin/ranking/judging/session.py": ("answer of a judge",),
    "evalstats_plugin/report/figures/canvas.py": ("figure .svg",),
    "evalstats_plugin/report/paper/folder.py": ("paper",),
}
"""Modules that write, and the writers that go through each."""
_BELOW = {
    "adapters/inspect_ai/adaptive/run.py",  # in a folder of its own, gone with the block
    "adapters/inspect_ai/archive/opening.py",  # the same
    "adapters/inspect_ai/adaptive/asking.py",  # answers of an adaptive test
    "adapters/inspect_ai/archive/header.py",  # Inspect annotate .json
    "adapters/lm_eval/adaptive/run.py",
    "evalstats_plugin/data/matrix.py",
    "evalstats_plugin/runtime/files.py",
    "evalstats_plugin/runtime/writing.py",
    "evalstats_plugin/testing.py",  # copies of logs, in a folder of its own
    "evalstats_plugin/runtime/workers.py",  # in a folder of its own, gone with the block
}


def _careless(path: Path) -> object:
    return path.write_bytes(b"new " * 4000)


def test_a_careless_writer_is_found_out(tmp_path: Path) -> None:
    """What opens the file itself leaves neither old nor new: the tests above would see it."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    steps = syscalls.run(lambda: _careless(path), tmp_path).steps
    path.write_bytes(b"old")

    killed = syscalls.run(lambda: _careless(path), tmp_path, at=len(steps))

    assert ["openat", "write"] == list(dict.fromkeys(step.call for step in steps))
    assert killed.code is None
    assert path.read_bytes() not in (b"old", b"new " * 4000)
    full = syscalls.run(lambda: _careless(path), tmp_path, len(steps), errno.ENOSPC)
    assert syscalls.CRASHED == full.code
    assert "No space left on device" in full.said


_ON_A_DISK_OF_ITS_OWN = """
set -e
mount -t tmpfs -o size=64k tmpfs "$1"
cp "$2"/*.json* "$1"
before=$(sha256sum "$1"/results_*.json)
if [ "$4" = full ]; then head -c 65536 /dev/zero > "$1/filler" 2> /dev/null || true
else mount -o remount,ro "$1" || { echo "not mounted"; exit; }; fi
code=0
"$3" -m evalstats_plugin annotate "$1" --in-place || code=$?
[ "$before" = "$(sha256sum "$1"/results_*.json)" ] && echo "code $code, unchanged"
ls -A "$1"
"""


@pytest.mark.parametrize(
    ("how", "message"), [("full", "No space left on device"), ("ro", "Read-only file system")]
)
def test_a_disk_that_takes_nothing(how: str, message: str, tmp_path: Path) -> None:
    """A file system of 64 kB, full to the last byte; and one that may only be read."""
    if subprocess.run(["unshare", "-Urm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a file system of their own")
    script = ["sh", "-c", _ON_A_DISK_OF_ITS_OWN, "sh", tmp_path, LM_EVAL, sys.executable, how]
    done = subprocess.run(["unshare", "-Urm", *script], capture_output=True, text=True, check=False)

    if "not mounted" in done.stdout:
        pytest.skip("this system lets only root mount a file system again")
    assert "code 2, unchanged" in done.stdout
    assert message in done.stderr
    assert 1 == len(done.stderr.splitlines())
    assert ".evalstats" not in done.stdout


def test_a_log_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the system that refuses, and no plugin that failed."""
    from evalstats_plugin.adapters.lm_eval import layout as lm_eval_layout

    def refused(log: LogFile) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(log.path))

    monkeypatch.setattr(lm_eval_layout, "looks_like_results", refused)
    with pytest.raises(LogError, match=r"results_.*json cannot be read \(Permission denied\)"):
        read(min(LM_EVAL.glob("results_*.json")))
