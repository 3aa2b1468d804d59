"""Parts of the HTML report: its tables, the packed answers to items, and its figures.

* `Column`, `Table`: values with their kinds; `table_data`: the table for the page's script
* `scores_table`, `comparisons_table`, `ranks_table`, `logs_table`: tables of results
* `held_items`, `items_table`: items with every model's answer, packed six bits to a letter
* `drawn`: figures as SVG without inline styles, which the page's security policy forbids
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeVar
from xml.etree import ElementTree as ET

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from evalstats_plugin.comparisons.ranks import ranks_of
from evalstats_plugin.comparisons.rows import Comparison, Comparisons, RankSet
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.report import text
from evalstats_plugin.report.comparisons import p_value, probability
from evalstats_plugin.report.figures import FIGURES, canvas, draw
from evalstats_plugin.report.figures.canvas import svg
from evalstats_plugin.report.text import clusters, interval_text, number, percent, short_metric
from evalstats_plugin.runtime.untrusted import visible
from evalstats_plugin.scores.items import ItemAnswers
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

Axis = tuple[float, float]
"""Start and end of the bars of a column."""


BETTER = {True: "↑", False: "↓", None: ""}
"""Direction of better scores."""

MOST_PAIRS = 20_000
"""Most comparisons on a page; of more, those with the best model of each task."""

MOST_ITEMS = 20_000
MOST_LETTERS = 1_500_000
"""Most items on a page, and letters of their answers; flagged items come first."""

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Letters of six bits each."""

_FINE = 12
"""Bits per score with many values: 4,095 steps from the least to the greatest."""

RowT = TypeVar("RowT", ScoreInterval, Comparison)
LARGEST = 1_000_000
"""Letters of all figures together; figures beyond that are left out and named."""

MOST_ROWS = 400
"""Most rows of a figure of all tasks; of more, each task has its own."""

MOST_TASKS = 4
"""Most tasks with figures of their own."""

_LINK = "{http://www.w3.org/1999/xlink}href"


SHOWN = 100
"""Rows of a table shown at a time, and the only ones without scripts."""

Role = Literal["", "model", "task", "metric", "flag"]
Kind = Literal[
    "text", "notes", "verdict", "count", "number", "share", "signed", "p", "percent", "interval"
]
TEXTS: tuple[Kind, ...] = ("text", "notes", "verdict")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; each kind of value has its own format, here and in ``page.js``."""

    title: str
    kind: Kind = "text"
    values: Sequence[Any]
    """Texts; numbers or None; pairs of numbers for intervals; tuples of footnotes for notes."""
    role: Role = ""
    """Filter of the page that applies."""
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
    zero: float | None = None
    """Intervals: position of a reference line."""

    @property
    def is_text(self) -> bool:
        """Whether its values are texts."""
        return self.kind in TEXTS

    def text(self, row: int) -> str:
        """Return a text as the script gets it."""
        value = self.values[row]
        return ",".join(map(str, value)) if self.kind == "notes" else visible(value)

    def cell(self, row: int) -> Cell:
        """Return a value as it is shown."""
        value = self.values[row]
        if self.is_text:
            depth = min(self.indent[row], 3) if self.indent else 0
            strong = bool(self.strong) and self.strong[row]
            styles = [f"depth-{depth}"] * bool(depth) + ["strong"] * strong
            return Cell(self.text(row), style=" ".join(styles))
        if self.kind != "interval":
            bar = None
            if self.kind == "share" and value is not None:
                bar = Bar.of(0, value, None, (0, 1), None)
            return Cell(_WRITTEN[self.kind](value), bar)
        if value is None:
            return Cell("–")
        write = signed if self.zero == 0 else plain
        axis = self.axes[self.axis_of[row] if self.axis_of else 0]
        low, high = value
        bar = Bar.of(low, high, self.middles[row], axis, self.zero)
        return Cell(f"[{write(low)}, {write(high)}]", bar)


class Bar(NamedTuple):
    """A bar from limit to limit, a stroke at the estimate, and a line at zero, in per cent."""

    low: float
    width: float
    middle: float | None
    zero: float | None

    @classmethod
    def of(
        cls, low: float, high: float, middle: float | None, axis: Axis, zero: float | None
    ) -> Bar:
        """Return the bar of an interval on an axis."""
        width = axis[1] - axis[0] or 1.0

        def place(x: float) -> float:
            return round(100 * min(max((x - axis[0]) / width, 0.0), 1.0), 1)

        return cls(
            low=place(low),
            width=max(round(place(high) - place(low), 1), 0.5),
            middle=None if middle is None else max(round(place(middle) - 0.8, 1), 0),
            zero=None if zero is None else place(zero),
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
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further data for the script."""

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
    return {"name": table.name, "rows": table.n_rows, "columns": columns, **table.extra}


def _column_data(column: Column) -> dict[str, Any]:
    said: dict[str, Any] = {"title": column.title, "kind": column.kind}
    flags = {"role": column.role, "heads": column.heads}
    said |= {key: value for key, value in flags.items() if value}
    if column.kind in TEXTS:
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
        said |= {"zero": column.zero} if column.zero is not None else {}
        said |= {"signed": 1} if column.zero == 0 else {}
    else:
        said["values"] = [_SHORT[column.kind](v) for v in column.values]
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


def _short_p(value: float | None) -> float | None:
    if value is None:
        return None
    return float(f"{value:.4f}") if value >= 0.00005 else float(f"{value:.1e}")


def _short_percent(value: float | None) -> float | None:
    if value is None:
        return None
    share = 100 * value
    return float(f"{share:.1f}") if 0.001 <= value <= 0.999 else float(f"{share:.6g}")


_SHORT: Mapping[Kind, Callable[[Any], float | int | None]] = {
    "count": lambda value: value, "number": shortened, "share": shortened, "signed": shortened,
    "p": _short_p, "percent": _short_percent,
}  # fmt: skip


def plain(value: float | None) -> str:
    """Format a number as on the terminal, without a minus before zero.

    >>> plain(0.51234), plain(-0.00001)
    ('0.5123', '0.0000')
    """
    return number(shortened(value))


def signed(value: float | None) -> str:
    """Format a number with its sign.

    >>> signed(0.5), signed(-0.5), signed(0.00001)
    ('+0.5000', '-0.5000', '0.0000')
    """
    text = plain(value)
    return f"+{text}" if value is not None and (shortened(value) or 0) > 0 else text


def counted(value: int | None) -> str:
    """Format an integer."""
    return "–" if value is None else f"{value:,}"


_WRITTEN: Mapping[Kind, Callable[[Any], str]] = {
    "count": counted, "number": plain, "share": plain, "signed": signed, "p": p_value,
    "percent": probability,
}  # fmt: skip


def scores_table(results: Intervals, marks: Mapping[str, int]) -> Table:
    """Return one row per score, in the order of the table on the terminal."""
    rows = results.rows
    level = percent(rows[0].confidence_level) if rows else "95 %"
    axes, axis_of = _score_axes(rows)
    depths, groups = [row.depth for row in rows], [row.kind == "group" for row in rows]
    naive = [
        f"[{number(row.naive_low)}, {number(row.naive_high)}]" if row.naive_low is not None else ""
        for row in rows
    ]
    whatever = [
        f"[{number(row.missing_low)}, {number(row.missing_high)}]"
        if row.missing_low is not None
        else ""
        for row in rows
    ]
    columns = [
        Column(title="Model", values=[row.model for row in rows], role="model", heads=True),
        Column(title="Task", values=[row.task for row in rows], role="task", indent=depths,
               strong=groups),
        Column(title="Metric", values=[text.short_metric(row.metric) for row in rows],
               role="metric"),
        Column(title="Items", kind="count", values=[row.n_items for row in rows]),
        Column(title="Epochs", kind="count", hint="Takes of each item",
               values=[row.n_epochs if row.n_epochs > 1 else None for row in rows]),
        Column(title="Missing", kind="count", hint="Items without a score",
               values=[row.n_missing or None for row in rows]),
        Column(title="Estimate", kind="number", values=[row.estimate for row in rows]),
        Column(title="Better", values=[BETTER[row.higher_is_better] for row in rows],
               hint="↑ higher scores are better, ↓ lower"),
        Column(title=f"{level} interval", kind="interval",
               values=[None if interval_text(row) == "–" else (row.low, row.high) for row in rows],
               middles=[row.estimate for row in rows], axes=axes, axis_of=axis_of),
        Column(title="Std. error", kind="number", values=[row.std_error for row in rows]),
        Column(title="Clusters", values=[clusters(row) for row in rows],
               hint="deff: how many times larger clusters make the variance; ICC: how alike their "
               "items are"),
        Column(title="If independent", values=naive, hint="The interval without the clusters"),
        Column(title="Whatever is missing", values=whatever,
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
        known = [x for x in (row.low, row.high, row.estimate) if x is not None]
        low, high = reach.get((row.task, row.metric), (math.inf, -math.inf))
        reach[row.task, row.metric] = (min([low, *known]), max([high, *known]))
    drawn = {key: (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
             for key, (low, high) in reach.items()}  # fmt: skip
    places = {axis: i for i, axis in enumerate(dict.fromkeys(drawn.values()))}
    return list(places), [places[drawn[row.task, row.metric]] for row in rows]


def comparisons_table(rows: Sequence[Comparison], marks: Mapping[str, int]) -> Table:
    """Return one row per pair of models."""
    level = percent(rows[0].confidence_level) if rows else "95 %"
    measures = {row.measure for row in rows}
    zero = {True: 0.0, False: 1.0}[measures == {"difference"}]
    axes, axis_of = _difference_axes(rows, zero)
    title = " or ".join(sorted(measures)).capitalize()
    columns = [
        Column(title="Model", values=[row.model_b for row in rows], role="model", heads=True),
        Column(title="Against", values=[row.model_a for row in rows], role="model"),
        Column(title="Task", values=[row.task for row in rows], role="task",
               strong=[row.kind == "group" for row in rows]),
        Column(title="Metric", values=[text.short_metric(row.metric) for row in rows],
               role="metric"),
        Column(title="Items", kind="count", values=[row.n_items for row in rows]),
        Column(title=title, kind="number" if zero else "signed",
               values=[row.difference for row in rows]),
        Column(title=f"{level} interval", kind="interval", values=[_limits(row) for row in rows],
               middles=[row.difference for row in rows], axes=axes, axis_of=axis_of,
               zero=zero if len(measures) < 2 else None),
        Column(title="p, adjusted", kind="p", values=[row.p_adjusted for row in rows],
               hint="Of no difference, allowing for all pairs of the family; at most α where the "
               "interval leaves out 0"),
        Column(title="P(better)", kind="percent", values=[row.prob_better for row in rows],
               hint="How probable it is that the model is truly the better of the two, by this "
               "pair alone"),
        Column(title="Verdict", kind="verdict", values=[row.verdict for row in rows], role="flag"),
        Column(title="Method", values=[row.method for row in rows]),
        Column(title="Notes", kind="notes",
               values=[tuple(marks[note] for note in row.notes) for row in rows]),
    ]  # fmt: skip
    return Table(name="comparisons", caption="Comparisons of models", columns=columns)


def _difference_axes(rows: Sequence[Comparison], zero: float) -> tuple[list[Axis], list[int]]:
    """Return the ranges of bars, centred at no difference, and each row's range.

    Scores within 0 and 1 share one range for each metric; others have one for each task.
    """
    reach: dict[tuple[str, str], float] = {}
    for row in rows:
        known = [x for x in (row.low, row.high, row.difference) if x is not None]
        furthest = max((abs(x - zero) for x in known), default=0.0)
        for key in ((row.metric, ""), (row.metric, row.task)):
            reach[key] = max(reach.get(key, 0.0), furthest)
    keys = [(row.metric, "" if reach[row.metric, ""] <= 1 else row.task) for row in rows]
    half = {key: reach[key] or 1.0 for key in dict.fromkeys(keys)}
    places = {key: i for i, key in enumerate(half)}
    return [(zero - x, zero + x) for x in half.values()], [places[key] for key in keys]


def _limits(row: Comparison) -> tuple[float, float] | None:
    return None if row.low is None or row.high is None else (row.low, row.high)


def held(
    rows: Sequence[Comparison], ranks: Sequence[RankSet], most: int = MOST_PAIRS
) -> tuple[list[Comparison], str]:
    """Return the comparisons to put on the page, and a note on those left out."""
    if len(rows) <= most:
        return list(rows), ""
    best: dict[tuple[str, str], str] = {}
    for rank in ranks:
        best.setdefault((rank.task, rank.metric), rank.model)
    kept = [row for row in rows if best.get((row.task, row.metric)) in (row.model_a, row.model_b)]
    which = "those with the highest-ranked model of each task" if kept else "the first"
    kept = (kept or list(rows))[:most]
    return kept, (
        f"This page holds {len(kept):,} of the {len(rows):,} comparisons: {which}. p-values are "
        "adjusted over all of them; `evalstats-plugin compare --format csv` has every one."
    )


def ranks(rows: Sequence[Comparison]) -> list[RankSet]:
    """Return the ranks on every task where all pairs were compared, best first."""
    by_task = groupby(rows, key=lambda row: (row.task, row.metric))
    return [one for _, own in by_task for one in ranks_of(list(own))]


def ranks_table(sets: Sequence[RankSet]) -> Table:
    """Return one row per model and task: its possible ranks, and letters."""
    columns = [
        Column(title="Model", values=[one.model for one in sets], role="model", heads=True),
        Column(title="Task", values=[one.task for one in sets], role="task"),
        Column(title="Metric", values=[text.short_metric(one.metric) for one in sets],
               role="metric"),
        Column(title="Best rank", kind="count", values=[one.best_rank for one in sets]),
        Column(title="Worst rank", kind="count", values=[one.worst_rank for one in sets]),
        Column(title="Of", kind="count", values=[one.n_models for one in sets], hint="Models"),
        Column(title="Letters", values=[one.letters for one in sets],
               hint="Models of a task that share a letter cannot be told apart"),
    ]  # fmt: skip
    return Table(name="ranks", caption="Ranks that the items leave open", columns=columns)


def logs_table(responses: Sequence[Responses]) -> Table:
    """Return one row per log: its origin, and how many scores it has."""
    logs: dict[tuple[str, str], list[Responses]] = {}
    for r in responses:
        logs.setdefault((str(r.source.path), r.model), []).append(r)
    found = list(logs.items())
    sources = [of_log[0].source for _, of_log in found]
    items = [sum(len(r.item_ids) for r in _worst_by_task(of_log)) for _, of_log in found]
    missing = [sum(_without_score(r) for r in _worst_by_task(of_log)) for _, of_log in found]
    columns = [
        Column(title="Log", values=[path for (path, _), _ in found], heads=True),
        Column(title="Model", values=[model for (_, model), _ in found], role="model"),
        Column(title="Harness", values=[source.harness for source in sources]),
        Column(title="Version", values=[source.version or "" for source in sources]),
        Column(title="Run at", values=[source.when for source in sources]),
        Column(title="Tasks", kind="count",
               values=[len({r.task for r in of_log}) for _, of_log in found]),
        Column(title="Scores", kind="count", hint="Of tasks, by task and metric",
               values=[len({(r.task, r.metric) for r in of_log}) for _, of_log in found]),
        Column(title="Items read", kind="count", values=items),
        Column(title="Without score", kind="count", values=[n or None for n in missing],
               hint="Items that have no score, under at least one metric"),
    ]  # fmt: skip
    return Table(name="logs", caption="Logs that were read", columns=columns)


def _worst_by_task(responses: Sequence[Responses]) -> list[Responses]:
    """For each task the metric with the most missing scores, so that items count once."""
    worst: dict[str, Responses] = {}
    for r in responses:
        other = worst.setdefault(r.task, r)
        if (len(r.item_ids), _without_score(r)) > (len(other.item_ids), _without_score(other)):
            worst[r.task] = r
    return list(worst.values())


def _without_score(r: Responses) -> int:
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
    cost = [_width(len(one.models), packing(one.scores)[1]) for one in answers]
    kept: list[list[int]] = [[] for _ in answers]
    room, space = most, letters
    for wanted in (True, False):
        for k, one in enumerate(answers):
            places = [j for j, flag in enumerate(one.flags) if bool(flag) is wanted]
            fit = places[: max(min(room, space // cost[k]), 0)]
            kept[k] += fit
            room, space = room - len(fit), space - len(fit) * cost[k]
    held = [
        HeldItems(answers=one, places=np.array(_in_order(one, places), dtype=np.int64))
        for one, places in zip(answers, kept, strict=True)
        if places
    ]
    total, n_held = sum(len(one.flags) for one in answers), sum(map(len, kept))
    if n_held == total:
        return held, ""
    said = f"This page holds {n_held:,} of the {total:,} items, flagged ones first."
    return held, said


def _in_order(one: ItemAnswers, places: Sequence[int]) -> list[int]:
    """Sort as the page's script does: item_2 before item_10."""
    return sorted(places, key=lambda j: natural(one.item_ids[j]))


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


def items_table(held: Sequence[HeldItems]) -> Table:
    """Return one row per item, with each model's answers as extra data."""
    means = _gathered(held, "item_means")
    within = all(x is None or 0 <= x <= 1 for x in means)
    models = list(dict.fromkeys(model for one in held for model in one.answers.models))
    columns = [
        Column(title="Item", values=[name for one in held for name in _names(one)], heads=True),
        Column(title="Task", values=_repeated(held, "task"), role="task"),
        Column(title="Metric", values=[text.short_metric(m) for m in _repeated(held, "metric")],
               role="metric"),
        Column(title="Models", kind="count", values=_gathered(held, "n_models"),
               hint="That have a score of the item"),
        Column(title="Mean score", kind="share" if within else "number", values=means,
               hint="Over the models; the share that is right, where scores are 0 and 1"),
        Column(title="With the rest", kind="signed", values=_gathered(held, "rest_correlation"),
               hint="Correlation of the models' scores on the item with those on the other items"),
        Column(title="Flag", role="flag",
               values=[one.answers.flags[j] for one in held for j in one.places.tolist()]),
    ]  # fmt: skip
    places = {model: i for i, model in enumerate(models)}
    blocks: list[dict[str, Any]] = []
    start = 0
    for one in held:
        blocks.append({"start": start, **_block(one, places)})
        start += len(one.places)
    extra = {"models": [visible(model) for model in models], "blocks": blocks}
    return Table(name="items", caption="Items", columns=columns, extra=extra)


def _names(one: HeldItems) -> list[str]:
    return [one.answers.item_ids[j] for j in one.places.tolist()]


def _repeated(held: Sequence[HeldItems], name: str) -> list[str]:
    return [getattr(one.answers, name) for one in held for _ in range(len(one.places))]


def _gathered(held: Sequence[HeldItems], name: str) -> list[Any]:
    """Return one number per item on the page, None for NaN."""
    found: list[Any] = []
    for one in held:
        found += getattr(one.answers, name)[one.places].tolist()
    return [None if x != x else x for x in found]  # noqa: PLR0124 - NaN


def _block(one: HeldItems, places: dict[str, int]) -> dict[str, Any]:
    """Return the answers of one task: models best first, and a row of letters for each item."""
    answers = one.answers
    values, bits = packing(answers.scores)
    levels = [shortened(v) for v in values.tolist()]
    letters = packed(codes(answers.scores[:, one.places].T, values), bits)
    return {
        "models": [places[model] for model in answers.models],
        "means": [None if x != x else shortened(x) for x in answers.means.tolist()],  # noqa: PLR0124
        "lower": int(answers.higher_is_better is False),
        "bits": bits,
        # Many values have even steps, so that the ends suffice.
        "levels": levels if bits < _FINE else [levels[0], levels[-1]],
        "letters": "".join(letters),
    }


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
    there = ~np.isnan(scores)
    filled = np.where(there, scores, values[0])
    middle = (values[1:] + values[:-1]) / 2
    return np.where(there, np.searchsorted(middle, filled) + 1, 0).astype(np.int64)


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


@dataclass(eq=False)
class Drawn:
    """Figures of a page, their styles, and the figures that could not be drawn."""

    figures: list[tuple[str, Markup]] = field(default_factory=list[tuple[str, Markup]])
    """Title and drawing of each."""
    missing: dict[tuple[str, str], list[str]] = field(
        default_factory=dict[tuple[str, str], list[str]]
    )
    """Tasks by the summary of a missing figure and the reason."""
    styles: dict[str, str] = field(default_factory=dict[str, str])
    """Names of classes by their style."""

    @property
    def css(self) -> str:
        """Rules for the page's style sheet, in place of inline styles."""
        return "\n".join(f".{name}{{{said}}}" for said, name in self.styles.items())

    @property
    def left_out(self) -> list[str]:
        """Notes on missing figures."""
        return [
            f"{what}{f' ({few(tasks)})' if tasks[0] else ''}{': ' if what else ''}{why}"
            for (what, why), tasks in self.missing.items()
        ]

    def leave_out(self, what: str, why: str, task: str = "") -> None:
        """Note that a figure is missing."""
        self.missing.setdefault((what, why), []).append(task)

    def add(self, name: str, results: Results[Any], task: str = "") -> None:
        """Draw a figure, or note why not."""
        summary = FIGURES[name].summary
        summary = summary[0].upper() + summary[1:]
        whole = f"{summary}, {task}" if task else summary
        try:
            with warnings.catch_warnings():
                # The browser may have fonts that Matplotlib lacks.
                warnings.simplefilter("ignore", UserWarning)
                axes: Any = draw(name, Results(_cleaned(results.rows), results.notes))
                text = inline(svg(axes.figure, title=visible(whole)), self.styles)
        except DesignError as error:
            self.leave_out(summary, str(error), task)
            return
        if sum(len(figure) for _, figure in self.figures) + len(text) > LARGEST:
            self.leave_out(summary, "it would make this page too large", task)
            return
        self.figures.append((whole, text))


def drawn(intervals: Intervals, comparisons: Comparisons | None) -> Drawn:
    """Draw scores of all tasks in one figure if they fit, then figures of single tasks.

    Groups have figures of their own before other tasks.
    """
    found = Drawn()
    try:
        canvas.matplotlib()
    except DesignError as error:
        found.leave_out("", str(error))
        return found
    together = len(intervals) <= MOST_ROWS
    if together:
        found.add("forest", intervals)
    scores = _by_task(intervals.rows)
    pairs = _by_task(comparisons.rows if comparisons is not None else ())
    several = [key for key, own in pairs.items() if len(own) > 1]
    tasks = several if together else list(scores)
    tasks.sort(key=lambda key: all(row.kind == "task" for row in scores.get(key, ())))
    for key in tasks[:MOST_TASKS]:
        task = f"{key[0]} {short_metric(key[1])}"
        if not together:
            found.add("forest", Results(tuple(scores[key])), task)
        if key in several:
            every_two = bool(ranks_of(pairs[key]))
            for name in ("ranks", "matrix") if every_two else ("differences",):
                found.add(name, Results(tuple(pairs[key])), task)
    left = len(tasks) - MOST_TASKS
    if left > 0 and found.figures:
        why = f"{left:,} of {len(tasks):,} tasks and metrics on their own"
        found.leave_out("", f"{why}; `report --figure` and `compare --figure` draw them")
    return found


def _by_task(rows: Sequence[RowT]) -> dict[tuple[str, str], list[RowT]]:
    groups: dict[tuple[str, str], list[RowT]] = {}
    for row in rows:
        groups.setdefault((row.task, row.metric.removesuffix(",none")), []).append(row)
    return groups


def _cleaned(rows: Sequence[Any]) -> tuple[Any, ...]:
    """Return rows with names that XML can represent."""
    names = ("model_a", "model_b") if rows and isinstance(rows[0], Comparison) else ("model",)
    names = (*names, "task", "metric")
    return tuple(replace(row, **{n: visible(getattr(row, n)) for n in names}) for row in rows)


def inline(text: str, styles: dict[str, str]) -> Markup:
    """Return an SVG with classes in place of ``style`` attributes, which the page does not allow.

    Parameters
    ----------
    styles
        Names of classes by their style; those of this figure are added.
    """
    root = ET.fromstring(text)  # noqa: S314 - drawn by ourselves
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith("}style"):
                parent.remove(child)
    for part in root.iter():
        part.tag = part.tag.rpartition("}")[2]
        said = part.attrib.pop("style", None)
        if said is not None:
            part.set("class", styles.setdefault(said, f"s{len(styles)}"))
        link = part.attrib.pop(_LINK, None)
        if link is not None:
            part.set("href", link)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - drawn by ourselves
