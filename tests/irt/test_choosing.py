"""Item models side by side: what is measured, and which is taken."""

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt import (
    CANDIDATES,
    choose_model,
    fit_irt,
    hold_out,
    m2,
    q3,
    simulate_responses,
)
from evalstats_plugin.irt.choosing import _largest_q3, _number_of_levels, _possible
from evalstats_plugin.report.abilities import CANDIDATES as TABLE
from evalstats_plugin.stats.clustered import cluster_moments


def drawn(n, m, seed=0, *, slopes=0.0, c=0.0, across=0.0):
    rng = np.random.default_rng(seed)
    a = np.exp(slopes * rng.normal(size=m))
    logit = a * (rng.normal(size=n)[:, None] - rng.normal(size=m))
    logit = logit + across * np.outer(rng.normal(size=n), np.arange(m) % 2)
    return ResponseMatrix.from_array(
        (rng.random((n, m)) < c + (1 - c) * special.expit(logit)) * 1.0
    )


def taken(found):
    return [row.item_model for row in found if row.chosen]


@pytest.mark.parametrize(
    ("how", "expected"),
    [({"slopes": 0.8}, "2pl"), ({"slopes": 0.2, "across": 3.0}, "factor-2"), ({}, "rasch")],
)
def test_what_the_answers_come_from_is_taken(how, expected):
    candidates = ["rasch", "2pl", "factor-2"][: 2 if expected == "2pl" else 3]
    found = choose_model(drawn(40, 60, **how), candidates, seeds=[0])

    assert [expected] == taken(found)
    assert found.sentence.startswith(f"Take {expected}:")
    assert TABLE.to_markdown(found, "").startswith(f"Take {expected}:")


def test_a_common_chance_is_taken_where_models_guess():
    """Items so hard that all but the best guess."""
    rng = np.random.default_rng(0)
    know = special.expit(1.5 * rng.normal(size=12)[:, None] - 2 * rng.normal(size=80))
    matrix = ResponseMatrix.from_array((rng.random((12, 80)) < 0.4 + 0.6 * know) * 1.0)

    assert ["common-c"] == taken(choose_model(matrix, ["rasch", "common-c"], seeds=[0]))


def test_numbers_are_those_of_the_fit_and_of_held_out_answers():
    matrix = drawn(12, 60, 3)
    rasch, two = choose_model(matrix, ["2pl", "rasch"], seeds=[4])
    fit = fit_irt(matrix, "2pl", "mml-items")
    (held,) = hold_out(matrix, item_model="2pl", seeds=[4])
    pairs = q3(fit, matrix)[np.triu_indices(60, 1)]

    assert (rasch.item_model, two.item_model) == ("rasch", "2pl")
    assert two.log_loss == pytest.approx(held.log_loss)
    assert two.log_likelihood == fit.diagnostics["log_likelihood"]
    assert two.n_parameters == 11 + 4
    assert two.aic == pytest.approx(30 - 2 * two.log_likelihood)
    assert two.bic == pytest.approx(15 * np.log(60) - 2 * two.log_likelihood)
    assert two.largest_q3 == pytest.approx(np.nanmax(pairs))
    assert min(rasch.worse_by, two.worse_by) == 0
    assert abs(rasch.log_loss - two.log_loss) == pytest.approx(max(rasch.worse_by, two.worse_by))


def test_many_models_are_the_sample_and_items_the_parameters():
    matrix = drawn(320, 12, 1)
    found = {row.item_model: row for row in choose_model(matrix, ["rasch", "2pl"], seeds=[0])}

    assert found["rasch"].estimator == "mml"
    assert found["rasch"].n_parameters == 13
    assert found["2pl"].n_parameters == 24
    change = found["2pl"].bic - found["2pl"].aic
    assert change == pytest.approx(24 * (np.log(320) - 2))


def test_one_item_has_no_residual_correlation():
    """It was said to be -1."""
    one = ResponseMatrix.from_array(np.array([[1.0], [0.0]] * 6))

    assert _largest_q3(fit_irt(one, "rasch"), one) is None


def test_errors_take_items_as_clusters():
    """Each item's answers twice as often tell no more."""
    rng = np.random.default_rng(0)
    total, count = rng.gamma(2, size=50), np.full(50, 4.0)
    alone = cluster_moments(total, count).cr1

    assert alone == pytest.approx(np.std(total / 4, ddof=1) / np.sqrt(50))
    assert cluster_moments(2 * total, 2 * count).cr1 == pytest.approx(alone)


def test_only_candidates_that_so_many_models_tell_apart_are_tried():
    assert _possible(5) == ["rasch", "2pl", "common-c"]
    assert "factor-3" in _possible(40)
    assert "3pl" not in _possible(40)
    assert "graded" not in _possible(400)
    assert "gpcm" not in _possible(5, ordered=True)
    assert list(CANDIDATES) == _possible(400, ordered=True)


def grades(n=30, m=8):
    """Grades 1, 2 and 3 of steps so far apart that expected scores rise in two flights."""
    rng = np.random.default_rng(1)
    ability, middle = np.linspace(-3, 3, n)[:, None, None], rng.normal(0, 0.3, m)[:, None]
    above = special.expit(6 * (ability - middle - [-2, 2]))
    return 1.0 + (rng.random((n, m, 1)) < above).sum(axis=2)


def test_ordered_scores_are_predicted_by_their_levels_too():
    matrix = ResponseMatrix.from_array(grades())
    found = choose_model(matrix, ["2pl", "graded"], seeds=[0])
    two, graded = found
    fit = fit_irt(matrix, "graded")

    assert ["graded"] == taken(found)
    assert two.worse_by > two.worse_by_std_error
    assert graded.log_likelihood == pytest.approx(fit.diagnostics["log_likelihood"])
    assert graded.n_parameters == 8 * 3
    assert graded.rmsea == pytest.approx(m2(fit, matrix).rmsea, abs=1e-6)
    pairs = np.corrcoef((matrix.scores[:, :, 0] - fit.predict()).T)[np.triu_indices(8, 1)]
    assert graded.largest_q3 == pytest.approx(pairs.max(), abs=1e-6)
    assert any("of one kind only" in note for note in found.notes)


def test_scores_of_many_levels_are_continuous():
    grade, rng = grades(30, 10), np.random.default_rng(0)

    assert _number_of_levels(ResponseMatrix.from_array(grade)) == 3
    assert _number_of_levels(ResponseMatrix.from_array(rng.random((30, 10)))) == 0


def test_grades_and_their_shares_are_predicted_alike():
    """So that candidates for scores in [0, 1] take part."""
    shares = ResponseMatrix.from_array((grades(15, 5) - 1) / 2)
    losses = [
        [row.log_loss for row in choose_model(matrix, ["rasch", "gpcm"], seeds=[0])]
        for matrix in (ResponseMatrix.from_array(grades(15, 5)), shares)
    ]

    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_wrong_names_are_refused():
    matrix = simulate_responses(rng=0, n_models=5, n_items=10)[0]
    with pytest.raises(SelectionError, match="no candidate is called '5pl'"):
        choose_model(matrix, ["5pl"])
    with pytest.raises(SelectionError, match="no candidate is named"):
        choose_model(matrix, [])


def test_the_table_says_which_to_take():
    matrix = drawn(12, 60, 3)
    found = choose_model(matrix, ["rasch", "2pl"], seeds=[4])
    said = TABLE.to_markdown(found, "by hand")

    assert found.sentence in said
    assert "chosen" in said


def test_candidates_have_the_item_prior_that_a_fit_has():
    """With few items, too, which tell nothing of how items vary: another prior was estimated."""
    matrix = drawn(40, 9, slopes=0.4)
    for row in choose_model(matrix, ["rasch", "2pl"], seeds=[0]):
        fit = fit_irt(matrix, row.item_model)
        assert row.log_likelihood == fit.diagnostics["log_likelihood"]
        assert fit.diagnostics["prior"] == "weak"
