"""No command or function that reads changes, makes or starts anything because of what it reads.

Each runs under a recorder of audit events and, where the kernel has it, under Landlock, which
refuses to write anywhere but to one temporary folder. `tests/validation/test_reading.py` does all
with all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from planted import INSPECT, KINDS, plant, state
from works import (
    COMMANDS,
    EVERYWHERE,
    LOGS,
    OF_TABLES,
    OF_VOTES,
    SLOW,
    TABLE,
    VOTES,
    Watch,
    Work,
    changes,
    folders_of_logs,
    watcher,
)

from evalstats_plugin.adapters.lm_eval.replay.confined import landlock_version

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="paths of descriptors are Linux's")


@pytest.fixture
def watch(run: Callable[..., Any], tmp_path: Path) -> Watch:
    """Run jobs in a process of their own, which may write to one folder; return what was seen."""
    return watcher(run, tmp_path)


def test_what_lies_in_a_folder_changes_nothing(watch: Watch, tmp_path: Path) -> None:
    """Journals, links, pipes, devices, sparse files, hooks of git, modules, settings."""
    root = tmp_path / "planted"
    folders = [plant(root, kind) for kind in KINDS]
    before = state(root)

    results = watch([(folder, work) for folder in folders for work in EVERYWHERE])

    assert changes(results) == []
    assert state(root) == before
    assert len(results) == len(KINDS) * len(EVERYWHERE)
    # They were not refused at the door: the logs between the traps were read.
    read = {Path(r["folder"]).name for r in results if r["code"] in (0, 1)}
    assert read == {folder.name for folder in folders}
    assert {r["landlock"] for r in results} == {landlock_version()}


def test_settings_and_modules_of_the_folder_one_stands_in_change_nothing(
    watch: Watch, tmp_path: Path
) -> None:
    """With the settings of the project read, as outside of tests."""
    root = tmp_path / "planted"
    folders = [plant(root, kind) for kind in ("settings", "code", "repository")]
    before = state(root)

    for folder in folders:
        results = watch(
            [(folder, [work, "."]) for work in ("report", "check")],
            inside=folder,
            EVALSTATS_NO_CONFIG="",
        )
        assert changes(results) == []
    assert state(root) == before


@pytest.mark.parametrize("start", [["-P", "-m"], ["-m"]])
def test_modules_beside_logs_are_not_imported(start: list[str], tmp_path: Path) -> None:
    """By the command, which is as ``-P``; nor by ``-m``, which looks in the folder itself first.

    But for the few modules that Python needs before it runs the first line of the package.
    """
    folder = plant(tmp_path, "code")
    # Inspect, which imports most, is loaded where most could go wrong.
    names = ("evalstats_plugin.py", "json.py") if start == ["-m"] else (INSPECT.name,)
    for name in names:
        (folder / name).unlink()

    done = subprocess.run(
        [sys.executable, *start, "evalstats_plugin", "check", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )

    assert done.returncode == 1, done.stderr
    assert "es_mc" in done.stdout or "unreadable" in done.stdout
    assert not (tmp_path / "PWNED").exists()


PROMPTFOO = str(LOGS.parents[1] / "adapters" / "mapped" / "formats" / "promptfoo.toml")
OF_TWO_TASKS: Sequence[Work] = [
    work if isinstance(work, str) or "-t" in work else [*work, "-t", "es_mc", "-t", "es_bin"]
    for work in COMMANDS
]
TRIED: Mapping[Path, Sequence[Work]] = {
    LOGS / "lm_eval" / "0.4.13" / "out": OF_TWO_TASKS,
    LOGS / "inspect_ai" / "0.3.285" / "models": [["compare", "FOLDER", "-t", "arith"]],
    LOGS / "inspect_ai" / "0.3.285" / "pairwise": [["rank", "stats", "FOLDER"]],
    LOGS / "promptfoo" / "0.118.10": [["report", "FOLDER", "--mapping", PROMPTFOO]],
    TABLE: OF_TABLES,
    VOTES: OF_VOTES,
}


def test_every_command_that_reads_changes_nothing(watch: Watch) -> None:
    """On logs of two harnesses, a table and votes; files that it writes lie where it was told."""
    before = {path: state(path) for path in TRIED}

    results = watch((path, work) for path, works in TRIED.items() for work in works)

    assert changes(results) == []
    assert {path: state(path) for path in TRIED} == before
    assert [(r["work"], r["said"]) for r in results if r["code"] not in (0, 1, 3, 4)] == []


def test_every_folder_of_logs_is_read_without_a_change(watch: Watch) -> None:
    folders = folders_of_logs()

    results = watch([(folder, work) for folder in folders for work in EVERYWHERE[:1]])

    assert changes(results) == []
    assert len(folders) >= 40
    # Some hold nothing that an adapter knows, as the folder above a run of HELM.
    assert sum(r["code"] == 0 for r in results) >= 35


def test_every_command_that_reads_is_tried() -> None:
    """But for `rescore`, which runs what logs name, in a process of its own."""
    from logs import commands_that_read

    works = [*SLOW, *(work for works in TRIED.values() for work in works)]
    tried = [work for work in works if not isinstance(work, str)]
    names = {" ".join(w[: 1 + (w[0] in {"irt", "rank", "adapt", "judge"})]) for w in tried}
    assert set(commands_that_read()) - names == {"rescore"}


@pytest.mark.parametrize("confine", [False, True])
def test_the_recorder_sees_who_is_careless(watch: Watch, tmp_path: Path, *, confine: bool) -> None:
    """Otherwise the tests above would show nothing; and the kernel refuses what is recorded."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "file").write_text("mine")
    (folder / "code_of_the_folder.py").write_text("x = 1\n")

    (result,) = watch([(folder, "careless")], confine=confine)

    seen = {event for event, _ in result["events"]}
    # Where a folder could not be made, there is nothing in it to remove.
    assert seen | {"os.rmdir"} == {
        "exec", "open", "os.chmod", "os.mkdir", "os.remove", "os.rename", "os.utime",
        "shutil.copyfile", "shutil.rmtree", "os.rmdir", "socket.connect", "subprocess.Popen",
    }  # fmt: skip
    if confine and landlock_version():
        assert (folder / "file").read_text() == "mine"
        assert sorted(p.name for p in folder.iterdir()) == ["code_of_the_folder.py", "file"]


@pytest.mark.parametrize("inside", ["", "in-place"])
def test_commands_that_write_are_seen(watch: Watch, tmp_path: Path, inside: str) -> None:
    """A page and annotations, where the recorder is told of no free folder for them."""
    folder = plant(tmp_path, "open to all")
    for path in folder.glob("results_2026-01-01*"):
        path.unlink()
    work = (
        ["annotate", "--in-place", "FOLDER"]
        if inside
        else ["report", "FOLDER", "-q", "--html", "FOLDER/page.html"]
    )

    (result,) = watch([(folder, work)], confine=False)

    assert result["code"] == 0, result["said"]
    assert {"tempfile.mkstemp", "open", "os.rename"} <= {event for event, _ in result["events"]}


def test_landlock_refuses_what_no_recorder_sees(watch: Watch, tmp_path: Path) -> None:
    """A library in C opens files without telling Python."""
    if not landlock_version():
        pytest.skip("this kernel has no Landlock")
    folder = tmp_path / "logs"
    folder.mkdir()

    free, confined = (watch([(folder, "silent")], confine=confine)[0] for confine in (False, True))

    assert (free["code"], free["events"]) == (0, [])
    assert confined["code"] == 70
    assert "Permission denied" in confined["said"]
