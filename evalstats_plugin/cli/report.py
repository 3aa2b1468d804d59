"""``evalstats-plugin report``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli import options

if TYPE_CHECKING:
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.response_set import ResponseSet
    from evalstats_plugin.results import Intervals


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
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
    from evalstats_plugin.cli.printing import show
    from evalstats_plugin.cli.reading import read_logs
    from evalstats_plugin.cli.saving import analyse_saving
    from evalstats_plugin.plugins import load
    from evalstats_plugin.report.formats import to_markdown
    from evalstats_plugin.report.text import print_intervals

    plugins = load(ctx.obj or ())
    responses = read_logs(paths, chosen, plugins)
    if chosen["at_k"]:
        from evalstats_plugin.analyses.epochs import with_at_k

        responses = with_at_k(responses, chosen["at_k"])
    results = analyse_saving(responses, chosen, plugins)
    results = analyse(responses, chosen, plugins) if results is None else results
    show(
        ctx,
        results,
        chosen,
        ("confidence_level", "method", "seed"),
        print_table=print_intervals,
        to_markdown=to_markdown,
    )


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
