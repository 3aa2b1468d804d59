"""Power by number of items: the same as asking for each number."""

from __future__ import annotations

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix, power
from evalstats_plugin.comparisons import PowerAssumptions, PowerDesign
from evalstats_plugin.comparisons.planning.power import POINTS, power_curve
from evalstats_plugin.errors import DesignError, SelectionError

ASSUMED = PowerAssumptions(discordance=0.2)


def _pilot(n_models: int = 3) -> ResponseMatrix:
    rng = np.random.default_rng(0)
    scores = (rng.random((3, 60)) < np.array([[0.4], [0.5], [0.6]])).astype(float)[:n_models]
    return ResponseMatrix.from_array(scores, tasks=["a"] * 30 + ["b"] * 30)


@pytest.mark.parametrize("pilot", [ASSUMED, _pilot()], ids=["assumed", "pilot"])
def test_every_point_is_what_power_says(pilot: PowerAssumptions | ResponseMatrix) -> None:
    """Of every pair on every task, with its method."""
    curve = power_curve(pilot, difference=0.15, at=[20, 400])
    for n in (20, 400):
        asked = power(pilot, difference=0.15, n_items=n)
        expected = [
            (row.task, row.model_a, row.model_b, row.power, row.method)
            for row in asked
            if row.quantity == "power"
        ]
        found = [
            (row.task, row.model_a, row.model_b, row.power, row.method)
            for row in curve
            if row.n_items == n
        ]

        assert expected == found
    assert {"power"} == {row.quantity for row in curve}


def test_without_a_difference_it_is_the_least_that_is_found() -> None:
    """For the same power at each number of items."""
    curve = power_curve(_pilot(), at=[30, 200], power=0.9)
    asked = [row for n in (30, 200) for row in power(_pilot(), n_items=n, power=0.9)]
    key = {(row.task, row.model_a, row.model_b, row.n_items): row.difference for row in asked}

    assert len(key) == len(curve)
    for row in curve:
        at = (row.task, row.model_a, row.model_b, row.n_items)
        assert key[at] == pytest.approx(row.difference)
        assert ("difference", 0.9) == (row.quantity, row.power)
    assert 0.9 == curve.power


@pytest.mark.parametrize("design", [PowerDesign(margin=0.2), PowerDesign(assurance=0.5)])
def test_a_margin_and_an_assurance_are_those_of_power(design: PowerDesign) -> None:
    """Of a margin alone it is the power to show non-inferiority, of equal models."""
    difference = 0.2 if design.margin is None else None
    curve = power_curve(_pilot(2), difference=difference, at=[50, 100], design=design)
    asked = [
        row.power
        for task in ("a", "b")
        for n in (50, 100)
        for row in power(_pilot(2), difference=difference, n_items=n, design=design)
        if (row.quantity, row.task) == ("power", task)
    ]

    assert asked == [row.power for row in curve]


def test_by_default_it_goes_from_too_few_to_more_than_enough() -> None:
    """Around the number that is needed; other designs need others."""
    for design in (PowerDesign(), PowerDesign(n_models=10)):
        curve = power_curve(ASSUMED, difference=0.1, design=design)
        values = [row.power or 0.0 for row in curve]

        assert POINTS - 3 <= len(curve) <= POINTS
        assert values[0] < 0.2
        assert values[-1] > 0.99
    assert power_curve(ASSUMED).rows[0].n_items == 17
    assert {"a", "b"} == {row.task for row in power_curve(_pilot(2))}


def test_what_makes_no_sense_is_refused() -> None:
    """As `power` refuses it."""
    with pytest.raises(DesignError, match="must be 2 or more"):
        power_curve(ASSUMED, difference=0.1, at=[1, 5])
    with pytest.raises(DesignError, match="must be 2 or more"):
        power_curve(ASSUMED, difference=0.1, at=[])
    with pytest.raises(DesignError, match="exceeds the range of the scores"):
        power_curve(_pilot(), difference=3.0)
    with pytest.raises(SelectionError, match="no method is called"):
        power_curve(_pilot(), difference=0.1, design=PowerDesign(method="tt"))
