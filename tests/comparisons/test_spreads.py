"""What a pilot tells of the spread of differences: every number by its definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import evalstats_plugin as es
from evalstats_plugin.comparisons.planning.spreads import (
    at_quantile,
    over_tasks,
    spreads,
    with_design_effect,
)
from evalstats_plugin.data.matrix import ResponseMatrix

CLUSTERS = np.arange(30) // 3


def _scores(kind: str, epochs: int) -> np.ndarray:
    rng = np.random.default_rng(4)
    ability = np.array([0.3, 0.5, 0.8])[:, None, None]
    item = rng.normal(0, 0.2, (1, 30, 1)) + np.repeat(rng.normal(0, 0.2, 10), 3)[None, :, None]
    level = np.clip(ability + item, 0.05, 0.95)
    if kind == "right":
        return (rng.random((3, 30, epochs)) < level).astype(float)
    return np.clip(level + rng.normal(0, 0.1, (3, 30, epochs)), 0, 1)


def _freedom(units: np.ndarray) -> float:
    """By the kurtosis of units with mean 0, at most that of normal ones."""
    n = len(units)
    kurtosis = n * (units**4).sum() / (units**2).sum() ** 2
    return max(2 * (n - 1) / max(kurtosis - 1, 2), 1.0)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("kind", ["right", "partial"])
def test_a_pilots_spread(kind: str, epochs: int, *, clustered: bool) -> None:
    """Of pairs on the same items, and of models on items of their own."""
    scores = _scores(kind, epochs)
    matrix = ResponseMatrix.from_array(
        scores, clusters=[f"c{k}" for k in CLUSTERS] if clustered else None
    )
    [paired], _ = spreads(matrix.to_responses(), paired=True)
    [apart], _ = spreads(matrix.to_responses(), paired=False)
    means = scores.mean(axis=2)
    noise = scores.var(axis=2, ddof=1) if epochs > 1 else np.full((3, 30), np.nan)

    def inflation(x: np.ndarray) -> float:
        if not clustered:
            return 1.0
        sums = np.bincount(CLUSTERS, x - x.mean())
        squared = (sums**2).sum() / 30**2 * 10 / 9
        return max(float(squared / (x.var(ddof=1) / 30)), 1.0)

    def units(x: np.ndarray) -> np.ndarray:
        return np.bincount(CLUSTERS, x - x.mean()) if clustered else x - x.mean()

    of_model = []
    for k in range(3):
        own = means[k].var(ddof=1) * inflation(means[k])
        of_model.append((own, _freedom(units(means[k]))))
    for k, (a, b) in enumerate(zip(paired.a.tolist(), paired.b.tolist(), strict=True)):
        d = means[b] - means[a]
        within = (noise[a] + noise[b]).mean()
        total = inflation(d) * d.var(ddof=1)
        expected: dict[str, Any] = {
            "between": total - np.nan_to_num(within) / epochs,
            "within": within,
            "design_effect": inflation(d),
            "mean": d.mean(),
            "freedom": _freedom(units(d)),
            "n_items": 30,
            "discordance": (means[a] + means[b] - 2 * means[a] * means[b]).mean()
            if kind == "right"
            else np.nan,
        }
        for name, value in expected.items():
            assert getattr(paired, name)[k] == pytest.approx(value, nan_ok=True), name
        (of_a, freedom_a), (of_b, freedom_b) = of_model[a], of_model[b]
        plain = means[a].var(ddof=1) + means[b].var(ddof=1)
        separate = {
            "between": of_a + of_b - np.nan_to_num(within) / epochs,
            "within": within,
            "design_effect": (of_a + of_b) / plain,
            "mean": d.mean(),
            "freedom": (of_a + of_b) ** 2 / (of_a**2 / freedom_a + of_b**2 / freedom_b),
            "n_items": 30,
            "discordance": np.nan,
        }
        for name, value in separate.items():
            assert getattr(apart, name)[k] == pytest.approx(value, nan_ok=True), name
    assert (paired.n_epochs, paired.bounded, paired.n_tasks) == (epochs, 1.0, 1)
    assert paired.pilots is not None
    assert apart.pilots is None
    assert [one.clustered for one in paired.pilots] == [clustered] * 3


def test_scores_that_do_not_vary_have_no_design_effect() -> None:
    """As many degrees of freedom as items, which say nothing of a variance of 0."""
    matrix = ResponseMatrix.from_array(np.full((2, 12, 1), 0.5))
    [apart], _ = spreads(matrix.to_responses(), paired=False)
    assert (apart.between, apart.design_effect, apart.freedom) == (0.0, 1.0, 12.0)


@pytest.mark.parametrize(
    ("scale", "binary"), [(None, True), (es.Scale(0, 1), True), (es.Scale(0, 100), False)]
)
def test_points_that_are_all_0_or_1_are_no_right_answers(scale, binary):
    """Of 100 points, 1 is no right answer."""
    [plain], _ = spreads(
        [
            replace(r, measure=replace(r.measure, scale=scale))
            for r in ResponseMatrix.from_array(_scores("right", 1)).to_responses()
        ],
        paired=True,
    )
    assert np.isnan(plain.discordance).tolist() == [not binary] * 3


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_quantile_of_the_truth_is_that_of_its_error(share: float, epochs: int) -> None:
    """χ² of a variance, Clopper and Pearson's limit of a discordance; noise is known."""
    matrix = ResponseMatrix.from_array(_scores("right", epochs))
    [plain], _ = spreads(matrix.to_responses(), paired=True)
    found = at_quantile(plain, share)
    noise = np.nan_to_num(plain.within) / epochs
    factor = plain.freedom / stats.chi2.ppf(1 - share, plain.freedom)
    total = np.maximum(plain.between, 0) + noise
    successes = 30 * plain.discordance
    limit = stats.beta.ppf(
        share,
        successes + (share > 0.5),
        30 - successes + (share <= 0.5),
    )

    assert found.between == pytest.approx(np.maximum(factor * total - noise, 0))
    assert found.discordance == pytest.approx(limit)
    assert found.design_effect.tolist() == [1.0] * 3
    clustered = at_quantile(with_design_effect(plain, 2.0), share)
    assert clustered.design_effect == pytest.approx(2 * factor)
    assert clustered.discordance == pytest.approx(plain.discordance)
    pilot = spreads(ResponseMatrix.from_array(_scores("partial", 1)).to_responses(), paired=True)[0]
    moved = at_quantile(pilot[0], share)
    assert moved.pilots is not None
    assert [one.spread**2 for one in moved.pilots] == pytest.approx(
        list(moved.between / pilot[0].between)
    )


def test_another_design_effect_multiplies_the_whole_variance() -> None:
    """That of the items and of the epochs together; the pilot holds for no clusters alone."""
    [plain], _ = spreads(
        ResponseMatrix.from_array(_scores("partial", 3)).to_responses(), paired=True
    )
    twice = with_design_effect(plain, 2.0)
    noise = plain.within / 3

    assert twice.between + noise == pytest.approx(2 * (plain.between + noise))
    assert twice.pilots is None


def test_spreads_of_tasks_are_joined() -> None:
    """Fixed tasks share the items; of random ones the variance between them is what is left."""
    rng = np.random.default_rng(0)
    every = [_scores("partial", 2) + 0.05 * rng.normal(size=(3, 1, 1)) for _ in range(4)]
    some = [
        r.measured(task=str(k))
        for k, scores in enumerate(every)
        for r in ResponseMatrix.from_array(scores).to_responses()
    ]
    alone, _ = spreads(some, paired=True)
    [fixed] = over_tasks(alone, "fixed")
    [random] = over_tasks(alone, "random")
    item = np.array([np.maximum(s.between, 0) + s.within / 2 for s in alone])
    freedom = np.array([s.freedom for s in alone])
    mean = np.array([s.mean for s in alone])

    assert fixed.between == pytest.approx(
        np.mean([np.maximum(s.between, 0) for s in alone], axis=0) / 4
    )
    assert fixed.within == pytest.approx(np.mean([s.within for s in alone], axis=0) / 4)
    assert fixed.freedom == pytest.approx(item.sum(axis=0) ** 2 / (item**2 / freedom).sum(axis=0))
    assert fixed.mean == pytest.approx(mean.mean(axis=0))
    assert (fixed.n_tasks, fixed.n_epochs) == (4, 2)
    between = mean.var(axis=0, ddof=1) - (item / 30).mean(axis=0)
    assert random.between == pytest.approx(np.maximum(between, 0))
    assert random.within == pytest.approx(item.mean(axis=0))
    assert random.freedom.tolist() == [3.0] * 3
    assert (random.n_tasks, random.n_epochs) == (4, 30)
