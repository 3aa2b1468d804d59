"""Items and rankings laid out as lines of a terminal, off the thread that draws them."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, Markdown
from rich.text import Text
from textual.strip import Strip

from evalstats_plugin.judging.items import Item

if TYPE_CHECKING:
    from evalstats_plugin.judging.standing import Ranking

LONGEST_MARKDOWN = 100_000
"""Characters laid out as Markdown in a second or so; what is longer is shown as plain text."""

LEAST_BAR = 8
"""Columns under which an interval is not drawn."""

_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | dict.fromkeys(
    (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD
)
"""Characters that move the cursor or turn the direction of text, to signs for them."""


def shown(text: str) -> str:
    """Return text with control characters made visible.

    >>> shown("a" + chr(27) + "[31m")
    'a␛[31m'
    """
    return text.replace("\r\n", "\n").translate(_VISIBLE)


class _LeftHeading(Heading):
    """A heading as the eye looks for it, at the left."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.stylize("bold underline" if self.tag in ("h1", "h2") else "bold")
        yield self.text


class _Markdown(Markdown):
    elements: ClassVar = {**Markdown.elements, "heading_open": _LeftHeading}


def item_lines(item: Item, width: int, height: int, *, in_the_middle: bool) -> list[Strip]:
    """Lay out one item for so many columns; a short one stands in the middle of the rows."""
    text = shown(item.text)
    if item.markdown and len(text) <= LONGEST_MARKDOWN:
        return _strips(_Markdown(text, hyperlinks=False), width)
    if not text.strip():
        return _strips(Text("(empty)", style="dim italic"), width)
    if not in_the_middle:
        return _strips(Text(text), width)
    lines = _strips(Text(text, style="bold", justify="center"), width)
    return [Strip([])] * ((height - len(lines)) // 2) + lines


def _strips(content: RenderableType, width: int) -> list[Strip]:
    console = Console(
        width=max(1, width), file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    return [Strip(line) for line in console.render_lines(content, pad=False)]


def ranking_lines(
    ranking: Ranking, names: tuple[str, ...], width: int, marked: Sequence[int] = ()
) -> list[Strip]:
    """Lay out a ranking for so many columns, with bars for the intervals where there is room.

    Parameters
    ----------
    marked
        Places of items to be set off: those that are being compared.
    """
    digits = len(str(len(names)))
    longest = max(Text(shown(name)).cell_len for name in names)
    rest = width - digits - 7
    bar = min(40, rest - 1 - min(longest, max(12, rest // 2)))
    bar = bar if bar >= LEAST_BAR else -1
    name_width = max(4, min(longest, rest - bar - 1))
    scale = "worse".ljust(max(0, bar - 6)) + "better" if bar >= 16 else ""
    head = f"{'':{digits}} {'item':{name_width}.{name_width}} {scale:{max(bar + 1, 0)}} best"
    lines = [Text(head, style="dim")]
    for rank, k in enumerate(ranking.order.tolist(), 1):
        name = Text(shown(names[int(k)]).replace("\n", " "), style="bold" if k in marked else "")
        name.truncate(name_width, overflow="ellipsis", pad=True)
        parts = [Text(f"{rank:{digits}} ", style="dim"), name, Text(" ")]
        if bar > 0:
            parts += [interval_bar(ranking, k, bar), Text(" ")]
        lines.append(Text.assemble(*parts, f"{chance(float(ranking.prob_best[k])):>5}"))
    return _strips(Text("\n").join(lines), max(width, 16))


def interval_bar(ranking: Ranking, place: int, width: int) -> Text:
    """Draw one interval on the scale of all, with a dot at the rating."""
    least, most = float(ranking.low.min()), float(ranking.high.max())
    step = (width - 1) / max(most - least, 1e-9)
    ends = (ranking.low[place], ranking.rating[place], ranking.high[place])
    start, dot, end = (round((float(value) - least) * step) for value in ends)
    bar = Text.assemble(
        " " * start,
        ("─" * (dot - start), "dim"),
        ("●", "bold green"),
        ("─" * (end - dot), "dim"),
    )
    bar.truncate(width, pad=True)
    return bar


def chance(probability: float) -> str:
    """Write a probability as people say it.

    >>> chance(0.97), chance(0.999), chance(0.001)
    ('97 %', '>99 %', '<1 %')
    """
    if probability > 0.99:
        return ">99 %"
    return "<1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def counted(n: int, what: str) -> str:
    """Write a number of things.

    >>> counted(1, "answer"), counted(2, "answer")
    ('1 answer', '2 answers')
    """
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def progress_line(reached: float, wanted: float, what: str, width: int) -> Text:
    """Draw how far a certainty of ``what`` is reached."""
    words = f"{what} {chance(reached)} of {100 * wanted:g} %"
    room = max(4, width - len(words) - 2)
    done = round(room * min(1.0, reached / wanted))
    colour = "green" if reached >= wanted else "yellow"
    return Text.assemble(
        (words, "bold" if reached >= wanted else ""),
        "  ",
        ("━" * done, colour),
        ("━" * (room - done), "dim"),
    )
