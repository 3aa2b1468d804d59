"""The no-U-turn sampler for any model on plates whose latents are numbers [HG14]_ [Bet17]_.

Chains are asynchronous: each has its own place in its own tree, and every gradient serves all of
them. While warming up, a step size for each chain adapts, coordinates in which the posterior is
near standard (scales and a few directions, by draws and scores), and how far latents are centred
[BG15]_.

* `sample_posterior`: draws of a model, with what to say about them
* `Posterior`: the log density of a model over rows of numbers on the whole line
* `walk`: the sampler itself, for any density
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributions
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.engines.plates.distributions import TORCH
from evalstats_plugin.hierarchical.engines.plates.evidence import axis_of, example, joint_bound
from evalstats_plugin.hierarchical.engines.plates.model import (
    Bound,
    Latent,
    Model,
    arguments,
    prior_values,
    unchecked,
)
from evalstats_plugin.hierarchical.engines.plates.results import Moments, PlatedFit
from evalstats_plugin.runtime.chains import convergence
from evalstats_plugin.runtime.progress import with_progress
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.streams import stream

_Number = TypeVar("_Number", bound=np.generic)

Evaluate = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Log density and gradient of rows."""

_LOCATION_SCALE = (distributions.Normal, distributions.StudentT, distributions.Laplace,
                   distributions.Cauchy)  # fmt: skip
"""Priors of loc + scale · standard, whose centring can be chosen."""

_ACCEPTANCE = 0.8
"""Target acceptance rate."""

_DEPTH, _FIRST_DEPTH = 10, 6
"""Most doublings of a path, and in the first window."""

_DIVERGENT = 1000.0
"""Loss of log density along a path from which it is called divergent."""

_WINDOWS = (20, 20, 30, 40, 60, 40)
"""Draws of each chain in the windows of the warm-up; the last tunes step sizes only."""

WARM_UP_DRAWS = sum(_WINDOWS)
"""Draws of each chain in the whole warm-up."""

_RANK = 12
"""Most directions, of draws and as many of scores, that coordinates are corrected in."""

_DEGREES = np.linspace(0.0, 1.0, 11)
"""Degrees of centring to choose from."""

_CLEAR = 0.1
"""Nats by which a member's own degree must beat the one of all members."""

_TRIED = 20
"""Starts tried for each chain."""

_FAR = 30.0
"""Most that a number transformed to the whole line can be."""

_MOST_STORED = 3_000
"""Rows of draws from which directions are found, of models of a few hundred numbers."""


def chains_for(bound: Bound) -> int:
    """Return the default number of chains: fewer for models with many numbers."""
    return 16 if bound.numbers <= 500 else 8


def sample_posterior(
    model: Model, bound: Bound, chains: int, draws: int, generator: torch.Generator
) -> PlatedFit:
    """Draw from the posterior of a model, on crossed plates too.

    Parameters
    ----------
    chains, draws
        Number of chains, and of draws that each keeps.

    Raises
    ------
    DesignError
        A latent has finitely many values, or a support that depends on others; no start has a
        density above 0.
    """
    posterior = Posterior(bound, generator)
    seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
    walked = sample(posterior, chains, draws, stream(seed, "paths of the no-U-turn sampler"))
    s, by_latent = bound.structure, dict[str, FloatArray]()
    values = posterior.natural(walked.rows.reshape(chains * draws, -1))
    ess: dict[str, FloatArray] = {}
    r_hat = 0.0
    for name, latent in s.latents.items():
        shape = chains, draws, *s.lengths(latent.plate), *latent.shape
        by_latent[name] = values[name].reshape(shape)
        bulk = convergence(by_latent[name])
        own = np.minimum(bulk.ess, tail_ess(by_latent[name]))
        least: FloatArray = own.reshape(*own.shape[: own.ndim - len(latent.shape)], -1).min(-1)
        group = latent.set_of_particles
        ess[group] = np.minimum(ess.get(group, least), least)
        # Values that a support fixes, such as zeros of a factor, agree.
        r_hat = max(r_hat, float(np.max(np.nan_to_num(bulk.r_hat, nan=1.0))))
    flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in by_latent.items()}
    return PlatedFit(
        model=model,
        method="nuts",
        log_evidence=None,
        log_evidence_error=None,
        moments={name: Moments(x.mean(axis=0), x.std(axis=0)) for name, x in flat.items()},
        draws=flat,
        ess=ess,
        k_hat={},
        history=np.array([]),
        proposals=None,
        bound=bound,
        chains=chains,
        r_hat=r_hat if chains > 1 else math.nan,
        divergent=walked.divergent,
    )


def tail_ess(draws: FloatArray) -> FloatArray:
    """Effective draws for the 5 % and 95 % quantiles, the smaller of both [VGS21]_.

    Parameters
    ----------
    draws : shape (chains, draws, ...)
    """
    low, high = np.quantile(draws, [0.05, 0.95], axis=(0, 1))
    return np.minimum(convergence(draws <= low).ess, convergence(draws <= high).ess)


@dataclass(frozen=True)
class _Part:
    """A latent's place in a row of numbers."""

    latent: Latent
    at: slice
    shape: list[int]
    """Of its numbers on the whole line: axes of plates, of draws, then its own."""
    bijection: Any
    on_the_line: bool
    moves: bool
    """Whether its prior is a location-scale family whose parameters are latents."""


class _Operations(TorchDispatchMode):
    """Operations of torch, those of derivatives among them, in the order in which they are done."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled: what keeps the compiler away would import it, for seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is TORCH.ops.aten._local_scalar_dense.default:
            raise RuntimeError("what is done next depends on a value")
        outputs = func(*args, **(kwargs or {}))
        self.done.append((func, (args, kwargs or {}), outputs))
        return outputs

    def function(
        self, given: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> Callable[..., tuple[Tensor, ...]]:
        """Return the function that does the same with other values of what was given."""

        def again(*fresh: Tensor) -> tuple[Tensor, ...]:
            # All tensors are kept, so that each has a number of its own.
            by_id = dict(zip(map(id, given), fresh, strict=True))

            def of(x: Tensor) -> Tensor:
                return by_id.get(id(x), x)

            for func, given_then, made_then in self.done:
                args, kwargs = tree_map_only(Tensor, of, given_then)
                made = func(*args, **kwargs)
                by_id |= zip(map(id, tree_leaves(made_then)), tree_leaves(made), strict=True)
            return tuple(map(of, outputs))

        return again


class Posterior:
    """Log density of a model over rows of numbers on the whole line, with its gradient.

    A latent x with a location-scale prior of latent parameters stands in a row as
    a · loc + (x − loc) · scale^(a − 1), with a degree of centring a of its own.
    """

    def __init__(self, bound: Bound, generator: torch.Generator) -> None:
        self.joint = joint_bound(bound)
        self.axis, self.size = axis_of(self.joint), 0
        self.parts: list[_Part] = []
        prior, s = prior_values(self.joint, 100, generator), self.joint.structure
        for latent in s.latents.values():
            self._add(latent, prior)
        self.centring = torch.zeros(self.size, dtype=torch.float64, device=bound.device)
        self.cells = {name: self._cells(name) for name in bound.present}
        self.recorded: dict[int, Any] = {}
        # The first call finds out which functions take whole arrays: of one row, all seem to.
        several = torch.linspace(-0.5, 0.7, 3 * self.size, dtype=torch.float64)
        self.log_density(several.reshape(3, -1).to(bound.device), self.centring)

    def _add(self, latent: Latent, prior: Mapping[str, Tensor]) -> None:
        """Give a latent its place, and a map from the whole line to the support of its prior."""
        family = example(self.joint, latent, prior)
        support, enumerable = family.support, getattr(family, "has_enumerate_support", False)
        if enumerable or getattr(support, "is_discrete", False):
            msg = f"latent {latent.name!r} has whole numbers as values, which method 'nuts' cannot "
            raise DesignError(f"{msg}move: take 'qem' or 'mp-is', which sum over finitely many")
        if type(support).__name__ == "MixtureSameFamilyConstraint":
            support = support.base_constraint
        try:
            bijection = cast("Any", distributions.biject_to(support))
        except NotImplementedError as error:
            msg = f"latent {latent.name!r}: no map leads from the whole line to the support of "
            raise DesignError(
                f"{msg}{type(family).__name__}: make it of others, such as a factor by LKJCholesky"
            ) from error
        n, values = self.joint.structure.ndim, prior[latent.name]
        natural = values.reshape([*values.shape[:n], *latent.shape])
        free = bijection.inv(natural)
        # Torch moves values outside the support to its edge.
        same = torch.allclose(bijection(free), natural, rtol=1e-3, atol=1e-6)
        if not (same and bool(torch.isfinite(free).all())):
            msg = f"the support of latent {latent.name!r} depends on other latents"
            raise DesignError(f"{msg}: write it as a function of one with a fixed support")
        shape = list(free.shape)
        count = math.prod(shape) // shape[self.axis]
        line = not getattr(bijection, "parts", (None,))
        parents = self.joint.structure.parents_of(latent)
        moves = isinstance(family, _LOCATION_SCALE) and bool(parents)
        place = slice(self.size, self.size + count)
        self.parts.append(_Part(latent, place, shape, bijection, line, moves))
        self.size += count

    def _cells(self, name: str) -> tuple[Tensor, ...] | None:
        """Members of every observed cell, by axis of plates; None where nearly all are."""
        if self.joint.ranks[name]:
            return None
        s = self.joint.structure
        observed = self.joint.present[name] > 0
        around = self.joint.exists(s.observed[name].plate)
        # Axes of particles and of vectors are of length 1.
        observed = observed.reshape(observed.shape[: len(s.plate_axis)])
        if around is not None:
            observed = observed & around.reshape(around.shape[: len(s.plate_axis)])
        return observed.nonzero(as_tuple=True) if float(observed.double().mean()) < 0.7 else None

    def _at_cells(self, x: Tensor, cells: tuple[Tensor, ...]) -> Tensor:
        """Values at observed cells, along the first axis."""
        kept = [cell for i, cell in enumerate(cells) if x.shape[i] > 1]
        if not kept:
            return x
        axes = [i for i in range(len(cells)) if x.shape[i] > 1]
        rest = [i for i in range(x.ndim) if i not in axes]
        picked = x.permute(*axes, *rest)[tuple(kept)]
        shape = [1 if i in axes else x.shape[i] for i in range(x.ndim)]
        shape[0] = len(picked)
        # An axis before the first one that the value has is of length 1, as is that one's place.
        return picked.reshape(shape)

    def latents(self, flat: Tensor, centring: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Latents in their own units, and log prior density with the volume of the maps."""
        joint, n = self.joint, self.joint.structure.ndim
        near = dict(joint.arrays)
        total = torch.zeros(len(flat), dtype=torch.float64, device=flat.device)
        for part in self.parts:
            latent = part.latent
            rows_first = [len(flat), *part.shape[: self.axis], *part.shape[self.axis + 1 :]]
            free = flat[:, part.at].reshape(rows_first).movedim(0, self.axis)
            free = free if part.on_the_line else free.clamp(-_FAR, _FAR)
            if part.moves:
                loc, scale = self._location_scale(latent, near)
                degree = self._degrees(centring, part)
                away = (1 - degree) * scale.log()
                natural = loc + away.exp() * (free - degree * loc)
                volume = away.expand(natural.shape)
            else:
                natural = part.bijection(free)
                volume = part.bijection.log_abs_det_jacobian(free, natural)
            volume = volume.flatten(n).sum(-1) if volume.ndim > n else volume
            near[latent.name] = natural.reshape([*natural.shape[:n], *joint.vector(latent.shape)])
            own = {**near, "=": near[latent.name]}
            density = volume + joint.log_density(latent.prior, own, latent.name)
            present = joint.exists(latent.plate)
            if present is not None:
                # Members that a ragged plate lacks are standard normal: any density will do.
                own = free.flatten(n) if free.ndim > n else free[..., None]
                density = torch.where(present, density, -own.square().sum(-1) / 2)
            total = total + self._summed(density)
        return near, total

    def log_density(self, flat: Tensor, centring: Tensor) -> Tensor:
        """Log posterior density of each row, up to a constant."""
        joint = self.joint
        near, total = self.latents(flat, centring)
        for name, observed in joint.structure.observed.items():
            own, cells = {x: near[x] for x in arguments(observed.density)}, self.cells.get(name)
            own["="] = joint.arrays[name]
            if cells is not None:
                own = {x: self._at_cells(value, cells) for x, value in own.items()}
            elif name in joint.present:
                own["?"] = joint.present[name]
            density = joint.log_density(observed.density, own, name)
            present = joint.exists(observed.plate) if cells is None else None
            density = density if present is None else torch.where(present, density, 0.0)
            total = total + self._summed(density)
        return total

    def _summed(self, density: Tensor) -> Tensor:
        """Sum over members, for each row."""
        density = density.movedim(self.axis, -1)
        return density.reshape(-1, density.shape[-1]).sum(0)

    def _degrees(self, centring: Tensor, part: _Part) -> Tensor:
        return centring[part.at].reshape(
            [*part.shape[: self.axis], 1, *part.shape[self.axis + 1 :]]
        )

    def _location_scale(self, latent: Latent, near: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Location and scale of a prior for each member and draw."""
        names = arguments(latent.prior)

        def one(**own: Tensor) -> tuple[Tensor, Tensor]:
            made = latent.prior(**own)
            return made.loc.expand(latent.shape), made.scale.expand(latent.shape)

        ranks = {x: self.joint.ranks[x] for x in names}
        with unchecked():
            return self.joint.each(one, {x: near[x] for x in names}, ranks, latent.name)

    def _moving(self, near: Mapping[str, Tensor]) -> Iterator[tuple[_Part, Tensor, Tensor, Tensor]]:
        """Latents whose centring can be chosen, with values, locations and scales."""
        n = self.joint.structure.ndim
        for part in self.parts:
            if part.moves:
                value = near[part.latent.name]
                own = value.reshape([*value.shape[:n], *part.latent.shape])
                yield part, own, *self._location_scale(part.latent, near)

    def natural(self, rows: FloatArray) -> dict[str, FloatArray]:
        """Latents in their own units, (row, members, vector) by name."""
        blocks: dict[str, list[FloatArray]] = {part.latent.name: [] for part in self.parts}
        with torch.no_grad():
            for block in np.array_split(rows, range(1000, len(rows), 1000)):
                near, _ = self.latents(self._tensor(block), self.centring)
                for name, x in blocks.items():
                    x.append(near[name].movedim(self.axis, 0).cpu().numpy())
        return {name: np.concatenate(x) for name, x in blocks.items()}

    def _tensor(self, rows: FloatArray) -> Tensor:
        return torch.as_tensor(rows, device=self.centring.device)

    def __call__(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log density and gradient of rows."""
        size = min((n for n in self.recorded if n >= len(rows)), default=0)
        wide = np.concatenate([rows, np.repeat(rows[:1], max(size - len(rows), 0), axis=0)])
        run = self.recorded.get(size, self._differentiated)
        with torch.no_grad():
            value, gradient = run(self._tensor(wide), self.centring)
        return value.cpu().numpy()[: len(rows)], gradient.cpu().numpy()[: len(rows)]

    def _differentiated(self, flat: Tensor, centring: Tensor) -> tuple[Tensor, Tensor]:
        flat = flat.detach().requires_grad_()
        with torch.enable_grad():
            value = self.log_density(flat, centring)
            (gradient,) = torch.autograd.grad(value.sum(), flat)
        return value.detach(), gradient

    def record(self, sizes: set[int]) -> None:
        """Record value and gradient, for these numbers of rows, as a flat list of operations.

        No distributions are built then, and no graph of derivatives: 3 to 7 times as fast. Models
        that do other operations for other values cannot be recorded, and are called as they are.
        """
        where = self.centring.device
        for size in sizes:
            like = torch.linspace(-0.3, 0.3, size, dtype=torch.float64, device=where)
            like = like[:, None].expand(size, self.size).contiguous()
            operations = _Operations()
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")  # That TorchScript is deprecated.
                try:
                    with operations:
                        outputs = self._differentiated(like, self.centring)
                    again = operations.function((like, self.centring), outputs)
                    made: Any = TORCH.jit.trace(again, (like, self.centring), check_trace=False)
                except (RuntimeError, DesignError):
                    return
                replayed = made(like + 0.1, self.centring)
            expected = self._differentiated(like + 0.1, self.centring)
            if all(
                torch.allclose(x, y, equal_nan=True)
                for x, y in zip(replayed, expected, strict=True)
            ):
                self.recorded[size] = made

    def learn_centring(self, rows: FloatArray) -> None:
        """Choose the degrees of centring from draws.

        They minimise the divergence from the posterior to a product of normal distributions, up to
        a constant ½ log Var(x_a) + (1 − a) E log scale: one degree for all members of a latent,
        and another for members whose draws clearly say so.
        """
        with torch.no_grad():
            near, _ = self.latents(self._tensor(rows), self.centring)
            chosen = self.centring.clone()
            for part, value, loc, scale in self._moving(near):
                log_scale = scale.log().expand(value.shape)
                score = torch.stack([
                    (a * loc + (value - loc) * ((a - 1) * log_scale).exp()).var(self.axis).log() / 2
                    + (1 - a) * log_scale.mean(self.axis)
                    for a in _DEGREES
                ]).reshape(len(_DEGREES), -1)  # fmt: skip
                shared = score.mean(1).argmin()
                best, own = score.min(0)
                picked = torch.where(score[shared] - best > _CLEAR, own, shared)
                chosen[part.at] = torch.as_tensor(_DEGREES, device=chosen.device)[picked]
        self.centring = chosen

    def recentred(self, rows: FloatArray, old: Tensor) -> FloatArray:
        """Return the same points with the present degrees of centring instead of the old ones."""
        flat = self._tensor(rows).clone()
        with torch.no_grad():
            near, _ = self.latents(flat, old)
            for part, value, loc, scale in self._moving(near):
                degree = self._degrees(self.centring, part)
                moved = degree * loc + (value - loc) * ((degree - 1) * scale.log()).exp()
                flat[:, part.at] = moved.movedim(self.axis, 0).reshape(len(flat), -1)
        return flat.cpu().numpy()


class Coordinates(NamedTuple):
    """Rows x = shift + scale · (w + V (root − 1) Vᵀ w), in which w is nearly standard."""

    shift: FloatArray
    scale: FloatArray
    directions: FloatArray
    root: FloatArray

    def _bend(self, w: FloatArray, by: FloatArray) -> FloatArray:
        return w + ((w @ self.directions) * (by - 1)) @ self.directions.T if len(by) else w

    def rows(self, w: FloatArray) -> FloatArray:
        """Rows of the model."""
        return self.shift + self.scale * self._bend(w, self.root)

    def inverse(self, x: FloatArray) -> FloatArray:
        """Coordinates of rows."""
        return self._bend((x - self.shift) / self.scale, 1 / self.root)

    def gradient(self, g: FloatArray) -> FloatArray:
        """Gradient by coordinates, from that by rows."""
        return self._bend(g * self.scale, self.root)

    @staticmethod
    def learned(draws: FloatArray, scores: FloatArray, rank: int) -> Coordinates:
        """Scales and a few directions, from draws and gradients (chain, draw, number)."""
        centre, d = draws.mean((0, 1)), draws.shape[-1]
        # Medians over chains: one that is stuck far away does not spoil the others.
        spread = np.median(((draws - centre) ** 2).mean(1), 0) + 1e-12
        score = np.median((scores**2).mean(1), 0) + 1e-12
        scale = (spread / score) ** 0.25
        if d < 2 or not rank:
            return Coordinates(centre, scale, np.zeros((d, 0)), np.zeros(0))
        x = ((draws - centre) / scale).reshape(-1, d)
        g = (scores * scale).reshape(-1, d)
        kept = min(rank, d // 2 + 1)
        every = max(1, len(x) * max(d, 300) // (_MOST_STORED * 300))
        top = [np.linalg.svd(a[::every], full_matrices=False)[2][:kept] for a in (x, g)]
        basis = np.linalg.qr(np.concatenate(top).T)[0][:, :d]
        of_x, of_g = (np.atleast_2d(np.cov((a @ basis).T)) + 1e-5 * np.eye(basis.shape[1])
                      for a in (x, g))  # fmt: skip
        # The geometric mean of the covariance of draws and the inverse of that of scores.
        values, vectors = np.linalg.eigh(of_x)
        half = vectors * np.sqrt(values) @ vectors.T
        middle, turned = np.linalg.eigh(half @ of_g @ half)
        mean = half @ (turned * middle.clip(1e-10) ** -0.5 @ turned.T) @ half
        e, v = np.linalg.eigh((mean + mean.T) / 2)
        far = (e > 1.8) | (e < 0.55)
        return Coordinates(centre, scale, basis @ v[:, far], np.sqrt(e[far].clip(1e-6, 1e8)))


@dataclass
class Steps:
    """Dual averaging of the logarithms of step sizes, one for each chain [HG14]_."""

    log_step: FloatArray
    mean: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget the errors, and start at the present steps."""
        self.target, self.mean = self.log_step + math.log(2), self.log_step.copy()
        self.error, self.count = np.zeros_like(self.log_step), np.zeros_like(self.log_step)

    def update(self, k: NDArray[np.intp], accepted: FloatArray) -> None:
        """Learn from the acceptance rates of the last paths of chains k."""
        self.count[k] += 1
        t = self.count[k]
        eta = 1 / (t + 10)
        self.error[k] = (1 - eta) * self.error[k] + eta * (_ACCEPTANCE - accepted)
        self.log_step[k] = self.target[k] - np.sqrt(t) / 0.05 * self.error[k]
        weight = t**-0.75
        self.mean[k] = weight * self.log_step[k] + (1 - weight) * self.mean[k]


class Walked(NamedTuple):
    """Draws of all chains."""

    rows: FloatArray
    """Shape (chain, draw, number)."""
    divergent: int
    """Number of draws whose path diverged."""


def sample(posterior: Posterior, chains: int, draws: int, rng: np.random.Generator) -> Walked:
    """Warm up, then draw.

    Raises
    ------
    DesignError
        No start has a density above 0.
    """
    d = posterior.size
    posterior.record({chains, max(chains // 4, 1)})
    tried = rng.uniform(-2, 2, (_TRIED, chains, d))
    with np.errstate(all="ignore"):
        level = np.stack([posterior(x)[0] for x in tried])
    level = np.where(np.isfinite(level), level, -np.inf)
    if not np.isfinite(level.max(0)).all():
        msg = "the log density is not finite at the starts of some chains"
        raise DesignError(f"{msg}: check that parameters are in range, and the data possible")
    # The best of the first five that are possible: of more, all would start at one place.
    first = np.where(np.isfinite(level).cumsum(0) <= 5, level, -np.inf)
    start = tried[first.argmax(0), np.arange(chains)]
    slope = np.median(np.abs(np.nan_to_num(posterior(start)[1], nan=1.0)), 0)
    frame = Coordinates(np.zeros(d), slope.clip(1e-3, 1e6) ** -0.5, np.zeros((d, 0)), np.zeros(0))
    steps = Steps(np.full(chains, math.log(0.2)))
    for i, length in zip(
        with_progress("warm-up window", range(len(_WINDOWS))), _WINDOWS, strict=True
    ):
        depth = _DEPTH if i else _FIRST_DEPTH
        walked = walk(posterior, start, frame, steps, length, rng, adapt=True, depth=depth)
        start = walked.rows[:, -1].copy()
        steps.log_step = steps.mean.copy()
        if i + 1 < len(_WINDOWS):
            rows, old = walked.rows[:, length // 3 :], posterior.centring
            flat = rows.reshape(-1, d)
            posterior.learn_centring(flat)
            rows = posterior.recentred(flat, old).reshape(rows.shape)
            start = posterior.recentred(start, old)
            scores = np.stack([posterior(x)[1] for x in rows.swapaxes(0, 1).copy()], 1)
            frame = Coordinates.learned(rows, np.nan_to_num(scores), _RANK if i else 0)
            steps.log_step[:] = np.median(steps.log_step)
        middle = float(np.median(steps.log_step))
        steps.log_step = steps.log_step.clip(middle - 1.0, middle + 0.4)
        steps.restart()
    return walk(posterior, start, frame, steps, draws, rng, adapt=False)


def _turns(a: FloatArray, b: FloatArray, total: FloatArray) -> NDArray[np.bool_]:
    """Whether a stretch of a path, from momentum a to b with their sum, turns back."""
    middle = total - (a + b) / 2
    return ((a * middle).sum(-1) <= 0) | ((b * middle).sum(-1) <= 0)


def _of_chains(stay: NDArray[np.bool_], *arrays: NDArray[_Number]) -> list[NDArray[_Number]]:
    return [a[stay] for a in arrays]


def walk(
    evaluate: Evaluate,
    start: FloatArray,
    frame: Coordinates,
    steps: Steps,
    draws: int,
    rng: np.random.Generator,
    *,
    adapt: bool,
    depth: int = _DEPTH,
) -> Walked:
    """Draw by paths that double until they turn back; draws along them are multinomial [Bet17]_.

    Each chain goes on to its next draw as soon as it has one; chains that have all leave.

    Parameters
    ----------
    start
        Rows of all chains, (chain, number).
    draws
        Number of draws of each chain.
    adapt
        Whether step sizes learn.
    depth
        Most doublings.
    """
    n, d = start.shape
    rows = np.empty((n, draws, d))
    divergent = 0

    def density(w: FloatArray) -> tuple[FloatArray, FloatArray]:
        with np.errstate(all="ignore"):
            value, gradient = evaluate(frame.rows(w))
        bad = ~(np.isfinite(value) & np.isfinite(gradient).all(1))
        value, gradient = np.where(bad, -np.inf, value), frame.gradient(gradient)
        gradient[bad] = 0.0
        return value, gradient

    w = frame.inverse(start)
    value, gradient = density(w)
    ids: NDArray[np.intp] = np.arange(n, dtype=np.intp)
    done = np.zeros(n, dtype=np.intp)
    # q: the draw; ends: those of the path, backward and forward; s: draw of the part being built.
    q, q_value, q_gradient = w.copy(), value.copy(), gradient.copy()
    ends = np.zeros((3, 2, n, d))  # Position, momentum, gradient.
    x, p, g = w.copy(), np.zeros((n, d)), gradient.copy()
    energy, weight, path_sum = np.zeros(n), np.zeros(n), np.zeros((n, d))
    s, s_value, s_gradient = w.copy(), value.copy(), gradient.copy()
    s_weight, s_sum = np.full(n, -np.inf), np.zeros((n, d))
    level, leaf, side = (np.zeros(n, dtype=np.intp) for _ in range(3))
    chance, count = np.zeros(n), np.zeros(n)
    kept = np.zeros((2, n, depth + 1, d))  # Momenta and their sums at earlier leaves.

    def extend(k: NDArray[np.intp]) -> None:
        """Start a part on a side chosen at random."""
        side[k] = rng.integers(0, 2, len(k))
        x[k], p[k], g[k] = ends[:, side[k], k]
        leaf[k], s_weight[k], s_sum[k] = 0, -np.inf, 0.0

    def begin(k: NDArray[np.intp]) -> None:
        """Start a new draw."""
        momentum = rng.standard_normal((len(k), d))
        energy[k] = q_value[k] - (momentum**2).sum(1) / 2
        ends[0][:, k], ends[1][:, k], ends[2][:, k] = q[k], momentum, q_gradient[k]
        weight[k], path_sum[k], level[k], chance[k], count[k] = 0.0, momentum, 0, 0.0, 0
        extend(k)

    begin(ids)
    while len(ids):
        step = np.exp(steps.log_step[ids] if adapt else steps.mean[ids])
        h = (step * (2 * side - 1))[:, None]
        p += h / 2 * g
        x += h * p
        value, g = density(x)
        p += h / 2 * g
        change = value - (p**2).sum(1) / 2 - energy
        change = np.where(np.isnan(change), -np.inf, change)
        wild = change < -_DIVERGENT
        chance += np.exp(np.minimum(change, 0.0))
        count += 1
        with np.errstate(invalid="ignore"):
            s_weight = np.logaddexp(s_weight, change)
            take = np.log(rng.random(len(ids))) < change - s_weight
        s[take], s_value[take], s_gradient[take] = x[take], value[take], g[take]
        s_sum += p
        # Turns inside the part, against the first leaves of smaller ones that end here.
        place = np.bitwise_count(leaf >> 1).astype(np.intp)
        k = np.flatnonzero((leaf & 1) == 0)
        kept[0, k, place[k]], kept[1, k, place[k]] = p[k], s_sum[k]
        stop = wild.copy()
        ones = np.bitwise_count(leaf ^ (leaf + 1)).astype(np.intp) - 1  # Trailing ones.
        for back in range(int(ones.max(initial=0))):
            k = np.flatnonzero((ones > back) & ~stop)
            first, before = kept[0, k, place[k] - back], kept[1, k, place[k] - back]
            stop[k] = _turns(first, p[k], s_sum[k] - before + first)
        leaf += 1
        k = np.flatnonzero((leaf == (1 << level)) & ~stop)
        if len(k):
            better = k[np.log(rng.random(len(k))) < s_weight[k] - weight[k]]
            q[better], q_value[better] = s[better], s_value[better]
            q_gradient[better] = s_gradient[better]
            weight[k] = np.logaddexp(weight[k], s_weight[k])
            near, far = ends[1, side[k], k].copy(), ends[1, 1 - side[k], k]
            first, old = kept[0, k, 0], path_sum[k]
            ends[0, side[k], k], ends[1, side[k], k], ends[2, side[k], k] = x[k], p[k], g[k]
            path_sum[k] += s_sum[k]
            level[k] += 1
            stop[k] = (
                _turns(far, p[k], path_sum[k])
                | _turns(far, first, old + first)
                | _turns(near, p[k], s_sum[k] + near)
            )
            stop[k] |= level[k] >= depth
            going = k[~stop[k]]
            if len(going):
                extend(going)
        k = np.flatnonzero(stop)
        if not len(k):
            continue
        divergent += int(wild[k].sum())
        if adapt:
            steps.update(ids[k], chance[k] / count[k])
        rows[ids[k], done[k]] = q[k]
        done[k] += 1
        begin(k)
        if (done[k] == draws).any():
            stay = done < draws
            ids, done, level, leaf, side = _of_chains(stay, ids, done, level, leaf, side)
            q, x, p, g, s, path_sum, s_sum = _of_chains(stay, q, x, p, g, s, path_sum, s_sum)
            q_value, q_gradient, s_value, s_gradient, s_weight = _of_chains(
                stay, q_value, q_gradient, s_value, s_gradient, s_weight
            )
            energy, weight, chance, count = _of_chains(stay, energy, weight, chance, count)
            ends, kept = ends[:, :, stay], kept[:, stay]
    return Walked(frame.rows(rows.reshape(-1, d)).reshape(rows.shape), divergent)
