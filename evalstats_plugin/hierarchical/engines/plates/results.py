"""Posterior of a model on plates: moments of any function, draws, predictions and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from evalstats_plugin.errors import DesignError, SelectionError, few, no_such
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Particles,
    Proposals,
    Weighed,
    axis_of,
    joint_bound,
    log_evidence,
    log_factors,
    posterior_draws,
    weighted_mean,
)
from evalstats_plugin.hierarchical.engines.plates.model import (
    Bound,
    Data,
    Model,
    Observed,
    On,
    bind,
    prior_values,
)
from evalstats_plugin.runtime.chains import (
    PARETO_K_LIMIT,
    R_HAT_LIMIT,
    inference_data,
    pareto_shape,
)
from evalstats_plugin.runtime.torch import generator_of
from evalstats_plugin.stats.arrays import FloatArray, log_mean_exp
from evalstats_plugin.stats.interval import tail_probability

if TYPE_CHECKING:
    import pandas as pd

FEW_EFFECTIVE = 100.0
"""Effective particles, or draws, below which a note is given."""

_SOURCE = "moment"


class Moments(NamedTuple):
    """Posterior moments of one latent, with the shape of its plates and vector."""

    mean: FloatArray
    std_dev: FloatArray


@dataclass(frozen=True)
class PlatedFit:
    """Posterior of a model on plates.

    Examples
    --------
    >>> from torch.distributions import Normal
    >>> from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate, infer
    >>> model = Model(
    ...     plates=[Plate("task", 2)],
    ...     latents=[Latent("mu", Normal(0.0, 1.0)),
    ...              Latent("z", lambda mu: Normal(mu, 1.0), "task")],
    ...     observed=[Observed("x", lambda z: Normal(z, 1.0), "task")],
    ... )
    >>> fit = infer(model, {"x": [0.6, 1.2]}, n_particles=100, rng=0)
    >>> fit.moment(lambda mu, z: z - mu, over="task").round(1)
    array([0.1, 0.4])
    >>> fit.predictive(rng=0)["x"].shape
    (1000, 2)
    """

    model: Model
    method: str
    log_evidence: float | None
    """Log of the mean P_MP of the last sets of particles; P_MP itself is unbiased. None where the
    method has no estimate."""
    log_evidence_error: float | None
    """Standard error, from the variance among the sets."""
    moments: dict[str, Moments]
    """By latent: self-normalised estimates, consistent but not unbiased."""
    draws: dict[str, FloatArray]
    """By latent, shape (draws, members of its plates, vector)."""
    ess: dict[str, FloatArray]
    """By group: effective particles of all sets, or effective draws, per member."""
    k_hat: dict[str, FloatArray]
    """By group: Pareto k of the weights, per member; unreliable above 0.7."""
    history: FloatArray
    """log P_MP (or the bound that was maximised) of each iteration of the adaptation."""
    proposals: Proposals | None
    bound: Bound
    sets: tuple[Weighed, ...] = ()
    chains: int = 1
    """Number of chains that the draws come from, one after the other."""
    r_hat: float | None = None
    """The largest of all latents, for Markov chains."""
    divergent: int = 0
    """Draws of Markov chains whose paths diverged."""
    moved: Mapping[str, tuple[Moments, Moments]] = field(
        default_factory=dict[str, tuple[Moments, Moments]]
    )
    """By latent, moments of a member that wider proposals change: as they are, and by these."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By plate, the names of its members where they have some, such as those of models."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What makes the results unreliable; empty where nothing is known to."""
        notes: list[str] = []
        poor = {g: float(np.min(x)) for g, x in self.ess.items()}
        worst = min(poor, key=poor.__getitem__, default="")
        if worst and poor[worst] < FEW_EFFECTIVE:
            kind = "draws" if self.r_hat is not None else "particles"
            more = "steps" if self.r_hat is not None else "n_particles"
            notes.append(
                f"{poor[worst]:.0f} effective {kind} of {worst!r}: more {more}, or another method"
            )
        tails = {g: float(np.nanmax(x, initial=-np.inf)) for g, x in self.k_hat.items()}
        heavy = max(tails, key=tails.__getitem__, default="")
        if heavy and tails[heavy] > PARETO_K_LIMIT:
            notes.append(
                f"weights of {heavy!r} have heavy tails (Pareto k {tails[heavy]:.2f}, limit "
                f"{PARETO_K_LIMIT}): estimates may be off; compare with method 'nuts'"
            )
        for name, (old, new) in list(self.moved.items())[:1]:
            notes.append(
                f"wider proposals move {name!r} from {old.mean:.3g} ± {old.std_dev:.2g} to "
                f"{new.mean:.3g} ± {new.std_dev:.2g}: particles miss a part of the posterior; "
                "take method 'nuts'"
            )
        if self.r_hat is not None and self.r_hat >= R_HAT_LIMIT:
            notes.append(
                f"the chains disagree (R-hat {self.r_hat:.3f}, limit {R_HAT_LIMIT}): take more "
                "steps, or another parametrisation"
            )
        if self.divergent:
            count = len(next(iter(self.draws.values())))
            notes.append(
                f"{self.divergent} of {count} draws diverged: a part of the posterior is too "
                "narrow for the steps; take tighter priors of scales, or another parametrisation"
            )
        return tuple(notes)

    def moment(self, function: Callable[..., Any], over: On = None) -> FloatArray:
        """Posterior mean of a function of latents and inputs, for each member of a plate.

        Massively parallel estimates sum over all combinations of particles: the mean is the
        derivative of log P_MP by a source of the function [BHA24]_. Markov chains average over
        their draws.

        Parameters
        ----------
        function
            Returns a number from latents and inputs, by name.
        over
            Innermost plate of its arguments; None for latents of the whole model.

        Raises
        ------
        DesignError
            An argument is no latent or input, or is on a plate that is not around.
        """
        if not self.sets:
            return self.by_draw(function, over).mean(axis=0)
        bound, mean = self._with(function, over), np.zeros(1)
        for weighed_set, part in zip(self.sets, _shares(self.sets).tolist(), strict=True):
            scene, source = weighed_set.scene, bound.zeros(over).requires_grad_()
            with torch.enable_grad():
                factor = source * _function_values(bound, scene.particles.values)
                total = log_evidence(replace(scene, factors={over: factor}))
            mean = mean + part * torch.autograd.grad(total, source)[0].cpu().numpy()
        return mean.reshape(bound.structure.lengths(over))

    def by_draw(self, function: Callable[..., Any], over: On = None) -> FloatArray:
        """Return a function, as of `moment`, at each draw: (draws, members)."""
        joint = joint_bound(self._with(function, over))
        count = len(next(iter(self.draws.values())))
        shape = joint.shape(over, next(iter(joint.structure.groups)), count)
        wide = _function_values(joint, self._joint(joint)).expand(shape).movedim(axis_of(joint), 0)
        return wide.reshape([count, *joint.structure.lengths(over)]).cpu().numpy()

    def _with(self, function: Callable[..., Any], over: On) -> Bound:
        """Return the model with a function in place of data."""
        model = Model(
            plates=self.model.plates,
            latents=self.model.latents,
            inputs=self.model.inputs,
            observed=[Observed(_SOURCE, function, over)],
        )
        ranks = {**self.bound.ranks, _SOURCE: 0}
        return replace(self.bound, structure=model.structure, ranks=ranks, known={})

    def probability(self, latent: str) -> FloatArray:
        """Posterior probability of each value of a latent with finitely many values.

        Returns
        -------
        array
            Shape (members of its plates, values).

        Raises
        ------
        SelectionError
            No latent with finitely many values has the name.
        """
        exact = self.proposals.exact if self.proposals is not None else {}
        if latent not in exact:
            raise SelectionError(no_such("discrete latent", latent, exact, few(list(exact))))
        weights = pooled_weights(self.bound, latent, self.sets)
        return weights.reshape(*weights.shape[:-1], len(self.sets), -1).sum(axis=-2)

    def predictive(
        self,
        sizes: Mapping[str, int] | None = None,
        data: Data | None = None,
        *,
        rng: np.random.Generator | int | None = None,
    ) -> dict[str, FloatArray]:
        """Draw data anew, one data set for each posterior draw.

        Parameters
        ----------
        sizes
            Numbers of members of plates that get new ones, whose latents are drawn given those
            they depend on.
        data
            Inputs of all members, old and new.

        Returns
        -------
        dict
            By observation, shape (draws, members, vector).
        """
        sizes, current = sizes or {}, self.bound.structure.sizes
        for name, size in sizes.items():
            if name not in current:
                raise SelectionError(no_such("plate", name, current, few(list(current))))
            if size < current[name]:
                msg = f"plate {name!r} has {current[name]} members, more than {size}: give all of "
                raise DesignError(f"{msg}them and the new ones")
        plates = [replace(p, size=sizes.get(p.name, p.size)) for p in self.model.plates]
        model, n = replace(self.model, plates=plates), len(next(iter(self.draws.values())))
        given = {name: self.data_of(name) for name in self.bound.structure.inputs}
        inputs = {**given, **(data or {})}
        s = model.structure
        anything = {o.name: np.zeros([*s.lengths(o.plate), *self.bound.shape_of_value(o.name)])
                    for o in model.observed}  # fmt: skip
        bound = bind(model, {**inputs, **anything}, self.bound.device)
        joint = joint_bound(bound)
        generator = generator_of(rng, "answers drawn from a prior", self.bound.device)
        values = prior_values(joint, n, generator, self._joint(bound))
        group = next(iter(s.groups))
        answers: dict[str, FloatArray] = {}
        for o in model.observed:
            vector = bound.shape_of_value(o.name)
            shape = joint.shape(o.plate, group, n) + list(vector)
            given = {**joint.arrays, **values}
            drawn = joint.sampled(o.density, given, o.name, shape, generator)
            drawn = drawn.movedim(axis_of(joint), 0).reshape([n, *s.lengths(o.plate), *vector])
            answers[o.name] = drawn.double().cpu().numpy()
        return answers

    def log_likelihood(self) -> dict[str, FloatArray]:
        """Log density of each observation at each draw, (draws, members); NaN where missing."""
        joint, s = joint_bound(self.bound), self.bound.structure
        n = len(next(iter(self.draws.values())))
        particles = Particles(self._joint(self.bound), no_proposals(joint))
        log_p: dict[str, FloatArray] = {}
        for name, o in s.observed.items():
            table = log_factors(joint, particles, o.plate, s.whole(o.plate))[name]
            wide = table.movedim(axis_of(joint), 0)
            wide = wide.expand(n, *wide.shape[1:])
            values = wide.reshape([n, *s.lengths(o.plate)]).cpu().numpy()
            log_p[name] = np.where(self.observed_cells(name), values, np.nan)
        return log_p

    def observed_cells(self, name: str) -> NDArray[np.bool_]:
        """Whether there is an observation, with the shape of its plates."""
        values = self.data_of(name)
        depth = len(self.bound.structure.chains[self.bound.structure.observed[name].plate])
        return np.asarray(~np.isnan(values.reshape(*values.shape[:depth], -1)).any(-1))

    def to_inference_data(self, *, rng: int = 0) -> Any:
        """Return posterior, log likelihood, predictions and data as ArviZ holds them.

        ``InferenceData`` with ArviZ 0, ``DataTree`` with ArviZ 1. Data that are missing in part
        have one dimension, ``NAME_cell``, of the cells that were observed, named by the members of
        their plates: there is nothing else to leave out, or to compare predictions with.
        """
        s = self.bound.structure
        coords = {p: list(self.names.get(p, range(n))) for p, n in s.sizes.items()}
        on = {x.name: x.plate for x in s.latents.values()} | s.inputs
        dims = {name: list(s.chains[plate]) for name, plate in on.items()}
        cells: dict[str, NDArray[np.bool_]] = {}
        for name, o in s.observed.items():
            dims[name] = list(s.chains[o.plate])
            seen = self.observed_cells(name)
            if not seen.all():
                cells[name], plates = seen, dims[name]
                dims[name] = [f"{name}_cell"]
                coords[f"{name}_cell"] = [
                    ", ".join(str(coords[p][i]) for p, i in zip(plates, at, strict=True))
                    for at in np.argwhere(seen).tolist()
                ]

        def kept(values: Mapping[str, FloatArray], before: int) -> dict[str, FloatArray]:
            return {name: x[(slice(None),) * before + (cells[name],)] if name in cells else x
                    for name, x in values.items()}  # fmt: skip

        def in_chains(values: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
            return {name: x.reshape(self.chains, -1, *x.shape[1:]) for name, x in values.items()}

        groups = {
            "posterior": in_chains(self.draws),
            "log_likelihood": in_chains(kept(self.log_likelihood(), 1)),
            "posterior_predictive": in_chains(kept(self.predictive(rng=rng), 1)),
            "observed_data": kept({name: self.data_of(name) for name in s.observed}, 0),
            "constant_data": {name: self.data_of(name) for name in s.inputs},
        }
        return inference_data(groups, coords=coords, dims=dims)

    def to_frame(self, confidence_level: float = 0.95) -> pd.DataFrame:
        """Return one line per latent and member: mean, standard deviation, limits, diagnostics.

        Members of plates have their names, or numbers from 0.
        """
        import pandas as pd

        s, tail = self.bound.structure, tail_probability(confidence_level)
        rows: list[dict[str, Any]] = []
        for name, latent in s.latents.items():
            plates, group = s.chains[latent.plate], latent.set_of_particles
            low, high = np.quantile(self.draws[name], [tail, 1 - tail], axis=0)
            for at in product(*(range(n) for n in self.moments[name].mean.shape)):
                member = at[: len(plates)]
                named = {p: self.names[p][i] if p in self.names else i
                         for p, i in zip(plates, member, strict=True)}  # fmt: skip
                rows.append({
                    "latent": name,
                    **named,
                    **{f"axis_{i}": n for i, n in enumerate(at[len(plates) :])},
                    "mean": float(self.moments[name].mean[at]),
                    "sd": float(self.moments[name].std_dev[at]),
                    "low": float(low[at]),
                    "high": float(high[at]),
                    "ess": float(self.ess[group][member]) if group in self.ess else math.nan,
                    "pareto_k": float(self.k_hat[group][member]) if group in self.k_hat
                    else math.nan,
                })  # fmt: skip
        return pd.DataFrame(rows)

    def _joint(self, bound: Bound) -> dict[str, Tensor]:
        """Lay draws out on the axes of a model, with one axis for draws."""
        joint, laid_out = joint_bound(self.bound), dict[str, Tensor]()
        for name, latent in joint.structure.latents.items():
            values = torch.as_tensor(self.draws[name], device=self.bound.device)
            shape = joint.shape(latent.plate, latent.set_of_particles, len(values))
            moved = values.movedim(0, len(joint.structure.chains[latent.plate]))
            laid_out[name] = moved.reshape(shape + bound.vector(latent.shape))
        return laid_out

    def data_of(self, name: str) -> FloatArray:
        """Return data as they were given, NaN where missing."""
        s, array = self.bound.structure, self.bound.arrays[name]
        if name in self.bound.present:
            array = torch.where(self.bound.present[name] > 0, array, torch.nan)
        shape = [*s.lengths(s.plate_of_data[name]), *self.bound.shape_of_value(name)]
        return array.reshape(shape).cpu().numpy()


def no_proposals(joint: Bound) -> dict[str, Tensor]:
    """Return log densities of 0 in place of those of proposals, by group."""
    return dict.fromkeys(joint.structure.groups, joint.zeros())


def _function_values(bound: Bound, values: Mapping[str, Tensor]) -> Tensor:
    """Return the function in place of data, for each member and particle; 0 where none exists."""
    (source,) = bound.structure.observed.values()
    nothing = bound.zeros().reshape([1] * (bound.structure.ndim + bound.events))
    near = {**bound.arrays, **values, "=": nothing}
    table, exists = bound.log_density(source.density, near, _SOURCE), bound.exists(source.plate)
    return table if exists is None else torch.where(exists, table, 0.0)


def _shares(sets: Sequence[Weighed]) -> FloatArray:
    return special.softmax([s.log_evidence for s in sets])


def average(
    model: Model,
    method: str,
    sets: list[Weighed],
    proposals: Proposals,
    history: FloatArray,
    *,
    draws: int,
    generator: torch.Generator,
) -> PlatedFit:
    """Average sets of particles, weighted by their evidence."""
    bound = sets[0].scene.bound
    evidence, relative = log_mean_exp(np.array([s.log_evidence for s in sets]))
    # Delta method for the log of a mean.
    error = relative.std(ddof=1) / relative.mean() / len(sets) ** 0.5 if len(sets) > 1 else np.nan
    own = [g for g in bound.structure.groups if g not in proposals.exact]
    moments, weights = summary(bound, sets, own)
    k_hat = {g: pareto_shape(w.reshape(-1, w.shape[-1])).reshape(w.shape[:-1])
             for g, w in weights.items()}  # fmt: skip
    # Sets are drawn by their share of the evidence.
    shares = torch.as_tensor(relative / relative.sum(), device=generator.device)
    picked = torch.multinomial(shares, max(draws, 1), replacement=True, generator=generator)
    counts: list[int] = np.bincount(picked[:draws].cpu().numpy(), minlength=len(sets)).tolist()
    parts = [
        posterior_draws(weighed_set.scene, n, generator)
        for i, (weighed_set, n) in enumerate(zip(sets, counts, strict=True))
        if n or i == 0
    ]
    return PlatedFit(
        model=model,
        method=method,
        log_evidence=float(evidence),
        log_evidence_error=float(error),
        moments=moments,
        draws={x: torch.cat([p[x] for p in parts]).cpu().numpy() for x in parts[0]},
        ess={g: effective_particles(w) for g, w in weights.items()},
        k_hat=k_hat,
        history=history,
        proposals=proposals,
        bound=bound,
        sets=tuple(sets),
    )


def summary(
    bound: Bound, sets: Sequence[Weighed], groups: Iterable[str]
) -> tuple[dict[str, Moments], dict[str, FloatArray]]:
    """Return moments of every latent, and the weights of groups as of `pooled_weights`."""
    s, moments = bound.structure, dict[str, Moments]()
    shares = _shares(sets).tolist()
    for name, latent in s.latents.items():
        group = latent.set_of_particles
        first = second = torch.zeros(1, dtype=torch.float64, device=bound.device)
        for weighed_set, part in zip(sets, shares, strict=True):
            z, w = weighed_set.scene.particles.values[name], weighed_set.weights[group] * part
            first = first + weighted_mean(bound, w, z, group)
            second = second + weighted_mean(bound, w, z * z, group)
        shape = [*s.lengths(latent.plate), *latent.shape]
        mean, square = (x.reshape(shape).cpu().numpy() for x in (first, second))
        moments[name] = Moments(mean, np.sqrt(np.maximum(square - mean**2, 0)))
    return moments, {g: pooled_weights(bound, g, sets) for g in groups}


def effective_particles(weights: FloatArray) -> FloatArray:
    """Return 1 / Σ w², along the last axis."""
    return 1 / (weights * weights).sum(-1)


def pooled_weights(bound: Bound, group: str, sets: Sequence[Weighed]) -> FloatArray:
    """Weights of the particles of all sets, shape (members of its plates, sets · K)."""
    shape = bound.structure.lengths(bound.structure.groups[group].plate)
    return np.concatenate([
        (weighed_set.weights[group] * part).reshape(*shape, -1).cpu().numpy()
        for weighed_set, part in zip(sets, _shares(sets).tolist(), strict=True)
    ], axis=-1)  # fmt: skip
