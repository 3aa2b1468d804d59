"""What Inspect gives in Python: logs in memory, and data frames of samples or of evaluations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from math import nan
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from evalstats_plugin.adapters.inspect_ai.archive.guard import load_inspect
from evalstats_plugin.adapters.inspect_ai.archive.samples import LoggedSample, from_sample
from evalstats_plugin.adapters.inspect_ai.reader import only_items, read_log, read_opened
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import LogError, counted
from evalstats_plugin.logs.reading import as_path
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.untrusted import printable_name

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

_OF_EVALS = {"log", "eval_id"}
"""Columns of every data frame of logs that Inspect makes."""

_OF_SAMPLES = {"id", "epoch"}

_SCORE, _METADATA = "score_", "metadata_"
"""How the columns of samples begin that hold scores, and fields of the metadata."""

_DETAILS = ("_answer", "_explanation", "_metadata")


def read_results(given: Any, selection: Selection) -> list[Responses] | None:
    """Read an ``EvalLog``, or the logs of a data frame; None for what is not Inspect's."""
    kind = cast("type[Any]", type(given))
    if kind.__name__ == "EvalLog" and kind.__module__.partition(".")[0] == "inspect_ai":
        log: EvalLog = given
        path = as_path(log.location or "EvalLog")
        if log.samples is None and path.exists():
            return read_log(LogFile(path), selection) or []
        samples = log.samples or []
        return read_opened(
            log, lambda fields: [from_sample(s, fields) for s in samples], path, selection
        )
    names = getattr(given, "column_names", None) or getattr(given, "columns", ())
    columns = set(map(str, names))
    if selection.columns or selection.wide or "eval_id" not in columns:
        return None
    if columns >= _OF_EVALS:
        return _of_frame(given, columns, selection)
    return _of_loose_samples(given, columns, selection)


def _of_frame(frame: Any, columns: set[str], selection: Selection) -> list[Responses]:
    """Read the logs that a data frame names: of one of samples, the samples that it has."""
    of_samples = columns >= _OF_SAMPLES
    names = ("log", "id", "epoch") if of_samples else ("log",)
    rows = list(zip(*(map(str, frame[name]) for name in names), strict=True))
    responses: list[Responses] = []
    for log in dict.fromkeys(row[0] for row in rows):
        path = as_path(log)
        if not path.exists():
            msg = f"{log}, which the data frame names in its column log, is not there"
            raise LogError(
                f"{msg}: read it where it is, or give the scores as a table of their own"
            )
        read = read_log(LogFile(path), selection) or []
        kept = (
            {(item, int(float(epoch))) for of, item, epoch in rows if of == log}
            if of_samples
            else None
        )
        responses += read if kept is None else [_of_samples(r, kept) for r in read]
    return responses


def _of_loose_samples(frame: Any, columns: set[str], selection: Selection) -> list[Responses]:
    """Read samples from their own columns, where the data frame does not name their logs.

    Raises
    ------
    LogError
        A column is missing, without which nobody knows what was scored.
    """
    needed = {*_OF_SAMPLES, "model", "task_name"}
    # Beside a score may stand its answer and explanation.
    scores = sorted(
        name for name in columns
        if name.startswith(_SCORE) and not (
            name.endswith(_DETAILS) and name.rpartition("_")[0] in columns
        )
    )  # fmt: skip
    if not (columns >= needed and scores):
        lacking = sorted(needed - columns) or [f"{_SCORE}SCORER"]
        raise LogError(
            f"the data frame has neither the column log nor {', '.join(lacking)}: keep log, or "
            "read samples_df(..., columns=SampleSummary + EvalModel + EvalTask)"
        )
    fields = [name for name in columns if name.startswith(_METADATA)]
    wanted = [*needed, "eval_id", *scores, *fields, *({"created", "error"} & columns)]
    part = frame.select(wanted) if hasattr(frame, "column_names") else frame[wanted]
    rows: list[dict[str, Any]] = import_module("pyarrow").table(part).to_pylist()
    responses: list[Responses] = []
    for each in grouped(rows, lambda row: row["eval_id"]).values():
        samples = [_loose_sample(row) for row in each]
        first, inspect = each[0], load_inspect()
        spec = inspect.EvalSpec.model_construct(
            task=first["task_name"], task_id=first["eval_id"], model=first["model"],
            created=str(first.get("created") or ""), dataset=inspect.EvalDataset(),
            config=inspect.EvalConfig(),
        )  # fmt: skip
        log = inspect.EvalLog(status="success", eval=spec)
        responses += read_opened(log, lambda _, s=samples: s, as_path("samples_df"), selection)
    note = "samples of a data frame without its column log: epochs count as their mean"
    return [replace(r, notes=(*r.notes, note)) for r in responses]


def _loose_sample(row: Mapping[str, Any]) -> LoggedSample:
    fields = {name.removeprefix(_METADATA): str(value) for name, value in row.items()
              if name.startswith(_METADATA) and value is not None}  # fmt: skip
    scores = {name.removeprefix(_SCORE): _logged(value) for name, value in row.items()
              if name.startswith(_SCORE)}  # fmt: skip
    return LoggedSample(
        item=printable_name(str(row["id"])), raw_id=row["id"], epoch=int(row["epoch"]),
        question="", scores=scores, fields=fields, failed=bool(row.get("error")),
    )  # fmt: skip


def _logged(value: Any) -> Any:
    """Return a score as it was logged: Inspect writes those of several parts as JSON."""
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return nan if value is None else value


def _of_samples(r: Responses, kept: set[tuple[str, int]]) -> Responses:
    """Return the responses to some samples; without what the log says of all of them."""
    if not r.scores.size:
        return r
    whole = r.as_epochs
    names = [str(item) for item in whole.item_ids.tolist()]
    epochs = range(1, whole.scores.shape[1] + 1)
    is_kept = np.array([[(name, epoch) in kept for epoch in epochs] for name in names])
    scored = ~np.isnan(whole.scores)
    if is_kept[scored].all():
        return r
    # Epochs that are combined are there together, or not at all.
    alone = r.unreduced is None
    items = is_kept.any(axis=1) if alone else (is_kept | ~scored).all(axis=1)
    scores = np.where(is_kept, r.scores, np.nan) if alone else r.scores
    n, every = int((is_kept & scored).sum()), int(scored.sum())
    fields: dict[str, Any] = only_items({**vars(r), "scores": scores}, np.asarray(items)) | {
        "measure": replace(r.measure, population=None, n_cut=0),
        "notes": (*r.notes, f"{n} of {counted(every, 'sample')}, as in the data frame"),
        **dict.fromkeys(("logged", "logged_std_error", "logged_n", "unreduced")), "beside": (),
    }  # fmt: skip
    return Responses(**fields)
