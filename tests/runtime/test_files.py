"""A file is replaced as a whole or not at all, whatever happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evalstats_plugin.errors import SelectionError, WriteError
from evalstats_plugin.runtime import writing

# A child process is killed where the k-th call of the system begins or ends, for every k.
_KILLED_AT_EVERY_STEP = """
import os, signal, sys
from pathlib import Path
from evalstats_plugin.runtime import writing

path = Path(sys.argv[1]) / "results_x.json"
old, new = b"old " * 5000, b"new " * 5000
seen, step = set(), 1
while True:
    path.write_bytes(old)
    child = os.fork()
    if child == 0:
        calls = 0
        def die(frame, event, argument):
            global calls
            owner = type(getattr(argument, "__self__", None)).__module__
            module = getattr(argument, "__module__", None)
            calls += bool({owner, module} & {"_io", "io", "posix", "fcntl"})
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.setprofile(die)
        writing.write_bytes(path, new)
        sys.setprofile(None)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    content = path.read_bytes()
    assert content in (old, new), (step, content[:20])
    seen.add((os.WIFSIGNALED(status), content == new))
    names = [p.name for p in path.parent.iterdir()]
    assert not [n for n in names if "results_" in n and n != path.name], names
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    step += 1
# Leftovers of the killed are gone after a write that succeeds.
assert names == [path.name], names
print(step, sorted(seen))
"""


def test_kill_at_every_step_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    """At each call of the system; before the rename the old file is there."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_AT_EVERY_STEP, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    steps, _, seen = done.stdout.partition(" ")
    assert int(steps) > 50
    assert seen.strip() == "[(False, True), (True, False), (True, True)]"


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    """A link still points to the file, and the file keeps its mode."""
    real = tmp_path / "real.json"
    real.write_text("old")
    real.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(real)

    writing.write_bytes(link, b"new")

    assert link.is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("there", WriteError, "-o .*there is a folder: name a file"),
        (
            "x.txt",
            SelectionError,
            r"-o .*x\.txt: .* must end in \.a, \.b or \.c",
        ),
        ("new/x.a", WriteError, "-o .*x.a: there is no folder .*new"),
    ],
)
def test_output_paths_are_refused_before_the_work(
    tmp_path: Path, name: str, error: type[Exception], message: str
) -> None:
    """In the same words, whatever is to be written."""
    (tmp_path / "there").mkdir()

    with pytest.raises(error, match=message):
        writing.check_output_path(tmp_path / name, [".a", ".b", ".c"], asked="-o")
    assert tmp_path / "x.B" == writing.check_output_path(tmp_path / "x.B", [".a", ".b"])
    assert "x.a" == writing.check_output_path(tmp_path / "new/x.a", [".a"], makes_folder=True).name


def test_where_nothing_can_be_written_nothing_changes(tmp_path: Path) -> None:
    """A folder that is a file is named in the error."""
    blocked = tmp_path / "blocked"
    blocked.write_text("I am a file")

    with pytest.raises(WriteError, match=r"results\.json cannot be written .*unchanged"):
        writing.write_bytes(blocked / "results.json", b"new")
    assert blocked.read_text() == "I am a file"


def test_a_failure_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk shows when the content is forced to it."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteError, match="No space left on device"):
        writing.write_bytes(tmp_path / "results.json", b"new")
    assert list(tmp_path.iterdir()) == []
