"""Exponential families for priors and proposals: Normal, Gamma and Beta.

A family is stored by its usual parameters and can be recovered from its mean parameters, the
expectations of its sufficient statistics: matching them to those of the posterior is the M-step of
adaptive importance sampling. Everything is float64; samples are differentiable.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

Real = float | Tensor

_SPECIAL: Any = torch.special
"""Its functions have no type stubs."""

_TINY = 1e-300
"""Smallest value of a sample that must be positive."""

_STEPS = 60
"""Most Newton steps."""

_TOLERANCE = 1e-13
"""Relative change of parameters at convergence."""

_CHECK_EVERY = 3
"""Steps between checks of convergence."""


@runtime_checkable
class Density(Protocol):
    """Anything with a density, such as a distribution of ``torch.distributions``."""

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density at `value`, elementwise."""
        ...


@dataclass(frozen=True)
class Family(ABC):
    """An exponential family; parameters are numbers or tensors that broadcast."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = torch.as_tensor(getattr(self, field.name), dtype=torch.float64)
            object.__setattr__(self, field.name, value)

    def parameters(self) -> tuple[Tensor, ...]:
        """The usual parameters, in the order of the constructor."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def to(self, device: torch.device) -> Self:
        """Return the same distribution on a device."""
        return type(self)(*(x.to(device) for x in self.parameters()))

    @abstractmethod
    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density, elementwise; a vector-valued family keeps its last axis with size 1."""

    @abstractmethod
    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw an array of this shape, differentiable in the parameters."""

    @abstractmethod
    def statistics(self, value: Tensor) -> tuple[Tensor, ...]:
        """Sufficient statistics."""

    @abstractmethod
    def means(self) -> tuple[Tensor, ...]:
        """Expectations of the sufficient statistics."""

    @classmethod
    @abstractmethod
    def from_means(cls, means: Sequence[Tensor]) -> Self:
        """The member of the family with these expectations."""


@dataclass(frozen=True)
class Normal(Family):
    """Normal distribution."""

    loc: Real
    scale: Real

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density."""
        loc, scale = self.parameters()
        z = (value - loc) / scale
        return -0.5 * z * z - scale.log() - 0.5 * math.log(2 * math.pi)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw."""
        loc, scale = self.parameters()
        size, device = list(shape), generator.device
        noise = torch.randn(size, generator=generator, dtype=torch.float64, device=device)
        return loc + scale * noise

    def statistics(self, value: Tensor) -> tuple[Tensor, ...]:
        """Z and z²."""
        return value, value * value

    def means(self) -> tuple[Tensor, ...]:
        """E z and E z²."""
        loc, scale = self.parameters()
        return loc, loc * loc + scale * scale

    @classmethod
    def from_means(cls, means: Sequence[Tensor]) -> Self:
        """Of mean E z and variance E z² − (E z)²."""
        first, second = means
        return cls(first, (second - first * first).clamp_min(1e-20).sqrt())


@dataclass(frozen=True)
class Gamma(Family):
    """Gamma distribution of mean concentration / rate."""

    concentration: Real
    rate: Real

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density."""
        a, rate = self.parameters()
        power = torch.xlogy(a - 1, value)
        inside = a * rate.log() + power - rate * value - torch.lgamma(a)
        return torch.where(value > 0, inside, -torch.inf)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw."""
        a, rate = self.parameters()
        return (_standard_gamma(a, shape, generator) / rate).clamp_min(_TINY)

    def statistics(self, value: Tensor) -> tuple[Tensor, ...]:
        """Log z and z."""
        return value.log(), value

    def means(self) -> tuple[Tensor, ...]:
        """E log z and E z."""
        a, rate = self.parameters()
        return torch.digamma(a) - rate.log(), a / rate

    @classmethod
    def from_means(cls, means: Sequence[Tensor]) -> Self:
        """By Newton's method in 1 / concentration [Min02]_."""
        mean_log, mean = means
        gap = (mean_log - mean.log()).clamp_max(-1e-12)
        a = -0.5 / gap
        for turn in range(1, _STEPS + 1):
            slope = a - a * a * torch.polygamma(1, a)
            inverse = 1 / a + (gap + a.log() - torch.digamma(a)) / slope
            fresh = torch.where(inverse > 0, 1 / inverse, 2 * a)
            change, a = fresh / a - 1, fresh
            if turn % _CHECK_EVERY == 0 and bool((change.abs() < _TOLERANCE).all()):
                break
        return cls(a, a / mean)


@dataclass(frozen=True)
class Beta(Family):
    """Beta distribution on (0, 1)."""

    concentration1: Real
    concentration0: Real

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density."""
        a, b = self.parameters()
        power: Tensor = torch.xlogy(a - 1, value) + _SPECIAL.xlog1py(b - 1, -value)
        inside = power + torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
        return torch.where((value > 0) & (value < 1), inside, -torch.inf)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw, as the share of one Gamma number in two."""
        x, y = (_standard_gamma(a, shape, generator) for a in self.parameters())
        return (x / (x + y)).clamp(_TINY, 1 - 1e-16)

    def statistics(self, value: Tensor) -> tuple[Tensor, ...]:
        """Log z and log(1 − z)."""
        return value.log(), torch.log1p(-value)

    def means(self) -> tuple[Tensor, ...]:
        """E log z and E log(1 − z)."""
        a, b = self.parameters()
        return torch.digamma(a) - torch.digamma(a + b), torch.digamma(b) - torch.digamma(a + b)

    @classmethod
    def from_means(cls, means: Sequence[Tensor]) -> Self:
        """By Newton's method, as a Dirichlet distribution of two parts [Min00]_."""
        return cls(*_concentrations(torch.stack(tuple(means), -1)).unbind(-1))


def _standard_gamma(a: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    # The only function of torch with both a generator and a gradient in `a`.
    a = a.to(generator.device).expand(*shape).contiguous()
    drawn = torch._standard_gamma(  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        a, generator=generator
    )
    return drawn.clamp_min(_TINY)


def _concentrations(means: Tensor) -> Tensor:
    """Solve ψ(aᵢ) − ψ(Σa) = means along the last axis by Newton's method [Min00]_."""
    shares = means.exp()
    # For large aᵢ, exp E log zᵢ ≈ (aᵢ − ½) / (Σa − ½).
    left = (1 - shares.sum(-1, keepdim=True)).clamp_min(1e-12)
    a = 0.5 + shares * (means.shape[-1] - 1) / (2 * left)
    for turn in range(1, _STEPS + 1):
        total = a.sum(-1, keepdim=True)
        gradient = torch.digamma(total) - torch.digamma(a) + means
        diagonal = -torch.polygamma(1, a)
        pull = (gradient / diagonal).sum(-1, keepdim=True)
        pull = pull / (1 / torch.polygamma(1, total) + (1 / diagonal).sum(-1, keepdim=True))
        fresh = a - (gradient - pull) / diagonal
        fresh = torch.where(fresh > 0, fresh, a / 4)
        change, a = fresh / a - 1, fresh
        if turn % _CHECK_EVERY == 0 and bool((change.abs() < _TOLERANCE).all()):
            break
    return a
