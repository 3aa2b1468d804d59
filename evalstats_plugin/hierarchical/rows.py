"""Records: performance, difficulty, contrasts, effects, checks, and capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from evalstats_plugin.data.results import Results

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.engines.posterior import CapabilityFit
    from evalstats_plugin.stats.arrays import FloatArray


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

    elpd: float
    """Expected log predictive density, summed over cells."""
    std_error: float
    n_effective: float
    """Effective number of parameters."""
    n_cells: int
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """One latent, or the data of one name, of a model of one's own."""

    name: str
    kind: str
    """``"latent"``, ``"data"`` or ``"input"``."""
    on: str
    """Plates with their sizes, outermost first, and the shape of a vector."""
    values: str
    """Possible values, in words; empty where the distribution does not say."""
    low: float | None
    """5 % quantile of draws from the prior, of all members, or of data that these predict; None for
    inputs, and data that are given by a log density."""
    high: float | None
    """Their 95 % quantile."""
    observed: str
    """Range of data and inputs, and how many are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCost:
    """What a method of `infer` would take, with its defaults."""

    method: str
    seconds: float | None
    """On this machine, within a factor of about 3; None where the method does not fit."""
    bytes: int | None
    why: str
    """Why it is the method to take, or does not fit."""


@dataclass(frozen=True, kw_only=True)
class ModelCheck(Results[ModelPart]):
    """A model of one's own with its data, before it is fitted."""

    engines: tuple[EngineCost, ...] = ()
    method: str | None = None
    """The method to take; None where none fits."""
    problem: str = ""
    """Why the model cannot be fitted to these data; empty where it can."""

    def __str__(self) -> str:
        return _report().checked_text(self)


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Results[Check]):
    """A fit of a model of one's own, judged."""

    answer: str
    """Whether to trust it, in one sentence."""
    loo: Elpd
    """Leave-one-out cross-validation over all cells with data."""

    def __str__(self) -> str:
        return _report().judged_text(self)


def _report() -> Any:
    # Loaded on use: results know nothing of how they are shown, but for this door.
    return import_module("evalstats_plugin.report.hierarchical")


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


class HeldOutScore(NamedTuple):
    """Accuracy of one model's predictions of a fifth of the cells from the others."""

    item_model: str
    """``"hierarchical"`` (models, items, and models on tasks), or ``"sparse"`` (capabilities)."""
    auc: float
    """Area under the ROC curve; NaN where all held-out answers are right, or all wrong."""
    log_loss: float
    """Per answer, in nats."""
    n_cells: int
    gain: float
    """By how much the log loss is lower than that of the first model."""
    gain_error: float
    """Standard error of the gain, over items."""


class Stability(NamedTuple):
    """Agreement of the features of two halves of the items, each of shape (F,).

    Features have the order of the whole fit. Cosines are signed, between models' capabilities; NaN
    for unused features.
    """

    halves: FloatArray
    """Cosine of a feature of one half with the matching feature of the other half."""
    chance: FloatArray
    """95 % quantile of the best cosine with the other half after shuffling the models."""


@dataclass(frozen=True, kw_only=True)
class Capabilities(Results[Capability]):
    """Capabilities that items need, the fit they are of, and how well it predicts."""

    fit: CapabilityFit
    compared: tuple[HeldOutScore, ...]
    """Held-out predictions of the plain hierarchical model, then of the sparse one."""
    plain_is_as_good: bool
    """Whether the sparse model does not predict better by two standard errors."""

    def levels(self, model: str, metric: str = "") -> tuple[CapabilityLevel, ...]:
        """Return a model's level of each capability; none of a model that is not in the fit."""
        if model not in self.fit.models:
            return ()
        i = self.fit.models.index(model)
        return tuple(
            CapabilityLevel(
                model=model,
                metric=metric,
                capability=row.capability,
                level=float(self.fit.capability[i, row.capability - 1]),
                overall=float(self.fit.performance[i]),
                n_items=row.n_items,
                n_models=len(self.fit.models),
                found_again=row.found_again,
                by_chance=row.by_chance,
                tasks=row.tasks,
                items=row.items,
            )
            for row in self.rows
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityLevel:
    """How much of a capability a model has, beyond how good it is on all items."""

    model: str
    metric: str
    capability: int
    """As of `Capability`."""
    level: float
    """Mean 0 and variance 1 over the models of the fit."""
    overall: float
    """What helps the model on all items, in logits; mean 0 over models."""
    n_items: int
    """Items that need the capability."""
    n_models: int
    found_again: float | None
    by_chance: float | None
    tasks: tuple[str, ...]
    items: tuple[str, ...]
