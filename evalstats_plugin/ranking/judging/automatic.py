"""Automatic judging: a function, a program or a model answers until the goal or budget is reached.

* `judge_items`: asks a judge for pair after pair and keeps the answers in a session
* `command_judge`, `model_judge`: judges that run a program, or prompt a language model
* `verdict`: reads a judge's reply
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from evalstats_plugin.errors import PluginError, SelectionError
from evalstats_plugin.ranking.judging.items import Items
from evalstats_plugin.ranking.judging.session import Session
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
    """Goal, budget and order of the questions to a judge."""

    goal: Goal
    budget: int
    """Largest number of questions."""
    both_orders: bool = False
    """Whether to ask every pair in both orders; otherwise the order is random."""
    at_once: int = 1
    """Number of pairs chosen together and asked in parallel."""


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


def judge_items(
    session: Session,
    items: Items,
    judge: Judge,
    plan: JudgingPlan,
    *,
    seed: int | None = None,
    on_answer: Callable[[int], None] | None = None,
) -> JudgingResult:
    """Ask a judge for pair after pair, and keep every answer in the session.

    Parameters
    ----------
    on_answer
        Called with the number of questions asked so far.

    Raises
    ------
    PluginError
        The judge fails, or replies without a verdict several times in a row; earlier answers are
        kept.
    """
    asking = _Asking(session, items.in_order(session.names), judge)
    standing = Standing(len(session.names), session.prior_variance, seed=seed)
    goal, each = plan.goal, 2 if plan.both_orders else 1
    with ThreadPoolExecutor(plan.at_once) as pool:
        while True:
            standing.update(session.given)
            certainty = standing.ranking().certainty(goal.name)
            reached = certainty >= goal.wanted
            k = 0 if reached else min(plan.at_once, (plan.budget - asking.n_asked) // each)
            chosen = standing.choose(goal.rule, k, session.skipped) if k else []
            if not chosen:
                return asking.judged(certainty, reached=reached)
            pairs = [(c.first, c.second) for c in chosen]
            questions = [p for i, j in pairs for p in ((i, j), (j, i))[:each]]
            for pair, outcome in zip(questions, pool.map(asking.ask, questions), strict=True):
                asking.keep(pair, outcome)
                if on_answer is not None:
                    on_answer(asking.n_asked)


class _Asking:
    """Asks questions, keeps the answers, and counts them."""

    def __init__(self, session: Session, items: Items, judge: Judge) -> None:
        self.session, self.items, self.judge = session, items, judge
        self.n_asked = self.n_answers = self.n_unclear = self.in_a_row = 0
        self.outcomes: dict[tuple[int, int], float | None] = {}
        self.agreed: list[bool] = []

    def ask(self, pair: tuple[int, int]) -> float | UnclearReplyError | None:
        first, second = (self.items.items[place] for place in pair)
        prompt = first.prompt if first.prompt == second.prompt else None
        try:
            return verdict(self.judge(Question(first.text, second.text, prompt)))
        except UnclearReplyError as unclear:
            return unclear

    def keep(self, pair: tuple[int, int], outcome: float | UnclearReplyError | None) -> None:
        """Keep an answer; an unclear reply counts as skipped."""
        self.n_asked += 1
        if isinstance(outcome, UnclearReplyError):
            self.n_unclear += 1
            self.in_a_row += 1
            if self.in_a_row == MOST_UNCLEAR:
                msg = f"the judge gave no verdict {MOST_UNCLEAR} times in a row; last: {outcome}"
                raise PluginError(msg)
            outcome = None
        else:
            self.in_a_row = 0
            self.n_answers += outcome is not None
        self.session.answer(*pair, outcome)
        other = self.outcomes.pop((pair[1], pair[0]), None)
        if other is not None and outcome is not None:
            self.agreed.append(abs(other - (1 - outcome)) < 1e-9)
        elif outcome is not None:
            self.outcomes[pair] = outcome

    def judged(self, certainty: float, *, reached: bool) -> JudgingResult:
        return JudgingResult(
            n_answers=self.n_answers,
            n_unclear=self.n_unclear,
            certainty=certainty,
            reached=reached,
            agreement=sum(self.agreed) / len(self.agreed) if self.agreed else None,
        )


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
        try:
            return verdict(json.loads(text))
        except ValueError:
            pass
    marked = MARKED.findall(text)
    word = (marked[-1] if marked else text).strip(" \t\n.!\"'*()").casefold()
    if word not in VERDICTS:
        msg = f"the reply {text[:80]!r} names none of first, second, tie and skip"
        raise UnclearReplyError(msg)
    return VERDICTS[word]


class UnclearReplyError(ValueError):
    """The reply of a judge contains no verdict."""


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
        msg = f"{command!r} cannot be read as a command: {error}"
        raise SelectionError(msg) from error
    if not words:
        msg = "the command is empty: give a program and its arguments"
        raise SelectionError(msg)

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
        except (OSError, subprocess.TimeoutExpired) as error:
            msg = f"the judge {words[0]!r} cannot be asked: {error}"
            raise PluginError(msg) from error
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
