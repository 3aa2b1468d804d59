"""Contests out of the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.answers import Answers
from evalstats_plugin.ranking.columns import Column, Table
from evalstats_plugin.ranking.contests import Contests, FloatArray, IntArray
from evalstats_plugin.ranking.contradictions import contradictions
from evalstats_plugin.ranking.spellings import FEATURE, layout_of, missing_column
from evalstats_plugin.wording import few, no_such

UNKNOWN_JUDGE = "(unknown)"
"""Stands for the judges of comparisons that do not tell theirs."""

SIDES = (("_a", "_b"), ("_1", "_2"), ("_first", "_second"), ("_left", "_right"))
"""Endings of two columns that hold a feature of each side."""


def contests_of(
    table: Table, columns: Mapping[str, str] | None = None, players: Sequence[str] | None = None
) -> Contests:
    """Make contests of a table with one comparison a row.

    Parameters
    ----------
    columns
        Column by what it holds, where its name does not tell: first, second, winner, loser,
        outcome, preference, tie, judge, item, epoch, position, weight, time, features.
    players
        Names in the order wanted, also of players that no comparison has. Default: those found,
        sorted.

    Raises
    ------
    SelectionError
        A column or player is not known.
    DesignError
        A row cannot be read or compares a player with itself, or nothing is left.
    """
    asked = columns or {}
    layout = layout_of(table.names, asked, table.where)
    features = _feature_columns(layout.features, table)
    used = [*layout.columns.values(), *(name for each in features.values() for name in each)]
    loaded = table.load(list(dict.fromkeys(used)))
    parts = {part: loaded[name] for part, name in layout.columns.items()}
    one, two = (
        parts[p] for p in (("first", "second") if "first" in parts else ("winner", "loser"))
    )
    names = _players(one, two, players, table.where)
    i, j = one.numbered(names), two.numbered(names)
    _check_players(i, j, names, table.where)
    answers = Answers(table.where, layout, parts, names, i, j)
    swap, ordered = answers.shown_second(must="position" in asked)
    outcome = answers.outcome()
    made = Contests(
        players=names,
        first=np.where(swap, j, i),
        second=np.where(swap, i, j),
        outcome=np.where(swap, 1 - outcome, outcome),
        weight=_weights(parts.get("weight"), len(i), table.where),
        ordered=ordered,
        features=_differences(features, loaded, swap, table.where),
        feature_names=tuple(features),
        time=_texts(parts.get("time")),
        **groups_of(parts.get("judge"), parts.get("item")),
    )
    notes = (*table.notes, *layout.notes, *answers.notes)
    return _decided(made, parts.get("epoch"), notes, table.where)


def _feature_columns(names: Sequence[str], table: Table) -> dict[str, tuple[str, ...]]:
    """Say where each feature is: one column of differences, or one for each side."""
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        sides = [(name + a, name + b) for a, b in SIDES]
        both = next((s for s in sides if set(s) <= set(table.names)), ())
        if name not in table.names and not both:
            raise SelectionError(missing_column(name, table.names, table.where))
        found[name.removeprefix(FEATURE)] = (name,) if name in table.names else both
    return found


def _players(one: Column, two: Column, given: Sequence[str] | None, where: str) -> tuple[str, ...]:
    """Return the names of the players, those found or those given."""
    if not len(one.codes):
        msg = f"{where} has columns and no rows, expected one row for each comparison"
        raise DesignError(msg)
    found = sorted({*one.values, *two.values})
    if given is None:
        return tuple(found)
    names = tuple(given)
    if unknown := [name for name in found if name not in set(names)]:
        raise SelectionError(f"{where}: {no_such('player', unknown[0], names, few(names, 20))}")
    return names


def _check_players(i: IntArray, j: IntArray, names: Sequence[str], where: str) -> None:
    lacking, alone = np.flatnonzero((i < 0) | (j < 0)), np.flatnonzero(i == j)
    if len(lacking):
        msg = f"{where}: row {lacking[0] + 1} lacks a player ({len(lacking)} such rows)"
        raise DesignError(msg)
    if len(alone):
        msg = (
            f"{where}: row {alone[0] + 1} compares {names[int(i[alone[0]])]!r} with itself "
            f"({len(alone)} such rows), expected two different players: remove them"
        )
        raise DesignError(msg)


def _weights(column: Column | None, size: int, where: str) -> FloatArray:
    if column is None:
        return np.ones(size)
    found = column.numbers("weight", where, "a number ≥ 0")
    wrong = ~((found >= 0) & np.isfinite(found))
    _refuse_empty(column, "weight", where)
    column.refuse(wrong, "weight", where, "a number ≥ 0")
    return found


def _differences(
    features: Mapping[str, tuple[str, ...]],
    columns: Mapping[str, Column],
    swap: NDArray[np.bool_],
    where: str,
) -> FloatArray | None:
    """Return the features of the first less those of the second, shape (C, P)."""
    found: list[FloatArray] = []
    for names in features.values():
        for name in names:
            _refuse_empty(columns[name], name, where)
        sides = [columns[name].numbers(name, where, "a number") for name in names]
        found.append(sides[0] - sides[1] if len(sides) == 2 else sides[0])
    if not found:
        return None
    return np.where(swap[:, None], -1.0, 1.0) * np.stack(found, axis=1)


def _refuse_empty(column: Column, name: str, where: str) -> None:
    rows = np.flatnonzero(column.empty)
    if len(rows):
        msg = f"{where}: row {rows[0] + 1} has no {name} ({len(rows)} such rows), expected a number"
        raise DesignError(msg)


def _texts(column: Column | None) -> NDArray[np.object_] | None:
    if column is None:
        return None
    return np.asarray([*column.values, ""], dtype=object)[column.codes]


def groups_of(judge: Column | None, item: Column | None) -> dict[str, Any]:
    """Return judges and clusters, numbered and named, as fields of `Contests`."""
    found: dict[str, Any] = {}
    if judge is not None and judge.values:
        unknown = (UNKNOWN_JUDGE,) if judge.empty.any() else ()
        codes = np.where(judge.empty, len(judge.values), judge.codes)
        found |= {"judge": codes, "judges": (*judge.values, *unknown)}
    if item is not None and item.values:
        # What has no item belongs to nothing else.
        alone = np.flatnonzero(item.empty)
        codes = item.codes.copy()
        codes[alone] = len(item.values) + np.arange(len(alone))
        found |= {"cluster": codes, "clusters": (*item.values, *(f"(row {k + 1})" for k in alone))}
    return found


def _decided(made: Contests, epoch: Column | None, notes: tuple[str, ...], where: str) -> Contests:
    """Leave out what nobody answered; check the rest and say what is odd about it."""
    undecided = np.isnan(made.outcome)
    if undecided.all():
        msg = f"{where}: {len(undecided)} rows and no answer found, expected at least one"
        raise DesignError(msg)
    if undecided.any():
        notes = (*notes, f"{int(undecided.sum())} comparisons without an answer: left out")
        made = made.take(~undecided)
    made.check()
    odd = contradictions(made, None if epoch is None else epoch.codes[~undecided])
    return replace(made, notes=(*notes, *odd))
