"""``evalstats-plugin rank judge`` and ``compare``: a program or a person as judge."""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalstats_plugin.cli.rank.options import Judging
from evalstats_plugin.cli.shell import shared
from evalstats_plugin.cli.shell.options import POSITIVE, Parsed, command, takes, under
from evalstats_plugin.cli.shell.running import loaded_plugins, tell
from evalstats_plugin.errors import PluginError, SelectionError, counted, install_hint
from evalstats_plugin.runtime.untrusted import echo

if TYPE_CHECKING:
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.ranking.judging.automatic import Judge


_who = under("Who judges")


def parse_budget(text: str) -> tuple[int | None, float | None]:
    """Read a number of questions, and a cost after a comma."""
    number, comma, cost = text.partition(",")
    with suppress(ValueError):
        budget = int(number) if number else None, float(cost) if comma else None
        if all(value is None or 0 < value < float("inf") for value in budget):
            return budget
    raise SelectionError(f"{text!r} is no budget: give a number of questions, as 300 or 300,2.50")


@dataclass(frozen=True, kw_only=True)
class PairJudgingOptions(Judging):
    """Who judges what, and how often."""

    command: str | None = _who(
        'Program that answers: it reads {"prompt", "first", "second"} as JSON and writes first, '
        "second, tie or skip.",
        metavar="CMD",
    )
    model: str | None = _who("Inspect model that answers, such as openai/gpt-5.", metavar="NAME")
    criterion: str | None = _who(
        "With --model: the criterion by which one is better.", metavar="TEXT"
    )
    budget: tuple[int | None, float | None] | None = _who(
        "Most questions to this judge, and their most cost where it says its cost, earlier runs "
        "included: 300, or 300,2.50.  [default: 10 per item]",
        type=Parsed(parse_budget), metavar="N[,COST]",
    )  # fmt: skip
    both_orders: bool = _who("Ask every pair twice, in both orders.", default=False)
    at_once: int = _who(
        "Number of questions asked at the same time.",
        default=1, type=POSITIVE, metavar="N",
    )  # fmt: skip
    quiet: bool = shared.quiet()

    def asking(self, plugins: Plugins) -> tuple[Judge, str]:
        """Return who answers, and a name for them."""
        from evalstats_plugin.ranking.judging.automatic import command_judge, model_judge

        if self.command is not None and self.model is not None:
            raise SelectionError("both --command and --model are given: pass one of them")
        if self.command is not None:
            if self.criterion is not None:
                msg = "a program brings its own criterion: leave --criterion out, or pass --model"
                raise SelectionError(msg)
            return command_judge(self.command), Path(shlex.split(self.command)[0]).name
        if self.model is None:
            raise SelectionError("there is no judge: pass --command CMD or --model NAME")
        generate = plugins.call("evalstats_generator", model=self.model)
        if generate is None:
            raise SelectionError(
                f"nothing installed can ask {self.model!r}: name a model as Inspect does, such as "
                f"openai/gpt-5, after {install_hint('inspect')}"
            )
        return model_judge(generate, self.criterion), self.model


@dataclass(frozen=True, kw_only=True)
class Compared(Judging):
    """What is compared, and what is printed."""

    quiet: bool = shared.quiet()


@command()
@click.argument("items", metavar="ITEMS", type=click.Path())
@takes("asked", PairJudgingOptions)
def judge(items: str, *, asked: PairJudgingOptions) -> None:
    """Let a model or a program compare pairs of items, until the goal or the budget is reached.

    ITEMS are as for `rank compare`. Positions are drawn at random and kept with every answer; the
    judge does not see the names of the items. Exit code 1 where some replies were no verdict.
    """
    from evalstats_plugin.ranking.judging.automatic import JudgingPlan, judge_items

    ask, name = asked.asking(loaded_plugins())
    goal = asked.wanted()
    item_set, session = asked.start(items, name)
    most, cost = asked.budget or (None, None)
    plan = JudgingPlan(
        goal=goal,
        budget=most or 10 * len(item_set.items),
        max_cost=cost,
        both_orders=asked.both_orders,
        at_once=asked.at_once,
    )
    judged = judge_items(session, item_set, ask, plan, seed=asked.seed)
    lines = [f"{judged.n_answers} more, {counted(len(session.given), 'answer')} in {session.path}"]
    if judged.agreement is not None:
        lines.append(f"in both orders the same: {100 * judged.agreement:.0f} %")
    if judged.tokens or judged.cost:
        lines.append(f"this judge so far: {judged.tokens:,} tokens, cost {judged.cost:.4g}")
    if judged.n_retries:
        lines.append(f"failed questions that were asked again: {judged.n_retries}")
    n_skipped = len({answer.pair for answer in session.skipped})
    ended = "reached" if judged.reached else "budget spent"
    if not judged.reached and n_skipped == math.comb(len(session.names), 2):
        ended = "every pair was skipped"
    lines.append(f"{goal.words}: {100 * judged.certainty:.0f} % ({ended})")
    tell(lines, quiet=asked.quiet)
    if judged.n_unclear:
        replies = "1 reply was" if judged.n_unclear == 1 else f"{judged.n_unclear} replies were"
        echo(f"{replies} no verdict: such pairs are skipped", err=True)
        raise click.exceptions.Exit(1)


@command()
@click.argument("items", metavar="ITEMS", type=click.Path())
@takes("asked", Compared)
def compare(items: str, *, asked: Compared) -> None:
    """Compare pairs of items yourself in the terminal, the most informative pair first.

    ITEMS is a text file with one item a line, a folder with one item a file, or JSONL or CSV with a
    text and, if you like, a name and a prompt a row. Every answer is saved before the next pair is
    shown; run the same command again to go on. Where the output is redirected, as in
    `rank compare ITEMS > comparisons.json`, the answers are printed at the end, too.
    """
    check_screen()
    goal = asked.wanted()
    item_set, session = asked.start(items)
    from evalstats_plugin.ranking.judging.screen import JudgingApp

    JudgingApp(session, item_set, goal=goal, seed=asked.seed).run()
    if session.given:
        lines = [
            f"{counted(len(session.given), 'answer')} in {session.path}; the ranking in numbers:",
            f"  evalstats-plugin rank stats {session.path}",
        ]
        tell(lines, quiet=asked.quiet)
    if not sys.stdout.isatty():
        # The file's own bytes, in which names are JSON: the screen was drawn on standard error.
        sys.stdout.write(Path(session.path).read_text(encoding="utf-8"))


def check_screen() -> None:
    """Refuse early where nobody could see or answer anything."""
    try:
        import textual  # noqa: F401
    except ImportError as error:
        raise PluginError(f"`rank compare` needs Textual: {install_hint('rank')}") from error
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SelectionError(
            "`rank compare` needs a terminal, and this is not one: elsewhere use `rank next` with "
            "`rank record`, or `rank judge`"
        )
