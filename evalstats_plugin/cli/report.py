"""``evalstats-plugin report``."""
# PART html_report - ``evalstats-plugin report --html``: where the page goes, and what is put on it.

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
from evalstats_plugin.cli.shell.options import READING, Sectioned, analyse
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.hierarchical.methods import HIERARCHICAL_MODELS, INFERENCES

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.rows import Comparisons
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.scores.rows import Intervals, VarianceParts


_SECTIONS = {
    "Intervals": ("confidence_level", "method", "prior", "bounds", "population", "seed"),
    "More scores, and more out of them": (
        "derive", "at_k", "control_variate", "judge", "human", "labels",
    ),
    "Borrowing strength": (
        "model", "inference", "chains", "draws", "warm_up", "covariates", "baseline",
    ),
    "What is shown": ("html", "figure", "figure_file", "form", "quiet"),
    **READING,
}  # fmt: skip


SUFFIXES = (".html", ".htm")


MOST_PAIRS = 600_000
"""Comparisons up to which every two models are; of more, each with the best of its task."""


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--model",
    metavar="NAME",
    help="hierarchical: every score borrows from the other models and tasks; or "
    f"hierarchical:NAME, of {', '.join(HIERARCHICAL_MODELS)}.",
)
@click.option(
    "--inference",
    metavar="NAME",
    help=f"How it is inferred: auto, {', '.join(INFERENCES)}.  [default: auto, by structure]",
)
@click.option("--chains", type=int, metavar="N", help="Of draws.  [default: 4]")
@click.option("--draws", type=int, metavar="N", help="Of each chain.  [default: 1000]")
@click.option(
    "--warm-up", type=int, metavar="N", help="Draws of each chain not kept.  [default: 300]"
)
@click.option(
    "--covariates",
    metavar="CSV",
    multiple=True,
    help="Table with a column model (or task) and columns of numbers that may explain "
    "performance (or difficulty); may be repeated.",
)
@click.option("--baseline", metavar="MODEL", help="Compare the others with this model.")
@output.figure_option("intervals", "variance parts", "hierarchical")
@click.option(
    "--html",
    metavar="FILE",
    help="Also write a page for browsers, one file: tables to sort and filter, comparisons (with "
    "--baseline of the others with it), figures, items.",
)
@options.reading
@options.analysis
@options.derive
@options.at_k
@options.saving
@options.form
@options.quiet
@click.pass_context
def report(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Show every score with an interval that holds at any n.

    PATHS are results files, folders or patterns; "-" reads one JSON object from standard input.
    """
    from evalstats_plugin.cli.judge import analyse_saving
    from evalstats_plugin.cli.pool import hierarchical_model, show_hierarchical
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.cli.shell.reading import read_logs
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.report.text import intervals_markdown, print_intervals

    page = page_of(chosen)
    # A page has comparisons of its own, which may have a baseline.
    model = hierarchical_model({**chosen, "baseline": None} if page else chosen)
    kinds = ("intervals", "variance parts") if model is None else ("hierarchical",)
    output.check_figure(chosen, *kinds)
    plugins = load_plugins(ctx.obj or ())
    responses = read_logs(paths, chosen, plugins)
    if model is not None:
        show_hierarchical(ctx, responses, chosen, model)
        return
    if chosen["at_k"]:
        from evalstats_plugin.scores.epochs import with_at_k

        responses = with_at_k(responses, chosen["at_k"])
    results = analyse_saving(responses, chosen, plugins)
    results = analyse(responses, chosen, plugins) if results is None else results
    output.save_asked(
        chosen, {"intervals": lambda: results, "variance parts": lambda: _variance_parts(responses)}
    )
    if page is not None:
        write_html(responses, results, chosen, page)
    show(
        ctx,
        results,
        chosen,
        ("confidence_level", "method", "seed"),
        print_table=print_intervals,
        to_markdown=intervals_markdown,
    )


def _variance_parts(responses: ResponseSet) -> VarianceParts:
    from evalstats_plugin.scores.epochs import variance_parts

    return variance_parts(responses)


def page_of(chosen: Mapping[str, Any]) -> Path | None:
    """Return where the page is to go, None without one; refuse before the work, not after it.

    Raises
    ------
    SelectionError
        There is no page of what is asked for. Or the name does not end as those of pages do: it
        might be that of a log.
    WriteError
        No file of this name can be written.
    """
    name = chosen["html"]
    if name is None:
        return None
    if chosen["model"] is not None:
        msg = f"--html and --model {chosen['model']} found together: there is no page of that yet"
        raise SelectionError(msg)
    if name == "-":
        msg = "--html - found, expected the name of a file, such as report.html: a page is a file"
        raise SelectionError(msg)
    from evalstats_plugin.runtime.files import check_place

    return check_place(name, SUFFIXES, asked="--html")


def write_html(
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
