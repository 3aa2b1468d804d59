"""Would massively parallel inference do for this crossed eval? Tried on a part of it, and measured.

Models are a plate, and the tasks' difficulties a vector that every model depends on: one set of
particles of the whole vector, as plates do not cross. The more tasks, and the more that is known of
them, the fewer of these particles count, whatever their proposals.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.hierarchical.crossed import CrossedModel
from evalstats_plugin.hierarchical.distributions import Normal
from evalstats_plugin.hierarchical.models import Counts
from evalstats_plugin.hierarchical.nested import answers, scale_latent
from evalstats_plugin.hierarchical.nested_fit import (
    Cells,
    ParticleFit,
    effects_in_order,
    posterior_of,
    shuffled,
)
from evalstats_plugin.hierarchical.plated_fit import Options, infer
from evalstats_plugin.hierarchical.plated_model import Latent, Model, Observed, Plate

PARTICLES = 30
TASKS, CELLS = 12, 48
"""Tasks, and models × tasks, that are tried at most: those with the most answers."""
_ITERATIONS, _SETS = 20, 10


class Trial(NamedTuple):
    """What came of trying."""

    ess: float
    """Particles that count, of all sets, in the group and member where fewest do."""
    group: str
    n_models: int
    n_tasks: int
    whole: bool
    """Whether all models and tasks were tried."""


def plates_of(counts: Counts, structure: CrossedModel) -> Model:
    """Declare models × tasks, columns being tasks, without covariates."""
    n, t = counts.right.shape
    common = "difficulty"

    def of_tasks(sd_task: Tensor) -> Normal:
        return Normal(torch.zeros_like(sd_task), sd_task)

    def of_models(sd_model: Tensor) -> Normal:
        return Normal(torch.zeros_like(sd_model), sd_model)

    def answered(  # noqa: PLR0913, PLR0917 - names of latents and inputs
        distance: Tensor, sd_interaction: Tensor, intercept: Tensor, performance: Tensor,
        difficulty: Tensor, of_task: Tensor, right: Tensor, trials: Tensor,
    ) -> Tensor:  # fmt: skip
        hard = (difficulty * of_task).sum(-1, keepdim=True)
        return answers(intercept + performance - hard + sd_interaction * distance, right, trials)

    return Model(
        plates=[Plate("model", n), Plate("cell", t, within="model")],
        inputs={"trials": "cell", "of_task": "cell"},
        latents=[
            Latent("intercept", Normal(0.0, structure.intercept_sd), group=common),
            *(scale_latent(name, structure, common) for name in ("model", "task", "interaction")),
            Latent("difficulty", of_tasks, group=common, shape=(t,),
                   proposal=Normal(0.0, 1.0)),
            Latent("performance", of_models, "model",
                   proposal=Normal(0.0, 1.0)),
            Latent("distance", Normal(0.0, 1.0), "cell"),
        ],
        observed=[Observed("right", answered, "cell")],
    )  # fmt: skip


def _data(counts: Counts) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    n, t = counts.right.shape
    of_task = np.broadcast_to(np.eye(t), (n, t, t)).copy()
    return {"right": counts.right, "trials": counts.trials, "of_task": of_task}


def try_particles(
    counts: Counts, structure: CrossedModel, rng: np.random.Generator, device: str
) -> Trial:
    """Adapt proposals on the models and tasks with the most answers, and count particles."""
    n_tasks = min(counts.right.shape[1], TASKS)
    models, tasks = (
        np.sort(np.argsort(-counts.trials.sum(axis=axis), kind="stable")[:most])
        for axis, most in ((1, max(2, CELLS // n_tasks)), (0, n_tasks))
    )
    cut = np.ix_(models, tasks)
    part = Counts(counts.right[cut], counts.trials[cut], np.arange(len(tasks)),
                  counts.models[models], counts.tasks[tasks])  # fmt: skip
    options = Options(k=PARTICLES, iterations=_ITERATIONS, sets=_SETS, draws=1)
    model = plates_of(part, structure)
    fit = infer(model, _data(part), options=options, device=device, rng=rng)
    least = {group: float(values.min()) for group, values in fit.ess.items()}
    worst = min(least, key=least.__getitem__)
    whole = part.right.shape == counts.right.shape
    return Trial(least[worst], worst, len(models), len(tasks), whole)


def fit_crossed(
    counts: Counts,
    structure: CrossedModel,
    rng: np.random.Generator,
    size: tuple[int, int],
    device: str,
) -> ParticleFit:
    """Infer a crossed eval that is small enough."""
    options = Options(k=PARTICLES, draws=size[0] * size[1])
    model = plates_of(counts, structure)
    fit = infer(model, _data(counts), options=options, device=device, rng=rng)
    drawn = shuffled(fit, rng)
    level = drawn["intercept"][:, None] + drawn["performance"]
    mean = level[:, :, None] - drawn["difficulty"][:, None]
    spread = drawn["sd_interaction"][:, None, None] + 0 * mean
    cells = Cells(mean + spread * drawn["distance"], mean, spread)
    parameters = effects_in_order(drawn)
    posterior = posterior_of(counts, cells, parameters, size, rng)
    return ParticleFit(posterior, fit, options.k * options.sets)
