"""What a hierarchical model says of models, tasks and pairs, as records."""

from __future__ import annotations

from dataclasses import dataclass

from evalstats_plugin.data.results import Results

Prior = tuple[str, float] | tuple[str, float, float]
"""Of a standard deviation: ``("gamma", shape, rate)``, ``("half-normal", scale)`` or
``("lognormal", mean, sd)`` of its logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """How often one model is right on one task, or over all tasks.

    Numbers are finite or ``None``, never NaN.
    """

    model: str
    task: str | None
    """None: the mean over all tasks of the fit, each weighing the same."""
    metric: str
    n_items: int
    """With a score of this model."""
    score: float | None
    """As it was observed; None where a task was not run."""
    estimate: float | None
    """Posterior mean of the expected score."""
    low: float | None
    high: float | None
    std_error: float | None
    """Posterior standard deviation."""
    shrinkage: float | None
    """Estimate less observed score: how far the other models and tasks pull it."""
    confidence_level: float
    method: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDifficulty:
    """How hard one task is among those of the fit, on the logit scale."""

    task: str
    metric: str
    n_items: int
    n_models: int
    """That took it."""
    score: float | None
    """Mean of the models that took it."""
    estimate: float
    """Posterior mean of difficulty; 0 for a middling task."""
    low: float
    high: float
    std_error: float
    confidence_level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How much better one model is than another on one task, or over all tasks."""

    model_a: str
    """The baseline, where there is one."""
    model_b: str
    task: str | None
    """None: the mean over all tasks."""
    metric: str
    difference: float
    """Of expected scores, b minus a: posterior mean."""
    low: float
    high: float
    std_error: float
    prob_better: float
    """That b has the higher expected score, over draws of the posterior."""
    prob_better_on_a_task: float
    """The same on a task drawn from those of the fit, a mean over draws and tasks."""
    confidence_level: float
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a covariate does to the logit of a right answer."""

    covariate: str
    of: str
    """``"models"`` or ``"tasks"``."""
    estimate: float
    """For one unit of the covariate: posterior mean."""
    low: float
    high: float
    per_sd: float
    """For one standard deviation of the covariate."""
    prob_positive: float
    confidence_level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorChange:
    """What another prior of the standard deviations would change."""

    prior: str
    model: str
    metric: str
    estimate: float
    """Over all tasks, with the other prior."""
    low: float
    high: float
    change: float
    """Of the estimate, in posterior standard deviations."""
    how: str
    """``"reweighted"`` draws, or ``"refitted"`` where they do not reach."""
    ess: float
    """Effective number of draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Whether the model makes data like those at hand, in one respect."""

    statistic: str
    observed: float
    predicted: float
    """Mean over draws."""
    low: float
    high: float
    p_value: float
    """Share of draws at least as large as what was observed, ties counting half; near 0 or 1 the
    model misses this respect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elpd:
    """How well left-out cells (a model's answers to a task) are predicted."""

    criterion: str
    """``"loo"`` or ``"waic"``."""
    elpd: float
    """Expected log predictive density, summed over cells."""
    std_error: float
    n_effective: float
    """Effective number of parameters."""
    n_cells: int
    worst_k: float | None
    """Largest Pareto k of the cells, for ``"loo"`` by importance sampling."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How probable one model makes the answers, beside others that are as likely beforehand."""

    model: str
    log_evidence: float
    """Log probability of the answers in the order given, unknowns integrated out."""
    std_error: float
    """Of the estimate; 0 where it is exact."""
    log_bayes_factor: float
    """Log evidence less that of the best."""
    probability: float
    """Of the model, if one of these is true and all are as likely beforehand."""
    inference: str


PooledScores = Results[Performance]
