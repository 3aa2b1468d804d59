"""The order of models in words."""

from __future__ import annotations

import numpy as np

from evalstats_plugin import ResponseMatrix, compare
from evalstats_plugin.report.comparisons import order_line


def _rows(ability: list[float], n_items: int = 200, **more: object) -> list[object]:
    rng = np.random.default_rng(1)
    scores = (rng.random((len(ability), n_items)) < np.array(ability)[:, None]).astype(float)
    models = [chr(ord("p") + i) for i in range(len(ability))]
    return list(compare(ResponseMatrix.from_array(scores, models=models), **more))  # pyright: ignore[reportArgumentType]


def test_the_order_and_who_may_be_the_best_are_said() -> None:
    """Two that are alike at the top, one far below."""
    expected = (
        "In order, with letters: p (a), r (a), q (b). Models that share a letter cannot be told "
        "apart. May be the best: p, r."
    )

    assert expected == order_line(_rows([0.85, 0.2, 0.85]))  # pyright: ignore[reportArgumentType]


def test_nothing_is_said_without_every_pair_of_a_few_models() -> None:
    """Two models have a verdict, a baseline no order, and nobody reads an order of forty."""
    assert "" == order_line(_rows([0.2, 0.8]))  # pyright: ignore[reportArgumentType]
    assert "" == order_line(_rows([0.2, 0.8, 0.9], baseline="p"))  # pyright: ignore[reportArgumentType]
    assert "" == order_line(_rows([0.5] * 40, 10))  # pyright: ignore[reportArgumentType]
