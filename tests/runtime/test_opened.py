"""Files that adapters look into one after another."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import HEAD, LogFile


def test_a_held_file_keeps_its_content_though_it_is_replaced(tmp_path: Path) -> None:
    """One opening serves the first bytes and the content."""
    path = tmp_path / "log.json"
    path.write_bytes(b"\xef\xbb\xbf" + b"a" * HEAD)
    with LogFile(path) as log:
        assert log.head == b"a" * (HEAD - 3)
        path.unlink()
        assert log.read_bytes() == b"\xef\xbb\xbf" + b"a" * HEAD
        with log.open() as file, log.open() as again:
            assert file is again
        assert log.is_open

    assert not log.is_open


def test_a_copy_for_another_process_opens_the_file_again(tmp_path: Path) -> None:
    """Open files cannot be sent."""
    path = tmp_path / "log.json"
    path.write_bytes(b"old")
    with LogFile(path) as log:
        assert log.head == b"old"
        copy = pickle.loads(pickle.dumps(log))  # noqa: S301 - our own
        path.write_bytes(b"new")

        assert copy.head == b"new"


def test_a_folder_has_no_first_bytes_and_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """So that adapters need not ask what a path is."""
    assert LogFile(tmp_path).head == b""
    with pytest.raises(LogError, match=r"none cannot be read \(No such file or directory\)"):
        _ = LogFile(tmp_path / "none").head
