"""``evalstats-plugin irt``."""

from __future__ import annotations

from typing import Any

import click

from evalstats_plugin.cli.shell import options, output
from evalstats_plugin.cli.shell.commands import Sectioned
from evalstats_plugin.cli.shell.options import READING
from evalstats_plugin.irt.methods import ESTIMATORS, ITEM_MODELS, MASKS, RESPONSES

OVER = ("items", "models", "clusters", "parametric")
"""Those of `evalstats_plugin.irt.bootstrap`, which costs NumPy; a test compares."""

_SECTIONS = {
    "What is fitted": (
        "item_model", "estimator", "response", "dimensions", "rotation", "groups", "device",
    ),
    "What is shown": (
        "baseline", "items", "confidence_level", "figure", "figure_file", "form", "quiet",
    ),
    "How sure it is, and whether it holds": (
        "bootstrap", "over", "holdout", "draws", "dif", "seed",
    ),
    "Saved fits": ("save", "bank", "link"),
    **READING,
}  # fmt: skip


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--item-model",
    metavar="NAME",
    help=f"How items differ: {', '.join(ITEM_MODELS)}.  [default: 2pl]",
)
@click.option(
    "--estimator",
    metavar="NAME",
    help=f"How it is fitted: auto, {', '.join(ESTIMATORS)}.  [default: auto, by shape]",
)
@click.option(
    "--response",
    metavar="NAME",
    help=f"How scores vary: {', '.join(RESPONSES)}. beta is for scores between 0 and 1 whose "
    "spread matters; it predicts no better.  [default: binomial]",
)
@click.option(
    "--dimensions",
    metavar="K|auto",
    help="Number of latent dimensions (item model factor); auto: the number that "
    "predicts held-out answers best.",
)
@click.option(
    "--rotation",
    type=click.Choice(["none", "varimax", "promax"]),
    help="Rotation of the dimensions (item model factor); promax lets them correlate.",
)
@click.option(
    "--groups",
    metavar="CSV",
    help="CSV file with the columns model and group: groups with their own ability "
    "mean and spread (mml).",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Device of the computation; auto is CUDA if available.",
)
@click.option("--baseline", metavar="MODEL", help="Show ability differences from this model.")
@click.option("--items", is_flag=True, help="Also show the items, suspicious ones first.")
@click.option(
    "--bootstrap",
    type=int,
    metavar="B",
    help="Number of bootstrap resamples for the intervals.",
)
@click.option(
    "--over", type=click.Choice(OVER), help="What the bootstrap resamples.  [default: items]"
)
@click.option(
    "--holdout",
    metavar="MASK",
    multiple=True,
    help=f"Show how well answers held out are predicted: {', '.join(MASKS)}; may be repeated.",
)
@click.option(
    "--draws", type=int, metavar="N", help="Number of random hold-out splits.  [default: 5]"
)
@click.option(
    "--dif",
    metavar="MODELS",
    help="Test for differential item functioning (DIF): items that are harder or "
    "easier for these models than for other models of equal ability. Names or "
    "patterns separated by commas, or a file with one per line.",
)
@click.option(
    "--save",
    metavar="FILE",
    help="Save the fit as FILE.parquet; its items are a bank for --bank and "
    "--link. An existing fit is replaced; any other file is kept.",
)
@click.option(
    "--bank",
    metavar="FILE",
    help="Score the models on the fixed items of a saved fit.",
)
@click.option(
    "--link",
    metavar="FILE",
    help="Fit, then link the abilities to the scale of a saved fit that shares some items.",
)
@options.reading
@click.option(
    "--confidence-level",
    "-c",
    type=float,
    default=0.95,
    show_default=True,
    help="Confidence level of the intervals, between 0 and 1.",
)
@options.seed
@output.figure_option("abilities", "items", "fit")
@options.form
@options.quiet
@click.pass_context
def irt(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Fit item response models: model abilities and item difficulties on one scale.

    PATHS are results files, folders or patterns. All tasks that they hold make one scale; a task
    with several metrics needs --metric. CSV is one table: of items with --items, of differences
    with --baseline, else of models. --holdout and --dif show a table of their own instead.
    """
    from evalstats_plugin.cli.irt import checks, fit
    from evalstats_plugin.cli.irt.options import checked
    from evalstats_plugin.cli.shell.reading import read_logs
    from evalstats_plugin.irt.answers import ability_matrix
    from evalstats_plugin.plugins import load_plugins

    chosen = checked(chosen)
    # Answers held out, items by group and several abilities have no figures.
    bare = chosen["holdout"] or chosen["dif"] is not None or chosen["item_model"] == "factor"
    output.check_figure(chosen, *(() if bare else ("abilities", "items", "fit")))
    responses = read_logs(paths, chosen, load_plugins(ctx.obj or ()))
    matrix = ability_matrix(responses)
    if chosen["holdout"]:
        checks.show_held_out(ctx, matrix, chosen, responses.notes)
    elif chosen["dif"] is not None:
        checks.show_differences(ctx, matrix, chosen, responses.notes)
    else:
        fit.show_abilities(ctx, matrix, chosen, responses.notes)
