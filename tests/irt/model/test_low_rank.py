"""Curves at many points by a few columns."""

from __future__ import annotations

import pytest
import torch

from evalstats_plugin.irt.model.stored import ACCURACY, low_rank


def curves(n_items: int, n_points: int) -> torch.Tensor:
    """Log-probabilities of wrong answers, as the E-step multiplies them."""
    draw = torch.Generator().manual_seed(0)
    slope, intercept = (torch.randn(n_items, 1, generator=draw).double() for _ in range(2))
    at = torch.linspace(-5, 5, n_points, dtype=torch.float64)
    return -torch.nn.functional.softplus((0.3 * slope).exp() * at + intercept)


def test_curves_need_half_of_the_columns_to_eleven_digits():
    whole = curves(3000, 97)
    few, back = low_rank(whole)

    assert back is not None
    assert few.shape[1] <= 48
    assert float((few @ back - whole).norm()) <= 2 * ACCURACY * float(whole.norm())
    # What is left out is not put on a few items.
    torch.testing.assert_close(few @ back, whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "columns",
    [
        torch.randn(500, 40, dtype=torch.float64),
        curves(3000, 12),
        curves(100, 60),
        curves(3000, 60).float(),
    ],
    ids=["of full rank", "few columns", "few items", "single precision"],
)
def test_where_nothing_is_saved_columns_stay(columns: torch.Tensor):
    few, back = low_rank(columns)

    assert back is None
    assert few is columns


def test_columns_of_nothing_are_one():
    few, back = low_rank(torch.zeros(400, 50, dtype=torch.float64))

    assert back is not None
    torch.testing.assert_close(few @ back, torch.zeros(400, 50, dtype=torch.float64))
