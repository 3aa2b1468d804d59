"""Interpolated curves are the curves."""

from __future__ import annotations

import math

import pytest
import torch

from evalstats_plugin.irt.estimators.grid import coarse, even_nodes, fitting_nodes
from evalstats_plugin.irt.model.curves import Items, log_odds_and_wrong

NODES = torch.linspace(-6.5, 6.5, 651, dtype=torch.float64)


@pytest.mark.parametrize("steepest", [0.5, 2.0, 6.0, 25.0])
@pytest.mark.parametrize("guess", [None, -1.5])
def test_log_probabilities_are_those_at_the_nodes(steepest: float, guess: float | None):
    generator = torch.Generator().manual_seed(3)
    slope = steepest * torch.rand(200, generator=generator, dtype=torch.float64)
    slope[0] = -steepest
    lower = None if guess is None else torch.full_like(slope, guess)
    items = Items(slope, 3 * torch.randn(200, generator=generator, dtype=torch.float64), lower)
    nodes = NODES + 1.7
    few = coarse(items, nodes)
    for at_few, at_nodes in zip(
        log_odds_and_wrong(items, few.at), log_odds_and_wrong(items, nodes), strict=True
    ):
        torch.testing.assert_close(few.spread(at_few), at_nodes, atol=2e-8, rtol=0)


@pytest.mark.parametrize(("steepest", "polynomials"), [(1.0, 48), (2.77, 125), (6.0, 267)])
def test_fewer_points_than_polynomials_need_are_as_exact(steepest: float, polynomials: int):
    """Of polynomials the number is 2 + ln 1e10 / ln ρ; what the M-step sums is less smooth."""
    at = torch.linspace(-6, 6, 1201, dtype=torch.float64)
    intercept = steepest * torch.linspace(-6, 6, 101, dtype=torch.float64)
    items = Items(torch.full_like(intercept, steepest), intercept)
    few = coarse(items, at)

    def summed(where: torch.Tensor) -> tuple[torch.Tensor, ...]:
        right = torch.sigmoid(steepest * where + intercept[:, None])
        return right, right * where, right * (1 - right) * where**2

    assert 0.7 * polynomials <= len(few.at) <= 0.87 * polynomials
    for at_few, at_nodes in zip(summed(few.at), summed(at), strict=True):
        torch.testing.assert_close(few.spread(at_few), at_nodes, atol=5e-9, rtol=0)


def test_weights_gathered_sum_the_same():
    items = Items(
        torch.tensor([1.3], dtype=torch.float64), torch.tensor([0.2], dtype=torch.float64)
    )
    few = coarse(items, NODES)
    weights = torch.rand(4, len(NODES), dtype=torch.float64)
    values = log_odds_and_wrong(items, NODES)[1][0]

    assert 2 * len(few.at) <= len(NODES)
    torch.testing.assert_close(
        few.gather(weights) @ log_odds_and_wrong(items, few.at)[1][0], weights @ values
    )


def test_nodes_are_kept_where_interpolation_saves_little():
    steep = Items(torch.tensor([25.0]), torch.tensor([0.0]))

    assert coarse(steep, NODES).at is NODES
    assert len(coarse(steep, NODES[::20]).at) == 33


@pytest.mark.parametrize("side", [-1, 1])
def test_nodes_reach_beyond_the_outermost_model_and_are_close_enough(side: int):
    """Six standard deviations and two to spare, which may be used up before nodes move."""
    like = torch.zeros(1, dtype=torch.float64)

    def suited(mean: float, sd: float, count: int = 121) -> torch.Tensor | None:
        """Nodes for a model there and one of the same error in the middle; None for [-6, 6]."""
        found = fitting_nodes(
            even_nodes(-6, 6, count, like),
            torch.tensor([0.0, side * mean]).double(),
            torch.tensor([sd, sd]).double(),
        )
        return None if found is None else found.at

    assert suited(5.59, 0.1) is None
    assert suited(3.0, 0.1, 62) is None
    assert suited(3.0, 0.1, 60) is not None
    assert suited(0.0, 1e-5, 2001) is None
    for mean, sd in ((5.61, 0.1), (9.0, 0.3), (30.0, 0.2), (2.0, 0.01), (1.0, 0.001)):
        at = suited(mean, sd)
        reach = min(mean + 6 * sd, 12.0) + 2 * sd
        assert at is not None
        assert float(at[-1]) == -float(at[0]) == pytest.approx(reach)
        count = max(math.ceil(2 * reach / (1.5 * sd) - 1e-9) + 1, 61)
        assert len(at) == min(count + (count % 2 == 0), 2001)
