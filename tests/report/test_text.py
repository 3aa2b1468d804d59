"""The table on the terminal."""

from __future__ import annotations

from io import StringIO

import numpy as np

from evalstats_plugin import ResponseMatrix, intervals
from evalstats_plugin.report.tables import Column, Table
from evalstats_plugin.report.text import INTERVALS, print_all


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
