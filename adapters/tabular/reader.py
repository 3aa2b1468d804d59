"""Read `Responses` from tables: one for each model, task and metric.

`read_table` reads a file: a table with a row per item and epoch, a matrix of models and
items (`read_wide`), or a file of ours. `open_table` opens CSV, JSONL (py-irt's too) and Parquet;
`scores_of` reads scores in any spelling (numbers, percentages, decimal commas, words); `read_store`
reads response stores that fit into memory.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.tabular.published import markdown_table, published_table
from evalstats_plugin.adapters.tabular.recognition import (
    COLUMNS,
    LINES,
    MAGIC,
    MARKDOWN,
    OF_NO_METRIC,
    PARQUET,
    TEXTS,
    closest,
    epochs_in,
    find,
    first_record,
    is_flat,
    is_of_scores,
    is_of_subjects,
    is_of_summaries,
    layout_of,
    metadata_in,
    name_of_file,
    names_of_heading,
    with_one_heading,
)
from evalstats_plugin.adapters.tabular.rows import (
    Rows,
    default_names,
    fill,
    groups_of,
    no_shares,
    summed_up,
    without_empty_rows,
)
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.responses import (
    TABULAR,
    Responses,
    Selection,
    Source,
    as_item_ids,
    metadata_fields,
    origin,
)
from evalstats_plugin.data.results import grouped
from evalstats_plugin.data.store import KEY, LARGE, ResponseStore, tasks_of
from evalstats_plugin.data.tables import (
    Column,
    Record,
    Table,
    as_text,
    at_rows,
    csv_table,
    json_cell,
    parquet_table,
    read_lines,
    record_table,
    records_of,
)
from evalstats_plugin.errors import (
    DesignError,
    LogError,
    SelectionError,
    counted,
    few,
    missing_column,
)
from evalstats_plugin.runtime.files import (
    HEAD,
    LogFile,
    check_fields,
    number_in,
    parse_json,
    reporting_damage,
)
from evalstats_plugin.stats.arrays import IntArray

METADATA = b"evalstats_takes"
"""Key in the metadata of exported Parquet files: what is known besides scores."""

_MATRIX = b"evalstats"
"""Key in the metadata of a saved `ResponseMatrix`."""

_WORKBOOKS = (".xlsx", ".xls", ".ods")
_PACKED = (".zip", ".zst", ".rar", ".7z")
_UNPACKED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""What reads a table that is packed, by its ending."""

_MOST_UNPACKED = 1 << 32
"""Bytes of a table that was packed; a bomb has more."""

# Spellings of scores, also of spreadsheets in other languages.
_BY_WORD = {
    1.0: "true, t, yes, y, correct, right, pass, passed, success, ✓, "
    "wahr, vrai, verdadero, verdadeiro, vero, waar",
    0.0: "false, f, no, n, incorrect, wrong, fail, failed, failure, ✗, falsch, faux, falso, onwaar",
    math.nan: "nan, na, n/a, #n/a, none, null, nil, missing, -, ?",
}

WORDS = {word: number for number, words in _BY_WORD.items() for word in words.split(", ")}
"""Score by its spelling in lower case."""

_LETTERS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0}
"""Grades of Inspect: correct, incorrect, partly, no answer."""

_PASS = {"p": 1.0, "f": 0.0}

_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:e[-+]?\d+)?\s*%?", re.IGNORECASE)

_SPELLINGS = (
    "a number, a percentage (85%), true or false, yes or no, correct or incorrect, pass or fail, "
    "a grade (C, I, P, N), or nothing (empty, NaN, NA, null) where there is no score"
)

Scores = tuple[NDArray[np.float64], tuple[str, ...]]
_METRIC = "score"


def read_table(log: LogFile, selection: Selection) -> list[Responses] | None:
    """Read a table, a saved matrix, or a response store; None for other files."""
    path = log.path
    metadata = metadata_in(log)
    if (_MATRIX in metadata or KEY in metadata) and (selection.columns or selection.wide):
        raise SelectionError(
            f"{path} is a file of evalstats-plugin's own, which says what its columns hold: leave "
            "columns and wide (--columns, --wide) out"
        )
    if _MATRIX in metadata:
        responses = ResponseMatrix.load(path).to_responses()
        source = Source(path=path, harness=TABULAR)
        wanted = (r for r in responses if _wanted(selection, r.task, r.metric))
        return [replace(r, source=source) for r in wanted]
    if KEY in metadata:
        return read_store(path, selection)
    # Saved fits and item banks are Parquet files too.
    ours = [key.decode(errors="replace") for key in metadata if key.startswith(_MATRIX + b"_")]
    if ours and METADATA not in metadata:
        raise LogError(
            f"{path} holds no scores: it is a file of evalstats-plugin's own ({ours[0]}). Give it "
            "to the option or function that asks for such a file."
        )
    announced = bool(selection.columns or selection.wide)
    table = open_table(log, announced=announced, wide=bool(selection.wide))
    if table is None:
        return None
    if selection.wide:
        return read_wide(table, log, selection)
    whole = METADATA in metadata
    if not whole:
        named = [name for part, name in selection.columns if part == "score"]
        is_of_items = any(part == "item" for part, _ in selection.columns)
        table = _with_models(table, _head(log))
        if not is_of_items and len(named) == bool(selection.columns):
            table = published_table(table, *named)
    responses = list(responses_of(table, path, selection, may_be_empty=whole))
    if whole and not selection.columns:
        return _with_known(responses, metadata[METADATA], path, selection)
    return responses


def _with_models(table: Table, head: bytes) -> Table:
    """Return a table whose first column has no name, as an index has none, with it as models."""
    first = next(iter(names_of_heading(head)), "no heading")
    known = ("model", "item", "task")
    if first or any(find(table.names, COLUMNS[part], set()) for part in known):
        return table
    index = table.load([""])[""]
    if all(name.isdecimal() for name in index.values):
        return table

    def load(wanted: Sequence[str]) -> Mapping[str, Column]:
        loaded = table.load([name for name in wanted if name != "model"])
        return {name: index if name == "model" else loaded[name] for name in wanted}

    note = "the first column has no name: it is read as the models"
    return replace(table, names=("model", *table.names), load=load, notes=(*table.notes, note))


def _wanted(selection: Selection, task: str, metric: str) -> bool:
    return selection.wants_task(task) and selection.wants_metric(metric, task)


def _with_known(
    responses: list[Responses], metadata: bytes, path: Path, selection: Selection
) -> list[Responses]:
    """Add the metadata of an exported Parquet file, and its responses without items."""
    by_key = {(r.model, r.task, r.metric): r for r in responses}
    made: list[Responses] = []
    with reporting_damage(path):
        for record in json.loads(metadata)["responses"]:
            check_fields(record, dict.fromkeys(("model", "task", "metric"), "a text"))
            model, task, metric = record["model"], record["task"], record["metric"]
            if not _wanted(selection, task, metric):
                continue
            source = Source(path=path, harness=TABULAR, version=origin(record))
            bare = Responses(model=model, measure=Measure(task=task, metric=metric), source=source)
            held = by_key.pop((model, task, metric), bare)
            made.append(replace(held, **metadata_fields(record, source)))
    return [*made, *by_key.values()]


def open_table(  # noqa: PLR0911 - one for each form
    log: LogFile, *, announced: bool, wide: bool = False
) -> Table | None:
    """Open a table; None if the file is no table.

    Parameters
    ----------
    announced
        Whether the caller says that it is a table, whatever its name.
    wide
        Whether it is a matrix, in whose heading an item may stand once for each epoch.

    Raises
    ------
    LogError
        It is a table by its name, but empty, compressed, a workbook, or not UTF-8.
    """
    path, head, read = log.path, log.head, log.read_bytes
    ending = path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    if _is_packed(path):
        content, ending = _unpacked(log), inner
        head, read = content[:HEAD], lambda: content
    if ending in _WORKBOOKS or (ending in _PACKED and inner in (*TEXTS, *LINES)):
        what = "a workbook: save the sheet as CSV" if ending in _WORKBOOKS else "packed: unpack it"
        raise LogError(f"{path} is {what} first")
    by_name = announced or ending in (*TEXTS, PARQUET)
    if head.startswith(MAGIC):
        return parquet_table(log.read_bytes(), str(path))
    if ending in MARKDOWN:
        return markdown_table(read(), str(path))
    if not head.strip():
        if not by_name and ending not in LINES:
            return None
        raise LogError(f"{path} is empty. Write a heading and a row for each epoch of each item.")
    if head.lstrip().startswith(b"[") and _are_scores(head, announced=announced, by_name=False):
        return record_table(records_of(parse_json(read(), path), str(path)), str(path), ())
    if head.lstrip().startswith((b"{", b"[")):
        of_subjects = is_of_subjects(head)
        if not of_subjects and not _are_scores(head, announced=announced, by_name=ending in LINES):
            return None
        records, notes = read_lines(read(), str(path))
        return (_table_of_subjects if of_subjects else record_table)(records, str(path), notes)
    if by_name or (ending in (".txt", "") and is_of_scores(names_of_heading(head))):
        content = read()
        return csv_table(with_one_heading(content) if wide else content, str(path))
    return None


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() in _UNPACKED and Path(path.stem).suffix.lower() in (*TEXTS, *LINES)


def _head(log: LogFile) -> bytes:
    """Return the first bytes of a table, unpacked where it is packed."""
    return _unpacked(log, HEAD) if _is_packed(log.path) else log.head


def _unpacked(log: LogFile, n_bytes: int = _MOST_UNPACKED + 1) -> bytes:
    """Return the content of a packed table, or its first bytes.

    Raises
    ------
    LogError
        It is damaged, or larger than any table that is read at once.
    """
    try:
        with log.open() as packed, _UNPACKED[log.path.suffix.lower()](packed) as file:
            content = file.read(n_bytes)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise LogError(f"{log.path} cannot be unpacked ({error}): write it again") from error
    if len(content) > _MOST_UNPACKED:
        msg = f"{log.path} holds more than {_MOST_UNPACKED >> 30} GiB"
        raise LogError(
            f"{msg}: unpack it and convert it to a store (evalstats_plugin.data.store_table)"
        )
    return content


def _table_of_subjects(records: Sequence[Record], where: str, notes: tuple[str, ...]) -> Table:
    """Return py-irt's records, one for each model with its answers, with a row for each answer."""
    answers: list[dict[str, Any]] = []
    for line, record in enumerate(records, start=1):
        if not as_text(record.get("subject_id")) or not isinstance(record.get("responses"), dict):
            raise LogError(
                f"{where}: line {line} lacks a model or its answers. Write a subject_id and an "
                "object of responses, as py-irt does."
            )
        answers.append(record["responses"])
    model = Column.of(record["subject_id"] for record in records)
    sizes = list(map(len, answers))
    columns = {
        "model": Column(np.repeat(model.codes, sizes), model.values),
        "item": Column.of(chain.from_iterable(answers)),
        "score": Column.of(map(json_cell, chain.from_iterable(a.values() for a in answers))),
    }
    return Table(
        where, tuple(columns), lambda wanted: {name: columns[name] for name in wanted}, notes
    )


def _are_scores(head: bytes, *, announced: bool, by_name: bool) -> bool:
    """Whether JSONL is a table of scores."""
    record = first_record(head)
    return announced or (
        bool(record)
        and (
            is_of_scores(list(record))
            or (is_flat(record) and (by_name or is_of_summaries(list(record))))
        )
    )


def responses_of(
    table: Table, path: Path, selection: Selection, *, may_be_empty: bool = False
) -> Iterator[Responses]:
    """Yield the responses of a table with a row per item and epoch."""
    layout = layout_of(table.names, selection.columns, selection.cluster, table.where, selection.by)
    if "metric" in layout.columns and len(layout.scores) > 1:
        raise SelectionError(
            f"{table.where} has a column of metrics, so it has one column of scores, but "
            f"{len(layout.scores)} were named. Name one: --columns score=COLUMN"
        )
    loaded, about_rows = without_empty_rows(table.load(layout.used))
    parts = {part: loaded[name] for part, name in layout.columns.items()}
    parts |= {name: loaded[name] for name in layout.settings}
    size = len(next(iter(loaded.values())).codes)
    if not size and not may_be_empty:
        msg = f"{table.where} has columns and no rows. Write a row for each epoch of each item."
        raise DesignError(msg)
    defaults, about_names = default_names(path, layout, table.names, selection.model_name)
    notes = (*table.notes, *layout.notes, *about_names, *about_rows)
    is_summary = "item" not in layout.columns
    unused = [name for name in table.names if name not in layout.used]
    rows = Rows(
        table.where, layout, parts, size, notes, closest("item", unused) if is_summary else None
    )
    if not is_summary:
        rows.refuse_empty("item")
    ids = as_item_ids(() if is_summary else parts["item"].values)
    columns = [rows.names(part, defaults[part]) for part in ("model", "task")]
    source = Source(path=path, harness=TABULAR)
    for name in layout.scores:
        metric = _METRIC if name.casefold() in OF_NO_METRIC else name
        named = (*columns, rows.names("metric", metric))
        groups = groups_of(*named, *rows.settings(*named))
        wanted = [(g, mine) for g, mine in groups if _wanted(selection, g.task, g.metric)]
        if selection.header_only:
            yield from (
                Responses(
                    model=g.model,
                    measure=Measure(task=g.task, metric=g.metric),
                    source=source,
                    notes=notes,
                )
                for g, _ in wanted
            )
        elif wanted:
            column = loaded[name]
            # Published values of a task have a unit of their own.
            by_task = grouped(groups, lambda each: each[0].task).values() if is_summary else ()
            apart = [np.concatenate([mine for _, mine in own]) for own in by_task]
            codes = selection.missing_codes
            scores, about_scores = scores_of(column, name, table.where, codes, apart)
            noted = replace(rows, notes=(*notes, *about_scores))
            beyond = no_shares(groups, noted, scores, column) if is_summary else set[Any]()
            for g, mine in wanted:
                if is_summary:
                    may_count = (g.task, g.metric) not in beyond
                    yield summed_up(g, source, noted, mine, scores, column, may_count=may_count)
                else:
                    yield fill(g, source, noted, mine, ids=ids, scores=scores)


def scores_of(
    column: Column,
    name: str,
    where: str,
    codes: Sequence[float] = (),
    apart: Sequence[IntArray] = (),
) -> Scores:
    """Return the scores of all rows, NaN where missing, and notes on their spelling.

    ``codes`` are numbers that stand for a missing score; ``apart`` are sets of rows, each with a
    unit of its own.

    Raises
    ------
    DesignError
        A text is no score, or there are percentages and numbers above 1; the message has the row.
    """
    try:
        # Fast if all texts are plain numbers; those of Python may have _ between digits.
        if any("_" in text for text in column.values):
            raise ValueError
        numbers, notes = np.asarray(column.values, dtype=str).astype(np.float64), ()
    except ValueError:
        numbers, notes = _parsed(column, name, where, apart or [np.arange(len(column.codes))])
    scores = np.append(numbers, math.nan)[column.codes]
    coded = np.isin(scores, codes)
    if coded.any():
        shown = ", ".join(f"{code:g}" for code in codes)
        notes = (*notes, f"{counted(int(coded.sum()), 'score')} of {shown} taken for missing")
        scores[coded] = math.nan
    return scores, notes


def _parsed(column: Column, name: str, where: str, apart: Sequence[IntArray]) -> Scores:
    """Return the scores of the distinct texts in a column, in any spelling, and notes."""
    texts = column.values
    commas = [t for t in texts if _DECIMAL_COMMA.fullmatch(t)]
    # "1,5" beside "1.5" is ambiguous: one and a half, or fifteen.
    decimal = bool(commas) and not any("." in t and t.casefold() not in WORDS for t in texts)
    letters = _letters(texts)
    parsed = [letters.get(t.casefold(), _number(t, decimal=decimal)) for t in texts]
    wrong = [k for k, number in enumerate(parsed) if number is None]
    mixed = "; commas and points are mixed in this column" if commas and not decimal else ""
    column.refuse(np.isin(column.codes, wrong), f"score ({name})", where, _SPELLINGS + mixed)
    numbers = np.array([math.nan if n is None else n for n in parsed])
    percent = np.array([t.endswith("%") for t in texts])
    notes: list[str] = []
    if decimal:
        notes.append(f"{name}: a decimal comma, {commas[0]} is {commas[0].replace(',', '.')}")
    if percent.any():
        k = int(np.argmax(percent))
        for rows in apart:
            codes = column.codes[rows]
            large = (codes >= 0) & ~percent[codes] & (numbers[codes] > 1)
            if large.any() and percent[codes[codes >= 0]].any():
                text = texts[codes[large][0]]
                raise DesignError(
                    f"{where}: score ({name}) is {text!r} in {at_rows(rows[large])}, but others "
                    f"are percentages such as {texts[k]!r}. Write all with a percent sign or none."
                )
        notes.append(f"{name}: percentages, {texts[k]} is {numbers[k]:g}")
    return numbers, tuple(notes)


def _letters(texts: Sequence[str]) -> Mapping[str, float]:
    """Return the scores of letters, where a column is of grades; empty elsewhere."""
    given = {t.casefold() for t in texts} - {t for t, score in WORDS.items() if math.isnan(score)}
    for letters in (_LETTERS, _PASS):
        # One letter alone says nothing but for those that only Inspect uses.
        if given <= letters.keys() and (len(given) > 1 or given & {"c", "i"}):
            return letters
    return {}


def _number(text: str, *, decimal: bool) -> float | None:
    small = text.casefold()
    if small in WORDS:
        return WORDS[small]
    digits = small.removesuffix("%").rstrip()
    try:
        number = number_in(digits.replace(",", ".") if decimal else digits)
    except ValueError:
        return None
    return number / 100 if small.endswith("%") else number


def read_wide(table: Table, log: LogFile, selection: Selection) -> list[Responses]:
    """Read a matrix under the metric ``score``, of the task in a column or named as the file.

    The names of the rows are in the column ``model`` or ``item``, else in the first column. Epochs
    are in the names (`epochs_in`), or of rows of items in a column ``epoch``. Columns of texts are
    left out, with a note.

    Raises
    ------
    SelectionError
        A requested column does not exist.
    DesignError
        Two rows have the same name, a row has no name, there are no scores, or a cell is no score.
    """
    if not table.names:
        raise LogError(f"{table.where} has no heading. Name its columns in the first row.")
    rows_are, columns_are = ("model", "item") if selection.wide == "models" else ("item", "model")
    heads = _heads(table, with_one_heading(_head(log)), selection.columns, rows_are)
    # The epochs of rows of items are in a column of their own; so is the task, where it is said.
    epoch = find(table.names, COLUMNS["epoch"], {heads}) if rows_are == "item" else None
    task = find(table.names, COLUMNS["task"], {heads})
    names = [name for name in table.names if name not in (heads, epoch, task)]
    if not names:
        msg = f"{table.where} has one column only. Write a column for each {columns_are} beside it."
        raise DesignError(msg)
    wanted = [heads, *(name for name in (epoch, task) if name is not None), *names]
    loaded, about_rows = without_empty_rows(table.load(wanted))
    names_of_rows = loaded[heads]
    if epoch is not None:
        of_epochs = zip(names_of_rows.texts(), loaded[epoch].texts(), strict=True)
        names_of_rows = Column.of(f"{item}.{k}" if item else "" for item, k in of_epochs)
    texts = [name for name in names if _is_text(loaded[name])]
    if 0 < len(texts) < len(names):
        names = [name for name in names if name not in texts]
        about_rows += (f"no scores but texts, left out: {few(texts)}",)
    try:
        codes = selection.missing_codes
        parsed = [scores_of(loaded[name], name, table.where, codes) for name in names]
    except DesignError as error:
        hint = f"In a matrix all columns but {heads!r} are of scores. Remove any that is not."
        raise DesignError(f"{error} {hint}") from error
    notes = (*table.notes, *dict.fromkeys(note for _, each in parsed for note in each))
    shown = (f"{counted(len(notes), 'column')}: {few(notes, 1)}",) if len(notes) > 1 else notes
    shown += (*about_rows, *_notes_on_heads(heads, rows_are, columns_are))
    whole = np.stack([scores for scores, _ in parsed], axis=1)
    own_name = name_of_file(log.path)
    tasks = np.full(len(whole), own_name) if task is None else loaded[task].texts()
    responses: list[Responses] = []
    for name in dict.fromkeys(tasks.tolist()) or (own_name,):
        mine = tasks == name
        rows = _row_names(names_of_rows.take(mine), heads, rows_are, table.where)
        if _wanted(selection, name or own_name, _METRIC):
            by_model = (rows, names, whole[mine]) if rows_are == "model" else (
                (names, rows, whole[mine].T)
            )  # fmt: skip
            responses += _of_matrix(log.path, name or own_name, by_model, selection, shown)
    return responses


def _of_matrix(
    path: Path,
    task: str,
    matrix: tuple[Sequence[str], Sequence[str], NDArray[np.float64]],
    selection: Selection,
    notes: tuple[str, ...],
) -> list[Responses]:
    """Return the responses of models × items: their names, and scores of shape (N, M)."""
    models, items, scores = matrix
    epochs, about_epochs = epochs_in(items)
    places = np.arange(len(items))[:, None] if epochs is None else epochs.places
    ids = as_item_ids(items if epochs is None else epochs.items)
    return [
        Responses(
            model=model,
            measure=Measure(task=task, metric=_METRIC),
            item_ids=ids if not selection.header_only else ids[:0],
            scores=scores[i][places] if not selection.header_only else np.empty((0, 1)),
            source=Source(path=path, harness=TABULAR),
            notes=(*notes, *about_epochs),
        )
        for i, model in enumerate(models)
    ]


def _is_text(column: Column) -> bool:
    """Whether fewer than half of the cells that are not empty are scores."""
    scored = np.array([_number(text, decimal=True) is not None for text in column.values])
    held = column.codes[~column.empty]
    return bool(len(held)) and float(scored[held].mean()) < 0.5


def _heads(table: Table, head: bytes, asked: Sequence[tuple[str, str]], rows_are: str) -> str:
    """Return the column with the names of the rows; often an index column without a name."""
    for part, name in asked:
        if part != rows_are:
            raise SelectionError(
                f"a matrix with a row for each {rows_are} has no column {part}={name}: all its "
                f"columns are of scores but one. Name that one, {rows_are}=COLUMN, or none."
            )
        if name not in table.names:
            raise SelectionError(missing_column(name, table.names, table.where))
        return name
    first, *others = names_of_heading(head) or ("",)
    # The heading of thousands of items is longer than the bytes of `head`.
    unnamed = not first and tuple(others[:2]) == table.names[:2]
    return find(table.names, COLUMNS[rows_are], set()) or ("" if unnamed else table.names[0])


def _notes_on_heads(heads: str, rows_are: str, columns_are: str) -> tuple[str, ...]:
    """Note if the name of the column of names suggests that the matrix is transposed."""
    if find([heads], COLUMNS[rows_are], set()) or not find([heads], COLUMNS[columns_are], set()):
        return ()
    return (
        f"each row counts as one {rows_are}, though column {heads!r} names them "
        f"(--wide {columns_are}s if the rows are {columns_are}s)",
    )


def _row_names(column: Column, name: str, rows_are: str, where: str) -> list[str]:
    if not len(column.codes):
        raise DesignError(f"{where} has a heading and no rows. Write one for each {rows_are}.")
    empty = np.flatnonzero(column.empty)
    if len(empty):
        msg = f"{where}: column {name!r} is empty in {at_rows(empty)}. Write a name in every row."
        raise DesignError(msg)
    if len(column.values) < len(column.codes):
        twice = int(np.argmax(np.bincount(column.codes) > 1))
        at = np.flatnonzero(column.codes == twice)[:2] + 1
        raise DesignError(
            f"{where}: rows {at[0]} and {at[1]} are both of {rows_are} {column.values[twice]!r}. "
            "Keep one of them; a table with a row for each epoch of each item needs no --wide."
        )
    return [column.values[k] for k in column.codes]


def read_store(path: Path, selection: Selection) -> list[Responses]:
    """Read a response store: each model's scores on each task.

    Raises
    ------
    LogError
        It is damaged, or has more answers than may be read at once.
    """
    store = ResponseStore(path)
    source = Source(path=path, harness=TABULAR)
    tasks = [t for t in tasks_of(store) if _wanted(selection, t.task, t.metric)]
    if selection.header_only:
        return [
            Responses(model=model, measure=Measure(task=t.task, metric=t.metric), source=source)
            for t in tasks
            for model in store.models
        ]
    n_models, _, n_epochs = store.shape
    size = n_models * n_epochs * sum(len(task.places) for task in tasks)
    if size > LARGE:
        raise LogError(
            f"{store.path} holds {size:,} answers; at most {LARGE:,} are read at once. Choose some "
            "with --task. The command compare --baseline MODEL reads them in blocks, "
            "as intervals, compare and fit_irt do in Python, given ResponseStore(path)"
        )
    return [
        replace(r, source=source, notes=store.notes)
        for task in tasks
        for r in task.responses(np.arange(len(store.models)))
    ]
