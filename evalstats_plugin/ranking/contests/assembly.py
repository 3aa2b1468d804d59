"""Contests from the columns of a table, or from the samples of a log.

* `contests_from_table`: one comparison a row; `contests_from_samples`: one a sample of a judge log
* `layout_of`: which column holds which part of a comparison, by the names in `PAIRS` and `COLUMNS`
* `Answers`: who won, from the many ways of writing it: a name, a place, a word or a number
* `contradictions`: pairs that one judge answered both ways
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.tables import Column, Record, Table, at_rows, record_table
from evalstats_plugin.errors import (
    DesignError,
    SelectionError,
    check_known,
    counted,
    few,
    missing_column,
    no_such,
)
from evalstats_plugin.ranking.contests import several
from evalstats_plugin.ranking.contests.contests import FEATURE, Contests
from evalstats_plugin.stats.arrays import FloatArray, IntArray

RESULTS = ("winner", "outcome", "preference", "first_score")
"""Parts of a comparison that say who won; one of them is used."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "winner": (
        "winner",
        "winner_name",
        "winner_id",
        "winning_model",
        "chosen_model",
        "preferred",
        "preferred_model",
        "verdict",
        "vote",
        "choice",
        "overall_winner",
        "better_id",
        "better",
        "selected",
        "label",
    ),
    "loser": ("loser", "loser_name", "loser_id", "losing_model", "rejected_model"),
    # Chatbot Arena's competition has a column of 0 and 1 for each outcome; ftr is football's.
    "outcome": ("outcome", "result", "winner_model_a", "ftr"),
    "preference": ("preference", "pref"),
    # Those of SCORED.
    "first_score": (),
    "second_score": (),
    "tie": ("tie", "is_tie", "draw", "winner_tie", "winner_model_tie"),
    "judge": (
        "judge",
        "judge_model",
        "judge_name",
        "annotator",
        "annotator_id",
        "rater",
        "worker",
        "user",
    ),
    "item": (
        "item",
        "item_id",
        "prompt_id",
        "question_id",
        "uid",
        "session_id",
        "prompt",
        "question",
        "instruction",
    ),
    "epoch": ("epoch", "repeat", "turn"),
    "position": ("position", "order", "shown_first", "first"),
    "weight": ("weight",),
    "time": ("time", "timestamp", "tstamp"),
}
"""Column names by which each part of a comparison is recognised, in order of preference; case and
what separates words do not count."""

PARTS = ("first", "second", *COLUMNS, "category", "features")
"""Parts that can be named with ``columns=``."""


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
    # AlpacaEval shows the two in random order and swaps the answer back.
    Pair("generator_1", "generator_2", ordered=False),
    Pair("model_x", "model_y", ordered=False),
    *(
        Pair(name.format(first), name.format(second), ordered)
        for name in (
            "model_{}", "{}_model", "model_{}_name", "answer_{}_model", "response_{}_model",
            "player_{}", "{}_player", "player_{}_name", "system_{}", "sys_{}", "method_{}",
            "agent_{}", "team_{}", "{}_team", "candidate_{}", "{}",
            "name_{}", "{}_name", "id_{}", "{}_id",
        )
        for first, second, ordered in (
            ("left", "right", True), ("white", "black", True), ("home", "away", True),
            ("a", "b", False), ("1", "2", False), ("first", "second", False),
        )
        # Columns that are only called a and b, or 1 and 2, hold the answers themselves.
        if name != "{}" or ordered
    ),
    Pair("player", "opponent", ordered=False),
    Pair("model", "opponent", ordered=False),
    Pair("team", "opponent", ordered=False),
    Pair("candidate", "baseline", ordered=False),
    Pair("model", "baseline", ordered=False),
)  # fmt: skip

SCORED = tuple(
    (name.format(a), name.format(b))
    for name in ("score_{}", "{}_score", "score_model_{}", "{}_goals", "{}_points")
    for a, b in (("a", "b"), ("1", "2"), ("home", "away"), ("left", "right"))
)
"""Columns with a score of each player of a comparison; the higher one wins."""

SIDES = (("_a", "_b"), ("_1", "_2"), ("_first", "_second"), ("_left", "_right"))
"""Suffixes of two columns that hold a feature of each side."""
UNKNOWN_JUDGE = "(unknown)"
"""Name of the judge of comparisons without one."""
UNKNOWN_CATEGORY = "none"
"""The same of the category."""

_BY_WORD = {
    1.0: "first, left, a, model_a, player_a, 1, model_1, player_1, generator_1, output_1, "
    "assistant_a, answer_a, response_a, win, won, w, a>b, a>>b, a+, a++, white, home, 1-0",
    0.0: "second, right, b, model_b, player_b, 2, model_2, player_2, generator_2, output_2, "
    "assistant_b, answer_b, response_b, loss, lose, lost, l, b>a, b>>a, b+, b++, black, away, 0-1",
    0.5: "tie, draw, tie (bothbad), tie(bothbad), tie (both bad), bothbad, both_bad, both bad, "
    "both, neither, equal, same, c, a=b, =, tie (both good), both_good, both good, no preference, "
    "no_preference, 1/2-1/2, ½-½, 1/2, ½",
}

WORDS: Mapping[str, float] = {
    form: outcome
    for outcome, words in _BY_WORD.items()
    for word in words.split(", ")
    for spelling in (word, word.replace("_", " "), word.replace("_", ""))
    # MT-Bench's judges put brackets around their verdict.
    for form in (spelling, f"[[{spelling}]]", f"[{spelling}]")
}
"""Outcome of the first, by its spelling in lower case."""

AT_HOME = {"h": 1.0, "a": 0.0, "d": 0.5}
"""The same where the first plays at home and the second away."""

UNDECIDED = frozenset({"", "nan", "none", "null", "na", "n/a", "skip", "skipped", "error", "*"})
"""Spellings of a missing answer."""

SPELLINGS = (
    "the name of one of the two, or first, left, A, model_a, 1, win for the first; second, right, "
    "B, model_b, 2, loss for the second; tie, tie (bothbad), both_bad, draw, C for a tie "
    "(numbers from 0 to 1 are an outcome of the first: --columns outcome=COLUMN)"
)

READ_AS_NAMES = (
    "answers that could be a player's name or a place, such as 'A', are read as names of players"
)

_TRUE = dict.fromkeys(("true", "1", "yes", "y", "t", "tie", "draw"), 1.0)
_FALSE = dict.fromkeys(("false", "0", "no", "n", "f", "none", "nan"), 0.0)
_PLACES = {"winner": 1.0, "loser": 0.0}
_GRADES = frozenset({"C", "I", "P", "N"})
_MOST_KEYS = 2**62
"""Keys of `_combinations` stay below this."""


def contests_from_table(
    table: Table, columns: Mapping[str, str] | None = None, players: Sequence[str] | None = None
) -> Contests:
    """Make contests from a table with one comparison a row.

    Parameters
    ----------
    columns
        Column by part of a comparison (`PARTS`), for columns whose names are not recognised.
    players
        Names in the wanted order, which may include players without comparisons. Default: the
        players found, sorted.

    Raises
    ------
    SelectionError
        A column or player is unknown.
    DesignError
        A row cannot be read or compares a player with itself, or nothing is left.
    """
    asked = columns or {}
    table = _one_a_row(table, asked)
    layout = layout_of(table.names, asked, table.where)
    features = _feature_columns(layout.features, table)
    used = [*layout.columns.values(), *(name for each in features.values() for name in each)]
    loaded = table.load(list(dict.fromkeys(used)))
    parts = {part: loaded[name] for part, name in layout.columns.items()}
    first_column, second_column = (
        parts[p] for p in (("first", "second") if "first" in parts else ("winner", "loser"))
    )
    names, i, j = _players(first_column, second_column, players, table.where)
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
        time=parts["time"].texts() if "time" in parts else None,
        **groups_of(parts, table.where),
    )
    notes = [*table.notes, *layout.notes, *answers.notes]
    undecided = np.isnan(made.outcome)
    if undecided.all():
        n_rows = counted(len(undecided), "row")
        raise DesignError(f"{table.where}: no answer in {n_rows}: give at least one")
    if undecided.any():
        n_undecided = counted(int(undecided.sum()), "comparison")
        notes.append(f"{n_undecided} without an answer: left out")
        made = made.take(~undecided)
    made.check()
    epoch = parts["epoch"].codes[~undecided] if "epoch" in parts else None
    return replace(made, notes=(*notes, *contradictions(made, epoch)))


def contests_from_samples(
    samples: Sequence[Record],
    where: str,
    columns: Mapping[str, str],
    verdicts: Sequence[str],
    defaults: Mapping[str, str],
) -> Contests:
    """Make contests from the samples of a log, one each; a note says how fields were read.

    Parameters
    ----------
    columns
        Field by part of a comparison, as named by the caller.
    verdicts
        Fields that may hold the judge's verdict, if the caller names none. Fields of the item do
        not count: they may be another judge's.
    defaults
        Field by part, for judges and items whose fields are not recognised by their names.

    Raises
    ------
    SelectionError
        The fields do not say who was compared, or where the verdict is.
    """
    table = record_table(samples, where)
    asked = dict(columns)
    if "loser" not in asked and not asked.keys() & set(RESULTS):
        part, field = _verdict(table, [v for v in verdicts if v in table.names])
        asked[part] = field
    for part, field in defaults.items():
        asked.setdefault(part, _find(table.names, COLUMNS[part], set()) or field)
    made = contests_from_table(table, asked)
    chosen = ", ".join(f"{part}={field}" for part, field in asked.items() if part not in columns)
    return replace(made, notes=(f"read as {chosen}", *made.notes) if chosen else made.notes)


def _verdict(table: Table, verdicts: Sequence[str]) -> tuple[str, str]:
    """Part and name of the one field that says who won."""
    if len(verdicts) != 1:
        candidates = f"{len(verdicts)} fields ({few(verdicts)})" if verdicts else "no field"
        raise SelectionError(
            f"{table.where}: {candidates} may say who won: name the one that does, as in --columns "
            f"winner={verdicts[0] if verdicts else 'FIELD'}; there are: {few(table.names, 20)}"
        )
    [field] = verdicts
    column = table.load([field])[field]
    if column.values and set(column.values) <= _GRADES:
        raise SelectionError(
            f"{table.where}: {field} holds grades ({few(column.values)}), not who won of two: "
            "rank models by grades with `evalstats-plugin rank models`, or name the field that "
            f"does, as in --columns winner=FIELD; there are: {few(table.names, 20)}"
        )
    last = field.rpartition(".")[2]
    if named := next((part for part in RESULTS if last in COLUMNS[part]), None):
        return named, field
    # An outcome is a number from 0 to 1, or a word; 1 and 2 are places.
    return ("winner" if set(column.values) == {"1", "2"} else "outcome"), field


def _one_a_row(table: Table, asked: Mapping[str, str]) -> Table:
    """Return the table with one comparison a row, of counts and rankings too."""
    if asked.keys() & {*RESULTS, "loser"} or any(_find(table.names, COLUMNS[r], set())
                                                 for r in RESULTS):  # fmt: skip
        return table
    words = {_words(name): name for name in table.names}
    pair = _pair_of(table.names, asked)
    if pair is not None and (counts := several.counts_of(words)):
        return several.by_counts(table, counts, (pair.first, pair.second))
    if pair is None and (places := several.places_in(words)):
        item = asked.get("item") or _find(table.names, COLUMNS["item"], set())
        return several.by_places(table, places, item)
    return table


def _feature_columns(names: Sequence[str], table: Table) -> dict[str, tuple[str, ...]]:
    """Columns of each feature: one column of differences, or one for each side."""
    columns: dict[str, tuple[str, ...]] = {}
    for name in names:
        # The side is the last part of a name, or an earlier one: sum_assistant_a_tokens.
        parts = name.split("_")
        heads = ["_".join(parts[:at]) for at in range(len(parts), 0, -1)]
        sides = [[name.replace(head, head + end, 1) for end in ends] for head in heads
                 for ends in SIDES]  # fmt: skip
        both = next((tuple(s) for s in sides if set(s) <= set(table.names)), ())
        if name not in table.names and not both:
            raise SelectionError(missing_column(name, table.names, table.where))
        columns[name.removeprefix(FEATURE)] = (name,) if name in table.names else both
    return columns


def _players(
    first: Column, second: Column, given: Sequence[str] | None, where: str
) -> tuple[tuple[str, ...], IntArray, IntArray]:
    """Names of the players, those given or else those found, and their places in them."""
    if not len(first.codes):
        raise DesignError(f"{where} has columns and no rows: add a row for each comparison")
    present = sorted({*first.values, *second.values})
    names = tuple(present if given is None else given)
    if unknown := [name for name in present if name not in set(names)]:
        raise SelectionError(f"{where}: {no_such('player', unknown[0], names, few(names, 20))}")
    i, j = first.numbered(names), second.numbered(names)
    lacking, alone = np.flatnonzero((i < 0) | (j < 0)), np.flatnonzero(i == j)
    if len(lacking):
        raise DesignError(f"{where}: {at_rows(lacking)} has not two players: name both")
    if len(alone):
        raise DesignError(
            f"{where}: {at_rows(alone)} compares {names[int(i[alone[0]])]!r} with itself: remove "
            "what is no comparison of two players"
        )
    return names, i, j


def _weights(column: Column | None, size: int, where: str) -> FloatArray:
    if column is None:
        return np.ones(size)
    weights = column.numbers("weight", where, "a number ≥ 0")
    _refuse_empty(column, "weight", where)
    wrong = ~((weights >= 0) & np.isfinite(weights))
    column.refuse(wrong, "weight", where, "a number ≥ 0")
    return weights


def _differences(
    features: Mapping[str, tuple[str, ...]],
    columns: Mapping[str, Column],
    swap: NDArray[np.bool_],
    where: str,
) -> FloatArray | None:
    """Features of the first minus those of the second, shape (C, P)."""
    differences: list[FloatArray] = []
    for names in features.values():
        for name in names:
            _refuse_empty(columns[name], name, where)
        sides = [columns[name].numbers(name, where, "a number") for name in names]
        differences.append(sides[0] - sides[1] if len(sides) == 2 else sides[0])
    if not differences:
        return None
    return np.where(swap[:, None], -1.0, 1.0) * np.stack(differences, axis=1)


def _refuse_empty(column: Column, name: str, where: str) -> None:
    rows = np.flatnonzero(column.empty)
    if len(rows):
        raise DesignError(f"{where}: {at_rows(rows)} has no {name}: write a number")


def groups_of(parts: Mapping[str, Column], where: str) -> dict[str, Any]:
    """Judges, clusters and categories, numbered and named, as fields of `Contests`."""
    groups: dict[str, Any] = {}
    judge, item, category = (parts.get(part) for part in ("judge", "item", "category"))
    if category is not None and category.values:
        groups["category"], groups["categories"] = _coded(category, UNKNOWN_CATEGORY)
    if judge is not None and judge.values:
        groups["judge"], groups["judges"] = _coded(judge, UNKNOWN_JUDGE)
    if item is not None and item.values:
        # A comparison without an item is a cluster of its own, among those of other files too.
        alone = np.flatnonzero(item.empty)
        codes = item.codes.copy()
        codes[alone] = len(item.values) + np.arange(len(alone))
        own = (f"(row {k + 1} of {where})" for k in alone)
        groups |= {"cluster": codes, "clusters": (*item.values, *own)}
    return groups


def _coded(column: Column, unknown: str) -> tuple[IntArray, tuple[str, ...]]:
    """Codes of a column and what they stand for, with a name for empty cells."""
    codes = np.where(column.empty, len(column.values), column.codes)
    return codes, (*column.values, *((unknown,) if column.empty.any() else ()))


def contradictions(contests: Contests, epoch: IntArray | None = None) -> tuple[str, ...]:
    """Note how often one judge decided a pair both ways on one item.

    Without items there is no note, as a pair may then be compared several times.

    Parameters
    ----------
    epoch : shape (C,)
        Epoch of the item: answers on different epochs do not contradict each other.
    """
    if not contests.clustered:
        return ()
    low, high, for_low = contests.in_order()
    codes = [low, high, contests.cluster, contests.judge, epoch]
    groups = _combinations([code for code in codes if code is not None])
    # Whether the first won, and whether the player with the smaller index won.
    first, lower = contests.outcome > 0.5, for_low > 0.5
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


def _combinations(codes: Sequence[IntArray]) -> IntArray:
    """Number the distinct combinations of codes from 0; shape (C,)."""
    key, size = np.zeros(len(codes[0]), dtype=np.int64), 1
    for code in codes:
        # The code of a missing value is -1.
        width = int(code.max()) + 2
        if size * width >= _MOST_KEYS:
            key = np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
            size = int(key.max()) + 1
        key, size = key * width + code + 1, size * width
    return np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class Layout:
    """Which column holds which part of a comparison."""

    columns: Mapping[str, str]
    ordered: bool = False
    features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def layout_of(names: Sequence[str], asked: Mapping[str, str], where: str) -> Layout:
    """Assign columns to parts of a comparison: as asked, and the others by their names.

    Parameters
    ----------
    names
        Names of the columns. A nested column is also recognised by its last part.
    asked
        Column by part (`PARTS`); ``features`` takes several, separated by commas.

    Raises
    ------
    SelectionError
        No such part or column, or the columns do not say who was compared and who won.
    """
    for part, column in asked.items():
        check_known("part of a comparison", part, PARTS)
        if part != "features" and column not in names:
            raise SelectionError(missing_column(column, names, where))
    columns = {part: column for part, column in asked.items() if part != "features"}
    pair = None if "loser" in asked else _pair_of(names, asked)
    if pair is not None:
        columns |= {"first": pair.first, "second": pair.second}
    for part, usual_names in COLUMNS.items():
        # A category may be another part, too, such as the judge.
        used = {column for given, column in columns.items() if given != "category"}
        column = None if part in columns else _find(names, usual_names, used)
        if column is not None:
            columns[part] = column
    if pair is not None and "first_score" not in columns:
        columns = {**_scores_of(names), **columns}
    # One part says who won; with two players in columns of their own, the loser is not needed.
    chosen = next((r for r in RESULTS if r in asked), None)
    chosen = chosen or next((r for r in RESULTS if r in columns), None)
    columns = {p: c for p, c in columns.items() if p not in RESULTS or p == chosen}
    if chosen != "first_score":
        columns.pop("second_score", None)
    if "first" in columns:
        columns.pop("loser", None)
    _check_enough(columns, names, where)
    given = tuple(n.strip() for n in asked.get("features", "").split(",") if n.strip())
    notes: tuple[str, ...] = ()
    if pair is not None and not asked.get("first"):
        if _words(pair.first) == "model a":
            notes = (f"{pair.first} is taken for the one that was shown first, as arenas show it",)
        elif pair.ordered and {"white", "home"} & set(_words(pair.first).split()):
            notes = (
                f"{pair.first} is taken for the one that was shown first: it has the move or "
                "the ground",
            )
    return Layout(
        columns,
        ordered=pair is not None and pair.ordered,
        features=given or tuple(n for n in names if n.startswith(FEATURE)),
        notes=notes if "position" not in columns else (),
    )


def _scores_of(names: Sequence[str]) -> dict[str, str]:
    """Return the columns of a score of each player; empty where there are none."""
    for name_of_first, name_of_second in SCORED:
        first, second = _one(names, name_of_first), _one(names, name_of_second)
        if first is not None and second is not None:
            return {"first_score": first, "second_score": second}
    return {}


def _pair_of(names: Sequence[str], asked: Mapping[str, str]) -> Pair | None:
    """Find the two columns that hold the players."""
    first, second = asked.get("first"), asked.get("second")
    if first and second:
        return Pair(first, second, ordered=True)
    for usual in PAIRS:
        pair = Pair(
            first or _one(names, usual.first) or "",
            second or _one(names, usual.second) or "",
            ordered=usual.ordered,
        )
        # A column named by the caller must belong to this pair.
        fits = (not first or _words(first) == _words(usual.first)) and (
            not second or _words(second) == _words(usual.second)
        )
        if fits and pair.first and pair.second:
            return pair
    return None


def _one(names: Sequence[str], name: str) -> str | None:
    """Column of a name: itself, else the only nested column that ends in it."""
    whole = [n for n in names if "." not in n and _words(n) == _words(name)]
    inside = [n for n in names if _words(n) == _words(name)]
    matches = whole or inside
    return matches[0] if len(matches) == 1 else None


def _find(names: Sequence[str], usual: Sequence[str], used: set[str]) -> str | None:
    columns = (_one(names, name) for name in usual)
    return next((n for n in columns if n is not None and n not in used), None)


@lru_cache(maxsize=10_000)
def _words(name: str) -> str:
    """Words of the last part of a name: those of modelA, Model A and pair.model_a are the same."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[^\W\d_])(?=\d)", " ", name.rpartition(".")[2])
    return " ".join(re.split(r"[\W_]+", apart.casefold())).strip()


def _check_enough(columns: Mapping[str, str], names: Sequence[str], where: str) -> None:
    if "first_score" in columns and "second_score" not in columns:
        raise SelectionError(f"{where}: first_score alone says nothing: name second_score too")
    by_place = {"first", "second"} <= columns.keys() and (columns.keys() & set(RESULTS))
    if by_place or {"winner", "loser"} <= columns.keys():
        return
    players = "two players (winner and loser, or model_a and model_b, left and right)"
    result = "who won (winner, outcome, preference, or a score of each)"
    names_of = {"first": "first=COLUMN,second=COLUMN", "winner": "winner=COLUMN"}
    if {"first", "second"} <= columns.keys():
        of = f"{columns['first']} and {columns['second']}"
        problem, wanted = f"no column says {result} of {of}", names_of["winner"]
    elif columns.keys() & set(RESULTS):
        problem, wanted = f"no columns name {players}", names_of["first"]
    else:
        problem = f"no columns name {players} and say {result}"
        wanted = ",".join(names_of.values())
    raise SelectionError(
        f"{where}: {problem}; there are: {few(names, 20) or 'none'}. Name them: --columns "
        f"{wanted} (in Python: columns=)"
    )


@dataclass(frozen=True)
class Answers:
    """Answers of C comparisons, each between a player `i` and a player `j`."""

    where: str
    layout: Layout
    columns: Mapping[str, Column]
    """Columns by part of a comparison."""
    players: Sequence[str]
    i: IntArray
    """Index into `players` of the first column (or the winner's), shape (C,)."""
    j: IntArray
    notes: list[str] = field(default_factory=list[str])

    def outcome(self) -> FloatArray:
        """Outcome for i, NaN if there is no answer; shape (C,).

        Raises
        ------
        DesignError
            An answer is not understood.
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
        part = next(p for p in RESULTS if p in self.columns)
        column, name = self.columns[part], self.layout.columns[part]
        if part == "first_score":
            return self._by_score()
        # If any value is a number, all others should be numbers, too; 1-0 is none.
        numeric = any(re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", value) for value in column.values)
        if part == "preference" and numeric:
            # AlpacaEval: 1 for the first, 2 for the second, 1.5 (formerly 0) for neither.
            values = column.numbers(name, self.where, "a number from 1 to 2")
            values = np.where(values == 0, 1.5, values)
            wrong = (values < 1) | (values > 2)
            expected = "a number from 1 (for the first) to 2, or a word such as A, B and tie"
            column.refuse(wrong, name, self.where, expected)
            return 2 - values
        if part == "outcome" and {v.casefold() for v in column.values} <= {"true", "false"}:
            return column.translated({**_TRUE, **_FALSE})
        if part == "outcome" and numeric:
            values = column.numbers(name, self.where, "a number from 0 to 1")
            if set(column.values) <= {"-1", "0", "1"} and "-1" in column.values:
                self.notes.append(f"{name} is -1, 0 or 1: a loss, a tie and a win of the first")
                values = (values + 1) / 2
            wrong = (values < 0) | (values > 1)
            column.refuse(wrong, name, self.where, "a number from 0 to 1")
            return values
        at_home = "home" in _words(self.layout.columns["first"]).split()
        won = self._side(column, AT_HOME if at_home else {})
        undecided = np.asarray([*(v.casefold() in UNDECIDED for v in column.values), True])
        column.refuse(np.isnan(won) & ~undecided[column.codes], name, self.where, SPELLINGS)
        return won

    def _by_score(self) -> FloatArray:
        """Outcome of i by the scores of both, NaN where one lacks."""
        names = [self.layout.columns[part] for part in ("first_score", "second_score")]
        one, other = (
            self.columns[part].numbers(name, self.where, "a number")
            for part, name in zip(("first_score", "second_score"), names, strict=True)
        )
        self.notes.append(f"the higher of {names[0]} and {names[1]} won; equal ones are a tie")
        return np.where(np.isnan(one + other), math.nan, (np.sign(one - other) + 1) / 2)

    def shown_second(self, *, must: bool) -> tuple[NDArray[np.bool_], bool]:
        """Whether i was shown second, shape (C,), and whether the order is known at all.

        Parameters
        ----------
        must
            Whether the column was named by the caller, so that every value must be understood.
        """
        column = self.columns.get("position")
        none = np.zeros(len(self.i), dtype=bool)
        if column is None:
            return none, self.layout.ordered
        first = self._side(column, {} if "first" in self.columns else _PLACES)
        is_known = np.isin(first, (0.0, 1.0))
        if is_known.all():
            return first == 0, True
        name = self.layout.columns["position"]
        if must:
            expected = "the name of the one shown first, or its place: first or second, 1 or 2"
            column.refuse(~is_known & ~column.empty, name, self.where, expected)
        self.notes.append(f"{name!r} does not tell of every comparison who was shown first: unused")
        return none, False

    def _side(self, column: Column, more: Mapping[str, float]) -> FloatArray:
        """Read a side: 1 for i, 0 for j, ½ for both, NaN for neither; shape (C,)."""
        shown = [self.layout.columns.get(part, "").casefold() for part in ("first", "second")]
        by_word = column.translated({**dict(zip(shown, (1.0, 0.0), strict=True)), **WORDS, **more})
        places = {name: k for k, name in enumerate(self.players)}
        named = np.asarray([*(places.get(v, -1) for v in column.values), -1])[column.codes]
        by_name = np.where(named == self.i, 1.0, np.where(named == self.j, 0.0, math.nan))
        is_name = named >= 0
        if np.isnan(by_name[is_name]).any():
            # A player who did not take part: read the answer as a place if it can be one.
            return np.where(np.isnan(by_word), by_name, by_word)
        if (is_name & ~np.isnan(by_word) & (by_word != by_name)).any():
            self.notes.append(READ_AS_NAMES)
        return np.where(is_name, by_name, by_word)
