"""Items integrated out: against dense sums over items, differentiation, and known truth."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import optimize, special

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.irt.estimators import items_integrated as estimators_items_integrated
from evalstats_plugin.irt.estimators.item_population import Population, points
from evalstats_plugin.irt.estimators.items_integrated import items_integrated
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MmlItemsOptions
from evalstats_plugin.irt.model.data import Counts


def normal_points(count):
    """Equally spaced points and their normal masses: exact to rounding for smooth functions."""
    x = np.linspace(-7.5, 7.5, count)
    return x, np.exp(-(x**2) / 2) / np.exp(-(x**2) / 2).sum()


(NODE, MASS), (NODE_2, MASS_2) = normal_points(61), normal_points(31)


def counts(right, trials=None):
    right = np.asarray(right, dtype=float)
    trials = np.ones_like(right) if trials is None else np.asarray(trials, dtype=float)
    return Counts(torch.tensor(right), torch.tensor(trials))


def simulated(n, m, seed, *, missing=0.0, epochs=1, spread=0.4):
    """True abilities that sum to 0, and answers."""
    rng = np.random.default_rng(seed)
    theta, b = rng.normal(size=n), rng.normal(0, 1.5, size=m)
    a = np.exp(spread * rng.normal(size=m))
    trials = np.where(rng.random((n, m)) < missing, 0, epochs)
    right = rng.binomial(trials, special.expit(a * (theta[:, None] - b)))
    return theta - theta.mean(), counts(right, trials)


def parameters(fit):
    """Abilities, then hyper-parameters in the order that `dense` takes."""
    return np.array([*fit.ability.tolist(), *fit.hyperparameters.values()])


def dense(values, data, kind):
    """Log-likelihood by 61 × 31 points, item by item, from its definition."""
    n = data.right.shape[0]
    theta, mean, sd = values[:n], values[n], values[n + 1]
    x1, x2 = (x.ravel() for x in np.meshgrid(NODE, NODE_2, indexing="ij"))
    log_mass = np.log(np.outer(MASS, MASS_2).ravel())
    first, second = mean + sd * x1, np.zeros_like(x1)
    if kind != "rasch":
        spread, correlation = values[n + 2 :]
        second = spread * (correlation * x1 + np.sqrt(1 - correlation**2) * x2)
    if kind == "2pl-signed":
        logit = theta[:, None] * (1 + second) + first
    else:
        logit = np.exp(second) * (theta[:, None] - first)
    right, trials = data.right.numpy(), data.trials.numpy()
    score = right.T @ logit - trials.T @ np.logaddexp(0, logit)
    return special.logsumexp(score + log_mass, axis=1).sum()


def log_prior(values, n, kind):
    """As documented: s exp(-s² / 2k²) for both spreads, and normal for what is explained."""
    value = np.log(values[n + 1]) - values[n + 1] ** 2 / (2 * 5.0**2)
    if kind != "rasch":
        spread, correlation = values[n + 2 :]
        own = spread * np.sqrt(1 - correlation**2)
        value += np.log(own) - own**2 / (2 * 0.2**2)
        value -= (spread * correlation) ** 2 / (2 * 0.1**2)
    return value


KINDS = ["rasch", "2pl", "2pl-signed"]
CASES = [(3, 3, {"epochs": 4}), (3, 40, {"missing": 0.2, "epochs": 3}), (2, 60, {})]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m", "how"), CASES)
def test_log_likelihood_is_the_dense_integral(n, m, how, kind):
    _, data = simulated(n, m, 1, **how)
    fit = items_integrated(data, kind)

    assert fit.converged
    assert fit.log_likelihood == pytest.approx(dense(parameters(fit), data, kind), abs=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_are_the_maximum_of_the_dense_integral_with_its_prior(kind):
    _, data = simulated(3, 40, 1, missing=0.2, epochs=3)
    fit = items_integrated(data, kind)
    best = parameters(fit)

    def objective(free):
        values = np.array([*free[:2], -free[0] - free[1], *free[2:]])
        return -dense(values, data, kind) - log_prior(values, 3, kind)

    start = np.delete(best, 2)
    slope = optimize.approx_fprime(start, objective, 1e-5)

    np.testing.assert_allclose(slope, 0, atol=3e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_covariance_is_the_inverse_hessian_of_the_dense_integral(kind):
    _, data = simulated(3, 40, 1, missing=0.2, epochs=3)
    fit = items_integrated(data, kind)

    def objective(free):
        values = np.array([*free[:2], -free[0] - free[1], *free[2:]])
        return -dense(values, data, kind) - log_prior(values, 3, kind)

    start, step = np.delete(parameters(fit), 2), 2e-3
    moves = step * np.eye(len(start))
    hessian = np.zeros((len(start), len(start)))
    for i, j in zip(*np.triu_indices(len(start)), strict=True):
        corners = [
            s * t * objective(start + s * moves[i] + t * moves[j])
            for s, t in product((1, -1), repeat=2)
        ]
        hessian[i, j] = hessian[j, i] = sum(corners) / (4 * step**2)
    covariance = np.linalg.inv(hessian)[:2, :2]

    np.testing.assert_allclose(fit.covariance[:2, :2], covariance, rtol=5e-3, atol=1e-5)
    np.testing.assert_allclose(fit.covariance.sum(0), 0, atol=1e-12)


def test_items_are_means_of_their_posterior():
    _, data = simulated(3, 12, 4)
    assert not items_integrated(data).extreme.any()
    fit = items_integrated(data, "rasch")
    n, values = 3, parameters(fit)
    b = values[n] + values[n + 1] * NODE
    logit = values[:n, None] - b
    score = data.right.numpy().T @ logit - np.logaddexp(0, logit).sum(0)
    weight = special.softmax(score + np.log(MASS), axis=1)

    np.testing.assert_allclose(fit.difficulty, weight @ b, atol=1e-4)
    np.testing.assert_allclose(
        fit.difficulty_std_error, np.sqrt(weight @ b**2 - (weight @ b) ** 2), atol=1e-4
    )
    error = fit.covariance.diagonal().sqrt().numpy()[:, None]
    expected = sum(
        mass * special.expit(logit + z * error) @ weight.T
        for z, mass in zip(NODE, MASS, strict=True)
    )
    np.testing.assert_allclose(fit.probability, expected, atol=5e-4)
    np.testing.assert_allclose(fit.intercept, -fit.difficulty, atol=1e-12)
    np.testing.assert_allclose(fit.discrimination, 1, atol=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_covariance_of_scores_is_the_sum_over_items_from_its_definition(kind, missing):
    """Whatever the share of missing cells, which decides what items have in common."""
    _, data = simulated(12, 60, 6, missing=missing, epochs=2)
    fit = items_integrated(data, kind)
    assert fit.converged
    values = parameters(fit)
    # Any population will do; that of the fit, brought to where its mean discrimination is 1.
    population = Population(kind, torch.tensor([values[12], np.log(values[13]), 0, 0.1, -1.0]))
    if kind == "rasch":
        population = Population(kind, population.values[:2])
    if kind == "2pl-signed":
        population.values[2] = 1
    grid = points(population, fit.ability, data.trials.amax(1))
    state = estimators_items_integrated.evaluate(data, fit.ability, population, grid)
    a, theta = grid.discrimination.numpy(), fit.ability.numpy()
    logit = a * theta[:, None] + grid.intercept.numpy()
    right, trials = data.right.numpy(), data.trials.numpy()
    log_mass = grid.log_weight(population).numpy()
    joint = right.T @ logit - trials.T @ np.logaddexp(0, logit) + log_mass
    expected = np.zeros((12, 12))
    for j, weight in enumerate(special.softmax(joint, axis=1)):
        score = a * (right[:, [j]] - trials[:, [j]] * special.expit(logit))
        away = score - (score @ weight)[:, None]
        expected += away * weight @ away.T

    np.testing.assert_allclose(state.missing[:12, :12], expected, rtol=1e-5, atol=1e-5)


def test_discriminations_of_either_sign_do_not_run_off_where_most_cells_are_missing():
    """A step too far once ended where nothing is a number, or at spreads without bound."""
    _, data = simulated(12, 60, 6, missing=0.7, epochs=2)
    fit = items_integrated(data, "2pl-signed")

    assert fit.converged
    assert fit.log_likelihood == pytest.approx(-245.55, abs=0.01)
    assert fit.log_likelihood == pytest.approx(dense(parameters(fit), data, "2pl-signed"), abs=1e-3)
    assert fit.hyperparameters["discrimination_sd"] < 0.5
    assert float(fit.ability.abs().max()) < 4


ALIKE = [(500, 0), (500, 1), (1000, 0), (2000, 0), (2000, 1)]


@pytest.mark.parametrize(("m", "seed"), ALIKE)
def test_items_that_discriminate_alike_take_no_more_steps_where_there_are_more(m, seed):
    """Points too coarse for spreads of .1 or less misjudge each item by a little.

    The more items, the longer the search took; of these, one ended at a log-likelihood of 235,072.
    """
    _, data = simulated(20, m, seed, spread=0.0)
    fit = items_integrated(data, max_steps=15)

    assert fit.converged
    assert fit.log_likelihood == pytest.approx(dense(parameters(fit), data, "2pl"), abs=1e-5 * m)


@pytest.mark.parametrize("kind", ["2pl", "2pl-signed"])
@pytest.mark.parametrize("seed", range(3))
def test_items_that_discriminate_alike_are_no_trap_of_the_first_coarse_points(kind, seed):
    """Every step was refused for ever."""
    _, data = simulated(40, 500, seed, spread=0.0)

    assert items_integrated(data, kind, max_steps=20).converged


def test_points_far_from_an_items_posterior_are_left_out_and_do_not_matter(monkeypatch):
    _, data = simulated(15, 80, 6, missing=0.2)
    monkeypatch.setattr(estimators_items_integrated, "_WORTH", 1)
    some = items_integrated(data)
    monkeypatch.setattr(estimators_items_integrated, "_FAR", np.inf)
    every = items_integrated(data)
    monkeypatch.setattr(estimators_items_integrated, "_FAR", 1.0)
    too_few = items_integrated(data, max_steps=10)

    np.testing.assert_allclose(some.ability, every.ability, atol=1e-8)
    assert some.log_likelihood == pytest.approx(every.log_likelihood, abs=1e-7)
    assert abs(too_few.log_likelihood - every.log_likelihood) > 1e-3


def test_size_of_blocks_does_not_matter(monkeypatch):
    _, data = simulated(10, 300, 6, missing=0.2)
    whole = items_integrated(data)
    monkeypatch.setattr(estimators_items_integrated, "_BLOCK", 2**13)
    monkeypatch.setattr(estimators_items_integrated, "_FEWEST", 7)
    monkeypatch.setattr(estimators_items_integrated, "_WORTH", 1)
    parts = items_integrated(data)

    np.testing.assert_allclose(parts.ability, whole.ability, atol=1e-8)
    np.testing.assert_allclose(parts.covariance, whole.covariance, atol=1e-8)
    np.testing.assert_allclose(parts.probability, whole.probability, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_models_and_items_does_not_matter_and_reruns_are_the_same_bits(kind):
    _, data = simulated(8, 120, 9, missing=0.1)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(8), rng.permutation(120)
    shuffled = Counts(data.right[rows][:, columns], data.trials[rows][:, columns])
    fit, again, other = (items_integrated(x, kind) for x in (data, data, shuffled))

    assert torch.equal(fit.ability, again.ability)
    assert torch.equal(fit.covariance, again.covariance)
    np.testing.assert_allclose(other.ability, fit.ability[rows], atol=1e-6)
    np.testing.assert_allclose(other.difficulty, fit.difficulty[columns], atol=1e-5)


def test_rasch_agrees_with_the_conditional_estimates_that_assume_no_population():
    """Given how many models are right on each item, by a general optimiser."""
    _, data = simulated(10, 500, 4, spread=0.0)
    fit = items_integrated(data, "rasch")
    right, basis = data.right.numpy(), np.vstack([np.eye(9), -np.ones(9)])
    totals = right.sum(0).astype(int)

    def loss(free):
        """Elementary symmetric functions of ten models, multiplied out."""
        theta, esf = basis @ free, np.ones(1)
        for ability in np.exp(theta):
            esf = np.convolve(esf, [1.0, ability])
        return np.log(esf)[totals].sum() - right.sum(1) @ theta

    best, step = optimize.minimize(loss, np.zeros(9), tol=1e-8).x, 1e-3 * np.eye(9)
    hessian = np.array([
        [sum(s * t * loss(best + s * u + t * v) for s in (1, -1) for t in (1, -1)) for u in step]
        for v in step
    ]) / 4e-6  # fmt: skip
    error = np.sqrt((basis @ np.linalg.inv(hessian) @ basis.T).diagonal())

    np.testing.assert_allclose(fit.ability, basis @ best, atol=0.02)
    np.testing.assert_allclose(fit.covariance.diagonal().sqrt(), error, rtol=0.02)


def test_abilities_and_the_population_of_items_are_recovered():
    theta, data = simulated(40, 2000, 11)
    fit = items_integrated(data)
    error = (fit.ability - torch.tensor(theta)) / fit.covariance.diagonal().sqrt()

    assert float((error**2).mean()) < 2
    assert fit.hyperparameters["difficulty_sd"] == pytest.approx(1.5, abs=0.15)
    assert fit.hyperparameters["log_discrimination_sd"] == pytest.approx(0.4, abs=0.08)
    assert fit.hyperparameters["correlation"] == pytest.approx(0.0, abs=0.15)


def test_joint_estimates_would_stretch_abilities_of_few_models_and_these_do_not():
    """Five models: joint maximum likelihood is 1.25 times too far apart, or more."""
    slopes = []
    for seed in range(8):
        theta, data = simulated(5, 500, 100 + seed, spread=0.0)
        fit = items_integrated(data)
        slopes.append((float(fit.ability @ torch.tensor(theta)), float(theta @ theta)))
    slope = np.sum(slopes, axis=0)

    assert slope[0] / slope[1] == pytest.approx(1.0, abs=0.06)


def test_a_wrong_key_gives_a_negative_discrimination():
    _, data = simulated(60, 200, 8)
    right = data.right.clone()
    right[:, 7] = (
        1 - (torch.linspace(0, 1, 60)[data.right.sum(1).argsort().argsort()] > 0.5).double()
    )
    fit = items_integrated(Counts(right, data.trials), "2pl-signed")
    error = fit.item_covariance[7, 0, 0].sqrt()

    assert fit.discrimination[7] < -2 * error
    assert fit.discrimination.argmin() == 7


def test_items_with_wrong_keys_lie_farther_out_than_others(monkeypatch):
    """No discrimination above 0 suits them: their posteriors end where the points used to end."""
    _, data = simulated(150, 120, 8, spread=0.2)
    right = data.right.clone()
    right[:, :6] = 1 - right[:, :6]
    data = Counts(right, data.trials)
    fit = items_integrated(data)
    monkeypatch.setattr(estimators_items_integrated, "_WIDER", 1.0 + 1e-9)
    short = items_integrated(data)

    assert fit.converged
    assert abs(fit.node_error) < 1e-3
    assert fit.log_likelihood != pytest.approx(short.log_likelihood, abs=2e-3)


def test_items_all_right_or_all_wrong_have_finite_estimates():
    _, data = simulated(6, 80, 3)
    right = torch.cat([data.right, torch.ones(6, 3), torch.zeros(6, 3)], dim=1)
    fit = items_integrated(Counts(right, torch.ones_like(right)))

    assert fit.converged
    assert bool(torch.isfinite(fit.difficulty).all())
    assert float(fit.difficulty[80:83].max()) < float(fit.difficulty[83:].min())


def test_models_all_right_or_all_wrong_are_flagged_and_do_not_move_the_others():
    _, data = simulated(6, 200, 3)
    right = torch.cat([data.right, torch.ones(1, 200), torch.zeros(1, 200)])
    fit, without = items_integrated(Counts(right, torch.ones_like(right))), items_integrated(data)

    assert fit.converged
    assert fit.extreme.tolist() == [0] * 6 + [1, -1]
    assert bool(fit.covariance.diagonal()[6:].isnan().all())
    assert fit.ability[6] > fit.ability[:6].max()
    assert fit.ability[7] < fit.ability[:6].min()
    np.testing.assert_array_equal(fit.ability[:6], without.ability)
    np.testing.assert_allclose(fit.ability[:6].sum(), 0, atol=1e-9)


@pytest.mark.parametrize("kind", ["rasch", "2pl"])
def test_complementary_answers_turn_abilities_round(kind):
    """Extreme models too: half an item is what both lack, the one above and the one below."""
    _, data = simulated(6, 60, 3)
    right = torch.cat([data.right, torch.ones(1, 60), torch.zeros(1, 60)])
    trials = torch.ones_like(right)
    fit, turned = (items_integrated(Counts(each, trials), kind) for each in (right, 1 - right))

    np.testing.assert_allclose(turned.ability, -fit.ability, atol=1e-4)
    np.testing.assert_allclose(turned.covariance, fit.covariance, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(turned.intercept, -fit.intercept, atol=1e-3)


@pytest.mark.parametrize("n_extreme", [0, 1])
def test_the_mean_of_abilities_is_fixed_and_has_no_error(n_extreme):
    """The estimator's own scale is counted from it; extreme models take no part in the fit."""
    _, data = simulated(6, 60, 3)
    right = torch.cat([data.right, torch.ones(n_extreme, 60)])
    fit = items_integrated(Counts(right, torch.ones_like(right)))
    fitted = fit.extreme == 0
    covariance = fit.covariance[fitted][:, fitted]

    np.testing.assert_allclose(fit.ability[fitted].sum(), 0, atol=1e-9)
    np.testing.assert_allclose(covariance.sum(dim=1), 0, atol=1e-9)
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-12)
    assert fit.covariance[~fitted].isnan().all()


def test_two_models_without_any_difference_are_equally_able():
    rng = np.random.default_rng(1)
    scores = (rng.random((1, 50)) < 0.6) * np.ones((2, 1))
    for kind in KINDS:
        fit = items_integrated(counts(scores), kind)

        assert fit.converged
        np.testing.assert_allclose(fit.ability, 0, atol=1e-6)


def test_a_search_cut_short_says_so():
    _, data = simulated(10, 100, 2)

    assert not items_integrated(data, max_steps=1).converged


DESIGNS = {
    "rasch": ("rasch", {}),
    "2pl": ("2pl", {}),
    "signed": ("2pl", {"signed": True}),
    "guessing": ("2pl", {"guessing": 0.25}),
    "guessing estimated": ("rasch", {"estimate_guessing": True}),
    "missing": ("2pl", {"missing": 0.2}),
    "epochs": ("2pl", {"epochs": 3}),
    "partial credit": ("2pl", {"partial": True}),
    "all right, all wrong": ("2pl", {"flat": True}),
    "two models": ("2pl", {"n": 2}),
    "many items": ("2pl", {"n": 8, "m": 1500}),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_numpy_and_torch_give_the_same_numbers(design):
    """Small data are fitted with NumPy; a device that is named asks for torch."""
    kind, how = DESIGNS[design]
    rng = np.random.default_rng(3)
    n, m, chance = how.get("n", 9), how.get("m", 70), how.get("guessing", 0.0)
    slope = np.exp(0.3 * rng.normal(size=m)) * np.where(
        np.arange(m) < 3 * how.get("signed", 0), -1, 1
    )
    p = special.expit(slope * (rng.normal(size=(n, 1)) - rng.normal(size=m)))
    p = (chance + (1 - chance) * p)[:, :, None]
    scores = (rng.random((n, m, how.get("epochs", 1))) < p) * 1.0
    if "partial" in how:
        scores = np.clip(p + 0.2 * rng.normal(size=p.shape), 0, 1)
    if "flat" in how:
        scores[0], scores[1], scores[:, 0] = 1, 0, 1
    scores[rng.random((n, m)) < how.get("missing", 0)] = np.nan
    options = MmlItemsOptions(signed="signed" in how, estimate_guessing="estimate_guessing" in how)
    light, usual = (
        fit_irt(ResponseMatrix.from_array(scores), kind, "mml-items", guessing=chance,
                options=options, device=device)
        for device in ("auto", "cpu")
    )  # fmt: skip

    if kind == "rasch":
        assert np.isnan(light.discrimination_std_error).all()
        assert not light.item_covariance[:, 0].any()
    assert light.diagnostics["iterations"] == usual.diagnostics["iterations"]
    for name in ("ability", "ability_covariance", "discrimination", "discrimination_std_error",
                 "difficulty", "difficulty_std_error", "item_covariance", "predicted"):  # fmt: skip
        np.testing.assert_allclose(
            getattr(light, name), getattr(usual, name), rtol=1e-6, atol=1e-7, err_msg=name
        )
    scales = [fit.hyperparameters.pop("scale") for fit in (light, usual)]
    assert {k: v for k, v in scales[0].items() if k in ("slope", "intercept")} == pytest.approx(
        {k: v for k, v in scales[1].items() if k in ("slope", "intercept")}, abs=1e-8
    )
    assert light.hyperparameters == pytest.approx(usual.hyperparameters, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_difficulties_of_signed_items_are_ratios_and_others_posterior_means(kind):
    """With errors by the delta method; `item_means` gives the same from a search."""
    _, data = simulated(5, 30, 2, epochs=3)
    fit = items_integrated(data, kind)
    a, d, b = (x.numpy() for x in (fit.discrimination, fit.intercept, fit.difficulty))
    start = estimators_items_integrated.start_of(data, fit, kind)
    slope, place = estimators_items_integrated.item_means(data, start.state, start.grid, 1.0)

    np.testing.assert_allclose(slope, a, atol=2e-3)
    np.testing.assert_allclose(place, b, atol=5e-3)
    if kind == "2pl-signed":
        np.testing.assert_allclose(b, -d / a, rtol=1e-9)
        by = np.stack([d / a**2, -1 / a], axis=1)
        variance = np.einsum("mi,mij,mj->m", by, fit.item_covariance.numpy(), by)
        np.testing.assert_allclose(fit.difficulty_std_error, np.sqrt(variance), rtol=1e-6)
    elif kind == "2pl":
        # The mean of a ratio is not the ratio of means.
        assert np.abs(b + d / a).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_points_are_placed_anew_where_the_population_has_another_shape(kind):
    """Moved by more than its spread, or wider by a twentieth; turned either way."""
    size = 2 if kind == "rasch" else 5

    def differ(*changes):
        values = torch.zeros(5, dtype=torch.float64)
        for at, by in changes:
            values[at] += by
        both = (Population(kind, x[:size]) for x in (values, torch.zeros(5, dtype=torch.float64)))
        return estimators_items_integrated._differ(*both)

    for sign in (1, -1):
        assert differ((0, 1.01 * sign))
        assert not differ((0, 0.99 * sign))
        assert differ((1, 0.051 * sign))
        assert not differ((1, 0.049 * sign))
        if kind != "rasch":
            assert differ((4, 0.051 * sign))
            assert not differ((4, 0.049 * sign))
            assert differ((3, 0.21 * sign))
            assert not differ((3, 0.19 * sign))
            assert not differ((2, 9.0 * sign))


@pytest.mark.parametrize(
    ("hyper", "node_error", "word"),
    [
        ([0.0, 0.0, 0.0, 0.1, -1.0], 0.0, ""),
        ([15.0, 0.0, 0.0, 0.1, -1.0], 0.0, "mean of difficulties"),
        ([-15.0, 0.0, 0.0, 0.1, -1.0], 0.0, "mean of difficulties"),
        ([0.0, np.log(12.0), 0.0, 0.1, -1.0], 0.0, "spread of difficulties"),
        ([0.0, 0.0, 0.0, 0.1, np.log(1.5)], 0.0, "spread of discriminations"),
        ([0.0, 0.0, 0.0, 0.1, np.log(0.02)], 0.0, ""),
        ([0.0, 0.0, 0.0, 0.1, -1.0], 9e-4, ""),
        ([0.0, 0.0, 0.0, 0.1, -1.0], -2e-3, "more points"),
    ],
)
def test_the_reason_names_what_is_at_its_bound(hyper: list[float], node_error: float, word: str):
    """Discriminations that are all alike are no reason: that is what a Rasch model says."""
    population = Population("2pl", torch.tensor(hyper, dtype=torch.float64))
    counts = Counts(torch.eye(3).double(), torch.ones(3, 3).double())
    ability = torch.tensor([-1.0, 0.0, 1.0]).double()
    grid = points(population, ability, torch.ones(3).double())
    state = estimators_items_integrated.evaluate(counts, ability, population, grid)
    maximum = estimators_items_integrated._Maximum(state, grid, 3, converged=True)

    found = estimators_items_integrated._reason(maximum, None, node_error, 3)
    assert (word in found) if word else found == ""


def test_a_2pl_may_lie_a_little_below_a_rasch_model():
    """By what its priors take away; and is degenerate only where difficulties are all alike."""
    _, data = simulated(4, 30, 1)

    def said(below, spread=1.0, other=1.0):
        two, one = (
            estimators_items_integrated._newton_search(
                data, (torch.zeros(4).double(), Population(kind, torch.tensor(values).double())), 0
            )._replace(converged=True)
            for kind, values in (
                ("2pl", [0.0, np.log(spread), 0.0, 0.0, -1.0]),
                ("rasch", [0.0, np.log(other)]),
            )
        )
        two = two._replace(state=two.state._replace(log_likelihood=torch.tensor(-below)))
        one = one._replace(state=one.state._replace(log_likelihood=torch.tensor(0.0)))
        return estimators_items_integrated._reason(two, one, 0.0, 30)

    assert said(2.0) == said(-9.0) == said(0.0, 0.051, 0.9) == said(0.0, 0.04, 0.19) == ""
    assert "is 2.5 below that of a Rasch model" in said(2.5)
    assert "difficulties are all alike (sd 0.049; 0.21 in a Rasch" in said(0.0, 0.049, 0.21)


def test_large_data_of_many_models_are_searched_in_two_stages(monkeypatch):
    for name in ("_newton_search", "_two_stage_search"):
        monkeypatch.setattr(estimators_items_integrated, name, lambda *_, name=name: name)

    def search(n, m):
        return estimators_items_integrated._search(counts(np.zeros((n, m))), (), 9)

    assert search(16, 2048) == search(11, 2979) == "_two_stage_search"
    assert search(16, 2047) == search(10, 4000) == "_newton_search"
