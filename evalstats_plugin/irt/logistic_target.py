"""Log posterior of the hierarchical Rasch and 2PL models, non-centred, of many chains at once.

The model and its priors are those of `gibbs`; the coordinates differ. Abilities θ = τ z, intercepts
d = μ + σ e and discriminations a = μ_a + σ_a f are moved by z, e, f ~ N(0, 1), and standard
deviations by their logarithms: where data say little, nothing is left that narrows like a funnel
[BG15]_.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts

Kind = Literal["rasch", "2pl"]


class Place(NamedTuple):
    """Parameters of K chains in the words of the model."""

    ability: Tensor
    """Shape (K, N)."""
    slope: Tensor
    """Shape (K, M)."""
    intercept: Tensor
    hyper: dict[str, Tensor]
    """By name, each of shape (K, 1)."""


class LogisticTarget:
    """Log density and gradient at points (K, P): z (N), e (M), f (M, 2PL only), hyper-parameters.

    Hyper-parameters are μ, log σ and log τ of a Rasch model; μ, log σ, μ_a and log σ_a of a 2PL.
    """

    def __init__(self, counts: Counts, kind: Kind) -> None:
        self.counts, self.kind = counts, kind
        n, m = counts.right.shape
        self.sizes = [n, m, 1, 1, 1] if kind == "rasch" else [n, m, m, 1, 1, 1, 1]

    def place(self, at: Tensor) -> Place:
        """Return the parameters at points (K, P)."""
        parts = at.split(self.sizes, 1)
        if self.kind == "rasch":
            z, e, mean, log_sd, log_ability = parts
            sd, ability_sd = log_sd.exp(), log_ability.exp()
            hyper = {"ability_sd": ability_sd, "intercept_mean": mean, "intercept_sd": sd}
            return Place(ability_sd * z, torch.ones_like(e), mean + sd * e, hyper)
        z, e, f, mean, log_sd, slope_mean, log_slope = parts
        sd, slope_sd = log_sd.exp(), log_slope.exp()
        hyper = {"intercept_mean": mean, "intercept_sd": sd}
        hyper |= {"discrimination_mean": slope_mean, "discrimination_sd": slope_sd}
        return Place(z, slope_mean + slope_sd * f, mean + sd * e, hyper)

    def value(self, at: Tensor) -> Tensor:
        """Log posterior density, up to a constant, shape (K,)."""
        logit = _logit(self.place(at))
        wrong = self.counts.trials * torch.nn.functional.softplus(logit)
        return (self.counts.right * logit - wrong).sum((1, 2)) + self._prior(at)

    def _prior(self, at: Tensor) -> Tensor:
        free = sum(self.sizes) - (3 if self.kind == "rasch" else 4)
        normal, hyper = at[:, :free].square().sum(1) / 2, at[:, free:]
        # A half-normal standard deviation brings its logarithm as a Jacobian.
        density = hyper[:, 1] - hyper[:, 0].square() / 18 - (2 * hyper[:, 1]).exp() / 18
        if self.kind == "rasch":
            return density - normal + hyper[:, 2] - (2 * hyper[:, 2]).exp() / 8
        slope = (hyper[:, 2] - 1).square() / 2 + (2 * hyper[:, 3]).exp() / 2
        return density - normal + hyper[:, 3] - slope

    def gradient(self, at: Tensor) -> Tensor:
        """Of `value`, shape (K, P)."""
        place, parts = self.place(at), at.split(self.sizes, 1)
        sd = place.hyper["intercept_sd"]
        residual = self.counts.right - self.counts.trials * torch.sigmoid(_logit(place))
        by_ability = (residual @ place.slope[..., None])[..., 0]
        by_intercept = residual.sum(1)
        own = [by_ability - parts[0], sd * by_intercept - parts[1]]
        pulled = (by_intercept * parts[1]).sum(1, keepdim=True)
        mean = place.hyper["intercept_mean"]
        hyper = [by_intercept.sum(1, keepdim=True) - mean / 9, sd * pulled + 1 - sd.square() / 9]
        if self.kind == "rasch":
            tau = place.hyper["ability_sd"]
            own[0] = tau * by_ability - parts[0]
            stretched = tau * (by_ability * parts[0]).sum(1, keepdim=True)
            return torch.cat([*own, *hyper, stretched + 1 - tau.square() / 4], 1)
        by_slope = (place.ability[:, None] @ residual)[:, 0]
        slope_mean, slope_sd = (place.hyper[f"discrimination_{x}"] for x in ("mean", "sd"))
        own.append(slope_sd * by_slope - parts[2])
        hyper.append(by_slope.sum(1, keepdim=True) - (slope_mean - 1))
        spread = slope_sd * (by_slope * parts[2]).sum(1, keepdim=True)
        return torch.cat([*own, *hyper, spread + 1 - slope_sd.square()], 1)

    def upright(self, at: Tensor) -> Tensor:
        """Turn abilities and discriminations of a 2PL to where most items reward ability."""
        if self.kind == "rasch":
            return at
        z, e, f, mean, log_sd, slope_mean, log_slope = at.split(self.sizes, 1)
        sign = torch.where(self.place(at).slope.sum(1, keepdim=True) < 0, -1.0, 1.0).to(at)
        return torch.cat([sign * z, e, sign * f, mean, log_sd, sign * slope_mean, log_slope], 1)

    def start(self, chains: int, generator: torch.Generator) -> Tensor:
        """Points (K, P) around the shares of right answers, chains half a unit apart.

        Hyper-parameters start nearer, lest a chain of a 2PL is turned round from the start.
        """
        right, trials = self.counts.right, self.counts.trials
        ability = torch.logit((right.sum(1) + 0.5) / (trials.sum(1) + 1))
        item = torch.logit((right.sum(0) + 0.5) / (trials.sum(0) + 1))
        middle = item.mean()[None]
        parts = [ability - ability.mean(), item - middle]
        none, one = right.new_zeros(1), right.new_ones(1)
        last = [middle, none, none] if self.kind == "rasch" else [middle, none, one, none - 0.7]
        if self.kind == "2pl":
            parts.append(torch.zeros_like(item))
        centre = torch.cat([*parts, *last]).expand(chains, -1)
        noise = torch.randn(
            centre.shape, generator=generator, dtype=right.dtype, device=right.device
        )
        apart = torch.full_like(centre[0], 0.5)
        apart[sum(self.sizes) - len(last) :] = 0.1
        return centre + apart * noise


def _logit(place: Place) -> Tensor:
    return torch.addcmul(place.intercept[:, None], place.ability[..., None], place.slope[:, None])
