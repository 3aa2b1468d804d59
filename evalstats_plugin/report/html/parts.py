"""Parts of the HTML report: its tables, and the packed answers to items.

* `PageColumn`, `page_table`: tables with kinds of values; `table_data`: for the page's script
* `scores_table`, `slices_table`: every score, and those of slices
* `logs_table`, `settings_table`: where they come from, and how models were run
* `held_items`, `items_data`: items with every model's answer, packed six bits to a letter
* `texts_data`: questions, targets and answers as logged
"""

from __future__ import annotations

import math
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import count
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import counted as counted_of
from evalstats_plugin.errors import few
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.report import text
from evalstats_plugin.report.settings import Setting
from evalstats_plugin.report.tables import Column, Table
from evalstats_plugin.report.text import METRIC, clusters, number
from evalstats_plugin.runtime.untrusted import visible
from evalstats_plugin.scores.items import ItemAnswers
from evalstats_plugin.scores.rows import CorrectedScore, Intervals, ScoreInterval
from evalstats_plugin.scores.slices import SliceScore

Axis = tuple[float, float]
"""Start and end of the bars of a column."""


BETTER = {True: "↑", False: "↓", None: ""}

MOST_ITEMS = 20_000
MOST_LETTERS = 1_500_000
"""Most items on a page, and letters of their answers; flagged items come first."""

_FINE = 12
"""Bits per score with many values: at most 4,095 are kept."""

_MOST_MODELS = 8
"""Models that a row of settings names."""

MOST_TEXT = 1_000_000
"""Bytes of questions, targets and answers."""

SHOWN = 100
"""Rows of a table shown at a time, and the only ones without scripts."""

Kind = Literal["text", "notes", "count", "number", "interval"]


@dataclass(frozen=True)
class PageColumn(Column):
    """A column of the page; each kind of value has its own format, here and in ``page.js``."""

    kind: Kind = "text"
    """Of texts, numbers or None, pairs of limits with a row's estimate, or numbers of notes."""
    hint: str = ""
    heads: bool = False
    """Whether it names the row."""
    depth: Callable[[Any], int] = lambda _: 0
    """Indentation of a row's value, as for a task within a group."""
    axis: Callable[[Any], Axis] = lambda _: (0.0, 1.0)
    """Range of the bar of a row's interval."""

    @property
    def is_text(self) -> bool:
        """Whether its values are texts."""
        return self.kind in ("text", "notes")

    def told(self, row: Any) -> str:
        """Return a text as the script gets it."""
        value = self.of(row)
        return ",".join(map(str, value)) if self.kind == "notes" else visible(value)

    def shown(self, row: Any) -> Cell:
        """Return a value as it is shown."""
        if self.is_text:
            depth = min(self.depth(row), 3)
            styles = [f"depth-{depth}" * (depth > 0), self.style(row)]
            return Cell(self.told(row), style=" ".join(filter(None, styles)))
        value = self.of(row)
        if self.kind == "count":
            return Cell("–" if value is None else f"{value:,}")
        if self.kind == "number":
            return Cell(plain(value))
        if value is None:
            return Cell("–")
        low, high = value
        bar = Bar.of(low, high, row.estimate, self.axis(row))
        return Cell(text.limits_text(low, high, plain), bar)


class Bar(NamedTuple):
    """A bar from limit to limit and a stroke at the estimate, in per cent."""

    low: float
    width: float
    middle: float | None

    @classmethod
    def of(cls, low: float, high: float, middle: float | None, axis: Axis) -> Bar:
        """Return the bar of an interval on an axis."""
        width = axis[1] - axis[0] or 1.0

        def place(x: float) -> float:
            return round(100 * min(max((x - axis[0]) / width, 0.0), 1.0), 1)

        return cls(
            low=place(low),
            width=max(round(place(high) - place(low), 1), 0.5),
            middle=None if middle is None else max(round(place(middle) - 0.8, 1), 0),
        )


class Cell(NamedTuple):
    """A value of a table as it is shown."""

    text: str
    bar: Bar | None = None
    style: str = ""
    """Names of classes."""


def page_table(title: str, rows: Sequence[Any], columns: Sequence[PageColumn]) -> Table:
    """Return a table of the columns that hold anything, or name the rows."""
    nothing = (None, "", ())
    shown = [c for c in columns if c.heads or any(c.of(row) not in nothing for row in rows)]
    return Table(title, rows, shown)


def table_data(name: str, table: Table) -> dict[str, Any]:
    """Return the table as plain data, numbers rounded as shown."""
    rows = table.rows
    columns: list[dict[str, Any]] = []
    for column in cast("Sequence[PageColumn]", table.columns):
        said: dict[str, Any] = {"title": column.title, "kind": column.kind}
        said |= {"heads": True} if column.heads else {}
        if column.is_text:
            texts = [column.told(row) for row in rows]
            places = {text: k for k, text in enumerate(dict.fromkeys(texts))}
            said |= {"strings": list(places), "values": [places[text] for text in texts]}
            depths, strong = ([how(row) for row in rows] for how in (column.depth, column.style))
            said |= {"indent": depths} if any(depths) else {}
            said |= {"strong": [int(bool(style)) for style in strong]} if any(strong) else {}
        elif column.kind == "interval":
            limits = [column.of(row) for row in rows]
            for key, place in (("low", 0), ("high", 1)):
                said[key] = [None if v is None else shortened(v[place]) for v in limits]
            said["middle"] = [shortened(row.estimate) for row in rows]
            axes = {axis: k for k, axis in enumerate(dict.fromkeys(map(column.axis, rows)))}
            said["axes"] = [[shortened(x) for x in axis] for axis in axes]
            said["axis"] = [axes[column.axis(row)] for row in rows] if len(axes) > 1 else 0
        else:
            values = [column.of(row) for row in rows]
            said["values"] = values if column.kind == "count" else list(map(shortened, values))
        columns.append(said)
    return {"name": name, "rows": len(rows), "columns": columns}


def shortened(value: float | None) -> float | int | None:
    """Round a number to the digits shown, so that the script formats it alike.

    >>> shortened(0.03125), shortened(12345.678)
    (0.0312, 12300)
    """
    if value is None:
        return None
    short = float(number(value))
    if any(abs(value) < end <= abs(short) for end in (100, 10_000)):
        # Rounding up to where fewer digits are shown would change the format.
        return value
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def plain(value: float | None) -> str:
    """Format a number as on the terminal, without a minus before zero.

    >>> plain(0.51234), plain(-0.00001)
    ('0.5123', '0.0000')
    """
    return number(shortened(value))


def scores_table(results: Intervals, marks: Mapping[str, int]) -> Table:
    """Return one row per score, in the order of the table on the terminal."""

    def limits(low: str, high: str) -> Callable[[ScoreInterval], str]:
        ends = attrgetter(low, high)
        return lambda row: text.limits_text(*ends(row)) if ends(row)[0] is not None else ""

    columns = [
        _MODEL,
        PageColumn("Task", "task", depth=attrgetter("depth"),
                   style=lambda row: "strong" * (row.kind == "group")),
        _METRIC,
        _ITEMS,
        PageColumn("Epochs", lambda row: row.n_epochs if row.n_epochs > 1 else None, kind="count",
                   hint="Takes of each item"),
        PageColumn("Missing", lambda row: row.n_missing or None, kind="count",
                   hint="Items without a score"),
        _ESTIMATE,
        PageColumn("Better", lambda row: BETTER[row.higher_is_better],
                   hint="↑ higher scores are better, ↓ lower"),
        _interval_column(results.rows),
        PageColumn("Std. error", "std_error", kind="number"),
        PageColumn("Clusters", clusters, hint="deff: how many times larger clusters make the "
                   "variance; ICC: how alike their items are"),
        PageColumn("If independent", limits("naive_low", "naive_high"),
                   hint="The interval without the clusters"),
        PageColumn("Whatever is missing", limits("missing_low", "missing_high"),
                   hint="The interval that holds whatever the missing items would have scored"),
        _METHOD,
        PageColumn("Notes", lambda row: tuple(marks[note] for note in row.notes), kind="notes"),
    ]  # fmt: skip
    return page_table("Scores with intervals", results.rows, columns)


_MODEL, _TASK = PageColumn("Model", "model", heads=True), PageColumn("Task", "task")
_METRIC, _METHOD = PageColumn("Metric", METRIC.value), PageColumn("Method", "method")
_ITEMS = PageColumn("Items", "n_items", kind="count")
_ESTIMATE = PageColumn("Estimate", "estimate", kind="number")


def _interval_column(rows: Sequence[ScoreInterval], hint: str = "") -> PageColumn:
    """Return the column of intervals; bars reach from 0 to 1, or over those of the task."""
    reach: dict[tuple[str, str], Axis] = {}
    for row in rows:
        values = [x for x in (row.low, row.high, row.estimate) if x is not None]
        low, high = reach.get((row.task, row.metric), (math.inf, -math.inf))
        reach[row.task, row.metric] = (min([low, *values]), max([high, *values]))

    def axis(row: ScoreInterval) -> Axis:
        low, high = reach[row.task, row.metric]
        return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)

    def limits(row: ScoreInterval) -> tuple[float | None, float | None] | None:
        return None if row.low is None or row.high is None else (row.low, row.high)

    return PageColumn(text.interval_title(rows), limits, kind="interval", hint=hint, axis=axis)


def logs_table(responses: Sequence[Responses]) -> Table:
    """Return one row per log: its origin, and how many scores it has."""
    logs = grouped(responses, lambda r: (str(r.source.path), r.model))

    def without_score(log: Sequence[Responses]) -> int | None:
        return sum(map(n_without_score, _worst_by_task(log))) or None

    columns = [
        PageColumn("Log", lambda log: str(log[0].source.path), heads=True),
        PageColumn("Model", lambda log: log[0].model),
        PageColumn("Harness", lambda log: log[0].source.harness),
        PageColumn("Version", lambda log: log[0].source.version or ""),
        PageColumn("Run at", lambda log: log[0].source.when),
        PageColumn("Tasks", lambda log: len({r.task for r in log}), kind="count"),
        PageColumn("Scores", lambda log: len({(r.task, r.metric) for r in log}), kind="count",
                   hint="Of tasks, by task and metric"),
        PageColumn("Items read", lambda log: sum(len(r.item_ids) for r in _worst_by_task(log)),
                   kind="count"),
        PageColumn("Without score", without_score, kind="count",
                   hint="Items that have no score, under at least one metric"),
    ]  # fmt: skip
    return page_table("Logs that were read", list(logs.values()), columns)


def settings_table(settings: Sequence[Setting]) -> Table:
    """Return one row per setting and value, what may matter first and standing out."""
    rows = [(one, value, models) for one in settings for value, models in one.models.items()]

    def models(row: tuple[Setting, str, Sequence[str]]) -> str:
        return "all models" if row[0].is_common else few(row[2], _MOST_MODELS)

    def style(row: tuple[Setting, str, Sequence[str]]) -> str:
        return "strong" * row[0].may_matter

    columns = [
        PageColumn("Task", lambda row: row[0].tasks, heads=True, style=style),
        PageColumn("Setting", lambda row: row[0].name, style=style),
        PageColumn("Value", itemgetter(1), style=style),
        PageColumn("Models", models, style=style),
    ]
    return page_table("Settings of the runs", rows, columns)


def slices_table(rows: Sequence[SliceScore]) -> Table:
    """Return one row per slice, with limits that hold for all slices of a model on a task."""
    columns = [
        *(_MODEL, _TASK, _METRIC, PageColumn(rows[0].by, "slice"), _ITEMS, _ESTIMATE),
        _interval_column(rows, hint="It holds for all slices of a model on a task at once"),
        PageColumn("p worse", lambda row: text.shown_value("p_worse", row.p_worse),
                   hint="That the slice is no worse than the other items, adjusted over its "
                   "slices"),
        _METHOD,
    ]  # fmt: skip
    return page_table("Slices with intervals", rows, columns)


def judged_table(rows: Sequence[CorrectedScore]) -> Table:
    """Return one row per model and task: what a judge said, and what people would have said."""
    columns = [
        *(_MODEL, _TASK, PageColumn("Judged", "judged", kind="number")),
        replace(_ESTIMATE, title="Corrected"),
        _interval_column(rows, hint="Of the corrected score alone"),
        replace(_ITEMS, title="Labels"),
        *(PageColumn("Judge", "judge"), _METHOD),
    ]
    return page_table("Scores corrected by labels", rows, columns)


def _worst_by_task(responses: Sequence[Responses]) -> list[Responses]:
    """For each task the metric with the most missing scores, so that items count once."""
    worst: dict[str, Responses] = {}
    for r in responses:
        other = worst.setdefault(r.task, r)
        if (len(r.item_ids), n_without_score(r)) > (len(other.item_ids), n_without_score(other)):
            worst[r.task] = r
    return list(worst.values())


def n_without_score(r: Responses) -> int:
    """Return how many items have no score, in any epoch."""
    if not r.scores.size:
        return 0
    return int((~np.isfinite(r.scores)).all(axis=1).sum())


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldItems:
    """Items of one task and metric on the page."""

    answers: ItemAnswers
    places: NDArray[np.int64]
    """Indices of the items on the page."""


def held_items(
    answers: Sequence[ItemAnswers], most: int = MOST_ITEMS, letters: int = MOST_LETTERS
) -> tuple[list[HeldItems], str]:
    """Return the items to put on the page, flagged ones first, and a note on those left out."""
    cost = [_width(len(own.models), packing(own.scores)[1]) for own in answers]
    kept: list[list[int]] = [[] for _ in answers]
    room, space = most, letters
    for wanted in (True, False):
        for k, task_answers in enumerate(answers):
            places = [j for j, flag in enumerate(task_answers.flags) if bool(flag) is wanted]
            fit = places[: max(min(room, space // cost[k]), 0)]
            kept[k] += fit
            room, space = room - len(fit), space - len(fit) * cost[k]
    held = [
        HeldItems(
            answers=task_answers, places=np.array(_in_order(task_answers, places), dtype=np.int64)
        )
        for task_answers, places in zip(answers, kept, strict=True)
        if places
    ]
    total, n_held = sum(len(task_answers.flags) for task_answers in answers), sum(map(len, kept))
    if n_held == total:
        return held, ""
    said = f"This page holds {n_held:,} of the {total:,} items, flagged ones first."
    return held, said


def _in_order(answers: ItemAnswers, places: Sequence[int]) -> list[int]:
    """Sort as the page's script does: item_2 before item_10."""
    return sorted(places, key=lambda j: natural(answers.item_ids[j]))


def natural(name: str) -> list[tuple[str, int, str]]:
    """Return a sort key that compares numbers within names by value.

    >>> sorted(["item_10", "item_2", "b", "10", "9"], key=natural)
    ['9', '10', 'b', 'item_2', 'item_10']
    """
    texts = re.split("[0-9]+", name)
    # Compared by length, then digit by digit: Python refuses numbers of thousands of digits.
    digits = [found.lstrip("0") for found in re.findall("[0-9]+", name)]
    lengths = [len(found) for found in digits]
    return list(zip(texts, [*lengths, -1], [*digits, ""], strict=True))


def items_data(held: Sequence[HeldItems], models: Sequence[str]) -> list[dict[str, Any]]:
    """Return the items of each task: names, means, flags, and every model's answer."""
    place_of = {model: i for i, model in enumerate(models)}
    blocks: list[dict[str, Any]] = []
    for items in held:
        answers = items.answers
        values, bits = packing(answers.scores)
        # Rounded as they are shown, many values would be the same.
        short = shortened if bits < _FINE else lambda value: float(f"{value:.6g}")
        kept: list[int] = items.places.tolist()
        blocks.append(
            {
                "task": visible(answers.task),
                "names": [visible(answers.item_ids[j]) for j in kept],
                "means": finite_list(answers.item_means[kept]),
                "rest": finite_list(answers.rest_correlation[kept]),
                "flags": [answers.flags[j] for j in kept],
                "models": [place_of[model] for model in answers.models],
                "lower": int(answers.higher_is_better is False),
                "bits": bits,
                "levels": [short(value) for value in values.tolist()],
                # A row of letters for each item.
                "letters": "".join(packed(codes(answers.scores[:, items.places].T, values), bits)),
            }
        )
    return blocks


def finite_list(values: NDArray[np.float64]) -> list[float | int | None]:
    """Return numbers as the page shows them, None for NaN."""
    return [None if math.isnan(x) else shortened(x) for x in values.tolist()]


def texts_data(
    held: Sequence[HeldItems],
    models: Sequence[str],
    texts: Mapping[tuple[str, str, str], ItemText],
    most: int = MOST_TEXT,
) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the texts of items by place, and a note on those beyond the limit.

    Each item has its question and target once, and answers by the models' places.
    """
    places = {model: i for i, model in enumerate(models)}
    where: dict[tuple[str, str], str] = {
        (items.answers.task, items.answers.item_ids[j]): f"{k}.{place}"
        for k, items in enumerate(held)
        for place, j in enumerate(items.places.tolist())
    }
    by_item: dict[str, dict[str, Any]] = {}
    room, left_out = most, 0
    for (model, task, item), found_text in texts.items():
        place = where.get((task, item))
        if place is None or model not in places:
            continue
        size = sum(len(part.encode(errors="surrogatepass")) for part in astuple(found_text))
        if size > room:
            left_out += 1
            continue
        room -= size
        question, target, answer = map(
            visible_lines, (found_text.question, found_text.target, found_text.answer)
        )
        texts_of: dict[str, Any] = {"question": question, "target": target, "answers": {}}
        own = by_item.setdefault(place, texts_of)
        own["answers"][str(places[model])] = [answer, visible(found_text.where)]
    if not left_out:
        return by_item, ""
    return by_item, f"Texts of {counted_of(left_out, 'answer')} would make this page too large."


def distinct(names: Sequence[str]) -> list[str]:
    r"""Clean names as `visible` does, and number those that become equal: they are addresses.

    >>> [name.replace("\ufffd", "?") for name in distinct(["a\x00", "a\x07", "a\ufffd (2)"])]
    ['a?', 'a? (3)', 'a? (2)']
    """
    cleaned = [visible(name) for name in names]
    used = set(cleaned)
    names_taken: dict[str, None] = {}
    for name in cleaned:
        free = (f"{name} ({k})" for k in count(2))
        own = next(x for x in free if x not in used) if name in names_taken else name
        used.add(own)
        names_taken[own] = None
    return list(names_taken)


def visible_lines(text: str) -> str:
    """Clean a text as `visible` does, but leave its lines."""
    return "\n".join(visible(line) for line in text.splitlines())


def packing(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return the values of the codes from 1, and the bits per code; code 0 is a missing score.

    Of more than 4,095 values, as many are kept, evenly by rank: a few may be far from the others.
    """
    values: NDArray[np.float64] = np.unique(scores[~np.isnan(scores)])
    for bits in (1, 2, 3, 6):
        if len(values) < 2**bits:
            return values, bits
    most = min(len(values), 2**_FINE - 1)
    return values[np.linspace(0, len(values) - 1, most).round().astype(np.int64)], _FINE


def codes(scores: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the code of the nearest value, from 1; 0 for no score."""
    scored = ~np.isnan(scores)
    filled = np.where(scored, scores, values[0])
    middle = (values[1:] + values[:-1]) / 2
    return np.where(scored, np.searchsorted(middle, filled) + 1, 0).astype(np.int64)


def packed(numbers: NDArray[np.int64], bits: int) -> list[str]:
    """Encode rows of codes in base64, a letter for six bits, the first code in the highest."""
    shifts = np.arange(bits - 1, -1, -1, dtype=np.uint16)
    each = (numbers.astype(np.uint16)[..., None] >> shifts & 1).astype(np.bool_)
    rows = np.packbits(each.reshape(len(numbers), -1), axis=1)
    width = _width(numbers.shape[1], bits)
    return [urlsafe_b64encode(row.tobytes()).decode()[:width] for row in rows]


def _width(n: int, bits: int) -> int:
    """Number of letters of n codes."""
    return -(-n * bits // 6)
