"""Numbers of papers, of other programs and of studies, kept in `fixtures`."""

import json
from fnmatch import fnmatch
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures"


def kept(name):
    """Return what a file of `fixtures` holds."""
    return json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))


def golden(*methods, file="golden/comparisons"):
    """Give a test the cases of some methods, or of patterns of their names."""
    cases = [
        case
        for case in kept(file)["cases"]
        if any(fnmatch(case["method"], method) for method in methods)
    ]
    assert cases
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])
