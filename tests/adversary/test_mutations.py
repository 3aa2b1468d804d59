"""Documents of every reader, mutated: data or an error of ours, soon, and in little memory.

A mutation changes what a document says, not only its bytes (`tests/robustness/damage.py`): types,
lists for texts, what is missing, there twice, huge, NaN, deep, of another encoding. Logs are not
only read but used: scored, compared, laid out as a table and checked, where most mistakes of a
reader come to light. A mutation has a number, which makes it again::

    EVALSTATS_MUTATIONS=500000 python -m pytest -n 2 tests/adversary/test_mutations.py
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from damage import (
    Choices,
    Damage,
    cells_changed,
    damaged,
    json_changed,
    lines_changed,
    members_changed,
    table_changed,
    toml_changed,
)
from evaluations import SCALES, Evaluation, Group, Task, fill
from log_relations import RENDERINGS
from logs import megabytes
from readers import NEEDED, NEVER_REFUSED, READERS, Reader, outcome

MUTATIONS = int(os.environ.get("EVALSTATS_MUTATIONS", "2000"))
"""Of all readers together, about."""

SLOW = {
    "Inspect eval set": 8, "Inspect .json": 4, "Inspect votes": 4, "Inspect written": 8,
    "Inspect .json written": 8, "Inspect .eval": 4, "Inspect texts": 4, "IRT fit": 2,
    "IRT factor fit": 2, "Inspect .json used": 2, "Inspect .eval used": 4,
    "lm-eval used": 0.5, "lm-eval samples used": 0.5, "HELM used": 0.5, "lighteval used": 0.5,
    "lighteval details used": 0.5, "Every Eval Ever used": 0.5,
}  # fmt: skip
"""How many times fewer mutations a reader gets than others: those that load more are slower, and
those whose logs are used find more."""

MEGABYTES = 400
"""Most that the mutations of one reader may add to the process."""


def small() -> Evaluation:
    """Return an evaluation with something of everything: two of each, groups, clusters, holes."""
    scales = (SCALES["right"], SCALES["share"])
    tasks = (Task("one", 4, scales, clusters=(0, 0, 1, 1)), Task("two", 3, scales))
    groups = (Group("both", ("one", "two"), weighted=True),)
    e = Evaluation(("a", "b"), tasks, groups, seed=4)
    return fill(e, missing=0.1)


@cache
def _written(name: str) -> Path:
    """Write the small evaluation in a form, once; the folder is copied for each reader."""
    folder = Path(mkdtemp())
    RENDERINGS[name].write(small(), folder)
    return folder


def use(path: Path, root: Path) -> object:
    """Read the logs below a folder and do with them what commands do."""
    import evalstats_plugin as es
    from evalstats_plugin.errors import DesignError
    from evalstats_plugin.logs.reading import check
    from evalstats_plugin.report.text import to_json

    del path
    read = es.read(root)
    results: list[Any] = [es.intervals(read, rng=0)]
    for function in (es.compare, es.table):
        try:
            results.append(function(read, rng=0))
        except DesignError:
            continue
    for result in results:
        json.loads(to_json(result, {}))
        result.to_markdown()
    check(root)
    return results


def _used(form: str, pattern: str, *damage: Damage) -> Reader:
    """Return the reader of a form of the small evaluation, of which one file is mutated."""
    roots: dict[Path, Path] = {}

    def make(folder: Path) -> Path:
        root = folder / "logs"
        shutil.copytree(_written(form), root)
        path = min(p for p in root.rglob("*") if p.is_file() and p.match(pattern))
        roots[path] = root
        return path

    return Reader(make, lambda path: use(path, roots[path]), damage)


def _written_protocol(folder: Path) -> Path:
    path = folder / "gate.toml"
    path.write_text(
        'task = ["one"]\nmetric = ["right"]\nmodels = ["a", "b"]\nmargin = "0.02"\n'
        "confidence-level = 0.9\nseed = 3\n"
    )
    return path


def _protocol(path: Path) -> object:
    """Let a file pin how a gate decides."""
    import click

    from evalstats_plugin.cli import main
    from evalstats_plugin.cli.gate import take_protocol

    with main.make_context("x", ["gate"]) as root:
        gate = main.get_command(root, "gate")
        assert gate is not None
        with click.Context(gate, parent=root, info_name="gate") as inner:
            return take_protocol(inner, gate.params[0], str(path))


ALL: Mapping[str, Reader] = {
    **READERS,
    "lm-eval used": _used("lm-eval", "results*.json", json_changed),
    "lm-eval samples used": _used("lm-eval", "samples_one*.jsonl", lines_changed),
    "Inspect .json used": _used("Inspect", "*.json", json_changed),
    "Inspect .eval used": _used("Inspect .eval", "*.eval", members_changed),
    "HELM used": _used("HELM", "per_instance_stats.json", json_changed),
    "HELM values used": _used("HELM", "stats.json", json_changed),
    "HELM specification used": _used("HELM", "run_spec.json", json_changed),
    "HELM state used": _used("HELM", "scenario_state.json", json_changed),
    "lighteval used": _used("lighteval", "results*.json", json_changed),
    "lighteval details used": _used("lighteval", "details*.parquet", table_changed),
    "Every Eval Ever used": _used("Every Eval Ever", "*.json", json_changed),
    "Every Eval Ever instances used": _used("Every Eval Ever", "*.jsonl", lines_changed),
    "table used": _used("CSV", "*.csv", cells_changed),
    "lines used": _used("JSON lines", "*.jsonl", lines_changed),
    "protocol of a gate": Reader(_written_protocol, _protocol, [toml_changed]),
}


def share_of(name: str) -> int:
    """Return how many mutations a reader gets."""
    weights = {other: 1 / SLOW.get(other, 1) for other in ALL}
    return max(4, round(MUTATIONS * weights[name] / sum(weights.values())))


def mutation(name: str, number: int) -> Choices:
    """Return the choices of a numbered mutation of a reader's document."""
    return Choices(random.Random(f"{name} {number}").randbytes(96))  # noqa: S311


def tried(
    name: str, reader: Reader, folder: Path, numbers: range
) -> tuple[Counter[str], dict[str, str]]:
    """Mutate so many times; return what came of it, and of each kind of finding the first."""
    path = reader.make(folder)
    good = path.read_bytes()
    assert "read" == outcome(reader, path)
    seen: Counter[str] = Counter()
    findings: dict[str, str] = {}
    for number in numbers:
        path.write_bytes(damaged(good, mutation(name, number), reader.damage))
        try:
            seen[outcome(reader, path)] += 1
        except Exception as error:  # noqa: BLE001 - any is a finding
            kind = _kind(error)
            seen["finding"] += 1
            findings.setdefault(kind, f"mutation {number}: {kind}: {str(error)[:200]}")
    return seen, findings


def _kind(error: Exception) -> str:
    """Return an exception's type and where it was raised, in our own code and at all."""
    first: BaseException = error
    while first.__cause__ is not None:
        first = first.__cause__
    frames = traceback.extract_tb(first.__traceback__)
    ours = [f for f in frames if "evalstats_plugin" in f.filename or "adapters" in f.filename]
    places = {f"{Path(f.filename).name}:{f.lineno}" for f in (*ours[-1:], frames[-1])}
    return f"{type(first).__name__} in {', '.join(sorted(places))}"


def _cases() -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.needs(NEEDED[name])) if name in NEEDED else name
        for name in ALL
    ]


@pytest.mark.parametrize("name", _cases())
def test_data_or_an_error_of_ours(name: str, tmp_path: Path) -> None:
    """Whatever a document says: nobody else's exception, no hanging, no eating of memory."""
    before, start = megabytes(), time.process_time()

    seen, findings = tried(name, ALL[name], tmp_path, range(share_of(name)))

    assert not findings, "\n".join(findings.values())
    assert {"read", "refused"} >= set(seen)
    assert "refused" in seen or name in NEVER_REFUSED or seen.total() < 20
    assert megabytes() - before < MEGABYTES
    _note(name, seen, time.process_time() - start)


def _note(name: str, seen: Counter[str], seconds: float) -> None:
    """Append what was tried to the file that the environment names."""
    if file := os.environ.get("EVALSTATS_MUTATIONS_FILE"):
        row = {"reader": name, **seen, "seconds": round(seconds, 1)}
        with Path(file).open("a") as to:
            to.write(json.dumps(row) + "\n")


TRUSTING: Mapping[str, Callable[[Any], object]] = {
    "adds": lambda told: [n + 1 for n in told["a"]],
    "asks for more": lambda told: told["b"].get("c").strip(),
    "counts": lambda told: [0] * int(told["a"][0]),
}
"""Readers that trust what they read, each in a way of its own."""


@pytest.mark.parametrize("name", TRUSTING)
def test_a_reader_that_trusts_its_document_is_found_out(name: str, tmp_path: Path) -> None:
    """By as few mutations as each reader of ours gets."""

    def make(folder: Path) -> Path:
        path = folder / "document.json"
        path.write_text(json.dumps({"a": [1, 2, 3], "b": {"c": "text"}}))
        return path

    reader = Reader(make, lambda p: TRUSTING[name](json.loads(p.read_bytes())), [json_changed])

    _, findings = tried(name, reader, tmp_path, range(15))

    assert findings
