"""Names from logs, safe to print: whoever wrote a log must not steer a terminal."""

from __future__ import annotations

import unicodedata

# Control and format characters, among them escapes and those that reverse the text's direction.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Leave out control characters.

    >>> printable("mock\x1b[31mllm")
    'mock[31mllm'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c for c in text if unicodedata.category(c) not in _UNSAFE)
