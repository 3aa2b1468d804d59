"""``evalstats-plugin report``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli import figures, options
from evalstats_plugin.cli.sections import READING, Sectioned
from evalstats_plugin.tables.hierarchical import HIERARCHICAL_MODELS, INFERENCES

if TYPE_CHECKING:
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.response_set import ResponseSet
    from evalstats_plugin.results import Intervals, VarianceParts


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
@figures.option("intervals", "variance parts", "hierarchical")
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
    from evalstats_plugin.cli.hierarchical import hierarchical_model, show_hierarchical
    from evalstats_plugin.cli.html_report import page_of, write_html
    from evalstats_plugin.cli.printing import show
    from evalstats_plugin.cli.reading import read_logs
    from evalstats_plugin.cli.saving import analyse_saving
    from evalstats_plugin.plugins import load
    from evalstats_plugin.report.formats import to_markdown
    from evalstats_plugin.report.text import print_intervals

    page = page_of(chosen)
    # A page has comparisons of its own, which may have a baseline.
    model = hierarchical_model({**chosen, "baseline": None} if page else chosen)
    kinds = ("intervals", "variance parts") if model is None else ("hierarchical",)
    figures.check(chosen, *kinds)
    plugins = load(ctx.obj or ())
    responses = read_logs(paths, chosen, plugins)
    if model is not None:
        show_hierarchical(ctx, responses, chosen, model)
        return
    if chosen["at_k"]:
        from evalstats_plugin.analyses.epochs import with_at_k

        responses = with_at_k(responses, chosen["at_k"])
    results = analyse_saving(responses, chosen, plugins)
    results = analyse(responses, chosen, plugins) if results is None else results
    figures.save_asked(
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
        to_markdown=to_markdown,
    )


def _variance_parts(responses: ResponseSet) -> VarianceParts:
    from evalstats_plugin.analyses.epochs import variance_parts

    return variance_parts(responses)


def analyse(responses: ResponseSet, chosen: Mapping[str, Any], plugins: Plugins) -> Intervals:
    """Run the interval analysis as the options say."""
    from evalstats_plugin.analyses.intervals import intervals
    from evalstats_plugin.tables import check_name

    if chosen.get("derive"):
        from evalstats_plugin.analyses.derive import with_derived

        responses = replace(responses, responses=with_derived(responses, chosen["derive"]))
    table = plugins.methods()
    check_name(chosen["method"], table)
    name = chosen["method"]
    return intervals(
        responses,
        confidence_level=chosen["confidence_level"],
        method=name if name == "auto" else table[name],
        prior=chosen["prior"],
        bounds=chosen["bounds"],
        population=chosen["population"],
        rng=chosen["seed"],
    )
