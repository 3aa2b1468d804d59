"""Names of hierarchical models, of inference methods, and priors of standard deviations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

HIERARCHICAL_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "beta-binomial": "a model has one probability of a right answer, the same on all tasks",
        "per-task": "one probability for each model and task, nothing borrowed",
        "task": "performance of models, difficulty of tasks, and what is left of each cell",
        "shared": "the same, with difficulties of questions that all models share",
        "question": "difficulty of tasks and questions, performance on each task apart",
        "across-task": "the same, and performance of models across tasks",
    }
)
"""Models of `pool`, besides ``"auto"``."""

FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "bernoulli": "right or wrong answers, on the log odds",
        "binomial": "the same, counted over epochs",
        "beta": "scores above 0 and below 1, their mean on the log odds",
        "gaussian": "scores with normal noise, on their own scale",
    }
)
"""Distributions of scores in a formula."""

CLOSED_FORM = ("beta-binomial", "per-task")
"""Models whose posterior is known in closed form."""

BY_QUESTION = ("shared", "question", "across-task")
"""Models with an effect for each question."""

INFERENCES: Mapping[str, str] = MappingProxyType(
    {
        "exact": "the posterior in closed form",
        "importance": "importance sampling, for nested evals: one model, or one task",
        "gibbs": "draws by block Gibbs sampling, for crossed models",
    }
)
"""Engines of `pool`, besides ``"auto"``."""

Prior = tuple[str, float] | tuple[str, float, float]
"""Prior of a standard deviation: ``("gamma", shape, rate)``, ``("half-normal", scale)`` or
``("lognormal", mean, sd)`` of its logarithm."""

DEFAULT_PRIOR: Prior = ("gamma", 2.0, 2.0)
"""Default prior of every standard deviation [BA24]_."""


def prior_of(priors: Mapping[str, Prior], scale: str) -> Prior:
    """Return the prior of one standard deviation, by its name, ``"default"``, or the default."""
    return priors.get(scale, priors.get("default", DEFAULT_PRIOR))


SCALES = ("model", "task", "interaction", "question")
"""Effects whose standard deviation has a prior of its own."""

MOST_CAPABILITIES = 3
"""Default of the largest number of capabilities."""
