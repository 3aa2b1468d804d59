"""The page's answer: sentences on who leads and what to distrust, and the numbers behind them.

* `Board`: models and columns in the order of the page, and each column's pairs
* `headline`: who leads, and who cannot be told apart from it
* `distrust`: settings that differ, missing items, suspects, items that tell nobody apart, single
  draws
* `suspects`: items to look at, each with its reason
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.leaderboard import ScoreTable, TableCell
from evalstats_plugin.comparisons.rows import ColumnPairs
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import counted
from evalstats_plugin.report import text
from evalstats_plugin.report.answers import table_answer
from evalstats_plugin.report.html.parts import HeldItems, n_without_score
from evalstats_plugin.report.settings import Setting
from evalstats_plugin.report.tables import elided
from evalstats_plugin.runtime.untrusted import visible
from evalstats_plugin.scores import items as item_flags
from evalstats_plugin.scores.items import ItemAnswers
from evalstats_plugin.scores.rows import CorrectedScore

MOST_BYTES = 1_500_000
"""Bytes of pairs on a page; beyond, those of the first models and those with the leader."""

LONGEST_MODEL, LONGEST_TITLE = 32, 14
"""Letters of names for which the leaderboard has room; longer ones lose their middles."""

MOST_CELLS = 20_000
"""Cells of the leaderboard in HTML."""

MOST_SUSPECTS = 200
"""Suspects listed; the others are counted."""

STEP = 1e-4
"""A step of the numbers of shares, and so of 0.01 points of 100."""

_NONE = -32_768
"""In place of a share that is not known."""


class Sentence(NamedTuple):
    """A head in the fewest words, and what was seen."""

    head: str
    text: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Shown:
    """A column of the page: a task, a group of tasks, or all of them."""

    name: str
    metric: str
    kind: Literal["overall", "group", "task"]
    group: str
    """The group that a task belongs to, or an empty string."""
    cells: Sequence[TableCell | None]
    """Of the models in the order of the page."""
    pairs: _Matrices | None

    @cached_property
    def lower(self) -> bool:
        """Whether lower scores are better."""
        return any(cell is not None and cell.higher_is_better is False for cell in self.cells)

    @cached_property
    def is_share(self) -> bool:
        """Whether all scores are from 0 to 1, and shown of 100."""
        return all(0 <= x <= 1 for x in self.reach)

    @property
    def reach(self) -> list[float]:
        """All estimates and limits."""
        cells = [c for c in self.cells if c]
        return [x for c in cells for x in (c.low, c.high, c.estimate) if x is not None]

    @cached_property
    def range(self) -> tuple[float, float]:
        """The least and the greatest estimate."""
        estimates = [c.estimate for c in self.cells if c and c.estimate is not None]
        return (min(estimates), max(estimates)) if estimates else (0.0, 0.0)

    def number(self, value: float | None) -> str:
        """Write a score: of 100 with one decimal, other scales with three digits."""
        if value is None:
            return "–"
        written = f"{100 * value:.1f}" if self.is_share else f"{value:.3g}"
        return written.replace("-", "\N{MINUS SIGN}")

    def limits(self, low: float, high: float) -> str:
        """Write limits."""
        return f"limits {self.number(low)} to {self.number(high)}"

    def data(self) -> dict[str, Any]:
        """Return the column as the script gets it; of shares, numbers in whole steps."""

        def each(name: str) -> list[Any]:
            return [getattr(c, name) if c else None for c in self.cells]

        def sent(name: str) -> list[float | None]:
            return [
                None if x is None else round(x / STEP) if self.is_share else float(f"{x:.6g}")
                for x in each(name)
            ]

        letters = [visible(c.letters) if c else "" for c in self.cells]
        return {
            "name": visible(self.name), "metric": visible(text.short_metric(self.metric)),
            "kind": self.kind, "group": visible(self.group), "lower": int(self.lower),
            "share": int(self.is_share),
            "estimate": sent("estimate"), "low": sent("low"), "high": sent("high"),
            "best": each("best_rank"), "worst": each("worst_rank"), "items": each("n_items"),
            "first": [int(bool(x)) for x in each("may_be_first")], "letters": letters,
        }  # fmt: skip


class Heat(NamedTuple):
    """A cell of the heat map."""

    text: str
    step: int
    """Fifth of the column's range, from 0."""
    first: bool
    title: str


class Board:
    """Models and columns in the order of the page."""

    def __init__(self, table: ScoreTable, responses: Sequence[Responses]) -> None:
        self.table, self.level = table, table.confidence_level
        self.models = table.models
        groups: dict[str, str] = {}
        for r in responses:
            outer = next((g.name for g in r.groups if g.logged is not None), "")
            groups.setdefault(r.task, outer)
        pairs = {(p.task, p.kind): _Matrices(p, self.models) for p in table.pairs}
        names = {name for kind, name in table.by_column if kind == "group"}
        self.columns: list[Shown] = []
        for (kind, name), own in table.by_column.items():
            cells = [own.get(model) for model in self.models]
            group = groups.get(name, "") if kind == "task" else ""
            self.columns.append(
                Shown(
                    name=name, kind=kind, cells=cells, group=group if group in names else "",
                    metric=next(c.metric for c in cells if c),
                    pairs=pairs.get((name, kind)),
                )
            )  # fmt: skip
        # A group before its tasks.
        order = {(c.name, c.kind): i for i, c in enumerate(self.columns)}
        self.columns.sort(
            key=lambda c: (order.get((c.group, "group"), order[c.name, c.kind]), bool(c.group))
        )
        overall = [c for c in self.columns if c.kind == "overall"]
        self.lead = overall[0] if overall else self.columns[0]
        self.has_overall = bool(overall) or len(self.columns) == 1
        self.others = [c for c in self.columns if c is not self.lead]
        self.titles = elided([visible(c.name) for c in self.others], LONGEST_TITLE)
        self.tasks = [c for c in self.columns if c.kind == "task"]

    def data(self) -> dict[str, Any]:
        """Return columns and pairs as the script gets them.

        Pairs of the first `kept` models, then those of the leader with the others, each in the
        order of the page: the second model's place rises fastest.
        """
        n = len(self.models)
        # Five numbers of two bytes or four, a verdict, and the place of the pair among others.
        room = MOST_BYTES // max(sum(13 if column.is_share else 23 for column in self.columns), 1)
        kept = n if n * (n - 1) // 2 <= room else max(int((1 + math.sqrt(1 + 8 * room)) / 2), 2)
        kept = min(kept, n)
        i, j = np.triu_indices(kept, k=1)
        far = np.arange(kept, n)
        first, second = np.append(i, np.zeros_like(far)), np.append(j, far)
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            said = column.data()
            if column.pairs is not None:
                said["pairs"] = column.pairs.packed(first, second, share=column.is_share)
            columns.append(said)
        return {"columns": columns, "kept": kept}

    def lines(self) -> tuple[list[dict[str, Any]], int]:
        """Return the rows of the leaderboard in HTML, and how many are left out."""
        lead = self.lead
        n = len(self.models)
        shown = min(n, max(MOST_CELLS // (len(self.others) + 5), 50))
        full = max((c.n_items for c in lead.cells if c), default=0)
        lines: list[dict[str, Any]] = []
        names = elided([visible(model) for model in self.models[:shown]], LONGEST_MODEL)
        for k, model in enumerate(self.models[:shown]):
            cell = lead.cells[k]
            low, high, middle = (cell.low, cell.high, cell.estimate) if cell else (None, None, None)
            bar = None
            if low is not None and high is not None and middle is not None:
                bar = [self._along(x) for x in (low, high, middle)]
            lines.append(
                {
                    "name": model,
                    "short": names[k],
                    "rank": text.places(cell.best_rank, cell.worst_rank) if cell else "–",
                    "letters": cell.letters if cell else "",
                    "score": lead.number(middle),
                    "limits": "" if bar is None else lead.limits(low or 0.0, high or 0.0),
                    "bar": bar,
                    "heat": [_heat(column, column.cells[k]) for column in self.others],
                    "fewer": cell is not None and cell.n_items < full,
                }
            )
        return lines, n - shown

    def ticks(self) -> list[tuple[float, str]]:
        """Return positions in per cent and texts of the leaderboard's axis."""
        start, end = self._axis
        scale = 100 if self.lead.is_share else 1
        step = _nice((end - start) * scale / 5) / scale
        marks = np.arange(math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9) + 1) * step
        return [(self._along(x), f"{scale * x:.6g}") for x in marks.tolist()]

    @cached_property
    def _axis(self) -> tuple[float, float]:
        return axis(self.lead.reach, share=self.lead.is_share)

    def _along(self, value: float) -> float:
        start, end = self._axis
        return round(100 * (value - start) / (end - start), 1)


_LIMITS = (("low", "high"), ("low_single", "high_single"))
"""Of all pairs of all columns at once, and of a pair chosen beforehand."""


class _Matrices:
    """A column's pairs in the order of the page, each of shape (N, N): row less column."""

    def __init__(self, pairs: ColumnPairs, models: Sequence[str]) -> None:
        n = len(models)
        place = {model: i for i, model in enumerate(models)}
        where = np.array([place[m] for m in pairs.models])
        a, b = where[pairs.a], where[pairs.b]
        self.numbers: dict[str, NDArray[np.float64]] = {}
        """Difference and limits, by their names in `ColumnPairs`."""
        for names in (("difference", "difference"), *_LIMITS):
            own = [getattr(pairs, name) for name in names]
            for name, forward, backward in zip(names, own, own[::-1], strict=True):
                matrix = self.numbers[name] = np.full((n, n), np.nan)
                matrix[b, a], matrix[a, b] = forward, -backward
        self.verdict, self.n_items = np.zeros((2, n, n), dtype=np.int64)
        self.verdict[b, a], self.verdict[a, b] = pairs.verdict, -pairs.verdict
        self.n_items[b, a] = self.n_items[a, b] = pairs.n_items

    def packed(
        self, first: NDArray[np.int64], second: NDArray[np.int64], *, share: bool
    ) -> dict[str, Any]:
        """Return numbers, little end first, and verdicts of a byte, as base64.

        Steps of shares have two bytes, numbers of other scales four: they may be far apart.
        """
        said: dict[str, Any] = {}
        for name, matrix in self.numbers.items():
            values = matrix[first, second]
            unknown = np.isnan(values)
            sent = values.astype("<f4")
            if share:
                sent = np.where(unknown, _NONE, np.round(values / STEP)).astype("<i2")
            said[name] = None if unknown.all() else _base64(sent)
        said["verdict"] = _base64(self.verdict[first, second].astype("i1"))
        items = self.n_items[first, second]
        same = len(np.unique(items)) == 1
        said["items"] = int(items[0]) if same else _base64(items.astype("<i4"))
        return said


def _base64(values: NDArray[Any]) -> str:
    return b64encode(values.tobytes()).decode()


def axis(values: Sequence[float], *, share: bool) -> tuple[float, float]:
    """Return the ends of an axis that holds the numbers, at round places."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    step = _nice(max(high - low, 1e-12) / 5)
    start, end = math.floor(low / step) * step, math.ceil(high / step) * step
    return (max(start, 0.0), min(end, 1.0)) if share else (start, max(end, start + step))


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return power * min((1, 2, 5, 10), key=lambda k: abs(k * power - step))


def _heat(column: Shown, cell: TableCell | None) -> Heat:
    if cell is None or cell.estimate is None:
        return Heat("–", 0, first=False, title="")
    least, most = column.range
    share = (cell.estimate - least) / (most - least) if most > least else 0.5
    share = 1 - share if column.lower else share
    said = f"{100 * cell.estimate:.0f}" if column.is_share else column.number(cell.estimate)
    title = column.number(cell.estimate)
    if cell.low is not None and cell.high is not None:
        title += f", {column.limits(cell.low, cell.high)}"
    return Heat(said, min(int(5 * share), 4), first=bool(cell.may_be_first), title=title)


def _names(names: Sequence[str], most: int = 4) -> str:
    """List names; of more than `most`, count the rest."""
    shown = [visible(name) for name in names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    *before, last = shown
    return f"{', '.join(before)} and {last}" if before else last


def headline(board: Board) -> list[str]:
    """Return the page's first sentence, as `compare` says it, and those that follow it."""
    if said := table_answer(board.table):
        return said
    lead, top = board.lead, board.lead.cells[0]
    n = sum(cell is not None and cell.estimate is not None for cell in lead.cells)
    if not board.has_overall or top is None or top.estimate is None:
        scales, lacking = "their scores are on different scales", "no model has all of them"
        return [
            f"{counted(len(board.models), 'model')} on {counted(len(board.tasks), 'task')}: "
            f"{lacking if board.table.in_overall else scales}, so no overall score is made."
        ]
    of = " of 100" if lead.is_share else ""
    score = f"{lead.number(top.estimate)}{of} ({lead.limits(top.low or 0.0, top.high or 0.0)})"
    best = "lowest" if lead.lower else "highest"
    if n == 1:
        why = "With one model there is nothing to compare."
        return [f"{top.model} scores {score}.", why]
    if first := [cell.model for cell in lead.cells if cell and cell.may_be_first]:
        return [f"{top.model} has the {best} score, {score}; {_names(first)} may be the best."]
    why = "No two models have scores of the same items: see Method."
    return [f"{top.model} has the {best} score, {score}; models were not compared.", why]


class Suspect(NamedTuple):
    """An item to look at."""

    column: int
    """Place of its task's answers on the page."""
    item: int
    """Place among the items on the page."""
    name: str
    task: str
    mean: str
    rest: str


class Finding(NamedTuple):
    """Suspects with one reason."""

    head: str
    text: str
    items: list[Suspect]
    left_out: int


def suspects(held: Sequence[HeldItems]) -> list[Finding]:
    """Return what to look at first: items that nobody gets right, then those against the rest."""
    wrong: list[tuple[float, Finding]] = []
    against: list[tuple[float, Suspect]] = []
    n_tested = 0
    for k, items in enumerate(held):
        answers = items.answers
        flags = np.array(answers.flags)
        mine = np.flatnonzero(flags == item_flags.ALL_WRONG)
        rest = answers.item_means[flags != item_flags.ALL_WRONG]
        n_tested += int((~np.isnan(answers.rest_correlation)).sum())
        where = {j: place for place, j in enumerate(items.places.tolist())}

        on_page = [int(j) for j in mine if int(j) in where]
        if len(mine):
            share = float(np.nanmean(rest)) if len(rest) else 0.0
            seen = f"No other item of {answers.task} was answered."
            if len(rest):
                mean = f"{100 * share:.0f} of 100" if 0 <= share <= 1 else f"{share:.3g}"
                others = "item" if len(rest) == 1 else f"{len(rest):,} items"
                seen = f"On the other {others} of {answers.task} the mean score is {mean}."
            suspect = Finding(
                f"{counted(len(mine), 'item')} of {answers.task} that no model gets right",
                f"{seen} Too hard, or the target or the checker is broken: only the texts tell.",
                [_suspect(answers, k, where[j], j) for j in on_page[:MOST_SUSPECTS]],
                len(mine) - min(len(on_page), MOST_SUSPECTS),
            )
            wrong.append((share, suspect))
        against += [
            (float(answers.rest_correlation[j]), _suspect(answers, k, where[int(j)], int(j)))
            for j in np.flatnonzero(flags == item_flags.AGAINST_REST)
            if int(j) in where
        ]
    # Where the rest of a task is easy, an item that nobody solves is strange.
    wrong.sort(key=lambda pair: -pair[0])
    said = [finding for _, finding in wrong]
    if against:
        against.sort(key=lambda pair: pair[0])
        chance = item_flags.SIGNIFICANCE * n_tested
        beyond = (
            "more than chance makes"
            if len(against) > chance + 2 * math.sqrt(chance)
            else "no evidence by itself"
        )
        said.append(
            Finding(
                f"{counted(len(against), 'item')} that better models get right less often",
                f"The key may be wrong. By chance alone about {chance:.0f} of {n_tested:,} items "
                f"would look so: {beyond}.",
                [answers for _, answers in against[:MOST_SUSPECTS]],
                max(len(against) - MOST_SUSPECTS, 0),
            )
        )
    return said


def _suspect(answers: ItemAnswers, column: int, place: int, j: int) -> Suspect:
    mean, r = float(answers.item_means[j]), float(answers.rest_correlation[j])
    return Suspect(
        column, place, answers.item_ids[j], answers.task,
        f"{100 * mean:.0f}" if 0 <= mean <= 1 else f"{mean:.3g}",
        "" if math.isnan(r) else f"{r:+z.2f}".replace("-", "\N{MINUS SIGN}"),
    )  # fmt: skip


def distrust(
    board: Board | None, findings: Sequence[Finding], answers: Sequence[ItemAnswers],
    responses: Sequence[Responses], settings: Sequence[Setting] = (),
) -> list[Sentence]:  # fmt: skip
    """Return what to distrust, what matters most first."""
    sentences: list[Sentence] = []
    if differ := list(dict.fromkeys(s.name for s in settings if s.may_matter)):
        said = "scores may differ by that alone. Method lists who had what."
        sentences.append(
            Sentence("Models were not run alike.", f"They differ in {_names(differ)}: {said}")
        )
    sentences += [*(_missing(board) if board else []), *_unscored(responses)]
    wrong = [f for f in findings if "no model" in f.head]
    if wrong:
        n = sum(len(f.items) + f.left_out for f in wrong)
        said = (
            wrong[0].text if len(wrong) == 1 else f"Look first at {wrong[0].head}. {wrong[0].text}"
        )
        sentences.append(Sentence(f"{counted(n, 'item')} that no model gets right.", said))
    sentences += [Sentence(f"{f.head}.", f.text) for f in findings if f not in wrong]
    flags = [flag for task_answers in answers for flag in task_answers.flags]
    same = [flag for flag in flags if flag in _SAME]
    if same:
        right = sum(flag == item_flags.ALL_RIGHT for flag in same)
        n_more = len(same) - right
        more = f", and the same score on {n_more} more" if n_more else ""
        tell = "tells" if len(same) == 1 else "tell"
        sentences.append(
            Sentence(
                f"{counted(len(same), 'item')} {tell} no two models apart.",
                f"All models get {right} of {len(flags):,} right{more}.",
            )
        )
    epochs = [r.scores.shape[1] for r in responses if r.scores.ndim == 2 and r.scores.size]
    if epochs and max(epochs) == 1:
        sentences.append(
            Sentence(
                "Each answer was drawn once.",
                "The limits cover the choice of items, not how an answer varies if it is drawn "
                "again. They hold for these tasks.",
            )
        )
    return sentences


def of_judge(rows: Sequence[CorrectedScore]) -> list[Sentence]:
    """Say how far people's labels move a judge's scores, and whom they put first."""
    scored = [row for row in rows if row.estimate is not None]
    if not scored:
        return []
    judge, n_tasks = scored[0].judge, len({row.task for row in scored})
    moved = [
        abs(row.estimate - row.judged)
        for row in rows
        if row.estimate is not None and row.judged is not None
    ]
    said = f"Labels move them by up to {max(moved):.3g}. " if moved else ""
    if n_tasks == 1:
        first = min if scored[0].higher_is_better is False else max
        best = first(scored, key=lambda row: row.estimate or 0.0)
        score = f"{text.number(best.estimate)} {text.interval_text(best)}"
        said += f"Corrected, {best.model} is first: {score}. "
    return [Sentence(f"Scores are those of a judge, {judge}.", f"{said}All of them: Labels.")]


_SAME = (item_flags.ALL_RIGHT, item_flags.ALL_WRONG, item_flags.ALL_SAME)


def _missing(board: Board) -> list[Sentence]:
    counts = {m: c.n_items for m, c in zip(board.models, board.lead.cells, strict=True) if c}
    full = max(counts.values(), default=0)
    fewer = [m for m, n in counts.items() if n < full]
    absent = [m for m in board.models if m not in counts]
    sentences: list[Sentence] = []
    # The number of items of a published value is a guess.
    apart = any(pairs.independent for pairs in board.table.pairs)
    if fewer and board.table.is_ranked and not apart:
        leads = ", the first of the table among them," if board.models[0] in fewer else ""
        lack = sorted({full - counts[m] for m in fewer})
        some = f"{lack[0]:,}" if len(lack) == 1 else f"{lack[0]:,} to {lack[-1]:,}"
        sentences.append(
            Sentence(
                "Not everyone sat the same test.",
                f"{counted(len(fewer), 'model')}{leads} {'lacks' if len(fewer) == 1 else 'lack'} "
                f"{some} of {counted(full, 'item')}. Two models are compared on the items both "
                "have.",
            )
        )
    if absent and board.lead.kind == "overall":
        n = counted(len(absent), "model")
        said = f"{n} did not take every task: no overall score of {_names(absent)}."
        sentences.append(Sentence("Some models have no overall score.", said))
    return sentences


def _unscored(responses: Sequence[Responses]) -> list[Sentence]:
    worst: dict[tuple[str, str], int] = {}
    for r in responses:
        n = n_without_score(r)
        worst[r.model, r.task] = max(worst.get((r.model, r.task), 0), n)
    total = sum(worst.values())
    if not total:
        return []
    models = _names(sorted({model for (model, _), n in worst.items() if n}))
    said = f"They are left out as if missing at random; cut runs rarely are. From {models}."
    has = "has" if total == 1 else "have"
    return [Sentence(f"{counted(total, 'answer')} {has} no score.", said)]


def about_ranks(board: Board) -> str:
    """Return what ranks, ties and bold cells rest on."""
    n = max((c.n_models for c in board.lead.cells if c), default=0)
    if n < 2:
        return ""
    level, pairs = text.percent(board.level), "".join(text.pairs_at_once(n))
    return (
        f"Ranks, ties and bold cells rest on {pairs} ({level}): two limits that overlap may still "
        "belong to models that can be told apart. Bold: may be the best of its column."
    )
