"""Abilities of models and what items are like, for people: tables, and sentences that explain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from evalstats_plugin.analyses.ability_records import Abilities, Ability, ItemEstimate
from evalstats_plugin.report import formats
from evalstats_plugin.report.ability_tables import Lines, filled, markdown, plain, share, signed
from evalstats_plugin.report.comparisons import p_value, probability
from evalstats_plugin.report.text import percent, print_all
from evalstats_plugin.results import Comparison, Results
from evalstats_plugin.wording import few

MOST_ITEMS = 25
"""Lines of a table of items; the items to look at come first."""

_MODELS = ("Model", "Ability", "interval", "Std. error", "Score", "Items")
_DIFFERENCES = ("Model", "Abler by", "interval", "p, adj.", "P(abler)")
_ITEMS = ("Difficulty", "± s.e.", "Discr.", "± s.e.", "Score", "Infit", "Outfit")
_VERDICTS = {"better": "abler", "worse": "less able", "unclear": "unclear"}


def print_abilities(results: Abilities, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print the models, the differences and the items, then the notes and what it all means."""
    marks = _marks(results, MOST_ITEMS)
    tables = [filled(_title(results), _model_lines(results, marks), left=(0, 2))]
    if results.differences:
        title = f"Ability compared with {results.differences[0].model_a}"
        tables.append(filled(title, _difference_lines(results.differences), left=(0, 2, 5)))
    if results.items:
        several = _several_tasks(results.items)
        left = (0, 1) if several else (0,)
        lines = _item_lines(results.items[:MOST_ITEMS], marks)
        tables.append(filled(_items_title(results), lines, left=left))
    print_all(tables, _said(results, marks), [*legend(results), heading], file=file, width=width)


def to_markdown(results: Abilities, heading: str) -> str:
    """Return Markdown tables, the notes, what the words mean, and how it was made."""
    marks = _marks(results)
    blocks = [markdown(_title(results), _model_lines(results, marks))]
    if results.differences:
        title = f"Ability compared with {results.differences[0].model_a}"
        blocks.append(markdown(title, _difference_lines(results.differences)))
    if results.items:
        blocks.append(markdown(_items_title(results), _item_lines(results.items, marks)))
    said = [text.replace("* ", "- ", 1) for text in _said(results, marks)]
    ends = [part for text in legend(results) for part in (text, "")]
    return "\n".join([*(line for block in blocks for line in block), *said, "", *ends, heading, ""])


def to_json(results: Abilities, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, models, differences, items, and the fit."""
    whole = json.loads(formats.to_json(results, about))
    whole["differences"] = Results(results.differences).to_dict()
    whole["items"] = Results(results.items).to_dict()
    whole["fit"] = results.fit
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)


def one_table(results: Abilities) -> Results[Any]:
    """Return the one kind of rows that a CSV file holds: items, differences or models."""
    return Results(results.items or results.differences or results.rows, results.notes)


def legend(results: Abilities) -> list[str]:
    """Say what the numbers mean, to those who have never heard of the method."""
    fit = results.fit
    sharp = "" if fit["item_model"] == "rasch" else " of discrimination 1"
    guess = ", guessing aside," if fit["item_model"] == "3pl" else ""
    said = [
        "Ability: how good a model is at all these items together, hard and easy ones, each "
        f"weighed by what it tells. {_zero(fit)} A model whose ability is higher by 1 has 2.7 "
        f"times the odds{guess} to get an item{sharp} right. Score: its mean over the items it "
        "took, to compare only between models that took the same items; abilities can always be "
        "compared."
    ]
    if results.differences:
        said.append(
            "Abler by: the model's ability less that of the other, and P(abler): how probable it "
            "is that it is truly abler, looking at this pair alone. abler, less able: beyond "
            "chance at the confidence level, allowing for the number of models compared (Holm)."
        )
    if results.items:
        said.append(
            "Difficulty: the ability that has an even chance with the item. Discrimination: how "
            "sharply the item tells abler models from others; below 0 abler models get it right "
            "less often, as when its key is wrong. Infit, outfit: 1 where answers vary as the "
            "model expects, well above 1 where they are noisier."
        )
    return [*said, fitted(fit)]


def fitted(fit: Mapping[str, Any]) -> str:
    """Say what was fitted, how, why so, and whether it worked."""
    how: Mapping[str, Any] = fit["diagnostics"]
    if "scored_by" in how:
        return (
            f"Scored ({how['scored_by']}) on {how['n_items']} items of a saved {fit['item_model']} "
            "fit, which count as known."
        )
    ran = f"Item model {fit['item_model']}, estimator {fit['estimator']}: {how['reason']}."
    went: list[str] = []
    if how.get("converged") is not None:
        end = "Converged after" if how["converged"] else "NOT converged after"
        went.append(f"{end} {how['iterations']} steps")
    if how.get("log_likelihood") is not None:
        went.append(f"log-likelihood {how['log_likelihood']:.2f}")
    return f"{ran} {', '.join(went)}." if went else ran


def _zero(fit: Mapping[str, Any]) -> str:
    scale = str(fit["identification"])
    if "scored_by" in fit["diagnostics"]:
        return f"The scale is that of the saved fit ({scale})."
    if "sum to 0" in scale:
        return f"0 is the mean of these models ({scale})."
    if "N(0, 1)" in scale:
        return f"0 is the mean of such models, and 1 is how far they spread ({scale})."
    return f"0 is the mean of such models ({scale})."


def _title(results: Abilities) -> str:
    if not results.rows:
        return "Ability"
    first = results.rows[0]
    tasks = first.task.split(", ")
    return f"Ability on {few(tasks, 3)} ({first.metric})"


def _items_title(results: Abilities) -> str:
    title = f"Items: {len(results.items)}, of which {len(results.flagged)} to look at"
    more = len(results.items) - MOST_ITEMS
    return f"{title}; {more} more are in --format csv" if more > 0 else title


def _limits(row: Ability | Comparison) -> str:
    if row.low is None or row.high is None:
        return "–"
    return f"[{signed(row.low)}, {signed(row.high)}]"


def _model_lines(results: Abilities, marks: Mapping[str, int]) -> Lines:
    level = percent(results.rows[0].confidence_level) if results.rows else ""
    lines = [[*_MODELS, ""]]
    lines[0][2] = f"{level} interval"
    for row in results:
        cells = [row.model, signed(row.estimate), _limits(row), plain(row.std_error)]
        lines.append([*cells, share(row.score), f"{row.n_items:,}", _marked(row, marks)])
    return lines


def _difference_lines(rows: Sequence[Comparison]) -> Lines:
    lines = [[*_DIFFERENCES, "Verdict"]]
    lines[0][2] = f"{percent(rows[0].confidence_level)} interval"
    for row in rows:
        cells = [row.model_b, signed(row.difference), _limits(row), p_value(row.p_adjusted)]
        lines.append([*cells, probability(row.prob_better), _VERDICTS[row.verdict]])
    return lines


def _item_lines(items: Sequence[ItemEstimate], marks: Mapping[str, int]) -> Lines:
    several = _several_tasks(items)
    lines = [["Item", *(["Task"] if several else []), *_ITEMS, ""]]
    for item in items:
        numbers = [signed(item.difficulty), plain(item.difficulty_std_error)]
        numbers += [plain(item.discrimination), plain(item.discrimination_std_error)]
        numbers += [share(item.score), plain(item.infit), plain(item.outfit)]
        name = [item.item, *([item.task] if several else [])]
        lines.append([*name, *numbers, _marked(item, marks)])
    return lines


def _several_tasks(items: Sequence[ItemEstimate]) -> bool:
    return len({item.task for item in items}) > 1


def _item_name(item: ItemEstimate, *, several: bool) -> str:
    return f"{item.task} item {item.item}" if several else f"item {item.item}"


def _marks(results: Abilities, most_items: int | None = None) -> dict[str, int]:
    """Footnote number of each note on a model or item shown."""
    rows: list[Ability | ItemEstimate] = [*results.rows, *results.items[:most_items]]
    return {note: k for k, note in enumerate(dict.fromkeys(n for r in rows for n in r.notes), 1)}


def _marked(row: Ability | ItemEstimate, marks: Mapping[str, int]) -> str:
    return ",".join(str(marks[note]) for note in row.notes)


def _said(results: Abilities, marks: Mapping[str, int]) -> list[str]:
    """Return the notes as lines of text: footnotes first, then those of the whole."""
    about: dict[str, list[str]] = {}
    names = [(row.model, row.notes) for row in results.rows]
    several = _several_tasks(results.items)
    names += [(_item_name(item, several=several), item.notes) for item in results.items]
    for name, noted in names:
        for note in noted:
            about.setdefault(note, []).append(name)
    return [
        *(f"{mark}. {note} ({few(about[note])})" for note, mark in marks.items()),
        *(f"* {note}" for note in results.notes),
    ]
