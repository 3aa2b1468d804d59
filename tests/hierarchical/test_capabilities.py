"""Sparse codes against definitions, other optimisers, planted capabilities, and noise."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import optimize, special

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.hierarchical import capabilities
from evalstats_plugin.hierarchical.capabilities import (
    PENALTIES,
    compare_held_out,
    cosines,
    fit_capabilities,
    held_out_losses,
    matched,
    stability,
)
from evalstats_plugin.hierarchical.engines.sparse_codes import (
    balanced,
    fit_sparse_codes,
    standardised,
    start,
)
from evalstats_plugin.irt.estimators.factor import INTERCEPT_RIDGE
from evalstats_plugin.irt.model.data import counts_of

FIGURES = Path(__file__).parents[2] / "fixtures" / "validation" / "capabilities.json"


def answers(n=40, m=240, n_features=3, *, seed=0, planted=True, epochs=1):
    """Items ask for one of F capabilities, some or, where nothing is planted, all for none."""
    r = np.random.default_rng(seed)
    capability, code = 2.0 * r.normal(size=(n, n_features)), np.zeros((m, n_features + 1))
    if planted:
        code[np.arange(m), r.integers(0, n_features + 1, m)] = r.gamma(4, 0.25, m)
    code = code[:, :n_features]
    logit = 0.8 * r.normal(size=(n, 1)) + r.normal(size=m) + capability @ code.T
    scores = r.random((n, m, epochs)) < special.expit(logit)[:, :, None]
    return scores * 1.0, capability, code


@pytest.fixture(scope="module")
def data():
    scores, capability, code = answers()
    return ResponseMatrix.from_array(scores), capability, code


@pytest.fixture(scope="module")
def fit(data):
    return fit_capabilities(data[0], 3, penalty=4.0, device="cpu")


def negative(parameters, right, trials, penalty, n_features):
    """Minus the objective and its gradient by definition, in NumPy."""
    n, m = right.shape
    w, c, s, d = np.split(
        parameters, np.cumsum([n * n_features, n, m * n_features])
    )  # fmt: skip
    w, s = w.reshape(n, -1), s.reshape(m, -1)
    logit = c[:, None] + d + w @ s.T
    left, off = right - trials * special.expit(logit), d - d.mean()
    value = (right * logit - trials * np.logaddexp(0, logit)).sum() - penalty * s.sum()
    value -= ((w**2).sum() + INTERCEPT_RIDGE * ((c**2).sum() + (off**2).sum())) / 2
    gradient = (left @ s - w, left.sum(1) - INTERCEPT_RIDGE * c, left.T @ w - penalty,
                left.sum(0) - INTERCEPT_RIDGE * off)  # fmt: skip
    return -value, -np.concatenate([g.ravel() for g in gradient])


def test_the_search_ends_where_a_bounded_quasi_newton_method_finds_no_better():
    """L-BFGS-B, started there, hardly moves; started elsewhere nearby, it comes back."""
    scores, _, _ = answers(10, 24, 2, epochs=2)
    scores[:, :, 1][np.random.default_rng(1).random((10, 24)) < 0.3] = np.nan
    counts = counts_of(ResponseMatrix.from_array(scores), device="cpu")
    found = fit_sparse_codes(counts, start(counts, 2), 1.5, tolerance=1e-9, max_steps=2000)
    at = np.concatenate([x.numpy().ravel() for x in found.codes])
    bounds = [(None, None)] * (10 * 3) + [(0, None)] * 48 + [(None, None)] * 24
    known = (counts.right.numpy(), counts.trials.numpy(), 1.5, 2)
    value = negative(at, *known)[0]
    options = {"maxiter": 5000, "maxfun": 10**5, "ftol": 1e-15, "gtol": 1e-9}
    again = optimize.minimize(
        negative, at, known, "L-BFGS-B", jac=True, bounds=bounds, options=options
    )
    wrong = negative(at, *known[:2], 3.0, 2)[0]

    assert found.converged
    assert -found.objective == pytest.approx(value, abs=1e-8)
    assert value - again.fun < 1e-4
    # With another penalty the same point is not where it ends.
    away = optimize.minimize(
        negative, at, (*known[:2], 3.0, 2), "L-BFGS-B", jac=True, bounds=bounds,
        options={"maxiter": 50},
    )  # fmt: skip
    assert wrong - away.fun > 0.5


def test_balancing_changes_penalties_only_and_to_their_least(data):
    counts = counts_of(data[0], device="cpu")
    codes = start(counts, 3)
    codes = codes._replace(code=codes.code * torch.tensor([3.0, 0.1, 1.0]))
    best = balanced(codes, 4.0)

    torch.testing.assert_close(best.logit(), codes.logit())
    for factor in (0.99, 1.01):
        away = best._replace(code=best.code * factor, capability=best.capability / factor)
        assert away.objective(counts, 4.0) < best.objective(counts, 4.0)


def test_standardising_keeps_predictions_and_puts_unused_features_last():
    r = np.random.default_rng(0)
    code = torch.from_numpy(r.gamma(1, 1, (30, 3)) * [0.1, 0, 1])
    codes = start(counts_of(ResponseMatrix.from_array(answers(10, 30)[0]), device="cpu"), 3)
    codes = codes._replace(code=code, capability=codes.capability + 2.0)
    found = standardised(codes)

    torch.testing.assert_close(found.logit(), codes.logit())
    assert (found.code > 0).all(0).tolist() == [True, True, False]
    assert (found.code.square().sum(0).diff() <= 0).all()
    torch.testing.assert_close(found.capability.mean(0), torch.zeros(3).double())
    torch.testing.assert_close(
        found.capability.square().mean(0), torch.tensor([1.0, 1, 0]).double()
    )
    assert float(found.performance.mean()) == pytest.approx(0, abs=1e-12)


def test_a_fit_is_exported(fit):
    exported = json.loads(json.dumps(fit.to_dict()))

    assert exported["penalty"] == 4.0
    assert len(exported["items"]) == 240
    assert exported["models"][3]["feature_2"] == fit.capability[3, 1]
    np.testing.assert_array_equal(fit.to_frame()["feature_1"], fit.code[:, 0])
    with pytest.raises(SelectionError, match="modles"):
        fit.to_frame("modles")


def test_planted_capabilities_are_found_again(data, fit):
    _, capability, code = data
    place, cosine = matched(fit.capability, capability)
    mine = fit.code[:, place] > 0.25

    assert cosine.min() > 0.9  # with their sign
    assert 2 * (mine & (code > 0)).sum() / (mine.sum() + (code > 0).sum()) > 0.8
    assert (np.diff(fit.use) <= 0).all()
    found = fit.predict()
    assert found.shape == (40, 240)
    assert 0 < found.min() < found.max() < 1


def test_stability_separates_features_from_noise(data, fit):
    """Answers without capabilities: a penalty empties codes; a weak one leaves unstable ones."""
    matrix = data[0]
    noise = ResponseMatrix.from_array(answers(m=60, planted=False)[0])
    empty = fit_capabilities(noise, 3, penalty=13.0, rng=0, device="cpu")
    forced = fit_capabilities(noise, 3, penalty=4.0, rng=0, device="cpu")
    found, none, chance = (
        stability(made, of, rng=1, device="cpu")
        for made, of in ((fit, matrix), (empty, noise), (forced, noise))
    )

    assert found.halves.min() > 0.85
    assert found.chance.max() < 0.45
    assert empty.empty == (1, 2, 3)
    assert "0 of 3 capabilities are used" in empty.notes[-1]
    assert np.isnan(none.halves).all()
    assert (chance.halves < chance.chance).all()


def test_a_penalty_is_chosen_by_held_out_answers(monkeypatch):
    """The strongest leaves nothing to predict with, the weakest fits noise: neither is chosen."""
    # One fold of five suffices then.
    monkeypatch.setattr(capabilities, "_HELD_OUT_CELLS", 900)
    counts = counts_of(ResponseMatrix.from_array(answers(m=120)[0]), device="cpu")
    losses = held_out_losses(counts, 3, PENALTIES, np.random.default_rng(0))
    best = int(np.argmin(losses))

    assert losses[:1] == held_out_losses(counts, 3, PENALTIES[:1], np.random.default_rng(0))
    assert 0 < best < len(PENALTIES) - 1
    assert len(losses) in (best + 3, len(PENALTIES))
    assert losses[0] > losses[best] + 0.01


@pytest.mark.validation
def test_sparse_codes_predict_better_than_one_ability():
    matrix = ResponseMatrix.from_array(answers(40, 250, 2)[0])
    plain, sparse = compare_held_out(matrix, 2, rng=0)

    assert plain.n_cells == sparse.n_cells == 2000
    assert sparse.auc > plain.auc + 0.03
    assert sparse.gain == pytest.approx(plain.log_loss - sparse.log_loss)


def test_missing_cells_and_epochs_are_counts():
    """A cell with a right and a wrong answer is half a success, with the weight of two answers."""
    scores, _, _ = answers(12, 40, 2, epochs=2)
    scores[0, :20] = np.nan
    both = fit_capabilities(ResponseMatrix.from_array(scores), 2, penalty=3.0, device="cpu")
    swapped = fit_capabilities(
        ResponseMatrix.from_array(scores[:, :, ::-1]), 2, penalty=3.0, device="cpu"
    )
    single = fit_capabilities(
        ResponseMatrix.from_array(scores.mean(axis=2)), 2, penalty=3.0, device="cpu"
    )

    assert np.isfinite(both.predict()).all()
    np.testing.assert_allclose(swapped.predict(), both.predict(), atol=1e-6)
    assert np.abs(single.predict() - both.predict()).max() > 0.02


def test_matched_finds_the_best_of_all_assignments():
    r = np.random.default_rng(0)
    found, truth = r.normal(size=(20, 4)), r.normal(size=(20, 3))
    table = cosines(found, truth)
    every = [
        sum(table[p, k] for k, p in enumerate(places))
        for places in np.ndindex(4, 4, 4) if len(set(places)) == 3
    ]  # fmt: skip
    place, cosine = matched(found, truth)

    assert cosine.sum() == pytest.approx(max(every))
    np.testing.assert_allclose(
        cosine, [np.corrcoef(found[:, p], truth[:, k])[0, 1] for k, p in enumerate(place)]
    )


@pytest.mark.parametrize(
    ("error", "message", "asked"),
    [
        (DesignError, "penalty -1 is not above 0", {"penalty": -1}),
        (DesignError, "cannot tell 40 dimensions apart", {"n_features": 40}),
    ],
)
def test_options_out_of_range_are_refused(data, error, message, asked):
    with pytest.raises(error, match=message):
        fit_capabilities(data[0], **{"n_features": 2, **asked}, device="cpu")


def test_stability_is_of_the_matrix_that_was_fitted(fit):
    other = ResponseMatrix.from_array(answers(40, 30)[0])
    with pytest.raises(DesignError, match="240 items, and the matrix 40 and 30"):
        stability(fit, other)
    few = ResponseMatrix.from_array(answers(20, 5)[0])
    with pytest.raises(DesignError, match="too few for 3 features"):
        stability(fit_capabilities(few, 3, penalty=1.0, device="cpu"), few)


def test_the_validation_study_found_what_was_planted():
    """Of `tests/validation/test_capabilities.py`."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    by_size = {}
    for row in figures["held_out"]:
        by_size.setdefault((row["models"], row["seed"]), {})[row["item_model"]] = row["auc"]
    for (models, _), auc in by_size.items():
        least = 0.01 if models == 60 else 0.007
        assert auc["sparse"] >= auc["dense"] + least
        assert auc["dense"] > auc["rasch"] + 0.03
    sparse = [row for row in figures["recovered"] if row["fit"][:5] == "l1, 6"]
    assert len(sparse) == len(by_size)
    assert min(row["mean_cosine"] for row in sparse) >= 0.93
    assert min(row["least_cosine"] for row in sparse) >= 0.9
    assert all(row["least_of_halves"] > row["chance"] for row in sparse)
    dense = [row["mean_cosine"] for row in figures["recovered"] if row["fit"] == "dense"]
    assert max(dense) < 0.8
