"""What is read from memory: DataFrames, arrays, records, and what a harness returned.

`sorted_out` tells paths from tables and from responses; tables become files in memory, so that they
are read as the same table on disk is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from evalstats_plugin.data.inputs import as_list
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import LogError, PluginError, SelectionError
from evalstats_plugin.plugins import Plugins, strict
from evalstats_plugin.runtime.files import LogFile

TAKEN = (
    "paths and patterns (str, pathlib.Path), lists of them; Inspect's EvalLog, list_eval_logs(), "
    "samples_df and evals_df; the results that lm-eval's simple_evaluate returns; DataFrames of "
    "pandas and Polars, and all else that Arrow reads; arrays of NumPy and xarray with the axes "
    "models, items and epochs; lists of records or of numbers; Responses, ResponseSet, "
    "ResponseMatrix and ResponseStore"
)
"""What can be read, for messages."""

_MODEL_NAMES = {"model", "models", "model_name"}
_ITEM_NAMES = {"item", "items", "item_id", "question", "question_id", "doc_id", "problem"}
"""Names of the index or the columns of a matrix that say what they are."""


@dataclass
class Held:
    """What was given, by how it is read."""

    places: list[str | Path] = field(default_factory=list[str | Path])
    tables: list[LogFile] = field(default_factory=list[LogFile])
    responses: list[Responses] = field(default_factory=list[Responses])


def sorted_out(given: Sequence[Any], selection: Selection, plugins: Plugins) -> Held:
    """Tell paths, tables and responses apart.

    Raises
    ------
    TypeError
        Something is of another type.
    LogError
        A DataFrame has columns that no table can have, or no adapter knows a mapping.
    """
    held = Held()
    for entry in given:
        _add(held, entry, selection, plugins)
    return held


def _add(held: Held, entry: Any, selection: Selection, plugins: Plugins) -> None:
    if isinstance(entry, (str, Path)):
        held.places.append(entry)
    elif isinstance(entry, PathLike):
        place = cast("PathLike[str]", entry)
        # Addresses beyond the file system are texts.
        held.places.append(str(place) if "://" in str(place) else os.fsdecode(place))
    elif isinstance(entry, LogFile):
        held.tables.append(entry)
    elif isinstance(entry, (Responses, ResponseSet, ResponseMatrix, ResponseStore)):
        held.responses += as_list(entry)[0]
    elif not hasattr(entry, "shape") and _is_file_info(entry):
        held.places.append(entry.name)
    elif isinstance(entry, (Sequence, Iterator)) and not _has_form(entry):
        listed = cast("Sequence[Any] | Iterator[Any]", entry)
        _add_each(held, list(listed), selection, plugins)
    elif isinstance(entry, np.ndarray):
        held.responses += _of_array(entry, selection)
    elif (responses := _read_by_adapter(entry, selection, plugins)) is not None:
        held.responses += responses
    else:
        held.tables.append(_as_file(entry, len(held.tables), wide=bool(selection.wide)))


def _has_form(entry: Any) -> bool:
    """Whether it is one thing of a known form, and no list of things."""
    of_forms = ("shape", "__arrow_c_stream__", "data_vars", "location")
    is_plain = isinstance(entry, (Mapping, bytes, bytearray))
    return is_plain or any(hasattr(entry, name) for name in of_forms)


def _add_each(held: Held, listed: list[Any], selection: Selection, plugins: Plugins) -> None:
    if listed and all(isinstance(each, Mapping) for each in listed):
        if _read_by_adapter(listed[0], selection, plugins) is None:
            # As the JSONL that they would be in a file.
            lines = [json.dumps(dict(record), default=str) for record in listed]
            name = _name(len(held.tables), "records.jsonl")
            held.tables.append(LogFile(name, "\n".join(lines).encode()))
            return
    elif listed and all(isinstance(each, (int, float, list, tuple, np.ndarray)) for each in listed):
        array = None
        with suppress(ValueError, TypeError):
            array = np.asarray(listed, dtype=np.float64)
        if array is not None:
            held.responses += _of_array(array, selection)
            return
    for each in listed:
        _add(held, each, selection, plugins)


def _is_file_info(entry: Any) -> bool:
    """Whether it names a file, as what lists a folder's logs does."""
    return isinstance(getattr(entry, "name", None), str) and hasattr(entry, "size")


def _read_by_adapter(
    results: Any, selection: Selection, plugins: Plugins
) -> list[Responses] | None:
    try:
        responses = plugins.call("evalstats_read_results", results=results, selection=selection)
    except PluginError:
        # A plugin that expects a mapping must not hurt what another knows.
        if isinstance(results, Mapping) or strict():
            raise
        return None
    return None if responses is None else list(responses)


def _of_array(array: Any, selection: Selection) -> list[Responses]:
    """Return the responses of an array: models, items and epochs; or items of one model.

    Raises
    ------
    TypeError
        It is not of numbers, or has other axes.
    SelectionError
        One name is given for several models.
    """
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2, 3):
        raise TypeError(
            f"an array of {array.dtype} with {array.ndim} axes cannot be read: give numbers, with "
            "the axes models and items, or models, items and epochs"
        )
    of_models = array[None] if array.ndim == 1 else array
    named = [selection.model_name] if selection.model_name else None
    if named and len(of_models) != 1:
        msg = f"model_name names one model, and the array has {len(of_models)}: give a DataFrame"
        raise SelectionError(f"{msg} whose index has their names")
    matrix = ResponseMatrix.from_array(of_models, models=named)
    made = matrix.to_responses()
    kept = [
        r for r in made if selection.wants_task(r.task) and selection.wants_metric(r.metric, r.task)
    ]
    if made and not kept:
        msg = "an array is of no task and metric that has a name: leave task and metric out"
        raise SelectionError(msg)
    return kept


def _name(n: int, what: str = "DataFrame") -> Path:
    return Path(what if not n else f"{what} {n + 1}")


def _as_file(table: Any, n: int, *, wide: bool) -> LogFile:
    """Return a table as the Parquet that it would be in a file.

    Raises
    ------
    TypeError
        It is no table.
    LogError
        It has columns that no table can have.
    """
    pa: Any = import_module("pyarrow")
    if hasattr(table, "dims") and hasattr(table, "coords"):
        table = _of_labelled(table)
    columns: dict[Any, Any] = (
        dict(cast("Mapping[Any, Any]", table)) if isinstance(table, Mapping) else {}
    )
    if columns and all(isinstance(values, list) for values in columns.values()):
        try:
            table = pa.table({str(name): values for name, values in columns.items()})
        except pa.ArrowException as error:
            raise LogError(f"the columns cannot be read as a table: {error}") from error
    if isinstance(table, Mapping):
        msg = (
            "these results are of no harness that an installed adapter knows, and no columns of a "
        )
        raise LogError(f"{msg}table; read are {TAKEN}")
    content = BytesIO()
    try:
        if hasattr(table, "to_parquet"):
            _pandas(table, wide=wide).to_parquet(content, index=False)
        elif hasattr(table, "__arrow_c_stream__"):
            import_module("pyarrow.parquet").write_table(pa.table(table), content)
        else:
            msg = f"{type(table).__module__}.{type(table).__qualname__} cannot be read"
            raise TypeError(f"{msg}. Give {TAKEN}")
    except (ValueError, NotImplementedError, OverflowError, pa.ArrowException) as error:
        raise LogError(f"the DataFrame cannot be read as a table: {error}") from error
    return LogFile(_name(n), content.getvalue())


def _of_labelled(array: Any) -> Any:
    """Return an array of xarray as a DataFrame with a row for each score."""
    if not hasattr(array, "data_vars"):
        return array.to_series().rename("score").reset_index()
    frame = array.to_dataframe().reset_index()
    names = [str(name) for name in array.data_vars]
    parts = [name for name in frame.columns if name not in names]
    tidy = frame.melt(id_vars=parts, value_vars=names, var_name="metric", value_name="\0")
    return tidy.rename(columns={"\0": "score"})


def _pandas(frame: Any, *, wide: bool) -> Any:
    """Return a DataFrame of pandas with names that a file has, and its index as a column."""
    names = [str(name) for name in frame.index.names if name is not None]
    # The numbers of rows say nothing; an index with a name, or of texts, holds names.
    if names or frame.index.inferred_type == "string":
        frame = frame.reset_index()
    return frame.set_axis(_flat_names(frame.columns, numbered=wide), axis=1)


def _flat_names(columns: Iterable[Any], *, numbered: bool) -> list[str]:
    """Return names as a file has them; those of two levels, or again, are of items and epochs."""
    levels: list[tuple[Any, ...]] = [c if isinstance(c, tuple) else (c,) for c in columns]
    names = [".".join(str(part) for part in parts if part != "") for parts in levels]
    if not numbered or len(set(names)) == len(names):
        return names
    return [
        f"{name}.{names[:k].count(name)}" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]


def rows_of_matrix(given: Sequence[Any]) -> Literal["", "models", "items"]:
    """Return what the rows of a matrix in a DataFrame are, if its index or columns are named so."""
    frame: Any = next(iter(given), "")
    if not hasattr(frame, "to_parquet") or frame.index.nlevels > 1 or not frame.index.is_unique:
        return ""
    if not all(kind.kind in "biuf" for kind in frame.dtypes):
        return ""
    rows, heads = (str(name).casefold() for name in (frame.index.name, frame.columns.names[0]))
    if rows in _MODEL_NAMES or heads in _ITEM_NAMES:
        return "models"
    return "items" if rows in _ITEM_NAMES or heads in _MODEL_NAMES else ""
