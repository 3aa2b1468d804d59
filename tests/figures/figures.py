"""Results as plain numbers that can be kept in a file, and compared with those that were kept.

That figures are right is for other tests to say, by relations, published numbers and studies; these
notice that one changed. After a change that is wanted: ``python tests/generate/figures.py SET``.

Numbers have seven digits; of a long array its shape and four weighted sums stand for it, and of
notes how many there are, with the numbers in them. A run that is refused gives the kind of its
error, and the numbers in its message.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import EvalStatsError

KEPT = Path(__file__).parents[2] / "fixtures" / "golden" / "figures"
MOST_VALUES = 24
"""Numbers of an array that are kept one by one."""
WORDS = {"notes", "method", "text", "summary", "source", "provenance", "device", "version",
         "software", "reason", "why", "measure", "population", "prior", "seconds"}  # fmt: skip
"""Fields that hold words, which may be put better without any number changing."""
# Not those of a path or of a version.
_NUMBER = re.compile(r"(?<![\w./:-])-?\d*\.?\d+(?![\w/:-]|\.\d)")

Run = Callable[[], Any]


def figures_of(run: Run | Mapping[str, Run]) -> Any:
    """Return the figures of a run, or of several by their names."""
    if isinstance(run, Mapping):
        return {name: figures_of(each) for name, each in run.items()}
    try:
        result = run()
    except EvalStatsError as error:
        told = _numbers([str(error)])
        return " ".join([f"refused: {type(error).__name__}", *map(str, told)])
    return plain(result)


def plain(value: Any) -> Any:  # noqa: PLR0911 - a kind of value each
    """Return the numbers of a result, with the names of what they belong to."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray):
        return _of_array(value)
    if isinstance(value, Results):
        told = _size(value.notes)
        return table_of(value.to_dict()) | ({"told": told} if told else {})
    if isinstance(value, Mapping):
        return {str(k): _size(v) if k in WORDS else plain(v) for k, v in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in fields(value) if not f.name.startswith("_")]
        return plain({name: getattr(value, name) for name in names})
    if hasattr(value, "to_dict"):
        return plain(value.to_dict("list"))
    if isinstance(value, Sequence):
        if len(value) and all(type(x) in {int, float} for x in value):
            return _of_array(np.asarray(value, dtype=np.float64))
        return [plain(each) for each in value]
    return type(value).__name__


def table_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of a table; of those with one value throughout, that value or nothing."""
    table: dict[str, Any] = {"rows": len(rows)}
    for name in rows[0] if rows else ():
        column = [_size(row[name]) if name in WORDS else plain(row[name]) for row in rows]
        if column.count(column[0]) < len(column):
            table[name] = column
        elif column[0] is not None:
            table[name] = column[0]
    return table


def _size(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return plain(value)
    if not isinstance(value, tuple | list):
        return int(bool(value))
    told = _numbers(value)
    return [len(value), plain(told)] if told else len(value)


def _numbers(texts: Sequence[Any]) -> list[float]:
    return [float(x) for each in texts for x in _NUMBER.findall(str(each).replace(",", ""))]


def _of_array(values: np.ndarray) -> Any:
    if values.dtype.kind not in "fiub":
        texts = list(map(str, values.ravel().tolist()))
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
        return f"{len(texts)} texts {digest[:12]}"
    flat = values.astype(np.float64).ravel()
    if len(flat) <= MOST_VALUES:
        return [plain(each) for each in flat.tolist()]
    # Digits of variances that are infinite but for rounding depend on the processor.
    shown = np.clip(np.nan_to_num(flat), -1e6, 1e6)
    place = np.arange(len(flat))
    sums = [shown.sum(), (shown**2).sum(), shown @ np.sin(place), shown**2 @ np.cos(place)]
    unknown = int(np.isnan(flat).sum())
    return {"shape": list(values.shape), "nan": unknown, "sums": [plain(s.item()) for s in sums]}


def changed(name: str, run: str, what: Mapping[str, Run], *, rel: float = 1e-6) -> list[str]:
    """Return the places where the figures of a run differ from those kept, by a relative error."""
    kept = json.loads((KEPT / f"{name}.json").read_text("utf-8"))
    return _different(kept[run], figures_of(what), rel, "")


def _different(expected: Any, actual: Any, rel: float, where: str) -> list[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        pairs = [(k, expected.get(k), actual.get(k)) for k in {**expected, **actual}]
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = [(k, *both) for k, both in enumerate(zip(expected, actual, strict=True))]
    else:
        numbers = all(type(x) in {int, float} for x in (expected, actual))
        same = math.isclose(expected, actual, rel_tol=rel, abs_tol=rel) if numbers else (
            expected == actual
        )  # fmt: skip
        return [] if same else [f"{where}: {expected} was, {actual} is"]
    return [line for k, a, b in pairs for line in _different(a, b, rel, f"{where}/{k}")]


def keep(name: str, figures: Mapping[str, Any]) -> None:
    """Write the figures of a set of runs, one run on a line."""
    lines = [f" {json.dumps(run)}: {json.dumps(told, ensure_ascii=False)}"
             for run, told in figures.items()]  # fmt: skip
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
