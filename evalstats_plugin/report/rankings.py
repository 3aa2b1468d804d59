"""Tables of rankings by pairwise comparisons, and sentences that explain them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import numpy as np
from rich.table import Table
from rich.text import Text

from evalstats_plugin.ranking.rows import Leaderboard, RankedPlayer, Ranking
from evalstats_plugin.report import text as report_text
from evalstats_plugin.report.comparisons import (
    probability,
    sampled_p_value,
    sampled_probability,
)
from evalstats_plugin.report.text import View, percent, print_all, sampled, titled

_LEFT = (0, 2, 4, 6)
LEADERBOARD_SCHEMA = "evalstats-plugin leaderboard 1"
"""Name and version of the fields of `leaderboard_json`."""
MOST_RANKS = 8
"""Most players whose probabilities of each rank are shown: as many as 80 columns hold."""


def print_ranking(results: Ranking, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print the table, the notes and a legend."""
    said = [f"* {note}" for note in results.notes]
    tables = [_table(results)]
    if len(results) <= MOST_RANKS:
        tables.append(titled("Probability of each rank"))
        for k, name in enumerate(_rank_columns(results)):
            tables[1].add_column(name, justify="right" if k else "left", no_wrap=k > 0)
        for line in _rank_lines(results):
            tables[1].add_row(*map(Text, line))
    print_all(tables, said, [*legend(results), heading], file=file, width=width)


def rankings_markdown(results: Ranking, heading: str) -> str:
    """Return a Markdown table, the notes, a legend, and how it was made."""
    header = _columns(results.rows)
    right = [i for i in range(len(header)) if i not in _LEFT]
    table = report_text.markdown_table(header, _all_cells(results), right=right)
    if len(results) <= MOST_RANKS:
        columns = _rank_columns(results)
        right = range(1, len(columns))
        table += ["", *report_text.markdown_table(columns, _rank_lines(results), right=right)]
    said = report_text.markdown_list(results.notes)
    ends = [part for text in legend(results) for part in (text, "")]
    return "\n".join([*table, "", *said, "", *ends, heading, ""])


def _rank_columns(results: Ranking) -> list[str]:
    return ["Player", *(str(k + 1) for k in range(len(results)))]


def _rank_lines(results: Ranking) -> list[list[str]]:
    """Return each player's probability of each rank, the best player first."""
    table = results.rank_distribution()
    shown, rows = _probabilities_of(results), table.to_numpy().tolist()
    return [[str(name), *map(shown, row)] for name, row in zip(table.index, rows, strict=True)]


def _probabilities_of(results: Ranking) -> Callable[[float | None], str]:
    """Return what writes its probabilities, with a decimal where their error allows one."""
    error = results.fit.diagnostics.get("probabilities_error", 1.0)
    return probability if error < 5e-4 else sampled_probability


def print_leaderboard(
    results: Leaderboard, file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print the ranking of all votes, the ranks by category, the notes and a legend."""
    tables = [_table(results.overall)]
    if results.by_category:
        by_category = titled("Ranks that the votes of each category leave open")
        for k, name in enumerate(category_columns(results)):
            by_category.add_column(name, justify="right" if k else "left", overflow="fold")
        for line in category_lines(results):
            by_category.add_row(*map(Text, line))
        tables.append(by_category)
    said = [f"* {note}" for note in results.notes]
    print_all(
        tables, said, [*legend(results.overall, results.anchor), heading], file=file, width=width
    )


def leaderboard_markdown(results: Leaderboard, heading: str) -> str:
    """Return the same as Markdown."""
    header = _columns(results.overall.rows)
    right = [i for i in range(len(header)) if i not in _LEFT]
    lines = report_text.markdown_table(header, _all_cells(results.overall), right=right)
    if results.by_category:
        names = category_columns(results)
        columns = range(1, len(names))
        lines += ["", *report_text.markdown_table(names, category_lines(results), right=columns)]
    said = report_text.markdown_list(results.notes)
    ends = [part for text in legend(results.overall, results.anchor) for part in (text, "")]
    return "\n".join([*lines, "", *said, "", *ends, heading, ""])


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
    found = [
        {row.player: ranks(row) for row in ranking}
        for ranking in (results.overall, *results.by_category.values())
    ]
    players = [row.player for row in results.overall]
    return [[player, *(ranks.get(player, "–") for ranks in found)] for player in players]


def legend(results: Ranking, anchor: str = "") -> list[str]:
    """Explain the numbers to readers who do not know the method."""
    first = results.rows[0]
    level = percent(first.confidence_level)
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
        low, high = (sampled(bits, error, 1) for bits in (good.entropy.low, good.entropy.high))
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
    about = f", {contests:g} comparisons" if contests is not None else ""
    method = f", {results.rows[0].method}" if results.rows else ""
    table = titled(f"{len(results)} players{about}{method}")
    for i, name in enumerate(_columns(results.rows)):
        left = i in _LEFT
        whole = i == 0 or name == "Letters"
        table.add_column(
            name,
            justify="left" if left else "right",
            no_wrap=not whole,
            overflow="fold",
            min_width=6 if whole else None,
        )
    for cells in _all_cells(results):
        table.add_row(*map(Text, cells))
    return table


def _columns(rows: Sequence[RankedPlayer]) -> list[str]:
    level = percent(rows[0].confidence_level) if rows else "95 %"
    rating = "Elo" if rows and rows[0].scale == "elo" else "Rating"
    return ["Player", rating, f"{level} interval", "Rank", "Ranks", "P(best)", "Letters", "n"]


def _all_cells(results: Ranking) -> list[list[str]]:
    shown = _probabilities_of(results)
    return [_cells(row, shown(row.prob_best)) for row in results]


def _cells(row: RankedPlayer, prob_best: str) -> list[str]:
    expected = "–" if row.expected_rank is None else f"{row.expected_rank:.1f}"
    return [
        row.player,
        rating(row.mean, row.scale),
        limits(row),
        expected,
        ranks(row),
        prob_best,
        row.letters,
        f"{row.n_contests:.6g}",
    ]


def limits(row: RankedPlayer) -> str:
    """Return the interval of a rating as it is written."""
    if row.low is None or row.high is None:
        return "–"
    return f"[{rating(row.low, row.scale)}, {rating(row.high, row.scale)}]"


def ranks(row: RankedPlayer) -> str:
    """Return the range of ranks as it is written."""
    low, high = row.rank_low, row.rank_high
    return str(low) if low == high else f"{low}–{high}"


def rating(value: float | None, scale: str) -> str:
    """Return a rating as it is written."""
    if value is None:
        return "–"
    return f"{value:.0f}" if scale == "elo" else f"{value:+z.2f}"


RANKING = View(print_ranking, rankings_markdown)
LEADERBOARD = View(print_leaderboard, leaderboard_markdown)
