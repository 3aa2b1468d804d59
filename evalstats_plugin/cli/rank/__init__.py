"""``evalstats-plugin rank``: its commands, each loaded when it is run."""

from __future__ import annotations

import click

from evalstats_plugin.cli.shell.commands import LazyGroup

COMMANDS = {
    "compare": (
        "evalstats_plugin.cli.rank.compare:compare",
        "Compare pairs of items yourself in the terminal.",
    ),
    "judge": (
        "evalstats_plugin.cli.rank.judge:judge",
        "Let a model or a program compare pairs of items.",
    ),
    "merge": (
        "evalstats_plugin.cli.rank.answers:merge",
        "Merge the answers of several judges into one file.",
    ),
    "models": (
        "evalstats_plugin.cli.rank.results:models",
        "Rank models from the logs of a harness.",
    ),
    "next": (
        "evalstats_plugin.cli.rank.answers:next_pairs",
        "Print the most informative pairs to ask next.",
    ),
    "record": (
        "evalstats_plugin.cli.rank.answers:record",
        "Add an answer to a file, or remove the last one.",
    ),
    "sample": (
        "evalstats_plugin.cli.rank.results:sample",
        "Draw ratings from the posterior, one JSON list per line.",
    ),
    "stats": (
        "evalstats_plugin.cli.rank.results:stats",
        "Rank models or items from files of pairwise comparisons.",
    ),
}
"""Function and summary of each command."""


@click.group(cls=LazyGroup, functions=COMMANDS, no_args_is_help=True)
def rank() -> None:
    """Rank models or items from pairwise comparisons, read or asked for.

    A file of comparisons is what `compare`, `judge` and `record` write, Fullrank's
    comparisons.json, or CSV, JSONL or Parquet with a winner and a loser a row.
    """
