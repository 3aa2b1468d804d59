"""Power analysis: numbers of items, epochs or models for a difference, and the reverse.

`power` and `power_curve` get the variances of differences from the logs of a pilot (`spreads`) or
from `PowerAssumptions`, have `solver.PowerSolver` answer for all pairs of models of a task, and say
in notes what the answers rest on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from scipy import special

from evalstats_plugin.comparisons.planning.solver import (
    EXACT,
    METHODS,
    MOST_MODELS,
    Aim,
    PowerDesign,
    PowerSolver,
    SequentialPower,
    solver_of,
)
from evalstats_plugin.comparisons.planning.spreads import (
    Spread,
    Tasks,
    at_quantile,
    over_tasks,
    spreads,
    with_design_effect,
)
from evalstats_plugin.comparisons.rows import PowerRow, PowerRows
from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.results import finite_values, records
from evalstats_plugin.errors import DesignError, SelectionError, check_known
from evalstats_plugin.scores.cells import check_confidence_level
from evalstats_plugin.scores.epochs import variance_parts
from evalstats_plugin.scores.rows import VariancePart
from evalstats_plugin.stats.arrays import FloatArray

LIMITS = (0.05, 0.95)
"""Quantiles of the answer over the pilot's error."""

MOST_EPOCHS = 64
"""Largest number of epochs looked at for the cheapest design."""

POINTS = 24
"""Numbers of items that a curve has by default."""

Quantity = Literal["n_items", "n_epochs", "n_models", "n_tasks", "difference", "power"]

_CONSTANT = "the differences do not vary: nothing to plan with"

_NOTHING: dict[Quantity, str] = {
    "n_items": "the difference is too small: it would need more than 10¹² items",
    "n_epochs": "no number of epochs is enough: more items are needed",
    "n_tasks": "the difference is too small: it would need more than 10¹² tasks",
    "n_models": "not even two models can be compared with that power",
    "difference": "no difference is large enough for so few items",
    "power": _CONSTANT,
}


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
    squared sums) vary; ``low`` and ``high`` are the answer's limits under it.

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
    answer = _cheapest if design.costs else _answered
    rows = [row for spread in pilot_spreads.spreads for row in answer(spread, aim, design)]
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
    if design.margin is not None and difference is None:
        difference = 0.0
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
    share = design.assurance
    solvers = [
        solver_of(spread if share is None else at_quantile(spread, share), aim, design)
        for spread in pilot_spreads.spreads
    ]
    rows: list[PowerRow] = []
    for solver in solvers:
        for n in at or _numbers(solver):
            items = np.full(len(solver.spread.a), float(n))
            if difference is None:
                rows += _column(solver, "difference", items, solver.difference(items))
            else:
                rows += _column(solver, "power", items, solver.power(items, difference))
    return PowerCurve(tuple(rows), pilot_spreads.notes, parts=pilot_spreads.parts, power=power)


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
        (epochs is not None and design.tasks == "random",
         "of random tasks the epochs are those of the pilot: leave them out"),
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
        (costs is not None and not (0 <= costs[0] < np.inf and 0 < costs[1] < np.inf),
         f"costs must be finite and above 0, or 0 for an item; they are {costs}"),
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
    effect = design.design_effect
    if effect is not None:
        # Of single tasks the solver multiplies by it, after the pilot's error.
        effect = 1.0 if design.tasks == "each" else effect
        task_spreads = [with_design_effect(spread, effect) for spread in task_spreads]
    if design.tasks != "each":
        task_spreads = over_tasks(task_spreads, design.tasks, aim.n_epochs)
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


def _answered(spread: Spread, aim: Aim, design: PowerDesign) -> list[PowerRow]:
    """Answer for every pair of one task, with the limits that the pilot's error leaves."""
    answer = _of_random_tasks if design.tasks == "random" else _of_items
    if not np.isfinite(spread.freedom).all():
        return answer(spread, aim, design)
    share = design.assurance
    rows = answer(spread if share is None else at_quantile(spread, share), aim, design)
    # Of the pilot's error by its variance alone, in proportion to what is simulated.
    plain, shifted = design, aim
    if design.margin is not None:
        # What is asked of the distance from the margin.
        plain = replace(design, margin=None)
        shifted = replace(aim, difference=(aim.difference or 0.0) + design.margin)
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


def _in_proportion(row: PowerRow, end: float | None, middle: float | None) -> float | None:
    """Return a limit of a row's answer, from that of one that is not simulated, and that answer."""
    value = getattr(row, row.quantity)
    if value is None or end is None or middle is None or value == middle:
        return end
    if row.quantity == "power":
        of_value, of_end, of_middle = (
            float(special.ndtri(min(max(x, 1e-12), 1 - 1e-12))) for x in (value, end, middle)
        )
        return float(special.ndtr(of_value + of_end - of_middle))
    limit = end * value / middle
    return limit if row.quantity == "difference" else int(np.ceil(limit - 1e-9))


def _cheapest(spread: Spread, aim: Aim, design: PowerDesign) -> list[PowerRow]:
    """Answer with the numbers of items and epochs of each pair that cost least together."""
    per_item, per_epoch = design.costs or (0.0, 1.0)
    if np.isnan(spread.within).any():
        raise DesignError(
            f"{spread.task} {spread.metric}: the pilot has one epoch, so that nothing is known of "
            "more: run it in two epochs or more"
        )
    by_epochs = [
        _answered(spread, replace(aim, n_epochs=n_epochs), design)
        for n_epochs in range(1, MOST_EPOCHS + 1)
    ]

    def cost(row: PowerRow) -> float:
        n = np.inf if row.n_items is None else row.n_items
        return n * (per_item + (row.n_epochs or 1) * per_epoch)

    rows = [min(of_pair, key=cost) for of_pair in zip(*by_epochs, strict=True)]
    once = [cost(row) for row in by_epochs[0]]
    notes = [f"costs {cost(row):,.6g} for each model; one epoch, " for row in rows]
    return [
        replace(row, notes=(*row.notes, f"{note}{alone:,.6g}")) if np.isfinite(alone) else row
        for row, note, alone in zip(rows, notes, once, strict=True)
    ]


def _of_random_tasks(spread: Spread, aim: Aim, design: PowerDesign) -> list[PowerRow]:
    """Answer for tasks that are a sample: they take the place of items, and items of epochs."""
    n_items = aim.n_items or int(np.median(spread.n_epochs))
    tasks = None if aim.difference is not None and aim.n_items is None else spread.n_tasks
    of_tasks = replace(
        spread, n_epochs=n_items, n_tasks=1, n_items=np.full_like(spread.n_items, spread.n_tasks)
    )
    own = replace(aim, n_items=tasks, n_epochs=n_items)
    rows = _of_items(of_tasks, own, design)
    if aim.difference is not None and aim.n_items is not None:
        # Also the tasks that would be enough.
        more = _of_items(of_tasks, replace(own, n_items=None), design)
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


def _of_items(spread: Spread, aim: Aim, design: PowerDesign) -> list[PowerRow]:
    """Answer for every pair of one task; the answers of a pair together."""
    solver = solver_of(spread, aim, design)
    pilot = solver.spread.n_items.astype(np.float64)
    n = pilot if aim.n_items is None else np.full_like(pilot, float(aim.n_items))
    if aim.difference is None:
        return _column(solver, "difference", n, solver.difference(n))
    if aim.n_items is None:
        needed = solver.items(aim.difference)
        return _column(solver, "n_items", needed, needed)
    columns = [_column(solver, "power", n, solver.power(n, aim.difference))]
    if solver.margin is None and np.any(solver.spread.within > 0):
        columns.append(_column(solver, "n_epochs", n, solver.epochs(n, aim.difference)))
    if solver.margin is None:
        columns.append(_column(solver, "n_models", n, solver.models(n, aim.difference)))
    return [row for of_pair in zip(*columns, strict=True) for row in of_pair]


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
