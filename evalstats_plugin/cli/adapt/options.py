"""Options of every command that runs an adaptive test, or one that it says what would happen."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evalstats_plugin.cli.shell import options

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.adaptive.plan import Plan
    from evalstats_plugin.adaptive.session import AdaptiveSession


RULES = (
    "auto", "information", "posterior-information", "kl", "d-optimal", "a-optimal", "full-score",
    "random", "mixed",
)  # fmt: skip
"""Names of `evalstats_plugin.adaptive.selection`, which costs NumPy; a test compares."""

SCORINGS = ("eap", "map", "wle")

SECTIONS = {
    "When it stops": (
        "stop_at", "reliability", "score_width", "max_items", "budget", "max_seconds", "above",
    ),
    "How it goes": (
        "rule", "scoring", "batch", "balance", "randomesque", "test_metric", "confidence_level",
        "seed",
    ),
}  # fmt: skip

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--bank", required=True, metavar="FILE", help="Item bank made by `adapt bank`."
    ),
    click.option(
        "--stop-at", type=float, metavar="SE",
        help="Stop once the standard error of the ability is at most this.  [default: "
        "0.3 if no other rule is given]",
    ),
    click.option(
        "--reliability", type=float, metavar="R",
        help="Stop once the reliability of the ability reaches this, such as 0.9.",
    ),
    click.option(
        "--score-width", type=float, metavar="W",
        help="Stop once the interval of the full score is at most this wide.",
    ),
    click.option("--max-items", type=int, metavar="N", help="Stop after this number of items."),
    click.option(
        "--budget", type=float, metavar="COST",
        help="Stop before the total cost of the items exceeds this, in the bank's "
        "unit.",
    ),
    click.option(
        "--max-seconds", type=float, metavar="S", help="Stop after this number of seconds."
    ),
    click.option(
        "--above", metavar="MODEL",
        help="Stop once the interval shows whether the model is more able than this "
        "model of the bank.",
    ),
    click.option(
        "--rule", type=click.Choice(RULES), default="auto", show_default=True, metavar="NAME",
        help="Item selection rule; auto chooses by what the bank holds.",
    ),
    click.option(
        "--scoring", type=click.Choice(SCORINGS), default="eap", show_default=True,
        help="Ability estimator.",
    ),
    click.option(
        "--batch", type=int, metavar="K", default=None,
        help="Number of items asked together, chosen jointly.",
    ),
    click.option(
        "--balance", is_flag=True,
        help="Content balancing: keep each task's share of the items as in the bank.",
    ),
    click.option(
        "--randomesque", type=int, metavar="K",
        help="Exposure control: choose at random among the K best items.",
    ),
    click.option(
        "--test-metric", metavar="NAME",
        help="Metric that scores an item.  [default: the bank's]",
    ),
    click.option(
        "--confidence-level", "-c", type=float, default=0.95, show_default=True,
        help="Confidence level of the intervals, between 0 and 1.",
    ),
    options.seed,
)  # fmt: skip


def planning(function: FunctionT) -> FunctionT:
    """Add the options of a plan to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def state(default: str) -> Callable[[FunctionT], FunctionT]:
    """Add ``--state`` to a command that asks a model; `default` says where else it is kept."""
    return click.option(
        "--state", type=click.Path(path_type=Path), metavar="FILE",
        help="Answers so far, to take a killed test up.  "
        f"[default: {default} removed at the end]",
    )  # fmt: skip


def plan_of(chosen: Mapping[str, Any], *, batch: int = 1, state: Any = None) -> Plan:
    """Make the plan that the options ask for; `batch` is the command's own default."""
    from evalstats_plugin.adaptive.plan import Plan
    from evalstats_plugin.errors import SelectionError

    if not 0 < chosen["confidence_level"] < 1:
        msg = f"--confidence-level {chosen['confidence_level']:g} found, expected one between 0"
        raise SelectionError(f"{msg} and 1")
    names = (
        "bank", "stop_at", "reliability", "score_width", "max_items", "budget", "max_seconds",
        "above", "rule", "scoring", "balance", "randomesque", "confidence_level", "seed",
    )  # fmt: skip
    said = {name: chosen[name] for name in names}
    said["batch"] = batch if chosen["batch"] is None else chosen["batch"]
    return Plan.of({**said, "metric": chosen["test_metric"], "state": state})


def tell_forecast(plan: Plan, bank: ItemBank, answered: int, *, quiet: bool) -> None:
    """Say on standard error what a test will cost before it starts."""
    if quiet:
        return
    from evalstats_plugin.adaptive.plan import forecast

    found = forecast(plan, bank)
    click.echo(f"expected: {found}", err=True)
    if answered:
        click.echo(f"taken up: {answered} answers are there and are not asked again", err=True)


@contextmanager
def telling(*, quiet: bool) -> Generator[Callable[[AdaptiveSession], None] | None, None, None]:
    """Give a callback that shows how far a test is: on a terminal in one line, else in several."""
    import sys

    from evalstats_plugin.cli.shell.reading import progress_on_work

    with progress_on_work("asking", quiet=quiet) as on_step:

        def on_round(session: AdaptiveSession) -> None:
            score = session.full_score()[""]
            said = f"ability {session.ability:+.2f} ± {session.std_error:.2f}, full score "
            said += f"{score.estimate:.3f} [{score.low:.3f}, {score.high:.3f}]"
            if on_step is None:
                click.echo(f"{session.n} items: {said}", file=sys.stderr)
            else:
                on_step((f"{said}, items", session.n, None))

        yield None if quiet else on_round


def show_test(
    ctx: click.Context,
    chosen: Mapping[str, Any],
    found: Mapping[str, Any],
    named: tuple[str, str, str],
) -> None:
    """Print what a test found; `named` are the model, the task and the log."""
    from evalstats_plugin.adaptive.replaying import AdaptiveTests, test_of
    from evalstats_plugin.cli.shell import output
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.report import adaptive as report_adaptive

    model, task, log = named
    output.save_asked(chosen, {"trace": lambda: found})
    row = test_of(found, model=model, task=task, metric=str(found["metric"]), log=log)
    show(
        ctx,
        AdaptiveTests((row,)),
        {**chosen, "rule": row.rule},
        ("bank", "rule", "scoring", "confidence_level", "seed"),
        print_table=report_adaptive.print_tests,
        to_markdown=report_adaptive.tests_markdown,
        to_json=report_adaptive.tests_json,
    )
    if not chosen["quiet"]:
        click.echo(f"log: {log}", err=True)
