"""A judge that is a program answers pair after pair until the goal or the budget is reached."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from evalstats_plugin.errors import PluginError
from evalstats_plugin.judging.items import Items
from evalstats_plugin.judging.judges import Judge, Question, UnclearReplyError, verdict
from evalstats_plugin.judging.session import Session
from evalstats_plugin.judging.standing import Goal, Standing

MOST_UNCLEAR = 5
"""Unclear replies in a row after which a judge is not asked any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of it."""

    n_answers: int
    n_unclear: int
    """Replies that were no verdict: those pairs were skipped."""
    certainty: float
    reached: bool
    """Whether the goal was reached, and not only the budget spent."""
    agreement: float | None = None
    """Share of the pairs asked in both orders on which both answers agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a judge is asked, and for how long."""

    goal: Goal
    budget: int
    """Most questions."""
    both_orders: bool = False
    """Ask every pair twice, each of the two once first; otherwise their places are random."""
    at_once: int = 1
    """Pairs asked at the same time, chosen together."""


def judge_items(
    session: Session,
    items: Items,
    judge: Judge,
    plan: Plan,
    *,
    seed: int | None = None,
    on_answer: Callable[[int], None] | None = None,
) -> Judged:
    """Ask a judge, and keep every answer in the session.

    Parameters
    ----------
    on_answer
        Called with the number of questions asked so far.

    Raises
    ------
    PluginError
        The judge fails, or replies without a verdict several times in a row; what it answered
        before is kept.
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
    """Puts questions, and counts what comes back."""

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
        """Keep an answer; one that is unclear counts as skipped."""
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

    def judged(self, certainty: float, *, reached: bool) -> Judged:
        return Judged(
            n_answers=self.n_answers,
            n_unclear=self.n_unclear,
            certainty=certainty,
            reached=reached,
            agreement=sum(self.agreed) / len(self.agreed) if self.agreed else None,
        )
