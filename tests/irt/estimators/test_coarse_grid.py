"""Interpolated curves are the curves."""

from __future__ import annotations

import pytest
import torch

from evalstats_plugin.irt.estimators.grid import coarse
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
    few = coarse(items, NODES)
    for at_few, at_nodes in zip(
        log_odds_and_wrong(items, few.at), log_odds_and_wrong(items, NODES), strict=True
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
