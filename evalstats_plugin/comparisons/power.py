"""Power analysis: numbers of items, epochs or models for a difference, and the reverse.

`power` and `power_curve` get the variances of differences from the logs of a pilot (`spreads`) or
from `PowerAssumptions`. `PowerSolver` answers for all pairs of models of a task: by sums over
outcomes for 0/1 scores, by Student's t for few items, else by the normal approximation [Mil24]_.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.methods import ENGINE
from evalstats_plugin.comparisons.pilots import (
    SIMULATED_UP_TO,
    Pilot,
    Planned,
    TaskScores,
    search,
)
from evalstats_plugin.comparisons.rows import SEQUENTIAL, PowerRow, PowerRows
from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite_values, grouped, records
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, SelectionError, check_known, counted, few
from evalstats_plugin.scores.cells import (
    Cell,
    by_task,
    check_confidence_level,
    cluster_names,
    epochs_are_binary,
    make_cell,
)
from evalstats_plugin.scores.epochs import variance_parts
from evalstats_plugin.scores.rows import VariancePart
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

EXACT = ENGINE
"""The test of `compare` itself: summed over all outcomes of 0/1 scores in one epoch, else simulated
from a pilot's own scores."""

METHODS = ("auto", "miller", "t", EXACT)
"""How power is computed. ``"auto"``: that of the test which `compare` uses, for 0/1 scores in one
epoch and for pilots; of assumed variances, and for very many items, by Student's t below 100 items,
and by Miller's normal approximation."""

MOST_SIMULATED = 45
"""Pairs of a task up to which power is simulated; more are planned by Student's t."""

NORMAL_FROM = 100
"""Fewest items for the normal approximation, which is then good to one item in 50."""

EXACT_UP_TO = 10_000
"""Most items for sums over outcomes; beyond, the normal approximation is as good."""

LIMITS = (0.05, 0.95)
"""Quantiles of what the pilot's error makes of an answer."""

NODES = 12
"""Pairs with a variance of their own for which a sequential test is simulated; others between."""

MOST_EPOCHS = 64
"""Largest number of epochs looked at for the cheapest design."""

MOST_MODELS = 100
"""Largest number of models searched for."""

POINTS = 24
"""Numbers of items that a curve has by default."""

Quantity = Literal["n_items", "n_epochs", "n_models", "n_tasks", "difference", "power"]

Tasks = Literal["each", "fixed", "random"]

_CONSTANT = "the differences do not vary: nothing to plan with"
_NOTHING: dict[Quantity, str] = {
    "n_items": "the difference is too small: it would need more than 10¹² items",
    "n_epochs": "no number of epochs is enough: more items are needed",
    "n_tasks": "the difference is too small: it would need more than 10¹² tasks",
    "n_models": "not even two models can be compared with that power",
    "difference": "no difference is large enough for so few items",
    "power": _CONSTANT,
}

BLOCK_SIZE = 2**22
"""Differences held at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAssumptions:
    """Assumptions on the differences between two models, in place of a pilot.

    Either ``discordance``, the share of items that only one of the two gets right, for 0/1 scores
    in one epoch; or the variances of [Mil24]_.
    """

    discordance: float | None = None
    between: float | None = None
    """ω²: variance of the true differences, between items."""
    within: float | tuple[float, float] = 0.0
    """σ²: variance of one epoch around its item's true mean, one for each model or for both."""


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


def power(
    pilot: ResponsesLike | PowerAssumptions,
    *,
    difference: float | None = None,
    n_items: int | None = None,
    n_epochs: int | None = None,
    power: float = 0.8,
    confidence_level: float = 0.95,
    design: PowerDesign | None = None,
) -> PowerRows:
    """Plan a comparison: the items for a difference, or the difference for so many items.

    With a difference, gives the number of items that find it. With a number of items, or a pilot
    alone, the least difference that is found. With both, the power there is, the epochs that
    would reach the one asked for, and how many models could be compared with it.

    Parameters
    ----------
    pilot
        What `evalstats_plugin.read` gave, a matrix or any `Responses`, for every pair of models on
        each task; or `PowerAssumptions`.
    difference
        True difference of the scores, in their own units.
    n_items
        That each model answers.
    n_epochs
        Epochs of each item: by default those of the pilot, or one.
    power
        Probability to find the difference.
    confidence_level
        Of the comparison: a difference is found when p ≤ 1 - level, allowing for all pairs.
    design
        Whether the items are the same, how many models there are, what clusters do.

    Notes
    -----
    The test is that of `compare`. For 0/1 scores in one epoch its power is summed over all
    outcomes; from a pilot it is simulated, of items, clusters or tasks like the pilot's; a
    sequential comparison is simulated, too. Assumed variances are planned for by Miller's normal
    approximation [Mil24]_, and by Student's t below 100 items.

    The variance that a pilot gives has an error, by how much squared differences (of clusters:
    squared sums) vary; ``low`` and ``high`` say what it makes of the answer.

    Raises
    ------
    DesignError
        For numbers that make no sense, or a pilot that holds nothing to plan with.
    SelectionError
        For a method that does not exist, or too little to go by.
    """
    design = design or PowerDesign()
    if design.margin is not None and difference is None:
        difference = 0.0
    aim = Aim(difference, n_items, n_epochs, power, confidence_level)
    pilot_spreads = spreads_of(pilot, aim, design)
    rows = [row for spread in pilot_spreads.spreads for row in _answered(spread, aim, design)]
    return PowerRows(tuple(rows), pilot_spreads.notes, parts=pilot_spreads.parts)


@dataclass(frozen=True)
class PowerCurve(PowerRows):
    """Answers for several numbers of items, and the target power."""

    drawn_as: ClassVar[tuple[str, ...]] = ("power", "variance parts")

    power: float = 0.8


def power_curve(
    pilot: ResponsesLike | PowerAssumptions,
    *,
    difference: float | None = None,
    at: Sequence[int] | None = None,
    n_epochs: int | None = None,
    power: float = 0.8,
    confidence_level: float = 0.95,
    design: PowerDesign | None = None,
) -> PowerCurve:
    """Power for a difference, or without one the smallest difference found, by number of items.

    Parameters
    ----------
    pilot, difference, n_epochs, power, confidence_level, design
        As of `evalstats_plugin.power`.
    at
        Numbers of items, each 2 or more; by default from very few to more than are needed.

    Raises
    ------
    DesignError, SelectionError
        As of `evalstats_plugin.power`; or a number of items is below 2.
    """
    design = design or PowerDesign()
    if at is not None and (not len(at) or min(at) < 2):
        msg = f"every number of items must be 2 or more, and there must be one; they are {list(at)}"
        raise DesignError(msg)
    if at is None and difference is None and isinstance(pilot, PowerAssumptions):
        at = _around(200)
    aim = Aim(difference, None if difference is not None else (at or [2])[0], n_epochs, power,
              confidence_level)  # fmt: skip
    pilot_spreads = spreads_of(pilot, aim, design)
    if design.tasks == "random" or design.costs:
        msg = "a curve is over items: leave out costs and random tasks, or ask for no curve"
        raise DesignError(msg)
    share = 0.5 if design.assurance is None else design.assurance
    solvers = [
        solver_of(spread if share == 0.5 else at_quantile(spread, share), aim, design)
        for spread in pilot_spreads.spreads
    ]
    rows = [
        row for solver in solvers for n in (at or _numbers(solver)) for row in _at(solver, float(n))
    ]
    return PowerCurve(tuple(rows), pilot_spreads.notes, parts=pilot_spreads.parts, power=power)


def _at(solver: PowerSolver, n: float) -> list[PowerRow]:
    """Answer for every pair of one task, with n items each."""
    items, difference = np.full(len(solver.spread.a), n), solver.aim.difference
    if difference is None:
        return _column(solver, "difference", items, solver.difference(items))
    return _column(solver, "power", items, solver.power(items, difference))


def _numbers(solver: PowerSolver) -> list[int]:
    """Numbers of items of interest: around those needed, or those of the pilot."""
    if solver.aim.difference is None:
        return _around(float(np.median(solver.spread.n_items)))
    needed = solver.items(solver.aim.difference)
    finite_needed = needed[np.isfinite(needed)]
    return _around(float(np.median(finite_needed)) if len(finite_needed) else 200.0)


def _around(middle: float) -> list[int]:
    numbers = np.geomspace(max(middle / 12, 4), max(middle * 3, 40), POINTS)
    return np.unique(numbers.round().astype(int)).tolist()


@dataclass(frozen=True, slots=True)
class Aim:
    """What is known and what is asked for: the checked arguments of `power`."""

    difference: float | None
    n_items: int | None
    n_epochs: int | None
    power: float
    confidence_level: float


def _check(aim: Aim, design: PowerDesign) -> None:
    check_confidence_level(aim.confidence_level)
    chance, costs = 1 - aim.confidence_level, design.costs
    size, n, epochs = aim.difference, aim.n_items, aim.n_epochs
    models, effect, every, sure = (
        design.n_models, design.design_effect, design.look_every, design.assurance,
    )  # fmt: skip
    wrong = (
        (size is not None and ((size == 0 and design.margin is None) or not np.isfinite(size)),
         f"the difference must be a number other than 0; it is {size}"),
        (design.margin is not None and not 0 < design.margin < np.inf,
         f"the margin must be above 0, in units of the score; it is {design.margin}"),
        (design.margin is not None and (size or 0.0) <= -(design.margin or 0.0),
         f"a true drop of {-(size or 0.0):g} is not within the margin of {design.margin}"),
        (design.margin is not None and design.method not in ("auto", EXACT),
         f"non-inferiority has one test: leave the method at auto, not {design.method}"),
        (design.margin is not None
         and (every is not None or costs is not None or not design.paired
              or design.design_effect is not None),
         "non-inferiority is planned on the same items, for one look, from a pilot's own clusters"),
        (not 0 < aim.power < 1,
         f"the power must lie between 0 and 1, such as 0.8; it is {aim.power:g}"),
        (aim.power <= chance,
         f"the power must exceed the {chance:g} that chance gives; it is {aim.power:g}"),
        (n is not None and n < 2, f"the number of items must be 2 or more; it is {n}"),
        (epochs is not None and epochs < 1,
         f"the number of epochs must be 1 or more; it is {epochs}"),
        (models is not None and models < 2,
         f"the number of models must be 2 or more; it is {models}"),
        (effect is not None and not 0 < effect < np.inf,
         f"the design effect must be positive; it is {effect}"),
        (every is not None and every < 1,
         f"the number of items between two looks must be 1 or more; it is {every}"),
        (every is not None and design.method != "auto",
         "a sequential comparison has one test: leave the method at auto"),
        (every is not None and (design.tasks != "each" or not design.paired),
         "a sequential comparison is one of the same items, on each task alone"),
        (sure is not None and not 0.5 <= sure < 1,
         f"the assurance must be at least 0.5 and below 1, such as 0.9; it is {sure}"),
        (costs is not None and not (costs[0] >= 0 and costs[1] > 0),
         f"costs must be above 0, or 0 for an item; they are {costs}"),
        (costs is not None and (size is None or n is not None or epochs is not None),
         "the cheapest design is found for a difference: leave out items and epochs"),
        (costs is not None and (every is not None or design.tasks == "random"),
         "the cheapest design is found for one look, and not for random tasks"),
    )  # fmt: skip
    for is_wrong, message in wrong:
        if is_wrong:
            raise DesignError(message)
    check_known("method", design.method, METHODS)
    check_known("way to plan for tasks", design.tasks, get_args(Tasks))


class PilotSpreads(NamedTuple):
    """How much differences vary, by a pilot or by assumptions."""

    spreads: list[Spread]
    """One for each task and metric."""
    notes: tuple[str, ...]
    parts: tuple[VariancePart, ...]
    """Of single scores; none for assumptions."""


def spreads_of(
    pilot: ResponsesLike | PowerAssumptions, aim: Aim, design: PowerDesign
) -> PilotSpreads:
    """Get the variances of the differences, from a pilot or from assumptions.

    Raises
    ------
    DesignError, SelectionError
        As of `power`.
    """
    _check(aim, design)
    if isinstance(pilot, PowerAssumptions):
        if design.tasks != "each" or design.assurance is not None or design.margin is not None:
            raise DesignError(
                "a mean over tasks, an assurance and a margin need the logs of a pilot"
            )
        if aim.difference is None and aim.n_items is None:
            raise SelectionError("give a difference, a number of items, or both")
        return PilotSpreads([_assumed(pilot, design, aim.difference, aim.n_epochs or 1)], (), ())
    responses, notes = as_list(pilot)
    task_spreads, left_out = spreads(responses, paired=design.paired)
    if design.tasks != "each":
        task_spreads = over_tasks(task_spreads, design.tasks)
    return PilotSpreads(task_spreads, (*notes, *left_out), variance_parts(responses).rows)


def _assumed(
    given: PowerAssumptions, design: PowerDesign, difference: float | None, n_epochs: int
) -> Spread:
    """Return assumptions as the spread of one pair of models."""
    discordance, between = given.discordance, given.between
    pair = given.within if isinstance(given.within, tuple) else (given.within, given.within)
    if (discordance is None) == (between is None):
        msg = "give either a discordance, for 0/1 scores, or a variance between items (omega2)"
        raise SelectionError(msg)
    if discordance is not None:
        if not 0 <= discordance <= 1 or abs(difference or 0.0) > min(discordance, 1.0):
            raise DesignError(
                f"the discordance must lie between the difference ({difference or 0:g}) and 1, "
                f"because models differ on at least as many items; it is {discordance:g}"
            )
        if n_epochs > 1 or any(pair) or not design.paired:
            raise DesignError(
                "a discordance is for 0/1 scores of the same items in one epoch; else give the "
                "variances (omega2 and within)"
            )
        between = discordance - (difference or 0.0) ** 2
    if between is None or min(between, *pair) < 0 or not np.isfinite([between, *pair]).all():
        msg = f"variances must be 0 or more; they are {between}, {pair[0]} and {pair[1]}"
        raise DesignError(msg)
    ones, none = np.ones(1), np.zeros(1, dtype=np.int64)
    return Spread(
        a=none,
        b=none + 1,
        between=ones * between,
        within=ones * sum(pair),
        discordance=ones * (np.nan if discordance is None else discordance),
        design_effect=ones,
        mean=ones * np.nan,
        freedom=ones * np.inf,
        n_items=none,
        n_epochs=n_epochs,
        bounded=1.0,
    )


class PowerSolver:
    """Answers for the P pairs of one task; every array has shape (P,)."""

    def __init__(self, spread: Spread, aim: Aim, design: PowerDesign) -> None:
        if aim.difference is not None and abs(aim.difference) > spread.bounded:
            raise DesignError(
                f"a difference of {aim.difference:g} exceeds the range of the scores"
                f"{f' of {spread.task}' if spread.task else ''}; it is at most {spread.bounded:g}"
            )
        if design.design_effect is not None:
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
        return np.where(spread.between < 0, spread.n_epochs * spread.between + within, within)

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
        from evalstats_plugin.stats.interval import tail_probability

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
        from evalstats_plugin.stats.pairs import power as stats_power

        goal = {"tail": self.tail(self.n_models), "power": self.aim.power}
        distance = difference + (self.margin or 0.0)
        needed = np.maximum(np.ceil(stats_power.items_needed(distance, self.variance, **goal)), 2.0)
        few = self._small(needed)
        if few.any():
            variance = self.variance[few]

            def power_of(n: FloatArray) -> FloatArray:
                return stats_power.t_power(n, distance, variance, tail=goal["tail"])

            needed[few] = stats_power.least_items(power_of, needed[few], power=self.aim.power)
        needed = np.where(self.variance > 0, needed, np.nan)
        exact = self._exact_at(
            stats_power.items_needed(difference, self._apart(difference), **goal)
        )
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
        from evalstats_plugin.stats.pairs import power as stats_power

        tail, goal, top = self.tail(self.n_models), self.aim.power, self.spread.bounded
        smallest = stats_power.difference_needed(n_items, self.variance, tail=tail, power=goal)
        few = self._small(n_items)
        if few.any():
            n, variance = n_items[few], self.variance[few]

            def of_t(size: FloatArray) -> FloatArray:
                return stats_power.t_power(n, size, variance, tail=tail)

            highest = np.full(len(n), top) if np.isfinite(top) else 1e3 * np.sqrt(variance)
            smallest[few] = stats_power.least_difference(of_t, highest, power=goal)
        smallest = np.where((smallest <= top) & (self.variance > 0), smallest, np.nan)
        exact = self._exact_at(n_items)
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
        from evalstats_plugin.stats.pairs import power as stats_power

        tail = self.tail(n_models or self.n_models)
        distance = difference + (self.margin or 0.0)
        estimated = stats_power.normal_power(n_items, distance, self.variance, tail=tail)
        t = stats_power.t_power(n_items, distance, self.variance, tail=tail)
        estimated = np.where(self._small(n_items), t, estimated)
        estimated = np.where(self.variance > 0, estimated, np.nan)
        exact = self._exact_at(n_items)
        if exact.any():
            n, discordance = self._effective(n_items)[exact], self._apart(difference)[exact]
            estimated[exact] = stats_power.paired_power(n, discordance, difference, tail=tail)
        for pair in self._simulated_at(n_items).tolist():
            estimated[pair] = self._simulated(pair, float(n_items[pair]), difference, tail)
        return estimated

    def epochs(self, n_items: FloatArray, difference: float) -> FloatArray:
        """Return the epochs that so many items need; inf where none suffice, NaN if unknown."""
        from evalstats_plugin.stats.pairs.power import epochs_needed

        epochs = epochs_needed(
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
        n_comparable = np.ones(len(n_items))
        for n_models in range(2, MOST_MODELS + 1):
            enough = self.power(n_items, difference, n_models) >= self.aim.power
            n_comparable[enough] = n_models
            if not enough.any():
                break
        return np.where(np.isnan(self.power(n_items, difference)), np.nan, n_comparable)

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
        from evalstats_plugin.stats.pairs.power import mixture_items_needed

        tail = self.tail(self.n_models)

        def solve(discordance: float | None, variance: float, _: float) -> float:
            return mixture_items_needed(
                difference,
                discordance=None if discordance is None else max(discordance, abs(difference)),
                variance=variance, span=self.spread.bounded, look_every=self.look_every, tail=tail,
                power=self.aim.power,
            )  # fmt: skip

        return self._of_pairs(solve, np.ones(len(self.variance)))

    def difference(self, n_items: FloatArray) -> FloatArray:
        """Return the smallest differences that so many items find; NaN where none is possible."""
        from evalstats_plugin.stats.pairs.power import least_difference

        top = np.full(1, self.spread.bounded)

        def solve(discordance: float | None, variance: float, n: float) -> float:
            def power_of(size: FloatArray) -> FloatArray:
                return np.full(
                    1, self._power(discordance, variance, n, float(size[0]), self.n_models)
                )

            smallest = least_difference(
                power_of, top, power=self.aim.power, tolerance=1e-4 * top[0]
            )
            return float(smallest[0])

        return self._of_pairs(solve, n_items)

    def power(
        self, n_items: FloatArray, difference: float, n_models: int | None = None
    ) -> FloatArray:
        """Return how often a difference is found by so many items."""

        def solve(discordance: float | None, variance: float, n: float) -> float:
            return self._power(discordance, variance, n, difference, n_models or self.n_models)

        return self._of_pairs(solve, n_items)

    def _power(
        self, discordance: float | None, variance: float, n: float, difference: float, n_models: int
    ) -> float:
        from evalstats_plugin.stats.pairs.power import looks_up_to, mixture_power

        reached = mixture_power(
            looks_up_to(n, self.look_every), difference, variance=variance,
            discordance=None if discordance is None else max(discordance, abs(difference)),
            span=self.spread.bounded, tail=self.tail(n_models),
        )  # fmt: skip
        return float(reached[-1])

    def _of_pairs(
        self, solve: Callable[[float | None, float, float], float], n_items: FloatArray
    ) -> FloatArray:
        """Solve for each discordance or variance; of many, for some, and interpolate."""
        varies = np.where(self.exact, np.nan_to_num(self.spread.discordance), self.variance)
        solved = np.full(len(varies), np.nan)
        for exact, n in {*zip(self.exact.tolist(), n_items.tolist(), strict=True)}:
            here = (self.exact == exact) & (n_items == n) & (varies > 0)
            at: FloatArray = np.unique(varies[here])
            if len(at) > NODES:
                at = np.asarray(np.geomspace(at[0], at[-1], NODES), dtype=np.float64)
            nodes: list[float] = at.tolist()
            values = [solve(v if exact else None, v, n) for v in nodes]
            if values:
                solved[here] = np.interp(varies[here], at, values)
        return solved


def solver_of(spread: Spread, aim: Aim, design: PowerDesign) -> PowerSolver:
    """Return what solves for a design: with many looks, or one."""
    return (PowerSolver if design.look_every is None else SequentialPower)(spread, aim, design)


def _answered(spread: Spread, aim: Aim, design: PowerDesign) -> list[PowerRow]:
    """Answer for every pair of one task, with the limits that the pilot's error leaves."""
    answer = _of_random_tasks if design.tasks == "random" else _rows
    if design.costs:
        answer = _cheapest
    if not np.isfinite(spread.freedom).all():
        return answer(spread, aim, design)
    share = design.assurance
    rows = answer(spread if share is None else at_quantile(spread, share), aim, design)
    # Of the pilot's error by its variance alone, in proportion to what is simulated.
    plain = design if design.margin is None else replace(design, margin=None)
    shifted = aim if design.margin is None else _shifted(aim, design.margin)
    smooth = replace(spread, pilots=None)
    low, middle, high = (
        [getattr(row, row.quantity) for row in answer(of_share, shifted, plain)]
        for of_share in (
            at_quantile(smooth, LIMITS[0]),
            smooth if share is None else at_quantile(smooth, share),
            at_quantile(smooth, LIMITS[1]),
        )
    )
    low, high = (
        [_in_proportion(row, *both) for row, *both in zip(rows, end, middle, strict=False)]
        for end in (low, high)
    )
    if share is not None:
        sure = f"with probability {share:g}, the power is reached in spite of the pilot's error"
        rows = [replace(row, notes=(*row.notes, sure)) for row in rows]
    # More variance takes more items, and leaves less power.
    return [
        replace(row, low=ends[0], high=ends[1])
        for row, a, b in zip(rows, low, high, strict=True)
        for ends in [(b, a) if row.quantity in ("power", "n_models") else (a, b)]
    ]


def _shifted(aim: Aim, margin: float) -> Aim:
    """Return what is asked of the distance from the margin."""
    return replace(aim, difference=(aim.difference or 0.0) + margin)


def _in_proportion(row: PowerRow, end: float | None, middle: float | None) -> float | None:
    """Return a limit of a row's answer, from that of one that is not simulated, and that answer."""
    value = getattr(row, row.quantity)
    if value is None or end is None or middle is None or value == middle:
        return end
    if row.quantity == "power":
        from scipy import special

        of_value, of_end, of_middle = (
            float(special.ndtri(min(max(x, 1e-12), 1 - 1e-12))) for x in (value, end, middle)
        )
        return float(special.ndtr(of_value + of_end - of_middle))
    limit = end * value / middle
    return limit if row.quantity == "difference" else int(np.ceil(limit - 1e-9))


def _rows(spread: Spread, aim: Aim, design: PowerDesign) -> list[PowerRow]:
    """Answer for every pair of one task; the answers of a pair together."""
    return _rows_of(solver_of(spread, aim, design))


def _cheapest(spread: Spread, aim: Aim, design: PowerDesign) -> list[PowerRow]:
    """Answer with the numbers of items and epochs of each pair that cost least together."""
    per_item, per_epoch = design.costs or (0.0, 1.0)
    if np.isnan(spread.within).any():
        raise DesignError(
            f"{spread.task} {spread.metric}: the pilot has one epoch, so that nothing is known of "
            "more: run it in two epochs or more"
        )
    by_epochs: list[list[PowerRow]] = []
    for n_epochs in range(1, MOST_EPOCHS + 1):
        own = replace(aim, n_epochs=n_epochs)
        by_epochs.append(_rows(spread, own, design))

    def cost(row: PowerRow) -> float:
        n = np.inf if row.n_items is None else row.n_items
        return n * (per_item + (row.n_epochs or 1) * per_epoch)

    rows = [min(of_pair, key=cost) for of_pair in zip(*by_epochs, strict=True)]
    once = [cost(row) for row in by_epochs[0]]
    return [
        replace(
            row,
            notes=(*row.notes, f"costs {cost(row):,.6g} for each model; one epoch, {alone:,.6g}"),
        )
        for row, alone in zip(rows, once, strict=True)
    ]


def _of_random_tasks(spread: Spread, aim: Aim, design: PowerDesign) -> list[PowerRow]:
    """Answer for tasks that are a sample: they take the place of items, and items of epochs."""
    n_items = aim.n_items or int(np.median(spread.n_epochs))
    tasks = None if aim.difference is not None and aim.n_items is None else spread.n_tasks
    of_tasks = replace(
        spread, n_epochs=n_items, n_tasks=1, n_items=np.full_like(spread.n_items, spread.n_tasks)
    )
    own = replace(aim, n_items=tasks, n_epochs=n_items)
    rows = _rows_of(PowerSolver(of_tasks, own, design))
    if aim.difference is not None and aim.n_items is not None:
        # Also the tasks that would be enough.
        more = _rows_of(PowerSolver(of_tasks, replace(own, n_items=None), design))
        rows = [row for row in rows if row.quantity == "power"]
        rows = [row for two in zip(rows, more, strict=True) for row in two]
    return [
        replace(
            row,
            quantity="n_tasks" if row.quantity == "n_items" else row.quantity,
            n_tasks=row.n_items,
            n_items=n_items,
            n_epochs=None,
            pilot_items=None,
        )
        for row in rows
    ]


def _rows_of(solver: PowerSolver) -> list[PowerRow]:
    """Answer for every pair of one task; the answers of a pair together."""
    columns = [
        _column(solver, quantity, n_items, values) for quantity, n_items, values in _answers(solver)
    ]
    return [row for of_pair in zip(*columns, strict=True) for row in of_pair]


def _answers(solver: PowerSolver) -> list[tuple[Quantity, FloatArray, FloatArray]]:
    """Return the quantities asked for, the items that each pair answers, and the answers."""
    aim = solver.aim
    pilot = solver.spread.n_items.astype(np.float64)
    n = pilot if aim.n_items is None else np.full_like(pilot, float(aim.n_items))
    if aim.difference is None:
        return [("difference", n, solver.difference(n))]
    if aim.n_items is None:
        needed = solver.items(aim.difference)
        return [("n_items", needed, needed)]
    answers: list[tuple[Quantity, FloatArray, FloatArray]] = [
        ("power", n, solver.power(n, aim.difference))
    ]
    if solver.margin is not None:
        return answers
    answers.append(("n_models", n, solver.models(n, aim.difference)))
    if np.any(solver.spread.within > 0):
        answers.insert(1, ("n_epochs", n, solver.epochs(n, aim.difference)))
    return answers


def _column(
    solver: PowerSolver, quantity: Quantity, n_items: FloatArray, values: FloatArray
) -> list[PowerRow]:
    """Rows of one quantity, for every pair of one task with so many items each."""
    spread, aim = solver.spread, solver.aim
    answers = finite_values(values)
    if quantity.startswith("n_"):
        answers = [None if x is None else int(x) for x in answers]
    if quantity == "n_models":
        answers = [None if x == 1 else x for x in answers]
    pairs = list(zip(spread.a.tolist(), spread.b.tolist(), strict=True))
    pilot_items: list[int] = spread.n_items.tolist()
    columns: dict[str, Sequence[Any]] = {
        "model_a": [spread.models[a] for a, _ in pairs],
        "model_b": [spread.models[b] if a != b else "" for a, b in pairs],
        "n_items": [None if x is None else int(x) for x in finite_values(n_items)],
        "method": solver.names(n_items, epochs=quantity == "n_epochs"),
        "discordance": finite_values(spread.discordance),
        "between": finite_values(spread.between),
        "within": finite_values(spread.within),
        "design_effect": finite_values(spread.design_effect),
        "pilot_items": [n or None for n in pilot_items],
        "notes": _notes(solver, quantity, values),
        quantity: answers,
    }
    same = {
        "quantity": quantity,
        "task": spread.task,
        "metric": spread.metric,
        "design": solver.design,
        "n_epochs": solver.n_epochs,
        "n_models": solver.n_models,
        "difference": aim.difference,
        "power": aim.power,
        "confidence_level": aim.confidence_level,
        "margin": solver.margin,
    }
    return records(PowerRow, columns, {k: v for k, v in same.items() if k not in columns})


def _notes(solver: PowerSolver, quantity: Quantity, values: FloatArray) -> list[tuple[str, ...]]:
    spread, aim = solver.spread, solver.aim
    small = solver.exact & (abs(aim.difference or 0.0) > spread.discordance)
    on_all = {
        "the estimated variance between items is below 0; 0 is used": spread.between < 0,
        "the pilot's discordance is smaller than the difference, which is impossible: the "
        "difference is used as the discordance": small,
        "items come in clusters, which is allowed for": (
            (spread.design_effect > 1) & bool(spread.task)
        ),
        "a sequential comparison does not know of clusters: it would stop too soon too often": (
            (spread.design_effect > 1) & isinstance(solver, SequentialPower)
        ),
    }
    varies = (solver.variance > 0) | solver.exact
    doubts = _doubts(solver)
    notes: list[tuple[str, ...]] = []
    for pair, value in enumerate(values.tolist()):
        own_notes: list[str] = []
        if quantity == "n_epochs" and np.isnan(value):
            own_notes.append("no item has two epochs: the effect of more epochs is unknown")
        elif not np.isfinite(value) or (quantity == "n_models" and value == 1):
            own_notes.append(_NOTHING[quantity] if varies[pair] else _CONSTANT)
        elif quantity == "n_models" and value == MOST_MODELS:
            own_notes.append(f"{MOST_MODELS} models or more")
        own_notes += [note for note, where in on_all.items() if where[pair]]
        notes.append((*own_notes, *doubts))
    return notes


def _doubts(solver: PowerSolver) -> list[str]:
    """Return a note on how well a pilot estimates a variance: two relative standard errors."""
    n = solver.spread.n_items
    if not n.all():
        return []
    discordance = solver.spread.discordance
    with np.errstate(divide="ignore"):
        of_counts = np.sqrt((1 - discordance) / (n * discordance))
    errors = np.where(solver.exact, of_counts, np.sqrt(2 / solver.spread.freedom))
    error = 2 * float(np.median(errors))
    if error < 0.25:
        return []
    if error >= 0.95:
        return ["the pilot has too few items to estimate how much differences vary"]
    return [f"the pilot estimates the variance to about ±{10 * round(10 * error)} % only"]


def at_quantile(spread: Spread, share: float) -> Spread:
    """Return the spread at a quantile of what the truth may be, given the error of the pilot.

    Of a discordance by its exact limits (Clopper and Pearson's); of a variance by χ², with the
    freedom that the differences show.
    """
    from scipy import special

    factor = spread.freedom / (2 * special.gammaincinv(spread.freedom / 2, 1 - share))
    plain = spread.design_effect == 1
    n, discordance = spread.n_items, spread.discordance
    discordance = np.nan_to_num(discordance)
    limit = special.betaincinv(
        np.maximum(n * discordance + (share > 0.5), 1e-9),
        np.maximum(n * (1 - discordance) + (share <= 0.5), 1e-9),
        share,
    )
    noise = np.nan_to_num(spread.within) / spread.n_epochs
    total = np.maximum(spread.between, 0.0) + noise
    return replace(
        spread,
        between=np.maximum(factor * total - noise, 0.0),
        pilots=spread.pilots
        and [
            pilot.scaled(scale)
            for pilot, scale in zip(spread.pilots, np.sqrt(factor).tolist(), strict=True)
        ],
        discordance=np.where(plain & ~np.isnan(spread.discordance), limit, spread.discordance),
        design_effect=np.where(plain, 1.0, factor * spread.design_effect),
    )


def over_tasks(spreads: Sequence[Spread], tasks: Tasks) -> list[Spread]:
    """Join the spreads of tasks under one metric into that of the mean over the tasks.

    Fixed tasks: as many items of each. Random ones: `Spread.between` is the variance of true
    differences between tasks, `Spread.within` that of one item within its task.

    Raises
    ------
    DesignError
        No two models share two tasks or more.
    """
    by_metric = grouped(spreads, lambda spread: spread.metric.removesuffix(",none"))
    joined = [
        joint
        for some in by_metric.values()
        if len(some) > 1 and (joint := _joint(some, random=tasks == "random")) is not None
    ]
    if not joined:
        msg = "a mean over tasks needs two tasks or more that two models share; compare each task"
        raise DesignError(msg)
    return joined


def _joint(some: Sequence[Spread], *, random: bool) -> Spread | None:
    names = [spread.pairs for spread in some]
    pairs = [pair for pair in names[0] if all(pair in own for own in names)]
    if not pairs:
        return None
    models = tuple(dict.fromkeys(model for pair in pairs for model in pair))
    places = [[own[pair] for pair in pairs] for own in names]
    columns = [
        np.stack([getattr(s, name)[k] for s, k in zip(some, places, strict=True)])
        for name in ("between", "within", "mean", "freedom", "n_items")
    ]
    between, within, mean, freedom, n_items = columns
    n_tasks, n_epochs = len(some), max(s.n_epochs for s in some)
    item = np.maximum(between, 0.0) + np.nan_to_num(within) / n_epochs
    same = Spread(
        task=f"tasks like these {n_tasks}" if random else f"these {n_tasks} tasks",
        metric=some[0].metric,
        models=models,
        a=np.array([models.index(a) for a, _ in pairs], dtype=np.int64),
        b=np.array([models.index(b) for _, b in pairs], dtype=np.int64),
        between=np.maximum(between, 0.0).mean(axis=0) / n_tasks,
        within=within.mean(axis=0) / n_tasks,
        discordance=np.full(len(pairs), np.nan),
        design_effect=np.ones(len(pairs)),
        mean=mean.mean(axis=0),
        # Satterthwaite's, of a sum of variances.
        freedom=item.sum(axis=0) ** 2 / np.maximum((item**2 / freedom).sum(axis=0), 1e-300),
        n_items=n_items.min(axis=0),
        n_epochs=n_epochs,
        n_tasks=n_tasks,
        bounded=max(s.bounded for s in some),
        pilots=_joint_pilots(some, places, random=random),
    )
    if not random:
        return same
    noise = (item / n_items).mean(axis=0)
    return replace(
        same,
        between=np.maximum(mean.var(axis=0, ddof=1) - noise, 0.0),
        within=item.mean(axis=0),
        freedom=np.full(len(pairs), n_tasks - 1.0),
        n_epochs=int(np.median(n_items)),
    )


def _joint_pilots(
    some: Sequence[Spread], places: Sequence[Sequence[int]], *, random: bool
) -> list[Pilot] | None:
    """Join the pilots of each pair over the tasks; None where a task has none."""
    if len(places[0]) > MOST_SIMULATED:
        return None
    each = [
        [spread.pilots[k] for k in own]
        for spread, own in zip(some, places, strict=True)
        if spread.pilots is not None
    ]
    if len(each) < len(some):
        return None
    return [
        Pilot(
            tuple(task for pilot in of_pair for task in pilot.tasks),
            random_tasks=random,
            span=of_pair[0].span,
        )
        for of_pair in zip(*each, strict=True)
    ]


@dataclass(frozen=True, eq=False, kw_only=True)
class Spread:
    """How much the differences of P pairs of models vary, on one task under one metric.

    Arrays have shape (P,). Variances are those of one item's difference.
    """

    task: str = ""
    metric: str = ""
    models: tuple[str, ...] = ("", "")
    a: IntArray
    b: IntArray
    """The models of each pair, by their place in `models`."""
    between: FloatArray
    """Between items, inflated by clusters; the whole variance where `within` is 0."""
    within: FloatArray
    """Within items, of one epoch of both models together; NaN where no item has two epochs."""
    discordance: FloatArray
    """Probability that only one model is right, in one epoch of each; NaN without 0/1 scores."""
    design_effect: FloatArray
    mean: FloatArray
    """Mean difference of the pilot; NaN for assumptions and for different items."""
    freedom: FloatArray
    """Degrees of freedom of the variance: 2 over its squared relative error; inf if assumed."""
    n_items: IntArray
    """Items of the pilot; 0 where all comes from assumptions."""
    n_epochs: int = 1
    n_tasks: int = 1
    """Tasks over which the mean is taken, with as many items each."""
    bounded: float = np.inf
    """The greatest possible difference."""
    pilots: Sequence[Pilot] | None = None
    """Scores of each pair, on the same items; None of many pairs, and without a pilot."""

    @property
    def pairs(self) -> dict[tuple[str, str], int]:
        """Place of each pair, by the names of its models."""
        first: list[int] = self.a.tolist()
        second: list[int] = self.b.tolist()
        both = zip(first, second, strict=True)
        return {(self.models[a], self.models[b]): place for place, (a, b) in enumerate(both)}


def spreads(responses: Sequence[Responses], *, paired: bool) -> tuple[list[Spread], list[str]]:
    """Estimate how differences vary on each task; return also notes on what was left out.

    Paired, two models answer the same items; unpaired, as many different ones each, and the only
    model of a task is compared with another of the same variance.

    Raises
    ------
    DesignError
        Where no task has what is needed for an estimate.
    """
    groups = by_task(one_of_each(responses))
    task_spreads: list[Spread] = []
    left_out: list[str] = []
    for (task, metric), group in groups.items():
        cells = [make_cell(r) for r in group if len(r.item_ids)]
        cells = [c for c in cells if c.kind not in (None, "ratio") and c.n > 1]
        spread = _spread(cells, paired=paired) if len(cells) >= 1 + paired else None
        if spread is not None and len(spread.a):
            task_spreads.append(spread)
        else:
            left_out.append(f"{task} {metric}")
    wanted = "two models that share two items or more" if paired else "a mean of two item scores"
    if not task_spreads:
        models = dict.fromkeys(r.model for r in responses)
        msg = (
            f"a pilot needs {wanted} on some task, and the logs have "
            f"{counted(len(models), 'model')} ({few(list(models)) or 'none'}) without that"
        )
        hint = "; to plan for different items, choose the unpaired design" if paired else ""
        raise DesignError(msg + hint)
    notes = [f"nothing to plan with, not {wanted}: {few(left_out)}"] if left_out else []
    return task_spreads, notes


def with_design_effect(spread: Spread, design_effect: float) -> Spread:
    """Return the spread with another design effect."""
    noise = np.nan_to_num(spread.within) / spread.n_epochs
    plain = (spread.between + noise) / spread.design_effect
    return replace(
        spread,
        between=design_effect * plain - noise,
        pilots=None,
        design_effect=np.full_like(spread.between, design_effect),
    )


def _spread(cells: Sequence[Cell], *, paired: bool) -> Spread:
    """Estimate the variances of every pair of models on one task."""
    from evalstats_plugin.stats.clustered import epoch_noise
    from evalstats_plugin.stats.means import moments

    matrix = ResponseMatrix.join([c.responses for c in cells])
    variance, noise = epoch_noise(matrix.scores)
    # An item with one epoch gets the variance of the average item.
    variance = np.where(np.isnan(variance), moments(variance).mean[:, None], variance)
    clusters = None if matrix.clusters is None else cluster_names(matrix.clusters)
    scores = _Scores(moments(matrix.scores).mean, variance, noise, clusters)
    n_models = len(matrix.models)
    # A single model is paired with itself: another with the same variance is assumed.
    a, b = np.triu_indices(n_models, 1) if n_models > 1 else (np.zeros(1, int), np.zeros(1, int))
    step = max(BLOCK_SIZE // max(len(matrix.item_ids), 1), 1)
    solve = _paired if paired else _unpaired
    blocks = [
        solve(scores, a[start : start + step], b[start : start + step])
        for start in range(0, len(a), step)
    ]
    n, between, within, discordance, effect, mean, freedom = np.concatenate(blocks, axis=1)
    keep = n > 1
    binary = paired and all(epochs_are_binary(c.responses) for c in cells)
    bounds = {c.bounds for c in cells}
    span = bounds.pop() if len(bounds) == 1 else None
    largest = np.inf if span is None else span[1] - span[0]
    pilots = None
    if paired and keep.sum() <= MOST_SIMULATED:
        higher = -1.0 if cells[0].responses.higher_is_better is False else 1.0
        pilots = _pilots(higher * matrix.scores, clusters, a[keep], b[keep], largest)
    return Spread(
        task=cells[0].responses.task,
        metric=cells[0].responses.metric,
        models=matrix.models,
        a=a[keep].astype(np.int64),
        b=b[keep].astype(np.int64),
        between=between[keep],
        within=within[keep],
        discordance=np.where(binary, discordance, np.nan)[keep],
        design_effect=effect[keep],
        mean=mean[keep],
        freedom=freedom[keep],
        n_items=n[keep].astype(np.int64),
        n_epochs=int(matrix.scores.shape[2]),
        bounded=largest,
        pilots=pilots,
    )


def _pilots(
    scores: FloatArray, clusters: NDArray[Any] | None, a: IntArray, b: IntArray, span: float
) -> list[Pilot]:
    """Scores of each pair; higher ones are better."""
    numbers = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
    return [
        Pilot((TaskScores(scores[first], scores[second], numbers),), span=span)
        for first, second in zip(a.tolist(), b.tolist(), strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Scores:
    """N models on M items; arrays of shape (N, M)."""

    means: FloatArray
    """Over the epochs."""
    variance: FloatArray
    """Of one epoch."""
    noise: FloatArray
    """Variance of the mean over the epochs."""
    clusters: NDArray[Any] | None
    """Shape (M,): names of clusters; None for independent items."""


def _paired(scores: _Scores, a: IntArray, b: IntArray) -> FloatArray:
    """Items, variances between and within, discordance, design effect, mean, freedom: (7, P)."""
    from evalstats_plugin.stats.means import moments

    mean_a, mean_b = scores.means[a], scores.means[b]
    n, mean, total, effect, freedom = _inflated(mean_b - mean_a, scores.clusters)
    here = ~np.isnan(mean_a) & ~np.isnan(mean_b)
    noise, within = (
        moments(np.where(here, x[a] + x[b], np.nan)).mean for x in (scores.noise, scores.variance)
    )
    discordance = moments(mean_a + mean_b - 2 * mean_a * mean_b).mean
    between = effect * total - np.nan_to_num(noise)
    return np.stack([n, between, within, discordance, effect, mean, freedom])


def _unpaired(scores: _Scores, a: IntArray, b: IntArray) -> FloatArray:
    """The same for two models that answer different items; NaN for discordance."""
    from evalstats_plugin.stats.means import moments

    n, mean, total, effect, freedom = _inflated(scores.means, scores.clusters)
    noise, within = (moments(x).mean for x in (scores.noise, scores.variance))
    between = effect * total - np.nan_to_num(noise)
    plain = total[a] + total[b]
    inflated = (effect * total)[a] + (effect * total)[b]
    together = np.where(plain > 0, inflated / np.where(plain > 0, plain, 1.0), 1.0)
    fewer = np.minimum(n[a], n[b])
    # Satterthwaite's, of a sum of two variances.
    errors = (effect * total) ** 2 / freedom
    freed = inflated**2 / np.where(plain > 0, errors[a] + errors[b], 1.0)
    columns = [
        *(fewer, between[a] + between[b], within[a] + within[b], np.nan * fewer, together),
        *(mean[b] - mean[a], np.where(plain > 0, freed, fewer)),
    ]
    return np.stack(columns)


def _inflated(values: FloatArray, clusters: NDArray[Any] | None) -> tuple[FloatArray, ...]:
    """Count, mean and variance of values (..., M), design effect of their clusters, and freedom.

    The design effect is at least 1: estimates below come from few clusters by chance. The freedom
    is 2 over the squared relative error of the variance, which follows from the kurtosis of the
    units: items, or sums of clusters. It is at most that of normal ones, as few hide their tails.
    """
    from evalstats_plugin.stats import clustered as stats_clustered
    from evalstats_plugin.stats.means import moments

    n, mean, std = moments(values)
    present = ~np.isnan(values)
    units = np.where(present, values - mean[..., None], 0.0)
    effect, n_units = np.ones_like(n), n
    if clusters is not None:
        totals = stats_clustered.by_cluster(np.where(present, values, 0.0), clusters)
        sizes = stats_clustered.by_cluster(present * 1.0, clusters)
        plain = std / np.sqrt(np.maximum(n, 1.0))
        error = stats_clustered.cluster_moments(totals, sizes).cr1
        effect = np.fmax(stats_clustered.design_effect(error, plain), 1.0)
        units = stats_clustered.by_cluster(units, clusters)
        n_units = (sizes > 0).sum(axis=-1) * 1.0
    square = (units**2).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        kurtosis = n_units * (units**4).sum(axis=-1) / square**2
        freedom = 2 * (n_units - 1) / (kurtosis - 1)
    freedom = np.fmax(np.fmin(freedom, n_units - 1), 1.0)
    return n, mean, std**2, effect, freedom
