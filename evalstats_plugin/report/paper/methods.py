"""What was done in an evaluation, for the methods section of a paper.

* `Evaluation`: a table of scores with the responses it is of, and what follows from both
* `methods_latex`, `methods_markdown`: two paragraphs, and answers to reporting guidelines
* `sources`: what they cite

Every sentence says what the logs and the table hold. What they do not hold is named as missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from statistics import median
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from evalstats_plugin.comparisons.leaderboard import OVERALL, ColumnKey, ScoreTable, TableCell
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import counted, few
from evalstats_plugin.report.leaderboard import Layout, column_name
from evalstats_plugin.report.settings import settings_of
from evalstats_plugin.report.tables import markdown_table
from evalstats_plugin.report.text import percent, short_metric
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.untrusted import latex_text, markdown_text
from evalstats_plugin.scores.methods import INTERVALS

_HARNESSES = {
    "lm_eval": ("the Language Model Evaluation Harness", "eval-harness"),
    "inspect_ai": ("Inspect", "inspect"),
    "helm": ("HELM", "helm"),
    "lighteval": ("LightEval", "lighteval"),
    "every_eval_ever": ("records in the Every Eval Ever schema", ""),
    "tabular": ("item scores from tables", ""),
}
"""Name and BibTeX key of each harness."""

_OF_GROUPS = "the same for a weighted mean of tasks"
"""What methods are that groups of tasks have, by name beside those of single tasks."""

_OUR_DERIVATION = "; docs/explanation/methods.md"
"""In a method's source, what readers of a paper do not have."""


@dataclass(frozen=True)
class Evaluation:
    """A table of scores, the responses it is of, and how its numbers are written."""

    table: ScoreTable
    responses: tuple[Responses, ...]
    """All that was read, of every metric."""
    baseline: str | None
    percent: bool
    digits: int | None

    @cached_property
    def layout(self) -> Layout:
        """How the numbers of each column are written."""
        return Layout(self.table, self.percent, self.digits)

    @cached_property
    def first_key(self) -> ColumnKey:
        """The column that figures show: the overall score, or else the first."""
        return self.layout.lead or next(iter(self.table.by_column))

    @property
    def first_name(self) -> str:
        """Its name."""
        return column_name(self.first_key)

    @property
    def first(self) -> list[TableCell]:
        """Its cells, the best model first."""
        cells = self.table.by_column[self.first_key]
        return [cells[model] for model in self.table.models if model in cells]

    @property
    def reference(self) -> str:
        """The model that the others are compared with."""
        return self.baseline or self.table.models[0]

    @cached_property
    def shown(self) -> tuple[Responses, ...]:
        """The responses of the metrics that the table shows."""
        columns = {(c.task, c.metric) for c in self.table}
        return tuple(
            r
            for r in self.responses
            if {(name, r.metric) for name in (r.task, *(g.name for g in r.groups))} & columns
        )

    @cached_property
    def differences(self) -> list[Comparison]:
        """Differences from the reference: of two models in every column, of more in the first.

        Where there is no overall score, of all models in every column.
        """
        every = len(self.table.models) == 2 or self.layout.lead is None
        rows = self.table.against(self.reference)
        return [row for row in rows if every or column_of(row) == self.first_key]

    def signed(self, row: Comparison) -> tuple[str, str]:
        """Write a difference and its limits for LaTeX, with the decimals of its column."""
        write = self.layout.format(column_of(row))

        def signed(value: float | None) -> str:
            text = write(abs(value or 0.0))
            sign = "" if not float(text) else "$-$" if (value or 0.0) < 0 else "+"
            return sign + text

        return signed(row.difference), f"[{signed(row.low)}, {signed(row.high)}]"


def column_of(row: Comparison) -> ColumnKey:
    """Return the column of the table that a difference is in."""
    if row.kind == "overall":
        return "overall", OVERALL
    return cast("Any", row.kind), row.task


class _Markup(NamedTuple):
    """How one form of text writes words of logs, and citations."""

    text: Callable[[str], str]
    cite: Callable[[str], str]


def _latex(text: str) -> str:
    # Long names may break after what joins their words.
    return re.sub(r"(\\_|[/,.-])(?=[A-Za-z])", r"\1\\allowbreak{}", latex_text(text))


_LATEX = _Markup(_latex, r"~\cite{{{}}}".format)
_MARKDOWN = _Markup(markdown_text, " [{}]".format)


def _data_paragraph(shown: Evaluation, markup: _Markup) -> str:
    """Return what was measured, on which items, and what the intervals are of."""
    table, text = shown.table, markup.text
    n_items: dict[str, int] = {}
    harnesses: dict[str, None] = {}
    for r in shown.shown:
        n_items[r.task] = max(n_items.get(r.task, 0), len(r.item_ids) or r.logged_n or 0)
        name, key = _HARNESSES.get(r.source.harness, (r.source.harness or "item scores", ""))
        version = f" {r.source.version}" if r.source.version else ""
        harnesses[text(name + version) + (markup.cite(key) if key else "")] = None
    items = counted(sum(n_items.values()), "item")
    said = [
        f"We evaluated {counted(len(table.models), 'model')} on {counted(len(n_items), 'task')} "
        f"({items}) with {' and '.join(harnesses)}."
    ]
    columns = dict.fromkeys((c.task, short_metric(c.metric)) for c in table if c.kind != "overall")
    of_metric = grouped(columns, lambda column: column[1])
    if len(of_metric) == 1:
        said.append(f"The score is {text(next(iter(of_metric)))}.")
    else:
        parts = [f"{metric} ({few([task for task, _ in of])})" for metric, of in of_metric.items()]
        said.append(text(f"Scores are {few(parts, len(parts))}."))
    repeats = sorted({r.scores.shape[1] for r in shown.shown})
    if repeats[-1] > 1:
        each = f"{repeats[0]} to {repeats[-1]}" if len(repeats) > 1 else f"{repeats[0]}"
        said.append(f"Each item was answered {each} times; its score is the mean of its answers.")
    methods = {
        method.name: f"{method.summary} ({method.source.replace(_OUR_DERIVATION, '')})"
        for method in INTERVALS
    }
    used = dict.fromkeys(c.method for c in table if c.low is not None)
    intervals = "; ".join(f"{name}, {methods.get(name, _OF_GROUPS)}" for name in used)
    said.append(
        f"Each score has {text(percent(table.confidence_level))} limits of its own, for items like "
        f"these ({text(intervals)})."
    )
    if any(r.clusters is not None for r in shown.shown):
        said.append("Items that belong together were taken as clusters.")
    overall = [cell for cell in shown.first if cell.kind == "overall"]
    if overall:
        counted_same = {"columns": "column", "tasks": "task", "items": "item"}[table.weights]
        said.append(
            f"The overall score is the mean of {counted(len(table.in_overall), 'column')}, each "
            f"{counted_same} counting the same; the tasks are fixed, so that it is about these "
            "tasks and items like these."
        )
    return " ".join(said)


def _comparison_paragraph(shown: Evaluation, markup: _Markup) -> str:
    """Return how models were compared, what was left out, and by which program and seed."""
    table, text = shown.table, markup.text
    said: list[str] = []
    n = len(table.models)
    if table.pairs:
        pairs = n * (n - 1) // 2
        all_pairs = "The two models were" if n == 2 else f"All {pairs:,} pairs of models were"
        how = table.compared_on.replace(
            "answered",
            f"answered, by a Bayesian bootstrap of the mean difference"
            f"{markup.cite('rubin1981bootstrap')} with half an item more on either side",
        )
        at_once = [
            "Bonferroni's correction"
            if independent
            else f"one critical value for all pairs{markup.cite('mogstad2024ranks')}"
            for independent in sorted({pairs.independent for pairs in table.pairs})
        ]
        said.append(
            f"{all_pairs} compared {how}. Limits, verdicts and ranks hold for all pairs and "
            f"columns at once ({text(percent(table.confidence_level))}), by "
            f"{', there by '.join(at_once)}; a model may be the best of a column unless it is "
            f"worse than another{markup.cite('hsu1981best')}."
        )
    elif not table.is_ranked:
        said.append("Models were not compared with each other.")
    else:
        said.append("Ranks come from blocks of pairs at Bonferroni's share of the level.")
    if table.notes:
        said.append(text(f"Notes: {'; '.join(table.notes)}."))
    lacking = sum(int(np.isnan(r.scores).all(axis=1).sum()) for r in shown.shown)
    if lacking:
        said.append(
            text(f"{counted(lacking, 'score')} of the items are missing; they were left out.")
        )
    seed = "" if table.seed is None else f", seed {table.seed}"
    said.append(f"Computed by evalstats-plugin {VERSION}{markup.cite('evalstats_plugin')}{seed}.")
    return " ".join(said)


class Answer(NamedTuple):
    """What a guideline asks of a report, and what this one has."""

    source: str
    """Key of `sources`."""
    asks: str
    answer: Literal["yes", "partly", "no", "not in the logs"]
    says: str


_GUIDELINES = {
    "miller2024errorbars": "Miller (2024)",
    "reuel2024betterbench": "BetterBench (2024)",
    "nist8002": "NIST AI 800-2 (draft)",
    "nist8003": "NIST AI 800-3",
}


def checklist(shown: Evaluation) -> list[Answer]:
    """Return what guidelines for reports ask, in our words, each answered from the logs."""
    return [*_of_miller(shown), *_of_betterbench(shown), *_of_nist(shown)]


Verdict = tuple[Literal["yes", "partly", "no", "not in the logs"], str]
"""An answer, and what it says."""


def _scored(shown: Evaluation) -> Verdict:
    without = [c for c in shown.table if c.estimate is not None and c.low is None]
    return ("partly", f"{len(without)} scores have none") if without else ("yes", "table.tex")


def _of_miller(shown: Evaluation) -> Iterator[Answer]:
    source = "miller2024errorbars"
    yield Answer(source, "every score with an error and its number of items", *_scored(shown))
    says = "no field of clusters was named; if items share a passage, name it (--cluster)"
    clustered: Verdict = ("not in the logs", says)
    if any(r.clusters is not None for r in shown.shown):
        clustered = ("yes", "items were taken in clusters")
    yield Answer(source, "clustered errors where questions come in groups", *clustered)
    n_answers = min(r.scores.shape[1] for r in shown.shown)
    yield Answer(
        source,
        "less variance by several answers to each question",
        "yes" if n_answers > 1 else "no",
        f"{counted(n_answers, 'answer')} to each item",
    )
    asks = "models compared question by question, with limits"
    rows = [row for row in shown.differences if column_of(row) == shown.first_key]
    if not rows:
        yield Answer(source, asks, "no", "there is one model, or no item in common")
        return
    independent = {pairs.independent for pairs in shown.table.pairs}
    paired = "no" if independent == {True} else "partly" if True in independent else "yes"
    said = "compare.tex" if paired == "yes" else f"compared {shown.table.compared_on}: compare.tex"
    yield Answer(source, asks, paired, said)
    widths = [(row.high or 0.0) - (row.low or 0.0) for row in rows]
    half = shown.layout.format(shown.first_key)(median(widths) / 2)
    yield Answer(
        source,
        "which differences the evaluation can show",
        "partly",
        f"limits of {shown.first_name} differences are {half} either way (median): smaller true "
        "differences would seldom be shown",
    )


def _of_betterbench(shown: Evaluation) -> Iterator[Answer]:
    source = "reuel2024betterbench"
    yield Answer(source, "statistical significance or uncertainty reported", *_scored(shown))
    n_epochs = min(r.scores.shape[1] for r in shown.shown)
    runs: Verdict = ("no", "one run: how answers vary is not measured")
    if n_epochs > 1:
        runs = ("yes", f"{n_epochs} epochs or more")
    yield Answer(source, "several runs or seeds", *runs)
    logged: list[str] = []
    if all(r.provenance.task_version for r in shown.shown):
        logged.append("versions of the tasks")
    if all(r.provenance.prompt_hashes is not None for r in shown.shown):
        logged.append("hashes of the prompts")
    says = "neither versions of the tasks nor hashes of prompts: add them, data and code"
    repeatable: Verdict = ("not in the logs", says)
    if logged:
        repeatable = ("partly", f"{' and '.join(logged)} are logged; add data and code")
    yield Answer(source, "what others need to run it again", *repeatable)


_OF_ANY_EVALUATION = (
    Answer("nist8002", "answers were read, and broken items and graders looked for",
           "not in the logs",
           "evalstats-plugin report --html lists suspects; say what reading them showed"),
    Answer("nist8003", "whether scores are about these items or about items like these", "yes",
           "estimates are the scores on these items (benchmark accuracy), limits are about items "
           "like these (generalised accuracy); tasks are fixed"),
    Answer("nist8003", "a statistical model of the answers, where the design asks for one", "no",
           "evalstats-plugin pool fits one (effects of models, tasks and items)"),
)  # fmt: skip
"""Answers that do not depend on the logs."""


def _of_nist(shown: Evaluation) -> Iterator[Answer]:
    asks = "settings of the runs (harness, versions, shots, arguments)"
    held = [bool(r.source.version and r.settings) for r in shown.shown]
    answer = "yes" if all(held) else "partly" if any(held) else "not in the logs"
    yield Answer("nist8002", asks, answer, "methods.md lists what the logs hold")
    dates = sorted({r.source.when[:10] for r in shown.shown if r.source.when})
    when: Verdict = ("not in the logs", "add the dates")
    if dates:
        when = ("yes", " to ".join(dict.fromkeys((dates[0], dates[-1]))))
    yield Answer("nist8002", "when the models were run", *when)
    yield from _OF_ANY_EVALUATION


def sources() -> str:
    """Return the BibTeX entries that methods cite, beside those of `leaderboard.bibtex`."""
    return files("evalstats_plugin.report.paper").joinpath("methods.bib").read_text("utf-8")


def methods_latex(shown: Evaluation) -> str:
    """Return the methods as LaTeX: two paragraphs, then the checklist."""
    lines = ["% What was done; the citations are in refs.bib."]
    lines += [_data_paragraph(shown, _LATEX), "", _comparison_paragraph(shown, _LATEX), ""]
    lines += [r"\paragraph{Reporting checklist}", r"\begin{itemize}"]
    lines += [
        rf"\item[$\bullet$] {latex_text(each.asks)}~\cite{{{each.source}}}: "
        rf"\emph{{{each.answer}}}, {_LATEX.text(each.says)}."
        for each in checklist(shown)
    ]
    return "\n".join([*lines, r"\end{itemize}", ""])


def methods_markdown(shown: Evaluation) -> str:
    """Return the methods as Markdown: the same, with the settings that the logs hold."""
    rows = [
        [_GUIDELINES[question.source], question.asks, question.answer, question.says]
        for question in checklist(shown)
    ]
    lines = ["# Methods", "", _data_paragraph(shown, _MARKDOWN), "",
             _comparison_paragraph(shown, _MARKDOWN), "", "## Reporting checklist", ""]  # fmt: skip
    lines += markdown_table(
        ["Guideline", "What it asks", "Here", "Where, or why not"], rows, right=()
    )
    lines += ["", "## Settings of the runs", ""]
    settings = settings_of(shown.shown)
    differ = [
        [one.tasks, one.name, "; ".join(f"{few(m, 8)}: {value}" for value, m in one.models.items())]
        for one in settings
        if not one.is_common
    ]
    common = [[one.tasks, one.name, *one.models] for one in settings if one.is_common]
    if differ:
        many = f"{counted(len(differ), 'setting')} differ{'s' * (len(differ) == 1)}"
        lines += [f"**{many} between models of one task:**", ""]
        lines += markdown_table(["Task", "Setting", "Values by model"], differ, right=())
        lines += [""]
    lines += markdown_table(["Task", "Setting", "Value"], common, right=()) if common else [
        "The logs hold no settings."
    ]  # fmt: skip
    return "\n".join([*lines, ""])
