"""Fit nested evals, and put the engine's draws into the form that results are made from."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from scipy import special

from evalstats_plugin.hierarchical.crossed import CrossedModel
from evalstats_plugin.hierarchical.models import Counts
from evalstats_plugin.hierarchical.nested import Layout, components, layout_of, nested_model
from evalstats_plugin.hierarchical.plated_fit import Options, PlatedFit, infer
from evalstats_plugin.hierarchical.posterior import FloatArray, Posterior

_FEWEST, _MOST, _TABLE = 50, 150, 1_000_000
"""Particles, and numbers in the table of two of them by unit: the more units, the fewer."""
_PREDICTED = 1000
"""Draws of which likelihoods and replications are kept."""
_NODES = 15
_NEWTON_STEPS = 4


class ParticleFit(NamedTuple):
    """Draws in the form of all engines, and the engine's own account."""

    posterior: Posterior
    plated: PlatedFit
    particles: int
    """Of each group, in all sets together."""


def fit_nested(
    counts: Counts,
    structure: CrossedModel,
    rng: np.random.Generator,
    size: tuple[int, int],
    device: str,
) -> ParticleFit:
    """Infer a nested eval, whose columns are tasks, by QEM.

    Parameters
    ----------
    size
        Chains and draws of each, as the other engine would give; here all are independent.

    Raises
    ------
    DesignError
        Not enough memory.
    """
    layout = layout_of(counts)
    data = {"right": counts.right.ravel(), "trials": counts.trials.ravel()}
    if layout.covariates.shape[1]:
        data["x"] = layout.covariates
    options = Options(k=particles(counts.right.size), draws=size[0] * size[1])
    model = nested_model(counts, structure)
    fit = infer(model, data, options=options, device=device, rng=rng)
    drawn = shuffled(fit, rng)
    scales = components(*(torch.from_numpy(drawn[name]) for name in ("spread", "angle")))
    drawn |= {f"sd_{layout.own}": scales[0].numpy(), "sd_interaction": scales[1].numpy()}
    mean = drawn["level"][:, None]
    if "beta" in drawn:
        mean = mean + layout.sign * drawn["beta"] @ layout.covariates.T
    if not layout.centred:
        drawn["theta"] = mean + drawn["spread"][:, None] * drawn["distance"]
    parameters = _effects(drawn, layout, structure, mean, rng)
    shape = (-1, *counts.right.shape)
    cells = Cells(
        drawn["theta"].reshape(shape),
        (mean + 0 * drawn["theta"]).reshape(shape),
        drawn["spread"][:, None, None],
    )
    posterior = posterior_of(counts, cells, parameters, size, rng)
    return ParticleFit(posterior, fit, options.k * options.sets)


def particles(units: int) -> int:
    """Choose how many, by the work that they make.

    >>> particles(3), particles(100), particles(1000)
    (150, 100, 50)
    """
    return int(np.clip(math.isqrt(_TABLE // units), _FEWEST, _MOST))


def shuffled(fit: PlatedFit, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Draws in random order: the engine's come set of particles by set."""
    order = rng.permutation(len(next(iter(fit.draws.values()))))
    return {name: values[order] for name, values in fit.draws.items()}


def _effects(
    drawn: dict[str, FloatArray],
    layout: Layout,
    structure: CrossedModel,
    mean: FloatArray,
    rng: np.random.Generator,
) -> dict[str, FloatArray]:
    """Effects given the sums that were inferred: normal, as their priors are."""
    shared, own = (drawn[f"sd_{name}"] for name in (layout.shared, layout.own))
    intercept = _part(drawn["level"], structure.intercept_sd + 0 * shared, shared, rng)
    common = (drawn["level"] - intercept)[:, None]
    other = drawn["sd_interaction"][:, None]
    units = _part(drawn["theta"] - mean, own[:, None], other, rng)
    of_models, of_tasks = (common, -units) if layout.own == "task" else (units, -common)
    effects = {"intercept": intercept, "performance": of_models, "difficulty": of_tasks}
    return effects_in_order(drawn | effects)


def effects_in_order(drawn: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Name draws as those of the other engine are."""
    found = {name: drawn[name] for name in ("intercept", "performance", "difficulty")}
    found |= {
        "sd_performance": drawn["sd_model"],
        "sd_difficulty": drawn["sd_task"],
        "sd_interaction": drawn["sd_interaction"],
    }
    return found | ({"coefficients": drawn["beta"]} if "beta" in drawn else {})


def _part(
    total: FloatArray, first: FloatArray, second: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw the first of two normal numbers, given their standard deviations and their sum."""
    share = first**2 / (first**2 + second**2)
    noise = first * second / np.hypot(first, second)
    return share * total + noise * rng.standard_normal(total.shape)


class Cells(NamedTuple):
    """Draws (S, N, T) of logits, of their means, and of their spread about these."""

    logit: FloatArray
    mean: FloatArray
    spread: FloatArray


def posterior_of(
    counts: Counts,
    cells: Cells,
    parameters: dict[str, FloatArray],
    size: tuple[int, int],
    rng: np.random.Generator,
) -> Posterior:
    """Put draws into the form that results are made from."""

    def in_chains(values: FloatArray) -> FloatArray:
        return values.reshape(size[0], -1, *values.shape[1:])

    accuracy = in_chains(special.expit(cells.logit))
    kept = min(size[1], max(1, _PREDICTED // size[0]))
    some = Cells(*(in_chains(x)[:, :kept] for x in cells))
    trials = np.rint(counts.trials).astype(np.int64)
    return Posterior(
        accuracy=accuracy,
        parameters={name: in_chains(values) for name, values in parameters.items()},
        log_likelihood=log_marginal(counts.right, counts.trials, some),
        replicated=rng.binomial(trials, accuracy[:, :kept]).astype(np.float64),
    )


def log_marginal(right: FloatArray, trials: FloatArray, cells: Cells) -> FloatArray:
    """Log probability of each cell's answers, its logit integrated out: normal, of known moments.

    By Gauss–Hermite quadrature around where steps of Newton's method from a draw lead.
    """
    precision = cells.spread**-2.0
    centre = cells.logit
    for _ in range(_NEWTON_STEPS):
        share = special.expit(centre)
        tight = trials * share * (1 - share) + precision
        centre = centre + (right - trials * share - precision * (centre - cells.mean)) / tight
    share = special.expit(centre)
    width = (trials * share * (1 - share) + precision) ** -0.5
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    terms: list[FloatArray] = []
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        at = centre + node * width
        known = right * at - trials * np.logaddexp(0, at)
        inside = known - precision * (at - cells.mean) ** 2 / 2 + node**2 / 2
        terms.append(inside + np.log(weight))
    total = special.logsumexp(np.stack(terms), axis=0)
    total = total + np.log(width / cells.spread) - np.log(2 * np.pi) / 2
    # Exactly 0 where nothing was answered.
    return np.where(trials > 0, total, 0.0)
