"""``evalstats-plugin rank next``, ``record`` and ``merge``: comparisons without a terminal."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.rank import options
from evalstats_plugin.cli.shell import options as shell_options
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.runtime import VERSION

if TYPE_CHECKING:
    from evalstats_plugin.ranking.judging.session import Answers, Session
    from evalstats_plugin.ranking.next import NextContest


_ITEMS_HELP = "Items to start the file with, where it does not exist yet: as for `rank compare`."


@click.command("next")
@click.argument("file", metavar="FILE")
@click.option("-k", "--pairs", type=click.IntRange(min=1), default=5, show_default=True)
@options.goal_name
@options.rule
@click.option("--items", metavar="ITEMS", help=_ITEMS_HELP)
@options.prior_sd
@options.session_seed
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "markdown"]), default="json",
    show_default=True,
)  # fmt: skip
@shell_options.quiet
@click.pass_context
def next_pairs(ctx: click.Context, file: str, **chosen: Any) -> None:
    """Print the pairs to ask next, chosen jointly, the most informative first.

    FILE holds the answers so far. For each pair: who to show first (drawn at random) and second,
    and the bits that the answer is expected to tell about which of them is better.
    """
    from evalstats_plugin.cli.shell.output import command_of
    from evalstats_plugin.ranking.judging.standing import Goal

    chosen["rule"] = Goal.of(chosen["goal"], 0.95, chosen["rule"]).rule
    names, pairs = _chosen(file, chosen)
    rows = [
        {"first": names[p.first], "second": names[p.second], "bits": round(p.bits, 4)}
        for p in pairs
    ]
    about = {"rule": chosen["rule"], "seed": chosen["seed"]}
    click.echo(_shown(rows, chosen["form"], {"command": command_of(ctx), **about}), nl=False)


def _chosen(file: str, chosen: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[NextContest]]:
    """Choose pairs by the answers of a file, those skipped left out."""
    from evalstats_plugin.ranking.judging.standing import Standing

    known = _known(file, chosen["items"], options.variance_of(chosen))
    if len(known.names) < 2:
        found = ", ".join(known.names) or "none"
        msg = f"{file}: items {found} found, expected two or more to compare"
        raise SelectionError(msg)
    options.tell(known.notes, quiet=chosen["quiet"])
    standing = Standing(len(known.names), known.prior_variance, seed=chosen["seed"])
    standing.update(known.given)
    pairs = standing.choose(chosen["rule"], chosen["pairs"], known.skipped)
    if not pairs:
        options.tell(["every pair was skipped: none is left to ask"], quiet=chosen["quiet"])
    return known.names, pairs


def _known(file: str, items: str | None, variance: float | None) -> Answers:
    """Return the answers of a file of any kind, or none yet on these items."""
    from evalstats_plugin.ranking.contests.files import read_contests
    from evalstats_plugin.ranking.judging.items import read_items
    from evalstats_plugin.ranking.judging.session import Session, answers_of

    names = None if items is None else read_items(items).names
    stream, saved = options.opened(file)
    if stream is None and (saved is not None or not Path(file).exists()):
        return Session.open(file, names, prior_variance=variance).answers
    if saved is not None and names is None:
        return replace(saved, prior_variance=variance or saved.prior_variance)
    prior = variance or (1.0 if saved is None else saved.prior_variance)
    return answers_of(read_contests(stream or file, players=names), prior)


def _shown(rows: Sequence[Mapping[str, Any]], form: str, about: Mapping[str, Any]) -> str:
    if form == "json":
        whole = {"evalstats": {"version": VERSION, **about}, "results": rows}
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    if form == "csv":
        text = StringIO()
        writer = csv.DictWriter(text, ["first", "second", "bits"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
    lines = [[str(row["first"]), str(row["second"]), f"{row['bits']:.2f}"] for row in rows]
    if form == "markdown":
        from evalstats_plugin.report.text import markdown_cell, markdown_line

        head = [markdown_line(["First", "Second", "Bits"]), markdown_line(["---", "---", "---:"])]
        return "\n".join(
            [*head, *(markdown_line([markdown_cell(c) for c in row]) for row in lines), ""]
        )
    lines.insert(0, ["First", "Second", "Bits"])
    widths = [max(len(row[k]) for row in lines) for k in range(2)]
    aligned = (f"{a:<{widths[0]}}  {b:<{widths[1]}}  {bits:>4}\n" for a, b, bits in lines)
    return "".join(aligned)


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--winner", metavar="ITEM", help="The better of a pair, with --loser.")
@click.option("--loser", metavar="ITEM", help="The worse of a pair, with --winner.")
@click.option("--tie", metavar="ITEM ITEM", nargs=2, help="A pair that is equally good.")
@click.option("--skip", metavar="ITEM ITEM", nargs=2, help="A pair not to be asked again.")
@click.option("--undo", is_flag=True, help="Remove the last answer (of --judge, if given).")
@click.option("--first", metavar="ITEM", help="Which of the pair was shown first.")
@click.option("--items", metavar="ITEMS", help=_ITEMS_HELP)
@options.judge_name
@options.prior_sd
@shell_options.quiet
def record(file: str, **chosen: Any) -> None:
    """Add an answer to a file, or remove the last one.

    FILE is one that `rank compare` or Fullrank wrote, or will be started with --items. It is
    replaced as a whole or not at all, and several programs may add to it at the same time.
    """
    from evalstats_plugin.ranking.judging.items import read_items
    from evalstats_plugin.ranking.judging.session import Session

    pair, outcome = _answer(chosen)
    session = Session.open(
        file,
        None if chosen["items"] is None else read_items(chosen["items"]).names,
        judge=chosen["judge"],
        prior_variance=options.variance_of(chosen),
    )
    options.tell(session.notes, quiet=chosen["quiet"])
    if pair is None:
        said = _undone(session)
    else:
        _add(session, pair, outcome, chosen["first"])
        said = f"{options.answers(session)} in {file}"
    options.tell([said], quiet=chosen["quiet"])


def _answer(chosen: Mapping[str, Any]) -> tuple[tuple[str, str] | None, float | None]:
    """Return the two items and the outcome for the first of them; no items to undo."""
    won = chosen["winner"] is not None or chosen["loser"] is not None
    given = [won, chosen["tie"] is not None, chosen["skip"] is not None, chosen["undo"]]
    if sum(given) != 1:
        msg = (
            f"{sum(given) or 'no'} answers found, expected one of --winner A --loser B, "
            "--tie A B, --skip A B and --undo"
        )
        raise SelectionError(msg)
    if chosen["undo"]:
        return None, None
    winner, loser = chosen["winner"], chosen["loser"]
    if winner is not None and loser is not None:
        return (winner, loser), 1.0
    if won:
        found, missing = ("winner", "loser") if loser is None else ("loser", "winner")
        msg = f"--{found} without --{missing} found, expected both"
        raise SelectionError(msg)
    return (chosen["tie"], 0.5) if chosen["tie"] is not None else (chosen["skip"], None)


def _add(session: Session, pair: tuple[str, str], outcome: float | None, first: str | None) -> None:
    places = [session.place(name) for name in pair]
    if first is not None and session.place(first) not in places:
        msg = f"--first {first!r} found, expected one of the two: {pair[0]!r} or {pair[1]!r}"
        raise SelectionError(msg)
    if first == pair[1]:
        places, outcome = places[::-1], None if outcome is None else 1 - outcome
    session.answer(places[0], places[1], outcome, placed=first is not None)


def _undone(session: Session) -> str:
    answer = session.undo()
    if answer is None:
        msg = f"{session.path} holds no answer of this judge to undo"
        raise SelectionError(msg)
    names = " and ".join(session.names[place] for place in (answer.first, answer.second))
    return f"undone: {names}; {options.answers(session)} in {session.path}"


@click.command()
@click.argument("files", metavar="FILES...", nargs=-1, required=True)
@click.option("--output", "-o", metavar="FILE", required=True, help="File to write.")
@shell_options.quiet
def merge(files: tuple[str, ...], output: str, **chosen: Any) -> None:
    """Merge the answers of several judges into one file.

    Items are the same where their names are. Answers that name no judge are taken for those of one
    judge, named like their file.
    """
    from evalstats_plugin.ranking.contests.files import merge as merged
    from evalstats_plugin.ranking.contests.files import read_contests, write_contests

    found = [read_contests(file) for file in files]
    whole = merged(*found, judges=[Path(file).stem for file in files])
    write_contests(whole, output)
    said = f"{len(whole)} answers on {len(whole.players)} items in {output}"
    options.tell([*whole.notes, said], quiet=chosen["quiet"])
