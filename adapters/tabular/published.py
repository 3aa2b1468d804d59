"""Tables of published numbers: Markdown, leaderboards with a column per task, and ``0.61 ± 0.01``.

`markdown_table` reads the tables in a Markdown file, `published_table` turns a leaderboard into one
row per model and task, and `split` takes cells apart: value, standard error, right answers, n.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from evalstats_plugin.adapters.tabular.recognition import COLUMNS, OF_SUMMARIES, OF_TASKS, find
from evalstats_plugin.data.tables import Record, Table, decoded, record_table
from evalstats_plugin.errors import LogError, counted, few

_NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?\s*%?"
_WITH_ERROR = re.compile(rf"({_NUMBER})\s*\(?\s*±\s*({_NUMBER})\s*\)?", re.IGNORECASE)
_COUNTS = re.compile(
    rf"(?:{_NUMBER}\s*\(\s*)?(\d[\d,]*)\s*(?:/|of)\s*(\d[\d,]*)\s*\)?", re.IGNORECASE
)
_MARKS = str.maketrans({"*": "", "`": "", "$": "", "−": "-"})
_FOOTNOTES = str.maketrans("", "", "†‡§¶¹²³⁴⁵⁶⁷⁸⁹")
# Not "2^10" or "10<sup>5</sup>", which are powers.
_REFERENCE = re.compile(
    r"(?<=[\d.%)>])\s*(?:\^(?:\{[a-z]*\}|[a-z]*)(?![\w{.+-])|<sup>[a-z]*</sup>|\[\^?\w+\])"
    r"|</?(?:b|i|u|strong|em)>", re.IGNORECASE,
)  # fmt: skip
"""References to footnotes after a number, and tags around it."""
_ARROWS = {"↑": "true", "↓": "false"}
"""Whether higher is better, behind a metric of lm-eval or in the heading of a column."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
"""A name with the address behind it, as models and tasks often have."""
_NAMES = ("model", "task")
_NO_VALUE = frozenset(("", "-", "--", "–", "—", "n/a", "na", "nan"))
_PIPE = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r":?-{2,}:?|-?")
_LONGEST = 200
"""Characters of a cell that may be a number."""

_ERROR_OF = re.compile(r"(.+?)[ _](?:std_?err(?:or)?|se)", re.IGNORECASE)
_STDERR_ROW = re.compile(r"(.+)_stderr(,.+|)")
_SAME_AS = {"tasks": "task", "groups": "task", "models": "model"}
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
    >>> split("61% (11/18)").right, split(r"$.5^{a} \pm .1$").std_error, split("61.2[^1]").value
    ('11', '.1', '61.2')
    """
    plain = _bare(text[:_LONGEST]).replace("\\pm", "±").replace("+/-", "±").strip()
    if found := _WITH_ERROR.fullmatch(plain):
        return Parts(found[1].strip(), found[2].strip())
    if found := _COUNTS.fullmatch(plain):
        return Parts("", n=found[2].replace(",", ""), right=found[1].replace(",", ""))
    return Parts(plain if len(text) <= _LONGEST else text)


def _bare(text: str) -> str:
    """Return a number without typography and references to footnotes."""
    return _REFERENCE.sub("", text.translate(_MARKS).translate(_FOOTNOTES)).strip()


def markdown_table(content: bytes, where: str) -> Table:
    """Return the rows of all tables in Markdown that hold models or tasks, and numbers.

    Raises
    ------
    LogError
        There is no such table.
    """
    by_cells: dict[tuple[tuple[str, Any], ...], Record] = {}
    notes: list[str] = []
    models: set[str] = set()
    grouped: set[tuple[str, str]] = set()
    n_twice = n_unscored = 0
    for heading, rows in _tables(decoded(content, where)):
        names = [_SAME_AS.get(name.casefold(), name) for name in heading]
        parts = {name: part for part in _NAMES if (name := find(names, COLUMNS[part], set()))}
        if not parts:
            continue
        # All tables of a file call them the same.
        names = [parts.get(name, name) for name in names]
        read, about = _long(list(_records(names, rows)), names, announced=True)
        models |= {row["model"] for row in read if row.get("model")}
        score = find(list(read[0]) if read else (), COLUMNS["score"], set())
        if score is None:
            n_unscored += 1
            continue
        read, no_numbers = _with_errors(read, score)
        # lm-eval prints groups among the tasks, and in a table of their own.
        if "groups" in map(str.casefold, heading):
            grouped |= {(row["task"], row.get("Metric", "")) for row in read}
        n_before = len(by_cells)
        by_cells |= {tuple(row.items()): row for row in read}
        n_twice += n_before + len(read) - len(by_cells)
        notes += [*about, *no_numbers]
    records = list(by_cells.values())
    if not records:
        raise LogError(f"{where} has no table with a column of models or tasks and one of numbers")
    if n_twice:
        notes.append(f"{counted(n_twice, 'row')} printed twice, read once")
    if n_unscored:
        notes.append(f"{counted(n_unscored, 'table')} without a column of scores left out")
    if len(models) == 1:
        # One table names the model, and those of its tasks do not.
        (model,) = models
        records = [{"model": model, **row} for row in records]
    if grouped:
        means = [(row.get("task", ""), row.get("Metric", "")) in grouped for row in records]
        records = [
            {**row, "aggregation": OF_TASKS if is_mean else ""}
            for row, is_mean in zip(records, means, strict=True)
        ]
    return record_table(records, where, tuple(notes))


def _tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield heading and rows of the tables in a text."""
    heading: list[str] = []
    rows: list[list[str]] | None = None
    for line in [*text.splitlines(), ""]:
        bare = line.translate(_MARKS).strip().removeprefix("|").removesuffix("|")
        parts = _PIPE.split(bare) if "|" in line else []
        cells = [_LINK.sub(r"\1", part.strip().replace("\\|", "|")) for part in parts]
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
    """Yield the rows of a table: without a task they are of the one above, as lm-eval's are."""
    before: dict[str, str] = {}
    for row in rows:
        record = {n: cell for n, cell in zip(names, row, strict=False) if n}
        if "task" in record and "Metric" in record:
            record["task"] = record["task"].lstrip("- ")
            if not record["task"]:
                above = {n: before.get(n, "") for n in ("task", "Version", "Filter", "n-shot")}
                record |= {n: record[n] or text for n, text in above.items() if n in record}
        used = record.get("Filter", "none")
        if "Metric" in record and used not in ("none", ""):
            record["Metric"] += f",{used}"
        if arrow := next((cell for cell in row if cell in _ARROWS), ""):
            record["higher_is_better"] = _ARROWS[arrow]
        before = record
        yield record


def _with_errors(rows: Sequence[Record], score: str) -> tuple[list[Record], list[str]]:
    """Return the rows that have a number, and a note on others.

    A row of a metric ``acc_stderr`` is the standard error of ``acc``.
    """
    errors: dict[tuple[str, ...], str] = {}
    scored: list[Record] = []
    odd: list[str] = []
    for row in rows:
        value = str(row.get(score, ""))
        if not _is_number(value):
            odd += [value] if value.strip().casefold() not in _NO_VALUE else []
        elif of := _STDERR_ROW.fullmatch(row.get("Metric", "")):
            errors[row.get("model", ""), row.get("task", ""), of[1] + of[2]] = value
        else:
            scored.append(row)
    if errors:
        places = [tuple(row.get(n, "") for n in (*_NAMES, "Metric")) for row in scored]
        scored = [
            {**row, "Stderr": errors.get(place, row.get("Stderr", ""))}
            for row, place in zip(scored, places, strict=True)
        ]
    return scored, [f"no numbers, left out: {few(odd)}"] if odd else []


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
    rows, notes = (before, ()) if score else _long(before, table.names, announced=False)
    score = score or find(list(rows[0]) if rows else (), COLUMNS["score"], set())
    if score and _is_published(rows, score):
        rows = [{**row, **_apart(row, score)} for row in rows]
    return table if rows is before else record_table(rows, table.where, (*table.notes, *notes))


def _apart(row: Record, score: str) -> Record:
    """Return the parts of a cell, by their columns."""
    parts = split(str(row[score]))
    found = {"std_error": parts.std_error, "n": parts.n, "k": parts.right}
    return {score: parts.value, **{p: text or row.get(p, "") for p, text in found.items()}}


def _long(
    rows: Sequence[Record], names: Sequence[str], *, announced: bool
) -> tuple[Sequence[Record], tuple[str, ...]]:
    """Return a row per model and task where each task has a column, and the rows elsewhere.

    The notes name cells without a number, in columns that have numbers.
    """
    model = find(names, COLUMNS["model"], set())
    score, task = (find(names, COLUMNS[part], set()) for part in ("score", "task"))
    counted = {find(names, known, set()) for known in OF_SUMMARIES.values()}
    if model is None or task or (score and announced) or (score and any(counted - {None})):
        return rows, ()
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
        return rows, ()
    size = find(names, OF_SUMMARIES["n"], set())
    made = [
        {"model": row.get(model), "task": name, "score": _bare(str(row[name])),
         "std_error": row.get(errors.get(name, ""), ""), "n": row.get(size or "", ""),
         "higher_is_better": _ARROWS.get(name[-1], "")}
        for row in rows for name in tasks if _is_number(row.get(name, ""))
    ]  # fmt: skip
    scored = {row["task"] for row in made}
    texts = [str(row.get(name, "")) for row in rows for name in tasks if name in scored]
    odd = [t for t in texts if not _is_number(t) and t.strip().casefold() not in _NO_VALUE]
    return made, (f"no numbers, left out: {few(odd)}",) if odd else ()


def _is_published(rows: Sequence[Record], name: str) -> bool:
    """Whether a column has values with standard errors or counts."""
    return any((p := split(str(row.get(name, "")))).std_error or p.n for row in rows)


def _is_number(cell: Any) -> bool:
    parts = split(str(cell))
    return bool(parts.n or re.fullmatch(_NUMBER, parts.value, re.IGNORECASE))
