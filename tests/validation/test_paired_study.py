"""Competitors of the paired study are what they are called, and passes add up."""

import earlier_default
import numpy as np
import paired_study
import pytest
import random_designs

from evalstats_plugin.stats.pairs.paired import dirichlet, paired_counts


def test_the_default_of_0_2_0_gives_what_it_gave():
    """Numbers that version 0.2.0 printed: of its documentation, and of 12 of 40 items up .1."""
    a = [[0.791, 0.802, 0.824, 0.813, 0.780, 0.831, 0.805, 0.777]]
    b = [[0.800, 0.833, 0.830, 0.804, 0.812, 0.850, 0.821, 0.803]]
    low, high = earlier_default.limits(np.array(a), np.array(b))
    assert (round(low[0], 3), round(high[0], 3)) == (0.002, 0.027)
    assert earlier_default.p_values(np.array(a), np.array(b))[0] == pytest.approx(0.023, abs=5e-4)
    half = np.full((1, 40), 0.5)
    up = half + np.repeat([0.1, 0.0], [12, 28])
    assert earlier_default.p_values(half, up)[0] == pytest.approx(0.179, abs=5e-4)


def test_the_default_of_0_2_0_is_jeffreys_for_right_and_wrong():
    cells = np.repeat([[1, 1], [1, 0], [0, 1], [0, 0]], [19, 2, 4, 5], axis=0).T[:, None] * 1.0
    expected = dirichlet(paired_counts(19, 2, 4, 5), confidence_level=0.95, prior=(0.5, 1.0))

    assert np.ravel(earlier_default.limits(*cells)) == pytest.approx(np.ravel(expected))
    swapped = earlier_default.limits(*cells[::-1])
    assert np.ravel(swapped) == pytest.approx([-expected.high, -expected.low])


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_the_engine_decides_as_the_formula(seed):
    """Of continuous scores and of grids, at 0 and at another difference."""
    values, _ = random_designs.design(seed).population("shift", 20)
    x = values[np.random.default_rng(1).integers(0, len(values), (400, 20))]
    ours = paired_study.outcomes("engine", x * 0, x, x, 0.0)["misses"]
    assert 0.3 < ours.mean() < 0.95
    assert (ours != paired_study.by_formula(x, 0.0)).mean() <= 0.005
    at = float(values.mean())
    missed = paired_study.outcomes("engine", x * 0, x, x, at)["misses"]
    assert (missed != paired_study.by_formula(x, at)).mean() <= 0.005


def test_flips_of_few_items_are_all_there_are():
    """Six items of one sign: 2 of 64 flips are as far, .03; five: 2 of 32, .06."""
    assert paired_study.flips(np.ones((1, 6)), 0.0).all()
    assert not paired_study.flips(np.ones((1, 5)), 0.0).any()


def test_passes_add_up_and_a_file_goes_on_where_it_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(paired_study, "NULL", 60)
    monkeypatch.setattr(paired_study, "OTHER", 40)
    total = {"design": 0, "kind": "grid", "n": 6, "passes": 0, "truths": {}}
    for part in range(3):
        paired_study.merge(total, paired_study.cell(0, 6, part))
    paired_study.write(tmp_path / "cells.json", {(0, 6): total})
    (again,) = paired_study.read(tmp_path / "cells.json").values()

    assert again["passes"] == 3
    runs = {name: row["runs"] for name, row in again["truths"]["null"].items()}
    assert runs == dict.fromkeys(paired_study.METHODS, 180) | dict.fromkeys(paired_study.ONCE, 60)
    assert again["truths"]["shift"]["engine"]["runs"] == 120
    assert "0.2.0" not in again["truths"]["weak"]
    first, second = (paired_study.cell(0, 6, part)["shift"]["t"] for part in (1, 2))
    assert first["width"] != second["width"]
