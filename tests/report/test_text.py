"""The table on the terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import numpy as np

from evalstats_plugin import ResponseMatrix, intervals
from evalstats_plugin.comparisons.judged import NextLabel
from evalstats_plugin.data.results import Results
from evalstats_plugin.report.judged import NEXT
from evalstats_plugin.report.tables import Column, Table, elided
from evalstats_plugin.report.text import (
    INTERVALS,
    footnotes,
    note_numbers,
    numbers_of,
    print_all,
)


def test_clusters_have_what_they_change_beside_them() -> None:
    """The interval as if there were none, how much they matter, how alike they are."""
    scores = np.repeat([[1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]], 6, axis=1)
    clustered = ResponseMatrix.from_array(scores, clusters=np.repeat(np.arange(8), 6))
    found = intervals(clustered)
    file = StringIO()
    INTERVALS.print_table(found, file, heading="", width=80)
    lines = file.getvalue().splitlines()
    [naive] = [line for line in lines if "naive " in line]
    [apart] = intervals(ResponseMatrix.from_array(scores))

    assert f"[{apart.low:.4f}, {apart.high:.4f}]" in naive
    assert f"deff {found[0].design_effect:.2f}" in naive
    assert lines[lines.index(naive) + 1].split() == ["ICC", "1.00"]


def test_items_in_no_clusters_have_one_line_each() -> None:
    """Nothing to set beside."""
    file = StringIO()
    INTERVALS.print_table(
        intervals(ResponseMatrix.from_array([[1, 0, 1]])), file, heading="", width=80
    )

    assert "naive" not in file.getvalue()


def test_names_that_no_short_cut_tells_apart_have_a_longer_one() -> None:
    """They were whole, so that a column of numbers was as wide as the line."""
    names = [
        f"suite-of-tests-{school}_{'x' * 60}_chemistry acc{end}"
        for school in ("high_school", "college")
        for end in ("", "_norm")
    ]

    shown = elided(names, 16)
    assert len({*shown}) == 4
    assert max(map(len, shown)) <= 32


def test_rows_below_their_titles_have_all_names() -> None:
    """A model was named above its first task alone, however many rows followed."""
    rows = [("a-model", "all", 1), ("", "task", 2), ("b-model", "", 3)]
    columns = [
        Column("Model", lambda row: row[0], least=5),
        Column("Task", lambda row: row[1], least=5),
        Column("A long title", lambda row: f"{row[2]:.9f}"),
    ]
    file = StringIO()
    print_all([Table("", rows, columns).terminal()], [], [], file=file, width=20)
    blocks = [block.split() for block in file.getvalue().strip().split("\n\n")]

    assert [
        ["Model", "a-model", "Task", "all"],
        ["Model", "a-model", "Task", "task"],
        ["Model", "b-model", "A", "long"],
    ] == [block[:4] for block in blocks]


def test_many_notes_that_differ_in_numbers_are_one() -> None:
    """With the least and greatest, and one mark in the table; three are listed, and all scores."""
    one = intervals(ResponseMatrix.from_array([[1, 0, 1, 1, 0]]))[0]
    rows = [replace(one, notes=("same", f"{n} of 9 items, m-{n}")) for n in (4, 1, 2)]
    alike = [replace(one, notes=("same", f"{n} of 1,009 items of m-1")) for n in (4, 1, 2, 3)]
    scored = [replace(one, notes=(f"of {n} items 0.{n}",)) for n in (4, 1, 2, 3)]

    assert 4 == len(footnotes(rows))
    assert 4 == len(footnotes(scored))
    assert ["same (task score)", "1 to 4 of 1,009 items of m-1 (task score)"] == footnotes(alike)
    assert {1, 2} == set(note_numbers(alike).values())
    assert "1,2" == numbers_of(alike[3], note_numbers(alike))


def test_items_that_are_named_by_prompts_have_one_line() -> None:
    """A prompt of three lines was three lines of the table."""
    asked = NextLabel(item="Add.\n\n4 + 1 = ", model="m", task="t", score=None, probability=0.5)
    file = StringIO()
    NEXT.print_table(Results((asked,)), file, heading="", width=80)

    assert "Add. 4 + 1 = " in file.getvalue()
