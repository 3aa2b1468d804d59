"""``evalstats-plugin rank``: its commands, each loaded when it is run."""

from __future__ import annotations

import click

from evalstats_plugin.cli import LazyGroup

COMMANDS = {
    "compare": (
        "evalstats_plugin.cli.rank.compare:compare",
        "Compare items two by two in the terminal.",
    ),
    "judge": (
        "evalstats_plugin.cli.rank.judge:judge",
        "Let a model or any program compare items two by two.",
    ),
    "merge": (
        "evalstats_plugin.cli.rank.answers:merge",
        "Put the answers of several judges into one file.",
    ),
    "models": (
        "evalstats_plugin.cli.rank.results:models",
        "Rank models by logs or results of a harness.",
    ),
    "next": (
        "evalstats_plugin.cli.rank.answers:next_pairs",
        "Say which pairs to ask next, for whoever asks them.",
    ),
    "record": (
        "evalstats_plugin.cli.rank.answers:record",
        "Add one answer to a file, or take the last one back.",
    ),
    "sample": (
        "evalstats_plugin.cli.rank.results:sample",
        "Draw ratings from the posterior, one JSON list a line.",
    ),
    "stats": (
        "evalstats_plugin.cli.rank.results:stats",
        "Rank what comparisons in files are about.",
    ),
}
"""Function and summary of each command."""


@click.group(cls=LazyGroup, functions=COMMANDS, no_args_is_help=True)
def rank() -> None:
    """Rank models or items by comparisons of two: read them, or ask for them.

    A file of comparisons is what `compare`, `judge` and `record` write, Fullrank's
    comparisons.json, or CSV, JSONL or Parquet with a winner and a loser a row.
    """
