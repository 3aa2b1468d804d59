"""Bradley–Terry against published tables, other programs, and what must not matter."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.goodness import outcome_probabilities
from evalstats_plugin.ranking.ratings import bradley_terry, likelihood
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry


def table(rows, players):
    """Contests of rows (first, second, {outcome: how often})."""
    flat = [(i, j, y, w) for i, j, counts in rows for y, w in counts.items()]
    i, j, y, w = zip(*flat, strict=True)
    return Contests.of(i, j, y, players=players, weight=w, ordered=True)


def won(matrix, players):
    matrix = np.array(matrix)
    i, j = np.nonzero(matrix)
    return table([(a, b, {1.0: matrix[a, b]}) for a, b in zip(i, j, strict=True)], players)


def against(fit, k):
    """Ratings less that of player k, and their standard errors."""
    v = fit.covariance
    return fit.rating - fit.rating[k], np.sqrt(np.diagonal(v) + v[k, k] - 2 * v[k])


def test_citations_of_stigler_1994(golden):
    given = golden["citations"]
    fit = fit_bradley_terry(won(given["wins"], given["items"]), covariance="model")
    expected, (rating, error) = given["recomputed"], against(fit, 0)

    np.testing.assert_allclose(rating, list(expected["log_ability"].values()), atol=1e-6)
    np.testing.assert_allclose(error, list(expected["se"].values()), atol=1e-5)
    assert fit.log_likelihood == pytest.approx(expected["loglik"], abs=1e-6)


def baseball(golden):
    given = golden["baseball"]
    place = {name: k for k, name in enumerate(given["items"])}
    rows = [(place[h], place[a], {1.0: x, 0.0: y}) for h, a, x, y in given["home_away"]]
    return given["recomputed"], table(rows, given["items"])


def test_baseball_of_agresti_2002(golden):
    expected, made = baseball(golden)
    fit = fit_bradley_terry(made, covariance="model")
    rating, error = against(fit, 0)

    np.testing.assert_allclose(rating, list(expected["log_ability"].values()), atol=1e-6)
    np.testing.assert_allclose(error, list(expected["se"].values()), atol=1e-5)


def test_baseball_with_the_advantage_of_playing_at_home(golden):
    expected, made = baseball(golden)
    fit = fit_bradley_terry(made, position=True, covariance="model")
    home = expected["home_model"]

    np.testing.assert_allclose(against(fit, 0)[0], list(home["log_ability"].values()), atol=1e-6)
    assert fit.parameters["position"] == pytest.approx(home["home_advantage"], abs=1e-6)
    assert fit.parameter_std_errors["position"] == pytest.approx(home["home_se"], abs=1e-5)
    assert fit.log_likelihood == pytest.approx(home["loglik"], abs=1e-6)


def test_puddings_of_davidson_1970(golden):
    given = golden["pudding_ties"]
    rows = [(i - 1, j - 1, {1.0: w, 0.0: v, 0.5: t}) for i, j, w, v, t in given["pairs"]]
    expected, made = given["recomputed"], table(rows, 6)
    davidson = fit_bradley_terry(made, ties="davidson", covariance="model")
    rao_kupper = fit_bradley_terry(made, ties="rao-kupper", covariance="model")
    worth = np.exp(davidson.rating)

    np.testing.assert_allclose(worth / worth.sum(), expected["worth"], atol=1e-6)
    assert np.exp(davidson.parameters["tie"]) == pytest.approx(expected["nu"], abs=1e-6)
    assert davidson.log_likelihood == pytest.approx(expected["loglik"], abs=1e-6)
    twin = expected["rao_kupper"]
    np.testing.assert_allclose(against(rao_kupper, 0)[0], twin["log_ability"], atol=1e-6)
    assert rao_kupper.parameters["tie"] == pytest.approx(twin["log_threshold_eta"], abs=1e-6)
    assert rao_kupper.log_likelihood == pytest.approx(twin["loglik"], abs=1e-6)


def test_the_example_of_wikipedia(golden):
    given = golden["wikipedia_4"]
    fit = fit_bradley_terry(won(given["wins"], given["items"]))
    expected = given["recomputed"]["worth_geomean1"]

    np.testing.assert_allclose(np.exp(fit.rating), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["testcase-pairwise-1.json", "testcase-pairwise-2.json"])
def test_cases_of_choix(golden, name):
    case = golden["choix_testcases"]["cases"][name]
    fit = fit_bradley_terry(Contests.of(*np.array(case["data"]).T, 1.0))

    np.testing.assert_allclose(fit.rating, case["ml_est"], atol=1e-8)


def test_llmfao_ratings_are_those_of_evalica_and_arena_rank(golden, llmfao):
    fit = fit_bradley_terry(llmfao, ties="half")
    worth, expected = np.exp(fit.rating), golden["llmfao"]["evalica_bradley_terry"]

    shares = dict(zip(llmfao.players, worth / worth.sum(), strict=True))
    assert shares == pytest.approx(expected, abs=1e-9)
    stored = golden["llmfao"]["log_ability_centred"]
    np.testing.assert_allclose(fit.rating, [stored[name] for name in fit.players], atol=1e-8)
    arena = golden["llmfao"]["arena_rank_0_1_1"]
    # Its optimiser stops early.
    elo = 1000 + 400 / np.log(10) * fit.rating
    np.testing.assert_allclose(elo, arena["rating"], atol=2e-2)


def test_llmfao_standard_errors_clustered_by_prompt_are_one_and_a_half_times_as_large(
    golden, llmfao, monkeypatch
):
    """Beside another program, without the correction for small samples."""
    monkeypatch.setattr(likelihood, "CORRECTED", 0)
    given = golden["llmfao"]
    plain = fit_bradley_terry(llmfao, ties="half", covariance="sandwich").std_error
    np.testing.assert_allclose(plain, given["se_sandwich_iid"], rtol=1e-5)

    # The stored ones lack G / (G - 1).
    prompt = fit_bradley_terry(llmfao, ties="half", covariance="cluster")
    without = prompt.std_error / np.sqrt(13 / 12)
    np.testing.assert_allclose(without, given["se_cluster_prompt"], rtol=1e-5)
    assert np.median(without / plain) == pytest.approx(1.53, abs=0.01)
    assert "only 13 clusters" in prompt.notes[0]
    assert prompt.diagnostics["degrees_of_freedom"] == 12
    monkeypatch.setattr(bradley_terry, "FEW_CLUSTERS", 13)
    assert fit_bradley_terry(llmfao, ties="half", covariance="cluster").notes == ()
    worker = fit_bradley_terry(llmfao, ties="half", covariance="judge").std_error / np.sqrt(
        124 / 123
    )
    np.testing.assert_allclose(worker, given["se_cluster_worker"], rtol=1e-5)
    np.testing.assert_array_equal(
        fit_bradley_terry(llmfao, ties="half").std_error, prompt.std_error
    )


def test_style_control_finds_the_coefficient_and_unbiases_ratings():
    """Of players as good as each other, one writes longer answers, and judges like that."""
    rng = np.random.default_rng(0)
    first, second = rng.permuted(np.tile([0, 1, 2], (20_000, 1)), axis=1)[:, :2].T
    length = rng.normal(size=20_000) + (first == 0) - (second == 0)
    outcome = rng.random(20_000) < 1 / (1 + np.exp(-0.5 * length))
    made = Contests.of(first, second, outcome)
    made = replace(made, features=length[:, None], feature_names=("length",))
    fit = fit_bradley_terry(made, features=["length"])

    assert fit_bradley_terry(made).rating[0] > 0.2
    assert (np.abs(fit.rating) < 4 * fit.std_error).all()
    error = fit.parameter_std_errors["length"]
    assert error < 0.03
    assert abs(fit.parameters["length"] - 0.5) < 4 * error


def clustered(simulated):
    """150 contests of 4 players in clusters of two to four."""
    _, made = simulated(4, 150, 8, ties=0.3, position=0.4)
    sizes = np.random.default_rng(1).integers(2, 5, 75)
    return replace(made, cluster=np.repeat(np.arange(75), sizes)[:150])


def test_small_samples_have_the_errors_of_leaving_out_each_cluster(simulated, monkeypatch):
    made = clustered(simulated)
    fit, units = fit_bradley_terry(made, position=True), np.unique(made.cluster)
    without = np.array(
        [fit_bradley_terry(made.take(made.cluster != k), position=True).rating for k in units]
    )
    refitted = np.sqrt(((without - fit.rating) ** 2).sum(axis=0) * (1 - 1 / len(units)))

    np.testing.assert_allclose(fit.std_error, refitted, rtol=0.015)
    monkeypatch.setattr(likelihood, "CORRECTED", 0)
    assert (fit_bradley_terry(made, position=True).std_error < 0.985 * refitted).all()


def test_a_player_of_one_cluster_has_a_finite_error():
    """The jackknife cannot do without the cluster; the series of its scores can."""
    made = Contests.of([0] * 20 + [2] * 3, [1] * 20 + [0] * 3, [1, 1, 0, 1, 0] * 4 + [1, 1, 0])
    made = replace(made, cluster=np.r_[np.repeat(np.arange(10), 2), 10, 10, 10])
    fit = fit_bradley_terry(made)

    assert np.isfinite(fit.std_error).all()
    assert (0.05 < fit.std_error).all()
    assert (fit.std_error < 5).all()


def test_order_of_contests_players_and_sides_does_not_matter(simulated):
    _, made = simulated(6, 400, 2, ties=0.2)
    rng = np.random.default_rng(0)
    names, order = rng.permutation(6), rng.permutation(400)
    turned = Contests.of(
        names[made.second][order], names[made.first][order], 1 - made.outcome[order], players=6
    )
    for ties in ("half", "drop", "davidson", "rao-kupper"):
        fit, other = fit_bradley_terry(made, ties=ties), fit_bradley_terry(turned, ties=ties)
        np.testing.assert_allclose(other.rating[names], fit.rating, atol=1e-10)
        np.testing.assert_allclose(other.std_error[names], fit.std_error, atol=1e-10)


def test_weights_count_like_repeated_contests(simulated):
    _, made = simulated(5, 300, 4, ties=0.1)
    weight = np.random.default_rng(2).integers(0, 4, size=300)
    heavy = replace(made, weight=weight.astype(float))
    often = made.take(np.repeat(np.arange(300), weight))
    fit, other = (fit_bradley_terry(c, covariance="model") for c in (heavy, often))

    np.testing.assert_allclose(fit.rating, other.rating, atol=1e-10)
    np.testing.assert_allclose(fit.covariance, other.covariance, atol=1e-12)
    assert "counts as one observation" in fit_bradley_terry(heavy).notes[-1]


def test_outcomes_may_be_shares():
    shares = Contests.of([0, 1, 0], [1, 2, 2], [0.75, 0.6, 0.9])
    split = Contests.of(
        [0, 0, 1, 1, 0, 0], [1, 1, 2, 2, 2, 2], [1, 0] * 3, weight=[0.75, 0.25, 0.6, 0.4, 0.9, 0.1]
    )

    np.testing.assert_allclose(
        fit_bradley_terry(shares).rating, fit_bradley_terry(split).rating, atol=1e-12
    )
    with pytest.raises(DesignError, match="needs wins, losses and ties"):
        fit_bradley_terry(shares, ties="davidson")


def test_an_undefeated_player_gets_a_finite_rating_and_a_note():
    made = Contests.of([0] * 10 + [1, 2, 1], [1] * 5 + [2] * 5 + [2, 1, 2], [1] * 13)
    for covariance in ("model", "sandwich"):
        fit = fit_bradley_terry(made, covariance=covariance)
        assert "player_0 won every comparison" in fit.notes[0]
        assert "standard deviation 5" in fit.notes[0]
        assert 2 < fit.rating[0] - fit.rating[1] < 10
        # Ten wins leave open whether it is 2 or 8 logits better.
        assert 1 < fit.std_error[0] < 3
    groups = Contests.of([0, 1, 0, 1, 2, 3], [1, 0, 2, 3, 3, 2], [1] * 6)
    assert "2 groups of players: one always beats another" in fit_bradley_terry(groups).notes[0]


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_tie_models_stay_finite_with_no_ties_or_only_ties(simulated, ties):
    _, made = simulated(4, 200, 1)
    fit = fit_bradley_terry(made, ties=ties, covariance="model")
    assert "no ties: half a comparison" in fit.notes[0]
    assert outcome_probabilities(fit, made)[:, 1].max() < 0.02
    np.testing.assert_allclose(fit.rating, fit_bradley_terry(made).rating, atol=0.05)

    tied = Contests.of(made.first, made.second, 0.5)
    fit = fit_bradley_terry(tied, ties=ties, covariance="model")
    assert any("only ties: half a comparison" in note for note in fit.notes)
    np.testing.assert_allclose(fit.rating, 0, atol=1e-6)
    assert outcome_probabilities(fit, tied)[:, 1].min() > 0.9


@pytest.mark.parametrize(("n", "is_corrected"), [(200, True), (201, False)])
def test_the_correction_ends_at_a_hundred_units_a_parameter(n, is_corrected):
    """Of two players each contest has 1 / n of the information on their difference."""
    won = np.arange(n) % 4 > 0
    v = fit_bradley_terry(Contests.of([0] * n, [1] * n, won), covariance="sandwich").covariance
    h, p = 1 / n, won.mean()
    factor = (1 - h) * (1 + h + h**2 + h**3) ** 2 if is_corrected else 1

    assert v[0, 0] + v[1, 1] - 2 * v[0, 1] == pytest.approx(factor / (n * p * (1 - p)), rel=1e-9)


def test_disconnected_players_are_named():
    made = Contests.of([0, 1, 2, 3], [1, 0, 3, 2], [1] * 4, players=["a", "b", "c", "d", "e"])
    with pytest.raises(DesignError, match=r"another: e; no comparison connects \(a, b\), \(c, d\)"):
        fit_bradley_terry(made)

    with_prior = fit_bradley_terry(made, prior_sd=1.0)
    np.testing.assert_allclose(with_prior.rating, 0, atol=1e-12)
    assert with_prior.std_error[4] > with_prior.std_error[0]
    # The same twice, with an advantage of place: once more nothing connects the pairs.
    first, second, won = np.array([[0, 1, 0, 0, 1], [1, 0, 1, 1, 0], [1, 1, 0, 1, 0]])
    twice = [np.concatenate([x, x + 2]) for x in (first, second)]
    alone, both = (
        fit_bradley_terry(Contests.of(*of, ordered=True), position=True, prior_sd=2.0)
        for of in ((first, second, won), (*twice, np.tile(won, 2)))
    )
    np.testing.assert_allclose(both.rating, np.tile(alone.rating, 2), atol=1e-9)
    assert both.parameters["position"] == pytest.approx(alone.parameters["position"], abs=1e-9)


def test_unidentified_coefficients_are_refused(simulated):
    _, made = simulated(4, 100, 0)
    # Always the earlier one first, and 0 only against 3: the same as a rating.
    one_way = Contests.of([0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 1, 1], ordered=True)
    with pytest.raises(DesignError, match="cannot tell position from the ratings"):
        fit_bradley_terry(one_way, position=True)
    own = (made.first == 1).astype(float) - (made.second == 1)
    same = replace(made, features=own[:, None], feature_names=("is_b",))
    with pytest.raises(DesignError, match="cannot tell is_b from the ratings"):
        fit_bradley_terry(same, features=["is_b"])
    with pytest.raises(DesignError, match="needs to know who was shown first"):
        fit_bradley_terry(replace(made, ordered=False), position=True)
    with pytest.raises(SelectionError, match="did you mean is_b"):
        fit_bradley_terry(same, features=["is_B"])
    gap = replace(same, features=np.where(np.arange(100)[:, None] < 3, np.nan, 1.0))
    with pytest.raises(DesignError, match="'is_b' is not a finite number in 3 of 100"):
        fit_bradley_terry(gap, features=["is_b"])


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"ties": "halves"}, SelectionError, "did you mean half"),
        ({"covariance": "sandwitch"}, SelectionError, "did you mean sandwich"),
        ({"covariance": "cluster"}, DesignError, "have no cluster"),
        ({"covariance": "judge"}, DesignError, "have no judge"),
        ({"prior_sd": -1}, DesignError, "prior_sd is -1: give a number above 0"),
    ],
)
def test_wrong_settings_are_refused(simulated, keywords, error, message):
    with pytest.raises(error, match=message):
        fit_bradley_terry(simulated(3, 50, 0)[1], **keywords)


def test_only_ties_leave_nothing_when_dropped():
    with pytest.raises(DesignError, match="all comparisons are ties"):
        fit_bradley_terry(Contests.of([0], [1], [0.5]), ties="drop")


def test_predictions_need_fitted_players(simulated):
    _, made = simulated(3, 50, 0)
    other = replace(made, players=("player_0", "stranger", "player_2"))
    with pytest.raises(DesignError, match="other players than the fit"):
        outcome_probabilities(fit_bradley_terry(made), other)


def test_players_a_long_way_apart_are_found():
    """A ladder of 30 players, each 2 logits above the next, and meeting neighbours only."""
    steps = np.arange(29)
    made = Contests.of(
        np.repeat(steps, 2), np.repeat(steps + 1, 2), np.tile([1.0, 0.0], 29),
        weight=np.tile([np.exp(2.0), 1.0], 29),
    )  # fmt: skip
    fit = fit_bradley_terry(made, covariance="model")

    np.testing.assert_allclose(fit.rating, 2 * (14.5 - np.arange(30)), atol=1e-8)


def test_a_million_battles_take_less_than_a_second(simulated, within):
    """About .007 s."""
    truth, made = simulated(100, 1_000_000, 0)
    fit = within(0.0135, lambda: fit_bradley_terry(made, covariance="sandwich"))

    assert np.sqrt(np.mean(((fit.rating - truth) / fit.std_error) ** 2)) < 1.3


def test_intervals_from_right_and_wrong_answers_hold_when_clustered_by_item():
    """Of tests/validation/test_ranking_discordant.py; those taken as independent do not."""
    file = Path(__file__).parents[3] / "fixtures" / "validation" / "ranking_discordant.json"
    study = json.loads(file.read_text(encoding="utf-8"))
    rows = {(r["items"], r["ties"], r["covariance"]): r for r in study["rows"]}

    for items in (50, 200):
        assert 0.93 <= rows[items, "drop", "cluster"]["coverage"] <= 0.97
        assert 0.93 <= rows[items, "drop", "cluster"]["coverage_of_differences"] <= 0.97
        assert rows[items, "drop", "model"]["coverage"] == pytest.approx(0.64, abs=0.03)
        assert rows[items, "half", "cluster"]["ordered_as_accuracy"] == 1
        assert rows[items, "half", "cluster"]["slope"] == pytest.approx(0.38, abs=0.02)


def test_the_stored_benchmark_supports_the_documentation():
    """Of the last `python -m benchmarks.ranking`: a million contests of 100 players."""
    file = Path(__file__).parents[3] / "benchmarks" / "results" / "ranking.json"
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
    alone, sure = (
        {run["program"]: run for run in runs if run["job"] == job}
        for job in ("ratings", "ratings with intervals")
    )

    assert {"choix", "evalica", "scikit-learn"} <= alone.keys()
    assert {"choix", "evalica", "arena-rank", "scikit-learn"} <= sure.keys()
    exact = alone["evalstats-plugin"]["rmse"]
    for run in runs:
        assert run["rmse"] == pytest.approx(exact, rel=0.01), run["program"]
    for name in ("choix", "evalica", "arena-rank"):
        assert sure[name]["ratio"]["median"] >= 3
    assert 0.9 <= sure["evalstats-plugin"]["coverage"] <= 0.99


@pytest.mark.parametrize(("number", "is_noted"), [(19, True), (20, False)])
def test_intervals_of_fewer_than_20_clusters_are_said_to_be_rough(simulated, number, is_noted):
    _, made = simulated(3, 120, 0)
    fit = fit_bradley_terry(replace(made, cluster=np.arange(120) % number))

    notes = [f"only {number} clusters: intervals are rough, of Student's t with {number - 1} deg"]
    assert [note[: len(notes[0])] for note in fit.notes] == notes * is_noted
    assert fit.diagnostics["covariance"] == "cluster"
    assert fit.diagnostics["degrees_of_freedom"] == number - 1
    # All of one cluster, whatever its number, are independent; they are when asked for, too.
    alone = fit_bradley_terry(replace(made, cluster=np.full(120, 7)))
    assert alone.diagnostics["covariance"] == "sandwich"
    with pytest.raises(DesignError, match="all comparisons have one cluster"):
        fit_bradley_terry(replace(made, cluster=np.full(120, 7)), covariance="cluster")


@pytest.mark.parametrize("weight", [1.0, 1.001])
@pytest.mark.parametrize("covariance", ["model", "sandwich"])
def test_weights_above_1_are_said_to_count_as_one_observation(simulated, weight, covariance):
    _, made = simulated(3, 60, 0)
    heavy = replace(made, weight=np.r_[weight, np.full(59, 0.5)])
    fit = fit_bradley_terry(heavy, covariance=covariance)

    said = [note.startswith("some weights are above 1, and a comparison") for note in fit.notes]
    assert said == [True] * (weight > 1 and covariance == "sandwich")


@pytest.mark.parametrize(("share", "named"), [(0.0007, "own"), (0.0014, "own, other")])
def test_features_that_take_part_in_a_collinearity_are_named(simulated, share, named):
    """Those that have more than a thousandth of it, as multiples of their own size."""
    _, made = simulated(4, 200, 0)
    own = (made.first == 1).astype(float) - (made.second == 1)
    other = np.random.default_rng(0).normal(size=200)
    other *= np.sqrt((own**2).sum() / (other**2).sum())
    columns = np.column_stack([own + share * other, 1000 * other])
    both = replace(made, features=columns, feature_names=("own", "other"))

    with pytest.raises(DesignError, match=f"cannot tell {named} from the ratings"):
        fit_bradley_terry(both, features=("own", "other"))


@pytest.mark.parametrize("outcome", [0.0, 0.5, 1.0])
def test_an_advantage_of_place_is_identified_whatever_is_counted(outcome):
    """Wins, ties or losses of the first alone, in both orders."""
    made = Contests.of([0, 1] * 6, [1, 0] * 6, outcome, ordered=True)
    fit = fit_bradley_terry(made, ties="davidson", position=True)

    np.testing.assert_allclose(fit.rating, 0, atol=1e-9)
    assert np.sign(np.round(fit.parameters["position"], 6)) == 2 * outcome - 1


def test_ties_that_count_half_do_not_make_equals_certain():
    """Of ties alone the sandwich has no variance: limits of all players were 0 and 0."""
    made = Contests.of([0, 1, 2] * 5, [1, 2, 0] * 5, 0.5)
    fit = fit_bradley_terry(made, ties="half")

    model = fit_bradley_terry(made, ties="half", covariance="model")
    np.testing.assert_array_equal(fit.covariance, model.covariance)
    # Each of three pairs has 5 / 4 of the information: 3 / 4 * 5 a player.
    np.testing.assert_allclose(fit.covariance, (np.eye(3) - 1 / 3) / 3.75, atol=1e-12)
    assert fit.diagnostics["covariance"] == "model"


def test_weights_that_leave_no_digit_of_an_error_are_refused():
    """Variances were negative, or were wrong in their first digit without a word."""
    made = Contests.of([0, 0, 1, 1], [1, 1, 2, 2], [1, 0, 1, 0], weight=[1e12, 1e12, 1, 1])
    fit = fit_bradley_terry(made, covariance="model")
    assert fit.std_error[2] == pytest.approx(np.sqrt(8 / 9), rel=1e-4)

    light = replace(made, weight=np.array([1e12, 1e12, 1e-5, 1e-5]))
    for covariance in ("model", "sandwich"):
        with pytest.raises(DesignError, match="differ too much in size: rounding leaves no"):
            fit_bradley_terry(light, covariance=covariance)


def test_rounding_beside_heavy_weights_is_not_taken_for_a_search_cut_short(simulated, monkeypatch):
    """Steps of 1e-11 went on to the 200th, and a note said that the fit did not converge."""
    monkeypatch.setattr(likelihood, "_TOLERANCE", 0.0)
    fit = fit_bradley_terry(simulated(4, 100, 0)[1])

    assert fit.diagnostics["iterations"] == 200
    assert fit.diagnostics["converged"]
    assert fit.notes == ()


def test_features_of_any_unit_have_the_same_effect_and_errors(simulated):
    """Their size was mixed up with that of the ratings: some variances were negative."""
    rng = np.random.default_rng(1)
    _, made = simulated(5, 150, 1, ties=0.2)
    made = replace(made, weight=10.0 ** rng.uniform(-4, 0, 150), feature_names=("style",))
    style = rng.normal(size=(150, 1))
    fits = [
        fit_bradley_terry(replace(made, features=unit * style), features=("style",))
        for unit in (1, 1e-5, 1e5)
    ]

    for unit, fit in zip((1, 1e-5, 1e5), fits, strict=True):
        assert unit * fit.parameters["style"] == pytest.approx(fits[0].parameters["style"])
        error = unit * fit.parameter_std_errors["style"]
        assert error == pytest.approx(fits[0].parameter_std_errors["style"])
        np.testing.assert_allclose(fit.covariance, fits[0].covariance, rtol=1e-6)


def _of_weights_far_apart(seed):
    """Contests with weights of 1e-6 and 1e6, and a feature in both orders."""
    rng = np.random.default_rng(seed)
    n, size = int(rng.integers(2, 7)), int(rng.integers(5, 80))
    first = rng.integers(n, size=size)
    second = (first + rng.integers(1, n, size=size)) % n
    weight = 10.0 ** rng.choice([-6, 6], size=size)
    outcome = rng.choice([0, 0.5, 1], size=size, p=[0.4, 0.2, 0.4])
    columns = np.c_[
        rng.normal(size=size), rng.integers(-1, 2, size=size) * 10.0 ** rng.integers(-4, 5)
    ]
    return replace(
        Contests.of(first, second, outcome, players=n, weight=weight, ordered=True),
        features=columns, feature_names=("a", "b"), cluster=rng.integers(0, 8, size=size),
    )  # fmt: skip


def test_variances_that_rounding_makes_negative_are_refused():
    """Limits were NaN. Of these designs each processor makes another one negative."""
    refused = 0
    for seed, covariance in product((1412, 1422), ("sandwich", "cluster")):
        try:
            fit = fit_bradley_terry(
                _of_weights_far_apart(seed), ties="davidson", features=("a", "b"),
                covariance=covariance,
            )  # fmt: skip
        except DesignError as error:
            refused += "differ too much in size" in str(error)
        else:
            assert (np.diagonal(fit.covariance) >= 0).all()

    assert refused
