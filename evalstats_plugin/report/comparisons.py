"""Tables of comparisons and power analyses, on the terminal and in Markdown.

* `print_comparisons`, `comparisons_markdown`: models compared, with their order in words
* `print_items`, `items_markdown`: the items on which two models differ, below their comparison
* `COMPARED_SLICES`: comparisons on slices of tasks
* `POWER`: items needed, differences found or power; sentences if all was
  assumed; variance parts of a pilot
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from html import escape
from io import StringIO
from itertools import groupby, pairwise
from typing import Any, TextIO, TypeVar

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from evalstats_plugin.comparisons.ranks import ranks_of
from evalstats_plugin.comparisons.rows import (
    SEQUENTIAL,
    Comparison,
    Comparisons,
    PowerRow,
    PowerRows,
    RankSet,
    SliceComparison,
)
from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import counted, few
from evalstats_plugin.report import answers, text
from evalstats_plugin.report.answers import answer, limits, n_items, p_value, size, sized_limits
from evalstats_plugin.report.tables import Column, Table, elided, fixed, one_line
from evalstats_plugin.runtime.untrusted import markdown_text, printable, visible
from evalstats_plugin.scores.rows import ItemComparison, ItemComparisons, OutcomeCounts

_STYLES = {"better": "green", "won": "green", "worse": "red", "lost": "red"}
"""Of verdicts and outcomes; others are dim."""

LEGEND = (
    "Each model is set against another, on the items that both answered unless a note says "
    "otherwise. better, worse: beyond chance. unclear: these items do not tell the two apart."
)
AT_ONCE = (
    " Intervals hold all true differences of a table or family at once; p, adj. and the verdict "
    "belong to them: p is at most {alpha} exactly where {null} is outside. A limit next to a "
    "parenthesis, such as (0, is not in its interval."
)
ALONE = " Intervals, p and verdicts look at each pair alone."
ONE_BY_ONE = (
    " Nothing is allowed for the number of pairs: of many equal models some will look different."
)
SCREENED = (
    " Verdicts are screened: of all better and worse at most a share of {alpha} is expected to be "
    "false. Intervals look at each pair alone and do not belong to them."
)
_BETTER = " P(better): how probable it is that the model is truly the better of the two, "
PROBABILITY = _BETTER + "looking at this pair alone; it allows for no other pair."
SHRUNK = (
    "{prior}: of nearly equal models the one that looks better is in part the luckier. It is no "
    "verdict, and not 1 - p/2."
)
PRIOR = " Its prior weight: {prior}."
NO_PRIOR = " It has no prior: it is a tail of the distribution that has the pair's own limits."
MOST_PAIRS, MOST_ROWS = 45, 1000
"""Pairs of one task, of ten models, and of all tasks up to which a terminal shows each by itself.
"""

MOST_NAMED = 30
"""Models of one task up to which their order is written out."""

PARTS_LEGEND = (
    "Std. error: as it is, with twice the epochs, with twice the items. Within: share of one "
    "epoch's variance that is chance, which epochs average out."
)
DETAILS = (
    "Std. error: of the difference, over questions, or clusters where there are any. Corr.: of the "
    "two models' scores over the questions. Wins, Losses: questions on which the model is better, "
    "or worse, than the other."
)
ComparisonT = TypeVar("ComparisonT", bound=Comparison)
Header = tuple[str, str]
"""Title of a column, and the quantity in it."""


def print_comparisons(
    results: Comparisons,
    file: TextIO,
    *,
    heading: str,
    width: int,
    all_pairs: bool = True,
    details: bool = False,
    explain: bool = False,
) -> None:
    """Print of each question the answer and a table, then the notes.

    Without `all_pairs`, more than `MOST_PAIRS` of a task, or `MOST_ROWS` of all, are summed up in a
    table of ranks. With `details`, each task has a table of every pair with limits, p and
    P(better), and another of standard errors, correlations, wins and losses. With `explain` a
    legend says what all means.
    """
    of_tasks = [list(rows) for _, rows in groupby(results, lambda row: (row.task, row.metric))]
    ranks = [] if all_pairs else [ranks_of(rows) for rows in of_tasks]
    closing = [heading]
    shown: list[RenderableType] = []
    notes = text.note_lines(results)
    many = max(map(len, of_tasks), default=0) > MOST_PAIRS or len(results) > MOST_ROWS
    if many and ranks and all(len(own) > 2 for own in ranks):
        shown.append(Text(" ".join(answer(results.rows)), style="bold"))
        shown += _rank_tables(ranks, width)
        level = text.percent(results.rows[0].confidence_level)
        closing.insert(
            0,
            f"Ranks that all {len(results):,} pairs leave open at once by family ({level}); * may "
            "be the best. --all-pairs prints every pair, --baseline MODEL those with one model, "
            "--format csv all numbers.",
        )
        notes = [f"* {note}" for note in results.notes]
    elif details:
        marks = text.note_numbers(results.rows)
        shown.append(Text(" ".join(answer(results.rows)), style="bold"))
        shown += [_comparison_table(rows, marks).terminal() for rows in of_tasks]
    else:
        marks, notes = _brief_notes(results)
        shown += answers.answer_tables(results.rows, marks, width, all_pairs=all_pairs)
        if not explain:
            closing.insert(0, "Every limit and p: --details. What the words mean: --explain")
    if details:
        shown += [_details_table(rows).terminal() for rows in of_tasks]
        closing.insert(0, DETAILS)
    if explain or details:
        closing.insert(0, _legend(results))
    text.print_all(shown, notes, closing, file=file, width=width)


def comparisons_text(results: Comparisons) -> str:
    """Return of each question the answer and a table, in lines of 80 characters, then the notes."""
    marks, notes = _brief_notes(results)
    file = StringIO()
    tables = answers.answer_tables(results.rows, marks, 80)
    text.print_all(tables, notes, [], file=file, width=80)
    return file.getvalue().rstrip("\n")


def comparisons_html(results: Comparisons) -> str:
    """Return the answer and the table of all rows, as a notebook shows them."""
    first = escape(visible(" ".join(answer(results.rows))))
    return f"<p><strong>{first}</strong></p>{text.shown_table(results).html()}"


_OF_DETAILS = ("if one more item in ", "tasks as random units", "macro mean of ", "micro mean of ")
"""Beginnings of notes on every row of its kind, which only a table of details shows."""


def _brief_notes(results: Results[ComparisonT]) -> tuple[dict[str, int], list[str]]:
    """Return the numbers of notes and their lines, without those of details."""
    rows: list[ComparisonT] = []
    for row in results.rows:
        notes = tuple(note for note in row.notes if not note.startswith(_OF_DETAILS))
        rows.append(row if len(notes) == len(row.notes) else replace(row, notes=notes))
    told = Results(tuple(rows), results.notes)
    return text.note_numbers(rows), text.note_lines(told)


def _rank_tables(ranks: Sequence[Sequence[RankSet]], width: int) -> list[RichTable]:
    """Return tables of models and tasks with possible ranks, side by side where they fit."""
    one_metric = len({own[0].metric for own in ranks}) == 1
    columns = {
        own[0].task if one_metric else text.task_and_metric(own[0]): {row.model: row for row in own}
        for own in ranks
    }
    # A task may have fewer models than another: shares of them can be compared.
    shares: dict[str, list[float]] = {}
    for row in (row for own in ranks for row in own):
        shares.setdefault(row.model, []).append((row.best_rank + row.worst_rank) / row.n_models)
    models = sorted(shares, key=lambda model: sum(shares[model]) / len(shares[model]))
    of_tasks = [Column(title, own.get, _places, below=True) for title, own in columns.items()]
    table = Table("", models, [Column("Model", str, least=30), *of_tasks])
    return table.terminal_tables(width, longest_title=16)[0]


def _places(row: RankSet | None) -> str:
    if row is None:
        return "– "
    return text.places(row.best_rank, row.worst_rank) + ("*" if row.may_be_first else " ")


def comparisons_markdown(results: Comparisons, heading: str) -> str:
    """Return one Markdown table, orders in words, the notes, a legend, and how it was made."""
    columns = (
        *(_TASK, text.METRIC, *_PAIR, _N),
        replace(_DIFFERENCE, title=text.effect_title(results.rows)),
        Column(text.interval_title(results.rows), limits, right=True),
        *(Column("p, adjusted", "p_adjusted", p_value), _PROBABILITY),
        *(Column("Verdict", "verdict"), Column("Method", "method")),
        text.marks_column(text.note_numbers(results.rows)),
    )
    orders: list[str] = []
    for _, rows in groupby(results.rows, key=lambda row: (row.task, row.metric)):
        own = list(rows)
        sentences = [line for line in (intervals_line(own), order_line(own)) if line]
        if sentences:
            said = f"{text.task_and_metric(own[0])}: {' '.join(sentences)}"
            orders += [markdown_text(said), ""]
    lines = Table("", results.rows, columns).markdown()
    said = text.markdown_notes(results)
    first = markdown_text(" ".join(answer(results.rows)))
    return "\n".join([first, "", *lines, "", *orders, *said, "", _legend(results), "", heading, ""])


def print_items(
    results: ItemComparisons,
    file: TextIO,
    *,
    comparisons: Comparisons,
    heading: str,
    width: int,
    explain: bool = False,
) -> None:
    """Print the comparison of two models with its outcomes, then the items on which they differ."""
    marks = text.note_numbers(comparisons.rows)
    outcomes = {(c.task, c.metric): outcome_line(c) for c in results.counts}
    tables: list[RenderableType] = []
    for (task, metric), rows in groupby(comparisons, lambda row: (row.task, row.metric)):
        table = _comparison_table(list(rows), marks)
        line = outcomes.get((task, metric)) or table.caption
        tables.append(replace(table, caption=line).terminal())
    if results.rows:
        tables.append(_item_table(results).terminal())
    said = [*text.note_lines(comparisons), *_own_notes(results, comparisons)]
    words = _legend(comparisons) if explain else "What the words mean: --explain"
    closing = [_items_legend(results), words, heading]
    text.print_all(tables, said, closing, file=file, width=width)


def items_markdown(results: ItemComparisons, heading: str, *, comparisons: Comparisons) -> str:
    """Return the comparison of two models in Markdown, outcomes in words, and a table of items."""
    said = [f"{c.task} {text.short_metric(c.metric)}: {outcome_line(c)}" for c in results.counts]
    a, b = _models(results)
    columns = (
        *(Column("Task", "task"), Column("Item", "item", one_line, right=False)),
        Column("Outcome", "outcome"),
        *(Column(a, "score_a", _score), Column(b, "score_b", _score)),
        *(Column("Others", "others", _score), _line("Question", "question")),
        *(_line("Target", "target"), _line(f"{a} answered", "answer_a")),
        *(_line(f"{b} answered", "answer_b"), Column("Where", "where")),
    )
    items = Table("", results.rows, columns).markdown() if results.rows else []
    notes = text.markdown_list(_own_notes(results, comparisons))
    parts = [*text.markdown_list(said), "", *items, "", _items_legend(results), ""]
    return "\n".join([*parts, *notes, "", comparisons_markdown(comparisons, heading)])


def items_json(
    results: ItemComparisons, about: Mapping[str, Any], *, comparisons: Comparisons
) -> str:
    """Return one JSON object: the items, the comparison that they add up to, and its outcomes."""
    counts = [{**asdict(c), "outcomes": dict(c.outcomes)} for c in results.counts]
    return text.to_json(results, about, comparisons=comparisons.to_dict(), counts=counts)


def outcome_line(counts: OutcomeCounts) -> str:
    """Return how often each outcome occurs, in words."""
    return ", ".join(f"{n} {name}" for name, n in counts.outcomes)


def _own_notes(results: ItemComparisons, comparisons: Comparisons) -> list[str]:
    logs = dict.fromkeys(log for row in results for log in (row.log_a, row.log_b))
    told = [note for note in results.notes if note not in comparisons.notes]
    return [f"* {note}" for note in told] + ([f"* items of {few([*logs], 4)}"] if logs else [])


def _models(results: ItemComparisons) -> list[str]:
    return [results.rows[0].model_a, results.rows[0].model_b] if results.rows else ["", ""]


def _line(title: str, name: str) -> Column:
    return Column(title, name, _one_line, right=False)


def _item_table(results: ItemComparisons) -> Table:
    """Return a table of items; the texts of each stand on lines of their own."""
    a, b = elided(_models(results), 14)
    # Of right and wrong answers the outcome says all.
    scored = any(row.outcome in ("better", "worse") for row in results)
    said = any(row.question or row.target or row.answer_b for row in results)

    def texts(row: ItemComparison) -> str:
        lines = {"": row.question, "target: ": row.target}
        for name, score, reply in (
            (a, row.score_a, row.answer_a), (b, row.score_b, row.answer_b)
        ):  # fmt: skip
            lines[f"{name} ({_score(score)}): " if scored else f"{name}: "] = reply
        return "\n".join(f"{name}{_one_line(line)}" for name, line in lines.items() if line)

    columns = [
        *([Column("Task", "task", least=4)] if len({row.task for row in results}) > 1 else []),
        *(Column("Item", "item", one_line, least=4, right=False), _OUTCOME),
        *([Column(a, "score_a", _score), Column(b, "score_b", _score)] if scored > said else []),
        Column("Others", "others", _score),
        *([Column("Question, target and answers", texts, least=0, cut=True)] if said else []),
    ]
    return Table(f"Items on which {b} and {a} differ", results.rows, columns)


_OUTCOME = Column("Outcome", "outcome", style=lambda row: _STYLES.get(row.outcome, "dim"))


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _one_line(whole: str) -> str:
    """Return the first part of a text on one line, as it can be shown anywhere."""
    return printable(" ".join(whole.strip().partition("\n\n")[0].split()))


def _items_legend(results: ItemComparisons) -> str:
    a, b = _models(results)
    left = results.n_flipped - len(results.rows)
    more = f" {counted(left, 'more item')} differ: --format csv has all." if left > 0 else ""
    if not results.rows:
        return "The two models differ on no item."
    return (
        f"won, better: {b} does better than {a}. Others: mean score of the other models; items on "
        f"which they agree come first.{more}"
    )


_TASK = Column("Task", "task")
_MODEL, _AGAINST = Column("Model", "model_b", least=8), Column("Against", "model_a", least=8)
_PAIR = (_MODEL, _AGAINST)
_N = Column("n", n_items, right=True)
_DIFFERENCE = Column("Difference", lambda row: size(row, row.difference), right=True)


def _comparison_table(rows: Sequence[Comparison], marks: Mapping[str, int]) -> Table:
    first = rows[0]
    baselines = {row.model_a for row in rows}
    sizes = {row.n_items for row in rows}
    title = text.task_and_metric(first)
    title += f", {counted(first.n_items, 'item')}" if len(sizes) == 1 and any(sizes) else ""
    title += f", against {first.model_a}" if len(baselines) == 1 else ""
    title += ", lower is better" if first.higher_is_better is False else ""
    columns = (
        *(_PAIR if len(baselines) > 1 else [_MODEL]),
        *([_N] if len(sizes) > 1 else []),
        replace(_DIFFERENCE, title=_short_title(rows)),
        Column(text.interval_title(rows), limits),
        *(Column("p, adj.", "p_adjusted", p_value), _PROBABILITY),
        Column("Verdict", "verdict", style=lambda row: _STYLES.get(row.verdict, "dim")),
        text.marks_column(marks),
    )
    lines = [line for line in (intervals_line(rows), order_line(rows)) if line]
    return Table(title, rows, columns, caption="\n".join(lines))


def _short_title(rows: Sequence[Comparison]) -> str:
    return text.effect_title(rows).replace("Difference", "Diff.")


def _details_table(rows: Sequence[Comparison]) -> Table:
    """Return differences with their standard errors, correlations and counts [Mil24]_."""
    columns = (
        *(*_PAIR, replace(_DIFFERENCE, title=_short_title(rows))),
        *(
            Column("Std. error", "std_error", fixed(4)),
            Column("Corr.", "correlation", fixed(2)),
            _N,
        ),
        *(Column("Wins", "n_wins", right=True), Column("Ties", "n_ties", right=True)),
        Column("Losses", "n_losses", right=True),
    )
    return Table(f"{text.task_and_metric(rows[0])}, question by question", rows, columns)


def intervals_line(rows: Sequence[Comparison]) -> str:
    """Return what the intervals of a table hold for; "" for a pair alone."""
    first = rows[0]
    level = text.percent(first.confidence_level)
    if first.procedure in ("", "one pair"):
        return ""
    if "alone" in first.procedure:
        return f"{level} intervals, each pair alone" if len(rows) > 1 else ""
    return f"{level} intervals, all at once: {first.family} ({first.procedure})."


def _legend(results: Comparisons) -> str:
    procedures = {row.procedure for row in results}
    level = results.rows[0].confidence_level if results.rows else 0.95
    alpha = f"{1 - level:.4g}"
    if "each pair alone" in procedures:
        said = LEGEND + ALONE + (ONE_BY_ONE if len(results.rows) > 1 else "")
    elif "screened, each pair alone" in procedures:
        said = LEGEND + SCREENED.format(alpha=alpha)
    else:
        differences = text.effect_title(results.rows) == "Difference"
        null = "0" if differences else "no difference (1 of a ratio)"
        said = LEGEND + AT_ONCE.format(alpha=alpha, null=null)
    priors = dict.fromkeys(row.prior for row in results if row.prob_better is not None)
    if not priors:
        return said
    shrunk = [prior for prior in priors if prior.startswith("shrunk")]
    if shrunk:
        return said + _BETTER + SHRUNK.format(prior=" or ".join(shrunk))
    named = [prior for prior in priors if prior not in ("none", "")]
    said += PROBABILITY
    said += PRIOR.format(prior=" or ".join(named)) if named else ""
    return said if named or "" in priors else said + NO_PRIOR


def order_line(rows: Sequence[Comparison]) -> str:
    """Return the order of the models of one task in words; "" unless all pairs were compared."""
    ranks = ranks_of(rows)
    if not 2 < len(ranks) <= MOST_NAMED:
        return ""
    order = ", ".join(f"{row.model} ({row.letters})" for row in ranks)
    best = [row.model for row in ranks if row.may_be_first]
    return (
        f"In order, with letters: {order}. Models that share a letter cannot be told apart. "
        f"May be the best: {few(best, MOST_NAMED)}."
    )


def probability(value: float | None) -> str:
    """Format a probability in per cent, never as a certainty."""
    if value is None:
        return "–"
    if value < 0.001:
        return "<0.1 %"
    return f"{100 * value:.1f} %" if value <= 0.999 else ">99.9 %"


_PROBABILITY = Column("P(better)", "prob_better", probability)


def sampled_probability(value: float | None) -> str:
    """Format the share of some thousand draws, whose error forbids decimals of a per cent.

    >>> [sampled_probability(p) for p in (0.709, 0.004, 0.9999, None)]
    ['71 %', '<1 %', '>99 %', '–']
    """
    if value is None:
        return "–"
    if value < 0.01:
        return "<1 %"
    return f"{100 * value:.0f} %" if value <= 0.99 else ">99 %"


def sampled_p_value(value: float, draws: int) -> str:
    """Format a p-value from so many draws with the digits that its error allows.

    >>> [sampled_p_value(p, 999) for p in (1.0, 0.318, 0.012, 0.001)]
    ['1.000', '0.32', '0.012', '0.001']
    """
    error = max(value * (1 - value), 1 / (draws + 1)) ** 0.5 / draws**0.5
    return f"{value:.2f}" if error > 0.005 else f"{value:.3f}"


def _power(results: PowerRows, *, document: bool = False) -> text.Page:
    """Return a table per task and metric, or sentences if all was assumed; then variance parts."""
    rows = results.rows
    marks = text.note_numbers([*rows, *results.parts])
    tables: list[Table] = []
    if not any(row.task for row in rows):
        legend = [*map(sentence, rows), _found(rows[0])]
    else:
        legend = [power_legend(rows)]
        by_task = grouped(rows, lambda row: (row.task, row.metric))
        groups = [list(rows)] if document else by_task.values()
        tables = [_power_table(own, marks, document=document) for own in groups]
    if results.parts:
        columns = (*_PARTS, text.marks_column(marks))
        whole = (_TASK, text.METRIC, *columns) if document else None
        tables += text.tables_of(
            results.parts,
            lambda part: f"{text.task_and_metric(part)}, what more would buy",
            columns,
            whole=whole,
        )
        legend.append(PARTS_LEGEND)
    # Without tasks the notes are part of the sentences.
    tabled = (*rows, *results.parts) if any(row.task for row in rows) else ()
    notes = text.note_lines(Results(tabled, results.notes)) if tabled else []
    return text.Page(tables, legend, notes)


def sentence(row: PowerRow) -> str:
    """Return an answer as a sentence that does not use the word power."""
    often = f"{_of_hundred(row.power)} of 100 evals"
    if getattr(row, row.quantity) is None:
        if row.quantity == "n_epochs":
            return f"More epochs alone do not make that {often}: it takes more items."
        if row.quantity == "n_models":
            return f"Not even two models can be compared for {often}."
        given = f"With {_items(row)}" if row.n_items else f"For a true difference of {_plain(row)}"
        return f"{given}: {'; '.join(row.notes)}."
    size = f"a true difference of {_plain(row)}"
    if row.method == SEQUENTIAL and row.quantity == "n_items":
        return (
            f"Let both models answer up to {_items(row)}, and stop once the difference is clear: "
            f"that finds {size} in {often}."
        )
    epochs = counted(row.n_epochs or 1, "epoch")
    answer = "both models answer the same" if row.design == "paired" else "each model answer"
    takes = f" in {epochs} each" if row.n_epochs != 1 else ""
    return {
        "n_items": f"Let {answer} {_items(row)}{takes}: that finds {size} in {often}.",
        "difference": f"With {_items(row)}{takes}, {size} is found in {often}; a smaller one less "
        "often.",
        "power": f"With {_items(row)}{takes}, {size} is found in {often}.",
        "n_epochs": f"It takes {epochs} of each of these items for {often}.",
        "n_models": f"Up to {row.n_models} models, every two of them, can be compared for {often}.",
    }[row.quantity] + "".join(f" It {note}." for note in row.notes if note.startswith("costs "))


def _items(row: PowerRow) -> str:
    own = "" if row.design == "paired" else " of its own"
    return counted(row.n_items or 0, "item") + own


def _plain(row: PowerRow) -> str:
    return f"{abs(row.difference or 0.0):.3g}"


def _of_hundred(power: float | None) -> str:
    return f"{100 * (power or 0.0):.3g}"


def power_legend(rows: Sequence[PowerRow]) -> str:
    """Return what the columns of a table mean."""
    row = rows[0]
    often, decided = f"{_of_hundred(row.power)} of 100 evals", _found(row)
    limits = " In brackets: error of the pilot." if any(map(_has_limits, rows)) else ""
    if row.margin is not None:
        least = f"not worse by more than {row.margin:g} (true gain {row.difference or 0:g})"
        if row.quantity == "n_items":
            said = f"Items needed: to show in {often} that the model is {least}."
        else:
            said = f"Power: how often so many items show that the model is {least}."
        decided = f"Level {row.confidence_level:g}."
    elif any(r.quantity == "n_tasks" for r in rows):
        n = counted(row.n_items or 0, "item")
        goal = next(_of_hundred(r.power) for r in rows if r.quantity == "n_tasks")
        said = (
            f"Tasks needed: of {n} each, for a true difference of {_plain(row)} between the means "
            f"over tasks to be found in {goal} of 100 evals."
        )
    elif row.quantity == "n_items":
        of_each = "" if row.design == "paired" else " of each model's own,"
        said = f"Items needed:{of_each} to find a true difference of {_plain(row)} in {often}."
    elif row.quantity == "difference":
        said = f"Least difference: the smallest true one that so many items find in {often}."
    else:
        goal = _of_hundred(next(r.power for r in rows if r.quantity != "power"))
        said = (
            f"Power: how often so many items find a true difference of {_plain(row)}. Epochs "
            f"needed: takes of each item for {goal} of 100; Models: how many can be compared, "
            "every two of them, for that."
        )
    return f"{said} {decided}{limits}"


def _found(row: PowerRow) -> str:
    level = f"p ≤ {1 - row.confidence_level:.4g}"
    n = 2 if row.quantity == "n_models" else row.n_models or 2
    if n <= 2:
        return f"Found: {level}."
    pairs = counted(n * (n - 1) // 2, "pair")
    return f"Found: {level}, allowing for {pairs} of {counted(n, 'model')}."


def _power_table(rows: Sequence[PowerRow], marks: Mapping[str, int], *, document: bool) -> Table:
    first = rows[0]
    title = text.task_and_metric(first)
    if first.pilot_items and len({row.pilot_items for row in rows}) == 1:
        title += f", from a pilot of {counted(first.pilot_items, 'item')}"
    # Epochs may follow from variances alone.
    methods = list(dict.fromkeys(row.method for row in rows if row.quantity != "n_epochs"))
    # One method for all is part of the title.
    title += f", {methods[0]}" if len(methods) == 1 else ""
    method = Column("Method", lambda own: own[0].method, least=6)
    columns = (
        Column("Model", lambda own: own[0].model_b or own[0].model_a, least=8),
        Column("Against", lambda own: own[0].model_a if own[0].model_b else "one like it", least=8),
        *(Column(name, partial(_value, quantity=q), right=True) for name, q in _headers(rows)),
        *([] if len(methods) == 1 and not document else [method]),
        Column("", lambda own: _marks(own, marks), style=lambda _: "dim"),
    )
    pairs = groupby(rows, key=lambda row: (row.task, row.metric, row.model_a, row.model_b))
    by_pair = [list(group) for _, group in pairs]
    if document:
        named = (
            Column("Task", lambda own: own[0].task),
            Column("Metric", lambda own: text.METRIC.of(own[0])),
        )
        return Table("", by_pair, [*named, *columns])
    return Table(title, by_pair, columns)


def _headers(rows: Sequence[PowerRow]) -> list[Header]:
    asked = rows[0].quantity
    if asked == "n_items":
        varied = len({row.n_epochs for row in rows}) > 1 or rows[0].n_epochs not in (None, 1)
        epochs: list[Header] = [("In epochs", "epochs")] if varied else []
        return [("Items needed", "n_items"), *epochs]
    if asked == "difference":
        return [("Items", "items"), ("Least difference", "difference")]
    if any(row.quantity == "n_tasks" for row in rows):
        both: list[Header] = [("Power", "power"), ("Tasks needed", "n_tasks")]
        return both[asked == "n_tasks" :]
    headers: list[Header] = [("Items", "items"), ("Power", "power")]
    if any(row.quantity == "n_epochs" for row in rows):
        headers.append(("Epochs needed", "n_epochs"))
    return [*headers, ("Models", "n_models")]


def _value(group: Sequence[PowerRow], quantity: str) -> str:
    first = group[0]
    if quantity == "items":
        epochs = f"×{first.n_epochs}" if (first.n_epochs or 1) > 1 else ""
        return f"{first.n_items:,}{epochs}"
    if quantity == "epochs":
        return str(first.n_epochs)
    row = next((row for row in group if row.quantity == quantity), None)
    value = getattr(row, quantity, None)
    if row is None or value is None or not _has_limits(row):
        return _answer(value, quantity)
    return (
        f"{_answer(value, quantity)} [{_answer(row.low, quantity)}, {_answer(row.high, quantity)}]"
    )


def _has_limits(row: PowerRow) -> bool:
    """Whether limits are shown: of what is advised, not of what would come of it."""
    advised = row.quantity in ("n_items", "n_tasks", "difference")
    return advised and (row.low is not None or row.high is not None)


def _answer(value: float | None, quantity: str) -> str:
    if value is None:
        return "–"
    if quantity == "power":
        return f"{100 * value:.1f} %"
    return f"{value:,}" if quantity.startswith("n_") else text.number(value)


_PARTS = (
    Column("Model", "model", least=8),
    Column("n", text.items, right=True),
    Column("Within", "share_within", fixed(0, scale=100, unit=" %")),
    Column("Std. error", "std_error", text.number),
    Column("epochs ×2", "std_error_more_epochs", text.number),
    Column("items ×2", "std_error_more_items", text.number),
)


def _marks(rows: Sequence[PowerRow], marks: Mapping[str, int]) -> str:
    return ",".join(dict.fromkeys(str(marks[note]) for row in rows for note in row.notes))


def comparisons_json(results: Comparisons, about: Mapping[str, Any]) -> str:
    """Return one JSON object: the comparisons, and the answer in sentences."""
    return text.to_json(results, about, answer=answer(results.rows))


def comparisons_view(*, all_pairs: bool, details: bool, explain: bool) -> text.View:
    """Return the view of comparisons; without `all_pairs` many are summed up on the terminal."""
    shown = partial(print_comparisons, all_pairs=all_pairs, details=details, explain=explain)
    return text.View(shown, comparisons_markdown, comparisons_json)


def items_view(comparisons: Comparisons, *, explain: bool = False) -> text.View:
    """Return the view of items that two models are compared on, below their comparison."""
    return text.View(
        partial(print_items, comparisons=comparisons, explain=explain),
        partial(items_markdown, comparisons=comparisons),
        partial(items_json, comparisons=comparisons),
    )


POWER = text.page_view(
    _power,
    document=partial(_power, document=True),
    json=lambda results: {"variance_parts": Results(results.parts).to_dict()},
)


def slice_differences(results: Results[SliceComparison]) -> str:
    """Return on which slices the difference of two models is another than elsewhere."""
    told = [
        f"{row.model_b} - {row.model_a} on {row.slice} of {text.task_and_metric(row)} "
        f"(p {p_value(row.p_interaction)})"
        for row in results
        if row.p_interaction is not None and row.p_interaction <= 1 - row.confidence_level
    ]
    if told:
        return f"The difference is significantly another one than elsewhere: {few(told)}."
    return "No difference between models is shown to depend on the slice."


def rankings_over_values(results: Results[SliceComparison]) -> list[str]:
    """Return how probably the ranking of the models on a task holds at other values of a setting.

    Of more than two models at least so probably: what neighbours lack to 1 is added up.
    """
    alike = [row for row in results if row.std_between is not None]
    told: list[str] = []
    for title, rows in groupby(alike, key=text.task_and_metric):
        own, scores = list(rows), dict[str, float]()
        is_better: dict[tuple[str, str], float] = {}
        for row in own:
            probability = row.prob_better or 0.0
            is_better[row.model_b, row.model_a] = probability
            is_better[row.model_a, row.model_b] = 1 - probability
            scores |= {row.model_a: row.score_a or 0.0, row.model_b: row.score_b or 0.0}
        best = sorted(scores, key=scores.__getitem__, reverse=own[0].higher_is_better is not False)
        if not all(pair in is_better for pair in pairwise(best)):
            continue
        lacking = sum(1 - is_better[pair] for pair in pairwise(best))
        least = "at least " * (len(best) > 2)
        told.append(
            f"{title}: the ranking {' > '.join(best)} holds at another value of {own[0].by} with "
            f"probability {least}{max(1 - lacking, 0.0):.2g}."
        )
    return told


_ALONE = {
    "each pair alone": "Limits and p look at each pair alone",
    "screened, each pair alone": "Limits look at each pair alone, p is screened for false "
    "discoveries",
}
"""What limits and p-values of slices hold for by procedure, where it is not all at once."""


def _compared_slices(results: Results[SliceComparison]) -> text.Page:
    held = "Limits and p hold for all slices and pairs of a task at once"
    same = "as on the other items of the task, adjusted over all slices and pairs"
    if rankings := rankings_over_values(results):
        held = "Limits and p hold for all values and pairs of a task, of values like these for all "
        held, same = f"{held}pairs", "at all values"
    held = _ALONE.get(results[0].procedure, held)
    legend = f"{held}; inter.: p that the difference is the same {same}."
    marks, notes = _brief_notes(results)
    columns = [
        Column(results[0].by, "slice", least=8),
        Column("Model", "model_b", least=8),
        Column("against", "model_a", least=8),
        Column("n", "n_items", right=True),
        Column("Diff. [limits]", sized_limits),
        Column("p", "p_adjusted", p_value),
        Column("inter.", "p_interaction", p_value),
        text.marks_column(marks),
    ]
    tables = text.tables_of(results.rows, text.task_and_metric, columns)
    said = "\n".join(rankings) or slice_differences(results)
    return text.Page(tables, [legend], notes, said)


COMPARED_SLICES = text.page_view(
    _compared_slices,
    json=lambda results: {
        "interaction": slice_differences(results),
        "rankings": rankings_over_values(results),
    },
)
