"""``evalstats-plugin annotate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell import options
from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses
    from evalstats_plugin.scores.rows import Intervals


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Folder for annotated copies."
)
@click.option("--in-place", is_flag=True, help="Annotate the results files themselves.")
@click.option("--strip", "take_out", is_flag=True, help="Remove annotations.")
@click.option(
    "--rescore",
    is_flag=True,
    help="Replace logged values that disagree with their items; the old values are "
    "kept in the evalstats block.",
)
@click.option("--compare", is_flag=True, help="Write comparisons with the baseline into each log.")
@click.option(
    "--baseline",
    metavar="MODEL",
    help="Model to compare with; implies --compare.  [default: the first]",
)
@options.comparison
@click.option(
    "--items",
    type=click.Choice(["no", "metadata", "columns"]),
    default="no",
    show_default=True,
    help="Write item statistics into each sample's metadata, or also show them as "
    "columns (Inspect).",
)
@click.option(
    "--irt",
    is_flag=True,
    help="Write item response theory (IRT) abilities over all these logs; with "
    "--items also item difficulties and flags.",
)
@click.option(
    "--hierarchical",
    is_flag=True,
    help="Write pooled scores from a hierarchical model over all these logs.",
)
@options.cluster
@options.include_incomplete
@options.analysis
@options.quiet
@click.pass_context
def annotate(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Write intervals and comparisons into the harness's own results files.

    lm-eval's samples files are never touched, and no file is added beside the harness's own.
    """
    from evalstats_plugin.cli.shell.options import analyse
    from evalstats_plugin.data.responses import Selection
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.logs import annotating
    from evalstats_plugin.plugins import load_plugins

    plugins = load_plugins(ctx.obj or ())
    where: dict[str, Any] = {"output": chosen["output"], "in_place": chosen["in_place"]}
    if chosen["take_out"]:
        with_it = ("rescore", "compare", "baseline", "irt", "hierarchical", "items")
        given = [name for name in with_it if chosen[name] not in (False, None, "no")]
        if given:
            msg = f"--strip and --{given[0]} found together, expected one of them"
            raise SelectionError(msg)
        written = annotating.strip(*paths, **where, plugins=plugins)
    else:

        def analysis(responses: Sequence[Responses]) -> Intervals:
            return analyse(ResponseSet(tuple(responses)), chosen, plugins)

        selection = Selection(
            cluster=chosen["cluster"], include_incomplete=chosen["include_incomplete"]
        )
        written = annotating.annotate(
            *paths,
            **where,
            rescore=chosen["rescore"],
            compare=_comparison(chosen),
            baseline=chosen["baseline"],
            items=chosen["items"],
            irt=chosen["irt"],
            hierarchical=chosen["hierarchical"],
            selection=selection,
            analysis=analysis,
            plugins=plugins,
        )
    if not chosen["quiet"]:
        for path in written:
            click.echo(path)


def _comparison(chosen: Mapping[str, Any]) -> Mapping[str, Any] | bool:
    """Return what to compare and how; False without a comparison."""
    design, correction = options.design_of(chosen), chosen["correction"]
    asked = chosen["compare"] or chosen["baseline"] is not None
    if asked:
        return {"design": design, "correction": correction}
    if design != "paired" or correction != "holm":
        msg = "a design or a correction found without a comparison, expected --compare with it"
        raise SelectionError(msg)
    return False
