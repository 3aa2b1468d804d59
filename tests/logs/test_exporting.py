"""What `export` refuses, and what it says of all that no format holds."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import Measure, ResponseMatrix
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.errors import SelectionError, WriteError
from evalstats_plugin.hookspecs import Exporter
from evalstats_plugin.logs.exporting import export, exporter_of


def _write(responses: Any, output: Path, *, depth: int = 1, digits: int = 2) -> Any:
    output.write_text(" ".join(f"{r.model} {depth} {digits}" for r in responses))
    return [output], [f"{len(responses)} written"]


def _write_plain(responses: Any, output: Path) -> Any:
    return _write(responses, output)


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return plugins with two formats, one of which has options."""
    module = SimpleNamespace(write=_write, write_plain=_write_plain)
    monkeypatch.setitem(sys.modules, "toy_formats", module)
    formats = {"toy": "toy_formats:write", "plain": "toy_formats:write_plain"}
    exporters = {name: Exporter(name, "a format", place) for name, place in formats.items()}
    return SimpleNamespace(exporters=lambda: exporters)


def _responses(tmp_path: Path) -> list[Responses]:
    made = ResponseMatrix.from_array(np.eye(2), models=["a", "b\ud800"]).to_responses()
    return [replace(r, source=Source(path=tmp_path / "read.toy", harness="x")) for r in made]


def test_formats_and_options_are_found_by_name_or_ending(tmp_path: Path, using: Any) -> None:
    """An unknown one is told with those that there are."""
    responses = _responses(tmp_path)
    done = export(responses, tmp_path / "x.TOY", plugins=using, depth=3)

    assert done.paths == (tmp_path / "x.TOY",)
    assert done.paths[0].read_text() == "a 3 2 b\\ud800 3 2"
    assert done.notes == ("2 written",)
    assert exporter_of("plain", Path("x.toy"), using).name == "plain"
    for to, output, options, told in (
        (None, "x.csv", {}, r"no ending of a known format. Name the format: --to toy, --to plain "),
        ("tty", "x", {}, "no format is called 'tty'; did you mean toy"),
        ("toy", "x", {"dept": 1}, "no option of toy is called 'dept'; did you mean depth"),
        ("plain", "x", {"depth": 1}, "plain has no options, but 'depth' was given"),
    ):
        with pytest.raises(SelectionError, match=told):
            export(responses, tmp_path / output, to=to, plugins=using, **options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SelectionError, match="there is none"):
        exporter_of("toy", Path("x"), SimpleNamespace(exporters=dict))  # pyright: ignore[reportArgumentType]


def test_files_that_were_read_or_are_there_stay(tmp_path: Path, using: Any) -> None:
    """The first whatever is asked; others may be replaced."""
    responses = _responses(tmp_path)
    read, there = tmp_path / "read.toy", tmp_path / "there.toy"
    export(responses, read, plugins=using)  # it was not there to be read
    there.touch()
    with pytest.raises(WriteError, match=r"read\.toy is one of the files that were read"):
        export(responses, read, overwrite=True, plugins=using)
    with pytest.raises(WriteError, match=r"there\.toy"):
        export(responses, there, plugins=using)
    assert export(responses, there, overwrite=True, plugins=using).paths == (there,)
    with pytest.raises(WriteError, match=r"nothing to export to .*: no responses were selected"):
        export([], tmp_path / "new.toy", plugins=using)


def test_what_no_format_holds_is_noted(tmp_path: Path, using: Any) -> None:
    """Once for all models, by task and metric."""
    first, second = _responses(tmp_path)
    other = replace(first, measure=Measure(task="task", metric="f1"))
    made = [replace(r, beside=(other,), unreduced=first, predicted=0.5) for r in (first, second)]
    notes = export(made, tmp_path / "x.toy", plugins=using).notes

    name = f"{first.task} {first.metric}"
    assert notes == (
        "2 written",
        "scores of the items that an adaptive test chose, whose mean is not the model's: " + name,
        "other values of the same answers are left out: task f1",
        "epochs are combined as in the log, and the single ones left out: " + name,
    )
