"""The runner of mutants: what it changes, what it leaves alone, and that it tells the truth."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from covering import carried
from hypothesis import given
from hypothesis import strategies as st
from mutations import (
    GROUPS,
    all_mutants,
    control_of,
    equivalent,
    mutants_of,
    sample,
)

ROOT = Path(__file__).parents[2]


def _changes(source: str) -> set[str]:
    return {f"{each.original} → {each.mutated}" for each in mutants_of("a.py", source.encode())}


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("x = a + b", {"a + b → a - b", "a + b → a"}),
        ("x = a < b", {"a < b → a <= b", "a < b → a > b"}),
        ("x = a and b", {"a and b → a or b", "a and b → a", "a and b → b"}),
        ("x = 3", {"3 → 4"}),
        ("x = 0.25", {"0.25 → 0.5"}),
        ("x = 1e-9", set()),
        ("x = -2", {"-2 → 2"}),
        ("x = f(-a)", {"-a → a"}),
        ("x = a if c else b", {"a if c else b → a", "a if c else b → b"}),
        ("if c:\n    f()", {"c → not c", "f() → pass"}),
        ("x = [a for a in b if a]", {"a → True"}),
        ("x += y", {"x += y → x -= y", "x += y → pass"}),
        ("x = np.floor(a)", {"np.floor(a) → np.ceil(a)"}),
        ("x = min(a, b)", {"min(a, b) → max(a, b)"}),
        ("x = True", {"True → False"}),
        ("raise ValueError(3)", set()),
        ('x = f"{3}"', set()),
        ('def f(a: "int" = 3) -> None:\n    """Text 3."""', {"3 → 4"}),
        ("@cache(maxsize=3)\ndef f() -> None: ...", set()),
    ],
)
def test_each_kind_of_change(source: str, changes: set[str]) -> None:
    """Every change is one that is listed here."""
    assert _changes(source) == changes


@given(old=st.lists(st.sampled_from("abcd"), min_size=1), new=st.lists(st.sampled_from("abcd")))
def test_lines_are_looked_up_where_they_stand_in_a_later_text(
    old: list[str], new: list[str]
) -> None:
    """Each new line is of some old one, and a line that only moved is the same text."""
    now = carried(old, new)
    places = {line for lines in now.values() for line in lines}

    assert places == set(range(1, len(new) + 1))
    assert now.keys() <= set(range(1, len(old) + 1))
    assert carried(old, old) == {line: [line] for line in range(1, len(old) + 1)}
    longer = carried(old, ["x", *old, "y"])
    assert all(
        old[line - 1] in [(["x", *old, "y"])[at - 1] for at in longer[line]] for line in longer
    )


def test_a_change_moves_no_line() -> None:
    """Of a sample of lines: it parses, differs, and what follows keeps its line."""
    patterns = [f"evalstats_plugin/stats/{name}*.py" for name in ("mu", "n", "ra", "s", "reach")]
    whole = cache(lambda source: ast.dump(ast.parse(source)))
    for mutant in islice(sample(all_mutants(ROOT, patterns), 3), 60):
        source = (ROOT / mutant.path).read_bytes()
        changed = mutant.apply(source)

        assert changed.count(b"\n") == source.count(b"\n")
        assert ast.dump(ast.parse(changed)) != whole(source)
        control = control_of(mutant)
        if control is not None:
            assert ast.dump(ast.parse(control.apply(source))) == whole(source)


def test_every_central_package_has_mutants() -> None:
    """A package that was moved would be left out without a word."""
    for patterns in GROUPS.values():
        for pattern in patterns:
            files = (path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob(pattern)))
            assert any(mutants_of(file, (ROOT / file).read_bytes()) for file in files), pattern


def test_proofs_are_of_mutants_that_exist() -> None:
    """Whoever changes a line that a proof is about has to prove it again."""
    proofs = equivalent(gone=False)
    paths = {key.partition(" ")[0] for key in proofs}
    existing = {m.key for path in paths for m in mutants_of(path, (ROOT / path).read_bytes())}

    assert proofs.keys() <= existing
    assert all(len(proof) > 20 for proof in proofs.values())


def _counted(record: dict[str, Any], package: str) -> tuple[int, int, int, int, str]:
    """Mutants, killed, equivalent, left, and the share killed of those not equivalent."""
    of = record["packages"]
    counts = sum(map(Counter, of.values()), Counter()) if package == "all" else Counter(of[package])
    n, killed, equal = counts.total(), counts["killed"], counts["equivalent"]
    score = f"{killed / (n - equal):.2f}".lstrip("0") if n > equal else "–"
    return n, killed, equal, n - killed - equal, score


def test_the_page_on_proof_says_what_was_found() -> None:
    """Of the first sample, before tests were written for it, and of one drawn after."""
    told = json.loads((ROOT / "fixtures" / "validation" / "mutants.json").read_text())
    page = (ROOT / "docs" / "explanation" / "proof.md").read_text()
    for package in (*GROUPS, "all"):
        _, _, _, _, before = _counted(told["before"], package)
        fresh = " | ".join(map(str, _counted(told["fresh"], package)))

        assert f"| {package} | {before} | {fresh} |" in page
    for record in told.values():
        assert f"seed {record['seed']}" in page
        assert record["controls"]["noticed"] == 0
        assert len(record["survivors"]) == _counted(record, "all")[3]


@pytest.mark.validation
def test_the_runner_tells_killed_from_survived(tmp_path: Path) -> None:
    """One file's mutants by its own tests: most are killed, no control is, and it goes on."""
    output = tmp_path / "result.json"
    command = [
        sys.executable, "-m", "tests.mutants", "--workers", "1", "--seconds", "100",
        "--store", str(tmp_path), "--output", str(output), "--tests", "stats/test_multiplicity",
        "--only", r"multiplicity.py holm.step_down: n",
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    told = json.loads(output.read_text())["mutants"]

    assert {each["state"] for each in told.values() if not each.get("control")} == {"killed"}
    assert [each["state"] for each in told.values() if each.get("control")] == ["survived"]
