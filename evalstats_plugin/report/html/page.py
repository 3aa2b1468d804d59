"""Pages for browsers, each one file that fetches nothing and runs nothing that a log contains.

* `Page`, `to_html`: the report
* `leaderboard_html`: a leaderboard from votes
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from evalstats_plugin.comparisons.leaderboard import ScoreTable
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.report import text
from evalstats_plugin.report.comparisons import sampled_probability
from evalstats_plugin.report.html import board as boards
from evalstats_plugin.report.html import parts
from evalstats_plugin.report.html.board import Board
from evalstats_plugin.report.leaderboard import column_name
from evalstats_plugin.report.settings import settings_of
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.untrusted import visible
from evalstats_plugin.scores.items import ItemAnswers
from evalstats_plugin.scores.rows import CorrectedScore, Intervals

if TYPE_CHECKING:
    from evalstats_plugin.ranking.rows import Leaderboard, RankedPlayer
    from evalstats_plugin.scores.slices import SliceScore

MOST_IN_MATRIX = 30
"""Most players in the matrix of wins of an arena's page: the first ones."""

MOST_ROWS = 200_000
"""Most rows of a page: 100 MB of HTML, which browsers open slowly."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Contents of the page."""

    responses: Sequence[Responses]
    intervals: Intervals
    table: ScoreTable | None = None
    """Groups and tasks with the pairs behind their ranks; None if there is none, and a note then
    gives the reason."""
    answers: Sequence[ItemAnswers] = ()
    texts: Mapping[tuple[str, str, str], ItemText] = field(
        default_factory=dict[tuple[str, str, str], ItemText]
    )
    """By model, task and item id."""
    baseline: str | None = None
    """Model that the others are compared with where the page opens."""
    notes: Sequence[str] = ()
    about: Mapping[str, str] = field(default_factory=dict[str, str])
    """How the report was made, in the order shown."""
    slices: Sequence[SliceScore] = ()
    """Scores of slices of tasks, which have a view of their own."""
    judged: Sequence[CorrectedScore] = ()
    """Scores of a judge as people's labels correct them."""


def to_html(page: Page) -> str:
    """Return the page: the answer in sentences, a leaderboard, pairs, tasks, items and provenance.

    All text from logs is escaped, and the page's content security policy allows only its own
    script and no requests.

    Raises
    ------
    DesignError
        There are more rows than a browser opens.
    """
    rows = page.intervals.rows
    if (n_rows := len(page.intervals)) > MOST_ROWS:
        raise DesignError(
            f"the page would have {n_rows:,} rows of results, and browsers open {MOST_ROWS:,} "
            "at most: choose models or tasks (--models, --task), or write a table (--format csv)"
        )
    table = page.table if page.table is not None and page.table.rows else None
    board = None if table is None else Board(table, page.responses)
    models = board.models if board else tuple(dict.fromkeys(row.model for row in rows))
    metrics = {(c.name, c.metric) for c in board.tasks} if board else None
    answers = [
        task_answers
        for task_answers in page.answers
        if {*task_answers.models} <= {*models}
        and (metrics is None or (task_answers.task, task_answers.metric) in metrics)
    ]
    held, items_left = parts.held_items(answers)
    findings = boards.suspects(held)
    texts, texts_left = parts.texts_data(held, models, page.texts)
    marks = text.note_numbers(rows)
    settings = settings_of(page.responses)
    tables = {"scores": parts.scores_table(page.intervals, marks)}
    tables["logs"] = parts.logs_table(page.responses)
    tables |= {"settings": parts.settings_table(settings)} if settings else {}
    tables |= {"every-slice": parts.slices_table(page.slices)} if page.slices else {}
    tables |= {"every-judged": parts.judged_table(page.judged)} if page.judged else {}
    common = [*page.intervals.notes, *(page.table.notes if page.table else ()), *page.notes]
    left = [*filter(None, (items_left, texts_left))]
    data: dict[str, Any] = {
        "models": parts.distinct(models),
        "items": parts.items_data(held, models),
        "texts": texts,
        "tables": [parts.table_data(name, table) for name, table in tables.items()],
    }
    shown: dict[str, Any] = {"board": board}
    if board is not None:
        data["board"] = board.data()
        kept = data["board"]["kept"]
        if kept < len(models):
            left.append(
                f"This page compares the first {kept} models with each other, and the others with "
                "the first one; `evalstats-plugin compare` has every two."
            )
        data["baseline"] = models.index(page.baseline) if page.baseline in models else 0
        first, *more = boards.headline(board)
        lines, lines_left = board.lines()
        if lines_left:
            left.append(f"The leaderboard leaves out the last {counted(lines_left, 'model')}.")
        shown |= {
            "first": first, "more": more, "lines": lines, "ticks": board.ticks(),
            "lead": column_name((board.lead.kind, board.lead.name)),
            "about_ranks": boards.about_ranks(board),
        }  # fmt: skip
    n_tasks = len(board.tasks) if board else len({r.task for r in rows if r.kind == "task"})
    n_items = sum(len(task_answers.item_ids) for task_answers in answers)
    size = [counted(len(models), "model"), counted(n_tasks, "task")]
    size += [counted(n_items, "item")] if n_items else []
    contents: dict[str, Any] = {
        **shown,
        "size": " · ".join(size),
        "distrust": [
            *boards.of_judge(page.judged),
            *boards.distrust(board, findings, answers, page.responses, settings),
        ],
        "findings": findings,
        "left": left,
        "tables": tables,
        "slices": text.slice_sentences(page.slices),
        "slice_legend": text.slice_legend(page.slices),
        "about_rows": text.footnotes(rows),
        "common": list(dict.fromkeys(common)),
        "made": page.about,
        "data": data,
        "version": VERSION,
    }
    return _rendered("page", contents)


def _rendered(name: str, contents: Mapping[str, Any]) -> str:
    """Return a page of a template with its own style sheet and script."""
    css, script = (Markup(_part(f"{name}.{kind}")) for kind in ("css", "js"))  # noqa: S704 - our own
    # Only this style sheet and this script may run, and nothing may be fetched.
    style_hash, script_hash = (
        b64encode(sha256(code.encode()).digest()).decode() for code in (css, script)
    )
    policy = (
        f"default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    template = environment().get_template(f"{name}.jinja")
    return f"{template.render(contents, css=css, script=script, policy=policy)}\n"


def leaderboard_html(results: Leaderboard, about: Mapping[str, Any]) -> str:
    """Return the leaderboard as a page for browsers: one file without requests.

    The script sorts and searches; without it the table is whole. Players, like all text from files,
    are escaped.
    """
    from evalstats_plugin.report import rankings

    rows = results.overall.rows
    limits = [x for row in rows for x in (row.low, row.mean, row.high) if x is not None]
    low, high, scale = min(limits), max(limits), rows[0].scale
    width = (high - low) or 1.0
    names, lines = rankings.category_columns(results), rankings.category_lines(results)
    return _rendered(
        "arena",
        {
            "first": _leader(rows),
            "scale": {"elo": "Elo"}.get(scale, scale),
            "level": text.percent(rows[0].confidence_level),
            "ends": (rankings.rating(low, scale), rankings.rating(high, scale)),
            "rows": [
                {
                    "name": row.player,
                    "ranks": rankings.ranks(row),
                    "rating": rankings.rating(row.mean, scale),
                    "limits": rankings.limits(row),
                    "best": sampled_probability(row.prob_best),
                    "n": rankings.votes(row.n_contests, ","),
                    "may_lead": row.rank_low == 1,
                    # On an axis of 200 units.
                    "bar": [
                        None if x is None else round(4 + 192 * (x - low) / width, 1)
                        for x in (row.low, row.mean, row.high)
                    ],
                    # On an axis of 120 units: where the bar of the ranks begins, and its width.
                    "reach": [
                        round(120 / row.n_players * n, 1)
                        for n in (row.rank_low - 1, row.rank_high - row.rank_low + 1)
                    ],
                    "sort": (row.mean, row.prob_best, row.n_contests),
                    "categories": [
                        (ranks_of_category, ranks_of_category.partition("–")[0] or "NaN")
                        for ranks_of_category in ranks[2:]
                    ],
                }
                for row, ranks in zip(rows, lines, strict=True)
            ],
            "categories": names[2:],
            "against": _against(results),
            "notes": results.notes,
            "legend": rankings.legend(results.overall, results.anchor),
            "about": {name: "–" if value is None else str(value) for name, value in about.items()},
        },
    )


def _leader(rows: Sequence[RankedPlayer]) -> str:
    """Say who leads, and who cannot be told apart from the first place."""
    others = [row.player for row in rows[1:] if row.rank_low == 1]
    first = rows[0].player
    if not others:
        return f"{first} leads: it is better than each of the other {len(rows) - 1} beyond chance."
    if len(others) == len(rows) - 1:
        return f"No order can be told: all {len(rows)} may be the best. {first} is ahead."
    return f"{first} is ahead; {few(others, 4)} may be the best as well."


def _against(results: Leaderboard) -> list[tuple[str, list[tuple[str, str, int] | None]]]:
    """Return wins of each of the first players against the others: share, in words, step of 5."""
    from evalstats_plugin.report.rankings import votes

    names = [row.player for row in results.overall][:MOST_IN_MATRIX]

    def cell(i: int, j: int) -> tuple[str, str, int] | None:
        n = float(results.wins[i, j] + results.wins[j, i])
        if i == j or not n:
            return None
        share = 100 * float(results.wins[i, j]) / n
        said = f"{names[i]} won {share:.0f} % of {votes(n, ',')} votes against {names[j]}"
        return f"{share:.0f}", said, min(int(share // 20), 4)

    return [(name, [cell(i, j) for j in range(len(names))]) for i, name in enumerate(names)]


def environment() -> Environment:
    """Return the environment of templates: it escapes text, and cleans it as `visible` does."""

    def shown(value: object) -> object:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    made = Environment(
        loader=FunctionLoader(_part), autoescape=True, finalize=shown, undefined=StrictUndefined
    )
    cast("dict[str, Any]", made.globals)["shown"] = parts.SHOWN
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


def _part(name: str) -> str:
    return files("evalstats_plugin.report.html").joinpath(name).read_text("utf-8")
