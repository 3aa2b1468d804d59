"""Two item banks on one scale, through the items or models that both of them have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.errors import DesignError, ItemConflictError
from evalstats_plugin.stats.interval import FloatArray, IntArray
from evalstats_plugin.wording import few

DRIFT = "drift"
_LEAST_COMMON = 3
_P_DRIFT = 1e-3
"""Of a difference as large by chance, over the number of common items."""


class Scale(NamedTuple):
    """``θ_a = slope · θ_b + intercept``."""

    slope: float
    intercept: float
    n_common: int


def merge(
    bank_a: ItemBank, bank_b: ItemBank, *, through: Literal["items", "models"] = "items"
) -> ItemBank:
    """Return one bank of both, on the scale of the first.

    Common items keep the parameters of the first bank, as do their misfit loadings; where both
    calibrations differ by more than their errors an item has drifted and is not asked. Misfit
    factors of the two banks are different factors.

    Raises
    ------
    DesignError
        Fewer than 3 items or models in common; ItemConflictError where a common item has another
        hash.
    """
    i, j = _common(bank_a.keys(), bank_b.keys())
    _check_hashes(bank_a, bank_b, i, j)
    scale = _scale(bank_a, bank_b, (i, j), through)
    moved = on_scale(bank_b, scale)
    drifted = np.zeros(len(bank_a), dtype=np.bool_)
    if len(i):
        drifted[i] = _differs(bank_a, moved, i, j)
    first = bank_a.without(drifted, DRIFT)
    new = np.ones(len(bank_b), dtype=np.bool_)
    new[j] = False
    second = moved.subset(new)
    joined = _joined(first, second, int(drifted.sum()))
    link = scale._asdict() | {"through": through, "drifted": int(drifted.sum())}
    origins = [dict(bank_a.provenance), dict(bank_b.provenance)]
    metrics = {str(name) for origin in origins for name in origin.get("metrics", ())}
    origin = {"merged": origins, "link": link, "metrics": sorted(metrics)}
    return replace(joined, provenance=origin)


def on_scale(bank: ItemBank, scale: Scale) -> ItemBank:
    """Return a bank with abilities and items transformed."""
    slope, intercept = scale.slope, scale.intercept
    a = bank.discrimination / slope
    covariance = bank.item_covariance
    if covariance is not None:
        turn = np.eye(covariance.shape[1])
        turn[0, 0], turn[1, 0] = 1 / slope, -intercept / slope
        covariance = turn @ covariance @ turn.T
    return replace(
        bank,
        discrimination=a,
        intercept=bank.intercept - a * intercept,
        item_covariance=covariance,
        ability_mean=slope * bank.ability_mean + intercept,
        ability_sd=slope * bank.ability_sd,
        abilities=slope * bank.abilities + intercept,
    )


def _common(a: list[Any], b: list[Any]) -> tuple[IntArray, IntArray]:
    where = {key: place for place, key in enumerate(b)}
    pairs = [(place, where[key]) for place, key in enumerate(a) if key in where]
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _check_hashes(a: ItemBank, b: ItemBank, i: IntArray, j: IntArray) -> None:
    if a.hashes is None or b.hashes is None:
        return
    mine, other = a.hashes[i].astype(str), b.hashes[j].astype(str)
    unknown = np.isin(mine, ["", "None"]) | np.isin(other, ["", "None"])
    wrong = np.flatnonzero((mine != other) & ~unknown)
    if len(wrong):
        keys = a.keys()
        named = few([" / ".join(keys[int(i[k])]) for k in wrong], 3)
        msg = f"{len(wrong)} items are other questions in the two banks (hash differs): {named}"
        raise ItemConflictError(f"{msg}; merge banks of the same version of a task")


def _scale(a: ItemBank, b: ItemBank, common: tuple[IntArray, IntArray], through: str) -> Scale:
    if through == "models":
        i, j = _common(list(a.models), list(b.models))
        x, y = a.abilities[i], b.abilities[j]
        weights = np.ones(len(i))
    else:
        both = a.usable[common[0]] & b.usable[common[1]]
        i, j = (places[both] for places in common)
        x, y = -a.intercept[i] / a.discrimination[i], -b.intercept[j] / b.discrimination[j]
        # Hard to place items count little: the variance of b is about that of d over a².
        weights = 1 / (_of_difficulty(a, i, x) + _of_difficulty(b, j, y) + 1e-3)
    if len(i) < _LEAST_COMMON:
        msg = f"{len(i)} {through} in common, expected at least {_LEAST_COMMON}"
        other = "models" if through == "items" else "items"
        raise DesignError(f"{msg} to put two banks on one scale; link through {other} instead?")
    if through == "items":
        slope = float(np.exp(np.mean(np.log(b.discrimination[j] / a.discrimination[i]))))
    else:
        slope = float(np.std(x) / np.std(y))
    gap = x - slope * y
    # A median, as items that drifted should not move the scale.
    order = np.argsort(gap)
    half = np.cumsum(weights[order]) >= weights.sum() / 2
    return Scale(slope, float(gap[order][half.argmax()]), len(i))


def _of_difficulty(bank: ItemBank, places: IntArray, difficulty: FloatArray) -> FloatArray:
    spread = bank.items.spread[places]
    total = spread[:, 0] * difficulty**2 + 2 * spread[:, 1] * difficulty + spread[:, 2]
    return total / bank.discrimination[places] ** 2


def _differs(a: ItemBank, b: ItemBank, i: IntArray, j: IntArray) -> NDArray[np.bool_]:
    """Whether (a, d) of common items differ beyond chance, by χ² with 2 degrees of freedom."""
    gap = np.stack(
        [a.discrimination[i] - b.discrimination[j], a.intercept[i] - b.intercept[j]], axis=-1
    )
    v = a.items.spread[i] + b.items.spread[j]
    matrix = np.stack([v[:, [0, 1]], v[:, [1, 2]]], axis=-2) + 1e-4 * np.eye(2)
    distance = np.einsum("mk,mk->m", gap, np.linalg.solve(matrix, gap[..., None])[..., 0])
    return distance > -2 * np.log(_P_DRIFT / max(len(i), 1))


def _joined(a: ItemBank, b: ItemBank, n_drifted: int) -> ItemBank:
    def both(name: str) -> Any:
        x, y = getattr(a, name), getattr(b, name)
        return None if x is None or y is None else np.concatenate([x, y])

    ka, kb = a.misfit_loadings.shape[1], b.misfit_loadings.shape[1]
    loadings = np.zeros((len(a) + len(b), ka + kb))
    loadings[: len(a), :ka], loadings[len(a) :, ka:] = a.misfit_loadings, b.misfit_loadings
    names = (
        "item_ids", "tasks", "hashes", "discrimination", "intercept", "guessing", "upper",
        "usable", "reasons", "cost", "dispersion",
    )  # fmt: skip
    kept = [k for k, name in enumerate(b.models) if name not in a.models]
    covariance = None
    if a.item_covariance is not None and b.item_covariance is not None:
        covariance = np.concatenate([bank.item_covariance[:, :2, :2] for bank in (a, b)])  # type: ignore[index]
    misfit = {
        name: max(a.misfit.get(name, 0.0), b.misfit.get(name, 0.0))
        for name in {**a.misfit, **b.misfit}
    }
    notes = [*a.notes, *b.notes]
    notes += [f"{n_drifted} common items drifted between the banks"] if n_drifted else []
    return replace(
        a,
        **{name: both(name) for name in names},
        item_covariance=covariance,
        misfit_loadings=loadings,
        misfit=misfit,
        item_fit={
            name: np.concatenate([a.item_fit[name], b.item_fit[name]])
            for name in a.item_fit
            if name in b.item_fit
        },
        models=(*a.models, *(b.models[k] for k in kept)),
        abilities=np.concatenate([a.abilities, b.abilities[kept]]),
        # Of other items: the mean score on all is not known of any model.
        scores=np.full(len(a.models) + len(kept), np.nan),
        notes=tuple(dict.fromkeys(notes)),
    )
