"""Results back into logs: `annotate`, `strip` and their in-memory twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evalstats_plugin.annotated_logs import (
    Analysis,
    Look,
    look_at_all,
    state_of,
    targets_of,
    write_all,
)
from evalstats_plugin.logs import read_results
from evalstats_plugin.plugins import Annotation, Plugins, load
from evalstats_plugin.responses import Responses, Selection
from evalstats_plugin.results import Comparisons, Intervals, RankSets
from evalstats_plugin.runs import label_models

if TYPE_CHECKING:
    from evalstats_plugin.analyses.ability_crossing import CrossedAbilities
    from evalstats_plugin.analyses.hierarchical_crossing import CrossedScores


def default_analysis() -> Analysis:
    """Return `intervals` with its defaults and seed 0, so that annotating twice is the same."""
    from evalstats_plugin.analyses.intervals import intervals

    return partial(intervals, rng=0)


def annotate(  # noqa: PLR0913 - each is a choice of its own
    *paths: str | Path,
    output: str | Path | None = None,
    in_place: bool = False,
    rescore: bool = False,
    compare: bool | Mapping[str, Any] = False,
    baseline: str | None = None,
    items: Literal["no", "metadata", "columns"] = "no",
    irt: bool = False,
    hierarchical: bool = False,
    selection: Selection | None = None,
    analysis: Analysis | None = None,
    plugins: Plugins | None = None,
) -> list[Path]:
    """Write the intervals into the logs, or into copies of them; return the files written.

    Logs of runs that were cancelled or failed are passed over where they lie in a folder.

    Parameters
    ----------
    output
        Folder for annotated copies, laid out as the originals.
    in_place
        Replace the logs themselves; each is replaced as a whole or not at all.
    rescore
        Replace logged values that the items contradict, keeping the old ones in the annotation.
    compare, baseline
        Write into each log how its model compares with a baseline on the same items (`compare`
        may hold arguments of `evalstats_plugin.compare`, such as the design): the named
        one, or the first of the logs.
    items
        Write statistics of each item beside it, over all models here: into its metadata, or as
        columns of the harness's list of items too.
    irt
        Write into each log how able its model is, on one scale of ability for each metric over
        all logs here; with `items` also difficulty, discrimination and why to look at an item.
        In lm-eval's logs the items to look at are listed in the results file.
    hierarchical
        Write into each log what its model is expected to score on each of its tasks, and over all
        tasks of all logs here, when scores under one metric borrow from each other.
    selection
        What to read of each log, such as the field that groups its items.
    analysis
        What to write: `intervals`, with arguments fixed by `functools.partial` where wanted. Each
        log is analysed apart, inside `workers` by several processes: `rng` is best a number.

    Raises
    ------
    WriteError
        When neither or both of ``output`` and ``in_place`` are given, or writing fails.
    """
    from evalstats_plugin import __version__

    plugins = plugins or load()
    analysis = analysis or default_analysis()
    targets = targets_of(paths, output, in_place=in_place, plugins=plugins)
    states = {log: state_of(log) for log in targets}
    # What the logs tell together needs all of them; else one at a time is in memory.
    together = bool(compare or baseline or irt or hierarchical or items != "no")
    look = Look(selection or Selection(), analysis, plugins, keep=together)
    seen = look_at_all(targets, set(map(str, paths)), look)
    found = {log: one.responses for log, one in seen.items()}
    labelled = _labelled(found) if together else {}
    options: Mapping[str, Any] = compare if isinstance(compare, Mapping) else {}
    about = _comparisons(labelled, baseline, options) if compare or baseline else {}
    results = {log: one.intervals for log, one in seen.items()}
    scales = _scales(labelled, results, items=items != "no") if irt else None
    pooled = _pooled(labelled, results) if hierarchical else None
    statistics = _items(found, scales) if items != "no" else {}
    annotations = {
        log: Annotation(
            results[log],
            __version__,
            rescore,
            *about.get(str(log), (None, None)),
            statistics[_tasks(responses)] if items != "no" else None,
            items == "columns",
            scales.of_log(str(log)) if scales else None,
            pooled.of_log(str(log)) if pooled else None,
        )
        for log, responses in found.items()
    }
    return write_all(annotations, targets, states, plugins)


def _tasks(responses: Sequence[Responses]) -> frozenset[str]:
    return frozenset(r.task for r in responses)


def _items(
    found: Mapping[Path, Sequence[Responses]], scales: CrossedAbilities | None
) -> dict[frozenset[str], dict[str, dict[str, float | str]]]:
    """Statistics of the items of the tasks that logs hold together, from every log of them."""
    from evalstats_plugin.analyses.items import item_statistics

    every = [r for each in found.values() for r in each]
    held = {_tasks(responses) for responses in found.values()}
    statistics: dict[frozenset[str], dict[str, dict[str, float | str]]] = {}
    for tasks in held:
        classical = item_statistics([r for r in every if r.task in tasks])
        fitted = scales.of_items(tasks) if scales else {}
        statistics[tasks] = {
            item: {**values, **fitted.get(item, {})} for item, values in classical.items()
        }
    return statistics


def _labelled(found: Mapping[Path, Sequence[Responses]]) -> dict[str, list[Responses]]:
    """Tell apart models of one name in several logs, which are named by their paths."""
    labelled = iter(label_models(r for each in found.values() for r in each))
    return {str(log): [next(labelled) for _ in each] for log, each in found.items()}


def _comparisons(
    labelled: Mapping[str, Sequence[Responses]], baseline: str | None, options: Mapping[str, Any]
) -> dict[str, tuple[Comparisons | None, RankSets | None]]:
    from evalstats_plugin.analyses.crossing import Crossed

    crossed = Crossed(labelled, baseline, **options)
    return {log: (crossed.of_log(log), crossed.ranks_of_log(log)) for log in labelled}


def _scales(
    labelled: Mapping[str, Sequence[Responses]], results: Mapping[Path, Intervals], *, items: bool
) -> CrossedAbilities:
    """Return scales of ability at the confidence level of the intervals."""
    from evalstats_plugin.analyses.ability_crossing import CrossedAbilities

    return CrossedAbilities(labelled, confidence_level=_level(results), items=items)


def _pooled(
    labelled: Mapping[str, Sequence[Responses]], results: Mapping[Path, Intervals]
) -> CrossedScores:
    """Return pooled scores at the confidence level of the intervals."""
    from evalstats_plugin.analyses.hierarchical_crossing import CrossedScores

    return CrossedScores(labelled, confidence_level=_level(results))


def _level(results: Mapping[Path, Intervals]) -> float:
    return next((row.confidence_level for each in results.values() for row in each), 0.95)


def strip(
    *paths: str | Path,
    output: str | Path | None = None,
    in_place: bool = False,
    plugins: Plugins | None = None,
) -> list[Path]:
    """Take annotations out again.

    What is left of a log is the original, byte for byte; what others wrote into an Inspect log
    since then stays.
    """
    plugins = plugins or load()
    targets = targets_of(paths, output, in_place=in_place, plugins=plugins)
    return write_all(dict.fromkeys(targets), targets, {}, plugins)


def annotate_results(
    results: Mapping[str, Any], *, analysis: Analysis | None = None, plugins: Plugins | None = None
) -> Mapping[str, Any]:
    """Annotate what a harness returned in memory, such as lm-eval's ``simple_evaluate``.

    The results given are left as they are; the annotated ones share their parts.
    """
    from evalstats_plugin import __version__

    plugins = plugins or load()
    analysis = analysis or default_analysis()
    responses = read_results(results, plugins=plugins)
    annotation = Annotation(analysis(responses.responses), __version__)
    return plugins.call("evalstats_annotate_results", results=results, annotation=annotation)
