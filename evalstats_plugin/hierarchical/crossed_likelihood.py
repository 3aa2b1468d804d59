"""Log-likelihood of all answers of many chains, and moves of effects that many answers share.

A move proposes every effect of one kind at once, each from the normal distribution that one step
of Newton's method suggests [Gam97]_. Given all other effects these are independent, so each is
accepted or not by itself; nothing is approximated.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.hierarchical.crossed import CrossedData


class Answers(NamedTuple):
    """Of K chains, each of shape (K, N, M)."""

    logit: Tensor
    log_likelihood: Tensor
    share: Tensor
    """P(right)."""


class Unit(NamedTuple):
    """What of the answers an effect is of."""

    total: Callable[[Tensor], Tensor]
    """Sum (K, N, M) over the answers of each unit."""
    spread: Callable[[Tensor], Tensor]
    """Give each answer the value of its unit."""
    sign: float
    """Of the effect in the logit."""


def answers_at(data: CrossedData, logit: Tensor) -> Answers:
    """Evaluate at logits (K, N, M)."""
    log_likelihood = data.right * logit - data.trials * torch.nn.functional.softplus(logit)
    return Answers(logit, log_likelihood, torch.sigmoid(logit))


def units(data: CrossedData) -> dict[str, Unit]:
    """Of models (K, N), tasks (K, T), interactions (K, N, T) and questions (K, M)."""

    def of_tasks(values: Tensor) -> Tensor:
        return data.by_task(values.sum(1))

    def to_answers(values: Tensor) -> Tensor:
        return data.to_columns(values)[:, None]

    return {
        "model": Unit(partial(torch.sum, dim=2), partial(torch.unsqueeze, dim=2), 1.0),
        "task": Unit(of_tasks, to_answers, -1.0),
        "interaction": Unit(data.by_task, data.to_columns, 1.0),
        "question": Unit(partial(torch.sum, dim=1), partial(torch.unsqueeze, dim=1), -1.0),
    }


def normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of the shape of `like`."""
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers on (0, 1) of the shape of `like`."""
    drawn = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
    return drawn.clamp_min(1e-300)


def choose(taken: Tensor, new: Answers, old: Answers) -> Answers:
    """Keep the new answers where a move was taken, `taken` broadcasting to (K, N, M)."""
    return Answers(*(torch.where(taken, a, b) for a, b in zip(new, old, strict=True)))


def newton_move(
    data: CrossedData,
    at: tuple[Tensor, Answers],
    prior: tuple[Tensor, Tensor],
    unit: Unit,
    generator: torch.Generator,
) -> tuple[Tensor, Answers]:
    """Move each effect of a kind given all others, leaving their posterior as it is.

    Parameters
    ----------
    at
        The effects and the answers there.
    prior
        Mean and precision of the effects, which broadcast to them.
    """
    effect, answers = at
    mean, precision = prior
    there, tight = _proposal(data, effect, answers, prior, unit)
    found = there + normal(effect, generator) / tight.sqrt()
    moved = answers_at(data, answers.logit + unit.sign * unit.spread(found - effect))
    back, tight_back = _proposal(data, found, moved, prior, unit)
    gain = unit.total(moved.log_likelihood - answers.log_likelihood)
    gain = gain - precision / 2 * ((found - mean).square() - (effect - mean).square())
    gain = gain + (tight_back.log() - tight.log()) / 2
    gain = gain - (tight_back * (effect - back).square() - tight * (found - there).square()) / 2
    taken = uniform(gain, generator).log() < gain
    return torch.where(taken, found, effect), choose(unit.spread(taken), moved, answers)


def _proposal(
    data: CrossedData,
    effect: Tensor,
    answers: Answers,
    prior: tuple[Tensor, Tensor],
    unit: Unit,
) -> tuple[Tensor, Tensor]:
    """Where a step of Newton's method leads, and how tight the posterior looks from here."""
    mean, precision = prior
    expected = data.trials * answers.share
    slope = unit.sign * unit.total(data.right - expected)
    tight = unit.total(expected * (1 - answers.share)) + precision
    return effect + (slope - precision * (effect - mean)) / tight, tight
