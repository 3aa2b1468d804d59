"""``evalstats-plugin rank judge``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.rank import options
from evalstats_plugin.cli.shell import options as shell_options
from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.ranking.judging.automatic import Judge, JudgingResult
    from evalstats_plugin.ranking.judging.session import Session


@click.command()
@click.argument("items", metavar="ITEMS")
@click.option(
    "--command", "program", metavar="CMD",
    help='Program that answers: it reads {"prompt", "first", "second"} as JSON and writes first, '
    "second, tie or skip.",
)  # fmt: skip
@click.option("--model", metavar="NAME", help="Inspect model that answers, such as openai/gpt-5.")
@click.option(
    "--criterion", metavar="TEXT", help="With --model: the criterion by which one is better."
)
@click.option(
    "--budget", type=click.IntRange(min=1), metavar="N",
    help="Maximum number of questions.  [default: 10 per item]",
)  # fmt: skip
@click.option("--both-orders", is_flag=True, help="Ask every pair twice, in both orders.")
@click.option(
    "--at-once", type=click.IntRange(min=1), default=1, show_default=True,
    help="Number of pairs asked at the same time, chosen jointly.",
)  # fmt: skip
@options.output
@options.prompt
@options.judge_name
@options.goal
@options.prior_sd
@options.session_seed
@shell_options.quiet
@click.pass_context
def judge(ctx: click.Context, items: str, **chosen: Any) -> None:
    """Let a model or a program compare pairs of items, until the goal or the budget is reached.

    ITEMS are as for `rank compare`. Places are drawn at random and kept with every answer; names
    are not told. Exit code 1 where some replies were no verdict.
    """
    from evalstats_plugin.ranking.judging.automatic import JudgingPlan, judge_items

    ask, name = _judge(ctx.obj or (), chosen)
    goal = options.goal_of(chosen)
    found, session = options.items_and_session(items, {**chosen, "judge": chosen["judge"] or name})
    plan = JudgingPlan(
        goal=goal,
        budget=chosen["budget"] or 10 * len(found.items),
        both_orders=chosen["both_orders"],
        at_once=chosen["at_once"],
    )
    judged = judge_items(session, found, ask, plan, seed=chosen["seed"])
    options.tell(_said(judged, session, goal.words), quiet=chosen["quiet"])
    if judged.n_unclear:
        click.echo(f"{judged.n_unclear} replies were no verdict: those pairs are skipped", err=True)
        ctx.exit(1)


def _judge(blocked: Iterable[str], chosen: Mapping[str, Any]) -> tuple[Judge, str]:
    """Return who answers, and a name for them."""
    from evalstats_plugin.ranking.judging.automatic import command_judge, model_judge

    program, model = chosen["program"], chosen["model"]
    if (program is None) == (model is None):
        both = "both --command and --model" if program is not None else "no judge"
        msg = f"{both} found, expected one of --command CMD and --model NAME"
        raise SelectionError(msg)
    if program is not None:
        if chosen["criterion"] is not None:
            msg = "--criterion and --command found: a program brings its own criterion"
            raise SelectionError(msg)
        ask = command_judge(program)
        return ask, Path(shlex.split(program)[0]).name
    from evalstats_plugin.plugins import load_plugins

    generate = load_plugins(blocked).call("evalstats_generator", model=model)
    if generate is None:
        msg = (
            f"nothing installed can ask {model!r}, expected a name as Inspect has them, such as "
            "openai/gpt-5: pip install 'evalstats-plugin[inspect]'"
        )
        raise SelectionError(msg)
    return model_judge(generate, chosen["criterion"]), model


def _said(judged: JudgingResult, session: Session, words: str) -> list[str]:
    lines = [f"{judged.n_answers} more, {options.answers(session)} in {session.path}"]
    if judged.agreement is not None:
        lines.append(f"in both orders the same: {100 * judged.agreement:.0f} %")
    ended = "reached" if judged.reached else "budget spent"
    return [*lines, f"{words}: {100 * judged.certainty:.0f} % ({ended})"]
