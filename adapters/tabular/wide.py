"""Matrices of scores: a row for each model and a column for each item, or the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evalstats_plugin.adapters.tabular.cells import scores_of
from evalstats_plugin.adapters.tabular.parts import COLUMNS, find
from evalstats_plugin.adapters.tabular.recognition import names_of
from evalstats_plugin.adapters.tabular.takes import filled
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.ranking.columns import Column, Table
from evalstats_plugin.ranking.spellings import missing_column
from evalstats_plugin.responses import TABLES, Responses, Selection, Source, as_item_ids
from evalstats_plugin.wording import few

_METRIC = "score"


def read_wide(table: Table, path: Path, selection: Selection) -> list[Responses]:
    """Read a matrix of one task, named as the file, under the metric ``score``.

    The names of the rows are in the column of that name (``model`` or ``item``), else in the first.

    Raises
    ------
    SelectionError
        A column that was asked for is not there.
    DesignError
        Two rows have one name, a row has none, there are no scores, or a cell is none.
    """
    if not table.names:
        raise LogError(f"{table.where} has no heading, expected names in its first row")
    rows_are, columns_are = ("model", "item") if selection.wide == "models" else ("item", "model")
    heads = _heads(table, path, selection.columns, rows_are)
    names = [name for name in table.names if name != heads]
    if not names:
        msg = f"{table.where} has one column, expected a column for each {columns_are} beside it"
        raise DesignError(msg)
    loaded, about_rows = filled(table.load([heads, *names]))
    rows = _row_names(loaded[heads], heads, rows_are, table.where)
    try:
        parsed = [scores_of(loaded[name], name, table.where) for name in names]
    except DesignError as error:
        hint = f"in a matrix all columns but {heads!r} are of scores: take out any that is not"
        msg = f"{error}; {hint}"
        raise DesignError(msg) from error
    matrix = np.stack([scores for scores, _ in parsed], axis=1)
    models, items = (rows, names) if rows_are == "model" else (names, rows)
    scores = matrix if rows_are == "model" else matrix.T
    task = path.name.partition(".")[0] or path.name
    if not (selection.wants_task(task) and selection.wants_metric(_METRIC)):
        return []
    ids = as_item_ids(items)
    notes = (*table.notes, *dict.fromkeys(note for _, each in parsed for note in each))
    said = (f"{len(notes)} columns: {few(notes, 1)}",) if len(notes) > 1 else notes
    said += (*about_rows, *_about_heads(heads, rows_are, columns_are))
    return [
        Responses(
            model=model,
            task=task,
            metric=_METRIC,
            item_ids=ids if not selection.header_only else ids[:0],
            scores=scores[i][:, None] if not selection.header_only else np.empty((0, 1)),
            source=Source(path=path, harness=TABLES),
            notes=said,
        )
        for i, model in enumerate(models)
    ]


def _heads(table: Table, path: Path, asked: Sequence[tuple[str, str]], rows_are: str) -> str:
    """Return the column that names the rows: often an index, which has no name itself."""
    for part, name in asked:
        if part != rows_are:
            msg = (
                f"{part}={name} asked for, expected {rows_are}=COLUMN at most: in a matrix with a "
                f"row for each {rows_are} that is the only column that is not one of scores"
            )
            raise SelectionError(msg)
        if name not in table.names:
            raise SelectionError(missing_column(name, table.names, table.where))
        return name
    first, *others = names_of(path) or ("",)
    # The heading of thousands of items is longer than what is looked at first.
    unnamed = not first and tuple(others[:2]) == table.names[:2]
    return find(table.names, COLUMNS[rows_are], set()) or ("" if unnamed else table.names[0])


def _about_heads(heads: str, rows_are: str, columns_are: str) -> tuple[str, ...]:
    """Note a column of names that sounds as if rows and columns were the other way round."""
    if find([heads], COLUMNS[rows_are], set()) or not find([heads], COLUMNS[columns_are], set()):
        return ()
    return (
        f"each row is taken for one {rows_are}, though column {heads!r} names them "
        f"(--wide {columns_are}s if the rows are {columns_are}s)",
    )


def _row_names(column: Column, name: str, rows_are: str, where: str) -> list[str]:
    if not len(column.codes):
        msg = f"{where} has a heading and no rows, expected one for each {rows_are}"
        raise DesignError(msg)
    empty = np.flatnonzero(column.empty)
    if len(empty):
        msg = f"{where}: row {empty[0] + 1} has no name in column {name!r}"
        raise DesignError(msg)
    if len(column.values) < len(column.codes):
        twice = int(np.argmax(np.bincount(column.codes) > 1))
        at = np.flatnonzero(column.codes == twice)[:2] + 1
        msg = (
            f"{where}: {rows_are} {column.values[twice]!r} found in rows {at[0]} and {at[1]}, "
            "expected one row for each; a table with a row for each take needs no --wide"
        )
        raise DesignError(msg)
    return [column.values[k] for k in column.codes]
