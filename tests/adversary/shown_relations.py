"""Relations between results and what is shown of them: terminal, documents, tables, pages, logs.

Every number that is shown is that of its row, to the digits that are printed. Here results are
written in all forms and read back by readers that know nothing of how they were written.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from evaluations import Evaluation
from log_relations import RENDERINGS, SMALL, key_of, printed, rows_by_key
from relations import Relation, close

import evalstats_plugin as es
from evalstats_plugin.report import leaderboard, text

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_NOTHING = re.compile(r"–(?: [↑↓])?[\s|&]+–")
_SHOWN = re.compile(rf"({_NUMBER}|–)(?: [↑↓])?[\s|&]*(?:\[({_NUMBER}), ({_NUMBER})\]|–)")
WIDE = 600
"""Columns of a terminal in which nothing is wrapped or cut."""


def agrees(shown: str | None, value: float | None) -> bool:
    """Whether a printed number is a value, rounded to the digits that are printed."""
    if shown in (None, "–", "--", ""):
        return value is None
    if value is None:
        return False
    digits, _, exponent = str(shown).partition("e")
    decimals = len(digits.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - decimals)
    return abs(float(str(shown)) - value) <= 0.5 * unit * (1 + 1e-6) + 1e-15


def numbers_in(line: str) -> tuple[str | None, ...] | None:
    """Return estimate and limits in a line of a table, None where it has none."""
    if _NOTHING.search(line):
        return "–", None, None
    found = _SHOWN.search(line)
    return found.groups() if found else None


def read_results(e: Evaluation, folder: Path) -> Any:
    """Write the evaluation as JSON lines, which say everything, and read it."""
    RENDERINGS["JSON lines"].write(e, folder)
    return es.read(folder)


def every_form_shows_the_numbers_of_its_row(e: Evaluation, folder: Path) -> None:
    """Scores with their intervals on the terminal, in Markdown, LaTeX, HTML, CSV, JSON, frames."""
    rows = es.intervals(read_results(e, folder), rng=0)
    for name, shown in (
        ("terminal", _printed(rows)),
        ("Markdown", text.INTERVALS.to_markdown(rows, "").splitlines()),
        ("Markdown of results", rows.to_markdown().splitlines()),
    ):
        found = [n for line in shown if "naive" not in line and (n := numbers_in(line))]
        assert len(found) == len(rows), (name, shown)
        for row, numbers in zip(rows, found, strict=True):
            _same(name, row, numbers)
    for name, records in (
        ("CSV", [*csv.DictReader(StringIO(text.to_csv(rows)))]),
        ("JSON", json.loads(text.to_json(rows, {}))["results"]),
        ("frame", rows.to_frame().to_dict("records")),
    ):
        assert len(records) == len(rows), name
        for row, record in zip(rows, records, strict=True):
            for field in ("estimate", "low", "high", "std_error", "n_items"):
                value = getattr(row, field)
                told = str(record[field])
                missing = told in ("", "None", "nan")
                assert missing == (value is None), (name, field, row)
                assert missing or float(told) == value, (name, field, row)
    for name, lines in (
        ("LaTeX", [c for c in _latex_cells(rows.to_latex()) if c[0] != "Model"]),
        ("HTML", [c for c in _html_cells(rows._repr_html_()) if c and c[0] != "Model"]),
    ):
        assert len(lines) == len(rows), (name, lines)
        for row, cells in zip(rows, lines, strict=True):
            limits = re.findall(_NUMBER, cells[5]) or [None, None]
            _same(name, row, (cells[4], *limits))


def _printed(rows: Any) -> list[str]:
    file = StringIO()
    text.INTERVALS.print_table(rows, file, heading="", width=WIDE)
    return file.getvalue().partition("\nNotes")[0].splitlines()


def _same(name: str, row: Any, numbers: tuple[str | None, ...]) -> None:
    for shown, value in zip(numbers, (row.estimate, row.low, row.high), strict=True):
        assert agrees(shown, value), (name, shown, row)


def _latex_cells(document: str) -> Iterator[list[str]]:
    for line in document.splitlines():
        if line.endswith(r"\\"):
            cells = line.removesuffix(r"\\").replace("$-$", "-").split(" & ")
            yield [cell.strip() for cell in cells]


class _Cells(HTMLParser):
    """The texts of the cells of tables, by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        del attrs
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def _html_cells(document: str) -> list[list[str]]:
    parser = _Cells()
    parser.feed(document)
    return parser.rows


# Tables of models and tasks ----------------------------------------------------------------------


def a_table_shows_headlines_once(e: Evaluation, folder: Path) -> None:
    """Each model has one score in each column: that of the task's first metric, in every form."""
    name = "Inspect" if e.seed % 2 else "JSON lines"
    rendering = RENDERINGS[name]
    if not rendering.holds(e):
        return
    rendering.write(e, folder)
    read = es.read(folder)
    try:
        made = es.table(read, rng=0)
    except es_error():
        return
    rows = rows_by_key(es.intervals(read, rng=0))
    cells: dict[tuple[str, str], Any] = {}
    for cell in made:
        where = printed(cell.model), printed(cell.task)
        assert where not in cells, f"two scores of {where}"
        cells[where] = cell
    for task in e.tasks:
        scale = task.scales[0]
        for m in range(len(e.models)):
            key = key_of(e, rendering, m, task, scale)
            cell = cells.get(key[:2])
            assert cell is not None, (key, list(cells))
            assert close(cell.estimate, rows[key].estimate), (key, cell, rows[key])
            if not task.n_cut:
                assert close(cell.estimate, e.value(m, task, scale)), (key, cell)
    _overall_is_of_its_columns(made, [c for c in made if c.kind != "overall"])
    _in_documents(made)


def es_error() -> type[Exception]:
    """Return the error of data that cannot answer a question."""
    from evalstats_plugin.errors import DesignError

    return DesignError


def _overall_is_of_its_columns(made: Any, columns: list[Any]) -> None:
    """The overall score is the mean of scores that are shown."""
    for cell in (c for c in made if c.kind == "overall" and c.estimate is not None):
        inside = {name for _, name in made.in_overall}
        own = [c.estimate for c in columns if c.model == cell.model and c.task in inside]
        if own and None not in own:
            assert close(cell.estimate, math.fsum(own) / len(own), 1e-7), (cell, own)


def _in_documents(made: Any) -> None:
    """Every score of a table stands in Markdown and LaTeX, in the order of its columns."""
    columns = list(made.by_column.values())
    for document, cells in (
        ("Markdown", [line.strip("| ").split(" | ") for line in
                      leaderboard.table_markdown(made).splitlines() if line.startswith("| ")][2:]),
        ("LaTeX", list(_latex_cells(leaderboard.table_latex(made)))[1:]),
    ):  # fmt: skip
        assert len(cells) == len(made.models), (document, cells)
        for model, line in zip(made.models, cells, strict=True):
            values = [own[model].estimate if model in own else None for own in columns]
            shown = _scores_in(" & ".join(line))
            for value in values:
                assert any(agrees(s, value) for s in shown), (document, model, value, line)


def _scores_in(line: str) -> list[str]:
    return re.findall(rf"(?<![\w.])(?:{_NUMBER}|–|--)", line) + (["–"] if "--" in line else [])


# What is written into logs -----------------------------------------------------------------------


def annotations_hold_the_rows(e: Evaluation, folder: Path) -> None:
    """What a log is told of itself is what the rows say, digit by digit."""
    for name in ("lm-eval", "Inspect"):
        rendering = RENDERINGS[name]
        place = folder / name
        place.mkdir()
        if not rendering.holds(e):
            continue
        rendering.write(e, place)
        # Of each log alone: what others show of a metric is not known of it there.
        logs = [p for p in sorted(place.rglob("*.json")) if "samples" not in p.name]
        known = {path: rows_by_key(es.intervals(es.read(path), rng=0)) for path in logs}
        try:
            es.annotate(place, in_place=True, allow_partial=True)
        except es_error():
            continue
        for path, rows in known.items():
            told, model = _block(name, json.loads(path.read_text()))
            for one in told:
                row = rows[printed(model), printed(one["task"]), printed(one["metric"])]
                withheld = one["low"] is None and row.low is not None
                assert not withheld or one["notes"], (name, one, row)
                if one["low"] is None and one["notes"] and close(one["estimate"], row.logged):
                    continue  # the logged value stands alone, with the reason
                for field in ("estimate", "n_items") if withheld else _WRITTEN:
                    assert close(one[field], getattr(row, field), 1e-12), (name, field, one, row)


_WRITTEN = ("estimate", "low", "high", "n_items")


def _block(name: str, log: Any) -> tuple[list[dict[str, Any]], str]:
    """Return our block in a log, and the model that the log is of."""
    if name == "lm-eval":
        return log["evalstats"]["intervals"], log["config"]["model_args"]["pretrained"]
    held = _find(log, "intervals")
    return held or [], log["eval"]["model"]


def _find(value: Any, key: str) -> Any:
    """Return the first value of a key, somewhere in a document; None if there is none."""
    if isinstance(value, str) and value.startswith("{") and f'"{key}"' in value:
        value = json.loads(value)
    inside: list[Any] = []
    if isinstance(value, dict):
        if isinstance(value.get(key), list):
            return value[key]
        inside = list(value.values())
    elif isinstance(value, list):
        inside = value[:3]
    return next((found for v in inside if (found := _find(v, key)) is not None), None)


# Breakages ---------------------------------------------------------------------------------------


def number_is_cut(patch: pytest.MonkeyPatch) -> None:
    """Have numbers cut off where they are to be rounded."""
    function = text.number

    def broken(value: float | None) -> str:
        return function(value if value is None else value - 0.00006 * (1 + abs(value)))

    patch.setattr(text, "number", broken)


def last_metric_is_shown(patch: pytest.MonkeyPatch) -> None:
    """Have a table show the last metric of a task for its first."""
    function: Callable[..., Any] = es.table

    def broken(read: Any, **kwargs: Any) -> Any:
        last = list(read)[::-1]
        return function(last, **kwargs)

    patch.setattr(es, "table", broken)


def another_seed_is_written(patch: pytest.MonkeyPatch) -> None:
    """Have the annotation say limits of another level than the rows."""
    function: Callable[..., Any] = es.annotate

    def broken(*paths: Any, **kwargs: Any) -> Any:
        def analysis(responses: Any) -> Any:
            found = es.intervals(responses, rng=0)
            near = [r if r.low is None else replace(r, low=r.low - 1e-6) for r in found]
            return replace(found, rows=tuple(near))

        return function(*paths, analysis=analysis, **kwargs)

    patch.setattr(es, "annotate", broken)


SHOWN_RELATIONS: Mapping[str, Relation] = {
    "every form shows the numbers of its row": Relation(
        every_form_shows_the_numbers_of_its_row,
        number_is_cut,
        {**SMALL, "tasks": (1, 3), "groups": False, "cut": False},
        examples=100,
    ),
    "a table shows headlines once": Relation(
        a_table_shows_headlines_once,
        last_metric_is_shown,
        {**SMALL, "tasks": (1, 3), "groups": False, "cut": False},
        {"many": {}, "plain": {"odd_names": False, "missing": False, "metrics": 2}},
        25,
    ),
    "annotations hold the rows": Relation(
        annotations_hold_the_rows, another_seed_is_written, {**SMALL, "cut": False}, examples=15
    ),
}
