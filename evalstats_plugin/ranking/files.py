"""Comparisons in files: CSV, JSONL, JSON, Parquet, and Fullrank's own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from evalstats_plugin.atomic import write_bytes
from evalstats_plugin.errors import LogError, SelectionError, WriteError
from evalstats_plugin.ranking.assembly import contests_of
from evalstats_plugin.ranking.columns import Table
from evalstats_plugin.ranking.contests import Contests
from evalstats_plugin.ranking.fullrank import (
    FullrankFile,
    is_fullrank,
    of_fullrank,
    read_fullrank,
    write_fullrank,
)
from evalstats_plugin.ranking.merging import merge, with_players
from evalstats_plugin.ranking.records import json_value, read_lines, record_table, records_of
from evalstats_plugin.ranking.spellings import FEATURE
from evalstats_plugin.ranking.tabular import csv_table, parquet_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FullrankFile",
    "merge",
    "read_contests",
    "read_fullrank",
    "to_frame",
    "with_players",
    "write_contests",
    "write_fullrank",
]

_PARQUET = b"PAR1"
_PACKED = {b"\x1f\x8b": "gzip", b"PK": "zip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}
_ENDINGS = (".csv", ".jsonl", ".json", ".parquet")


def read_contests(
    source: str | Path | IO[Any],
    *,
    columns: Mapping[str, str] | None = None,
    players: Sequence[str] | None = None,
) -> Contests:
    """Read the comparisons of a file, whose form is told by its content.

    CSV with a heading, JSONL, a JSON list, Parquet, or Fullrank's ``comparisons.json``. Columns
    are known by their names where these are usual ones: winner and loser; or two players (first
    and second, left and right, model_a and model_b, generator_1 and generator_2) with a winner, an
    outcome from 0 to 1 for the first, or AlpacaEval's preference from 1 for the first to 2 for the
    second; and judge, item, position, weight and time.

    Parameters
    ----------
    source
        A path, ``"-"`` for standard input, or an open file.
    columns
        Column by what it holds, where its name does not tell, such as
        ``{"first": "left", "winner": "w"}``; a dotted path leads into the objects of JSON. Parts:
        first, second, winner, loser, outcome, preference, tie, judge, item (which makes clusters),
        epoch, position (who was shown first), weight, time, and features: columns with commas
        between them, each of a difference or, by the beginning of their names, of the two sides
        (``length`` for length_a and length_b). First and second, if named here, are taken to have
        been shown in that order, unless ``position`` tells.
    players
        Names in the order wanted, also of players without a comparison. Default: those of the
        file, sorted; of Fullrank's file as there.

    Raises
    ------
    LogError
        The file cannot be read.
    SelectionError
        A column, a part or a player is not known; the message has the closest.
    DesignError
        A row cannot be understood, a player meets itself, or there are no comparisons.
    """
    content, where = _content(source)
    if not content.strip():
        msg = f"{where} is empty, expected comparisons: a winner and a loser, or a tie"
        raise LogError(msg)
    found = _table(content, where)
    if isinstance(found, Table):
        return contests_of(found, columns, players)
    if columns:
        msg = f"columns {', '.join(columns)} named, but {where} is a file of Fullrank's, without"
        raise SelectionError(msg)
    made = of_fullrank(found, where).contests
    return made if players is None else with_players(made, players)


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
        msg = f"{source} cannot be read: {error.strerror or error}"
        raise LogError(msg) from error


def _table(content: bytes, where: str) -> Table | Mapping[str, Any]:
    """Return the table of a file, or the value of one of Fullrank's."""
    if content.startswith(_PARQUET):
        return parquet_table(content, where)
    if packed := _PACKED.get(content[:2]):
        msg = f"{where} is packed ({packed}): unpack it first"
        raise LogError(msg)
    start = content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start not in (b"{", b"["):
        return csv_table(content, where)
    if start == b"{" and _is_lines(content, where):
        return record_table(*_lines(content, where))
    value = json_value(content, where)
    return value if is_fullrank(value) else record_table(records_of(value, where), where)


def _lines(content: bytes, where: str) -> tuple[Any, str, tuple[str, ...]]:
    records, notes = read_lines(content, where)
    if not records:
        msg = f"{where} holds no whole comparison: its only line is half written"
        raise LogError(msg)
    return records, where, notes


def _is_lines(content: bytes, where: str) -> bool:
    """Whether there is a whole object in the first line; one of Fullrank's in one line is none."""
    first = content.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        # An autosaved file may consist of one line, half written.
        return where.endswith(".jsonl")
    columns = isinstance(value, dict) and all(
        isinstance(v, list) for v in cast("dict[str, Any]", value).values()
    )
    return not (is_fullrank(value) or columns)


def to_frame(contests: Contests) -> pd.DataFrame:
    """Return contests as a frame, one a row, under the names that `read_contests` knows.

    The players are ``first`` and ``second`` where it is known who was shown first, else
    ``player_a`` and ``player_b``; ``outcome`` is that of the first.
    """
    import pandas as pd

    players = np.asarray(contests.players, dtype=object)
    one, two = ("first", "second") if contests.ordered else ("player_a", "player_b")
    found: dict[str, Any] = {
        one: players[contests.first],
        two: players[contests.second],
        "outcome": contests.outcome,
        "weight": contests.weight,
    }
    if contests.judge is not None:
        found["judge"] = np.asarray(contests.judges, dtype=object)[contests.judge]
    if contests.cluster is not None:
        found["item"] = np.asarray(contests.clusters, dtype=object)[contests.cluster]
    if contests.time is not None:
        found["time"] = contests.time
    if contests.features is not None:
        named = zip(contests.feature_names, contests.features.T, strict=True)
        found |= {FEATURE + name: values for name, values in named}
    return pd.DataFrame(found)


def write_contests(contests: Contests, path: str | Path) -> Path:
    """Write contests whole or not at all, in the form that the name's ending says.

    ``.csv``, ``.jsonl`` and ``.parquet`` hold the columns of `to_frame`, ``.json`` is Fullrank's
    file. Only the last keeps players without a comparison, and the order of the players.

    Raises
    ------
    WriteError
        Another ending, or the file cannot be written; what was there is unchanged.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        msg = f"{path} ends in {ending or 'nothing'}, expected {', '.join(_ENDINGS)}"
        raise WriteError(msg)
    if ending == ".json":
        return write_fullrank(contests, path)
    frame = to_frame(contests)
    if ending == ".csv":
        return write_bytes(path, frame.to_csv(index=False, lineterminator="\n").encode())
    if ending == ".jsonl":
        rows = zip(*(frame[name].tolist() for name in frame), strict=True)
        names = [str(name) for name in frame]
        lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
        return write_bytes(path, "".join(lines).encode())
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return write_bytes(path, buffer.getvalue())
