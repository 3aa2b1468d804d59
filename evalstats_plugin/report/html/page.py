"""The report as one HTML file, which fetches nothing and runs nothing that a log contains."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files

from evalstats_plugin.comparisons.rows import Comparison, Comparisons
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.report import text
from evalstats_plugin.report.comparisons import PROBABILITY
from evalstats_plugin.report.html import parts
from evalstats_plugin.report.html.parts import (
    comparisons_table,
    held,
    held_items,
    items_table,
    logs_table,
    ranks,
    ranks_table,
    scores_table,
)
from evalstats_plugin.report.html.table import (
    Markup,
    Table,
    data,
    element,
    joined,
    table_data,
    table_html,
)
from evalstats_plugin.runtime import VERSION
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
    body: str = Markup()


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
    css = _part("page.css") + figures.css
    script = _part("page.js")
    tables = [section.table for section in sections if section.table is not None]
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(css, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        # Otherwise a browser asks the server for an icon.
        element("link", rel="icon", href="data:,"),
        element("title", "Evaluation report"),
        element("style", Markup(css)),
    ]
    body = [
        _header(),
        *_summary(page),
        _contents(sections),
        _controls(),
        *[_section_html(section) for section in sections],
        element("footer", element("p", f"Made by evalstats-plugin {VERSION}.")),
        data({"tables": [table_data(table) for table in tables]}, id="data"),
        element("script", Markup(script)),
    ]
    whole = element("html", element("head", *head), element("body", *body), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


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
        found.append(
            _Section(name="figures", title="Figures", said=said, body=joined(*figures.figures))
        )
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
    numbered = [
        element("li", f"{note} ({few(list(places))})", id=f"note-{i}")
        for i, (note, places) in enumerate(about.items(), 1)
    ]
    whole = [element("li", note) for note in common]
    body = joined(
        element("ol", *numbered, class_="said") if numbered else Markup(),
        element("ul", *whole, class_="said") if whole else Markup(),
    )
    said = [] if numbered or whole else ["There is nothing to note."]
    return _Section(name="notes", title="Notes", said=said, body=body)


def _section_html(section: _Section) -> Markup:
    parts = [element("h2", section.title), *[element("p", text) for text in section.said]]
    parts += [table_html(section.table)] if section.table is not None else []
    return element("section", *parts, section.body, id=section.name)


def _header() -> Markup:
    options = [element("option", text, value=text) for text in ("system", "light", "dark")]
    choice = element("select", *options, id="theme")
    parts = (element("label", "Theme ", for_="theme"), choice)
    return element(
        "header", element("h1", "Evaluation report"), element("div", *parts, class_="controls")
    )


def _contents(sections: Sequence[_Section]) -> Markup:
    links = [element("a", section.title, href=f"#{section.name}") for section in sections]
    return element("nav", *links, class_="parts", aria_label="Parts of this page")


def _summary(page: Page) -> list[Markup]:
    """Return the main counts, and how the report was made."""
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
    return [
        element(
            "dl",
            *[element("div", element("dt", name), element("dd", said)) for name, said in part],
            class_=f"about {kind}",
        )
        for part, kind in ((found.items(), "large"), (page.about.items(), "small"))
    ]


def _controls() -> Markup:
    """Return the filter, which is hidden without scripts."""
    everything = element("option", "all", value="")
    chosen = [
        _field(name.capitalize(), f"filter-{name}",
               element("select", everything, name=name, id=f"filter-{name}"))
        for name in ("model", "task", "metric")
    ]  # fmt: skip
    text = element("input", type="search", name="text", autocomplete="off", id="filter-text")
    tick = element("input", type="checkbox", name="flagged")
    return element(
        "form",
        _field("Text in any column", "filter-text", text),
        *chosen,
        element("label", tick, "Clear differences and flagged items only", class_="check"),
        element("button", "Show all", type="reset"),
        element("output", name="found"),
        id="filter", class_="controls", role="search", aria_label="Filter all tables",
    )  # fmt: skip


def _field(name: str, place: str, control: Markup) -> Markup:
    return element("div", element("label", name, for_=place), control, class_="field")
