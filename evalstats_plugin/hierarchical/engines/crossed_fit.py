"""Fit crossed models by Gibbs sampling: run the chains, and keep the draws that results need.

`CROSSED_MODELS` names the models, `fit_model` moves counts to the device and calls `draw_crossed`,
which returns a `Posterior`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.data import Counts
from evalstats_plugin.hierarchical.engines.crossed import CrossedData, CrossedModel
from evalstats_plugin.hierarchical.engines.crossed_gibbs import CrossedGibbs
from evalstats_plugin.hierarchical.engines.posterior import NODES, Posterior
from evalstats_plugin.hierarchical.methods import Prior
from evalstats_plugin.runtime.chain_length import ChainLength
from evalstats_plugin.runtime.chains import run_chains
from evalstats_plugin.runtime.torch import check_memory, generator_of, resolve_device
from evalstats_plugin.stats.arrays import FloatArray

PREDICTED = 1000
"""Draws, of all chains together, for which likelihoods and replications are kept."""

PREDICTED_BY_QUESTION = 200
"""The same for models with questions, where each costs as much as two sweeps."""

_CELL_NODES = 9
"""Nodes of the quadrature over an interaction, around its conditional mode."""

_MAX_NUMBERS = 2**27
"""Most numbers kept of accuracies (1 GiB); above, draws are thinned."""

CROSSED_MODELS: Mapping[str, CrossedModel] = {
    "task": CrossedModel(),
    "question": CrossedModel(across_tasks=False, questions=True),
    "across-task": CrossedModel(questions=True),
}


def crossed_model_of(model: str, priors: Mapping[str, Prior]) -> CrossedModel:
    """Return the effects of a model, with these priors of standard deviations."""
    return replace(CROSSED_MODELS[model], priors=priors)


def fit_model(
    counts: Counts,
    structure: CrossedModel,
    rng: np.random.Generator,
    length: ChainLength,
    device: str,
) -> Posterior:
    """Draw from the posterior of a model, on the device named."""
    place = resolve_device(device)
    right, trials, models, tasks = (
        torch.as_tensor(x, dtype=torch.float64).contiguous().to(place)
        for x in (counts.right, counts.trials, counts.models, counts.tasks)
    )
    data = CrossedData(
        right=right,
        trials=trials,
        task=torch.as_tensor(counts.task).to(place),
        n_tasks=len(counts.tasks),
        model_covariates=models,
        task_covariates=tasks,
    )
    return draw_crossed(data, structure, rng, length)


def draw_crossed(
    data: CrossedData, structure: CrossedModel, rng: np.random.Generator, length: ChainLength
) -> Posterior:
    """Draw from the posterior of a crossed model.

    Raises
    ------
    DesignError
        Not enough memory, or draws that are NaN or infinite.
    """
    n, t = data.right.shape[0], data.n_tasks
    what = f"{length.chains} chains of {n} models × {data.right.shape[1]} columns"
    check_memory(memory_needed(data, length), data.right.device, what)
    sampler = CrossedGibbs(data, structure, length.chains, generator_of(rng, data.right.device))
    keep = thinning((n, t), length)
    predicted = PREDICTED_BY_QUESTION if structure.questions else PREDICTED
    predict = max(keep, math.ceil(length.chains * length.draws / predicted))
    kept: dict[str, list[Tensor]] = {}
    for k, _ in enumerate(run_chains(sampler, _swept, length)):
        found = _parameters(sampler) if k % keep == 0 else {}
        if k % predict == 0:
            found["log_likelihood"] = cell_log_likelihood(sampler)
            found["replicated"] = replicated(sampler)
        for name, value in found.items():
            kept.setdefault(name, []).append(value)
    arrays: dict[str, FloatArray] = {
        name: torch.stack(values, 1).cpu().numpy() for name, values in kept.items()
    }
    if not np.isfinite(arrays["accuracy"]).all():
        msg = "some draws are not finite, because a precision matrix was not positive definite"
        raise DesignError(f"{msg}: give the standard deviations narrower priors")
    return Posterior(
        accuracy=arrays.pop("accuracy"),
        log_likelihood=arrays.pop("log_likelihood"),
        replicated=arrays.pop("replicated"),
        parameters=arrays,
    )


def _swept(sampler: CrossedGibbs, k: int) -> CrossedGibbs:
    if k == 0:
        sampler.settle()
    sampler.sweep()
    return sampler


def memory_needed(data: CrossedData, length: ChainLength) -> int:
    """Bytes needed while drawing."""
    n, m = data.right.shape
    cells, kept = n * data.n_tasks, -(-length.draws // thinning((n, data.n_tasks), length))
    work = length.chains * (14 * n * m + 12 * cells)
    return 8 * (work + 2 * length.chains * kept * cells + 4 * PREDICTED * cells)


def thinning(shape: tuple[int, int], length: ChainLength) -> int:
    """Sweeps per kept draw of N models on T tasks, so that all fit in `_MAX_NUMBERS`."""
    return max(1, math.ceil(shape[0] * shape[1] * length.chains * length.draws / _MAX_NUMBERS))


def _parameters(sampler: CrossedGibbs) -> dict[str, Tensor]:
    """Return what is kept of every draw, by the names that results use."""
    state, structure = sampler.state, sampler.structure
    own = state.scale_interaction.exp()
    found = {
        "accuracy": accuracy(sampler),
        "intercept": state.coefficients[:, 0],
        "difficulty": state.task,
        "sd_difficulty": state.scale_task[:, 0].exp(),
        "sd_interaction": own if structure.questions else own[:, 0],
    }
    if state.coefficients.shape[1] > 1:
        found["coefficients"] = state.coefficients[:, 1:]
    if structure.across_tasks:
        found |= {"performance": state.model, "sd_performance": state.scale_model[:, 0].exp()}
    if structure.questions:
        found["sd_question"] = state.scale_question[:, 0].exp()
    return {name: value.clone() for name, value in found.items()}


def accuracy(sampler: CrossedGibbs) -> Tensor:
    """Expected share of right answers of each model on each task's questions, (K, N, T)."""
    level, state = sampler.level, sampler.state
    if state.question is None:
        return torch.sigmoid(level)
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    spread = state.scale_question.exp()[..., None]
    total = torch.zeros_like(level)
    for node, weight in zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True):
        total += weight * torch.sigmoid(level - spread * node)
    return total


def replicated(sampler: CrossedGibbs) -> Tensor:
    """Replicated right answers of each model on each task, (K, N, T)."""
    trials = sampler.data.trials.expand_as(sampler.answers.share)
    drawn = torch.binomial(trials.contiguous(), sampler.answers.share, generator=sampler.generator)
    return sampler.data.by_task(drawn)


def cell_log_likelihood(sampler: CrossedGibbs) -> Tensor:
    """Log-likelihood of a model's answers to a task, its interaction integrated out, (K, N, T).

    By Gauss–Hermite quadrature around the point that two Newton steps from the draw reach.
    """
    data, state = sampler.data, sampler.state
    precision = torch.exp(-2 * state.scale_interaction)[:, None]
    base = sampler.answers.logit - data.to_columns(state.interaction)
    centre, tight = state.interaction, precision
    for _ in range(2):
        expected = data.trials * torch.sigmoid(base + data.to_columns(centre))
        variance = expected * (1 - expected / data.trials.clamp_min(1e-300))
        tight = data.by_task(variance) + precision
        centre = centre + (data.by_task(data.right - expected) - precision * centre) / tight
    nodes, weights = np.polynomial.hermite_e.hermegauss(_CELL_NODES)
    terms: list[Tensor] = []
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        at = centre + node / tight.sqrt()
        logit = base + data.to_columns(at)
        known = data.right * logit - data.trials * torch.nn.functional.softplus(logit)
        inside = data.by_task(known) - precision / 2 * at.square() + node**2 / 2
        terms.append(inside + math.log(weight))
    log_norm = (precision / tight).log() / 2 - math.log(2 * math.pi) / 2
    # Exactly 0 where nothing was answered.
    return sampler.seen * (torch.logsumexp(torch.stack(terms), dim=0) + log_norm)
