"""Curves on few nodes, for grids of many: interpolation through Chebyshev points.

A thousand items tell abilities so closely that posteriors need hundreds of nodes. The items'
curves do not: they are analytic, with singularities no closer than π / |a| to the real axis, so
that polynomials through K points are off by ρ^-K, ρ > 1 [Tre13]_; a change of variable that draws
the points apart at the ends, where polynomials need them closer than the curves do, saves a quarter
of them [KT93]_. Sums over items are taken at these points, and only then brought to the nodes.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.curves import Items

_ACCURACY = 1e-10
"""Of the log-probabilities of the steepest item."""
_LEAST, _SHARE = 8, 0.71
"""Points, and of those that polynomials need which share besides: with these no less exact."""


class Coarse(NamedTuple):
    """Points, and what brings values there to the nodes."""

    at: Tensor
    """Shape (K,)."""
    to_nodes: Tensor | None
    """Shape (Q, K); None where the points are the nodes."""

    def spread(self, values: Tensor) -> Tensor:
        """From the points, (·, K), to the nodes, (·, Q)."""
        return values if self.to_nodes is None else values @ self.to_nodes.T

    def gather(self, weights: Tensor) -> Tensor:
        """Weights of the points, (·, K), that stand for `weights` of the nodes, (·, Q)."""
        return weights if self.to_nodes is None else weights @ self.to_nodes


def coarse(items: Items, nodes: Tensor) -> Coarse:
    """Points for the curves of these items, at ascending nodes (Q,); the nodes where few are saved.

    >>> items = Items(torch.ones(3), torch.zeros(3))
    >>> len(coarse(items, torch.linspace(-6, 6, 601)).at)
    41
    """
    low, high, steepest = torch.stack([nodes[0], nodes[-1], items.slope.abs().max()]).tolist()
    away = math.pi / max(steepest, 1e-9) / (0.5 * (high - low))
    of_polynomials = -math.log(_ACCURACY) / math.log(away + math.hypot(1, away))
    count = _LEAST + math.ceil(_SHARE * of_polynomials)
    if 4 * count > 3 * len(nodes):
        return Coarse(nodes, None)
    # θ = arcsin(α s) / arcsin α on [-1, 1], with the α that leaves the accuracy what it is.
    alpha = 1 / math.cosh(math.log(_ACCURACY) / count)
    widest, middle, half = math.asin(alpha), 0.5 * (low + high), 0.5 * (high - low)
    points = torch.cos(
        torch.arange(count, dtype=nodes.dtype, device=nodes.device) * (math.pi / (count - 1))
    )
    at = middle + half / widest * torch.asin(alpha * points)
    return Coarse(at, _barycentric(points, torch.sin(widest / half * (nodes - middle)) / alpha))


def _barycentric(points: Tensor, at: Tensor) -> Tensor:
    """Values of the points' Lagrange polynomials at `at`, shape (Q, K) [BT04]_."""
    weights = torch.ones_like(points)
    weights[1::2] = -1
    weights[0] *= 0.5
    weights[-1] *= 0.5
    apart = at[:, None] - points
    hit = apart == 0
    share = weights / torch.where(hit, 1.0, apart)
    share = share / share.sum(dim=1, keepdim=True)
    return torch.where(hit.any(dim=1, keepdim=True), hit.to(share.dtype), share)
