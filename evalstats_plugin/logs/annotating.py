"""Writing results back into logs: `annotate`, `annotate_results` and `strip`.

Each log is read and analysed (`_analyse_all`), then, once the analyses across logs are done, each
is written (`_write_all`); both run in parallel inside `workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from evalstats_plugin.comparisons.rows import Comparisons, RankSets
from evalstats_plugin.data.responses import TABULAR, Responses, Selection
from evalstats_plugin.data.runs import label_models
from evalstats_plugin.errors import EvalStatsError, IncompleteLogError, LogError, WriteError, few
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.logs.reading import adapters, as_path, find_logs, read_log, read_results
from evalstats_plugin.plugins import Plugins, load_plugins
from evalstats_plugin.runtime import files
from evalstats_plugin.runtime.workers import n_workers, parallel_map
from evalstats_plugin.scores.rows import Intervals

if TYPE_CHECKING:
    from evalstats_plugin.logs.together import CrossedAbilities


Analysis = Callable[[Sequence[Responses]], Intervals]


def annotate(
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
    """Write intervals into logs, or into copies of them; return the files written.

    Logs of runs that were cancelled or failed are skipped, unless they are named themselves.

    Parameters
    ----------
    output
        Folder for annotated copies, laid out as the originals.
    in_place
        Replace the logs themselves, each atomically.
    rescore
        Replace logged values that the items contradict; the annotation keeps the old ones.
    compare, baseline
        Also write how each log's model compares with a baseline on the same items: the named
        model, or the first of the logs. `compare` may hold arguments of
        `evalstats_plugin.compare`, such as the design.
    items
        Also write statistics of each item over all models: into its metadata, or in addition as
        columns of the harness's list of items.
    irt
        Also write the ability of each log's model, on one scale per metric over all logs; with
        `items` also difficulty, discrimination and why to inspect an item. In lm-eval's logs the
        results file lists the items to inspect.
    hierarchical
        Also write pooled scores, from a hierarchical model per metric over all logs: of each log's
        model on each of its tasks, and over all tasks.
    selection
        What to read of each log, such as the field that groups its items.
    analysis
        The analysis of one log: `intervals`, with other arguments by `functools.partial`. Inside
        `workers` several processes run it, so that `rng` should be a number.

    Raises
    ------
    WriteError
        Neither or both of ``output`` and ``in_place`` are given, or writing fails.
    """
    from evalstats_plugin.runtime import VERSION

    plugins = plugins or load_plugins()
    analysis = analysis or default_analysis()
    targets = _targets(paths, output, in_place=in_place, plugins=plugins)
    states = {log: _revision(log) for log in targets}
    # Analyses across logs need all responses; without them one log at a time is in memory.
    together = bool(compare or baseline or irt or hierarchical or items != "no")
    run = partial(_analyse, selection or Selection(), analysis, plugins, keep=together)
    seen = _analyse_all(list(targets), run, named=set(map(str, paths)), plugins=plugins)
    found = {log: one.responses for log, one in seen.items()}
    labelled = _labelled(found) if together else {}
    options: Mapping[str, Any] = compare if isinstance(compare, Mapping) else {}
    about = _comparisons(labelled, baseline, options) if compare or baseline else {}
    results = {log: one.intervals for log, one in seen.items()}
    scales = pooled = None
    if irt or hierarchical:
        # Both load SciPy and torch.
        from evalstats_plugin.logs.together import CrossedAbilities, CrossedScores

        level = next((row.confidence_level for each in results.values() for row in each), 0.95)
        if irt:
            scales = CrossedAbilities(labelled, confidence_level=level, items=items != "no")
        if hierarchical:
            pooled = CrossedScores(labelled, confidence_level=level)
    statistics = _items(found, scales) if items != "no" else {}
    annotations = {
        log: Annotation(
            results[log],
            VERSION,
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


def strip(
    *paths: str | Path,
    output: str | Path | None = None,
    in_place: bool = False,
    plugins: Plugins | None = None,
) -> list[Path]:
    """Remove annotations; return the files written.

    This restores the original log byte for byte; later changes by others to an Inspect log stay.
    """
    plugins = plugins or load_plugins()
    targets = _targets(paths, output, in_place=in_place, plugins=plugins)
    return _write_all(dict.fromkeys(targets), targets, {}, plugins)


def annotate_results(
    results: Mapping[str, Any], *, analysis: Analysis | None = None, plugins: Plugins | None = None
) -> Mapping[str, Any]:
    """Annotate results in memory, such as those of lm-eval's ``simple_evaluate``.

    The results given are not changed; the annotated ones share their parts.
    """
    from evalstats_plugin.runtime import VERSION

    plugins = plugins or load_plugins()
    analysis = analysis or default_analysis()
    responses = read_results(results, plugins=plugins)
    annotation = Annotation(analysis(responses.responses), VERSION)
    return plugins.call("evalstats_annotate_results", results=results, annotation=annotation)


def default_analysis() -> Analysis:
    """Return `intervals` with its defaults and seed 0, so that annotating is reproducible."""
    from evalstats_plugin.scores.intervals import intervals

    return partial(intervals, rng=0)


def _targets(
    paths: Sequence[str | Path],
    output: str | Path | None,
    *,
    in_place: bool,
    plugins: Plugins,
) -> Mapping[Path, Path]:
    """Return where each log is written.

    Raises
    ------
    WriteError
        Neither or both of ``output`` and ``in_place`` are given, or two logs have one target.
    """
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


class _Analysed(NamedTuple):
    """A log that was read."""

    responses: Sequence[Responses]
    """Empty unless they are kept for analyses across logs."""
    intervals: Intervals


def _analyse_all(
    logs: Sequence[Path],
    run: Callable[[Path], _Analysed | IncompleteLogError | None],
    *,
    named: set[str],
    plugins: Plugins,
) -> dict[Path, _Analysed]:
    """Read and analyse each log; skip cancelled and failed runs unless they are `named`.

    Raises
    ------
    LogError
        A log is broken.
    WriteError
        A log is a table, which has no place for intervals.
    """
    seen: dict[Path, _Analysed] = {}
    tables: list[Path] = []
    outcomes = parallel_map(run, logs, here=not plugins.installed)
    for log, outcome in zip(logs, outcomes, strict=True):
        if isinstance(outcome, _Analysed):
            seen[log] = outcome
        elif outcome is None:
            tables.append(log)
        elif str(log) in named:
            raise outcome
    if tables:
        msg = (
            f"{few([str(table) for table in tables])}: a table of scores has no place for "
            f"intervals, expected logs of a harness: 'report {tables[0]} --format csv' prints "
            f"scores with their intervals, 'export {tables[0]} --to every-eval-ever --intervals "
            "-o FOLDER' writes both"
        )
        raise WriteError(msg)
    return seen


def _analyse(
    selection: Selection, analysis: Analysis, plugins: Plugins, log: Path, *, keep: bool
) -> _Analysed | IncompleteLogError | None:
    """Read and analyse one log; None for a table."""
    try:
        responses = read_log(log, selection, plugins)
    except IncompleteLogError as error:
        return error
    if any(r.source.harness == TABULAR for r in responses):
        return None
    return _Analysed(responses if keep else (), analysis(responses))


def _labelled(found: Mapping[Path, Sequence[Responses]]) -> dict[str, list[Responses]]:
    """Responses by log, with models of one name in several logs labelled by their paths."""
    labelled = iter(label_models(r for each in found.values() for r in each))
    return {str(log): [next(labelled) for _ in each] for log, each in found.items()}


def _comparisons(
    labelled: Mapping[str, Sequence[Responses]], baseline: str | None, options: Mapping[str, Any]
) -> dict[str, tuple[Comparisons | None, RankSets | None]]:
    from evalstats_plugin.logs.together import Crossed

    crossed = Crossed(labelled, baseline, **options)
    return {log: (crossed.of_log(log), crossed.ranks_of_log(log)) for log in labelled}


def _items(
    found: Mapping[Path, Sequence[Responses]], scales: CrossedAbilities | None
) -> dict[frozenset[str], dict[str, dict[str, float | str]]]:
    """Statistics of items by the set of tasks that a log holds, over all logs of these tasks."""
    from evalstats_plugin.scores.items import item_statistics

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


def _tasks(responses: Sequence[Responses]) -> frozenset[str]:
    return frozenset(r.task for r in responses)


class _Writing(NamedTuple):
    """A log to be written."""

    log: Path
    annotation: Annotation | None
    target: Path
    state: files.Revision | None
    """Revision when it was read; None if changes since then do not matter."""


def _write_all(
    annotations: Mapping[Path, Annotation | None],
    targets: Mapping[Path, Path],
    states: Mapping[Path, files.Revision | None],
    plugins: Plugins,
) -> list[Path]:
    """Write each log, unless it has changed since it was read.

    In one process, stops at the first log that cannot be written; several processes write the
    others nevertheless.

    Raises
    ------
    WriteError, LogError
        A log cannot be written; the message says how many were.
    """
    each = [_Writing(log, a, targets[log], states.get(log)) for log, a in annotations.items()]
    together = [each] if _overlapping(each) else [[one] for one in each]
    several = plugins.installed and n_workers() > 1
    written: list[Path] = []
    failed: list[EvalStatsError] = []
    for paths, error in parallel_map(partial(_write_some, plugins), together, here=not several):
        written += paths
        if error is not None:
            failed.append(error)
            if not several:
                break
    if not failed:
        return written
    if not written:
        raise failed[0]
    when = "all the same" if several else "before it"
    done = f"{len(written)} of {len(each)} logs were written {when}"
    raise type(failed[0])(f"{failed[0]}; {done}") from failed[0]


def _overlapping(each: Sequence[_Writing]) -> bool:
    """Whether one log has several names, by links, or overwrites another."""
    local = [one for one in each if not getattr(one.log, "protocol", "")]
    logs = [one.log.resolve() for one in local]
    targets = [one.target.resolve() for one in local]
    read = set(logs)
    over_another = any(a != b and b in read for a, b in zip(logs, targets, strict=True))
    return over_another or len(read) < len(logs) or len(set(targets)) < len(targets)


def _write_some(
    plugins: Plugins, some: Sequence[_Writing]
) -> tuple[list[Path], EvalStatsError | None]:
    """Write logs in order up to the first error; return the files written, and the error."""
    written: list[Path] = []
    # One log may have several names, by links: our own writing is no change.
    ours: set[Path] = set()
    for log, annotation, target, state in some:
        try:
            if state is not None and log.resolve() not in ours and _revision(log) != state:
                raise files.changed_error(log)
            written.append(write_annotated(log, annotation, target, plugins))
        except EvalStatsError as error:
            return written, error
        if state is not None:
            ours.add(target.resolve())
    return written, None


def _revision(log: Path) -> files.Revision | None:
    """Revision of a log, to notice changes; None for one that is not on a local disk."""
    return None if getattr(log, "protocol", "") else files.revision(log)


def write_annotated(
    log: Path, annotation: Annotation | None, target: Path, plugins: Plugins
) -> Path:
    """Write one log with an annotation, or without one, through its adapter."""
    written = plugins.call("evalstats_annotate_log", path=log, annotation=annotation, output=target)
    if written is None:
        msg = (
            f"{log}: no installed adapter annotates logs of this kind (those of "
            f"{adapters(plugins, 'evalstats_annotate_log')} can be)"
        )
        raise LogError(msg)
    return written
