"""How many items are needed, and which difference do so many find?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evalstats_plugin.analyses.epochs import Pilot, variance_parts
from evalstats_plugin.analyses.pilot import Spread, spreads
from evalstats_plugin.analyses.power_rows import power_rows
from evalstats_plugin.analyses.power_solver import METHODS, Aim, PowerSolver, with_design_effect
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.results import PowerRows, VariancePart
from evalstats_plugin.wording import no_such


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAssumptions:
    """What is assumed of the differences between two models, where no pilot was run.

    Either ``discordance``, the share of items that only one of the two gets right, for 0/1 scores
    taken once; or the variances of [Mil24]_.
    """

    discordance: float | None = None
    between: float | None = None
    """ω²: of the true differences, between items."""
    within: float | tuple[float, float] = 0.0
    """σ²: of one take around its item's true mean, for each model or for both alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDesign:
    """How models are going to be compared."""

    paired: bool = True
    """Both answer the same items, rather than as many different ones each."""
    n_models: int | None = None
    """Models to compare, every two of them: by default those of the pilot, or two."""
    design_effect: float | None = None
    """How many times larger clusters make the variance: by default as in the pilot, or 1."""
    method: str = "auto"
    """What finds a difference: one of the names in `METHODS`."""


def power(
    pilot: Pilot | PowerAssumptions,
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
        Takes of each item: by default those of the pilot, or one.
    power
        Probability to find the difference.
    confidence_level
        Of the comparison: a difference is found when p ≤ 1 - level, allowing for all pairs.
    design
        Whether the items are the same, how many models there are, what clusters do.

    Notes
    -----
    For 0/1 scores taken once, exact: the power of the test is summed over all outcomes. Otherwise
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
    rows = [
        row
        for spread in found.spreads
        for row in power_rows(
            solver_of(spread, aim, design), "paired" if design.paired else "unpaired"
        )
    ]
    return PowerRows(tuple(rows), found.notes, parts=found.parts)


class PilotSpreads(NamedTuple):
    """What a pilot, or assumptions in its place, tells of how differences vary."""

    spreads: list[Spread]
    """One for each task and metric."""
    notes: tuple[str, ...]
    parts: tuple[VariancePart, ...]
    """Of single scores; none of assumptions."""


def spreads_of(pilot: Pilot | PowerAssumptions, aim: Aim, design: PowerDesign) -> PilotSpreads:
    """Say how much the differences vary that are to be found.

    Raises
    ------
    DesignError, SelectionError
        As of `power`.
    """
    _check(aim)
    _check_design(design)
    if isinstance(pilot, PowerAssumptions):
        if aim.difference is None and aim.n_items is None:
            msg = "neither a difference nor a number of items found, expected one of them or both"
            raise SelectionError(msg)
        return PilotSpreads([_assumed(pilot, design, aim.difference, aim.n_epochs or 1)], (), ())
    responses = pilot if isinstance(pilot, (ResponseSet, ResponseMatrix)) else list(pilot)
    listed = responses.to_responses() if isinstance(responses, ResponseMatrix) else responses
    found, left_out = spreads(list(listed), paired=design.paired)
    read = () if isinstance(responses, list) else responses.notes
    return PilotSpreads(found, (*read, *left_out), variance_parts(responses).rows)


def _check(aim: Aim) -> None:
    chance = 1 - aim.confidence_level
    wrong = ""
    if aim.difference is not None and (aim.difference == 0 or not np.isfinite(aim.difference)):
        wrong = f"difference {aim.difference:g} found, expected one other than 0"
    elif not 0 < aim.confidence_level < 1:
        wrong = f"confidence level {aim.confidence_level:g} found, expected between 0 and 1"
    elif not 0 < aim.power < 1:
        wrong = f"power {aim.power:g} found, expected a number between 0 and 1"
    elif aim.power <= chance:
        wrong = f"power {aim.power:g} found, expected more than the {chance:g} that chance gives"
    elif aim.n_items is not None and aim.n_items < 2:
        wrong = f"{aim.n_items} items found, expected two or more"
    elif aim.n_epochs is not None and aim.n_epochs < 1:
        wrong = f"{aim.n_epochs} epochs found, expected one or more"
    if wrong:
        raise DesignError(wrong)


def _check_design(design: PowerDesign) -> None:
    if design.method not in METHODS:
        raise SelectionError(no_such("method", design.method, METHODS, ", ".join(METHODS)))
    if design.n_models is not None and design.n_models < 2:
        msg = f"{design.n_models} models found, expected two or more to compare"
        raise DesignError(msg)
    effect = design.design_effect
    if effect is not None and not 0 < effect < np.inf:
        msg = f"design effect {effect:g} found, expected a positive number"
        raise DesignError(msg)


def _assumed(
    given: PowerAssumptions, design: PowerDesign, difference: float | None, n_epochs: int
) -> Spread:
    """Write assumptions as if a pilot had given them."""
    apart, between = given.discordance, given.between
    pair = given.within if isinstance(given.within, tuple) else (given.within, given.within)
    if (apart is None) == (between is None):
        msg = "expected either a discordance, for 0/1 scores, or a variance between items (omega2)"
        raise SelectionError(msg)
    if apart is not None:
        if not 0 <= apart <= 1 or abs(difference or 0.0) > min(apart, 1.0):
            msg = (
                f"discordance {apart:g} found for a difference of {difference or 0:g}, expected a "
                "share between the difference and 1: models differ on as many items at least"
            )
            raise DesignError(msg)
        if n_epochs > 1 or any(pair) or not design.paired:
            msg = (
                "a discordance is of 0/1 scores of the same items, taken once; for several epochs "
                "or different items give the variances (omega2 and within)"
            )
            raise DesignError(msg)
        between = apart - (difference or 0.0) ** 2
    if between is None or min(between, *pair) < 0 or not np.isfinite([between, *pair]).all():
        msg = f"variances {between}, {pair[0]} and {pair[1]} found, expected 0 or more"
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


def solver_of(spread: Spread, aim: Aim, design: PowerDesign) -> PowerSolver:
    """Return what answers for the pairs of one task.

    Raises
    ------
    DesignError
        The difference is larger than the scores allow.
    """
    if aim.difference is not None and abs(aim.difference) > spread.bounded:
        msg = (
            f"difference {aim.difference:g} found, expected at most {spread.bounded:g}, the range "
            f"of the scores{f' of {spread.task}' if spread.task else ''}"
        )
        raise DesignError(msg)
    if design.design_effect is not None:
        spread = with_design_effect(spread, design.design_effect)
    n_models = design.n_models or max(len(spread.models), 2)
    return PowerSolver(spread, aim, method=design.method, n_models=n_models)
