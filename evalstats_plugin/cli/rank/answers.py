"""``evalstats-plugin rank next``, ``record`` and ``merge``: comparisons without a terminal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.rank.options import Choosing, judge_name, opened, prior_sd, variance_of
from evalstats_plugin.cli.shell import shared
from evalstats_plugin.cli.shell.options import POSITIVE, command, takes, under
from evalstats_plugin.cli.shell.running import Output, tell
from evalstats_plugin.errors import SelectionError, counted

if TYPE_CHECKING:
    from evalstats_plugin.ranking.judging.session import Answers


def _items() -> Any:
    return under("What is asked")(
        "Items to start the file with, where it does not exist yet: as for `rank compare`.",
        type=click.Path(), metavar="ITEMS",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Next(Choosing):
    """Which pairs are printed, and how many."""

    items: str | None = _items()
    pairs: int = under("How pairs are chosen")(
        "Number of pairs.", "-k", default=5, type=POSITIVE, metavar="N"
    )


@command(name="next")
@click.argument("file", metavar="FILE", type=click.Path())
@takes("asked", Next)
@takes("output", Output, without=("figure", "figure_file"), form={"default": "json"})
def next_pairs(file: str, *, asked: Next, output: Output) -> None:
    """Print the pairs to ask next, chosen jointly, the most informative first.

    FILE holds the answers so far. For each pair: who to show first (drawn at random) and second,
    and the information about which of them is better that the answer is expected to give, in bits.
    """
    from evalstats_plugin.ranking.judging.standing import Goal, Standing
    from evalstats_plugin.report.rankings import NEXT, NextPair, NextPairs

    rule = Goal.of(asked.goal, 0.95, asked.rule).rule
    recorded = _known(file, asked.items, variance_of(asked.prior_sd))
    names = recorded.names
    if len(names) < 2:
        contents = f"only {names[0]}" if names else "no items"
        raise SelectionError(f"{file} has {contents}: it takes two or more to compare")
    standing = Standing(len(names), recorded.prior_variance, seed=asked.seed)
    standing.update(recorded.given)
    chosen = standing.choose(rule, asked.pairs, recorded.skipped)
    if not chosen:
        output.tell("every pair was skipped: none is left to ask")
    pairs = (NextPair(names[p.first], names[p.second], round(p.bits, 4)) for p in chosen)
    how = {"rule": rule, **({} if asked.seed is None else {"seed": asked.seed})}
    output.show(NextPairs(tuple(pairs), recorded.notes), how, NEXT)


def _known(file: str, items: str | None, variance: float | None) -> Answers:
    """Return the answers of a file of any kind, or none yet on these items."""
    from evalstats_plugin.ranking.contests.files import read_contests
    from evalstats_plugin.ranking.contests.fullrank import answers_of
    from evalstats_plugin.ranking.judging.items import read_items
    from evalstats_plugin.ranking.judging.session import Session

    names = None if items is None else read_items(items).names
    stream, saved = opened(file)
    if stream is None and (saved is not None or not Path(file).exists()):
        return Session.open(file, names, prior_variance=variance).answers
    if saved is not None and names is None:
        return replace(saved, prior_variance=variance or saved.prior_variance)
    prior = variance or (1.0 if saved is None else saved.prior_variance)
    return answers_of(read_contests(stream or file, players=names), prior)


_answer = under("Answer")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer as it is typed: one of its ways to say who won, or to undo."""

    winner: str | None = _answer("The better of a pair, with --loser.", metavar="ITEM")
    loser: str | None = _answer("The worse of a pair, with --winner.", metavar="ITEM")
    tie: tuple[str, str] | None = _answer(
        "A pair that is equally good.", nargs=2, metavar="ITEM ITEM"
    )
    skip: tuple[str, str] | None = _answer(
        "A pair not to be asked again.", nargs=2, metavar="ITEM ITEM"
    )
    undo: bool = _answer("Remove the last answer (of --judge, if given).", default=False)
    first: str | None = _answer("Which of the pair was shown first.", metavar="ITEM")
    items: str | None = _items()
    judge: str | None = judge_name()
    prior_sd: float | None = prior_sd()
    quiet: bool = shared.quiet()

    def pair(self) -> tuple[tuple[str, str] | None, float | None]:
        """Return the two items and the outcome for the first of them; no items to undo."""
        won = self.winner is not None or self.loser is not None
        given = sum([won, self.tie is not None, self.skip is not None, self.undo])
        if given != 1:
            problem = f"there are {counted(given, 'answer')}" if given else "there is no answer"
            msg = f"{problem}: pass one of --winner A --loser B, --tie A B, --skip A B and --undo"
            raise SelectionError(msg)
        if self.winner is not None and self.loser is not None:
            return (self.winner, self.loser), 1.0
        if won:
            option, other = ("winner", "loser") if self.loser is None else ("loser", "winner")
            raise SelectionError(f"--{option} alone is no answer: pass --{other} too")
        return (self.tie, 0.5) if self.tie is not None else (self.skip, None)


@command()
@click.argument("file", metavar="FILE", type=click.Path())
@takes("asked", Answer)
def record(file: str, *, asked: Answer) -> None:
    """Add an answer to a file, or remove the last one.

    FILE is one that `rank compare` or Fullrank wrote, or will be started with --items. It is
    replaced as a whole or not at all, and several programs may add to it at the same time.
    """
    from evalstats_plugin.ranking.judging.items import read_items
    from evalstats_plugin.ranking.judging.session import Session

    pair, outcome = asked.pair()
    session = Session.open(
        file,
        None if asked.items is None else read_items(asked.items).names,
        judge=asked.judge,
        prior_variance=variance_of(asked.prior_sd),
    )
    tell(session.answers.notes, quiet=asked.quiet)
    undone = ""
    if pair is not None:
        places = [session.place(name) for name in pair]
        if asked.first is not None and session.place(asked.first) not in places:
            msg = f"--first {asked.first!r} is not in the pair: pass {pair[0]!r} or {pair[1]!r}"
            raise SelectionError(msg)
        if asked.first == pair[1]:
            places, outcome = places[::-1], None if outcome is None else 1 - outcome
        session.answer(places[0], places[1], outcome, placed=asked.first is not None)
    elif (answer := session.undo()) is not None:
        names = " and ".join(session.names[place] for place in (answer.first, answer.second))
        undone = f"undone: {names}; "
    else:
        raise SelectionError(f"{session.path} holds no answer of this judge to undo")
    done = f"{undone}{counted(len(session.given), 'answer')} in {file}"
    tell([done], quiet=asked.quiet)


@dataclass(frozen=True, kw_only=True)
class Merging:
    """Where merged answers go."""

    output: str = shared.file("File to write.", "-o", required=True)
    quiet: bool = shared.quiet()


@command()
@click.argument("files", metavar="FILES...", nargs=-1, required=True, type=click.Path())
@takes("asked", Merging)
def merge(files: tuple[str, ...], *, asked: Merging) -> None:
    """Merge the answers of several judges into one file.

    Items are the same where their names are. Answers without the name of a judge count as those of
    one judge, named like their file.
    """
    from evalstats_plugin.ranking.contests.files import merge as merged
    from evalstats_plugin.ranking.contests.files import read_contests, write_contests

    by_judge = [read_contests(file) for file in files]
    whole = merged(*by_judge, judges=[Path(file).stem for file in files])
    write_contests(whole, asked.output)
    done = f"{len(whole)} answers on {len(whole.players)} items in {asked.output}"
    tell([*whole.notes, done], quiet=asked.quiet)
