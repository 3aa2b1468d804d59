"""Abilities across logs: a scale for each metric, and which rows are about which log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalstats_plugin.analyses.abilities import fit_irt
from evalstats_plugin.analyses.ability_data import irt_module, scored_part, short
from evalstats_plugin.analyses.ability_records import Abilities, ItemEstimate
from evalstats_plugin.analyses.ability_rows import abilities
from evalstats_plugin.analyses.items import prefixes
from evalstats_plugin.analyses.metric_fits import MetricFits
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.responses import Responses

_PARAMETERS = ("difficulty", "discrimination")


class CrossedAbilities:
    """One scale of ability for each metric, over all tasks of several logs.

    A metric under which no scale can be had, because models share no items or nothing tells them
    apart, is left out with a note.

    Raises
    ------
    DesignError
        No metric has a scale, or torch is not installed.
    """

    def __init__(
        self,
        found: Mapping[str, Sequence[Responses]],
        *,
        confidence_level: float = 0.95,
        items: bool = False,
    ) -> None:
        # With torch loaded, fits that are shared out keep to one thread.
        irt_module("data")

        def scale(under: ResponseSet) -> Abilities:
            return _scale(under, confidence_level, items=items)

        self._found = found
        self._scales = MetricFits(
            found, scale, nothing="no metric has a scale of ability", missing="no ability"
        )

    def of_log(self, location: str) -> Abilities:
        """Return the abilities of the models of a log, and the items to look at of its tasks."""
        own, of_metric = self._scales.of_log(location)
        cells = {(r.model, short(r.metric)) for r in own}
        tasks = {(r.task, short(r.metric)) for r in own}
        scales = of_metric.values()
        notes = [
            f"ability on {m}: {note}" for m, scale in of_metric.items() for note in scale.notes
        ]
        return Abilities(
            rows=tuple(
                row for scale in scales for row in scale if (row.model, row.metric) in cells
            ),
            notes=(*notes, *self._scales.notes),
            items=tuple(
                item
                for scale in scales
                for item in scale.flagged
                if (item.task, item.metric) in tasks
            ),
        )

    def of_items(self, tasks: frozenset[str]) -> dict[str, dict[str, float | str]]:
        """Return what there is to write beside each item of some tasks, by its id as text.

        Names are as those of `item_statistics`: ``evalstats_difficulty``,
        ``evalstats_discrimination``, and ``evalstats_suspect`` where a person should look.
        """
        every = [r for each in self._found.values() for r in each if r.task in tasks]
        start = {short(metric): prefix for metric, prefix in prefixes(every).items()}
        written: dict[str, dict[str, float | str]] = {}
        for metric, scale in self._scales.by_metric.items():
            for item in scale.items:
                if item.task in tasks:
                    written.setdefault(item.item, {}).update(_statistics(item, start[metric]))
        return written


def _scale(responses: ResponseSet, level: float, *, items: bool) -> Abilities:
    matrix = scored_part(responses.matrix())
    return abilities(fit_irt(matrix, rng=0), matrix, confidence_level=level, items=items)


def _statistics(item: ItemEstimate, start: str) -> dict[str, float | str]:
    numbers = {start + name: getattr(item, name) for name in _PARAMETERS}
    known: dict[str, float | str] = {k: v for k, v in numbers.items() if v is not None}
    return known | ({f"{start}suspect": "; ".join(item.notes)} if item.notes else {})
