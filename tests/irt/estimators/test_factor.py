"""Factor models against other optimisers, definitions, and what was planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, special

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.factor import (
    INTERCEPT_RIDGE,
    MEAN_RIDGE,
    cross_validate,
    fit_factor,
    fold_masks,
    held_out_loss,
)
from evalstats_plugin.irt.estimators.optimise import FirstOrder, ascend, posterior_mode
from evalstats_plugin.irt.model.curves import promax, varimax
from evalstats_plugin.irt.model.data import Counts


def varimax_criterion(loading):
    """Sum over the dimensions of the variance of the squared loadings."""
    return float((loading**2).var(dim=0, correction=0).sum())


def counts(right, trials):
    return Counts(torch.from_numpy(right * 1.0), torch.from_numpy(trials * 1.0))


def planted(n, m, k, rng, *, epochs=1, missing=0.2):
    """Answers of n models whose k abilities and loadings on one or two features are known."""
    ability, loading = rng.standard_normal((n, k)), np.zeros((m, k))
    for share in (1.0, 0.3):
        chosen = np.flatnonzero(rng.random(m) < share)
        loading[chosen, rng.integers(0, k, len(chosen))] = rng.uniform(0.8, 2, len(chosen))
    p = special.expit(ability @ loading.T + rng.standard_normal(m))
    trials = rng.integers(1, epochs + 1, (n, m)) * (rng.random((n, m)) > missing)
    return counts(rng.binomial(trials, p), trials), loading, p


def penalised(parameters, data, k, ridge):
    """The definition, in NumPy, one item at a time."""
    right, trials = data.right.numpy(), data.trials.numpy()
    n, m = right.shape
    u, v, d = np.split(parameters, [n * k, (n + m) * k])
    u, v = u.reshape(n, k), v.reshape(m, k)
    total = 0.0
    for j in range(m):
        logit = u @ v[j] + d[j]
        total += right[:, j] @ logit - trials[:, j] @ np.logaddexp(0, logit)
    middle = ridge * v.sum(0) / (ridge * m + MEAN_RIDGE)
    total -= 0.5 * (ridge * ((v - middle) ** 2).sum() + MEAN_RIDGE * (middle**2).sum())
    return -total + 0.5 * (u**2).sum() + 0.5 * INTERCEPT_RIDGE * ((d - d.mean()) ** 2).sum()


def matched(found, truth):
    """Correlations of columns, each with its own, by the best assignment."""
    k = truth.shape[1]
    size = np.abs(np.corrcoef(found.T, truth.T)[:k, k:])
    return size[optimize.linear_sum_assignment(-size)]


@pytest.mark.parametrize("k", [1, 2])
def test_the_optimum_is_that_of_scipy_on_the_definition(k):
    """SciPy's BFGS with numerical gradients on the formula; epochs and missing cells in it."""
    data, *_ = planted(9, 11, k, np.random.default_rng(0), epochs=3)
    found = fit_factor(data, k, 2.0, tolerance=1e-8)
    start = 0.3 * np.random.default_rng(1).standard_normal((9 + 11) * k + 11)
    peer = optimize.minimize(penalised, start, args=(data, k, 2.0), method="BFGS")
    u, v, d = np.split(peer.x, [9 * k, (9 + 11) * k])
    expected = special.expit(u.reshape(9, k) @ v.reshape(11, k).T + d)

    assert found.converged
    np.testing.assert_allclose(found.probability().numpy(), expected, atol=2e-5)


def test_abilities_are_standardised_and_dimensions_ordered_and_signed():
    """Mean 0, covariance I, main axes of the logits, and loadings with a positive sum."""
    data, *_ = planted(40, 60, 3, np.random.default_rng(2))
    found = fit_factor(data, 3, 3.0)
    ability, loading = found.ability.numpy(), found.loading.numpy()
    cross = loading.T @ loading

    np.testing.assert_allclose(ability.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(np.cov(ability.T, bias=True), np.eye(3), atol=1e-10)
    np.testing.assert_allclose(cross, np.diag(np.diag(cross)), atol=1e-8)
    assert (np.diff(np.diag(cross)) < 0).all()
    assert (loading.sum(0) > 0).all()


def test_identical_data_give_identical_numbers_in_any_order_of_models():
    """Bit for bit when repeated; to rounding when models and items are permuted."""
    data, *_ = planted(20, 30, 2, np.random.default_rng(3))
    first, again = (fit_factor(data, 2, 3.0, tolerance=1e-8).probability() for _ in range(2))
    rows, columns = torch.randperm(20), torch.randperm(30)
    turned = Counts(data.right[rows][:, columns], data.trials[rows][:, columns])

    assert torch.equal(first, again)
    torch.testing.assert_close(
        fit_factor(turned, 2, 3.0, tolerance=1e-8).probability(),
        first[rows][:, columns],
        atol=1e-6,
        rtol=0,
    )


def test_a_strong_ridge_gives_every_item_the_same_loading():
    """The Rasch model is the limit, which no ridge towards 0 would reach."""
    data, *_ = planted(30, 40, 1, np.random.default_rng(4))
    loading = fit_factor(data, 1, 300.0).loading.numpy()

    assert np.ptp(loading) < 0.01 * loading.mean()
    assert loading.mean() > 0.3


def test_cross_validation_is_that_of_fits_to_each_fold():
    """One batch of folds gives the held-out loss of five fits, each from its own start."""
    data, *_ = planted(30, 50, 2, np.random.default_rng(7))
    (choice,) = cross_validate(data, [2], [3.0], rng=np.random.default_rng(8))
    fold = fold_masks(data, 5, np.random.default_rng(8))
    total = 0.0
    for k in range(5):
        out = fold == k
        fit = fit_factor(Counts(data.right * ~out, data.trials * ~out), 2, 3.0)
        share = float((data.trials * out).sum() / data.trials.sum())
        total += share * held_out_loss(data, fit.probability(), out)

    assert total == pytest.approx(choice.log_loss, abs=5e-4)
    assert set(np.unique(fold)) == {-1, 0, 1, 2, 3, 4}
    assert torch.equal(fold == -1, data.trials == 0)


def test_choosing_needs_a_generator():
    """Folds are drawn, so that the caller must say from what."""
    with pytest.raises(ValueError, match="rng"):
        fit_factor(planted(10, 20, 1, np.random.default_rng(0))[0], "auto")


@pytest.mark.parametrize("k", [0, 4, 5])
def test_more_dimensions_than_models_can_tell_are_refused(k):
    """Four models lie in three dimensions around their mean; and before anything is drawn."""
    data = counts(np.ones((4, 9)), np.ones((4, 9)))
    with pytest.raises(DesignError, match=f"cannot tell {k} dimensions apart: choose 1 to 3"):
        fit_factor(data, k)
    with pytest.raises(DesignError, match="1 models and 9 items cannot tell 1 dimensions"):
        fit_factor(data.of_models(torch.tensor([0])), "auto", rng=np.random.default_rng(0))


def test_new_models_on_frozen_items_are_at_the_mode_of_their_posterior():
    """The score equation: gradient of likelihood and prior is 0, and predictions use it."""
    data, *_ = planted(50, 80, 2, np.random.default_rng(9), epochs=2)
    fit = fit_factor(data, 2, 3.0)
    new, *_ = planted(7, 80, 2, np.random.default_rng(10))
    scored = fit.for_models(new)
    residual = new.right - new.trials * scored.probability()

    torch.testing.assert_close(residual @ fit.loading, scored.ability, atol=1e-8, rtol=0)


def test_new_items_among_frozen_models_come_back_as_they_were():
    """Items scored again on the same models get nearly the probabilities of the joint fit."""
    data, _, p = planted(200, 60, 2, np.random.default_rng(11), missing=0)
    fit = fit_factor(Counts(data.right[:, 10:], data.trials[:, 10:]), 2, 3.0)
    found = fit.for_items(Counts(data.right[:, :10], data.trials[:, :10])).probability().numpy()
    share = data.right[:, :10].numpy().mean(0)

    assert np.sqrt(np.mean((found - p[:, :10]) ** 2)) < 0.09
    assert np.sqrt(np.mean((share - p[:, :10]) ** 2)) > 0.15


def test_regressions_with_a_flat_prior_are_the_logistic_regressions_of_scipy():
    """One by one, by a general optimiser."""
    rng = np.random.default_rng(12)
    design = rng.standard_normal((60, 2))
    trials = rng.integers(0, 4, (3, 60))
    right = rng.binomial(trials, 0.4)
    prior = (torch.zeros(2).double(), 1e-9 * torch.eye(2).double())
    offset = torch.from_numpy(rng.standard_normal(60))
    found = posterior_mode(counts(right, trials), torch.from_numpy(design), offset, prior)
    for i in range(3):

        def loss(b, i=i):
            logit = offset.numpy() + design @ b
            return trials[i] @ np.logaddexp(0, logit) - right[i] @ logit

        np.testing.assert_allclose(
            found[i].numpy(), optimize.minimize(loss, np.zeros(2)).x, atol=1e-5
        )


def test_many_searches_at_once_each_find_their_own_maximum():
    """Quadratics of different scale, whose maxima are known, and Rosenbrock's valley."""
    scale = torch.tensor([[1.0, 100.0], [1e-3, 1.0], [50.0, 50.0]]).double()
    middle = torch.tensor([[3.0, -1.0], [5.0, 2.0], [0.0, 0.0]]).double()

    def bowls(x):
        return -(scale * (x - middle) ** 2).sum(1), -2 * scale * (x - middle)

    def valley(x):
        a, b = x[:, 0], x[:, 1]
        slope = torch.stack([400 * a * (b - a**2) + 2 * (1 - a), -200 * (b - a**2)], dim=1)
        return -100 * (b - a**2) ** 2 - (1 - a) ** 2, slope

    def searched(objective, start):
        search = FirstOrder("lbfgs")

        def climb(at):
            value, slope = objective(at)

            def onward():
                step = search.step(at, slope, slope.norm(dim=1, keepdim=True).clamp_min(1e-300))
                return step, (slope * step).sum(1)

            return value, onward

        return ascend(climb, start, tolerance=1e-18, max_steps=500)

    found = searched(bowls, torch.zeros(3, 2).double())
    bent = searched(valley, torch.tensor([[-1.2, 1.0]]).double())

    assert bool(found.converged.all())
    assert found.steps < 40
    assert bent.steps < 80
    torch.testing.assert_close(found.at, middle, atol=1e-7, rtol=0)
    torch.testing.assert_close(bent.at, torch.ones(1, 2).double(), atol=1e-7, rtol=0)


def test_each_size_begins_one_ridge_below_the_best_of_the_size_before():
    data, *_ = planted(40, 30, 2, np.random.default_rng(3))
    ridges = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
    choices = cross_validate(data, [1, 2], ridges, rng=np.random.default_rng(0))
    of_one = [choice for choice in choices if choice.n_dimensions == 1]
    best = int(np.argmin([choice.log_loss for choice in of_one]))

    assert ridges == [choice.ridge for choice in of_one]
    assert 2 <= best <= 4
    assert ridges[best - 1 :] == [c.ridge for c in choices if c.n_dimensions == 2]


def test_a_search_cut_short_says_that_it_has_not_converged():
    """Two steps are not enough, and the fit tells."""
    data, *_ = planted(20, 30, 2, np.random.default_rng(13))

    assert not fit_factor(data, 2, 3.0, max_steps=2).converged


def kaiser(loading):
    """Varimax as Kaiser (1958) wrote it: pairs of columns, each turned by its best angle."""
    rows = loading / np.linalg.norm(loading, axis=1, keepdims=True)
    n, k = rows.shape
    turn = np.eye(k)
    for _ in range(100):
        for p in range(k):
            for q in range(p + 1, k):
                x, y = (rows @ turn)[:, [p, q]].T
                u, v = x * x - y * y, 2 * x * y
                top = 2 * (u @ v - u.sum() * v.sum() / n)
                below = (u * u - v * v).sum() - (u.sum() ** 2 - v.sum() ** 2) / n
                angle = np.arctan2(top, below) / 4
                c, s = np.cos(angle), np.sin(angle)
                turn[:, [p, q]] = turn[:, [p, q]] @ np.array([[c, -s], [s, c]])
    return loading @ turn


def test_varimax_is_the_rotation_that_kaisers_own_procedure_finds():
    """Planar rotations in turn, to the same criterion; columns in any order and sign."""
    loading = np.random.default_rng(14).standard_normal((40, 4)) * [3, 2, 1.5, 1]
    loading[:10, 0] += 4
    found = varimax(torch.from_numpy(loading)).loading.numpy()
    expected = kaiser(loading)
    lengths = np.linalg.norm(loading, axis=1, keepdims=True)
    values = [varimax_criterion(torch.from_numpy(x / lengths)) for x in (found, expected)]

    assert values[0] == pytest.approx(values[1], rel=1e-6)
    np.testing.assert_allclose(matched(found, expected), 1, atol=1e-6)


def test_varimax_cannot_be_improved_by_a_small_turn():
    """Stationary on the orthogonal group, and a rotation."""
    loading = torch.from_numpy(np.random.default_rng(15).standard_normal((30, 3)))
    loading = loading / loading.norm(dim=1, keepdim=True)
    found = varimax(loading)
    best = varimax_criterion(found.loading)
    for p, q in ((0, 1), (0, 2), (1, 2)):
        for angle in (-1e-3, 1e-3):
            turn = torch.eye(3).double()
            turn[p, p] = turn[q, q] = np.cos(angle)
            turn[p, q], turn[q, p] = np.sin(angle), -np.sin(angle)
            assert varimax_criterion(found.loading @ turn) < best
    torch.testing.assert_close(found.turn.T @ found.turn, torch.eye(3).double())
    assert best > varimax_criterion(loading)


def test_promax_is_the_least_squares_fit_to_the_powered_varimax():
    """Its definition, solved by NumPy; abilities keep variance 1."""
    rng = np.random.default_rng(16)
    simple = np.kron(np.eye(3), np.ones((8, 1))) + 0.2 * rng.standard_normal((24, 3))
    loading = simple @ np.linalg.cholesky([[1, 0.5, 0.3], [0.5, 1, 0.4], [0.3, 0.4, 1]])
    found = promax(torch.from_numpy(loading))
    start = varimax(torch.from_numpy(loading)).loading.numpy()
    target = np.sign(start) * np.abs(start) ** 4
    oblique = np.linalg.inv(start.T @ start) @ start.T @ target
    expected = start @ oblique * np.sqrt(np.diag(np.linalg.inv(oblique.T @ oblique)))
    correlation = np.linalg.inv((found.turn.T @ found.turn).numpy())

    np.testing.assert_allclose(found.loading.numpy(), expected, atol=1e-10)
    np.testing.assert_allclose(np.diag(correlation), 1, atol=1e-10)
    assert (correlation[np.triu_indices(3, 1)] > 0.2).all()
