"""``evalstats-plugin compare``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell import options, output

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.rows import Comparisons
    from evalstats_plugin.plugins import Plugins


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@options.reading
@click.option(
    "--baseline", metavar="MODEL",
    help="Compare the others with this model instead of every pair; best: with the "
        "best model of each task.",
)  # fmt: skip
@options.comparison
@options.at_k
@options.level_and_method
@output.figure_option("comparisons")
@options.form
@options.quiet
@click.pass_context
def compare(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Compare models on the same items (paired), or with --unpaired on their own.

    PATHS are results files, folders or patterns; together they hold two models or more.
    """
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.report import comparisons as report_comparisons

    output.check_figure(chosen, "comparisons")
    results = _analyse(paths, chosen, load_plugins(ctx.obj or ()))
    output.save_asked(chosen, {"comparisons": lambda: results})
    show(
        ctx,
        results,
        chosen,
        ("baseline", "confidence_level", "method", "correction", "seed"),
        print_table=report_comparisons.print_comparisons,
        to_markdown=report_comparisons.comparisons_markdown,
    )


def _analyse(paths: tuple[str, ...], chosen: Mapping[str, Any], plugins: Plugins) -> Comparisons:
    from evalstats_plugin.cli.shell.reading import read_logs, store_at
    from evalstats_plugin.comparisons.compare import DESIGNS
    from evalstats_plugin.comparisons.compare import compare as compare_models
    from evalstats_plugin.data.methods import check_name
    from evalstats_plugin.data.store import ResponseStore
    from evalstats_plugin.plugins import PURPOSES

    design = options.design_of(chosen)
    table = plugins.methods(DESIGNS[design][1])
    check_name(chosen["method"], table, PURPOSES)
    store = store_at(paths, chosen)
    responses = read_logs(paths, chosen, plugins) if store is None else store
    if chosen["at_k"] and not isinstance(responses, ResponseStore):
        from evalstats_plugin.scores.epochs import with_at_k

        responses = with_at_k(responses, chosen["at_k"])
    return compare_models(
        responses,
        design=design,
        baseline=chosen["baseline"],
        confidence_level=chosen["confidence_level"],
        method=table.get(chosen["method"], "auto"),
        correction=chosen["correction"],
        bounds=chosen["bounds"],
        rng=chosen["seed"],
    )
