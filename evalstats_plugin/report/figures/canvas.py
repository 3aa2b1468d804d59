"""What all figures share: style, axes, rows of names, and output as files.

* `styled`, `axes_or_new`, `shown`, `series`: style, axes, names and marks
* `Rows`, `frame`: figures with a row for everything, names on the left under headings
* `save`: figures as files
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from evalstats_plugin.errors import DesignError, install_hint
from evalstats_plugin.runtime.untrusted import visible
from evalstats_plugin.runtime.writing import check_output_path, write_bytes
from evalstats_plugin.stats.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


P = ParamSpec("P")
AxesT = TypeVar("AxesT")
INK, PAPER, GRID, FAINT = "#1b1b1b", "#fefefe", "#98989a", "#8c8c8d"
"""Colours of text, background and lines."""

DARK, LIGHT = "#010101", "#fdfdfd"
"""Text on coloured areas, the same on every page."""

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9",
)  # fmt: skip
"""A palette that the colour-blind can distinguish [Oka08]_."""

SERIES = tuple(
    zip(
        (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, INK, FAINT),
        ("o", "s", "^", "D", "v", "P", "X", "*"),
        ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 3))),
        strict=True,
    )
)
"""Colour, marker and line style of the first, second, … series; each alone identifies it."""

SMALL, NORMAL = 8.0, 9.0
"""Font sizes in points."""

LINE = 0.165
"""Height of a line of names in inches."""

WIDEST = 56
"""Longest line of a name, in letters."""

FALLBACK = (
    "Noto Sans CJK SC", "Noto Sans", "Droid Sans Fallback", "WenQuanYi Zen Hei", "PingFang SC",
    "Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS",
    "Noto Sans Arabic", "Noto Sans Devanagari", "Segoe UI Symbol", "Noto Sans Symbols2",
)  # fmt: skip
"""Fonts to try for letters that Matplotlib's own font lacks."""

MOST_ROWS = 400
"""Rows of a figure two metres high."""

_CLOSER = 0.82
"""Line spacing within a name, relative to that between names."""

FORMATS = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 200
_MISSING = re.compile(r"Glyph (\d+)")
_UNDATED: dict[str, dict[str, Any]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


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
        raise DesignError(f"figures need Matplotlib: {install_hint('figures')}") from error
    return import_module("matplotlib")


def styled(function: Callable[P, AxesT]) -> Callable[P, AxesT]:
    """Decorate a plot function to draw in our style, without changing the user's settings."""

    @wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> AxesT:
        with matplotlib().rc_context(_style()):
            return function(*args, **kwargs)

    return draw


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


def _fonts() -> list[str]:
    installed = {font.name for font in matplotlib().font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in FALLBACK if name in installed)]


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches, with constrained layout."""
    return matplotlib().figure.Figure(figsize=(width, height), layout="constrained")


def axes_or_new(ax: Any, width: float, height: float) -> Any:
    """Return the axes given, or those of a new figure of a size in inches."""
    return ax if ax is not None else dressed(new_figure(width, height).add_subplot())


def dressed(axes: Any) -> Any:
    """Set the tick style of our own axes, as ticks made later ignore the current settings."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_tick_params(
            labelsize=SMALL, labelcolor=INK, color=INK, width=0.7, labelfontfamily=_fonts()
        )
    return axes


def series(k: int) -> tuple[str, str, Any, str]:
    """Return colour, marker, line style and filling of series k; marks repeat as open ones."""
    color, marker, dashes = SERIES[k % len(SERIES)]
    return color, marker, dashes, color if k < len(SERIES) else PAPER


def title(axes: Any, text: str) -> None:
    """Set a title without interpreting mathematics in it."""
    axes.set_title(text, parse_math=False)


def shown(name: str, width: int = WIDEST) -> str:
    r"""Return a name as it is drawn: whole, wrapped onto several lines if it is long.

    Lines break after a separator if possible. Characters that no font can draw (controls, halves
    of a surrogate pair) become U+FFFD.

    >>> shown("organisation/model-7b-instruct", 16)
    'organisation/\nmodel-7b-\ninstruct'
    """
    clean = visible("".join(" " if character.isspace() else character for character in name))
    lines: list[str] = []
    for part in re.findall(r"[^\s/_\-.:,|]*[\s/_\-.:,|]?", clean):
        longest = width // 2 if letters(part) > len(part) else width
        for piece in (part[i : i + longest] for i in range(0, len(part), longest)):
            if lines and letters(lines[-1] + piece.rstrip()) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
    return "\n".join(line.rstrip() for line in lines) or "(no name)"


def letters(text: str) -> int:
    """Return the width of a text in letters; wide East Asian characters count twice."""
    return sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in text)


def width_of(labels: Sequence[str]) -> float:
    """Return an upper estimate of the width of some labels in inches."""
    widest = max((letters(line) for label in labels for line in label.split("\n")), default=0)
    # The average letter of DejaVu Sans is 0.6 of the font size wide; an M 0.86.
    return widest * SMALL * 0.66 / 72


def lines_of(labels: Sequence[str]) -> FloatArray:
    """Return the height of each label, in lines of names."""
    return np.array([1 + _CLOSER * label.count("\n") for label in labels], dtype=np.float64)


def percent_axis(axis: Any) -> None:
    """Label an axis of shares in per cent."""

    def percent(value: float, _: object) -> str:
        return f"{100 * value:.6g} %"

    axis.set_major_formatter(matplotlib().ticker.FuncFormatter(percent))


class Rows(NamedTuple):
    """Positions and names of rows."""

    labels: Sequence[str]
    """Names of rows and headings, from the top."""
    at: FloatArray
    """Positions of all labels, downwards in lines."""
    places: FloatArray
    """Positions of the rows alone."""
    is_heading: Sequence[bool]
    room: float
    """Total height in lines."""
    title: str

    @classmethod
    def of(cls, named: Sequence[tuple[str, str]]) -> Rows:
        """Lay out rows, each a group and a name; a single group or name becomes the title.

        Raises
        ------
        DesignError
            There are none, or too many for one figure.
        """
        if not 0 < len(named) <= MOST_ROWS:
            msg = f"a figure has room for {MOST_ROWS} rows, not {len(named):,}: choose "
            raise DesignError(f"{msg}tasks or models" if named else "nothing to draw: no rows")
        groups = [key for key, _ in groupby(group for group, _ in named)]
        names = {name for _, name in named}
        title, labels, is_heading = "", list[str](), list[bool]()
        if len(groups) == 1:
            title, labels = groups[0], [name for _, name in named]
        elif len(names) == 1:
            title, labels = named[0][1], [group for group, _ in named]
        else:
            for group, own in groupby(named, key=lambda row: row[0]):
                under = [name for _, name in own]
                labels += [group, *under]
                is_heading += [True, *(False for _ in under)]
        is_heading = is_heading or [False] * len(labels)
        labels = [shown(label) for label in labels]
        heights = lines_of(labels)
        above = np.array([0.4 * (head and i > 0) for i, head in enumerate(is_heading)])
        ends = np.cumsum(heights + above)
        at = ends - heights / 2
        title = shown(title, 2 * WIDEST) if title else ""
        return cls(labels, at, at[~np.array(is_heading)], is_heading, float(ends[-1]), title)

    @property
    def height(self) -> float:
        """Height of the rows with the axis and the title, in inches."""
        return self.room * LINE + 0.7 + self.title_height

    @property
    def title_height(self) -> float:
        """Height of the title in inches."""
        return 0.17 * (self.title.count("\n") + 1) if self.title else 0.0

    @property
    def width(self) -> float:
        """Width of the names in inches."""
        return width_of(self.labels)

    def write(self, axes: Any) -> None:
        """Draw names and title, and of the frame only the axis below."""
        axes.set_yticks(self.at, self.labels, fontsize=SMALL, parse_math=False, linespacing=1.0)
        for label, heading in zip(axes.get_yticklabels(), self.is_heading, strict=True):
            label.set_fontweight("bold" if heading else "normal")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(self.room + 0.25, -0.25)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        title(axes, self.title)

    def beside(self, axes: Any, texts: Sequence[str]) -> None:
        """Draw a text to the right of each row."""
        place = axes.get_yaxis_transform()
        for y, text in zip(self.places, texts, strict=True):
            axes.text(1.02, y, text, transform=place, va="center_baseline", ha="left",
                      fontsize=SMALL, color=INK, parse_math=False)  # fmt: skip

    def legend(self, axes: Any, handles: Sequence[Any]) -> None:
        """Draw a legend above the rows, below the title if there is one."""
        title(axes, "")
        said = axes.legend(
            handles=handles, loc="lower left", ncols=3, borderaxespad=0.2,
            handletextpad=0.5, columnspacing=1.4, bbox_to_anchor=(0, 1), title=self.title or None,
            alignment="left", title_fontproperties={"weight": "bold", "size": NORMAL},
        )  # fmt: skip
        said.get_title().set_parse_math(False)


def frame(axes: Any, values: Sequence[float], *, share: bool = False) -> None:
    """Set the range of the x axis from some values; shares stay within 0 and 1."""
    if not values:
        axes.set_xticks([])
        return
    low, high = min(values), max(values)
    room = 0.04 * (high - low) or 0.05 * (abs(high) or 1.0)
    low, high = low - room, high + room
    if share:
        # Room for a whole mark at either end.
        low, high = max(low, -0.015), min(high, 1.015)
    axes.set_xlim(low, high)
    axes.locator_params(axis="x", nbins=6)


def check_figure(path: str | Path, *, asked: str = "") -> Path:
    """Return the path to write a figure to, which the option `asked` named, if it is possible.

    Raises
    ------
    SelectionError
        The extension is of no known format.
    WriteError
        There is no such folder, or a folder has that name.
    DesignError
        Matplotlib is not installed.
    """
    place = check_output_path(path, FORMATS, asked=asked)
    matplotlib()
    return place


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure in the format of the file's extension, reproducibly.

    Warns
    -----
    UserWarning
        As of `rendered`.

    Raises
    ------
    SelectionError, WriteError, DesignError
        As of `check_figure`.
    """
    place = check_figure(path)
    return write_bytes(place, rendered(figure, place.suffix.lower()))


def rendered(figure: Figure, ending: str) -> bytes:
    """Return the content of a figure's file with this ending, the same at every call.

    Warns
    -----
    UserWarning
        Some letters are in no installed font and are drawn as boxes.
    """
    own = {"svg.fonttype": "none", "svg.hashsalt": "evalstats", "pdf.fonttype": 42}
    content = BytesIO()
    with warnings.catch_warnings(record=True) as caught, matplotlib().rc_context(own):
        warnings.simplefilter("always")
        drawn: Any = figure
        drawn.savefig(content, format=ending[1:], dpi=DOTS_PER_INCH, metadata=_UNDATED[ending])
    missing: dict[str, None] = {}
    for warning in caught:
        glyph = _MISSING.search(str(warning.message))
        if glyph is None:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        else:
            missing[chr(int(glyph[1]))] = None
    if missing and ending != ".svg":
        msg = f"no font here has {' '.join(missing)}: drawn as boxes; an .svg shows them"
        warnings.warn(msg, stacklevel=2)
    return content.getvalue()
