"""The item bank: what is known of every item before a new model is tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.adaptive.curves import Items
from evalstats_plugin.errors import DesignError, ItemConflictError
from evalstats_plugin.stats.interval import FloatArray, IntArray
from evalstats_plugin.wording import few

if TYPE_CHECKING:
    import pandas as pd

ALL_TASKS = ""
"""Key of `ItemBank.misfit` for the score over all items."""

_OF_ITEMS = ("tasks", "discrimination", "intercept", "guessing", "upper", "usable", "reasons")


@dataclass(frozen=True, eq=False, kw_only=True)
class ItemBank:
    """Calibrated items: ``P(right) = c + (u - c) / (1 + exp(-(aθ + d + λ·f)))``.

    θ is the ability. f is what a model is better or worse at than its ability says, on items that
    share it: K misfit factors, each N(0, 1) over models. They matter little for θ, and much for
    the score on items not asked.
    """

    item_ids: NDArray[Any]
    """Shape (M,), like all that follow but where another shape is named."""
    tasks: NDArray[Any]
    hashes: NDArray[Any] | None = None
    discrimination: FloatArray
    intercept: FloatArray
    """d = -ab."""
    guessing: FloatArray
    upper: FloatArray
    item_covariance: FloatArray | None = None
    """Shape (M, p, p), p at least 2: of a and d first."""
    dispersion: FloatArray | None = None
    """Variance of scores over that of right or wrong answers; 1 where None."""
    misfit_loadings: FloatArray
    """λ, shape (M, K); K may be 0."""
    misfit: Mapping[str, float] = field(default_factory=dict[str, float])
    """Standard deviation of models' scores around all that the bank can say, by task; see
    `ALL_TASKS`. The interval of the full score holds it."""
    usable: NDArray[np.bool_]
    reasons: NDArray[Any]
    """Why an item is not asked; "" where it may be. It counts in the full score all the same."""
    item_fit: Mapping[str, FloatArray] = field(default_factory=dict[str, FloatArray])
    """Statistics of item fit, by name; each of shape (M,)."""
    cost: FloatArray | None = None
    """Of asking each item, such as tokens."""
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

    def __post_init__(self) -> None:
        m, n = len(self.item_ids), len(self.models)
        shapes = {"abilities": (n,), "scores": (n,)} | dict.fromkeys(_OF_ITEMS, (m,))
        for name, expected in shapes.items():
            found = np.shape(getattr(self, name))
            if found != expected:
                raise ValueError(f"{name} has shape {found}, expected {expected}")
        parameters = (self.discrimination, self.intercept, self.guessing, self.upper)
        if not all(np.isfinite(values).all() for values in parameters):
            raise ValueError("item parameters are not finite, expected numbers")
        if not self.ability_sd > 0:
            raise ValueError(f"ability_sd is {self.ability_sd}, expected above 0")

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
        a, d, c, u = np.broadcast_arrays(
            *(
                np.asarray(value, dtype=np.float64)
                for value in (discrimination, intercept, guessing, others.pop("upper", 1.0))
            )
        )
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

    @cached_property
    def items(self) -> Items:
        """Parameters as the curves need them."""
        covariance = self.item_covariance
        spread = np.zeros((len(self), 3))
        if covariance is not None:
            spread = np.stack(
                [covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]], axis=-1
            )
        return Items(
            self.discrimination,
            self.intercept,
            self.guessing,
            self.upper,
            # What is not known of an item's errors is left out. In memory every column lies in one
            # piece: curves of all items are computed column by column.
            np.asfortranarray(np.where(np.isfinite(spread).all(-1, keepdims=True), spread, 0.0)),
            np.asfortranarray(self.misfit_loadings),
            np.ones(len(self)) if self.dispersion is None else self.dispersion,
        )

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """Tasks in the order of their first item."""
        return tuple(dict.fromkeys(self.tasks.astype(str).tolist()))

    @cached_property
    def task_places(self) -> IntArray:
        """Place of each item's task among `task_names`, shape (M,)."""
        order = {name: place for place, name in enumerate(self.task_names)}
        return np.array([order[name] for name in self.tasks.astype(str).tolist()], dtype=np.int64)

    def keys(self) -> list[tuple[str, str]]:
        """Task and id of each item, as strings."""
        return list(
            zip(self.tasks.astype(str).tolist(), self.item_ids.astype(str).tolist(), strict=True)
        )

    def require_usable(self) -> None:
        """Raise DesignError, naming the reasons, where no item may be asked."""
        if self.usable.any():
            return
        if not len(self):
            raise DesignError("the bank holds no item: build it from logs with item scores")
        found, counts = np.unique(self.reasons.astype(str), return_counts=True)
        why = ", ".join(f"{reason} ({n})" for reason, n in zip(found, counts, strict=True))
        msg = f"none of the bank's {len(self)} items may be asked: {why}"
        raise DesignError(f"{msg}; calibrate it from logs of more models, or of this task version")

    def without(self, left_out: NDArray[np.bool_], reason: str) -> ItemBank:
        """Return a bank that does not ask some items, given as a mask of shape (M,)."""
        reasons = np.where(left_out & (self.reasons == ""), reason, self.reasons).astype(object)
        return replace(self, usable=self.usable & ~left_out, reasons=reasons)

    def of_tasks(self, tasks: Sequence[str]) -> ItemBank:
        """Return the bank of some tasks alone."""
        return self.subset(np.isin(self.tasks.astype(str), list(tasks)))

    def subset(self, kept: NDArray[np.bool_]) -> ItemBank:
        """Return the bank of the items of a mask, shape (M,)."""
        names = (
            "item_ids", "tasks", "hashes", "discrimination", "intercept", "guessing", "upper",
            "item_covariance", "dispersion", "misfit_loadings", "usable", "reasons", "cost",
        )  # fmt: skip
        old = {name: getattr(self, name) for name in names}
        new = {name: None if value is None else value[kept] for name, value in old.items()}
        fit = {name: values[kept] for name, values in self.item_fit.items()}
        return replace(self, **new, item_fit=fit)

    def matched(
        self,
        tasks: Sequence[str],
        item_ids: Sequence[str],
        hashes: Sequence[str | None] | None = None,
    ) -> ItemBank:
        """Return the bank for the items a harness has; what it lacks is not asked.

        Raises
        ------
        ItemConflictError
            An item has another hash: its question is not the one that was calibrated.
        DesignError
            The harness has none of the bank's items that may be asked.
        """
        known = {
            (str(task), str(item)): place
            for place, (task, item) in enumerate(zip(tasks, item_ids, strict=True))
        }
        places = np.array([known.get(key, -1) for key in self.keys()], dtype=np.int64)
        if hashes is not None:
            self._check_hashes(places, hashes)
        absent = places < 0
        found = self.without(absent, "not in the harness")
        note = f"{int(absent.sum())} of the bank's {len(self)} items are not in the harness"
        if (absent & self.usable).any() and not found.usable.any():
            names = few([" / ".join(key) for key in known], 3)
            raise DesignError(f"{note}, of those it has none may be asked; it has: {names}")
        return replace(found, notes=(*found.notes, note)) if absent.any() else found

    def _check_hashes(self, places: NDArray[np.int64], hashes: Sequence[str | None]) -> None:
        own = [None] * len(self) if self.hashes is None else self.hashes.tolist()
        other = [
            key
            for key, mine, place in zip(self.keys(), own, places, strict=True)
            if place >= 0
            and mine not in (None, "", "None")
            and hashes[place] not in (None, "", mine)
        ]
        if other:
            named = few([" / ".join(key) for key in other], 3)
            msg = f"{len(other)} items are other questions than in the bank (hash differs): {named}"
            msg += "; the bank was calibrated on another version of the task"
            raise ItemConflictError(f"{msg}: calibrate a bank from logs of this version")

    def to_frame(self) -> pd.DataFrame:
        """One line per item."""
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
        if self.cost is not None:
            table["cost"] = self.cost
        return pd.DataFrame(table | dict(self.item_fit))

    def save(self, path: str | Path) -> Path:
        """Write to one Parquet file: a line per item; the rest in its metadata."""
        from evalstats_plugin.adaptive.bank_file import save_bank

        return save_bank(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> ItemBank:
        """Read what `save` wrote.

        Raises
        ------
        LogError
            No such file, or not a bank.
        """
        from evalstats_plugin.adaptive.bank_file import load_bank

        return load_bank(Path(path))
