"""Turns tables into `Responses`: one for each model, task and metric."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from evalstats_plugin.adapters.tabular.cells import scores_of
from evalstats_plugin.adapters.tabular.filling import fill
from evalstats_plugin.adapters.tabular.opening import open_table
from evalstats_plugin.adapters.tabular.parts import layout_of
from evalstats_plugin.adapters.tabular.recognition import metadata_in
from evalstats_plugin.adapters.tabular.stores import read_store
from evalstats_plugin.adapters.tabular.takes import (
    Takes,
    default_names,
    filled,
    groups_of,
    metric_of,
)
from evalstats_plugin.adapters.tabular.wide import read_wide
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.parquet import rebuilding
from evalstats_plugin.ranking.columns import Column, Table
from evalstats_plugin.response_metadata import origin, with_metadata
from evalstats_plugin.response_store import KEY
from evalstats_plugin.responses import TABLES, Responses, Selection, Source, as_item_ids

METADATA = b"evalstats_takes"
"""Of Parquet files we write: what is known besides scores."""

_MATRIX = b"evalstats"
"""Of files of a `ResponseMatrix`."""


def read_table(path: Path, selection: Selection) -> list[Responses] | None:
    """Read a table, or a response store in one file; None for files that are neither."""
    known = metadata_in(path)
    if (_MATRIX in known or KEY in known) and (selection.columns or selection.wide):
        msg = (
            f"{path} is a file of evalstats-plugin's own, which says what its columns hold: leave "
            "columns and wide (--columns, --wide) out"
        )
        raise SelectionError(msg)
    if _MATRIX in known:
        found = ResponseMatrix.load(path).to_responses()
        source = Source(path=path, harness=TABLES)
        return [replace(r, source=source) for r in found if _wanted(selection, r.task, r.metric)]
    if KEY in known:
        return read_store(path, selection)
    _refuse_others_of_ours(known, path)
    table = open_table(path, announced=bool(selection.columns or selection.wide))
    if table is None:
        return None
    if selection.wide:
        return read_wide(table, path, selection)
    whole = METADATA in known
    found = list(_Reader.of(table, path, selection, may_be_empty=whole).responses())
    if whole and not selection.columns:
        return _with_known(found, known[METADATA], path, selection)
    return found


def _refuse_others_of_ours(known: Mapping[bytes, bytes], path: Path) -> None:
    """Raise `LogError` for fits and item banks, which are Parquet too."""
    ours = [key.decode() for key in known if key.startswith(_MATRIX + b"_")]
    if ours and METADATA not in known:
        msg = (
            f"{path} is a file of evalstats-plugin's own ({ours[0]}), expected scores: it is for "
            "the option or function that asks for such a file"
        )
        raise LogError(msg)


def _wanted(selection: Selection, task: str, metric: str) -> bool:
    return selection.wants_task(task) and selection.wants_metric(metric)


def _with_known(
    found: list[Responses], metadata: bytes, path: Path, selection: Selection
) -> list[Responses]:
    """Add what a Parquet file of ours tells of its responses, those without items among them."""
    by_key = {(r.model, r.task, r.metric): r for r in found}
    made: list[Responses] = []
    with rebuilding(path):
        for known in json.loads(metadata)["responses"]:
            model, task, metric = known["model"], known["task"], known["metric"]
            if not _wanted(selection, task, metric):
                continue
            source = Source(path=path, harness=TABLES, version=origin(known))
            bare = Responses(model=model, task=task, metric=metric, source=source)
            held = by_key.pop((model, task, metric), bare)
            made.append(with_metadata(replace(held, source=source), known))
    return [*made, *by_key.values()]


@dataclass(frozen=True, eq=False)
class _Reader:
    takes: Takes
    scores: Mapping[str, Column]
    path: Path
    selection: Selection
    defaults: Mapping[str, str]

    @classmethod
    def of(cls, table: Table, path: Path, selection: Selection, *, may_be_empty: bool) -> _Reader:
        layout = layout_of(table.names, selection.columns, selection.cluster, table.where)
        loaded, about_rows = filled(table.load(layout.used))
        parts = {part: loaded[name] for part, name in layout.columns.items()}
        size = len(parts["item"].codes)
        if not size and not may_be_empty:
            msg = f"{table.where} has columns and no rows, expected one row for each take"
            raise DesignError(msg)
        defaults, about_names = default_names(path, layout, table.names)
        notes = (*table.notes, *layout.notes, *about_names, *about_rows)
        takes = Takes(table.where, layout, parts, size, notes)
        return cls(takes, {n: loaded[n] for n in layout.scores}, path, selection, defaults)

    def responses(self) -> Iterator[Responses]:
        takes = self.takes
        if "metric" in takes.parts and len(self.scores) > 1:
            msg = (
                f"{takes.where}: {len(self.scores)} columns of scores asked for and a column of "
                "metrics found, expected one or the other: name one score"
            )
            raise SelectionError(msg)
        takes.refuse_empty("item")
        ids = as_item_ids(takes.parts["item"].values)
        models = takes.names("model", self.defaults["model"])
        tasks = takes.names("task", self.defaults["task"])
        for name, column in self.scores.items():
            metrics = takes.names("metric", metric_of(name))
            groups = [
                (self._bare(models.values[m], tasks.values[t], metrics.values[k]), rows)
                for (m, t, k), rows in groups_of((models, tasks, metrics))
            ]
            wanted = [g for g in groups if _wanted(self.selection, g[0].task, g[0].metric)]
            if self.selection.header_only:
                yield from (bare for bare, _ in wanted)
            elif wanted:
                scores, notes = scores_of(column, name, takes.where)
                for bare, rows in wanted:
                    noted = replace(bare, notes=(*bare.notes, *notes))
                    yield fill(noted, takes, rows, ids=ids, scores=scores)

    def _bare(self, model: str, task: str, metric: str) -> Responses:
        return Responses(
            model=model,
            task=task,
            metric=metric,
            source=Source(path=self.path, harness=TABLES),
            notes=self.takes.notes,
        )
