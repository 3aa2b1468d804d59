"""What crosses logs: the models of several logs compared, and which log each row is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalstats_plugin.analyses.compare import compare
from evalstats_plugin.analyses.rank import rank_sets
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Comparisons, RankSets
from evalstats_plugin.runs import choose_runs, is_model

MOST_RANKED = 200
"""Models of one task up to which their ranks are written into logs."""


class Crossed:
    """The comparisons of several logs' models, and which of them are about which log.

    There are none (`comparisons` is None) where no task was answered by two models.
    """

    def __init__(
        self, found: Mapping[str, Sequence[Responses]], baseline: str | None, **options: Any
    ) -> None:
        self._found = found
        kept, notes = choose_runs([r for each in found.values() for r in each], "latest")
        # A log that a later run replaces takes no part.
        self._kept = {id(r) for r in kept}
        places = {(r.model, r.task, r.metric) for r in kept}
        self.comparisons: Comparisons | None = None
        self.ranks: RankSets | None = None
        if len(places) > len({place[1:] for place in places}):
            named = _full_name(baseline, list(dict.fromkeys(r.model for r in kept)))
            compared = compare(kept, baseline=named, rng=0, **options)
            self.comparisons = replace(compared, notes=(*compared.notes, *notes))
            self._rank(kept)

    def _rank(self, kept: Sequence[Responses]) -> None:
        """Rank the models, unless they are too many: pairs grow as the square."""
        takers = Counter((r.task, r.metric) for r in kept)
        if max(takers.values()) <= MOST_RANKED:
            self.ranks = rank_sets(kept, rng=0)
        elif self.comparisons is not None:
            note = f"a task has more than {MOST_RANKED} models: no ranks, which rank_sets gives"
            self.comparisons = replace(self.comparisons, notes=(*self.comparisons.notes, note))

    def ranks_of_log(self, location: str) -> RankSets | None:
        """Return the ranks, among all models, on the tasks that a log holds."""
        if self.ranks is None:
            return None
        cells = {(r.task, r.metric) for r in self._found[location] if id(r) in self._kept}
        rows = tuple(row for row in self.ranks if (row.task, row.metric) in cells)
        return replace(self.ranks, rows=rows)

    def of_log(self, location: str) -> Comparisons | None:
        """Return the comparisons that a log's own model has a part in."""
        if self.comparisons is None:
            return None
        own = [r for r in self._found[location] if id(r) in self._kept]
        cells = {(r.model, r.task, r.metric) for r in own}
        names = {r.model for r in own}
        rows = tuple(
            row
            for row in self.comparisons
            if {(row.model_a, row.task, row.metric), (row.model_b, row.task, row.metric)} & cells
            # What is about several tasks is about each of their logs.
            or (row.kind != "task" and {row.model_a, row.model_b} & names)
        )
        return replace(self.comparisons, rows=rows)


def _full_name(model: str | None, models: Sequence[str]) -> str:
    """Return the label of a model, the first without one; a name nobody has stays as it is."""
    if model is None:
        return models[0]
    return next((label for label in models if is_model(label, model)), model)
