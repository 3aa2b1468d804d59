"""One model's adaptive test: next item, answer, ability, and why it stopped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.constraints import Targets, eligible, pick, preferring
from evalstats_plugin.adaptive.scoring import Belief, Scored, score
from evalstats_plugin.adaptive.selection import Candidates, Tables, rule_for, worth
from evalstats_plugin.adaptive.settings import Settings
from evalstats_plugin.adaptive.stopping import Cost, Items, Standing
from evalstats_plugin.adaptive.trace import Answer, Outlook, ScoreEstimate, Step, Trace
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.stats.interval import IntArray

__all__ = ["AdaptiveSession", "ScoreEstimate", "Settings", "Step"]
EXHAUSTED = "no item left to ask"
_RECENT = 5
_MOST_TRIALS = 2**53
"""Answers over which information gained is averaged."""


class AdaptiveSession:
    """An adaptive test of one model.

    Ask for items with `next`, tell answers with `record`, until `stopped` says why. Items that
    were given out and not answered yet are not given out again.

    Parameters
    ----------
    bank
        See `ItemBank.matched` for what the harness has of it.
    rule
        A name of `selection.RULE_NAMES`, or ``"auto"``.
    stop
        Rules of `stopping`; the first that is met stops. Without any, all items are asked.
    scoring
        ``"eap"``, ``"map"`` or ``"wle"``. Stopping and intervals go by the posterior.
    batch
        How many items `next` gives, chosen jointly.
    content
        Shares of the tasks; see `constraints.Content`.
    exposure
        `constraints.Randomesque` or `SympsonHetter`.

    Raises
    ------
    DesignError
        The bank has no item that may be asked.
    SelectionError
        No such rule or scoring; a batch below 1.
    """

    def __init__(
        self,
        bank: ItemBank,
        *,
        rng: np.random.Generator | int | None = None,
        **settings: Any,
    ) -> None:
        bank.require_usable()
        known = Settings(**settings)
        if known.batch < 1:
            raise SelectionError(f"batch of {known.batch} items found, expected at least 1")
        self.bank = bank
        self.rule = rule_for(bank, known.rule)
        self.settings = known
        self._trace = Trace()
        self._stop = tuple(known.stop)
        self._targets = Targets.of(bank, known.content, known.rule)
        self._rng = np.random.default_rng(rng)
        self._eligible = eligible(known.exposure, (1, len(bank)), self._rng)
        self._tables = Tables.of(bank)
        self._out: NDArray[np.bool_] = np.zeros(len(bank), dtype=np.bool_)
        self._began = monotonic()
        self._cost = 0.0
        self.stopped: str | None = None
        self._entropies: list[float] = []
        self._believe(Belief.prior(bank))

    def next(self, k: int | None = None, *, among: NDArray[np.bool_] | None = None) -> IntArray:
        """Give places in the bank of the items to ask now: `k`, or as many as a batch has.

        Fewer where the rules stop sooner, none once the session has stopped. `among`, shape (M,),
        are items that can be asked at this moment, where others can later.
        """
        wanted = self._allowance(self.settings.batch if k is None else k)
        places: list[int] = []
        outlook = self._outlook
        candidates = Candidates(outlook.belief, self._tables, self._rng, lambda: outlook.state)
        while len(places) < wanted and self.stopped is None:
            affordable = self._open() if among is None else self._open() & among
            if not affordable.any():
                break
            allowed = preferring(affordable[None], self._eligible)
            if self._targets is not None:
                allowed = self._targets.allowed(allowed, self._out[None])
            values = worth(candidates, self.rule, int(self._out.sum()))
            chosen = pick(values, allowed, self.settings.exposure, self._rng)
            places.append(int(chosen[0]))
            self._out[places[-1]] = True
            if len(places) < wanted:
                candidates = candidates.expecting(chosen)
        if not places and among is None and self.stopped is None and not self._waiting():
            left = (self.bank.usable & ~self._out).any()
            self.stopped = "what is left of the budget buys no item" if left else EXHAUSTED
        return np.array(places, dtype=np.int64)

    def record(self, place: int, score: float, trials: int = 1) -> str | None:
        """Take the answer to an item; return why the session stops, or None.

        Parameters
        ----------
        place
            In the bank; an item that `next` did not give is taken as well.
        score
            Mean of the item's epochs, in [0, 1].
        trials
            Epochs.

        Raises
        ------
        DesignError
            The item has been answered already, or the score lies outside [0, 1].
        """
        if not 0 <= place < len(self.bank):
            raise ValueError(f"place {place} is not in the bank of {len(self.bank)} items")
        key = str(self.bank.tasks[place]), str(self.bank.item_ids[place])
        named = " / ".join(key)
        if place in self._belief.places[0]:
            raise DesignError(f"item {named} has been answered already, expected each item once")
        if not 0 <= score <= 1 or trials < 1:
            msg = f"item {named} scored {score} in {trials} epochs, expected 0 to 1 in at least 1"
            raise DesignError(f"{msg}: rescale the metric")
        self._out[place] = True
        self._believe(
            self._belief.answered(
                np.array([[place]]), np.array([[score * trials]]), np.array([[float(trials)]])
            )
        )
        self._cost += 0.0 if self.bank.cost is None else float(self.bank.cost[place]) * trials
        answer = Answer(*key, float(score), trials, self._scored, self._belief.log_likelihood)
        self._trace.answers.append(answer)
        self.stopped = self.stopped or self._reason()
        return self.stopped

    def give_back(self, place: int) -> None:
        """Take back an item that was given out and could not be asked: it may come again."""
        if place not in self._belief.places[0]:
            self._out[place] = False

    @property
    def answers(self) -> list[Answer]:
        """Answers in order."""
        return self._trace.answers

    @property
    def trace(self) -> list[Step]:
        """What was known after each answer: with the full score, which is predicted for it now."""
        return self._trace.steps(self._outlook)

    @property
    def n(self) -> int:
        """Items answered."""
        return self._belief.places.shape[1]

    @property
    def ability(self) -> float:
        """θ by the session's scoring."""
        return float(self._scored.ability[0])

    @property
    def std_error(self) -> float:
        """Of `ability`."""
        return float(self._scored.std_error[0])

    def interval(self) -> tuple[float, float]:
        """Limits of the ability at the session's confidence level, of equal tails."""
        low, high = self._belief.interval(self.settings.confidence_level)
        return float(low[0]), float(high[0])

    def full_score(self) -> dict[str, ScoreEstimate]:
        """Expected score on all items, by task; "" is over all tasks.

        The interval is for what asking every item would have given.
        """
        return self._outlook.scores()

    def result(self) -> dict[str, Any]:
        """What was found, ready for JSON."""
        low, high = self.interval()
        scores = {name or "all": each._asdict() for name, each in self.full_score().items()}
        own = {key: value for key, value in scores.items() if key != "all"}
        return {
            "n_items": self.n,
            "n_in_bank": len(self.bank),
            "stopped": self.stopped,
            "rule": self.rule,
            "content": self._targets and self._targets.described(self.bank.task_names),
            "scoring": self.settings.scoring,
            "ability": self.ability,
            "std_error": self.std_error if np.isfinite(self.std_error) else None,
            "low": low,
            "high": high,
            "confidence_level": self.settings.confidence_level,
            "full_score": scores["all"],
            "full_score_by_task": own,
            "cost": None if self.bank.cost is None else self._cost,
            "notes": list(self.bank.notes),
        }

    def to_json(self) -> str:
        """Answers so far, a line each, for `resume`."""
        lines = [
            {"task": each.task, "item": each.item, "score": each.score, "trials": each.trials}
            for each in self.answers
        ]
        return "".join(json.dumps(line) + "\n" for line in lines)

    @classmethod
    def resume(cls, bank: ItemBank, lines: Sequence[str], **settings: Any) -> AdaptiveSession:
        """Take up a session from the lines of `to_json`.

        Raises
        ------
        LogError
            A line is none of `to_json`, or of an item that the bank does not hold.
        """
        session = cls(bank, **settings)
        places = {key: place for place, key in enumerate(bank.keys())}
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
                place = places[found["task"], found["item"]]
                answer = float(found["score"]), int(found["trials"])
                if answer[1] > _MOST_TRIALS:
                    raise ValueError(answer[1])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                msg = f"line {number} of the saved session is no answer to an item of this bank"
                raise LogError(f"{msg}: {line[:80]!r}; start anew, or use its own bank") from error
            session.record(place, *answer)
        return session

    @property
    def _belief(self) -> Belief:
        return self._outlook.belief

    def _believe(self, belief: Belief) -> None:
        level = self.settings.confidence_level
        self._outlook = Outlook(belief, self._tables.shares, level)
        self._scored: Scored = score(belief, self.settings.scoring)
        self._entropies.append(float(belief.entropy()[0]))

    def _waiting(self) -> bool:
        return int(self._out.sum()) > self.n

    def _open(self) -> NDArray[np.bool_]:
        """Items that may be asked and paid for."""
        found = self.bank.usable & ~self._out
        budgets = [rule.value for rule in self._stop if isinstance(rule, Cost)]
        if budgets and self.bank.cost is not None:
            waiting = self._out.copy()
            waiting[self._belief.places[0]] = False
            spent = self._cost + float(self.bank.cost[waiting].sum())
            found &= self.bank.cost <= min(budgets) - spent
        return found

    def _allowance(self, wanted: int) -> int:
        bounds = [int(rule.value) for rule in self._stop if isinstance(rule, Items)]
        return min([wanted, *(bound - int(self._out.sum()) for bound in bounds)])

    def _reason(self) -> str | None:
        standing = self.standing()
        return next((why for rule in self._stop if (why := rule(standing)) is not None), None)

    def standing(self) -> Standing:
        """How the session stands, as stop rules see it."""
        recent = self._entropies[-_RECENT - 1 :]
        return Standing(
            n=self.n,
            ability=self.ability,
            std_error=float(score(self._belief).std_error[0]),
            prior_sd=self.bank.ability_sd,
            gained=(recent[0] - recent[-1]) / max(len(recent) - 1, 1),
            cost=self._cost,
            seconds=monotonic() - self._began,
            outlook=self._outlook,
        )
