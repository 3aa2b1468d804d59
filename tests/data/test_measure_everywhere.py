"""A number carries its meaning: through every door, into every row and every file."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import evalstats_plugin as es
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.errors import SelectionError

SOURCE = Path(__file__).parents[2] / "evalstats_plugin"

PARTS = {"bounds", "scale", "direction", "higher_is_better", "lower_is_better", "aggregation"}
"""Arguments that would say what a measure says."""

OF_RATINGS = {"rank", "leaderboard"}
"""Functions whose scale is that of ratings or abilities, not of scores."""

GRADES = es.Measure(task="essays", metric="judge", scale=es.Scale(1, 10), higher_is_better=True)
MODELS = ("ours", "theirs")


def _public() -> Iterator[tuple[str, set[str]]]:
    """Yield public functions, and methods of public classes, with the names of their arguments."""
    names: dict[Path, set[str]] = {}
    for stub in SOURCE.rglob("__init__.pyi"):
        for line in ast.parse(stub.read_text()).body:
            if not isinstance(line, ast.ImportFrom) or line.module is None:
                continue
            file = SOURCE.parent.joinpath(*line.module.split(".")).with_suffix(".py")
            names.setdefault(file, set()).update(alias.name for alias in line.names)
    for file in filter(Path.exists, names):
        for node in ast.parse(file.read_text()).body:
            if getattr(node, "name", None) in names[file]:
                yield from _functions(node, "")


def _functions(node: ast.AST, inside: str) -> Iterator[tuple[str, set[str]]]:
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        yield inside + node.name, {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
    elif isinstance(node, ast.ClassDef):
        for own in node.body:
            yield from _functions(own, f"{node.name}.")


def test_no_public_function_takes_what_a_measure_says() -> None:
    """But for the measure's own methods."""
    every = dict(_public())
    found = {
        name: parts
        for name, arguments in every.items()
        if (parts := PARTS & arguments)
        and not name.startswith(("Measure.", "Scale."))
        and name not in OF_RATINGS
    }

    assert len(every) > 150
    assert "measure" in every["intervals"]
    assert found == {}


def _scores() -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.round(rng.uniform(3, 9, (2, 10)))


def _tidy() -> pd.DataFrame:
    rows = [
        {"model": model, "item": f"item_{j}", "score": score, "task": "essays", "metric": "judge"}
        for model, own in zip(MODELS, _scores(), strict=True)
        for j, score in enumerate(own)
    ]
    return pd.DataFrame(rows)


def _lists() -> es.ResponseSet:
    source = es.Source(path=Path(), harness="mine")
    return es.ResponseSet(
        tuple(
            es.Responses(
                model=model,
                measure=es.Measure(task="essays", metric="judge"),
                item_ids=np.array([f"item_{j}" for j in range(10)]),
                scores=own,
                source=source,
            )
            for model, own in zip(MODELS, _scores(), strict=True)
        )
    )


def _csv(folder: Path) -> Path:
    _tidy().to_csv(folder / "grades.csv", index=False)
    return folder / "grades.csv"


def _log(folder: Path) -> Path:
    from lm_eval_logs import write_log

    for model, own in zip(MODELS, _scores(), strict=True):
        write_log(folder, model, {"essays": own.tolist()})
        for file in (folder / model).iterdir():
            text = file.read_text().replace('"acc,none"', '"judge,none"')
            file.write_text(text.replace('"acc"', '"judge"'))
    return folder


FORMS: dict[str, Callable[[Path], Any]] = {
    "array": lambda _: _scores(),
    "matrix": lambda _: es.ResponseMatrix.from_array(_scores(), models=MODELS, measure=GRADES),
    "responses": lambda _: _lists(),
    "frame": lambda _: _tidy(),
    "frame without names": lambda _: _tidy().drop(columns=["task", "metric"]),
    "records": lambda _: _tidy().to_dict(orient="records"),
    "CSV": _csv,
    "log": _log,
    "store": lambda folder: write_store(
        folder / "s.parquet", es.ResponseMatrix.from_array(_scores(), models=MODELS, measure=GRADES)
    ),
}

OWN = ("model", "metric", "log", "logged", "logged_std_error", "notes", "measure", "depth")
"""Fields in which a form may differ: names, and what a log says besides the scores."""


def _plain(row: Any, **names: str) -> dict[str, Any]:
    found = {field.name: getattr(row, field.name) for field in fields(row)}
    return {k: v for k, v in found.items() if k not in (*OWN, *names)}


@pytest.fixture(scope="module")
def rows_of_lists() -> tuple[Any, Any]:
    """Intervals and the comparison of responses."""
    return es.intervals(_lists(), measure=GRADES), es.compare(_lists(), measure=GRADES, rng=0)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_numbers_give_the_same_row(
    form: str, tmp_path: Path, rows_of_lists: tuple[Any, Any]
) -> None:
    """To the last digit, whatever they come in, under the same measure."""
    held = FORMS[form](tmp_path)
    expected, [expected_pair] = rows_of_lists
    rows = es.intervals(held, measure=GRADES)
    [pair] = es.compare(held, measure=GRADES, rng=0)

    assert [_plain(row) for row in rows] == [_plain(row) for row in expected]
    skipped = {"model_a": "", "model_b": "", "family": ""}
    assert _plain(pair, **skipped) == _plain(expected_pair, **skipped)
    for row in (*rows, pair):
        assert row.measure is not None
        assert (row.measure.task, row.measure.name) == ("essays", "judge")
        assert (row.measure.bounds, row.measure.scale_from) == ((1, 10), "given")
        assert row.measure.higher_is_better is True


def test_a_measure_of_nothing_that_is_there_is_an_error() -> None:
    """A misspelt metric must not leave the scores as they were."""
    with pytest.raises(SelectionError, match=r"no metric is called 'jugde'; did you mean judge"):
        es.intervals(_lists(), measure=es.Measure(metric="jugde", scale=es.Scale(1, 10)))
    with pytest.raises(SelectionError, match="no task is called 'essay'; did you mean essays"):
        es.compare(_lists(), measure=es.Measure(task="essay", scale=es.Scale(1, 10)))


def test_a_given_scale_takes_the_note_on_the_seen_one_away(tmp_path: Path) -> None:
    """The log was read before the user said what its scores are."""
    seen = es.read(_csv(tmp_path))
    assert "taken as a scale from 1 to 10" in seen.responses[0].notes[-1]

    rows = es.intervals(seen, measure=GRADES)
    assert not any("taken as" in note for row in rows for note in (*row.notes, *rows.notes))
    assert rows == es.intervals(es.read(_csv(tmp_path), measure=GRADES))
    directed = es.intervals(seen, measure=es.Measure(higher_is_better=False))
    assert "taken as a scale from 1 to 10" in directed[0].notes[-1]


def test_every_kind_of_row_has_its_measure_in_json() -> None:
    """In one form, which is read back; and in no column of a table."""
    held = _lists()
    kinds = (
        es.intervals(held, measure=GRADES),
        es.compare(held, measure=GRADES, rng=0),
        es.table(held, measure=GRADES, rng=0),
        es.gate(held, measure=GRADES, baseline="ours", rng=0),
    )
    for results in kinds:
        stored = json.loads(json.dumps(results.to_dict(), allow_nan=False))
        assert len(stored) == len(results) > 0
        for row, found in zip(results, stored, strict=True):
            assert es.Measure.from_dict(found["measure"]) == row.measure
            assert found["measure"]["scale"]["high"] == 10
        assert "measure" not in results.to_frame().columns


def test_annotations_and_stores_have_the_measure(tmp_path: Path) -> None:
    """Of each interval and comparison that is written into a log."""
    log = _log(tmp_path / "logs")
    copies = es.annotate(log, output=tmp_path / "annotated")
    blocks = [json.loads(path.read_text())["evalstats"] for path in copies]
    for block in blocks:
        for row in (*block["intervals"], *block["comparisons"]):
            assert es.Measure.from_dict(row["measure"]).metric == "judge,none"

    matrix = es.ResponseMatrix.from_array(_scores(), measure=GRADES)
    other = replace(
        matrix,
        tasks=np.full(10, "other"),
        measures=(replace(GRADES, task="other", scale=es.Scale(0, 100)),),
    )
    store = write_store(tmp_path / "s.parquet", [matrix, other])
    assert {m.task: m.bounds for m in store.measures} == {"essays": (1, 10), "other": (0, 100)}
    assert store.matrix().measure_of["essays", "judge"] == matrix.measures[0]
