"""The notebooks run, and show what they give now."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.needs("torch")
def test_notebooks_give_what_they_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one kernel; figures are there, texts and tables are the same."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    from parts.notebooks import NOTEBOOKS, contents, executed

    shown = {path.stem: contents(nbformat.read(path, as_version=4)) for path in NOTEBOOKS}
    given = {path.stem: contents(notebook) for path, notebook in executed().items()}

    assert set(shown) == {"abilities", "paper-table", "two-models"}
    assert all(["figure"] in cells for cells in shown.values())
    assert given == shown, "run: python docs/render.py --notebooks"
