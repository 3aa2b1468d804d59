"""Turns an Inspect log into `Responses`: one for each scorer, or key of a scorer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.inspect_ai.clusters import cluster_field, fields_of
from evalstats_plugin.adapters.inspect_ai.early_stops import early_stops, found_in
from evalstats_plugin.adapters.inspect_ai.identity import settings_of
from evalstats_plugin.adapters.inspect_ai.layout import form_of
from evalstats_plugin.adapters.inspect_ai.printable import printable
from evalstats_plugin.adapters.inspect_ai.scorers import Logged, Scorer, logged_of, scorers_of
from evalstats_plugin.adapters.inspect_ai.source import ReadTakes, opened
from evalstats_plugin.adapters.inspect_ai.table import Table, tabulate
from evalstats_plugin.adapters.inspect_ai.values import as_score, is_grade, is_unscored
from evalstats_plugin.adaptive.records import biased
from evalstats_plugin.errors import IncompleteLogError
from evalstats_plugin.responses import Responses, Selection, Source, as_clusters

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

NO_SAMPLES = "no samples logged (run Inspect without --no-log-samples)"
_TOLERANCE = 1e-9
_LONGEST_EXAMPLE = 40


def read_log(path: Path, selection: Selection) -> list[Responses] | None:
    """Read one log; None for others' files."""
    form = form_of(path)
    if form is None:
        return None
    with opened(path, form, header_only=selection.header_only) as (log, read_takes):
        base = _base(log, path)
        # A task of a package, "inspect_evals/gsm8k", is also known by its own name.
        if not selection.wants_task(base.task, base.task.rpartition("/")[2]):
            return []
        if selection.header_only:
            return [replace(base, metric=s.label) for s in scorers_of(log)]
        _refuse_incomplete(log, path, selection)
        return _read_scores(log, read_takes, selection, base)


def _base(log: EvalLog, path: Path) -> Responses:
    spec = log.eval
    source = Source(
        path=path,
        harness="inspect_ai",
        version=spec.packages.get("inspect_ai"),
        when=spec.created,
        run=spec.task_id,  # a retry has the task id, but neither run id nor eval id
    )
    return Responses(
        model=printable(spec.model),
        task=printable(spec.task),
        metric="",
        source=source,
        settings=settings_of(log),
    )


def _refuse_incomplete(log: EvalLog, path: Path, selection: Selection) -> None:
    if log.status == "success" or selection.include_incomplete:
        return
    msg = (
        f"{path} is of a run that did not end well (status {log.status!r}); --include-incomplete "
        "reads it as far as it got"
    )
    raise IncompleteLogError(msg, log.eval.task_id)


def _read_scores(
    log: EvalLog, read_takes: ReadTakes, selection: Selection, base: Responses
) -> list[Responses]:
    known = scorers_of(log)
    takes = read_takes(fields_of(log, known, selection.cluster))
    found = [s for s in scorers_of(log, takes) if selection.wants_metric(s.label)]
    if not takes:
        note = NO_SAMPLES if log.status == "success" else _how_far(log, 0)
        return [_without_items(log, s, base, note) for s in found]
    table = tabulate(takes, log, base.source.path)
    return [_of_scorer(log, s, table, selection, base) for s in found]


def _without_items(log: EvalLog, scorer: Scorer, base: Responses, note: str) -> Responses:
    return replace(_with_logged(base, scorer, logged_of(log, scorer)), notes=(note,))


def _with_logged(base: Responses, scorer: Scorer, logged: Logged) -> Responses:
    return replace(
        base,
        metric=scorer.label,
        logged=logged.value,
        logged_std_error=logged.std_error,
        logged_n=logged.n,
        higher_is_better=True if logged.is_accuracy else None,
    )


def _of_scorer(
    log: EvalLog, scorer: Scorer, table: Table, selection: Selection, base: Responses
) -> Responses:
    logged = logged_of(log, scorer)
    values = [scorer.value_in(take) for take in table.takes]
    scores = table.spread([math.nan if (n := as_score(v)) is None else n for v in values])
    notes = [*table.notes, *_about_stops(log), *_about_values(values, table)]
    if log.status != "success":
        notes.append(_how_far(log, len(table.item_ids)))
    elif problem := _disagreement(scores, logged):
        notes.append(f"mismatch: {problem}")
    field = selection.cluster or cluster_field(log, scorer)
    clusters, about_clusters = as_clusters(table.field(field), field) if field else (None, ())
    graded = all(is_grade(v) or is_unscored(v) for v in values)
    kept = table.kept
    return replace(
        _with_logged(base, scorer, logged),
        item_ids=table.item_ids[kept],
        item_hashes=table.questions[kept],
        scores=table.without_invalidated(scores)[kept],
        clusters=None if clusters is None else clusters[kept],
        bounds=(0.0, 1.0) if graded else None,
        higher_is_better=True if graded or logged.is_accuracy else None,
        population=_population(log, table),
        notes=(*notes, *(printable(note) for note in about_clusters), *logged.notes),
    )


def _about_stops(log: EvalLog) -> list[str]:
    stops = len(early_stops(log))
    found = found_in(log)
    if found is not None:
        return biased(found)
    return [f"{stops} samples were stopped early, which may favour some items"] if stops else []


def _about_values(values: Sequence[Any], table: Table) -> list[str]:
    odd = [v for v in values if as_score(v) is None]
    unscored = sum(
        is_unscored(v) and not t.failed for v, t in zip(values, table.takes, strict=True)
    )
    notes = [f"{unscored} samples were left unscored"] if unscored else []
    if odd:
        example = printable(repr(odd[0]))[:_LONGEST_EXAMPLE]
        notes.append(
            f"{len(odd)} scores are no numbers ({example}): missing here, 0 to Inspect's metrics"
        )
    return notes


def _how_far(log: EvalLog, n_items: int) -> str:
    planned = log.eval.dataset.sample_ids
    of_all = f" of {len(planned)}" if planned else ""
    return f"the run did not end well (status {log.status!r}): {n_items}{of_all} items"


def _population(log: EvalLog, table: Table) -> int | None:
    """Return how large the dataset is, where a limit was set: its first items stand for all."""
    size = log.eval.dataset.samples or 0
    if early_stops(log):
        return None
    return size if log.status == "success" and size > len(table.item_ids) else None


def _disagreement(scores: NDArray[np.float64], logged: Logged) -> str | None:
    """Return how the items contradict the header, invalidated ones among them as in Inspect."""
    means = Responses(
        model="", task="", metric="", item_ids=np.arange(len(scores)), scores=scores,
        source=Source(Path(), "inspect_ai"),
    ).item_means  # fmt: skip
    there = means[~np.isnan(means)]
    if logged.n is not None and logged.n != len(there):
        return f"{logged.n} scored items were logged, {len(there)} are there"
    if logged.value is None or not len(there):
        return None
    value = float(there.mean())
    if math.isclose(value, logged.value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        return None
    return f"{logged.value:.6g} was logged, the items give {value:.6g}"
