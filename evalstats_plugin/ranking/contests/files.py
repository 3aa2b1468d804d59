"""Read, write and merge files of comparisons: CSV, JSONL, JSON, Parquet and Fullrank's format.

* `read_contests`: recognises the format by the content; `write_contests`: by the ending
* `merge`, `with_players`: match players, judges and items of several files by name
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from evalstats_plugin.data.tables import (
    Record,
    Table,
    csv_table,
    parquet_table,
    read_lines,
    record_table,
    records_of,
)
from evalstats_plugin.errors import (
    DesignError,
    LogError,
    SelectionError,
    WriteError,
    counted,
    few,
    no_such,
)
from evalstats_plugin.ranking.contests.assembly import (
    UNKNOWN_CATEGORY,
    UNKNOWN_JUDGE,
    contests_from_table,
    contradictions,
)
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.fullrank import (
    answers_from,
    answers_of,
    as_value,
    contests_of,
    is_fullrank,
)
from evalstats_plugin.runtime.files import parse_json
from evalstats_plugin.runtime.untrusted import csv_cell
from evalstats_plugin.runtime.writing import write_bytes
from evalstats_plugin.stats.arrays import IntArray

_PARQUET = b"PAR1"
_PACKED = {b"\x1f\x8b": "gzip", b"PK": "zip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ARENA_HARD_BASELINE = "baseline"
"""Name of the model that all others met, where a judgment does not give it."""
_ENDINGS = (".csv", ".jsonl", ".json", ".parquet")
_GROUPS = (
    ("judge", "judges", UNKNOWN_JUDGE), ("cluster", "clusters", None),
    ("category", "categories", UNKNOWN_CATEGORY),
)  # fmt: skip
"""Fields of `Contests` that number and name groups; the name of contests without such a group, None
where each is a group of its own."""


def read_contests(
    source: str | Path | IO[Any],
    *,
    columns: Mapping[str, str] | None = None,
    players: Sequence[str] | None = None,
) -> Contests:
    """Read the comparisons of a file; the format is recognised by its content.

    CSV with a header, JSONL, a JSON list, Parquet, or Fullrank's ``comparisons.json``. Columns with
    usual names are recognised: winner and loser; or two players (first and second, left and right,
    model_a and model_b, generator_1 and generator_2) with a winner, an outcome from 0 to 1 for the
    first, or AlpacaEval's preference from 1 for the first to 2 for the second; and judge, item,
    position, weight and time. So exports of Chatbot Arena and LMArena, AlpacaEval's annotations,
    Arena-Hard's judgments and MT-Bench's of pairs are read as they come, and results of games
    (White and Black, 1-0; a score of each), counts (wins, losses, ties), and rankings (rank_1,
    rank_2 and so on; or a column ``ranking`` of a > b > c), as comparisons of every two.

    Parameters
    ----------
    source
        A path, ``"-"`` for standard input, or an open file.
    columns
        Column by part of a comparison, for columns whose names are not recognised, such as
        ``{"first": "left", "winner": "w"}``; a dotted path leads into the objects of JSON. Parts:
        first, second, winner, loser, outcome, preference, first_score and second_score (the higher
        wins), tie, judge, item (which makes clusters), epoch, position (who was shown first),
        weight, time, category, and features: columns separated by commas, each a difference or the
        common name of the two sides' columns (``length`` for length_a and length_b). First and
        second, if named here, are assumed to have been shown in that order, unless there is a
        ``position``.
    players
        Names in the wanted order, which may include players without a comparison. Default: those
        of the file, sorted; for Fullrank's format, as in the file.

    Raises
    ------
    LogError
        The file cannot be read.
    SelectionError
        A column, a part or a player is unknown; the message suggests the closest.
    DesignError
        A row cannot be understood, a player meets itself, or there are no comparisons.
    """
    content, where = _content(source)
    if not content.strip():
        raise LogError(f"{where} is empty. Write comparisons: a winner and a loser, or a tie.")
    parsed = _table(content, where)
    if isinstance(parsed, Table):
        return contests_from_table(parsed, columns, players)
    if other := [part for part in columns or () if part not in ("item", "category")]:
        msg = f"columns {', '.join(other)} named, but {where} is a file of Fullrank's, without"
        raise SelectionError(msg)
    made = contests_of(answers_from(parsed, where), where, columns or {})
    return made if players is None else with_players(made, players)


def write_contests(contests: Contests, path: str | Path) -> Path:
    """Write contests atomically, in the format of the file's ending.

    ``.csv``, ``.jsonl`` and ``.parquet`` hold the columns of `Contests.to_frame`, ``.json`` is
    Fullrank's format. Only the last keeps players without a comparison, and the players' order.

    Raises
    ------
    DesignError
        Contests with features, for which Fullrank's format has no place.
    WriteError
        Another ending, or the file cannot be written; an existing file is then unchanged.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        msg = f"{path} has no ending of a known format. Use one of {', '.join(_ENDINGS)}."
        raise WriteError(msg)
    if ending == ".json":
        if contests.features is not None:
            msg = "Fullrank's file has no place for features: write .jsonl, .csv or .parquet"
            raise DesignError(msg)
        text = json.dumps(as_value(answers_of(contests)), indent="\t") + "\n"
        return write_bytes(path, text.encode())
    frame = contests.to_frame()
    if ending == ".csv":
        inert = frame.map(_inert)
        return write_bytes(path, inert.to_csv(index=False, lineterminator="\n").encode())
    if ending == ".jsonl":
        rows = zip(*(frame[name].tolist() for name in frame), strict=True)
        names = [str(name) for name in frame]
        lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
        return write_bytes(path, "".join(lines).encode())
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return write_bytes(path, buffer.getvalue())


def _inert(cell: Any) -> Any:
    return csv_cell(cell) if isinstance(cell, str) else cell


def merge(*contests: Contests, judges: Sequence[str] | None = None) -> Contests:
    """Concatenate contests; players, judges and items are matched by name.

    Parameters
    ----------
    judges
        Judge of each of the contests, for those that do not name theirs.

    Raises
    ------
    DesignError
        Nothing to merge, different features, or not as many judges as contests.
    """
    if not contests:
        raise DesignError("there is nothing to merge: give contests")
    if judges is not None:
        if len(judges) != len(contests):
            names, files = counted(len(judges), "name"), counted(len(contests), "file")
            raise DesignError(f"{names} of judges for {files}: name one judge for each file")
        contests = tuple(
            c if c.judge is not None
            else replace(c, judge=np.zeros(len(c), dtype=np.int64), judges=(name,))
            for c, name in zip(contests, judges, strict=True)
        )  # fmt: skip
    names = contests[0].feature_names
    if other := [c.feature_names for c in contests if c.feature_names != names]:
        raise DesignError(
            f"some contests have the features {few(names) or 'none'}, others "
            f"{few(other[0]) or 'none'}. Give all the same features."
        )
    players = tuple(dict.fromkeys(name for c in contests for name in c.players))
    parts = [with_players(c, players) for c in contests]
    joined: dict[str, Any] = {
        field: np.concatenate([getattr(c, field) for c in parts])
        for field in ("first", "second", "outcome", "weight", *(("features",) if names else ()))
    }
    for group, listed, unknown in _GROUPS:
        codes = [(getattr(c, group), getattr(c, listed), len(c)) for c in parts]
        joined[group], joined[listed] = _united(codes, unknown)
    if any(c.time is not None for c in parts):
        joined["time"] = np.concatenate(
            [np.full(len(c), "", dtype=object) if c.time is None else c.time for c in parts]
        )
    ordered = [c.ordered for c in parts]
    made = Contests(players=players, ordered=all(ordered), feature_names=names, **joined)
    notes = [note for c in parts for note in c.notes]
    if any(ordered) and not all(ordered):
        notes.append("some of the files do not tell who was shown first: unused")
    if len(parts) > 1:
        notes += contradictions(made)
    return replace(made, notes=tuple(dict.fromkeys(notes)))


def with_players(contests: Contests, players: Sequence[str]) -> Contests:
    """Return the same contests with another list of players, which may be longer.

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


def _united(
    parts: Sequence[tuple[IntArray | None, tuple[str, ...], int]], unknown: str | None
) -> tuple[IntArray | None, tuple[str, ...]]:
    """Match groups by name; contests without one get the given name, or are groups of one."""
    if all(codes is None for codes, _, _ in parts):
        return None, ()
    names = dict.fromkeys(name for _, named, _ in parts for name in named)
    numbered: list[IntArray] = []
    for number, (codes, named, size) in enumerate(parts, 1):
        mine, at = named, codes
        if at is None:
            mine = (unknown,) if unknown else tuple(f"({number}, {k + 1})" for k in range(size))
            at = np.zeros(size, dtype=np.int64) if unknown else np.arange(size)
            names |= dict.fromkeys(mine)
        places = {name: k for k, name in enumerate(names)}
        numbered.append(np.asarray([places[name] for name in mine], dtype=np.int64)[at])
    return np.concatenate(numbered), tuple(names)


def _content(source: str | Path | IO[Any]) -> tuple[bytes, str]:
    if not isinstance(source, (str, Path)):
        content: Any = source.read()
        name = str(getattr(source, "name", "the stream"))
        return (content.encode() if isinstance(content, str) else content), name
    if str(source) == "-":
        return sys.stdin.buffer.read(), "standard input"
    try:
        return Path(source).read_bytes(), str(source)
    except OSError as error:
        raise LogError(f"{source} cannot be read: {error.strerror or error}") from error


def _table(content: bytes, where: str) -> Table | Mapping[str, Any]:
    """Table of a file, or the JSON value of a Fullrank file."""
    if content.startswith(_PARQUET):
        return parquet_table(content, where)
    if packed := _PACKED.get(content[:2]):
        raise LogError(f"{where} is packed ({packed}): unpack it first")
    start = content.removeprefix(_BYTE_ORDER_MARK).lstrip()[:1]
    if start not in (b"{", b"["):
        return csv_table(content, where)
    if start == b"{" and _is_jsonl(content, where):
        records, notes = read_lines(content, where)
        if not records:
            raise LogError(f"{where} holds no whole comparison: its only line is half written")
    else:
        value = parse_json(content, Path(where))
        if is_fullrank(value):
            return value
        records, notes = records_of(value, where), ()
    games, about = _games(records)
    if not about:
        games, about = _pairs_of_games(records)
    return record_table(games, where, (*notes, *about))


def _games(records: Sequence[Record]) -> tuple[Sequence[Record], tuple[str, ...]]:
    """Make a comparison of each game of Arena-Hard's judgments; others stay as they are.

    A judgment is of a model against a baseline, in two games: first the baseline is shown first,
    then the model.
    """
    if not all(isinstance(entry.get("games"), list) and "model" in entry for entry in records):
        return records, ()
    made: list[Record] = []
    for record in records:
        baseline = record.get("baseline") or ARENA_HARD_BASELINE
        about = {k: v for k, v in record.items() if k not in ("games", "model", "baseline")}
        for number, game in enumerate(cast("list[Any]", record["games"])):
            pair = (baseline, record["model"])
            first, second = pair if number % 2 == 0 else pair[::-1]
            whole: Record = cast("Record", game) if isinstance(game, dict) else {}
            made.append(about | {"first": first, "second": second, "winner": whole.get("score")})
    notes = ["judgments of Arena-Hard: each game is a comparison, a large win counts as a win"]
    if not all(entry.get("baseline") for entry in records):
        notes.append(
            f"the baseline is called {ARENA_HARD_BASELINE!r}, as the file does not name it"
        )
    return made, tuple(notes)


def _pairs_of_games(records: Sequence[Record]) -> tuple[Sequence[Record], tuple[str, ...]]:
    """Make two comparisons of each of MT-Bench's judgments; others stay as they are.

    In the first game model_1 is shown first, in the second model_2; winners are named model_1,
    model_2, tie or error in both.
    """
    if not all({"model_1", "model_2", "g1_winner", "g2_winner"} <= r.keys() for r in records):
        return records, ()
    made: list[Record] = []
    for record in records:
        about = {k: v for k, v in record.items() if k not in ("model_1", "model_2")}
        for game, first, second in (("g1", "model_1", "model_2"), ("g2", "model_2", "model_1")):
            won = record[f"{game}_winner"]
            side = {first: "first", second: "second"}.get(won, won)
            pair = {"first": record[first], "second": record[second], "winner": side}
            made.append(about | pair)
    return made, ("judgments of MT-Bench: each of the two games is a comparison",)


def _is_jsonl(content: bytes, where: str) -> bool:
    """Whether the first line is a whole object, and not a table or Fullrank file in one line."""
    first = content.removeprefix(_BYTE_ORDER_MARK).lstrip().partition(b"\n")[0]
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        # An autosaved file may consist of a single line that is cut off.
        return where.endswith(".jsonl")
    columns = isinstance(value, dict) and all(
        isinstance(v, list) for v in cast("dict[str, Any]", value).values()
    )
    return not (is_fullrank(value) or columns)
