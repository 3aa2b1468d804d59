"""Notebooks, executed; `docs/site/hooks.py` makes pages of them.

All run in one kernel, one after another, which saves starting it; each imports what it needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from parts import ROOT
from parts.sessions import workspace

NOTEBOOKS = tuple(sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")))


def executed(paths: tuple[Path, ...] = NOTEBOOKS) -> dict[Path, Any]:
    """Return notebooks with the outputs that their cells give now.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell failed.
    """
    from nbclient import NotebookClient

    read: dict[Path, Any] = {path: nbformat.read(path, as_version=4) for path in paths}
    together = nbformat.v4.new_notebook(cells=[cell for nb in read.values() for cell in nb.cells])
    with workspace() as folder:
        NotebookClient(together, timeout=120, kernel_name="python3").execute(cwd=str(folder))
    for notebook in read.values():
        number = 0
        for cell in notebook.cells:
            cell.metadata = {}
            if cell.cell_type == "code":
                number += 1
                cell.execution_count = number
                for output in cell.outputs:
                    if "execution_count" in output:
                        output.execution_count = number
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    return read


def write() -> None:
    """Execute all notebooks, and write their outputs into them."""
    for path, notebook in executed().items():
        nbformat.write(notebook, path)


def contents(notebook: Any) -> list[list[str]]:
    """Return what each code cell gives, to compare: texts and tables; of figures that they are."""
    return [
        [_content(output) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _content(output: Any) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return "figure"
    return data.get("text/html") or data.get("text/plain") or output.get("text", output.output_type)
