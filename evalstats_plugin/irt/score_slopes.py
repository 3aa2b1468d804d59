"""How models' score functions depend on their abilities: polynomials under each posterior."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

from evalstats_plugin.irt.curves import Items, curves, gradients
from evalstats_plugin.irt.mml import Marginal
from evalstats_plugin.irt.posterior import Answers


def score_parts(items: Items, at: Tensor) -> tuple[Tensor, Tensor]:
    """Parts of the score function ``right · first + trials · second``, both (p, M, Q)."""
    curve = curves(items, at)
    by = gradients(curve, at)
    return by / (curve.right * curve.wrong), -by / curve.wrong


def score_slopes(
    answers: Answers, fit: Marginal, *, degree: int, more: Tensor | None = None
) -> Tensor:
    """Coefficients of each model's score function on orthonormal polynomials of its ability.

    Orthonormal under its posterior; shape (p, N · degree, M), with rows of `more` (p, ·, M) last.
    """
    first, second = score_parts(fit.items, fit.nodes.at)
    trials = answers.of_models(answers.trials)
    if fit.items.logistic:
        # The same for all items: by a it is θ, by d it is 1.
        first = torch.stack([fit.nodes.at, torch.ones_like(fit.nodes.at)])[:, None]
    n, extra = len(trials), 0 if more is None else more.shape[1]
    found = second.new_empty(len(second), n * degree + extra, second.shape[1])
    for place, shape in enumerate(polynomials(fit, degree)):
        apart = fit.weights * shape
        slopes = found[:, place * n : (place + 1) * n]
        torch.matmul(apart, second.mT, out=slopes)
        slopes.mul_(trials).addcmul_(apart @ first.mT, answers.right)
    if more is not None:
        found[:, n * degree :] = more
    return found


def common_bows(answers: Answers, fit: Marginal) -> Tensor:
    """The same on the sum of the models' squares: what tells how far abilities spread.

    Shape (p, 1, M). In a degree of its own for each model nearly nothing else would be new.
    """
    first, second = score_parts(fit.items, fit.nodes.at)
    bow = polynomials(fit, 2)[1]
    apart = fit.weights * bow / len(bow) ** 0.5
    tried = answers.tried(slice(None), answers.of_patterns(apart))
    if fit.items.logistic:
        axes = torch.stack([fit.nodes.at, torch.ones_like(fit.nodes.at)], dim=1)
        right = (apart @ axes).T @ answers.right
    else:
        right = (first * (apart.T @ answers.right).T).sum(dim=2)
    return (right + (second * tried).sum(dim=2))[:, None]


def polynomials(fit: Marginal, degree: int) -> list[Tensor]:
    """Orthonormal under each model's posterior, each of shape (N, Q), but for the constant."""
    line = (fit.nodes.at - fit.mean[:, None]) / fit.variance.sqrt()[:, None]
    if degree == 1:
        return [line]
    square = line.square()
    skew = (fit.weights * square * line).sum(dim=1, keepdim=True)
    bow = square - skew * line - 1
    return [line, bow / (fit.weights * bow.square()).sum(dim=1, keepdim=True).sqrt()]
