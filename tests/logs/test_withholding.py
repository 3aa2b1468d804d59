"""Under a logged metric's name stands nothing that differs from the logged value."""

from __future__ import annotations

import pytest

from evalstats_plugin.hookspecs import PartialScores
from evalstats_plugin.logs.withholding import WITHHELD, as_logged, is_printed_as, is_withheld
from evalstats_plugin.scores.rows import Intervals, ScoreInterval


def _row(estimate: float | None, logged: float | None, **more: object) -> ScoreInterval:
    known = {
        "model": "m", "task": "t", "metric": "acc", "n_items": 10, "low": 0.1, "high": 0.9,
        "std_error": 0.1, "method": "beta-hpd", "confidence_level": 0.95, **more,
    }  # fmt: skip
    return ScoreInterval(estimate=estimate, logged=logged, **known)  # pyright: ignore[reportArgumentType]


def _kept(row: ScoreInterval, *partial: PartialScores, **more: object) -> ScoreInterval:
    [found] = as_logged(Intervals((row,)), partial, **more)  # pyright: ignore[reportArgumentType]
    return found


def test_equal_values_and_values_of_other_names_are_written() -> None:
    """Rounded ones too; a score that was never logged has a name of its own."""
    for row in (_row(0.5, 0.5), _row(0.38113, 0.3811), _row(0.7, None)):
        assert _kept(row) is row


@pytest.mark.parametrize("kind", ["task", "group"])
def test_other_values_are_withheld_with_the_reason(kind: str) -> None:
    """The logged value stays."""
    row = _kept(_row(0.5, 0.25, kind=kind))

    assert (row.estimate, row.low, row.high, row.std_error) == (0.25, None, None, None)
    assert row.notes == (WITHHELD + "0.25 was logged, and the items give 0.5",)


@pytest.mark.parametrize("kind", ["task", "group"])
def test_a_part_of_the_items_has_no_interval(kind: str) -> None:
    """Even if its mean happens to be the logged value."""
    row = _kept(_row(0.25, 0.25, kind=kind), PartialScores("t", "acc", 1, 584, altered=False))

    assert row.low is None
    assert "1 of 585 items" in row.notes[0]
    altered = _kept(_row(0.25, 0.25), PartialScores("t", "acc", 10, 0, altered=True))
    assert "not those of the logged checksum" in altered.notes[0]


def test_what_is_rescored_is_written() -> None:
    """The new value will stand there."""
    row = _row(0.5, 0.25)

    assert _kept(row, rescored={("t", "acc")}) is row


@pytest.mark.parametrize(
    ("logged", "step"), [(0.5, 1e-3), (0.125, 1e-3), (0.1234, 1e-4), (1.5e-07, 1e-17), (7.0, 1e-3)]
)
def test_values_are_equal_within_half_a_digit(logged: float, step: float) -> None:
    """Of three digits at least, so that a half is a half; all 17 of numbers with an exponent."""
    for sign in (1, -1):
        assert is_printed_as(logged + sign * 0.4999 * step, logged)
        beyond = 0.5001 if step > 1e-10 else 1e5
        assert not is_printed_as(logged + sign * beyond * step, logged)


def test_groups_are_in_part_where_a_task_of_their_metric_is() -> None:
    """The row of another metric, and one without an interval as logged, stay as they are."""
    cut = PartialScores("u", "acc", 1, 1, altered=False)
    group = _kept(_row(0.5, None, kind="group"), cut)
    other, bare = _row(0.5, 0.5, kind="group", metric="f1"), _row(0.5, 0.5, low=None)

    assert group.notes == (WITHHELD + "1 of 2 items of u are in this log",)
    assert (group.estimate, group.method) == (None, "none")
    assert _kept(other, cut) is other
    assert _kept(bare, PartialScores("t", "acc", 1, 1, altered=False)) is bare
    for untold in (_row(None, 0.5), _row(0.5, None)):
        assert _kept(untold) is untold
    adaptive = _row(0.5, 0.25, method="adaptive")
    assert _kept(adaptive) is adaptive


def test_a_row_is_withheld_by_one_of_its_notes() -> None:
    """Others stand beside it."""
    assert is_withheld(_row(0.5, 0.25, notes=("three epochs", WITHHELD + "why")))
    assert not is_withheld(_row(0.5, 0.25, notes=("three epochs",)))
