"""`evalstats_plugin.ranking.judging.standing`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, count, islice

import numpy as np
import pytest

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.ranking.judging.session import Answer
from evalstats_plugin.ranking.judging.standing import GOALS, RECENT, Goal, Standing
from evalstats_plugin.ranking.next import RULES


def _answers(n: int, m: int, seed: int = 0) -> list[Answer]:
    """Answers on items whose truth is their place, the first the best."""
    rng = np.random.default_rng(seed)
    truth = np.linspace(1.5, -1.5, n)
    pairs = [rng.choice(n, 2, replace=False) for _ in range(m)]
    return [
        Answer(first=int(i), second=int(j), outcome=float(truth[i] - truth[j] + rng.normal() > 0))
        for i, j in pairs
    ]


def test_one_answer_gives_the_exact_posterior() -> None:
    """Three items, the first beat the second: means, variances and P(best) by quadrature."""
    # 80³ Gauss–Hermite points for the moments, a 241³ grid for P(best).
    standing = Standing(3, 1.0, seed=1)
    standing.update([Answer(first=0, second=1, outcome=1.0, placed=False)])
    ranking = standing.ranking()

    assert [0.460658866, -0.460658866, 0.0] == pytest.approx(ranking.rating.tolist(), abs=1e-5)
    assert [0.787793409, 0.787793409, 1.0] == pytest.approx(
        (ranking.std_error**2).tolist(), abs=1e-5
    )
    # Draws of a normal in the place of the skewed posterior: 2,000 of them, .011 apart each.
    assert [0.5523, 0.1144, 0.3333] == pytest.approx(ranking.prob_best.tolist(), abs=0.035)
    assert 1.0 == pytest.approx(ranking.prob_best.sum())


def test_the_best_item_has_rank_1() -> None:
    """The best item has rank 1; ranks add up to those of n items."""
    standing = Standing(6, 4.0, seed=1)
    standing.update(_answers(6, 300))
    ranking = standing.ranking(0.9)

    assert [0, 1, 2, 3, 4, 5] == ranking.order.tolist()
    assert ranking.expected_rank[0] < 1.6
    assert 21 == pytest.approx(ranking.expected_rank.sum())
    assert ((ranking.low < ranking.rating) & (ranking.rating < ranking.high)).all()
    wide = standing.ranking(0.99)
    assert (wide.high - wide.low > ranking.high - ranking.low).all()


def test_certainty_grows_from_a_half() -> None:
    """Of the order from ½, of the best from 1/n."""
    standing = Standing(5, 4.0, seed=1)
    none = standing.ranking()
    standing.update(_answers(5, 200))
    much = standing.ranking()

    assert 0.5 == none.certainty("order")
    assert 0.2 == pytest.approx(none.certainty("best"), abs=0.05)
    assert much.certainty("order") > 0.9
    assert much.certainty("best") > 0.9


def test_updates_one_by_one_agree_with_a_full_fit() -> None:
    """Whatever the way, the posterior is that of the answers in force."""
    answers = _answers(8, 40)
    one_by_one, at_once, there_and_back = (Standing(8, 1.0, seed=1) for _ in range(3))
    for k in range(1, 31):
        one_by_one.update(answers[:k])
    at_once.update(answers[:30])
    there_and_back.update(answers)
    for k in range(39, 29, -1):
        there_and_back.update(answers[:k])
    fewer = Standing(8, 1.0, seed=1)
    fewer.update(answers[:29])

    for other in (one_by_one, there_and_back):
        assert at_once.ranking().rating.tolist() == pytest.approx(
            other.ranking().rating.tolist(), abs=1e-4
        )
    assert np.abs(fewer.ranking().rating - at_once.ranking().rating).max() > 1e-2


def test_undoing_all_answers_gives_the_prior() -> None:
    """Also with ties and answers that count twice."""
    answers = [
        Answer(first=0, second=1, outcome=0.5),
        Answer(first=2, second=1, outcome=1.0, more={"weight": 2}),
    ]
    standing = Standing(3, 2.0, seed=1)
    standing.update(answers)
    twice = standing.ranking()
    standing.update(answers[:1])
    standing.update([])
    ranking = standing.ranking()

    assert [0.0] * 3 == pytest.approx(ranking.rating.tolist(), abs=1e-9)
    assert [2.0] * 3 == pytest.approx((ranking.std_error**2).tolist(), abs=1e-9)
    assert twice.rating[2] > 0.5 > twice.rating[0]


def test_each_of_a_pair_is_shown_first_in_turn() -> None:
    """The first time at random; of several pairs no item is first much more often than second."""
    first = {Standing(2, 1.0, seed=seed).choose("order")[0].first for seed in range(20)}
    standing = Standing(4, 1.0, seed=1)
    given: list[Answer] = []
    for _ in range(60):
        [pair] = standing.choose("random")
        given.append(Answer(first=pair.first, second=pair.second, outcome=1.0))
        standing.update(given)
    ahead = np.zeros((4, 4))
    np.add.at(ahead, tuple(np.transpose([(a.first, a.second) for a in given])), 1)

    assert {0, 1} == first
    assert np.abs(ahead - ahead.T).max() <= 1
    assert np.abs(ahead.sum(axis=0) - ahead.sum(axis=1)).max() <= 3


def test_pairs_that_wait_for_an_answer_are_not_chosen() -> None:
    """Neither way round; and what they will tell is allowed for."""
    standing = Standing(3, 1.0, seed=1)
    [pair] = standing.choose("order", waiting=[(0, 1), (2, 1)])

    assert {0, 2} == {pair.first, pair.second}
    assert [] == standing.choose("order", waiting=[(0, 1), (2, 1), (0, 2)])


def test_the_advantage_of_the_first_is_estimated() -> None:
    """Ratings allow for it: their limits hold the truth. How often: see tests/validation."""
    rng, truth = np.random.default_rng(4), np.linspace(1.5, -1.5, 6)
    standing, given = Standing(6, 1.0, seed=1), list[Answer]()
    while len(given) < 150:
        for pair in standing.choose("random", 10):
            d = truth[pair.first] - truth[pair.second] + 1.5
            won = float(d + rng.normal() > 0)
            given.append(Answer(first=pair.first, second=pair.second, outcome=won))
        standing.update(given)
    found, position = standing.ranking(), standing.position

    assert position is not None
    assert abs(position[0] - 1.5) < 3 * position[1] < 1
    assert ((found.low < truth) & (truth < found.high)).sum() >= 5
    standing.update([replace(answer, placed=False) for answer in given])
    assert standing.position is None


def test_a_pair_is_not_shown_again_at_once_nor_after_a_skip() -> None:
    """And none is left once all were skipped."""
    standing = Standing(4, 1.0, seed=1)
    given: list[Answer] = []
    for _ in range(12):
        [pair] = standing.choose("order")
        given.append(Answer(first=pair.first, second=pair.second, outcome=1.0))
        standing.update(given)
    windows = [given[k : k + RECENT + 1] for k in range(len(given) - RECENT)]
    skipped = [Answer(first=i, second=j, outcome=None) for i, j in combinations(range(4), 2)]

    assert all(RECENT + 1 == len({a.pair for a in window}) for window in windows)
    assert {skipped[5].pair} == {
        frozenset(p[:2]) for p in standing.choose("random", 9, skipped[:5])
    }
    assert [] == standing.choose("order", skipped=skipped)


def test_several_pairs_are_all_different() -> None:
    """As many as there are."""
    standing = Standing(4, 1.0, seed=1)
    standing.update([Answer(first=0, second=1, outcome=1.0)])

    assert 6 == len({frozenset(pair[:2]) for pair in standing.choose("order", 10)})


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_can_be_used(rule: str) -> None:
    """With answers and without."""
    standing = Standing(5, 1.0, seed=1)
    before = standing.choose(rule)
    standing.update(_answers(5, 7))

    assert [1, 2] == [len(before), len(standing.choose(rule, 2))]


@pytest.mark.parametrize("rule", ["random", "thompson"])
def test_of_hundreds_of_items_no_more_pairs_are_chosen_than_are_looked_at(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More were refused, although most pairs of the 200 items were left."""
    monkeypatch.setattr("evalstats_plugin.ranking.judging.standing.SUBSET", 16)
    chosen = Standing(200, 1.0, seed=0).choose(rule, 300)

    assert 120 == len({frozenset(pair[:2]) for pair in chosen})


def test_goals_are_checked() -> None:
    """Each has the rule that gets there soonest; others get the closest names."""
    assert {"order": "order", "best": "thompson"} == {
        name: Goal.of(name, 0.9).rule for name in GOALS
    }
    assert Goal.of("best", 0.9, "order").rule == "order"
    for arguments in (("bst", 0.9), ("best", 1.0), ("best", 0.9, "ordr")):
        with pytest.raises(SelectionError, match=r"did you mean|between 0 and 1"):
            Goal.of(*arguments)


def test_an_answer_takes_less_than_a_tenth_of_a_second(within: Callable[..., None]) -> None:
    """100 items and 1,000 answers: the next pair is there, on average, in 15 ms of CPU."""
    answers = _answers(100, 1200)
    standing = Standing(100, 1.0, seed=1)
    standing.update(answers[:1000])
    known = count(1001)

    def ten_answers() -> None:
        for k in islice(known, 10):
            standing.update(answers[:k])
            standing.choose("order")

    within(10 * 0.033, ten_answers)
