"""Results back into logs: `annotate`, `strip` and their in-memory twin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evalstats_plugin import atomic
from evalstats_plugin.errors import EvalStatsError, IncompleteLogError, LogError, WriteError
from evalstats_plugin.logs import adapters, as_path, find_logs, read_log, read_results
from evalstats_plugin.plugins import Annotation, Plugins, load
from evalstats_plugin.responses import TABLES, Responses, Selection
from evalstats_plugin.results import Comparisons, Intervals, RankSets
from evalstats_plugin.runs import label_models
from evalstats_plugin.wording import few

if TYPE_CHECKING:
    from evalstats_plugin.analyses.ability_crossing import CrossedAbilities
    from evalstats_plugin.analyses.hierarchical_crossing import CrossedScores

Analysis = Callable[[Sequence[Responses]], Intervals]


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
        What to write: `intervals`, with arguments fixed by `functools.partial` where wanted.

    Raises
    ------
    WriteError
        When neither or both of ``output`` and ``in_place`` are given, or writing fails.
    """
    from evalstats_plugin import __version__

    plugins = plugins or load()
    analysis = analysis or default_analysis()
    targets = _targets(paths, output, in_place=in_place, plugins=plugins)
    states = {log: _state(log) for log in targets}
    found = _read_all(targets, set(map(str, paths)), selection or Selection(), plugins)
    _refuse_tables(found)
    together = compare or baseline or irt or hierarchical
    labelled = _labelled(found) if together else {}
    options: Mapping[str, Any] = compare if isinstance(compare, Mapping) else {}
    about = _comparisons(labelled, baseline, options) if compare or baseline else {}
    results = {log: analysis(responses) for log, responses in found.items()}
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
    return _write_all(annotations, targets, states, plugins)


def _state(log: Path) -> atomic.Revision | None:
    """What tells whether a log has changed; None for one that is not on disk."""
    return None if getattr(log, "protocol", "") else atomic.revision(log)


def _write_all(
    annotations: Mapping[Path, Annotation | None],
    targets: Mapping[Path, Path],
    states: Mapping[Path, atomic.Revision | None],
    plugins: Plugins,
) -> list[Path]:
    """Write each log, unless it has changed since it was read."""
    written: list[Path] = []
    # One log may have several names, by links: what we wrote ourselves has not been changed.
    ours: set[Path] = set()
    for log, annotation in annotations.items():
        try:
            state = states.get(log)
            if state is not None and log.resolve() not in ours and _state(log) != state:
                raise atomic.changed(log)
            written.append(write(log, annotation, targets[log], plugins))
        except EvalStatsError as error:
            if written:
                done = f"{len(written)} of {len(annotations)} logs were written before it"
                raise type(error)(f"{error}; {done}") from error
            raise
        if state is not None:
            ours.add(targets[log].resolve())
    return written


def _read_all(
    logs: Iterable[Path], named: set[str], selection: Selection, plugins: Plugins
) -> dict[Path, list[Responses]]:
    found: dict[Path, list[Responses]] = {}
    for log in logs:
        try:
            found[log] = read_log(log, selection, plugins)
        except IncompleteLogError:
            if str(log) in named:
                raise
    return found


def _refuse_tables(found: Mapping[Path, Sequence[Responses]]) -> None:
    """Raise `WriteError` for what has no place for intervals, before anything is written."""
    tables = [
        str(log) for log, each in found.items() if any(r.source.harness == TABLES for r in each)
    ]
    if tables:
        msg = (
            f"{few(tables)}: a table of scores has no place for intervals, expected logs of a "
            f"harness: 'report {tables[0]} --format csv' prints scores with their intervals, "
            f"'export {tables[0]} --to every-eval-ever --intervals -o FOLDER' writes both"
        )
        raise WriteError(msg)


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

    What is left of an lm-eval log is the original, byte for byte; Inspect keeps a history of edits.
    """
    plugins = plugins or load()
    targets = _targets(paths, output, in_place=in_place, plugins=plugins)
    return _write_all(dict.fromkeys(targets), targets, {}, plugins)


def write(log: Path, annotation: Annotation | None, target: Path, plugins: Plugins) -> Path:
    """Write one log with an annotation, or without any, through the adapter that knows it."""
    written = plugins.call("evalstats_annotate_log", path=log, annotation=annotation, output=target)
    if written is None:
        msg = (
            f"{log}: no installed adapter annotates logs of this kind (those of "
            f"{adapters(plugins, 'evalstats_annotate_log')} can be)"
        )
        raise LogError(msg)
    return written


def _targets(
    paths: Sequence[str | Path],
    output: str | Path | None,
    *,
    in_place: bool,
    plugins: Plugins,
) -> Mapping[Path, Path]:
    """Where each log goes."""
    if (output is None) == (not in_place):
        found = "neither was" if output is None else "both were"
        msg = f"an output folder (-o) or --in-place is expected, {found} given"
        raise WriteError(msg)
    targets: dict[Path, Path] = {}
    for given in paths:
        for log in find_logs([given], plugins):
            root = as_path(given) if as_path(given).is_dir() else log.parent
            targets[log] = log if output is None else as_path(output) / log.relative_to(root)
    clashes = len(targets) - len(set(targets.values()))
    if clashes:
        msg = f"{clashes} logs would overwrite each other in {output}: annotate their common folder"
        raise WriteError(msg)
    return targets


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
