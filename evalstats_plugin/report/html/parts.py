"""Parts of the HTML report: its tables, and the packed answers to items.

* `Column`, `Table`: values with their kinds; `table_data`: the table for the page's script
* `scores_table`, `slices_table`: every score, and those of slices
* `logs_table`, `settings_table`: where they come from, and how models were run
* `held_items`, `items_data`: items with every model's answer, packed six bits to a letter
* `texts_data`: questions, targets and answers as logged
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import count
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import counted as counted_of
from evalstats_plugin.errors import few
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.report import text
from evalstats_plugin.report.settings import Setting
from evalstats_plugin.report.text import clusters, interval_text, number, percent
from evalstats_plugin.runtime.untrusted import visible
from evalstats_plugin.scores.items import ItemAnswers
from evalstats_plugin.scores.rows import CorrectedScore, Intervals, ScoreInterval
from evalstats_plugin.scores.slices import SliceScore

Axis = tuple[float, float]
"""Start and end of the bars of a column."""


BETTER = {True: "↑", False: "↓", None: ""}
"""Direction of better scores."""

MOST_ITEMS = 20_000
MOST_LETTERS = 1_500_000
"""Most items on a page, and letters of their answers; flagged items come first."""

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Letters of six bits each."""

_FINE = 12
"""Bits per score with many values: 4,095 steps from the least to the greatest."""

_MOST_MODELS = 8
"""Models that a row of settings names."""

MOST_TEXT = 1_000_000
"""Bytes of questions, targets and answers."""

SHOWN = 100
"""Rows of a table shown at a time, and the only ones without scripts."""

Kind = Literal["text", "notes", "count", "number", "interval"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; each kind of value has its own format, here and in ``page.js``."""

    title: str
    kind: Kind = "text"
    values: Sequence[Any]
    """Texts; numbers or None; pairs of numbers for intervals; tuples of footnotes for notes."""
    hint: str = ""
    heads: bool = False
    """Whether it names the row."""
    indent: Sequence[int] = ()
    """Indentation of each value, as for a task within a group."""
    strong: Sequence[bool] = ()
    """Whether each value belongs to a group."""
    middles: Sequence[float | None] = ()
    """Intervals: the estimates."""
    axes: Sequence[Axis] = ()
    """Intervals: ranges of the bars, which `axis_of` assigns to rows."""
    axis_of: Sequence[int] = ()

    @property
    def is_text(self) -> bool:
        """Whether its values are texts."""
        return self.kind in ("text", "notes")

    def text(self, row: int) -> str:
        """Return a text as the script gets it."""
        value = self.values[row]
        return ",".join(map(str, value)) if self.kind == "notes" else visible(value)

    def cell(self, row: int) -> Cell:
        """Return a value as it is shown."""
        value = self.values[row]
        if self.is_text:
            depth = min(self.indent[row], 3) if self.indent else 0
            styles = [f"depth-{depth}"] if depth else []
            styles += ["strong"] if self.strong and self.strong[row] else []
            return Cell(self.text(row), style=" ".join(styles))
        if self.kind == "count":
            return Cell("–" if value is None else f"{value:,}")
        if self.kind == "number":
            return Cell(plain(value))
        if value is None:
            return Cell("–")
        axis = self.axes[self.axis_of[row] if self.axis_of else 0]
        low, high = value
        bar = Bar.of(low, high, self.middles[row], axis)
        return Cell(f"[{plain(low)}, {plain(high)}]", bar)


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


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns of equal length with a name."""

    name: str
    """Prefix of ids, and key of the table's data."""
    caption: str
    columns: Sequence[Column]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0].values)

    def shown_columns(self) -> list[Column]:
        """Columns that are not empty."""
        nothing = (None, "", ())
        return [c for c in self.columns if c.heads or any(v not in nothing for v in c.values)]


def table_data(table: Table) -> dict[str, Any]:
    """Return the table as plain data, numbers rounded as shown."""
    columns = [_column_data(c) for c in table.shown_columns()]
    return {"name": table.name, "rows": table.n_rows, "columns": columns}


def _column_data(column: Column) -> dict[str, Any]:
    said: dict[str, Any] = {"title": column.title, "kind": column.kind}
    said |= {"heads": True} if column.heads else {}
    if column.is_text:
        texts = [column.text(i) for i in range(len(column.values))]
        places = {text: k for k, text in enumerate(dict.fromkeys(texts))}
        said |= {"strings": list(places), "values": [places[text] for text in texts]}
        said |= {"indent": list(column.indent)} if any(column.indent) else {}
        said |= {"strong": [int(s) for s in column.strong]} if any(column.strong) else {}
    elif column.kind == "interval":
        for key, place in (("low", 0), ("high", 1)):
            said[key] = [None if v is None else shortened(v[place]) for v in column.values]
        said["middle"] = [shortened(v) for v in column.middles]
        said["axes"] = [[shortened(x) for x in axis] for axis in column.axes]
        said["axis"] = list(column.axis_of) if len(column.axes) > 1 else 0
    else:
        whole = column.kind == "count"
        said["values"] = [v if whole else shortened(v) for v in column.values]
    return said


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
    rows = results.rows
    depths, groups = [row.depth for row in rows], [row.kind == "group" for row in rows]

    def limits(low: float | None, high: float | None) -> str:
        return text.limits_text(low, high) if low is not None else ""

    columns = [
        Column(title="Model", values=[row.model for row in rows], heads=True),
        Column(title="Task", values=[row.task for row in rows], indent=depths,
               strong=groups),
        Column(title="Metric", values=[text.short_metric(row.metric) for row in rows],),
        Column(title="Items", kind="count", values=[row.n_items for row in rows]),
        Column(title="Epochs", kind="count", hint="Takes of each item",
               values=[row.n_epochs if row.n_epochs > 1 else None for row in rows]),
        Column(title="Missing", kind="count", hint="Items without a score",
               values=[row.n_missing or None for row in rows]),
        Column(title="Estimate", kind="number", values=[row.estimate for row in rows]),
        Column(title="Better", values=[BETTER[row.higher_is_better] for row in rows],
               hint="↑ higher scores are better, ↓ lower"),
        _interval_column(rows),
        Column(title="Std. error", kind="number", values=[row.std_error for row in rows]),
        Column(title="Clusters", values=[clusters(row) for row in rows],
               hint="deff: how many times larger clusters make the variance; ICC: how alike their "
               "items are"),
        Column(title="If independent", hint="The interval without the clusters",
               values=[limits(row.naive_low, row.naive_high) for row in rows]),
        Column(title="Whatever is missing",
               values=[limits(row.missing_low, row.missing_high) for row in rows],
               hint="The interval that holds whatever the missing items would have scored"),
        Column(title="Method", values=[row.method for row in rows]),
        Column(title="Notes", kind="notes",
               values=[tuple(marks[note] for note in row.notes) for row in rows]),
    ]  # fmt: skip
    return Table(name="scores", caption="Scores with intervals", columns=columns)


def _score_axes(rows: Sequence[ScoreInterval]) -> tuple[list[Axis], list[int]]:
    """Return the ranges of bars, 0 to 1 or that of the task's intervals, and each row's range."""
    reach: dict[tuple[str, str], Axis] = {}
    for row in rows:
        values = [x for x in (row.low, row.high, row.estimate) if x is not None]
        low, high = reach.get((row.task, row.metric), (math.inf, -math.inf))
        reach[row.task, row.metric] = (min([low, *values]), max([high, *values]))
    drawn = {key: (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
             for key, (low, high) in reach.items()}  # fmt: skip
    places = {axis: i for i, axis in enumerate(dict.fromkeys(drawn.values()))}
    return list(places), [places[drawn[row.task, row.metric]] for row in rows]


def logs_table(responses: Sequence[Responses]) -> Table:
    """Return one row per log: its origin, and how many scores it has."""
    logs = list(grouped(responses, lambda r: (str(r.source.path), r.model)).items())
    sources = [of_log[0].source for _, of_log in logs]
    items = [sum(len(r.item_ids) for r in _worst_by_task(of_log)) for _, of_log in logs]
    missing = [sum(n_without_score(r) for r in _worst_by_task(of_log)) for _, of_log in logs]
    columns = [
        Column(title="Log", values=[path for (path, _), _ in logs], heads=True),
        Column(title="Model", values=[model for (_, model), _ in logs]),
        Column(title="Harness", values=[source.harness for source in sources]),
        Column(title="Version", values=[source.version or "" for source in sources]),
        Column(title="Run at", values=[source.when for source in sources]),
        Column(title="Tasks", kind="count",
               values=[len({r.task for r in of_log}) for _, of_log in logs]),
        Column(title="Scores", kind="count", hint="Of tasks, by task and metric",
               values=[len({(r.task, r.metric) for r in of_log}) for _, of_log in logs]),
        Column(title="Items read", kind="count", values=items),
        Column(title="Without score", kind="count", values=[n or None for n in missing],
               hint="Items that have no score, under at least one metric"),
    ]  # fmt: skip
    return Table(name="logs", caption="Logs that were read", columns=columns)


def settings_table(settings: Sequence[Setting]) -> Table:
    """Return one row per setting and value, what may matter first and standing out."""
    rows = [(one, value, models) for one in settings for value, models in one.models.items()]
    strong = [one.may_matter for one, _, _ in rows]
    who = ["all models" if one.is_common else few(models, _MOST_MODELS) for one, _, models in rows]
    columns = [
        Column(title="Task", values=[one.tasks for one, _, _ in rows], heads=True, strong=strong),
        Column(title="Setting", values=[one.name for one, _, _ in rows], strong=strong),
        Column(title="Value", values=[value for _, value, _ in rows], strong=strong),
        Column(title="Models", values=who, strong=strong),
    ]
    return Table(name="settings", caption="Settings of the runs", columns=columns)


def _interval_column(rows: Sequence[ScoreInterval], hint: str = "") -> Column:
    axes, axis_of = _score_axes(rows)
    level = percent(rows[0].confidence_level) if rows else "95 %"
    return Column(
        title=f"{level} interval", kind="interval", hint=hint,
        values=[None if interval_text(row) == "–" else (row.low, row.high) for row in rows],
        middles=[row.estimate for row in rows], axes=axes, axis_of=axis_of,
    )  # fmt: skip


def slices_table(rows: Sequence[SliceScore]) -> Table:
    """Return one row per slice, with limits that hold for all slices of a model on a task."""
    columns = [
        Column(title="Model", values=[row.model for row in rows], heads=True),
        Column(title="Task", values=[row.task for row in rows]),
        Column(title="Metric", values=[text.short_metric(row.metric) for row in rows]),
        Column(title=rows[0].by, values=[row.slice for row in rows]),
        Column(title="Items", kind="count", values=[row.n_items for row in rows]),
        Column(title="Estimate", kind="number", values=[row.estimate for row in rows]),
        _interval_column(rows, hint="It holds for all slices of a model on a task at once"),
        Column(title="p worse", values=[text.shown_value("p_worse", row.p_worse) for row in rows],
               hint="That the slice is no worse than the other items, adjusted over its slices"),
        Column(title="Method", values=[row.method for row in rows]),
    ]  # fmt: skip
    return Table(name="every-slice", caption="Slices with intervals", columns=columns)


def judged_table(rows: Sequence[CorrectedScore]) -> Table:
    """Return one row per model and task: what a judge said, and what people would have said."""
    columns = [
        Column(title="Model", values=[row.model for row in rows], heads=True),
        Column(title="Task", values=[row.task for row in rows]),
        Column(title="Judged", kind="number", values=[row.judged for row in rows]),
        Column(title="Corrected", kind="number", values=[row.estimate for row in rows]),
        _interval_column(rows, hint="Of the corrected score alone"),
        Column(title="Labels", kind="count", values=[row.n_items for row in rows]),
        Column(title="Judge", values=[row.judge for row in rows]),
        Column(title="Method", values=[row.method for row in rows]),
    ]
    return Table(name="every-judged", caption="Scores corrected by labels", columns=columns)


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
    places = {model: i for i, model in enumerate(models)}
    return [_block(items, places) for items in held]


def _block(items: HeldItems, places: Mapping[str, int]) -> dict[str, Any]:
    """Return the answers of one task: a row of letters for each item."""
    answers = items.answers
    values, bits = packing(answers.scores)
    levels = [shortened(v) for v in values.tolist()]
    letters = packed(codes(answers.scores[:, items.places].T, values), bits)
    kept: list[int] = items.places.tolist()
    return {
        "task": visible(answers.task),
        "names": [visible(answers.item_ids[j]) for j in kept],
        "means": finite_list(answers.item_means[kept]),
        "rest": finite_list(answers.rest_correlation[kept]),
        "flags": [answers.flags[j] for j in kept],
        "models": [places[model] for model in answers.models],
        "lower": int(answers.higher_is_better is False),
        "bits": bits,
        # Many values have even steps, so that the ends suffice.
        "levels": levels if bits < _FINE else [levels[0], levels[-1]],
        "letters": "".join(letters),
    }


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

    If there are more than 63 values, scores are rounded to 4,095 even steps.
    """
    values: NDArray[np.float64] = np.unique(scores[~np.isnan(scores)])
    for bits in (1, 2, 3, 6):
        if len(values) < 2**bits:
            return values, bits
    low, high = float(values[0]), float(values[-1])
    return np.linspace(low, high, 2**_FINE - 1), _FINE


def codes(scores: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the code of the nearest value, from 1; 0 for no score."""
    scored = ~np.isnan(scores)
    filled = np.where(scored, scores, values[0])
    middle = (values[1:] + values[:-1]) / 2
    return np.where(scored, np.searchsorted(middle, filled) + 1, 0).astype(np.int64)


def packed(numbers: NDArray[np.int64], bits: int) -> list[str]:
    """Encode rows of codes as letters of six bits, the first code in the highest bits."""
    per = max(6 // bits, 1)
    n_rows, n = numbers.shape
    if bits == _FINE:
        sixes = np.stack([numbers >> 6, numbers & 63], axis=-1).reshape(n_rows, 2 * n)
    else:
        room = np.zeros((n_rows, _width(n, bits) * per), dtype=np.int64)
        room[:, :n] = numbers
        shifts = bits * np.arange(per - 1, -1, -1)
        sixes = (room.reshape(n_rows, -1, per) << shifts).sum(axis=-1)
    letters = np.frombuffer(ALPHABET.encode(), dtype=np.uint8)[sixes]
    return [row.tobytes().decode() for row in letters]


def _width(n: int, bits: int) -> int:
    """Number of letters of n codes."""
    return n * 2 if bits == _FINE else -(-n // (6 // bits))
