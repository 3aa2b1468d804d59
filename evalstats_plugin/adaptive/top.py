"""Which models are the best: adaptive tests of several models under one budget.

* `TopK`: gives the model and the item to ask next, until it is clear which K models are the best
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.errors import DesignError, SelectionError, counted
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.steady import steady
from evalstats_plugin.stats.streams import stream

FIRST = 5
"""Items that every model is asked before items go where they tell most."""

_DRAWS = 4000
_SPREAD = 1e-9

# A model's full score is predicted anew after so many times the items, and before it is shown.
_GROWTH = 1.1


class TopK:
    """Find the K best of several models with as few items as it takes.

    Ask the model and the item of `next`, report the answer with `record`, until `stopped` gives a
    reason. After a few items of each model, an item goes to the two models, one among the K that
    seem best and one not, that are hardest to tell apart, as in LUCB [KTAS12]_; of the two, to the
    one whose interval it narrows more for its cost.

    Parameters
    ----------
    sessions
        A session of each model, all with the same bank of one ability and without stop rules.
    k
        Number of models wanted, fewer than there are.
    confidence_level
        1 - α, of the selection.
    max_items, budget
        Items, or their cost, of all models together; None for no limit.
    rng
        Generator or seed, for `prob_top`.

    Raises
    ------
    DesignError
        The bank has several abilities, or no costs for a budget.
    SelectionError
        K models are not fewer than there are.

    Notes
    -----
    It is clear which models are the best where two things hold. For each pair of a model chosen and
    one not, the likelihood averaged over the prior's abilities at which the first is more able is
    at least K (N - K) / α times its maximum where it is not; or the items that are left cannot
    change their order. If the first is not more able, that ratio has an expectation of at most 1
    after any number of answers, however models and items were chosen; at most K (N - K) pairs can
    be in the wrong order, so that a wrong selection is called clear in at most α of all runs of
    models that fit the bank, whenever they stop (Ville's inequality, universal inference [WRB20]_).
    And, because models need not fit, the predicted full scores with the errors of misfit make the
    selection right with probability 1 - α.

    Examples
    --------
    >>> import numpy as np
    >>> from evalstats_plugin.adaptive import AdaptiveSession, TopK, item_bank
    >>> from evalstats_plugin.irt import fit_irt, simulate_responses
    >>> matrix, _ = simulate_responses(rng=1, n_models=60, n_items=200, item_model="2pl")
    >>> bank = item_bank(fit_irt(matrix, "2pl"), matrix)
    >>> right = {"weak": 0.2, "strong": 0.9, "middling": 0.5}
    >>> top = TopK({model: AdaptiveSession(bank, rng=0) for model in right}, k=1)
    >>> rng = np.random.default_rng(0)
    >>> while (step := top.next()) is not None:
    ...     model, place = step
    ...     top.record(model, place, float(rng.random() < right[model]))
    >>> top.best
    ('strong',)
    """

    def __init__(
        self,
        sessions: Mapping[str, AdaptiveSession],
        k: int,
        *,
        confidence_level: float = 0.95,
        max_items: int | None = None,
        budget: float | None = None,
        rng: np.random.Generator | int | None = None,
    ) -> None:
        if not 1 <= k < len(sessions):
            msg = f"the best {k} of {counted(len(sessions), 'model')} need no test"
            raise SelectionError(f"{msg}: choose K from 1 to {len(sessions) - 1}")
        if not 0.5 < confidence_level < 1:
            msg = f"level {confidence_level:g} is not between .5 and 1: choose .95 or so"
            raise SelectionError(msg)
        self.sessions, self.k, self.confidence_level = dict(sessions), k, confidence_level
        self.max_items, self.budget = max_items, budget
        for session in self.sessions.values():
            if session.bank.n_abilities > 1:
                msg = "the best of several models needs a bank of one ability"
                raise DesignError(f"{msg}: make one without --dimensions")
            if budget is not None and session.bank.cost is None:
                msg = f"budget {budget:g} has no meaning, because the bank has no costs of items"
                raise DesignError(f"{msg}: limit the number of items instead")
        n = len(self.sessions)
        self._models = tuple(self.sessions)
        self._noise = stream(rng, "which models are best").standard_normal((_DRAWS, n))
        self._scores, self._errors = np.zeros(n), np.full(n, np.inf)
        self._predicted_at = np.full(n, -1)
        self._worst, self._best = np.zeros(n), np.ones(n)
        self._ahead = np.full((n, n), -np.inf)
        # Whether items are left, and whether any of these can be paid for.
        self._left, self._open = np.ones((2, n), dtype=np.bool_)
        self.stopped: str | None = None
        for i in range(n):
            self._look(i)
        self._predict()

    @property
    def n(self) -> int:
        """Items asked of all models."""
        return sum(session.n for session in self.sessions.values())

    @property
    def cost(self) -> float:
        """Cost of the items asked of all models; 0 without costs."""
        return sum(session.cost for session in self.sessions.values())

    @property
    def best(self) -> tuple[str, ...]:
        """The K models that seem best, the best first."""
        self._predict()
        first: list[int] = self._order()[: self.k].tolist()
        return tuple(self._models[i] for i in first)

    @property
    def prob_top(self) -> dict[str, float]:
        """Probability of each model to be among the K with the highest full scores."""
        self._predict()
        drawn = self._scores + self._errors * self._noise
        top = np.argpartition(-drawn, self.k - 1, axis=1)[:, : self.k]
        counts = np.bincount(top.ravel(), minlength=len(self._models))
        return dict(zip(self._models, (counts / _DRAWS).tolist(), strict=True))

    @property
    def prob_right(self) -> float:
        """Probability that `best` are the K models with the highest full scores."""
        self._predict()
        drawn = self._scores + self._errors * self._noise
        order = self._order()
        inside, outside = drawn[:, order[: self.k]], drawn[:, order[self.k :]]
        return float((inside.min(axis=1) >= outside.max(axis=1)).mean())

    def next(self) -> tuple[str, int] | None:
        """Return the model to ask and the item's index in its bank; None once it has stopped."""
        while self.stopped is None:
            i = self._whom()
            if i is None:
                self.stopped = "no item is left that would tell them apart"
                break
            session = self.sessions[self._models[i]]
            affordable = None
            if self.budget is not None and session.bank.cost is not None:
                affordable = session.bank.cost <= self.budget - self.cost
            places = session.next(1, among=affordable)
            if len(places):
                return self._models[i], int(places[0])
            self._open[i] = False
        return None

    def record(self, model: str, place: int, score: float, trials: int = 1) -> None:
        """Record an answer, and look whether it is clear now; see `AdaptiveSession.record`."""
        i, session = self._models.index(model), self.sessions[model]
        session.record(place, score, trials)
        self._look(i)
        self._predict(_GROWTH)
        if session.n == int(session.bank.usable.sum()):
            self._left[i] = self._open[i] = False
        self.stopped = self._reason()

    def _order(self) -> IntArray:
        return np.argsort(-steady(self._scores), kind="stable")

    def _predict(self, growth: float = 1.0) -> None:
        """Predict the full scores of models that have so many times the items of the last time."""
        for i, session in enumerate(self.sessions.values()):
            if session.n > self._predicted_at[i] and session.n >= growth * self._predicted_at[i]:
                full, self._predicted_at[i] = session.expected().full, session.n
                self._scores[i] = full.estimate[0, 0]
                self._errors[i] = max(float(full.std_error[0, 0]), _SPREAD)

    def _look(self, i: int) -> None:
        """Bring up to date how far a model is ahead of others, and what it may still score."""
        session = self.sessions[self._models[i]]
        asked = session.belief
        seen, n = float((asked.right / asked.trials).sum()), len(session.bank)
        self._worst[i], self._best[i] = seen / n, (seen + n - session.n) / n
        own, prior = session.belief.log_likelihood[0], np.exp(session.belief.log_prior)
        others = np.array([one.belief.log_likelihood[0] for one in self.sessions.values()])
        self._ahead[i], self._ahead[:, i] = log_evidence_ahead(own, others, prior)

    def _whom(self) -> int | None:
        """Return the model to ask: of the hardest pair, the one whose error falls more."""
        asked = np.array([session.n for session in self.sessions.values()])
        early = np.flatnonzero(self._open & (asked < FIRST))
        if len(early):
            return int(early[np.argmin(asked[early])])
        order = self._order()
        inside, outside = order[: self.k], order[self.k :]
        gain = np.where(self._open, self._errors**2 / (asked + 1) / self._costs(), 0.0)
        error = np.hypot(self._errors[inside][:, None], self._errors[outside])
        apart = (self._scores[inside][:, None] - self._scores[outside]) / error
        can = self._open[inside][:, None] | self._open[outside]
        # Pairs whose order is settled get an item only where no other does.
        first = can & ~self._settled(inside, outside)
        apart = np.where(first if first.any() else can, steady(apart), np.inf)
        if not np.isfinite(apart).any():
            return None
        a, b = np.unravel_index(int(np.argmin(apart)), apart.shape)
        pair = np.array([inside[a], outside[b]])
        return int(pair[np.argmax(steady(gain[pair]))])

    def _settled(self, inside: IntArray, outside: IntArray) -> BoolArray:
        """Pairs whose order is clear, or known: no answer can change it, or none is left."""
        needed = np.log(len(inside) * len(outside) / (1 - self.confidence_level))
        known = ~self._left[inside][:, None] & ~self._left[outside]
        known |= self._worst[inside][:, None] > self._best[outside]
        return (self._ahead[np.ix_(inside, outside)] >= needed) | known

    def _costs(self) -> FloatArray:
        """Mean cost of a model's items."""
        costs = (session.bank.cost for session in self.sessions.values())
        return np.array([1.0 if cost is None else max(cost.mean(), 1e-12) for cost in costs])

    def _reason(self) -> str | None:
        asked = [session.n for session in self.sessions.values()]
        if self.max_items is not None and sum(asked) >= self.max_items:
            spent = f"{counted(sum(asked), 'item')} asked"
        elif self.budget is not None and self.cost >= self.budget:
            spent = f"cost {self.cost:g} ≥ budget {self.budget:g}"
        else:
            spent = None
        if min(asked) >= min(FIRST, max(asked)) and self._is_clear():
            return f"clear at a level of {self.confidence_level:g}, whenever it stops"
        return spent

    def _is_clear(self) -> bool:
        if not self._all_settled():
            return False
        self._predict()
        return self._all_settled() and self.prob_right >= self.confidence_level

    def _all_settled(self) -> bool:
        order = self._order()
        return bool(self._settled(order[: self.k], order[self.k :]).all())


def log_evidence_ahead(
    one: FloatArray, others: FloatArray, prior: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Log of the evidence that one model is more able than others, and that they are, shape (N,).

    The likelihood averaged over abilities in this order, over the best explanation by another one.

    Parameters
    ----------
    one, others : shape (G,), (N, G)
        Log-likelihoods of the models' abilities on one grid.
    prior : shape (G,)
        Of every ability; adds up to 1.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-4, 4, 161)
    >>> prior = np.exp(-x**2 / 2) / np.exp(-x**2 / 2).sum()
    >>> weak, like = -40 * (x + 1)**2, -40 * (x - 1)**2
    >>> ahead, behind = log_evidence_ahead(like, np.array([weak, like]), prior)
    >>> (ahead.round() > 20).tolist(), (behind.round() > 20).tolist()
    ([True, False], [False, False])
    """
    p = np.exp(one - one.max())
    q = np.exp(others - others.max(axis=1, keepdims=True))
    chance = prior @ _before(prior)
    ahead = _before(prior * q) @ (prior * p), (prior * q) @ _before(prior * p)
    # Equal abilities may lie between two nodes: one node to the other side counts as equal.
    against = (p * _or_above(q)).max(axis=1), (q * _or_above(p)).max(axis=1)
    log = [np.log(np.maximum(x, 1e-300)) for x in (*ahead, *against)]
    return log[0] - np.log(chance) - log[2], log[1] - np.log(chance) - log[3]


def _before(x: FloatArray) -> FloatArray:
    """Sum of what lies before each node."""
    return np.cumsum(x, axis=-1) - x


def _or_above(x: FloatArray) -> FloatArray:
    """Maximum from the node before each on."""
    best = np.maximum.accumulate(x[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([best[..., :1], best[..., :-1]], axis=-1)
