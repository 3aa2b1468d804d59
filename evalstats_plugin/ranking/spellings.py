"""How tables of comparisons call their columns, and how they spell who won.

The spellings are those of Chatbot Arena and MT-Bench (FastChat), AlpacaEval, Arena-Hard, evalica
and our own files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.wording import few, no_such


class Pair(NamedTuple):
    """Two columns that hold the players."""

    first: str
    second: str
    ordered: bool
    """Whether the first is the one that was shown first."""


PAIRS = (
    Pair("first", "second", ordered=True),
    Pair("left", "right", ordered=True),
    Pair("model_a", "model_b", ordered=True),
    Pair("player_a", "player_b", ordered=False),
    Pair("player_1", "player_2", ordered=False),
    Pair("model_1", "model_2", ordered=False),
    # AlpacaEval shows the two in random order and turns the answer round again.
    Pair("generator_1", "generator_2", ordered=False),
    Pair("model_x", "model_y", ordered=False),
)

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "winner": ("winner", "preferred", "verdict", "vote", "choice"),
    "loser": ("loser",),
    "outcome": ("outcome", "result"),
    "preference": ("preference",),
    "tie": ("tie", "is_tie", "draw"),
    "judge": ("judge", "judge_model", "judge_name", "annotator", "rater", "worker", "user"),
    "item": ("item", "item_id", "prompt_id", "question_id", "prompt", "question", "instruction"),
    "epoch": ("epoch", "repeat"),
    "position": ("position", "order", "shown_first", "first"),
    "weight": ("weight",),
    "time": ("time", "timestamp", "tstamp"),
}
"""Names by which each part of a comparison is known, the most telling first."""

PARTS = ("first", "second", *COLUMNS, "features")
"""What can be said with ``columns=``."""

FEATURE = "feature:"
"""Start of the names of columns that hold a feature, in files we write."""

_BY_WORD = {
    1.0: "first, left, a, model_a, player_a, 1, model_1, player_1, generator_1, output_1, "
    "assistant_a, answer_a, response_a, win, won, w, a>b, a>>b",
    0.0: "second, right, b, model_b, player_b, 2, model_2, player_2, generator_2, output_2, "
    "assistant_b, answer_b, response_b, loss, lose, lost, l, b>a, b>>a",
    0.5: "tie, draw, tie (bothbad), tie(bothbad), tie (both bad), bothbad, both_bad, both bad, "
    "both, neither, equal, same, c, a=b, =",
}
WORDS: Mapping[str, float] = {
    form: outcome
    for outcome, words in _BY_WORD.items()
    for word in words.split(", ")
    # MT-Bench's judges put brackets round their verdict.
    for form in (word, f"[[{word}]]", f"[{word}]")
}
"""Outcome of the first, by how it is spelt in small letters."""

UNDECIDED = frozenset({"", "nan", "none", "null", "na", "n/a", "skip", "skipped"})
"""Spellings of an answer that was not given."""

SPELLINGS = (
    "the name of one of the two, or first, left, A, model_a, 1, win for the first; second, right, "
    "B, model_b, 2, loss for the second; tie, tie (bothbad), both_bad, draw, C for a tie "
    "(numbers from 0 to 1 are an outcome: outcome=COLUMN)"
)


@dataclass(frozen=True)
class Layout:
    """Which column holds which part of a comparison."""

    columns: Mapping[str, str]
    ordered: bool = False
    features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def layout_of(names: Sequence[str], asked: Mapping[str, str], where: str) -> Layout:
    """Say which column is what: as asked, and the others by their names.

    Parameters
    ----------
    names
        Of the columns. One inside another is known by its last part too.
    asked
        Column by part (`PARTS`); ``features`` takes several, with commas between them.

    Raises
    ------
    SelectionError
        No such part or column, or too few columns to tell who was compared and who won.
    """
    _check_asked(names, asked, where)
    columns = {part: column for part, column in asked.items() if part != "features"}
    pair = None if "loser" in asked else _pair_of(names, asked)
    if pair is not None:
        columns |= {"first": pair.first, "second": pair.second}
    for part, known in COLUMNS.items():
        column = None if part in columns else _find(names, known, set(columns.values()))
        if column is not None:
            columns[part] = column
    columns = _needed(columns, asked)
    _check_enough(columns, names, where)
    given = tuple(n.strip() for n in asked.get("features", "").split(",") if n.strip())
    notes: tuple[str, ...] = ()
    if pair is not None and pair.first.rpartition(".")[2] == "model_a" and not asked.get("first"):
        notes = ("model_a is taken for the one that was shown first, as arenas show it",)
    return Layout(
        columns,
        ordered=pair is not None and pair.ordered,
        features=given or tuple(n for n in names if n.startswith(FEATURE)),
        notes=notes if "position" not in columns else (),
    )


def column_of(part: str, names: Sequence[str]) -> str | None:
    """Return the column that is known to hold a part by its name; None where there is none."""
    return _find(names, COLUMNS[part], set())


def _check_asked(names: Sequence[str], asked: Mapping[str, str], where: str) -> None:
    for part, column in asked.items():
        if part not in PARTS:
            raise SelectionError(no_such("part of a comparison", part, PARTS, ", ".join(PARTS)))
        if part != "features" and column not in names:
            raise SelectionError(missing_column(column, names, where))


def missing_column(column: str, names: Sequence[str], where: str) -> str:
    """Say that a column is not there, and which ones are close."""
    close = get_close_matches(column, names, n=3, cutoff=0.5)
    ends = [n for n in names if n.rpartition(".")[2] == column.rpartition(".")[2]]
    hint = dict.fromkeys((*ends[:3], *close))
    closest = f"did you mean {' or '.join(hint)}? There" if hint else "there"
    return f"{where} has no column {column!r}; {closest} are: {few(names, 20)}"


def _pair_of(names: Sequence[str], asked: Mapping[str, str]) -> Pair | None:
    """Return the two columns that hold the players, if there are any."""
    first, second = asked.get("first"), asked.get("second")
    if first and second:
        return Pair(first, second, ordered=True)
    for known in PAIRS:
        found = Pair(
            first or _one(names, known.first) or "",
            second or _one(names, known.second) or "",
            ordered=known.ordered,
        )
        # The column that was asked for has the other one of its pair beside it.
        fits = (not first or _last(first) == known.first) and (
            not second or _last(second) == known.second
        )
        if fits and found.first and found.second:
            return found
    return None


def _last(name: str) -> str:
    return name.rpartition(".")[2].casefold()


def _one(names: Sequence[str], known: str) -> str | None:
    """Return the column of a name: as it is, else inside another column, if only once."""
    whole = [n for n in names if n.casefold() == known]
    inside = [n for n in names if _last(n) == known]
    found = whole or inside
    return found[0] if len(found) == 1 else None


def _find(names: Sequence[str], known: Sequence[str], used: set[str]) -> str | None:
    found = (_one(names, name) for name in known)
    return next((n for n in found if n is not None and n not in used), None)


def _needed(columns: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """Leave one column that says who won, and what belongs to it."""
    results = ("winner", "outcome", "preference")
    chosen = next((r for r in results if r in asked), None)
    chosen = chosen or next((r for r in results if r in columns), None)
    kept = {p: c for p, c in columns.items() if p not in results or p == chosen}
    if "first" in kept:
        kept.pop("loser", None)
    return kept


def _check_enough(columns: Mapping[str, str], names: Sequence[str], where: str) -> None:
    by_place = {"first", "second"} <= columns.keys() and (
        columns.keys() & {"winner", "outcome", "preference"}
    )
    if by_place or {"winner", "loser"} <= columns.keys():
        return
    have = ", ".join(f"{part}={column}" for part, column in columns.items()) or "none of them"
    msg = (
        f"{where}: columns {few(names, 20)} found, expected two players (winner and loser, or "
        "model_a and model_b, left and right, first and second) and who won (winner, outcome or "
        f"preference); known are {have}: name the others, as in first=COLUMN, second=COLUMN, "
        "winner=COLUMN"
    )
    raise SelectionError(msg)
