"""``evalstats-plugin rank compare``."""

from __future__ import annotations

import sys
from typing import Any

import click

from evalstats_plugin.cli import options, rank_options
from evalstats_plugin.errors import PluginError, SelectionError


@click.command()
@click.argument("items", metavar="ITEMS")
@rank_options.output
@rank_options.prompt
@rank_options.judge_name
@rank_options.goal
@rank_options.prior_sd
@rank_options.session_seed
@options.quiet
def compare(items: str, **chosen: Any) -> None:
    """Compare items two by two in the terminal, the most telling pair first.

    ITEMS is a text file with one item a line, a folder with one item a file, or JSONL with a text
    and, if you like, a name and a prompt a row. Every answer is saved before the next pair is
    shown; run the same command again to go on.
    """
    check_screen()
    goal = rank_options.goal_of(chosen)
    found, session = rank_options.items_and_session(items, chosen)
    from evalstats_plugin.judging.app import JudgingApp

    JudgingApp(session, found, goal=goal, seed=chosen["seed"]).run()
    if session.given:
        said = [
            f"{rank_options.answers(session)} in {session.path}; the ranking in numbers:",
            f"  evalstats-plugin rank stats {session.path}",
        ]
        rank_options.tell(said, quiet=chosen["quiet"])


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
