"""Read pairwise comparisons from samples: two models in the doc, a verdict as metric or answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.adapters.lm_eval import layout
from evalstats_plugin.adapters.lm_eval.reader import model_identity
from evalstats_plugin.adapters.lm_eval.samples import read_records
from evalstats_plugin.errors import LogError, SelectionError, counted
from evalstats_plugin.ranking.contests.assembly import COLUMNS, RESULTS, contests_from_samples
from evalstats_plugin.ranking.contests.files import merge
from evalstats_plugin.runtime.files import LogFile

if TYPE_CHECKING:
    from evalstats_plugin.ranking.contests.contests import Contests


FILTER = "filter"
"""A column name for the filter whose lines are read, if there are several filters."""

_ANSWER = "filtered_resps"
_LEFT_OUT = frozenset({"arguments", "doc_hash", "prompt_hash", "target_hash", "metrics"})


def read_contests(log: LogFile, columns: Mapping[str, str]) -> Contests | None:
    """Read the comparisons of a results file or a samples file; None if it is not lm-eval's.

    Columns name fields of a sample: ``doc_id``, ``doc.NAME``, ``filtered_resps``, ``target``, a
    metric, ``model`` (that ran) or ``task``. Of a run with several tasks, only those that compare
    two models are read.

    Raises
    ------
    LogError
        The log is damaged, or has no samples.
    SelectionError
        The players or the verdict cannot be found.
    """
    path = log.path
    read = layout.samples_of(log)
    if read is None:
        return None
    data, by_task = read
    model = model_identity(data)[0] if data else None
    made: list[Contests] = []
    refused: list[SelectionError] = []
    for task, samples in by_task.items():
        try:
            made.append(_of_task(samples, columns, model, task))
        except SelectionError as error:
            # A task without comparisons is no error if another task has some.
            refused.append(error)
    if not made and refused:
        raise refused[0]
    if not made:
        raise LogError(f"{path} has no samples of its run (run lm-eval with --log_samples)")
    merged = merge(*made)
    if not refused:
        return merged
    note = f"{counted(len(refused), 'task')} without comparisons of two players: left out"
    return replace(merged, notes=(*merged.notes, note))


def _of_task(path: Path, columns: Mapping[str, str], model: str | None, task: str) -> Contests:
    records = list(read_records(path))
    filters = list(dict.fromkeys(str(r[FILTER]) for r in records if FILTER in r))
    wanted = columns.get(FILTER, filters[0] if filters else None)
    if filters and wanted not in filters:
        raise SelectionError(f"{path} has no filter {wanted!r}; there are: {', '.join(filters)}")
    identity = {"task": task} | ({} if model is None else {"model": model})
    samples = [
        {k: v for k, v in record.items() if k not in _LEFT_OUT} | identity
        for record in records
        if FILTER not in record or record[FILTER] == wanted
    ]
    names = dict.fromkeys(name for sample in samples for name in sample)
    metrics = [name for name in names if any(name in COLUMNS[part] for part in RESULTS)]
    defaults = {"item": "doc_id"} | ({} if model is None else {"judge": "model"})
    asked = {part: name for part, name in columns.items() if part != FILTER}
    made = contests_from_samples(samples, str(path), asked, metrics or [_ANSWER], defaults)
    if len(filters) < 2:
        return made
    return replace(made, notes=(f"lines of filter {wanted!r} of {filters}", *made.notes))
