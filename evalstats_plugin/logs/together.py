"""Analyses across several logs, and the part of their results that belongs to each log.

* `Crossed`: comparisons of models and their ranks
* `CrossedAbilities`: item response models, one scale per metric
* `CrossedScores`: hierarchical models, one fit per metric
* `CrossedCapabilities`: sparse capabilities of items, one fit per metric
* `MetricFits`: what the last three share: one fit per metric over all models and tasks
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from evalstats_plugin.comparisons.compare import compare
from evalstats_plugin.comparisons.ranks import rank_sets
from evalstats_plugin.comparisons.rows import Comparisons, RankSets
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.data.runs import ResponseSet, choose_runs, is_model
from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.hierarchical.fit import HierarchicalFit
from evalstats_plugin.hierarchical.fitting import pool
from evalstats_plugin.hierarchical.rows import Capabilities, CapabilityLevel, PooledScores
from evalstats_plugin.irt.answers import scored_part, short_metric, usable
from evalstats_plugin.irt.fitting import NEEDING_TORCH, choose, fit_irt, is_light
from evalstats_plugin.irt.rows import Abilities, ItemEstimate, abilities
from evalstats_plugin.runtime.lazy import need_torch
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.scores.items import item_outcomes, prefixes

MOST_RANKED = 200
"""Models of one task up to which their ranks are written into logs."""

FitT = TypeVar("FitT")


class Crossed:
    """Comparisons of the models of several logs, and those that concern each log.

    `comparisons` is None if no task was answered by two models.
    """

    def __init__(
        self, by_log: Mapping[str, Sequence[Responses]], baseline: str | None, **options: Any
    ) -> None:
        self._found = by_log
        self.baseline = ""
        self._of_baseline: list[Responses] = []
        kept, notes = choose_runs([r for each in by_log.values() for r in each], "latest")
        # Logs that a later run replaces are left out.
        self._kept = {id(r) for r in kept}
        places = {(r.model, r.task, r.metric) for r in kept}
        self.comparisons: Comparisons | None = None
        self.ranks: RankSets | None = None
        if len(places) > len({place[1:] for place in places}):
            models = [r.model for r in kept]
            # Its first label, by default the first model's; an unknown name stays as it is.
            labels = [m for m in models if baseline is None or is_model(m, baseline)]
            self.baseline = labels[0] if labels else baseline or ""
            self._of_baseline = [r for r in kept if r.model == self.baseline]
            compared = compare(kept, baseline=self.baseline, rng=0, **options)
            self.comparisons = replace(compared, notes=(*compared.notes, *notes))
            # The number of pairs grows quadratically.
            n_models = Counter((r.task, r.metric) for r in kept)
            if max(n_models.values()) <= MOST_RANKED:
                self.ranks = rank_sets(kept, rng=0)
            else:
                note = f"a task has more than {MOST_RANKED} models: no ranks, which rank_sets gives"
                self.comparisons = replace(self.comparisons, notes=(*self.comparisons.notes, note))

    def ranks_of_log(self, location: str) -> RankSets | None:
        """Return the ranks, among all models, on the tasks that a log holds."""
        if self.ranks is None:
            return None
        cells = {(r.task, r.metric) for r in self._own(location)}
        rows = tuple(row for row in self.ranks if (row.task, row.metric) in cells)
        return replace(self.ranks, rows=rows)

    def outcomes_of_log(self, location: str) -> dict[str, dict[str, str]]:
        """Return by item whether a log's own model won, lost or tied against the baseline."""
        return item_outcomes(self._own(location), self._of_baseline)

    def _own(self, location: str) -> list[Responses]:
        return [r for r in self._found[location] if id(r) in self._kept]

    def of_log(self, location: str) -> Comparisons | None:
        """Return the comparisons that involve a log's own model."""
        if self.comparisons is None:
            return None
        own = self._own(location)
        cells = {(r.model, r.task, r.metric) for r in own}
        names = {r.model for r in own}
        rows = tuple(
            row
            for row in self.comparisons
            if {(row.model_a, row.task, row.metric), (row.model_b, row.task, row.metric)} & cells
            # A row over several tasks belongs to each of their logs.
            or (row.kind != "task" and {row.model_a, row.model_b} & names)
        )
        return replace(self.comparisons, rows=rows)


class CrossedAbilities:
    """Item response models of several logs: one scale of ability per metric, over all tasks.

    A metric that cannot be fitted, because models share no items or do not differ, is left out
    with a note.

    Raises
    ------
    DesignError
        No metric has a scale, or torch is needed and not installed.
    """

    def __init__(
        self,
        by_log: Mapping[str, Sequence[Responses]],
        *,
        confidence_level: float = 0.95,
        items: bool = False,
    ) -> None:
        each = [r for responses in by_log.values() for r in responses]
        for same in grouped(each, lambda r: short_metric(r.metric)).values():
            n_items = sum({r.task: len(r.item_ids) for r in same}.values())
            shape = len({r.model for r in same}), n_items
            if not is_light(choose("2pl", "auto", shape), shape):
                # With torch loaded, fits in worker processes keep to one thread.
                need_torch(NEEDING_TORCH)

        def scale(under: ResponseSet) -> Abilities:
            matrix = scored_part(under.matrix())
            fit = fit_irt(matrix, rng=0)
            return abilities(fit, matrix, confidence_level=confidence_level, items=items)

        self._scales = MetricFits(
            by_log, scale, nothing="no metric has a scale of ability", missing="no ability"
        )

    def of_log(self, location: str) -> Abilities:
        """Return the abilities of a log's models, and the items of its tasks to inspect."""
        own, of_metric = self._scales.of_log(location)
        cells = {(r.model, short_metric(r.metric)) for r in own}
        tasks = {(r.task, short_metric(r.metric)) for r in own}
        scales = of_metric.values()
        return Abilities(
            rows=tuple(
                row for scale in scales for row in scale if (row.model, row.metric) in cells
            ),
            notes=self._scales.notes_on("ability", {m: s.notes for m, s in of_metric.items()}),
            items=tuple(
                item
                for scale in scales
                for item in scale.flagged
                if (item.task, item.metric) in tasks
            ),
        )

    def of_items(self, tasks: frozenset[str]) -> dict[str, dict[str, float | str]]:
        """Return statistics to write beside each item of some tasks, by its id as text.

        Names are as those of `item_statistics`: ``evalstats_difficulty``,
        ``evalstats_discrimination``, and ``evalstats_suspect`` for items to inspect.
        """
        start = self._scales.prefixes(tasks)
        written: dict[str, dict[str, float | str]] = {}
        for metric, scale in self._scales.by_metric.items():
            for item in scale.items:
                if item.task in tasks:
                    written.setdefault(item.item, {}).update(_statistics(item, start[metric]))
        return written


def _statistics(item: ItemEstimate, start: str) -> dict[str, float | str]:
    numbers = {"difficulty": item.difficulty, "discrimination": item.discrimination}
    estimated: dict[str, float | str] = {
        start + name: number for name, number in numbers.items() if number is not None
    }
    return estimated | ({f"{start}suspect": "; ".join(item.notes)} if item.notes else {})


class CrossedScores:
    """Hierarchical models of several logs: one fit per metric, over all models and tasks.

    A metric whose scores are not in [0, 1] is left out with a note.

    Raises
    ------
    DesignError
        No metric can be fitted, or torch is not installed.
    """

    def __init__(
        self, by_log: Mapping[str, Sequence[Responses]], *, confidence_level: float = 0.95
    ) -> None:
        # With torch loaded, fits in worker processes keep to one thread.
        need_torch("hierarchical models")

        def fitted(under: ResponseSet) -> HierarchicalFit:
            return pool(under, confidence_level=confidence_level, rng=0)

        self._fits = MetricFits(
            by_log, fitted, nothing="no metric can be pooled", missing="no pooled score"
        )

    def of_log(self, location: str) -> PooledScores:
        """Return the pooled scores of a log's models, on its tasks and over all tasks."""
        own, fits = self._fits.of_log(location)
        cells = {(r.model, r.task, short_metric(r.metric)) for r in own}
        models = {(r.model, short_metric(r.metric)) for r in own}
        rows = tuple(
            row
            for metric, fit in fits.items()
            for row in fit
            if (row.model, row.task, metric) in cells
            or (row.task is None and (row.model, metric) in models)
        )
        notes = {metric: (fit.reason, *fit.notes) for metric, fit in fits.items()}
        return PooledScores(rows, self._fits.notes_on("pooled scores", notes))


class CrossedCapabilities:
    """Capabilities of items over several logs: one fit per metric, over all models and tasks.

    Raises
    ------
    DesignError
        No metric can be fitted, or torch is not installed.
    """

    def __init__(self, by_log: Mapping[str, Sequence[Responses]]) -> None:
        # With torch loaded, fits in worker processes keep to one thread.
        need_torch("capabilities")
        from evalstats_plugin.hierarchical.capabilities import find_capabilities

        def fitted(under: ResponseSet) -> Capabilities:
            return find_capabilities(scored_part(under.matrix()), rng=0)

        self._fits = MetricFits(
            by_log, fitted, nothing="no metric has capabilities", missing="no capabilities"
        )

    def of_log(self, location: str) -> Results[CapabilityLevel]:
        """Return how much of each capability a log's models have."""
        own, fits = self._fits.of_log(location)
        rows = tuple(
            row
            for metric, capabilities in fits.items()
            for model in dict.fromkeys(r.model for r in own)
            for row in capabilities.levels(model, metric)
        )
        notes = {metric: capabilities.notes for metric, capabilities in fits.items()}
        return Results(rows, self._fits.notes_on("capabilities", notes))

    def of_items(self, tasks: frozenset[str]) -> dict[str, dict[str, float | str]]:
        """Return how strongly items of some tasks need each capability, by their ids as text.

        Names are ``evalstats_capability1`` and so on; 0 where an item does not need it.
        """
        start = self._fits.prefixes(tasks)
        written: dict[str, dict[str, float | str]] = {}
        for metric, capabilities in self._fits.by_metric.items():
            names = {row.capability - 1: f"capability{row.capability}" for row in capabilities.rows}
            fit = capabilities.fit
            for task, item, code in zip(fit.tasks, fit.item_ids, fit.code.tolist(), strict=True):
                if task in tasks:
                    of = written.setdefault(str(item), {})
                    of |= {start[metric] + name: code[f] for f, name in names.items()}
        return written


class MetricFits(Generic[FitT]):
    """Fits by metric; a metric that cannot be fitted is left out with a note.

    Parameters
    ----------
    found
        Responses of each log.
    fit
        Raises `DesignError` if it cannot.
    nothing, missing
        Message if no metric can be fitted; start of the note on a metric that cannot.

    Raises
    ------
    DesignError
        No metric can be fitted.
    """

    def __init__(
        self,
        by_log: Mapping[str, Sequence[Responses]],
        fit: Callable[[ResponseSet], FitT],
        *,
        nothing: str,
        missing: str,
    ) -> None:
        self._found = by_log
        kept, notes = choose_runs([r for each in by_log.values() for r in each], "latest")
        # Logs that a later run replaces are left out.
        self._kept = {id(r) for r in kept}
        used, unused = usable(kept)
        by_metric = grouped(used, lambda r: short_metric(r.metric))
        under = (ResponseSet(tuple(own)) for own in by_metric.values())
        outcomes = parallel_map(partial(_outcome, fit), under)
        ended = dict(zip(by_metric, outcomes, strict=True))
        failed = {m: error for m, error in ended.items() if isinstance(error, DesignError)}
        self.by_metric = {m: fit for m, fit in ended.items() if not isinstance(fit, DesignError)}
        if not self.by_metric:
            reasons = few([f"{metric}: {error}" for metric, error in failed.items()], most=2)
            raise DesignError(f"{nothing}: {reasons or 'no log holds scores of items'}")
        said = [f"{missing} on {metric}: {error}" for metric, error in failed.items()]
        self.notes = (*notes, *unused, *said)

    def notes_on(self, what: str, notes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return the notes of some fits, by metric, and those on metrics without one."""
        own = [f"{what} on {m}: {note}" for m, of_metric in notes.items() for note in of_metric]
        return (*own, *self.notes)

    def of_log(self, location: str) -> tuple[list[Responses], dict[str, FitT]]:
        """Return a log's responses, and the fits of their metrics."""
        own = [r for r in self._found[location] if id(r) in self._kept]
        metrics = dict.fromkeys(short_metric(r.metric) for r in own)
        return own, {m: self.by_metric[m] for m in metrics if m in self.by_metric}

    def prefixes(self, tasks: frozenset[str]) -> dict[str, str]:
        """Return by metric how the names of statistics of these tasks' items begin."""
        every = [r for each in self._found.values() for r in each if r.task in tasks]
        return {short_metric(metric): prefix for metric, prefix in prefixes(every).items()}


def _outcome(fit: Callable[[ResponseSet], FitT], under: ResponseSet) -> FitT | DesignError:
    try:
        return fit(under)
    except DesignError as error:
        return error
