"""Exporting responses: `export` writes the formats of the installed plugins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.responses import Group, Responses
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import SelectionError, WriteError, few, no_such
from evalstats_plugin.hookspecs import Exporter
from evalstats_plugin.plugins import Plugins, load_plugins
from evalstats_plugin.runtime.writing import check_free, overwriting


@dataclass(frozen=True, slots=True)
class Exported:
    """What `export` wrote."""

    paths: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    """What the format cannot represent and the files therefore lack."""


def export(
    responses: ResponsesLike,
    output: str | Path,
    *,
    to: str | None = None,
    overwrite: bool = False,
    plugins: Plugins | None = None,
    **options: Any,
) -> Exported:
    """Write responses in another format.

    Parameters
    ----------
    responses
        From `read`, a matrix, a DataFrame or a path.
    output
        File to write; a folder for ``"every-eval-ever"``.
    to
        ``"csv"``, ``"tsv"``, ``"jsonl"``, ``"py-irt"``, ``"parquet"``, ``"every-eval-ever"``, or
        the format of another plugin. Default: by the extension of ``output``.
    overwrite
        Replace files that exist.
    options
        Options of the format: ``matrix=True`` for a matrix of models × items (csv, tsv, parquet);
        ``organization`` and ``relationship`` (every-eval-ever).

    Raises
    ------
    SelectionError
        No such format or option; the message has the closest.
    WriteError
        There is nothing that the format can represent, a file exists, or it cannot be written.
    """
    plugins = plugins or load_plugins()
    exporter = exporter_of(to, Path(output), plugins)
    module, _, name = exporter.function.partition(":")
    write: Any = getattr(import_module(module), name)
    names = list(write.__kwdefaults__ or {})
    if unknown := [k for k in options if k not in names]:
        if not names:
            raise SelectionError(f"{exporter.name} has no options, but {unknown[0]!r} was given")
        msg = no_such(f"option of {exporter.name}", unknown[0], names, ", ".join(names))
        raise SelectionError(msg)
    listed, about = as_list(responses)
    held = ResponseSet(tuple(map(_encodable, listed)), about)
    read_from = {r.source.path for r in held}
    if not len(held):
        raise WriteError(f"nothing to export to {output}: no responses were selected")
    if Path(output).exists() and any(p.is_file() and p.samefile(output) for p in read_from):
        raise WriteError(f"{output} is one of the files that were read. Write to another file.")
    with overwriting(allowed=overwrite):
        if not Path(output).is_dir():
            check_free(Path(output))
        paths, notes = write(held, Path(output), **options)
    return Exported(tuple(paths), (*notes, *_left_out(held)))


def _left_out(held: ResponseSet) -> Iterator[str]:
    """Yield notes on what no format holds."""
    chosen = [f"{r.task} {r.metric}" for r in held if r.predicted is not None]
    beside = [f"{r.task} {other.metric}" for r in held for other in r.beside]
    combined = [f"{r.task} {r.metric}" for r in held if r.unreduced is not None]
    for names, what in (
        (chosen, "scores of the items that an adaptive test chose, whose mean is not the model's"),
        (beside, "other values of the same answers are left out"),
        (combined, "epochs are combined as in the log, and the single ones left out"),
    ):
        if names:
            yield f"{what}: {few(list(dict.fromkeys(names)))}"


def _encodable(values: Any) -> Any:
    """Return responses, or a part, with halves of surrogate pairs escaped: no file holds them."""
    if isinstance(values, str):
        return values.encode(errors="backslashreplace").decode()
    if isinstance(values, Responses | Group | Measure):
        return replace(
            values, **{f.name: _encodable(getattr(values, f.name)) for f in fields(values)}
        )
    if isinstance(values, tuple):
        return tuple(map(_encodable, cast("tuple[Any, ...]", values)))
    if isinstance(values, np.ndarray):
        array = cast("NDArray[Any]", values)
        kind = array.dtype.kind
        if kind not in "UO" or (kind == "U" and not _has_halves(array)):
            return array
        escaped = [_encodable(value) for value in array.ravel().tolist()]
        return np.array(escaped, dtype=kind).reshape(array.shape)
    return values


def _has_halves(texts: NDArray[Any]) -> bool:
    """Whether texts hold halves of surrogate pairs, U+D800 to U+DFFF."""
    letters = np.frombuffer(np.ascontiguousarray(texts), dtype=np.uint32)
    return bool(((letters & 0xFFFFF800) == 0xD800).any())


def exporter_of(to: str | None, output: Path, plugins: Plugins) -> Exporter:
    """Return the exporter by name, or by a file's extension.

    Raises
    ------
    SelectionError
        There is none.
    """
    exporters = plugins.exporters()
    name = to or output.suffix.removeprefix(".").lower()
    if name in exporters:
        return exporters[name]
    if to is None:
        raise SelectionError(
            f"{output} has no ending of a known format. Name the format: "
            f"--to {', --to '.join(exporters)} (in Python: to=)"
        )
    listed = ", ".join(each.name for each in exporters.values()) or "none"
    raise SelectionError(no_such("format", name, exporters, listed))
