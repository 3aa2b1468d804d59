"""Takes laid out as items × epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.inspect_ai.early_stops import early_stops
from evalstats_plugin.adapters.inspect_ai.printable import printable
from evalstats_plugin.adapters.inspect_ai.takes import Take
from evalstats_plugin.errors import LogError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

_LONGEST_ID = 1000
_SPARSEST = 64
"""Cells per take: far fewer takes than items × epochs is no log of an evaluation."""


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Takes, and where each belongs."""

    takes: Sequence[Take]
    item_ids: NDArray[Any]
    """Shape (M,)."""
    rows: NDArray[np.intp]
    """Item of each take."""
    columns: NDArray[np.intp]
    """Epoch of each take, counted from 0."""
    n_epochs: int

    def spread(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Return values of the takes as an array of shape (M, R), NaN where there was no take."""
        scores = np.full((len(self.item_ids), self.n_epochs), math.nan)
        scores[self.rows, self.columns] = values
        return scores

    @property
    def questions(self) -> NDArray[Any]:
        """Fingerprints of the items, shape (M,); empty for an item nobody took."""
        found = [""] * len(self.item_ids)
        for row, take in zip(self.rows, self.takes, strict=True):
            found[row] = found[row] or take.question
        return np.asarray(found, dtype="S")

    def field(self, name: str) -> list[str | None]:
        """Return a field of the items, by their first take."""
        found: list[str | None] = [None] * len(self.item_ids)
        for row, take in zip(self.rows, self.takes, strict=True):
            value = take.fields.get(name)
            found[row] = value if found[row] is None and value is not None else found[row]
        return found

    def without_invalidated(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores with those of invalidated takes missing."""
        out = [t.invalidated for t in self.takes]
        scores[self.rows[out], self.columns[out]] = math.nan
        return scores

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Shape (M,): items of which not every take was invalidated."""
        taken = np.bincount(self.rows, minlength=len(self.item_ids))
        out = np.bincount(
            self.rows, weights=[t.invalidated for t in self.takes], minlength=len(self.item_ids)
        )
        return (taken == 0) | (out < taken)

    @property
    def notes(self) -> list[str]:
        """What happened to takes that have no score."""
        failed = sum(t.failed for t in self.takes)
        invalidated = sum(t.invalidated for t in self.takes)
        untaken = len(self.item_ids) - len(set(self.rows.tolist()))
        return [
            *([f"{failed} of {len(self.takes)} samples ended in an error"] if failed else []),
            *([f"{invalidated} invalidated samples are left out"] if invalidated else []),
            *([f"{untaken} items of the run have no sample"] if untaken else []),
        ]


def tabulate(takes: Sequence[Take], log: EvalLog, path: Path) -> Table:
    """Lay takes out: items in the order of the dataset, epochs as numbered.

    Items that a complete run did not take are there, without scores; those that an incomplete
    one did not get to, and those stopped early, are not.

    Raises
    ------
    LogError
        When two items share an id, as 1 and "1" do, of which Inspect logs one only.
    """
    planned = log.eval.dataset.sample_ids or []
    _check_ids([*planned, *(t.raw_id for t in takes)], path)
    latest = {(t.item, t.epoch): t for t in takes}
    there = {t.item for t in takes}
    in_order = (printable(str(i)) for i in planned)
    # What was stopped early was left out on purpose, and may be nearly all there is.
    done = log.status == "success"
    stopped = {printable(str(stop.id)) for stop in early_stops(log)}
    ids = dict.fromkeys(i for i in in_order if i in there or (done and i not in stopped))
    ids.update(dict.fromkeys(t.item for t in takes))
    epochs = {e: column for column, e in enumerate(sorted({e for _, e in latest}))}
    if len(ids) * len(epochs) > _SPARSEST * (len(takes) + _SPARSEST):
        msg = (
            f"{path} has {len(takes)} samples for {len(ids)} items in {len(epochs)} epochs, "
            "expected most items in each epoch"
        )
        raise LogError(msg)
    row_of = {item: row for row, item in enumerate(ids)}
    return Table(
        takes=tuple(latest.values()),
        item_ids=np.asarray(list(ids)),
        rows=np.asarray([row_of[item] for item, _ in latest], dtype=np.intp),
        columns=np.asarray([epochs[e] for _, e in latest], dtype=np.intp),
        n_epochs=len(epochs),
    )


def _check_ids(ids: Sequence[int | str], path: Path) -> None:
    names: dict[str, int | str] = {}
    for raw in ids:
        name = printable(str(raw))
        # In an array every text takes the room of the longest.
        if len(name) > _LONGEST_ID:
            msg = f"{path} has an item id of {len(name)} characters ({name[:40]}…)"
            raise LogError(f"{msg}, expected at most {_LONGEST_ID}")
        first = names.setdefault(name, raw)
        if first != raw:
            msg = (
                f"{path} has items {first!r} and {raw!r}, which are one and the same in a log; "
                "give them other ids and run again"
            )
            raise LogError(msg)
