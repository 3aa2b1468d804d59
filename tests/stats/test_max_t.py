"""The largest of many statistics under common sign flips."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats import many


def every_pair(n):
    a, b = np.triu_indices(n, 1)
    return a.astype(np.int64), b.astype(np.int64)


def exact_step_down(differences):
    """All 2^M signs, and the largest statistic of every set of hypotheses that is left: by hand."""
    values = np.nan_to_num(differences) / np.sqrt(np.nansum(differences**2, axis=1))[:, None]
    signs = np.array(list(product([-1.0, 1.0], repeat=values.shape[1]))).T
    flipped, observed = np.abs(values @ signs), np.abs(values.sum(axis=1))
    order, p_values, worst = np.argsort(-observed), np.empty(len(values)), 0.0
    for i, pair in enumerate(order):
        share = np.mean(flipped[order[i:]].max(axis=0) >= observed[pair] - 1e-9)
        p_values[pair] = worst = max(worst, share)
    return p_values


@pytest.mark.parametrize("missing", [False, True])
def test_step_down_p_values_are_those_of_all_signs(missing):
    """2^9 assignments of signs listed, against 40,000 drawn: within four standard errors."""
    rng = np.random.default_rng(0)
    scores = rng.normal([[0], [0.5], [1.0], [2.0]], 1, (4, 9))
    if missing:
        scores[0, :2] = scores[2, 3] = np.nan
    a, b = every_pair(4)
    exact = exact_step_down(scores[b] - scores[a])
    found = many.max_t_of_pairs(scores, a, b, rng=rng, n_flips=40_000)

    assert np.all(np.abs(found - exact) <= 4 * np.sqrt(exact * (1 - exact) / 40_000) + 1e-4)
    assert exact.min() < 0.01
    assert exact.max() > 0.1


def test_pairs_in_blocks_are_as_all_at_once(monkeypatch):
    """However small the blocks; and from differences as from scores."""
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 2, (7, 40)).astype(float)
    a, b = every_pair(7)
    whole = many.max_t_of_pairs(scores, a, b, rng=np.random.default_rng(2), n_flips=999)
    by_differences = many.max_t_of_pairs(
        *many.against_zero(scores[b] - scores[a]), rng=np.random.default_rng(2), n_flips=999
    )
    monkeypatch.setattr(many, "BLOCK_SIZE", 300)
    blocks = many.max_t_of_pairs(scores, a, b, rng=np.random.default_rng(2), n_flips=999)

    assert np.array_equal(whole, blocks)
    assert whole == pytest.approx(by_differences, abs=1e-12)


def test_one_pair_needs_no_other_level():
    """Nothing to allow for: exactly the level asked for, whatever the flips."""
    scores = np.random.default_rng(0).normal(size=(2, 30))
    level = many.simultaneous_level(
        scores, *every_pair(2), confidence_level=0.9, rng=np.random.default_rng(0), n_flips=199
    )

    assert 0.9 == pytest.approx(level, abs=1e-12)


def test_the_level_knows_that_copies_are_one_comparison():
    """Ten times the same pair; where Šidák would allow for ten."""
    one = np.random.default_rng(1).normal(0.5, 1, (1, 30))
    units = many.against_zero(np.repeat(one, 10, axis=0))
    level = many.simultaneous_level(
        *units, confidence_level=0.95, rng=np.random.default_rng(0), n_flips=999
    )

    assert 0.95 == pytest.approx(level, abs=1e-12)
    assert many.sidak_level(0.95, 10) > 0.99


def test_the_level_of_independent_pairs_is_sidaks():
    """Ten pairs that share no model, of many items: within a tenth of what is left out."""
    scores = np.random.default_rng(2).normal(size=(20, 400))
    a = np.arange(0, 20, 2)
    level = many.simultaneous_level(
        scores, a, a + 1, confidence_level=0.95, rng=np.random.default_rng(0), n_flips=9999
    )
    expected = 1 - many.sidak_level(0.95, 10)

    assert expected == pytest.approx(1 - level, rel=0.1)


def test_the_level_agrees_with_tukeys_studentised_range():
    """All pairs of six models, normal scores, many items: Tukey's own critical value, exactly."""
    n_models, n_items = 6, 2000
    scores = np.random.default_rng(3).normal(size=(n_models, n_items))
    level = many.simultaneous_level(
        scores,
        *every_pair(n_models),
        confidence_level=0.95,
        rng=np.random.default_rng(0),
        n_flips=9999,
    )
    critical = stats.studentized_range.ppf(0.95, n_models, 1e6) / np.sqrt(2)
    expected = 2 * stats.norm.sf(critical)

    assert expected == pytest.approx(1 - level, rel=0.1)
    assert 1 - level > 1.1 * (1 - many.sidak_level(0.95, 15))


def test_the_level_never_leaves_bonferroni_and_none():
    """Between all and 1/P of the error: few items, twins, constant differences, missing scores."""
    rng = np.random.default_rng(5)
    cases = [
        rng.integers(0, 2, (5, 4)).astype(float),
        np.repeat(rng.integers(0, 2, (1, 20)).astype(float), 5, axis=0),
        np.arange(5.0)[:, None] * np.ones(6),
        np.where(rng.random((5, 12)) < 0.3, np.nan, rng.normal(size=(5, 12))),
    ]
    for scores in cases:
        level = many.simultaneous_level(
            scores, *every_pair(5), confidence_level=0.95, rng=rng, n_flips=199
        )

        assert 0.05 / 10 - 1e-12 <= 1 - level <= 0.05 + 1e-12


def test_the_same_generator_gives_the_same_bits():
    """To the last one."""
    scores = np.random.default_rng(0).normal(size=(5, 30))
    first, second = (
        many.simultaneous_level(
            scores, *every_pair(5), confidence_level=0.95, rng=np.random.default_rng(7), n_flips=99
        )
        for _ in range(2)
    )

    assert first == second


def test_pairs_without_items_stay_out():
    """NaN, and the others as without them."""
    scores = np.random.default_rng(0).normal([[0.0], [1.0], [0.5]], 1, (3, 20))
    scores[2] = np.nan
    a, b = every_pair(3)
    found = many.max_t_of_pairs(scores, a, b, rng=np.random.default_rng(1), n_flips=999)
    alone = many.max_t_of_pairs(
        *many.against_zero(scores[1:2] - scores[:1]), rng=np.random.default_rng(1), n_flips=999
    )

    assert np.isnan(found).tolist() == [False, True, True]
    assert found[0] == alone[0]
    assert len(list(combinations(range(3), 2))) == len(found)
