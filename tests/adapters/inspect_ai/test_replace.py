"""A log is replaced as a whole or not at all, on disk and in object stores."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalstats_plugin.adapters.inspect_ai.archive import editing
from evalstats_plugin.adapters.inspect_ai.writer import annotate_log
from evalstats_plugin.errors import WriteError
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "inspect_ai" / "0.3.285"
ARITH = min(LOGS.glob("models/*_arith_*"))


def _annotation() -> Annotation:
    row = ScoreInterval(
        model="mockllm/alpha", task="arith", metric="match", n_items=50, estimate=0.34,
        low=0.22, high=0.47, std_error=None, method="wilson", confidence_level=0.95,
    )  # fmt: skip
    return Annotation(Intervals((row,)), "1.2.3")


def _header(log: Path) -> Any:
    from inspect_ai.log import read_eval_log

    return read_eval_log(str(log), header_only=True)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Give a copy of one log."""
    return Path(shutil.copy(ARITH, tmp_path))


def test_a_log_changed_meanwhile_is_not_overwritten(log: Path) -> None:
    """Somebody edits tags in the viewer while we compute."""
    with (  # noqa: PT012 - leaving the inner block is what raises
        pytest.raises(WriteError, match="changed by another process"),
        editing.local_copy(log) as original,
        editing.replacing(log, original, log) as target,
    ):
        shutil.copyfile(original.file, target.file())
        log.write_bytes(b"edited")
    assert b"edited" == log.read_bytes()
    assert [log] == list(log.parent.iterdir())


# A child process is killed at the k-th call of any function while it annotates: for k's all over
# the way, and for more of them around the one step that gives the log its new content.
_KILLED_AT_MANY_STEPS = """
import os, runpy, signal, sys
from pathlib import Path
import inspect_ai.log, inspect_ai._util.zipfile, inspect_ai.log._recorders
from inspect_ai.log import read_eval_log

log, source = Path(sys.argv[1]), Path(sys.argv[2])
test = runpy.run_path(sys.argv[3])
annotation, annotate_log = test["_annotation"](), test["annotate_log"]
old = source.read_bytes()

def annotated_in_child(step, pipe=None):
    log.write_bytes(old)
    child = os.fork()
    if child == 0:
        calls, replaced = 0, 0
        def count(frame, event, argument):
            nonlocal calls, replaced
            calls += 1
            if event == "c_call" and argument is os.replace:
                replaced = calls
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.setprofile(count)
        annotate_log(log, annotation, log)
        sys.setprofile(None)
        if pipe is not None:
            os.write(pipe, f"{replaced} {calls}".encode())
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

reader, writer = os.pipe()
annotated_in_child(-1, writer)
place, last = map(int, os.read(reader, 100).split())
assert 0 < place < last, (place, last)
# Removing what the one killed before has left takes some more calls.
near = range(place - 15, place + 420, 12)
seen = set()
for step in sorted({*range(1, last, last // 25), *near, last + 10**9}):
    killed = annotated_in_child(step)
    new = log.read_bytes() != old
    if new:
        header = read_eval_log(str(log))
        assert "evalstats" in header.tags and len(header.samples) == 50, step
    seen.add((killed, new))
    logs = [p.name for p in log.parent.iterdir() if p.suffix in (".eval", ".json")]
    assert logs == [log.name], logs
# Leftovers of the killed are gone after a write that succeeds.
assert [p.name for p in log.parent.iterdir()] == [log.name]
print(last, sorted(seen))
"""


def test_kill_at_many_steps_leaves_the_old_or_the_new_log(tmp_path: Path) -> None:
    """Before the log takes its new content it is as it was, afterwards Inspect reads the new."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_AT_MANY_STEPS, str(tmp_path / "a.eval"), ARITH, __file__],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "" == done.stderr
    calls, _, seen = done.stdout.partition(" ")
    assert int(calls) > 1000
    assert "[(False, True), (True, False), (True, True)]" == seen.strip()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give an S3 bucket that lives in this process."""
    from moto.server import ThreadedMotoServer
    from upath import UPath

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    monkeypatch.setenv(
        "AWS_ENDPOINT_URL", "http://127.0.0.1:{1}".format(*server.get_host_and_port())
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    folder = UPath("s3://evalstats-logs/set", skip_instance_cache=True)
    folder.fs.mkdir("evalstats-logs")
    yield folder
    server.stop()


@pytest.mark.needs("moto", "s3fs")
def test_logs_in_s3_are_written_only_over_what_was_read(bucket: Any) -> None:
    """A log that was changed after it was read is left alone; so is one with nothing to change."""
    log = bucket / "a.eval"
    log.write_bytes(ARITH.read_bytes())
    annotate_log(log, _annotation(), log)
    etag = log.fs.info(log.path, refresh=True)["ETag"]
    annotate_log(log, _annotation(), log)
    from inspect_ai.log import read_eval_log

    assert etag == log.fs.info(log.path, refresh=True)["ETag"]
    annotated = read_eval_log(str(log))
    assert ("evalstats" in annotated.tags, 50) == (True, len(annotated.samples or []))
    with (  # noqa: PT012 - leaving the inner block is what raises
        pytest.raises(WriteError, match="changed by another process"),
        editing.local_copy(log) as original,
        editing.replacing(log, original, log) as target,
    ):
        shutil.copyfile(original.file, target.file())
        log.write_bytes(b"edited")
    assert b"edited" == log.read_bytes()


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_logs_in_other_stores_are_written_too(tmp_path: Path) -> None:
    """From disk to store, in place there, and back without the annotation."""
    from upath import UPath

    log = UPath("memory://evalstats-logs/a.eval")
    annotate_log(ARITH, _annotation(), log)
    once = log.read_bytes()
    annotate_log(log, _annotation(), log)
    back = annotate_log(log, None, tmp_path / "a.eval")

    assert once == log.read_bytes()
    assert back is not None
    assert _header(ARITH).results == _header(back).results
    assert ["a.eval"] == [p.name for p in tmp_path.iterdir()]
