"""Power analysis: numbers of items, epochs or models for a difference, and the reverse.

`power` and `power_curve` get the variances of differences from the logs of a pilot (`spreads`) or
from `PowerAssumptions`. `PowerSolver` answers for all pairs of models of a task: by sums over
outcomes for 0/1 scores, by Student's t for few items, else by the normal approximation [Mil24]_.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.rows import PowerRow, PowerRows
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite_values, records
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.scores.cells import (
    Cell,
    InMemory,
    by_task,
    check_confidence_level,
    cluster_names,
    epochs_are_binary,
    make_cell,
    responses_and_notes,
)
from evalstats_plugin.scores.epochs import variance_parts
from evalstats_plugin.scores.rows import VariancePart
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

EXACT = "mcnemar-mid-p"
"""The test of 0/1 scores in one epoch, whose power is summed over all outcomes."""

METHODS = ("auto", "miller", "t", EXACT)
"""Tests that find a difference. ``"auto"``: McNemar's mid-p test for 0/1 scores in one epoch, else
Miller's normal approximation, and Student's t test below 100 items."""

NORMAL_FROM = 100
"""Fewest items for the normal approximation, which is then good to one item in 50."""

EXACT_UP_TO = 10_000
"""Most items for sums over outcomes; beyond, the normal approximation is as good."""

MOST_MODELS = 100
"""Largest number of models searched for."""

POINTS = 24
"""Numbers of items that a curve has by default."""

Quantity = Literal["n_items", "n_epochs", "n_models", "difference", "power"]

_CONSTANT = "the differences do not vary: nothing to plan with"
_NOTHING: dict[Quantity, str] = {
    "n_items": "the difference is too small: it would need more than 10¹² items",
    "n_epochs": "no number of epochs is enough: more items are needed",
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


def power(
    pilot: InMemory | PowerAssumptions,
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
    For 0/1 scores in one epoch, exact: the power of the test is summed over all outcomes. Otherwise
    Miller's normal approximation [Mil24]_, and Student's t below 100 items.

    Raises
    ------
    DesignError
        For numbers that make no sense, or a pilot that holds nothing to plan with.
    SelectionError
        For a method that does not exist, or too little to go by.
    """
    design = design or PowerDesign()
    aim = Aim(difference, n_items, n_epochs, power, confidence_level)
    found = spreads_of(pilot, aim, design)
    rows = [row for spread in found.spreads for row in _rows(PowerSolver(spread, aim, design))]
    return PowerRows(tuple(rows), found.notes, parts=found.parts)


@dataclass(frozen=True)
class PowerCurve(PowerRows):
    """Answers for several numbers of items, and the target power."""

    drawn_as: ClassVar[tuple[str, ...]] = ("power", "variance parts")

    power: float = 0.8


def power_curve(
    pilot: InMemory | PowerAssumptions,
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
    found = spreads_of(pilot, aim, design)
    solvers = [PowerSolver(spread, aim, design) for spread in found.spreads]
    rows = [
        row for solver in solvers for n in (at or _numbers(solver)) for row in _at(solver, float(n))
    ]
    return PowerCurve(tuple(rows), found.notes, parts=found.parts, power=power)


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
    known = needed[np.isfinite(needed)]
    return _around(float(np.median(known)) if len(known) else 200.0)


def _around(middle: float) -> list[int]:
    found = np.geomspace(max(middle / 12, 4), max(middle * 3, 40), POINTS)
    return np.unique(found.round().astype(int)).tolist()


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
    chance = 1 - aim.confidence_level
    wrong = ""
    if aim.difference is not None and (aim.difference == 0 or not np.isfinite(aim.difference)):
        wrong = f"the difference must be a number other than 0; it is {aim.difference:g}"
    elif not 0 < aim.power < 1:
        wrong = f"the power must lie between 0 and 1, such as 0.8; it is {aim.power:g}"
    elif aim.power <= chance:
        wrong = f"the power must exceed the {chance:g} that chance gives; it is {aim.power:g}"
    elif aim.n_items is not None and aim.n_items < 2:
        wrong = f"the number of items must be 2 or more; it is {aim.n_items}"
    elif aim.n_epochs is not None and aim.n_epochs < 1:
        wrong = f"the number of epochs must be 1 or more; it is {aim.n_epochs}"
    elif design.n_models is not None and design.n_models < 2:
        wrong = f"the number of models must be 2 or more; it is {design.n_models}"
    elif design.design_effect is not None and not 0 < design.design_effect < np.inf:
        wrong = f"the design effect must be positive; it is {design.design_effect:g}"
    if wrong:
        raise DesignError(wrong)
    if design.method not in METHODS:
        raise SelectionError(no_such("method", design.method, METHODS, ", ".join(METHODS)))


class PilotSpreads(NamedTuple):
    """How much differences vary, by a pilot or by assumptions."""

    spreads: list[Spread]
    """One for each task and metric."""
    notes: tuple[str, ...]
    parts: tuple[VariancePart, ...]
    """Of single scores; none for assumptions."""


def spreads_of(pilot: InMemory | PowerAssumptions, aim: Aim, design: PowerDesign) -> PilotSpreads:
    """Get the variances of the differences, from a pilot or from assumptions.

    Raises
    ------
    DesignError, SelectionError
        As of `power`.
    """
    _check(aim, design)
    if isinstance(pilot, PowerAssumptions):
        if aim.difference is None and aim.n_items is None:
            msg = "give a difference, a number of items, or both"
            raise SelectionError(msg)
        return PilotSpreads([_assumed(pilot, design, aim.difference, aim.n_epochs or 1)], (), ())
    responses, notes = responses_and_notes(pilot)
    found, left_out = spreads(responses, paired=design.paired)
    return PilotSpreads(found, (*notes, *left_out), variance_parts(responses).rows)


def _assumed(
    given: PowerAssumptions, design: PowerDesign, difference: float | None, n_epochs: int
) -> Spread:
    """Return assumptions as the spread of one pair of models."""
    apart, between = given.discordance, given.between
    pair = given.within if isinstance(given.within, tuple) else (given.within, given.within)
    if (apart is None) == (between is None):
        msg = "give either a discordance, for 0/1 scores, or a variance between items (omega2)"
        raise SelectionError(msg)
    if apart is not None:
        if not 0 <= apart <= 1 or abs(difference or 0.0) > min(apart, 1.0):
            msg = (
                f"the discordance must lie between the difference ({difference or 0:g}) and 1, "
                f"because models differ on at least as many items; it is {apart:g}"
            )
            raise DesignError(msg)
        if n_epochs > 1 or any(pair) or not design.paired:
            msg = (
                "a discordance is for 0/1 scores of the same items in one epoch; else give the "
                "variances (omega2 and within)"
            )
            raise DesignError(msg)
        between = apart - (difference or 0.0) ** 2
    if between is None or min(between, *pair) < 0 or not np.isfinite([between, *pair]).all():
        msg = f"variances must be 0 or more; they are {between}, {pair[0]} and {pair[1]}"
        raise DesignError(msg)
    one, none = np.ones(1), np.zeros(1, dtype=np.int64)
    return Spread(
        a=none,
        b=none + 1,
        between=one * between,
        within=one * sum(pair),
        discordance=one * (np.nan if apart is None else apart),
        design_effect=one,
        n_items=none,
        n_epochs=n_epochs,
        bounded=1.0,
    )


class PowerSolver:
    """Answers for the P pairs of one task; every array has shape (P,)."""

    def __init__(self, spread: Spread, aim: Aim, design: PowerDesign) -> None:
        if aim.difference is not None and abs(aim.difference) > spread.bounded:
            msg = (
                f"a difference of {aim.difference:g} exceeds the range of the scores"
                f"{f' of {spread.task}' if spread.task else ''}; it is at most {spread.bounded:g}"
            )
            raise DesignError(msg)
        if design.design_effect is not None:
            spread = with_design_effect(spread, design.design_effect)
        self.spread, self.aim, self.method = spread, aim, design.method
        self.design: Literal["paired", "unpaired"] = "paired" if design.paired else "unpaired"
        self.n_models = design.n_models or max(len(spread.models), 2)
        self.n_epochs = aim.n_epochs or spread.n_epochs
        if self.n_epochs != spread.n_epochs and np.isnan(spread.within).any():
            msg = (
                f"{spread.task} {spread.metric}: the pilot has one epoch, from which the variance "
                f"of {self.n_epochs} epochs cannot be estimated; run it in two epochs or more"
            )
            raise DesignError(msg)
        within = np.nan_to_num(spread.within) / self.n_epochs
        self.variance = np.maximum(spread.between, 0.0) + within
        once = self.n_epochs == 1 and self.method in ("auto", EXACT)
        self.exact: BoolArray = ~np.isnan(spread.discordance) & once
        if self.method == EXACT and not self.exact.all():
            msg = (
                f"{self.method} is for 0/1 scores of the same items in one epoch; leave the method "
                "at auto for anything else"
            )
            raise DesignError(msg)

    def tail(self, n_models: int) -> float:
        """Probability in each tail of a comparison, by Bonferroni over all pairs of models."""
        from evalstats_plugin.stats.interval import tail_probability

        n_pairs = n_models * (n_models - 1) // 2
        return tail_probability(self.aim.confidence_level) / n_pairs

    def names(self, n_items: FloatArray) -> list[str]:
        """Return the method that is used for each pair with so many items."""
        normal = np.where(self._small(n_items), "t", "miller")
        return np.where(self._exact_at(n_items), EXACT, normal).tolist()

    def items(self, difference: float) -> FloatArray:
        """Return the numbers of items that find a difference; NaN where nothing varies."""
        from evalstats_plugin.stats import power as stats_power

        goal = {"tail": self.tail(self.n_models), "power": self.aim.power}
        found = np.maximum(
            np.ceil(stats_power.items_needed(difference, self.variance, **goal)), 2.0
        )
        few = self._small(found)
        if few.any():
            variance = self.variance[few]

            def power_of(n: FloatArray) -> FloatArray:
                return stats_power.t_power(n, difference, variance, tail=goal["tail"])

            found[few] = stats_power.least_items(power_of, found[few], power=self.aim.power)
        found = np.where(self.variance > 0, found, np.nan)
        exact = self._exact_at(
            stats_power.items_needed(difference, self._apart(difference), **goal)
        )
        if exact.any():
            apart, place = np.unique(self._apart(difference)[exact], return_inverse=True)
            of_counts = stats_power.paired_items_needed(apart, difference, **goal)
            # A sum of two roundings can pass a whole number by a last bit.
            inflated = of_counts[place] * self.spread.design_effect[exact]
            found[exact] = np.ceil(inflated - 1e-9)
        return found

    def difference(self, n_items: FloatArray) -> FloatArray:
        """Return the smallest differences that so many items find; NaN where none is possible."""
        from evalstats_plugin.stats import power as stats_power

        tail, goal, top = self.tail(self.n_models), self.aim.power, self.spread.bounded
        found = stats_power.difference_needed(n_items, self.variance, tail=tail, power=goal)
        few = self._small(n_items)
        if few.any():
            n, variance = n_items[few], self.variance[few]

            def of_t(size: FloatArray) -> FloatArray:
                return stats_power.t_power(n, size, variance, tail=tail)

            highest = np.full(len(n), top) if np.isfinite(top) else 1e3 * np.sqrt(variance)
            found[few] = stats_power.least_difference(of_t, highest, power=goal)
        found = np.where((found <= top) & (self.variance > 0), found, np.nan)
        exact = self._exact_at(n_items)
        if exact.any():
            keys = np.stack([self._effective(n_items)[exact], self.spread.discordance[exact]])
            (size, apart), place = np.unique(keys, axis=1, return_inverse=True)

            def of_counts(by: FloatArray) -> FloatArray:
                return stats_power.paired_power(size, np.maximum(apart, by), by, tail=tail)

            least = stats_power.least_difference(of_counts, np.ones(len(size)), power=goal)
            found[exact] = least[place.ravel()]
        return found

    def power(
        self, n_items: FloatArray, difference: float, n_models: int | None = None
    ) -> FloatArray:
        """Return the power to find a difference."""
        from evalstats_plugin.stats import power as stats_power

        tail = self.tail(n_models or self.n_models)
        found = stats_power.normal_power(n_items, difference, self.variance, tail=tail)
        t = stats_power.t_power(n_items, difference, self.variance, tail=tail)
        found = np.where(self._small(n_items), t, found)
        found = np.where(self.variance > 0, found, np.nan)
        exact = self._exact_at(n_items)
        if exact.any():
            n, apart = self._effective(n_items)[exact], self._apart(difference)[exact]
            found[exact] = stats_power.paired_power(n, apart, difference, tail=tail)
        return found

    def epochs(self, n_items: FloatArray, difference: float) -> FloatArray:
        """Return the epochs that so many items need; inf where none suffice, NaN if unknown."""
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
        """Return how many models can be compared, every two of them; 1 where not even two can."""
        found = np.ones(len(n_items))
        for n_models in range(2, MOST_MODELS + 1):
            enough = self.power(n_items, difference, n_models) >= self.aim.power
            found[enough] = n_models
            if not enough.any():
                break
        return np.where(np.isnan(self.power(n_items, difference)), np.nan, found)

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
        return (n_items < NORMAL_FROM) & (self.method != "miller") | (self.method == "t")


def _rows(solver: PowerSolver) -> list[PowerRow]:
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
    found: list[tuple[Quantity, FloatArray, FloatArray]] = [
        ("power", n, solver.power(n, aim.difference)),
        ("n_models", n, solver.models(n, aim.difference)),
    ]
    if np.any(solver.spread.within > 0):
        found.insert(1, ("n_epochs", n, solver.epochs(n, aim.difference)))
    return found


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
        # Epochs follow from variances alone.
        "method": ["miller"] * len(pairs) if quantity == "n_epochs" else solver.names(n_items),
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
    }
    varies = (solver.variance > 0) | solver.exact
    doubts = _doubts(solver)
    notes: list[tuple[str, ...]] = []
    for pair, value in enumerate(values.tolist()):
        found: list[str] = []
        if quantity == "n_epochs" and np.isnan(value):
            found.append("no item has two epochs: the effect of more epochs is unknown")
        elif not np.isfinite(value) or (quantity == "n_models" and value == 1):
            found.append(_NOTHING[quantity] if varies[pair] else _CONSTANT)
        elif quantity == "n_models" and value == MOST_MODELS:
            found.append(f"{MOST_MODELS} models or more")
        found += [note for note, where in on_all.items() if where[pair]]
        notes.append((*found, *doubts))
    return notes


def _doubts(solver: PowerSolver) -> list[str]:
    """Return a note on how well a pilot estimates a variance: two relative standard errors."""
    n = solver.spread.n_items
    if not n.all():
        return []
    apart = solver.spread.discordance
    with np.errstate(divide="ignore"):
        of_counts = np.sqrt((1 - apart) / (n * apart))
    # Of a variance of normal differences.
    errors = np.where(solver.exact, of_counts, np.sqrt(2 / (n - 1)))
    error = 2 * float(np.median(errors))
    if error < 0.25:
        return []
    if error >= 0.95:
        return ["the pilot has too few items to estimate how much differences vary"]
    return [f"the pilot estimates the variance to about ±{10 * round(10 * error)} % only"]


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
    n_items: IntArray
    """Items of the pilot; 0 where all comes from assumptions."""
    n_epochs: int = 1
    bounded: float = np.inf
    """The greatest possible difference."""


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
    found: list[Spread] = []
    left_out: list[str] = []
    for (task, metric), group in groups.items():
        cells = [make_cell(r, {}) for r in group if len(r.item_ids)]
        cells = [c for c in cells if c.kind not in (None, "ratio") and c.n > 1]
        spread = _spread(cells, paired=paired) if len(cells) >= 1 + paired else None
        if spread is not None and len(spread.a):
            found.append(spread)
        else:
            left_out.append(f"{task} {metric}")
    wanted = "two models that share two items or more" if paired else "a mean of two item scores"
    if not found:
        models = dict.fromkeys(r.model for r in responses)
        msg = (
            f"a pilot needs {wanted} on some task, and the logs have "
            f"{counted(len(models), 'model')} ({few(list(models)) or 'none'}) without that"
        )
        hint = "; to plan for different items, choose the unpaired design" if paired else ""
        raise DesignError(msg + hint)
    notes = [f"nothing to plan with, not {wanted}: {few(left_out)}"] if left_out else []
    return found, notes


def with_design_effect(spread: Spread, design_effect: float) -> Spread:
    """Return the spread with another design effect."""
    noise = np.nan_to_num(spread.within) / spread.n_epochs
    plain = (spread.between + noise) / spread.design_effect
    return replace(
        spread,
        between=design_effect * plain - noise,
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
    n, between, within, apart, effect = np.concatenate(blocks, axis=1)
    keep = n > 1
    binary = paired and all(epochs_are_binary(c.responses) for c in cells)
    bounds = {c.bounds for c in cells}
    span = bounds.pop() if len(bounds) == 1 else None
    return Spread(
        task=cells[0].responses.task,
        metric=cells[0].responses.metric,
        models=matrix.models,
        a=a[keep].astype(np.int64),
        b=b[keep].astype(np.int64),
        between=between[keep],
        within=within[keep],
        discordance=np.where(binary, apart, np.nan)[keep],
        design_effect=effect[keep],
        n_items=n[keep].astype(np.int64),
        n_epochs=int(matrix.scores.shape[2]),
        bounded=np.inf if span is None else span[1] - span[0],
    )


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
    """Number of items, variance between and within them, discordance, design effect: (5, P)."""
    from evalstats_plugin.stats.means import moments

    mean_a, mean_b = scores.means[a], scores.means[b]
    n, total, effect = _inflated(mean_b - mean_a, scores.clusters)
    here = ~np.isnan(mean_a) & ~np.isnan(mean_b)
    noise, within = (
        moments(np.where(here, x[a] + x[b], np.nan)).mean for x in (scores.noise, scores.variance)
    )
    apart = moments(mean_a + mean_b - 2 * mean_a * mean_b).mean
    return np.stack([n, effect * total - np.nan_to_num(noise), within, apart, effect])


def _unpaired(scores: _Scores, a: IntArray, b: IntArray) -> FloatArray:
    """The same for two models that answer different items; NaN for discordance."""
    from evalstats_plugin.stats.means import moments

    n, total, effect = _inflated(scores.means, scores.clusters)
    noise, within = (moments(x).mean for x in (scores.noise, scores.variance))
    between = effect * total - np.nan_to_num(noise)
    plain = total[a] + total[b]
    inflated = (effect * total)[a] + (effect * total)[b]
    together = np.where(plain > 0, inflated / np.where(plain > 0, plain, 1.0), 1.0)
    fewer = np.minimum(n[a], n[b])
    columns = [fewer, between[a] + between[b], within[a] + within[b], np.nan * fewer, together]
    return np.stack(columns)


def _inflated(values: FloatArray, clusters: NDArray[Any] | None) -> tuple[FloatArray, ...]:
    """Count and variance of values (..., M), and the design effect of their clusters.

    The design effect is at least 1: estimates below come from few clusters by chance.
    """
    from evalstats_plugin.stats import clustered as stats_clustered
    from evalstats_plugin.stats.means import moments

    n, _, std = moments(values)
    if clusters is None:
        return n, std**2, np.ones_like(n)
    there = ~np.isnan(values)
    totals = stats_clustered.by_cluster(np.where(there, values, 0.0), clusters)
    sizes = stats_clustered.by_cluster(there * 1.0, clusters)
    plain = std / np.sqrt(np.maximum(n, 1.0))
    effect = stats_clustered.design_effect(
        stats_clustered.cluster_moments(totals, sizes).cr1, plain
    )
    return n, std**2, np.fmax(effect, 1.0)
