"""Fullrank's files of comparisons: a list of items, a prior variance, and answers on two items.

Fullrank reads what we write, and ignores what we add: ties, shares, judges, times, items,
categories, weights, and answers that were skipped or undone.

* `Answers`: the content of a file, made of `Answer`
* `parse`, `answers_from`: from text, which may break off, or from a JSON value
* `encoded`, `as_value`: the same back
* `contests_of`, `answers_of`: from and to `Contests`
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from evalstats_plugin.data.tables import Column
from evalstats_plugin.errors import LogError, SelectionError, counted, few, no_such
from evalstats_plugin.ranking.contests.assembly import groups_of
from evalstats_plugin.ranking.contests.contests import MOST_WEIGHT, Contests

_KEYS = ("winner", "loser", "first", "second", "tie", "outcome", "judge", "time")
_LINE = json.JSONEncoder(ensure_ascii=False)
_FOLLOWING = re.compile(r"\s*([,\]])\s*")
"""What follows a whole value in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of a judge on two items, by their indices into a list of names."""

    first: int
    """The item shown first or left."""
    second: int
    outcome: float | None
    """1 if the first is better, 0 if the second is, ½ for a tie; None if not decided."""
    judge: str | None = None
    time: str | None = None
    """Time in ISO 8601 with the offset from UTC."""
    placed: bool = True
    """Whether it is known which was shown first; Fullrank does not record it."""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other fields in the file, such as a weight, which are kept unchanged."""

    @property
    def share(self) -> float:
        """Outcome of a decided answer; ½ if not decided."""
        return 0.5 if self.outcome is None else self.outcome

    @property
    def weight(self) -> float:
        """Weight of the answer, 1 by default."""
        return float(self.more.get("weight", 1.0))

    @property
    def pair(self) -> frozenset[int]:
        """Both items, in either order."""
        return frozenset((self.first, self.second))


@dataclass(kw_only=True)
class Answers:
    """Content of a file of comparisons."""

    names: tuple[str, ...]
    prior_variance: float = 1.0
    given: list[Answer] = field(default_factory=list[Answer])
    """Answers that count, oldest first."""
    skipped: list[Answer] = field(default_factory=list[Answer])
    undone: list[Answer] = field(default_factory=list[Answer])
    notes: tuple[str, ...] = ()


def is_fullrank(value: Any) -> bool:
    """Whether a JSON value has the layout of a Fullrank file."""
    return isinstance(value, Mapping) and {"items", "comparisons"} <= value.keys()


def contests_of(
    answers: Answers, where: str, fields: Mapping[str, str] = MappingProxyType({})
) -> Contests:
    """Make contests of the answers that count, which come from there.

    Parameters
    ----------
    fields
        Names of the answers' fields that hold an ``"item"`` or a ``"category"``, if others.

    Raises
    ------
    DesignError
        There are none.
    SelectionError
        No answer has a field of this name.
    """
    given = answers.given
    known = dict.fromkeys(name for answer in given for name in answer.more)
    for name in fields.values():
        if name not in known:
            raise SelectionError(no_such("field of an answer", name, known, few(list(known))))
    placed = sum(answer.placed for answer in given)
    mixed = f"{len(given) - placed} of {len(given)} comparisons do not tell who was shown first"
    times = np.array([answer.time or "" for answer in given], dtype=object)
    named = {"item": "item", "category": "category", **fields}
    parts = {
        part: Column.of(answer.more.get(name) for answer in given) for part, name in named.items()
    }
    parts["judge"] = Column.of(answer.judge for answer in given)
    made = Contests(
        players=answers.names,
        first=np.array([answer.first for answer in given], dtype=np.int64),
        second=np.array([answer.second for answer in given], dtype=np.int64),
        outcome=np.array([answer.share for answer in given], dtype=np.float64),
        weight=np.array([answer.weight for answer in given], dtype=np.float64),
        ordered=placed == len(given),
        time=times if any(times) else None,
        notes=(f"{mixed}: unused",) if 0 < placed < len(given) else (),
        **groups_of(parts, where),
    )
    made.check()
    return made


def answers_of(contests: Contests, prior_variance: float = 1.0) -> Answers:
    """Convert contests to answers, to be written or continued in a session; without features."""
    given: list[Answer] = []
    columns = (contests.first, contests.second, contests.outcome, contests.weight)
    for k, (i, j, y, w) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        more: dict[str, Any] = {} if w == 1 else {"weight": w}
        if contests.cluster is not None:
            more["item"] = contests.clusters[int(contests.cluster[k])]
        if contests.category is not None:
            more["category"] = contests.categories[int(contests.category[k])]
        judge = None if contests.judge is None else contests.judges[int(contests.judge[k])]
        time: str | None = None if contests.time is None else contests.time[k] or None
        given.append(
            Answer(
                first=i, second=j, outcome=y, judge=judge, time=time, placed=contests.ordered,
                more=more,
            )
        )  # fmt: skip
    names, notes = contests.players, contests.notes
    return Answers(names=names, prior_variance=prior_variance, given=given, notes=notes)


def parse(text: str, source: str) -> Answers:
    """Parse a file written by `encoded` or Fullrank; a broken file is read up to the break.

    Raises
    ------
    LogError
        The file holds no comparisons, or its list of items is incomplete.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip("\ufeff \n\t").startswith("{"):
            return _saved_from(text, source, str(error))
        whole = None
    if not isinstance(whole, dict) or "items" not in whole:
        raise LogError(f'{source}: no "items": give comparisons as `rank compare` writes them')
    return answers_from(cast("dict[str, Any]", whole), source)


def _saved_from(text: str, source: str, problem: str) -> Answers:
    """Read the items and all complete answers before the place where the file breaks off."""
    names = _whole_values(text, "items")
    ends = re.search(r'"items"\s*:\s*\[', text) and re.search(r'"comparisons"\s*:', text)
    if not names or not ends:
        raise LogError(
            f"{source} is broken ({problem}) and its list of items is not whole: nothing in it "
            "can be used; restore it from a copy, or start with another file"
        )
    # A complete JSON number: it is followed by a comma or brace.
    variance = re.search(r'"prior_var"\s*:\s*(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*[,}]', text)
    keys = ("comparisons", "skipped", "undone")
    whole: dict[str, Any] = {"items": names, **{key: _whole_values(text, key) for key in keys}}
    if variance:
        whole["prior_var"] = float(variance[1])
    saved = answers_from(whole, source)
    note = (
        f"{source} is broken ({problem}): the {len(saved.given)} answers in front of that place "
        "are kept"
    )
    return replace(saved, notes=(*saved.notes, note))


def _whole_values(text: str, key: str) -> list[Any]:
    """Values of a list up to where the JSON breaks off."""
    following = re.search(rf'"{key}"\s*:\s*(\[)\s*', text)
    decoder, values = json.JSONDecoder(), list[Any]()
    while following and following[1] != "]":
        try:
            value, end = decoder.raw_decode(text, following.end())
        except (ValueError, RecursionError):
            break
        # A number that was cut off may still parse, so something must follow it.
        if following := _FOLLOWING.match(text, end):
            values.append(value)
    return values


def answers_from(whole: Mapping[str, Any], source: str) -> Answers:
    """Check the JSON value of a file.

    Raises
    ------
    LogError
        The value has another layout, or holds invalid answers.
    """
    names = whole["items"]
    if not isinstance(names, list) or not all(isinstance(n, str) for n in cast("list[Any]", names)):
        raise LogError(f'{source}: "items" is not a list of texts: list the names of the items')
    names = tuple(cast("list[str]", names))
    if double := [name for name, count in Counter(names).items() if count > 1]:
        raise LogError(f"{source}: items repeat {few(double)}: list every item once")
    variance = whole.get("prior_var", 1.0)
    if not _is_number(variance) or variance == 0:
        raise LogError(f'{source}: "prior_var" is {variance!r}: give a number above 0')
    lists = {key: whole.get(key, []) for key in ("comparisons", "skipped", "undone")}
    if wrong := [key for key, values in lists.items() if not isinstance(values, list)]:
        raise LogError(f"{source}: not lists of answers: {few(wrong)}")
    given, skipped, undone = (
        [
            _answer(v, len(names), f"{source}, {key} number {i}", must_decide=key == "comparisons")
            for i, v in enumerate(values, 1)
        ]
        for key, values in lists.items()
    )
    return Answers(
        names=names, prior_variance=float(variance), given=given, skipped=skipped, undone=undone
    )


def _answer(record: Any, n: int, place: str, *, must_decide: bool) -> Answer:
    """Parse one answer on n items."""
    entries = cast("dict[str, Any]", record) if isinstance(record, dict) else {}
    fields = {key: value for key, value in entries.items() if value is not None}
    decided = must_decide or "winner" in fields
    pair = [fields.get(k) for k in (("winner", "loser") if decided else ("first", "second"))]
    first = fields.get("first", pair[0])
    if not all(type(i) is int and 0 <= i < n for i in (*pair, first)):
        raise LogError(
            f"{place}: {json.dumps(record)} does not name a winner and a loser by their places in "
            f"the list of {counted(n, 'item')} (0 to {n - 1})"
        )
    better, worse = cast("list[int]", pair)
    share = 0.5 if fields.get("tie") is True else fields.get("outcome", 1.0)
    weight = fields.get("weight", 1.0)
    numbers = _is_number(share, 1) and _is_number(weight, MOST_WEIGHT)
    if better == worse or first not in pair or not numbers:
        raise LogError(
            f"{place}: {json.dumps(record)} needs two different items, one of them the first, an "
            f"outcome from 0 to 1, and a weight that is a number from 0 to {MOST_WEIGHT:g}"
        )
    return Answer(
        first=first,
        second=better + worse - first,
        outcome=None if not decided else float(share if first == better else 1 - share),
        judge=str(fields["judge"]) if "judge" in fields else None,
        time=str(fields["time"]) if "time" in fields else None,
        placed="first" in fields,
        more={key: value for key, value in fields.items() if key not in _KEYS},
    )


def _is_number(value: Any, most: float = sys.float_info.max) -> bool:
    return isinstance(value, int | float) and 0 <= value <= most


def as_value(answers: Answers) -> dict[str, Any]:
    """JSON value of the file in Fullrank's format.

    Skipped and undone answers are in keys of their own.
    """
    whole: dict[str, Any] = {
        "items": list(answers.names),
        "prior_var": answers.prior_variance,
        "comparisons": [_record(answer) for answer in answers.given],
    }
    rest = {"skipped": answers.skipped, "undone": answers.undone}
    return {**whole, **{key: [_record(a) for a in kept] for key, kept in rest.items() if kept}}


def encoded(answers: Answers) -> bytes:
    """Encode the file as JSON with one answer a line, so that versions are easy to compare."""
    fields: list[str] = []
    for key, value in as_value(answers).items():
        if isinstance(value, list) and value:
            lines = (f"\t\t{_LINE.encode(v)}" for v in cast("list[Any]", value))
            text = "[\n" + ",\n".join(lines) + "\n\t]"
        else:
            text = json.dumps(value)
        fields.append(f"\t{json.dumps(key)}: {text}")
    return ("{\n" + ",\n".join(fields) + "\n}\n").encode()


def _record(answer: Answer) -> dict[str, Any]:
    record: dict[str, Any]
    if answer.outcome is None:
        record = {"first": answer.first, "second": answer.second}
    else:
        sides = (answer.first, answer.second)
        winner, loser = sides if answer.outcome >= 0.5 else sides[::-1]
        share = max(answer.outcome, 1 - answer.outcome)
        record = {"winner": winner, "loser": loser}
        if share < 1:
            record |= {"tie": True} if share == 0.5 else {"outcome": share}
        if answer.placed:
            record["first"] = answer.first
    if answer.judge is not None:
        record["judge"] = answer.judge
    if answer.time is not None:
        record["time"] = answer.time
    return {**record, **answer.more}
