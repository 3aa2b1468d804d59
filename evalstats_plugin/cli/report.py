"""``evalstats-plugin report``: scores with intervals, and the page for browsers."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell import options, output
from evalstats_plugin.cli.shell.commands import Sectioned
from evalstats_plugin.cli.shell.options import READING, analyse
from evalstats_plugin.errors import DesignError, SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.rows import Comparisons
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.scores.rows import Intervals, VarianceParts

PAGE_SUFFIXES = (".html", ".htm")

MOST_PAIRS = 600_000
"""Number of comparisons up to which the page compares every two models; beyond, each model is
compared with the best of its task."""

_SECTIONS = {
    "Intervals": ("confidence_level", "method", "prior", "bounds", "population", "seed"),
    "More scores": ("derive", "at_k", "control_variate"),
    "Output": ("html", "baseline", "figure", "figure_file", "form", "quiet"),
    **READING,
}  # fmt: skip


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--control-variate",
    is_flag=True,
    help="For models that ran a part of what others ran: intervals for all of it, corrected by "
    "how hard the others found each item.",
)
@output.figure_option("intervals", "variance parts")
@click.option(
    "--html",
    metavar="FILE",
    help="Also write a page for browsers, one file: tables to sort and filter, comparisons, "
    "figures, items.",
)
@click.option(
    "--baseline", metavar="MODEL", help="On the page, compare the others with this model only."
)
@options.reading
@options.analysis
@options.derive
@options.at_k
@options.form
@options.quiet
@click.pass_context
def report(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Report every score with a confidence interval that holds at any n.

    PATHS are results files, folders or patterns; "-" reads one JSON object from standard input.
    """
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.cli.shell.reading import read_logs
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.report.text import intervals_markdown, print_intervals

    page = _place_of_page(chosen)
    output.check_figure(chosen, "intervals", "variance parts")
    plugins = load_plugins(ctx.obj or ())
    responses = read_logs(paths, chosen, plugins)
    if chosen["at_k"]:
        from evalstats_plugin.scores.epochs import with_at_k

        responses = with_at_k(responses, chosen["at_k"])
    run = _with_control_variate if chosen["control_variate"] else analyse
    results = run(responses, chosen, plugins)
    output.save_asked(
        chosen, {"intervals": lambda: results, "variance parts": lambda: _variance_parts(responses)}
    )
    if page is not None:
        _write_page(responses, results, chosen, page)
    show(
        ctx,
        results,
        chosen,
        ("confidence_level", "method", "seed"),
        print_table=print_intervals,
        to_markdown=intervals_markdown,
    )


def _with_control_variate(
    responses: ResponseSet, chosen: Mapping[str, Any], plugins: Plugins
) -> Intervals:
    from evalstats_plugin.data.methods import check_name
    from evalstats_plugin.plugins import PURPOSES
    from evalstats_plugin.scores.control_variate import control_variate

    for name in ("population", "prior"):
        if chosen[name] is not None:
            msg = f"--control-variate and --{name} do not go together: pass one of them"
            raise SelectionError(msg)
    table, name = plugins.methods(), chosen["method"]
    check_name(name, table, PURPOSES)
    return control_variate(
        responses,
        confidence_level=chosen["confidence_level"],
        method=name if name == "auto" else table[name],
        bounds=chosen["bounds"],
        rng=chosen["seed"],
    )


def _variance_parts(responses: ResponseSet) -> VarianceParts:
    from evalstats_plugin.scores.epochs import variance_parts

    return variance_parts(responses)


def _place_of_page(chosen: Mapping[str, Any]) -> Path | None:
    """Return where the page goes, None without one; a bad place is refused before the work."""
    name = chosen["html"]
    if name is None:
        if chosen["baseline"] is not None:
            msg = "--baseline is for the page: pass --html FILE too, or use `compare --baseline`"
            raise SelectionError(msg)
        return None
    if name == "-":
        msg = "--html - found, expected the name of a file, such as report.html: a page is a file"
        raise SelectionError(msg)
    from evalstats_plugin.runtime.files import check_output_path

    return check_output_path(name, PAGE_SUFFIXES, asked="--html")


def _write_page(
    responses: ResponseSet, intervals: Intervals, chosen: Mapping[str, Any], path: Path
) -> None:
    """Compare the models, look at the items, and write the page."""
    from evalstats_plugin.report.html.page import Page, to_html
    from evalstats_plugin.runtime.files import write_bytes
    from evalstats_plugin.scores.items import item_answers

    comparisons, notes = _compared(responses, chosen)
    answers, about_items = item_answers(responses)
    page = Page(
        responses=responses.responses,
        intervals=intervals,
        comparisons=comparisons,
        answers=answers,
        notes=(*notes, *about_items),
        about=_about(responses, chosen),
    )
    write_bytes(path, to_html(page).encode())
    if not chosen["quiet"]:
        click.echo(f"written: {path}", file=sys.stderr)


def _compared(
    responses: ResponseSet, chosen: Mapping[str, Any]
) -> tuple[Comparisons | None, Sequence[str]]:
    """Compare every two models, or say why not."""
    from evalstats_plugin.comparisons.compare import compare

    counts = Counter((r.task, r.metric) for r in responses)
    n_pairs = sum(n * (n - 1) // 2 for n in counts.values())
    baseline, notes = chosen["baseline"], []
    if baseline is None and n_pairs > MOST_PAIRS:
        baseline = "best"
        notes = [
            f"up to {n_pairs:,} comparisons of two models are too many for one page: each model "
            "was compared with the best of its task"
        ]
    try:
        found = compare(
            responses,
            baseline=baseline,
            confidence_level=chosen["confidence_level"],
            bounds=chosen["bounds"],
            rng=chosen["seed"],
        )
    except DesignError as error:
        return None, [*notes, f"models were not compared: {error}"]
    return found, notes


def _minute(when: str) -> str:
    """Return a time, which each harness writes in its own way, to the minute."""
    if not re.match(r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d", when):
        return when
    return f"{when[:10]} {when[11:13]}:{when[14:16]}"


def _about(responses: ResponseSet, chosen: Mapping[str, Any]) -> dict[str, str]:
    from evalstats_plugin.errors import few
    from evalstats_plugin.report.text import percent
    from evalstats_plugin.runtime import VERSION

    sources = [r.source for r in responses]
    harnesses = dict.fromkeys(f"{s.harness} {s.version or ''}".strip() for s in sources)
    times = sorted(_minute(s.when) for s in sources if s.when)
    runs = "" if not times else times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return {
        "Made by": f"evalstats-plugin {VERSION}",
        "Made at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Harness": few(list(harnesses)),
        "Runs": runs or "not logged",
        "Logs": f"{len({str(s.path) for s in sources}):,}",
        "Confidence level": percent(chosen["confidence_level"]),
        "Interval method": chosen["method"],
        "Correction": "holm, over all pairs of a task",
        "Seed": str(chosen["seed"]),
    }
