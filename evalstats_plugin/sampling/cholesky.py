"""Cholesky factors for loops that are not to wait for a device."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import torch
from torch import Tensor


def cholesky(matrix: Tensor) -> Tensor:
    """Lower factors of matrices (..., n, n); NaN of those that are not positive definite.

    ``torch.linalg.cholesky`` raises an error there, for which the host must wait for the device.

    >>> cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    >>> cholesky(-torch.eye(1))
    tensor([[nan]])
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return factor.masked_fill((failed != 0)[..., None, None], torch.nan)
