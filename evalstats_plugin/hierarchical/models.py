"""The eval models by name, as crossed models, and their fit to counts.

``task`` puts in place of a Beta-Binomial observation of mass η, as in the talk that the models are
from [BA24]_, a normal interaction of each model with each task on the logit scale: both let a
cell's probability vary about what model and task say, one parameter saying how much (σ_μ² is about
1/((η + 1) q (1 - q))), and the normal one has every effect on one scale.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from evalstats_plugin.hierarchical.crossed import SCALES, CrossedData, CrossedModel
from evalstats_plugin.hierarchical.crossed_fit import Length, draw_crossed
from evalstats_plugin.hierarchical.crossed_prior import PriorSpec, scale_prior
from evalstats_plugin.hierarchical.posterior import FloatArray, Posterior
from evalstats_plugin.sampling.devices import resolve_device

CROSSED_MODELS: Mapping[str, CrossedModel] = {
    "task": CrossedModel(),
    "question": CrossedModel(across_tasks=False, questions=True, spread_by_task=True),
    "across-task": CrossedModel(questions=True, spread_by_task=True),
}


class Counts(NamedTuple):
    """Of N models in M columns, which are tasks or questions, with standardised covariates."""

    right: FloatArray
    trials: FloatArray
    task: NDArray[np.int64]
    models: FloatArray
    tasks: FloatArray


def crossed_model_of(model: str, priors: Mapping[str, PriorSpec]) -> CrossedModel:
    """Return the effects of a model, with these priors of standard deviations."""
    from dataclasses import replace

    scales = {name: scale_prior(priors, name) for name in SCALES if name in priors}
    return replace(CROSSED_MODELS[model], scales=scales, default=scale_prior(priors, "default"))


def fit_model(
    counts: Counts, structure: CrossedModel, rng: np.random.Generator, length: Length, device: str
) -> Posterior:
    """Draw from the posterior of a model, on the device named."""
    place = resolve_device(device)
    right, trials, models, tasks = (
        torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64)).to(place)
        for x in (counts.right, counts.trials, counts.models, counts.tasks)
    )
    data = CrossedData(
        right=right,
        trials=trials,
        task=torch.from_numpy(counts.task).to(place),
        n_tasks=len(counts.tasks),
        model_covariates=models,
        task_covariates=tasks,
    )
    return draw_crossed(data, structure, rng, length)
