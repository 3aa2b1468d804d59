"""lm-eval (lm-evaluation-harness): read, annotate and rescore logs, 0.4.0 to 0.5; values of 0.3.

========== ==================================================================================
layout     which files belong to a run, and the shape of a results file
samples    samples files, streamed: scores and pairs as logged, lm-eval's own errors, groups
reader     results and samples → `Responses`;  contests: samples → comparisons of players
writer     the annotation block in a results file
replay/    score logged responses again, without a model
adaptive/  adaptive tests inside lm-eval;  run_harness: lm-eval's own command, then annotation
========== ==================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin.hookspecs import Annotation, Command, ItemText, hookimpl

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses, Selection
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.runtime.files import LogFile


@hookimpl
def evalstats_find_logs(files: Sequence[LogFile]) -> Mapping[Path, Sequence[Path]]:
    """Return the results files with their samples files, and samples files without results."""
    from evalstats_plugin.adapters.lm_eval.layout import find_logs

    return find_logs(files)


@hookimpl
def evalstats_read_log(log: LogFile, selection: Selection) -> Sequence[Responses] | None:
    """Read one results file with its samples files."""
    from evalstats_plugin.adapters.lm_eval.reader import read_log

    return read_log(log, selection)


@hookimpl
def evalstats_read_results(results: Any, selection: Selection) -> Sequence[Responses] | None:
    """Read what ``simple_evaluate`` returned."""
    given: Any = results
    if not isinstance(results, Mapping):
        return None
    from evalstats_plugin.adapters.lm_eval.layout import is_results
    from evalstats_plugin.adapters.lm_eval.reader import read_results

    return read_results(given, Path(), selection) if is_results(given) else None


@hookimpl
def evalstats_read_contests(log: LogFile, columns: Mapping[str, str]) -> Contests | None:
    """Return the comparisons in the samples of a run."""
    from evalstats_plugin.adapters.lm_eval.contests import read_contests

    return read_contests(log, columns)


@hookimpl
def evalstats_read_texts(
    log: LogFile, items: Mapping[str, Collection[str]]
) -> Mapping[tuple[str, str], ItemText] | None:
    """Return texts of items from the samples of a run."""
    from evalstats_plugin.adapters.lm_eval.reader import read_texts

    return read_texts(log, items)


@hookimpl
def evalstats_annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Add the ``"evalstats"`` block to a results file, or remove it."""
    from evalstats_plugin.adapters.lm_eval.writer import annotate_log

    return annotate_log(path, annotation, output)


@hookimpl
def evalstats_annotate_results(
    results: Mapping[str, Any], annotation: Annotation
) -> Mapping[str, Any] | None:
    """Add the same block to what ``simple_evaluate`` returned."""
    from evalstats_plugin.adapters.lm_eval.layout import KEY, is_results
    from evalstats_plugin.adaptive.records import RECORD, with_record

    if not is_results(results):
        return None
    return {**results, KEY: with_record(annotation.block(), results.get(RECORD))}


@hookimpl
def evalstats_commands() -> Sequence[Command]:
    """Offer ``rescore`` and ``lm-eval``."""
    return (
        Command(
            "rescore",
            "Score lm-eval's logged responses again, without a model.",
            "evalstats_plugin.adapters.lm_eval.replay.command:rescore",
        ),
        Command(
            "lm-eval",
            "Run lm-eval with its own arguments, then annotate.",
            "evalstats_plugin.adapters.lm_eval.run_harness:lm_eval",
        ),
    )


@hookimpl
def evalstats_harness_commands() -> Sequence[Command]:
    """Offer ``adapt run lm-eval``."""
    return (
        Command(
            "lm-eval",
            "Run tasks of lm-eval adaptively, in rounds on one loaded model.",
            "evalstats_plugin.adapters.lm_eval.adaptive.command:lm_eval",
        ),
    )
