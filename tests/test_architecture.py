"""The layout: packages by question, few modules, no import circles, documented public names."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

import evalstats_plugin

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "adaptive", "comparisons", "data", "hierarchical", "irt", "logs", "ranking", "report", "scores",
)  # fmt: skip
"""Packages of a question, and those that people use beside them."""


def _modules() -> dict[str, Path]:
    """Return the file of each module, by its dotted name."""
    found: dict[str, Path] = {}
    for root in ("evalstats_plugin", "adapters"):
        for path in (ROOT / root).rglob("*.py"):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            parts = ["evalstats_plugin", *parts] if root == "adapters" else parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


# Expressions find in a twentieth of the time what a parser finds.
FROM = re.compile(r"^ *from ([\w.]+) import (\([^)]*\)|.+)", re.MULTILINE)
IMPORT = re.compile(r"^ *import (.+)", re.MULTILINE)


def _imported(text: str) -> set[str]:
    """Return the modules and the dotted names that a text imports anywhere, types included."""
    names = {
        f"{of}.{name}" for of, names in FROM.findall(text) for name in re.findall(r"\w+", names)
    }
    return names.union(*(re.findall(r"[\w.]+", names) for names in IMPORT.findall(text)))


def _imports(name: str) -> set[str]:
    """Return the modules of ours that a module imports."""
    names = _imported(MODULES[name].read_text())
    found = {each if each in MODULES else each.rpartition(".")[0] for each in names}
    return {each for each in found if each in MODULES and each != name}


def test_there_are_few_modules_and_no_crowded_folder() -> None:
    """At most 321 modules; a folder has at most 17 entries."""
    entries: dict[Path, int] = defaultdict(int)
    for path in MODULES.values():
        entries[path.parent] += path.name != "__init__.py"
    for folder in list(entries):
        if folder.parent in entries:
            entries[folder.parent] += 1

    assert len(MODULES) <= 321
    assert {str(k): n for k, n in entries.items() if n > 17} == {}


def _circles(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Give the strongly connected parts with more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[list[str]]:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in index:
                yield from visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = [stack.pop()]
            while part[-1] != node:
                part.append(stack.pop())
            if len(part) > 1:
                yield sorted(part)

    for node in sorted(edges):
        if node not in index:
            yield from visit(node)


def test_no_imports_go_in_a_circle() -> None:
    """Imports for types count; a package's `__init__` only lists names, which load on use."""
    lists = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    edges = {name: _imports(name) - lists for name in MODULES if name not in lists}

    assert list(_circles(edges)) == []


def test_a_circle_is_found() -> None:
    """Negative control."""
    assert list(_circles({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == [["b", "c"]]


def _misplaced(text: str) -> set[str]:
    """Return private names that a module defines and does not use, or imports from another."""
    lines = re.findall(r"^(?!from |import )\S.*", text, re.MULTILINE)
    names = {name for line in lines for name in re.findall(r"\w+", re.split(r"[(:]| = ", line)[0])}
    uses = Counter(re.findall(r"\w+", text))
    unused = {name for name in names if uses[name] == 1}
    imported = {
        name.rpartition(".")[2] for name in _imported(text) if name.startswith("evalstats_plugin")
    }
    return {name for name in unused | imported if re.match("_[^_]", name)}


def test_private_names_are_used_in_their_module_and_nowhere_else() -> None:
    """Of modules; ruff looks at names inside functions."""
    misplaced = {name: _misplaced(path.read_text()) for name, path in MODULES.items()}

    assert {name: names for name, names in misplaced.items() if names} == {}


def test_a_misplaced_name_is_found() -> None:
    """Negative control."""
    text = "from evalstats_plugin.data import _a, b\n\nC = _D = 1\n\ndef _f():\n    return _D\n"

    assert _misplaced(text) == {"_a", "_f"}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_public_names_load_and_are_listed(package: str) -> None:
    """`dir()` is `__all__`, sorted, and every name is there."""
    module = import_module(f"evalstats_plugin.{package}".rstrip("."))

    assert dir(module) == sorted(set(module.__all__) - {"__version__"})
    for name in module.__all__:
        assert getattr(module, name) is not None
    # A submodule of the same name would take the name's place once it is imported.
    modules = {
        name.rpartition(".")[2] for name in MODULES if name.startswith(f"{module.__name__}.")
    }
    inside = {n for n in modules if f"{module.__name__}.{n}" in MODULES}
    assert not inside & set(module.__all__) - set(PACKAGES)


@pytest.mark.needs("torch")
def test_every_public_name_is_on_the_python_page() -> None:
    """In an example; `tests/docs/test_site.py` looks for its docstring."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    plugins = (ROOT / "docs" / "reference" / "plugins.md").read_text()
    examples = "\n".join(re.findall(r"```py\w+\n(.*?)```", page + plugins, re.DOTALL))
    missing: list[str] = []
    for package in ("", *PACKAGES):
        module = import_module(f"evalstats_plugin.{package}".rstrip("."))
        for name in set(module.__all__) - {"__version__", *PACKAGES}:
            if package and name in evalstats_plugin.__all__:
                continue
            if not re.search(rf"\b{name}\b", examples):
                missing.append(f"{package}.{name} has no example")

    assert missing == []


def test_pages_import_public_modules_only() -> None:
    """What documents import is a name of the package or of a package of a question."""
    public = {"evalstats_plugin", *(f"evalstats_plugin.{package}" for package in PACKAGES)}
    public |= {f"evalstats_plugin.{name}" for name in ("errors", "hookspecs", "testing")}
    imported = re.compile(
        r"^(?:>>> |\.\.\. )?\s*(?:from|import) (evalstats_plugin[\w.]*)", re.MULTILINE
    )
    private = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for name in imported.findall(page.read_text())
        if name not in public
    ]

    assert private == []


def test_results_show_themselves_through_two_doors() -> None:
    """`plot` and the tables are the only ways up from results to the report."""
    text = (ROOT / "evalstats_plugin" / "data" / "results.py").read_text()

    assert re.findall(r"import_module\(\"evalstats_plugin\.([\w.]+)\"\)", text) == [
        "report.figures", "report.text"
    ]  # fmt: skip
