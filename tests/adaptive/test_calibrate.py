import numpy as np
import pytest
from scipy import special

from evalstats_plugin.adaptive.bank import left_out
from evalstats_plugin.adaptive.calibrate import adaptive_session, item_bank
from evalstats_plugin.adaptive.stopping import StdError
from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import FactorOptions, MmlItemsOptions

pytestmark = pytest.mark.needs("torch")

N, M = 60, 80


@pytest.fixture(scope="module")
def world():
    """Bank of a calibration in which item 5 is the wrong way round; a new model's answers."""
    rng = np.random.default_rng(0)
    a, b = np.exp(0.3 * rng.normal(size=M)), rng.normal(size=M)
    a[5] = -1.5
    theta = np.append(rng.normal(size=N), 0.5)
    p = special.expit(a * (theta[:, None] - b))
    scores = (rng.random(p.shape) < p).astype(float)
    # Partial credit that varies little.
    scores[:, 7] = np.clip(p[:, 7] + 0.05 * rng.normal(size=N + 1), 0, 1)
    matrix = ResponseMatrix.from_array(scores[:N], tasks=["x", "y"] * (M // 2))
    options = MmlItemsOptions(signed=True)
    fit = fit_irt(matrix, "2pl", "mml-items", rng=0, options=options)
    cost = np.full(M, 2.0)
    return item_bank(fit, matrix, cost=cost, provenance={"logs": 3}, rng=0), matrix, scores[N]


def test_an_item_the_wrong_way_round_is_left_out_with_a_reason(world):
    bank = world[0]

    assert bank.discrimination[5] < 0
    assert not bank.usable[5]
    assert "negative discrimination" == bank.reasons[5]
    said = "1 of the bank's 80 items are never asked: 1 for negative discrimination"
    assert [said] == left_out(bank)


def test_a_bank_tells_where_it_is_from(world):
    bank, matrix, _ = world

    assert N == bank.provenance["n_models"]
    assert 3 == bank.provenance["logs"]
    assert "mml-items" == bank.provenance["estimator"]
    np.testing.assert_allclose(matrix.scores[:, :, 0].mean(axis=1), bank.scores)
    np.testing.assert_allclose(matrix.scores[:, :, 0].mean(axis=0), bank.item_fit["mean"])


def test_partial_credit_that_varies_little_has_a_small_dispersion(world):
    dispersion = world[0].dispersion

    assert dispersion[7] < 0.3
    assert np.all(np.delete(dispersion, 7) == 1)


def test_a_session_finds_ability_and_full_score(world):
    bank, _, answers = world
    session = adaptive_session(bank, rng=0, stop=[StdError(0.35)])
    while session.stopped is None:
        for place in session.next():
            session.record(int(place), answers[place])

    full = session.full_score()[""]
    assert session.n < M / 2
    assert full.low <= answers.mean() <= full.high
    assert 2.0 * session.n == session.result().cost


def test_a_factor_model_gives_misfit_factors():
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(150, 2))
    loading = np.column_stack([np.ones(60), np.where(np.arange(60) % 2, 1.0, -1.0)])
    right = rng.random((150, 60)) < special.expit(theta @ loading.T)
    matrix = ResponseMatrix.from_array(right.astype(float))
    fit = fit_irt(matrix, "factor", options=FactorOptions(dimensions=2, ridge=3.0), rng=0)

    bank = item_bank(fit, matrix)

    assert (60, 1) == bank.misfit_loadings.shape
    assert abs(np.corrcoef(bank.misfit_loadings[:, 0], loading[:, 1])[0, 1]) > 0.9
    assert np.corrcoef(bank.abilities, theta[:, 0])[0, 1] > 0.85
    # In another order a bank was made of answers to other items.
    for order in (slice(None, None, -1), slice(0, 40)):
        with pytest.raises(DesignError, match="expected the matrix that was fitted"):
            item_bank(fit, submatrix(matrix, slice(None), np.arange(60)[order]))


def test_a_task_that_is_not_in_the_bank_is_named(world):
    with pytest.raises(SelectionError, match="no task of the bank is called 'z'; there are: x, y"):
        adaptive_session(world[0], tasks=["z"])


def test_a_session_of_one_task_asks_no_other(world):
    session = adaptive_session(world[0], tasks=["y"])

    assert {"y"} == set(session.bank.tasks[session.next(5)])


def test_a_bank_of_abilities_without_errors_is_made_without_a_warning() -> None:
    """Models that all answered alike; warnings are errors here."""
    same = ResponseMatrix.from_array([[1.0, 1, 0, 1, 1]] * 3)

    assert len(item_bank(fit_irt(same, "rasch", "jml"), same, rng=0)) == 5
