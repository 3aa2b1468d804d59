"""What all figures share: axes to draw into, colours that can be told apart, names shown whole."""
# PART rows - Figures with a row for everything: names on the left, under headings where there are several.
# PART files - Figures as files, or as part of a page.

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from hashlib import sha256
from html import escape
from importlib import import_module
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.runtime.files import check_place, write_bytes
from evalstats_plugin.stats.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


MOST_ROWS = 400
"""A figure more than two metres high is no figure any more."""


_CLOSER = 0.82
"""Lines of one name stand closer together than names do."""


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


class Rows(NamedTuple):
    """Where rows stand and what they are called."""

    labels: Sequence[str]
    """Of rows and headings, from the top."""
    at: FloatArray
    """Downwards, in lines."""
    places: FloatArray
    """Of the rows alone."""
    is_heading: Sequence[bool]
    room: float
    """Of all together, in lines."""
    title: str

    @classmethod
    def of(cls, named: Sequence[tuple[str, str]], *, width: int = WIDEST) -> Rows:
        """Lay out rows, each a group and a name: one group, or one name in all, is the title.

        Raises
        ------
        DesignError
            There are none, or too many for one figure.
        """
        if not 0 < len(named) <= MOST_ROWS:
            msg = f"{len(named):,} rows found, expected at most {MOST_ROWS} in a figure: choose "
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
        labels = [shown(label, width) for label in labels]
        heights = np.array([1 + _CLOSER * label.count("\n") for label in labels])
        above = np.array([0.4 * (head and i > 0) for i, head in enumerate(is_heading)])
        ends = np.cumsum(heights + above)
        at = ends - heights / 2
        title = shown(title, 2 * WIDEST) if title else ""
        return cls(labels, at, at[~np.array(is_heading)], is_heading, float(ends[-1]), title)

    @property
    def height(self) -> float:
        """Inches of the rows with an axis under them and the title above."""
        return self.room * LINE + 0.7 + self.title_height

    @property
    def title_height(self) -> float:
        """Inches."""
        return 0.17 * (self.title.count("\n") + 1) if self.title else 0.0

    @property
    def width(self) -> float:
        """Inches of the names."""
        return width_of(self.labels)

    def write(self, axes: Any) -> None:
        """Write names and title, and draw no more of a frame than the axis below."""
        axes.set_yticks(self.at, self.labels, fontsize=SMALL, parse_math=False, linespacing=1.0)
        for label, heading in zip(axes.get_yticklabels(), self.is_heading, strict=True):
            label.set_fontweight("bold" if heading else "normal")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(self.room + 0.25, -0.25)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        title(axes, self.title)

    def beside(self, axes: Any, texts: Sequence[str]) -> None:
        """Write a text to the right of each row."""
        place = axes.get_yaxis_transform()
        for y, text in zip(self.places, texts, strict=True):
            axes.text(1.02, y, text, transform=place, va="center_baseline", ha="left",
                      fontsize=SMALL, color=INK, parse_math=False)  # fmt: skip

    def legend(self, axes: Any, handles: Sequence[Any], columns: int = 3) -> None:
        """Say above the rows what marks mean; below the title where there is one."""
        title(axes, "")
        said = axes.legend(
            handles=handles, loc="lower left", ncols=columns, borderaxespad=0.2,
            handletextpad=0.5, columnspacing=1.4, bbox_to_anchor=(0, 1), title=self.title or None,
            alignment="left", title_fontproperties={"weight": "bold", "size": NORMAL},
        )  # fmt: skip
        said.get_title().set_parse_math(False)


def frame(axes: Any, values: Sequence[float], *, share: bool = False) -> None:
    """Give the axis below the range of some values; of shares of 1 no more than there can be."""
    if not values:
        axes.set_xticks([])
        return
    low, high = min(values), max(values)
    room = 0.04 * (high - low) or 0.05 * (abs(high) or 1.0)
    low, high = low - room, high + room
    if share:
        # A mark at an end is drawn whole.
        low, high = max(low, -0.015), min(high, 1.015)
    axes.set_xlim(low, high)
    axes.locator_params(axis="x", nbins=6)


def check_figure(path: str | Path, *, asked: str = "") -> Path:
    """Return where a figure is to go, which the option `asked` named.

    Raises
    ------
    SelectionError
        The ending is of no format that there is.
    WriteError
        There is no such folder, or a folder has that name.
    DesignError
        Matplotlib is not installed.
    """
    place = check_place(path, FORMATS, asked=asked)
    matplotlib()
    return place


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the ending of the name says the format, the same figure gives the same file.

    Warns
    -----
    UserWarning
        Letters of some names are in no installed font, and drawn as boxes.

    Raises
    ------
    SelectionError, WriteError, DesignError
        As of `check_figure`.
    """
    place = check_figure(path)
    content, missing = _rendered(figure, place.suffix.lower())
    written = write_bytes(place, content)
    if missing and place.suffix.lower() != ".svg":
        msg = f"no font here has {' '.join(missing)}: drawn as boxes; an .svg shows them"
        warnings.warn(msg, stacklevel=2)
    return written


def svg(figure: Figure, *, title: str | None = None) -> str:
    """Return a figure as an element of a page: text as text, in the page's own colour.

    What is black takes the page's ``currentColor``, its background is the page's, and what hides
    lines under it has the colour ``--figure-paper``, white unless the page sets it. Different
    figures have different ids.

    Parameters
    ----------
    title
        Read out in place of the figure.
    """
    text = _rendered(figure, ".svg")[0].decode()
    text = text[text.index("<svg") :].rstrip("\n")
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = _own_ids(text)
    # The first path is the background of the figure.
    text = text.replace(f"fill: {PAPER}", "fill: none", 1)
    paper = "var(--figure-paper, #ffffff)"
    text = text.replace(PAPER, paper).replace(INK, "currentColor")
    # Text without a colour would be black.
    named = f' role="img" aria-label="{escape(title)}"' if title else ' role="img"'
    return text.replace("<svg", f'<svg fill="currentColor"{named}', 1)


def _own_ids(text: str) -> str:
    """Leave out ids that nothing refers to; the others are of this figure alone."""
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    own = f"f{sha256(text.encode()).hexdigest()[:10]}-"

    def id_of(match: re.Match[str]) -> str:
        return f' id="{own}{match[1]}"' if match[1] in used else ""

    text = re.sub(r' id="([^"]*)"', id_of, text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{own}", text)


def _rendered(figure: Figure, ending: str) -> tuple[bytes, list[str]]:
    """Return the content of a file, and letters that no font has."""
    own = {"svg.fonttype": "none", "svg.hashsalt": "evalstats", "pdf.fonttype": 42}
    content = BytesIO()
    with warnings.catch_warnings(record=True) as told, matplotlib().rc_context(own):
        warnings.simplefilter("always")
        drawn: Any = figure
        drawn.savefig(content, format=ending[1:], dpi=DOTS_PER_INCH, metadata=_UNDATED[ending])
    missing: dict[str, None] = {}
    for warning in told:
        found = _MISSING.search(str(warning.message))
        if found is None:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        else:
            missing[chr(int(found[1]))] = None
    return content.getvalue(), list(missing)
