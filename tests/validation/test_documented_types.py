"""Do documented calls pass a strict type check of a project that uses the package?"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.validation

ROOT = Path(__file__).parents[2]

CONFIG = {
    "typeCheckingMode": "strict",
    "pythonVersion": "3.11",
    # What pages do to show something, and stubs that others lack.
    "reportUnusedExpression": False,
    "reportUnnecessaryIsInstance": False,
    "reportPossiblyUnboundVariable": False,
    "reportMissingTypeStubs": False,
}

OF_OTHERS = ("lambda ", ".savefig(", "shown.data", "my_adapter", "sigmoid")
"""Parts of lines with functions that nobody annotates, or objects of other packages."""

OPTIONAL = re.compile(
    r'Argument of type "[^"]*\| None"|Operator "[^"]*" not supported for types "[^"]*\| None"|'
    r'"[^"]*" is not a known attribute of "None"'
)
"""What is said of a number that may be None, such as the limit of a score without one."""


def _code(page: Path) -> str:
    """Return the Python of a page, without what it prints."""
    lines: list[str] = []
    for kind, block in re.findall(r"```(pycon|python)\n(.*?)```", page.read_text(), re.DOTALL):
        if kind == "python":
            lines += block.splitlines()
            continue
        lines += [line[4:] for line in block.splitlines() if re.match(r"(>>>|\.\.\.)( |$)", line)]
    return "\n".join(lines)


def _problems(folder: Path) -> list[str]:
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "."],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found: list[str] = []
    every = json.loads(checked.stdout)["generalDiagnostics"]
    optional = {
        (d["file"], d["range"]["start"]["line"]) for d in every if OPTIONAL.match(d["message"])
    }
    for each in every:
        file, number = each["file"], each["range"]["start"]["line"]
        line = Path(file).read_text().splitlines()[number]
        is_none = (file, number) in optional
        untyped = "plugins" in file and re.match(r"report(Unknown|Missing)", each["rule"])
        if not (is_none or untyped or any(part in line for part in OF_OTHERS)):
            found.append(f"{Path(file).stem}: {line.strip()}: {each['message']}")
    return found


def _project(folder: Path) -> None:
    """Lay out the package as a wheel does, and the settings of a project beside it."""
    package = folder / "package" / "evalstats_plugin"
    shutil.copytree(ROOT / "evalstats_plugin", package)
    shutil.copytree(ROOT / "adapters", package / "adapters")
    own = {**CONFIG, "extraPaths": ["package"], "exclude": ["package"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(own))


def test_documented_calls_are_of_the_declared_types(tmp_path: Path) -> None:
    """README and all pages; and a call that is wrong is seen."""
    _project(tmp_path)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*/*.md")]
    codes = {page: code for page in pages if (code := _code(page))}
    for page, code in codes.items():
        (tmp_path / f"{page.parent.name}_{page.stem}.py".replace("-", "_")).write_text(code)

    wrong = "import evalstats_plugin as es\nes.intervals([[1.0]], measure={'acc': (0, 1)})\n"
    (tmp_path / "wrong.py").write_text(wrong)

    assert len(codes) > 10
    assert [each.partition(": ")[0] for each in _problems(tmp_path)] == ["wrong"]
