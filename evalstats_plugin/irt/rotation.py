"""Rotation of factor loadings, so that each item loads on few of the dimensions."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.stats.interval import FloatArray


class Rotated(NamedTuple):
    """Loadings, turned: ``loading = before @ turn``."""

    loading: Tensor
    """Shape (M, K)."""
    turn: Tensor
    """Shape (K, K)."""


def varimax(loading: Tensor, *, normalise: bool = True) -> Rotated:
    """Rotate so that the variance of the squared loadings is largest [Kai58]_.

    Parameters
    ----------
    loading
        Shape (M, K).
    normalise
        Give every item the same say (Kaiser's normalisation), whatever its communality.
    """
    scale = _lengths(loading) if normalise else torch.ones_like(loading[:, :1])
    rows = loading / scale
    turn = torch.eye(loading.shape[1]).to(loading)
    before = -1.0
    for _ in range(1000):
        turned = rows @ turn
        # The criterion's gradient; its polar factor is the next rotation.
        gradient = rows.T @ (turned**3 - turned * (turned**2).mean(0))
        left, spread, right = torch.linalg.svd(gradient)
        turn, total = left @ right, float(spread.sum())
        if abs(total - before) <= 1e-15 * total:
            break
        before = total
    return Rotated(loading @ turn, turn)


def promax(loading: Tensor, *, power: float = 4.0) -> Rotated:
    """Let the dimensions correlate, after varimax, to bring small loadings nearer to 0 [HW64]_.

    The target is each loading to the `power`, with its sign. Abilities keep unit variances; their
    correlation is the inverse of ``turn.T @ turn``.
    """
    start = varimax(loading)
    target = start.loading * start.loading.abs() ** (power - 1)
    oblique = torch.linalg.lstsq(start.loading, target).solution
    variance = torch.linalg.inv(oblique.T @ oblique).diagonal()
    turn = start.turn @ (oblique * variance.sqrt())
    return Rotated(loading @ turn, turn)


def turned(loading: FloatArray, how: Literal["varimax", "promax"]) -> FloatArray:
    """Matrix (K, K) that turns loadings (M, K).

    The dimensions that come of it are in the order of what they explain, with positive sums.
    """
    before = torch.from_numpy(loading)
    found = varimax(before) if how == "varimax" else promax(before)
    order = found.loading.square().sum(0).argsort(descending=True, stable=True)
    sign = torch.where(found.loading.sum(0) < 0, -1.0, 1.0).to(before)
    return (found.turn * sign)[:, order].numpy()


def varimax_criterion(loading: Tensor) -> float:
    """Sum over the dimensions of the variance of the squared loadings."""
    return float((loading**2).var(dim=0, correction=0).sum())


def _lengths(loading: Tensor) -> Tensor:
    length = loading.norm(dim=1, keepdim=True)
    return torch.where(length > 0, length, 1.0)
