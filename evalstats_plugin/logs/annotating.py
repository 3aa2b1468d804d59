"""Results back into logs: `annotate`, `strip` and their in-memory twin."""
# PART annotated_logs - Logs that are annotated: each looked at, then each written, several at a time inside `workers`.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from evalstats_plugin.comparisons.rows import Comparisons, RankSets
from evalstats_plugin.data.responses import TABLES, Responses, Selection
from evalstats_plugin.data.runs import label_models
from evalstats_plugin.errors import EvalStatsError, IncompleteLogError, LogError, WriteError, few
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.logs.reading import adapters, as_path, find_logs, read_log, read_results
from evalstats_plugin.plugins import Plugins, load_plugins
from evalstats_plugin.runtime import files
from evalstats_plugin.runtime.workers import mapped, n_workers
from evalstats_plugin.scores.rows import Intervals

if TYPE_CHECKING:
    from evalstats_plugin.logs.together import CrossedAbilities, CrossedScores


Analysis = Callable[[Sequence[Responses]], Intervals]


def default_analysis() -> Analysis:
    """Return `intervals` with its defaults and seed 0, so that annotating twice is the same."""
    from evalstats_plugin.scores.intervals import intervals

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
    from evalstats_plugin.runtime import VERSION

    plugins = plugins or load_plugins()
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
    return write_all(annotations, targets, states, plugins)


def _tasks(responses: Sequence[Responses]) -> frozenset[str]:
    return frozenset(r.task for r in responses)


def _items(
    found: Mapping[Path, Sequence[Responses]], scales: CrossedAbilities | None
) -> dict[frozenset[str], dict[str, dict[str, float | str]]]:
    """Statistics of the items of the tasks that logs hold together, from every log of them."""
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


def _labelled(found: Mapping[Path, Sequence[Responses]]) -> dict[str, list[Responses]]:
    """Tell apart models of one name in several logs, which are named by their paths."""
    labelled = iter(label_models(r for each in found.values() for r in each))
    return {str(log): [next(labelled) for _ in each] for log, each in found.items()}


def _comparisons(
    labelled: Mapping[str, Sequence[Responses]], baseline: str | None, options: Mapping[str, Any]
) -> dict[str, tuple[Comparisons | None, RankSets | None]]:
    from evalstats_plugin.logs.together import Crossed

    crossed = Crossed(labelled, baseline, **options)
    return {log: (crossed.of_log(log), crossed.ranks_of_log(log)) for log in labelled}


def _scales(
    labelled: Mapping[str, Sequence[Responses]], results: Mapping[Path, Intervals], *, items: bool
) -> CrossedAbilities:
    """Return scales of ability at the confidence level of the intervals."""
    from evalstats_plugin.logs.together import CrossedAbilities

    return CrossedAbilities(labelled, confidence_level=_level(results), items=items)


def _pooled(
    labelled: Mapping[str, Sequence[Responses]], results: Mapping[Path, Intervals]
) -> CrossedScores:
    """Return pooled scores at the confidence level of the intervals."""
    from evalstats_plugin.logs.together import CrossedScores

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
    plugins = plugins or load_plugins()
    targets = targets_of(paths, output, in_place=in_place, plugins=plugins)
    return write_all(dict.fromkeys(targets), targets, {}, plugins)


def annotate_results(
    results: Mapping[str, Any], *, analysis: Analysis | None = None, plugins: Plugins | None = None
) -> Mapping[str, Any]:
    """Annotate what a harness returned in memory, such as lm-eval's ``simple_evaluate``.

    The results given are left as they are; the annotated ones share their parts.
    """
    from evalstats_plugin.runtime import VERSION

    plugins = plugins or load_plugins()
    analysis = analysis or default_analysis()
    responses = read_results(results, plugins=plugins)
    annotation = Annotation(analysis(responses.responses), VERSION)
    return plugins.call("evalstats_annotate_results", results=results, annotation=annotation)


def targets_of(
    paths: Sequence[str | Path],
    output: str | Path | None,
    *,
    in_place: bool,
    plugins: Plugins,
) -> Mapping[Path, Path]:
    """Where each log goes.

    Raises
    ------
    WriteError
        Neither or both of ``output`` and ``in_place`` are given, or two logs go to one place.
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


@dataclass(frozen=True, slots=True)
class Look:
    """How to look at a log."""

    selection: Selection
    analysis: Analysis
    plugins: Plugins
    keep: bool
    """Whether responses are wanted too, or their analysis alone."""


class Seen(NamedTuple):
    """What there is in a log."""

    responses: Sequence[Responses]
    """None of them where they were not to be kept."""
    intervals: Intervals


def look_at_all(logs: Iterable[Path], named: set[str], look: Look) -> dict[Path, Seen]:
    """Read and analyse each log.

    Runs that were cancelled or failed are left out, unless they are `named`.

    Raises
    ------
    LogError
        A log is broken.
    WriteError
        Tables, which have no place for intervals.
    """
    logs = list(logs)
    seen: dict[Path, Seen] = {}
    tables: list[Path] = []
    outcomes = mapped(partial(_looked_at, look), logs, here=not look.plugins.installed)
    for log, outcome in zip(logs, outcomes, strict=True):
        if isinstance(outcome, Seen):
            seen[log] = outcome
        elif outcome is None:
            tables.append(log)
        elif str(log) in named:
            raise outcome
    _refuse(tables)
    return seen


def _looked_at(look: Look, log: Path) -> Seen | IncompleteLogError | None:
    """None for a table."""
    try:
        responses = read_log(log, look.selection, look.plugins)
    except IncompleteLogError as error:
        return error
    if any(r.source.harness == TABLES for r in responses):
        return None
    return Seen(responses if look.keep else (), look.analysis(responses))


def _refuse(tables: Sequence[Path]) -> None:
    if tables:
        msg = (
            f"{few([str(table) for table in tables])}: a table of scores has no place for "
            f"intervals, expected logs of a harness: 'report {tables[0]} --format csv' prints "
            f"scores with their intervals, 'export {tables[0]} --to every-eval-ever --intervals "
            "-o FOLDER' writes both"
        )
        raise WriteError(msg)


def state_of(log: Path) -> files.Revision | None:
    """What tells whether a log has changed; None for one that is not on disk."""
    return None if getattr(log, "protocol", "") else files.revision(log)


class _Writing(NamedTuple):
    """A log to be written."""

    log: Path
    annotation: Annotation | None
    target: Path
    state: files.Revision | None
    """When it was read; None where that does not matter."""


def write_all(
    annotations: Mapping[Path, Annotation | None],
    targets: Mapping[Path, Path],
    states: Mapping[Path, files.Revision | None],
    plugins: Plugins,
) -> list[Path]:
    """Write each log, unless it has changed since it was read.

    One after the other, up to the first that cannot be written. Several processes write the
    others all the same.

    Raises
    ------
    WriteError, LogError
        A log cannot be written; the message says how many were.
    """
    each = [_Writing(log, a, targets[log], states.get(log)) for log, a in annotations.items()]
    together = [each] if _entangled(each) else [[one] for one in each]
    several = plugins.installed and n_workers() > 1
    written: list[Path] = []
    failed: list[EvalStatsError] = []
    for paths, error in mapped(partial(_write_some, plugins), together, here=not several):
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


def _entangled(each: Sequence[_Writing]) -> bool:
    """Whether one log has several names, by links, or is written over another."""
    local = [one for one in each if not getattr(one.log, "protocol", "")]
    logs = [one.log.resolve() for one in local]
    targets = [one.target.resolve() for one in local]
    read = set(logs)
    over_another = any(a != b and b in read for a, b in zip(logs, targets, strict=True))
    return over_another or len(read) < len(logs) or len(set(targets)) < len(targets)


def _write_some(
    plugins: Plugins, some: Sequence[_Writing]
) -> tuple[list[Path], EvalStatsError | None]:
    """Write one after the other up to the first that cannot be; what was written, and why not."""
    written: list[Path] = []
    # One log may have several names, by links: what we wrote ourselves has not been changed.
    ours: set[Path] = set()
    for log, annotation, target, state in some:
        try:
            if state is not None and log.resolve() not in ours and state_of(log) != state:
                raise files.changed(log)
            written.append(write_annotated(log, annotation, target, plugins))
        except EvalStatsError as error:
            return written, error
        if state is not None:
            ours.add(target.resolve())
    return written, None


def write_annotated(
    log: Path, annotation: Annotation | None, target: Path, plugins: Plugins
) -> Path:
    """Write one log with an annotation, or without any, through the adapter that knows it."""
    written = plugins.call("evalstats_annotate_log", path=log, annotation=annotation, output=target)
    if written is None:
        msg = (
            f"{log}: no installed adapter annotates logs of this kind (those of "
            f"{adapters(plugins, 'evalstats_annotate_log')} can be)"
        )
        raise LogError(msg)
    return written
