"""Chooses the formula for each pair of models of a power analysis, and runs it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.pilot import Spread
from evalstats_plugin.errors import DesignError

EXACT = ("mcnemar-mid-p", "dirichlet", "tango")
"""Tests of 0/1 scores taken once, as `evalstats_plugin.stats.paired_power.TAILS` has them."""

METHODS = ("auto", "miller", "t", *EXACT)
"""What finds a difference. ``"auto"``: McNemar's mid-p test for 0/1 scores taken once, else
Miller's normal approximation, and Student's t test below 100 items."""

NORMAL_FROM = 100
"""Items from which on the normal approximation is good to one item in 50."""

EXACT_UP_TO = 10_000
"""Items up to which outcomes are summed; the normal approximation is as good beyond."""

MOST_MODELS = 100
"""Where the search for a number of models ends."""

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Aim:
    """What is asked for: the arguments of `power`, checked."""

    difference: float | None
    n_items: int | None
    n_epochs: int | None
    power: float
    confidence_level: float


class PowerSolver:
    """Answers for the P pairs of one task; every array has shape (P,)."""

    def __init__(self, spread: Spread, aim: Aim, *, method: str, n_models: int) -> None:
        self.spread, self.aim, self.method, self.n_models = spread, aim, method, n_models
        self.n_epochs = aim.n_epochs or spread.n_epochs
        if self.n_epochs != spread.n_epochs and np.isnan(spread.within).any():
            msg = (
                f"{spread.task} {spread.metric}: {self.n_epochs} epochs asked for, but the pilot "
                "took each item once, which does not tell how takes of an item vary; run it in two "
                "epochs or more"
            )
            raise DesignError(msg)
        within = np.nan_to_num(spread.within) / self.n_epochs
        self.variance = np.maximum(spread.between, 0.0) + within
        once = self.n_epochs == 1 and method in ("auto", *EXACT)
        self.exact: BoolArray = ~np.isnan(spread.discordance) & once
        if method in EXACT and not self.exact.all():
            msg = (
                f"{method} is for 0/1 scores of the same items, taken once; for anything else "
                "leave the method to auto"
            )
            raise DesignError(msg)

    def tail(self, n_models: int) -> float:
        """Probability left out on each side of a comparison, all pairs of models allowed for."""
        from evalstats_plugin.stats.interval import tail_probability

        n_pairs = n_models * (n_models - 1) // 2
        return tail_probability(self.aim.confidence_level) / n_pairs

    def name(self, pair: int, n_items: float) -> str:
        """Return the method that is used for a pair with so many items."""
        n = np.full(len(self.exact), n_items)
        if self._exact_at(n)[pair]:
            return self._test
        return "t" if self._small(n)[pair] else "miller"

    def items(self, difference: float) -> FloatArray:
        """Return the numbers of items that find a difference; NaN where nothing varies."""
        from evalstats_plugin.stats import power
        from evalstats_plugin.stats.paired_power import paired_items_needed

        goal = {"tail": self.tail(self.n_models), "power": self.aim.power}
        found = np.maximum(np.ceil(power.items_needed(difference, self.variance, **goal)), 2.0)
        few = self._small(found)
        if few.any():
            variance = self.variance[few]

            def power_of(n: FloatArray) -> FloatArray:
                return power.t_power(n, difference, variance, tail=goal["tail"])

            found[few] = power.least_items(power_of, found[few], power=self.aim.power)
        found = np.where(self.variance > 0, found, np.nan)
        exact = self._exact_at(power.items_needed(difference, self._apart(difference), **goal))
        if exact.any():
            apart, place = np.unique(self._apart(difference)[exact], return_inverse=True)
            of_counts = paired_items_needed(apart, difference, test=self._test, **goal)
            # A sum of two roundings can pass a whole number by a last bit.
            inflated = of_counts[place] * self.spread.design_effect[exact]
            found[exact] = np.ceil(inflated - 1e-9)
        return found

    def difference(self, n_items: FloatArray) -> FloatArray:
        """Return the least differences that so many items find; NaN where none is possible."""
        from evalstats_plugin.stats import power
        from evalstats_plugin.stats.paired_power import paired_power

        tail, goal, top = self.tail(self.n_models), self.aim.power, self.spread.bounded
        found = power.difference_needed(n_items, self.variance, tail=tail, power=goal)
        few = self._small(n_items)
        if few.any():
            n, variance = n_items[few], self.variance[few]

            def of_t(size: FloatArray) -> FloatArray:
                return power.t_power(n, size, variance, tail=tail)

            highest = np.full(len(n), top) if np.isfinite(top) else 1e3 * np.sqrt(variance)
            found[few] = power.least_difference(of_t, highest, power=goal)
        found = np.where((found <= top) & (self.variance > 0), found, np.nan)
        exact = self._exact_at(n_items)
        if exact.any():
            keys = np.stack([self._effective(n_items)[exact], self.spread.discordance[exact]])
            (size, apart), place = np.unique(keys, axis=1, return_inverse=True)

            def of_counts(by: FloatArray) -> FloatArray:
                return paired_power(size, np.maximum(apart, by), by, tail=tail, test=self._test)

            least = power.least_difference(of_counts, np.ones(len(size)), power=goal)
            found[exact] = least[place.ravel()]
        return found

    def power(
        self, n_items: FloatArray, difference: float, n_models: int | None = None
    ) -> FloatArray:
        """Return the power there is."""
        from evalstats_plugin.stats import power
        from evalstats_plugin.stats.paired_power import paired_power

        tail = self.tail(n_models or self.n_models)
        found = power.normal_power(n_items, difference, self.variance, tail=tail)
        t = power.t_power(n_items, difference, self.variance, tail=tail)
        found = np.where(self._small(n_items), t, found)
        found = np.where(self.variance > 0, found, np.nan)
        exact = self._exact_at(n_items)
        if exact.any():
            n, apart = self._effective(n_items)[exact], self._apart(difference)[exact]
            found[exact] = paired_power(n, apart, difference, tail=tail, test=self._test)
        return found

    def epochs(self, n_items: FloatArray, difference: float) -> FloatArray:
        """Return the epochs that so many items need; inf where none will do, NaN if unknown."""
        from evalstats_plugin.stats.power import epochs_needed

        epochs = epochs_needed(
            difference,
            n_items,
            between=self.spread.between,
            within=self.spread.within,
            tail=self.tail(self.n_models),
            power=self.aim.power,
        )
        return np.maximum(np.ceil(epochs), 1.0)

    def models(self, n_items: FloatArray, difference: float) -> FloatArray:
        """Return how many models can be compared, every two of them; 1 for not even two."""
        found = np.ones(len(n_items))
        for n_models in range(2, MOST_MODELS + 1):
            enough = self.power(n_items, difference, n_models) >= self.aim.power
            found[enough] = n_models
            if not enough.any():
                break
        return np.where(np.isnan(self.power(n_items, difference)), np.nan, found)

    @property
    def _test(self) -> str:
        return EXACT[0] if self.method == "auto" else self.method

    def _apart(self, difference: float) -> FloatArray:
        """Discordance, which cannot be less than the difference."""
        return np.maximum(self.spread.discordance, abs(difference))

    def _effective(self, n_items: FloatArray) -> FloatArray:
        """Independent items that carry as much as so many in clusters."""
        return np.maximum(np.floor(n_items / self.spread.design_effect + 1e-9), 1.0)

    def _exact_at(self, n_items: FloatArray) -> BoolArray:
        return self.exact & ((n_items <= EXACT_UP_TO) | (self.method in EXACT))

    def _small(self, n_items: FloatArray) -> BoolArray:
        """Whether Student's t is used, if outcomes are not summed."""
        return (n_items < NORMAL_FROM) & (self.method != "miller") | (self.method == "t")


def with_design_effect(spread: Spread, design_effect: float) -> Spread:
    """Put another design effect in place of the pilot's, or of none."""
    noise = np.nan_to_num(spread.within) / spread.n_epochs
    plain = (spread.between + noise) / spread.design_effect
    return replace(
        spread,
        between=design_effect * plain - noise,
        design_effect=np.full_like(spread.between, design_effect),
    )
