"""Answers of a power analysis for all pairs of models of one task.

`PowerSolver` has the power of one look: by sums over outcomes for 0/1 scores, by simulation from a
pilot's own scores, by Student's t for few items, else by the normal approximation [Mil24]_.
`SequentialPower` has that of a comparison which stops as soon as it is clear.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evalstats_plugin.comparisons.methods import ENGINE
from evalstats_plugin.comparisons.planning.pilots import (
    SIMULATED_UP_TO,
    Pilot,
    Planned,
    search,
)
from evalstats_plugin.comparisons.planning.spreads import (
    MOST_SIMULATED,
    Spread,
    Tasks,
    with_design_effect,
)
from evalstats_plugin.comparisons.rows import SEQUENTIAL
from evalstats_plugin.errors import DesignError
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import tail_probability
from evalstats_plugin.stats.pairs import power as stats_power

EXACT = ENGINE
"""The test of `compare` itself: summed over all outcomes of 0/1 scores in one epoch, else simulated
from a pilot's own scores."""

METHODS = ("auto", "miller", "t", EXACT)
"""How power is computed. ``"auto"``: that of the test which `compare` uses, for 0/1 scores in one
epoch and for pilots; of assumed variances, and for very many items, by Student's t below 100 items,
and by Miller's normal approximation."""

NORMAL_FROM = 100
"""Fewest items for the normal approximation, which is then good to one item in 50."""

EXACT_UP_TO = 10_000
"""Most items for sums over outcomes; beyond, the normal approximation is as good."""

NODES = 12
"""Pairs for which a sequential test is drawn from the pilot. Of more, it is simulated for so many
variances, and others lie between."""

MOST_MODELS = 100
"""Largest number of models searched for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDesign:
    """How models will be compared."""

    paired: bool = True
    """Both answer the same items, rather than as many different ones each."""
    n_models: int | None = None
    """Models to compare, every two of them: by default those of the pilot, or two."""
    design_effect: float | None = None
    """How many times larger clusters make the variance: by default as in the pilot, or 1."""
    method: str = "auto"
    """Test that finds a difference: one of the names in `METHODS`."""
    look_every: int | None = None
    """Items between two looks at a sequential comparison, which stops as soon as it is clear; by
    default there is one look, at the end."""
    tasks: Tasks = "each"
    """What is compared: ``"each"`` task alone; or the mean over the pilot's tasks, which are
    ``"fixed"``, or a ``"random"`` sample of such tasks. Items are then those of one task."""
    assurance: float | None = None
    """Probability, over the errors of the pilot, that the advice is enough; None for the best
    guess, which is too little for about half of all pilots."""
    costs: tuple[float, float] | None = None
    """Cost of an item, and of each of its epochs: the cheapest split of items and epochs is found.
    """
    margin: float | None = None
    """Drop that is acceptable: what is found is then that the second model of a pair is not worse
    than the first by more than this (non-inferiority), as a gate shows it. The true difference is
    the second's gain, 0 unless given."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What is known and what is asked for: the checked arguments of `power`."""

    difference: float | None
    n_items: int | None
    n_epochs: int | None
    power: float
    confidence_level: float


class PowerSolver:
    """Answers for the P pairs of one task; every array has shape (P,)."""

    def __init__(self, spread: Spread, aim: Aim, design: PowerDesign) -> None:
        if aim.difference is not None and abs(aim.difference) > spread.bounded:
            raise DesignError(
                f"a difference of {aim.difference:g} exceeds the range of the scores"
                f"{f' of {spread.task}' if spread.task else ''}; it is at most {spread.bounded:g}"
            )
        # Of a mean over tasks each has it already.
        if design.design_effect is not None and design.tasks == "each":
            spread = with_design_effect(spread, design.design_effect)
        self.spread, self.aim, self.method = spread, aim, design.method
        self.design: Literal["paired", "unpaired"] = "paired" if design.paired else "unpaired"
        self.n_models = design.n_models or max(len(spread.models), 2)
        self.n_epochs = aim.n_epochs or spread.n_epochs
        if self.n_epochs != spread.n_epochs and np.isnan(spread.within).any():
            raise DesignError(
                f"{spread.task} {spread.metric}: the pilot has one epoch, from which the variance "
                f"of {self.n_epochs} epochs cannot be estimated; run it in two epochs or more"
            )
        self.variance = np.maximum(spread.between, 0.0) + self._within() / self.n_epochs
        self.margin = design.margin
        own_test = self.method in ("auto", EXACT)
        pilots = spread.pilots if own_test else None
        clustered = pilots is not None and any(pilot.clustered for pilot in pilots)
        once = self.n_epochs == 1 and own_test and self.margin is None and not clustered
        self.exact: BoolArray = ~np.isnan(spread.discordance) & once
        self._planned = None if pilots is None else [self._plan(pilot) for pilot in pilots]
        if self.method == EXACT and pilots is None and not self.exact.all():
            raise DesignError(
                f"{self.method} is for 0/1 scores of the same items in one epoch, and for pilots "
                f"of up to {MOST_SIMULATED} pairs; leave the method at auto for anything else"
            )
        if self.margin is not None and pilots is None:
            raise DesignError(
                f"{spread.task}: non-inferiority is planned for up to {MOST_SIMULATED} pairs; "
                "choose models"
            )
        if self.margin is not None and self.margin >= spread.bounded:
            raise DesignError(
                f"a margin of {self.margin:g} is the whole range of the scores of {spread.task}"
            )

    def _within(self) -> FloatArray:
        """Variance within items, of one epoch: no more than all of the pilot's variance."""
        spread = self.spread
        within = np.nan_to_num(spread.within)
        whole = spread.n_epochs * spread.between + within
        # The whole can come out below 0, where items have different numbers of epochs; where their
        # means all differ alike it is 0 but for a rounding error.
        return np.where((spread.between < 0) & (whole > 1e-9 * within), whole, within)

    def _plan(self, pilot: Pilot, n_epochs: int | None = None) -> Planned:
        n_epochs = n_epochs or self.n_epochs
        if pilot.random_tasks:
            return pilot.planned(of_task=n_epochs)
        return pilot.planned(n_epochs)

    def _simulated_at(self, n_items: FloatArray) -> IntArray:
        """Pairs whose power is simulated from the pilot."""
        if self._planned is None:
            return np.zeros(0, dtype=np.int64)
        few = n_items * self.spread.n_tasks <= SIMULATED_UP_TO
        return np.flatnonzero(~self.exact & few & (self.variance > 0))

    def _simulated(
        self, pair: int, n: float, difference: float, tail: float, planned: Planned | None = None
    ) -> float:
        assert self._planned is not None  # noqa: S101 - only such pairs are simulated
        planned = planned or self._planned[pair]
        if self.margin is not None:
            return planned.non_inferior(n, difference, tail=tail, margin=self.margin)
        ahead = -abs(difference) if planned.mean < 0 else abs(difference)
        return planned.power(n, ahead, tail=tail)

    def tail(self, n_models: int) -> float:
        """Probability in each tail of a comparison, by Bonferroni over all pairs of models."""
        # Non-inferiority is shown of all models but the baseline.
        n_pairs = n_models - 1 if self.margin is not None else n_models * (n_models - 1) // 2
        return tail_probability(self.aim.confidence_level) / n_pairs

    def names(self, n_items: FloatArray, *, epochs: bool = False) -> list[str]:
        """Return the method that is used for each pair with so many items, or for their epochs."""
        normal = np.where(self._small(n_items) & (not epochs), "t", "miller")
        # Epochs follow from variances, or are simulated.
        names = np.where(self._exact_at(n_items) & (not epochs), EXACT, normal)
        names[self._simulated_at(n_items)] = EXACT
        return names.tolist()

    def items(self, difference: float) -> FloatArray:
        """Return the numbers of items that find a difference; NaN where nothing varies."""
        goal = {"tail": self.tail(self.n_models), "power": self.aim.power}
        distance = difference + (self.margin or 0.0)
        needed = np.maximum(np.ceil(stats_power.items_needed(distance, self.variance, **goal)), 2.0)
        exact = self._exact_at(stats_power.items_needed(distance, self._apart(difference), **goal))
        few = self._small(needed) & ~exact
        if few.any():
            variance = self.variance[few]

            def power_of(n: FloatArray) -> FloatArray:
                return stats_power.t_power(n, distance, variance, tail=goal["tail"])

            needed[few] = stats_power.least_items(power_of, needed[few], power=self.aim.power)
        needed = np.where(self.variance > 0, needed, np.nan)
        if exact.any():
            discordance, place = np.unique(self._apart(difference)[exact], return_inverse=True)
            of_counts = stats_power.paired_items_needed(discordance, difference, **goal)
            # A sum of two roundings can pass a whole number by a last bit.
            inflated = of_counts[place] * self.spread.design_effect[exact]
            needed[exact] = np.ceil(inflated - 1e-9)
        for pair in self._simulated_at(needed).tolist():

            def power_at(n: float, pair: int = pair) -> float:
                return self._simulated(pair, n, difference, goal["tail"])

            most = SIMULATED_UP_TO / self.spread.n_tasks
            start = min(float(needed[pair]), most)
            enough = search(power_at, start, **goal, whole=True, most=most)
            needed[pair] = enough if np.isfinite(enough) else np.fmax(needed[pair], most)
        return needed

    def difference(self, n_items: FloatArray) -> FloatArray:
        """Return the smallest differences that so many items find; NaN where none is possible."""
        tail, goal, top = self.tail(self.n_models), self.aim.power, self.spread.bounded
        smallest = stats_power.difference_needed(n_items, self.variance, tail=tail, power=goal)
        exact = self._exact_at(n_items)
        few = self._small(n_items) & ~exact
        if few.any():
            n, variance = n_items[few], self.variance[few]

            def of_t(size: FloatArray) -> FloatArray:
                return stats_power.t_power(n, size, variance, tail=tail)

            highest = np.full(len(n), top) if np.isfinite(top) else 1e3 * np.sqrt(variance)
            smallest[few] = stats_power.least_difference(of_t, highest, power=goal)
        smallest = np.where((smallest <= top) & (self.variance > 0), smallest, np.nan)
        if exact.any():
            keys = np.stack([self._effective(n_items)[exact], self.spread.discordance[exact]])
            (size, discordance), place = np.unique(keys, axis=1, return_inverse=True)

            def of_counts(by: FloatArray) -> FloatArray:
                return stats_power.paired_power(size, np.maximum(discordance, by), by, tail=tail)

            least = stats_power.least_difference(of_counts, np.ones(len(size)), power=goal)
            smallest[exact] = least[place.ravel()]
        for pair in self._simulated_at(n_items).tolist():

            def power_by(size: float, pair: int = pair) -> float:
                return self._simulated(pair, float(n_items[pair]), size, tail)

            start = min(float(np.nan_to_num(smallest[pair], nan=top)), top)
            least = search(power_by, start, tail=tail, power=goal, whole=False, most=top)
            smallest[pair] = least if least <= top else np.nan
        return smallest

    def power(
        self, n_items: FloatArray, difference: float, n_models: int | None = None
    ) -> FloatArray:
        """Return the power to find a difference."""
        tail = self.tail(n_models or self.n_models)
        distance = difference + (self.margin or 0.0)
        estimated, exact = np.full(len(n_items), np.nan), self._exact_at(n_items)
        simulated, few = self._simulated_at(n_items), self._small(n_items)
        rest = (self.variance > 0) & ~exact
        rest[simulated] = False
        for own, of_test in ((few, stats_power.t_power), (~few, stats_power.normal_power)):
            if (own := rest & own).any():
                estimated[own] = of_test(n_items[own], distance, self.variance[own], tail=tail)
        if exact.any():
            n, discordance = self._effective(n_items)[exact], self._apart(difference)[exact]
            estimated[exact] = stats_power.paired_power(n, discordance, difference, tail=tail)
        for pair in simulated.tolist():
            estimated[pair] = self._simulated(pair, float(n_items[pair]), difference, tail)
        return estimated

    def epochs(self, n_items: FloatArray, difference: float) -> FloatArray:
        """Return the epochs that so many items need; inf where none suffice, NaN if unknown."""
        epochs = stats_power.epochs_needed(
            difference,
            n_items,
            between=self.spread.between,
            within=np.where(np.isnan(self.spread.within), np.nan, self._within()),
            tail=self.tail(self.n_models),
            power=self.aim.power,
        )
        epochs = np.maximum(np.ceil(epochs), 1.0)
        for pair in self._simulated_at(n_items).tolist():
            if np.isfinite(epochs[pair]):
                start = float(epochs[pair])
                epochs[pair] = self._epochs(pair, float(n_items[pair]), difference, start)
        return epochs

    def _epochs(self, pair: int, n: float, difference: float, start: float) -> float:
        """Find the least number of epochs of a pilot, from a guess."""
        pilots, tail = self.spread.pilots, self.tail(self.n_models)
        assert pilots is not None  # noqa: S101 - only such pairs are simulated

        def enough(n_epochs: float) -> bool:
            planned = self._plan(pilots[pair], int(n_epochs))
            return self._simulated(pair, n, difference, tail, planned) >= self.aim.power

        at, most = start, 2 * max(start, 8.0)
        while not enough(at):
            if at >= most:
                return np.inf
            at = min(at + max(1.0, at // 8), most)
        while at > 1 and enough(at - 1):
            at -= 1
        return at

    def models(self, n_items: FloatArray, difference: float) -> FloatArray:
        """Return how many models can be compared, every two of them; 1 where not even two can."""
        most, too_many = np.ones(len(n_items)), np.full(len(n_items), MOST_MODELS + 1.0)
        at = most + 1
        while (unsettled := too_many - most > 1).any():
            for n_models in np.unique(at[unsettled]).tolist():
                power = self.power(n_items, difference, int(n_models))
                own, enough = unsettled & (at == n_models), power >= self.aim.power
                most[own & enough] = too_many[own & ~enough] = n_models
            # Often few: twice as many at first, then between what is enough and what is not.
            at = np.minimum(2 * most, (most + too_many) // 2)
        return np.where(np.isnan(self.power(n_items, difference)), np.nan, most)

    def _apart(self, difference: float) -> FloatArray:
        """Discordance, which cannot be less than the difference."""
        return np.maximum(self.spread.discordance, abs(difference))

    def _effective(self, n_items: FloatArray) -> FloatArray:
        """Number of independent items that tell as much as so many in clusters."""
        return np.maximum(np.floor(n_items / self.spread.design_effect + 1e-9), 1.0)

    def _exact_at(self, n_items: FloatArray) -> BoolArray:
        return self.exact & ((n_items <= EXACT_UP_TO) | (self.method == EXACT))

    def _small(self, n_items: FloatArray) -> BoolArray:
        """Whether Student's t is used, if outcomes are not summed."""
        n = n_items * self.spread.n_tasks
        return (n < NORMAL_FROM) & (self.method != "miller") | (self.method == "t")


_Source = tuple[float | None, float, Planned | None]
"""What a sequential test of a pair is simulated from: a discordance or a variance, and a pilot."""


class SequentialPower(PowerSolver):
    """The same for a sequential comparison that is looked at every so many items."""

    def __init__(self, spread: Spread, aim: Aim, design: PowerDesign) -> None:
        super().__init__(spread, aim, design)
        self.look_every = design.look_every or 1
        if not np.isfinite(spread.bounded):
            raise DesignError(
                f"{spread.task} {spread.metric}: a sequential comparison needs the scores' bounds, "
                "and they have none"
            )
        self.exact = self.exact & (self.spread.design_effect == 1)

    def names(self, n_items: FloatArray, *, epochs: bool = False) -> list[str]:
        """Return the method that is used for each pair."""
        return ["miller" if epochs else SEQUENTIAL] * len(n_items)

    def items(self, difference: float) -> FloatArray:
        """Return the numbers of items by which a difference is found."""
        goal = {"tail": self.tail(self.n_models), "power": self.aim.power}

        def solve(of: _Source, _: float) -> float:
            given = self._given(of, difference)
            return stats_power.mixture_items_needed(
                difference, **given, look_every=self.look_every, **goal
            )

        return self._of_pairs(solve, np.ones(len(self.variance)))

    def difference(self, n_items: FloatArray) -> FloatArray:
        """Return the smallest differences that so many items find; NaN where none is possible."""
        top = np.full(1, self.spread.bounded)

        def solve(of: _Source, n: float) -> float:
            smallest = stats_power.least_difference(
                lambda size: np.full(1, self._power(of, n, float(size[0]), self.n_models)),
                top, power=self.aim.power, tolerance=1e-4 * top[0],
            )  # fmt: skip
            return float(smallest[0])

        return self._of_pairs(solve, n_items)

    def power(
        self, n_items: FloatArray, difference: float, n_models: int | None = None
    ) -> FloatArray:
        """Return how often a difference is found by so many items."""

        def solve(of: _Source, n: float) -> float:
            return self._power(of, n, difference, n_models or self.n_models)

        return self._of_pairs(solve, n_items)

    def _power(self, of: _Source, n: float, difference: float, n_models: int) -> float:
        looks = stats_power.looks_up_to(n, self.look_every)
        # The last look is at the end, after however many items.
        looks, given = np.append(looks[looks < n], n), self._given(of, difference)
        reached = stats_power.mixture_power(looks, difference, **given, tail=self.tail(n_models))
        return float(reached[-1])

    def _given(self, of: _Source, difference: float) -> dict[str, Any]:
        """Return what the simulation draws from, for a true difference."""
        discordance, variance, planned = of
        given: dict[str, Any] = {"variance": variance, "span": self.spread.bounded}
        if discordance is not None:
            given["discordance"] = max(discordance, abs(difference))
        if planned is not None:
            given["units"] = planned.differences(math.copysign(difference, planned.mean))
        return given

    def _of_pairs(
        self, solve: Callable[[_Source, float], float], n_items: FloatArray
    ) -> FloatArray:
        """Solve for each pilot, discordance or variance; of many of these interpolate."""
        varies = np.where(self.exact, np.nan_to_num(self.spread.discordance), self.variance)
        solved = np.full(len(varies), np.nan)
        pilots = self._planned or []
        drawn = self._simulated_at(n_items).tolist()
        for pair in drawn if len(drawn) <= NODES else ():
            source = None, float(varies[pair]), pilots[pair]
            solved[pair] = solve(source, float(n_items[pair]))
            varies[pair] = 0.0
        for exact, n in {*zip(self.exact.tolist(), n_items.tolist(), strict=True)}:
            here = (self.exact == exact) & (n_items == n) & (varies > 0)
            at: FloatArray = np.unique(varies[here])
            if len(at) > NODES:
                at = np.asarray(np.geomspace(at[0], at[-1], NODES), dtype=np.float64)
            nodes: list[float] = at.tolist()
            values = [solve((v if exact else None, v, None), n) for v in nodes]
            if values:
                solved[here] = np.interp(varies[here], at, values)
        return solved


def solver_of(spread: Spread, aim: Aim, design: PowerDesign) -> PowerSolver:
    """Return what solves for a design: with many looks, or one."""
    return (PowerSolver if design.look_every is None else SequentialPower)(spread, aim, design)
