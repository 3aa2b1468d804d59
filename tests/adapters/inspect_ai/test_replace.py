"""A log is replaced as a whole or not at all, on disk and in object stores."""

from __future__ import annotations

import shutil
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
        shutil.copyfile(original.file, target)
        log.write_bytes(b"edited")
    assert b"edited" == log.read_bytes()
    assert [log] == list(log.parent.iterdir())


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


@pytest.mark.needs("moto", "s3fs", "inspect_ai>=0.3.285")
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
        shutil.copyfile(original.file, target)
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
