"""Items eliminated where there are many models: the few directions in which these err together.

What items cost the abilities is a matrix near 0 but for a few directions: abilities shifted or
stretched together, which items cannot tell from themselves. These are found and inverted, and of
the rest the diagonal is kept: ``(I - S)⁻¹ ≈ I + S`` there. What is left out is below the square of
the rest's largest eigenvalue, and between two models below its largest entry.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.sampling.cholesky import cholesky

_DIRECTIONS, _TURNS = 8, 3
_REST = 0.15
"""Largest eigenvalue of the rest."""


class NearlyEliminated(NamedTuple):
    """Blocks of the inverse of the joint precision."""

    spread: Tensor
    """Variances of the R numbers but for what the directions add, shape (R,)."""
    directions: Tensor
    """Shape (R, k): the covariance is the spread's diagonal and ``directions @ directions.T``."""
    items: Tensor
    """Covariance of each item's parameters, shape (M, p, p)."""


def nearly_eliminated(
    edges: Tensor, own: Tensor, guess: Tensor, least: Tensor
) -> NearlyEliminated | None:
    """Invert ``[[I, -edges], [-edges', own]]``, where the items' part is block diagonal.

    Parameters
    ----------
    edges : shape (p, R, M)
        In single precision, if liked: what they cost is small.
    own : shape (M, p, p)
        Symmetric blocks.
    guess : shape (R, g)
        Directions that may be among those looked for.
    least : shape (R,)
        What is known of each of the R numbers, whatever the items are: small differences of large
        sums may miss it.

    Returns
    -------
    NearlyEliminated
        None where more directions matter, or nothing would be known in one of them.
    """
    inverse = torch.linalg.inv(own)
    factor = cholesky(inverse)
    # In units in which what is known of each item's parameters is 1.
    turned = factor.to(edges.dtype)
    scaled = torch.empty_like(edges)
    for k in range(len(edges)):
        torch.mul(edges[k], turned[:, k, k], out=scaled[k])
        for other in range(k + 1, len(edges)):
            scaled[k].addcmul_(edges[other], turned[:, other, k])
    base = torch.linalg.qr(_directions(scaled, guess).to(own.dtype))[0]
    seen = torch.stack([base.T @ part.to(own.dtype) for part in scaled])
    value, turn = torch.linalg.eigh(torch.einsum("pkm,plm->kl", seen, seen))
    base = base @ turn
    known = torch.maximum(1 - value, least @ base.square())
    rest, worst = torch.stack([value[0], known.min()]).tolist()
    if not (rest < _REST and worst > 0):
        return None
    seen = torch.einsum("kl,pkm->plm", turn, seen)
    of_models = torch.stack([part.square().sum(dim=1) for part in scaled]).sum(dim=0)
    of_items = torch.stack([torch.stack([(a * b).sum(dim=0) for b in scaled]) for a in scaled])
    beyond = 1 / known - 1
    shared = torch.einsum("pkm,k,qkm->mpq", seen, beyond, seen)
    cost = of_items.permute(2, 0, 1).to(shared.dtype) + shared
    return NearlyEliminated(
        spread=1 + of_models.to(value.dtype) - base.square() @ value,
        directions=base * beyond.clamp_min(0).sqrt(),
        items=inverse + factor @ cost @ factor.mT,
    )


def _directions(scaled: Tensor, guess: Tensor) -> Tensor:
    """Those of the largest eigenvalues, shape (R, k), by subspace iteration."""
    place = torch.arange(scaled.shape[1], device=scaled.device, dtype=scaled.dtype)[:, None]
    # Any others will do that are not alike.
    count = torch.arange(guess.shape[1], _DIRECTIONS, device=scaled.device)
    base = torch.cat([guess.to(scaled.dtype), torch.cos(place * (1 + count))], dim=1)
    for _ in range(_TURNS):
        base = torch.linalg.qr(base)[0]
        # The order of factors in which products with few columns are fast.
        base = torch.stack([((base.T @ part) @ part.T).T for part in scaled]).sum(dim=0)
    return base
