"""The table on the terminal."""

from __future__ import annotations

from io import StringIO

import numpy as np

from evalstats_plugin import ResponseMatrix, intervals
from evalstats_plugin.report.text import INTERVALS


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
