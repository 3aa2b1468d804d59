"""Judging sessions: a judge's answers on one set of items, saved one by one in a file.

`Session` adds and undoes answers; `Answers` are the content of the file, in Fullrank's format with
additions: skipped and undone answers, judges and times. Broken files are read up to the break.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.errors import DesignError, LogError, SelectionError, counted, few, no_such
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.files import contests_from_fullrank
from evalstats_plugin.ranking.judging.items import decode
from evalstats_plugin.runtime.files import write_bytes
from evalstats_plugin.runtime.transactions import Revision, locked, revision

_KEYS = ("winner", "loser", "first", "second", "tie", "outcome", "judge", "time")


class Session:
    """Answers in one file, to which one judge adds.

    Each change rewrites the file atomically (`evalstats_plugin.runtime.files`), so that a killed
    process loses at most the answer being written. Before each change the file is read again if
    another process wrote to it: several judges may share a file.
    """

    def __init__(
        self,
        path: Path,
        answers: Answers,
        judge: str | None = None,
        *,
        seen: Revision | None = None,
    ) -> None:
        self.path = path
        self.judge = judge
        self._answers = answers
        self._seen = seen

    @classmethod
    def open(
        cls,
        path: str | Path,
        names: Sequence[str] | None = None,
        *,
        judge: str | None = None,
        prior_variance: float | None = None,
    ) -> Session:
        """Open an existing file, or start one on items of these names.

        Parameters
        ----------
        names
            Items to be compared, in any order; new ones are added to an existing file.
        judge
            Name of the judge who answers from now on.
        prior_variance
            Prior variance of the items' ratings. Default: the file's, or 1 for a new file.

        Raises
        ------
        LogError
            There is no file and no names are given; or the file cannot be read.
        DesignError
            The file holds items that are not among the names.
        """
        where = Path(path)
        # Taken before reading, so that a write in between is noticed.
        seen = revision(where)
        if seen is None:
            if names is None:
                msg = f"{path} does not exist: name the items to start it (--items)"
                raise LogError(msg)
            answers = Answers(names=tuple(names), prior_variance=prior_variance or 1.0)
            return cls(where, answers, judge, seen=seen)
        answers = _read(where)
        if names is not None:
            _check_names(where, answers, names)
            added = tuple(name for name in names if name not in set(answers.names))
            answers.names = (*answers.names, *added)
        if prior_variance is not None:
            answers.prior_variance = prior_variance
        return cls(where, answers, judge, seen=seen)

    @property
    def answers(self) -> Answers:
        """Content of the file."""
        return self._answers

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the items; answers refer to indices into this list."""
        return self._answers.names

    @property
    def prior_variance(self) -> float:
        """Prior variance of the items' ratings."""
        return self._answers.prior_variance

    @property
    def given(self) -> tuple[Answer, ...]:
        """Answers that count, oldest first."""
        return tuple(self._answers.given)

    @property
    def skipped(self) -> tuple[Answer, ...]:
        """Pairs that a judge did not decide."""
        return tuple(self._answers.skipped)

    @property
    def undone(self) -> tuple[Answer, ...]:
        """Answers that were undone."""
        return tuple(self._answers.undone)

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems found when the file was read."""
        return self._answers.notes

    def place(self, name: str) -> int:
        """Return the index of an item by its name.

        Raises
        ------
        SelectionError
            No item of this name; the message suggests the closest.
        """
        if name not in self.names:
            raise SelectionError(no_such("item", name, self.names, few(self.names)))
        return self.names.index(name)

    def answer(
        self,
        first: int,
        second: int,
        outcome: float | None,
        *,
        placed: bool = True,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Save an answer on two items.

        Parameters
        ----------
        outcome
            1 if the first is better, 0 if the second is, ½ for a tie, None to skip the pair.
        placed
            Whether ``first`` was really shown first.
        more
            Further fields of the answer in the file, such as its cost.

        Raises
        ------
        DesignError
            Both are the same item.
        WriteError
            The answer could not be written, and does not count.
        """
        if first == second:
            msg = f"{self.names[first]!r} cannot be compared with itself: name two items"
            raise DesignError(msg)
        new = Answer(
            first=first,
            second=second,
            outcome=outcome,
            judge=self.judge,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            placed=placed,
            more=dict(more or {}),
        )
        with self._changing() as answers:
            (answers.skipped if outcome is None else answers.given).append(new)

    def undo(self) -> Answer | None:
        """Undo this judge's last answer or skip, and return it; None if none is left."""
        mine = [a for a in (*self.given, *self.skipped) if a.judge == self.judge]
        if not mine:
            return None
        # Answers without a time count as given in the order of the file.
        last = max(reversed(mine), key=lambda answer: answer.time or "")
        with self._changing() as answers:
            for kept in (answers.given, answers.skipped):
                if last in kept:
                    del kept[len(kept) - 1 - kept[::-1].index(last)]
                    break
            answers.undone.append(last)
        return last

    def save(self) -> None:
        """Write the file, even without answers."""
        with self._changing():
            pass

    def contests(self) -> Contests:
        """Return the answers that count as contests.

        Raises
        ------
        DesignError
            There are no answers yet.
        """
        found = contests_from_fullrank(as_value(self._answers), str(self.path))
        return replace(found, notes=(*self.notes, *found.notes))

    @contextmanager
    def _changing(self) -> Generator[Answers]:
        """Yield the newest answers to be changed, and write them; on failure nothing changes."""
        folder = self.path.resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            if self.path.exists() and revision(self.path) != self._seen:
                self._take_over(_read(self.path))
            before = replace(
                self._answers,
                given=list(self._answers.given),
                skipped=list(self._answers.skipped),
                undone=list(self._answers.undone),
            )
            try:
                yield self._answers
                self._keep_broken()
                write_bytes(self.path, encoded(self._answers))
            except BaseException:
                self._answers = before
                raise
            self._seen = revision(self.path)

    def _take_over(self, newer: Answers) -> None:
        """Continue from another process's file, in which our item indices must still be valid."""
        both = min(len(newer.names), len(self.names))
        if newer.names[:both] != self.names[:both]:
            msg = f"{self.path} was replaced by one on other items: nothing was written to it"
            raise LogError(msg)
        if len(newer.names) < len(self.names):
            newer.names = self.names
        self._answers = newer

    def _keep_broken(self) -> None:
        """Copy a broken file aside before it is overwritten with its readable part."""
        if not self.notes or not self.path.exists():
            return
        aside = self.path.with_name(f"{self.path.name}.broken")
        if not aside.exists():
            write_bytes(aside, self.path.read_bytes())
        self._answers.notes = ()


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


def _read(path: Path) -> Answers:
    try:
        return parse(decode(path.read_bytes(), str(path)), str(path))
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise LogError(msg) from error


def _check_names(path: Path, answers: Answers, names: Sequence[str]) -> None:
    """Require that the file's items are among the names, as others could not be shown."""
    if gone := [name for name in answers.names if name not in set(names)]:
        msg = (
            f"{path} holds {counted(len(gone), 'item')} not among those given ({few(gone)}): pass "
            "the same items, or another file with -o"
        )
        raise DesignError(msg)


def answers_of(contests: Contests, prior_variance: float) -> Answers:
    """Convert contests from a file in another format, so that a session can continue them."""
    columns = (contests.first, contests.second, contests.outcome, contests.weight)
    given = [
        Answer(first=i, second=j, outcome=y, placed=contests.ordered, more={"weight": w})
        for i, j, y, w in zip(*(column.tolist() for column in columns), strict=True)
    ]
    names, notes = contests.players, contests.notes
    return Answers(names=names, prior_variance=prior_variance, given=given, notes=notes)


def answers_in(content: bytes, source: str) -> Answers | None:
    """Read a file of this format up to where it may be broken; None for another format.

    Raises
    ------
    LogError
        The file holds invalid answers.
    """
    is_object = content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    keys = (b"items", b"comparisons")
    if not is_object or not all(re.search(rb'"%s"\s*:\s*\[' % key, content) for key in keys):
        return None
    return parse(decode(content, source), source)


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
        return _saved_from(text, source, str(error))
    if not isinstance(whole, dict) or "items" not in whole:
        msg = f'{source}: no "items": give comparisons as `rank compare` writes them'
        raise LogError(msg)
    return _answers(cast("dict[str, Any]", whole), source)


def _saved_from(text: str, source: str, problem: str) -> Answers:
    """Read the items and all complete answers before the place where the file breaks off."""
    names = _whole_values(text, "items")
    ends = re.search(r'"items"\s*:\s*\[', text) and re.search(r'"comparisons"\s*:', text)
    if not names or not ends:
        msg = (
            f"{source} is broken ({problem}) and its list of items is not whole: nothing in it "
            "can be used; restore it from a copy, or start with another file"
        )
        raise LogError(msg)
    # A complete JSON number: it is followed by a comma or brace.
    variance = re.search(r'"prior_var"\s*:\s*(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*[,}]', text)
    keys = ("comparisons", "skipped", "undone")
    whole: dict[str, Any] = {"items": names, **{key: _whole_values(text, key) for key in keys}}
    if variance:
        whole["prior_var"] = float(variance[1])
    found = _answers(whole, source)
    note = (
        f"{source} is broken ({problem}): the {len(found.given)} answers in front of that place "
        "are kept"
    )
    return replace(found, notes=(*found.notes, note))


def _whole_values(text: str, key: str) -> list[Any]:
    """Values of a list up to where the JSON breaks off."""
    start = re.search(rf'"{key}"\s*:\s*\[', text)
    values: list[Any] = []
    if start is None:
        return values
    decoder, place = json.JSONDecoder(), start.end()
    while True:
        place = _after_blanks(text, place)
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return values
        # A number that was cut off may still parse, so something must follow it.
        after = _after_blanks(text, place)
        if after == len(text) or text[after] not in ",]":
            return values
        values.append(value)
        place = after + 1
        if text[after] == "]":
            return values


def _after_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _answers(whole: Mapping[str, Any], source: str) -> Answers:
    names = whole["items"]
    if not isinstance(names, list) or not all(isinstance(n, str) for n in cast("list[Any]", names)):
        msg = f'{source}: "items" is not a list of texts: list the names of the items'
        raise LogError(msg)
    names = tuple(cast("list[str]", names))
    if double := [name for name, count in Counter(names).items() if count > 1]:
        msg = f"{source}: items repeat {few(double)}: list every item once"
        raise LogError(msg)
    variance = whole.get("prior_var", 1.0)
    if not isinstance(variance, int | float) or not 0 < variance < float("inf"):
        msg = f'{source}: "prior_var" is {variance!r}: give a number above 0'
        raise LogError(msg)
    lists = {key: whole.get(key, []) for key in ("comparisons", "skipped", "undone")}
    if wrong := [key for key, values in lists.items() if not isinstance(values, list)]:
        msg = f"{source}: not lists of answers: {few(wrong)}"
        raise LogError(msg)
    read = {
        key: [
            _answer(v, len(names), f"{source}, {key} number {i}") for i, v in enumerate(values, 1)
        ]
        for key, values in lists.items()
    }
    return Answers(
        names=names,
        prior_variance=float(variance),
        given=read["comparisons"],
        skipped=read["skipped"],
        undone=read["undone"],
    )


def _answer(record: Any, n: int, place: str) -> Answer:
    """Parse one answer on n items."""
    fields = cast("dict[str, Any]", record) if isinstance(record, dict) else {}
    decided = "winner" in fields
    pair = [fields.get(k) for k in (("winner", "loser") if decided else ("first", "second"))]
    if not all(type(i) is int and 0 <= i < n for i in pair):
        msg = (
            f"{place}: {json.dumps(record)} does not name a winner and a loser by their places in "
            f"the list of {counted(n, 'item')} (0 to {n - 1})"
        )
        raise LogError(msg)
    better, worse = cast("list[int]", pair)
    first: int = fields.get("first", better)
    share = 0.5 if fields.get("tie") is True else fields.get("outcome", 1.0)
    if better == worse or first not in pair or not _is_share(share):
        msg = (
            f"{place}: {json.dumps(record)} needs two different items, one of them the first, and "
            "an outcome from 0 to 1"
        )
        raise LogError(msg)
    return Answer(
        first=first,
        second=better + worse - first,
        outcome=None if not decided else float(share if first == better else 1 - share),
        judge=_text(fields.get("judge")),
        time=_text(fields.get("time")),
        placed="first" in fields,
        more={key: value for key, value in fields.items() if key not in _KEYS},
    )


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def as_value(answers: Answers) -> dict[str, Any]:
    """JSON value of the file in Fullrank's format (see `ranking.contests.files`).

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
    lines = [f"\t{json.dumps(key)}: {_one_a_line(v)}" for key, v in as_value(answers).items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _one_a_line(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value)
    lines = (f"\t\t{json.dumps(v, ensure_ascii=False)}" for v in cast("list[Any]", value))
    return "[\n" + ",\n".join(lines) + "\n\t]"


def _record(answer: Answer) -> dict[str, Any]:
    if answer.outcome is None:
        record: dict[str, Any] = {"first": answer.first, "second": answer.second}
    else:
        sides = (answer.first, answer.second)
        winner, loser = sides if answer.outcome >= 0.5 else sides[::-1]
        share = max(answer.outcome, 1 - answer.outcome)
        record = {"winner": winner, "loser": loser}
        record |= {"tie": True} if share == 0.5 else {} if share == 1 else {"outcome": share}
        record |= {"first": answer.first} if answer.placed else {}
    known = {"judge": answer.judge, "time": answer.time}
    return {**record, **{k: v for k, v in known.items() if v is not None}, **answer.more}
