"""A table of models and tasks: scores, an overall score, ranks and who may be the best of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Literal

from evalstats_plugin.comparisons.design import Request, comparison_stream
from evalstats_plugin.comparisons.methods import PAIRED
from evalstats_plugin.comparisons.ranks import ranks_with_groups
from evalstats_plugin.comparisons.rows import ColumnPairs, RankSet
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.methods import table_of
from evalstats_plugin.data.responses import Group, Responses
from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.data.runs import ResponseSet, one_of_each
from evalstats_plugin.errors import DesignError, check_known, few
from evalstats_plugin.scores.cells import (
    Bounds,
    Cell,
    check_confidence_level,
    make_cell,
    responses_and_notes,
    task_and_metric,
)
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.scores.rows import ScoreInterval
from evalstats_plugin.stats.arrays import Rng
from evalstats_plugin.stats.streams import stream

Weights = Literal["tasks", "items"]
"""What counts the same in an overall score: every task, or every item."""

OVERALL = "overall"

_WEIGHTING: dict[Weights, Literal["micro", "macro"]] = {"tasks": "macro", "items": "micro"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """The score of a model in one column: a task, a group of tasks, or all of them.

    Numbers are finite or ``None``. The limits of a score are its own; ranks, letters and
    `may_be_first` hold for all models of all columns at once, and are None where fewer than two
    models could be compared.
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


@dataclass(frozen=True)
class ScoreTable(Results[TableCell]):
    """Scores of models on tasks, by column, the best model first."""

    weights: Weights = "tasks"
    confidence_level: float = 0.95
    pairs: tuple[ColumnPairs, ...] = field(default=(), compare=False)
    """Every two models of each column, with what their ranks come from."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the columns of the table, overall first where there is one."""
        return tuple(dict.fromkeys(cell.task for cell in self.rows))

    @property
    def models(self) -> tuple[str, ...]:
        """Models in the order of the first column, then those that have no score there."""
        first = self.rows[0] if self.rows else None
        ranked = [c for c in self.rows if first is not None and c.task == first.task]
        ranked = [c for c in ranked if c.estimate is not None]
        worst_first = first is not None and first.higher_is_better is False
        ranked.sort(key=lambda c: c.estimate or 0.0, reverse=not worst_first)
        return tuple(dict.fromkeys([c.model for c in ranked] + [c.model for c in self.rows]))

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


def score_table(
    responses: ResponseSet | ResponseMatrix | Iterable[Responses],
    *,
    subtasks: bool | None = False,
    weights: Weights = "tasks",
    confidence_level: float = 0.95,
    bounds: Bounds | None = None,
    rng: Rng = None,
) -> ScoreTable:
    """Return the scores of models on tasks, with an overall score, ranks and letters.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, or any `Responses`. Of each task the first
        metric that is a mean of item scores is shown; select others when reading.
    subtasks
        Show the tasks of groups that the harness scores, instead of the groups; None shows both.
    weights
        Of the overall score: every task counts the same, or every item.
    confidence_level
        Of each interval alone, and of all ranks, letters and `TableCell.may_be_first` at once.
    bounds, rng
        As of `evalstats_plugin.compare`.

    Returns
    -------
    ScoreTable
        A record for each model and column. The overall score is of the models that have all
        tasks, over the tasks whose scores are means between the same limits, higher being better;
        the tasks count as fixed: it is about these tasks and items like these. Ranks and letters
        are the verdicts of `evalstats_plugin.compare` on the same responses.

    Raises
    ------
    DesignError
        For a confidence level outside (0, 1), or no task with item scores.
    SelectionError
        For weights that do not exist.

    Examples
    --------
    >>> import numpy as np
    >>> import evalstats_plugin as es
    >>> rng = np.random.default_rng(0)
    >>> right = rng.random((3, 200)) < [[0.9], [0.6], [0.55]]
    >>> table = es.score_table(es.ResponseMatrix.from_array(right.astype(float)), rng=0)
    >>> for cell in table:
    ...     print(cell.model, cell.estimate, cell.best_rank, cell.worst_rank, cell.letters)
    model_0 0.85 1 1 a
    model_1 0.575 2 3 b
    model_2 0.515 2 3 b
    """
    check_confidence_level(confidence_level)
    check_known("weighting", weights, _WEIGHTING)
    listed, notes = responses_and_notes(responses)
    cells, chosen_notes = _headlines(one_of_each(listed), bounds or {})
    if not cells:
        msg = "no task has a metric that is a mean of item scores: name another with --metric"
        raise DesignError(msg)
    own = [cell.responses for cell in cells]
    joint, apart, why = _in_overall(cells, weights)
    seed = rng if isinstance(rng, int) else None
    every = intervals(own, confidence_level=confidence_level, bounds=bounds, rng=rng)
    inside = {r.task for r in own if any(g.logged is not None for g in r.groups)}
    scores = [row for row in every if _is_column(row, inside, subtasks)]
    overall = _overall_scores(joint, confidence_level=confidence_level, bounds=bounds, rng=rng)
    ranks: dict[tuple[str, str], list[RankSet]] = {}
    pairs: list[ColumnPairs] = []
    if len({r.model for r in own}) > 1:
        request = Request(
            baseline=None,
            confidence_level=confidence_level,
            method="auto",
            table=table_of([], PAIRED),
            correction="simultaneous",
            family="auto",
            bounds=bounds or {},
            rng=comparison_stream(rng),
        )
        ranks, pairs, more = ranks_with_groups([*joint, *apart], request)
        chosen_notes = [*chosen_notes, *more]
    by_model = {
        ("overall" if task == OVERALL else kind, task, one.model): one
        for (task, kind), of_column in ranks.items()
        for one in of_column
    }
    rows = [_cell(row, "overall", by_model) for row in overall]
    columns = grouped(scores, lambda row: (row.task, row.kind))
    for (_, kind), of_column in columns.items():
        own_kind = "group" if kind == "group" else "task"
        rows += [_cell(row, own_kind, by_model) for row in of_column]
    distinct = tuple(dict.fromkeys((*notes, *chosen_notes, *why)))
    return ScoreTable(tuple(rows), distinct, seed, weights, confidence_level, tuple(pairs))


def _headlines(latest: Sequence[Responses], bounds: Bounds) -> tuple[list[Cell], list[str]]:
    """Return of each task the first metric that is a mean of item scores, each task once."""
    metrics: dict[str, list[str]] = {}
    of: dict[tuple[str, str], dict[str, Cell]] = {}
    for r in latest:
        task, metric = task_and_metric(r)
        if r.pairs is None and _has_mean(cell := make_cell(r, bounds)):
            if metric not in metrics.setdefault(task, []):
                metrics[task].append(metric)
            of.setdefault((task, metric), {}).setdefault(r.model, cell)
    found = [c for task, (first, *_) in metrics.items() for c in of[task, first].values()]
    several = [f"{task}: {first}" for task, (first, *more) in metrics.items() if more]
    notes = [f"of several metrics the first is shown ({few(several)})"] if several else []
    without = dict.fromkeys(r.task for r in latest if r.task not in metrics)
    if without:
        notes.append(f"no mean of item scores: {few(list(without))}")
    return found, notes


def _has_mean(cell: Cell) -> bool:
    return cell.kind in ("binary", "bounded", "real") and cell.n > 0


def _in_overall(
    cells: Sequence[Cell], weights: Weights
) -> tuple[list[Responses], list[Responses], list[str]]:
    """Return the responses of the overall score, as parts of one group; the others; and why not."""
    limits = [None if c.kind == "real" else c.bounds or (0.0, 1.0) for c in cells]
    own = [c.responses for c in cells]
    scales = Counter(known for known in limits if known)
    common = max(scales, key=scales.__getitem__, default=None)
    odd = {
        r.task
        for r, known in zip(own, limits, strict=True)
        if r.higher_is_better is False or known is None or known != common
    }
    tasks = dict.fromkeys(r.task for r in own if r.task not in odd)
    if len(tasks) < 2:
        return [], own, []
    group = Group(OVERALL, 0, _WEIGHTING[weights], len(tasks), logged=0.0)
    joint = [
        replace(
            r,
            metric="score",
            groups=(group, *(replace(g, depth=g.depth + 1) for g in r.groups)),
        )
        for r in own
        if r.task in tasks
    ]
    why = f"not part of the overall score, because of another scale or direction: {few(list(odd))}"
    return joint, [r for r in own if r.task in odd], [why] if odd else []


def _is_column(row: ScoreInterval, inside: Set[str], subtasks: bool | None) -> bool:  # noqa: FBT001
    """Whether a score is shown: outermost groups with the tasks not inside any, or all tasks."""
    if row.kind == "group":
        return not subtasks and row.depth == 0
    return subtasks is not False or row.task not in inside


def _overall_scores(
    joint: Sequence[Responses], *, confidence_level: float, bounds: Bounds | None, rng: Rng
) -> list[ScoreInterval]:
    # Groups are of one log; a table brings together several.
    alone = [replace(r, groups=r.groups[:1], source=joint[0].source) for r in joint]
    drawn = stream(rng, "overall scores")
    found = intervals(alone, confidence_level=confidence_level, bounds=bounds, rng=drawn)
    return [row for row in found if row.kind == "group" and row.task == OVERALL]


_OF_SCORE = (
    "model", "task", "metric", "n_items", "estimate", "low", "high", "higher_is_better", "method",
    "confidence_level", "notes",
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
        best_rank=rank and rank.best_rank,
        worst_rank=rank and rank.worst_rank,
        letters=rank.letters if rank else "",
        may_be_first=rank and rank.may_be_first,
        n_models=rank.n_models if rank else 0,
        **{name: getattr(row, name) for name in _OF_SCORE},
    )
