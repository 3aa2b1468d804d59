"""``evalstats-plugin rank compare``."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from evalstats_plugin.cli.rank.options import Judging, answers, tell
from evalstats_plugin.cli.shell.options import Command, quiet, takes
from evalstats_plugin.errors import PluginError, SelectionError


@dataclass(frozen=True, kw_only=True)
class Options(Judging):
    """What is compared, and what is printed."""

    quiet: bool = quiet()


@click.command(cls=Command)
@click.argument("items", metavar="ITEMS", type=click.Path())
@takes("asked", Options)
def compare(items: str, *, asked: Options) -> None:
    """Compare pairs of items yourself in the terminal, the most informative pair first.

    ITEMS is a text file with one item a line, a folder with one item a file, or JSONL with a text
    and, if you like, a name and a prompt a row. Every answer is saved before the next pair is
    shown; run the same command again to go on.
    """
    check_screen()
    goal = asked.wanted()
    found, session = asked.start(items)
    from evalstats_plugin.ranking.judging.screen import JudgingApp

    JudgingApp(session, found, goal=goal, seed=asked.seed).run()
    if session.given:
        lines = [
            f"{answers(session)} in {session.path}; the ranking in numbers:",
            f"  evalstats-plugin rank stats {session.path}",
        ]
        tell(lines, quiet=asked.quiet)


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
