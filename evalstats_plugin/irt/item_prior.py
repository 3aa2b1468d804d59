"""Normal distributions of the items' parameters: fixed, or estimated along with the items."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.curves import Items
from evalstats_plugin.irt.item_step import Derivatives
from evalstats_plugin.sampling.cholesky import cholesky

_ROUNDS, _SETTLED = 10, 1e-7
"""Of three EM steps of the distribution for each step of the items, at most; a change that ends
them, or some roundings of a number where these are more."""
_LOOK = 2
"""Every so many rounds it is seen whether they have settled."""
_LONGEST, _FARTHEST = 16.0, 0.7
"""Longest jump, in EM steps, and from where these led."""
_IDEAL, _FLOOR = 2.0, 0.1
"""So many items with so small a standard deviation are added to those there are."""


class ItemPrior(NamedTuple):
    """Of discrimination and intercept; of the intercept alone where all share one slope."""

    mean: Tensor
    """Shape (k,), k = 2 or 1."""
    factor: Tensor
    """Shape (k, k): the covariance's Cholesky factor, lower triangular."""
    estimated: bool

    @property
    def columns(self) -> slice:
        """Its place among the parameters (a, d)."""
        return slice(2 - len(self.mean), 2)

    @property
    def precision(self) -> Tensor:
        """Inverse of the covariance."""
        return torch.cholesky_inverse(self.factor)

    def away(self, items: Items) -> Tensor:
        """Parameters less their mean, shape (M, k)."""
        return torch.stack([items.slope, items.intercept], dim=1)[:, self.columns] - self.mean

    def log_density(self, items: Items) -> Tensor:
        """Of each item, shape (M,), less a constant."""
        away = self.away(items)
        return -0.5 * (away @ self.precision * away).sum(dim=1)

    def add_to(self, found: Derivatives, items: Items) -> Tensor:
        """Add gradient and information of the log prior, in place; return what the objective gains.

        A prior that is estimated is judged by its likelihood with the items integrated out, by
        Laplace's approximation; the mode alone would let the variance collapse.
        """
        away, precision, at = self.away(items), self.precision, self.columns
        found.gradient[:, at] -= away @ precision
        found.information[:, at, at] += precision
        gain = self.log_density(items).sum()
        if self.estimated:
            gain = gain - len(away) * self.factor.diagonal().log().sum()
            gain = gain - 0.5 * torch.logdet(found.information[:, at, at]).sum()
        return gain

    def updated(self, found: Derivatives, items: Items) -> ItemPrior:
        """The distribution that makes these items likeliest, each known as well as it is.

        EM on the items' quadratic likelihoods, without touching the answers; every third step
        starts from where the two before point (SQUAREM). A few items without any spread join in,
        lest the variance creep to 0 for ever where items do not differ.
        """
        at, prior = self.columns, self
        known = found.information[:, at, at]
        values = (self.away(items) + self.mean)[..., None]
        target = known @ values + found.gradient[:, at, None]
        # With the items last, the few numbers of each are rows of their own.
        known, target = known.permute(1, 2, 0).contiguous(), target[..., 0].T.contiguous()
        settled = max(_SETTLED, 20 * torch.finfo(target.dtype).eps)
        for turn in range(1, _ROUNDS + 1):
            first = prior.of_items(known, target)
            second = first.of_items(known, target)
            start, middle, end = prior.vector(), first.vector(), second.vector()
            move = middle - start
            bend = end - middle - move
            tiny = torch.finfo(bend.dtype).tiny
            length = (move.norm() / bend.norm().clamp_min(tiny)).clamp(1.0, _LONGEST)
            jump = start + 2 * length * move + length * length * bend
            jump = end + (jump - end).clamp(-_FARTHEST, _FARTHEST)
            prior = prior.of_vector(jump).of_items(known, target)
            # Seldom, since a device would have to be waited for.
            if turn % _LOOK == 0 and float((end - middle).abs().max()) < settled:
                break
        return prior

    def of_items(self, known: Tensor, target: Tensor) -> ItemPrior:
        """One EM step: the distribution of items with these precisions, (k, k, M), and targets."""
        n, k = target.shape[1], len(self.mean)
        precision = self.precision
        own = _inverses(known + precision[..., None])
        means = (own * (target + (precision @ self.mean)[:, None])).sum(dim=1)
        mean = means.mean(dim=1)
        apart = means - mean[:, None]
        floor = _IDEAL * _FLOOR**2 * torch.eye(k, dtype=target.dtype, device=target.device)
        spread = apart @ apart.T + own.sum(dim=2) + floor
        return self._replace(mean=mean, factor=cholesky(spread / (n + _IDEAL)))

    def expansion(
        self, mean: Tensor, square: Tensor, n: int, items: Items
    ) -> tuple[Tensor, Tensor]:
        """Shift and scale of the abilities under a fixed prior: it holds back the items.

        A Newton step from the present ones, for `n` abilities of this mean and mean square.
        """
        pull, curve = mean.new_zeros(2), mean.new_zeros(2)
        pull[self.columns] = -(self.away(items) @ self.precision * items.slope[:, None]).sum(dim=0)
        curve[self.columns] = self.precision.diagonal() * items.slope.square().sum()
        log_scale = (n * (square - 1) + pull[0]) / (2 * n * square + curve[0])
        return (n * mean + pull[1]) / (n + curve[1]), log_scale.clamp(-0.5, 0.5).exp()

    def expanded(self, shift: Tensor, scale: Tensor, slope: Tensor) -> ItemPrior:
        """The same distribution, of the items after the abilities were shifted and scaled."""
        if len(self.mean) == 1:
            return self._replace(mean=self.mean + slope * shift)
        one = torch.ones_like(scale)
        turn = torch.stack([torch.stack([scale, 0 * one]), torch.stack([shift, one])])
        return self._replace(mean=turn @ self.mean, factor=turn @ self.factor)

    def free_directions(self, items: Items) -> tuple[Tensor, Tensor]:
        """Directions that an estimated distribution follows: it does not hold items back there.

        Abilities shifted and stretched move all items together, and their distribution with them.
        Returns precision times direction, (2, g, M), and the directions' own precision, (g, g).
        """
        zero = torch.zeros_like(items.slope)
        shift = torch.stack([zero, items.slope], dim=1)
        both = [shift] if len(self.mean) == 1 else [shift, shift.flip(1)]
        directions = torch.stack(both)[:, :, self.columns]
        held = directions @ self.precision
        own = torch.einsum("gmk,hmk->gh", held, directions)
        return torch.nn.functional.pad(held, (self.columns.start, 0)).permute(2, 0, 1), own

    def turned(self) -> ItemPrior:
        """The same for abilities counted in the other direction."""
        if len(self.mean) == 1:
            return self
        sign = self.mean.new_tensor([-1.0, 1.0])
        return self._replace(mean=sign * self.mean, factor=sign[:, None] * self.factor * sign)

    def vector(self) -> Tensor:
        """Free numbers, shape (k + k(k + 1)/2,): logarithms keep the covariance positive."""
        below = [self.factor[1, 0][None]] if len(self.mean) == 2 else []
        return torch.cat([self.mean, self.factor.diagonal().log(), *below])

    def of_vector(self, numbers: Tensor) -> ItemPrior:
        """Take what `vector` gave."""
        k = len(self.mean)
        factor = torch.diag(numbers[k : 2 * k].exp())
        if k == 2:
            factor[1, 0] = numbers[4]
        return self._replace(mean=numbers[:k], factor=factor)


def _inverses(matrices: Tensor) -> Tensor:
    """Of symmetric matrices of one or two rows, both (k, k, M)."""
    if len(matrices) == 1:
        return 1 / matrices
    a, b, _, c = matrices.flatten(0, 1).unbind()
    return torch.stack([c, -b, -b, a]).div_(a * c - b * b).unflatten(0, (2, 2))


def weak_prior(like: Tensor, *, common_slope: bool) -> ItemPrior:
    """Discrimination ~ N(1, 1), intercept ~ N(0, 3²): finite, whatever the answers."""
    first = 1 if common_slope else 0
    mean, sd = like.new_tensor([1.0, 0.0])[first:], like.new_tensor([1.0, 3.0])[first:]
    return ItemPrior(mean, torch.diag(sd), estimated=False)


def first_guess(items: Items, *, common_slope: bool) -> ItemPrior:
    """Where the estimation of the prior starts: items as they start, slopes within ±½."""
    spread = items.intercept.std().clamp_min(0.1)
    mean = torch.stack([items.slope.mean(), items.intercept.mean()])
    sd = torch.stack([torch.full_like(spread, 0.5), spread])
    first = 1 if common_slope else 0
    return ItemPrior(mean[first:], torch.diag(sd[first:]), estimated=True)
