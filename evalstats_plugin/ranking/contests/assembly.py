"""Contests out of the columns of a table."""
# PART answers - Who won, out of the many ways to write it: a name, a place, a word, a number.
# PART spellings - How tables of comparisons call their columns, and how they spell who won.
# PART contradictions - Comparisons that were answered twice, and differently.
# PART judge_logs - Contests out of the samples of a harness, each the verdict of a judge on two answers.

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.tables import Column, Record, Table, record_table
from evalstats_plugin.errors import DesignError, SelectionError, few, missing_column, no_such
from evalstats_plugin.ranking.contests.contests import FEATURE, Contests
from evalstats_plugin.stats.arrays import FloatArray, IntArray

UNKNOWN_JUDGE = "(unknown)"
"""Stands for the judges of comparisons that do not tell theirs."""


SIDES = (("_a", "_b"), ("_1", "_2"), ("_first", "_second"), ("_left", "_right"))
"""Endings of two columns that hold a feature of each side."""


READ_AS_NAMES = (
    "answers that could be a player's name or a place, such as 'A', are read as names of players"
)


_TRUE = dict.fromkeys(("true", "1", "yes", "y", "t", "tie", "draw"), 1.0)


_FALSE = dict.fromkeys(("false", "0", "no", "n", "f", "none", "nan"), 0.0)


_PLACES = {"winner": 1.0, "loser": 0.0}


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


_MOST = 2**62
"""Numbers below it fit into the keys."""


RESULTS = ("winner", "outcome", "preference")


_GRADES = frozenset({"C", "I", "P", "N"})


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


@dataclass(frozen=True)
class Answers:
    """The answers of C comparisons, each between a player `i` and a player `j`."""

    where: str
    layout: Layout
    columns: Mapping[str, Column]
    """By part of a comparison."""
    players: Sequence[str]
    i: IntArray
    """Place in `players` of the one in the first column (or the winner's), shape (C,)."""
    j: IntArray
    notes: list[str] = field(default_factory=list[str])

    def outcome(self) -> FloatArray:
        """Return the outcome for i, NaN where nobody answered, shape (C,).

        Raises
        ------
        DesignError
            A row says something that is not understood.
        """
        won = self._won() if "first" in self.columns else np.ones(len(self.i))
        column = self.columns.get("tie")
        if column is None:
            return won
        tied = column.translated({**_TRUE, **_FALSE})
        wrong = np.isnan(tied) & ~column.empty
        column.refuse(wrong, self.layout.columns["tie"], self.where, "true or false")
        return np.where(tied == 1, 0.5, won)

    def _won(self) -> FloatArray:
        part = next(p for p in ("winner", "outcome", "preference") if p in self.columns)
        column, name = self.columns[part], self.layout.columns[part]
        if part == "preference":
            # AlpacaEval: 1 for the first, 2 for the second, 1.5 (once 0) for neither.
            found = column.numbers(name, self.where, "a number from 1 to 2")
            found = np.where(found == 0, 1.5, found)
            wrong = (found < 1) | (found > 2)
            column.refuse(wrong, name, self.where, "a number from 1 to 2")
            return 2 - found
        if part == "outcome" and _are_numbers(column):
            found = column.numbers(name, self.where, "a number from 0 to 1")
            wrong = (found < 0) | (found > 1)
            column.refuse(wrong, name, self.where, "a number from 0 to 1")
            return found
        won = self._side(column, {})
        undecided = np.asarray([*(v.casefold() in UNDECIDED for v in column.values), True])
        column.refuse(np.isnan(won) & ~undecided[column.codes], name, self.where, SPELLINGS)
        return won

    def shown_second(self, *, must: bool) -> tuple[NDArray[np.bool_], bool]:
        """Say where i was shown second, and whether it is known at all; shape (C,).

        Parameters
        ----------
        must
            Whether the column was named by the caller, so that it has to be understood.
        """
        column = self.columns.get("position")
        none = np.zeros(len(self.i), dtype=bool)
        if column is None:
            return none, self.layout.ordered
        first = self._side(column, {} if "first" in self.columns else _PLACES)
        told = np.isin(first, (0.0, 1.0))
        if told.all():
            return first == 0, True
        name = self.layout.columns["position"]
        if must:
            expected = "the name of the one shown first, or its place: first or second, 1 or 2"
            column.refuse(~told & ~column.empty, name, self.where, expected)
        self.notes.append(f"{name!r} does not tell of every comparison who was shown first: unused")
        return none, False

    def _side(self, column: Column, more: Mapping[str, float]) -> FloatArray:
        """Return 1 for i, 0 for j, ½ for both, NaN for neither; shape (C,)."""
        shown = [self.layout.columns.get(part, "").casefold() for part in ("first", "second")]
        by_word = column.translated({**dict(zip(shown, (1.0, 0.0), strict=True)), **WORDS, **more})
        places = {name: k for k, name in enumerate(self.players)}
        named = np.asarray([*(places.get(v, -1) for v in column.values), -1])[column.codes]
        by_name = np.where(named == self.i, 1.0, np.where(named == self.j, 0.0, math.nan))
        is_name = named >= 0
        if np.isnan(by_name[is_name]).any():
            # Somebody who did not take part: then it is a place, where it can be one.
            return np.where(np.isnan(by_word), by_name, by_word)
        if (is_name & ~np.isnan(by_word) & (by_word != by_name)).any():
            self.notes.append(READ_AS_NAMES)
        return np.where(is_name, by_name, by_word)


def _are_numbers(column: Column) -> bool:
    """Whether a column holds a number at all, so that the other values should be numbers too."""
    return any(value[:1].isdigit() or value[:1] in {"-", "."} for value in column.values)


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


def contradictions(contests: Contests, epoch: IntArray | None = None) -> tuple[str, ...]:
    """Note how often one judge let each of two players win on one item.

    Nothing is said where items are not known: then a pair may well be compared several times.

    Parameters
    ----------
    epoch : shape (C,)
        Take of the item, where there are several: answers to different ones do not contradict.
    """
    if contests.cluster is None or len(contests.clusters) == len(contests):
        return ()
    low = np.minimum(contests.first, contests.second)
    high = np.maximum(contests.first, contests.second)
    codes = [low, high, contests.cluster, contests.judge, epoch]
    groups = _numbered([code for code in codes if code is not None])
    # Whether the first won, and whether the one with the lower number did.
    first = contests.outcome > 0.5
    lower = first == (contests.first == low)
    decided = contests.outcome != 0.5
    n = int(groups.max()) + 1

    def seen(which: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.bincount(groups[which & decided], minlength=n) > 0

    both = seen(lower) & seen(~lower)
    if not both.any():
        return ()
    n_both = int(both.sum())
    pairs = "1 pair was" if n_both == 1 else f"{n_both} pairs were"
    text = f"{pairs} answered both ways by one judge on one item: all kept"
    if contests.ordered:
        by_place = int((both & (seen(first) != seen(~first))).sum())
        text += f"; in {by_place} of them the same place won each time"
    return (text,)


def _numbered(codes: Sequence[IntArray]) -> IntArray:
    """Number the combinations of codes, from 0."""
    key, size = np.zeros(len(codes[0]), dtype=np.int64), 1
    for code in codes:
        # Codes of missing cells are -1.
        width = int(code.max()) + 2
        if size * width >= _MOST:
            key = np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
            size = int(key.max()) + 1
        key, size = key * width + code + 1, size * width
    return np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)


def contests_of_samples(
    samples: Sequence[Record],
    where: str,
    columns: Mapping[str, str],
    verdicts: Sequence[str],
    defaults: Mapping[str, str],
) -> Contests:
    """Make contests of samples, one each; what was read as what is noted.

    Parameters
    ----------
    columns
        Field by part of a comparison, as the caller asks.
    verdicts
        Fields in which the judge's verdict may stand, if the caller names none. A field of the
        item does not count: it may be another judge's.
    defaults
        Field by part, for judges and items whose fields are not known by their names.

    Raises
    ------
    SelectionError
        It cannot be told who was compared, or where the verdict is.
    """
    table = record_table(samples, where)
    asked = dict(columns)
    if "loser" not in asked and not asked.keys() & set(RESULTS):
        part, field = _verdict(table, [v for v in verdicts if v in table.names])
        asked[part] = field
    for part, field in defaults.items():
        asked.setdefault(part, column_of(part, table.names) or field)
    made = contests_of(table, asked)
    told = ", ".join(f"{part}={field}" for part, field in asked.items() if part not in columns)
    return replace(made, notes=(f"read as {told}", *made.notes) if told else made.notes)


def _verdict(table: Table, verdicts: Sequence[str]) -> tuple[str, str]:
    """Return the one field that says who won, and as what it is to be read."""
    if len(verdicts) != 1:
        found = f"{len(verdicts)} fields ({few(verdicts)})" if verdicts else "no field"
        msg = (
            f"{table.where}: {found} found that may say who won, expected one: name it, as in "
            f"winner={verdicts[0] if verdicts else 'FIELD'}; there are: {few(table.names, 20)}"
        )
        raise SelectionError(msg)
    [field] = verdicts
    column = table.load([field])[field]
    if column.values and set(column.values) <= _GRADES:
        msg = (
            f"{table.where}: {field} holds grades ({few(column.values)}), expected who won of two: "
            f"name the field that says so, as in winner=FIELD; there are: {few(table.names, 20)}"
        )
        raise SelectionError(msg)
    return _part(field, column), field


def _part(field: str, column: Column) -> str:
    last = field.rpartition(".")[2]
    if named := next((part for part in RESULTS if last in COLUMNS[part]), None):
        return named
    # An outcome is a number from 0 to 1, or a word; 1 and 2 are places.
    return "winner" if set(column.values) == {"1", "2"} else "outcome"
