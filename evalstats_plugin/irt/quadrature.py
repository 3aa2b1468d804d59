"""Nodes of the integral over abilities, chosen from the data."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.curves import Items, ability_information
from evalstats_plugin.irt.posterior import (
    Answers,
    Nodes,
    Posterior,
    blocks,
    moments,
    posterior,
)

SPACING = 1.5
"""Of nodes, in units of the smallest posterior standard deviation.

The trapezoidal rule on a normal density is off by the share 2 exp(-2π²/spacing²): 3e-4 at 1.5
where it is worst, 1.4 % at 2, and 21 % at 3.
"""
LOOSEST = 2.0
FEWEST, MOST = 61, 2001


def even_nodes(low: float, high: float, count: int, like: Tensor) -> Nodes:
    """Trapezoidal rule for a standard normal ability.

    >>> nodes = even_nodes(-6, 6, 61, torch.zeros(1, dtype=torch.float64))
    >>> round(float(nodes.log_weight.exp().sum()), 8)
    1.0
    """
    at = torch.linspace(low, high, count, dtype=like.dtype, device=like.device)
    width = (high - low) / (count - 1)
    return Nodes(at, -0.5 * at * at + math.log(width / math.sqrt(2 * math.pi)))


def spacing(nodes: Nodes) -> float:
    """Distance of two nodes."""
    return float(nodes.at[1] - nodes.at[0])


class Widths(NamedTuple):
    """Where the posteriors are, and how wide."""

    posterior: Posterior
    mean: Tensor
    """Shape (N,)."""
    sd: Tensor
    """From the information, where nodes may be too far apart to tell."""


def posterior_widths(
    answers: Answers, items: Items, nodes: Nodes, prior: Tensor | float = 1.0
) -> Widths:
    """Posteriors, with standard deviations from the information.

    The standard deviation seen on a coarse grid would be that of the grid. `prior` is the precision
    of the distribution of abilities, of shape (N,) or the same for all.
    """
    found = posterior(answers, items, nodes)
    if answers.windows is not None:
        # They were laid on nodes that are close enough.
        mean, variance = moments(found.weights, nodes.at)
        return Widths(found, mean, variance.sqrt())
    information = nodes.at.new_zeros(len(answers.trials), len(nodes.at))
    for part in blocks(answers.right.shape[1], len(nodes.at)):
        few = answers.near(items.part(part), nodes.at)
        by_item = ability_information(items.part(part), few.at)
        information += few.spread(answers.times(part, by_item))
    precision = prior + (found.weights * answers.of_models(information)).sum(dim=1)
    return Widths(found, moments(found.weights, nodes.at)[0], precision.rsqrt())


def fitting_nodes(nodes: Nodes, mean: Tensor, sd: Tensor) -> Nodes | None:
    """Return nodes as close and as far out as posteriors need, (N,) each; None where these do.

    The grid is centred at 0 and reaches at least 6 posterior standard deviations beyond the
    outermost models.
    """
    reach = min(float((mean.abs() + 6 * sd).max()), 12.0)
    narrowest = float(sd.min())
    fine = spacing(nodes) <= LOOSEST * narrowest or len(nodes.at) >= MOST
    if fine and float(nodes.at[-1]) >= reach - 2 * narrowest:
        return None
    reach += 2 * narrowest
    count = math.ceil(2 * reach / (SPACING * narrowest)) + 1
    # Odd, so that there is a node at 0.
    return even_nodes(-reach, reach, min(max(count, FEWEST), MOST) | 1, nodes.at)
