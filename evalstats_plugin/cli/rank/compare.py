"""``evalstats-plugin rank compare``."""

from __future__ import annotations

import sys
from typing import Any

import click

from evalstats_plugin.cli.rank import options
from evalstats_plugin.cli.shell import options as shell_options
from evalstats_plugin.errors import PluginError, SelectionError


@click.command()
@click.argument("items", metavar="ITEMS")
@options.output
@options.prompt
@options.judge_name
@options.goal
@options.prior_sd
@options.session_seed
@shell_options.quiet
def compare(items: str, **chosen: Any) -> None:
    """Compare pairs of items yourself in the terminal, the most informative pair first.

    ITEMS is a text file with one item a line, a folder with one item a file, or JSONL with a text
    and, if you like, a name and a prompt a row. Every answer is saved before the next pair is
    shown; run the same command again to go on.
    """
    check_screen()
    goal = options.goal_of(chosen)
    found, session = options.items_and_session(items, chosen)
    from evalstats_plugin.ranking.judging.screen import JudgingApp

    JudgingApp(session, found, goal=goal, seed=chosen["seed"]).run()
    if session.given:
        said = [
            f"{options.answers(session)} in {session.path}; the ranking in numbers:",
            f"  evalstats-plugin rank stats {session.path}",
        ]
        options.tell(said, quiet=chosen["quiet"])


def check_screen() -> None:
    """Refuse early where nobody could see or answer anything."""
    try:
        import textual  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        msg = "`rank compare` needs Textual: pip install 'evalstats-plugin[rank]'"
        raise PluginError(msg) from error
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        msg = (
            "`rank compare` needs a terminal, and this is none: elsewhere use `rank next` with "
            "`rank record`, or `rank judge`"
        )
        raise SelectionError(msg)
