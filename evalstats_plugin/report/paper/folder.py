r"""A folder for a paper: table, comparisons, figures, methods and numbers of an evaluation.

All numbers are those of one `ScoreTable`, so that the parts of the folder cannot disagree; the same
responses and seed give the same bytes.

* `paper` writes the folder
* `comparison_latex`: the pairs of models behind the table's ranks
* `number_macros`: every number as a LaTeX macro, such as ``\accQwenGsm``
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from evalstats_plugin.comparisons.leaderboard import OVERALL, Weights, table
from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.measure import Measures
from evalstats_plugin.data.results import Results
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import check_known, few
from evalstats_plugin.report import leaderboard
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.comparisons import plot_ranks
from evalstats_plugin.report.figures.scores import plot_forest
from evalstats_plugin.report.leaderboard import column_name
from evalstats_plugin.report.paper import methods
from evalstats_plugin.report.paper.methods import Evaluation, column_of
from evalstats_plugin.report.tables import elided, latex_row
from evalstats_plugin.report.text import pairs_at_once
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.untrusted import latex_text, visible
from evalstats_plugin.runtime.writing import check_free, overwriting, write_bytes
from evalstats_plugin.stats.ranks import letter_name

COLUMN_WIDTH = 3.35
"""Inches of a column of a two-column page, which the figures are wide."""

MOST_MODELS = 40
"""Models in a figure and rows of compare.tex: more do not fit a page."""

MOST_RANKED = 12
"""Models up to which a column has room for a figure of their ranks, and for letters beside it."""

_LONGEST_NAME = 22

_DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")

_MAIN = r"""\documentclass[11pt]{article}
\usepackage[margin=2.5cm]{geometry}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,siunitx,graphicx}
\emergencystretch=3em
\input{numbers.tex}
\begin{document}
"""

_FIGURE = r"""\begin{figure}
\centering
\includegraphics{%s}
\caption{%s}
\end{figure}
"""

_END = r"""\clearpage
\bibliographystyle{plain}
\bibliography{refs}
\end{document}
"""

_ABOUT = {
    "table.tex": "scores of all models with limits, ranks and ties (booktabs, siunitx, graphicx)",
    "compare.tex": "differences of the models with limits (booktabs)",
    "forest.pdf": "the scores with their limits, as wide as a column",
    "rank.pdf": "the ranks that are open",
    "numbers.tex": "every number as a macro, for the text",
    "methods.tex": "what was done, and answers to reporting guidelines",
    "methods.md": "the same, to read, with the settings of the runs",
    "refs.bib": "what the methods and captions cite",
    "main.tex": "shows all of them: pdflatex main, bibtex main, pdflatex main, pdflatex main",
}


def paper(
    responses: ResponsesLike,
    folder: str | Path,
    *,
    baseline: str | None = None,
    metric: str | Sequence[str] = (),
    columns: str | Sequence[str] = (),
    subtasks: bool | None = False,
    weights: Weights = "columns",
    confidence_level: float = 0.95,
    measure: Measures = None,
    percent: bool = False,
    digits: int | None = None,
    command: str = "",
    overwrite: bool = False,
    rng: int = 0,
) -> tuple[Path, ...]:
    """Write a folder for a paper: LaTeX tables, figures, methods, macros and references.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, or anything that `evalstats_plugin.table` takes.
    folder
        Where to write; it is made where it does not exist.
    baseline
        Model that the others are compared with; by default the best of the table. The limits hold
        for all pairs, so that it may be chosen from the scores.
    metric, columns, subtasks, weights, confidence_level, measure
        As of `evalstats_plugin.table`.
    percent, digits
        Scores of 100, and decimals, as of `ScoreTable.to_latex`.
    command
        What the README says made the folder; by default this function.
    overwrite
        Replace files of an earlier call that differ; nothing else in the folder is touched.
    rng
        Seed, which the methods name.

    Returns
    -------
    tuple of Path
        The files: ``table.tex``, ``forest.pdf``, ``numbers.tex``, ``methods.tex``, ``methods.md``,
        ``refs.bib``, ``main.tex``, ``README.md``; of several models also ``compare.tex``, and
        of at most 12 ``rank.pdf``; of more, the table has their ranks.

    Raises
    ------
    SelectionError
        No such baseline.
    WriteError
        The folder cannot be written, or holds such files and may not be overwritten.
    DesignError
        As of `evalstats_plugin.table`; or Matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import evalstats_plugin as es
    >>> right = np.random.default_rng(0).random((2, 100)) < [[0.9], [0.6]]
    >>> data = es.ResponseMatrix.from_array(right.astype(float), models=["new", "old"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print([file.name for file in es.paper(data, folder)][:3])
    ['table.tex', 'compare.tex', 'forest.pdf']
    """
    canvas.matplotlib()
    listed, _ = as_list(responses, measure)
    results = table(
        responses, metric=metric, columns=columns, subtasks=subtasks, weights=weights,
        confidence_level=confidence_level, measure=measure, rng=rng,
    )  # fmt: skip
    if baseline is not None:
        check_known("model", baseline, results.models)
    shown = Evaluation(results, tuple(one_of_each(listed)), baseline, percent, digits)
    latex = leaderboard.table_latex(
        results, percent=percent, digits=digits, cite=True, label="tab:scores"
    )
    files: dict[str, str | bytes] = {"table.tex": latex}
    if shown.differences:
        files["compare.tex"] = comparison_latex(shown)
    files["forest.pdf"] = _drawn(plot_forest, shown, numbers=False)
    ranked = any(cell.best_rank is not None for cell in shown.first)
    if ranked and len(shown.first) <= MOST_RANKED:
        files["rank.pdf"] = _drawn(plot_ranks, shown)
    files["numbers.tex"] = number_macros(shown)
    files["methods.tex"] = methods.methods_latex(shown)
    files["methods.md"] = methods.methods_markdown(shown)
    files["refs.bib"] = leaderboard.bibtex() + methods.sources()
    files["main.tex"] = _main(shown, files)
    files["README.md"] = _readme(files, command or "evalstats_plugin.paper(responses, folder)")
    content = {
        Path(folder) / name: text if isinstance(text, bytes) else text.encode()
        for name, text in files.items()
    }
    with overwriting(allowed=overwrite):
        # Where one of them may not be written, none is.
        for path, own in content.items():
            if not path.is_file() or path.read_bytes() != own:
                check_free(path)
        Path(folder).mkdir(parents=True, exist_ok=True)
        return tuple(write_bytes(path, own) for path, own in content.items())


def comparison_latex(shown: Evaluation) -> str:
    """Return a LaTeX table of the differences from the model that the others are compared with.

    Two models have a row for each column of the table; more have a row for each model, of the
    overall score where there is one.
    """
    differences = shown.differences[:MOST_MODELS]
    two = len(shown.table.models) == 2
    columns = [column_name(column_of(row)) for row in differences]
    one_column = len(set(columns)) == 1
    reference = latex_text(shown.reference)
    names, what = columns, f"Differences from {reference}"
    if two:
        what = f"{latex_text(differences[0].model_b)} minus {reference}"
    else:
        named = zip(columns, differences, strict=True)
        names = [row.model_b if one_column else f"{name}: {row.model_b}" for name, row in named]
    body = [
        latex_row([latex_text(name), str(row.n_items), " ".join(shown.signed(row)), row.verdict])
        for name, row in zip(elided(names, 2 * _LONGEST_NAME), differences, strict=True)
    ]
    level = leaderboard.latex_percent(shown.table.confidence_level)
    pairs, _ = pairs_at_once(len(shown.table.models))
    best = ", the model with the best score" if shown.layout.lead else ", the first of the table"
    best = "" if shown.baseline else best
    of = f" ({latex_text(columns[0])})" if one_column and not two else ""
    lower = [
        name
        for name, row in dict(zip(columns, differences, strict=True)).items()
        if row.higher_is_better is False
    ]
    ahead = "positive: the named model is ahead"
    if len(lower) == len(set(columns)):
        ahead = "lower scores are better, so negative: the named model is ahead"
    elif lower:
        ahead += f", negative where lower scores are better ({latex_text(few(lower))})"
    hidden = len(shown.differences) - len(differences)
    more = f" {hidden} more are not shown." if hidden else ""
    caption = (
        f"{what}{best}{of}, {shown.table.compared_on}; {ahead}. "
        f"The {level} limits hold for {pairs} of models and all columns of the table at once; "
        f"better, worse: they exclude 0.{more}"
    )
    head = rf"{'Task' if two else 'Model'} & Items & Difference [{level} limits] & Verdict \\"
    rows = [head, r"\midrule", *body]
    return leaderboard.latex_float(
        rows, spec="@{}lrll@{}", packages="booktabs", caption=caption, label="tab:differences"
    )


def number_macros(shown: Evaluation) -> str:
    r"""Return a LaTeX macro for every number: scores, limits, items, differences.

    Names are letters alone: the metric, then as many words of the model and of the task as tell
    them from the others; digits are spelt out.
    """
    models = dict(zip(shown.table.models, macro_words(shown.table.models), strict=True))
    keys = list(shown.table.by_column)
    tasks = dict(zip(keys, macro_words([name for _, name in keys]), strict=True))
    tasks |= {key: "" for key in keys if key[0] == OVERALL}
    # Name, then what the macro and those with its name and an ending say, and of what.
    numbers: list[tuple[str, dict[str, str], str]] = []
    for key in keys:
        write = shown.layout.format(key)
        for model, cell in shown.table.by_column[key].items():
            if cell.estimate is None:
                continue
            first = "overall" if key[0] == OVERALL else _first_word(cell.metric)
            values = {"": write(cell.estimate), "N": f"{cell.n_items}"}
            if cell.low is not None and cell.high is not None:
                values["CI"] = f"[{write(cell.low)}, {write(cell.high)}]"
            about = f"{cell.task}, {cell.metric}, {model}"
            numbers.append((f"{first}{models[model]}{tasks[key]}", values, about))
    for row in shown.differences:
        column = column_of(row)
        difference, limits = shown.signed(row)
        values = {"": difference, "CI": limits}
        about = f"{column_name(column)}, {row.model_b} minus {row.model_a}: {row.verdict}"
        numbers.append(
            (f"diff{models[row.model_b]}{models[row.model_a]}{tasks[column]}", values, about)
        )
    lines = ["% Every number of table.tex and compare.tex, for the text. CI: limits; N: items."]
    names = _distinct([name for name, _, _ in numbers])
    for name, (_, values, about) in zip(names, numbers, strict=True):
        lines += [
            f"\\newcommand{{\\{name}{ending}}}{{{value}}} % {latex_text(about)}"
            for ending, value in values.items()
        ]
    return "\n".join([*lines, ""])


def macro_words(names: Sequence[str]) -> list[str]:
    """Return a name of letters alone for each name, different for different ones.

    As many of its words as tell it from the others, without what stands before the last slash
    where that does.

    >>> macro_words(["Qwen/Qwen2.5-7B", "meta/Llama-3", "meta/Llama-4"])
    ['Qwen', 'LlamaThree', 'LlamaFour']
    >>> macro_words(["gsm8k", "答え", "答"])
    ['Gsm', 'A', 'B']
    """
    short = [name.rsplit("/", 1)[-1] for name in names]
    whole = names if len(set(short)) < len(set(names)) else short
    words = [_words(name) for name in whole]
    n_with = Counter(tuple(own[:n]) for own in words for n in range(1, len(own) + 1))
    return _distinct(
        [
            next(("".join(own[:n]) for n in range(1, len(own)) if n_with[tuple(own[:n])] == 1),
                 "".join(own))
            for own in words
        ]
    )  # fmt: skip


def _distinct(names: Sequence[str]) -> list[str]:
    """Give a letter more to names that are empty or the same, as those in other scripts."""
    n_of = Counter(names)
    taken = {name for name in n_of if name and n_of[name] == 1}
    distinct: list[str] = []
    for name in names:
        if name not in taken or n_of[name] > 1:
            more = (name + letter_name(k).upper() for k in count())
            name = next(longer for longer in more if longer not in taken)  # noqa: PLW2901
            taken.add(name)
        distinct.append(name)
    return distinct


def _words(name: str) -> list[str]:
    """Return the words of a name, capitalised, digits spelt out; letters of ASCII alone."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]", name)
    return [
        _DIGITS[int(word)] if word.isdigit() else word[0].upper() + word[1:].lower()
        for word in parts
    ]


def _first_word(metric: str) -> str:
    """Return a metric as the beginning of a macro: letters, the first one small.

    >>> _first_word("exact_match,strict-match")
    'exactMatch'
    """
    joined = "".join(_words(metric.partition(",")[0])) or "score"
    return joined[0].lower() + joined[1:]


@canvas.styled
def _drawn(plot: Callable[..., Any], shown: Evaluation, **options: Any) -> bytes:
    """Draw the first column of the table as wide as a column of text; return the PDF."""
    cells = shown.first[:MOST_MODELS]
    names = elided([cell.model for cell in cells], _LONGEST_NAME)
    rows = [replace(cell, model=name) for cell, name in zip(cells, names, strict=True)]
    height = canvas.Rows.of([("", name) for name in names]).height
    figure = canvas.new_figure(COLUMN_WIDTH, height + 0.5)
    plot(Results(tuple(rows)), ax=canvas.dressed(figure.add_subplot()), **options)
    return canvas.rendered(figure, ".pdf")


def _main(shown: Evaluation, files: Mapping[str, object]) -> str:
    parts = [_MAIN, r"\section*{Methods}", "\n", r"\input{methods.tex}", "\n"]
    parts += [f"\\input{{{name}}}\n" for name in ("table.tex", "compare.tex") if name in files]
    level = leaderboard.latex_percent(shown.table.confidence_level)
    of = latex_text(shown.first_name)
    hidden = len(shown.first) - MOST_MODELS
    best = f" The best {MOST_MODELS} of {len(shown.first)} models." if hidden > 0 else ""
    parts.append(_FIGURE % ("forest.pdf", f"{of}: scores with {level} limits, each alone.{best}"))
    if "rank.pdf" in files:
        said = f"{of}: ranks that the comparisons of all pairs leave open ({level} together)."
        parts.append(_FIGURE % ("rank.pdf", said))
    return "".join([*parts, _END])


def _readme(files: Mapping[str, object], command: str) -> str:
    lines = [
        "# Tables, figures and methods of an evaluation", "",
        f"Made by evalstats-plugin {VERSION}:", "", f"    {visible(command)}", "",
        "The same logs give the same files.", "",
        *(f"- `{name}`: {what}" for name, what in _ABOUT.items() if name in files), "",
        "In numbers.tex a macro's name has as many words of a model and a task as tell them from",
        "the others of this folder: with other models it may be another.",
    ]  # fmt: skip
    return "\n".join([*lines, ""])
