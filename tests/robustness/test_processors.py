"""The same numbers on any processor: what is printed does not hang on the order of additions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from processors import PROCESSORS, Processor, arithmetic, differences

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "rank leaderboard": ["rank", "leaderboard", "votes.csv", "--anchor", "GPT 4=1200"],
    "compare": ["compare", "forty.csv", "--all-pairs"],
    "irt fit": ["irt", "fit", "forty.csv", "--item-model", "2pl"],
    "pool": ["pool", "six.csv"],
    # Starts and penalties that differ in the last digits once led to other optima.
    "irt capabilities": [
        "irt", "capabilities", str(ROOT / "fixtures/logs/inspect_ai/0.3.285/models"),
        "-t", "arith", "-t", "graded", "-m", "match",
    ],
}  # fmt: skip


def _table(n_models: int, tasks: list[str]) -> str:
    """Answers to 60 items; the first two models have the same ones, in another order."""
    rng = np.random.default_rng(35)
    able, hard = rng.normal(size=(n_models, 1)), np.repeat(rng.normal(size=30), 2)
    right = rng.random((n_models, 60)) < 1 / (1 + np.exp(hard - able))
    right[1] = right[0].reshape(30, 2)[:, ::-1].ravel()
    lines = [
        f"m{i},{tasks[k % len(tasks)]},q{k},{int(right[i, k])}" for i, k in np.ndindex(right.shape)
    ]
    return "\n".join(["model,task,item,score", *lines]) + "\n"


@pytest.fixture(scope="module")
def processors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Processor]]:
    folder = tmp_path_factory.mktemp("processors")
    votes = gzip.decompress((ROOT / "fixtures/data/llmfao/votes.csv.gz").read_bytes())
    (folder / "votes.csv").write_bytes(votes)
    (folder / "forty.csv").write_text(_table(40, ["t"]))
    (folder / "six.csv").write_text(_table(6, ["t", "u", "v"]))
    with ExitStack() as stack:
        yield [stack.enter_context(Processor(name, folder)) for name in PROCESSORS]


def test_the_settings_are_two_processors() -> None:
    """Otherwise what follows would compare a thing with itself."""
    first, second = map(arithmetic, PROCESSORS)

    assert first != second


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_same_on_both(name: str, processors: list[Processor]) -> None:
    first, second = (each.run(COMMANDS[name]) for each in processors)

    assert first == second
    assert any(mark in first for mark in ("evalstats-plugin", "Model"))


def test_the_pages_were_the_same_on_both() -> None:
    """What `tests/validation/test_page_numbers.py` found of their sessions."""
    found = json.loads((ROOT / "fixtures/validation/processors.json").read_text())
    exact, drawn = found["all"]

    assert not any(row["numbers_that_differ"] for row in found["commands"] if not row["drawn"])
    assert all(row["same_words"] for row in found["commands"])
    assert exact["commands"] >= 60
    assert drawn["commands"] >= 6
    assert drawn["most_units"] <= 3


def test_differences_count_units_of_the_last_digit_shown() -> None:
    assert differences("a 1.50 b 7", "a 1.53 b 7") == (1, 3.0)
    assert differences("a 1.50", "b 1.50") == (1, float("inf"))
