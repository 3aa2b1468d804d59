"""Judges that are functions, programs or models, and what they are asked."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Any

import pytest

from evalstats_plugin.errors import PluginError, SelectionError
from evalstats_plugin.ranking.judging.automatic import (
    MOST_UNCLEAR,
    JudgingPlan,
    Question,
    UnclearReplyError,
    command_judge,
    judge_items,
    model_judge,
    verdict,
)
from evalstats_plugin.ranking.judging.items import Item, Items
from evalstats_plugin.ranking.judging.session import Session
from evalstats_plugin.ranking.judging.standing import Goal

ITEMS = Items(tuple(Item(f"n{k}", str(k)) for k in range(6)), "numbers")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("first", 1.0), ("Second.", 0.0), (" TIE\n", 0.5), ("skip", None), (None, None),
        ("A", 1.0), ("b", 0.0), ("C", 0.5), ("1", 1.0), (2, 0.0), (0.25, 0.25),
        ("[[A]] would be too quick; on reflection [[B]]", 0.0),
        ('{"winner": "left", "why": "shorter"}', 1.0), ({"winner": "tie"}, 0.5),
    ],
)  # fmt: skip
def test_a_verdict_is_read(reply: Any, expected: float | None) -> None:
    """As a word, within a longer reply, or as JSON."""
    assert expected == verdict(reply)


DEEP = pytest.param('{"winner":' * 100_000, id="nested deeper than Python follows")


@pytest.mark.parametrize("reply", ["", "maybe", "A or B", '{"winner": 3}', "{", "[[D]]", 7, DEEP])
def test_an_unclear_reply_is_an_error(reply: Any) -> None:
    """And not guessed."""
    with pytest.raises(UnclearReplyError, match="names none of first, second, tie and skip"):
        verdict(reply)


def _larger(question: Question) -> str:
    return "first" if int(question.first) > int(question.second) else "second"


def _session(tmp_path: Path) -> Session:
    return Session.open(tmp_path / "a.json", ITEMS.names, judge="program", prior_variance=9.0)


def test_a_function_judges_until_the_goal(tmp_path: Path) -> None:
    """Six numbers are put in order, with both places used, before the budget is spent."""
    session = _session(tmp_path)
    plan = JudgingPlan(goal=Goal("order", 0.95), budget=300)
    judged = judge_items(session, ITEMS, _larger, plan, seed=1)

    assert judged.reached
    assert judged.certainty >= 0.95
    assert 10 < judged.n_answers == len(session.given) < 300
    assert {0.0, 1.0} == {answer.outcome for answer in session.given}
    assert all(answer.judge == "program" and answer.placed for answer in session.given)
    wins = session.contests().wins()
    assert (wins.sum(axis=1) / (wins + wins.T).sum(axis=1)).argmax() == 5


def test_both_orders_are_asked_and_agreement_is_counted(tmp_path: Path) -> None:
    """A judge that always takes the first never agrees with itself; a good one always does."""
    plan = JudgingPlan(goal=Goal("order", 0.999), budget=12, both_orders=True, at_once=2)
    biased = judge_items(_session(tmp_path), ITEMS, lambda _: "first", plan, seed=1)
    session = Session.open(tmp_path / "b.json", ITEMS.names)
    good = judge_items(session, ITEMS, _larger, plan, seed=1)

    assert (0.0, 1.0) == (biased.agreement, good.agreement)
    assert 12 == good.n_answers
    assert not good.reached
    pairs = [(a.first, a.second) for a in session.given]
    assert all(pairs[k] == pairs[k + 1][::-1] for k in range(0, 12, 2))


def test_an_odd_budget_is_not_overspent(tmp_path: Path) -> None:
    """Five questions are two pairs in both orders."""
    plan = JudgingPlan(goal=Goal(), budget=5, both_orders=True, at_once=4)

    assert 4 == judge_items(_session(tmp_path), ITEMS, _larger, plan, seed=1).n_answers


def test_an_unclear_reply_is_a_skip_and_many_in_a_row_end_it(tmp_path: Path) -> None:
    """Counted; what was answered before is kept."""
    replies = iter(["first", "hm", "second", *["hm"] * MOST_UNCLEAR])
    session = _session(tmp_path)
    plan = JudgingPlan(goal=Goal(), budget=50)

    with pytest.raises(
        PluginError, match="no verdict 5 times in a row; last: the reply 'hm' names none"
    ):
        judge_items(session, ITEMS, lambda _: next(replies), plan, seed=1)
    assert 2 == len(Session.open(session.path).given)
    assert 1 + MOST_UNCLEAR == len(Session.open(session.path).skipped)


def test_a_failed_question_is_asked_again_and_no_paid_answer_is_lost(tmp_path: Path) -> None:
    """Of parallel questions one fails for good: the others' answers are saved all the same."""
    calls: list[Question] = []

    def failing(question: Question) -> str:
        calls.append(question)
        if len(calls) in (2, 3):
            raise PluginError("busy")
        return _larger(question)

    plan = JudgingPlan(goal=Goal("order", 0.999), budget=8, at_once=2, retries=2, wait=0.001)
    judged = judge_items(_session(tmp_path), ITEMS, failing, plan, seed=1)

    assert (judged.n_answers, judged.n_retries, len(calls)) == (8, 2, 10)

    def broken(question: Question) -> str:
        if "5" in (question.first, question.second):
            raise PluginError("no key")
        return _larger(question)

    session = Session.open(tmp_path / "b.json", ITEMS.names, judge="program")
    with pytest.raises(PluginError, match="no key"):
        judge_items(session, ITEMS, broken, plan, seed=1)
    assert len(Session.open(session.path).given) == len(session.given) > 0


def test_the_budget_is_that_of_all_runs(tmp_path: Path) -> None:
    """Questions and cost are counted in the file, by judge."""

    def paid(question: Question) -> dict[str, object]:
        return {"winner": _larger(question), "cost": 0.5, "tokens": 10}

    session = _session(tmp_path)
    plan = JudgingPlan(goal=Goal("order", 0.999), budget=6)
    first = judge_items(session, ITEMS, paid, plan, seed=1)
    again = judge_items(Session.open(session.path, judge="program"), ITEMS, paid, plan, seed=1)
    more = replace(plan, budget=99, max_cost=5.0)
    costly = judge_items(Session.open(session.path, judge="program"), ITEMS, paid, more, seed=1)

    assert [6, 0, 4] == [each.n_answers for each in (first, again, costly)]
    assert (3.0, 5.0, 100) == (again.cost, costly.cost, costly.tokens)


KILLED = """
import random, sys, time
from pathlib import Path
from evalstats_plugin.ranking.judging.automatic import JudgingPlan, judge_items
from evalstats_plugin.ranking.judging.items import Item, Items
from evalstats_plugin.ranking.judging.session import Session
from evalstats_plugin.ranking.judging.standing import Goal

def judge(question):
    time.sleep(random.random() / 50)
    with open(sys.argv[2], "a") as log:
        log.write("x")
    return "first"

items = Items(tuple(Item(f"n{k}", str(k)) for k in range(9)), "numbers")
session = Session.open(sys.argv[1], items.names, judge="j")
plan = JudgingPlan(goal=Goal("order", 0.9999), budget=9999, at_once=8)
judge_items(session, items, judge, plan)
"""


def test_kill_9_loses_no_answer_but_those_in_flight(tmp_path: Path) -> None:
    """Each answer is saved as it comes, and the next run goes on from the file."""
    file, log = tmp_path / "a.json", tmp_path / "log"
    for pause in (0.1, 0.2):
        run = subprocess.Popen([sys.executable, "-c", KILLED, str(file), str(log)])
        before = len(log.read_text()) if log.exists() else 0
        until = monotonic() + 60
        while (not log.exists() or len(log.read_text()) < before + 9) and monotonic() < until:
            sleep(0.05)
        sleep(pause)
        run.kill()
        run.wait()

        returned, kept = len(log.read_text()), len(Session.open(file).given)
        assert before + 9 <= returned
        # Of each of the two runs, 8 answers at most were on their way.
        assert returned - 16 <= kept <= returned


def test_a_slow_answer_holds_up_no_other(tmp_path: Path) -> None:
    """While one question waits the other worker goes on."""
    done, n = Event(), 0

    def judge(question: Question) -> str:
        nonlocal n
        n += 1
        if n == 1:
            assert done.wait(30)
        elif n == 6:
            done.set()
        return _larger(question)

    plan = JudgingPlan(goal=Goal("order", 0.999), budget=7, at_once=2)

    assert 7 == judge_items(_session(tmp_path), ITEMS, judge, plan, seed=1).n_answers


def test_a_judge_who_decides_nothing_ends_when_all_pairs_are_skipped(tmp_path: Path) -> None:
    """15 pairs of 6 items."""
    session = _session(tmp_path)
    judged = judge_items(
        session, ITEMS, lambda _: None, JudgingPlan(goal=Goal(), budget=99), seed=1
    )

    assert (0, 0, 15) == (judged.n_answers, judged.n_unclear, len(session.skipped))


def test_a_program_gets_the_question_and_no_names() -> None:
    """As JSON on standard input."""
    code = "import json, sys; q = json.load(sys.stdin); print(json.dumps({'winner': 'tie', **q}))"
    ask = command_judge(shlex.join([sys.executable, "-c", code]))
    reply = ask(Question("é\n", "b", "P"))

    assert {"winner": "tie", "prompt": "P", "first": "é\n", "second": "b"} == json.loads(reply)
    assert 0.5 == verdict(reply)


@pytest.mark.parametrize(
    ("command", "timeout", "message"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('no key')"], 60, "exit code 1: no key"),
        (["/no/such/program"], 60, "cannot be asked: .*No such file"),
        ([sys.executable, "-c", "import time; time.sleep(99)"], 0.5, "not answer: .*timed out"),
    ],
)
def test_a_failing_program_is_an_error(command: list[str], timeout: float, message: str) -> None:
    """One error, with its last words."""
    with pytest.raises(PluginError, match=message):
        command_judge(shlex.join(command), timeout=timeout)(Question("a", "b"))
    with pytest.raises(SelectionError, match="command is empty: give a program"):
        command_judge(" ")


def test_a_model_is_told_what_to_compare_and_how_to_reply() -> None:
    """In the order they are shown, under the prompt and the criterion."""
    told: list[str] = []

    def generate(text: str) -> str:
        told.append(text)
        return "The second cites its source.\n\n[[B]]"

    ask = model_judge(generate, "Which is better founded?")

    assert 0.0 == verdict(ask(Question("one", "two", "Explain.")))
    [text] = told
    places = [text.index(part) for part in ("Which is better founded?", "Explain.", "one", "two")]
    assert sorted(places) == places
    assert "[[C]] for a tie" in text
