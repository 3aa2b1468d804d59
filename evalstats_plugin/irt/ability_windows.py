"""Where on the grid the posteriors lie: of hundreds of nodes a long test needs few for each model.

Models are sorted by ability and taken in groups. Sums over items are then found at the nodes of
each group's window only; outside of it posteriors hold nothing.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

REACH = 7.5
"""Windows reach so many posterior standard deviations beyond their outermost models, and..."""
SLACK = 0.1
"""... by so much of the ability more, which may still be stretched."""
FAINT = 1e-8
"""Weight at an end of a window above which it is too narrow."""
_MODELS, _MOST = 100, 32
"""In a group, at least; groups, at most."""


class Window(NamedTuple):
    """Nodes that hold the posteriors of some models."""

    rows: slice
    nodes: slice


class Windows(NamedTuple):
    """Of all models, sorted by ability."""

    parts: tuple[Window, ...]
    order: Tensor
    """Models by ability, shape (N,)."""
    rank: Tensor
    """Place of each model in this order, shape (N,)."""
    ends: Tensor
    """First and last node of each model's window, shape (N, 2)."""
    inner: Tensor
    """Shape (N, 2): 1 where the grid goes on beyond that end, 0 where it ends itself."""

    def outside(self, like: Tensor) -> Tensor:
        """0 inside the windows and -inf outside, shape (N, Q), models by ability; `like` (Q,)."""
        found = like.new_full((len(self.order), len(like)), -torch.inf)
        for rows, nodes in self.parts:
            found[rows, nodes] = 0.0
        return found

    def lost(self, weights: Tensor) -> Tensor:
        """Largest of the models' weights (N, Q) at an end of a window: as much may lie beyond."""
        return (weights.gather(1, self.ends) * self.inner).max()


def windows(mean: Tensor, sd: Tensor, at: Tensor, *, wider: float = 1.0) -> Windows:
    """Windows for posteriors of these moments (N,), on a grid of even nodes `at` (Q,)."""
    n, q = len(mean), len(at)
    order = torch.argsort(mean)
    away = wider * (REACH * sd + SLACK * (1 + mean.abs()))
    edges = torch.stack([mean - away, mean + away])[:, order]
    count = max(1, min(n // _MODELS, _MOST))
    bounds = [n * k // count for k in range(count + 1)]
    groups = [slice(*pair) for pair in pairwise(bounds)]
    limits = [torch.stack([edges[0, g].min(), edges[1, g].max()]) for g in groups]
    # All that the host has to know, at once.
    (first, last), *found = torch.stack([at[[0, -1]], *limits]).tolist()
    apart = (last - first) / (q - 1)
    parts: list[Window] = []
    for rows, (low, high) in zip(groups, found, strict=True):
        begin = min(max(math.floor((low - first) / apart), 0), q - 1)
        end = max(min(math.ceil((high - first) / apart) + 1, q), begin + 1)
        parts.append(Window(rows, slice(begin, end)))
    ends = torch.tensor([[w.nodes.start, w.nodes.stop - 1] for w in parts])
    sizes = torch.tensor([w.rows.stop - w.rows.start for w in parts])
    rank = torch.argsort(order)
    places = torch.repeat_interleave(ends, sizes, dim=0).to(at.device)[rank]
    inner = torch.stack([places[:, 0] > 0, places[:, 1] < q - 1], dim=1)
    return Windows(tuple(parts), order, rank, places, inner.to(at))
