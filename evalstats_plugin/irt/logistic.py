"""Logistic regressions with a normal prior, one per model or per item, all at once."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts

_STEPS, _HALVINGS = 100, 30


def posterior_mode(
    counts: Counts, design: Tensor, offset: Tensor, prior: tuple[Tensor, Tensor]
) -> Tensor:
    """Coefficients (n, p) of n binomial regressions on the same m rows, by Newton's method.

    Parameters
    ----------
    counts
        Successes and trials, shape (n, m).
    design, offset
        Shapes (m, p) and (m,): the logit is ``offset + design @ coefficients``.
    prior
        Mean (p,) and precision (p, p), positive definite.
    """
    mean, precision = prior
    size = len(mean)
    row, column = torch.triu_indices(size, size, device=design.device)
    products = design[:, row] * design[:, column]

    def height(at: Tensor) -> tuple[Tensor, Tensor]:
        logit = torch.addmm(offset, at, design.T)
        away = at - mean
        fit = counts.right * logit - counts.trials * torch.nn.functional.softplus(logit)
        return fit.sum(1) - ((away @ precision) * away).sum(1) / 2, torch.sigmoid(logit)

    at = mean.expand(len(counts.right), size).clone()
    value, chance = height(at)
    for _ in range(_STEPS):
        packed = (counts.trials * chance * (1 - chance)) @ products
        information = packed.new_zeros(len(at), size, size)
        information[:, row, column] = packed
        information[:, column, row] = packed
        gradient = (counts.right - counts.trials * chance) @ design - (at - mean) @ precision
        step = torch.linalg.solve_ex(information + precision, gradient)[0]
        # The objective is concave: a step halved often enough rises.
        fresh, level = height(at + step)
        settled = False
        for _ in range(_HALVINGS):
            falls = fresh < value - 1e-12 * value.abs()
            short = (step.abs() < 1e-10).all()
            again, settled = torch.stack([falls.any(), short]).tolist()
            if not again:
                break
            step = torch.where(falls[:, None], step / 2, step)
            fresh, level = height(at + step)
        at, value, chance = at + step, fresh, level
        if settled:
            break
    return at
