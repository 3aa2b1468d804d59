"""Many refits at once of the model with items integrated out, on one grid and from one start.

A refit to reweighted or simulated answers ends close to the fit itself. So the points of the
integral stay, and so does the information that Newton's method divides by, save for the weights of
models; what a step needs is the gradient, for all refits by the same few matrix products. Steps
are mixed to undo what the wrong information does to them [And65]_.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_population import Kind
from evalstats_plugin.irt.items_integrated import ItemsIntegratedFit
from evalstats_plugin.irt.progress import told
from evalstats_plugin.irt.refit_gradient import Data, Model, model_of, slope_of, start_of, weighted

# Numbers of (refits, items, points) at a time, so that they stay in the cache.
_CACHE = 2**17
# Refits whose next step promises a squared distance below this, in standard errors, are done.
_TOLERANCE = 1e-5
_MAX_STEPS = 60
# Steps that are mixed.
_DEPTH = 8


class Refits(NamedTuple):
    """Of B refits."""

    ability: Tensor
    """Shape (B, N), each sums to 0 over the models that count."""
    discrimination: Tensor
    """Shape (B, M), posterior means given each refit."""
    difficulty: Tensor
    """Shape (B, M)."""
    converged: Tensor
    """Shape (B,)."""
    steps: int


@dataclass(frozen=True, eq=False)
class Refitter:
    """What all refits of a fit start from."""

    counts: Counts
    model: Model
    start: Tensor
    inverse: Tensor

    @property
    def group(self) -> int:
        """So many refits are done at a time: their numbers depend on their place among these."""
        return _group(self.counts, self.model)

    def refit(
        self,
        *,
        right: Tensor | None = None,
        item_weights: Tensor | None = None,
        model_weights: Tensor | None = None,
    ) -> Refits:
        """Refit to answers that are weighted, or replaced.

        Parameters
        ----------
        right : shape (B, N, M)
            Right answers of each refit, in place of those of the fit.
        item_weights : shape (B, M)
            How often each item counts.
        model_weights : shape (B, N)
            How often each model counts, as that many models of one ability; abilities of models
            that do not count are NaN.
        """
        data = weighted(self.counts, right, item_weights, model_weights)
        group = self.group
        # Each group is full, the last refit filling it: array operations round by their size.
        count = len(data.items)
        places = torch.arange(count + -count % group, device=data.items.device)
        places = places.clamp_max(count - 1).split(group)
        found = [
            _solve(self.model, data.of(places[k]), self.start, self.inverse)
            for k in told("group of refits", range(len(places)))
        ]
        columns = list(zip(*found, strict=True))
        tensors = [torch.cat(column)[:count] for column in columns[:4]]
        ability, discrimination, difficulty, converged = tensors
        return Refits(ability, discrimination, difficulty, converged, max(columns[4]))


def refitter(counts: Counts, fit: ItemsIntegratedFit, kind: Kind) -> Refitter:
    """Prepare refits of what `items_integrated` found in these answers."""
    start = start_of(fit, kind)
    model = model_of(counts, fit, kind, start)
    return Refitter(counts, model, start, _inverse_information(model, counts, start))


def _group(counts: Counts, model: Model) -> int:
    """Refits at a time; goes by the shape alone, lest their rounding differ."""
    return max(1, _CACHE // (counts.right.shape[1] * len(model.u)))


def _inverse_information(model: Model, counts: Counts, start: Tensor) -> Tensor:
    """Inverse of the fit's information (P, P), along abilities that sum to 0.

    Differences of gradients, a thousandth apart: steps need no more than that.
    """
    n, size, group = model.n_models, len(start), _group(counts, model)
    step = 1e-3 * torch.eye(size).to(start)
    unit = torch.ones_like(counts.right[0]).expand(group, -1)
    data = weighted(counts, None, unit, None)
    rows = data.rows()

    def gradients(at: Tensor) -> Tensor:
        parts = [
            slope_of(model, data.of(torch.arange(len(x), device=x.device)), rows[: len(x)], x)
            for x in at.split(group)
        ]
        return torch.cat([part.gradient for part in parts])

    curve = (gradients(start - step) - gradients(start + step)) / 2e-3
    total = torch.zeros(size, 1).to(start)
    total[:n] = 1
    basis = torch.linalg.qr(total, mode="complete")[0][:, 1:]
    values, vectors = torch.linalg.eigh(basis.T @ ((curve + curve.T) / 2) @ basis)
    # A spread that the data leave open has hardly any curvature, or none.
    rows = basis @ vectors
    return rows / values.clamp_min(1e-2) @ rows.T


def _solve(model: Model, data: Data, start: Tensor, inverse: Tensor) -> Refits:
    """Newton's method with the information of the fit, its steps mixed."""
    n, size = model.n_models, len(data.items)
    at = start.expand(size, -1).clone()
    # A model that counts twice has twice the information, and its gradient too.
    share = data.models.clamp_min(1)
    share = torch.cat([share, torch.ones_like(at[:, n:])], dim=1)
    present = data.models > 0
    active = at.new_ones(size, dtype=torch.bool)
    visited, moves = [], []
    rows = data.rows()
    slope, steps = slope_of(model, data, rows, at), 0
    while steps < _MAX_STEPS:
        steps += 1
        move = (slope.gradient / share) @ inverse
        gain = (slope.gradient * move).sum(1)
        active = active & ~(gain.abs() < _TOLERANCE)
        if not bool(active.any()):
            break
        visited, moves = [*visited, at][-_DEPTH:], [*moves, move][-_DEPTH:]
        fresh = _mixed(visited, moves)
        length = (fresh - at).abs().amax(1, keepdim=True)
        fresh = at + (fresh - at) * (1 / length).clamp_max(1)
        at = torch.where(active[:, None], fresh, at)
        slope = slope_of(model, data, rows, at)
    ability = torch.where(present, at[:, :n], torch.nan)
    shift = ability.nanmean(1, keepdim=True)
    mean = slope.place @ torch.stack(list(slope.grid), dim=2)
    discrimination, intercept, difficulty = mean.unbind(2)
    if model.kind == "2pl-signed":
        # The ratio has no moments where discriminations may be 0.
        difficulty = -intercept / discrimination
    return Refits(ability - shift, discrimination, difficulty - shift, ~active, steps)


def _mixed(visited: list[Tensor], moves: list[Tensor]) -> Tensor:
    """Anderson's mixture: the point whose step, if steps were linear, would be the smallest."""
    if len(moves) == 1:
        return visited[-1] + moves[-1]
    ends = torch.stack([p + m for p, m in zip(visited, moves, strict=True)], dim=2)
    move = torch.stack(moves, dim=2)
    apart, change = ends.diff(dim=2), move.diff(dim=2)
    normal = change.mT @ change
    ridge = 1e-12 * normal.diagonal(dim1=1, dim2=2).sum(1).clamp_min(1e-300)
    one = torch.eye(normal.shape[1], dtype=normal.dtype, device=normal.device)
    normal = normal + ridge[:, None, None] * one
    share = torch.linalg.solve_ex(normal, change.mT @ move[:, :, -1:])[0]
    return (ends[:, :, -1:] - apart @ share)[:, :, 0]
