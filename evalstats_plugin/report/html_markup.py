"""HTML by functions: what is not markup already is escaped, whoever wrote it."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters and halves of surrogate pairs: no place in HTML, nor in UTF-8."""

_EMPTY = frozenset({"br", "input", "link", "meta"})


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
