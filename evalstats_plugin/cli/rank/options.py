"""Options that mean the same in several commands of ``evalstats-plugin rank``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell.options import OUTPUT, Name, under
from evalstats_plugin.errors import LogError, SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.ranking.judging.items import Items
    from evalstats_plugin.ranking.judging.session import Answers, Session
    from evalstats_plugin.ranking.judging.standing import Goal


GOALS = ("order", "best")
"""Goals of `ranking.judging.standing`, which costs NumPy to import; a test compares."""

RULES = ("order", "thompson", "random")
"""Those of `evalstats_plugin.ranking.next`; a test compares."""

_asked = under("What is asked")
_chosen = under("How pairs are chosen")


def judge_name() -> Any:
    """Return the field of the judge's name."""
    return _asked("Name of the judge, recorded with every answer.", metavar="NAME")


def prior_sd() -> Any:
    """Return the field of the prior."""
    return under("Model")(
        "Prior standard deviation of the ratings, in units of the noise of one answer. It is not "
        "estimated: the answers to pairs that were chosen to tell much say too little about it.  "
        "[default: as the file says, else 1]",
        metavar="SD",
    )


@dataclass(frozen=True, kw_only=True)
class Choosing:
    """How pairs are chosen."""

    goal: str = _chosen(
        "order: find the order of all items; best: find the best item.",
        default="order", type=Name("goal", GOALS), metavar="NAME",
    )  # fmt: skip
    rule: str | None = _chosen(
        f"How the next pair is chosen: {', '.join(RULES)}.  [default: by --goal]",
        type=Name("rule", RULES), metavar="NAME",
    )  # fmt: skip
    seed: int | None = _chosen(
        "Random seed of the left and right positions.  [default: random]",
        type=click.IntRange(min=0), metavar="N",
    )  # fmt: skip
    prior_sd: float | None = prior_sd()


@dataclass(frozen=True, kw_only=True)
class Judging(Choosing):
    """What a judge compares, where the answers go, and when they are enough."""

    prompt: str | None = _asked("Prompt that all items answer, shown above them.", metavar="TEXT")
    judge: str | None = judge_name()
    certainty: float = _chosen(
        "Stop at this expected share of pairs in the right order (goal order) or this P(best) "
        "(goal best).",
        default=0.95, metavar="P",
    )  # fmt: skip
    output: str | None = under(OUTPUT)(
        "File the answers are written to, and from which a session goes on.  [default: "
        "ITEMS.comparisons.json here]",
        "-o", metavar="FILE", type=click.Path(),
    )  # fmt: skip

    def wanted(self) -> Goal:
        """Return the goal that the options name."""
        from evalstats_plugin.ranking.judging.standing import Goal

        return Goal.of(self.goal, self.certainty, self.rule)

    def start(self, items: str, judge: str | None = None) -> tuple[Items, Session]:
        """Read items, and continue or start the answers on them; `judge` if none is named."""
        from evalstats_plugin.ranking.judging.items import read_items
        from evalstats_plugin.ranking.judging.session import Session

        variance = variance_of(self.prior_sd)
        item_set = read_items(items, self.prompt)
        if self.output is None and items == "-":
            msg = "items from standard input have no name: say where answers go with -o FILE"
            raise SelectionError(msg)
        output = self.output or f"{Path(items).resolve().stem}.comparisons.json"
        name = self.judge or judge
        return item_set, Session.open(output, item_set.names, judge=name, prior_variance=variance)


def variance_of(prior_sd: float | None) -> float | None:
    """Return the prior variance asked for, None where it is left to the file."""
    if prior_sd is not None and not 0 < prior_sd < float("inf"):
        raise SelectionError(f"--prior-sd is {prior_sd:g}: give a number above 0")
    return None if prior_sd is None else prior_sd**2


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
