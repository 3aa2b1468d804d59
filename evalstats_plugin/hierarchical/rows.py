"""Records: performance, difficulty, contrasts, effects, checks, and capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evalstats_plugin.data.results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """Accuracy of one model on one task, or over all tasks.

    Numbers are finite or ``None``, never NaN.
    """

    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "n_items", "score", "estimate", "low", "high",
    )  # fmt: skip

    model: str
    task: str | None
    """None: the mean over all tasks of the fit, with equal weights."""
    metric: str
    n_items: int
    """Items with a score of this model."""
    score: float | None
    """Observed mean score; None where a task was not run."""
    estimate: float | None
    """Posterior mean of the expected score."""
    low: float | None
    high: float | None
    std_error: float | None
    """Posterior standard deviation."""
    shrinkage: float | None
    """Estimate less observed score: the effect of partial pooling."""
    confidence_level: float
    method: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewScore:
    """Predicted score of a model on a new task, or of a new model on a task."""

    shown: ClassVar[tuple[str, ...]] = ("model", "task", "n_items", "estimate", "low", "high")

    model: str | None
    """None: a new model, from the population of those of the fit."""
    task: str | None
    """None: a new task, from the population of those of the fit; or all tasks of the fit."""
    over_tasks: bool
    """Whether it is the mean over the tasks of the fit."""
    metric: str
    n_items: int | None
    """Questions that the score rests on; None: the expected score, of infinitely many."""
    estimate: float
    """Posterior mean of the score."""
    low: float
    high: float
    std_error: float
    prob_best: float
    """Posterior probability that the model scores best of all on the task, ties shared."""
    confidence_level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDifficulty:
    """Difficulty of one task relative to those of the fit, on the logit scale."""

    task: str
    metric: str
    n_items: int
    n_models: int
    """Models that ran the task."""
    score: float | None
    """Mean score of the models that ran the task."""
    estimate: float
    """Posterior mean of difficulty; 0 for an average task."""
    low: float
    high: float
    std_error: float
    confidence_level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Difference between two models on one task, or over all tasks."""

    model_a: str
    """The baseline, where there is one."""
    model_b: str
    task: str | None
    """None: the mean over all tasks."""
    metric: str
    difference: float
    """Posterior mean of the difference of expected scores, b minus a."""
    low: float
    high: float
    std_error: float
    prob_better: float
    """Posterior probability that b has the higher expected score."""
    prob_better_on_a_task: float
    """The same on a random task of the fit: a mean over draws and tasks."""
    confidence_level: float
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of a covariate on the logit of a right answer."""

    covariate: str
    of: str
    """``"models"`` or ``"tasks"``."""
    estimate: float
    """Posterior mean, for one unit of the covariate."""
    low: float
    high: float
    per_sd: float
    """For one standard deviation of the covariate."""
    prob_positive: float
    confidence_level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorChange:
    """Change of an estimate under another prior of the standard deviations."""

    prior: str
    model: str
    metric: str
    estimate: float
    """Accuracy over all tasks, with the other prior."""
    low: float
    high: float
    change: float
    """Change of the estimate, in posterior standard deviations."""
    how: str
    """``"reweighted"``, or ``"refitted"`` where the weights were unreliable."""
    ess: float
    """Effective sample size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Predictive check of one statistic."""

    statistic: str
    observed: float
    predicted: float
    """Mean over draws."""
    low: float
    high: float
    p_value: float
    """Share of draws at least as large as the observed value, ties counting half; near 0 or 1, the
    model does not fit this statistic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elpd:
    """Expected log predictive density of left-out cells (a model's answers to a task)."""

    criterion: str
    """``"loo"``."""
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
class LeftOutScore:
    """Leave-one-out predictions of one model beside those of the best [VGG17]_."""

    model: str
    elpd: float
    """Expected log predictive density, summed over cells."""
    difference: float
    """Less that of the best model: 0 or below."""
    std_error: float
    """Of the difference, from the cells."""
    n_effective: float
    """Effective number of parameters."""
    n_cells: int
    unreliable: int
    """Cells with a Pareto k above 0.7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Marginal likelihood of one model, and its probability among models with equal priors."""

    model: str
    log_evidence: float
    """Log marginal likelihood of the answers in the order given."""
    std_error: float
    """Standard error of the estimate; 0 where it is exact."""
    log_bayes_factor: float
    """Log evidence less that of the best model."""
    probability: float
    """Posterior probability of the model, with equal prior probabilities."""
    inference: str


PooledScores = Results[Performance]
"""Estimates with partial pooling, as exporters receive them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """What answers have in common beyond how good a model is and how hard an item."""

    shown: ClassVar[tuple[str, ...]] = ("capability", "tasks", "n_items", "found_again")

    capability: int
    """From 1, the one that explains most first."""
    variance: float
    """That it gives the logits of answers, averaged over items."""
    n_items: int
    """Items that need it."""
    found_again: float | None
    """Cosine of the models' levels when they are estimated from either half of the items; None
    where items are too few to halve."""
    by_chance: float | None
    """Cosine that random levels would exceed in 1 of 20 cases."""
    tasks: tuple[str, ...]
    """Those that need it most, the first most."""
    items: tuple[str, ...]
    """The same."""
    strongest: tuple[str, ...]
    """Models, the best first."""
    weakest: tuple[str, ...]
