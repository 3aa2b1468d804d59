"""The figure of a hierarchical fit: what it draws, and that it can be read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.analyses.hierarchical import fit_hierarchical
from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.report.shrinkage import FORMATS, plot_shrinkage, save_shrinkage

pyplot = pytest.importorskip("matplotlib.pyplot")
pyplot.switch_backend("agg")


def _fit(n: int) -> HierarchicalFit:
    """In closed form: quick, and pulled as well."""
    rng = np.random.default_rng(0)
    scores = (rng.random((n, 24)) < np.linspace(0.2, 0.9, n)[:, None]).astype(float)
    scores[0, :8] = np.nan
    names = [f"organisation-{i}/a-rather-long-model-name-{i}b-instruct" for i in range(n)]
    tasks = np.repeat(["a", "b", "c"], 8).tolist()
    matrix = ResponseMatrix.from_array(scores, models=names, tasks=tasks)
    return fit_hierarchical(matrix, "per-task", rng=0)


@pytest.mark.parametrize("n", [1, 40])
def test_names_are_never_cut_and_never_overlap(n: int) -> None:
    """Of the smallest figure and of a large one."""
    fit = _fit(n)
    axes = plot_shrinkage(fit)
    axes.figure.canvas.draw()
    whole = axes.figure.bbox
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]

    assert [label.get_text() for label in axes.get_yticklabels()] == [
        row.model for row in fit if row.task is None
    ]
    for box in boxes:
        assert whole.x0 <= box.x0
        assert box.x1 <= whole.x1
        assert whole.y0 <= box.y0
        assert box.y1 <= whole.y1
    for above, below in pairwise(boxes):
        assert below.y1 <= above.y0
    legend = axes.get_legend().get_window_extent()
    assert whole.x0 <= legend.x0
    assert legend.x1 <= whole.x1
    pyplot.close(axes.figure)


def test_marks_stand_where_the_numbers_say() -> None:
    """Scores and estimates of tasks, then the model; shapes tell them apart without colour."""
    fit = _fit(3)
    axes = plot_shrinkage(fit)
    drawn = [c.get_offsets()[:, 0].tolist() for c in axes.collections if len(c.get_offsets()) > 0]
    points = [found for found in drawn if found != [0.0]]
    expected: list[list[float | None]] = []
    for model in [row.model for row in fit if row.task is None]:
        own = [row for row in fit if row.model == model and row.task and row.score is not None]
        whole = next(row for row in fit if row.model == model and row.task is None)
        expected += [[r.score for r in own], [r.estimate for r in own], [whole.estimate]]

    assert [len(found) for found in expected] == [len(found) for found in points]
    for one, other in zip(expected, points, strict=True):
        assert one == pytest.approx(other)
    assert 2 == min(len(found) for found in expected[1::3])
    shapes = {(h.get_marker(), h.get_markerfacecolor()) for h in axes.get_legend().legend_handles}
    assert 3 == len(shapes)
    pyplot.close(axes.figure)


def test_it_draws_into_axes_of_ones_own() -> None:
    """And gives them back."""
    _, own = pyplot.subplots()

    assert plot_shrinkage(_fit(2), own) is own
    pyplot.close("all")


@pytest.mark.parametrize("ending", FORMATS)
def test_the_same_fit_gives_the_same_file(tmp_path: Path, ending: str) -> None:
    """No figure is left open."""
    fit = _fit(2)
    first = save_shrinkage(fit, tmp_path / f"a{ending}").read_bytes()
    second = save_shrinkage(fit, tmp_path / f"b{ending}").read_bytes()

    assert len(first) > 1000
    assert ending == ".svg" or first == second
    assert [] == pyplot.get_fignums()
