"""Rows of a table, each an item in one epoch, and `Responses` made from them.

`Rows` holds the columns; `groups_of` finds the rows of each model, task and metric; `fill` makes
responses from one group, and checks that its rows are consistent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.tabular.recognition import (
    OF_SUMMARIES,
    OF_TASKS,
    SHOTS,
    Layout,
    closest,
    name_of_file,
)
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.published import Printed, is_share, published
from evalstats_plugin.data.responses import (
    NO_COLUMN,
    Responses,
    Source,
    as_clusters,
    first_rows,
    named_alone,
    number_epochs,
    repeated_rows,
    score_matrix,
    unique_in_order,
)
from evalstats_plugin.data.results import grouped
from evalstats_plugin.data.runs import PER_TASK
from evalstats_plugin.data.tables import Column, at_rows
from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.scores.cells import RATIOS
from evalstats_plugin.stats.arrays import IntArray

Floats = NDArray[np.float64]
_MOST = 1e12
"""Items beyond which a number of them is a mistake."""

_WIDTH = 2 * 1.959964
"""Of 95 % limits, in standard errors."""

_WEIGHT = "a number of 0 or more"

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class Group(NamedTuple):
    """What the rows of one `Responses` have in common."""

    model: str
    task: str
    metric: str
    settings: str = "[]"
    """JSON of names and values of settings, where these tell rows apart."""


def fill(
    group: Group,
    source: Source,
    table: Rows,
    rows: IntArray,
    *,
    ids: NDArray[Any],
    scores: Floats,
) -> Responses:
    """Return the responses of some rows: scores, clusters, hashes, weights and so on.

    Parameters
    ----------
    rows
        Indices of the rows in the table, in order.
    ids
        Names of all items of the table, by their codes.
    scores
        Scores of all rows of the table.

    Raises
    ------
    DesignError
        Two rows are of the same item and epoch, a property of an item differs between its rows, or
        a score is out of the bounds.
    """
    about_rows: tuple[str, ...] = ()
    if table.epochs is None and not table.layout.by_order:
        _, places = unique_in_order(table.parts["item"].codes[rows])
        empty = np.isnan(scores[rows])
        again = empty & (np.bincount(places, ~empty) > 0)[places]
        if again.any():
            rows = rows[~again]
            left = f"{counted(int(again.sum()), 'row')} without a score left out"
            about_rows = (f"{left}: another row of the item has one",)
    items, places = unique_in_order(table.parts["item"].codes[rows])
    if table.epochs is not None:
        epoch = np.unique(table.epochs[rows], return_inverse=True)[1]
    else:
        epoch = number_epochs(places) if table.layout.by_order else np.zeros_like(places)
    _refuse_repeated(group, table, rows, repeated_rows(places, epoch))
    properties = _ItemProperties(group, table, rows, places)
    clusters, about_clusters = properties.clusters()
    bounds = properties.bounds(scores)
    higher_is_better = properties.direction()
    aggregation = properties.same("aggregation") or "mean"
    weights, about_weights = properties.weights(aggregation, scores)
    settings = settings_of(group)
    if aggregation not in ("mean", *RATIOS):
        about_weights += (f"not averaged: its aggregation ({aggregation}) is not a mean",)
    measure = Measure(
        task=group.task,
        metric=group.metric,
        higher_is_better=higher_is_better,
        aggregation=aggregation,
    )
    return Responses(
        model=group.model,
        measure=measure.on(bounds, "logged"),
        source=source,
        item_ids=ids[items],
        scores=score_matrix(places, epoch, scores[rows]),
        weights=weights,
        clusters=clusters,
        tags=None
        if table.layout.columns.get("tags") in dict(settings)
        else (properties.clusters("tags")[0]),
        settings=settings,
        item_hashes=properties.hashes(),
        notes=(*table.notes, *about_rows, *about_clusters, *about_weights),
    )


def no_shares(
    groups: Sequence[tuple[Group, IntArray]], table: Rows, scores: Floats, texts: Column
) -> set[tuple[str, str]]:
    """Return the tasks and metrics that have a value above 1, so that none of theirs is a share.

    Raises
    ------
    DesignError
        Of a metric that is a share some values may be percentages, and others either.
    """
    columns = [table.parts.get(part) for part in ("k", "n")]
    none = np.zeros(table.size, dtype=bool)
    by_count = np.all([none if column is None else ~column.empty for column in columns], axis=0)
    in_percent = np.array([text.endswith("%") for text in (*texts.values, "")])[texts.codes]
    large, small = (
        (scores > low) & (scores <= high) & ~by_count & ~in_percent
        for low, high in ((1, 100), (0, 1))
    )
    for metric, own in grouped(groups, lambda each: each[0].metric).items():
        rows = np.sort(np.concatenate([rows for _, rows in own]))
        percentages, either = rows[large[rows]], rows[small[rows]]
        if is_share(metric) and len(percentages) and len(either):
            shown = texts.texts()
            raise DesignError(
                f"{table.where}: {metric} is {shown[either[0]]!r} in {at_rows(either)}, but others "
                f"are above 1, such as {shown[percentages[0]]!r}: is it a percentage too? Write "
                "each with a percent sign, or all as shares from 0 to 1."
            )
    beyond = (scores > 1) & ~by_count
    return {(g.task, g.metric) for g, rows in groups if beyond[rows].any()}


def summed_up(
    group: Group,
    source: Source,
    table: Rows,
    rows: IntArray,
    scores: Floats,
    texts: Column,
    *,
    may_count: bool,
) -> Responses:
    """Return the value of a model on a task where that is all that the table has.

    ``may_count``: whether values from 0 to 1 of this task and metric may be of right answers.

    Raises
    ------
    DesignError
        Two rows are of one model, task and metric, or a count is not a whole number.
    """
    if len(rows) > 1:
        raise DesignError(
            f"{table.where}: {at_rows(rows)} are all of model {group.model!r}, task {group.task!r} "
            f"and metric {group.metric!r}. Keep one of them, or name the column of items "
            f"(--columns item={table.like_item or 'COLUMN'})."
        )
    row, notes = int(rows[0]), table.notes
    may_count = may_count or is_share(group.metric)
    n, error, k, low, high = (_number_of(part, table, row) for part in OF_SUMMARIES)
    if error is None and low is not None and high is not None:
        error = Printed((high.value - low.value) / _WIDTH, (high.half + low.half) / _WIDTH)
        notes = (*notes, "the standard error is that of the limits, taken for 95 %")
        may_count = False
    for part, number, least in (("n", n, 1), ("k", k, 0)):
        if number is not None and not (
            least <= number.value <= _MOST and number.value.is_integer()
        ):
            expected = f"a whole number of {'items' if part == 'n' else 'right answers'}"
            at = at_rows(rows)
            raise DesignError(
                f"{table.where}: {part} is {number.value:g} in {at}. Write {expected}."
            )
    if error is not None and not 0 <= error.value < math.inf:
        wrong = f"the standard error is {error.value:g} in {at_rows(rows)}"
        raise DesignError(f"{table.where}: {wrong}. Write 0 or more, or nothing.")
    text = (*texts.values, "")[int(texts.codes[row])]
    value = None if not math.isfinite(scores[row]) else Printed.of(
        float(scores[row]), text, 0.01 if text.endswith("%") else 1.0
    )  # fmt: skip
    if text.endswith("%"):
        error = error and error.per_cent
    if k is not None and n is not None:
        if k.value > n.value:
            raise DesignError(
                f"{table.where}: {k.value:g} of {n.value:g} answers are right in {at_rows(rows)}. "
                "Write the right answers as k and all items as n."
            )
        value = Printed(k.value / n.value, 1e-9)
    elif value is not None and is_share(group.metric) and 1 < value.value <= 100:
        notes = (*notes, f"{group.metric}: values above 1 are read as percentages")
        value, error = value.per_cent, error and error.per_cent
    properties = _ItemProperties(group, table, rows, np.zeros(1, dtype=np.int64))
    measure = Measure(task=group.task, metric=group.metric, higher_is_better=properties.direction())
    may_count = may_count and properties.same("aggregation") != OF_TASKS
    read = published(
        group.model, measure, source,
        value=value, std_error=error, n=None if n is None else int(n.value), notes=notes,
        may_count=may_count,
    )  # fmt: skip
    return replace(read, settings=settings_of(group))


def settings_of(group: Group) -> tuple[tuple[str, str], ...]:
    """Return the settings that tell the rows of a group from others of its model."""
    return tuple((name, value) for name, value in json.loads(group.settings))


def _number_of(part: str, table: Rows, row: int) -> Printed | None:
    column = table.parts.get(part)
    text = "" if column is None else (*column.values, "")[int(column.codes[row])]
    if column is None or text in ("", "-", "N/A"):
        return None
    bare = Column.of([text.removesuffix("%")])
    (number,) = bare.numbers(part, f"{table.where}, row {row + 1}", "a number")
    return Printed.of(float(number), text)


def _refuse_repeated(
    group: Group, table: Rows, rows: IntArray, twice: tuple[int, int, int] | None
) -> None:
    if twice is None:
        return
    first, second = rows[twice[0]], rows[twice[1]]
    item = table.parts["item"]
    numbered = "epoch" in table.parts
    cure = "Remove all but one"
    if not numbered:
        cure += (
            ", name the column that numbers the epochs (--columns epoch=COLUMN), or number them in "
            "the order of the rows (--columns epoch=order)"
        )
    lacking = [note for note in table.notes if note.startswith(NO_COLUMN)]
    cure += "".join(f"; {note}" for note in lacking)
    raise DesignError(
        f"{table.where}: rows {first + 1} and {second + 1} are both of model {group.model!r}, task "
        f"{group.task!r}, item {item.values[item.codes[first]]!r}"
        f"{', and one epoch' if numbered else ''} "
        f"({twice[2]} {'row' if twice[2] == 1 else 'rows'} too many). {cure}."
    )


class _ItemProperties:
    """Properties of the items in some rows, and properties shared by all of the rows."""

    def __init__(self, group: Group, table: Rows, rows: IntArray, places: IntArray) -> None:
        self.group = group
        self.table = table
        self.rows = rows
        self.places = places
        self.first = first_rows(places)

    def codes(self, part: str) -> IntArray:
        """Return each item's code of a part, shape (M,); `DesignError` if its rows differ."""
        column = self.table.parts[part]
        codes = column.codes[self.rows]
        mine = codes[self.first]
        differ = np.flatnonzero(codes != mine[self.places])
        if len(differ):
            row = self.rows[differ[0]]
            item = self.table.parts["item"]
            raise DesignError(
                f"{self.table.where}: item {item.values[item.codes[row]]!r} of task "
                f"{self.group.task!r} has another {part} in {at_rows(self.rows[differ])} than "
                "before. Write the same in all its rows."
            )
        return mine

    def weights(self, aggregation: str, scores: Floats) -> tuple[Floats | None, tuple[str, ...]]:
        """Return each item's weight, shape (M,), or None, and a note where it is not used.

        Raises
        ------
        DesignError
            An item that has a score has no weight, or all of them weigh nothing.
        """
        column = self.table.parts.get("weight")
        if column is None or column.empty[self.rows].all():
            return None, ()
        self.codes("weight")
        numbers = column.numbers("weight", self.table.where, _WEIGHT)
        weights = numbers[self.rows][self.first]
        if aggregation not in RATIOS:
            name = self.table.layout.columns["weight"]
            used = f"used with the aggregations {', '.join(RATIOS)} alone"
            return weights, (f"column {name!r} is left out: weights are {used}",)
        mine = np.isin(np.arange(len(numbers)), self.rows) & np.isfinite(scores)
        column.refuse(
            mine & ~((numbers >= 0) & (numbers < math.inf)), "weight", self.table.where, _WEIGHT
        )
        column.refuse(mine & (numbers[mine].sum() == 0), "weight", self.table.where, "one above 0")
        return weights, ()

    def clusters(self, part: str = "cluster") -> tuple[NDArray[Any] | None, tuple[str, ...]]:
        """Return the cluster of each item, shape (M,); an item without one is its own cluster."""
        column = self.table.parts.get(part)
        if column is None:
            return None, ()
        codes = self.codes(part)
        missing = np.flatnonzero(codes < 0)
        name = self.table.layout.columns[part]
        if len(missing) == len(codes):
            return as_clusters([None] * len(codes), name)
        short, _ = as_clusters(column.values, name)
        labels = np.append(np.asarray(short), "")[codes].astype(object)
        labels[missing] = [named_alone(int(k)) for k in missing]
        notes = (f"{counted(len(missing), 'item')} without {name!r} are clusters of their own",)
        return labels.astype(str), notes if len(missing) else ()

    def hashes(self) -> NDArray[Any] | None:
        """Return the hash of each item's question, None unless all have one."""
        column = self.table.parts.get("hash")
        if column is None:
            return None
        codes = self.codes("hash")
        return None if (codes < 0).any() else np.asarray(column.values)[codes]

    def same(self, part: str) -> str | None:
        """Return the value of a part in all rows, None if empty; `DesignError` if they differ."""
        column = self.table.parts.get(part)
        if column is None:
            return None
        codes = list(map(int, np.unique(column.codes[self.rows])))
        if len(codes) > 1:
            shown = ", ".join(column.values[k] if k >= 0 else "nothing" for k in codes[:3])
            raise DesignError(
                f"{self.table.where}: {part} is {shown} in rows of model {self.group.model!r}, "
                f"task {self.group.task!r} and metric {self.group.metric!r}. Write the same in all "
                "of them."
            )
        return column.values[codes[0]] if codes[0] >= 0 else None

    def direction(self) -> bool | None:
        """Return whether higher scores are better, None if the table does not say."""
        said: set[bool] = set()
        for part, direction in (("higher_is_better", True), ("lower_is_better", False)):
            if (text := self.same(part)) is None:
                continue
            if text.casefold() not in _TRUTH:
                raise DesignError(f"{self.table.where}: {part} is {text!r}. Write true or false.")
            said.add(_TRUTH[text.casefold()] is direction)
        if len(said) > 1:
            msg = f"{self.table.where}: higher_is_better and lower_is_better contradict each other"
            raise DesignError(f"{msg} in {at_rows(self.rows)}. Leave one of the columns out.")
        return next(iter(said), None)

    def bounds(self, scores: Floats) -> tuple[float, float] | None:
        """Return the least and greatest possible score, None unless the table gives both.

        Raises
        ------
        DesignError
            They are no bounds, or a score is outside of them.
        """
        least, greatest = self.same("min_score"), self.same("max_score")
        if least is None or greatest is None:
            return None
        try:
            low, high = float(least), float(greatest)
        except ValueError:
            low, high = 1.0, 0.0
        if not low < high:
            raise DesignError(
                f"{self.table.where}: min_score is {least!r} and max_score is {greatest!r}. Write "
                "two numbers, the first below the second."
            )
        outside = self.rows[(scores[self.rows] < low) | (scores[self.rows] > high)]
        if len(outside):
            raise DesignError(
                f"{self.table.where}: score {scores[outside[0]]:g} in {at_rows(outside)} (model "
                f"{self.group.model!r}, task {self.group.task!r}) is out of the bounds {low:g} to "
                f"{high:g} that the table gives. Correct the scores or the bounds."
            )
        return low, high


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table, each of one model, item and epoch."""

    where: str
    layout: Layout
    parts: dict[str, Column]
    """Column by part, without scores."""
    size: int
    notes: tuple[str, ...] = ()
    like_item: str | None = None
    """Column whose name is like those of items, where no column is of items."""

    def names(self, part: str, default: str) -> Column:
        """Return the model, task or metric of each row; the default for all if there is no column.

        Raises
        ------
        DesignError
            The column is empty in a row.
        """
        column = self.parts.get(part)
        if column is None:
            return Column(np.zeros(self.size, dtype=np.int64), (default,))
        self.refuse_empty(part)
        return column

    def settings(self, *columns: Column) -> tuple[Column, ...]:
        """Return one column of the settings that tell apart what is otherwise of one item.

        They are the column that makes slices, and those with names of `SETTINGS`.
        """
        told = [*columns, *([self.parts["item"]] if "item" in self.parts else [])]
        used = {name: self.parts[name] for name in self.layout.settings}
        if "tags" in self.parts and "item" in self.parts:
            used = {self.layout.columns["tags"]: self.parts["tags"], **used}
        epoch = [self.parts["epoch"]] if "epoch" in self.parts else []
        by_name: dict[str, Column] = {}
        for name, column in used.items():
            # Slices are of items; epochs that have settings of their own are runs.
            rest = [*told, *(epoch if name in self.layout.settings else ())]
            with_column, without = (len(np.unique(_codes(c))) for c in ((*rest, column), rest))
            if with_column > without:
                told.append(column)
                key = f"{PER_TASK}num_fewshot" if name.casefold() in SHOTS else name
                by_name[key] = column
        if not by_name:
            return ()
        if self.layout.columns.get("tags") in by_name:
            self.refuse_empty("tags")
        _, places = np.unique(_codes(list(by_name.values())), return_inverse=True)
        first = first_rows(places)
        values = (column.take(first).texts().tolist() for column in by_name.values())
        pairs = (list(zip(by_name, row, strict=True)) for row in zip(*values, strict=True))
        return (Column(places, tuple(map(json.dumps, pairs))),)

    def refuse_empty(self, part: str) -> None:
        """Raise `DesignError` if a part is empty in a row."""
        rows = np.flatnonzero(self.parts[part].empty)
        if len(rows):
            raise DesignError(
                f"{self.where}: {at_rows(rows)} has no {part}. Fill column "
                f"{self.layout.columns[part]!r} in every row."
            )

    @cached_property
    def epochs(self) -> IntArray | None:
        """Index of each row's epoch among all epochs; None without a column of epochs."""
        column = self.parts.get("epoch")
        if column is None:
            return None
        self.refuse_empty("epoch")
        try:
            keys = np.asarray(column.values, dtype=str).astype(np.float64)
        except ValueError:
            return column.codes
        return np.unique(keys, return_inverse=True)[1][column.codes]


def _codes(columns: Sequence[Column]) -> IntArray:
    """Return one code for the values of a row in all columns, empty ones included."""
    whole = np.zeros(len(columns[0].codes), dtype=np.int64)
    n_codes = 1
    for column in columns:
        n = len(column.values) + 1
        if n_codes * n > np.iinfo(np.int64).max:
            whole = np.unique(whole, return_inverse=True)[1]
            n_codes = len(whole)
        whole, n_codes = whole * n + column.codes + 1, n_codes * n
    return whole


def groups_of(*columns: Column) -> list[tuple[Group, IntArray]]:
    """Return the rows of each model, task, metric and setting, in order of first occurrence."""
    whole = _codes(columns)
    if not len(whole):
        return []
    keys, places = unique_in_order(whole)
    rows = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[rows], np.arange(1, len(keys)))
    return [
        (Group(*(c.values[int(c.codes[mine[0]])] for c in columns)), mine)
        for mine in np.split(rows, bounds)
    ]


def without_empty_rows(columns: Mapping[str, Column]) -> tuple[dict[str, Column], tuple[str, ...]]:
    """Remove empty rows at the end, as spreadsheets write them, with a note."""
    held = ~np.all([column.empty for column in columns.values()], axis=0)
    last = int(np.flatnonzero(held)[-1]) + 1 if held.any() else 0
    more = len(held) - last
    if not more or not last:
        return dict(columns), ()
    kept = np.arange(len(held)) < last
    notes = (f"{more} empty {'row' if more == 1 else 'rows'} at the end left out",)
    return {name: column.take(kept) for name, column in columns.items()}, notes


def default_names(
    path: Path, layout: Layout, columns: Sequence[str], model: str = ""
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return names of model and task if the table has no columns for them, with notes.

    The file's name is the model's name, or the task's if there is a column of models, or the caller
    names the model.
    """
    stem = name_of_file(path)
    told = {*layout.columns, *(["model"] if model else [])}
    names = {"model": model or stem, "task": stem if "model" in told else "task"}
    lacking = [part for part in ("model", "task") if part not in told]
    unused = [name for name in columns if name not in layout.used]
    notes: list[str] = []
    for part in lacking:
        near = closest(part, unused)
        hint = f" (--columns {part}={near} if that was meant)" if near else ""
        name = "the file's name" if part == "model" else repr(names[part])
        notes.append(f"{NO_COLUMN} {part}: {name} is used{hint}")
    return names, tuple(notes)
