"""Several files of comparisons as one, players and judges told by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.assembly import UNKNOWN_JUDGE
from evalstats_plugin.ranking.contests import Contests, IntArray
from evalstats_plugin.ranking.contradictions import contradictions
from evalstats_plugin.wording import few, no_such


def merge(*contests: Contests, judges: Sequence[str] | None = None) -> Contests:
    """Put contests together, in order; players, judges and items of one name are the same.

    Parameters
    ----------
    judges
        Who answered each of the files, for those that do not tell it themselves.

    Raises
    ------
    DesignError
        Nothing to merge, other features, or not as many judges as contests.
    """
    if not contests:
        msg = "nothing to merge found, expected contests"
        raise DesignError(msg)
    if judges is not None:
        contests = _judged(contests, judges)
    names = contests[0].feature_names
    if other := [c.feature_names for c in contests if c.feature_names != names]:
        msg = (
            f"contests with features {few(names) or 'none'} and {few(other[0]) or 'none'} found, "
            "expected the same features in all"
        )
        raise DesignError(msg)
    players = tuple(dict.fromkeys(name for c in contests for name in c.players))
    parts = [with_players(c, players) for c in contests]
    judge, judge_names = _united([(c.judge, c.judges, len(c)) for c in parts], UNKNOWN_JUDGE)
    cluster, cluster_names = _united([(c.cluster, c.clusters, len(c)) for c in parts], None)
    ordered = [c.ordered for c in parts]
    made = Contests(
        players=players,
        first=np.concatenate([c.first for c in parts]),
        second=np.concatenate([c.second for c in parts]),
        outcome=np.concatenate([c.outcome for c in parts]),
        weight=np.concatenate([c.weight for c in parts]),
        judge=judge,
        judges=judge_names,
        cluster=cluster,
        clusters=cluster_names,
        ordered=all(ordered),
        features=np.concatenate([c.features for c in parts if c.features is not None])
        if names
        else None,
        feature_names=names,
        time=_times(parts),
    )
    notes = [note for c in parts for note in c.notes]
    if any(ordered) and not all(ordered):
        notes.append("some of the files do not tell who was shown first: unused")
    if len(parts) > 1:
        notes += contradictions(made)
    return replace(made, notes=tuple(dict.fromkeys(notes)))


def with_players(contests: Contests, players: Sequence[str]) -> Contests:
    """Return the same contests with another list of players, that may be longer.

    Raises
    ------
    SelectionError
        A player who took part is not in the list.
    """
    names = tuple(players)
    places = {name: k for k, name in enumerate(names)}
    met = np.unique(np.concatenate([contests.first, contests.second]))
    if unknown := [p for k in met if (p := contests.players[int(k)]) not in places]:
        raise SelectionError(no_such("player", unknown[0], names, few(names, 20)))
    place = np.asarray([places.get(name, -1) for name in contests.players], dtype=np.int64)
    return replace(
        contests, players=names, first=place[contests.first], second=place[contests.second]
    )


def _judged(contests: Sequence[Contests], judges: Sequence[str]) -> tuple[Contests, ...]:
    if len(judges) != len(contests):
        msg = f"{len(judges)} judges for {len(contests)} files found, expected one for each"
        raise DesignError(msg)
    return tuple(
        c if c.judge is not None
        else replace(c, judge=np.zeros(len(c), dtype=np.int64), judges=(name,))
        for c, name in zip(contests, judges, strict=True)
    )  # fmt: skip


def _united(
    parts: Sequence[tuple[IntArray | None, tuple[str, ...], int]], unknown: str | None
) -> tuple[IntArray | None, tuple[str, ...]]:
    """Number groups by name; what has none shares the name given, or stands alone."""
    if all(codes is None for codes, _, _ in parts):
        return None, ()
    names = dict.fromkeys(name for _, own, _ in parts for name in own)
    found: list[IntArray] = []
    for number, (codes, own, size) in enumerate(parts, 1):
        mine, at = own, codes
        if at is None:
            mine = (unknown,) if unknown else tuple(f"({number}, {k + 1})" for k in range(size))
            at = np.zeros(size, dtype=np.int64) if unknown else np.arange(size)
            names |= dict.fromkeys(mine)
        places = {name: k for k, name in enumerate(names)}
        found.append(np.asarray([places[name] for name in mine], dtype=np.int64)[at])
    return np.concatenate(found), tuple(names)


def _times(parts: Sequence[Contests]) -> NDArray[np.object_] | None:
    if all(c.time is None for c in parts):
        return None
    blank = [np.full(len(c), "", dtype=object) if c.time is None else c.time for c in parts]
    return np.concatenate(blank)
