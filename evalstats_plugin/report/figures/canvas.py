"""What all figures share: axes to draw into, colours that can be told apart, names shown whole."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from evalstats_plugin.errors import DesignError

P = ParamSpec("P")
AxesT = TypeVar("AxesT")

INK, PAPER, GRID, FAINT = "#1b1b1b", "#fefefe", "#98989a", "#8c8c8d"
"""Of all that is no data. Each is used for that alone, so that a page can put its own in place."""
DARK, LIGHT = "#010101", "#fdfdfd"
"""On colours, whatever the page is."""
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9",
)  # fmt: skip
"""Told apart by the colour-blind [Oka08]_."""
SERIES = tuple(
    zip(
        (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, INK, FAINT),
        ("o", "s", "^", "D", "v", "P", "X", "*"),
        ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 3))),
        strict=True,
    )
)
"""Colour, marker and line style of the first, second, … series: any one of them will do."""
SMALL, NORMAL = 8.0, 9.0
"""Points."""
LINE = 0.165
"""Inches that a line of names takes."""
WIDEST = 56
"""Letters of a line of a name."""
FALLBACK = (
    "Noto Sans CJK SC", "Noto Sans", "Droid Sans Fallback", "WenQuanYi Zen Hei", "PingFang SC",
    "Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS",
    "Noto Sans Arabic", "Noto Sans Devanagari", "Segoe UI Symbol", "Noto Sans Symbols2",
)  # fmt: skip
"""Fonts, where installed, for letters that Matplotlib's own does not have."""


def matplotlib() -> Any:
    """Return Matplotlib.

    Raises
    ------
    DesignError
        It is not installed.
    """
    try:
        for part in ("figure", "font_manager", "ticker"):
            import_module(f"matplotlib.{part}")
    except ModuleNotFoundError as error:
        msg = "figures need Matplotlib: pip install 'evalstats-plugin[figures]'"
        raise DesignError(msg) from error
    return import_module("matplotlib")


def styled(function: Callable[P, AxesT]) -> Callable[P, AxesT]:
    """Draw in our style, whatever the user's settings are, and leave those as they are."""

    @wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> AxesT:
        with matplotlib().rc_context(_style()):
            return function(*args, **kwargs)

    return draw


def _fonts() -> list[str]:
    installed = {font.name for font in matplotlib().font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in FALLBACK if name in installed)]


def _style() -> dict[str, Any]:
    default = matplotlib().rcParamsDefault
    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return {
        **{name: default[name] for name in default if not name.startswith("backend")},
        **dict.fromkeys(ink, INK),
        "font.family": _fonts(),
        "font.size": NORMAL,
        "axes.titlesize": NORMAL,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": NORMAL,
        "axes.facecolor": "none",
        "axes.linewidth": 0.7,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.formatter.use_mathtext": False,
        "figure.facecolor": PAPER,
        "grid.color": GRID,
        "grid.linewidth": 0.5,
        "grid.alpha": 0.5,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "xtick.major.width": 0.7,
        "ytick.major.width": 0.7,
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "hatch.linewidth": 0.6,
        "hatch.color": INK,
        "text.parse_math": False,
    }


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches, which finds room for what stands beside axes."""
    return matplotlib().figure.Figure(figsize=(width, height), layout="constrained")


def axes_or_new(ax: Any, width: float, height: float) -> Any:
    """Return the axes given, or those of a new figure of so many inches."""
    return ax if ax is not None else dressed(new_figure(width, height).add_subplot())


def dressed(axes: Any) -> Any:
    """Give axes of ours the style that ticks made later would not have."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_tick_params(
            labelsize=SMALL, labelcolor=INK, color=INK, width=0.7, labelfontfamily=_fonts()
        )
    return axes


def title(axes: Any, text: str) -> None:
    """Write a title as it is, over as many lines as it needs."""
    axes.set_title(text, parse_math=False)


def shown(name: str, width: int = WIDEST) -> str:
    r"""Return a name as it is drawn: whole, on several lines where it is long.

    It is broken after a mark between words where there is one. Letters that no font can draw
    (controls, halves of a surrogate pair) are drawn as a question mark in a diamond.

    >>> shown("organisation/model-7b-instruct", 16)
    'organisation/\nmodel-7b-\ninstruct'
    """
    clean = "".join(" " if one.isspace() else _drawable(one) for one in name)
    lines: list[str] = []
    for part in re.findall(r"[^\s/_\-.:,|]*[\s/_\-.:,|]?", clean):
        for piece in _pieces(part, width):
            if lines and letters(lines[-1] + piece.rstrip()) <= width:
                lines[-1] += piece
            elif piece:
                lines.append(piece)
    return "\n".join(line.rstrip() for line in lines) or "(no name)"


def _drawable(letter: str) -> str:
    return "\ufffd" if unicodedata.category(letter) in ("Cc", "Cs", "Cn", "Co") else letter


def _pieces(text: str, width: int) -> list[str]:
    """Cut what has no mark to break after."""
    half = width // 2 if letters(text) > len(text) else width
    return [text[i : i + half] for i in range(0, len(text), half)]


def letters(text: str) -> int:
    """Return how wide a text is, in letters; those of East Asia count twice."""
    return sum(1 + (unicodedata.east_asian_width(one) in "WF") for one in text)


def width_of(labels: Sequence[str], size: float = SMALL) -> float:
    """Return the inches that the widest of some labels may take."""
    widest = max((letters(line) for label in labels for line in label.split("\n")), default=0)
    # An average letter of DejaVu Sans is 0.6 of its size wide; an M 0.86.
    return widest * size * 0.66 / 72


def percent_axis(axis: Any) -> None:
    """Write shares as percentages."""
    axis.set_major_formatter(matplotlib().ticker.FuncFormatter(_percent))


def _percent(value: float, _: object) -> str:
    return f"{100 * value:.6g} %"
