"""A judge's work on one set of items: every answer is on disk before the next is asked."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from evalstats_plugin.atomic import Revision, alone, revision, write_bytes
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.judging.answers import Answer, Answers, as_value, encoded, parse
from evalstats_plugin.judging.items import decoded
from evalstats_plugin.ranking.contests import Contests
from evalstats_plugin.ranking.fullrank import of_fullrank
from evalstats_plugin.wording import few, no_such


class Session:
    """The answers in one file, and what a judge does to them.

    Each change is written to the file as a whole (`evalstats_plugin.atomic`), so that whoever is
    killed loses the answer being written at most. Before each change the file is read again if
    somebody else wrote to it: several judges may share one.
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
        """Take up the file, or start one on items of these names.

        Parameters
        ----------
        names
            Items to be compared, in any order; those that the file does not know are added to it.
        judge
            Who answers from now on.
        prior_variance
            Of the items' ratings; of a new file 1 unless told, of one that is there as it says.

        Raises
        ------
        LogError
            There is no file and no names; or it cannot be read.
        DesignError
            The file holds items that are not among the names.
        """
        where = Path(path)
        # Before it is read: who writes meanwhile is to be noticed.
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
        """All that the file holds."""
        return self._answers

    @property
    def names(self) -> tuple[str, ...]:
        """The items; answers speak of places in this list."""
        return self._answers.names

    @property
    def prior_variance(self) -> float:
        """Of the items' ratings before any answer."""
        return self._answers.prior_variance

    @property
    def given(self) -> tuple[Answer, ...]:
        """Answers in force, oldest first."""
        return tuple(self._answers.given)

    @property
    def skipped(self) -> tuple[Answer, ...]:
        """Pairs that a judge did not want to decide."""
        return tuple(self._answers.skipped)

    @property
    def undone(self) -> tuple[Answer, ...]:
        """Answers taken back."""
        return tuple(self._answers.undone)

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong when the file was read."""
        return self._answers.notes

    def place(self, name: str) -> int:
        """Return the place of an item by its name.

        Raises
        ------
        SelectionError
            No item is called so; the closest names are given.
        """
        if name not in self.names:
            raise SelectionError(no_such("item", name, self.names, few(self.names)))
        return self.names.index(name)

    def answer(
        self, first: int, second: int, outcome: float | None, *, placed: bool = True
    ) -> None:
        """Keep what the judge said of two items: 1 for the first, 0, ½ for a tie, None to skip.

        Raises
        ------
        DesignError
            Both are one item.
        WriteError
            It could not be written, and does not count.
        """
        if first == second:
            msg = f"a comparison of {self.names[first]!r} with itself found, expected two items"
            raise DesignError(msg)
        said = Answer(
            first=first,
            second=second,
            outcome=outcome,
            judge=self.judge,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            placed=placed,
        )
        with self._changing() as answers:
            (answers.skipped if outcome is None else answers.given).append(said)

    def undo(self) -> Answer | None:
        """Take back this judge's last answer or skip, and say which; None if there is none left."""
        mine = [a for a in (*self.given, *self.skipped) if a.judge == self.judge]
        if not mine:
            return None
        # Of answers without a time, those further on in the file are the later.
        last = max(reversed(mine), key=lambda answer: answer.time or "")
        with self._changing() as answers:
            for said in (answers.given, answers.skipped):
                if last in said:
                    del said[len(said) - 1 - said[::-1].index(last)]
                    break
            answers.undone.append(last)
        return last

    def save(self) -> None:
        """Write the file as it stands, even without answers."""
        with self._changing():
            pass

    def contests(self) -> Contests:
        """Return the answers in force as what rankings are fitted to.

        Raises
        ------
        DesignError
            There are none yet.
        """
        found = of_fullrank(as_value(self._answers), str(self.path)).contests
        return replace(found, notes=(*self.notes, *found.notes))

    @contextmanager
    def _changing(self) -> Generator[Answers]:
        """Give the newest answers to be changed, and write them; on failure nothing changed."""
        folder = self.path.resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
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
        """Go on from what somebody else wrote; our places in the list of items must hold there."""
        both = min(len(newer.names), len(self.names))
        if newer.names[:both] != self.names[:both]:
            msg = f"{self.path} was replaced by one on other items: nothing was written to it"
            raise LogError(msg)
        if len(newer.names) < len(self.names):
            newer.names = self.names
        self._answers = newer

    def _keep_broken(self) -> None:
        """Put a broken file aside before it is replaced by what could be read of it."""
        if not self.notes or not self.path.exists():
            return
        aside = self.path.with_name(f"{self.path.name}.broken")
        if not aside.exists():
            write_bytes(aside, self.path.read_bytes())
        self._answers.notes = ()


def _read(path: Path) -> Answers:
    try:
        return parse(decoded(path.read_bytes(), str(path)), str(path))
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise LogError(msg) from error


def _check_names(path: Path, answers: Answers, names: Sequence[str]) -> None:
    """Refuse items that lack some of the file's: nobody could be shown those."""
    if gone := [name for name in answers.names if name not in set(names)]:
        msg = (
            f"{path} holds {len(gone)} items that are not among those given ({few(gone)}): pass "
            "the same items, or another file with -o"
        )
        raise DesignError(msg)
