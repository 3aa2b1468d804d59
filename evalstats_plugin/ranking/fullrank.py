"""The file of Fullrank, ``comparisons.json``: read, and written so that Fullrank reads it too.

::

    {"items": ["a", "b"], "prior_var": 1.0, "comparisons": [{"winner": 0, "loser": 1}]}

Fullrank passes over names it does not know. Ours, which a comparison may have too: ``tie`` (true),
``outcome`` (the winner's share, where it is no whole win), ``first`` (place of the item that was
shown first), ``judge``, ``item`` (the prompt), ``time``, ``weight``. Fullrank knows no ties and
takes one for a win of the item that stands as winner.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.atomic import write_bytes
from evalstats_plugin.errors import DesignError, LogError
from evalstats_plugin.ranking.assembly import groups_of
from evalstats_plugin.ranking.columns import Column
from evalstats_plugin.ranking.contests import Contests
from evalstats_plugin.ranking.records import json_value

EXPECTED = (
    'expected {"items": [names], "prior_var": number, "comparisons": [{"winner": place, '
    '"loser": place}]}'
)


class FullrankFile(NamedTuple):
    """What such a file holds."""

    contests: Contests
    prior_variance: float
    """Of each item's score, before any comparison."""


def is_fullrank(value: Any) -> bool:
    """Whether a value of JSON is laid out as Fullrank's."""
    return isinstance(value, Mapping) and {"items", "comparisons"} <= value.keys()


def read_fullrank(path: str | Path) -> FullrankFile:
    """Read a ``comparisons.json``.

    Raises
    ------
    LogError
        It cannot be read, or is another kind of file.
    DesignError
        It has no comparisons, or some that cannot be.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise LogError(msg) from error
    value = json_value(content, str(path))
    if not is_fullrank(value):
        msg = f"{path} is no file of Fullrank's, {EXPECTED}"
        raise LogError(msg)
    return of_fullrank(value, str(path))


def of_fullrank(value: Mapping[str, Any], where: str) -> FullrankFile:
    """Return what such a file, already parsed, holds."""
    players = _players(value["items"], where)
    rows = _rows(value["comparisons"], where)
    winner = _places(rows, "winner", len(players), where)
    loser = _places(rows, "loser", len(players), where)
    first, told = _shown_first(rows, winner, loser, where)
    share = _shares(rows, where)
    judge, item = (Column.of(row.get(key) for row in rows) for key in ("judge", "item"))
    made = Contests(
        players=players,
        first=np.where(first == winner, winner, loser),
        second=np.where(first == winner, loser, winner),
        outcome=np.where(first == winner, share, 1 - share),
        weight=_numbers(rows, "weight", 1.0, where),
        ordered=bool(told.all()),
        time=np.asarray([r.get("time") or "" for r in rows], dtype=object)
        if any("time" in r for r in rows)
        else None,
        notes=_about_order(told),
        **groups_of(judge, item),
    )
    made.check()
    return FullrankFile(made, _prior(value.get("prior_var", 1.0), where))


def _players(items: Any, where: str) -> tuple[str, ...]:
    names = cast("list[Any]", items) if isinstance(items, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        msg = f"{where}: items are no list of names, {EXPECTED}"
        raise LogError(msg)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"{where}: item {twice!r} found twice, expected different names"
        raise DesignError(msg)
    return tuple(names)


def _rows(comparisons: Any, where: str) -> list[Mapping[str, Any]]:
    rows = cast("list[Any]", comparisons) if isinstance(comparisons, list) else None
    if rows is None or not all(isinstance(row, Mapping) for row in rows):
        msg = f"{where}: comparisons are no list of objects, {EXPECTED}"
        raise LogError(msg)
    return rows


def _prior(value: Any, where: str) -> float:
    if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
        return float(value)
    msg = f"{where}: prior_var {value!r} found, expected a number above 0"
    raise DesignError(msg)


def _places(rows: Sequence[Mapping[str, Any]], key: str, n: int, where: str) -> NDArray[np.int64]:
    found = [row.get(key) for row in rows]
    for number, place in enumerate(found, 1):
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < n:
            msg = (
                f"{where}: comparison {number} has {key} {place!r}, expected a place from 0 to "
                f"{n - 1} in the list of items"
            )
            raise DesignError(msg)
    return np.asarray(found, dtype=np.int64)


def _shown_first(
    rows: Sequence[Mapping[str, Any]],
    winner: NDArray[np.int64],
    loser: NDArray[np.int64],
    where: str,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return who was shown first, the winner where that is not told, and whether it is told."""
    told = np.asarray(["first" in row for row in rows], dtype=bool)
    given = [row.get("first") for row in rows]
    either = [f in (int(w), int(x)) for f, w, x in zip(given, winner, loser, strict=True)]
    if (wrong := np.flatnonzero(told & ~np.asarray(either, dtype=bool))).size:
        number = int(wrong[0])
        msg = (
            f"{where}: comparison {number + 1} has first {given[number]!r}, expected the place of "
            f"one of the two, {winner[number]} or {loser[number]}"
        )
        raise DesignError(msg)
    pairs = zip(given, winner, told, strict=True)
    return np.asarray([f if t else w for f, w, t in pairs], dtype=np.int64), told


def _about_order(told: NDArray[np.bool_]) -> tuple[str, ...]:
    if told.all() or not told.any():
        return ()
    lacking = int((~told).sum())
    return (f"{lacking} of {len(told)} comparisons do not tell who was shown first: unused",)


def _numbers(
    rows: Sequence[Mapping[str, Any]], key: str, default: float, where: str
) -> NDArray[np.float64]:
    found = [row.get(key, default) for row in rows]
    for number, value in enumerate(found, 1):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            msg = f"{where}: comparison {number} has {key} {value!r}, expected a number"
            raise DesignError(msg)
    return np.asarray(found, dtype=np.float64)


def _shares(rows: Sequence[Mapping[str, Any]], where: str) -> NDArray[np.float64]:
    """Return the share of the win that went to the winner, shape (C,)."""
    tied = np.asarray([row.get("tie", False) is True for row in rows], dtype=bool)
    return np.where(tied, 0.5, _numbers(rows, "outcome", 1.0, where))


def fullrank_value(contests: Contests, prior_variance: float = 1.0) -> dict[str, Any]:
    """Return contests as the value of such a file.

    Raises
    ------
    DesignError
        Contests with features, for which the file has no place.
    """
    if contests.features is not None:
        msg = "Fullrank's file has no place for features: write .jsonl, .csv or .parquet"
        raise DesignError(msg)
    lost = contests.outcome < 0.5
    columns: dict[str, Any] = {
        "winner": np.where(lost, contests.second, contests.first).tolist(),
        "loser": np.where(lost, contests.first, contests.second).tolist(),
    }
    share = np.where(lost, 1 - contests.outcome, contests.outcome)
    columns["tie"] = [True if s == 0.5 else None for s in share.tolist()]
    columns["outcome"] = [s if 0.5 < s < 1 else None for s in share.tolist()]
    if contests.ordered:
        columns["first"] = contests.first.tolist()
    if contests.judge is not None:
        columns["judge"] = [contests.judges[k] for k in contests.judge]
    if contests.cluster is not None:
        columns["item"] = [contests.clusters[k] for k in contests.cluster]
    if contests.time is not None:
        columns["time"] = [t or None for t in contests.time]
    columns["weight"] = [None if w == 1 else w for w in contests.weight.tolist()]
    rows = zip(*columns.values(), strict=True)
    comparisons = [
        {k: v for k, v in zip(columns, row, strict=True) if v is not None} for row in rows
    ]
    return {
        "items": list(contests.players),
        "prior_var": float(prior_variance),
        "comparisons": comparisons,
    }


def write_fullrank(contests: Contests, path: str | Path, prior_variance: float = 1.0) -> Path:
    """Write contests so that Fullrank reads them, whole or not at all.

    Parameters
    ----------
    prior_variance
        Of each item's score, before any comparison.

    Raises
    ------
    DesignError
        Contests with features, for which the file has no place.
    WriteError
        The file cannot be written; what was there is unchanged.
    """
    value = fullrank_value(contests, prior_variance)
    return write_bytes(Path(path), (json.dumps(value, indent="\t") + "\n").encode())
