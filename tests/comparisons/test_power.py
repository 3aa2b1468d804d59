"""Planning from assumptions and from a pilot."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned_designs import promised_and_reached
from scipy import special

import evalstats_plugin as es
from evalstats_plugin import Responses
from evalstats_plugin.comparisons import PowerAssumptions, PowerDesign
from evalstats_plugin.comparisons.planning import pilots
from evalstats_plugin.comparisons.planning import power as planning
from evalstats_plugin.comparisons.planning.power import spreads_of
from evalstats_plugin.comparisons.planning.solver import Aim, PowerSolver, solver_of
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.stats.pairs.differences import Differences
from evalstats_plugin.stats.pairs.power import (
    mixture_power,
    normal_power,
    paired_power,
    t_power,
)

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "inspect_ai" / "0.3.285" / "models"
MILLER = PowerAssumptions(between=1 / 9, within=1 / 6)


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a fourth of the comparisons, where the answer may err twice as much."""
    for name in ("N_SAMPLES", "FEWEST_SAMPLES", "DRAWN"):
        monkeypatch.setattr(pilots, name, getattr(pilots, name) // 4)


def _matrix(scores: Any) -> es.ResponseMatrix:
    return es.ResponseMatrix.from_array(scores)


def _binary(n: int = 400, n_models: int = 2, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 1.0 * (rng.uniform(size=(n_models, n)) < rng.uniform(0.3, 1, size=n))


def test_millers_numbers_come_out() -> None:
    """Miller (2024): 969 questions without noise, 3,876 with one epoch."""
    assert 3876 == es.power(MILLER, difference=0.03)[0].n_items
    assert 969 == es.power(PowerAssumptions(between=1 / 9), difference=0.03)[0].n_items
    found = [100 * (es.power(MILLER, n_items=198, n_epochs=k)[0].difference or 0) for k in (1, 10)]
    assert [13.3, 7.6] == np.round(found, 1).tolist()


def test_two_variances_within_are_added() -> None:
    """σ_A² and σ_B²."""
    both = es.power(PowerAssumptions(between=0.1, within=(0.3, 0.1)), difference=0.05)[0]

    assert 0.4 == both.within
    assert both.n_items == es.power(PowerAssumptions(between=0.5), difference=0.05)[0].n_items


def test_difference_and_items_give_power_epochs_and_models() -> None:
    """Each answer, put back in, is confirmed; one more or less is not enough."""
    rows = {row.quantity: row for row in es.power(MILLER, difference=0.04, n_items=2000)}
    epochs, models = rows["n_epochs"].n_epochs, rows["n_models"].n_models

    def with_epochs(k: int) -> float:
        return es.power(MILLER, difference=0.04, n_items=2000, n_epochs=k)[0].power or 0

    assert epochs == 2
    assert with_epochs(2) >= 0.8 > with_epochs(1) == rows["power"].power
    assert models is None
    many = {r.quantity: r for r in es.power(MILLER, difference=0.07, n_items=2000)}["n_models"]
    assert many.n_models is not None
    for n_models, enough in ((many.n_models, True), (many.n_models + 1, False)):
        design = PowerDesign(n_models=n_models)
        power = es.power(MILLER, difference=0.07, n_items=2000, design=design)[0].power or 0
        assert (power >= 0.8) is enough
    row = es.power(MILLER, difference=0.5, n_items=9000)[-1]
    assert (100, ("100 models or more",)) == (row.n_models, row.notes)


def test_no_number_of_epochs_makes_up_for_items() -> None:
    """None in place of a number, and a note."""
    row = es.power(MILLER, difference=0.03, n_items=900)[1]

    assert ("n_epochs", None) == (row.quantity, row.n_epochs)
    assert row.notes == ("no number of epochs is enough: more items are needed",)


def test_zero_one_scores_are_planned_exactly() -> None:
    """145 items for .1 at a discordance of .2: with 144 the power is below 80 %."""
    row = es.power(PowerAssumptions(discordance=0.2), difference=0.1)[0]

    assert (145, "symmetric-bootstrap") == (row.n_items, row.method)
    assert paired_power(145, 0.2, 0.1, tail=0.025) >= 0.8 > paired_power(144, 0.2, 0.1, tail=0.025)


def test_few_items_are_planned_with_students_t() -> None:
    """34 for half a standard deviation, where the normal approximation says 32."""
    design = PowerDesign(method="miller")
    half = PowerAssumptions(between=0.04)

    assert (34, "t") == (
        (row := es.power(half, difference=0.1)[0]).n_items, row.method,
    )  # fmt: skip
    assert 32 == es.power(half, difference=0.1, design=design)[0].n_items
    assert 2 == es.power(half, difference=0.9, design=design)[0].n_items


def _pilot(
    *, kind: str = "partial", n_models: int = 2, n_epochs: int = 1, size: int = 1, n_tasks: int = 1
) -> es.ResponseMatrix:
    """60 items, in clusters of a size; `right` or wrong, in `partial` credit, or without bounds."""
    rng = np.random.default_rng(1)
    level = np.linspace(0.3, 0.5, n_models)[:, None, None] + rng.normal(0, 0.2, (1, 60, 1))
    level = np.clip(level + rng.normal(0, 0.1, (n_models, 60, 1)), 0.05, 0.95)
    noise = rng.normal(0, 0.2, (n_models, 60, n_epochs))
    scores = {
        "right": 1.0 * (rng.random((n_models, 60, n_epochs)) < level),
        "partial": np.clip(level + noise, 0, 1),
        "unbounded": 10 * (level + noise),
    }[kind]
    return es.ResponseMatrix.from_array(
        scores,
        clusters=np.repeat(np.arange(60 // size), size).astype(str) if size > 1 else None,
        tasks=np.repeat(np.arange(n_tasks), 60 // n_tasks).astype(str).tolist(),
    )


def _solver(pilot: Any, *, n_epochs: int | None = None, **design: Any) -> PowerSolver:
    aim, chosen = Aim(0.1, None, n_epochs, 0.8, 0.95), PowerDesign(**design)
    return solver_of(spreads_of(pilot, aim, chosen).spreads[0], aim, chosen)


@pytest.mark.parametrize(
    ("pilot", "difference", "design"),
    [
        (MILLER, 0.05, {}),
        (MILLER, 0.05, {"method": "t"}),
        (MILLER, 0.02, {"n_models": 3}),
        (PowerAssumptions(between=0.04, within=0.02), 0.1, {}),
        (PowerAssumptions(between=0.04, within=0.02), -0.1, {"method": "miller"}),
        (PowerAssumptions(between=0.04), 0.1, {"design_effect": 2.5}),
        (PowerAssumptions(discordance=0.2), -0.1, {}),
        (PowerAssumptions(discordance=0.2), 0.1, {"design_effect": 2.5, "n_models": 4}),
        (PowerAssumptions(discordance=0.2), 0.008, {}),
        (PowerAssumptions(discordance=0.2), 0.014, {"method": "symmetric-bootstrap"}),
        (_pilot(kind="right", n_models=3), 0.15, {}),
        (_pilot(kind="right", n_epochs=3), 0.1, {"n_epochs": 5, "method": "t"}),
        (_pilot(kind="right", n_epochs=3), -0.1, {"n_epochs": 5}),
        (_pilot(kind="right", size=4), 0.2, {}),
        (_pilot(kind="unbounded"), 1.0, {}),
        (_pilot(kind="unbounded"), 1.0, {"method": "t"}),
        (_pilot(), -0.1, {}),
        (_pilot(size=4, n_models=3), 0.1, {}),
        (_pilot(), -0.01, {"margin": 0.2}),
        (_pilot(n_tasks=2), 0.1, {"tasks": "fixed"}),
        (_pilot(n_models=3), 0.1, {"design_effect": 1.3}),
        (_pilot(kind="right"), 0.25, {"paired": False}),
    ],
)
def test_every_answer_is_the_least_by_the_power_itself(
    pilot: Any, difference: float, design: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One item, 1.5 % of the difference or one epoch less, or one model more, is not enough."""
    monkeypatch.setattr(pilots, "N_SAMPLES", 1000)
    solver = _solver(pilot, **design)
    needed = solver.items(difference)
    assert (solver.power(needed, difference) >= 0.8).all()
    assert (solver.power(needed - 1, difference) < 0.8).all()
    n = np.linspace(150.0, 60.0, len(needed))
    for pair, least in enumerate([] if solver.margin else solver.difference(n).tolist()):
        assert solver.power(n, least)[pair] >= 0.8 - 1e-9 > solver.power(n, 0.985 * least)[pair]
        assert solver.power(n, -least)[pair] == solver.power(n, least)[pair]
    for pair, most in enumerate(solver.models(2 * needed, difference).tolist()):
        enough, more = (solver.power(2 * needed, difference, k)[pair] for k in (most, most + 1))
        assert enough >= 0.8 > more
    if (solver.spread.within > 0).all():
        n_epochs = int(solver.epochs(needed - 4, difference)[0])
        for more in (0, 1):
            other = _solver(pilot, **{**design, "n_epochs": n_epochs - more})
            assert (other.power(needed - 4, difference)[0] < 0.8) == more


@pytest.mark.parametrize(
    ("pilot", "design", "methods"),
    [
        (MILLER, {}, "t miller miller miller miller miller"),
        (MILLER, {"method": "t"}, "t t t t t t"),
        (MILLER, {"method": "miller"}, "miller miller miller miller miller miller"),
        (PowerAssumptions(discordance=0.2), {}, "exact exact exact exact exact miller"),
        (
            PowerAssumptions(discordance=0.2),
            {"method": "symmetric-bootstrap", "n_models": 4},
            "exact exact exact exact exact exact",
        ),
        (PowerAssumptions(discordance=0.2), {"method": "t"}, "t t t t t t"),
        (_pilot(kind="right"), {}, "exact exact exact exact exact miller"),
        (_pilot(kind="right", n_models=3), {"n_models": 3}, "exact exact exact exact exact miller"),
        (_pilot(n_tasks=2), {"tasks": "fixed"}, "drawn drawn miller miller miller miller"),
        (_pilot(kind="right"), {"paired": False}, "t miller miller miller miller miller"),
        (_pilot(kind="right", n_epochs=2), {}, "drawn drawn drawn miller miller miller"),
        (_pilot(kind="right", size=4), {}, "drawn drawn drawn miller miller miller"),
        (
            _pilot(n_models=3),
            {"design_effect": 2.0, "n_models": 3},
            "t miller miller miller miller miller",
        ),
        (_pilot(), {"margin": 0.3, "n_models": 4}, "drawn drawn drawn miller miller miller"),
    ],
)
def test_power_is_that_of_the_test_that_is_named(
    pilot: Any, design: dict[str, Any], methods: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Student's t below 100 items, simulation up to 5,000, sums up to 10,000; Bonferroni's tail."""
    monkeypatch.setattr(pilots, "FEWEST_SAMPLES", 10)
    solver = _solver(pilot, **design)
    k = design.get("n_models", 2)
    tail = 0.025 / (k - 1 if "margin" in design else k * (k - 1) / 2)
    variance = solver.spread.between + np.nan_to_num(solver.spread.within) / solver.n_epochs
    expected = {
        "t": lambda n, d: t_power(n, d, variance, tail=tail),
        "miller": lambda n, d: normal_power(n, d, variance, tail=tail),
        "exact": lambda n, d: paired_power(n, solver.spread.discordance, d, tail=tail),
    }
    for number, method in zip([99, 100, 5000, 5001, 10_000, 10_001], methods.split(), strict=True):
        n, distance = np.full(len(variance), 1.0 * number), 1 / np.sqrt(number)
        name = "symmetric-bootstrap" if method in ("exact", "drawn") else method
        assert {name} == {*solver.names(n)}
        if method in expected:
            power = solver.power(n, distance - design.get("margin", 0.0))
            assert power == pytest.approx(expected[method](n, distance), rel=1e-12)
        assert method == "drawn" or {"miller"} == {*solver.names(n, epochs=True)}
    mixed = np.resize([10_001.0, 99.0, 10_000.0], len(variance))
    alone = [solver.power(np.full_like(mixed, n), 0.02)[k] for k, n in enumerate(mixed)]
    assert alone == pytest.approx(solver.power(mixed, 0.02).tolist(), rel=1e-12)


def test_a_skewed_pilot_is_planned_alike_whichever_model_comes_first() -> None:
    """Its differences point where the pilot's do, for a gain as for a drop; a margin does not."""
    rng = np.random.default_rng(1)
    scores = np.stack([rng.beta(5, 5, 50), np.where(rng.random(50) < 0.15, 1, rng.beta(4, 6, 50))])
    ahead, behind = (_solver(_matrix(each)) for each in (scores, scores[::-1]))
    n = np.array([30.0])
    powers = [float(s.power(n, d)[0]) for s in (ahead, behind) for d in (0.12, -0.12)]
    assert max(powers) - min(powers) < 0.03
    ahead, behind = (_solver(_matrix(each), margin=0.15) for each in (scores, scores[::-1]))
    assert abs(ahead.power(n, 0.0) - behind.power(n, 0.0)) > 0.02


def test_a_pilot_of_zero_one_scores_gives_its_discordance() -> None:
    """Counted by hand; every pair of models, allowing for all of them."""
    scores = _binary(n_models=3)
    rows = es.power(_matrix(scores), difference=0.1)

    assert [("model_0", "model_1"), ("model_0", "model_2"), ("model_1", "model_2")] == [
        (row.model_a, row.model_b) for row in rows
    ]
    assert rows[1].discordance == pytest.approx(np.mean(scores[0] != scores[2]))
    assumed = PowerAssumptions(discordance=rows[1].discordance)
    expected = es.power(assumed, difference=0.1, design=PowerDesign(n_models=3))[0]
    assert (3, expected.n_items) == (rows[1].n_models, rows[1].n_items)


def test_epochs_of_different_numbers_give_no_negative_variance() -> None:
    """The first pair's items vary less than their epochs; what they have by epoch differs."""
    nan = np.nan
    a, b = [[1, 0, nan], [1, nan, 0], [1, nan, 1]], [[1, 0, 0], [1, 0, 0], [1, nan, 0]]

    row = es.power(_matrix([a, b]), power=0.8)[0]

    assert row.difference is None or 0 < row.difference <= 1


def test_item_means_that_all_differ_alike_leave_the_variance_within_items() -> None:
    """Whichever way the last bit of a variance between them is rounded."""
    rng = np.random.default_rng(0)
    design = PowerDesign(method="t")
    for n_right in rng.integers(0, 6, (9, 13)):
        scores = rng.permuted(np.tile(np.arange(5.0) < n_right[:, None], (2, 1, 1)), axis=2)
        row = es.power(_matrix(1.0 * scores), difference=0.1, design=design)[0]
        assumed = PowerAssumptions(between=0.0, within=(row.within or 0) / 2)
        expected = es.power(assumed, difference=0.1, n_epochs=5, design=design)[0]
        assert row.n_items == expected.n_items


def test_a_pilot_in_epochs_gives_unbiased_parts() -> None:
    """The true ω² and σ² of a simulated pair, from 3,000 items in 3 epochs."""
    rng = np.random.default_rng(4)
    theta = rng.uniform(0.2, 0.6, size=3000)
    moved = theta + rng.uniform(0, 0.4, size=3000)
    scores = 1.0 * (rng.uniform(size=(2, 3000, 3)) < np.stack([theta, moved])[:, :, None])
    row = es.power(_matrix(scores), difference=0.05, n_epochs=2)[0]

    assert row.between == pytest.approx(0.16 / 12, abs=0.006)
    within = (theta * (1 - theta) + moved * (1 - moved)).mean()
    assert row.within == pytest.approx(within, rel=0.02)
    assert row.discordance == pytest.approx(np.mean(theta + moved - 2 * theta * moved), rel=0.05)
    expected = PowerAssumptions(between=row.between, within=(row.within or 0) / 2)
    design = PowerDesign(n_models=2)
    by_variance = es.power(expected, difference=0.05, n_epochs=2, design=design)[0].n_items
    # The pilot's squared differences stay as they are, so that a smaller mean leaves more variance.
    rest = row.between + (row.within or 0) / 2
    expected_n = (by_variance or 0) * (rest + 0.2**2 - 0.05**2) / rest
    assert row.n_items == pytest.approx(expected_n, rel=0.12)


@pytest.mark.usefixtures("few_samples")
def test_a_pilot_alone_tells_its_least_difference() -> None:
    """With its own number of items, and the parts of each model's variance."""
    rows = es.power(es.read(LOGS, task="arith_epochs"))

    assert {("difference", 30, 3)} == {(r.quantity, r.n_items, r.n_epochs) for r in rows}
    assert 4 == len(rows.parts)
    assert rows.parts[3].share_within == pytest.approx(0.6148, abs=1e-4)


def test_clusters_of_a_pilot_are_allowed_for() -> None:
    """And the design effect can be overruled."""
    responses = es.read(LOGS, task="reading")
    pair = [r for r in responses if r.model in ("mockllm/alpha", "mockllm/delta")]
    row = es.power(pair, difference=0.1, design=PowerDesign(n_models=4))[0]
    design = PowerDesign(design_effect=1.0, n_models=4)
    alone = es.power(pair, difference=0.1, design=design)[0]

    assert (row.method, alone.method) == ("symmetric-bootstrap", "symmetric-bootstrap")
    assert row.design_effect is not None
    assert row.design_effect > 1.1
    # Ten clusters of five, moved to a difference of .1: simulated here by themselves.
    sums = np.array([4, 4, 3, 3, 2, -1, 3, 1, 2, 2])
    sums = 0.5 + (sums - sums.mean()) * np.sqrt(10 / 9)
    z = -special.ndtri(0.025 / 6)
    n_clusters = round((row.n_items or 0) / 5)
    drawn = np.random.default_rng(3).integers(0, 10, (12_000, n_clusters))
    assert np.mean(Differences(sums[drawn]).deviate >= z) == pytest.approx(0.8, abs=0.015)
    assert (alone.n_items or 0) > 0
    design = PowerDesign(n_models=4)
    fixed = es.power(pair, difference=0.1, n_items=row.n_items, design=design)[0]
    assert (fixed.quantity, fixed.model_b) == ("power", row.model_b)
    assert fixed.power == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("method", ["auto", "miller"])
def test_a_design_effect_that_is_given_leaves_the_pilots_error(method: str) -> None:
    """Limits and assurance of a clustered pilot, too, are of what it says of single items."""
    scores = np.repeat(_binary(40), 5, axis=1)
    pilot = es.ResponseMatrix.from_array(scores, clusters=np.repeat(np.arange(40), 5).astype(str))
    designs = [PowerDesign(design_effect=2.0, method=method, assurance=x) for x in (None, 0.95)]
    row, sure = (es.power(pilot, difference=0.1, design=design)[0] for design in designs)

    assert (row.low or 0) < 0.95 * (row.n_items or 0)
    assert 1.05 * (row.n_items or 0) < (row.high or 0) == sure.n_items


def test_different_items_need_many_more() -> None:
    """Both models' variances are added; one model is enough to plan with."""
    scores = _binary()
    unpaired = PowerDesign(paired=False)
    row = es.power(_matrix(scores), difference=0.1, design=unpaired)[0]
    paired = es.power(_matrix(scores), difference=0.1)[0]
    alone = es.power(_matrix(scores[:1]), difference=0.1, design=unpaired)[0]

    assert row.between == pytest.approx(scores.var(axis=1, ddof=1).sum())
    assert (row.n_items or 0) > (paired.n_items or 0)
    assert ("", 2) == (alone.model_b, alone.n_models)
    assert alone.between == pytest.approx(2 * scores[0].var(ddof=1))


def test_a_discordance_below_the_difference_is_raised_to_it() -> None:
    """Models that agree on every item of the pilot cannot differ by more than they disagree."""
    scores = np.tile(_binary(30, 1), (2, 1))
    row = es.power(_matrix(scores), difference=0.1)[0]

    expected = es.power(PowerAssumptions(discordance=0.1), difference=0.1)[0]
    assert expected.n_items == row.n_items
    assert any("pilot's discordance is smaller" in note for note in row.notes)


def test_which_of_two_models_is_ahead_does_not_matter() -> None:
    """Also of a drop that is larger than the pilot's discordance."""
    scores = np.tile([[1.0, 0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0, 0.0]], 12)
    up, down = (es.power(_matrix(scores), difference=d)[0] for d in (0.4, -0.4))

    assert replace(down, difference=0.4) == up


def test_scores_without_bounds_have_a_least_difference_by_students_t() -> None:
    """And epochs follow from variances, whatever the items' method."""
    scores = np.random.default_rng(0).normal(5.0, 1.0, (2, 40, 3))
    least = es.power(_matrix(scores), n_items=30, design=PowerDesign(method="t"))[0]
    found = es.power(_matrix(scores), difference=least.difference, n_items=30,
                     design=PowerDesign(method="t"))  # fmt: skip

    assert found[0].power == pytest.approx(0.8, abs=1e-6)
    assert [("power", "t"), ("n_epochs", "miller"), ("n_models", "t")] == [
        (row.quantity, row.method) for row in found
    ]


def test_differences_that_do_not_vary_are_nothing_to_plan_with() -> None:
    """Partial credit, the same of both."""
    scores = np.tile(np.linspace(0, 1, 30), (2, 1))
    row = es.power(_matrix(scores), difference=0.1)[0]

    assert row.n_items is None
    assert any("do not vary" in note for note in row.notes)


def test_a_small_pilot_has_a_note() -> None:
    """20 items estimate a variance to ±65 %."""
    rng = np.random.default_rng(0)
    row = es.power(_matrix(rng.uniform(size=(2, 20))), difference=0.1)[0]

    assert "the pilot estimates the variance to about ±60 % only" in row.notes


def test_items_without_a_score_are_left_out_of_a_pair() -> None:
    """What both models answered counts."""
    scores = _binary()
    scores[0, :100] = np.nan
    row = es.power(_matrix(scores), difference=0.1)[0]

    assert 300 == row.pilot_items
    assert row.discordance == pytest.approx(np.mean(scores[0, 100:] != scores[1, 100:]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"difference": 0.0}, "a number other than 0"),
        ({"difference": 1.2}, "at most 1"),
        ({"difference": 0.1, "power": 1.0}, "power must lie between"),
        ({"difference": 0.1, "power": 0.04}, "exceed the 0.05 that chance gives"),
        ({"difference": 0.1, "confidence_level": 1.0}, "is not between 0 and 1"),
        ({"n_items": 1}, "number of items must be 2"),
        ({"n_items": 9, "n_epochs": 0}, "number of epochs must be 1"),
        ({"n_items": 9, "design": PowerDesign(n_models=1)}, "number of models must be 2"),
        (
            {"n_items": 9, "design": PowerDesign(design_effect=0.0)},
            "design effect must be positive",
        ),
        (
            {"n_items": 9, "design": PowerDesign(method="symmetric-bootstrap")},
            "0/1 scores of the same items",
        ),
        ({"difference": np.inf}, "a number other than 0"),
        ({"n_items": 9, "design": PowerDesign(look_every=0)}, "two looks must be 1"),
        (
            {"n_items": 9, "design": PowerDesign(look_every=5, method="t")},
            "sequential comparison has",
        ),
        ({"n_items": 9, "design": PowerDesign(look_every=5, paired=False)}, "comparison is one of"),
        (
            {"n_items": 9, "design": PowerDesign(look_every=5, tasks="random")},
            "comparison is one of",
        ),
        ({"n_items": 9, "design": PowerDesign(assurance=0.4)}, "assurance must be at least 0.5"),
        ({"difference": 0.1, "design": PowerDesign(costs=(-1.0, 1.0))}, "costs must be finite"),
        ({"difference": 0.1, "design": PowerDesign(costs=(1.0, 0.0))}, "costs must be finite"),
        ({"difference": 0.1, "design": PowerDesign(costs=(np.inf, 1.0))}, "costs must be finite"),
        ({"difference": 0.1, "design": PowerDesign(costs=(1.0, np.inf))}, "costs must be finite"),
        ({"n_items": 9, "design": PowerDesign(costs=(1.0, 1.0))}, "found for a difference"),
        (
            {"difference": 0.1, "n_items": 9, "design": PowerDesign(costs=(1.0, 1.0))},
            "found for a difference",
        ),
        (
            {"difference": 0.1, "n_epochs": 2, "design": PowerDesign(costs=(1.0, 1.0))},
            "leave out items and epochs",
        ),
        (
            {"difference": 0.1, "design": PowerDesign(costs=(1.0, 1.0), look_every=5)},
            "found for one look",
        ),
        (
            {"difference": 0.1, "design": PowerDesign(costs=(1.0, 1.0), tasks="random")},
            "found for one look",
        ),
        ({"n_items": 9, "design": PowerDesign(margin=0.0)}, "margin must be above 0"),
        ({"difference": -0.2, "design": PowerDesign(margin=0.1)}, "not within the margin"),
        ({"difference": -0.1, "design": PowerDesign(margin=0.1)}, "not within the margin"),
        ({"n_items": 9, "design": PowerDesign(margin=0.1, method="t")}, "has one test"),
        ({"n_items": 9, "design": PowerDesign(margin=0.1, paired=False)}, "on the same items"),
        ({"n_items": 9, "design": PowerDesign(margin=0.1, look_every=5)}, "for one look"),
        ({"n_items": 9, "design": PowerDesign(margin=0.1, design_effect=2.0)}, "own clusters"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        es.power(MILLER, **arguments)


@pytest.mark.parametrize(
    ("assumed", "arguments", "error", "message"),
    [
        ({"discordance": 0.05}, {"difference": 0.1}, DesignError, "discordance must lie between"),
        ({"discordance": 1.5}, {"n_items": 10}, DesignError, "discordance must lie between"),
        ({"discordance": 0.2}, {"n_items": 10, "n_epochs": 2}, DesignError, "in one epoch"),
        ({"between": -0.1}, {"n_items": 10}, DesignError, "must be 0 or more"),
        (
            {"discordance": 0.2},
            {"n_items": 9, "design": PowerDesign(look_every=5, tasks="fixed")},
            DesignError,
            "on each task alone",
        ),
        (
            {"discordance": 0.2},
            {"n_items": 9, "design": PowerDesign(assurance=1.0)},
            DesignError,
            "below 1, such as 0.9",
        ),
        (
            {"discordance": 0.2},
            {"n_items": 9, "design": PowerDesign(tasks="random")},
            DesignError,
            "need the logs of a pilot",
        ),
        ({"between": 0.1}, {}, SelectionError, "give a difference, a number of items"),
        ({}, {"n_items": 10}, SelectionError, "either a discordance"),
        ({"between": 0.1, "discordance": 0.1}, {"n_items": 10}, SelectionError, "either"),
        (
            {"between": 0.1},
            {"n_items": 10, "design": PowerDesign(method="wald")},
            SelectionError,
            "no method is called 'wald'",
        ),
    ],
)
def test_assumptions_that_make_no_sense_are_refused(
    assumed: Any, arguments: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        es.power(PowerAssumptions(**assumed), **arguments)


@pytest.mark.parametrize(
    ("scores", "arguments", "message"),
    [
        ([[1, 0, 1.0]], {}, r"two models .* have 1 model \(model_0\)"),
        ([[1, np.nan], [np.nan, 0]], {}, "have 2 models"),
        ([[1, 0, 1], [0, 0, 1.0]], {"difference": 0.1, "n_epochs": 2}, "the pilot has one epoch"),
        ([[1, 0, 1], [0, 0, 1.0]], {"difference": 1.1}, "at most 1"),
    ],
)
def test_pilots_that_hold_nothing_to_plan_with_are_refused(
    scores: Any, arguments: Any, message: str
) -> None:
    with pytest.raises(DesignError, match=message):
        es.power(_matrix(scores), **arguments)


def test_only_a_pilot_for_the_same_items_is_told_of_the_other_design() -> None:
    """Of one model there are no differences; of one item there is nothing at all."""
    one_model, one_item = _matrix([[1, 0, 1.0]]), _matrix([[1.0], [0.0]])
    with pytest.raises(DesignError, match=r"different items, choose the unpaired design$"):
        es.power(one_model)
    with pytest.raises(DesignError, match=r"a mean of two item scores on .* without that$"):
        es.power(one_item, design=PowerDesign(paired=False))


def test_a_sequential_comparison_takes_more_items_and_finds_as_often() -> None:
    """152 items at one look; looked at every 10, the same power takes 280."""
    assumed, design = PowerAssumptions(discordance=0.2), PowerDesign(look_every=10)
    row = es.power(assumed, difference=0.1, design=design)[0]
    there = es.power(assumed, difference=0.1, n_items=280, design=design)[0]
    least = es.power(assumed, n_items=280, design=design)[0]

    assert ("n_items", 280, "confidence-sequence") == (row.quantity, row.n_items, row.method)
    assert 0.81 == pytest.approx(there.power, abs=0.005)
    assert 0.1 == pytest.approx(least.difference, abs=0.002)


@pytest.mark.parametrize("size", [1, 4])
def test_a_sequential_comparison_of_partial_credit_is_drawn_from_its_pilot(size: int) -> None:
    """Single items as they are, moved where the pilot points; those in clusters by variance."""
    solver = _solver(_pilot(n_models=3, size=size), look_every=40)
    pilots, n, looks = solver.spread.pilots, np.full(3, 90.0), np.array([40.0, 80, 90])
    assert pilots is not None
    for k in (2, 3):
        found = solver.power(n, -0.12, k)
        for pair, pilot in enumerate(pilots):
            planned, variance = pilot.planned(), float(solver.variance[pair])
            units = planned.differences(math.copysign(0.12, planned.mean))
            assert (units is None) == (size > 1)
            expected = mixture_power(
                looks, -0.12, variance=variance, units=units, tail=solver.tail(k)
            )
            assert found[pair] == expected[-1]
    assert (solver.power(n, 0.12, 3) < solver.power(n, 0.12, 2)).all()
    solver = _solver(_pilot(size=size), look_every=40)
    [least], [needed] = solver.difference(n[:1]), solver.items(0.15)
    assert solver.power(n[:1], least) >= 0.8 > solver.power(n[:1], 0.97 * least)
    assert solver.power(np.array([needed]), 0.15) >= 0.78
    assert solver.power(np.array([needed - 40]), 0.15) < 0.82


def test_a_sequential_comparison_of_many_models_is_simulated_by_variance() -> None:
    """Fifteen pairs would take long, if each were drawn."""
    solver = _solver(_pilot(n_models=6), look_every=50)
    found = solver.power(np.full(15, 100.0), 0.12)
    for pair in (np.argmin(solver.variance), np.argmax(solver.variance)):
        expected = mixture_power(
            np.array([50.0, 100]), 0.12, variance=float(solver.variance[pair]), tail=solver.tail(6)
        )
        assert found[pair] == pytest.approx(expected[-1], rel=1e-12)


def test_a_sequential_comparison_is_looked_at_when_its_items_are_all_there() -> None:
    """Not only after so many as it has not: with 60 items a look every 100 is one at 60."""
    assumed = PowerAssumptions(discordance=0.3)
    powers = [
        es.power(assumed, difference=0.25, n_items=n, design=PowerDesign(look_every=k))[0].power
        for n, k in ((60, 60), (60, 100), (59, 50), (60, 50))
    ]

    assert powers[0] == powers[1]
    assert powers[2] == pytest.approx(powers[3], abs=0.02)


def _tasks(
    rng: np.random.Generator, n_tasks: int, spread: float, n_items: int = 400
) -> list[Responses]:
    found: list[Responses] = []
    for task in range(n_tasks):
        scores = rng.normal(0.5, 0.25, (2, n_items))
        scores[1] += rng.normal(0.05, spread)
        matrix = es.ResponseMatrix.from_array(scores)
        found += [r.measured(task=str(task)) for r in matrix.to_responses()]
    return found


@pytest.mark.usefixtures("few_samples")
def test_the_mean_over_fixed_tasks_shares_the_items_among_them() -> None:
    """Four tasks, each with a quarter of the items that one would need."""
    pilot = _tasks(np.random.default_rng(0), 4, 0.0)
    rows = es.power(pilot, difference=0.05, design=PowerDesign(tasks="fixed"))
    alone = [row.n_items or 0 for row in es.power(pilot, difference=0.05)]

    assert ["these 4 tasks"] == [row.task for row in rows]
    assert rows[0].n_items == pytest.approx(np.mean(alone) / 4, abs=1)


@pytest.mark.usefixtures("few_samples")
def test_a_design_effect_of_fixed_tasks_is_in_place_of_the_pilots() -> None:
    """Copies in clusters of five: planned as if they were none, or as if they were three."""
    clustered = [
        replace(
            r, item_ids=np.arange(200), scores=np.repeat(r.scores, 5, axis=0),
            clusters=np.repeat(np.arange(40).astype(str), 5),
        )
        for r in _tasks(np.random.default_rng(1), 2, 0.0, n_items=40)
    ]  # fmt: skip
    plain = [replace(r, clusters=None) for r in clustered]

    def planned(pilot: list[Responses], effect: float | None) -> Any:
        design = PowerDesign(tasks="fixed", design_effect=effect)
        return es.power(pilot, difference=0.05, design=design)[0]

    once = planned(plain, 1.0).n_items
    assert once == planned(clustered, 1.0).n_items
    assert 3 * once == pytest.approx(planned(clustered, 3.0).n_items, abs=3)
    assert planned(clustered, None).design_effect == pytest.approx(5, rel=0.05)


@pytest.mark.usefixtures("few_samples")
def test_fixed_tasks_may_have_run_in_different_numbers_of_epochs() -> None:
    """Of one that ran once nothing is known of more; all can be planned for one epoch."""
    rng = np.random.default_rng(5)
    chance = rng.beta(1, 1, (2, 80, 1))
    pilot = [
        r.measured(task=str(n_epochs))
        for n_epochs in (1, 3)
        for r in _matrix(1.0 * (rng.random((2, 80, n_epochs)) < chance)).to_responses()
    ]
    fixed, alone = (
        es.power(pilot, difference=0.05, n_epochs=1, design=PowerDesign(tasks=tasks))
        for tasks in ("fixed", "each")
    )

    assert fixed[0].n_items == pytest.approx(sum(row.n_items or 0 for row in alone) / 4, rel=0.05)
    for n_epochs in (None, 3):
        with pytest.raises(DesignError, match="or plan for 1"):
            es.power(pilot, difference=0.05, n_epochs=n_epochs, design=PowerDesign(tasks="fixed"))
    with pytest.raises(DesignError, match="of random tasks the epochs are those of the pilot"):
        es.power(pilot, difference=0.05, n_epochs=1, design=PowerDesign(tasks="random"))


@pytest.mark.usefixtures("few_samples")
def test_random_tasks_are_counted_where_items_cannot_help() -> None:
    """(1.96 + .84)² (τ² + σ²/n) / δ² tasks, and somewhat more by Student's t."""
    pilot = _tasks(np.random.default_rng(2), 120, 0.1, n_items=100)
    design = PowerDesign(tasks="random")
    found, needed = es.power(pilot, difference=0.05, n_items=50, design=design)

    assert ("power", "n_tasks") == (found.quantity, needed.quantity)
    assert needed.n_tasks == pytest.approx(2.8**2 * (0.1**2 + 0.125 / 50) / 0.05**2, rel=0.15)
    assert (found.n_tasks, found.n_items, found.n_epochs) == (120, 50, None)


def test_the_cheapest_split_balances_items_and_epochs() -> None:
    """√(cost of an item / of an epoch × variance within / between) = √(10 × 8) epochs."""
    design = PowerDesign(costs=(10.0, 1.0))
    row = es.power(PowerAssumptions(between=0.05, within=0.2), difference=0.05, design=design)[0]

    assert (9, 297) == (row.n_epochs, row.n_items)
    assert "costs 5,643 for each model; one epoch, 15,543" in row.notes
    never = es.power(PowerAssumptions(between=0.1, within=0.2), difference=1e-7, design=design)[0]
    assert never.notes == ("the difference is too small: it would need more than 10¹² items",)


@pytest.mark.usefixtures("few_samples")
def test_limits_of_the_cheapest_design_are_for_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """More items of so many epochs, not another split."""
    monkeypatch.setattr(planning, "MOST_EPOCHS", 8)
    rng = np.random.default_rng(2)
    right = rng.random((2, 40, 3)) < rng.beta(0.5, 0.5, (40, 1))
    cheapest = es.power(_matrix(1.0 * right), difference=0.2, design=PowerDesign(costs=(5.0, 1.0)))
    row = cheapest[0]
    of_its_epochs = es.power(_matrix(1.0 * right), difference=0.2, n_epochs=row.n_epochs)[0]

    assert (row.n_epochs or 0) > 1
    assert (of_its_epochs.low, of_its_epochs.n_items, of_its_epochs.high) == (
        row.low, row.n_items, row.high,
    )  # fmt: skip


def test_a_small_pilot_gives_limits_and_assurance_asks_for_more() -> None:
    """The advice lies between its limits; with assurance it is near the upper one."""
    pilot = _matrix(_binary(60))
    row = es.power(pilot, difference=0.1)[0]
    sure = es.power(pilot, difference=0.1, design=PowerDesign(assurance=0.95))[0]

    assert row.low is not None
    assert row.high is not None
    assert row.low < (row.n_items or 0) < row.high
    assert sure.n_items == row.high


@pytest.mark.parametrize(
    ("seed", "pilot", "runs"),
    [
        *((seed, 6_000, 3_000) for seed in (0, 2, 4, 9)),
        (6, 20_000, 4_000),
        *(pytest.param(seed, 20_000, 4_000, marks=pytest.mark.validation)
          for seed in (0, 1, 2, 4, 12)),
    ],
)  # fmt: skip
def test_the_power_that_is_promised_is_reached(seed: int, pilot: int, runs: int) -> None:
    """Items, clusters, epochs, fixed tasks, non-inferiority: simulated by the test that decides."""
    row = promised_and_reached(seed, pilot=pilot, runs=runs)

    assert row["method"] == "symmetric-bootstrap"
    assert 0.1 < row["reached"] < 0.99
    assert row["promised"] == pytest.approx(row["reached"], abs=0.03)


@pytest.mark.usefixtures("few_samples")
def test_non_inferiority_is_planned_from_a_pilot() -> None:
    """More items for a smaller margin; the power of the advised number is the one asked for."""
    pilot = _matrix(np.random.default_rng(2).beta(4, 2, size=(2, 400)))
    few, many = (es.power(pilot, design=PowerDesign(margin=margin))[0] for margin in (0.1, 0.05))
    assert (few.quantity, few.difference, few.margin) == ("n_items", 0.0, 0.1)
    assert 3 < (many.n_items or 0) / (few.n_items or 1) < 5
    (row,) = es.power(pilot, n_items=few.n_items, design=PowerDesign(margin=0.1))
    assert (row.quantity, row.power) == ("power", pytest.approx(0.8, abs=0.02))
    with pytest.raises(DesignError, match="need the logs of a pilot"):
        es.power(MILLER, n_items=100, design=PowerDesign(margin=0.1))
    with pytest.raises(DesignError, match="not within the margin"):
        es.power(pilot, difference=-0.2, design=PowerDesign(margin=0.1))


@pytest.mark.usefixtures("few_samples")
@pytest.mark.parametrize("asked", [{"n_items": 40}, {"n_items": 400}])
def test_plans_of_errors_are_those_of_what_is_right(asked: dict[str, Any]) -> None:
    """Non-inferiority where lower scores are better: the mirror image of a skewed pilot."""
    scores = np.random.default_rng(5).beta([[0.5], [0.6]], 4, size=(2, 40))
    plain = [r.measured(scale=es.Scale(0, 1)) for r in _matrix(1 - scores).to_responses()]
    errors = [
        replace(r, scores=1 - r.scores, measure=replace(r.measure, higher_is_better=False))
        for r in plain
    ]
    first, second = (
        es.power(es.ResponseSet(tuple(of)), design=PowerDesign(margin=0.03), **asked)[0].power
        for of in (plain, errors)
    )
    assert first == pytest.approx(second)


@pytest.mark.usefixtures("few_samples")
def test_more_epochs_buy_what_the_variance_within_items_says() -> None:
    """All of the variance within items: four times the epochs, a quarter of the items."""
    rng = np.random.default_rng(8)
    scores = 0.5 + 0.2 * rng.normal(size=(2, 2000, 2))
    once, more = (
        es.power(_matrix(scores), difference=0.03, n_epochs=k)[0].n_items or 0 for k in (2, 8)
    )
    assert once / more == pytest.approx(4, rel=0.1)
