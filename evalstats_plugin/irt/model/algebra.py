"""Functions of PyTorch that its stubs leave untyped, with types; bases and inverses of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor

_torch: Any = torch

linalg = cast("_Linalg", torch.linalg)

# Share of the largest curvature below which the data do not tell a direction, and share of an
# item's parameter in such directions from which its errors are unknown.
_FLAT, _UNKNOWN = 1e-9, 1e-3


class _Linalg(Protocol):
    """What is used of ``torch.linalg``; matrices may have batch axes in front."""

    def cholesky(self, a: Tensor, /) -> Tensor: ...
    def cholesky_ex(self, a: Tensor, /) -> tuple[Tensor, Tensor]: ...
    def eigh(self, a: Tensor, /) -> tuple[Tensor, Tensor]: ...
    def inv(self, a: Tensor, /) -> Tensor: ...
    def inv_ex(self, a: Tensor, /) -> tuple[Tensor, Tensor]: ...
    def lstsq(self, a: Tensor, b: Tensor, /) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    def qr(
        self, a: Tensor, /, mode: Literal["reduced", "complete", "r"] = ...
    ) -> tuple[Tensor, Tensor]: ...
    def solve(self, a: Tensor, b: Tensor, /) -> Tensor: ...
    def solve_ex(self, a: Tensor, b: Tensor, /) -> tuple[Tensor, Tensor]: ...
    def solve_triangular(
        self, a: Tensor, b: Tensor, /, *, upper: bool, out: Tensor | None = None
    ) -> Tensor: ...
    def svd(self, a: Tensor, /, *, full_matrices: bool = ...) -> tuple[Tensor, Tensor, Tensor]: ...
    def vector_norm(
        self, x: Tensor, /, *, dim: int | None = None, keepdim: bool = False
    ) -> Tensor: ...


def on_host(numbers: Sequence[Tensor]) -> list[float]:
    """Numbers (scalar tensors), in one transfer from their device."""
    return _torch.stack(numbers).tolist()


def block_diagonal(*blocks: Tensor) -> Tensor:
    """``torch.block_diag``."""
    return _torch.block_diag(*blocks)


def split(whole: Tensor, size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """``torch.split``."""
    return _torch.split(whole, size, dim)


def unique(values: Tensor, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """``torch.unique``: the distinct values, and the place of each value among them."""
    return _torch.unique(values, dim=dim, return_inverse=True)


def complement(columns: Tensor) -> Tensor:
    """Orthonormal basis of the directions orthogonal to `columns` (P, k), shape (P, P - k)."""
    return linalg.qr(columns, mode="complete")[0][:, columns.shape[1] :]


def inverse_information(information: Tensor) -> tuple[Tensor, Tensor]:
    """Invert an information, shape (P, P), and tell which of its parameters are unknown, (P,).

    Directions along which it is flat or negative are left out.
    """
    scale = information.diagonal().abs().clamp_min(torch.finfo(information.dtype).tiny).rsqrt()
    unit = information * scale[:, None] * scale
    factor, failed = linalg.cholesky_ex(unit)
    unknown = torch.zeros(len(unit), dtype=torch.bool, device=unit.device)
    if not bool(failed) and bool(factor.diagonal().isfinite().all()):
        inverse = torch.cholesky_inverse(factor)
    elif not bool(unit.isfinite().all()):
        return torch.full_like(unit, torch.nan), ~unknown
    else:
        value, turn = linalg.eigh(unit)
        flat = value < _FLAT * value[-1]
        unknown = turn[:, flat].square().sum(dim=1) > _UNKNOWN
        turn, value = turn[:, ~flat], value[~flat]
        inverse = (turn / value) @ turn.T
    return inverse * scale[:, None] * scale, unknown
