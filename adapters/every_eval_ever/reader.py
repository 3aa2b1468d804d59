"""Turns an aggregate file and its instances into `Responses`: one for each result."""
# PART items - Makes arrays of items and epochs out of the instances of one result.

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.every_eval_ever.instances import (
    CLUSTER,
    EPOCH,
    PERCENT,
    WEIGHT,
    Column,
    Key,
    match,
    mean_of,
    read_instances,
    scale_of,
)
from evalstats_plugin.adapters.every_eval_ever.layout import (
    HARNESS,
    Json,
    aggregate_beside,
    extra_of,
    instances_of,
    is_instances,
    is_number,
    load_aggregate,
    logged_results,
    metric_of,
    section,
    settings_of,
)
from evalstats_plugin.data.responses import (
    Codes,
    Responses,
    Selection,
    Source,
    as_clusters,
    as_item_ids,
    first_rows,
    in_order,
    number_takes,
    rows_of_one_take,
    spread,
    with_metadata,
)
from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import rebuilding

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


def fill(
    bare: Responses, column: Column, found: Json, result: Json, cluster: str | None
) -> Responses:
    """Return responses with the scores of their instances.

    Raises
    ------
    LogError
        An item is there twice in one epoch.
    """
    names, inverse = np.unique(np.asarray(column.ids, dtype=str), return_inverse=True)
    order, places = in_order(inverse)
    epochs, notes = _epochs(column, places)
    twice = rows_of_one_take(places, epochs)
    if twice is not None:
        msg = (
            f"{bare.source.path}: item {column.ids[twice[0]]!r} is there twice in one epoch among "
            f"the instances of {bare.task} ({twice[2]} instances too many), expected each once; "
            "two runs may have been appended to one file"
        )
        raise LogError(msg)
    first = first_rows(places)
    clusters, about_clusters = _clusters(column, first, cluster)
    foreign = extra_of(result) is None
    made = replace(
        bare,
        item_ids=as_item_ids(names[order].tolist()),
        scores=spread(places, epochs, _scores(column, result)),
        weights=_weights(column, first),
        clusters=clusters,
        item_hashes=_hashes(column, first, section(found, "eval_library") if foreign else None),
        notes=(*bare.notes, *notes, *about_clusters),
    )
    return _compared(made, column) if foreign else made


def _scores(column: Column, result: Json) -> NDArray[np.float64]:
    scores = np.asarray(column.scores, dtype=np.float64)
    if section(result, "metric_config").get("has_unknown_level"):
        # What the schema says of -1 under a metric of levels.
        return np.where(scores == -1, np.nan, scores)
    return scores


def _epochs(column: Column, places: Codes) -> tuple[Codes, tuple[str, ...]]:
    """Return each instance's epoch: the schema has no field, converters put it into metadata."""
    said = column.texts(EPOCH)
    if None not in said:
        labels = np.asarray(said)
        try:
            keys = labels.astype(np.float64)
        except ValueError:
            keys = labels
        return np.unique(keys, return_inverse=True)[1], ()
    epochs = number_takes(places)
    notes = ("items that are there again are taken for further epochs",) if epochs.any() else ()
    return epochs, notes


def _clusters(
    column: Column, first: Codes, field: str | None
) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
    said = column.texts(field or CLUSTER)
    names = [said[k] for k in map(int, first)]
    if field is None and None in names:
        return None, ()
    # Ours are written as they shall be read.
    return (np.asarray(names), ()) if field is None else as_clusters(names, field)


def _weights(column: Column, first: Codes) -> NDArray[np.float64] | None:
    said = column.texts(WEIGHT)
    return (
        None if None in said else np.asarray([said[k] for k in map(int, first)], dtype=np.float64)
    )


def _hashes(column: Column, first: Codes, library: Json | None) -> NDArray[Any] | None:
    """Return the fingerprint of each item's question.

    Converters make theirs by recipes of their own, so that those of two say nothing about each
    other: the part before the colon tells them apart.
    """
    found = [column.hashes[k] for k in map(int, first)]
    if None in found:
        return None
    before = "" if library is None else f"every_eval_ever {library.get('name')}:"
    return np.asarray([before + str(text) for text in found])


def _compared(r: Responses, column: Column) -> Responses:
    """Set the aggregate score beside that of the instances."""
    notes = [f"{column.errors} instances with an error: scores as logged"] * (column.errors > 0)
    mean = mean_of(column)
    if r.logged is None or math.isnan(mean):
        return replace(r, notes=(*r.notes, *notes))
    scale = scale_of(r.logged, mean)
    if scale == PERCENT:
        error = None if r.logged_std_error is None else r.logged_std_error / PERCENT
        bounds = r.bounds
        # Those of the instances may have been given instead.
        if bounds is not None and bounds[0] <= r.logged <= bounds[1]:
            bounds = bounds[0] / PERCENT, bounds[1] / PERCENT
        notes.append("the aggregate score is a percentage of what the instances give")
        r = replace(r, logged=r.logged / PERCENT, logged_std_error=error, bounds=bounds)
    elif scale is None:
        notes.append(f"mismatch: {r.logged:.6g} was logged, the instances give {mean:.6g}")
    return replace(r, notes=(*r.notes, *notes))
