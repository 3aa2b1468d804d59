"""Power, or the least difference that is found, for many numbers of items: what a figure shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evalstats_plugin.analyses.epochs import Pilot
from evalstats_plugin.analyses.power import PowerAssumptions, PowerDesign, solver_of, spreads_of
from evalstats_plugin.analyses.power_solver import Aim, PowerSolver
from evalstats_plugin.errors import DesignError
from evalstats_plugin.results import PowerRow, PowerRows, finite, records
from evalstats_plugin.stats.interval import FloatArray


@dataclass(frozen=True)
class PowerCurve(PowerRows):
    """Answers for several numbers of items, and the power that is wanted."""

    power: float = 0.8


POINTS = 24
"""Numbers of items that a curve has by default."""


def power_curve(
    pilot: Pilot | PowerAssumptions,
    *,
    difference: float | None = None,
    at: Sequence[int] | None = None,
    n_epochs: int | None = None,
    power: float = 0.8,
    confidence_level: float = 0.95,
    design: PowerDesign | None = None,
) -> PowerCurve:
    """Return the power for a difference, or without one the least difference, item by item.

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
        msg = f"numbers of items {list(at)} found, expected some, each 2 or more"
        raise DesignError(msg)
    if at is None and difference is None and isinstance(pilot, PowerAssumptions):
        at = _around(200)
    aim = Aim(difference, None if difference is not None else (at or [2])[0], n_epochs, power,
              confidence_level)  # fmt: skip
    found = spreads_of(pilot, aim, design)
    solvers = [solver_of(spread, aim, design) for spread in found.spreads]
    rows = [
        row
        for solver in solvers
        for n in (at or _numbers(solver))
        for row in _rows(solver, n, "paired" if design.paired else "unpaired")
    ]
    return PowerCurve(tuple(rows), found.notes, parts=found.parts, power=power)


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


def _rows(solver: PowerSolver, n: int, design: Literal["paired", "unpaired"]) -> list[PowerRow]:
    """Answer for every pair, with n items each."""
    spread, aim = solver.spread, solver.aim
    items = np.full(len(spread.a), float(n))
    of_power = aim.difference is not None
    values = solver.power(items, aim.difference) if aim.difference else solver.difference(items)
    quantity: Literal["power", "difference"] = "power" if of_power else "difference"
    pairs = list(zip(spread.a.tolist(), spread.b.tolist(), strict=True))
    columns: dict[str, Any] = {
        "model_a": [spread.models[a] for a, _ in pairs],
        "model_b": [spread.models[b] if a != b else "" for a, b in pairs],
        "method": _methods(solver, n),
        quantity: _finite(values),
    }
    same = {
        "quantity": quantity,
        "task": spread.task,
        "metric": spread.metric,
        "design": design,
        "n_items": n,
        "n_epochs": solver.n_epochs,
        "n_models": solver.n_models,
        "difference": aim.difference,
        "power": aim.power,
        "confidence_level": aim.confidence_level,
    }
    return records(PowerRow, columns, {k: v for k, v in same.items() if k not in columns})


def _methods(solver: PowerSolver, n: int) -> list[str]:
    """Pairs whose outcomes are summed have one method, the others another."""
    kinds, first, place = np.unique(solver.exact, return_index=True, return_inverse=True)
    names = [solver.name(int(pair), float(n)) for pair in first[: len(kinds)]]
    return [names[i] for i in place.tolist()]


def _finite(values: FloatArray) -> list[float | None]:
    return [finite(value) for value in values.tolist()]
