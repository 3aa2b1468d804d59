"""Groups of models, each with a normal distribution of abilities of its own.

Calibrations of unlike groups that share items are then one fit: no group is drawn towards the mean
of another, as it would be in one population for all. The first group is N(0, 1), which fixes the
scale; mean and spread of the others are parameters [BZ97]_.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.posterior import Nodes
from evalstats_plugin.wording import few

FEW = 20
"""Models of a group below which its mean and spread are hardly known."""
_LEAST, _NARROWEST = 2, 0.05


class Named(NamedTuple):
    """Which group each model is in."""

    names: tuple[str, ...]
    """In the order in which they first appear among the models."""
    of_model: tuple[int, ...]
    """Place of each model's group, shape (N,)."""


class AbilityGroups(NamedTuple):
    """G normal distributions of ability; the first is N(0, 1)."""

    of_model: Tensor
    """Group of each model, shape (N,)."""
    mean: Tensor
    """Shape (G,)."""
    sd: Tensor

    def weighted(self, nodes: Nodes) -> Nodes:
        """Give each model the weights of its group, shape (N, Q)."""
        width = torch.log((nodes.at[1] - nodes.at[0]) / math.sqrt(2 * math.pi))
        z = (nodes.at - self.mean[:, None]) / self.sd[:, None]
        by_group = width - 0.5 * z.square() - self.sd.log()[:, None]
        return Nodes(nodes.at, by_group[self.of_model])

    @property
    def precision(self) -> Tensor:
        """Of each model's distribution, shape (N,)."""
        return self.sd[self.of_model] ** -2

    def moments(self, weights: Tensor, at: Tensor) -> AbilityGroups:
        """Mean and spread of each group's posteriors (N, Q), the first's among them."""
        one = weights.new_ones(len(weights))
        count = one.new_zeros(len(self.mean)).index_add_(0, self.of_model, one)
        share = weights.new_zeros(len(self.mean), len(at)).index_add_(0, self.of_model, weights)
        share = share / count[:, None]
        mean = share @ at
        square = (share * (at - mean[:, None]).square()).sum(dim=1)
        return self._replace(mean=mean, sd=square.sqrt().clamp_min(_NARROWEST))

    def relative(self) -> tuple[AbilityGroups, Tensor, Tensor]:
        """The same with the first group at N(0, 1), and where that one was: mean and spread."""
        shift, scale = self.mean[0], self.sd[0]
        return self._replace(mean=(self.mean - shift) / scale, sd=self.sd / scale), shift, scale

    def anchored(self) -> AbilityGroups:
        """The others as they are, beside a first group of N(0, 1): the items hold the scale."""
        mean, sd = self.mean.clone(), self.sd.clone()
        mean[0], sd[0] = 0.0, 1.0
        return self._replace(mean=mean, sd=sd)

    def turned(self) -> AbilityGroups:
        """The same for abilities counted in the other direction."""
        return self._replace(mean=-self.mean)

    def vector(self) -> Tensor:
        """Free numbers, shape (2 (G - 1),)."""
        return torch.cat([self.mean[1:], self.sd[1:].log()])

    def of_vector(self, numbers: Tensor) -> AbilityGroups:
        """Take what `vector` gave."""
        mean, log_sd = numbers.split(len(self.mean) - 1)
        zero = numbers.new_zeros(1)
        return self._replace(mean=torch.cat([zero, mean]), sd=torch.cat([zero, log_sd]).exp())

    def score(self, at: Tensor) -> Tensor:
        """Derivative by `vector` of the log density of abilities, (N,) or one, shape (N, E)."""
        z = (at - self.mean[self.of_model]) / self.sd[self.of_model]
        member = torch.nn.functional.one_hot(self.of_model, len(self.mean))[:, 1:].to(z)
        by_mean = (z / self.sd[self.of_model])[:, None] * member
        return torch.cat([by_mean, (z.square() - 1)[:, None] * member], dim=1)

    def information(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Of `vector` if abilities were seen, from their posterior moments (N,), shape (E, E)."""
        z = (mean - self.mean[self.of_model]) / self.sd[self.of_model]
        square = z.square() + variance / self.sd[self.of_model].square()
        values = torch.stack([torch.ones_like(z), z, square])
        total = values.new_zeros(3, len(self.mean)).index_add_(1, self.of_model, values)[:, 1:]
        sd = self.sd[1:]
        own, cross = torch.diag(total[0] / sd.square()), torch.diag(2 * total[1] / sd)
        return torch.cat(
            [torch.cat([own, cross], dim=1), torch.cat([cross, torch.diag(2 * total[2])], dim=1)]
        )


def named_groups(models: Sequence[str], groups: object) -> Named:
    """Read the group of each model, from names in the models' order or a mapping by model.

    Raises
    ------
    DesignError
        A model has no group, a group fewer than 2 models, or there is one group only.
    """
    of_model = _labels(models, groups)
    names = list(dict.fromkeys(of_model))
    small = [name for name in names if of_model.count(name) < _LEAST]
    if small:
        msg = f"groups of a single model found: {few(small)}; expected {_LEAST} or more in each"
        raise DesignError(msg)
    if len(names) < 2:
        msg = f"one group of models found ({names[0]!r}), expected 2 or more: leave groups out"
        raise DesignError(msg)
    place = {name: k for k, name in enumerate(names)}
    return Named(tuple(names), tuple(place[name] for name in of_model))


def _labels(models: Sequence[str], groups: object) -> list[str]:
    if isinstance(groups, Mapping):
        by_model = cast("Mapping[Any, Any]", groups)
        without = [name for name in models if name not in by_model]
        if without:
            msg = f"{len(without)} models have no group: {few(without)}; expected one for each"
            raise DesignError(msg)
        return [str(by_model[name]) for name in models]
    if isinstance(groups, Sequence) and not isinstance(groups, str):
        given = cast("Sequence[Any]", groups)
        if len(given) == len(models):
            return [str(name) for name in given]
        msg = f"{len(given)} groups found for {len(models)} models, expected one for each"
        raise DesignError(msg)
    msg = f"groups are {groups!r}, expected the name of a group for each model"
    raise DesignError(msg)


def alike(named: Named, like: Tensor) -> AbilityGroups:
    """All groups at N(0, 1), where a fit starts."""
    index = torch.tensor(named.of_model, device=like.device)
    return AbilityGroups(index, like.new_zeros(len(named.names)), like.new_ones(len(named.names)))
