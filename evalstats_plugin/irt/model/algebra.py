"""Functions of PyTorch that its own stubs leave untyped, with types; they do nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor

_torch: Any = torch


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


linalg = cast("_Linalg", torch.linalg)


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
