"""Options that mean the same in several commands of ``evalstats-plugin rank``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell.options import FunctionT
from evalstats_plugin.errors import LogError, SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.ranking.judging.items import Items
    from evalstats_plugin.ranking.judging.session import Answers, Session
    from evalstats_plugin.ranking.judging.standing import Goal


output = click.option(
    "--output", "-o", metavar="FILE",
    help="File the answers are written to and resumed from.  [default: "
        "ITEMS.comparisons.json here]",
)  # fmt: skip

prompt = click.option(
    "--prompt", metavar="TEXT", help="Prompt that all items answer, shown above them."
)

judge_name = click.option(
    "--judge", metavar="NAME", help="Name of the judge, recorded with every answer."
)

prior_sd = click.option(
    "--prior-sd", type=float, metavar="SD",
    help="Prior standard deviation of the ratings, in units of the noise of one "
        "answer.  [default: as the file says, else 1]",
)  # fmt: skip

GOAL_NAMES = "order|best"
"""Goals of `ranking.judging.standing`, which costs NumPy to import; a test compares."""

RULE_HELP = (
    "How the next pair is chosen: order, gain, best, thompson, closest, entropy, "
    "fullrank, random.  [default: by --goal]"
)
"""Names those of `evalstats_plugin.ranking.next`; a test compares."""

rule = click.option("--rule", metavar="NAME", help=RULE_HELP)

goal_name = click.option(
    "--goal", metavar=GOAL_NAMES, default="order", show_default=True,
    help="Goal: the order of all items, or the best item.",
)  # fmt: skip

_certainty = click.option(
    "--certainty", type=float, default=0.95, show_default=True,
    help="Stop at this expected share of pairs in the right order (goal order) or "
        "this P(best) (goal best).",
)  # fmt: skip

session_seed = click.option(
    "--seed", type=click.IntRange(min=0), metavar="N",
    help="Random seed of the left and right positions.  [default: random]",
)  # fmt: skip


def goal(function: FunctionT) -> FunctionT:
    """Add the options that say what is asked for, and when it is enough."""
    return goal_name(_certainty(rule(function)))


def goal_of(chosen: Mapping[str, Any]) -> Goal:
    """Return the goal that the options name."""
    from evalstats_plugin.ranking.judging.standing import Goal

    return Goal.of(chosen["goal"], chosen["certainty"], chosen["rule"])


def variance_of(chosen: Mapping[str, Any]) -> float | None:
    """Return the prior variance asked for, None where it is left to the file."""
    sd = chosen["prior_sd"]
    if sd is not None and not 0 < sd < float("inf"):
        msg = f"--prior-sd {sd:g} found, expected a number above 0"
        raise SelectionError(msg)
    return None if sd is None else sd**2


def items_and_session(items: str, chosen: Mapping[str, Any]) -> tuple[Items, Session]:
    """Read items, and take up or start the answers on them."""
    from evalstats_plugin.ranking.judging.items import read_items
    from evalstats_plugin.ranking.judging.session import Session

    variance = variance_of(chosen)
    found = read_items(items, chosen["prompt"])
    if chosen["output"] is None and items == "-":
        msg = "items from standard input have no name: say where answers go with -o FILE"
        raise SelectionError(msg)
    output = chosen["output"] or f"{Path(items).resolve().stem}.comparisons.json"
    session = Session.open(output, found.names, judge=chosen["judge"], prior_variance=variance)
    return found, session


def opened(file: str) -> tuple[BytesIO | None, Answers | None]:
    """Return standard input where it is meant, and the answers of a file as we or Fullrank save.

    Of other kinds of files, and of those with answers that cannot be, there are None.
    """
    from evalstats_plugin.ranking.judging.session import answers_in

    stream = None
    if file == "-":
        stream = BytesIO(sys.stdin.buffer.read())
        stream.name = "standard input"
        content = stream.getvalue()
    else:
        content = Path(file).read_bytes() if Path(file).is_file() else b""
    try:
        return stream, answers_in(content, getattr(stream, "name", file))
    except LogError:
        return stream, None


def tell(lines: Sequence[str], *, quiet: bool) -> None:
    """Say things that are no results, on standard error."""
    if not quiet:
        for text in lines:
            click.echo(text, err=True)


def answers(session: Session) -> str:
    """Say how many there are."""
    n = len(session.given)
    return f"{n} answer{'' if n == 1 else 's'}"
