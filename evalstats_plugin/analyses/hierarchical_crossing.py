"""Pooled scores across logs: a hierarchical fit for each metric, and which rows are whose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalstats_plugin.analyses.ability_data import short
from evalstats_plugin.analyses.hierarchical import fit_hierarchical
from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit
from evalstats_plugin.analyses.hierarchical_records import Performance
from evalstats_plugin.analyses.hierarchical_request import need_torch
from evalstats_plugin.analyses.metric_fits import MetricFits
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Results

PooledScores = Results[Performance]


class CrossedScores:
    """One hierarchical fit for each metric, over all models and tasks of several logs.

    A metric whose scores are not in [0, 1] is left out with a note.

    Raises
    ------
    DesignError
        No metric can be fitted, or torch is not installed.
    """

    def __init__(
        self, found: Mapping[str, Sequence[Responses]], *, confidence_level: float = 0.95
    ) -> None:
        # With torch loaded, fits that are shared out keep to one thread.
        need_torch()

        def fitted(under: ResponseSet) -> HierarchicalFit:
            return fit_hierarchical(under, confidence_level=confidence_level, rng=0)

        self._fits = MetricFits(
            found, fitted, nothing="no metric can be pooled", missing="no pooled score"
        )

    def of_log(self, location: str) -> PooledScores:
        """Return the pooled scores of the models of a log, over all tasks and on its own."""
        own, fits = self._fits.of_log(location)
        cells = {(r.model, r.task, short(r.metric)) for r in own}
        models = {(r.model, short(r.metric)) for r in own}
        rows = tuple(
            row
            for metric, fit in fits.items()
            for row in fit
            if (row.model, row.task, metric) in cells
            or (row.task is None and (row.model, metric) in models)
        )
        notes = [
            f"pooled scores on {metric}: {note}" for metric, fit in fits.items()
            for note in (fit.reason, *fit.notes)
        ]  # fmt: skip
        return PooledScores(rows, (*notes, *self._fits.notes))
