"""``evalstats-plugin rank``: its commands, each loaded when it is run."""

from __future__ import annotations

import click

from evalstats_plugin.cli.lazy_group import LazyGroup

COMMANDS = {
    "compare": ("rank_compare:compare", "Compare items two by two in the terminal."),
    "judge": ("rank_judge:judge", "Let a model or any program compare items two by two."),
    "merge": ("rank_answers:merge", "Put the answers of several judges into one file."),
    "models": ("rank_results:models", "Rank models by logs or results of a harness."),
    "next": ("rank_answers:next_pairs", "Say which pairs to ask next, for whoever asks them."),
    "record": ("rank_answers:record", "Add one answer to a file, or take the last one back."),
    "sample": ("rank_results:sample", "Draw ratings from the posterior, one JSON list a line."),
    "stats": ("rank_results:stats", "Rank what comparisons in files are about."),
}
"""Function and summary of each command."""


@click.group(cls=LazyGroup, functions=COMMANDS, no_args_is_help=True)
def rank() -> None:
    """Rank models or items by comparisons of two: read them, or ask for them.

    A file of comparisons is what `compare`, `judge` and `record` write, Fullrank's
    comparisons.json, or CSV, JSONL or Parquet with a winner and a loser a row.
    """
