"""Fewer columns that stand for many: curves at a hundred points span a few dozen dimensions."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

ACCURACY = 1e-12
"""What is left out, as a share of all (Frobenius norms)."""
_FEWEST = 32
"""Columns from which on finding out takes less time than it can save."""


def narrowed(columns: Tensor) -> tuple[Tensor, Tensor | None]:
    """Columns U (M, r) and V (r, k) with U V = `columns` (M, k); None for V where nothing is saved.

    The directions left out are those of the smallest singular values. V has orthonormal rows: in
    ``(cells @ U) @ V`` no error grows.

    >>> wide = torch.rand(500, 2, dtype=torch.float64) @ torch.rand(2, 90, dtype=torch.float64)
    >>> few, back = narrowed(wide)
    >>> few.shape[1], torch.allclose(few @ back, wide)
    (2, True)
    """
    m, k = columns.shape
    # In single precision the small directions are but rounding.
    if k < _FEWEST or m < 2 * k or columns.dtype != torch.float64:
        return columns, None
    # Of the triangle the singular values are those of the columns themselves, to the last digit:
    # of their products with one another half of the digits would be lost.
    triangle = torch.linalg.qr(columns, mode="r")[1]
    _, size, directions = torch.linalg.svd(triangle)
    left_out = size.square().flip(0).cumsum(0).flip(0).sqrt()
    rank = int((left_out > ACCURACY * left_out[0]).sum())
    if 4 * rank > 3 * k:
        return columns, None
    back = directions[: max(rank, 1)]
    return columns @ back.T, back
