"""What may stand under a logged metric's name: the writer's invariant.

An interval is written into a log beside a value only where it is of that value: the row's estimate
equals it, to the digits in which it is logged, and the log holds all items. Else the value is
written as it is logged, with the reason; and what is no estimate of that metric, such as the score
that an adaptive test predicts, gets a name of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import replace

from evalstats_plugin.data.measure import agree
from evalstats_plugin.errors import counted
from evalstats_plugin.hookspecs import PartialScores
from evalstats_plugin.scores.rows import ADAPTIVE, NO_METHOD, Intervals, ScoreInterval

Place = tuple[str, str]
"""Task or group, and metric."""

WITHHELD = "no interval under this name: "
"""How the reason begins that a row gives for having no interval."""


def as_logged(
    rows: Intervals, partial: Collection[PartialScores], rescored: Container[Place] = ()
) -> Intervals:
    """Return rows of one log that may be written under the names of its metrics.

    Parameters
    ----------
    partial
        The scores that the log holds in part only.
    rescored
        Tasks or groups with metrics whose logged values are replaced where whole items contradict
        them, so that these rows are of the values that will stand there.
    """
    held = {(each.task, each.metric): each for each in partial}
    return replace(rows, rows=tuple(_as_logged(row, held, rescored) for row in rows))


def _as_logged(
    row: ScoreInterval, partial: Mapping[Place, PartialScores], rescored: Container[Place]
) -> ScoreInterval:
    if row.method == ADAPTIVE:
        return row
    cut = partial.get((row.task, row.metric))
    if row.kind == "group":
        cut = next((p for p in partial.values() if p.metric == row.metric), None)
    if cut is None and (row.logged is None or (row.task, row.metric) in rescored):
        return row
    if cut is not None:
        n, n_cut = cut.n_items, cut.n_missing
        of = f" of {cut.task}" if row.kind == "group" else ""
        remaining = f"{n} of {counted(n + n_cut, 'item')}{of} are in this log"
        why = remaining if n_cut else f"the items{of} are not those of the logged checksum"
    elif row.estimate is None or row.logged is None or is_printed_as(row.estimate, row.logged):
        return row
    else:
        why = f"{row.logged:.6g} was logged, and the items give {row.estimate:.6g}"
    if row.low is None and row.estimate == row.logged:
        return row
    return replace(
        row, estimate=row.logged, low=None, high=None, std_error=None, method=NO_METHOD,
        notes=(WITHHELD + why, *row.notes),
    )  # fmt: skip


def is_withheld(row: ScoreInterval) -> bool:
    """Whether a row has its logged value and the reason why it has no interval."""
    return any(note.startswith(WITHHELD) for note in row.notes)


def is_printed_as(value: float, logged: float) -> bool:
    """Whether a value is the logged one, to the digits in which that is written.

    >>> is_printed_as(0.38113, 0.381), is_printed_as(0.3821, 0.381), is_printed_as(1 / 3, 1 / 3)
    (True, False, True)
    """
    if agree(value, logged):
        return True
    text = repr(logged)
    # Values with fewer digits are exact as often as rounded.
    decimals = max(len(text.partition(".")[2]), 3) if "e" not in text else 17
    return abs(value - logged) <= 0.5000001 * 10.0**-decimals
