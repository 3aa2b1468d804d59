"""``evalstats-plugin rank``: its commands, each loaded when it is run."""

from __future__ import annotations

import click

from evalstats_plugin.cli.shell.options import LazyGroup, offers

SECTIONS = {
    "Ranking": offers(
        "rank.results",
        models="Rank models from the logs of a harness.",
        stats="Rank models or items from files of pairwise comparisons.",
        leaderboard="Rank models by votes, as an arena does; a page.",
        sample="Draw ratings from the posterior, one JSON list per line.",
        raw_sample="Draw, with Fullrank's order of arguments.",
        infer_sun="Print the parameters of the skew-normal posterior as JSON.",
    ),
    "Making comparisons": {
        **offers(
            "rank.judge",
            compare="Compare pairs of items yourself in the terminal.",
            judge="Let a model or a program compare pairs of items.",
        ),
        "next": (f"{__name__}.answers:next_pairs", "Print the most informative pairs to ask next."),
        **offers(
            "rank.answers",
            record="Add an answer to a file, or remove the last one.",
            merge="Merge the answers of several judges into one file.",
        ),
    },
}


@click.group(cls=LazyGroup, sections=SECTIONS, no_args_is_help=True)
def rank() -> None:
    """Rank models or items from pairwise comparisons, read or asked for.

    A file of comparisons is what `compare`, `judge` and `record` write, Fullrank's
    comparisons.json, or CSV, JSONL or Parquet with a winner and a loser a row.
    """
