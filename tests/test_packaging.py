"""What is installed is what is here."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import evalstats_plugin
from evalstats_plugin.errors import REPOSITORY, install_hint

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _folders(root: Path, package: str) -> set[str]:
    return {
        ".".join([package, *p.parent.relative_to(root).parts]) for p in root.rglob("__init__.py")
    }


def test_every_folder_is_in_the_list_of_packages() -> None:
    """The list is written by hand, because adapters/ is mapped into the package."""
    found = _folders(ROOT / "evalstats_plugin", "evalstats_plugin") | _folders(
        ROOT / "adapters", "evalstats_plugin.adapters"
    )

    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_version_is_said_once() -> None:
    """pyproject, package and installed metadata agree."""
    assert PROJECT["project"]["version"] == evalstats_plugin.__version__
    assert version("evalstats-plugin") == evalstats_plugin.__version__


def test_the_wheel_holds_the_adapters_and_nothing_foreign(wheel: Path) -> None:
    """adapters/ becomes evalstats_plugin.adapters, not a package of its own."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}

    assert {
        "evalstats_plugin",
        f"evalstats_plugin-{evalstats_plugin.__version__}.dist-info",
    } == tops
    assert "evalstats_plugin/adapters/lm_eval/reader.py" in names
    assert "evalstats_plugin/py.typed" in names
    assert {f"evalstats_plugin/report/html/page.{kind}" for kind in ("css", "jinja", "js")} < set(
        names
    )


_WITHOUT = """
import importlib, importlib.abc, pkgutil, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import evalstats_plugin
from evalstats_plugin.errors import EvalStatsError, install_hint

packages = [m.name for m in pkgutil.iter_modules(evalstats_plugin.__path__) if m.ispkg]
for package in ["", *(f".{name}" for name in packages)]:
    module = importlib.import_module(f"evalstats_plugin{package}")
    for name in getattr(module, "__all__", ()):
        try:
            getattr(module, name)
        except EvalStatsError as error:
            print(error)
"""

IMPORTED = {
    "cluster": ["distributed", "dask"], "figures": ["matplotlib"],
    "inspect": ["inspect_ai", "upath"], "lm-eval": ["lm_eval"],
    "models": ["torch", "arviz", "opt_einsum"], "rank": ["textual"], "text": ["sacrebleu"],
}  # fmt: skip
"""What each extra brings, by the names under which it is imported."""


@pytest.mark.parametrize("absent", ["models", "all"])
def test_public_names_load_or_name_the_extra_they_need(absent: str) -> None:
    """In a process that lacks what one extra brings, or what all do; the others have no names."""
    modules = IMPORTED.get(absent) or [each for every in IMPORTED.values() for each in every]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, *modules], capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    assert done.returncode == 0
    refused = done.stdout.splitlines()
    assert [line for line in refused if install_hint("models") not in line] == []
    assert refused


def test_the_command_that_installs_is_spelled_in_one_way() -> None:
    """In code by a function alone; pages and notebooks print what it returns."""
    extras = ["", *PROJECT["project"]["optional-dependencies"]]
    right = re.compile("|".join(re.escape(install_hint(extra)) for extra in extras))
    other = re.compile(r"pip3? install[^`\n]*evalstats.plugin|evalstats-plugin(?:\[| @)")
    files = [
        ROOT / name
        for folder in ("evalstats_plugin", "adapters", "docs", "README.md")
        for name in ((ROOT / folder).rglob("*.*") if (ROOT / folder).is_dir() else [ROOT / folder])
        if name.suffix in {".py", ".md", ".ipynb", ".yml", ".html", ".jinja"}
    ]
    texts = {
        str(file.relative_to(ROOT)): file.read_text(encoding="utf-8").replace("\n> ", " ")
        for file in files
    }
    wrong = {name: other.findall(right.sub("", text)) for name, text in texts.items()}

    assert {} == {name: found for name, found in wrong.items() if found}
    said = {name for name, text in texts.items() if right.search(text)}
    assert {name for name in said if name.endswith(".py")} == {"evalstats_plugin/errors.py"}
    assert {"README.md", "docs/start/install.md"} <= said
    assert PROJECT["project"]["urls"]["Repository"] == REPOSITORY


def test_each_extra_is_tried() -> None:
    assert set(PROJECT["project"]["optional-dependencies"]) == {*IMPORTED, "all"}
