"""Turns tables into `Responses`: one for each model, task and metric."""
# PART opening - How tables are opened: CSV and its kin, JSONL, Parquet.
# PART cells - How tables spell scores: numbers, percentages, decimal commas, truth values, nothing.
# PART wide - Matrices of scores: a row for each model and a column for each item, or the other way round.
# PART stores - Reads response stores, where their answers fit into memory.

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.tabular.recognition import (
    COLUMNS,
    LINES,
    MAGIC,
    PARQUET,
    TEXTS,
    find,
    head_of,
    is_foreign,
    is_of_scores,
    layout_of,
    looks_flat,
    metadata_in,
    names_of,
    names_of_heading,
    names_of_line,
)
from evalstats_plugin.adapters.tabular.rows import (
    Takes,
    default_names,
    fill,
    filled,
    groups_of,
    metric_of,
)
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import (
    TABLES,
    Responses,
    Selection,
    Source,
    as_item_ids,
    origin,
    with_metadata,
)
from evalstats_plugin.data.store import KEY, LARGE, ResponseStore, StoredTask, tasks_of
from evalstats_plugin.data.tables import (
    Column,
    Table,
    csv_table,
    parquet_table,
    read_lines,
    record_table,
)
from evalstats_plugin.errors import DesignError, LogError, SelectionError, few, missing_column
from evalstats_plugin.runtime.files import rebuilding

METADATA = b"evalstats_takes"
"""Of Parquet files we write: what is known besides scores."""


_MATRIX = b"evalstats"
"""Of files of a `ResponseMatrix`."""


_WORKBOOKS = (".xlsx", ".xls", ".ods")


_PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst")


# Among them what spreadsheets in other languages write for true and false.
_BY_WORD = {
    1.0: "true, t, yes, y, correct, right, pass, passed, success, ✓, "
    "wahr, vrai, verdadero, verdadeiro, vero, waar",
    0.0: "false, f, no, n, incorrect, wrong, fail, failed, failure, ✗, falsch, faux, falso, onwaar",
    math.nan: "nan, na, n/a, #n/a, none, null, nil, missing, -, ?",
}


WORDS = {word: number for number, words in _BY_WORD.items() for word in words.split(", ")}
"""Score by how it is spelt in small letters."""


_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:e[-+]?\d+)?\s*%?", re.IGNORECASE)


_EXPECTED = (
    "a number, a percentage (85%), true or false, yes or no, correct or incorrect, pass or fail, "
    "or nothing (empty, NaN, NA, null) where there is no score"
)


Scores = tuple[NDArray[np.float64], tuple[str, ...]]


_METRIC = "score"


def read_table(path: Path, selection: Selection) -> list[Responses] | None:
    """Read a table, or a response store in one file; None for files that are neither."""
    known = metadata_in(path)
    if (_MATRIX in known or KEY in known) and (selection.columns or selection.wide):
        msg = (
            f"{path} is a file of evalstats-plugin's own, which says what its columns hold: leave "
            "columns and wide (--columns, --wide) out"
        )
        raise SelectionError(msg)
    if _MATRIX in known:
        found = ResponseMatrix.load(path).to_responses()
        source = Source(path=path, harness=TABLES)
        return [replace(r, source=source) for r in found if _wanted(selection, r.task, r.metric)]
    if KEY in known:
        return read_store(path, selection)
    _refuse_others_of_ours(known, path)
    table = open_table(path, announced=bool(selection.columns or selection.wide))
    if table is None:
        return None
    if selection.wide:
        return read_wide(table, path, selection)
    whole = METADATA in known
    found = list(_Reader.of(table, path, selection, may_be_empty=whole).responses())
    if whole and not selection.columns:
        return _with_known(found, known[METADATA], path, selection)
    return found


def _refuse_others_of_ours(known: Mapping[bytes, bytes], path: Path) -> None:
    """Raise `LogError` for fits and item banks, which are Parquet too."""
    ours = [key.decode() for key in known if key.startswith(_MATRIX + b"_")]
    if ours and METADATA not in known:
        msg = (
            f"{path} is a file of evalstats-plugin's own ({ours[0]}), expected scores: it is for "
            "the option or function that asks for such a file"
        )
        raise LogError(msg)


def _wanted(selection: Selection, task: str, metric: str) -> bool:
    return selection.wants_task(task) and selection.wants_metric(metric)


def _with_known(
    found: list[Responses], metadata: bytes, path: Path, selection: Selection
) -> list[Responses]:
    """Add what a Parquet file of ours tells of its responses, those without items among them."""
    by_key = {(r.model, r.task, r.metric): r for r in found}
    made: list[Responses] = []
    with rebuilding(path):
        for known in json.loads(metadata)["responses"]:
            model, task, metric = known["model"], known["task"], known["metric"]
            if not _wanted(selection, task, metric):
                continue
            source = Source(path=path, harness=TABLES, version=origin(known))
            bare = Responses(model=model, task=task, metric=metric, source=source)
            held = by_key.pop((model, task, metric), bare)
            made.append(with_metadata(replace(held, source=source), known))
    return [*made, *by_key.values()]


@dataclass(frozen=True, eq=False)
class _Reader:
    takes: Takes
    scores: Mapping[str, Column]
    path: Path
    selection: Selection
    defaults: Mapping[str, str]

    @classmethod
    def of(cls, table: Table, path: Path, selection: Selection, *, may_be_empty: bool) -> _Reader:
        layout = layout_of(table.names, selection.columns, selection.cluster, table.where)
        loaded, about_rows = filled(table.load(layout.used))
        parts = {part: loaded[name] for part, name in layout.columns.items()}
        size = len(parts["item"].codes)
        if not size and not may_be_empty:
            msg = f"{table.where} has columns and no rows, expected one row for each take"
            raise DesignError(msg)
        defaults, about_names = default_names(path, layout, table.names)
        notes = (*table.notes, *layout.notes, *about_names, *about_rows)
        takes = Takes(table.where, layout, parts, size, notes)
        return cls(takes, {n: loaded[n] for n in layout.scores}, path, selection, defaults)

    def responses(self) -> Iterator[Responses]:
        takes = self.takes
        if "metric" in takes.parts and len(self.scores) > 1:
            msg = (
                f"{takes.where}: {len(self.scores)} columns of scores asked for and a column of "
                "metrics found, expected one or the other: name one score"
            )
            raise SelectionError(msg)
        takes.refuse_empty("item")
        ids = as_item_ids(takes.parts["item"].values)
        models = takes.names("model", self.defaults["model"])
        tasks = takes.names("task", self.defaults["task"])
        for name, column in self.scores.items():
            metrics = takes.names("metric", metric_of(name))
            groups = [
                (self._bare(models.values[m], tasks.values[t], metrics.values[k]), rows)
                for (m, t, k), rows in groups_of((models, tasks, metrics))
            ]
            wanted = [g for g in groups if _wanted(self.selection, g[0].task, g[0].metric)]
            if self.selection.header_only:
                yield from (bare for bare, _ in wanted)
            elif wanted:
                scores, notes = scores_of(column, name, takes.where)
                for bare, rows in wanted:
                    noted = replace(bare, notes=(*bare.notes, *notes))
                    yield fill(noted, takes, rows, ids=ids, scores=scores)

    def _bare(self, model: str, task: str, metric: str) -> Responses:
        return Responses(
            model=model,
            task=task,
            metric=metric,
            source=Source(path=self.path, harness=TABLES),
            notes=self.takes.notes,
        )


def open_table(path: Path, *, announced: bool) -> Table | None:
    """Open a table; None for a file that is none.

    Parameters
    ----------
    announced
        Whether the caller knows it for a table, whatever it is called.

    Raises
    ------
    LogError
        It is a table by its name, but empty, packed, a workbook, or not UTF-8.
    """
    ending = path.suffix.lower()
    if ending in _WORKBOOKS or (ending in _PACKED and _ending_inside(path) in (*TEXTS, *LINES)):
        what = "a workbook: save the sheet as CSV" if ending in _WORKBOOKS else "packed: unpack it"
        raise LogError(f"{path} is {what} first")
    head = head_of(path)
    by_name = announced or ending in (*TEXTS, PARQUET)
    if head.startswith(MAGIC):
        return parquet_table(path.read_bytes(), str(path))
    if not head.strip():
        if not by_name and ending not in LINES:
            return None
        msg = f"{path} is empty, expected a table with a heading and a row for each take"
        raise LogError(msg)
    if head.lstrip().startswith((b"{", b"[")):
        if not _are_takes(head, announced=announced, by_name=ending in LINES):
            return None
        records, notes = read_lines(path.read_bytes(), str(path))
        return record_table(records, str(path), notes)
    if by_name or (ending in (".txt", "") and is_of_scores(names_of_heading(head))):
        return csv_table(path.read_bytes(), str(path))
    return None


def _are_takes(head: bytes, *, announced: bool, by_name: bool) -> bool:
    """Whether JSONL is a table, and not a harness's log or anything else."""
    names = names_of_line(head)
    if is_foreign(names):
        return False
    return announced or (bool(names) and (is_of_scores(names) or (by_name and looks_flat(head))))


def _ending_inside(path: Path) -> str:
    return Path(path.stem).suffix.lower()


def scores_of(column: Column, name: str, where: str) -> Scores:
    """Return the scores of all rows, shape (C,), NaN where missing, and notes on their spelling.

    Raises
    ------
    DesignError
        One is no score, or percentages stand beside numbers above 1; the message has the row.
    """
    numbers, notes = _plain(column.values), ()
    if numbers is None:
        numbers, notes = _spelt(column, name, where)
    return np.append(numbers, math.nan)[column.codes], notes


def _plain(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Read texts that are all numbers as computers write them, which is quick."""
    try:
        return np.asarray(texts, dtype=str).astype(np.float64)
    except ValueError:
        return None


def _spelt(column: Column, name: str, where: str) -> Scores:
    texts = column.values
    commas = [t for t in texts if _DECIMAL_COMMA.fullmatch(t)]
    # "1,5" beside "1.5" could be one and a half or fifteen: not for us to say.
    decimal = bool(commas) and not any("." in t and t.casefold() not in WORDS for t in texts)
    parsed = [_number(t, decimal=decimal) for t in texts]
    wrong = [k for k, number in enumerate(parsed) if number is None]
    mixed = "; commas and points are mixed in this column" if commas and not decimal else ""
    column.refuse(np.isin(column.codes, wrong), f"score ({name})", where, _EXPECTED + mixed)
    numbers = np.array([math.nan if n is None else n for n in parsed])
    percent = np.array([t.endswith("%") for t in texts])
    _refuse_mixed(column, numbers, percent, name, where)
    notes: list[str] = []
    if decimal:
        notes.append(f"{name}: a decimal comma, {commas[0]} is {commas[0].replace(',', '.')}")
    if percent.any():
        k = int(np.argmax(percent))
        notes.append(f"{name}: percentages, {texts[k]} is {numbers[k]:g}")
    return numbers, tuple(notes)


def _number(text: str, *, decimal: bool) -> float | None:
    small = text.casefold()
    if small in WORDS:
        return WORDS[small]
    digits = small.removesuffix("%").rstrip()
    try:
        number = float(digits.replace(",", ".") if decimal else digits)
    except ValueError:
        return None
    return number / 100 if small.endswith("%") else number


def _refuse_mixed(
    column: Column,
    numbers: NDArray[np.float64],
    percent: NDArray[np.bool_],
    name: str,
    where: str,
) -> None:
    if not percent.any():
        return
    large = np.flatnonzero(~percent & (numbers > 1))
    if len(large):
        rows = np.flatnonzero(np.isin(column.codes, large))
        msg = (
            f"{where}: score ({name}) {column.values[int(large[0])]!r} found in row {rows[0] + 1} "
            f"beside percentages such as {column.values[int(np.argmax(percent))]!r}, expected all "
            "scores with a percent sign or none"
        )
        raise DesignError(msg)


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


def read_store(path: Path, selection: Selection) -> list[Responses]:
    """Read what each model answered to each task.

    Raises
    ------
    LogError
        More answers than are read at once, or a damaged file.
    """
    store = ResponseStore(path)
    source = Source(path=path, harness=TABLES)
    tasks = [t for t in tasks_of(store) if selection.wants_task(t.task)]
    tasks = [t for t in tasks if selection.wants_metric(t.metric)]
    if selection.header_only:
        return [
            Responses(model=model, task=t.task, metric=t.metric, source=source)
            for t in tasks
            for model in store.models
        ]
    _check_size(store, tasks)
    return [
        replace(r, source=source, notes=store.notes)
        for task in tasks
        for r in task.responses(np.arange(len(store.models)))
    ]


def _check_size(store: ResponseStore, tasks: list[StoredTask]) -> None:
    n, _, n_epochs = store.shape
    size = n * n_epochs * sum(len(task.places) for task in tasks)
    if size > LARGE:
        msg = (
            f"{store.path} holds {size:,} answers, expected {LARGE:,} at most to read at once: "
            "choose some with --task. The command compare --baseline MODEL reads them in blocks, "
            "as intervals, compare and fit_irt do in Python, given ResponseStore(path)"
        )
        raise LogError(msg)
