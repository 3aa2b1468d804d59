"""Export responses as tables: a row per item and epoch, or a matrix of models and items."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.tabular.reader import METADATA
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses, mean_over_epochs, metadata_of
from evalstats_plugin.data.runs import ResponseSet, one_of_each
from evalstats_plugin.errors import WriteError, counted, few
from evalstats_plugin.runtime import writing
from evalstats_plugin.runtime.files import write_signed
from evalstats_plugin.runtime.untrusted import csv_cell

Written = tuple[list[Path], list[str]]
_Cells = Callable[[Responses], Any]

_ALWAYS: dict[str, _Cells] = {
    "model": lambda r: _all(r, r.model),
    "task": lambda r: _all(r, r.task),
    "metric": lambda r: _all(r, r.metric),
    "item": lambda r: _texts(r, r.item_ids),
    "epoch": lambda r: np.indices(r.scores.shape)[1].ravel(),
    "score": lambda r: r.scores.ravel(),
}

_SOMETIMES: dict[str, _Cells] = {
    "cluster": lambda r: _texts(r, r.clusters),
    "hash": lambda r: _texts(r, r.item_hashes),
    "weight": lambda r: _all(r, None) if r.weights is None else _each(r, r.weights),
    "higher_is_better": lambda r: _all(r, r.higher_is_better),
    "min_score": lambda r: _all(r, r.bounds and float(r.bounds[0])),
    "max_score": lambda r: _all(r, r.bounds and float(r.bounds[1])),
}
"""Columns that are left out where they would be empty."""


def write_csv(responses: ResponseSet, output: Path, *, matrix: bool = False) -> Written:
    """Write a CSV file with a row per item and epoch, or a matrix with a row per model."""
    return _write_text(responses, output, ",", matrix=matrix)


def write_tsv(responses: ResponseSet, output: Path, *, matrix: bool = False) -> Written:
    """Write the same as `write_csv`, separated by tabs."""
    return _write_text(responses, output, "\t", matrix=matrix)


def write_jsonl(responses: ResponseSet, output: Path) -> Written:
    """Write a JSON object per item and epoch; a missing score is null."""
    every = one_of_each(responses.responses)
    table = _tidy(every, output)
    columns = {name: table[name].to_pylist() for name in table.column_names}
    lines = [
        json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n"
        for row in zip(*columns.values(), strict=True)
    ]
    written = writing.write_bytes(output, "".join(lines).encode())
    return [written], [*_notes_on_duplicates(responses, every), *_notes_on_missing(every)]


def write_py_irt(responses: ResponseSet, output: Path) -> Written:
    """Write a line for each model with its answers by item, which py-irt fits."""
    table, notes = _wide(responses)
    names = table.column_names[1:]
    lines = [
        json.dumps(
            {
                "subject_id": row["model"],
                "responses": {
                    # py-irt tells right from wrong by whole numbers.
                    name: int(score) if float(score).is_integer() else score
                    for name in names
                    if (score := row[name]) is not None
                },
            },
            ensure_ascii=False,
        )
        for row in table.to_pylist()
    ]
    scores = [cell for name in names for cell in table[name].to_pylist() if cell is not None]
    between = sum(score not in (0, 1) for score in scores)
    if between:
        notes.append(
            f"{between} of {counted(len(scores), 'answer')} are neither 0 nor 1, but py-irt's "
            "models need right and wrong: export a metric of right and wrong answers (--metric)"
        )
    return [writing.write_bytes(output, "".join(f"{line}\n" for line in lines).encode())], notes


def write_parquet(responses: ResponseSet, output: Path, *, matrix: bool = False) -> Written:
    """Write a Parquet file with a row per item and epoch and all else as metadata; or a matrix."""
    if matrix:
        joined, notes = _joined(responses)
        joined.save(output)
        return [output], notes
    every = one_of_each(responses.responses)
    records = [
        {"model": r.model, "task": r.task, "metric": r.metric, **metadata_of(r)} for r in every
    ]
    table = _tidy(every, output, may_be_empty=True)
    written = write_signed(table, output, METADATA, {"responses": records})
    notes = list(_notes_on_duplicates(responses, every))
    if paired := [r for r in every if r.pairs is not None]:
        notes.append(
            f"of labels and texts of items only the value they make is held: {_named(paired)}"
        )
    return [written], notes


def _write_text(responses: ResponseSet, output: Path, separator: str, *, matrix: bool) -> Written:
    if matrix:
        table, notes = _wide(responses)
    else:
        every = one_of_each(responses.responses)
        table = _tidy(every, output)
        notes = [*_notes_on_duplicates(responses, every), *_notes_on_missing(every)]
    pa_csv: Any = import_module("pyarrow.csv")
    buffer = io.BytesIO()
    form = pa_csv.WriteOptions(delimiter=separator, quoting_style="needed")
    pa_csv.write_csv(_inert(table), buffer, form)
    return [writing.write_bytes(output, buffer.getvalue())], notes


def _inert(table: Any) -> Any:
    """Return an Arrow table whose texts and headings are no formulas for a spreadsheet."""
    pa: Any = import_module("pyarrow")

    def text(cell: str | None) -> str | None:
        return None if cell is None else csv_cell(cell)

    columns = [
        pa.array(map(text, column.to_pylist()), pa.string())
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=list(map(csv_cell, table.column_names)))


def _tidy(every: Sequence[Responses], output: Path, *, may_be_empty: bool = False) -> Any:
    """Return an Arrow table with a row per item and epoch."""
    pa: Any = import_module("pyarrow")
    held = [r for r in every if r.scores.size]
    if not held and not may_be_empty:
        raise WriteError(
            f"{output} would hold no row: none of the {len(every)} responses has scores of "
            "items; every-eval-ever and parquet hold values without items too"
        )
    columns = {name: _column(held, of) for name, of in _ALWAYS.items()}
    some = {name: _column(held, of) for name, of in _SOMETIMES.items()}
    columns |= {name: cells for name, cells in some.items() if cells.null_count < len(cells)}
    if any(r.aggregation != "mean" for r in held):
        columns["aggregation"] = _column(held, lambda r: _all(r, r.aggregation))
    return pa.table(columns)


def _column(held: Sequence[Responses], of: _Cells) -> Any:
    pa: Any = import_module("pyarrow")
    parts = [pa.array(of(r), from_pandas=True) for r in held]
    types = [p.type for p in parts if not pa.types.is_null(p.type)]
    kind = types[0] if types else pa.string()
    same = [p if p.type == kind else p.cast(kind) for p in parts]
    return pa.chunked_array(same, type=kind)


def _each(r: Responses, values: Any) -> Any:
    """Repeat an item's value for each of its epochs."""
    return np.repeat(np.asarray(values), r.scores.shape[1])


def _all(r: Responses, value: Any) -> Any:
    pa: Any = import_module("pyarrow")
    return pa.nulls(r.scores.size) if value is None else pa.repeat(value, r.scores.size)


def _texts(r: Responses, values: NDArray[Any] | None) -> Any:
    return _all(r, None) if values is None else _each(r, values.astype(str))


def _joined(responses: ResponseSet) -> tuple[ResponseMatrix, list[str]]:
    joined = responses.matrix()
    return joined, [*joined.notes, *_notes_on_missing(list(responses))]


def _wide(responses: ResponseSet) -> tuple[Any, list[str]]:
    """Return an Arrow table with a row per model and a column per item, and notes."""
    pa: Any = import_module("pyarrow")
    joined, notes = _joined(responses)
    names = [str(item) for item in joined.item_ids]
    tasks = list(dict.fromkeys(str(task) for task in joined.tasks))
    if len(tasks) > 1:
        names = [f"{task}/{item}" for task, item in zip(joined.tasks, names, strict=True)]
        notes.append(f"{counted(len(tasks), 'task')} in one matrix: items are named TASK/ITEM")
    n_epochs = joined.scores.shape[2]
    if n_epochs > 1:
        notes.append(f"up to {n_epochs} epochs: each cell is the mean of those that were scored")
    scores = mean_over_epochs(joined.scores)
    columns = [pa.array(joined.models), *(pa.array(s, from_pandas=True) for s in scores.T)]
    return pa.table(columns, names=["model", *names]), notes


def _notes_on_duplicates(responses: ResponseSet, every: Sequence[Responses]) -> Iterator[str]:
    if more := len(responses) - len(every):
        yield f"{more} more responses of the same model, task and metric: the latest are written"


def _notes_on_missing(every: Sequence[Responses]) -> Iterator[str]:
    if without := [r for r in every if not r.scores.size]:
        yield (
            f"{len(without)} of the responses have no scores of items, so no rows "
            f"({_named(without)}): only every-eval-ever and parquet hold their values"
        )


def _named(some: Sequence[Responses]) -> str:
    return few(list(dict.fromkeys(f"{r.task} {r.metric}" for r in some)))
