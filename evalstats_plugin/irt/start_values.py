"""Items to start from: by their shares of right answers, or by models grouped by theirs."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.curves import Items, ability_information, curves
from evalstats_plugin.irt.item_step import Derivatives, logistic_information, newton_step

_GROUPS, _STEPS = 24, 5
_USUAL, _SPREAD = (1.0, 0.0), (1.0, 3.0)
"""Discrimination and intercept of an item of which nothing is known, and how far others are off."""


class Start(NamedTuple):
    """Items, and about what abilities they come with."""

    items: Items
    ability: Tensor
    """Shape (N,)."""
    std_error: Tensor


def from_shares(right: Tensor, trials: Tensor) -> Items:
    """Shares of right answers on the logit scale, all slopes 1, from counts of each item (M,)."""
    share = (right + 0.5) / (trials + 1)
    return Items(torch.ones_like(share), 1.2 * torch.logit(share))


def from_totals(right: Tensor, trials: Tensor, *, common_slope: bool) -> Start:
    """Logistic regressions on the logit of each model's share of right answers.

    In a long test that is the ability but for its scale. Models of nearly the same share are taken
    together, so that the regressions cost no more than two sums over the models.

    Parameters
    ----------
    right, trials
        Shape (N, M), of a hundred models or more.
    """
    total = trials.sum(dim=1)
    level = torch.logit((right.sum(dim=1) + 0.5) / (total + 1))
    level = (level - level.mean()) / level.std().clamp_min(1e-3)
    member = torch.argsort(torch.argsort(level)) * _GROUPS // len(level)
    groups = torch.nn.functional.one_hot(member, _GROUPS).to(right)
    at = (level @ groups) / groups.sum(dim=0)
    hits, tried = (groups.T @ right).T, (groups.T @ trials).T
    basis = torch.stack([at, torch.ones_like(at)], dim=1)
    usual, precision = right.new_tensor(_USUAL), right.new_tensor(_SPREAD) ** -2
    items = from_shares(hits.sum(dim=1), tried.sum(dim=1))
    for _ in range(_STEPS):
        curve = curves(items, at)
        away = torch.stack([items.slope, items.intercept], dim=1) - usual
        by = Derivatives(
            (hits - tried * curve.right) @ basis - precision * away,
            logistic_information(tried, curve, at) + torch.diag(precision),
        )
        change = newton_step(by, common_slope=common_slope)
        items = Items(items.slope + change[:, 0], items.intercept + change[:, 1])
    per_trial = ability_information(items, at).mean(dim=0)[member]
    return Start(items, level, (1 + total * per_trial).rsqrt())
