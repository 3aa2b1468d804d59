"""Rankings by comparisons: rows, probabilities, and what may be asked."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.rank import (
    MlOptions,
    RankingModel,
    RankOptions,
    ThurstoneOptions,
    leaderboard,
    rank,
)
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry

pytestmark = pytest.mark.usefixtures("rough_integration")
NAMES = ("ada", "bea", "cai", "dan", "eva")
TRUTH = np.array([1.5, 0.5, 0.4, -0.8, -1.6])


def contests(count: int = 300, seed: int = 0, ties: float = 0.0) -> Contests:
    rng = np.random.default_rng(seed)
    i = rng.integers(0, 5, count)
    j = (i + rng.integers(1, 5, count)) % 5
    won = (rng.random(count) < special.expit(TRUTH[i] - TRUTH[j])).astype(float)
    won[rng.random(count) < ties] = 0.5
    return Contests.of(i, j, won, players=NAMES)


def test_rows_are_those_of_the_fit_the_best_first() -> None:
    """Normal limits around maximum likelihood estimates; ranks and weights counted by hand."""
    given = contests()
    fit = fit_bradley_terry(given)
    found = rank(given, model="bradley-terry", rng=0)
    order = np.argsort(-fit.rating)

    assert [NAMES[i] for i in order] == [row.player for row in found]
    for row, i in zip(found, order, strict=True):
        assert row.mean == pytest.approx(fit.rating[i])
        assert row.std_error == pytest.approx(fit.std_error[i])
        assert (row.high, row.low) == pytest.approx(
            (
                fit.rating[i] + 1.959964 * fit.std_error[i],
                fit.rating[i] - 1.959964 * fit.std_error[i],
            ),
            abs=1e-6,
        )
        assert row.n_contests == ((given.first == i) | (given.second == i)).sum()
        assert 1 <= row.rank_low <= row.rank_high <= 5
        assert row.rank_low - 0.5 < (row.expected_rank or 0) < row.rank_high + 0.5
    assert sum(row.prob_best or 0 for row in found) == pytest.approx(1)
    assert sum(row.expected_rank or 0 for row in found) == pytest.approx(15)
    # Far apart: ranks 1, 4 and 5 are sure; the two in the middle share a letter.
    assert [(1, 1), (2, 3), (2, 3), (4, 4), (5, 5)] == [
        (row.rank_low, row.rank_high) for row in rank(contests(3000), rng=0)
    ]
    assert ["a", "b", "b", "c", "d"] == [row.letters for row in rank(contests(3000), rng=0)]


@pytest.mark.parametrize(
    ("model", "estimator", "options"),
    [
        ("bradley-terry", "auto", MlOptions(ties="davidson")),
        ("thurstone", "ep", ThurstoneOptions(prior_covariance=4.0)),
    ],
)
def test_every_estimator_gives_the_same_order_and_repeats_with_the_seed(
    model: RankingModel, estimator: str, options: RankOptions | None
) -> None:
    given = contests(800, ties=0.1)
    first, second = (
        rank(given, model=model, estimator=estimator, options=options, rng=3) for _ in range(2)
    )

    assert first.rows == second.rows
    assert 3 == first.seed
    players = [row.player for row in first]
    assert ("ada", {"bea", "cai"}, ["dan", "eva"]) == (players[0], set(players[1:3]), players[3:])
    assert first[0].prob_best == pytest.approx(1, abs=0.01)
    assert first[0].method.startswith(f"{model} ")
    assert "reason" in first.fit.diagnostics
    json.dumps(first.to_dict(), allow_nan=False)


def test_probabilities_are_shares_of_posterior_draws() -> None:
    """40 comparisons: draws around the normal, whose shape the ranges and probabilities have."""
    options = ThurstoneOptions(draws=800)
    found = rank(contests(40), model="thurstone", estimator="ep", options=options, rng=0)
    draws, place = found.draws, [NAMES.index(row.player) for row in found]

    assert (800, 5) == draws.shape
    raw = found.fit.draws
    np.testing.assert_allclose(draws, raw - raw.mean(axis=1, keepdims=True), atol=1e-12)
    shares = np.bincount(draws.argmax(axis=1), minlength=5)[place] / 800
    np.testing.assert_allclose(shares, [row.prob_best for row in found])
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    np.testing.assert_allclose([(r.low, r.high) for r in found], np.stack([low, high], 1)[place])


def test_square_tables_have_players_in_order_and_agree_with_the_rows() -> None:
    found = rank(contests(), rng=0)
    names = [row.player for row in found]
    ranks = found.rank_distribution()
    better = found.prob_better()

    assert names == list(ranks.index) == list(better.index) == list(better.columns)
    assert [1, 2, 3, 4, 5] == list(ranks.columns)
    assert [row.prob_best for row in found] == ranks[1].tolist()
    assert better.loc["ada", "eva"] > 0.99


def test_elo_points_rescale_logits_and_probits() -> None:
    """Odds of 10 to 1 are 400 points; one unit of the probit, a chance of .84, is 200√2."""
    given = contests()
    for model, points in (("bradley-terry", 400 / np.log(10)), ("thurstone", 200 * np.sqrt(2))):
        plain, elo = (
            rank(given, model=model, estimator="auto" if points < 200 else "ep", scale=scale, rng=0)  # pyright: ignore[reportArgumentType]
            for scale in ("model", "elo")
        )
        for a, b in zip(plain, elo, strict=True):
            assert b.mean == pytest.approx(1000 + points * (a.mean or 0))
            assert (b.high or 0) - (b.low or 0) == pytest.approx(
                points * ((a.high or 0) - (a.low or 0))
            )
            assert (a.prob_best, a.rank_high, "elo") == (b.prob_best, b.rank_high, b.scale)


def test_few_clusters_widen_intervals_by_students_t() -> None:
    """5 prompts: t with 4 degrees of freedom, 2.776 standard errors; P(best) is less sure."""
    given = replace(contests(), cluster=np.arange(300) % 5, clusters=tuple("vwxyz"))
    found = rank(given, rng=0)
    widths = [(r.high or 0) - (r.low or 0) for r in found]
    errors = [r.std_error or 0 for r in found]

    np.testing.assert_allclose(widths, 2 * 2.776445 * np.array(errors), rtol=1e-6)
    assert found[0].method == "bradley-terry ml, cluster"
    assert any("only 5 clusters" in note for note in found.notes)


def test_scores_files_and_frames_are_read(tmp_path) -> None:  # pyright: ignore  # noqa: PGH003
    """Per-item results, where the better score wins; a CSV file; the same as a frame."""
    rng = np.random.default_rng(0)
    right = rng.random((3, 400)) < np.array([[0.8], [0.5], [0.2]])
    matrix = ResponseMatrix.from_array(right.astype(float), models=["p", "q", "r"])
    of_scores = rank(matrix, rng=0)
    assert ["p", "q", "r"] == [row.player for row in of_scores]
    assert "cluster" in of_scores[0].method

    frame = pd.DataFrame({"left": ["x", "x", "y", "z"], "w": ["x", "z", "y", "y"]})
    frame["right"] = ["y", "z", "z", "y"]
    path = tmp_path / "votes.csv"
    frame.to_csv(path, index=False)
    columns = {"first": "left", "second": "right", "winner": "w"}
    first, second = (rank(s, rng=0, columns=columns) for s in (path, frame))
    assert first.rows == second.rows
    assert {"x", "y", "z"} == {row.player for row in first}


def test_goodness_of_fit_is_reported() -> None:
    """Judges, circles, log loss and entropy go with the ranking."""
    given = contests(400)
    judged = replace(given, judge=np.arange(400) % 4, judges=tuple("klmn"))
    good = rank(judged, rng=0).goodness

    assert good.entropy is not None
    assert 0 < good.entropy.low <= good.entropy.high < good.entropy.most
    assert good.entropy.most == pytest.approx(np.log2(120))
    assert good.transitivity is not None
    assert good.transitivity.n_triads <= 10
    assert good.predictive_fit is not None
    assert good.predictive_fit.log_loss < good.predictive_fit.constant
    assert good.agreement is not None
    assert good.agreement.n_units == 10
    assert rank(given, rng=0).goodness.agreement is None


def test_the_model_is_that_which_allows_for_clusters_where_there_are_some() -> None:
    one_each = contests(40)
    clustered = replace(one_each, cluster=np.arange(len(one_each.first)) // 2)

    assert "thurstone" == rank(one_each, rng=0).fit.model
    found = rank(clustered, rng=0)
    assert ("bradley-terry", "cluster") == (found.fit.model, found.fit.diagnostics["covariance"])
    assert "bradley-terry" == rank(one_each, options=MlOptions(), rng=0).fit.model
    assert "bradley-terry" == rank(one_each, estimator="ml", rng=0).fit.model


@pytest.mark.parametrize(("bias", "words"), [(0.0, "%"), (1.5, "the judges favour the first")])
def test_the_advantage_of_the_first_is_a_note(bias: float, words: str) -> None:
    rng = np.random.default_rng(1)
    i = rng.integers(0, 4, 300)
    j = (i + rng.integers(1, 4, 300)) % 4
    won = (rng.normal(size=300) + bias > 0).astype(float)
    found = rank(Contests.of(i, j, won, players=4, ordered=True), rng=0)

    [note] = [note for note in found.notes if note.startswith("between equals the one shown first")]
    assert words in note
    at, low, high = (int(x) for x in re.findall(r"\d+", note)[:3])
    assert low <= round(100 * special.ndtr(bias)) <= high
    assert low < at < high


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("bradley-terry", None, "ties left out"),
        ("bradley-terry", MlOptions(ties="rao-kupper"), "ties left out"),
        ("bradley-terry", MlOptions(ties="half"), "a tie counting half"),
        ("thurstone", None, "ties left out"),
    ],
)
def test_the_advantage_of_the_first_says_what_a_tie_counts(
    model: RankingModel, options: RankOptions | None, words: str
) -> None:
    """Of 40 answers 12 are for the first, 4 for the second: 12 of 16, or 24 of 40."""
    outcome = [1] * 12 + [0.5] * 24 + [0] * 4
    played = Contests.of([0, 1] * 20, [1, 0] * 20, outcome, players="ab", ordered=True)
    found = rank(played, model=model, options=options, rng=0)
    [note] = [note for note in found.notes if note.startswith("between equals the one shown first")]

    assert f"wins {60 if 'half' in words else 75} % [" in note
    assert f"], {words}" in note


def test_with_few_clusters_the_advantage_of_the_first_is_as_rough_as_ratings() -> None:
    """Three clusters: Student's t of 2 degrees of freedom."""
    rng = np.random.default_rng(6)
    i = rng.integers(0, 4, 240)
    j = (i + rng.integers(1, 4, 240)) % 4
    won = (rng.random(240) < special.expit(0.3)).astype(float)
    played = Contests.of(i, j, won, players=4, ordered=True)
    cluster = np.arange(240) // 80
    found = rank(replace(played, cluster=cluster, clusters=("p", "q", "r")), rng=0)
    middle = found.fit.parameters["position"]
    half = special.stdtrit(2, 0.975) * found.fit.parameter_std_errors["position"]
    at, low, high = (round(100 * special.expit(middle + x * half)) for x in (0, -1, 1))

    assert any(f"wins {at:.0f} % [{low:.0f}, {high:.0f}]" in note for note in found.notes)


def test_a_frame_whose_columns_are_numbers_is_read() -> None:
    frame = pd.DataFrame([["ant", "bee", "ant"], ["bee", "ant", "ant"]])
    found = rank(frame, columns={"first": "0", "second": "1", "winner": "2"}, rng=0)

    assert "ant" == found[0].player


def test_where_all_answers_are_ties_left_out_no_fit_is_judged() -> None:
    """The log loss of nothing was NaN, with a warning."""
    played = Contests.of([0, 1], [1, 0], 0.5, players=2)
    found = rank(played, options=ThurstoneOptions(ties="drop"), rng=0)

    assert found.goodness.predictive_fit is None
    assert "no comparisons: the ratings are the prior" in found.notes


def test_what_a_leaderboard_cannot_do_is_refused() -> None:
    """A rating without an anchor, and style of votes without features, were ignored."""
    with pytest.raises(SelectionError, match="name it as anchor"):
        leaderboard(contests(20), anchor_rating=1200)
    with pytest.raises(SelectionError, match="read without features"):
        leaderboard(contests(20), style=["length"])


def test_a_leaderboard_says_of_a_category_that_its_ratings_rest_on_a_prior() -> None:
    played = contests(200)
    kind = np.where((played.first == 0) & (played.outcome == 1) & (played.second > 1), 1, 0)
    played = replace(played, category=kind, categories=("talk", "code"))
    board = leaderboard(played, category="kind", rng=0)

    assert any(note.startswith("category code: ada won every comparison") for note in board.notes)


def test_unknown_names_are_refused_with_the_closest() -> None:
    given = contests()
    for wrong, words in (
        ({"model": "bradley-tery"}, "no ranking model is called 'bradley-tery'"),
        ({"estimator": "epp"}, "no estimator of thurstone is called 'epp'"),
        ({"scale": "logit"}, "no scale is called 'logit'"),
        ({"confidence_level": 95}, "confidence_level is 95: give one between 0 and 1"),
        (
            {"options": ThurstoneOptions(), "model": "bradley-terry"},
            "ThurstoneOptions are not the options of bradley-terry auto: give MlOptions",
        ),
        ({"columns": {"first": "a"}}, "only files and frames have columns"),
    ):
        with pytest.raises(SelectionError, match=words):
            rank(given, **wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DesignError, match="never compared"):
        rank(Contests.of([0], [1], [1], players=3), model="bradley-terry")


def test_two_players_and_one_undefeated_have_finite_rows() -> None:
    found = rank(Contests.of([0, 0, 0], [1, 1, 1], [1, 1, 1]), model="bradley-terry", rng=0)

    assert [(1, 2), (1, 2)] == [(row.rank_low, row.rank_high) for row in found]
    assert any("won every comparison" in note for note in found.notes)
    json.dumps(found.to_dict(), allow_nan=False)
    prior = rank(
        Contests(
            players=("x", "y"),
            first=np.zeros(0, np.int64),
            second=np.zeros(0, np.int64),
            outcome=np.zeros(0),
            weight=np.zeros(0),
        ),
        model="thurstone",
        estimator="ep",
        rng=0,
    )
    assert [0, 0] == [row.n_contests for row in prior]
    assert prior[0].prob_best == pytest.approx(0.5, abs=0.05)


def test_a_note_says_if_intervals_ignore_clusters() -> None:
    """Where there are several comparisons on an item, and only then."""
    made = contests(60)
    names = tuple("abcdef")
    together = replace(made, cluster=np.arange(60) // 10, clusters=names)
    alone = replace(made, cluster=np.arange(60), clusters=tuple(map(str, range(60))))
    chosen = [("bradley-terry", "ml"), ("thurstone", "ep")]
    said = {
        (by, c is alone): any(
            "too narrow" in n for n in rank(c, model=m, estimator=by, rng=0).notes
        )
        for c in (together, alone)
        for m, by in chosen
    }

    assert {key for key, value in said.items() if value} == {("ep", False)}


def test_a_ranking_is_printed_without_its_arrays() -> None:
    assert repr(rank(contests(30), rng=0)) == "<Ranking: 5 × RankedPlayer>"


def test_the_stored_study_of_tournaments_supports_the_documentation():
    """Intervals of differences, ranges of ranks and slopes; the control must fail."""
    file = Path(__file__).parents[2] / "fixtures" / "validation" / "ranking_tournaments.json"
    study = json.loads(file.read_text(encoding="utf-8"))
    differences = np.array([row["differences"] for row in study["tournaments"]])

    assert len(differences) >= 100
    assert abs(differences.mean() - 0.95) < 0.008
    assert differences.min() >= 0.92
    assert np.quantile(differences, 0.01) >= 0.925
    assert np.mean([row["ranks"] for row in study["tournaments"]]) >= 0.95
    assert np.mean([row["differences"] for row in study["control"]]) < 0.85
    assert sum(row["unconnected"] for row in study["tournaments"]) >= 5
    assert all(0.97 <= row["slope"] <= 1.03 for row in study["slopes"])
    assert 5 == len(study["slopes"])


def test_comparisons_on_one_item_say_nothing_of_others() -> None:
    """No clusters can be made of one, and no other model makes them."""
    of_one = replace(contests(), cluster=np.zeros(300, dtype=np.int64), clusters=("q",))
    notes = rank(of_one, model="bradley-terry", rng=0).notes
    assert "all comparisons are on one item: nothing is known of others" in notes
    assert not any("independent" in note for note in notes)
