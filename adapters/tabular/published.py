"""Tables of published numbers: Markdown, leaderboards with a column per task, and ``0.61 ± 0.01``.

`markdown_table` reads the tables in a Markdown file, `published_table` turns a leaderboard into one
row per model and task, and `split` takes cells apart: value, standard error, right answers, n.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from evalstats_plugin.adapters.tabular.recognition import COLUMNS, OF_SUMMARIES, find
from evalstats_plugin.data.tables import Record, Table, decoded, record_table
from evalstats_plugin.errors import LogError

_NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?\s*%?"
_WITH_ERROR = re.compile(rf"({_NUMBER})\s*\(?\s*±\s*({_NUMBER})\s*\)?", re.IGNORECASE)
_COUNTS = re.compile(
    rf"(?:{_NUMBER}\s*\(\s*)?(\d[\d,]*)\s*(?:/|of)\s*(\d[\d,]*)\s*\)?", re.IGNORECASE
)
_MARKS = str.maketrans({"*": "", "`": "", "$": "", "−": "-"})
_FOOTNOTES = str.maketrans("", "", "†‡§¶¹²³⁴⁵⁶⁷⁸⁹")
_RULE = re.compile(r":?-{2,}:?|-?")
_LONGEST = 200
"""Characters of a cell that may be a number."""

_ERROR_OF = re.compile(r"(.+?)[ _](?:std_?err(?:or)?|se)", re.IGNORECASE)
_SAME_AS = {"tasks": "task", "groups": "task", "models": "model", "n-shot": "n-shot"}
_NO_TASKS = frozenset(
    ("rank", "version", "n-shot", "#", "average", "avg", "mean", "params", "date")
)


class Parts(NamedTuple):
    """A cell taken apart; empty where it has no such part."""

    value: str
    std_error: str = ""
    n: str = ""
    right: str = ""


def split(text: str) -> Parts:
    r"""Take a cell apart.

    >>> split("**61.2** ± 1.4")
    Parts(value='61.2', std_error='1.4', n='', right='')
    >>> split("61% (11/18)").right, split(r"$.5 \pm .1$").std_error
    ('11', '.1')
    """
    bare = text[:_LONGEST].translate(_MARKS).translate(_FOOTNOTES)
    plain = bare.replace("\\pm", "±").replace("+/-", "±").strip()
    if found := _WITH_ERROR.fullmatch(plain):
        return Parts(found[1].strip(), found[2].strip())
    if found := _COUNTS.fullmatch(plain):
        return Parts("", n=found[2].replace(",", ""), right=found[1].replace(",", ""))
    return Parts(plain if len(text) <= _LONGEST else text)


def markdown_table(content: bytes, where: str) -> Table:
    """Return the rows of all tables in Markdown that hold models or tasks, and numbers.

    Raises
    ------
    LogError
        There is no such table.
    """
    records: list[Record] = []
    for heading, rows in _tables(decoded(content, where)):
        names = [_SAME_AS.get(name.casefold(), name) for name in heading]
        if any(find(names, COLUMNS[part], set()) for part in ("model", "task")):
            records += _long(list(_records(names, rows)), names, announced=True)
    if not records:
        raise LogError(f"{where} has no table with a column of models or tasks and one of numbers")
    return record_table(records, where)


def _tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield heading and rows of the tables in a text."""
    heading: list[str] = []
    rows: list[list[str]] | None = None
    for line in [*text.splitlines(), ""]:
        bare = line.strip().removeprefix("|").removesuffix("|")
        cells = [cell.strip() for cell in bare.split("|")] if "|" in line else []
        if cells and all(_RULE.fullmatch(cell) for cell in cells) and heading and rows is None:
            rows = []
        elif rows is None:
            heading = cells
        elif cells:
            rows.append(cells)
        else:
            yield heading, rows
            heading, rows = [], None


def _records(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Record]:
    """Yield the rows of a table: an empty task is the one above, as lm-eval prints them."""
    before: dict[str, str] = {}
    for row in rows:
        record = {n: c.translate(_MARKS).strip() for n, c in zip(names, row, strict=False) if n}
        for name in ("task", "Version", "Filter", "n-shot"):
            if name in record and "Metric" in record:
                record[name] = record[name].lstrip("- ") or before.get(name, "")
        used = record.get("Filter", "none")
        if "Metric" in record and used not in ("none", ""):
            record["Metric"] += f",{used}"
        before = record
        yield record


def published_table(table: Table, score: str | None = None) -> Table:
    """Return published numbers with a row per model and task, and their cells taken apart.

    Tables of items, and those without a cell or a column of standard errors or counts, are returned
    as they are. ``score`` is the column of scores, if it is known.
    """
    found = {part: find(table.names, COLUMNS[part], set()) for part in ("model", "item", "task")}
    if found["item"] or not (found["model"] or found["task"] or score):
        return table
    columns = {name: column.texts().tolist() for name, column in table.load(table.names).items()}
    before = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows = before if score else _long(before, table.names, announced=False)
    score = score or find(list(rows[0]) if rows else (), COLUMNS["score"], set())
    if score and _is_published(rows, score):
        rows = [{**row, **_apart(row, score)} for row in rows]
    return table if rows is before else replace(record_table(rows, table.where), notes=table.notes)


def _apart(row: Record, score: str) -> Record:
    """Return the parts of a cell, by their columns."""
    parts = split(str(row[score]))
    found = {"std_error": parts.std_error, "n": parts.n, "k": parts.right}
    return {score: parts.value, **{p: text or row.get(p, "") for p, text in found.items()}}


def _long(rows: Sequence[Record], names: Sequence[str], *, announced: bool) -> Sequence[Record]:
    """Return a row per model and task where each task has a column, and the rows elsewhere."""
    model = find(names, COLUMNS["model"], set())
    score, task = (find(names, COLUMNS[part], set()) for part in ("score", "task"))
    counted = {find(names, known, set()) for known in OF_SUMMARIES.values()}
    if model is None or task or (score and announced) or (score and any(counted - {None})):
        return rows
    errors = {m[1]: name for name in names if (m := _ERROR_OF.fullmatch(name)) and m[1] in names}
    tasks = [
        name
        for name in names
        if name
        and name not in (model, *counted, *errors.values())
        and name.casefold() not in _NO_TASKS
        and (name in errors or announced or _is_published(rows, name))
    ]
    if not tasks:
        return rows
    size = find(names, OF_SUMMARIES["n"], set())
    return [
        {"model": row.get(model), "task": name, "score": row[name],
         "std_error": row.get(errors.get(name, ""), ""), "n": row.get(size or "", "")}
        for row in rows for name in tasks if _is_number(row.get(name, ""))
    ]  # fmt: skip


def _is_published(rows: Sequence[Record], name: str) -> bool:
    """Whether a column has values with standard errors or counts."""
    return any((p := split(str(row.get(name, "")))).std_error or p.n for row in rows)


def _is_number(cell: Any) -> bool:
    parts = split(str(cell))
    return bool(parts.n or re.fullmatch(_NUMBER, parts.value, re.IGNORECASE))
