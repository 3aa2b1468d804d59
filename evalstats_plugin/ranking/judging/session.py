"""Judging sessions: a judge's answers on one set of items, saved one by one in a file.

`Session` adds and undoes answers; `Answers` are the content of the file, in Fullrank's format with
additions: skipped and undone answers, judges and times. Broken files are read up to the break.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalstats_plugin.data.tables import decoded
from evalstats_plugin.errors import DesignError, LogError, SelectionError, counted, few, no_such
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.fullrank import Answer, Answers, contests_of, encoded, parse
from evalstats_plugin.runtime.writing import Revision, locked, revision, write_bytes


class Session:
    """Answers in one file, to which one judge adds.

    Each change rewrites the file atomically (`evalstats_plugin.runtime.files`), so that a killed
    process loses at most the answer being written. Before each change the file is read again if
    another process wrote to it: several judges may share a file.
    """

    def __init__(
        self, path: Path, answers: Answers, judge: str | None = None, seen: Revision | None = None
    ) -> None:
        self.path = path
        self.judge = judge
        self.answers = answers
        """Content of the file; its notes are problems found when it was read."""
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
                msg = f"{path} does not exist: name the items (--items; in Python: names=)"
                raise LogError(msg)
            answers = Answers(names=tuple(names), prior_variance=prior_variance or 1.0)
            return cls(where, answers, judge, seen=seen)
        answers = _read(where)
        if names is not None:
            if gone := [name for name in answers.names if name not in set(names)]:
                # Nothing could be shown of these.
                raise DesignError(
                    f"{where} holds {counted(len(gone), 'item')} not among those given "
                    f"({few(gone)}): pass the same items, or another file with -o"
                )
            added = tuple(name for name in names if name not in set(answers.names))
            answers.names = (*answers.names, *added)
        if prior_variance is not None:
            answers.prior_variance = prior_variance
        return cls(where, answers, judge, seen=seen)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the items; answers refer to indices into this list."""
        return self.answers.names

    @property
    def prior_variance(self) -> float:
        """Prior variance of the items' ratings."""
        return self.answers.prior_variance

    @property
    def given(self) -> tuple[Answer, ...]:
        """Answers that count, oldest first."""
        return tuple(self.answers.given)

    @property
    def skipped(self) -> tuple[Answer, ...]:
        """Pairs that a judge did not decide."""
        return tuple(self.answers.skipped)

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
            time=datetime.now(UTC).isoformat(timespec="microseconds"),
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

    def contests(self) -> Contests:
        """Return the answers that count as contests.

        Raises
        ------
        DesignError
            There are no answers yet.
        """
        contests = contests_of(self.answers, str(self.path))
        return replace(contests, notes=(*self.answers.notes, *contests.notes))

    @contextmanager
    def _changing(self) -> Generator[Answers]:
        """Yield the newest answers to be changed, and write them; on failure nothing changes."""
        folder = self.path.resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, needed=True):
            if self.path.exists() and revision(self.path) != self._seen:
                # Another process wrote; our indices of items must still be valid.
                newer = _read(self.path)
                both = min(len(newer.names), len(self.names))
                if newer.names[:both] != self.names[:both]:
                    msg = f"{self.path} was replaced by one on other items"
                    raise LogError(f"{msg}: nothing was written to it")
                if len(newer.names) < len(self.names):
                    newer.names = self.names
                self.answers = newer
            before = replace(
                self.answers,
                given=list(self.answers.given),
                skipped=list(self.answers.skipped),
                undone=list(self.answers.undone),
            )
            try:
                yield self.answers
                if self.answers.notes and self.path.exists():
                    # A broken file is overwritten with its readable part: it is kept aside.
                    aside = self.path.with_name(f"{self.path.name}.broken")
                    if not aside.exists():
                        write_bytes(aside, self.path.read_bytes())
                    self.answers.notes = ()
                write_bytes(self.path, encoded(self.answers))
            except BaseException:
                self.answers = before
                raise
            self._seen = revision(self.path)


def _read(path: Path) -> Answers:
    try:
        return parse(decoded(path.read_bytes(), str(path)), str(path))
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror or error}") from error


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
    return parse(decoded(content, source), source)
