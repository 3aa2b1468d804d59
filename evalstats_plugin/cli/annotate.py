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
@click.option("--strip", "take_out", is_flag=True, help="Take annotations out again.")
@click.option(
    "--rescore",
    is_flag=True,
    help="Replace logged values that their items contradict; the old ones are kept in the block.",
)
@click.option(
    "--compare", is_flag=True, help="Write into each log how its model compares with the baseline."
)
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
    help="Write statistics of each item into its metadata, or show them as columns too (Inspect).",
)
@click.option(
    "--irt",
    is_flag=True,
    help="Write how able each model is, over all these logs; with --items also how hard items are "
    "and which to look at.",
)
@click.option(
    "--hierarchical",
    is_flag=True,
    help="Write what each model is expected to score when models and tasks, over all these logs, "
    "borrow from each other.",
)
@options.cluster
@options.include_incomplete
@options.analysis
@options.quiet
@click.pass_context
def annotate(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Write the intervals into the harness's own results files.

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
