"""What is installed is what is here."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import evalstats_plugin

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


def test_the_wheel_holds_the_adapters_and_nothing_foreign(tmp_path: Path) -> None:
    """adapters/ becomes evalstats_plugin.adapters, not a package of its own."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("evalstats_plugin", "adapters", "pyproject.toml", "README.md", "LICENSE"):
        subprocess.run(["cp", "-R", ROOT / name, copy], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "--wheel-dir", tmp_path, copy],
        check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}

    assert {
        "evalstats_plugin",
        f"evalstats_plugin-{evalstats_plugin.__version__}.dist-info",
    } == tops
    assert "evalstats_plugin/adapters/lm_eval/reader.py" in names
    assert "evalstats_plugin/py.typed" in names
    assert {f"evalstats_plugin/report/html/page.{kind}" for kind in ("css", "js")} < set(names)
