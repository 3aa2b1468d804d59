"""Exponential families for proposals, and the distributions of torch that models are written in.

A family is stored by its usual parameters and can be recovered from its mean parameters, the
expectations of its sufficient statistics: matching them to those of the posterior is the M-step of
adaptive importance sampling. Everything is float64; samples are differentiable.

`family_for` chooses the family of a proposal by the support of the prior; `Parts` takes a
distribution of torch apart, so that it can be drawn from with new axes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor, distributions
from torch.distributions import constraints

from evalstats_plugin.errors import DesignError
from evalstats_plugin.runtime.torch import cholesky, drawing_from

Real = float | Tensor

TORCH: Any = torch
"""Some of its functions have no type stubs."""

CONSTRAINTS: Any = constraints
"""Likewise the supports."""

_INVERSE: Any = type(distributions.ExpTransform().inv)
"""The inverse of a transform, which holds that one."""

_TINY = 1e-300
"""Smallest value of a sample that must be positive."""

_STEPS = 60
"""Most Newton steps."""

_TOLERANCE = 1e-13
"""Relative change of parameters at convergence."""

_CHECK_EVERY = 3
"""Steps between checks of convergence."""


@dataclass(frozen=True)
class Family(ABC):
    """An exponential family; parameters are numbers or tensors that broadcast."""

    unbounded: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be any number; the others are above 0."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = torch.as_tensor(getattr(self, field.name), dtype=torch.float64)
            object.__setattr__(self, field.name, value)

    def parameters(self) -> tuple[Tensor, ...]:
        """The usual parameters, in the order of the constructor."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def expanded(self, shape: Sequence[int]) -> Self:
        """Return the same distribution with parameters of this shape."""
        return type(self)(*(x.expand(*shape).contiguous() for x in self.parameters()))

    def free(self) -> tuple[Tensor, ...]:
        """Parameters without bounds: logarithms of positive ones."""
        own = zip(fields(self), self.parameters(), strict=True)
        return tuple(x if field.name in self.unbounded else x.log() for field, x in own)

    @classmethod
    def from_free(cls, free: Sequence[Tensor]) -> Self:
        """The member with these parameters, as `free` returns them."""
        own = zip(fields(cls), free, strict=True)
        return cls(*(x if field.name in cls.unbounded else x.exp() for field, x in own))

    def wider(self, factor: float) -> Self:
        """Return the member with about the same mean and variances as many times as large."""
        own = self.parameters()
        # A location stays, and a scale or a factor of the covariance grows.
        new = (own[0], own[1] * math.sqrt(factor)) if self.unbounded else (x / factor for x in own)
        return type(self)(*new)

    @abstractmethod
    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density, elementwise; a vector-valued family keeps its last axis with size 1."""

    @abstractmethod
    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw an array of this shape, differentiable in the parameters."""

    @classmethod
    @abstractmethod
    def statistics(cls, value: Tensor) -> tuple[Tensor, ...]:
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

    unbounded: ClassVar[tuple[str, ...]] = ("loc",)

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

    @classmethod
    def statistics(cls, value: Tensor) -> tuple[Tensor, ...]:
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


class LogNormal(Normal):
    """Log-normal distribution: log z is normal."""

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density."""
        log_value = value.log()
        return torch.where(value > 0, super().log_prob(log_value) - log_value, -torch.inf)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw."""
        return super().sample(shape, generator).clamp(-600, 600).exp()

    @classmethod
    def statistics(cls, value: Tensor) -> tuple[Tensor, ...]:
        """Log z and its square."""
        return super().statistics(value.log())


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

    @classmethod
    def statistics(cls, value: Tensor) -> tuple[Tensor, ...]:
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
        power: Tensor = torch.xlogy(a - 1, value) + TORCH.special.xlog1py(b - 1, -value)
        inside = power + torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
        return torch.where((value > 0) & (value < 1), inside, -torch.inf)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw, as the share of one Gamma number in two."""
        x, y = (_standard_gamma(a, shape, generator) for a in self.parameters())
        return (x / (x + y)).clamp(_TINY, 1 - 1e-16)

    @classmethod
    def statistics(cls, value: Tensor) -> tuple[Tensor, ...]:
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


@dataclass(frozen=True)
class Dirichlet(Family):
    """Dirichlet distribution on the last axis."""

    concentration: Tensor

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density."""
        (a,) = self.parameters()
        inside = torch.xlogy(a - 1, value).sum(-1, keepdim=True)
        constant = torch.lgamma(a.sum(-1, keepdim=True)) - torch.lgamma(a).sum(-1, keepdim=True)
        return inside + constant

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw, as shares of Gamma numbers."""
        parts = _standard_gamma(self.parameters()[0], shape, generator)
        return (parts / parts.sum(-1, keepdim=True)).clamp_min(_TINY)

    @classmethod
    def statistics(cls, value: Tensor) -> tuple[Tensor, ...]:
        """Logs of all parts."""
        return (value.log(),)

    def means(self) -> tuple[Tensor, ...]:
        """Expected logs of all parts."""
        (a,) = self.parameters()
        return (torch.digamma(a) - torch.digamma(a.sum(-1, keepdim=True)),)

    @classmethod
    def from_means(cls, means: Sequence[Tensor]) -> Self:
        """By Newton's method [Min00]_."""
        return cls(_concentrations(means[0]))


@dataclass(frozen=True)
class MultivariateNormal(Family):
    """Normal distribution of a vector on the last axis."""

    unbounded: ClassVar[tuple[str, ...]] = ("loc", "scale_tril")

    loc: Tensor
    scale_tril: Tensor
    """Cholesky factor of the covariance, its two axes as the last one."""

    def _factor(self) -> Tensor:
        size = self.parameters()[0].shape[-1]
        factor = self.parameters()[1]
        return factor.reshape(*factor.shape[:-1], size, size).tril()

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density; the last axis keeps size 1."""
        loc, _ = self.parameters()
        factor = self._factor()
        deviation = (value - loc)[..., None]
        shape: torch.Size = TORCH.broadcast_shapes(deviation.shape[:-2], factor.shape[:-2])
        z: Tensor = TORCH.linalg.solve_triangular(
            factor.expand(*shape, -1, -1), deviation.expand(*shape, -1, -1), upper=False
        )[..., 0]
        size = factor.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1, keepdim=True)
        constant = loc.shape[-1] * math.log(2 * math.pi) / 2
        return -z.square().sum(-1, keepdim=True) / 2 - size - constant

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw."""
        loc, _ = self.parameters()
        noise = torch.randn(
            [*shape, 1], generator=generator, dtype=torch.float64, device=generator.device
        )
        return loc + (self._factor() @ noise)[..., 0]

    def expanded(self, shape: Sequence[int]) -> Self:
        """Return the same distribution for every member."""
        loc, factor = self.parameters()
        wide = [*shape[:-1], factor.shape[-1]]
        return type(self)(loc.expand(*shape).contiguous(), factor.expand(*wide).contiguous())

    @classmethod
    def statistics(cls, value: Tensor) -> tuple[Tensor, ...]:
        """Z and z zᵀ."""
        return value, (value[..., :, None] * value[..., None, :]).flatten(-2)

    def means(self) -> tuple[Tensor, ...]:
        """E z and E z zᵀ."""
        loc, _ = self.parameters()
        factor = self._factor()
        return loc, (factor @ factor.mT + loc[..., :, None] * loc[..., None, :]).flatten(-2)

    @classmethod
    def from_means(cls, means: Sequence[Tensor]) -> Self:
        """Of mean E z and covariance E z zᵀ − E z E zᵀ."""
        loc, second = means
        covariance = cast("Tensor", second.unflatten(-1, (loc.shape[-1],) * 2))
        covariance = covariance - loc[..., :, None] * loc[..., None, :]
        values, vectors = TORCH.linalg.eigh((covariance + covariance.mT) / 2)
        # Few effective particles span fewer dimensions than the posterior.
        least = 1e-6 * values[..., -1:].clamp_min(1e-12)
        covariance = (vectors * torch.maximum(values, least)[..., None, :]) @ vectors.mT
        return cls(loc, cholesky(covariance).flatten(-2))


_HEAVY = (
    distributions.LogNormal,
    distributions.HalfCauchy,
    distributions.InverseGamma,
    distributions.Pareto,
)
"""Positive priors with tails heavier than those of a Gamma distribution."""


def family_for(prior: Any, name: str) -> type[Family] | None:
    """Return the family of proposals for a prior; None where its values are summed exactly.

    Raises
    ------
    DesignError
        No family, and no finite number of values, has the support of the prior.
    """
    support = getattr(prior, "support", None)
    if getattr(prior, "has_enumerate_support", False):
        return None
    base = getattr(support, "base_constraint", support)
    positive = LogNormal if isinstance(prior, _HEAVY) else Gamma
    choices: list[tuple[Any, type[Family]]] = [
        (CONSTRAINTS.real_vector, MultivariateNormal),
        (CONSTRAINTS.real, Normal),
        (CONSTRAINTS.positive, positive),
        (CONSTRAINTS.nonnegative, positive),
        (CONSTRAINTS.unit_interval, Beta),
        (CONSTRAINTS.simplex, Dirichlet),
    ]
    for constraint, family in choices:
        if support is constraint or base is constraint:
            return family
    what = type(prior).__name__
    raise DesignError(
        f"latent {name!r}: there is no proposal for the support of {what}: give proposal=, or take "
        "a prior on all numbers, on those above 0, on (0, 1), on shares, or on finitely many values"
    )


_FAMILIES: dict[type, type[Family]] = {
    distributions.Normal: Normal,
    distributions.LogNormal: LogNormal,
    distributions.Gamma: Gamma,
    distributions.Beta: Beta,
    distributions.Dirichlet: Dirichlet,
}


def as_family(proposal: Any, name: str) -> Family:
    """Return a user's proposal as a family.

    Raises
    ------
    DesignError
        The proposal is of no family that can be adapted.
    """
    if type(proposal) is distributions.MultivariateNormal:
        return MultivariateNormal(proposal.loc, proposal.scale_tril.double().flatten(-2))
    family = _FAMILIES.get(cast("Any", type(proposal)))
    if family is None:
        allowed = ", ".join(x.__name__ for x in (*_FAMILIES, MultivariateNormal))
        what = type(proposal).__name__
        raise DesignError(f"latent {name!r}: a proposal is one of {allowed}, not {what}")
    return family(*(getattr(proposal, field.name) for field in fields(family)))


class Parts(NamedTuple):
    """A distribution of one value, and the tensors that it is made of."""

    made: Any
    values: tuple[Tensor, ...]

    @staticmethod
    def of(distribution: Any, shape: Sequence[int]) -> Parts:
        """Take apart a distribution of torch whose one value has this shape.

        Raises
        ------
        ValueError, RuntimeError
            Values of the distribution have another shape.
        """
        event = len(distribution.event_shape)
        if event and tuple(shape[len(shape) - event :]) != tuple(distribution.event_shape):
            raise ValueError(tuple(distribution.event_shape))
        wide, values = distribution.expand(shape[: len(shape) - event]), list[Tensor]()
        _with_tensors(wide, lambda x: values.append(x) or x, ())
        return Parts(wide, tuple(values))

    def sample(
        self, values: Sequence[Tensor], shape: Sequence[int], event: int, generator: torch.Generator
    ) -> Tensor:
        """Draw an array of this shape, its last `event` axes those of one value.

        Parameters
        ----------
        values
            Tensors in place of those of one value, with axes in front.
        """
        front = list(shape)[: len(shape) - event]
        left = iter(values)

        def wide(_: Tensor) -> Tensor:
            x = next(left)
            x = x.double() if x.is_floating_point() else x
            return x.expand(*front, *x.shape[len(front) :])

        built = _with_tensors(self.made, wide, tuple(front))
        with drawing_from(generator):
            return built.sample()


def log_prob_of(density: Any, value: Tensor) -> Tensor:
    """Log density at a value; that of torch's multinomial distribution cannot be vectorised."""
    if not isinstance(density, distributions.Multinomial):
        return density.log_prob(value)
    inside = torch.where(value > 0, value * density.logits, 0.0) - torch.lgamma(value + 1)
    return torch.lgamma(value.sum(-1) + 1) + inside.sum(-1)


def in_double(distribution: Any, device: torch.device | None = None) -> Any:
    """Return a distribution of torch in double precision, on a device; anything else as it is."""

    def moved(x: Tensor) -> Tensor:
        return x.to(device or x.device, torch.double if x.is_floating_point() else x.dtype)

    return _with_tensors(distribution, moved, ())


def _with_tensors(part: Any, change: Callable[[Tensor], Tensor], front: tuple[int, ...]) -> Any:
    """Return a copy of a distribution or transform with every tensor in it changed.

    Parameters
    ----------
    front
        Axes that the changed tensors have before those that they had.
    """
    if isinstance(part, Tensor):
        return change(part)
    if isinstance(part, (list, tuple)):
        several = cast("list[Any]", part)
        return type(several)(_with_tensors(x, change, front) for x in several)
    if not isinstance(part, (distributions.Distribution, distributions.Transform)):
        return part
    if isinstance(part, _INVERSE):
        return _with_tensors(cast("Any", part).inv, change, front).inv
    changed = cast("Any", copy(part))
    for name, value in vars(part).items():
        # A transform's inverse has the old tensors: it is made anew when it is asked for.
        setattr(changed, name, None if name == "_inv" else _with_tensors(value, change, front))
    if isinstance(part, distributions.Distribution):
        changed._batch_shape = torch.Size([*front, *changed._batch_shape])
    return changed


def _standard_gamma(a: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    # The only function of torch with both a generator and a gradient in `a`.
    a = a.to(generator.device).expand(*shape).contiguous()
    drawn = torch._standard_gamma(a, generator=generator)
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
