"""One step of the items towards their optimum, given the posteriors of the abilities."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.curves import Curves, Items, curves, gradients, log_odds_and_wrong
from evalstats_plugin.irt.posterior import Answers, Nodes, blocks


class Derivatives(NamedTuple):
    """Of the log-likelihood by the parameters of each item."""

    gradient: Tensor
    """Shape (M, p): exact, of the likelihood with the abilities integrated out."""
    information: Tensor
    """Shape (M, p, p): expected, if the abilities were seen."""


def derivatives(answers: Answers, items: Items, weights: Tensor, nodes: Nodes) -> Derivatives:
    """Gradient and complete-data information of every item, from posterior `weights` (N, Q)."""
    by_pattern = answers.of_patterns(weights)
    mean = weights @ nodes.at
    found = [
        _derivatives_of(answers, items.part(part), part, (weights, by_pattern, mean), nodes.at)
        for part in blocks(answers.right.shape[1], len(nodes.at))
    ]
    return Derivatives(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _derivatives_of(
    answers: Answers, items: Items, part: slice, sums: tuple[Tensor, Tensor, Tensor], at: Tensor
) -> Derivatives:
    weights, by_pattern, mean = sums
    few = answers.near(items, at)
    at = few.at
    trials = answers.tried(part, few.gather(by_pattern))
    curve = curves(items, at)
    if items.logistic:
        right = answers.right[:, part]
        expected = trials * curve.right
        basis = torch.stack([at, torch.ones_like(at)], dim=1)
        seen = (torch.stack([mean, torch.ones_like(mean)]) @ right).T
        return Derivatives(seen - expected @ basis, logistic_information(trials, curve, at))
    right = (few.gather(weights).T @ answers.right[:, part]).T
    by = gradients(curve, at)
    # Both may vanish for items that run away.
    scale = by / (curve.right * curve.wrong).clamp_min(torch.finfo(by.dtype).tiny)
    gradient = torch.einsum("pmq,mq->mp", scale, right - trials * curve.right)
    return Derivatives(gradient, torch.einsum("pmq,rmq,mq->mpr", scale, by, trials))


def logistic_information(trials: Tensor, curve: Curves, at: Tensor) -> Tensor:
    """Of logistic curves, (M, 2, 2), given so many trials at each ability, (M, Q).

    What is observed is what is expected: it does not depend on the answers.
    """
    spread = trials * curve.right * curve.wrong
    powers = spread @ torch.stack([at * at, at, at, torch.ones_like(at)], dim=1)
    return powers.reshape(-1, 2, 2)


def newton_step(found: Derivatives, *, common_slope: bool, longest: float = 2.0) -> Tensor:
    """Solve for the change of the parameters, shape (M, p), none of them by more than `longest`."""
    gradient, information = found
    # So flat an item must not divide by zero.
    ridge = 1e-9 * torch.eye(gradient.shape[1], dtype=gradient.dtype, device=gradient.device)
    information = information + ridge
    if not common_slope:
        step: Tensor = torch.linalg.solve_ex(information, gradient)[0]
        return step * (longest / step.abs().amax(dim=1, keepdim=True)).clamp_max(1.0)
    # One slope for all: the intercepts are eliminated first.
    cross = information[:, 0, 1] / information[:, 1, 1]
    slope = (gradient[:, 0] - cross * gradient[:, 1]).sum() / (
        information[:, 0, 0] - cross * information[:, 0, 1]
    ).sum()
    slope = slope.clamp(-0.5, 0.5)
    intercept = (gradient[:, 1] - information[:, 0, 1] * slope) / information[:, 1, 1]
    return torch.stack([slope.expand_as(intercept), intercept.clamp(-longest, longest)], dim=1)


def expected_log_likelihood(
    answers: Answers, items: Items, weights: Tensor, nodes: Nodes
) -> Tensor:
    """Log-likelihood of each item if abilities were seen, averaged over `weights`; shape (M,)."""
    by_pattern = answers.of_patterns(weights)
    found: list[Tensor] = []
    for part in blocks(answers.right.shape[1], len(nodes.at)):
        few = answers.near(items.part(part), nodes.at)
        odds, wrong = log_odds_and_wrong(items.part(part), few.at)
        right = (few.gather(weights).T @ answers.right[:, part]).T
        trials = answers.tried(part, few.gather(by_pattern))
        found.append((right * odds + trials * wrong).sum(dim=1))
    return torch.cat(found)
