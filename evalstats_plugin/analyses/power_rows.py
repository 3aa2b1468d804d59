"""Writes the answers of a power analysis as records."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.power_solver import MOST_MODELS, PowerSolver
from evalstats_plugin.results import PowerRow, finite

Quantity = Literal["n_items", "n_epochs", "n_models", "difference", "power"]
FloatArray = NDArray[np.float64]

_NOTHING: dict[Quantity, str] = {
    "n_items": "the differences do not vary: nothing to plan with",
    "n_epochs": "no number of epochs will do: it takes more items",
    "n_models": "not even two models can be compared with that power",
    "difference": "no difference is large enough for so few items",
    "power": "the differences do not vary: nothing to plan with",
}


def power_rows(solver: PowerSolver, design: Literal["paired", "unpaired"]) -> list[PowerRow]:
    """Answer for every pair of one task; the answers of a pair together."""
    spread, aim = solver.spread, solver.aim
    columns = [
        [
            _row(solver, pair, quantity, float(n_items[pair]), value)
            for pair, value in enumerate(values.tolist())
        ]
        for quantity, n_items, values in _answers(solver)
    ]
    rows: list[PowerRow] = []
    for pair, found in enumerate(zip(*columns, strict=True)):
        a, b = int(spread.a[pair]), int(spread.b[pair])
        about: dict[str, Any] = {
            "task": spread.task,
            "metric": spread.metric,
            "model_a": spread.models[a],
            "model_b": spread.models[b] if a != b else "",
            "design": design,
            "confidence_level": aim.confidence_level,
            "discordance": finite(float(spread.discordance[pair])),
            "between": finite(float(spread.between[pair])),
            "within": finite(float(spread.within[pair])),
            "design_effect": finite(float(spread.design_effect[pair])),
            "pilot_items": int(spread.n_items[pair]) or None,
        }
        rows += [PowerRow(**about, **row) for row in found]
    return rows


def _answers(solver: PowerSolver) -> list[tuple[Quantity, FloatArray, FloatArray]]:
    """Return what is asked for, the items that each pair answers, and the answers."""
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


def _row(
    solver: PowerSolver, pair: int, quantity: Quantity, n_items: float, value: float
) -> dict[str, Any]:
    """Return the fields in which the answers of a pair differ."""
    aim = solver.aim
    answer = finite(value)
    if quantity == "n_models" and answer == 1:
        answer = None
    if answer is not None and quantity.startswith("n_"):
        answer = int(answer)
    n = finite(n_items)
    fields: dict[str, Any] = {
        "quantity": quantity,
        "n_items": None if n is None else int(n),
        "n_epochs": solver.n_epochs,
        "n_models": solver.n_models,
        "difference": aim.difference,
        "power": aim.power,
        # Epochs follow from variances alone.
        "method": "miller" if quantity == "n_epochs" else solver.name(pair, n_items),
        "notes": _notes(solver, pair, quantity, value if answer is None else answer),
    }
    return {**fields, quantity: answer}


def _notes(solver: PowerSolver, pair: int, quantity: Quantity, value: float) -> tuple[str, ...]:
    spread, aim = solver.spread, solver.aim
    found: list[str] = []
    varies = bool(solver.variance[pair] > 0) or bool(solver.exact[pair])
    if quantity == "n_epochs" and np.isnan(value):
        found.append("no item was taken twice: what epochs would do is not known")
    elif not np.isfinite(value) or (quantity == "n_models" and value == 1):
        found.append(_NOTHING[quantity] if varies else _NOTHING["n_items"])
    elif quantity == "n_models" and value == MOST_MODELS:
        found.append(f"{MOST_MODELS} models or more")
    if spread.between[pair] < 0:
        found.append("the variance between items is estimated below 0 and taken as 0")
    if solver.exact[pair] and abs(aim.difference or 0.0) > spread.discordance[pair]:
        found.append(
            "fewer of the pilot's items tell the models apart than the difference takes: "
            "as many are assumed as it takes at least"
        )
    if spread.design_effect[pair] > 1 and spread.task:
        found.append("items come in clusters, which is allowed for")
    return (*found, *_doubts(solver))


def _doubts(solver: PowerSolver) -> list[str]:
    """Say how well a pilot tells a variance: two standard errors, relative to it."""
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
        return ["so few items in the pilot hardly tell how much the differences vary"]
    return [f"the pilot tells how much differences vary to about ±{10 * round(10 * error)} % only"]
