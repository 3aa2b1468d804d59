"""Items eliminated from what is known of them and the abilities together, block by block.

Of R numbers that all items depend on (abilities, hyper-parameters) and M items of p parameters,
only blocks of items are tied to the R; what the items cost these is a sum of products of R × M
arrays, and so is what the R cost each item.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import get_blas_funcs, lapack
from torch import Tensor

from evalstats_plugin.sampling.cholesky import cholesky


class Eliminated(NamedTuple):
    """Blocks of the inverse of the joint precision."""

    covariance: Tensor
    """Of the R numbers, shape (R, R)."""
    items: Tensor
    """Of each item's parameters, shape (M, p, p)."""
    last: Tensor
    """Of the last of the R numbers with each item's parameters, shape (p, M)."""


def eliminated(dense: Tensor, edges: Tensor, own: Tensor) -> Eliminated:
    """Invert ``[[dense, -edges], [-edges', own]]``, where the items' part is block diagonal.

    Parameters
    ----------
    dense : shape (R, R)
        Symmetric.
    edges : shape (p, R, M)
    own : shape (M, p, p)
        Symmetric blocks.
    """
    inverse = torch.linalg.inv(own)
    factor = cholesky(inverse)
    # In units in which what is known of each item's parameters is 1.
    scaled = edges.new_empty(edges.shape[1], len(edges), edges.shape[2])
    for k in range(len(edges)):
        torch.mul(edges[k], factor[:, k, k], out=scaled[:, k])
        for r in range(k + 1, len(edges)):
            scaled[:, k].addcmul_(edges[r], factor[:, r, k])
    flat = scaled.flatten(1)
    halves = _halves_on_host if dense.device.type == "cpu" else _halves
    found = halves(dense, flat)
    if found is None:
        return _indefinite(dense, edges, inverse)
    covariance, half = found
    last = (covariance[-1] @ flat).view(scaled.shape[1:])
    half = half.view(scaled.shape)
    spread = torch.stack(
        [torch.stack([(a * b).sum(dim=0) for b in half.unbind(1)]) for a in half.unbind(1)]
    )
    items = inverse + factor @ spread.permute(2, 0, 1) @ factor.mT
    return Eliminated(covariance, items, torch.einsum("mrk,km->rm", factor, last))


def _indefinite(dense: Tensor, edges: Tensor, inverse: Tensor) -> Eliminated:
    """Invert the same where there are no square roots, in twice the time."""
    through = torch.einsum("mpr,rnm->pnm", inverse, edges)
    rest = dense.clone()
    for here, there in zip(edges, through, strict=True):
        rest.addmm_(here, there.T, alpha=-1)
    covariance = torch.linalg.inv(rest)
    spread = torch.stack([covariance @ part for part in through])
    items = inverse + torch.einsum("pnm,rnm->mpr", through, spread)
    return Eliminated(covariance, items, spread[:, -1])


def _halves(dense: Tensor, edges: Tensor) -> tuple[Tensor, Tensor] | None:
    """``(dense - edges edges')⁻¹ = S'S`` and ``S edges``; None where there is no such S."""
    factor, failed = torch.linalg.cholesky_ex(dense - edges @ edges.T)
    if bool(failed) or not bool(factor.diagonal().isfinite().all()):
        return None
    half = torch.linalg.solve_triangular(factor, edges, upper=False)
    return torch.cholesky_inverse(factor), half


def _halves_on_host(dense: Tensor, edges: Tensor) -> tuple[Tensor, Tensor] | None:
    """The same with what NumPy and LAPACK have for symmetric and triangular arrays."""
    rows = edges.numpy()
    # NumPy sees that the product is symmetric, and computes half of it.
    rest = dense.numpy() - rows @ rows.T
    functions: Any = lapack.get_lapack_funcs(("potrf", "trtri", "lauum"), (rest,))
    potrf, trtri, lauum = functions
    factor, failed = potrf(rest.T, lower=1, overwrite_a=1)
    if failed or not np.isfinite(factor.diagonal()).all():
        return None
    triangle = trtri(factor, lower=1, overwrite_c=1)[0]
    trmm: Any = get_blas_funcs("trmm", (rest,))
    half = trmm(1.0, triangle, rows.T, side=1, lower=1, trans_a=1).T
    below = lauum(triangle, lower=1, overwrite_c=1)[0]
    covariance = below + np.tril(below, -1).T
    return torch.from_numpy(covariance), torch.from_numpy(half)
