"""The report as one HTML file, which fetches nothing and runs nothing that a log contains."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import Any, cast

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from evalstats_plugin.comparisons.rows import Comparison, Comparisons
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.report import text
from evalstats_plugin.report.comparisons import PROBABILITY
from evalstats_plugin.report.html import parts
from evalstats_plugin.report.html.parts import (
    SHOWN,
    Table,
    comparisons_table,
    held,
    held_items,
    items_table,
    logs_table,
    ranks,
    ranks_table,
    scores_table,
    table_data,
)
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.untrusted import visible
from evalstats_plugin.scores.items import ItemAnswers
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

SCORES = (
    "Each score with an interval that holds the true one as often as its level says. The bar goes "
    "from limit to limit, with a stroke at the estimate."
)
PAIRS = (
    "Each model is set against another, on the items that both answered unless a note says "
    "otherwise. better, worse: beyond chance at the confidence level, allowing for all pairs of "
    "the task. unclear: these items do not tell the two apart."
)
RANKS = (
    "A rank is open to a model where these comparisons do not rule it out. Models of one task that "
    "share a letter cannot be told apart."
)
ITEMS = (
    "Open an item to see what each model scored on it. With the rest: whether models that do well "
    "on the other items do well on this one. all right, all wrong: it tells no two models apart. "
    "against the rest: the better the model, the worse on this item, beyond what chance does to "
    "one item in 20: its key may be wrong."
)


@dataclass(frozen=True, kw_only=True)
class Page:
    """Contents of the page."""

    responses: Sequence[Responses]
    intervals: Intervals
    comparisons: Comparisons | None = None
    """None if nothing can be compared; a note then gives the reason."""
    answers: Sequence[ItemAnswers] = ()
    notes: Sequence[str] = ()
    about: Mapping[str, str] = field(default_factory=dict[str, str])
    """How the report was made, in the order shown."""


@dataclass(frozen=True, kw_only=True)
class _Section:
    name: str
    title: str
    said: Sequence[str]
    table: Table | None = None
    figures: Sequence[tuple[str, Markup]] = ()
    footnotes: Sequence[str] = ()
    notes: Sequence[str] = ()


MOST_ROWS = 200_000
"""Most rows of a page: 100 MB of HTML, which browsers open slowly."""


def to_html(page: Page) -> str:
    """Return the page: tables to sort and filter, figures, items, notes, and provenance.

    All text from logs is escaped, and the page's content security policy allows only its own
    script and no requests.

    Raises
    ------
    DesignError
        There are more rows than a browser opens.
    """
    # Of comparisons the page holds the first.
    n_rows = len(page.intervals)
    if n_rows > MOST_ROWS:
        msg = (
            f"the page would have {n_rows:,} rows of results, and browsers open {MOST_ROWS:,} at "
            "most: choose models or tasks (--models, --task), or write a table "
            "(--format csv)"
        )
        raise DesignError(msg)
    figures = parts.drawn(page.intervals, page.comparisons)
    sections = _sections(page, figures)
    css = Markup(_part("page.css") + figures.css)  # noqa: S704 - our own
    script = Markup(_part("page.js"))  # noqa: S704 - our own
    html = (
        environment()
        .get_template("page.jinja")
        .render(
            sections=sections,
            data=[table_data(s.table) for s in sections if s.table is not None],
            counts=_counts(page),
            made=page.about,
            css=css,
            script=script,
            policy=_policy(css, script),
            version=VERSION,
        )
    )
    return f"{html}\n"


def environment() -> Environment:
    """Return the environment of templates: it escapes text, and cleans it as `visible` does."""

    def shown(value: object) -> object:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    made = Environment(
        loader=FunctionLoader(_part), autoescape=True, finalize=shown, undefined=StrictUndefined
    )
    cast("dict[str, Any]", made.globals)["shown"] = SHOWN
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


def _part(name: str) -> str:
    return files("evalstats_plugin.report.html").joinpath(name).read_text("utf-8")


def _policy(css: str, script: str) -> str:
    """Return a content security policy for this style sheet and script alone."""
    style_hash, script_hash = (
        b64encode(sha256(text.encode()).digest()).decode() for text in (css, script)
    )
    return (
        f"default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _sections(page: Page, figures: parts.Drawn) -> list[_Section]:
    compared = page.comparisons.rows if page.comparisons is not None else ()
    order = ranks(compared)
    pairs, pairs_left = held(compared, order)
    items, items_left = held_items(page.answers)
    marks = text.note_numbers([*page.intervals.rows, *pairs])
    found = [
        _Section(name="scores", title="Scores", said=[SCORES],
                 table=scores_table(page.intervals, marks)),
    ]  # fmt: skip
    if order:
        found.append(_Section(name="ranks", title="Ranks", said=[RANKS], table=ranks_table(order)))
    if pairs:
        said = [PAIRS + PROBABILITY, *filter(None, [pairs_left])]
        found.append(
            _Section(name="comparisons", title="Comparisons", said=said,
                     table=comparisons_table(pairs, marks))
        )  # fmt: skip
    if figures.figures or figures.left_out:
        said = [f"Not drawn: {text}." for text in figures.left_out]
        found.append(_Section(name="figures", title="Figures", said=said, figures=figures.figures))
    if items:
        said = [ITEMS, *filter(None, [items_left])]
        found.append(_Section(name="items", title="Items", said=said, table=items_table(items)))
    found.append(_notes([*page.intervals.rows, *pairs], _common_notes(page)))
    logs = logs_table(page.responses)
    found.append(_Section(name="logs", title="Provenance", said=[], table=logs))
    return found


def _common_notes(page: Page) -> list[str]:
    said = [*page.intervals.notes, *(page.comparisons.notes if page.comparisons else ())]
    return list(dict.fromkeys([*said, *page.notes]))


def _notes(rows: Sequence[ScoreInterval | Comparison], common: Sequence[str]) -> _Section:
    """List each note once with the rows it is about, then the notes on all results."""
    about: dict[str, dict[str, None]] = {}
    for row in rows:
        for note in row.notes:
            about.setdefault(note, {})[text.task_and_metric(row)] = None
    numbered = [f"{note} ({few(list(places))})" for note, places in about.items()]
    said = [] if numbered or common else ["There is nothing to note."]
    return _Section(name="notes", title="Notes", said=said, footnotes=numbered, notes=common)


def _counts(page: Page) -> dict[str, str]:
    """Return the main counts."""
    rows = page.intervals.rows
    tasks = {row.task for row in rows if row.kind == "task"}
    found = {
        "Models": f"{len({row.model for row in rows}):,}",
        "Tasks": f"{len(tasks):,}",
        "Scores": f"{len(rows):,}",
    }
    if page.comparisons is not None:
        clear = sum(row.verdict != "unclear" for row in page.comparisons)
        found["Clear differences"] = f"{clear:,} of {len(page.comparisons):,}"
    if page.answers:
        flags = [flag for one in page.answers for flag in one.flags]
        found["Flagged items"] = f"{sum(map(bool, flags)):,} of {len(flags):,}"
    return found
