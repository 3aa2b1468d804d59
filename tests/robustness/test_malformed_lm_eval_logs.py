"""Results and samples of the wrong shape: the error names the file, the place and the problem."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalstats_plugin import read
from evalstats_plugin.errors import LogError

RUN = min(
    (Path(__file__).parents[2] / "fixtures" / "logs").glob("lm_eval/0.4.13/out_samples/models__m2")
)
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Give a copy of a run."""
    return shutil.copytree(RUN, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["results"].update(es_mc=5), r"results\.es_mc is 5 and not an object"),
        (lambda d: d.update(configs=[]), r"configs is \[\] and not an object"),
        (
            lambda d: d["configs"]["es_mc"].update(filter_list="none"),
            r"configs\.es_mc\.filter_list is 'none' and not a list of objects",
        ),
        (
            lambda d: d.update(group_subtasks={"g": ["a", 1]}),
            r"group_subtasks\.g is \['a', 1\] and not a list of names",
        ),
        (
            lambda d: d["n-samples"]["es_mc"].update(effective=float("nan")),
            r"n-samples\.es_mc\.effective is nan and not a number of items",
        ),
        (
            lambda d: d.update(evalstats={"rescored": [{"task": "es_mc", "key": "acc,none"}]}),
            r"evalstats\.rescored: logged is None and not a text",
        ),
    ],
)
def test_results_of_another_shape(change: Change, message: str, run_folder: Path) -> None:
    """The first part that is not as lm-eval writes it."""
    (path,) = run_folder.glob("results_*.json")
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))

    with pytest.raises(LogError, match=rf"{path.name}: {message}, so lm-eval did not write it"):
        read(run_folder)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"metrics": 0.5}, r"line 2 is not a sample .*filter 'none', metrics 0\.5\): it needs"),
        ({"doc_id": [1]}, r"line 2 is not a sample .*doc_id \[1\]"),
        ({"doc_id": 1.5}, r"doc_id 1\.5 is neither a text nor a whole number"),
        ({"filter": 3}, r"filter 3 is not a name"),
        ({"doc_hash": "x" * 5000}, r"doc_hash has 5000 characters"),
        ({"scores_per_repeat": [1]}, r"scores_per_repeat \[1\]\): it needs"),
    ],
)
def test_samples_of_another_shape(changed: dict[str, Any], message: str, run_folder: Path) -> None:
    """A line in the middle of a file that is otherwise whole."""
    (path,) = run_folder.glob("samples_*.jsonl")
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), **changed})
    path.write_text("".join(line + "\n" for line in lines))

    with pytest.raises(LogError, match=rf"{path.name}.*{message}"):
        read(run_folder)


@pytest.mark.parametrize("piece", ["[" * 100_000, "9" * 5_000], ids=["depth", "digits"])
def test_pieces_that_parsers_stumble_over(piece: str, run_folder: Path) -> None:
    """Python's own parser gives up at neither with an error of JSON."""
    (path,) = run_folder.glob("results_*.json")
    path.write_text(path.read_text().replace('"results": {', f'"results": {{"x": {piece},', 1))

    with pytest.raises(LogError, match=rf"{path.name} .*JSON"):
        read(run_folder)
