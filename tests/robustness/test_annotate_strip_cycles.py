"""Annotated and stripped again and again: what was there comes back, and nothing piles up."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from logs import megabytes, open_files

from evalstats_plugin import annotate
from evalstats_plugin.errors import WriteError
from evalstats_plugin.logs.annotating import strip

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
CYCLES, INSPECT_CYCLES = 20, 8


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


_OLD_ZIPS = pytest.mark.skipif(
    sys.version_info < (3, 11, 4), reason="zipfile does not write the version that Inspect wrote"
)


@pytest.mark.parametrize(
    "kind",
    [
        "tiny_perfect/*.eval",
        pytest.param("retried/*-22-*.eval", marks=_OLD_ZIPS),
        "json/*.json",
    ],
)
def test_inspect_logs_come_back_to_the_byte(kind: str, tmp_path: Path) -> None:
    """Header, samples with statistics of items, history of edits, and how they were packed."""
    log = Path(shutil.copy(min(LOGS.glob(f"inspect_ai/0.3.285/{kind}")), tmp_path))
    before = log.read_bytes()
    files, memory = 0, 0.0
    for cycle in range(INSPECT_CYCLES):
        annotate(log, in_place=True, items="columns" if cycle % 4 == 0 else "no")
        assert before != log.read_bytes()
        strip(log, in_place=True)

        assert before == log.read_bytes()
        if cycle == INSPECT_CYCLES // 2:
            files, memory = open_files(), megabytes()

    assert [log] == list(tmp_path.iterdir())
    assert files == open_files()
    assert megabytes() - memory < 20


def test_what_others_edited_stays(tmp_path: Path) -> None:
    """Only our own entries go from the history, also where others' stand between them."""
    from inspect_ai.log import (
        MetadataEdit,
        ProvenanceData,
        TagsEdit,
        edit_eval_log,
        read_eval_log,
        write_eval_log,
    )

    def edited(by: str, *edits: Any) -> None:
        header = read_eval_log(str(log), header_only=True)
        header = edit_eval_log(header, edits, ProvenanceData(author=by))
        write_eval_log(header, str(log), header_only=True)

    log = Path(shutil.copy(min(LOGS.glob("inspect_ai/0.3.285/tiny_perfect/*.eval")), tmp_path))
    edited("ann", TagsEdit(tags_add=["golden"]))
    annotate(log, in_place=True)
    edited("bob", MetadataEdit(metadata_set={"checked": True, "evalstats": "mine"}))
    strip(log, in_place=True)
    header: Any = read_eval_log(str(log), header_only=True)

    assert ["golden"] == header.tags
    assert {"checked": True} == header.metadata
    authors = [update.provenance.author.split()[0] for update in header.log_updates]
    # Bob used our name, so that taking it out is one more edit, signed by us.
    assert ["ann", "bob", "evalstats_plugin"] == authors


def test_samples_that_get_lost_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an archive cannot be opened to add to it, Python begins an empty one."""
    log = Path(shutil.copy(min(LOGS.glob("inspect_ai/0.3.285/tiny_perfect/*.eval")), tmp_path))
    before = log.read_bytes()

    class Emptied(ZipFile):
        """Begins an empty archive where it was to add to one."""

        def __init__(self, file: Any, mode: Any = "r") -> None:
            header = ZipFile(file).read("header.json") if mode == "a" else b""
            super().__init__(file, "w" if mode == "a" else mode)
            if mode == "a":
                self.writestr("header.json", header)

    monkeypatch.setattr("evalstats_plugin.adapters.inspect_ai.archive.header.ZipFile", Emptied)
    with pytest.raises(WriteError, match=rf"{log.name}: samples got lost"):
        annotate(log, in_place=True)
    assert before == log.read_bytes()
    assert [log] == list(tmp_path.iterdir())
