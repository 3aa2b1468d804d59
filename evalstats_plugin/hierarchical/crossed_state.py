"""Where chains of a crossed model are, and where they start."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evalstats_plugin.hierarchical.crossed import CrossedData, CrossedModel
from evalstats_plugin.hierarchical.crossed_likelihood import normal


@dataclass(frozen=True, kw_only=True)
class State:
    """Where K chains are. Standard deviations are logarithms."""

    coefficients: Tensor
    """Intercept b and β, (K, G)."""
    model: Tensor
    """λ, (K, N); 0 where the model has none."""
    task: Tensor
    """τ, (K, T)."""
    interaction: Tensor
    """μ, (K, N, T)."""
    question: Tensor | None
    """κ, (K, M)."""
    scale_model: Tensor
    """(K, 1), like the next."""
    scale_task: Tensor
    scale_interaction: Tensor
    """(K, 1), or (K, T) where each task has its own."""
    scale_question: Tensor
    """(K, 1)."""


def start(
    data: CrossedData, structure: CrossedModel, chains: int, generator: torch.Generator
) -> State:
    """Chains apart: logits of scores, and noise as wide as one effect may be."""
    zero = data.right.new_zeros
    n, t, g = data.design.shape
    right, trials = data.totals
    score = torch.logit((right + 0.5) / (trials + 1)).expand(chains, n, t)

    def apart(*size: int) -> Tensor:
        return 0.5 * normal(zero(chains, *size), generator)

    question = apart(len(data.task)) if structure.questions else None
    return State(
        coefficients=apart(g),
        model=apart(n) if structure.across_tasks else zero(chains, n),
        task=apart(t),
        interaction=score + 0.6 * apart(n, t),
        question=question,
        scale_model=apart(1) - 0.5,
        scale_task=apart(1) - 0.5,
        scale_interaction=apart(t if structure.spread_by_task else 1) - 0.5,
        scale_question=apart(1) - 0.5,
    )
