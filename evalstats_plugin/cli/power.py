"""``evalstats-plugin power``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click

from evalstats_plugin.cli.shell import options, shared
from evalstats_plugin.cli.shell.options import Name, Parsed, command, picked, takes, under
from evalstats_plugin.cli.shell.running import Run, on_logs
from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.planning.spreads import Tasks
    from evalstats_plugin.data.runs import ResponseSet


METHODS = ("auto", "miller", "t", "symmetric-bootstrap")
"""Those of `comparisons.planning.solver`, which costs NumPy to import; a test compares."""

_parse_costs = partial(options.parse_pair, option="--costs", example="--costs 10,1")
_goal = under("What is planned")
_assumed = under("What is assumed without logs")


def parse_variances(text: str) -> tuple[float, ...]:
    """Read ``OMEGA2[,WITHIN[,WITHIN]]``."""
    try:
        variances = tuple(float(part) for part in text.split(","))
    except ValueError:
        variances = ()
    if not 1 <= len(variances) <= 3:
        msg = f"--variances {text!r} is not one to three numbers: write it like --variances 0.1,0.2"
        raise SelectionError(msg)
    return variances


@dataclass(frozen=True, kw_only=True)
class PowerOptions:
    """The comparison that is planned, and what is assumed of scores."""

    difference: float | None = _goal("True difference of scores to find.", "-d", metavar="D")
    items: int | None = _goal("Number of items per model.", "-n", metavar="N")
    epochs: int | None = _goal(
        "Number of epochs per item.  [default: as in the logs]", "-k", metavar="R"
    )
    power: float = _goal(
        "Statistical power: probability of finding the difference.",
        "-p", default=0.8, metavar="P",
    )  # fmt: skip
    n_models: int | None = _goal(
        "Number of models, every pair of which is compared.  [default: as in the logs]", metavar="N"
    )
    design: str = _goal(
        "paired: all models answer the same items; unpaired: each answers its own.",
        default="paired", type=Name("design", ("paired", "unpaired")), metavar="NAME",
    )  # fmt: skip
    design_effect: float | None = _goal(
        "Variance with clusters over variance without.  [default: as in the logs]", metavar="D"
    )
    method: str = _goal(
        f"Test that finds the difference: {', '.join(METHODS)}.",
        default="auto", type=Name("method", METHODS), metavar="NAME",
    )  # fmt: skip
    look_every: int | None = _goal(
        "Items between looks at a sequential comparison, which stops once it is clear.", metavar="N"
    )
    over_tasks: str = _goal(
        "Mean over tasks: fixed, or random for a sample of tasks; each: every task alone.",
        default="each", type=Name("plan for tasks", ("each", "fixed", "random")), metavar="NAME",
    )  # fmt: skip
    assurance: float | None = _goal(
        "Probability that the advice is enough, whatever the error of the pilot.  "
        "[default: the best guess]",
        metavar="P",
    )
    costs: tuple[float, float] | None = _goal(
        "Cost of an item and of each of its epochs: find the cheapest numbers of both.",
        metavar="ITEM,EPOCH", type=Parsed(_parse_costs),
    )  # fmt: skip
    margin: float | None = _goal(
        "Non-inferiority: greatest drop that is acceptable. The test is to show that the drop is "
        "smaller.",
        metavar="M",
    )
    confidence_level: float = shared.level()
    discordance: float | None = _assumed(
        "Share of items that exactly one of two models gets right.", metavar="SHARE"
    )
    variances: tuple[float, ...] | None = _assumed(
        "Variance of the true differences between items, then of the scores of one item from epoch "
        "to epoch; the last twice if the models differ.",
        metavar="OMEGA2[,WITHIN[,WITHIN]]", type=Parsed(parse_variances),
    )  # fmt: skip

    def how(self) -> dict[str, object]:
        """Return what was asked for, without what was left open."""
        asked = {
            **picked(self, "difference", "items", "epochs", "power"),
            "models": self.n_models,
            **picked(self, "confidence_level", "method", "look_every"),
            "tasks": None if self.over_tasks == "each" else self.over_tasks,
            "assurance": self.assurance,
            "costs": None if self.costs is None else list(self.costs),
            "margin": self.margin,
        }
        return {name: value for name, value in asked.items() if value is not None}


@command(
    ("--difference 0.03 --discordance 0.2", "Items that find a difference of .03"),
    ("logs/ --task gsm8k --metric acc --difference 0.03", "For models like earlier ones"),
)
@takes("asked", PowerOptions)
@on_logs(
    "power", "variance parts",
    paths=click.argument("paths", nargs=-1, metavar="[PATHS...]", type=click.Path()),
)  # fmt: skip
def power(run: Run, *, asked: PowerOptions) -> None:
    """Plan a comparison: power, items and epochs for a difference.

    With --difference, shows how many items find it; with --items, the least difference that they
    find; with both, how often they do. PATHS are logs of a pilot with two models or more; without
    them, give --discordance or --variances.
    """
    from evalstats_plugin.comparisons.planning.power import PowerAssumptions, power_curve
    from evalstats_plugin.comparisons.planning.power import power as plan
    from evalstats_plugin.comparisons.planning.solver import PowerDesign
    from evalstats_plugin.report import comparisons

    pilot: ResponseSet | PowerAssumptions
    if run.paths:
        for name, value in picked(asked, "discordance", "variances").items():
            if value is not None:
                msg = f"--{name} is for plans without logs: leave it out, or the logs"
                raise SelectionError(msg)
        pilot = run.read()
    else:
        if asked.discordance is None and asked.variances is None:
            raise click.UsageError(
                "there is nothing to plan with: give logs of a pilot, or --discordance (share of "
                "items that just one of two models gets right), or --variances (between items, and "
                "within an item from epoch to epoch)"
            )
        between, *within = asked.variances or (None, 0.0)
        pilot = PowerAssumptions(
            discordance=asked.discordance,
            between=between,
            within=(within[0], within[-1]) if within else (0.0, 0.0),
        )
    design = PowerDesign(
        paired=asked.design == "paired",
        tasks=cast("Tasks", asked.over_tasks),
        **picked(asked, "n_models", "design_effect", "method", "look_every"),
        **picked(asked, "assurance", "costs", "margin"),
    )
    planned: Mapping[str, Any] = {
        **picked(asked, "difference", "power", "confidence_level"),
        "n_epochs": asked.epochs,
        "design": design,
    }
    results = plan(pilot, n_items=asked.items, **planned)
    # The curve answers the same for many numbers of items.
    run.output.draw({
        "power": lambda: power_curve(pilot, **planned), "variance parts": lambda: results
    })  # fmt: skip
    run.output.show(results, asked.how(), comparisons.POWER)
