"""The zero of the scale: what it is, that models do not move it, and its error."""

import numpy as np
import pytest
from scipy import optimize, special, stats

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt import (
    McmcOptions,
    MmlItemsOptions,
    ViOptions,
    abilities,
    bootstrap,
    bootstrap_abilities,
    fit_irt,
    reliability,
    simulate_responses,
    uncertainty,
)
from evalstats_plugin.irt.model.scale import Curves, _Lever, link_through_items, zero_of


def answers(n, m=120, best=4.5, seed=3):
    """Models in the order of their ability, the best far above."""
    rng = np.random.default_rng(seed)
    theta, b = np.r_[np.linspace(-1.5, 1.5, n - 1), best], rng.normal(size=m)
    return (rng.random((n, m)) < special.expit(theta[:, None] - b)).astype(float), b


def fitted(scores, *chosen, **options):
    return fit_irt(ResponseMatrix.from_array(scores), *chosen, **options)


@pytest.mark.parametrize("item_model", ["rasch", "2pl"])
def test_one_more_right_answer_of_the_best_model_moves_no_other(item_model):
    """From 119 to 120 of 120, where the mean of the models moves by a fifth of the model's way."""
    scores, b = answers(6)
    scores[5] = 1
    perfect = fitted(scores, item_model)
    scores[5, b.argmax()] = 0
    near = fitted(scores, item_model)

    assert np.abs(perfect.ability - near.ability)[:5].max() < 0.05
    assert np.abs(perfect.difficulty - near.difficulty).mean() < 0.05


@pytest.mark.parametrize(("n", "most"), [(6, 0.12), (20, 0.12), (100, 0.08)])
def test_a_further_model_moves_the_others_little(n, most):
    scores, _ = answers(n + 1, best=3.0, seed=n)
    before, after = fitted(scores[:n]), fitted(scores)

    assert np.abs(after.ability[:n] - before.ability).max() < most


def test_zero_is_where_the_average_item_is_right_halfway():
    """Also where slopes have either sign and answers are guessed or missed."""
    rng = np.random.default_rng(0)
    a, d = rng.normal(1, 0.8, 50), rng.normal(0, 2, 50)
    c, u = rng.uniform(0, 0.3, 50), rng.uniform(0.9, 1, 50)
    at, unit = zero_of(Curves(a, d, c, u))

    assert (a < 0).any()
    assert zero_of(Curves(abs(a), d, c, u)).unit == pytest.approx(stats.gmean(abs(a)))
    right = c + (u - c) * special.expit(a * at + d)
    assert right.mean() == pytest.approx(((c + u) / 2).mean(), abs=1e-9)
    assert unit == pytest.approx(np.sqrt((a**2).mean()))
    again = zero_of(Curves(a / 2, d - a * 0.7, c, u))
    assert again == pytest.approx((2 * (at + 0.7), unit / 2))


def test_a_fit_has_its_zero_and_unit():
    scores, _ = answers(8, seed=1)
    for options in ({}, {"guessing": 0.2}, {"options": MmlItemsOptions(signed=True)}):
        fit = fitted(scores, **options)
        at, unit = zero_of(Curves.of(fit))
        # Discriminations shown are posterior means; the unit is the mean of their logarithms.
        own = fit.item_covariance[:, 0, 0] / fit.discrimination**2
        unit *= np.exp(-np.log1p(own).mean() / 2)

        assert own.mean() > 0.01
        assert (at, unit) == pytest.approx((0, 1), abs=1e-9)
        assert "0 is where the average item is answered right halfway" == fit.identification


@pytest.mark.parametrize(
    ("estimator", "item_model"),
    [("mml", "2pl"), ("jml", "rasch"), ("mcmc", "2pl"), ("vi", "2pl"), ("map", "2pl")],
)
def test_other_estimators_have_the_same_scale(estimator, item_model):
    size = {"rng": 1, "n_models": 20, "n_items": 60} if estimator == "mcmc" else {
        "rng": 2, "n_models": 40, "n_items": 80}  # fmt: skip
    few = {
        "mcmc": McmcOptions(chains=2, draws=60, warm_up=30),
        "vi": ViOptions(max_steps=100),
    }.get(estimator)
    matrix, truth = simulate_responses(**size, item_model=item_model)
    fit = fit_irt(matrix, item_model, estimator, rng=0, options=few)
    own = fit_irt(matrix, item_model, estimator, rng=0, options=few, zero="models")

    assert zero_of(Curves.of(fit)) == pytest.approx((0, 1), abs=1e-9)
    np.testing.assert_allclose(fit.predict(plug_in=True), own.predict(plug_in=True), atol=1e-9)
    assert np.corrcoef(fit.ability, truth.ability)[0, 1] > 0.95
    assert fit.ability_distribution[1] == pytest.approx(fit.ability.std(), rel=0.25)
    assert reliability(fit).reliability == pytest.approx(reliability(own).reliability, abs=0.01)


def test_differences_do_not_depend_on_the_zero():
    """In a Rasch model exactly; a named model has the ability 0, which has no error."""
    scores, _ = answers(6, best=2.0)
    fits = [fitted(scores, "rasch", zero=zero) for zero in ("items", "models", "model_2")]
    apart = [
        np.add.outer(c.diagonal(), c.diagonal()) - 2 * c
        for c in (fit.ability_covariance for fit in fits)
    ]

    assert fits[2].ability[2] == fits[2].ability_std_error[2] == 0
    assert fits[1].ability.sum() == pytest.approx(0, abs=1e-9)
    for fit, variance in zip(fits, apart, strict=True):
        np.testing.assert_allclose(np.diff(fit.ability), np.diff(fits[0].ability), atol=1e-9)
        np.testing.assert_allclose(variance, apart[0], atol=1e-9)


def test_a_zero_that_is_no_model_is_refused():
    with pytest.raises(SelectionError, match="no zero is called 'item'"):
        fitted(answers(4)[0], zero="item")


def test_the_zero_moves_with_abilities_as_the_items_do():
    """Difficulties given the abilities solve their score equations; so does the zero."""
    scores, _ = answers(12, best=2.0, seed=5)
    fit = fitted(scores, "rasch", "jml", zero="models")
    kept = (scores.mean(axis=0) > 0) & (scores.mean(axis=0) < 1)
    part = fitted(scores[:, kept], "rasch", "jml", zero="models")
    assert fit.ability == pytest.approx(part.ability, abs=1e-6)

    def zero(theta):
        b = [
            optimize.brentq(lambda x, k=k: special.expit(theta - x).sum() - k, -20, 20)
            for k in scores[:, kept].sum(axis=0)
        ]
        return zero_of(Curves.of_points(np.ones(len(b)), -np.array(b))).at

    step = 1e-4 * np.eye(12)
    moves = [(zero(part.ability + x) - zero(part.ability - x)) / 2e-4 for x in step]

    lever = _Lever.of(part, np.ones_like(scores[:, kept]))
    np.testing.assert_allclose(lever.zero, moves, atol=2e-3)


def test_errors_allow_for_the_items():
    """Items and answers drawn again: the models' mean varies as much as their covariance says."""
    rng = np.random.default_rng(1)
    theta = np.linspace(-1.5, 1.5, 8)
    away, own = [], []
    for _ in range(100):
        b = rng.normal(size=30)
        at = zero_of(Curves.of_points(np.ones(30), -b)).at
        fit = fitted(
            (rng.random((8, 30)) < special.expit(theta[:, None] - b)).astype(float), "rasch"
        )
        if not fit.endless.any():
            away.append((fit.ability - (theta - at)).mean())
            own.append(fit.ability_covariance.mean())

    assert len(own) > 80
    assert np.sqrt(np.mean(np.square(away)) / np.mean(own)) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("over", ["items", "parametric"])
def test_bootstrap_intervals_hold_their_estimates(over):
    scores, b = answers(6)
    scores[5], scores[5, b.argmax()] = 1, 0
    matrix = ResponseMatrix.from_array(scores)
    fit = fit_irt(matrix, "rasch")
    for row in bootstrap_abilities(fit, matrix, over=over, n_resamples=40, rng=0):
        assert row.low < row.estimate < row.high


def test_every_recipe_is_on_the_scale_of_the_fit(monkeypatch):
    """With a model all right, which refits and posteriors count as any other."""
    short = McmcOptions(draws=80, warm_up=40)
    monkeypatch.setattr(bootstrap, "McmcOptions", lambda **_: short)
    scores, _ = answers(6)
    scores[5] = 1
    matrix = ResponseMatrix.from_array(scores)
    fit = fit_irt(matrix, "rasch")
    rows = uncertainty(fit, matrix, ["items", "parametric", "mcmc", "sandwich"], n_resamples=20,
                       rng=0)  # fmt: skip
    for row in rows:
        own = fit.models.index(row.model)
        assert row.low is None or row.low < fit.ability[own]
        assert row.high is None or row.high > fit.ability[own]
        if own < 5:
            assert row.estimate == pytest.approx(fit.ability[own], abs=0.15)


@pytest.mark.parametrize("signed", [False, True])
def test_the_population_of_items_is_on_the_scale_too(signed):
    """Its moments are those of the items that it describes."""
    scores, _ = answers(200, 300, best=2.0, seed=4)
    options = MmlItemsOptions(signed=signed)
    fit, own = (fitted(scores, "2pl", "mml-items", zero=z, options=options)
                for z in ("items", "model_150"))  # fmt: skip
    for one in (fit, own):
        known = one.hyperparameters
        values = one.intercept if signed else one.difficulty
        first = "intercept" if signed else "difficulty"
        assert known[f"{first}_mean"] == pytest.approx(values.mean(), abs=0.05)
        assert known[f"{first}_sd"] == pytest.approx(values.std(), rel=0.1)
    if signed:
        assert own.hyperparameters["discrimination_mean"] == pytest.approx(
            own.discrimination.mean(), rel=0.02
        )


def test_a_refit_is_linked_through_the_items_drawn():
    """Stretched and shifted, it comes back, however often each was drawn."""
    rng, drawn = np.random.default_rng(0), np.array([0, 0, 0, 3, 5, 8])
    a, d = np.exp(rng.normal(0, 0.3, 9)), rng.normal(size=9)
    known = Curves.of_points(a, d)
    refit = Curves.of_points(a * 2, d - a * 0.6)

    for at in (np.arange(9), drawn):
        assert link_through_items(refit.at(at), known.at(at)) == pytest.approx((2, -0.6))


def test_answers_of_either_library_give_one_scale():
    """NumPy and torch: the same fit, zero and limits."""
    scores, _ = answers(6)
    scores[5] = 1
    light, torch = fitted(scores), fitted(scores, device="cpu")

    np.testing.assert_allclose(light.ability, torch.ability, atol=1e-9)
    np.testing.assert_allclose(light.ability_covariance, torch.ability_covariance, atol=1e-9)
    np.testing.assert_allclose(light.ability_quantiles, torch.ability_quantiles, atol=1e-9)


def test_a_zero_is_said_in_the_table_of_abilities():
    scores, _ = answers(5, best=2.0)
    matrix = ResponseMatrix.from_array(scores)
    rows = abilities(fit_irt(matrix), matrix)

    assert rows[0].scale == "0 is where the average item is answered right halfway"
