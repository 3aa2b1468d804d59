"""The answer of a comparison: who is better, in a sentence, and one table for each question.

* `questions`: the rows of a comparison by what they answer: over all tasks, a group, or a metric
* `answer`: the first question's answer in sentences; `table_answer`: that of a table of scores
* `answer_tables`: of each question its sentences and its table, for the terminal
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from evalstats_plugin.comparisons.ranks import ranks_of
from evalstats_plugin.comparisons.rows import Comparison, RankSet
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import counted, few
from evalstats_plugin.report import text
from evalstats_plugin.report.tables import Column, Table, elided

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.gating import GateRow
    from evalstats_plugin.comparisons.leaderboard import ScoreTable, TableCell

MARKS = {"better": "▲", "worse": "▼", "unclear": ""}
"""What is beside a difference that is beyond chance."""

MOST_PAIRS = 10
"""Pairs of a question, of five models, up to which a table shows each of them."""

MOST_NAMED = 8
"""Models or tasks that a sentence names at most, but for tasks that go the other way."""

_LEAST = 12
"""Least characters of names in tables."""

Cell = tuple[str, str, str]
"""Kind, name and metric of what models are compared on."""

_Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Question:
    """Rows that answer one question: a score over all tasks or a group, and its parts."""

    cells: Mapping[Cell, tuple[Comparison, ...]]
    """The rows of each task, group or overall score, the whole before its parts."""
    alike: tuple[Comparison, ...]
    """On other tasks like these, where the tasks were taken as a sample, too."""

    @property
    def rows(self) -> list[Comparison]:
        """All rows but those on other tasks."""
        return [row for rows in self.cells.values() for row in rows]

    @cached_property
    def head(self) -> tuple[Comparison, ...]:
        """The rows of the whole, or of the only task; none where tasks have no score together."""
        first = next(iter(self.cells.values()))
        of_all = len(self.cells) == 1 or first[0].kind != "task"
        return first if of_all else ()

    @cached_property
    def tasks(self) -> dict[_Pair, list[Comparison]]:
        """By pair of models the rows of single tasks, where there are several."""
        several = sum(kind == "task" for kind, _, _ in self.cells) > 1
        rows = [row for row in self.rows if row.kind == "task"] if several else []
        return grouped(rows, _pair)

    @property
    def pairs(self) -> list[_Pair]:
        """The pairs of models, in the order of the rows."""
        return list(dict.fromkeys(map(_pair, self.rows)))

    @cached_property
    def one_metric(self) -> bool:
        """Whether all parts of the whole have the same metric."""
        parts = {metric for kind, _, metric in self.cells if kind != "overall"}
        return len(parts) <= 1 and bool(self.head) and len(self.cells) > 1

    @property
    def where(self) -> str:
        """What the answer is about, in words: ``"on these 4 tasks"``."""
        if not self.head:
            return f"on {counted(len(self.cells), 'task')}"
        row = self.head[0]
        sizes = {row.n_items for row in self.head}
        has_metric = row.kind != "overall" and row.metric
        metric = f" {text.short_metric(row.metric)}" if has_metric else ""
        means = [note for note in row.notes if " mean of " in note] if row.kind != "task" else []
        name = row.task.replace("all ", "these ", 1) if row.kind == "overall" else row.task
        told = [means[-1].removesuffix(f" of {row.task.removeprefix('all ')}")] if means else []
        told += [counted(sizes.pop(), "item")] if len(sizes) == 1 and any(sizes) else []
        return f"on {name}{metric}" + (f" ({', '.join(told)})" if told else "")

    def depth(self, row: Comparison) -> int:
        """How deep inside the whole a row stands."""
        whole = _whole(row, self.cells)
        return 1 + self.depth(self.cells[whole][0]) if whole else 0


def _pair(row: Comparison) -> _Pair:
    return row.model_a, row.model_b


def questions(rows: Sequence[Comparison]) -> list[Question]:
    """Return rows by question, in their order; the parts of each after the whole.

    For two models all tasks without a score together are one question, further metrics of tasks
    that were asked before another. Of several models, who may have been run on different tasks,
    each task is a question.
    """
    cells = grouped(rows, lambda row: (row.kind, row.task, row.metric))
    several = len({_pair(row) for row in rows}) > 1
    parts: dict[Cell, list[Cell]] = {}
    asked: dict[object, list[Cell]] = {}
    alike: dict[object, list[Comparison]] = {}
    last: object = None
    for key, own in cells.items():
        kind = key[0]
        if whole := _whole(own[0], cells):
            parts.setdefault(whole, []).append(key)
        elif kind == "tasks" and last is not None:
            alike.setdefault(last, []).extend(own)
        else:
            together = "others" if asked.keys() - {"others", "tasks"} else "tasks"
            last = key if kind != "task" or several else together
            asked.setdefault(last, []).append(key)

    def inside(key: Cell) -> Iterator[Cell]:
        yield key
        for part in parts.get(key, []):
            yield from inside(part)

    return [
        Question(
            {cell: tuple(cells[cell]) for key in keys for cell in inside(key)},
            tuple(alike.get(name, ())),
        )
        for name, keys in asked.items()
    ]


def _whole(row: Comparison, cells: Iterable[Cell]) -> Cell | None:
    """Return the group or overall score that a row counts in, if it is there."""
    if not row.part_of:
        return None
    of_name = [c for c in cells if c[1] == row.part_of and c[0] in ("group", "overall")]
    # Groups have one row for each metric; the overall score is of one metric of each task.
    same = [c for c in of_name if c[0] == "overall" or c[2] == row.metric]
    return same[0] if same else None


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return names without their organisations where they stay different.

    >>> short_names(["meta/llama", "qwen/qwen"])
    {'meta/llama': 'llama', 'qwen/qwen': 'qwen'}
    >>> short_names(["a/llama", "b/llama"])
    {'a/llama': 'a/llama', 'b/llama': 'b/llama'}
    """
    last = {name: name.rstrip("/").rpartition("/")[2] or name for name in names}
    taken = Counter(last.values())
    return {name: short if taken[short] == 1 else name for name, short in last.items()}


def answer(rows: Sequence[Comparison]) -> list[str]:
    """Return the answer to the first question in sentences; none where nothing was compared."""
    asked = questions(rows)
    return sentences(asked[0], short_names(_models(rows))) if asked else []


def table_answer(table: ScoreTable) -> list[str]:
    """Return who leads a table of scores, in the sentences of a comparison of every two models.

    None where no models were compared by one score.
    """
    (kind, _), cells = next(iter(table.by_column.items()))
    if len(table.models) < 2 or (kind != "overall" and len(table.by_column) > 1):
        return []
    names, two = short_names(table.models), len(table.models) == 2
    asked = questions(table.against(table.models[1 if two else 0]))
    if not asked:
        return []
    if two:
        return sentences(asked[0], names)
    ranked = [cells[model] for model in table.models if model in cells]
    return [*_leader(asked[0], ranked, names), *_other_way(asked[0], names)]


def _models(rows: Sequence[Comparison]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in (row.model_a, row.model_b)))


def sentences(question: Question, names: Mapping[str, str]) -> list[str]:
    """Return the answer to a question: of one pair, of a baseline, or of every two models."""
    pairs = question.pairs
    if len(pairs) == 1:
        (pair,) = pairs
        own = question.tasks.get(pair, [])
        return [*_of_pair(question, names), *_task_by_task(pair, question.head, own, names)]
    if _baseline(pairs):
        first = _against(question, names)
    elif ranks := ranks_of(question.head):
        first = _leader(question, ranks, names)
    else:
        clear = sum(row.verdict != "unclear" for row in question.head)
        n = counted(len(question.head), "pair")
        first = [f"{clear} of {n} of models are apart beyond chance {question.where}."]
    return [*first, *_other_way(question, names)]


def _baseline(pairs: Sequence[_Pair]) -> str:
    """Return the model that all others are compared with; "" where there is none."""
    firsts = {a for a, _ in pairs}
    return firsts.pop() if len(firsts) == 1 else ""


def _of_pair(question: Question, names: Mapping[str, str]) -> list[str]:
    if not question.head:
        return []
    (row,) = question.head
    a, b = names[row.model_a], names[row.model_b]
    swapped = row.verdict == "worse" and row.effect == "difference"
    ahead, behind = (a, b) if swapped else (b, a)
    scores = (row.score_a, row.score_b) if swapped else (row.score_b, row.score_a)
    said = {
        "better": f"{ahead} is better than {behind} {question.where}",
        "worse": f"{ahead} is {'better' if swapped else 'worse'} than {behind} {question.where}",
        "unclear": f"{ahead} and {behind} cannot be told apart {question.where}",
    }[row.verdict]
    lower = ", lower being better" if row.higher_is_better is False else ""
    by = ""
    if row.difference is not None:
        # The table has the other sign: without one nothing contradicts it.
        value = text.number(abs(row.difference)) if swapped else size(row, row.difference)
        shown = [text.number(score) for score in scores if score is not None]
        by = f": {' against '.join(shown)}, a" if len(shown) == 2 else ": a"
        by += f" {row.effect} of {value}"
        if row.low is None or row.high is None:
            by += ", without limits"
        else:
            low, high = size(row, row.low), size(row, row.high)
            if swapped:
                low, high = map(text.number, sorted((abs(row.low), abs(row.high))))
            by += f" ({text.percent(row.confidence_level)} limits {low} to {high})"
    return [f"{said}{by}{lower}."]


def _task_by_task(
    pair: _Pair, head: Sequence[Comparison], tasks: Sequence[Comparison], names: Mapping[str, str]
) -> list[str]:
    """Say on which tasks the two models are apart; every task that goes the other way is named."""
    if not tasks:
        return []
    a, b = (names[model] for model in pair)
    several = len({row.metric for row in tasks}) > 1 and not (head and head[0].kind == "overall")
    named = {row: text.task_and_metric(row) if several else row.task for row in tasks}
    won, lost = (
        [name for row, name in named.items() if row.verdict == verdict]
        for verdict in ("better", "worse")
    )
    n = len(tasks)
    if not won + lost:
        return ["On no single task is either better beyond chance."]
    if head and head[0].verdict != "unclear":
        same, other = (won, lost) if head[0].verdict == "better" else (lost, won)
        if len(same) == n:
            return [f"It is better on each of the {n}."]
        said = [_on(same, n, "It is better")] if same else []
        return said + ([f"It is worse on {few(other, len(other))}."] if other else [])
    return [
        _on(own, n, f"{name} is better")
        if not other
        else f"{name} is better on {few(own, len(own))}."
        for name, own, other in ((b, won, lost), (a, lost, won))
        if own
    ]


def _on(tasks: Sequence[str], n: int, who: str) -> str:
    rest = n - len(tasks)
    if not rest:
        return f"{who} on each of the {n} tasks."
    return f"{who} on {len(tasks)} of the {n} tasks ({few(tasks, MOST_NAMED)})."


def _against(question: Question, names: Mapping[str, str]) -> list[str]:
    """Say how each model does against the baseline."""
    rows = question.head
    of = {
        verdict: [names[row.model_b] for row in rows if row.verdict == verdict]
        for verdict in ("better", "worse", "unclear")
    }
    parts = [
        f"{few(own, MOST_NAMED)} {'is' if len(own) == 1 else 'are'} {verdict}"
        for verdict, own in of.items()
        if own and verdict != "unclear"
    ]
    if of["unclear"]:
        told = f"{few(of['unclear'], MOST_NAMED)} cannot be told apart"
        unclear = [row for row in rows if row.verdict == "unclear"]
        ends = [abs(x) for row in unclear for x in (row.low, row.high) if x is not None]
        if len(ends) == 2 * len(unclear) and unclear[0].effect == "difference":
            told += f" (a difference of up to {text.number(max(ends))} is possible)"
        parts.append(told)
    return [f"Against {names[rows[0].model_a]} {question.where}: {'; '.join(parts)}."]


def _leader(
    question: Question, ranks: Sequence[RankSet] | Sequence[TableCell], names: Mapping[str, str]
) -> list[str]:
    """Say who leads every two models, and who cannot be told apart from the leader."""
    leader, n, where = ranks[0], len(ranks), question.where
    name = names[leader.model]
    if leader.worst_rank == 1:
        return [f"{name} is better than each of the other {n - 1} models {where}."]
    if all(place.best_rank == 1 and place.worst_rank == n for place in ranks):
        return [f"No two of the {n} models can be told apart {where}."]
    unclear = [_pair(row) for row in question.head if row.verdict == "unclear"]
    same = {model for pair in unclear if leader.model in pair for model in pair}
    alike = [names[place.model] for place in ranks[1:] if place.model in same]
    if not alike:
        # No pair says so: some models share no items with it.
        return [f"{name} is ahead {where}; it was not compared with every other model."]
    return [f"{name} is ahead {where}; {few(alike, MOST_NAMED)} cannot be told apart from it."]


def _other_way(question: Question, names: Mapping[str, str]) -> list[str]:
    """Name every task on which a model is better although it is worse over all."""
    said: list[str] = []
    for row in question.head:
        opposite = {"better": "worse", "worse": "better"}.get(row.verdict)
        on_tasks = question.tasks.get(_pair(row), [])
        tasks = [task_row.task for task_row in on_tasks if task_row.verdict == opposite]
        if tasks:
            a, b = names[row.model_a], names[row.model_b]
            ahead, behind = (b, a) if opposite == "better" else (a, b)
            said.append(f"Yet {ahead} is better than {behind} on {few(tasks, len(tasks))}.")
    return said


def size(row: Comparison | GateRow, value: float | None) -> str:
    """Format a difference with its sign; ratios have none."""
    said = text.number(value)
    positive = value is not None and value > text.ROUNDING
    return f"+{said}" if row.effect == "difference" and positive else said


def n_items(row: Comparison | GateRow) -> str:
    """Format the number of items; a dash where only values were compared."""
    return "–" if not row.n_items and row.difference is not None else str(row.n_items)


def limits(row: Comparison) -> str:
    """Format the interval of a difference; a dash for none."""
    if row.low is None or row.high is None:
        return "–"
    # A limit at no difference is not in the interval of a pair that is apart.
    null = 0.0 if row.effect == "difference" else 1.0
    clear = row.verdict != "unclear"
    left = "(" if clear and row.low == null else "["
    right = ")" if clear and row.high == null else "]"
    return f"{left}{size(row, row.low)}, {size(row, row.high)}{right}"


def sized_limits(row: Comparison) -> str:
    """Format a difference with its interval."""
    return f"{size(row, row.difference)} {limits(row)}"


def p_value(value: float | None) -> str:
    """Format a p-value with four decimals, never as zero."""
    if value is None:
        return "–"
    return f"{value:.4f}" if value >= 0.00005 else "<0.0001"


def answer_tables(
    rows: Sequence[Comparison], marks: Mapping[str, int], width: int, *, all_pairs: bool = False
) -> list[RenderableType]:
    """Return of each question its sentences and its tables.

    Parameters
    ----------
    marks
        Numbers of the notes that are shown.
    width
        Characters of a line.
    all_pairs
        Also of many models show the pairs that cannot be told apart.
    """
    asked = questions(rows)
    names = short_names(_models(rows))
    shown: list[RenderableType] = []
    for i, question in enumerate(asked):
        shown += [""] if i else []
        first = "Further scores: " if i and not question.head else ""
        shown.append(Text(first + " ".join(sentences(question, names)), style="bold"))
        if len(question.pairs) == 1:
            shown.append(_table_of_pair(question, names, marks, width))
        else:
            shown += _tables_of_pairs(question, names, marks, width, all_pairs=all_pairs)
        shown.append(Text(_method(question), style="dim"))
    return shown


def _method(question: Question) -> str:
    """Say what the marks, limits and p-values of a question hold for."""
    rows = question.rows
    first = rows[0]
    level = text.percent(first.confidence_level)
    if "screened" in first.procedure:
        held = "screened for false discoveries; limits of each pair alone"
    elif "alone" in first.procedure:
        held = "each pair alone"
    else:
        families = list(dict.fromkeys(row.family for row in rows))
        together = [family for family in families if "×" in family]
        of_first = "over all tasks by itself, " if first.kind == "overall" else ""
        if together:
            held = f"{of_first}limits and p at once: {'; '.join(together)}"
        else:
            n = len(question.head) or len(question.pairs)
            held = f"limits and p of all {n} pairs at once" if n > 1 else f"{of_first}one pair"
    said = f"▲ better, ▼ worse: statistically significant at {level}, {held}."
    if len(question.alike) == 1:
        (row,) = question.alike
        said += f" On other tasks like these: {sized_limits(row)}."
    elif question.alike:
        clear = [row for row in question.alike if row.verdict != "unclear"]
        n = counted(len(question.alike), "pair")
        said += f" On other tasks like these, {len(clear)} of {n} would be apart."
    return said


def _label(question: Question, row: Comparison) -> str:
    task = row.task[0].upper() + row.task[1:] if row.kind == "overall" else row.task
    whole = _whole(row, question.cells)
    same = question.one_metric or (whole is not None and whole[2] == row.metric)
    metric = "" if same or row.kind == "overall" else f" {text.short_metric(row.metric)}"
    lower = " ↓" if row.higher_is_better is False else ""
    return "  " * question.depth(row) + task + metric + lower


def _table_of_pair(
    question: Question, names: Mapping[str, str], marks: Mapping[str, int], width: int
) -> RichTable:
    """Return what one pair of models is compared on, row by row."""
    rows = question.rows
    scored = all(row.score_a is not None and row.score_b is not None for row in rows)
    a, b = elided([names[name] for name in question.pairs[0]], max(8, width // 7))
    columns = [
        Column("n", lambda row: f"{row.n_items:,}" if row.n_items else "–", right=True),
        *([Column(a, "score_a", text.number), Column(b, "score_b", text.number)] if scored else []),
        Column(f"{text.effect_title(rows)} [limits]", sized_limits),
        Column("p", "p_adjusted", p_value),
        Column("", partial(_mark, marks=marks)),
    ]
    taken = sum(2 + max(len(c.title), *(len(c.cell(row)) for row in rows)) for c in columns)
    task = Column("Task", partial(_label, question), least=max(_LEAST, width - taken - 1))
    table = Table("", rows, [task, *columns], style=lambda row: "bold" * (row.kind != "task"))
    return table.terminal_tables(width)[0][0]


def _mark(row: Comparison, marks: Mapping[str, int]) -> str:
    return f"{MARKS[row.verdict]} {text.numbers_of(row, marks)}".strip()


def _tables_of_pairs(
    question: Question,
    names: Mapping[str, str],
    marks: Mapping[str, int],
    width: int,
    *,
    all_pairs: bool,
) -> list[RenderableType]:
    """Return ranks where every two models are compared, then pairs by rows and tasks by columns."""
    tables: list[RenderableType] = []
    ranks = ranks_of(question.head)
    if len(ranks) > 2:
        scores: dict[str, float | None] = {}
        for row in question.head:
            scores.setdefault(row.model_a, row.score_a)
            scores.setdefault(row.model_b, row.score_b)
        scored = all(score is not None for score in scores.values())
        columns = [
            Column("Rank", lambda own: text.places(own.best_rank, own.worst_rank), right=True),
            Column("Model", lambda own: names[own.model], least=max(_LEAST, width // 2)),
            *([Column("Score", lambda own: scores[own.model], text.number)] if scored else []),
            Column("Ties", "letters"),
        ]
        tables.append(Table("", ranks, columns).terminal_tables(width)[0][0])
    pairs = question.pairs
    if len(pairs) > MOST_PAIRS and not all_pairs:
        # A model that lacks a task is compared on single tasks alone.
        whole, of_tasks = grouped(question.head, _pair), grouped(question.rows, _pair)
        decided = [
            pair for pair in pairs
            if any(row.verdict != "unclear" for row in whole.get(pair, of_tasks[pair]))
        ] if ranks else pairs  # fmt: skip
        hidden = len(pairs) - len(decided)
        pairs = decided
        if hidden:
            told = f"{counted(hidden, 'pair')} that cannot be told apart: --all-pairs shows them."
            tables.append(Text(told, style="dim"))
    if pairs:
        tables += _pair_tables(question, pairs, names, marks, width)
    return tables


def _pair_tables(
    question: Question,
    pairs: Sequence[_Pair],
    names: Mapping[str, str],
    marks: Mapping[str, int],
    width: int,
) -> list[RichTable]:
    """Return pairs by rows: the whole with its limits, then the difference on each part."""
    against = not _baseline(question.pairs)
    longest = max(12, width // (5 if against else 3))
    columns = [Column("Model", lambda pair: names[pair[1]], least=longest)]
    if against:
        columns.append(Column("Against", lambda pair: names[pair[0]], least=longest))
    effect = text.effect_title(question.rows)
    shown_as = "" if effect == "Difference" else f"{effect.lower()} "
    (label, whole), *parts = [
        (_label(question, rows[0]).strip(), {_pair(row): row for row in rows}.get)
        for rows in question.cells.values()
    ]

    def shown(pair: _Pair) -> str:
        row = whole(pair)
        return "–" if row is None else sized_limits(row)

    columns += [
        Column(f"{label} {shown_as}[limits]", shown),
        Column("p", whole, lambda row: p_value(row and row.p_adjusted), right=False),
        Column("", whole, lambda row: _mark(row, marks) if row else "", right=False),
        *(Column(title, own, partial(_part, marks=marks), below=True) for title, own in parts),
    ]
    return Table("", pairs, columns).terminal_tables(width)[0]


def _part(row: Comparison | None, marks: Mapping[str, int]) -> str:
    if row is None:
        return "– "
    notes = text.numbers_of(row, marks)
    mark = MARKS[row.verdict] or " "
    return f"{size(row, row.difference)}{mark}{f' {notes}' if notes else ''}"
