"""A table of models and tasks: scores, an overall score, ranks and who may be the best of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np

from evalstats_plugin.comparisons.design import Request, comparison_stream, latest_cells
from evalstats_plugin.comparisons.ranks import ranks_by_blocks, ranks_with_groups
from evalstats_plugin.comparisons.rows import ColumnPairs, Comparison, RankSet
from evalstats_plugin.comparisons.tasks import (
    ColumnKey,
    column_of,
    headlines,
    in_overall,
    metrics_of_groups,
)
from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.measure import Measure, Measures
from evalstats_plugin.data.responses import Group, Responses, Selection
from evalstats_plugin.data.results import INSIDE, Results, grouped
from evalstats_plugin.errors import DesignError, check_known
from evalstats_plugin.runtime.memory import budget, size_in_words
from evalstats_plugin.scores.cells import (
    Cell,
    check_confidence_level,
    task_and_metric,
)
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.scores.rows import ScoreInterval
from evalstats_plugin.scores.slices import as_tasks, jointly
from evalstats_plugin.stats.arrays import Rng
from evalstats_plugin.stats.streams import stream

Weights = Literal["columns", "tasks", "items"]
"""What counts the same in an overall score: every column that is shown (a group of tasks is one),
every task, also those inside groups, or every item."""

OVERALL = "overall"
"""Name of the column of all tasks."""

_WEIGHTING: Mapping[Weights, Literal["micro", "macro", "parts"]] = {
    "columns": "parts",
    "tasks": "macro",
    "items": "micro",
}


_PAIR_BYTES = 400
"""Memory of a pair of models on one column, measured on 2,000 models."""
MOST_AT_ONCE = 2_000_000
"""Pairs of a block: more at once are no quicker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """The score of a model in one column: a task, a group of tasks, or all of them.

    Numbers are finite or ``None``. The limits of a score are its own; ranks, letters and
    `may_be_first` hold for all models of all columns at once, and are None where fewer than two
    models could be compared. Of so many models that their pairs do not fit into memory there are
    no letters, and fewer are told apart.
    """

    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "n_items", "estimate", "low", "high", "best_rank", "worst_rank",
        "letters", "may_be_first",
    )  # fmt: skip

    model: str
    task: str
    """Name of the column; ``"overall"`` where `kind` is."""
    metric: str
    kind: Literal["overall", "group", "task"]
    n_items: int
    estimate: float | None
    low: float | None
    high: float | None
    higher_is_better: bool | None
    best_rank: int | None
    worst_rank: int | None
    letters: str
    """Models of a column that share a letter cannot be told apart."""
    may_be_first: bool | None
    n_models: int
    """Models of the column that were ranked."""
    method: str
    confidence_level: float
    notes: tuple[str, ...] = ()
    measure: Measure | None = field(default=None, repr=False, metadata={INSIDE: Measure.to_dict})
    """What the score is; of the overall score, what the scores are that it is the mean of."""


@dataclass(frozen=True)
class ScoreTable(Results[TableCell]):
    """Scores of models on tasks, by column, the best model first."""

    weights: Weights = "columns"
    confidence_level: float = 0.95
    pairs: tuple[ColumnPairs, ...] = field(default=(), compare=False)
    """Every two models of each column, with what their ranks come from."""
    in_overall: tuple[ColumnKey, ...] = ()
    """The columns that the overall score is of."""
    overall_tasks: str = ""
    """Their tasks in words, such as "all 13 tasks"; "" without an overall score."""
    by: str = ""
    """Field of the items whose slices are the columns, in place of tasks."""

    def __post_init__(self) -> None:
        cells: dict[tuple[str, str, str], TableCell] = {}
        for cell in self.rows:
            other = cells.setdefault((cell.kind, cell.task, cell.model), cell)
            if other is not cell:
                raise DesignError(
                    f"{cell.model} has two scores in column {cell.task}: {other.estimate} "
                    f"({other.metric}) and {cell.estimate} ({cell.metric}). Give a model one score "
                    "for each column, such as that of the latest run"
                )

    @cached_property
    def by_column(self) -> Mapping[ColumnKey, Mapping[str, TableCell]]:
        """The cells of each column by model; the overall score first where there is one."""
        columns: dict[ColumnKey, dict[str, TableCell]] = {}
        for cell in self.rows:
            columns.setdefault((cell.kind, cell.task), {})[cell.model] = cell
        return columns

    @property
    def is_ranked(self) -> bool:
        """Whether models were compared in any column."""
        return any(cell.best_rank is not None for cell in self.rows)

    @property
    def compared_on(self) -> str:
        """What models were compared on, in words."""
        kinds = {pairs.independent for pairs in self.pairs}
        both, own = "on the items that both answered", "as independent samples"
        mixed = f"{both}, and {own} where values have no items"
        return mixed if len(kinds) > 1 else own if True in kinds else both

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the columns of the table, overall first where there is one."""
        return tuple(name for _, name in self.by_column)

    @property
    def models(self) -> tuple[str, ...]:
        """Models in the order of the first column, then those that have no score there."""
        first = [cell for own in list(self.by_column.values())[:1] for cell in own.values()]
        ranked = [c for c in first if c.estimate is not None]
        worst_first = bool(first) and first[0].higher_is_better is False
        ranked.sort(key=lambda c: c.estimate or 0.0, reverse=not worst_first)
        return tuple(dict.fromkeys([c.model for c in ranked] + [c.model for c in self.rows]))

    def against(self, model: str) -> list[Comparison]:
        """Return the differences of the other models from one, column by column.

        Every other column is part of the overall score, where there is one.
        """
        columns = {(pairs.kind, pairs.task): pairs for pairs in self.pairs}
        differences: list[Comparison] = []
        for key, cells in self.by_column.items():
            pairs = columns.get(key)
            if pairs is None or model not in pairs.models:
                continue
            rows = _differences(pairs, cells, model)
            whole: Any = {"task" if key[0] == "overall" else "part_of": self.overall_tasks}
            differences += (replace(rows[name], **whole) for name in self.models if name in rows)
        return differences

    def to_latex(
        self, *, percent: bool = False, digits: int | None = None, plus_minus: bool = False
    ) -> str:
        """Return a LaTeX table (booktabs, siunitx) whose caption says how it was made.

        Parameters
        ----------
        percent
            Scores of 100 instead of 1.
        digits
            Decimals; as many as the limits support where left out.
        plus_minus
            Half the width of the interval after ±, instead of its limits in brackets.
        """
        return self._report().table_latex(
            self, percent=percent, digits=digits, plus_minus=plus_minus
        )

    def to_markdown(self, *, percent: bool = False, digits: int | None = None) -> str:
        """Return a Markdown table; `percent` and `digits` as in `to_latex`."""
        return self._report().table_markdown(self, percent=percent, digits=digits)

    @staticmethod
    def _report() -> Any:
        # Loaded on use: results know nothing of how they are shown, but for this door.
        return import_module("evalstats_plugin.report.leaderboard")


def table(
    responses: ResponsesLike,
    *,
    metric: str | Sequence[str] = (),
    columns: str | Sequence[str] = (),
    subtasks: bool | None = False,
    weights: Weights = "columns",
    confidence_level: float = 0.95,
    measure: Measures = None,
    by: str | None = None,
    top: int | None = None,
    rng: Rng = None,
) -> ScoreTable:
    """Return the scores of models on tasks, with an overall score, ranks and letters.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, or any `Responses`. Of each task one metric is
        shown: the first that is a mean of item scores, unless `metric` prefers another.
    metric
        Names or patterns in order of preference, also of one task alone (``"arc=acc_norm"``). A
        task that has none of them shows its first.
    columns
        Tasks that are columns although they are inside a group that is one.
    subtasks
        Show the tasks of groups that the harness scores, instead of the groups; None shows both.
    weights
        Of the overall score: every column counts the same, a group being one; every task, also
        those inside groups; or every item.
    confidence_level
        Of each interval alone, and of all ranks, letters and `TableCell.may_be_first` at once.
    by, top
        Show slices of tasks in place of tasks, as of `evalstats_plugin.slices`. Their limits hold
        for all models and slices at once; there is an overall score if slices do not overlap.
    measure, rng
        As of `evalstats_plugin.compare`.

    Returns
    -------
    ScoreTable
        A record for each model and column. The overall score is of the models that have all
        columns, over those whose scores are means between the same limits, higher being better;
        the tasks count as fixed: it is about these tasks and items like these. Ranks and letters
        are the verdicts of `evalstats_plugin.compare` on the same responses.

    Raises
    ------
    DesignError
        For a confidence level outside (0, 1), no task with item scores, two scores of a model for
        one column, or as of `slices`.
    SelectionError
        For weights that do not exist.

    Examples
    --------
    >>> import numpy as np
    >>> import evalstats_plugin as es
    >>> rng = np.random.default_rng(0)
    >>> right = rng.random((3, 200)) < [[0.9], [0.6], [0.55]]
    >>> table = es.table(es.ResponseMatrix.from_array(right.astype(float)), rng=0)
    >>> for cell in table:
    ...     print(cell.model, cell.estimate, cell.best_rank, cell.worst_rank, cell.letters)
    model_0 0.85 1 1 a
    model_1 0.575 2 3 b
    model_2 0.515 2 3 b
    """
    check_confidence_level(confidence_level)
    check_known("weighting", weights, _WEIGHTING)
    listed, notes = as_list(responses, measure)
    are_apart = True
    if by is not None:
        listed, about_slices, are_apart = as_tasks(listed, by, top)
        notes = (*notes, *about_slices)
    wanted = Selection(metrics=_listed(metric))
    cells, chosen_notes = headlines(latest_cells(listed), wanted)
    if not cells:
        raise DesignError(
            "no task has a metric that is a mean of item scores, or a value: name another with "
            "--metric (in Python: metric=)"
        )
    parts = [cell.responses for cell in cells]
    if by is None:
        scored = [*intervals(parts, confidence_level=confidence_level, rng=rng)]
    else:
        level = confidence_level ** (1 / len(cells))
        rows_of_slices = jointly(
            parts, confidence_level=level, intervals=partial(intervals, rng=rng)
        )
        scored = [replace(row, confidence_level=confidence_level) for row in rows_of_slices]
    by_column, inside = _columns(cells, scored, subtasks, _listed(columns))
    cells_of_all, why = in_overall(cells, inside, _WEIGHTING[weights])
    if not are_apart:
        cells_of_all, why = [], ["no overall score: slices have items in common"]
    joint = [cell.responses for cell in cells_of_all]
    seed = rng if isinstance(rng, int) else None
    # Groups are of one log; a table brings together several.
    alone = [replace(r, groups=r.groups[:2], source=joint[0].source) for r in joint]
    drawn = stream(rng, "overall scores")
    overall = [
        row
        for row in intervals(alone, confidence_level=confidence_level, rng=drawn)
        if row.kind == "group" and row.depth == 0
    ]
    if joint and not overall:
        cells_of_all, why = [], ["no overall score: no model has all tasks"]
    ranks: dict[tuple[str, str], list[RankSet]] = {}
    pairs: list[ColumnPairs] = []
    # Values without an error are not compared.
    ranked = [c for c in cells if c.kind is not None or c.published_error is not None]
    models = {cell.responses.model for cell in ranked}
    if len(models) > 1:
        request = Request(confidence_level=confidence_level, rng=comparison_stream(rng))
        needed, most = _pair_bytes([*parts, *joint]), budget()
        if most is None or needed <= most:
            try:
                ranks, pairs, more = ranks_with_groups(ranked, request, cells_of_all)
            except DesignError as error:
                more = [f"no ranks: {error}"]
        else:
            n = len(models)
            ranks, more = ranks_by_blocks(
                [cell.responses for cell in ranked],
                request,
                [replace(r, groups=r.groups[:1]) for r in joint],
                most_pairs=min(most // (4 * _PAIR_BYTES), MOST_AT_ONCE),
            )
            more = [
                f"ranks by blocks, each pair at Bonferroni's share, without letters: the "
                f"{n * (n - 1) // 2:,} pairs of {n:,} models at once need about "
                f"{size_in_words(needed)} of memory (--memory)",
                *more,
            ]
        chosen_notes = [*chosen_notes, *more]
    by_model = {
        (kind, task, ranked.model): ranked
        for (task, kind), of_column in ranks.items()
        for ranked in of_column
    }
    pairs = [replace(p, task=OVERALL) if p.kind == "overall" else p for p in pairs]
    rows = [_cell(row, "overall", by_model) for row in overall]
    rows += [_cell(row, kind, by_model) for (kind, _), own in by_column.items() for row in own]
    rows = [replace(cell, task=OVERALL) if cell.kind == "overall" else cell for cell in rows]
    distinct = tuple(dict.fromkeys((*notes, *chosen_notes, *why)))
    of_overall = tuple(dict.fromkeys(column_of(r.task, inside) for r in joint))
    in_words = joint[0].groups[0].name if joint else ""
    return ScoreTable(
        tuple(rows), distinct, seed, weights, confidence_level, tuple(pairs), of_overall, in_words,
        by or "",
    )  # fmt: skip


def _differences(
    pairs: ColumnPairs, cells: Mapping[str, TableCell], model: str
) -> dict[str, Comparison]:
    """Return the differences of the other models of a column from one, by model."""
    place = pairs.models.index(model)
    rows: dict[str, Comparison] = {}
    for i in np.flatnonzero((pairs.a == place) | (pairs.b == place)).tolist():
        sign = 1 if pairs.a[i] == place else -1
        cell = cells[pairs.models[int(pairs.b[i] if sign > 0 else pairs.a[i])]]
        difference = float(sign * pairs.difference[i])
        low, high = (float(sign * x) for x in (pairs.low[i], pairs.high[i])[::sign])
        if not np.isfinite((difference, low, high)).all():
            continue
        rows[cell.model] = Comparison(
            model_a=model, model_b=cell.model, task=cell.task, metric=cell.metric, kind=cell.kind,
            n_items=int(pairs.n_items[i]), difference=difference, low=low,
            high=high, p_value=None, p_adjusted=float(pairs.p_adjusted[i]), prob_better=None,
            score_a=cells[model].estimate, score_b=cell.estimate, method="", notes=cell.notes,
            confidence_level=cell.confidence_level, higher_is_better=cell.higher_is_better,
        )  # fmt: skip
    return rows


def _pair_bytes(responses: Sequence[Responses]) -> int:
    """Return the memory of all pairs of models on every task and group."""
    n_of: dict[object, set[str]] = {}
    for r in responses:
        for column in (task_and_metric(r), *(g.name for g in r.groups)):
            n_of.setdefault(column, set()).add(r.model)
    return _PAIR_BYTES * sum(len(models) * (len(models) - 1) // 2 for models in n_of.values())


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _columns(
    cells: Sequence[Cell],
    scored: Sequence[ScoreInterval],
    subtasks: bool | None,  # noqa: FBT001 - as of `table`
    named: Sequence[str],
) -> tuple[dict[ColumnKey, list[ScoreInterval]], dict[str, tuple[Group, ...]]]:
    """Choose: outermost groups with the tasks not inside any, all tasks, or both.

    A task is a column of its own also where it was named, where its group is shown with another
    metric, and where a model that has it is not in the column of its group. Return the scores in
    each column, in the order of the table, and by task that is in the column of its outermost group
    the groups around it.
    """
    metrics = metrics_of_groups(cells)
    outermost = (
        row
        for row in scored
        if row.kind != "group"
        or (row.depth == 0 and row.metric.removesuffix(",none") == metrics[row.task])
    )
    rows: dict[ColumnKey, list[ScoreInterval]] = grouped(
        outermost, lambda row: ("group" if row.kind == "group" else "task", row.task)
    )
    if subtasks:
        return {key: own for key, own in rows.items() if key[0] == "task"}, {}
    held = {(name, row.model) for (kind, name), own in rows.items() if kind == "group"
            for row in own}  # fmt: skip
    inside: dict[str, tuple[Group, ...]] = {}
    alone = set(named)
    for r in (cell.responses for cell in cells):
        name = r.groups[0].name if r.groups else ""
        if (name, r.model) in held and task_and_metric(r)[1] == metrics[name]:
            inside.setdefault(r.task, r.groups)
        else:
            alone.add(r.task)
    if subtasks is False:
        hidden = {("task", task) for task in inside if task not in alone}
        rows = {key: own for key, own in rows.items() if key not in hidden}
    return rows, inside


_OF_SCORE = (
    "model", "task", "metric", "n_items", "estimate", "low", "high", "higher_is_better", "method",
    "confidence_level", "notes", "measure",
)  # fmt: skip
"""Fields that a cell has of the interval of its score."""


def _cell(
    row: ScoreInterval,
    kind: Literal["overall", "group", "task"],
    ranks: dict[tuple[str, str, str], RankSet],
) -> TableCell:
    rank = ranks.get((kind, row.task, row.model))
    return TableCell(
        kind=kind,
        best_rank=rank.best_rank if rank else None,
        worst_rank=rank.worst_rank if rank else None,
        letters=rank.letters if rank else "",
        may_be_first=rank.may_be_first if rank else None,
        n_models=rank.n_models if rank else 0,
        **{name: getattr(row, name) for name in _OF_SCORE},
    )
