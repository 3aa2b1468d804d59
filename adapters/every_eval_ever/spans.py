"""Where values lie in the text of a JSON file, so that one can be replaced and the rest stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")

Span = tuple[int, int]
"""First character and the one after the last."""


def members(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """Give the names and the places of the values of an object that begins at a character."""
    at = _after_space(text, start + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _after_space(text, _after_space(text, at) + 1)
        _, end = _DECODER.raw_decode(text, begin)
        yield name, (begin, end)
        at = _after_comma(text, end)


def entries(text: str, start: int) -> Iterator[Span]:
    """Give the places of the values of a list that begins at a character."""
    at = _after_space(text, start + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _after_comma(text, end)


def member(text: str, start: int, name: str) -> Span:
    """Return the place of one value of an object: the last of its name, as JSON has it."""
    return dict(members(text, start))[name]


def replaced(text: str, spans: list[Span], new: Callable[[int, str], str]) -> str:
    """Return a text with what is at some places replaced, given each one's number and text."""
    parts: list[str] = []
    at = 0
    for number, (begin, end) in enumerate(spans):
        parts += [text[at:begin], new(number, text[begin:end])]
        at = end
    return "".join([*parts, text[at:]])


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _after_comma(text: str, at: int) -> int:
    at = _after_space(text, at)
    return _after_space(text, at + 1) if text[at] == "," else at
