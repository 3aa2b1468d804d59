"""Tables of rankings by pairwise comparisons, and sentences that explain them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from evalstats_plugin.data.results import Results
from evalstats_plugin.ranking.rows import Leaderboard, RankedPlayer, Ranking
from evalstats_plugin.report import text
from evalstats_plugin.report.comparisons import probability, sampled_p_value, sampled_probability
from evalstats_plugin.report.tables import Column, Table, fixed

LEADERBOARD_SCHEMA = "evalstats-plugin leaderboard 1"
"""Name and version of the fields of `leaderboard_json`."""
MOST_RANKS = 8
"""Most players whose probabilities of each rank are shown: as many as 80 columns hold."""


def _ranking(results: Ranking) -> text.Page:
    tables = [_table(results)]
    if len(results) <= MOST_RANKS:
        write, shares = _probabilities_of(results), results.rank_distribution()
        places_of = [Column(str(k), itemgetter(k), write) for k in range(1, len(results) + 1)]
        rows = list(shares.itertuples(name=None))
        columns = [Column("Player", itemgetter(0), least=6), *places_of]
        tables.append(Table("Probability of each rank", rows, columns))
    return text.Page(tables, legend(results))


def _probabilities_of(results: Ranking) -> Callable[[float | None], str]:
    """Return what writes its probabilities, with a decimal where their error allows one."""
    error = results.fit.diagnostics.get("probabilities_error", 1.0)
    return probability if error < 5e-4 else sampled_probability


def _leaderboard(results: Leaderboard) -> text.Page:
    tables = [_table(results.overall)]
    if results.by_category:
        columns = [
            Column(title, itemgetter(k), least=None if k else 10, right=k > 0)
            for k, title in enumerate(category_columns(results))
        ]
        title = "Ranks that the votes of each category leave open"
        tables.append(Table(title, category_lines(results), columns))
    return text.Page(tables, legend(results.overall, results.anchor))


def leaderboard_json(results: Leaderboard, about: Mapping[str, Any]) -> str:
    """Return the leaderboard as JSON, whose fields docs/guides/rankings.md describes."""
    by_category = {
        name: {row.player: row for row in ranking} for name, ranking in results.by_category.items()
    }
    first = results.overall.rows[0]
    value = {
        "schema": LEADERBOARD_SCHEMA,
        "confidence_level": first.confidence_level,
        "scale": first.scale,
        "scale_meaning": first.scale_meaning,
        "anchor": results.anchor or None,
        "players": [
            {
                "player": row.player, "rating": row.mean, "low": row.low, "high": row.high,
                "rank_low": row.rank_low, "rank_high": row.rank_high,
                "may_be_best": row.rank_low == 1, "prob_best": row.prob_best,
                "votes": row.n_contests, "letters": row.letters,
                "categories": {
                    name: {"rank_low": rows[row.player].rank_low,
                           "rank_high": rows[row.player].rank_high}
                    for name, rows in by_category.items() if row.player in rows
                },
            }
            for row in results.overall
        ],
        "wins": results.wins.tolist(),
        "notes": list(results.notes),
        "made": {name: None if made is None else str(made) for name, made in about.items()},
    }  # fmt: skip
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def category_columns(results: Leaderboard) -> list[str]:
    """Return the heads of `category_lines`."""
    return ["Player", "All votes", *results.by_category]


def category_lines(results: Leaderboard) -> list[list[str]]:
    """Return each player's ranges of ranks, over all votes and by category."""
    ranks_by_category = [
        {row.player: ranks(row) for row in ranking}
        for ranking in (results.overall, *results.by_category.values())
    ]
    players = [row.player for row in results.overall]
    return [
        [player, *(ranks.get(player, "–") for ranks in ranks_by_category)] for player in players
    ]


def legend(results: Ranking, anchor: str = "") -> list[str]:
    """Explain the numbers to readers who do not know the method."""
    first = results.rows[0]
    level = text.percent(first.confidence_level)
    mean = f"the mean rating is {1000 if first.scale == 'elo' else 0}"
    zero = anchor or mean
    said = [
        f"{first.scale_meaning}; {zero}. Interval: of this rating alone, {level}. "
        f"Rank: expected. Ranks: those left open, the ranges of all players at "
        f"once with {level}; players that share a letter cannot be told apart. P(best): how "
        "probable it is that the player is the best of all these. n: its comparisons."
    ]
    return [*said, *_whole(results)]


def _whole(results: Ranking) -> list[str]:
    """Describe how certain the whole order is, and whether one scale fits the comparisons."""
    good, said = results.goodness, list[str]()
    if good.entropy is not None:
        error = good.entropy.std_error
        low, high = (text.sampled(bits, error, 1) for bits in (good.entropy.low, good.entropy.high))
        between = low if low == high else f"{low} to {high}"
        said.append(
            f"Of the {good.entropy.most:.1f} bits that an order of {len(results)} has, {between} "
            "are still open."
        )
    if good.transitivity is not None and good.transitivity.n_triads:
        triads = good.transitivity
        by_chance = sampled_probability(triads.expected)
        share = "" if np.isnan(triads.expected) else f", {by_chance} expected"
        said.append(
            f"{100 * triads.cyclic:.1f} % of {triads.n_triads} triads go in a circle{share} by "
            f"chance (p {sampled_p_value(triads.p_value, triads.n_simulations)})."
        )
    if good.predictive_fit is not None:
        loss = good.predictive_fit
        said.append(
            f"Log loss {loss.log_loss:.3f} on these comparisons, {loss.constant:.3f} for saying "
            "the same of every pair."
        )
    if good.agreement is not None:
        alpha = good.agreement
        between = "" if np.isnan(alpha.low) else f" [{alpha.low:.2f}, {alpha.high:.2f}]"
        said.append(
            f"Agreement of judges on {alpha.n_units} pairs that several judged: Krippendorff's "
            f"alpha {alpha.alpha:.2f}{between}; 1 is always, 0 no more than by chance."
        )
    return [" ".join(said)] if said else []


def _table(results: Ranking) -> Table:
    contests = results.fit.diagnostics.get("n_contests")
    about = "" if contests is None else f", {votes(contests)} comparison{'s' * (contests != 1)}"
    rows = results.rows
    columns = (
        Column("Player", "player", least=6),
        Column(
            "Elo" if rows[0].scale == "elo" else "Rating",
            lambda row: rating(row.mean, row.scale),
            right=True,
        ),
        Column(text.interval_title(rows), limits),
        Column("Rank", "expected_rank", fixed(1)),
        Column("Ranks", ranks),
        Column("P(best)", "prob_best", _probabilities_of(results)),
        Column("Letters", "letters", least=6),
        Column("n", "n_contests", votes),
    )
    return Table(f"{len(results)} players{about}, {rows[0].method}", rows, columns)


def votes(n: float, separator: str = "") -> str:
    """Return a number of comparisons, which may count in parts, as it is written.

    >>> votes(0.5), votes(1_234_567), votes(1_234_567, ",")
    ('0.5', '1234567', '1,234,567')
    """
    return f"{n:{separator}.{'6g' if n < 100_000 else '0f'}}"


def limits(row: RankedPlayer) -> str:
    """Return the interval of a rating as it is written."""
    return text.interval_text(row, partial(rating, scale=row.scale))


def ranks(row: RankedPlayer) -> str:
    """Return the range of ranks as it is written."""
    return text.places(row.rank_low, row.rank_high)


def rating(value: float | None, scale: str) -> str:
    """Return a rating as it is written."""
    if value is None:
        return "–"
    return f"{value:.0f}" if scale == "elo" else f"{value:+z.2f}"


@dataclass(frozen=True)
class NextPair:
    """A pair to ask next: who is shown first, and the bits that the answer is expected to give."""

    first: str
    second: str
    bits: float


class NextPairs(Results[NextPair]):
    """Pairs to ask next, the most informative first."""


_NEXT = (
    *(Column("First", "first", least=8), Column("Second", "second", least=8)),
    Column("Bits", "bits", fixed(4)),
)
RANKING, LEADERBOARD = text.page_view(_ranking), text.page_view(_leaderboard)
NEXT = text.page_view(lambda results: text.Page([Table("", results.rows, _NEXT)]))
