"""Judged comparisons in: `read_contests`, through whatever adapters are installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.logs import find_logs
from evalstats_plugin.plugins import Plugins, load

if TYPE_CHECKING:
    from evalstats_plugin.ranking.contests import Contests


def read_contests(
    *paths: str | Path,
    columns: Mapping[str, str] | None = None,
    players: Sequence[str] | None = None,
    plugins: Plugins | None = None,
) -> Contests:
    """Read every comparison found in judges' logs and in files, as one.

    Parameters
    ----------
    paths
        Logs whose samples compare two models, folders or globs of them, and files as
        `ranking.files.read_contests` takes them; ``"-"`` is standard input. Players, judges and
        items of one name are the same.
    columns
        Column or field by what it holds, where its name does not tell, such as
        ``{"first": "metadata.model_a", "winner": "scores.judge.value"}``.
    players
        Names in the order wanted, also of players without a comparison.

    Raises
    ------
    LogError
        A path holds nothing that can be read.
    SelectionError
        A column or player is not known.
    DesignError
        A row cannot be understood, or there are no comparisons.
    """
    from evalstats_plugin.ranking import files

    plugins = plugins or load()
    asked = dict(columns or {})
    found: dict[str, Contests] = {}
    for log in find_logs([p for p in paths if str(p) != "-"], plugins):
        made = plugins.call("evalstats_read_contests", path=log, columns=asked)
        found[str(log)] = files.read_contests(log, columns=asked) if made is None else made
    if any(str(p) == "-" for p in paths):
        found["standard input"] = files.read_contests("-", columns=asked)
    merged = files.merge(*_with_source(found))
    if players is not None:
        merged = files.with_players(merged, players)
    return replace(merged, notes=(*plugins.problems, *merged.notes))


def _with_source(found: Mapping[str, Contests]) -> list[Contests]:
    """Say of each note which of several files it is about."""
    if len(found) < 2:
        return list(found.values())
    notes = [set(made.notes) for made in found.values()]
    alike = notes[0].intersection(*notes[1:])
    return [
        replace(
            made,
            notes=tuple(
                f"each of {len(found)} files: {note}" if note in alike else f"{name}: {note}"
                for note in made.notes
            ),
        )
        for name, made in found.items()
    ]
