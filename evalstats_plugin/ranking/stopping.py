"""When to stop comparing: how sure the order or the best is by now, and whether that will do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.ranking.acquisition import Belief, all_pairs
from evalstats_plugin.ranking.order_probability import log_prob_order

N_PARTICLES = 1024
"""For the probability of one order."""
N_DRAWS = 4000
"""For who is the best and by how much: P(best) to a standard error of .008 at most."""


class Certainty(NamedTuple):
    """How sure what a normal belief says is."""

    prob_order: float
    """That all players are in the order of their ratings."""
    expected_tau: float
    """Kendall's tau of that order with the true one: 1 less twice the share of wrong pairs."""
    best: int
    """Place of the player that is most probably the best."""
    prob_best: float
    """That it is."""
    regret: float
    """How much higher the best rating is expected to be than this player's."""


class Stop(NamedTuple):
    """Why comparing may stop."""

    goal: str
    """The field of `Stopping` that was reached."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """What will do: comparing stops at whatever of these comes first; None is no bar.

    Raises
    ------
    SelectionError
        A bar that nothing, or anything, passes.
    """

    prob_order: float | None = None
    expected_tau: float | None = None
    prob_best: float | None = None
    regret: float | None = None
    """Stops at or below."""
    budget: int | None = None
    """Comparisons."""

    def __post_init__(self) -> None:
        for name in ("prob_order", "expected_tau", "prob_best"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                msg = f"{name}={value:g} found, expected a number between 0 and 1 such as 0.95"
                raise SelectionError(msg)
        for name in ("regret", "budget"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                msg = f"{name}={value:g} found, expected a number above 0"
                raise SelectionError(msg)

    def reached(self, found: Certainty, n_contests: float) -> Stop | None:
        """Return why to stop, or None to go on."""
        sure = {
            "prob_order": "the ranking is right with probability",
            "expected_tau": "the ranking's expected Kendall's tau is",
            "prob_best": "the best is right with probability",
        }
        for name, words in sure.items():
            bar, value = getattr(self, name), getattr(found, name)
            if bar is not None and value >= bar:
                return Stop(name, f"{words} {value:.3f}, {bar:g} was asked for")
        if self.regret is not None and found.regret <= self.regret:
            reason = f"the best is expected to be {found.regret:.3g} better than the one chosen"
            return Stop("regret", f"{reason}, {self.regret:g} was asked for")
        if self.budget is not None and n_contests >= self.budget:
            return Stop("budget", f"{n_contests:g} comparisons made, {self.budget} were allowed")
        return None


def certainty(state: Belief, *, rng: np.random.Generator | int | None = None) -> Certainty:
    """How sure the order of the ratings and the best player are."""
    generator = np.random.default_rng(rng)
    rating = np.asarray(state.rating, dtype=np.float64)
    covariance = np.asarray(state.covariance, dtype=np.float64)
    if len(rating) < 2:
        return Certainty(1.0, 1.0, 0, 1.0, 0.0)
    order = np.argsort(-rating, kind="stable")
    log_p = log_prob_order(rating, covariance, order, rng=generator, n_particles=N_PARTICLES)[0]
    pairs = all_pairs(rating, covariance)
    right = special.ndtr(np.abs(pairs.mean) / np.sqrt(pairs.variance))
    value, vectors = np.linalg.eigh(covariance)
    noise = generator.normal(size=(N_DRAWS, len(rating))) * np.sqrt(np.clip(value, 0, None))
    draws = rating + noise @ vectors.T
    share = np.bincount(draws.argmax(axis=1), minlength=len(rating)) / N_DRAWS
    best = int(share.argmax())
    regret = float((draws.max(axis=1) - draws[:, best]).mean())
    prob_order = float(min(np.exp(log_p), 1.0))
    return Certainty(prob_order, float(2 * right.mean() - 1), best, float(share[best]), regret)
