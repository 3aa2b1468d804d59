"""The fixtures are what their README and SHA256SUMS say."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"
HOME_PATHS = re.compile(rb"/(?:home|root|Users)/\w|[A-Za-z]:\\{1,2}Users\\")


def load_checksums() -> ModuleType:
    spec = importlib.util.spec_from_file_location("checksums", FIXTURES / "checksums.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checksums = load_checksums()


def provenance_rows() -> list[str]:
    """Paths in the first column of README's first table."""
    text = (FIXTURES / "README.md").read_text(encoding="utf-8").split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)


def test_every_file_is_listed_and_has_its_digest():
    """SHA256SUMS and the folder agree: nothing missing, extra or changed."""
    assert checksums.differences() == []


def test_every_file_has_a_row_in_the_readme():
    """Each file is named in README's table, itself or by a folder it is in."""
    rows = set(provenance_rows())

    uncovered = [
        name
        for name in checksums.digests()
        if rows.isdisjoint({name, *(str(parent) for parent in Path(name).parents)})
    ]

    assert uncovered == []


@pytest.mark.parametrize("row", provenance_rows())
def test_every_row_in_the_readme_names_something(row: str):
    """README lists nothing that is not there."""
    assert (FIXTURES / row).exists()


def test_every_harness_version_has_a_row_of_its_own():
    """A folder row higher up does not stand in for the version of a harness."""
    versions = {
        path.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("logs/*/*") if path.is_dir()
    }

    assert versions - set(provenance_rows()) == set()


def test_no_file_contains_a_home_path():
    """Nobody's machine shows in the fixtures."""
    telling = [
        name for name in checksums.digests() if HOME_PATHS.search((FIXTURES / name).read_bytes())
    ]

    assert telling == []


def test_a_changed_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The check itself works: it names what was changed, added and removed."""
    (tmp_path / "kept").write_text("a")
    (tmp_path / "gone").write_text("b")
    monkeypatch.setattr(checksums, "FIXTURES", tmp_path)
    monkeypatch.setattr(checksums, "SUMS", tmp_path / "SHA256SUMS")
    checksums.write()
    (tmp_path / "kept").write_text("c")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").write_text("d")

    assert checksums.differences() == ["not listed: new", "missing: gone", "changed: kept"]
