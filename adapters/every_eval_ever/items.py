"""Makes arrays of items and epochs out of the instances of one result."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.every_eval_ever.identity import extra_of
from evalstats_plugin.adapters.every_eval_ever.instances import CLUSTER, EPOCH, WEIGHT, Column
from evalstats_plugin.adapters.every_eval_ever.layout import Json, section
from evalstats_plugin.adapters.every_eval_ever.matching import PERCENT, mean_of, scale_of
from evalstats_plugin.errors import LogError
from evalstats_plugin.responses import Responses, as_clusters, as_item_ids
from evalstats_plugin.takes import (
    Codes,
    first_rows,
    in_order,
    number_takes,
    rows_of_one_take,
    spread,
)


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
