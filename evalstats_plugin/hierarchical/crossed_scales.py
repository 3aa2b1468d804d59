"""Draws of standard deviations: given their effects, and with the effects stretched along.

Drawn given the effects alone, a standard deviation moves slowly where answers say little of each;
stretched along with them, slowly where answers say much. Both by turns mix in either case [YM11]_.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

from evalstats_plugin.hierarchical.crossed import ScalePrior
from evalstats_plugin.hierarchical.crossed_likelihood import uniform

_COARSE = (-9.0, 6.0, 256)
"""Of log σ: where its posterior is looked for."""
_FINE = 400
_WANTED = 0.4
"""Share of proposals to accept, about the best for one number at a time."""


class Step:
    """Step of random-walk proposals on the log scale, learnt while warming up [RGG97]_."""

    def __init__(self, like: Tensor, start: float) -> None:
        self.log = torch.full_like(like[0], start).log()
        self.count, self.learning = 0, True

    def propose(self, value: Tensor, generator: torch.Generator) -> Tensor:
        """Return proposals for (K, ...)."""
        noise = torch.randn(
            value.shape, generator=generator, dtype=value.dtype, device=value.device
        )
        return value + self.log.exp() * noise

    def decide(self, gain: Tensor, generator: torch.Generator) -> Tensor:
        """Whether each proposal is taken, given its log ratio; learn from it."""
        taken = uniform(gain, generator).log() < gain
        if self.learning:
            self.count += 1
            off = taken.to(gain).mean(0) - _WANTED
            self.log = self.log + off * min(1.0, 3 / self.count**0.6)
        return taken


def scale_given_effects(
    squares: Tensor, count: Tensor, prior: ScalePrior, generator: torch.Generator
) -> Tensor:
    """Draw log σ given the sum of squares of `count` normal effects, both of shape (K, J).

    By the distribution function over a table around the mode, anywhere in the cell found.
    """
    coarse = torch.linspace(*_COARSE, dtype=squares.dtype, device=squares.device)
    fine = torch.linspace(-1, 1, _FINE, dtype=squares.dtype, device=squares.device)

    def log_density(at: Tensor) -> Tensor:
        kernel = -count[..., None] * at - squares[..., None] / 2 * torch.exp(-2 * at)
        return kernel + prior.log_density(at)

    mode = coarse[log_density(coarse).argmax(-1)]
    # As wide as so few effects leave it, plus a step of the coarse table.
    width = 9 / (2 * count + 2).sqrt() + (_COARSE[1] - _COARSE[0]) / _COARSE[2]
    table = mode[..., None] + width[..., None] * fine
    share = torch.softmax(log_density(table), dim=-1).cumsum(-1)
    u = uniform(squares, generator)[..., None]
    place = torch.searchsorted(share, u * share[..., -1:]).clamp_max(_FINE - 1)
    inside = (uniform(squares, generator) - 0.5) * 2 * width / (_FINE - 1)
    return table.gather(-1, place)[..., 0] + inside
