"""Variational Rasch fits that keep every covariance of abilities and items."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

from evalstats_plugin.irt.acceleration import squarem
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.variational_parts import (
    Moments,
    Options,
    Prior,
    Variational,
    divergence,
    mean_precision,
    result,
    start_abilities,
    start_items,
)


class FullRank:
    """Rasch with all covariances; iterates E ψ² of the cells and the hyper-parameters."""

    def __init__(self, counts: Counts, options: Options) -> None:
        self.counts, self.options = counts, options
        self.kappa = counts.right - counts.trials / 2

    def fit(self) -> Variational:
        """Iterate to the highest bound."""
        items = start_items(self.counts)
        square = (start_abilities(self.counts)[:, None] + items) ** 2 + 0.1
        hyper = items.new_tensor([0.0, float(items.mean()), 0.0])
        start = torch.cat([square.log().flatten(), hyper])
        how = self.options
        found = squarem(self.step, start, tolerance=how.tolerance, max_steps=how.max_steps)
        q, covariance, _ = self.solve(found.at)
        return result(q, covariance, self.prior(found.at), "rasch", found)

    def prior(self, point: Tensor) -> Prior:
        """Return the distributions that the point holds, or the vague ones."""
        like = point.new_ones(())
        if self.options.prior == "vague":
            return Prior(like, like.new_tensor([1.0, 0.0]), like.new_tensor([1.0, 1000.0]))
        log_tau, mean, log_sd = point[-3:]
        variance = torch.stack([like, torch.exp(2 * log_sd)])
        return Prior(torch.exp(2 * log_tau), torch.stack([like, mean]), variance)

    def solve(self, point: Tensor) -> tuple[Moments, Tensor, Tensor]:
        """The joint normal: its moments, covariance of abilities and of these with items (N, M)."""
        prior = self.prior(point)
        omega, _ = mean_precision(self.counts.trials, point[:-3].exp().reshape(self.kappa.shape))
        held = omega.sum(0) + 1 / prior.variance[1]
        own = omega.sum(1) + 1 / prior.ability
        share = omega / held
        covariance = torch.linalg.inv_ex(torch.diag(own) - share @ omega.T)[0]
        covariance = (covariance + covariance.T) / 2
        pull = self.kappa.sum(0) + prior.mean[1] / prior.variance[1]
        theta = covariance @ (self.kappa.sum(1) - share @ pull)
        d = (pull - theta @ omega) / held
        across = -covariance @ share
        spread = d.new_zeros(len(d), 2, 2)
        spread[:, 1, 1] = 1 / held - (share * across).sum(0)
        items = torch.stack([torch.ones_like(d), d], dim=1)
        return Moments(theta, covariance.diagonal(), items, spread), covariance, across

    def step(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Update everything once; with the bound where the step started."""
        q, covariance, across = self.solve(point)
        prior = self.prior(point)
        mean = q.ability[:, None] + q.items[:, 1]
        own = q.spread[:, 1, 1]
        square = mean**2 + q.variance[:, None] + own + 2 * across
        omega, _ = mean_precision(self.counts.trials, point[:-3].exp().reshape(mean.shape))
        _, level = mean_precision(self.counts.trials, square)
        value = (self.kappa * mean - self.counts.trials * level).sum()
        value = value - divergence(q.ability, q.variance, 0 * prior.ability, prior.ability)
        value = value - divergence(q.items[:, 1], own, prior.mean[1], prior.variance[1])
        # The joint covariance's determinant: of abilities, times that of items given them.
        held = omega.sum(0) + 1 / prior.variance[1]
        value = value + 0.5 * (torch.logdet(covariance) - held.log().sum())
        d = q.items[:, 1]
        tau, sd = (q.ability**2 + q.variance).mean(), ((d - d.mean()) ** 2 + own).mean()
        hyper = torch.stack([0.5 * tau.log(), d.mean(), 0.5 * sd.log()])
        return torch.cat([square.log().flatten(), hyper]), value
