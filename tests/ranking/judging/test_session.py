"""`evalstats_plugin.ranking.judging.session`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest

from evalstats_plugin.errors import DesignError, LogError, SelectionError, WriteError
from evalstats_plugin.ranking.judging import session as session_module
from evalstats_plugin.ranking.judging.session import Session, encoded, parse

NAMES = ("ant", "bee", "cat")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Give a file that is not there yet."""
    return tmp_path / "answers.json"


def _kept(file: Path) -> dict[str, list[dict[str, object]]]:
    return json.loads(file.read_text())


def test_every_answer_is_in_the_file_at_once(file: Path) -> None:
    """In Fullrank's form, with who was shown first, who answered and when."""
    session = Session.open(file, NAMES, judge="ann")
    session.answer(2, 0, 0.0)
    session.answer(1, 2, 0.5)
    session.answer(0, 1, None)
    kept = _kept(file)

    assert ["ant", "bee", "cat"] == kept["items"]
    assert 1.0 == kept["prior_var"]
    first, second = kept["comparisons"]
    assert {"winner": 0, "loser": 2, "first": 2, "judge": "ann"} == {
        key: value for key, value in first.items() if key != "time"
    }
    assert str(first["time"]).endswith("+00:00")
    assert second["tie"] is True
    assert 1 == second["first"]
    assert (0, 1) == (kept["skipped"][0]["first"], kept["skipped"][0]["second"])
    assert "undone" not in kept


def test_a_session_continues_where_it_stopped(file: Path) -> None:
    """Whatever the order the items come in, and with items added."""
    one = Session.open(file, NAMES, judge="ann", prior_variance=4.0)
    one.answer(0, 1, 1.0)
    again = Session.open(file, ("dog", "cat", "bee", "ant"), judge="ann")

    assert ("ant", "bee", "cat", "dog") == again.names
    assert one.given == again.given
    assert 4.0 == again.prior_variance


def test_undo_goes_back_to_zero_and_keeps_what_was_undone(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skips too, the last first, however fast they came; then there is nothing left."""
    times = (datetime(2026, 1, 1, microsecond=k, tzinfo=UTC) for k in count())
    monkeypatch.setattr(session_module, "datetime", Mock(now=lambda _: next(times)))
    session = Session.open(file, NAMES)
    session.answer(0, 1, 1.0)
    session.answer(1, 2, None)
    session.answer(2, 0, 0.5)
    undone = [session.undo() for _ in range(4)]

    assert [(2, 0), (1, 2), (0, 1)] == [(a.first, a.second) for a in undone if a is not None]
    assert undone[3] is None
    kept = _kept(file)
    assert [] == kept["comparisons"]
    assert "skipped" not in kept
    assert 3 == len(kept["undone"])
    session.answer(0, 1, 0.0)
    assert 1 == len(Session.open(file).given)


def test_a_judge_undoes_only_their_own_answers(file: Path) -> None:
    """The other's answer, which is later, stays."""
    ann, bob = (Session.open(file, NAMES, judge=name) for name in ("ann", "bob"))
    ann.answer(0, 1, 1.0)
    bob.answer(1, 2, 1.0)

    assert (answer := ann.undo()) is not None
    assert "ann" == answer.judge
    assert ["bob"] == [answer.judge for answer in Session.open(file).given]


def test_two_judges_may_share_one_file(file: Path) -> None:
    """Each reads what the other wrote before writing; nothing is lost."""
    ann, bob = (Session.open(file, NAMES, judge=name) for name in ("ann", "bob"))
    for _ in range(3):
        ann.answer(0, 1, 1.0)
        bob.answer(1, 2, 0.0)

    assert 6 == len(Session.open(file).given)
    assert 6 == len(bob.given)


def test_programs_that_add_at_the_same_time_lose_nothing(file: Path) -> None:
    """Two processes, thirty answers each."""
    code = textwrap.dedent("""
        import sys
        from evalstats_plugin.ranking.judging.session import Session
        session = Session.open(sys.argv[1], judge=sys.argv[2])
        for _ in range(30):
            session.answer(0, 1, 1.0)
    """)
    Session.open(file, NAMES).answer(0, 1, None)
    started = [subprocess.Popen([sys.executable, "-c", code, file, name]) for name in "ab"]

    assert [0, 0] == [process.wait(60) for process in started]
    judges = [answer.judge for answer in Session.open(file).given]
    assert {"a": 30, "b": 30} == {name: judges.count(name) for name in "ab"}


def test_a_killed_process_loses_at_most_one_answer(file: Path) -> None:
    """By kill -9, at any moment: the file is whole and holds all answers told as saved."""
    code = textwrap.dedent("""
        import sys
        from evalstats_plugin.ranking.judging.session import Session
        session = Session.open(sys.argv[1], ["ant", "bee", "cat"])
        while True:
            session.answer(0, 1, 1.0)
            print(len(session.given), flush=True)
    """)
    Session.open(file, NAMES).answer(0, 1, 0.0)
    command = [sys.executable, "-c", code, file]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(40):
            saved = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        told = [saved, *map(int, process.stdout.read().split())][-1]
    kept = len(Session.open(file).given)

    assert 41 <= told <= kept <= told + 1


def test_a_fullrank_file_can_be_continued(file: Path) -> None:
    """As it writes it: tab-indented, no more than winner and loser."""
    whole = {
        "items": list(NAMES),
        "prior_var": 2.0,
        "comparisons": [{"winner": 2, "loser": 0}, {"winner": 1, "loser": 0}],
    }
    file.write_text(json.dumps(whole, indent="\t"))
    session = Session.open(file, NAMES)
    session.answer(2, 1, 0.0)

    assert 2.0 == session.prior_variance
    assert [(2, 0, 1.0), (1, 0, 1.0), (2, 1, 0.0)] == [
        (a.first, a.second, a.outcome) for a in session.given
    ]
    assert whole["comparisons"] == _kept(file)["comparisons"][:2]


def test_unknown_fields_of_the_file_are_kept(file: Path) -> None:
    """A weight, the item asked about, a share of the win."""
    comparison = {"winner": 0, "loser": 1, "outcome": 0.7, "first": 1, "weight": 2, "item": "q1"}
    file.write_text(json.dumps({"items": list(NAMES), "comparisons": [comparison]}))
    session = Session.open(file)
    session.answer(0, 2, 1.0)

    assert 0.3 == pytest.approx(session.given[0].outcome)
    assert comparison == _kept(file)["comparisons"][0]
    assert [2.0, 1.0] == session.contests().weight.tolist()


@pytest.mark.parametrize("cut", [0.35, 0.6, 0.97])
def test_complete_answers_of_a_truncated_file_are_kept(file: Path, cut: float) -> None:
    """Said, and the broken one is put aside before anything is written."""
    session = Session.open(file, NAMES)
    for k in range(9):
        session.answer(k % 3, (k + 1) % 3, 1.0)
    whole = file.read_bytes()
    broken = whole[: int(len(whole) * cut)]
    file.write_bytes(broken)
    again = Session.open(file, NAMES)
    n_whole = broken.count(b"}")

    assert session.given[:n_whole] == again.given
    assert f"the {n_whole} answers in front of that place are kept" in again.answers.notes[0]
    again.answer(0, 1, 1.0)
    assert broken == file.with_name("answers.json.broken").read_bytes()
    assert n_whole + 1 == len(_kept(file)["comparisons"])
    assert () == Session.open(file).answers.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"items": ["a", "b', "its list of items is not whole"),
        ("winner,loser\na,b\n", "no .items.: give comparisons as"),
        ("[1, 2]", 'no "items": give comparisons'),
        ('{"items": ["a", 3]}', '"items" is not a list of texts'),
        ('{"items": ["a", "a"]}', "items repeat a: list every item once"),
        ('{"items": ["a", "b"], "prior_var": 0}', '"prior_var" is 0: give a number above 0'),
        ('{"items": ["a", "b"], "comparisons": 3}', "not lists of answers: comparisons"),
        (
            '{"items": ["a", "b"], "comparisons": [{"winner": 0, "loser": 2}]}',
            r"comparisons number 1: .* does not name a winner and a loser.*\(0 to 1\)",
        ),
        (
            '{"items": ["a", "b"], "comparisons": [{"winner": 1, "loser": 1}]}',
            "needs two different items",
        ),
    ],
)
def test_a_file_in_another_format_is_refused(file: Path, text: str, message: str) -> None:
    """Saying what was found; nothing is written over it."""
    file.write_text(text)

    with pytest.raises(LogError, match=message):
        Session.open(file, ("a", "b"))
    assert text == file.read_text()


def test_other_items_are_refused(file: Path) -> None:
    """Answers on items that nobody could be shown."""
    Session.open(file, NAMES).answer(0, 2, 1.0)

    with pytest.raises(DesignError, match=r"1 item not among those given \(cat\)"):
        Session.open(file, ("ant", "bee", "dog"))


def test_a_file_that_was_replaced_by_one_on_other_items_is_not_overwritten(file: Path) -> None:
    """Places in its list mean something else."""
    session = Session.open(file, NAMES)
    session.answer(0, 1, 1.0)
    file.unlink()
    Session.open(file, ("dog", "eel")).answer(0, 1, 1.0)
    theirs = file.read_bytes()

    with pytest.raises(LogError, match="was replaced by one on other items"):
        session.answer(1, 2, 1.0)
    assert theirs == file.read_bytes()


def test_an_answer_that_cannot_be_written_does_not_count(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is not in force, and can be given again."""
    session = Session.open(file, NAMES)
    session.answer(0, 1, 1.0)

    def full(*_: object) -> None:
        raise WriteError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("evalstats_plugin.ranking.judging.session.write_bytes", full)
        with pytest.raises(WriteError, match="disk full"):
            session.answer(1, 2, 1.0)
    assert 1 == len(session.given)
    session.answer(1, 2, 0.0)
    assert [1.0, 0.0] == [a.outcome for a in Session.open(file).given]


def test_unknown_names_get_the_closest_and_one_item_is_not_a_pair(file: Path) -> None:
    """Bad input is refused before anything is written."""
    session = Session.open(file, NAMES)

    with pytest.raises(SelectionError, match="no item is called 'bea'; did you mean bee"):
        session.place("bea")
    with pytest.raises(DesignError, match="'bee' cannot be compared with itself"):
        session.answer(1, 1, 1.0)
    assert not file.exists()
    with pytest.raises(LogError, match="does not exist"):
        Session.open(file)


def test_contests_have_the_order_and_the_judges(file: Path) -> None:
    """As rankings read them."""
    ann, bob = (Session.open(file, NAMES, judge=name) for name in ("ann", "bob"))
    ann.answer(2, 0, 0.0)
    bob.answer(1, 2, 0.5)
    contests = bob.contests()

    assert NAMES == contests.players
    assert [2, 1] == contests.first.tolist()
    assert [0.0, 0.5] == contests.outcome.tolist()
    assert contests.ordered
    assert contests.judge is not None
    assert ["ann", "bob"] == [contests.judges[k] for k in contests.judge]


def test_written_files_read_the_same(file: Path) -> None:
    """Names with quotes, tabs and other scripts."""
    session = Session.open(file, ('say "a"', "tab\tb", "日本"))
    session.answer(0, 2, 0.5)
    session.answer(0, 1, None)
    session.undo()

    assert session.answers == parse(encoded(session.answers).decode(), "x")
