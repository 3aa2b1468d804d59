"""Answers of a test survive whatever ends the run, and belong to one run at a time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.session import AdaptiveSession, AnswersFile
from evalstats_plugin.errors import LogError, WriteError

BANK = ItemBank.from_arrays(np.ones(5), np.arange(5.0))
ABOUT = {"model": "a", "task": "t"}

HOLDER = """
import sys, time
import numpy as np
from evalstats_plugin.adaptive.session import AnswersFile
from evalstats_plugin.adaptive.bank import ItemBank
saved = AnswersFile(sys.argv[1], ItemBank.from_arrays(np.ones(5), np.arange(5.0)), {"model": "a"})
saved.note(log="x")
print("held", flush=True)
time.sleep(300)
"""


def _answered(path: Path, *places: int) -> AdaptiveSession:
    """Write answers down and close the file."""
    saved = AnswersFile(path, BANK, ABOUT)
    session = AdaptiveSession.resume(BANK, saved.answers)
    for place in places:
        session.record(place, 1.0)
        saved.append(session)
    saved.close()
    return session


def test_answers_are_taken_up_with_what_was_noted(tmp_path: Path) -> None:
    """In the order given; of notes of one name the last counts."""
    path = tmp_path / "new" / "state"
    _answered(path, 2)
    with_notes = AnswersFile(path, BANK, ABOUT)
    with_notes.note(log="first")
    with_notes.note(log="second")
    with_notes.close()
    session = _answered(path, 4)
    again = AnswersFile(path, BANK, ABOUT)

    assert session.to_json().splitlines() == again.answers
    assert {"log": "second"} == again.facts


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_line_that_was_being_written_is_dropped(tmp_path: Path, cut: int) -> None:
    """The run was killed within the last line: the lines before it stand, and others follow."""
    path = tmp_path / "state"
    _answered(path, 2, 4)
    path.write_bytes(path.read_bytes()[:-cut])
    session = _answered(path, 3)

    assert [2, 3] == session.belief.places[0].tolist()
    assert path.read_text().endswith("\n")
    assert 3 == len(path.read_text().splitlines())


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """Neither a torn file nor one of another model; and no file comes of looking for one."""
    path = tmp_path / "state"
    _answered(path, 2)
    torn = path.read_bytes() + b'{"task": "ta'
    path.write_bytes(torn)
    AnswersFile(path, BANK, ABOUT).close()
    with pytest.raises(LogError, match="model 'a', not 'b'"):
        AnswersFile(path, BANK, {**ABOUT, "model": "b"})
    assert torn == path.read_bytes()

    AnswersFile(tmp_path / "none", BANK, ABOUT).close()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("content", [b"my thesis", b"one\ntwo\n", b"[1]\n", b"\xff\xfe\n", b"{}\n"])
def test_files_of_others_are_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    """Also those of a single line without an end, which is no line cut off."""
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(LogError, match="answers of a"):
        AnswersFile(path, BANK, ABOUT)
    assert content == path.read_bytes()


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("item", "none", "names no item of this bank"),
        ("task", [1], "names no item of this bank"),
        ("score", "x", "has no 'score' from 0 to 1"),
        ("score", float("nan"), "has no 'score' from 0 to 1"),
        ("score", 1.5, "has no 'score' from 0 to 1"),
        ("trials", 0, "has no number of epochs"),
        ("trials", float("inf"), "has no number of epochs"),
        ("trials", None, "has no number of epochs"),
    ],
)
def test_a_damaged_line_is_named_with_its_file_and_field(
    tmp_path: Path, field: str, value: object, problem: str
) -> None:
    """Facts are lines too, and count."""
    path = tmp_path / "state"
    _answered(path, 2)
    with_fact = AnswersFile(path, BANK, ABOUT)
    with_fact.note(log="x")
    with_fact.close()
    _answered(path, 3)
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    lines[3] = json.dumps({**json.loads(lines[3]), field: value})
    path.write_text("\n".join(lines) + "\n")

    with pytest.raises(LogError, match=f"state, line 4, {problem}"):
        AnswersFile(path, BANK, ABOUT)
    lines[1:] = ["{"]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(LogError, match="state, line 2, is no JSON object"):
        AnswersFile(path, BANK, ABOUT)


def test_an_item_answered_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state"
    _answered(path, 2)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1]]))

    with pytest.raises(LogError, match=r"state, line 3, names no item .* answered before"):
        AnswersFile(path, BANK, ABOUT)


def test_a_first_line_cut_off_is_begun_anew(tmp_path: Path) -> None:
    """The run was killed before anything was said."""
    path = tmp_path / "state"
    _answered(path, 2)
    path.write_bytes(path.read_bytes()[:20])

    assert [1] == _answered(path, 1).belief.places[0].tolist()


def test_another_bank_is_refused(tmp_path: Path) -> None:
    """Items of the same names, and other parameters."""
    _answered(tmp_path / "state", 2)
    other = ItemBank.from_arrays(np.ones(5), np.arange(5.0) + 0.01)
    with pytest.raises(LogError, match="answers of bank"):
        AnswersFile(tmp_path / "state", other, ABOUT)


def test_a_second_run_is_told_so_until_the_first_is_over(tmp_path: Path) -> None:
    """Closed or forgotten, the file is free."""
    path = tmp_path / "state"
    first = AnswersFile(path, BANK, ABOUT)
    with pytest.raises(LogError, match="in use by another adaptive run"):
        AnswersFile(path, BANK, ABOUT)
    first.close()
    first.close()
    AnswersFile(path, BANK, ABOUT).note(log="x")

    assert {"log": "x"} == AnswersFile(path, BANK, ABOUT).facts


def test_the_file_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """While it lives it is not."""
    path = tmp_path / "state"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert "held\n" == holder.stdout.readline()
        with pytest.raises(LogError, match="in use"):
            AnswersFile(path, BANK, {"model": "a"})
        holder.send_signal(signal.SIGKILL)
        holder.wait()

    assert {"log": "x"} == AnswersFile(path, BANK, {"model": "a"}).facts


def test_a_folder_is_no_state_file(tmp_path: Path) -> None:
    """The message has the system's reason."""
    with pytest.raises(WriteError, match="directory"):
        AnswersFile(tmp_path, BANK, ABOUT)
