"""Banks and adaptive tests of two and three abilities."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import special

from evalstats_plugin.adaptive import merge, replay
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.calibrate import adaptive_session, item_bank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.scoring import Belief, abilities, laplace
from evalstats_plugin.adaptive.selection import d_optimality
from evalstats_plugin.adaptive.stopping import Information, Items, StdError
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, LogError
from evalstats_plugin.runtime.files import write_signed

M = 60


def bank_of(k=2, **others):
    """Items about k correlated abilities, with errors."""
    rng = np.random.default_rng(k)
    axes = np.eye(k) + 0.3
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    loading = np.where(np.arange(M)[:, None] % k == np.arange(k), 1.5, 0.2) @ axes
    return ItemBank.from_arrays(
        loading[:, 0],
        rng.normal(size=M),
        misfit_loadings=loading[:, 1:],
        axes=axes,
        item_covariance=np.tile(0.02 * np.eye(2), (M, 1, 1)),
        **others,
    )


def world(bank, n_models, seed=0):
    """Abilities and answers of models of the bank."""
    rng = np.random.default_rng(seed)
    state = rng.normal(size=(n_models, bank.n_abilities))
    logit = state @ bank.items.directions.T + bank.intercept
    return state @ bank.axes.T, (rng.random(logit.shape) < special.expit(logit)).astype(float)


def by_brute_force(bank, places, right):
    """Mean and covariance of the abilities by sums over a fine grid; items' errors drawn."""
    k = bank.n_abilities
    grid = np.linspace(-5, 5, 81 if k == 2 else 31)
    state = np.stack(np.meshgrid(*[grid] * k, indexing="ij"), axis=-1).reshape(-1, k)
    logit = state @ bank.items.directions[places].T + bank.intercept[places]
    z, weight = np.polynomial.hermite_e.hermegauss(15)
    spread = bank.items.spread[places]
    error = np.sqrt(spread[:, 0] * state[:, :1] ** 2 + spread[:, 2])
    p = special.expit(logit[..., None] + error[..., None] * z) @ (weight / weight.sum())
    log = (right * np.log(p) + (1 - right) * np.log1p(-p)).sum(axis=1) - (state**2).sum(axis=1) / 2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    points = state @ bank.axes.T
    mean = weight @ points
    return mean, ((points - mean) * weight[:, None]).T @ (points - mean)


@pytest.mark.parametrize(("k", "n"), [(2, 8), (2, 40), (3, 20)])
def test_abilities_are_those_of_brute_force(k, n):
    bank = bank_of(k)
    _, answers = world(bank, 1)
    places = np.random.default_rng(1).permutation(M)[:n]
    right = answers[:, places]

    found = abilities(Belief.prior(bank).answered(places[None], right, np.ones_like(right)))

    mean, covariance = by_brute_force(bank, places, right[0])
    np.testing.assert_allclose(found.ability[0], mean, atol=2e-3)
    np.testing.assert_allclose(found.covariance[0], covariance, atol=2e-3)


def test_the_next_item_is_the_one_with_the_largest_determinant():
    bank = bank_of(3)
    _, answers = world(bank, 1)
    places = np.arange(9)[None]
    belief = Belief.prior(bank).answered(places, answers[:, :9], np.ones((1, 9)))
    state = laplace(belief)

    gained = d_optimality(belief, state)

    # The curves at the state, flattened by the errors of the items, and the determinants directly.
    turn = np.linalg.inv(bank.axes)
    before = np.linalg.inv(bank.axes @ state.covariance[0] @ bank.axes.T)
    direct = []
    for j in range(M):
        x = bank.items.directions[j] @ turn
        spread = bank.items.spread[j]
        variance = spread[0] * state.mean[0, 0] ** 2 + spread[2]
        flat = 1 / np.sqrt(1 + np.pi / 8 * variance)
        p = special.expit((bank.items.directions[j] @ state.mean[0] + bank.intercept[j]) * flat)
        after = before + p * (1 - p) * flat**2 * np.outer(x, x)
        direct.append(np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1])
    np.testing.assert_allclose(gained[0], direct, rtol=1e-9)


def test_intervals_hold_the_abilities():
    bank = bank_of(2)
    truth, answers = world(bank, 20, seed=3)
    held = []
    for model in range(20):
        session = adaptive_session(bank, rule="information", stop=[Items(12)], rng=model)
        while session.stopped is None:
            for place in session.next().tolist():
                session.record(place, answers[model, place])
        found = session.result()
        assert "information" == found.rule
        held += [a.low <= t <= a.high for a, t in zip(found.abilities, truth[model], strict=True)]

    # 40 intervals of 95 %: fewer than 34 have a probability of .003.
    assert sum(held) >= 34


def asked(bank, answers, **settings):
    session = adaptive_session(bank, rng=0, **settings)
    while session.stopped is None:
        for place in session.next().tolist():
            session.record(place, answers[place])
    return session


def test_a_test_stops_when_every_ability_is_known_or_enough_information_is_in():
    bank = bank_of(2)
    answers = world(bank, 1)[1][0]

    by_error = asked(bank, answers, stop=[StdError(0.5)])
    by_information = asked(bank, answers, stop=[Information(2.0)])

    assert max(each.std_error for each in by_error.result().abilities) <= 0.5
    gained = [
        np.linalg.slogdet(bank.axes @ bank.axes.T)[1] - np.linalg.slogdet(covariance)[1]
        for covariance in (by_information.result().ability_covariance,)
    ]
    assert gained[0] >= 2.0
    assert by_information.stopped == f"information {gained[0]:.2f} ≥ 2"


def test_a_record_has_all_abilities_and_a_session_goes_on_from_its_answers():
    bank = bank_of(2)
    session = asked(bank, world(bank, 1)[1][0], stop=[Items(12)])
    found = json.loads(json.dumps(session.result().to_dict()))

    again = type(session).resume(bank, session.to_json().splitlines(), stop=[Items(12)])

    assert ["ability", "std_error", "low", "high"] == list(found["abilities"][1])
    errors = np.sqrt(np.diagonal(found["ability_covariance"]))
    np.testing.assert_allclose(errors, [each["std_error"] for each in found["abilities"]])
    np.testing.assert_allclose(again.abilities().ability, session.abilities().ability)


def test_a_bank_of_one_ability_has_no_several():
    bank = ItemBank.from_arrays(np.ones(8), np.zeros(8))
    session = asked(bank, np.ones(8), stop=[Items(3)])

    assert () == session.result().abilities
    assert not {"abilities", "ability_covariance"} & set(session.result().to_dict())
    # Of one ability: the prior's variance over that of the posterior.
    assert session.standing().information == pytest.approx(-2 * np.log(session.std_error))


def test_what_needs_one_ability_is_refused():
    bank = bank_of(2, models=("p",), abilities=np.zeros(1), scores=np.zeros(1))

    with pytest.raises(DesignError, match="one bank from the logs of both"):
        merge(bank, bank)


def test_a_bank_of_several_abilities_is_read_as_it_was_saved(tmp_path):
    bank = bank_of(3)

    found = ItemBank.load(bank.save(tmp_path / "bank.parquet"))

    np.testing.assert_array_equal(bank.axes, found.axes)
    np.testing.assert_allclose(bank.loading, found.loading)
    assert 3 == found.n_abilities
    assert ["loading_1", "loading_2", "loading_3"] == list(found.to_frame().filter(like="loading"))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ({"axes": "x"}, "could not convert"),
        ({"axes": [[1.0]]}, "a row and a column per ability"),
        ({"axes": [[1.0, 0.0], [1.0]]}, "inhomogeneous"),
        ({"axes": [[1.0, 0.0], [2.0, 0.0]]}, "length 1"),
        ({"axes": [[1.0, 0.0], [float("nan"), 1.0]]}, "length 1"),
        ({"axes": [[1.0, 0.0], [1.0, 0.0]]}, "are the same"),
        ({"ability_sd": 2.0}, "ability_mean 0 and ability_sd 1"),
        ({"shapes": {"misfit_loadings": [2, M // 2]}}, "misfit_loadings has shape"),
        ({"shapes": {"misfit_loadings": [M, 1], "item_covariance": [M, 1, 4]}}, "item_covariance"),
    ],
)
def test_a_damaged_bank_of_several_abilities_is_refused(tmp_path, damage, problem):
    path = bank_of(2).save(tmp_path / "bank.parquet")
    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"evalstats_bank"])
    write_signed(table, path, b"evalstats_bank", meta | damage)

    with pytest.raises(LogError, match=problem):
        ItemBank.load(path)


@pytest.mark.needs("torch")
def test_a_factor_model_makes_a_bank_of_its_abilities():
    from evalstats_plugin.irt.fitting import fit_irt
    from evalstats_plugin.irt.methods import FactorOptions

    truth, answers = world(bank_of(2), 112, seed=5)
    matrix = ResponseMatrix.from_array(answers[:100])
    options = FactorOptions(dimensions=2, rotation="promax", ridge=3.0)
    bank = item_bank(fit_irt(matrix, "factor", options=options, rng=0), matrix)

    rows = replay(
        bank, ResponseMatrix.from_array(answers[100:]).to_responses(), Plan(bank="", max_items=24)
    )

    estimates = np.array([row.abilities for row in rows])
    found = np.corrcoef(truth[100:].T, estimates.T)[:2, 2:]
    assert all(np.abs(found).max(axis=1) > 0.75)
    # A score over all items within its interval, for most of 12 models.
    assert sum(r.full_score_low <= r.observed <= r.full_score_high for r in rows) >= 10
