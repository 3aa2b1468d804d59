"""Figures of 2, 8 and 40 models with names that hurt: all whole, none over another."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from drawn_figures import Drawn, comparisons, intervals, names

from evalstats_plugin import ResponseMatrix, pool, rank
from evalstats_plugin.comparisons.planning.power import power_curve
from evalstats_plugin.irt.rows import Abilities, Ability, ItemEstimate
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.abilities import (
    plot_ability_score,
    plot_information,
    plot_item_curves,
    plot_item_fit,
    plot_wright_map,
)
from evalstats_plugin.report.figures.comparisons import (
    plot_comparison_matrix,
    plot_differences,
    plot_power,
    plot_ranks,
)
from evalstats_plugin.report.figures.scores import plot_forest, plot_variance_parts
from evalstats_plugin.scores import variance_parts

pytest.importorskip("matplotlib")


def _matrix(n: int, *, epochs: int = 1) -> ResponseMatrix:
    rng = np.random.default_rng(n)
    shares = np.linspace(0.25, 0.75, n)[:, None] + rng.uniform(-0.2, 0.2, 24)
    scores = (rng.random((n, 24, epochs)) < shares[..., None]).astype(float)
    tasks = np.repeat(["maths $x_1$", "reading"], 12).tolist()
    return ResponseMatrix.from_array(scores, models=names(n), tasks=tasks)


def _ranking(n: int) -> Any:
    rng = np.random.default_rng(n)
    a, b = np.repeat(np.triu_indices(n, 1), 4, axis=1)
    rating = np.linspace(1.5, -1.5, n)
    won = rng.random(len(a)) < 1 / (1 + np.exp(rating[b] - rating[a]))
    return rank(
        Contests.of(a, b, won.astype(float), players=names(n)), model="bradley-terry", rng=0
    )


def _fit(n: int, m: int = 30) -> Any:
    """As `fit_irt` gives it, without the work."""
    rng = np.random.default_rng(n)
    ability = np.sort(rng.normal(0, 1, n))
    return SimpleNamespace(
        models=tuple(names(n)), ability=ability, item_model="2pl", endless=np.zeros(n, dtype=bool),
        limits=lambda _: (ability - 0.8, ability + 0.8),
        ability_std_error=np.full(n, 0.4), difficulty=rng.normal(0, 1.3, m), estimator="mml",
        discrimination=np.full(m, 1.2), intercept=-1.2 * rng.normal(0, 1.3, m), hyperparameters={},
        guessing=np.zeros(m), upper=np.ones(m),
        item_ids=np.array([f"item_$x_{j}$" for j in range(m)]),
    )  # fmt: skip


def _abilities(n: int) -> Abilities:
    same = {
        "task": "a, b", "metric": "acc", "n_items": 9, "n_models": n, "score": 0.5,
        "std_error": 0.3, "confidence_level": 0.95, "item_model": "2pl", "estimator": "mml",
        "scale": "",
    }  # fmt: skip
    level = np.linspace(2, -2, n).tolist()
    rows = [
        Ability(model=name, estimate=x, low=x - 0.6, high=x + 0.6, **same)
        for name, x in zip(names(n), level, strict=True)
    ]
    items = [
        ItemEstimate(
            item=f"{name} {k}", task="a", metric="acc", n_models=n, score=0.5, difficulty=0.0,
            difficulty_std_error=None, discrimination=1.0, discrimination_std_error=None,
            guessing=None, upper=None, infit=1 + 0.01 * k,
            outfit=None if k == 3 else 1.2 + 0.01 * (k % 3), item_rest=0.1,
            notes=("odd",) if k < 25 else (),
        )
        for k, name in enumerate(names(40))
    ]  # fmt: skip
    return Abilities(tuple(rows), items=tuple(items))


def _hierarchical(n: int) -> Any:
    return pool(_matrix(n), "per-task", rng=0)


OF_MODELS: dict[str, Callable[[int], Any]] = {
    "forest": lambda n: plot_forest(intervals(n)),
    "forest of abilities": lambda n: plot_forest(_abilities(n)),
    "forest of a ranking": lambda n: plot_forest(_ranking(n)),
    "forest with arrows": lambda n: plot_forest(_hierarchical(n)),
    "matrix": lambda n: plot_comparison_matrix(comparisons(n, missing=n > 2)),
    "matrix of a ranking": lambda n: plot_comparison_matrix(_ranking(n)),
    "differences": lambda n: plot_differences(comparisons(n, missing=True) if n < 9 else _some(n)),
    "ranks": lambda n: plot_ranks(comparisons(n)),
    "ranks of a ranking": lambda n: plot_ranks(_ranking(n)),
    "variance parts": lambda n: plot_variance_parts(variance_parts(_matrix(n, epochs=3))),
    "wright": lambda n: plot_wright_map(_fit(n)),
    "abilities against scores": lambda n: plot_ability_score(_abilities(n)),
}
"""Those that name every model."""

SIZES = (2, 8, 40)
WHOLE = (
    "forest", "matrix", "differences", "ranks of a ranking", "variance parts", "wright",
)  # fmt: skip
"""Looked at in all sizes; the others are built of the same parts."""

OTHERS: dict[str, Callable[[], Any]] = {
    "curves": lambda: plot_item_curves(_fit(8)),
    "information": lambda: plot_information(_fit(8)),
    "item fit": lambda: plot_item_fit(_abilities(3)),
    "power of few pairs": lambda: plot_power(power_curve(_matrix(3), difference=0.2)),
    "power of many pairs": lambda: plot_power(power_curve(_matrix(6), at=[20, 50, 100, 200])),
}


def _some(n: int) -> Any:
    return comparisons(n, baseline=True)


def _check(drawn: Drawn) -> None:
    assert [] == drawn.overlapping()
    assert [] == drawn.cut()
    assert 7 <= min(text.get_fontsize() for text in drawn.artists)
    assert not any(text.get_parse_math() for text in drawn.artists if "$" in text.get_text())


@pytest.mark.parametrize(
    ("kind", "n"),
    [(kind, n) for kind in OF_MODELS for n in (SIZES if kind in WHOLE else SIZES[1:2])],
)
def test_every_name_is_whole_and_none_covers_another(kind: str, n: int) -> None:
    """By the boxes that the renderer gives them; nothing smaller than 7 points."""
    drawn = Drawn(OF_MODELS[kind](n))

    _check(drawn)
    assert [] == [name for name in names(n) if not drawn.has(name)]


@pytest.mark.parametrize("kind", OTHERS)
def test_figures_of_items_and_power_read_as_well(kind: str) -> None:
    """Those that name no model, or a few."""
    _check(Drawn(OTHERS[kind]()))


def test_a_figure_too_small_is_found_out() -> None:
    """The look at boxes would see names that cover one another, or that are cut."""
    axes = plot_forest(intervals(8), ax=canvas.new_figure(9, 1.2).add_subplot())
    small = Drawn(axes)

    assert len(small.overlapping()) > 5

    narrow = canvas.new_figure(9, 5)
    narrow.set_layout_engine("none")

    assert Drawn(plot_forest(intervals(8), ax=narrow.add_subplot())).cut()
