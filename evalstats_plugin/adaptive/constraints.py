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

BoolArray: TypeAlias = NDArray[np.bool_]
Content: TypeAlias = Mapping[str, float] | Literal["tasks"] | None
"""Share of the questions by task; ``"tasks"``: as in the bank; None: whatever the rule likes,
which for the rule ``"auto"`` means near the shares of the bank."""
_SLACK = 2.0
"""Items that a task may be ahead of its share for the rule ``"auto"``: the best items still come
first, and abilities of a kind of their own do not pass for the ability."""


@dataclass(frozen=True)
class Randomesque:
    """One of the best `size` items, at random [KZ89]_."""

    size: int = 5

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SelectionError(f"randomesque of {self.size} items found, expected at least 1")


@dataclass(frozen=True, eq=False)
class SympsonHetter:
    """An item that is chosen is asked with its own probability, else the next best [SH85]_.

    An item that was refused is refused for the whole test, so all items are drawn for before it
    [vdLV04]_.
    """

    probability: FloatArray
    """Shape (M,); `exposure.exposure_control` finds them."""


Exposure: TypeAlias = Randomesque | SympsonHetter | None


def eligible(exposure: Exposure, shape: tuple[int, int], rng: np.random.Generator) -> BoolArray:
    """Draw the items that S sessions may be asked at all: shape (S, M)."""
    if not isinstance(exposure, SympsonHetter):
        return np.ones(shape, dtype=np.bool_)
    return np.asarray(rng.random(shape) < exposure.probability)


def preferring(allowed: BoolArray, eligible_ones: BoolArray) -> BoolArray:
    """Keep of the items allowed, (S, M), those eligible; where there is none, all of them."""
    found = allowed & eligible_ones
    return np.where(found.any(axis=1, keepdims=True), found, allowed)


@dataclass(frozen=True, eq=False)
class Targets:
    """Content balancing: the task furthest behind its share is next [KZ89]_.

    With slack any task is allowed that is not so many items ahead of its share.
    """

    task: IntArray
    """Of each item, shape (M,)."""
    share: FloatArray
    """Shape (T,)."""
    slack: float | None = None

    @classmethod
    def of(cls, bank: ItemBank, content: Content, rule: str = "") -> Targets | None:
        """Targets of a bank, for a rule as it was asked for.

        Raises
        ------
        SelectionError
            A task that is not in the bank, or shares that no question can have.
        """
        loose = rule == "auto" and len(bank.task_names) > 1
        if content is None and not loose:
            return None
        task = bank.task_places
        in_bank = np.bincount(task) / len(bank)
        if content is None:
            return cls(task, in_bank, _SLACK)
        if isinstance(content, str):
            if content != "tasks":
                raise SelectionError(f"content {content!r} found, expected 'tasks' or shares")
            return cls(task, in_bank)
        for name, share in content.items():
            if name not in bank.task_names:
                shown = ", ".join(bank.task_names)
                raise SelectionError(no_such("task", name, bank.task_names, shown))
            if not 0 <= share < np.inf:
                raise SelectionError(f"share {share} of task {name!r}, expected 0 or above")
        share = np.array([float(content.get(name, 0.0)) for name in bank.task_names])
        if not share.sum() > 0:
            raise SelectionError("all shares of tasks are 0, expected one above 0")
        return cls(task, share / share.sum())

    def described(self, names: tuple[str, ...]) -> str:
        """Say how questions are shared out over the bank's tasks."""
        if self.slack is not None:
            return "near the shares of the bank"
        shares = zip(names, self.share.tolist(), strict=True)
        return ", ".join(f"{name} {share:.0%}" for name, share in shares if share > 0)

    def allowed(self, open_items: NDArray[np.bool_], asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Keep of the items open to each session, (S, M), those of the tasks that are due."""
        counts = self._counts(asked)
        behind = self.share * (counts.sum(axis=1, keepdims=True) + 1) - counts
        left = (self._counts(open_items) > 0) & (self.share > 0)
        due = np.where(left, behind, -np.inf)
        # Some task is always behind its share, or just on it.
        bar = due.max(axis=1, keepdims=True)
        bar = bar if self.slack is None else np.minimum(bar, 1 - self.slack)
        found = open_items & (left & (due >= bar)).take(self.task, axis=1)
        # Where all tasks with a share are used up, whatever is left.
        return np.where(left.any(axis=1, keepdims=True), found, open_items)

    def _counts(self, items: BoolArray) -> IntArray:
        """Items of a mask, (S, M), by task: shape (S, T)."""
        shape = len(items), len(self.share)
        codes = self.task + shape[1] * np.arange(shape[0])[:, None]
        return np.bincount(codes[items], minlength=shape[0] * shape[1]).reshape(shape)


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
    if not isinstance(exposure, Randomesque):
        return values.argmax(axis=1)
    size = min(exposure.size, values.shape[1])
    best = np.argpartition(-values, size - 1, axis=1)[:, :size]
    open_ones = np.take_along_axis(allowed, best, axis=1)
    drawn = np.where(open_ones, rng.random(best.shape), -1.0).argmax(axis=1)
    return np.take_along_axis(best, drawn[:, None], axis=1)[:, 0]
