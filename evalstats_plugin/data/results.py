"""Frozen records: what an analysis found. They know nothing of how they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, make_dataclass, replace
from functools import cache
from importlib import import_module
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, get_args

from evalstats_plugin.errors import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from pandas.io.formats.style import Styler

    from evalstats_plugin.stats.arrays import FloatArray


RowT = TypeVar("RowT")
KeyT = TypeVar("KeyT")


INSIDE = "inside"
"""Key of the metadata of fields that are no columns of tables, such as a row's measure; its value
is the function that gives their JSON."""


class Drawable:
    """A result that figures show."""

    drawn_as: ClassVar[tuple[str, ...]] = ()
    """Kinds of results that it is, as figures name them."""

    def plot(self, kind: str | None = None, *, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the result with Matplotlib, which the extra ``figures`` brings.

        Parameters
        ----------
        kind
            Name of a figure (`evalstats_plugin.report.FIGURES`); the first that shows such
            results where it is left out.
        ax
            Axes to draw into; by default those of a new figure.
        options
            Of the figure, such as ``items`` of ``"curves"``.

        Raises
        ------
        SelectionError
            No such figure, or none of such results.
        """
        # Loaded on use: results know nothing of how they are shown, but for this door.
        return import_module("evalstats_plugin.report.figures").draw_result(
            self, kind, ax=ax, **options
        )


@dataclass(frozen=True)
class Results(Drawable, Generic[RowT]):
    """An ordered collection of result records with what is common to all of them."""

    rows: tuple[RowT, ...]
    notes: tuple[str, ...] = ()
    """What was dropped, merged or left unread on the way, for people to see."""
    seed: int | None = None
    """Of the random numbers, where a seed was given."""

    def __init_subclass__(cls) -> None:
        # Dataclasses would print every field of every row.
        cls.__repr__ = cls.__repr__  # pyrefly: ignore[method-assign]

    def __repr__(self) -> str:
        kind = type(self.rows[0]).__name__ if self.rows else "row"
        notes = f", {counted(len(self.notes), 'note')}" if self.notes else ""
        return f"<{type(self).__name__}: {len(self.rows)} × {kind}{notes}>"

    def __str__(self) -> str:
        return self._shown_by("plain")

    def _repr_html_(self) -> str:
        """Return the table of `to_markdown` as notebooks show one: at most 60 rows, and notes."""
        return self._shown_by("html")

    def to_markdown(self) -> str:
        """Return the columns that people look at as a Markdown table; `to_frame` has all."""
        return "\n".join([*self._shown_by("markdown"), ""])

    def to_latex(self) -> str:
        """Return the same columns as a LaTeX table (booktabs)."""
        return self._shown_by("latex")

    def style(self) -> Styler:
        """Return the same columns for `pandas` to lay out, to restyle and to export.

        In bold: rows with a clear verdict, and those that may be the best.
        """
        return self._shown_by("styled")

    def _shown_by(self, writer: str) -> Any:
        # Loaded on use: results know nothing of how they are shown, but for this door.
        table = import_module("evalstats_plugin.report.text").shown_table(self)
        return getattr(table, writer)()

    def __iter__(self) -> Iterator[RowT]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> RowT:
        return self.rows[index]

    def to_dict(self) -> list[dict[str, Any]]:
        """One plain dict per row, ready for JSON: finite numbers, strings, lists, None."""
        return [_plain(row) for row in self.rows]

    def to_frame(self) -> pd.DataFrame:
        """One line per row; columns are the record's fields, and what people are shown besides."""
        import pandas as pd

        records, columns = self.to_dict(), self.columns
        frame = pd.DataFrame.from_records(records, columns=columns)
        shown = getattr(type(self.rows[0]), "shown", ()) if self.rows else ()
        derived = {n: [getattr(row, n) for row in self.rows] for n in shown if n not in columns}
        return frame.assign(**derived)

    @property
    def columns(self) -> list[str]:
        """The record's fields; without rows only where the results have a class of their own."""
        if self.rows:
            return _columns(type(self.rows[0]))
        of_base = [arg for base in getattr(self, "__orig_bases__", ()) for arg in get_args(base)]
        return [name for kind in of_base if is_dataclass(kind) for name in _columns(kind)]


def records(
    kind: type[RowT], columns: Mapping[str, Sequence[Any]], same: Mapping[str, Any]
) -> list[RowT]:
    """Build records from columns of one length, and from what is the same in all of them.

    What the constructor of each would do, many times as fast for thousands.
    """
    (length,) = {len(column) for column in columns.values()}
    values: list[Iterable[Any]] = []
    for field in fields(kind):  # type: ignore[arg-type]
        name = field.name
        value = same.get(name, field.default)
        if name not in columns and value is MISSING:
            msg = f"{kind.__name__} needs {name!r}, which is neither a column nor the same in all"
            raise TypeError(msg)
        values.append(columns[name] if name in columns else repeat(value, length))
    made = list(map(_draft(kind), *values))
    for record in made:
        record.__class__ = kind
    return made


@cache
def _draft(kind: type[Any]) -> Callable[..., Any]:
    """Return a class with the same slots that, unlike frozen records, its constructor fills fast.

    What it makes then becomes a record of `kind`.
    """
    names = [field.name for field in fields(kind)]
    return make_dataclass(f"{kind.__name__}Draft", names, slots=True, eq=False, repr=False)


@cache
def _columns(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind) if INSIDE not in field.metadata]


@cache
def _inside(kind: type[Any]) -> dict[str, Callable[[Any], Any]]:
    return {f.name: f.metadata[INSIDE] for f in fields(kind) if INSIDE in f.metadata}


def _plain(row: Any) -> dict[str, Any]:
    kind = cast("type[Any]", type(row))
    inside = _inside(kind)
    plain = asdict(replace(row, **dict.fromkeys(inside)) if inside else row)
    for name, value in plain.items():
        if isinstance(value, tuple):
            plain[name] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    for name, as_json in inside.items():
        held = getattr(row, name)
        plain[name] = None if held is None else as_json(held)
    return plain


def grouped(rows: Iterable[RowT], key: Callable[[RowT], KeyT]) -> dict[KeyT, list[RowT]]:
    """Return rows by their key, keys in the order of their first rows.

    >>> grouped(["b", "a", "bc"], lambda text: text[0])
    {'b': ['b', 'bc'], 'a': ['a']}
    """
    groups: dict[KeyT, list[RowT]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def finite(value: float | None) -> float | None:
    """Return the number, or None where there is none: how results hold what is undefined."""
    return None if value is None or not math.isfinite(value) else float(value)


def finite_values(values: FloatArray) -> list[float | None]:
    """Return the numbers of an array, None where one is not finite (`finite`)."""
    import numpy as np

    is_finite = np.isfinite(values)
    if is_finite.all():
        return values.tolist()
    objects = values.astype(object)
    objects[~is_finite] = None
    return objects.tolist()
