"""Automatic judging: a function, a program or a model answers until the goal or budget is reached.

* `judge_items`: asks a judge for pair after pair and keeps the answers in a session
* `command_judge`, `model_judge`: judges that run a program, or prompt a language model
* `verdict`: reads a judge's reply
"""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import random
from threading import Lock
from time import sleep
from types import MappingProxyType
from typing import Any, Self, cast

from evalstats_plugin.errors import PluginError, SelectionError
from evalstats_plugin.ranking.judging.items import Items
from evalstats_plugin.ranking.judging.session import Answer, Session
from evalstats_plugin.ranking.judging.standing import Goal, Standing

MOST_UNCLEAR = 5
"""Unclear replies in a row after which judging fails."""

VERDICTS: Mapping[str, float | None] = MappingProxyType(
    {
        **dict.fromkeys(("first", "left", "a", "1"), 1.0),
        **dict.fromkeys(("second", "right", "b", "2"), 0.0),
        **dict.fromkeys(("tie", "draw", "c", "both", "neither", "equal"), 0.5),
        **dict.fromkeys(("skip", "none", "null"), None),
    }
)
"""Replies of a judge, and the outcome for the first; None leaves the pair undecided."""

MARKED = re.compile(r"\[\[\s*(\w+)\s*\]\]")
"""A verdict within a longer reply, in the style of chat arenas: ``[[A]]``."""
CRITERION = "Which of the two is better?"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingPlan:
    """Goal, limits and order of the questions to a judge."""

    goal: Goal
    budget: int
    """Largest number of questions to this judge, those of earlier runs included."""
    max_cost: float | None = None
    """Cost at which to ask no more, that of earlier runs included; the judge must say its cost."""
    both_orders: bool = False
    """Whether to ask every pair in both orders; otherwise each of a pair is first in turn."""
    at_once: int = 1
    """Number of questions asked in parallel: as one is answered the next is chosen."""
    retries: int = 4
    """How often a failed question is asked again."""
    wait: float = 1.0
    """Seconds before the first retry; doubled for each further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingResult:
    """Result of automatic judging."""

    n_answers: int
    n_unclear: int
    """Replies without a verdict; their pairs were skipped."""
    certainty: float
    reached: bool
    """Whether the goal was reached before the budget was spent."""
    agreement: float | None = None
    """Share of pairs asked in both orders for which both answers agree."""
    n_retries: int = 0
    tokens: int = 0
    """Of all questions to this judge, those of earlier runs included; 0 if it does not say."""
    cost: float = 0.0
    """The same; in the judge's own currency."""


def judge_items(
    session: Session, items: Items, judge: Judge, plan: JudgingPlan, *, seed: int | None = None
) -> JudgingResult:
    """Ask a judge for pair after pair, and save every answer as soon as it is there.

    Raises
    ------
    PluginError
        The judge fails, again and again, or replies without a verdict several times in a row;
        all answers that came are kept.
    """
    asking = _Asking(session, items.in_order(session.names), judge, plan)
    standing = Standing(len(session.names), session.prior_variance, seed=seed)
    waiting: dict[Future[None], tuple[int, int]] = {}
    each = 2 if plan.both_orders else 1
    with ThreadPoolExecutor(plan.at_once) as pool:
        while True:
            standing.update(session.given)
            certainty = standing.ranking().certainty(plan.goal.name)
            reached = certainty >= plan.goal.wanted
            # Once the goal is reached or the judge has failed, only open questions are awaited.
            open_pairs = [*waiting.values()]
            free = plan.at_once - len(waiting)
            if not reached and asking.problem is None and (free >= each or not waiting):
                n_left = min(max(free // each, 1), asking.left(len(waiting)) // each)
                chosen = standing.choose(plan.goal.rule, n_left, session.skipped, open_pairs)
                for pair in ((c.first, c.second) for c in chosen):
                    for asked in (pair, (pair[1], pair[0]))[:each]:
                        waiting[pool.submit(asking.ask, asked)] = asked
            if not waiting:
                break
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                del waiting[future]
                future.result()
    if asking.problem is not None:
        raise asking.problem
    mine, agreed = asking.mine(), asking.agreed
    return JudgingResult(
        n_answers=asking.n_answers,
        n_unclear=asking.n_unclear,
        certainty=certainty,
        reached=reached,
        agreement=sum(agreed) / len(agreed) if agreed else None,
        n_retries=asking.n_retries,
        tokens=sum(int(_number(answer.more.get("tokens"))) for answer in mine),
        cost=sum(map(_cost, mine)),
    )


class _Asking:
    """Asks questions, saves the answers, and counts them; safe for several threads."""

    def __init__(self, session: Session, items: Items, judge: Judge, plan: JudgingPlan) -> None:
        self.session, self.items, self.judge, self.plan = session, items, judge, plan
        self.n_answers = self.n_unclear = self.in_a_row = self.n_retries = 0
        self.outcomes: dict[tuple[int, int], float | None] = {}
        self.agreed: list[bool] = []
        self.problem: PluginError | None = None
        self._lock = Lock()

    def left(self, n_waiting: int) -> int:
        """Questions that may still be asked, with some that are not answered yet."""
        mine = self.mine()
        limit = self.plan.max_cost
        if limit is not None:
            # Open questions cost what those so far did on average.
            spent = sum(map(_cost, mine))
            if spent + spent / max(len(mine), 1) * n_waiting >= limit:
                return 0
        return max(self.plan.budget - len(mine) - n_waiting, 0)

    def ask(self, pair: tuple[int, int]) -> None:
        """Ask, again if the judge fails, and save the answer."""
        first, second = (self.items.items[place] for place in pair)
        prompt = first.prompt if first.prompt == second.prompt else None
        question = Question(first.text, second.text, prompt)
        for number in count():
            try:
                reply = self.judge(question)
            except PluginError as error:
                last = number == self.plan.retries or isinstance(error, CannotAskError)
                with self._lock:
                    if last or self.problem is not None:
                        self.problem = self.problem or error
                        return
                    self.n_retries += 1
                # Some jitter, so that questions that failed together are not asked together.
                sleep(self.plan.wait * 2**number * (0.5 + random()))  # noqa: S311
            else:
                self._save(pair, reply)
                return

    def _save(self, pair: tuple[int, int], reply: Any) -> None:
        """Save an answer; an unclear reply counts as skipped."""
        with self._lock:
            outcome = None
            try:
                outcome = verdict(reply)
            except UnclearReplyError as unclear:
                self.n_unclear += 1
                self.in_a_row += 1
                if self.in_a_row == MOST_UNCLEAR:
                    msg = f"the judge gave no verdict {MOST_UNCLEAR} times in a row; last: "
                    self.problem = self.problem or PluginError(f"{msg}{unclear}")
            else:
                self.in_a_row = 0
                self.n_answers += outcome is not None
            self.session.answer(*pair, outcome, more=usage_of(reply))
            other = self.outcomes.pop((pair[1], pair[0]), None)
            if other is not None and outcome is not None:
                self.agreed.append(abs(other - (1 - outcome)) < 1e-9)
            elif outcome is not None:
                self.outcomes[pair] = outcome

    def mine(self) -> list[Answer]:
        """Answers of this judge, those of earlier runs and undone ones included."""
        session = self.session
        every = (*session.given, *session.skipped, *session.answers.undone)
        return [answer for answer in every if answer.judge == session.judge]


def _cost(answer: Answer) -> float:
    return _number(answer.more.get("cost"))


def _number(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and 0 <= value < math.inf else 0.0


class Reply(str):
    """Text of a reply that knows what it took: tokens, and cost where the provider says it."""

    tokens: int
    cost: float

    def __new__(cls, text: str, *, tokens: int = 0, cost: float = 0.0) -> Self:
        """Make the text."""
        made = super().__new__(cls, text)
        made.tokens, made.cost = tokens, cost
        return made


def usage_of(reply: Any) -> dict[str, float]:
    """Return what a reply took: of a `Reply`, or the fields "tokens" and "cost" of a JSON object.

    >>> usage_of(Reply("A", tokens=120, cost=0.002)), usage_of('{"winner": "A", "cost": 1}')
    ({'tokens': 120.0, 'cost': 0.002}, {'cost': 1.0})
    """
    usage: Mapping[str, Any] = {}
    if isinstance(reply, Reply):
        usage = {"tokens": reply.tokens, "cost": reply.cost}
    elif isinstance(reply, Mapping):
        usage = cast("Mapping[str, Any]", reply)
    elif str(reply).lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            usage = json.loads(str(reply))
    return {name: amount for name in ("tokens", "cost") if (amount := _number(usage.get(name)))}


@dataclass(frozen=True, slots=True)
class Question:
    """Two items as they are shown to a judge, without their names."""

    first: str
    second: str
    prompt: str | None = None


Judge = Callable[[Question], Any]
"""Returns one of `VERDICTS`, text or JSON that contains one, or the outcome for the first."""


def verdict(reply: Any) -> float | None:
    """Read a judge's reply: the outcome for the first, None if the judge does not decide.

    Raises
    ------
    UnclearReplyError
        The reply contains no verdict.

    >>> verdict("I think the second is clearer. [[B]]"), verdict('{"winner": "tie"}'), verdict("A.")
    (0.0, 0.5, 1.0)
    """
    if isinstance(reply, Mapping):
        reply = cast("Mapping[str, Any]", reply).get("winner", "")
    if reply is None:
        return None
    if isinstance(reply, float) and 0 <= reply <= 1:
        return reply
    text = str(reply).strip()
    if text.startswith("{"):
        with suppress(ValueError, RecursionError):
            return verdict(json.loads(text))
    marked = MARKED.findall(text)
    word = (marked[-1] if marked else text).strip(" \t\n.!\"'*()").casefold()
    if word not in VERDICTS:
        msg = f"the reply {text[:80]!r} names none of first, second, tie and skip"
        raise UnclearReplyError(msg)
    return VERDICTS[word]


class UnclearReplyError(ValueError):
    """The reply of a judge contains no verdict."""


class CannotAskError(PluginError):
    """The judge cannot be asked at all, so that it is not asked again."""


def command_judge(command: str, *, timeout: float = 120.0) -> Judge:
    """Judge by a program, which reads the question as JSON and writes its verdict.

    Parameters
    ----------
    command
        Program and arguments, split like a shell command; it runs without a shell. Its standard
        input is ``{"prompt": …, "first": …, "second": …}``.
    timeout
        Seconds.

    Raises
    ------
    SelectionError
        The command is empty. The judge raises `PluginError` if the program fails.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SelectionError(f"{command!r} cannot be read as a command: {error}") from error
    if not words:
        raise SelectionError("the command is empty: give a program and its arguments")

    def ask(question: Question) -> str:
        shown = {"prompt": question.prompt, "first": question.first, "second": question.second}
        try:
            done = subprocess.run(  # noqa: S603 - what the user asked to be run
                words,
                input=json.dumps(shown, ensure_ascii=False).encode(),
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except OSError as error:
            raise CannotAskError(f"the judge {words[0]!r} cannot be asked: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise PluginError(f"the judge {words[0]!r} did not answer: {error}") from error
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            problem = f": {lines[-1][:200]}" if lines else ""
            msg = f"the judge {words[0]!r} failed with exit code {done.returncode}{problem}"
            raise PluginError(msg)
        return done.stdout.decode(errors="replace")

    return ask


def model_judge(generate: Callable[[str], str], criterion: str | None = None) -> Judge:
    """Judge by a language model.

    Parameters
    ----------
    generate
        Sends a prompt to the model and returns its reply.
    criterion
        The question to answer. Default: `CRITERION`.
    """

    def ask(question: Question) -> str:
        return generate(question_text(question, criterion or CRITERION))

    return ask


def question_text(question: Question, criterion: str) -> str:
    """Prompt of a question for a language model."""
    parts = [
        f"[The start of the {which}]\n{text}\n[The end of the {which}]"
        for which, text in (("first, A", question.first), ("second, B", question.second))
    ]
    if question.prompt is not None:
        parts.insert(0, f"[The start of what both answer]\n{question.prompt}\n[The end]")
    closing = (
        "Do not let their order or their length sway you. Think briefly, then end with your "
        "verdict: [[A]] if the first is better, [[B]] if the second is, [[C]] for a tie."
    )
    return "\n\n".join([criterion, *parts, closing])
