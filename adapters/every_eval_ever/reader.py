"""Turns an aggregate file and its instances into `Responses`: one for each result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.every_eval_ever.block import logged_results
from evalstats_plugin.adapters.every_eval_ever.identity import extra_of, metric_of, settings_of
from evalstats_plugin.adapters.every_eval_ever.instances import Column, Key, read_instances
from evalstats_plugin.adapters.every_eval_ever.items import fill
from evalstats_plugin.adapters.every_eval_ever.layout import (
    HARNESS,
    Json,
    aggregate_beside,
    instances_of,
    is_instances,
    is_number,
    load_aggregate,
    section,
)
from evalstats_plugin.adapters.every_eval_ever.matching import match
from evalstats_plugin.errors import LogError
from evalstats_plugin.parquet import rebuilding
from evalstats_plugin.response_metadata import with_metadata
from evalstats_plugin.responses import Responses, Selection, Source

NO_INSTANCES = "aggregate only: no file of instances beside it, so no scores of items"
OF_NO_RESULT = "instances that fit no one result of the aggregate file"
UNFIT = "no instances of this result"


def read_log(path: Path, selection: Selection) -> list[Responses] | None:
    """Read an aggregate file, or the one that a file of instances is of; None for others' files."""
    if path.suffix == ".jsonl" and is_instances(path):
        beside = aggregate_beside(path)
        if beside is None:
            msg = (
                f"{path} has no aggregate file beside it, which says what was measured; put the "
                f"{path.stem.removesuffix('_samples')}.json of the same run back"
            )
            raise LogError(msg)
        path = beside
    found = load_aggregate(path)
    if found is None:
        return None
    with rebuilding(path):
        return _Log(found, path, selection).responses()


class _Log:
    """One aggregate file, and where its instances are."""

    def __init__(self, found: Json, path: Path, selection: Selection) -> None:
        self.found = found
        self.path = path
        self.selection = selection
        self.results = logged_results(found)
        self.source = Source(
            path=path,
            harness=HARNESS,
            version=str(found["schema_version"]),
            when=_when(found.get("evaluation_timestamp") or found.get("retrieved_timestamp")),
        )

    def responses(self) -> list[Responses]:
        bare = _told_apart([self._bare(result) for result in self.results], self.results)
        wanted = [i for i, r in enumerate(bare) if self._wants(r)]
        if self.selection.header_only or not wanted:
            return [bare[i] for i in wanted]
        instances = instances_of(self.path, self.found)
        columns = read_instances(instances, self.found) if instances else {}
        matched, left = match(self.results, columns)
        if not columns:
            return [_noted(bare[i], NO_INSTANCES, self.results[i]) for i in wanted]
        made = [
            fill(bare[i], columns[matched[i]], self.found, self.results[i], self.selection.cluster)
            if i in matched
            else _noted(bare[i], UNFIT, self.results[i])
            for i in wanted
        ]
        return [*made, *self._left(columns, left)]

    def _wants(self, r: Responses) -> bool:
        return self.selection.wants_task(r.task) and self.selection.wants_metric(r.metric)

    def _bare(self, result: Json) -> Responses:
        config = section(result, "metric_config")
        lower = config.get("lower_is_better")
        uncertainty = section(result, "score_details", "uncertainty")
        error = section(uncertainty, "standard_error").get("value")
        score, n = float(result["score_details"]["score"]), uncertainty.get("num_samples")
        made = Responses(
            model=str(self.found["model_info"]["id"]),
            task=str(result["evaluation_name"]),
            metric=metric_of(result),
            higher_is_better=not lower if isinstance(lower, bool) else None,
            bounds=_bounds(config),
            source=self.source,
            settings=settings_of(self.found, result),
            logged=score if math.isfinite(score) else None,
            logged_std_error=float(error) if error is not None and is_number(error) else None,
            logged_n=n if isinstance(n, int) else None,
        )
        extra = extra_of(result)
        if extra is None:
            return made
        return with_metadata(replace(made, model=extra["model"], metric=extra["metric"]), extra)

    def _left(self, columns: Mapping[Key, Column], left: Sequence[Key]) -> list[Responses]:
        """Return what instances give that no result accounts for, under a name of their own."""
        made: list[Responses] = []
        for key in left:
            bare = Responses(
                model=str(self.found["model_info"]["id"]),
                task=key.name,
                metric="instances",
                source=self.source,
                notes=(OF_NO_RESULT,),
            )
            if self._wants(bare):
                made.append(fill(bare, columns[key], self.found, {}, self.selection.cluster))
        return made


def _noted(r: Responses, note: str, result: Json) -> Responses:
    """Say that there are no items, but not where none were ever there."""
    of_ours = extra_of(result)
    never = of_ours is not None and of_ours["n_items"] == 0
    return r if never else replace(r, notes=(*r.notes, note))


def _told_apart(bare: Sequence[Responses], results: Sequence[Json]) -> list[Responses]:
    """Add the result's own id, or its number, to metrics that would have one name."""
    count = Counter((r.task, r.metric) for r in bare)
    seen: Counter[tuple[str, str]] = Counter()
    made: list[Responses] = []
    for r, result in zip(bare, results, strict=True):
        key = r.task, r.metric
        seen[key] += 1
        more = result.get("evaluation_result_id") or seen[key]
        made.append(replace(r, metric=f"{r.metric} ({more})") if count[key] > 1 else r)
    return made


def _bounds(config: Json) -> tuple[float, float] | None:
    low, high = config.get("min_score"), config.get("max_score")
    # "Infinity" is a text in the schema.
    if low is None or high is None or not (is_number(low) and is_number(high)):
        return None
    return (float(low), float(high)) if low < high else None


def _when(said: Any) -> str:
    """Return a time in a form that sorts: the schema has seconds since 1970, and ISO."""
    try:
        return datetime.fromtimestamp(float(said), UTC).isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return str(said or "")
