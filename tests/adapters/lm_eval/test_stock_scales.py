"""Logs of lm-eval under every metric of the registry, each on its own scale."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from lm_eval_logs import write_log

import evalstats_plugin as es
from evalstats_plugin.data.metrics import STOCK

MEANS = [
    (name.replace("*", "x").replace("?", "1"), line)
    for line in STOCK
    for name in line.metric.split()
    if line.harness == "lm_eval" and line.aggregation == "mean"
]
"""Metrics whose items have scores."""

N = 15


def _scores(low: float, high: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Of a perfect model, one that fails everywhere, one nearly perfect, and one in between."""
    return {
        "perfect": np.full(N, high),
        "failing": np.full(N, low),
        "nearly": np.where(np.arange(N) == 3, (low + high) / 2, high),
        "between": np.round(rng.uniform(low, high, N), 2),
    }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[es.Measure, object]]:
    """Rows of all models under all metrics, with their measures."""
    folder = tmp_path_factory.mktemp("stock")
    rng = np.random.default_rng(7)
    for i, (metric, line) in enumerate(MEANS):
        low, high = (line.scale and line.scale.bounds) or (0.0, 250.0)
        for model, scores in _scores(low, high, rng).items():
            inside = folder / f"metric {i}"
            write_log(inside, model, {line.task.replace("*", "x"): scores.tolist()})
            for file in (inside / model).iterdir():
                text = file.read_text().replace('"acc,none"', f'"{metric},none"')
                file.write_text(text.replace('"acc"', json.dumps(metric)))
    found = es.read(folder, runs="all")
    each = zip(found, es.intervals(found, rng=0), strict=True)
    return [(r.measure, row) for r, row in each]


def test_no_interval_is_of_zero_width_or_leaves_the_scale(
    rows: list[tuple[es.Measure, es.scores.ScoreInterval]],
) -> None:
    """Of a perfect model on a scale of 100, too: 100 [100, 100] is no interval."""
    assert len(rows) == 4 * len(MEANS)
    for measure, row in rows:
        if measure.bounds is None:
            equal = "perfect" in row.model or "failing" in row.model
            assert (row.low is None) == equal, (measure.metric, row)
            continue
        assert row.low is not None, (measure.metric, row)
        assert row.high is not None
        assert measure.bounds[0] <= row.low < row.high <= measure.bounds[1]
        assert measure.scale_from == "registry"


def test_truthfulqa_is_on_a_hundred() -> None:
    """ROUGE and BLEU of the best answer; the right one's lead lies around 0."""
    known = {name: line.scale for name, line in MEANS}

    assert known["bleu_max"] is not None
    assert known["bleu_max"].bounds == (0.0, 100.0)
    assert known["bleu_diff"] is not None
    assert known["bleu_diff"].bounds == (-100.0, 100.0)


def test_a_metric_of_ones_own_on_a_hundred(tmp_path: Path) -> None:
    """The registry does not know it; its scores show the scale."""
    write_log(tmp_path, "m", {"task": [100.0] * N})
    for file in (tmp_path / "m").iterdir():
        text = file.read_text().replace("acc,none", "mine,none").replace('"acc"', '"mine"')
        file.write_text(text)
    [row] = es.intervals(es.read(tmp_path))

    assert row.low is not None
    assert row.low < row.high == 100.0  # type: ignore[operator]
    assert "taken as a scale from 0 to 100" in row.notes[0]
