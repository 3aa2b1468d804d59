"""Figures as files, or as part of a page."""

from __future__ import annotations

import re
import warnings
from hashlib import sha256
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin.atomic import check_place, write_bytes
from evalstats_plugin.report.figures import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 200

_MISSING = re.compile(r"Glyph (\d+)")
_UNDATED: dict[str, dict[str, Any]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


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
    canvas.matplotlib()
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
    text = text.replace(f"fill: {canvas.PAPER}", "fill: none", 1)
    paper = "var(--figure-paper, #ffffff)"
    text = text.replace(canvas.PAPER, paper).replace(canvas.INK, "currentColor")
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
    with warnings.catch_warnings(record=True) as told, canvas.matplotlib().rc_context(own):
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
