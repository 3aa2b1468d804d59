"""Figures of the page: drawn by Matplotlib, set into the page as part of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

from evalstats_plugin.analyses.rank import ranks_of
from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.catalogue import FIGURES, draw
from evalstats_plugin.report.figures.files import svg
from evalstats_plugin.report.html_markup import Markup, clean, element
from evalstats_plugin.report.notes import short_metric
from evalstats_plugin.results import Comparison, Comparisons, Intervals, Results, ScoreInterval
from evalstats_plugin.wording import few

RowT = TypeVar("RowT", ScoreInterval, Comparison)

LARGEST = 1_000_000
"""Letters of all figures together; those that go beyond are left out, and named."""
MOST_ROWS = 400
"""Rows of a figure of all tasks; of more, figures of one task each."""
MOST_TASKS = 4
"""Tasks that have figures of their own."""

_LINK = "{http://www.w3.org/1999/xlink}href"


@dataclass(eq=False)
class Drawn:
    """Figures for a page, the styles they need, and what could not be drawn."""

    figures: list[Markup] = field(default_factory=list[Markup])
    missing: dict[tuple[str, str], list[str]] = field(
        default_factory=dict[tuple[str, str], list[str]]
    )
    """Figures that are not there, and why: of which tasks."""
    styles: dict[str, str] = field(default_factory=dict[str, str])
    """Classes by what they say."""

    @property
    def css(self) -> str:
        """Rules for the page's style sheet: what elements may not say themselves."""
        return "\n".join(f".{name}{{{said}}}" for said, name in self.styles.items())

    @property
    def left_out(self) -> list[str]:
        """What is not there, in words."""
        return [
            f"{what}{f' ({few(tasks)})' if tasks[0] else ''}{': ' if what else ''}{why}"
            for (what, why), tasks in self.missing.items()
        ]

    def leave_out(self, what: str, why: str, task: str = "") -> None:
        """Note that a figure is not there."""
        self.missing.setdefault((what, why), []).append(task)

    def add(self, name: str, results: Results[Any], task: str = "") -> None:
        """Draw a figure, or note why not."""
        summary = FIGURES[name].summary
        summary = summary[0].upper() + summary[1:]
        whole = f"{summary}, {task}" if task else summary
        try:
            with warnings.catch_warnings():
                # Fonts that Matplotlib misses, those who look at the page may have.
                warnings.simplefilter("ignore", UserWarning)
                axes: Any = draw(name, Results(_cleaned(results.rows), results.notes))
                text = inline(svg(axes.figure, title=clean(whole)), self.styles)
        except DesignError as error:
            self.leave_out(summary, str(error), task)
            return
        if sum(map(len, self.figures)) + len(text) > LARGEST:
            self.leave_out(summary, "it would make this page too large", task)
            return
        inside = element("div", text, class_="scroll", role="region", tabindex="0",
                         aria_label=whole)  # fmt: skip
        shown = element("details", element("summary", whole), inside, open=not self.figures)
        self.figures.append(shown)


def drawn(intervals: Intervals, comparisons: Comparisons | None) -> Drawn:
    """Draw scores and differences of all tasks, as far as one figure holds them; then task by task.

    Tasks that have figures of their own are groups first, then in order.
    """
    found = Drawn()
    try:
        canvas.matplotlib()
    except DesignError as error:
        found.leave_out("", str(error))
        return found
    together = len(intervals) <= MOST_ROWS
    if together:
        found.add("forest", intervals)
    scores = _by_task(intervals.rows)
    pairs = _by_task(comparisons.rows if comparisons is not None else ())
    several = [key for key, own in pairs.items() if len(own) > 1]
    tasks = several if together else list(scores)
    tasks.sort(key=lambda key: all(row.kind == "task" for row in scores.get(key, ())))
    for key in tasks[:MOST_TASKS]:
        task = f"{key[0]} {short_metric(key[1])}"
        if not together:
            found.add("forest", Results(tuple(scores[key])), task)
        if key in several:
            every_two = bool(ranks_of(pairs[key]))
            for name in ("ranks", "matrix") if every_two else ("differences",):
                found.add(name, Results(tuple(pairs[key])), task)
    left = len(tasks) - MOST_TASKS
    if left > 0 and found.figures:
        why = f"{left:,} of {len(tasks):,} tasks and metrics on their own"
        found.leave_out("", f"{why}; `report --figure` and `compare --figure` draw them")
    return found


def _by_task(rows: Sequence[RowT]) -> dict[tuple[str, str], list[RowT]]:
    groups: dict[tuple[str, str], list[RowT]] = {}
    for row in rows:
        groups.setdefault((row.task, row.metric.removesuffix(",none")), []).append(row)
    return groups


def _cleaned(rows: Sequence[Any]) -> tuple[Any, ...]:
    """Return rows whose names hold nothing that XML cannot."""
    names = ("model_a", "model_b") if rows and isinstance(rows[0], Comparison) else ("model",)
    names = (*names, "task", "metric")
    return tuple(replace(row, **{n: clean(getattr(row, n)) for n in names}) for row in rows)


def inline(text: str, styles: dict[str, str]) -> Markup:
    """Return an SVG for a page that allows no ``style`` attributes: classes in their place.

    Parameters
    ----------
    styles
        Classes by what they say, which grow by those of this figure.
    """
    root = ET.fromstring(text)  # noqa: S314 - drawn by ourselves
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith("}style"):
                parent.remove(child)
    for part in root.iter():
        part.tag = part.tag.rpartition("}")[2]
        said = part.attrib.pop("style", None)
        if said is not None:
            part.set("class", styles.setdefault(said, f"s{len(styles)}"))
        link = part.attrib.pop(_LINK, None)
        if link is not None:
            part.set("href", link)
    return Markup(ET.tostring(root, encoding="unicode"))
