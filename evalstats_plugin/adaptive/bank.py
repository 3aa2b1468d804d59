"""Item banks: calibrated items, what is known of each before a new model is tested.

* `ItemBank`: parameters with their errors, usability, costs, and the calibrated models; one
  Parquet file per bank
* `merge`: two banks on one scale, linked through common items or common models
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.adaptive.curves import Items
from evalstats_plugin.errors import DesignError, ItemConflictError, counted, few
from evalstats_plugin.runtime.files import (
    numbers_in,
    read_signed,
    reporting_damage,
    texts_in,
    write_signed,
)
from evalstats_plugin.stats.arrays import FloatArray, IntArray, as_floats

if TYPE_CHECKING:
    import pandas as pd


ALL_TASKS = ""
"""Key of `ItemBank.misfit` for the score over all items."""

DRIFT = "drift"
"""Reason for not asking an item whose parameters have changed."""

NEGATIVE, UNCALIBRATED, MISFIT = "negative discrimination", "not calibrated", "misfit"
"""Reasons for not asking an item that tells nothing of an ability; it may be drawn."""

_PER_ITEM = (
    "item_ids", "tasks", "discrimination", "intercept", "guessing", "upper", "misfit_loadings",
    "usable", "reasons",
)  # fmt: skip
"""Fields with an entry for each item, along their first axis."""

_PER_ITEM_OR_NONE = ("hashes", "item_covariance", "dispersion", "cost")
_META = b"evalstats_bank"
_WANTED = "give an item bank that `evalstats-plugin adapt bank` wrote"
_KINDS = {
    "integer_ids": "true or false", "shapes": "fields", "misfit": "fields",
    "ability_mean": "a number", "ability_sd": "a number", "models": "texts",
    "abilities": "numbers", "scores": "numbers or null", "provenance": "fields", "notes": "texts",
}  # fmt: skip
"""What the fields of a bank's metadata hold."""
_FIT = "fit_"
"""Prefix of the columns of `ItemBank.item_fit`."""

_NUMBERS = ("discrimination", "intercept", "guessing", "upper", "cost", "dispersion")
_UNKNOWN: Mapping[str, Any] = {"hashes": None, "dispersion": 1.0}
"""What stands in a merged bank for the fields of a bank that does not have them."""
_NO_HASH = (None, "", "None")
"""What stands for a hash that is not known."""
_MATRICES = ("item_covariance", "misfit_loadings")
_LENGTH_ERROR, _LEAST_VOLUME = 1e-6, 1e-6
_LEAST_COMMON = 3
_P_DRIFT = 1e-3
"""Significance level of the test for drift, divided by the number of common items (Bonferroni)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ItemBank:
    """Calibrated items: ``P(right) = c + (u - c) / (1 + exp(-(aθ + d + λ·f)))``.

    θ is the ability. In a bank of several, from a factor model, θ is the items' main direction, and
    f are the K directions across it, each N(0, 1) over models; `axes` turns them into the abilities
    of the fit.
    """

    item_ids: NDArray[Any]
    """Shape (M,), as all fields that follow unless another shape is given."""
    tasks: NDArray[Any]
    hashes: NDArray[Any] | None = None
    discrimination: FloatArray
    intercept: FloatArray
    """d = -ab."""
    guessing: FloatArray
    upper: FloatArray
    item_covariance: FloatArray | None = None
    """Shape (M, p, p), p at least 2; a and d come first."""
    dispersion: FloatArray | None = None
    """Variance of scores as a share of that of right or wrong answers; 1 if None."""
    misfit_loadings: FloatArray
    """λ, shape (M, K); K may be 0."""
    axes: FloatArray | None = None
    """Shape (1 + K, 1 + K), rows of length 1: each ability as a sum of (θ, f), with variance 1 over
    models; None for one ability."""
    misfit: Mapping[str, float] = field(default_factory=dict[str, float])
    """Standard deviation of models' scores around the bank's predictions, by task; see `ALL_TASKS`.
    Intervals of the full score include it."""
    usable: NDArray[np.bool_]
    reasons: NDArray[Any]
    """Why an item is not asked; "" if it may be. All items count in the full score."""
    item_fit: Mapping[str, FloatArray] = field(default_factory=dict[str, FloatArray])
    """Statistics of item fit, by name; each of shape (M,)."""
    cost: FloatArray | None = None
    """Cost of asking each item, such as tokens."""
    ability_mean: float = 0.0
    ability_sd: float = 1.0
    models: tuple[str, ...] = ()
    """Calibrated models."""
    abilities: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Shape (N,), like `scores`."""
    scores: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Mean score of each model over the items."""
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        usable = int(self.usable.sum())
        return f"<ItemBank: {len(self.item_ids)} items, {usable} usable, {len(self.models)} models>"

    def __post_init__(self) -> None:
        m, n = len(self.item_ids), len(self.models)
        vectors = [name for name in _PER_ITEM if name != "misfit_loadings"]
        vectors += [
            name for name in ("hashes", "dispersion", "cost") if getattr(self, name) is not None
        ]
        shapes: dict[str, tuple[int, ...]] = {"abilities": (n,), "scores": (n,)}
        shapes |= dict.fromkeys(vectors, (m,))
        shapes["misfit_loadings"] = (m, *np.shape(self.misfit_loadings)[1:2])
        if self.item_covariance is not None:
            size = max(2, *self.item_covariance.shape[-1:])
            shapes["item_covariance"] = (m, size, size)
        for name, expected in shapes.items():
            actual = np.shape(getattr(self, name))
            if actual != expected:
                raise ValueError(f"{name} has shape {actual}, not {expected}: give one value each")
        parameters = (self.discrimination, self.intercept, self.guessing, self.upper)
        if not all(np.isfinite(values).all() for values in (*parameters, self.misfit_loadings)):
            raise ValueError("some item parameters are not finite: leave these items out")
        if self.cost is not None and not ((self.cost >= 0) & (self.cost < np.inf)).all():
            raise ValueError("some costs are not numbers of 0 or above: give one for each item")
        if not self.ability_sd > 0:
            raise ValueError(f"ability_sd {self.ability_sd} is not above 0: give a larger one")
        if self.axes is not None:
            # Each row is an ability of variance 1.
            k = 1 + self.misfit_loadings.shape[1]
            if self.axes.shape != (k, k):
                msg = f"axes has shape {self.axes.shape}, not {(k, k)}"
                raise ValueError(f"{msg}: give a row and a column per ability")
            if not (np.abs(np.linalg.norm(self.axes, axis=1) - 1) < _LENGTH_ERROR).all():
                raise ValueError("a row of axes has not length 1: divide each row by its length")
            if abs(float(np.linalg.det(self.axes))) < _LEAST_VOLUME:
                raise ValueError("two abilities of axes are the same: leave one out")
            if (self.ability_mean, self.ability_sd) != (0.0, 1.0):
                msg = "several abilities have ability_mean 0 and ability_sd 1: leave both out"
                raise ValueError(msg)

    @classmethod
    def from_arrays(
        cls,
        discrimination: ArrayLike,
        intercept: ArrayLike,
        *,
        guessing: ArrayLike = 0.0,
        item_ids: Sequence[str] | None = None,
        tasks: Sequence[str] | str = "task",
        **others: Any,
    ) -> ItemBank:
        """Build a bank from plain arrays of shape (M,); `others` are further fields."""
        a, d, c, u = as_floats(discrimination, intercept, guessing, others.pop("upper", 1.0))
        m = len(a)
        ids = [f"item_{j}" for j in range(m)] if item_ids is None else list(item_ids)
        names = [tasks] * m if isinstance(tasks, str) else list(tasks)
        reasons = np.asarray(others.pop("reasons", [""] * m), dtype=object)
        loadings = np.asarray(others.pop("misfit_loadings", np.zeros((m, 0))), dtype=np.float64)
        return cls(
            item_ids=np.asarray(ids),
            tasks=np.asarray(names),
            discrimination=a.copy(),
            intercept=d.copy(),
            guessing=c.copy(),
            upper=u.copy(),
            misfit_loadings=loadings,
            usable=np.asarray(reasons == "", dtype=np.bool_),
            reasons=reasons,
            **others,
        )

    def __len__(self) -> int:
        return len(self.item_ids)

    @property
    def n_abilities(self) -> int:
        """K, the number of abilities that a test estimates."""
        return 1 if self.axes is None else len(self.axes)

    @property
    def loading(self) -> FloatArray:
        """Slopes of the logits in the abilities, shape (M, K)."""
        if self.axes is None:
            return self.discrimination[:, None]
        return np.asarray(self.items.directions @ np.linalg.inv(self.axes), dtype=np.float64)

    @cached_property
    def items(self) -> Items:
        """Parameters in the form of `curves`."""
        covariance = self.item_covariance
        spread = np.zeros((len(self), 3))
        if covariance is not None:
            spread = covariance[:, [0, 0, 1], [0, 1, 1]]
            # Of a parameter that is the same for all items, rounding leaves less than 0.
            spread[:, [0, 2]] = np.maximum(spread[:, [0, 2]], 0.0)
        return Items(
            self.discrimination,
            self.intercept,
            self.guessing,
            self.upper,
            # Unknown errors count as 0. Column-major, as curves are computed column by column.
            np.asfortranarray(np.where(np.isfinite(spread).all(-1, keepdims=True), spread, 0.0)),
            np.asfortranarray(self.misfit_loadings),
            np.ones(len(self)) if self.dispersion is None else self.dispersion,
        )

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """Tasks in the order of their first item."""
        return tuple(dict.fromkeys(self.tasks.astype(str).tolist()))

    @property
    def misfit_by_task(self) -> dict[str, float]:
        """Return `misfit`; in a bank of one task, that of the task also stands for all tasks.

        A bank of one task may be cut from one of several tasks, or be merged with others.
        """
        misfit, tasks = dict(self.misfit), self.task_names
        if misfit and len(tasks) == 1:
            own = misfit.get(tasks[0], misfit.get(ALL_TASKS, 0.0))
            misfit |= {tasks[0]: own, ALL_TASKS: own}
        return misfit

    def keys(self) -> list[tuple[str, str]]:
        """Task and id of each item, as strings."""
        return list(
            zip(self.tasks.astype(str).tolist(), self.item_ids.astype(str).tolist(), strict=True)
        )

    def require_usable(self) -> None:
        """Raise DesignError with the reasons if no item may be asked."""
        if self.usable.any():
            return
        if not len(self):
            raise DesignError("the bank holds no item: build it from logs with item scores")
        reasons, counts = np.unique(self.reasons.astype(str), return_counts=True)
        why = ", ".join(f"{reason} ({n})" for reason, n in zip(reasons, counts, strict=True))
        msg = f"none of the bank's {len(self)} items may be asked: {why}"
        raise DesignError(f"{msg}; calibrate it from logs of more models, or of this task version")

    def without(self, left_out: NDArray[np.bool_], reason: str) -> ItemBank:
        """Return the bank with the items of a mask, shape (M,), marked as not to be asked."""
        reasons = np.where(left_out & (self.reasons == ""), reason, self.reasons).astype(object)
        return replace(self, usable=self.usable & ~left_out, reasons=reasons)

    def drawable(self) -> ItemBank:
        """Return the bank for items drawn by chance: also those that tell nothing of an ability."""
        opened = np.isin(self.reasons.astype(str), (NEGATIVE, UNCALIBRATED, MISFIT))
        reasons = np.where(opened, "", self.reasons).astype(object)
        return replace(self, usable=self.usable | opened, reasons=reasons)

    def of_tasks(self, tasks: Sequence[str]) -> ItemBank:
        """Return the bank of some tasks alone."""
        return self.subset(np.isin(self.tasks.astype(str), list(tasks)))

    def subset(self, kept: NDArray[np.bool_]) -> ItemBank:
        """Return the bank of the items of a mask, shape (M,)."""
        old = {name: getattr(self, name) for name in (*_PER_ITEM, *_PER_ITEM_OR_NONE)}
        new = {name: None if value is None else value[kept] for name, value in old.items()}
        fit = {name: values[kept] for name, values in self.item_fit.items()}
        scores = self.scores if kept.all() else np.full_like(self.scores, np.nan)
        return replace(self, **new, item_fit=fit, scores=scores)

    def matched(
        self,
        tasks: Sequence[str],
        item_ids: Sequence[str],
        hashes: Sequence[str | None] | None = None,
    ) -> ItemBank:
        """Return the bank for the items a harness has; items that it lacks are not asked.

        Raises
        ------
        ItemConflictError
            An item has another hash: its question is not the calibrated one.
        DesignError
            The harness has none of the bank's items that may be asked.
        """
        place_of = {
            (str(task), str(item)): place
            for place, (task, item) in enumerate(zip(tasks, item_ids, strict=True))
        }
        places = np.array([place_of.get(key, -1) for key in self.keys()], dtype=np.int64)
        given: list[str | None] = [None] * len(self)
        if hashes is not None:
            given = [hashes[place] if place >= 0 else None for place in places.tolist()]
        if other := self.other_questions(given):
            size = counted(len(other), "item")
            msg = f"other questions than in the bank (the hash differs), {size}: {few(other, 3)}"
            msg += "; the bank was calibrated on another version of the task"
            raise ItemConflictError(f"{msg}: calibrate a bank from logs of this version")
        absent = places < 0
        bank = self.without(absent, "not in the harness")
        note = f"{int(absent.sum())} of the bank's {len(self)} items are not in the harness"
        if (absent & self.usable).any() and not bank.usable.any():
            names = few([" / ".join(key) for key in place_of], 3)
            raise DesignError(f"{note}, of those it has none may be asked; it has: {names}")
        return replace(bank, notes=(*bank.notes, note)) if absent.any() else bank

    def other_questions(self, hashes: Sequence[Any]) -> list[str]:
        """Name the items with another hash than the bank's; `hashes` has one or None for each."""
        of_bank = [None] * len(self) if self.hashes is None else self.hashes.tolist()
        return [
            " / ".join(key)
            for key, calibrated, given in zip(self.keys(), of_bank, hashes, strict=True)
            if calibrated not in _NO_HASH and given not in (*_NO_HASH, calibrated)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per item."""
        import pandas as pd

        safe = np.where(self.discrimination == 0, np.nan, self.discrimination)
        table: dict[str, Any] = {
            "item": self.item_ids,
            "task": self.tasks,
            "discrimination": self.discrimination,
            "difficulty": -self.intercept / safe,
            "intercept": self.intercept,
            "guessing": self.guessing,
            "usable": self.usable,
            "reason": self.reasons,
        }
        if self.axes is not None:
            table |= {f"loading_{k}": values for k, values in enumerate(self.loading.T, 1)}
        if self.cost is not None:
            table["cost"] = self.cost
        return pd.DataFrame(table | dict(self.item_fit))

    def save(self, path: str | Path) -> Path:
        """Write to one Parquet file: a row per item, everything else in its metadata."""
        # pyarrow has no type stubs.
        pa: Any = import_module("pyarrow")
        columns: dict[str, Any] = {
            "item": pa.array(self.item_ids.astype(str).tolist()),
            "task": pa.array(self.tasks.astype(str).tolist()),
            "usable": pa.array(self.usable),
            "reason": pa.array(self.reasons.astype(str).tolist()),
        }
        if self.hashes is not None:
            columns["hash"] = pa.array(
                [None if h is None else str(h) for h in self.hashes.tolist()]
            )
        columns |= {
            name: getattr(self, name) for name in _NUMBERS if getattr(self, name) is not None
        }
        columns |= {f"{_FIT}{name}": values for name, values in self.item_fit.items()}
        shapes: dict[str, list[int]] = {}
        for name in _MATRICES:
            values = getattr(self, name)
            if values is not None and values.size:
                shapes[name] = list(values.shape)
                columns[name] = list(values.reshape(len(self), -1))
        meta = {
            "integer_ids": np.issubdtype(self.item_ids.dtype, np.integer),
            "shapes": shapes,
            "misfit": dict(self.misfit),
            "ability_mean": self.ability_mean,
            "ability_sd": self.ability_sd,
            "models": list(self.models),
            "abilities": self.abilities.tolist(),
            "scores": [None if np.isnan(score) else score for score in self.scores.tolist()],
            "provenance": dict(self.provenance),
            "notes": list(self.notes),
        }
        if self.axes is not None:
            meta["axes"] = self.axes.tolist()
        return write_signed(pa.table(columns), Path(path), _META, meta)

    @classmethod
    def load(cls, path: str | Path) -> ItemBank:
        """Read what `save` wrote.

        Raises
        ------
        LogError
            No such file, not a bank, or a damaged one.
        """
        table, meta = read_signed(
            Path(path), _META, _KINDS, wanted=_WANTED, other=f"not an item bank: {_WANTED}"
        )
        with reporting_damage(Path(path)):
            return _from_table(table, meta)


def left_out(bank: ItemBank) -> list[str]:
    """Return a note on how many items are never asked and why, if there are any."""
    reasons: Counter[str] = Counter(map(str, bank.reasons[~bank.usable].tolist()))
    if not reasons:
        return []
    named = ", ".join(f"{count} for {reason}" for reason, count in reasons.most_common())
    return [f"{reasons.total()} of the bank's {len(bank)} items are never asked: {named}"]


def _from_table(table: Any, meta: dict[str, Any]) -> ItemBank:
    m = table.num_rows
    names: list[str] = table.column_names

    def numbers(name: str) -> Any:
        return numbers_in(table, name, (m,))

    def matrix(name: str) -> Any:
        if name not in meta["shapes"]:
            return np.zeros((m, 0)) if name == "misfit_loadings" else None
        return numbers_in(table, name, meta["shapes"][name])

    ids = np.asarray(texts_in(table, "item"))
    scores = [np.nan if score is None else score for score in meta["scores"]]
    values: dict[str, Any] = {name: numbers(name) if name in names else None for name in _NUMBERS}
    axes = meta.get("axes")
    usable = numbers("usable")
    if np.isnan(usable).any():
        raise ValueError("the column 'usable' does not hold true or false")
    return ItemBank(
        item_ids=ids.astype(np.int64) if meta["integer_ids"] else ids,
        tasks=np.asarray(texts_in(table, "task")),
        hashes=np.asarray(table["hash"].to_pylist(), dtype=object) if "hash" in names else None,
        usable=usable.astype(np.bool_),
        reasons=np.asarray(texts_in(table, "reason"), dtype=object),
        item_fit={
            name.removeprefix(_FIT): numbers(name) for name in names if name.startswith(_FIT)
        },
        axes=None if axes is None else np.asarray(axes, dtype=np.float64),
        misfit=meta["misfit"],
        ability_mean=meta["ability_mean"],
        ability_sd=meta["ability_sd"],
        models=tuple(meta["models"]),
        abilities=np.asarray(meta["abilities"], dtype=np.float64),
        scores=np.asarray(scores, dtype=np.float64),
        provenance=meta["provenance"],
        notes=tuple(meta["notes"]),
        **values,
        **{name: matrix(name) for name in _MATRICES},
    )


class Scale(NamedTuple):
    """``θ_a = slope · θ_b + intercept``."""

    slope: float
    intercept: float
    n_common: int


def merge(
    bank_a: ItemBank, bank_b: ItemBank, *, through: Literal["items", "models"] = "items"
) -> ItemBank:
    """Return one bank of the items of both, on the scale of the first.

    Common items keep the parameters and misfit loadings of the first bank. An item whose two
    calibrations differ by more than their errors has drifted and is not asked. Misfit factors of
    the two banks are different factors.

    Parameters
    ----------
    through
        Whether common items or common models link the two scales.

    Raises
    ------
    DesignError
        Fewer than 3 items or models in common, or a bank of several abilities.
    ItemConflictError
        A common item has another hash.
    """
    if max(bank_a.n_abilities, bank_b.n_abilities) > 1:
        msg = "abilities of two factor models are not the same ones, so their banks do not merge"
        raise DesignError(f"{msg}: make one bank from the logs of both")
    i, j = _common(bank_a.keys(), bank_b.keys())
    hashes = np.full(len(bank_a), None, dtype=object)
    if bank_b.hashes is not None:
        hashes[i] = bank_b.hashes[j]
    if other := bank_a.other_questions(hashes.tolist()):
        named = few(other, 3)
        msg = f"{len(other)} items are other questions in the two banks (hash differs): {named}"
        raise ItemConflictError(f"{msg}; merge banks of the same version of a task")
    scale = _scale(bank_a, bank_b, (i, j), through)
    moved = _on_scale(bank_b, scale)
    drifted = np.zeros(len(bank_a), dtype=np.bool_)
    if len(i):
        # Where (a, d) differ beyond chance, by χ² with 2 degrees of freedom.
        slopes = bank_a.discrimination[i] - moved.discrimination[j]
        gap = np.stack([slopes, bank_a.intercept[i] - moved.intercept[j]], axis=-1)
        v = bank_a.items.spread[i] + moved.items.spread[j]
        matrix = np.stack([v[:, [0, 1]], v[:, [1, 2]]], axis=-2) + 1e-4 * np.eye(2)
        distance = np.einsum("mk,mk->m", gap, np.linalg.solve(matrix, gap[..., None])[..., 0])
        drifted[i] = distance > -2 * np.log(_P_DRIFT / len(i))
    new = np.ones(len(bank_b), dtype=np.bool_)
    new[j] = False
    joined = _joined(bank_a.without(drifted, DRIFT), moved.subset(new), int(drifted.sum()))
    link = scale._asdict() | {"through": through, "drifted": int(drifted.sum())}
    origins = [dict(bank_a.provenance), dict(bank_b.provenance)]
    metrics = {str(name) for origin in origins for name in origin.get("metrics", ())}
    origin = {"merged": origins, "link": link, "metrics": sorted(metrics)}
    return replace(joined, provenance=origin)


def _common(a: list[Any], b: list[Any]) -> tuple[IntArray, IntArray]:
    """Places in each list of what both hold."""
    where = {key: place for place, key in enumerate(b)}
    pairs = [(place, where[key]) for place, key in enumerate(a) if key in where]
    places = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return places[:, 0], places[:, 1]


def _scale(a: ItemBank, b: ItemBank, common: tuple[IntArray, IntArray], through: str) -> Scale:
    """Mean-geometric-mean slope of common items, or ratio of spreads; weighted median intercept."""
    if through == "models":
        i, j = _common(list(a.models), list(b.models))
        x, y = a.abilities[i], b.abilities[j]
        weights = np.ones(len(i))
    else:
        both = a.usable[common[0]] & b.usable[common[1]]
        i, j = (places[both] for places in common)
        x, y = -a.intercept[i] / a.discrimination[i], -b.intercept[j] / b.discrimination[j]
        # Items whose difficulty is uncertain count little.
        variances = _difficulty_variance(a, i, x) + _difficulty_variance(b, j, y)
        weights = 1 / (variances + 1e-3)
    if len(i) < _LEAST_COMMON:
        msg = f"{len(i)} {through} in common are too few to put two banks on one scale"
        other = "models" if through == "items" else "items"
        raise DesignError(f"{msg}: use banks with {_LEAST_COMMON} or more, or link through {other}")
    if through == "items":
        slope = float(np.exp(np.mean(np.log(b.discrimination[j] / a.discrimination[i]))))
    else:
        slope = float(np.std(x) / np.std(y)) if min(np.ptp(x), np.ptp(y)) > 0 else 0.0
    if not slope > 0:
        msg = "the models in common have the same ability in a bank: link through items"
        raise DesignError(msg)
    gap = x - slope * y
    # A weighted median, so that items that drifted do not move the scale.
    order = np.argsort(gap)
    half = np.cumsum(weights[order]) >= weights.sum() / 2
    return Scale(slope, float(gap[order][half.argmax()]), len(i))


def _difficulty_variance(bank: ItemBank, places: IntArray, difficulty: FloatArray) -> FloatArray:
    """Variance of b = -d / a by the delta method."""
    spread = bank.items.spread[places]
    total = spread[:, 0] * difficulty**2 + 2 * spread[:, 1] * difficulty + spread[:, 2]
    return total / bank.discrimination[places] ** 2


def _on_scale(bank: ItemBank, scale: Scale) -> ItemBank:
    """Return a bank with abilities and items transformed to another scale."""
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


def _joined(a: ItemBank, b: ItemBank, n_drifted: int) -> ItemBank:
    """Bank of the items of two banks without common items, on one scale."""

    def both(name: str) -> Any:
        parts = [getattr(bank, name) for bank in (a, b)]
        if name in _UNKNOWN and any(part is not None for part in parts):
            parts = [
                np.full(len(bank), _UNKNOWN[name]) if part is None else part
                for bank, part in zip((a, b), parts, strict=True)
            ]
        return None if any(part is None for part in parts) else np.concatenate(parts)

    ka, kb = a.misfit_loadings.shape[1], b.misfit_loadings.shape[1]
    loadings = np.zeros((len(a) + len(b), ka + kb))
    loadings[: len(a), :ka], loadings[len(a) :, ka:] = a.misfit_loadings, b.misfit_loadings
    names = {*_PER_ITEM, *_PER_ITEM_OR_NONE} - {"misfit_loadings", "item_covariance"}
    kept = [k for k, name in enumerate(b.models) if name not in a.models]
    covariance = None
    if a.item_covariance is not None and b.item_covariance is not None:
        covariance = np.concatenate([bank.item_covariance[:, :2, :2] for bank in (a, b)])  # type: ignore[index]
    misfits = a.misfit_by_task, b.misfit_by_task
    misfit = {
        name: max(each.get(name, 0.0) for each in misfits) for name in {**misfits[0], **misfits[1]}
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
        # No model answered all items, so no mean score over all of them is known.
        scores=np.full(len(a.models) + len(kept), np.nan),
        notes=tuple(dict.fromkeys(notes)),
    )
