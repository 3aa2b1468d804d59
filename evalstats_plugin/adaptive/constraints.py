"""Which of the good items to take: content balanced over tasks, exposure held down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.stats.interval import FloatArray, IntArray
from evalstats_plugin.wording import no_such

Content: TypeAlias = Mapping[str, float] | Literal["tasks"] | None
"""Share of the questions by task; ``"tasks"``: as in the bank; None: whatever the rule likes."""


@dataclass(frozen=True)
class Randomesque:
    """One of the best `size` items, at random [KZ89]_."""

    size: int = 5

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SelectionError(f"randomesque of {self.size} items found, expected at least 1")


@dataclass(frozen=True, eq=False)
class SympsonHetter:
    """An item that is chosen is asked with its own probability, else the next best [SH85]_."""

    probability: FloatArray
    """Shape (M,); `simulate.exposure_control` finds them."""


Exposure: TypeAlias = Randomesque | SympsonHetter | None


@dataclass(frozen=True, eq=False)
class Targets:
    """Content balancing: the task furthest behind its share is next [KZ89]_."""

    own: NDArray[np.bool_]
    """Shape (T, M): items of each task."""
    share: FloatArray
    """Shape (T,)."""

    @classmethod
    def of(cls, bank: ItemBank, content: Content) -> Targets | None:
        """Targets of a bank.

        Raises
        ------
        SelectionError
            A task that is not in the bank, or shares that no question can have.
        """
        if content is None:
            return None
        own = bank.tasks.astype(str)[None, :] == np.asarray(bank.task_names)[:, None]
        if isinstance(content, str):
            if content != "tasks":
                raise SelectionError(f"content {content!r} found, expected 'tasks' or shares")
            return cls(own, own.mean(axis=1))
        for name, share in content.items():
            if name not in bank.task_names:
                shown = ", ".join(bank.task_names)
                raise SelectionError(no_such("task", name, bank.task_names, shown))
            if not 0 <= share < np.inf:
                raise SelectionError(f"share {share} of task {name!r}, expected 0 or above")
        share = np.array([float(content.get(name, 0.0)) for name in bank.task_names])
        if not share.sum() > 0:
            raise SelectionError("all shares of tasks are 0, expected one above 0")
        return cls(own, share / share.sum())

    def allowed(self, open_items: NDArray[np.bool_], asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Keep of the items open to each session, (S, M), those of the task that is due."""
        counts = asked.astype(np.float64) @ self.own.T
        behind = self.share * (counts.sum(axis=1, keepdims=True) + 1) - counts
        left = (open_items @ self.own.T) & (self.share > 0)
        due = np.where(left, behind, -np.inf).argmax(axis=1)
        found = open_items & self.own[due]
        # Where all tasks with a share are used up, whatever is left.
        return np.where(left.any(axis=1, keepdims=True), found, open_items)


def pick(
    worth: FloatArray,
    allowed: NDArray[np.bool_],
    exposure: Exposure,
    rng: np.random.Generator,
) -> IntArray:
    """Take one item for each session: shape (S,).

    Parameters
    ----------
    worth, allowed
        Shape (S, M); every session has an item allowed.
    """
    values = np.where(allowed, worth, -np.inf)
    if exposure is None:
        return values.argmax(axis=1)
    if isinstance(exposure, Randomesque):
        size = min(exposure.size, values.shape[1])
        best = np.argpartition(-values, size - 1, axis=1)[:, :size]
        open_ones = np.take_along_axis(allowed, best, axis=1)
        drawn = np.where(open_ones, rng.random(best.shape), -1.0).argmax(axis=1)
        return np.take_along_axis(best, drawn[:, None], axis=1)[:, 0]
    passed = rng.random(values.shape) < exposure.probability
    # Where no item passes, the best one has to do.
    passing = (passed & allowed).any(axis=1, keepdims=True)
    return np.where(passed | ~passing, values, -np.inf).argmax(axis=1)
