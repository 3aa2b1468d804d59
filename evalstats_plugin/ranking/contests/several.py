"""Tables whose rows are several comparisons each, as tables of one comparison a row.

* counts: two players, how often each won, and how often they tied
* rankings: the players of a row in order, which is a comparison of every two of them
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np

from evalstats_plugin.data.tables import Column, Table, at_rows
from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.stats.arrays import IntArray

WINS = (("wins a", "wins b"), ("wins 1", "wins 2"), ("win 1", "win 2"), ("wins", "losses"))
"""Columns that count how often the first and the second won, by their words."""
TIES = ("ties", "draws")
PLACE = "rank "
"""The column of the player in a place is called so, with a number."""
RANKING = "ranking"
MOST = 10**8
"""Most comparisons of counts."""


def counts_of(words: Mapping[str, str]) -> list[str]:
    """Return the columns of counts, of wins, losses and perhaps ties, of a table's columns."""
    both = next((w for w in WINS if set(w) <= words.keys()), ())
    return [words[w] for w in (*both, *(t for t in TIES if both and t in words))]


def by_counts(table: Table, names: Sequence[str], players: Sequence[str]) -> Table:
    """Return a table with a row for each comparison that was counted, and a column ``winner``.

    Where every pair is listed from the side of both players, one side counts.

    Raises
    ------
    DesignError
        A count is no whole number, or there are too many.
    """
    loaded = table.load(names)
    counts = np.zeros((len(loaded[names[0]].codes), 3))
    for at, name in enumerate(names):
        expected = "how often it happened, a whole number"
        counts[:, at] = np.nan_to_num(loaded[name].numbers(name, table.where, expected))
        wrong = (counts[:, at] < 0) | (counts[:, at] % 1 != 0)
        loaded[name].refuse(wrong, name, table.where, expected)
    if counts.sum() > MOST:
        raise DesignError(f"{table.where} counts {counts.sum():.3g} comparisons: at most {MOST:g}")
    whole = counts.astype(np.int64)
    note = f"{', '.join(names)} count comparisons: each is one of its own"
    pairs = list(zip(*(column.texts() for column in table.load(players).values()), strict=True))
    listed = dict(zip(pairs, whole.tolist(), strict=True))
    if len(listed) == len(pairs) and all(
        listed.get((b, a)) == [lost, won, tied] for (a, b), (won, lost, tied) in listed.items()
    ):
        whole[[a > b for a, b in pairs]] = 0
        note += ", and is listed for both players: one of the two counts"
    rows = np.repeat(np.arange(len(whole)), whole.sum(axis=1))
    won = np.repeat(np.tile(np.arange(3), len(whole)), whole.ravel())
    return _spread(table, rows, {"winner": Column(won, ("first", "second", "tie"))}, note)


def places_in(words: Mapping[str, str]) -> list[str]:
    """Return the columns of a table that hold a ranking."""
    places = {w.removeprefix(PLACE): name for w, name in words.items() if w.startswith(PLACE)}
    inside = [places[p] for p in sorted((p for p in places if p.isdigit()), key=int)]
    return inside if len(inside) > 1 else [words[RANKING]] if RANKING in words else []


def by_places(table: Table, names: Sequence[str], item: str | None) -> Table:
    """Return a table with a row for every two players of a ranking.

    Parameters
    ----------
    item
        Column of the items that were judged; without it each ranking is an item.

    Raises
    ------
    DesignError
        A row ranks a player twice.
    """
    columns = [column.texts() for column in table.load(names).values()]
    rows: list[int] = []
    pairs: list[tuple[str, str, str]] = []
    for row, cells in enumerate(zip(*columns, strict=True)):
        ranked = [[cell] for cell in cells if cell] if len(cells) > 1 else list(_ranked(cells[0]))
        flat = [(name, place) for place, level in enumerate(ranked) for name in level]
        if len({name for name, _ in flat}) < len(flat):
            raise DesignError(f"{table.where}: {at_rows(np.asarray([row]))} ranks a player twice")
        for (one, place), (other, behind) in combinations(flat, 2):
            rows.append(row)
            pairs.append((one, other, "first" if place < behind else "tie"))
    if not rows:
        raise DesignError(f"{table.where}: no ranking in {counted(len(columns[0]), 'row')}: write "
                          "names from the best to the worst, as a > b > c, or in columns rank_1, "
                          "rank_2 and so on")  # fmt: skip
    parts = zip(("player_a", "player_b", "winner"), zip(*pairs, strict=True), strict=True)
    made = {name: Column.of(cells) for name, cells in parts}
    if item is None:
        made["item"] = Column.of(f"ranking {row + 1}" for row in rows)
    note = "rankings: every two players of a ranking are a comparison"
    return _spread(table, np.asarray(rows), made, note)


def _ranked(cell: str) -> Iterator[list[str]]:
    """Names on each place of ``a > b = c`` or a JSON list."""
    with suppress(ValueError):
        if isinstance(listed := json.loads(cell), list):
            yield from ([str(name)] for name in listed)
            return
    for level in cell.split(">"):
        if equal := [name.strip() for name in level.split("=") if name.strip()]:
            yield equal


def _spread(table: Table, rows: IntArray, made: Mapping[str, Column], note: str) -> Table:
    """Return some rows of a table, with columns beside its own."""

    def load(wanted: Sequence[str]) -> dict[str, Any]:
        own = table.load([name for name in wanted if name not in made])
        return {name: made[name] if name in made else own[name].take(rows) for name in wanted}

    names = tuple(dict.fromkeys((*table.names, *made)))
    return Table(table.where, names, load, (*table.notes, note))
