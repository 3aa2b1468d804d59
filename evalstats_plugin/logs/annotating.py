"""Writing results back into logs: `annotate`, `annotate_results` and `strip`.

Each log is read and analysed (`_analyse_all`), then, once the analyses across logs are done, each
is written (`_write_all`); both run in parallel inside `workers`. A log that cannot be read or
written stops none of the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from evalstats_plugin.data.responses import TABULAR, Responses, Selection
from evalstats_plugin.data.runs import ResponseSet, label_models
from evalstats_plugin.errors import (
    ChangedError,
    DesignError,
    EvalStatsError,
    IncompleteLogError,
    LogError,
    PluginError,
    SelectionError,
    WriteError,
    counted,
    few,
    no_such,
)
from evalstats_plugin.hookspecs import FITS, Annotation, PartialScores
from evalstats_plugin.logs.reading import (
    adapters,
    as_path,
    find_logs,
    nothing_selected,
    read_log,
    read_results,
)
from evalstats_plugin.logs.withholding import as_logged
from evalstats_plugin.plugins import Plugins, load_plugins, strict
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.untrusted import echo_message
from evalstats_plugin.runtime.workers import n_workers, parallel_map
from evalstats_plugin.runtime.writing import (
    Revision,
    changed_error,
    check_free,
    check_inside,
    overwriting,
    revision,
)
from evalstats_plugin.scores.rows import Intervals

if TYPE_CHECKING:
    from evalstats_plugin.logs.together import Crossed, CrossedAbilities, CrossedCapabilities


ItemStatistics = Mapping[str, Mapping[str, float | str]]
"""By item: statistics by name."""

Analysis = Callable[[Sequence[Responses]], Intervals]

_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds to wait before logs that another program changed meanwhile are read again."""

OnBroken = Callable[[Path, EvalStatsError], None]
"""Called with each log that was left out, and why."""


def annotate(
    *paths: str | Path,
    output: str | Path | None = None,
    in_place: bool = False,
    rescore: bool = False,
    allow_partial: bool = False,
    overwrite: bool = False,
    compare: bool | Mapping[str, Any] = False,
    baseline: str | None = None,
    items: Literal["no", "metadata", "columns"] = "no",
    fits: Collection[str] = (),
    at_k: Sequence[str] = (),
    selection: Selection | None = None,
    analysis: Analysis | None = None,
    plugins: Plugins | None = None,
    on_broken: OnBroken | None = None,
) -> list[Path]:
    """Write intervals into logs, or into copies of them; return the files written.

    Logs of runs that were cancelled or failed are skipped, unless they are named themselves. A log
    that cannot be read or written stops none of the others.

    Parameters
    ----------
    output
        Folder for annotated copies, laid out as the originals.
    in_place
        Replace the logs themselves, each atomically.
    rescore
        Replace logged values that the items contradict; the annotation keeps the old ones.
    allow_partial
        Also annotate logs that hold only a part of what was scored, such as those whose samples
        files were cut off, where values would be replaced or groups summed up; the annotation
        marks them, and their logged values stay.
    overwrite
        With `output`: replace files that exist.
    compare, baseline
        Also write how each log's model compares with a baseline on the same items: the named
        model, or the first of the logs. `compare` may hold arguments of
        `evalstats_plugin.compare`, such as the design.
    items
        Also write statistics of each item over all models, and with a baseline whether the log's
        model won, lost or tied on it: into its metadata, or in addition as columns of the
        harness's list of items.
    fits
        Models to fit per metric over all logs; each log gets what concerns its model.
        ``"irt"``: its ability; with `items` also difficulty, discrimination and why to inspect an
        item; in lm-eval's logs the results file lists the items to inspect. ``"pool"``: pooled
        scores from a hierarchical model, on each of its tasks and over all tasks.
        ``"capabilities"``: how much it has of what some items need beyond one ability; with `items`
        also how strongly an item needs it.
    at_k
        Also write scores at k answers per item, such as ``"pass@4"``, as of `at_k`.
    selection
        What to read of each log, such as its tasks or the field that groups its items. Logs that
        hold nothing of it are not written.
    analysis
        The analysis of one log: `intervals`, with other arguments by `functools.partial`. Inside
        `workers` several processes run it, so that `rng` should be a number.
    on_broken
        Called with each log that was left out: broken, cancelled, partial or not writable. Without
        it the first such error is raised, once all other logs are written.

    Raises
    ------
    WriteError
        Neither or both of ``output`` and ``in_place`` are given, a log holds only a part of what
        was scored, a copy exists, or writing fails.
    LogError
        A log cannot be read. With ``on_broken`` only if no log could be annotated.
    SelectionError
        No such model to fit.
    """
    for name in fits:
        if name not in FITS:
            raise SelectionError(no_such("model to fit", name, FITS, ", ".join(FITS)))
    from evalstats_plugin.runtime import VERSION

    using, analyse = plugins or load_plugins(), analysis or default_analysis()

    def once() -> _Outcome:
        targets = _targets(paths, output, in_place=in_place, plugins=using)
        states = {log: _revision(log) for log in targets}
        # Analyses across logs need all responses; without them one log at a time is in memory.
        together = bool(compare or baseline or fits or items != "no")
        chosen = selection or Selection()
        run = partial(_analyse, chosen, tuple(at_k), analyse, using, keep=together, rescore=rescore)
        seen, broken = _analyse_all(list(targets), run, plugins=using)
        if not allow_partial:
            broken |= _not_whole(seen, rescore=rescore)
            seen = {log: analysed for log, analysed in seen.items() if log not in broken}
        if on_broken is None:
            named = set(map(str, paths))
            broken = {
                log: error
                for log, error in broken.items()
                if str(log) in named or not isinstance(error, IncompleteLogError)
            }
        if not seen:
            rest = [LogFile(log) for log in targets if log not in broken]
            if rest and selection is not None:
                raise nothing_selected(rest, selection, using)
            return _Outcome([], broken, len(targets))
        if all(analysed.unfit for analysed in seen.values()):
            raise next(analysed.unfit for analysed in seen.values() if analysed.unfit)
        responses_of = {log: analysed.responses for log, analysed in seen.items()}
        labelled = _labelled(responses_of) if together else {}
        crossed: Crossed | None = None
        if compare or baseline:
            from evalstats_plugin.logs.together import Crossed

            crossed = Crossed(
                labelled, baseline, **(compare if isinstance(compare, Mapping) else {})
            )
        results = {log: analysed.intervals for log, analysed in seen.items()}
        scales = pooled = capabilities = None
        if fits:
            # They load SciPy and torch.
            from evalstats_plugin.logs import together as fitted

            level = next((row.confidence_level for each in results.values() for row in each), 0.95)
            if "irt" in fits:
                scales = fitted.CrossedAbilities(
                    labelled, confidence_level=level, items=items != "no"
                )
            if "pool" in fits:
                pooled = fitted.CrossedScores(labelled, confidence_level=level)
            if "capabilities" in fits:
                capabilities = fitted.CrossedCapabilities(labelled)
        of_fits = [fit for fit in (scales, capabilities) if fit is not None]
        statistics = _items(responses_of, of_fits) if items != "no" else {}
        annotations = {
            log: Annotation(
                results[log],
                VERSION,
                rescore,
                crossed.of_log(str(log)) if crossed else None,
                crossed.ranks_of_log(str(log)) if crossed else None,
                _of_items(statistics[_tasks(responses)], crossed, str(log))
                if items != "no"
                else None,
                items == "columns",
                scales.of_log(str(log)) if scales else None,
                pooled.of_log(str(log)) if pooled else None,
                capabilities.of_log(str(log)) if capabilities else None,
                seen[log].partial,
                crossed.baseline if crossed else "",
            )
            for log, responses in responses_of.items()
        }
        folder = as_path(output) if output else None
        written, unwritten = _write_all(
            annotations, targets, states, using, folder, overwrite=overwrite
        )
        return _Outcome(written, broken | unwritten, len(targets))

    return _ended(*_until_unchanged(once, in_place=in_place), on_broken)


def strip(
    *paths: str | Path,
    output: str | Path | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    plugins: Plugins | None = None,
    on_broken: OnBroken | None = None,
) -> list[Path]:
    """Remove annotations; return the files written.

    This restores the original log byte for byte; later changes by others to an Inspect log stay.
    ``overwrite`` and ``on_broken`` are as of `annotate`.
    """
    using = plugins or load_plugins()

    def once() -> _Outcome:
        targets = _targets(paths, output, in_place=in_place, plugins=using)
        folder, nothing = as_path(output) if output else None, dict.fromkeys(targets)
        written, broken = _write_all(nothing, targets, {}, using, folder, overwrite=overwrite)
        return _Outcome(written, broken, len(targets))

    return _ended(*_until_unchanged(once, in_place=in_place), on_broken)


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
    rows = as_logged(analysis(responses.responses), _partial(responses.responses))
    annotation = Annotation(rows, VERSION)
    return plugins.call("evalstats_annotate_results", results=results, annotation=annotation)


def default_analysis() -> Analysis:
    """Return `intervals` with its defaults and seed 0, so that annotating is reproducible."""
    from evalstats_plugin.scores.intervals import intervals

    return partial(intervals, rng=0)


class _Outcome(NamedTuple):
    """What became of the logs."""

    written: list[Path]
    broken: Mapping[Path, EvalStatsError]
    n_logs: int


def _until_unchanged(once: Callable[[], _Outcome], *, in_place: bool) -> _Outcome:
    """Do it again while other programs change logs between their reading and their writing.

    What is written already stays as it is, because the same numbers make the same log.
    """
    for pause in _PAUSES if in_place else ():
        outcome = once()
        changed = [str(p) for p, e in outcome.broken.items() if isinstance(e, ChangedError)]
        if not changed:
            return outcome
        echo_message("note", f"changed by another program meanwhile, read again: {few(changed)}")
        time.sleep(pause)
    return once()


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
        raise WriteError(
            "nowhere to write to: give an output folder (-o) or --in-place"
            if output is None
            else "an output folder (-o) and --in-place do not go together: give one of them"
        )
    targets: dict[Path, Path] = {}
    for given in paths:
        for log in find_logs([given], plugins):
            root = as_path(given) if as_path(given).is_dir() else log.parent
            targets[log] = log if output is None else as_path(output) / log.relative_to(root)
    # Two names that differ in case alone are one file on a Mac and on Windows.
    names = {(str(target).casefold(), log.parent) for log, target in targets.items()}
    same = Counter(name for name, _ in names)
    clashes = sum(n for n in same.values() if n > 1)
    if output is not None and clashes:
        msg = f"{clashes} logs would overwrite each other in {output}: annotate their common folder"
        raise WriteError(msg)
    return targets


class _Analysed(NamedTuple):
    """A log that was read."""

    responses: Sequence[Responses]
    """Empty unless they are kept for analyses across logs."""
    intervals: Intervals
    partial: Sequence[PartialScores]
    runs: frozenset[str]
    """Ids of its runs, where known."""
    unfit: DesignError | None
    """Why it has no scores at k answers, if these were asked for."""


def _analyse_all(
    logs: Sequence[Path],
    run: Callable[[Path], _Analysed | EvalStatsError | None],
    *,
    plugins: Plugins,
) -> tuple[dict[Path, _Analysed], dict[Path, EvalStatsError]]:
    """Read and analyse each log; return the results, and why others are left out."""
    seen: dict[Path, _Analysed] = {}
    broken: dict[Path, EvalStatsError] = {}
    outcomes = parallel_map(run, logs, here=not plugins.installed)
    for log, outcome in zip(logs, outcomes, strict=True):
        if isinstance(outcome, _Analysed):
            seen[log] = outcome
        elif outcome is not None:
            broken[log] = outcome
    # Another log may have taken a cancelled run to its end.
    done = {run for analysed in seen.values() for run in analysed.runs} - {""}
    return seen, {
        log: error
        for log, error in broken.items()
        if not (isinstance(error, IncompleteLogError) and error.run in done)
    }


def _analyse(
    selection: Selection,
    at_k: tuple[str, ...],
    analysis: Analysis,
    plugins: Plugins,
    log: Path,
    *,
    keep: bool,
    rescore: bool,
) -> _Analysed | EvalStatsError | None:
    """Read and analyse one log; None if it holds nothing that was selected."""
    try:
        responses = read_log(log, selection, plugins)
        if any(r.source.harness == TABULAR for r in responses):
            return WriteError(
                f"{log} is a table of scores, which has no place for intervals: 'report {log} "
                f"--format csv' prints scores with their intervals, 'export {log} --to "
                "every-eval-ever --intervals -o FOLDER' writes both"
            )
        responses, unfit = _at_k(responses, at_k)
        if not responses and (selection.tasks or selection.metrics):
            return None
        partial = _partial(responses)
        runs = frozenset(r.source.run for r in responses)
        rescored = _rescored(responses) if rescore else ()
        rows = as_logged(analysis(responses), partial, rescored)
        return _Analysed(responses if keep else (), rows, partial, runs, unfit)
    except (LogError, DesignError) as error:
        return error
    except PluginError as error:
        if strict():
            raise
        return error


def _partial(responses: Sequence[Responses]) -> list[PartialScores]:
    return [
        PartialScores(r.task, r.metric, len(r.item_ids), r.measure.n_cut, r.provenance.is_altered)
        for r in responses
        if not r.is_whole
    ]


def _rescored(responses: Sequence[Responses]) -> set[tuple[str, str]]:
    """Tasks and groups with the metrics whose logged values rescoring replaces."""
    means = [r for r in responses if r.measure.aggregation == "mean" and len(r.item_ids)]
    return {(name, r.metric) for r in means for name in (r.task, *(g.name for g in r.groups))}


def _at_k(
    responses: list[Responses], names: tuple[str, ...]
) -> tuple[list[Responses], DesignError | None]:
    """Add scores at k answers, or return why the log has none."""
    if not (names and responses):
        return responses, None
    from evalstats_plugin.scores.epochs import with_at_k

    try:
        return list(with_at_k(ResponseSet(tuple(responses)), names)), None
    except DesignError as error:
        return responses, error


def _not_whole(seen: Mapping[Path, _Analysed], *, rescore: bool) -> dict[Path, WriteError]:
    """Refuse logs that lack a part, if values would be replaced or groups summed up."""
    refused: dict[Path, WriteError] = {}
    for log, analysed in seen.items():
        if not analysed.partial or not (
            rescore or any(row.kind == "group" for row in analysed.intervals)
        ):
            continue
        parts = {
            row.task: f"{row.n_items} of {counted(row.n_items + row.n_missing, 'item')}"
            if row.n_missing
            else "altered"
            for row in analysed.partial
        }
        named = few([f"{task} ({part})" for task, part in parts.items()])
        msg = (
            f"{log} holds only a part of what was scored: {named}. Bring back the whole log, or "
            "pass --allow-partial (in Python: allow_partial=True) to annotate what is there and "
            "mark it"
        )
        refused[log] = WriteError(msg)
    return refused


def _ended(
    written: list[Path],
    broken: Mapping[Path, EvalStatsError],
    n_logs: int,
    on_broken: OnBroken | None,
) -> list[Path]:
    """Return the files written, or raise the first error, having reported the logs left out."""
    if not broken:
        return written
    first = next(iter(broken.values()))
    if on_broken is not None and written:
        for log, error in broken.items():
            on_broken(log, error)
        return written
    if n_logs == 1:
        raise first
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    raise type(first)(f"{first}{more}; {len(written)} of {n_logs} logs were written") from first


def _labelled(responses_of: Mapping[Path, Sequence[Responses]]) -> dict[str, list[Responses]]:
    """Responses by log, with models of one name in several logs labelled by their paths."""
    labelled = iter(label_models(r for each in responses_of.values() for r in each))
    return {str(log): [next(labelled) for _ in each] for log, each in responses_of.items()}


def _of_items(statistics: ItemStatistics, crossed: Crossed | None, log: str) -> ItemStatistics:
    """Add to the statistics of items how a log's own model did against the baseline."""
    if crossed is None:
        return statistics
    outcomes = crossed.outcomes_of_log(log)
    return {item: {**values, **outcomes.get(item, {})} for item, values in statistics.items()}


def _items(
    responses_of: Mapping[Path, Sequence[Responses]],
    fits: Sequence[CrossedAbilities | CrossedCapabilities],
) -> dict[frozenset[str], dict[str, dict[str, float | str]]]:
    """Statistics of items by the set of tasks that a log holds, over all logs of these tasks."""
    from evalstats_plugin.scores.items import item_statistics

    every = [r for each in responses_of.values() for r in each]
    held = {_tasks(responses) for responses in responses_of.values()}
    statistics: dict[frozenset[str], dict[str, dict[str, float | str]]] = {}
    for tasks in held:
        classical = item_statistics([r for r in every if r.task in tasks])
        fitted = [fit.of_items(tasks) for fit in fits]
        statistics[tasks] = {
            item: {**values, **{k: v for each in fitted for k, v in each.get(item, {}).items()}}
            for item, values in classical.items()
        }
    return statistics


def _tasks(responses: Sequence[Responses]) -> frozenset[str]:
    return frozenset(r.task for r in responses)


class _Writing(NamedTuple):
    """A log to be written."""

    log: Path
    annotation: Annotation | None
    target: Path
    state: Revision | None
    """Revision when it was read; None if changes since then do not matter."""


def _write_all(
    annotations: Mapping[Path, Annotation | None],
    targets: Mapping[Path, Path],
    states: Mapping[Path, Revision | None],
    plugins: Plugins,
    folder: Path | None,
    *,
    overwrite: bool,
) -> tuple[list[Path], dict[Path, EvalStatsError]]:
    """Write each log, unless it has changed since it was read; return the files, and the errors."""
    each = [_Writing(log, a, targets[log], states.get(log)) for log, a in annotations.items()]
    together = [each] if _overlapping(each) else [[writing] for writing in each]
    several = plugins.installed and n_workers() > 1
    written: list[Path] = []
    failed: dict[Path, EvalStatsError] = {}
    run = partial(_write_some, plugins, folder, overwrite=overwrite)
    for paths, errors in parallel_map(run, together, here=not several):
        written += paths
        failed |= errors
    return written, failed


def _overlapping(each: Sequence[_Writing]) -> bool:
    """Whether one log has several names, by links, or overwrites another."""
    local = [writing for writing in each if not getattr(writing.log, "protocol", "")]
    logs = [writing.log.resolve() for writing in local]
    targets = [writing.target.resolve() for writing in local]
    read = set(logs)
    over_another = any(a != b and b in read for a, b in zip(logs, targets, strict=True))
    return over_another or len(read) < len(logs) or len(set(targets)) < len(targets)


def _write_some(
    plugins: Plugins, folder: Path | None, some: Sequence[_Writing], *, overwrite: bool
) -> tuple[list[Path], dict[Path, EvalStatsError]]:
    """Write logs in order; return the files written, and the errors of the others."""
    written: list[Path] = []
    failed: dict[Path, EvalStatsError] = {}
    # One log may have several names, by links: our own writing is no change.
    ours: set[Path] = set()
    for log, annotation, target, state in some:
        try:
            if state is not None and log.resolve() not in ours and _revision(log) != state:
                raise changed_error(log)
            with overwriting(allowed=overwrite or folder is None):
                # Links may lead outside; a copy on disk may be this very one.
                if folder is not None and not getattr(folder, "protocol", ""):
                    check_inside(target, folder)
                elif folder is not None:
                    check_free(target)
                written.append(write_annotated(log, annotation, target, plugins))
        except EvalStatsError as error:
            failed[log] = error
            continue
        if state is not None:
            ours.add(target.resolve())
    return written, failed


def _revision(log: Path) -> Revision | None:
    """Revision of a log, to notice changes; None for one that is not on a local disk."""
    return None if getattr(log, "protocol", "") else revision(log)


def write_annotated(
    log: Path, annotation: Annotation | None, target: Path, plugins: Plugins
) -> Path:
    """Write one log with an annotation, or without one, through its adapter."""
    written = plugins.call("evalstats_annotate_log", path=log, annotation=annotation, output=target)
    if written is None:
        why = "".join(f"; {p.name}: {p.read_only}" for p in plugins.listing if p.read_only)
        raise LogError(
            f"{log}: no installed adapter annotates logs of this kind (those of "
            f"{adapters(plugins, 'evalstats_annotate_log')} can be{why})"
        )
    return written
