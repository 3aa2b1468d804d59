"""``evalstats-plugin rank``: its commands, each loaded when it is run."""

from __future__ import annotations

import click

from evalstats_plugin.cli.shell.options import LazyGroup

_HERE = "evalstats_plugin.cli.rank"

SECTIONS = {
    "Ranking": {
        "models": (f"{_HERE}.results:models", "Rank models from the logs of a harness."),
        "stats": (
            f"{_HERE}.results:stats",
            "Rank models or items from files of pairwise comparisons.",
        ),
        "leaderboard": (
            f"{_HERE}.results:leaderboard",
            "Rank models by votes, as an arena does; a page.",
        ),
        "sample": (
            f"{_HERE}.results:sample",
            "Draw ratings from the posterior, one JSON list per line.",
        ),
    },
    "Making comparisons": {
        "compare": (f"{_HERE}.judge:compare", "Compare pairs of items yourself in the terminal."),
        "judge": (f"{_HERE}.judge:judge", "Let a model or a program compare pairs of items."),
        "next": (f"{_HERE}.answers:next_pairs", "Print the most informative pairs to ask next."),
        "record": (f"{_HERE}.answers:record", "Add an answer to a file, or remove the last one."),
        "merge": (
            f"{_HERE}.answers:merge",
            "Merge the answers of several judges into one file.",
        ),
    },
}
"""Function and summary of each command, by question."""


@click.group(cls=LazyGroup, sections=SECTIONS, no_args_is_help=True)
def rank() -> None:
    """Rank models or items from pairwise comparisons, read or asked for.

    A file of comparisons is what `compare`, `judge` and `record` write, Fullrank's
    comparisons.json, or CSV, JSONL or Parquet with a winner and a loser a row.
    """
