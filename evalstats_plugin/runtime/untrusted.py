"""Text that logs, tables, file names and plugins hold, made harmless for each place it goes to.

Nothing that the package did not write itself goes anywhere else: a test reads the source for it.

* `printable`, `printable_name`, `echo`, `echo_message`, `terminal`: terminals, of any encoding
  (`escape_on`)
* `json_text`: JSON, which stays the same value;  `echo_data`: JSON and CSV on standard output
* `csv_cell`, `csv_original`, `csv_text`: tables that spreadsheets open
* `markdown_text`, `markdown_link`, `latex_text`: documents
* `path_part`: names of files and folders
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import WriteError

if TYPE_CHECKING:
    from rich.console import Console

_REMOVED = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories of controls, invisible marks, halves of surrogate pairs and line ends."""

_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

_LONGEST_PART = 255
"""Bytes that file systems allow in the name of a file."""


class _Kept(dict[int, int | str | None]):
    """By code point, what `str.translate` puts in its place; filled as letters are seen."""

    def __init__(
        self, kept: str = "", removed: frozenset[str] = _REMOVED, instead: str = ""
    ) -> None:
        super().__init__({ord(letter): ord(letter) for letter in kept})
        self.removed, self.instead = removed, ord(instead) if instead else None

    def __missing__(self, code: int) -> int | str | None:
        category = unicodedata.category(chr(code))
        kept = self.instead if category in self.removed else code
        # Half a letter is no text, but names that differ in it are different names.
        self[code] = f"\\u{code:04x}" if category == "Cs" and kept is None else kept
        return self[code]


_NAMES = _Kept()
_TEXTS = _Kept("\n\t")
_VISIBLE = _Kept("\n\t", _REMOVED | {"Cn"}, "\ufffd")


def printable(text: str) -> str:
    r"""Remove characters that control a terminal or the direction of a text.

    Tabs and line feeds stay; halves of surrogate pairs are escaped.

    >>> printable("m\x1b[31m\n")
    'm[31m\n'
    """
    return text if text.isprintable() else text.translate(_TEXTS)


def printable_name(text: str) -> str:
    r"""As `printable`, without tabs and line feeds.

    >>> printable_name("mock\x1b[31m\nllm")
    'mock[31mllm'
    """
    return text if text.isprintable() else text.translate(_NAMES)


def visible(text: str) -> str:
    """Replace what `printable` removes, and what is no letter at all, by U+FFFD: for documents.

    >>> visible(f"a{chr(0)}b") == f"a{chr(0xFFFD)}b"
    True
    """
    return text if text.isprintable() else text.translate(_VISIBLE)


def echo(text: object, *, err: bool = False, nl: bool = True, bold: bool = False) -> None:
    """Print a text without control characters: the one way of commands to the terminal."""
    import click

    shown = printable(str(text))
    click.echo(click.style(shown, bold=True) if bold else shown, err=err, nl=nl)


def echo_data(text: str) -> None:
    """Print JSON or CSV: in UTF-8, whatever the encoding of standard output."""
    import click

    click.echo(text.encode(errors="backslashreplace"), nl=False)


_PLAIN = {
    "–": "-", "−": "-", "─": "-", "×": "x", "…": "...", "→": "->", "↑": "(up)", "↓": "(down)",
    "≤": "<=", "≥": ">=", "±": "+/-", "·": ".", "’": "'", "⁻": "-", "°": "deg",
}  # fmt: skip
"""Our own signs where an encoding lacks them."""


def _escaped_part(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    shown = (_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in part)
    return "".join(shown), error.end


codecs.register_error("evalstats_plugin", _escaped_part)


def escape_on(*streams: object) -> None:
    """Have streams escape what their encoding lacks, such as names on a terminal in cp1252."""
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="evalstats_plugin")


def echo_message(kind: str, text: object) -> None:
    """Print ``kind: text`` on standard error; lines after the first are indented.

    So no name can look like another message.
    """
    echo(f"{kind}: {text}".replace("\n", "\n  "), err=True)


def terminal(**settings: Any) -> Console:
    """Return rich's console, which then shows no control characters of what it is given."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Terminal(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                # Controls are rich's own codes.
                yield Segment(text if control else printable(text), style, control)

    return Terminal(**settings)


def json_text(value: Any, *, indent: int | None = 2) -> str:
    r"""Return JSON in which only printable characters stand for themselves.

    >>> json_text("a\x9bb\u202e", indent=None)
    '"a\\u009bb\\u202e"'
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    return re.sub(r"[^\x20-\x7e\n]+", _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    # Only JSON's own encoder knows the two halves of a letter beyond U+FFFF.
    return "".join(
        c if c.isprintable() else f"\\u{ord(c):04x}" if c <= "\uffff" else json.dumps(c)[1:-1]
        for c in match[0]
    )


def csv_cell(text: str) -> str:
    """Return a text that a spreadsheet does not calculate: an apostrophe marks it as text.

    >>> csv_cell("=1+1"), csv_cell("-0.5"), csv_cell("gpt-4")
    ("'=1+1", '-0.5', 'gpt-4')
    """
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def csv_original(cell: str) -> str:
    """Return the text of `csv_cell`.

    >>> csv_original("'=1+1")
    '=1+1'
    """
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return comma-separated values with a heading; texts are printable and no formulas."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in (dict(zip(columns, columns, strict=True)), *rows):
        cells = (row[name] for name in columns)
        writer.writerow([csv_cell(printable(c)) if isinstance(c, str) else c for c in cells])
    return text.getvalue()


_ACTIVE = re.compile(
    r"(?<!\w)@(?=\w)|@(?=[\w-]+\.)|#(?=\d)|\b(?:https?|ftp)(?=://)|\bwww(?=\.)", re.IGNORECASE
)
"""What code hosts turn into a mention, a reference or a link, up to where it can be broken."""


def markdown_text(text: str) -> str:
    r"""Return one line of Markdown without elements of HTML, links, images or mentions of people.

    >>> markdown_text("<b>[a](b)\n")
    '&lt;b>[a]\\(b) '
    >>> markdown_text("@ann #12 pass@4")
    '@&#8203;ann #&#8203;12 pass@4'
    >>> print(markdown_text("C:\\logs"))
    C:\\logs
    """
    literal = re.sub(r"&(?=#?\w+;)", "&amp;", printable(text).replace("\n", " "))
    literal = literal.replace("\\", "\\\\")
    inert = literal.replace("<", "&lt;").replace("](", "]\\(")
    return _ACTIVE.sub(r"\g<0>&#8203;", inert)


def markdown_link(text: str, url: str) -> str:
    r"""Return a link of Markdown whose text is no markup, to an address without brackets or spaces.

    >>> markdown_link("item [1]", "https://a.b/c")
    '[item \\[1\\]](https://a.b/c)'
    """
    literal = re.sub(r"[\[\]`]", r"\\\g<0>", markdown_text(text).replace("]\\(", "]("))
    return f"[{literal}]({url})"


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "|": r"\textbar{}", "…": r"\ldots{}", "–": "--",
    "<": r"\textless{}", ">": r"\textgreater{}", "½": r"$\frac{1}{2}$", "±": r"$\pm$",
    "≥": r"$\geq$", "≤": r"$\leq$", "−": "$-$", "×": r"$\times$", "√": r"$\surd$", "²": "$^2$",
    **{letter: f"\\{letter}" for letter in "#$%&_"},
}  # fmt: skip


def latex_text(text: str) -> str:
    r"""Return one line of LaTeX in which no character is a command.

    >>> latex_text("a_b \\input{x} 50 %")
    'a\\_b \\textbackslash{}input\\{x\\} 50 \\%'
    >>> print(latex_text("leaderboard|arc"))
    leaderboard\textbar{}arc
    >>> print(latex_text("--cluster"))
    -{}-cluster
    """
    # Two hyphens would be a dash.
    pieces = re.split("(?<=-)(?=-)", visible(text).replace("\n", " "))
    return "{}".join("".join(_LATEX.get(letter, letter) for letter in piece) for piece in pieces)


def path_part(name: str, what: str) -> str:
    """Return a name that a log gives, after checking that it is one part of a path.

    Raises
    ------
    WriteError
        It is not: a file would be written outside the folder that was named.
    """
    dangerous = name in {"", ".", ".."} or "/" in name or "\\" in name
    too_long = len(name.encode(errors="surrogateescape")) > _LONGEST_PART
    if dangerous or too_long or not name.isprintable():
        shown = f"{name[:60]!r}{'…' * (len(name) > 60)}"
        raise WriteError(
            f"{what} {shown} cannot name a file: it must be one part of a path, printable and of "
            f"at most {_LONGEST_PART} bytes. Correct it in the log."
        )
    return name
