"""Pooled scores across logs: a hierarchical fit for each metric, and which rows are whose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalstats_plugin.analyses.ability_data import short, usable
from evalstats_plugin.analyses.hierarchical import fit_hierarchical
from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit
from evalstats_plugin.analyses.hierarchical_records import Performance
from evalstats_plugin.errors import DesignError
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Results
from evalstats_plugin.runs import choose_runs
from evalstats_plugin.wording import few

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
        self._found = found
        every = [r for each in found.values() for r in each]
        kept, notes = choose_runs(every, "latest")
        # A log that a later run replaces takes no part.
        self._kept = {id(r) for r in kept}
        used, unused = usable(kept)
        self.fits: dict[str, HierarchicalFit] = {}
        failed: dict[str, DesignError] = {}
        for metric in dict.fromkeys(short(r.metric) for r in used):
            under = ResponseSet(tuple(r for r in used if short(r.metric) == metric))
            try:
                self.fits[metric] = fit_hierarchical(
                    under, confidence_level=confidence_level, rng=0
                )
            except DesignError as error:
                failed[metric] = error
        if not self.fits:
            reasons = few([f"{metric}: {error}" for metric, error in failed.items()], most=2)
            msg = f"no metric can be pooled: {reasons or 'no log holds scores of items'}"
            raise DesignError(msg)
        said = [f"no pooled score on {metric}: {error}" for metric, error in failed.items()]
        self._notes = (*notes, *unused, *said)

    def of_log(self, location: str) -> PooledScores:
        """Return the pooled scores of the models of a log, over all tasks and on its own."""
        own = [r for r in self._found[location] if id(r) in self._kept]
        metrics = dict.fromkeys(short(r.metric) for r in own)
        fits = {metric: self.fits[metric] for metric in metrics if metric in self.fits}
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
        return PooledScores(rows, (*notes, *self._notes))
