"""Annotated and stripped again and again: what was there comes back, and nothing piles up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from logs import megabytes, open_files

from evalstats_plugin import annotate
from evalstats_plugin.annotations import strip
from evalstats_plugin.errors import WriteError

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
CYCLES = 20


def _samples(log: Path) -> dict[str, bytes]:
    with ZipFile(log) as archive:
        return {n: archive.read(n) for n in archive.namelist() if n != "header.json"}


def test_lm_eval_logs_come_back_to_the_byte(tmp_path: Path) -> None:
    """With rescored values too."""
    folder = shutil.copytree(min(LOGS.glob("lm_eval/0.4.13/out_samples/*")), tmp_path / "run")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    seen: set[bytes] = set()
    for cycle in range(CYCLES):
        (log,) = annotate(folder, in_place=True, rescore=cycle % 2 == 0)
        seen.add(log.read_bytes())
        strip(folder, in_place=True)

        assert before == {p.name: p.read_bytes() for p in folder.iterdir()}
    # All annotations were one and the same, and none was empty.
    assert 1 == len(seen)
    assert before[log.name] not in seen


def test_inspect_logs_keep_their_samples(tmp_path: Path) -> None:
    """Inspect keeps a history of edits; everything else comes back."""
    from inspect_ai.log import read_eval_log

    log = Path(shutil.copy(min(LOGS.glob("inspect_ai/0.3.285/tiny_perfect/*.eval")), tmp_path))
    before, header = _samples(log), read_eval_log(str(log), header_only=True)
    sizes: list[int] = []
    files, memory = 0, 0.0
    for cycle in range(CYCLES):
        annotate(log, in_place=True, items="columns" if cycle % 4 == 0 else "no")
        strip(log, in_place=True)
        sizes.append(log.stat().st_size)
        if cycle == CYCLES // 2:
            files, memory = open_files(), megabytes()

    after: Any = read_eval_log(str(log), header_only=True)
    assert before == _samples(log)
    assert header.results == after.results
    assert (header.metadata, header.tags) == (after.metadata, after.tags)
    assert [log] == list(tmp_path.iterdir())
    assert files == open_files()
    assert megabytes() - memory < 20
    # The history of edits; copies of the header that nobody reads would take thousands.
    assert (sizes[-1] - sizes[1]) / (len(sizes) - 2) < 150


def test_samples_that_get_lost_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an archive cannot be opened to add to it, Python begins an empty one."""
    import inspect_ai.log

    log = Path(shutil.copy(min(LOGS.glob("inspect_ai/0.3.285/tiny_perfect/*.eval")), tmp_path))
    before = log.read_bytes()

    def write_header_only(header: Any, location: str, **_: Any) -> None:
        with ZipFile(location, "w") as archive:
            archive.writestr("header.json", header.model_dump_json())

    monkeypatch.setattr(inspect_ai.log, "write_eval_log", write_header_only)
    with pytest.raises(WriteError, match=rf"{log.name}: samples got lost"):
        annotate(log, in_place=True)
    assert before == log.read_bytes()
    assert [log] == list(tmp_path.iterdir())
