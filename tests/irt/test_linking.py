"""Linking: exact transformations come back, errors are as large as told, joint fits agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.linking import link, linking_constants, on_scale_of
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth


def made(a, b, c=None, *, theta=(0.0, 1.0, -1.0), item_model="2pl", start=0):
    """A fit of parameters given."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    m, theta = len(a), np.asarray(theta, float)
    return IRTFit(
        item_model=item_model,
        estimator="mml",
        models=tuple(f"model_{i}" for i in range(len(theta))),
        item_ids=np.array([f"item_{j}" for j in range(start, start + m)]),
        tasks=np.full(m, "task"),
        ability=theta,
        ability_covariance=np.diag(np.full(len(theta), 0.04)),
        discrimination=a,
        difficulty=b,
        guessing=np.zeros(m) if c is None else c,
        discrimination_std_error=np.full(m, 0.1),
        difficulty_std_error=np.full(m, 0.2),
        guessing_std_error=np.full(m, np.nan),
        item_covariance=np.broadcast_to(np.array([[0.02, 0.01], [0.01, 0.03]]), (m, 2, 2)),
        identification="ability ~ N(0, 1)",
        hyperparameters={"ability_mean": 0.0, "ability_sd": 1.0},
    )


def parameters(rng, m):
    return np.exp(0.3 * rng.standard_normal(m)), rng.standard_normal(m), rng.uniform(0.1, 0.3, m)


def moved(a, b, slope, intercept):
    """The same items on the scale on which θ_a = slope · θ_b + intercept."""
    return slope * a, (b - intercept) / slope


def test_a_scale_that_was_moved_comes_back():
    """Exactly, with the curves of every item, and without error; also with guessing."""
    a, b, c = parameters(np.random.default_rng(0), 12)
    fit_a, fit_b = made(a, b, c), made(*moved(a, b, 1.3, -0.7), c, theta=[2.0, 0.5, -1.0])
    found, linked = linking_constants(fit_a, fit_b), link(fit_a, fit_b)

    assert (found.slope, found.intercept) == pytest.approx((1.3, -0.7), abs=1e-7)
    np.testing.assert_allclose(found.covariance, 0, atol=1e-12)
    np.testing.assert_allclose(linked.difficulty, b, atol=1e-6)
    np.testing.assert_allclose(linked.discrimination, a, atol=1e-6)
    np.testing.assert_allclose(linked.ability, 1.3 * fit_b.ability - 0.7, atol=1e-6)
    np.testing.assert_allclose(linked.predict(), fit_b.predict(), atol=1e-12)
    assert linked.hyperparameters["ability_sd"] == pytest.approx(1.3)
    assert linked.hyperparameters["link"]["n_common"] == 12


def test_sums_of_curves_lie_as_close_as_they_can():
    """The definition: no neighbouring constants have a smaller distance, summed directly."""
    rng = np.random.default_rng(1)
    a, b, _ = parameters(rng, 10)
    noisy_a, noisy_b = moved(a * np.exp(0.1 * rng.standard_normal(10)), b, 1.2, 0.4)
    noisy_b = noisy_b + 0.2 * rng.standard_normal(10)
    found = linking_constants(made(a, b), made(noisy_a, noisy_b))
    at = np.linspace(-4, 4, 41)
    weight = np.exp(-(at**2) / 2)

    def distance(slope, intercept):
        target = special.expit(a * (at[:, None] - b))
        ours = special.expit(noisy_a / slope * (at[:, None] - slope * noisy_b - intercept))
        return weight @ (target - ours).sum(axis=1) ** 2

    best = distance(found.slope, found.intercept)
    for step in ((1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3), (1e-3, 1e-3), (1e-3, -1e-3)):
        assert best < distance(found.slope + step[0], found.intercept + step[1])


def test_the_standard_error_is_the_spread_of_the_constants():
    """150 pairs of noisy calibrations of the same 40 items; Monte Carlo error 6 %."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(150):
        a, b, _ = parameters(rng, 40)
        pair = [
            made(x * np.exp(0.1 * rng.standard_normal(40)), y + 0.2 * rng.standard_normal(40))
            for x, y in ((a, b), moved(a, b, 1.2, 0.5))
        ]
        got = linking_constants(*pair)
        found.append([got.slope, got.intercept, *np.diagonal(got.covariance)])
    rows = np.array(found)
    spread, told = rows[:, :2].std(axis=0, ddof=1), np.sqrt(rows[:, 2:].mean(axis=0))

    np.testing.assert_allclose(told, spread, rtol=0.16)


def test_the_standard_error_is_the_jackknife_over_items():
    """Each item left out in turn, by brute force."""
    rng = np.random.default_rng(3)
    a, b, _ = parameters(rng, 40)
    a_b, b_b = moved(a * np.exp(0.1 * rng.standard_normal(40)), b, 1.2, 0.5)
    b_b = b_b + 0.2 * rng.standard_normal(40)
    found = linking_constants(made(a, b), made(a_b, b_b))
    left = []
    for j in range(40):
        keep = np.arange(40) != j
        part = linking_constants(made(a[keep], b[keep]), made(a_b[keep], b_b[keep]))
        left.append([part.slope, part.intercept])
    expected = 39 / 40 * ((np.array(left) - np.mean(left, axis=0)) ** 2).sum(axis=0)

    np.testing.assert_allclose(np.diagonal(found.covariance), expected, rtol=0.2)


def test_the_error_of_the_link_is_in_the_abilities():
    """Delta method: θ_a = Aθ_b + B with A and B uncertain; far models more than near ones."""
    rng = np.random.default_rng(4)
    a, b, _ = parameters(rng, 8)
    fit_a, fit_b = made(a, b), made(a, b + 0.3 * rng.standard_normal(8), theta=[0.0, 3.0])
    found = linking_constants(fit_a, fit_b)
    linked = on_scale_of(fit_a, fit_b, found)
    far = 9 * found.covariance[0, 0] + 6 * found.covariance[0, 1] + found.covariance[1, 1]
    expected = found.slope**2 * 0.04 + np.array([found.covariance[1, 1], far])

    np.testing.assert_allclose(np.diagonal(linked.ability_covariance), expected)
    # Of a and d = -ab by finite differences of the transformation.
    step = 1e-6
    for j, sign in ((0, (1, 0)), (1, (0, 1))):
        a2, d2 = fit_b.discrimination[0] + step * sign[0], fit_b.intercept[0] + step * sign[1]
        changed = on_scale_of(fit_a, made([a2], [-d2 / a2], theta=[0.0]), found)
        by = [
            (changed.discrimination[0] - linked.discrimination[0]) / step,
            (changed.intercept[0] - linked.intercept[0]) / step,
        ]
        unit = replace(fit_b, item_covariance=np.zeros((8, 2, 2)) + np.diag(sign))
        squared = on_scale_of(fit_a, unit, found).item_covariance[0]
        np.testing.assert_allclose(squared, np.outer(by, by), atol=1e-5, err_msg=str(j))


def test_rasch_scales_are_shifted_only():
    b = np.random.default_rng(5).standard_normal(20)
    other = b - 0.8 + 0.2 * np.random.default_rng(6).standard_normal(20)
    pair = [made(np.ones(20), x, item_model="rasch") for x in (b, other)]
    found = linking_constants(*pair)

    assert 1 == found.slope
    assert found.intercept == pytest.approx(0.8, abs=0.15)
    assert 0 == found.covariance[0, 0]
    assert found.covariance[1, 1] > 0


def test_common_models_link_as_well():
    """Two tests without a common item, taken by the same models."""
    rng = np.random.default_rng(7)
    theta = rng.standard_normal(30)
    pair = [made([1.0], [0.0], theta=theta), made([1.0], [0.0], theta=(theta + 0.5) / 1.4, start=1)]
    found = linking_constants(*pair, through="models")

    assert (found.slope, found.intercept) == pytest.approx((1.4, -0.5))
    assert 30 == found.n_common


@pytest.mark.needs("torch")
def test_a_joint_fit_with_missing_blocks_agrees():
    """Two groups of models, 40 items each, 15 of them common: separately and linked, or at once.

    The second group's scale is moved before, so that without a link nothing agrees.
    """
    rng = np.random.default_rng(8)
    truth = draw_truth(rng, 800, 65, "2pl")
    scores = draw_responses(truth, rng).scores[:, :, 0]
    scores[:400, 40:] = scores[400:, :25] = np.nan
    names = [f"item_{j}" for j in range(65)]
    options = MmlOptions(prior="weak", std_errors=False, tolerance=1e-3)

    def fit(rows, columns):
        part = ResponseMatrix.from_array(scores[rows, columns], items=names[columns])
        return fit_irt(part, "2pl", "mml", options=options)

    first, second = fit(slice(0, 400), slice(0, 40)), fit(slice(400, 800), slice(25, 65))
    joint = fit(slice(None), slice(None))
    moved_by = linking_constants(first, second)._replace(slope=1.5, intercept=1.0)
    second = on_scale_of(first, second, moved_by)
    linked, joint = link(first, second), link(first, joint)
    well = np.abs(truth.difficulty[25:]) < 1.5
    apart = (linked.difficulty - joint.difficulty[25:])[well]
    slope, shift = np.polyfit(joint.difficulty[25:][well], linked.difficulty[well], 1)

    assert slope == pytest.approx(1, abs=0.1)
    assert shift == pytest.approx(0, abs=0.1)
    assert np.median(np.abs(apart)) < 0.1
    assert np.corrcoef(linked.ability, joint.ability[400:])[0, 1] > 0.99
    assert np.median(np.abs((second.difficulty - joint.difficulty[25:])[well])) > 0.5


def test_too_little_in_common_is_refused():
    fit = made(np.ones(5), np.zeros(5))
    with pytest.raises(DesignError, match="2 items in common of 5 and 5 are too few to link"):
        link(fit, made(np.ones(5), np.zeros(5), start=3))


@pytest.mark.parametrize("equal", [0, 1])
def test_models_of_one_ability_link_no_scales(equal):
    """The slope, of no spread, was infinite, and so were the abilities linked."""
    spreads = [(0.0, 1.0, -1.0), (0.5, 0.5, 0.5)]
    fits = [made([1, 1, 1], [0, 1, -1], theta=theta) for theta in spreads]

    with pytest.raises(DesignError, match=r"linking slope is (inf|0), no number above 0"):
        link(fits[1 - equal], fits[equal], through="models")
