"""A table of the page: as HTML for all to read, and as data for sorting and filtering."""
# PART html_markup - HTML by functions: what is not markup already is escaped, whoever wrote it.

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
"""Rows of a table that are shown at a time, and without scripts at all."""


Role = Literal["", "model", "task", "metric", "flag"]


Kind = Literal[
    "text", "notes", "verdict", "count", "number", "share", "signed", "p", "percent", "interval"
]


TEXTS: tuple[Kind, ...] = ("text", "notes", "verdict")


_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters and halves of surrogate pairs: no place in HTML, nor in UTF-8."""


_EMPTY = frozenset({"br", "input", "link", "meta"})


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; each kind of value is written in its own way, here and in ``html_page.js``."""

    title: str
    kind: Kind = "text"
    values: Sequence[Any]
    """Texts; numbers or None; of an interval pairs of them; of notes a tuple of their numbers."""
    role: Role = ""
    """Which filter of the page looks at it."""
    hint: str = ""
    heads: bool = False
    """Whether it names the row."""
    indent: Sequence[int] = ()
    """How far in each value is shown, as a task within a group."""
    strong: Sequence[bool] = ()
    """Which values are of a group."""
    middles: Sequence[float | None] = ()
    """Of intervals: the estimates."""
    axes: Sequence[tuple[float, float]] = ()
    """Of intervals: where the bars of rows begin and end, by `axis_of`."""
    axis_of: Sequence[int] = ()
    zero: float | None = None
    """Of intervals: where a line is drawn."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns of one length, and what the table is called."""

    name: str
    """Of its elements, and of what it has beside rows."""
    caption: str
    columns: Sequence[Column]
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What scripts need beside the rows."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0].values)

    def shown_columns(self) -> list[Column]:
        """Columns that say anything at all."""
        nothing = (None, "", ())
        return [c for c in self.columns if c.heads or any(v not in nothing for v in c.values)]


def table_html(table: Table) -> Markup:
    """Return the table with its first rows; the page's script puts others in their place."""
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
    """Return the table as plain data, numbers with the digits that are shown."""
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
    """Return a number with the digits that are shown of it, so that scripts write the same.

    >>> shortened(0.03125), shortened(12345.678)
    (0.0312, 12300)
    """
    if value is None:
        return None
    short = float(number(value))
    if any(abs(value) < end <= abs(short) for end in (100, 10_000)):
        # Rounded up to where fewer digits are shown, of it all are.
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


def _same(value: int | None) -> int | None:
    return value


_SHORT: Mapping[Kind, Callable[[Any], float | int | None]] = {
    "count": _same, "number": shortened, "share": shortened, "signed": shortened, "p": _short_p,
    "percent": _short_percent,
}  # fmt: skip


def plain(value: float | None) -> str:
    """Write a number as on the terminal, but for a minus before nothing.

    >>> plain(0.51234), plain(-0.00001)
    ('0.5123', '0.0000')
    """
    return number(shortened(value))


def signed(value: float | None) -> str:
    """Write a number with its sign.

    >>> signed(0.5), signed(-0.5), signed(0.00001)
    ('+0.5000', '-0.5000', '0.0000')
    """
    text = plain(value)
    return f"+{text}" if value is not None and (shortened(value) or 0) > 0 else text


def counted(value: int | None) -> str:
    """Write a whole number."""
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
    """Text that is HTML already."""

    __slots__ = ()


def clean(text: str) -> str:
    """Replace what no HTML file can hold by the sign for such, U+FFFD.

    >>> clean(f"a{chr(0)}b") == f"a{chr(0xFFFD)}b"
    True
    """
    return _UNSEEN.sub("\ufffd", text)


def markup(part: str) -> str:
    """Return markup as it is, and any other text escaped."""
    return part if isinstance(part, Markup) else escape(clean(part))


def element(name: str, /, *parts: str, **attributes: str | float | bool | None) -> Markup:
    """Return an element; texts within it are escaped, markup is not.

    Attributes are named as in HTML, with ``_`` for ``-`` and at the end of Python's own words;
    those that are None or False are left out, and True stands alone.

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
    """Return the parts one after the other; texts are escaped."""
    return Markup("".join(map(markup, parts)))


def data(value: Any, **attributes: str) -> Markup:
    """Return a block of JSON that scripts of the page can read, and that nothing can run.

    Without a ``<`` it cannot end early, nor begin a comment; all of it is ASCII.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return element("script", Markup(text), type="application/json", **attributes)
