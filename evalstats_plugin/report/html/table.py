"""Tables of the HTML report, as markup and as data for its script, and functions that make HTML.

* `Column`, `Table`: values with their kinds; `table_html`, `table_data`: both forms
* `element`, `joined`, `data`: markup by functions, which escape all text that is not `Markup`
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from evalstats_plugin.report.comparisons import p_value, probability
from evalstats_plugin.report.text import number

SHOWN = 100
"""Rows of a table shown at a time, and the only ones without scripts."""

Role = Literal["", "model", "task", "metric", "flag"]
Kind = Literal[
    "text", "notes", "verdict", "count", "number", "share", "signed", "p", "percent", "interval"
]
TEXTS: tuple[Kind, ...] = ("text", "notes", "verdict")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufffe\uffff]"
)
"""Characters that HTML or UTF-8 cannot represent, or that turn the direction of a text."""

_EMPTY = frozenset({"br", "input", "link", "meta"})


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; each kind of value has its own format, here and in ``page.js``."""

    title: str
    kind: Kind = "text"
    values: Sequence[Any]
    """Texts; numbers or None; pairs of numbers for intervals; tuples of footnotes for notes."""
    role: Role = ""
    """Filter of the page that applies."""
    hint: str = ""
    heads: bool = False
    """Whether it names the row."""
    indent: Sequence[int] = ()
    """Indentation of each value, as for a task within a group."""
    strong: Sequence[bool] = ()
    """Whether each value belongs to a group."""
    middles: Sequence[float | None] = ()
    """Intervals: the estimates."""
    axes: Sequence[tuple[float, float]] = ()
    """Intervals: ranges of the bars, which `axis_of` assigns to rows."""
    axis_of: Sequence[int] = ()
    zero: float | None = None
    """Intervals: position of a reference line."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns of equal length with a name."""

    name: str
    """Prefix of ids, and key of the table's data."""
    caption: str
    columns: Sequence[Column]
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further data for the script."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0].values)

    def shown_columns(self) -> list[Column]:
        """Columns that are not empty."""
        nothing = (None, "", ())
        return [c for c in self.columns if c.heads or any(v not in nothing for v in c.values)]


def table_html(table: Table) -> Markup:
    """Return the table with its first rows, which the page's script replaces."""
    columns = table.shown_columns()
    titles = [
        element("th", c.title, scope="col", title=c.hint or None, class_=_class(c)) for c in columns
    ]
    rows = [element("tr", *[_cell(c, i) for c in columns]) for i in range(min(SHOWN, table.n_rows))]
    left = table.n_rows - SHOWN
    said = (
        f"The first {SHOWN} of {table.n_rows:,} rows; the others show where scripts may run."
        if left > 0
        else ""
    )
    inside = element(
        "table",
        element("caption", table.caption),
        element("thead", element("tr", *titles)),
        element("tbody", *rows),
    )
    return joined(
        element("div", inside, class_="scroll", role="region", tabindex="0",
                aria_label=table.caption),
        element("p", said, class_="rows"),
    )  # fmt: skip


def table_data(table: Table) -> dict[str, Any]:
    """Return the table as plain data, numbers rounded as shown."""
    columns = [_column_data(c) for c in table.shown_columns()]
    return {"name": table.name, "rows": table.n_rows, "columns": columns, **table.extra}


def _column_data(column: Column) -> dict[str, Any]:
    said: dict[str, Any] = {"title": column.title, "kind": column.kind}
    flags = {"role": column.role, "heads": column.heads}
    said |= {key: value for key, value in flags.items() if value}
    if column.kind in TEXTS:
        texts = [_text(column, i) for i in range(len(column.values))]
        places = {text: k for k, text in enumerate(dict.fromkeys(texts))}
        said |= {"strings": list(places), "values": [places[text] for text in texts]}
        said |= {"indent": list(column.indent)} if any(column.indent) else {}
        said |= {"strong": [int(s) for s in column.strong]} if any(column.strong) else {}
    elif column.kind == "interval":
        for key, place in (("low", 0), ("high", 1)):
            said[key] = [None if v is None else shortened(v[place]) for v in column.values]
        said["middle"] = [shortened(v) for v in column.middles]
        said["axes"] = [[shortened(x) for x in axis] for axis in column.axes]
        said["axis"] = list(column.axis_of) if len(column.axes) > 1 else 0
        said |= {"zero": column.zero} if column.zero is not None else {}
        said |= {"signed": 1} if column.zero == 0 else {}
    else:
        said["values"] = [_SHORT[column.kind](v) for v in column.values]
    return said


def shortened(value: float | None) -> float | int | None:
    """Round a number to the digits shown, so that the script formats it alike.

    >>> shortened(0.03125), shortened(12345.678)
    (0.0312, 12300)
    """
    if value is None:
        return None
    short = float(number(value))
    if any(abs(value) < end <= abs(short) for end in (100, 10_000)):
        # Rounding up to where fewer digits are shown would change the format.
        return value
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _short_p(value: float | None) -> float | None:
    if value is None:
        return None
    return float(f"{value:.4f}") if value >= 0.00005 else float(f"{value:.1e}")


def _short_percent(value: float | None) -> float | None:
    if value is None:
        return None
    share = 100 * value
    return float(f"{share:.1f}") if 0.001 <= value <= 0.999 else float(f"{share:.6g}")


_SHORT: Mapping[Kind, Callable[[Any], float | int | None]] = {
    "count": lambda value: value, "number": shortened, "share": shortened, "signed": shortened,
    "p": _short_p, "percent": _short_percent,
}  # fmt: skip


def plain(value: float | None) -> str:
    """Format a number as on the terminal, without a minus before zero.

    >>> plain(0.51234), plain(-0.00001)
    ('0.5123', '0.0000')
    """
    return number(shortened(value))


def signed(value: float | None) -> str:
    """Format a number with its sign.

    >>> signed(0.5), signed(-0.5), signed(0.00001)
    ('+0.5000', '-0.5000', '0.0000')
    """
    text = plain(value)
    return f"+{text}" if value is not None and (shortened(value) or 0) > 0 else text


def counted(value: int | None) -> str:
    """Format an integer."""
    return "–" if value is None else f"{value:,}"


_WRITTEN: Mapping[Kind, Callable[[Any], str]] = {
    "count": counted, "number": plain, "share": plain, "signed": signed, "p": p_value,
    "percent": probability,
}  # fmt: skip


def _text(column: Column, row: int) -> str:
    value = column.values[row]
    return ",".join(map(str, value)) if column.kind == "notes" else clean(value)


def _class(column: Column) -> str | None:
    if column.kind == "interval":
        return "interval"
    return None if column.kind in TEXTS else "number"


def _cell(column: Column, row: int) -> Markup:
    value = column.values[row]
    if column.kind == "notes":
        links = [element("a", str(n), href=f"#note-{n}") for n in value]
        return element("td", *[p for link in links for p in (", ", link)][1:], class_="notes")
    if column.kind == "verdict":
        return element("td", element("span", value, class_=f"verdict {value}"))
    if column.kind == "text":
        depth = column.indent[row] if column.indent else 0
        strong = bool(column.strong) and column.strong[row]
        name = " ".join([*([f"depth-{min(depth, 3)}"] if depth else []), *["strong"] * strong])
        scope = "row" if column.heads else None
        return element("th" if column.heads else "td", value, class_=name or None, scope=scope)
    if column.kind == "interval":
        return element("td", *_interval(column, row), class_="interval")
    drawn = (
        [bar(0, value, None, (0, 1), None)] if column.kind == "share" and value is not None else []
    )
    return element("td", *drawn, _WRITTEN[column.kind](value), class_="number")


def _interval(column: Column, row: int) -> tuple[str, ...]:
    if column.values[row] is None:
        return ("–",)
    write = signed if column.zero == 0 else plain
    low, high = column.values[row]
    text = element("span", f"[{write(low)}, {write(high)}]")
    axis = column.axes[column.axis_of[row] if column.axis_of else 0]
    return (bar(low, high, column.middles[row], axis, column.zero), text)


def bar(
    low: float, high: float, middle: float | None, axis: tuple[float, float], zero: float | None
) -> Markup:
    """Draw an interval: a bar from limit to limit, a stroke at the estimate, a line at zero."""
    start, end = axis
    width = end - start or 1.0

    def place(x: float) -> float:
        return round(100 * min(max((x - start) / width, 0.0), 1.0), 1)

    drawn = [element("rect", class_="axis", x=0, y=6, width=100, height=1)]
    if zero is not None:
        drawn.append(element("rect", class_="zero", x=place(zero), y=0, width=0.8, height=13))
    size = max(round(place(high) - place(low), 1), 0.5)
    drawn.append(element("rect", class_="reach", x=place(low), y=4, width=size, height=5))
    if middle is not None:
        x = max(round(place(middle) - 0.8, 1), 0)
        drawn.append(element("rect", class_="middle", x=x, y=1, width=1.6, height=11))
    return element("svg", *drawn, class_="bar", viewBox="0 0 100 13",
                   preserveAspectRatio="none", aria_hidden="true")  # fmt: skip


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def clean(text: str) -> str:
    """Replace characters that HTML cannot represent, or that turn a text, by U+FFFD.

    >>> clean(f"a{chr(0)}b") == f"a{chr(0xFFFD)}b"
    True
    """
    return _UNSEEN.sub("\ufffd", text)


def markup(part: str) -> str:
    """Return markup as it is, and any other text escaped."""
    return part if isinstance(part, Markup) else escape(clean(part))


def element(name: str, /, *parts: str, **attributes: str | float | bool | None) -> Markup:
    """Return an element; text within it is escaped, markup is not.

    Attributes are named as in HTML, with ``_`` for ``-`` and appended to Python keywords. None and
    False omit an attribute; True gives one without a value.

    >>> element("td", "a < b", class_="x")
    '<td class="x">a &lt; b</td>'
    """
    said = "".join(
        _attribute(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{''.join(map(markup, parts))}</{name}>")


def _attribute(name: str, value: str | float | bool) -> str:  # noqa: FBT001 - or stands alone
    return f" {name}" if value is True else f' {name}="{markup(str(value))}"'


def joined(*parts: str) -> Markup:
    """Concatenate parts; text is escaped."""
    return Markup("".join(map(markup, parts)))


def data(value: Any, **attributes: str) -> Markup:
    """Return a block of JSON for the page's script, which cannot be executed.

    It is ASCII and contains no ``<``, so that it can neither end early nor begin a comment.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return element("script", Markup(text), type="application/json", **attributes)
