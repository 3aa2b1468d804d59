"""``evalstats-plugin adapt simulate``."""

from __future__ import annotations

from typing import Any

import click

from evalstats_plugin.cli.adapt.options import RULES, SCORINGS
from evalstats_plugin.cli.shell import options, output

RIVALS = ("random, raw mean", "anchors")
"""Of `evalstats_plugin.adaptive.simulation`, which costs NumPy; a test compares."""

_DRAWING = ("misspecified", "scoring", "batch", "balance", "confidence_level")
SHOWN = (*RULES, *RIVALS)


@click.command()
@click.option("--bank", required=True, metavar="FILE", help="Item bank made by `adapt bank`.")
@click.option(
    "--items", default="10,25,50,100", show_default=True, metavar="N,…",
    help="Test lengths (numbers of items) to evaluate.",
)  # fmt: skip
@click.option(
    "--rule", "rules", type=click.Choice(SHOWN), multiple=True, metavar="NAME",
    help=f"{', '.join(SHOWN[:-2])}; the mean of a random subset ({RIVALS[0]!r}), or "
    "tinyBenchmarks' anchors; may be repeated.  [default: all]",
)  # fmt: skip
@click.option(
    "--scoring", type=click.Choice(SCORINGS), default="eap", show_default=True,
    help="Ability estimator.",
)  # fmt: skip
@click.option(
    "--batch",
    type=int,
    default=1,
    show_default=True,
    metavar="K",
    help="Number of items asked together.",
)
@click.option(
    "--balance",
    is_flag=True,
    help="Content balancing: keep each task's share of the items as in the bank.",
)
@click.option(
    "--models", type=int, default=200, show_default=True, help="Number of simulated models."
)
@click.option(
    "--misspecified", type=float, default=1.0, show_default=True, metavar="F",
    help="Calibration error of the items as a multiple of their standard errors: 0 "
        "none, 2 twice.",
)  # fmt: skip
@options.seed
@click.option(
    "--confidence-level", "-c", type=float, default=0.95, show_default=True,
    help="Confidence level of the intervals, between 0 and 1.",
)  # fmt: skip
@output.figure_option("simulation")
@options.form
@options.quiet
@click.pass_context
def simulate(ctx: click.Context, **chosen: Any) -> None:
    """Simulate models: error of the test by number of items and selection rule.

    Models are drawn from the bank: abilities, misfit, and items as uncertain as the bank knows
    them. Real models differ in ways no bank knows; `replay` shows what happens on those.
    """
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.adaptive.simulation import simulate as run_simulation
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.cli.shell.reading import progress_on_work
    from evalstats_plugin.report import adaptive as report_adaptive

    output.check_figure(chosen, "simulation")
    bank = ItemBank.load(chosen["bank"])
    at = _numbers(chosen["items"])
    with progress_on_work("simulating", quiet=chosen["quiet"]) as on_step:

        def on_rule(rule: str, number: int, total: int) -> None:
            if on_step is not None:
                on_step((rule, number, total))

        results = run_simulation(
            bank,
            at,
            chosen["rules"] or SHOWN,
            n_models=chosen["models"],
            **{name: chosen[name] for name in _DRAWING},
            rng=chosen["seed"],
            on_rule=on_rule,
        )
    output.save_asked(chosen, {"simulation": lambda: results})
    show(
        ctx,
        results,
        chosen,
        ("bank", "models", *_DRAWING, "seed"),
        print_table=report_adaptive.print_accuracy,
        to_markdown=report_adaptive.accuracy_markdown,
    )


def _numbers(text: str) -> list[int]:
    from evalstats_plugin.errors import SelectionError

    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise SelectionError(f"--items {text!r} found, expected numbers above 0, commas between")
    return sorted({int(part) for part in parts})
