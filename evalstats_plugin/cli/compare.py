"""``evalstats-plugin compare``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli import options

if TYPE_CHECKING:
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.results import Comparisons

CORRECTIONS = ("holm", "bh", "maxt", "none")
"""Values of `evalstats_plugin.analyses.compare.Correction`; a test compares."""


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@options.reading
@click.option(
    "--baseline", metavar="MODEL", help="Compare the others with this model, not every two."
)
@click.option(
    "--correction",
    type=click.Choice(CORRECTIONS),
    default="holm",
    show_default=True,
    help="For many pairs: holm and maxt let hardly any false finding through, bh only a few.",
)
@options.level_and_method
@options.form
@options.quiet
@click.pass_context
def compare(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Show which models differ for certain, item by item.

    PATHS are results files, folders or patterns; together they hold two models or more.
    """
    from evalstats_plugin.cli.printing import show
    from evalstats_plugin.plugins import load
    from evalstats_plugin.report import comparisons

    show(
        ctx,
        _analyse(paths, chosen, load(ctx.obj or ())),
        chosen,
        ("baseline", "confidence_level", "method", "correction", "seed"),
        print_table=comparisons.print_comparisons,
        to_markdown=comparisons.to_markdown,
    )


def _analyse(paths: tuple[str, ...], chosen: Mapping[str, Any], plugins: Plugins) -> Comparisons:
    from evalstats_plugin.analyses.compare import compare as compare_models
    from evalstats_plugin.analyses.comparison_methods import COMPARISONS
    from evalstats_plugin.cli.reading import read_logs
    from evalstats_plugin.methods import check_name

    table = plugins.methods(COMPARISONS)
    check_name(chosen["method"], table)
    return compare_models(
        read_logs(paths, chosen, plugins),
        baseline=chosen["baseline"],
        confidence_level=chosen["confidence_level"],
        method=table.get(chosen["method"], "auto"),
        correction=chosen["correction"],
        bounds=chosen["bounds"],
        rng=chosen["seed"],
    )
