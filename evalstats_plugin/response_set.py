"""Everything that was read: many `Responses`, not yet joined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.matrix import OnConflict, ResponseMatrix
from evalstats_plugin.responses import Responses, Selection
from evalstats_plugin.runs import one_of_each

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, slots=True)
class ResponseSet:
    """Everything that was read, in the order of the logs."""

    responses: tuple[Responses, ...]
    notes: tuple[str, ...] = ()
    """What was dropped or could not be read, and why."""

    def __iter__(self) -> Iterator[Responses]:
        return iter(self.responses)

    def __len__(self) -> int:
        return len(self.responses)

    def matrix(
        self,
        *,
        task: str | None = None,
        metric: str | None = None,
        on_conflict: OnConflict = "error",
    ) -> ResponseMatrix:
        """Join into models × items × epochs, for one metric per task.

        Parameters
        ----------
        task, metric
            Names or patterns; a metric also by the part before its comma.
        on_conflict
            What to do when an item id stands for different questions in two logs:
            ``"error"`` names both logs, ``"drop"`` leaves such items out and says how many.
        """
        wanted = Selection((task,) if task else (), (metric,) if metric else ())
        chosen = [
            r
            for r in self.responses
            if r.scores.size
            and wanted.wants_task(r.task, *(g.name for g in r.groups))
            and wanted.wants_metric(r.metric)
        ]
        return ResponseMatrix.join(one_of_each(chosen), on_conflict=on_conflict)

    def to_frame(self) -> pd.DataFrame:
        """Tidy scores: model, task, metric, item, epoch, score, cluster; one take per line."""
        import pandas as pd

        columns = ["model", "task", "metric", "item", "epoch", "score", "cluster"]
        frames = [_tidy(r) for r in self.responses if r.scores.size]
        if not frames:
            return pd.DataFrame(columns=columns)
        return pd.concat(frames, ignore_index=True)[columns]


def _tidy(r: Responses) -> pd.DataFrame:
    import pandas as pd

    n_items, n_epochs = len(r.item_ids), int(r.scores.shape[1])
    columns: dict[str, Any] = {
        "model": r.model,
        "task": r.task,
        "metric": r.metric,
        "item": np.repeat(r.item_ids.astype(str), n_epochs),
        "epoch": np.tile(np.arange(n_epochs), n_items),
        "score": r.scores.ravel(),
        "cluster": None if r.clusters is None else np.repeat(r.clusters.astype(str), n_epochs),
    }
    return pd.DataFrame(columns)
