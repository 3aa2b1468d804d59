"""``evalstats-plugin power``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell import options, output

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.power import PowerAssumptions, PowerDesign
    from evalstats_plugin.comparisons.rows import PowerRows
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.plugins import Plugins


METHODS = ("auto", "miller", "t", "mcnemar-mid-p", "dirichlet", "tango")
"""Those of `evalstats_plugin.comparisons.pilot`, which costs NumPy to import; a test compares.
"""

_SAID = ("difference", "items", "epochs", "power", "models", "confidence_level", "method")


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATHS...]")
@click.option("--difference", "-d", type=float, help="True difference of scores to detect.")
@click.option("--items", "-n", type=int, help="Number of items per model.")
@click.option(
    "--epochs", "-k", type=int, help="Number of epochs per item.  [default: as in the logs]"
)
@click.option(
    "--power",
    "-p",
    type=float,
    default=0.8,
    show_default=True,
    help="Statistical power: probability of detecting the difference.",
)
@click.option(
    "--models", type=int, help="Number of models, every pair compared.  [default: as in the logs]"
)
@click.option("--unpaired", is_flag=True, help="Unpaired design: each model answers its own items.")
@click.option(
    "--design-effect",
    type=float,
    help="Design effect: variance with clusters over variance without.  [default: as in the logs]",
)
@click.option(
    "--discordance",
    type=float,
    help="Without logs: discordance, the share of items that exactly one of two models gets right.",
)
@click.option(
    "--omega2", type=float, help="Without logs: variance of true differences between items."
)
@click.option(
    "--within",
    type=float,
    multiple=True,
    help="With --omega2: within-item variance of one epoch; give it twice if the models differ.",
)
@click.option(
    "--confidence-level",
    "-c",
    type=float,
    default=0.95,
    show_default=True,
    help="Confidence level of the comparison, between 0 and 1.",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="auto",
    show_default=True,
    help="Test or interval method that detects the difference (an interval that excludes 0).",
)
@options.reading
@output.figure_option("power", "variance parts")
@options.form
@options.quiet
@click.pass_context
def power(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:  # fmt: skip
    """Plan a comparison: power, items and epochs for a difference.

    With --difference, tells how many items find it; with --items, the least difference that they
    find; with both, how often they do. PATHS are logs of a pilot with two models or more; without
    them, give --discordance or --omega2.
    """
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.report import comparisons

    output.check_figure(chosen, "power", "variance parts")
    pilot = _pilot(paths, chosen, load_plugins(ctx.obj or ()))
    results = _analyse(pilot, chosen)
    output.save_asked(
        chosen, {"power": lambda: _curve(pilot, chosen), "variance parts": lambda: results}
    )
    show(
        ctx,
        results,
        chosen,
        tuple(name for name in _SAID if chosen[name] is not None),
        print_table=comparisons.print_power,
        to_markdown=comparisons.power_markdown,
        to_json=comparisons.power_json,
    )


def _pilot(
    paths: tuple[str, ...], chosen: Mapping[str, Any], plugins: Plugins
) -> ResponseSet | PowerAssumptions:
    """Read the logs, or take what is assumed in their place."""
    from evalstats_plugin.comparisons.power import PowerAssumptions
    from evalstats_plugin.errors import SelectionError

    assumed = [f"--{n}" for n in ("discordance", "omega2", "within") if chosen[n] not in (None, ())]
    if paths:
        if assumed:
            msg = f"{', '.join(assumed)} found together with logs, which tell that: give either"
            raise SelectionError(msg)
        from evalstats_plugin.cli.shell.reading import read_logs

        return read_logs(paths, chosen, plugins)
    if "--discordance" not in assumed and "--omega2" not in assumed:
        msg = (
            "nothing to plan with: give logs of a pilot, or --discordance (share of items that "
            "just one of two models gets right), or --omega2 and --within (variances between "
            "items and of one take)"
        )
        raise click.UsageError(msg)
    within = chosen["within"] or (0.0,)
    if len(within) > 2:
        msg = f"--within found {len(within)} times, expected one or two: a variance per model"
        raise SelectionError(msg)
    return PowerAssumptions(
        discordance=chosen["discordance"],
        between=chosen["omega2"],
        within=(within[0], within[-1]),
    )


def _analyse(pilot: ResponseSet | PowerAssumptions, chosen: Mapping[str, Any]) -> PowerRows:
    from evalstats_plugin.comparisons.power import power as plan

    return plan(
        pilot,
        difference=chosen["difference"],
        n_items=chosen["items"],
        n_epochs=chosen["epochs"],
        power=chosen["power"],
        confidence_level=chosen["confidence_level"],
        design=_design(chosen),
    )


def _curve(pilot: ResponseSet | PowerAssumptions, chosen: Mapping[str, Any]) -> PowerRows:
    """Answer the same for many numbers of items."""
    from evalstats_plugin.comparisons.power import power_curve

    return power_curve(
        pilot,
        difference=chosen["difference"],
        n_epochs=chosen["epochs"],
        power=chosen["power"],
        confidence_level=chosen["confidence_level"],
        design=_design(chosen),
    )


def _design(chosen: Mapping[str, Any]) -> PowerDesign:
    from evalstats_plugin.comparisons.power import PowerDesign

    return PowerDesign(
        paired=not chosen["unpaired"],
        n_models=chosen["models"],
        design_effect=chosen["design_effect"],
        method=chosen["method"],
    )
