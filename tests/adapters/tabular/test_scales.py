"""Scores of 100 and judges' grades: intervals stay on the scale, and a note says which."""

from __future__ import annotations

from pathlib import Path

import pytest

import evalstats_plugin as es


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        ((85, 40, 100), (0, 100)),
        ((85.5, 40.25, 12), (0, 100)),
        ((5, 4, 5, 3), (1, 5)),
        ((0, 4, 5, 3), (0, 5)),
        ((8, 10, 9), (1, 10)),
        ((0.5, 1, 0.25), None),
        ((2.5, 3.25), None),
        ((-1, 40, 100), None),
        ((120, 40, 100), None),
    ],
)
def test_the_scale_of_a_column(
    tmp_path: Path, scores: tuple[float, ...], scale: tuple[float, float] | None
) -> None:
    """Limits are inside it; what is given goes first."""
    table = tmp_path / "scores.csv"
    lines = ["model,item,score", *(f"m,{i},{score}" for i, score in enumerate(scores))]
    table.write_text("\n".join(lines))

    [read] = es.read(table)
    [row] = es.intervals(es.read(table))
    [given] = es.intervals(
        es.read(table), measure=es.Measure(metric="score", scale=es.Scale(-1000, 1000))
    )

    assert scale == read.bounds
    assert any("taken as a scale from" in note for note in row.notes) == (scale is not None)
    if scale is not None:
        assert row.low is not None
        assert row.high is not None
        assert scale[0] <= row.low < row.high <= scale[1]
        assert (given.low, given.high) != (row.low, row.high)


def test_the_scale_is_that_of_all_models(tmp_path: Path) -> None:
    """A weak model's low scores alone would look like another scale."""
    table = tmp_path / "scores.csv"
    lines = [f"{m},{i},{s}" for m, s in (("weak", 3), ("strong", 90)) for i in range(5)]
    table.write_text("\n".join(["model,item,score", *lines]))

    assert {(0.0, 100.0)} == {r.bounds for r in es.read(table)}
