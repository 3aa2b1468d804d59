"""Decisions of a gate: a sentence, a table, Markdown for a pull request, JUnit XML for CI."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote
from xml.etree import ElementTree as ET

from evalstats_plugin.comparisons.gating import POWER, Decision, Gate, GateRow, parse_margin
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import counted, few
from evalstats_plugin.report import text
from evalstats_plugin.report.answers import n_items, size
from evalstats_plugin.report.tables import Column, Link, Table, markdown_table
from evalstats_plugin.runtime.untrusted import markdown_text, visible
from evalstats_plugin.scores.rows import ItemComparisons

WORDS: Mapping[Decision, str] = {
    "pass": "PASS", "regressed": "REGRESSED", "inconclusive": "INCONCLUSIVE",
}  # fmt: skip
_STYLES: Mapping[Decision, str] = {"pass": "green", "regressed": "red", "inconclusive": "yellow"}
_COLOURS: Mapping[Decision, str] = {
    "pass": "#2a7d32", "regressed": "#b3261e", "inconclusive": "#8a5a00",
}  # fmt: skip
"""Of badges; white text on each has a contrast of 4.5 or more."""

_MOST_NAMED = 3
"""Tasks that a sentence names; the table has all."""

_MOST_ROWS = 10
"""Rows up to which also those that pass are shown."""

_LONGEST = 40
"""Rows of a comment that are not folded away."""

_QUESTION = 80
"""Characters of a question in a comment."""

_SHORT = 12
"""Digits of the hash of a protocol that people see."""


def _gate(results: Gate) -> text.Page:
    """Return the decision, a table for each candidate and metric, the notes and a legend.

    Of many rows those that pass are counted.
    """
    rows, passed = _first_and_rest(results)
    marks = text.note_numbers(rows)
    tables: list[Table | str] = []
    for (model, metric), some in grouped(rows, lambda row: (row.model, row.metric)).items():
        title = f"{model} against {results.baseline}, {text.short_metric(metric)}"
        tables.append(Table(title, some, _columns(some, marks)))
    if passed:
        tables.append(f"{_that_pass(passed)}: --format csv has all.")
    notes, legend = text.note_lines(_by_name(results, rows)), list(filter(None, _legend(results)))
    return text.Page(tables, legend, notes, sentence(results), _STYLES[results.decision])


def _by_name(results: Gate, rows: Sequence[GateRow]) -> Gate:
    """Return the results with these rows alone, whose tasks name their slices."""
    return replace(results, rows=tuple(replace(row, task=row.name) for row in rows))


def _first_and_rest(results: Gate) -> tuple[list[GateRow], list[GateRow]]:
    """Return the rows that are shown, and of many those that pass."""
    if len(results) <= _MOST_ROWS:
        return list(results), []
    by_passing = grouped(results, lambda row: row.decision == "pass")
    return by_passing.get(False, []), by_passing.get(True, [])


def _that_pass(rows: Sequence[GateRow]) -> str:
    return f"{counted(len(rows), 'comparison')} that pass{'es' * (len(rows) == 1)}"


def _columns(rows: Sequence[GateRow], marks: Mapping[str, int]) -> list[Column]:
    needs = any(row.items_needed for row in rows)
    needed = Column(
        "Items needed", lambda r: f"{r.items_needed:,}" if r.items_needed else "", right=True
    )
    return [
        Column("Task", "name", least=8),
        Column("n", n_items, right=True),
        Column("Difference", lambda row: size(row, row.difference), right=True),
        Column(text.interval_title(rows), _limits),
        Column("Decision", "decision", style=lambda row: _STYLES[row.decision]),
        *([needed] if needs else []),
        text.marks_column(marks),
    ]


def _limits(row: GateRow) -> str:
    return text.interval_text(row, partial(size, row))


def gate_markdown(
    results: Gate, heading: str, lost: Sequence[ItemComparisons] = (), link: str = ""
) -> str:
    """Return the decision, a table, and folded away how it was made: a comment in a review.

    Of many rows those that do not pass stand first, and the others are folded away.

    Parameters
    ----------
    lost
        Of a candidate each the items on which it did worse than the baseline.
    link
        Address of an item in the candidate's log, as of `address_of`; "" for none.
    """
    word, _, rest = sentence(results).partition(": ")
    marks = text.note_numbers(results.rows)
    blocks = [f"**{word}**: {markdown_text(rest)}"]
    rows, passed = _first_and_rest(results)
    if rows:
        blocks.append(_markdown_table(rows[:_LONGEST], marks))
    if more := rows[_LONGEST:]:
        blocks.append(_folded(f"{counted(len(more), 'more row')}", [_markdown_table(more, marks)]))
    blocks += [each for items in lost for each in _items_lost(items, link)]
    if passed:
        blocks.append(_folded(_that_pass(passed), [_markdown_table(passed, marks)]))
    notes = "\n".join(text.markdown_notes(_by_name(results, results.rows)))
    how = [markdown_text(" ".join(_legend(results)).strip()), *([notes] if notes else []), heading]
    return "\n\n".join([*blocks, _folded("How this was decided", how)]) + "\n"


def _markdown_table(rows: Sequence[GateRow], marks: Mapping[str, int]) -> str:
    task, *others = _columns(rows, marks)
    model = Column("Candidate", "model", least=8)
    return "\n".join(Table("", rows, [model, task, text.METRIC, *others]).markdown())


def address_of(link: str, log: str, item: str) -> str:
    """Return the address of an item in a log; "" for a log outside the working directory.

    Parameters
    ----------
    link
        Address in which ``{path}`` stands for the path of the log from the working directory, and
        ``{item}`` for the id of the item.

    >>> address_of("https://github.com/o/r/blob/main/{path}", "out/a (1).json", "7")
    'https://github.com/o/r/blob/main/out/a%20%281%29.json'
    """
    path = Path(log).absolute()
    if not (link and log and path.is_relative_to(Path.cwd())):
        return ""
    path = path.relative_to(Path.cwd())
    # Browsers would go up from such a part, to another address.
    if any(name.strip() in ("", ".", "..") for name in (*path.parts, item)):
        return ""
    parts = {
        "path": quote(path.as_posix().encode("utf-8", "surrogatepass")),
        "item": quote(item.encode("utf-8", "surrogatepass"), safe=""),
    }
    return re.sub(r"\{(path|item)\}", lambda part: parts[part[1]], link)


def _items_lost(lost: ItemComparisons, link: str) -> list[str]:
    """Return a sentence and a table of the items on which a candidate did worse."""
    if not lost.rows:
        return []
    first = lost.rows[0]
    n, shown = lost.n_flipped, len(lost.rows)
    said = f"{first.model_b} does worse than {first.model_a} on {counted(n, 'item')}"
    said += f"; the {shown} that tell most:" if shown < n else ":"
    header = ["Task", "Item", first.model_a, first.model_b, "Question", "Place in the logs"]
    rows: list[list[str | Link]] = []
    for row in lost:
        question = " ".join(visible(row.question).split())
        if len(question) > _QUESTION:
            question = f"{question[: _QUESTION - 1]}…"
        url = address_of(link, row.log_b, row.item)
        rows.append([
            f"{row.task} {text.short_metric(row.metric)}", row.item,
            f"{row.score_a:.3g}", f"{row.score_b:.3g}", question,
            Link(row.where or row.item, url) if url else row.where,
        ])  # fmt: skip
    table = markdown_table(header, rows, right=(2, 3))
    return [markdown_text(said), "\n".join(table)]


def _folded(summary: str, blocks: Sequence[str]) -> str:
    return "\n\n".join([f"<details><summary>{summary}</summary>", *blocks, "</details>"])


def gate_badge(results: Gate, form: Literal["svg", "json"]) -> str:
    """Return the decision as an image, or as the JSON that shields.io draws one from."""
    word = WORDS[results.decision].lower()
    colour = _COLOURS[results.decision]
    if form == "json":
        badge = {"schemaVersion": 1, "label": "evals", "message": word, "color": colour}
        return json.dumps(badge) + "\n"
    left, right = 40, 12 + 7 * len(word)
    texts = "".join(
        f'<text x="{x}" y="14" fill="#fff" text-anchor="middle">{shown}</text>'
        for x, shown in ((left / 2, "evals"), (left + right / 2, word))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="evals: {word}"><title>evals: {word}</title>'
        f'<rect width="{left + right}" height="20" rx="3" fill="{colour}"/>'
        f'<path d="M3 0h{left - 3}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444"/>'
        f'<g font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )


def gate_junit(results: Gate) -> str:
    """Return JUnit XML: a test case for each candidate, task and metric.

    A regression is a failure; what is inconclusive was skipped, with the reason. Logs that were
    left out, without which all rows pass, are a case that was skipped.
    """
    n_failed = sum(row.decision == "regressed" for row in results)
    n_skipped = sum(row.decision == "inconclusive" for row in results)
    left_out = results.decision == "inconclusive" and not n_skipped
    suite = ET.Element(
        "testsuite",
        name=visible(f"evalstats-plugin gate against {results.baseline}"),
        tests=str(len(results) + left_out),
        failures=str(n_failed),
        skipped=str(n_skipped + left_out),
    )
    if results.protocol:
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="protocol_sha256", value=results.protocol)
    for row in results:
        name = visible(f"{row.name} {text.short_metric(row.metric)}")
        case = ET.SubElement(suite, "testcase", classname=visible(row.model), name=name)
        if row.decision != "pass":
            kind = "failure" if row.decision == "regressed" else "skipped"
            ET.SubElement(case, kind, message=visible(_of_row(row)))
    if left_out:
        case = ET.SubElement(suite, "testcase", classname="logs", name="logs that were left out")
        ET.SubElement(case, "skipped", message=visible(sentence(results)))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def sentence(results: Gate) -> str:
    """Return the decision and what it rests on, in a sentence or two."""
    rows = [row for row in results if row.decision == results.decision]
    named_models = list(dict.fromkeys(row.model for row in rows))
    models = few(named_models, _MOST_NAMED)
    several = len({row.model for row in results}) > 1
    named = "; ".join(
        f"{f'{row.model}: ' if several else ''}{_of_row(row)}" for row in rows[:_MOST_NAMED]
    )
    named += f"; and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
    level = text.percent(results.confidence_level)
    word = WORDS[results.decision]
    of_all = f"{counted(len(results), 'comparison')} ({level}, all at once)"
    drop = "a drop"
    if parse_margin(results.margin)[0]:
        # As one number, or as it was given where tasks have several.
        margins = {row.margin for row in results if row.effect == "difference"}
        margin = f"{margins.pop():g}" if len(margins) == 1 else results.margin
        drop = f"a drop of more than {margin}"
    against = f"against {results.baseline}"
    if results.decision == "regressed":
        shows = "shows" if len(named_models) == 1 else "show"
        return f"{word}: {models} {shows} {drop} {against} in {len(rows)} of {of_all}: {named}."
    if results.decision == "inconclusive":
        if not rows:
            return f"{word}: no drop is shown, but logs were left out."
        return (
            f"{word}: {drop} of {models} {against} is neither found nor ruled out in {len(rows)} "
            f"of {of_all}: {named}."
        )
    if results.non_inferior:
        return f"{word}: {drop} of {models} {against} is ruled out in all of {of_all}."
    result = f"no regression{drop.removeprefix('a drop')}"
    said = f"{word}: {result} of {models} {against} found in {of_all}."
    worst = max(results, key=lambda row: row.largest_drop or 0.0)
    if not worst.largest_drop:
        return said
    drop = text.number(worst.largest_drop)
    return f"{said} Drops of up to {drop} ({worst.name}) are not ruled out."


def _margin(row: GateRow) -> str:
    """Return the margin in words: as a number, and as a share of the range where it is known."""
    if row.effect != "difference":
        return f"{text.percent(row.margin)} of the baseline's"
    if row.score_range is None:
        return f"{row.margin:g}"
    low, high = row.score_range
    share = text.percent(row.margin / (high - low))
    return f"{row.margin:g}, {share} of the range {low:g} to {high:g}"


def _detectable(results: Gate) -> str:
    """Return what drop would have been called regressed, on the task where it is largest."""
    rows = [row for row in results if row.low is not None]
    if not rows:
        return ""
    often = f"with {text.percent(POWER)} power"
    worst = max(rows, key=lambda row: math.inf if row.detectable is None else row.detectable)
    where = f" ({worst.name})" if len(rows) > 1 else ""
    if worst.detectable is None:
        return f"No true drop is detected {often}{where}: there are too few items."
    write = text.number if worst.effect == "difference" else text.percent
    most = "at most " if len(rows) > 1 else ""
    return f"Least true drop that is detected {often}: {most}{write(worst.detectable)}{where}."


def _of_row(row: GateRow) -> str:
    """Return a row in words: task, difference, limits, or why there are none."""
    name = f"{row.name} {text.short_metric(row.metric)}"
    if row.low is None or row.high is None:
        return f"{name} ({row.notes[-1]})"
    needed = f", about {row.items_needed:,} items would decide" if row.items_needed else ""
    return f"{name} {size(row, row.difference)} {_limits(row)}{needed}"


def _legend(results: Gate) -> list[str]:
    worse = "beyond it" if parse_margin(results.margin)[0] else "on the worse side of 0"
    passing = "no part is; inconclusive: neither." if results.non_inferior else "it is not."
    margins = list(dict.fromkeys(map(_margin, results)))
    several = "; ".join(margins[:_MOST_NAMED]) + "; …" * (len(margins) > _MOST_NAMED)
    accepted = [f"Acceptable drop: at most {several}."] * (worse == "beyond it")
    needed = (
        f"Items needed: they decide in {100 * POWER:g} of 100 evals if the true difference is the "
        "one seen."
    )
    verdicts = f"regressed: the whole interval is {worse}; pass: {passing}"
    protocol = f"Protocol {results.protocol[:_SHORT]} (SHA-256)." if results.protocol else ""
    return [
        " ".join(["Difference: candidate minus baseline.", *accepted]),
        *([verdicts, needed] if results.non_inferior else [verdicts]),
        " ".join(filter(None, (_detectable(results), protocol))),
    ]


_PAGE = text.page_view(
    _gate,
    json=lambda results: {
        "decision": results.decision,
        "sentence": sentence(results),
        **({"protocol_sha256": results.protocol} if results.protocol else {}),
    },
)
GATE = _PAGE._replace(to_markdown=gate_markdown)
