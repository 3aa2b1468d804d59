"""Crossed random-effects models of accuracy: Gibbs sampling; without torch.

logit P(right) = η_nt − κ_ti with η_nt = b + x'β + λ_n − τ_t + μ_nt: λ_n ~ N(0, σ_λ²) is a model's
performance across tasks, τ_t ~ N(0, σ_τ²) a task's difficulty, μ_nt ~ N(0, σ_μ²) the interaction of
model and task, κ_ti ~ N(0, σ_κ²) the difficulty of question i in models with questions; x are
covariates of models and tasks. Questions are integrated out (`level_likelihoods`).

A sweep, of all chains at once, proposes levels η from a normal approximation of the likelihood,
those of a task together, or each alone where cells are independent; draws standard deviations with
all effects integrated out, and effects given them, in closed form, because levels of models that
missed a task are drawn too; and moves models, tasks and standard deviations with other effects in
proportion, which mixes well where standard deviations are small.

* `CrossedModel`: the effects of a model
* `answered_alike`: whether data are right or wrong, and several models answered the same questions
* `CrossedGibbs`, `fit_crossed`: the sweep, and draws from the posterior
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.hierarchical.data import Counts, EvalCounts
from evalstats_plugin.hierarchical.engines.level_likelihoods import (
    CellLikelihood,
    LevelLikelihood,
    QuestionLikelihood,
    Surrogate,
    times,
)
from evalstats_plugin.hierarchical.engines.posterior import (
    COEFFICIENT_SD,
    INTERCEPT_SD,
    Posterior,
    Predictions,
    log_scale_density,
    replicate,
)
from evalstats_plugin.hierarchical.methods import SCALES, Prior, prior_of
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import run_chains
from evalstats_plugin.runtime.memory import check_memory
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.streams import seed_for, stream

MOST_MODELS = 100
"""Most models whose questions are integrated out by default."""

_PREDICTED = 200
"""Draws, of all chains together, for which likelihoods and replications are kept."""

_PREDICTED_NUMBERS = 5_000_000
"""Most answers, over all draws, for that."""

_NODES = 9
"""Nodes of quadratures over a normal variable."""

_ACCEPTANCE = 0.4
"""Target acceptance rate of stretches, about the best for one number at a time [RGG97]_."""

_OTHER_SIDE, _WIDER = -0.5, 1.1
"""Correlation of proposed levels and log standard deviations with the current ones, and how much
wider than those of the warm-up the latter spread."""

_ATTENUATION = 0.346
"""Slopes of a logistic function shrink by √(1 + this · variance) when noise is integrated out."""

_SHORT_CHAINS = ((100, 8, 1), (1000, 4, 3))
"""Up to so many cells, short chains that make up a chain, and draws asked for that one draw is
worth where tasks share σ_μ and questions are integrated out; few cells cost little, and leave
standard deviations uncertain."""

_LONG_CHAINS = (2, 3)
"""The same for more cells."""

_LEAST_WARM_UP = 30
"""Sweeps of each short chain before draws are kept."""

_MODEL, _TASK, _INTERACTION, _QUESTION = range(4)


@dataclass(frozen=True, kw_only=True)
class CrossedModel:
    """The effects of a model, and their priors."""

    across_tasks: bool = True
    """Whether models have an effect λ across tasks."""
    questions: bool = False
    """Whether questions have effects κ: columns of the counts are questions, not tasks."""
    own_interactions: bool = False
    """Whether each task has its own σ_μ."""
    priors: Mapping[str, Prior] = field(default_factory=dict[str, Prior])
    """Priors of standard deviations, by a name of `SCALES` or ``"default"``."""


CROSSED_MODELS: Mapping[str, CrossedModel] = {
    "task": CrossedModel(),
    "shared": CrossedModel(questions=True),
    "question": CrossedModel(across_tasks=False, questions=True, own_interactions=True),
    "across-task": CrossedModel(questions=True, own_interactions=True),
}


def answered_alike(counts: EvalCounts) -> bool:
    """Return whether answers are right or wrong, and most questions have several models."""
    right, trials = counts.question_right, counts.question_trials
    if not (1 < len(right) <= MOST_MODELS and trials.max() <= 1):
        return False
    binary = bool(np.isin(right, (0.0, 1.0)).all())
    return binary and float(np.median(trials.sum(axis=0))) > 1


def _slope(log_sd: FloatArray) -> FloatArray:
    return np.sqrt(1 + _ATTENUATION * np.exp(2 * log_sd))


def start(likelihood: LevelLikelihood) -> tuple[FloatArray, float, Surrogate]:
    """Levels (N, T) at the mode under a weak prior, log σ_κ there, and the approximation."""
    right, trials = likelihood.right, likelihood.trials
    logit = special.logit((right + 0.5) / (trials + 1))
    level = np.asarray(logit, dtype=np.float64) * 1.2
    log_sd = 0.0 if likelihood.weight else -np.inf
    for _ in range(14):
        slope, curve, squares = likelihood.derivatives(level, log_sd)
        middle = level.mean(axis=1, keepdims=True) + level.mean(axis=0) - level.mean()
        wanted = slope - (level - middle)
        if likelihood.independent:
            step = wanted / (curve.T + 1)
        else:
            system = curve + np.eye(len(level))
            solved = np.asarray(np.linalg.solve(system, wanted.T[..., None]), dtype=np.float64)
            step = solved[..., 0].T
        level = level + np.clip(step, -1.5, 1.5)
        if likelihood.weight:
            ratio = (squares + 1) / likelihood.weight / np.exp(2 * log_sd)
            log_sd += float(np.clip(0.9 * np.log(ratio), -0.5, 0.5))
    slope, curve, _ = likelihood.derivatives(level, log_sd)
    return level, log_sd, Surrogate.of(level, slope, curve)


class Covariates:
    """Coefficients of standardised covariates of models, or of tasks, along orthogonal axes."""

    def __init__(self, values: FloatArray, chains: int) -> None:
        squares, self.axes = np.linalg.eigh(values.T @ values)
        self.values, self.squares = values @ self.axes, np.maximum(squares, 0.0)
        self.along = np.zeros((chains, values.shape[1]))
        """Coefficients along these axes, (C, P)."""

    @property
    def fitted(self) -> FloatArray:
        """What they add to each model or task, (C, N)."""
        return self.along @ self.values.T

    @property
    def coefficients(self) -> FloatArray:
        """β, (C, P)."""
        return self.along @ self.axes.T

    def draw(self, totals: FloatArray, precision: FloatArray, rng: np.random.Generator) -> None:
        """Draw β, the mean of totals (C, N), given these and their precision (C, 1)."""
        if not self.along.size:
            return
        whole = COEFFICIENT_SD**-2 + precision * self.squares
        noise = rng.standard_normal(self.along.shape) @ self.axes
        self.along = precision * (totals @ self.values) / whole + noise / np.sqrt(whole)


class _Conditional(NamedTuple):
    """Normal distribution of levels along the eigenvectors of the approximation."""

    middle: FloatArray
    """Means, (C, T, N)."""
    root: FloatArray
    """1 / standard deviations, (C, T, N)."""
    log_mass: FloatArray
    """Log of the integral of the approximation over the levels of each task, (C, T)."""


class CrossedGibbs:
    """All chains at once, and what they adapt while warming up."""

    level: FloatArray
    """η, (C, N, T)."""
    intercept: FloatArray
    """b, (C,)."""
    model: FloatArray
    """λ with what covariates add, (C, N)."""
    task: FloatArray
    """τ with what covariates add, (C, T)."""
    log_sd: list[FloatArray]
    """By scale, in the order of `SCALES`: (C, 1), or (C, T) where each task has its own."""
    log_likelihood: FloatArray
    """Of cells (C, N, T), or of tasks (C, 1, T)."""
    n: int
    """Models."""
    t: int
    """Tasks."""
    chains: int

    def __init__(
        self, counts: Counts, structure: CrossedModel, chains: int, warm_up: int,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        of_counts = QuestionLikelihood if structure.questions else CellLikelihood
        self.likelihood: LevelLikelihood = of_counts(counts)
        self.structure, self.rng, self.warm_up = structure, rng, warm_up
        self.priors = [prior_of(structure.priors, name) for name in SCALES]
        level, log_sd, self.surrogate = start(self.likelihood)
        self.n, self.t, self.chains = *level.shape, chains
        self.slope = float(_slope(np.array(log_sd)))
        first = [level.mean(axis=1).std() + 0.1, level.mean(axis=0).std() + 0.1, 0.4]
        own = structure.own_interactions
        columns = (1, 1, self.t if own else 1, 1)
        self.log_sd = [
            at + spread * self._normal(chains, many)
            for at, spread, many in zip([*np.log(first), log_sd], (0.2, 0.2, 0.2, 0.06), columns,
                                        strict=True)
        ]  # fmt: skip
        self.each = 1 if own else self.t
        """Tasks that share a σ_μ."""
        if not structure.across_tasks:
            self.log_sd[_MODEL][:] = -np.inf
        curve = self.surrogate.curve
        precision = curve if curve.ndim == 2 else np.diagonal(curve, axis1=1, axis2=2)
        self.level = level + 0.7 / np.sqrt(precision.T + 4) * self._normal(chains, self.n, self.t)
        self.of_models, self.of_tasks = (Covariates(x, chains) for x in counts[3:])
        self.intercept = self.level.mean(axis=(1, 2))
        self.model = self.level.mean(axis=2) - self.intercept[:, None]
        self.model *= structure.across_tasks
        self.task = self.intercept[:, None] - self.level.mean(axis=1)
        self.log_likelihood = self.likelihood(self.level, self.log_sd[_QUESTION][:, 0])
        self.steps = {_INTERACTION: np.array(0.15), _QUESTION: np.array(0.05)}
        self.warm: list[list[FloatArray]] = []

    def sweep(self, state: CrossedGibbs, k: int) -> CrossedGibbs:
        """Update all once; `run_chains` gives the number of the sweep."""
        self._levels(k)
        self._effects()
        # With interactions held.
        self._tasks()
        if k % 2 and self.structure.across_tasks:
            self._models()
        self._spread_interactions(k)
        if self.structure.questions:
            self._stretch_all(k)
        if -self.warm_up // 2 <= k < 0:
            self.warm.append([x.copy() for x in self.log_sd])
        if k < 0 and self.warm_up + k in (self.warm_up // 3, 2 * self.warm_up // 3):
            self._match()
        return state

    @property
    def mean(self) -> FloatArray:
        """Levels without interactions, (C, N, T)."""
        rest = self.intercept[:, None] - self.task
        return rest[:, None] + self.model[:, :, None]

    def _normal(self, *shape: int) -> FloatArray:
        return self.rng.standard_normal(shape)

    def _shrink(self) -> FloatArray:
        """Slope of the logistic function beside that of the approximation, (C, 1, 1)."""
        return (self.slope / _slope(self.log_sd[_QUESTION]))[:, None]

    def _accept(self, gain: FloatArray) -> BoolArray:
        return np.log(self.rng.random(gain.shape)) < gain

    def _keep(self, taken: BoolArray, level: FloatArray, log_likelihood: FloatArray) -> None:
        """Keep proposed levels where accepted; `taken` broadcasts to the log likelihood."""
        self.level = np.where(taken, level, self.level)
        self.log_likelihood = np.where(taken, log_likelihood, self.log_likelihood)

    def _try(
        self, level: FloatArray, together: tuple[int, ...] = (), more: FloatArray | None = None
    ) -> BoolArray:
        """Accept levels proposed from the approximation, (C, N or 1, T or 1).

        Parameters
        ----------
        together
            Axes of models (1) and tasks (2) whose levels are accepted together; those of models
            are always where cells are not independent.
        more
            What else speaks for the proposal.
        """
        log_likelihood = self.likelihood(level, self.log_sd[_QUESTION][:, 0])
        gain = log_likelihood - self.log_likelihood
        gain = gain - self.surrogate.gain(level, self.level, self._shrink())
        gain = gain.sum(axis=together, keepdims=True)
        taken = self._accept(gain if more is None else gain + more)
        self._keep(taken, level, log_likelihood)
        return taken

    def _conditional(self, log_sd: FloatArray, mean: FloatArray) -> _Conditional:
        """Distribution of all levels given effects and σ_μ, by the approximation.

        All along the eigenvectors, like the levels without interactions in `mean`.
        """
        near, shrink = self.surrogate, self._shrink()
        precision = np.exp(-2 * log_sd)[..., None]
        spread = near.values * shrink**2 + precision
        pull = near.turned_pull * shrink + precision * mean
        log_mass = (pull**2 / spread - precision * mean**2 - np.log(spread / precision)) / 2
        return _Conditional(pull / spread, np.sqrt(spread), log_mass.sum(axis=2))

    def _levels(self, k: int) -> None:
        """All levels of each task, proposed from the approximation times the prior."""
        near = self.surrogate
        mean = near.turned(self.mean)
        middle, root, _ = self._conditional(self.log_sd[_INTERACTION], mean)
        back = near.back(middle)
        noise = near.back(self._normal(self.chains, self.t, self.n) / root)
        # To the other side of the proposal's mean, which leaves its distribution as it is and makes
        # successive draws cancel each other's errors; every third time a short step.
        rho = 0.8 if k % 3 == 2 else _OTHER_SIDE
        self._try(back + rho * (self.level - back) + np.sqrt(1 - rho**2) * noise)

    def _log_prior(self, log_sd: FloatArray, scale: int) -> FloatArray:
        """Log density of log σ."""
        return log_scale_density(self.priors[scale], log_sd)

    def _effects(self) -> None:
        """Standard deviations with all effects integrated out; then b, λ, τ and β given them.

        Given the levels, which are those of a complete table, deviations of models from the mean
        of each task know λ alone, and these means know b, τ and the mean of λ.
        """
        n, c, own = self.n, self.chains, self.structure.own_interactions
        of_models, of_tasks = self.of_models.fitted, self.of_tasks.fitted
        level = self.level
        if self.of_models.along.size or self.of_tasks.along.size:
            level = level - of_models[:, :, None] + of_tasks[:, None]
        means = level.mean(axis=1)
        deviations = level - means[:, None]

        def summed(x: FloatArray) -> FloatArray:
            return x if own else x.sum(axis=-1, keepdims=True)

        squares, rows = summed((deviations**2).sum(axis=1)), summed(deviations)
        mean_squares, mean_sums = summed(means**2), summed(means)

        def parts(log_sd: list[FloatArray]) -> tuple[FloatArray, ...]:
            """Precisions of levels and of means of tasks, variances of λ and of b + its mean."""
            model, task, interaction = log_sd
            variance = np.exp(2 * interaction)
            weights, of_means = 1 / variance, 1 / (variance / n + np.exp(2 * task))
            of_model = np.exp(2 * model[:, 0])
            sums = self.each * weights.sum(axis=1), self.each * of_means.sum(axis=1)
            return weights, of_means, of_model, INTERCEPT_SD**2 + of_model / n, *sums

        def log_marginal(log_sd: list[FloatArray]) -> FloatArray:
            weights, of_means, of_model, common, total, total_means = parts(log_sd)
            along = ((rows @ weights[..., None])[..., 0] ** 2).sum(axis=1)
            across = (mean_sums * of_means).sum(axis=1) ** 2
            deviance = (n - 1) * np.log1p(of_model * total) + np.log1p(common * total_means)
            deviance -= of_model / (1 + of_model * total) * along
            deviance -= common / (1 + common * total_means) * across
            terms = squares * weights + mean_squares * of_means
            terms -= self.each * ((n - 1) * np.log(weights) + np.log(of_means))
            return -(deviance + terms.sum(axis=1)) / 2

        of_levels = self.log_sd[:3]
        current = log_marginal(of_levels)
        lengths = 1.5 / np.sqrt(n), 1.5 / np.sqrt(self.t), 2 / np.sqrt(n * self.t)
        moved = [_MODEL] * self.structure.across_tasks + [_TASK] + [_INTERACTION] * (not own)
        for i in moved * 3:
            proposed = of_levels.copy()
            proposed[i] = of_levels[i] + lengths[i] * self._normal(c, 1)
            fresh = log_marginal(proposed)
            gain = self._log_prior(proposed[i], i) - self._log_prior(of_levels[i], i)
            taken = self._accept(fresh - current + gain.sum(axis=1))
            of_levels[i] = np.where(taken[:, None], proposed[i], of_levels[i])
            current = np.where(taken, fresh, current)
        self.log_sd[:3] = of_levels
        weights, of_means, of_model, common, total, total_means = parts(of_levels)
        # The mean of b + λ, b given it, and what is left of λ.
        precision = 1 / common + total_means
        middle = (mean_sums * of_means).sum(axis=1) / precision
        middle += self._normal(c) / np.sqrt(precision)
        share = INTERCEPT_SD**2 / common
        noise = np.sqrt(share * of_model / n) * self._normal(c)
        self.intercept = share * middle + noise
        noise = self._normal(c, n)
        noise -= noise.mean(axis=1, keepdims=True)
        # Of a variance of 0, too.
        shrunk = (of_model / (1 + of_model * total))[:, None]
        model = shrunk * (rows @ weights[..., None])[..., 0] + np.sqrt(shrunk) * noise
        model += (middle - self.intercept)[:, None]
        precision = np.exp(-2 * self.log_sd[_TASK])
        task = n * weights * (middle[:, None] - means) / (precision + n * weights)
        task += self._normal(c, self.t) / np.sqrt(precision + n * weights)
        self.model, self.task = of_models + model, of_tasks + task
        self._covariates(weights)
        if own:
            self._own_interactions()

    def _covariates(self, weights: FloatArray) -> None:
        """β of models and tasks given their effects; where models have none, given levels."""
        self.of_tasks.draw(self.task, np.exp(-2 * self.log_sd[_TASK]), self.rng)
        if self.structure.across_tasks:
            self.of_models.draw(self.model, np.exp(-2 * self.log_sd[_MODEL]), self.rng)
            return
        total = weights.sum(axis=1, keepdims=True)
        rest = self.level - (self.intercept[:, None] - self.task)[:, None]
        self.of_models.draw((rest @ weights[..., None])[..., 0] / total, total, self.rng)
        self.model = self.of_models.fitted

    def _own_interactions(self) -> None:
        """σ_μ of each task given its interactions."""
        squares = ((self.level - self.mean) ** 2).sum(axis=1)
        old = self.log_sd[_INTERACTION]

        def log_density(x: FloatArray) -> FloatArray:
            return self._log_prior(x, _INTERACTION) - self.n * x - squares / 2 * np.exp(-2 * x)

        for _ in range(3):
            proposed = old + 2 / np.sqrt(self.n) * self._normal(*old.shape)
            old = np.where(self._accept(log_density(proposed) - log_density(old)), proposed, old)
        self.log_sd[_INTERACTION] = old

    def _models(self) -> None:
        """All λ with interactions held, which mixes well where σ_μ is small."""
        shrink, near, prior = self._shrink(), self.surrogate, np.exp(-2 * self.log_sd[_MODEL])
        slope = (near.pull * shrink - times(near.curve, self.level) * shrink**2).sum(axis=2)
        slope = slope + prior * self.of_models.fitted
        noise = self._normal(self.chains, self.n, 1)
        if self.likelihood.independent:
            flat = near.curve.sum(axis=0) * shrink[..., 0] ** 2
            model = (slope + flat * self.model) / (flat + prior)
            model = model + noise[..., 0] / np.sqrt(flat + prior)
        else:
            curve: FloatArray = near.curve.sum(axis=0) * shrink**2
            wanted = slope + (curve @ self.model[..., None])[..., 0]
            i = np.arange(self.n)
            curve[:, i, i] += prior
            factor = np.asarray(np.linalg.cholesky(curve), dtype=np.float64)
            middle = np.asarray(np.linalg.solve(curve, wanted[..., None]), dtype=np.float64)
            away = np.asarray(np.linalg.solve(factor.swapaxes(1, 2), noise), dtype=np.float64)
            model = (middle + away)[..., 0]
        taken = self._try(self.level + (model - self.model)[:, :, None], (2,))
        self.model = np.where(taken[..., 0], model, self.model)

    def _tasks(self) -> None:
        """Each τ with interactions held."""
        shrink, near = self._shrink()[..., 0], self.surrogate
        whole = near.curve.reshape(self.t, -1).sum(axis=1) * shrink**2
        slope = near.pull.sum(axis=0) * shrink
        slope = slope - times(near.curve, self.level).sum(axis=1) * shrink**2
        prior = np.exp(-2 * self.log_sd[_TASK])
        precision = whole + prior
        task = (self.task * whole - slope + prior * self.of_tasks.fitted) / precision
        task = task + self._normal(self.chains, self.t) / np.sqrt(precision)
        taken = self._try(self.level - (task - self.task)[:, None], (1,))
        self.task = np.where(taken[:, 0], task, self.task)

    def _proposed(self, scale: int, k: int) -> tuple[FloatArray, FloatArray]:
        """Change of log σ, and the log ratio of the proposal's densities, back over there.

        Once warm, mostly to the other side of the distribution seen so far, else by random walk.
        """
        log_sd = self.log_sd[scale]
        noise = self._normal(*log_sd.shape)
        if k < 0 or k % 3 == 2:
            return self.steps[scale] * noise, np.zeros_like(noise)
        seen = np.concatenate([x[scale] for x in self.warm])
        middle, sd = seen.mean(axis=0), _WIDER * seen.std(axis=0)
        here = (log_sd - middle) / sd
        proposed = _OTHER_SIDE * here + np.sqrt(1 - _OTHER_SIDE**2) * noise
        return (proposed - here) * sd, (proposed**2 - here**2) / 2

    def _adapt(self, scale: int, taken: BoolArray, k: int) -> None:
        if k < 0:
            away = taken.mean(axis=0) - _ACCEPTANCE
            self.steps[scale] = np.minimum(self.steps[scale] * np.exp(0.5 * away), 0.8)

    def _spread_interactions(self, k: int) -> None:
        """σ_μ, and levels at the same quantiles of their distribution given it."""
        near, old = self.surrogate, self.log_sd[_INTERACTION]
        by, more = self._proposed(_INTERACTION, k)
        more = more + self._log_prior(old + by, _INTERACTION) - self._log_prior(old, _INTERACTION)
        own = self.structure.own_interactions
        mean = near.turned(self.mean)
        here, proposed = (self._conditional(x, mean) for x in (old, old + by))
        z = (near.turned(self.level) - here.middle) * here.root
        level = near.back(proposed.middle + z / proposed.root)
        mass = proposed.log_mass - here.log_mass
        more = more + (mass if own else mass.sum(axis=1, keepdims=True))
        taken = self._try(level, (1,) if own else (1, 2), more[:, None])[:, 0]
        self.log_sd[_INTERACTION] = old + taken * by
        self._adapt(_INTERACTION, taken, k)

    def _stretch_all(self, k: int) -> None:
        """Everything in proportion to the attenuation by σ_κ."""
        old = self.log_sd[_QUESTION]
        by, of_proposals = self._proposed(_QUESTION, k)
        ratio = _slope(old + by) / _slope(old)
        log_ratio = np.log(ratio)
        level = self.level * ratio[..., None]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_likelihood = self.likelihood(level, (old + by)[:, 0])
        gain = (log_likelihood - self.log_likelihood).sum(axis=2) + of_proposals
        # For effects the change in density cancels with that in volume; not for coefficients.
        fixed = (self.intercept[:, None] / INTERCEPT_SD, self.of_models.along / COEFFICIENT_SD,
                 self.of_tasks.along / COEFFICIENT_SD)  # fmt: skip
        for x in fixed:
            squares = (x**2).sum(axis=1, keepdims=True)
            gain = gain + x.shape[1] * log_ratio - squares * (ratio**2 - 1) / 2
        gain = gain + self._log_prior(old + by, _QUESTION) - self._log_prior(old, _QUESTION)
        scales = range(0 if self.structure.across_tasks else _TASK, _QUESTION)
        for i in scales:
            change = self._log_prior(self.log_sd[i] + log_ratio, i)
            change = change - self._log_prior(self.log_sd[i], i)
            gain = gain + change.sum(axis=1, keepdims=True)
        taken = self._accept(np.nan_to_num(gain, nan=-np.inf))
        ratio = np.where(taken, ratio, 1.0)
        self.log_sd[_QUESTION] = old + taken * by
        for i in scales:
            self.log_sd[i] = self.log_sd[i] + np.log(ratio)
        self.intercept = self.intercept * ratio[:, 0]
        self.model, self.task = self.model * ratio, self.task * ratio
        for covariates in (self.of_models, self.of_tasks):
            covariates.along = covariates.along * ratio
        self._keep(taken[..., None], level, log_likelihood)
        self._adapt(_QUESTION, taken, k)

    def _match(self) -> None:
        """Match the approximation to the posterior, not only to the mode."""
        shrink = self._shrink()[:, 0, 0]
        curves: list[FloatArray] = []
        slopes: list[FloatArray] = []
        used = self.rng.permutation(self.chains)[:8]
        for k in used:
            log_sd = float(self.log_sd[_QUESTION][k, 0])
            slope, curve, _ = self.likelihood.derivatives(self.level[k], log_sd)
            slopes.append(slope / shrink[k])
            curves.append(curve / shrink[k] ** 2)
        slope, curve = np.mean(slopes, axis=0), np.mean(curves, axis=0)
        level = (self.level[used] * shrink[used, None, None]).mean(axis=0)
        self.surrogate = Surrogate.of(level, slope, curve)


def fit_crossed(
    counts: Counts,
    structure: CrossedModel,
    rng: np.random.Generator,
    length: ChainLength,
) -> Posterior:
    """Draw from the posterior of a crossed model.

    Parameters
    ----------
    counts
        By task, or by question in a model with effects of questions.
    length
        As for other samplers. Sweeps are nearly independent here and cost little more for several
        chains: each chain is made of short ones, with fewer draws in all.

    Raises
    ------
    DesignError
        Not enough memory.
    """
    groups, (n, t) = length.chains, (len(counts.right), len(counts.tasks))
    parts, worth = next((x[1:] for x in _SHORT_CHAINS if n * t <= x[0]), _LONG_CHAINS)
    if not structure.questions or structure.own_interactions:
        worth = 1
    draws = -(-length.draws // (worth * parts))
    warm_up = max(_LEAST_WARM_UP, length.warm_up // 8)
    length = ChainLength(chains=groups * parts, draws=draws, warm_up=warm_up)
    what = f"{groups} chains of {n} models × {counts.right.shape[1]} columns"
    needed = 8 * (length.chains * n * t * (length.draws + 20) + 12 * counts.right.size)
    check_memory(needed, what, "draw fewer, or pool fewer at a time")
    sampler = CrossedGibbs(counts, structure, length.chains, length.warm_up, rng)
    few = length.chains * length.draws * counts.right.size / _PREDICTED_NUMBERS
    predict = max(1, -(-length.chains * length.draws // _PREDICTED), int(few))
    kept: dict[str, list[FloatArray]] = {}
    states: list[_State] = []
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for k, now in enumerate(run_chains(sampler, sampler.sweep, length)):
            if k % predict == 0:
                states.append(_State(now.level, now.mean, [x.copy() for x in now.log_sd]))
            for name, value in _parameters(now).items():
                kept.setdefault(name, []).append(np.array(value))

    def in_chains(values: list[FloatArray]) -> FloatArray:
        stacked = np.stack(values, axis=1)
        return stacked.reshape(groups, -1, *stacked.shape[2:])

    seed = seed_for(rng, "seed of predicted answers")

    def predictions() -> Predictions:
        again = stream(seed, "predicted answers")
        predicted = [_predicted(sampler.likelihood, x, counts, again) for x in states]
        return Predictions(*(in_chains([pair[i] for pair in predicted]) for i in (0, 1)))

    arrays = {name: in_chains(values) for name, values in kept.items()}
    return Posterior(accuracy=arrays.pop("accuracy"), parameters=arrays, predict=predictions)


def _parameters(now: CrossedGibbs) -> dict[str, FloatArray]:
    """Return what is kept of every draw, by the names that results use."""
    sd, structure = [np.exp(x) for x in now.log_sd], now.structure
    questions = structure.questions
    share = (
        expected_share(now.level, sd[_QUESTION][:, 0]) if questions else special.expit(now.level)
    )
    interaction = sd[_INTERACTION]
    parameters = {
        "accuracy": share,
        "intercept": now.intercept,
        "difficulty": now.task - now.of_tasks.fitted,
        "sd_difficulty": sd[_TASK][:, 0],
        "sd_interaction": interaction if structure.own_interactions else interaction[:, 0],
    }
    coefficients = np.hstack([now.of_models.coefficients, now.of_tasks.coefficients])
    if coefficients.shape[1]:
        parameters["coefficients"] = coefficients
    if structure.across_tasks:
        parameters["performance"] = now.model - now.of_models.fitted
        parameters["sd_performance"] = sd[_MODEL][:, 0]
    if questions:
        parameters["sd_question"] = sd[_QUESTION][:, 0]
    return parameters


def expected_share(level: FloatArray, sd: FloatArray) -> FloatArray:
    """E expit(level − σ_κ z) over z ~ N(0, 1) at levels (C, ...) and σ_κ (C,)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    odds = np.exp(-level)
    share = (weights[_NODES // 2] / weights.sum()) / (1 + odds)
    wide = [-1, *[1] * (level.ndim - 1)]
    for z, w in zip(nodes[: _NODES // 2], weights / weights.sum(), strict=False):
        # Nodes z and −z together: both shares by one division.
        both = (2 * np.cosh(sd * z)).reshape(wide) * odds
        share += w * (2 + both) / (1 + both + odds * odds)
    return share


class _State(NamedTuple):
    """Levels of all chains (C, N, T), without interactions too, and log σ by scale."""

    level: FloatArray
    mean: FloatArray
    log_sd: list[FloatArray]


def _predicted(
    likelihood: LevelLikelihood,
    state: _State,
    counts: Counts,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Log likelihood of each cell's answers, its interaction integrated out, and new answers.

    Difficulties of questions are drawn first. The quadrature lies around the point that two Newton
    steps from the draw reach.
    """
    order = np.argsort(counts.task, kind="stable")
    starts: IntArray = np.searchsorted(counts.task[order], np.arange(len(counts.tasks)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    likely: list[FloatArray] = []
    again: list[FloatArray] = []

    def by_task(values: FloatArray) -> FloatArray:
        return np.add.reduceat(values[..., order], starts, axis=-1)

    answered = by_task(counts.trials) > 0
    for c in range(len(state.level)):
        hard = likelihood.draw_questions(state.level[c], float(state.log_sd[_QUESTION][c, 0]), rng)
        share = np.asarray(special.expit(state.level[c][:, counts.task] - hard), dtype=np.float64)
        again.append(by_task(replicate(rng, counts.trials, share)))
        base = state.mean[c][:, counts.task] - hard
        centre, scale = state.level[c] - state.mean[c], np.exp(state.log_sd[_INTERACTION][c])
        tight, prior = np.ones_like(centre), scale**-2.0
        for _ in range(2):
            share = np.asarray(special.expit(base + centre[:, counts.task]), dtype=np.float64)
            tight = by_task(counts.trials * share * (1 - share)) + prior
            slope = by_task(counts.right - counts.trials * share) - prior * centre
            centre = centre + slope / tight
        terms: list[FloatArray] = []
        for z, w in zip(nodes.tolist(), weights.tolist(), strict=True):
            at = centre + z / np.sqrt(tight)
            logit = base + at[:, counts.task]
            lost = counts.trials * (np.maximum(logit, 0) + np.log1p(np.exp(-np.abs(logit))))
            inside = by_task(counts.right * logit - lost) - (at / scale) ** 2 / 2
            terms.append(inside + math.log(w) + z * z / 2)
        total = special.logsumexp(terms, axis=0) - np.log(tight) / 2
        total = total - np.log(scale) - math.log(2 * math.pi) / 2
        # Exactly 0 where nothing was answered.
        likely.append(np.where(answered, total, 0.0))
    return np.array(likely), np.array(again)
