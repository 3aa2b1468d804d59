"""Abilities across logs: a scale for each metric, and which rows are about which log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalstats_plugin.analyses.abilities import fit_irt
from evalstats_plugin.analyses.ability_data import scored_part, short, usable
from evalstats_plugin.analyses.ability_records import Abilities, ItemEstimate
from evalstats_plugin.analyses.ability_rows import abilities
from evalstats_plugin.analyses.items import prefixes
from evalstats_plugin.errors import DesignError
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.responses import Responses
from evalstats_plugin.runs import choose_runs
from evalstats_plugin.wording import few

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
        self._found = found
        every = [r for each in found.values() for r in each]
        kept, notes = choose_runs(every, "latest")
        # A log that a later run replaces takes no part.
        self._kept = {id(r) for r in kept}
        used, unused = usable(kept)
        self.scales: dict[str, Abilities] = {}
        failed: dict[str, DesignError] = {}
        for metric in dict.fromkeys(short(r.metric) for r in used):
            under = tuple(r for r in used if short(r.metric) == metric)
            try:
                self.scales[metric] = _scale(under, confidence_level, items=items)
            except DesignError as error:
                failed[metric] = error
        if not self.scales:
            reasons = few([f"{metric}: {error}" for metric, error in failed.items()], most=2)
            msg = f"no metric has a scale of ability: {reasons or 'no log holds scores of items'}"
            raise DesignError(msg)
        said = [f"no ability on {metric}: {error}" for metric, error in failed.items()]
        self._notes = (*notes, *unused, *said)

    def of_log(self, location: str) -> Abilities:
        """Return the abilities of the models of a log, and the items to look at of its tasks."""
        own = [r for r in self._found[location] if id(r) in self._kept]
        cells = {(r.model, short(r.metric)) for r in own}
        tasks = {(r.task, short(r.metric)) for r in own}
        metrics = dict.fromkeys(short(r.metric) for r in own)
        of_metric = {metric: self.scales[metric] for metric in metrics if metric in self.scales}
        scales = of_metric.values()
        notes = [
            f"ability on {m}: {note}" for m, scale in of_metric.items() for note in scale.notes
        ]
        return Abilities(
            rows=tuple(
                row for scale in scales for row in scale if (row.model, row.metric) in cells
            ),
            notes=(*notes, *self._notes),
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
        for metric, scale in self.scales.items():
            for item in scale.items:
                if item.task in tasks:
                    written.setdefault(item.item, {}).update(_statistics(item, start[metric]))
        return written


def _scale(responses: tuple[Responses, ...], level: float, *, items: bool) -> Abilities:
    matrix = scored_part(ResponseSet(responses).matrix())
    return abilities(fit_irt(matrix, rng=0), matrix, confidence_level=level, items=items)


def _statistics(item: ItemEstimate, start: str) -> dict[str, float | str]:
    numbers = {start + name: getattr(item, name) for name in _PARAMETERS}
    known: dict[str, float | str] = {k: v for k, v in numbers.items() if v is not None}
    return known | ({f"{start}suspect": "; ".join(item.notes)} if item.notes else {})
