"""What pyproject promises of versions, against the last runs with both ends of them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FIGURES: dict[str, Any] = json.loads(
    (ROOT / "benchmarks" / "results" / "dependencies.json").read_text()
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = [
    requirement
    for names in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for requirement in names
]
UNOBTAINABLE = {"torch"}
"""Older CPU builds are on no index that we reach; see constraints.txt."""
ADDED_SINCE = {"ray", "threadpoolctl"}
"""Came after the last run with the lowest versions."""
HELD_HIGHER = {"click", "pyarrow", "rich"}
"""An extra asks for a later one than the package does."""

EXEMPT = UNOBTAINABLE | ADDED_SINCE | HELD_HIGHER


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _starts(version: str, bound: str) -> bool:
    """Whether a version is the first of those that a bound allows."""
    found, least = _numbers(version), _numbers(bound)
    return found[: len(least)] == least and not any(found[len(least) :])


def test_nothing_fails_at_either_end() -> None:
    """`python -m benchmarks.dependencies`: counted, and every failure has a reason by name."""
    assert {"lowest", "newest, Python 3.13"} <= set(FIGURES)
    for found in FIGURES.values():
        assert [] == found["failed"]
        assert found["passed"] > 300
        assert sum(found["explained"].values()) < 0.05 * found["passed"]


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    """Each lower bound was installed, and nothing goes without one but what others bring."""
    found = FIGURES["lowest"]["versions"]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+).*", r).groups() for r in ASKED if ">=" in r)  # type: ignore[union-attr]
    checked = {
        name for name, bound in bounds.items() if name not in EXEMPT and _starts(found[name], bound)
    }

    assert checked == set(bounds) - EXEMPT
    assert all(_numbers(found[n]) >= _numbers(bounds[n]) for n in UNOBTAINABLE | HELD_HIGHER)


def test_the_newest_python_of_the_classifiers_ran() -> None:
    """And the oldest."""
    pythons = sorted(
        _numbers(line.rpartition(" ")[2])
        for line in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    )
    ran = sorted(_numbers(found["versions"]["python"])[:2] for found in FIGURES.values())

    assert [pythons[0], pythons[-1]] == [ran[0], ran[-1]]
