"""Crossed random-effects models of accuracy: logistic likelihood, normal effects, Gibbs sampling.

logit P(right) = b + x'β + λ_m - τ_t + μ_mt, and - κ_ti for question i in models with questions.
λ_m ~ N(0, σ_λ²) is a model's performance across tasks, τ_t ~ N(0, σ_τ²) a task's difficulty,
μ_mt ~ N(0, σ_μ²) the interaction of model and task, κ_ti ~ N(0, σ_κ²) a question's difficulty; x
are covariates of models and tasks.

A sweep, of all chains at once, moves questions and interactions by Metropolis steps with Newton
proposals; draws coefficients, models and tasks jointly given the interactions, with their standard
deviations integrated over the effects; moves models and tasks again with the interactions held; and
draws standard deviations given their effects, and by scaling effects and standard deviation
together. The likelihood is exact, at the same cost for any number of trials.

* `CrossedModel`, `CrossedData`, `simulate`: the structure, its data, and draws from the priors
* `CrossedGibbs`: the sweep; then the state of the chains, the likelihood and moves of effects,
  draws of standard deviations, and the joint draw of a two-way table of effects
* `fit_model`: draws from the posterior
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.data import Counts
from evalstats_plugin.hierarchical.engines.posterior import (
    COEFFICIENT_SD,
    INTERCEPT_SD,
    NODES,
    Posterior,
    Predictions,
    log_scale_density,
    replicate,
    scale_quantile,
)
from evalstats_plugin.hierarchical.methods import Prior, prior_of
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import run_chains
from evalstats_plugin.runtime.torch import (
    check_memory,
    cholesky,
    generator_of,
    normal,
    resolve_device,
    uniform,
)
from evalstats_plugin.stats.arrays import FloatArray

_LINALG: Any = torch.linalg
"""Its functions have no type stubs."""


_N_PROPOSALS = 2
"""Proposals for each collapsed standard deviation in a sweep."""


_RECOMPUTE_EVERY = 50
"""Sweeps after which logits are recomputed, because moves accumulate rounding errors."""


_COARSE = (-9.0, 6.0, 256)
"""Grid of log σ (low, high, points) on which the mode of its posterior is found."""


_FINE = 400
"""Points of the finer grid around the mode."""


_ACCEPTANCE = 0.4
"""Target acceptance rate, about the best for one number at a time [RGG97]_."""


PREDICTED = 1000
"""Draws, of all chains together, for which likelihoods and replications are kept."""


PREDICTED_BY_QUESTION = 200
"""The same for models with questions, where each costs as much as two sweeps."""


_CELL_NODES = 9
"""Nodes of the quadrature over an interaction, around its conditional mode."""


_MAX_NUMBERS = 2**27
"""Most numbers kept of accuracies (1 GiB); above, draws are thinned."""


def _log_density(prior: Prior, log_sd: Tensor) -> Tensor:
    return log_scale_density(prior, log_sd, torch.exp)


@dataclass(frozen=True, kw_only=True)
class CrossedModel:
    """The effects of a model, and their priors."""

    across_tasks: bool = True
    """Whether models have an effect λ across tasks."""
    questions: bool = False
    """Whether questions have effects κ: columns are questions, not tasks, and each task has its
    own σ_μ."""
    common: bool = False
    """Whether all tasks have the same σ_μ nevertheless."""
    priors: Mapping[str, Prior] = field(default_factory=dict[str, Prior])
    """Priors of standard deviations, by a name of `SCALES` or ``"default"``."""

    def prior(self, scale: str) -> Prior:
        """Return the prior of one standard deviation."""
        return prior_of(self.priors, scale)


@dataclass(frozen=True, eq=False)
class CrossedData:
    """Right answers of N models in M columns, which are tasks, or the questions of tasks."""

    right: Tensor
    """Shape (N, M); fractions are partial credit."""
    trials: Tensor
    """Shape (N, M): 0 where missing."""
    task: Tensor
    """Shape (M,): the task of each column, numbered from 0."""
    n_tasks: int
    model_covariates: Tensor
    """Shape (N, P)."""
    task_covariates: Tensor
    """Shape (T, Q): what makes tasks hard, hence with a minus sign."""
    member: Tensor | None = field(init=False)
    """Shape (M, T): 1 where a column is of the task; None where columns are the tasks."""

    def __post_init__(self) -> None:
        own = torch.arange(self.n_tasks, device=self.task.device)
        plain = len(self.task) == self.n_tasks and bool((self.task == own).all())
        member = None if plain else (self.task[:, None] == own).to(self.right)
        object.__setattr__(self, "member", member)

    def by_task(self, values: Tensor) -> Tensor:
        """Sum columns (..., M) within their tasks, (..., T)."""
        return values if self.member is None else values @ self.member

    def to_columns(self, values: Tensor) -> Tensor:
        """Give every column (..., M) the value of its task (..., T)."""
        return values if self.member is None else values[..., self.task]

    @property
    def totals(self) -> tuple[Tensor, Tensor]:
        """Right answers and trials of each model on each task, (N, T)."""
        return self.by_task(self.right), self.by_task(self.trials)

    @property
    def sizes(self) -> Tensor:
        """Columns of each task, (T,)."""
        ones = self.right.new_ones(len(self.task))
        return ones.new_zeros(self.n_tasks).index_add_(0, self.task, ones)

    @property
    def design(self) -> Tensor:
        """The intercept and the covariates of each model on each task, (N, T, 1 + P + Q)."""
        n, t = len(self.right), self.n_tasks
        ones = self.right.new_ones(n, t, 1)
        models = self.model_covariates[:, None].expand(n, t, -1)
        return torch.cat([ones, models, -self.task_covariates.expand(n, t, -1)], dim=2)


def simulate(
    structure: CrossedModel, counts: Counts, size: int, rng: np.random.Generator,
    tails: float | None = None,
) -> FloatArray:  # fmt: skip
    """Draw effects from their priors, and right answers given them, (S, N, M).

    Parameters
    ----------
    tails
        Degrees of freedom of interactions; None: normal ones.
    """
    n, m = counts.trials.shape
    t = len(counts.tasks)

    def scale(name: str, many: int = 1) -> FloatArray:
        return scale_quantile(structure.prior(name), rng.random((size, many)))

    level = INTERCEPT_SD * rng.standard_normal((size, 1, 1))
    for values, sign, axis in ((counts.models, 1, 2), (counts.tasks, -1, 1)):
        drawn = COEFFICIENT_SD * rng.standard_normal((size, values.shape[1]))
        level = level + sign * np.expand_dims(drawn @ values.T, axis)
    level = level - (scale("task") * rng.standard_normal((size, t)))[:, None]
    if structure.across_tasks:
        level = level + (scale("model") * rng.standard_normal((size, n)))[..., None]
    own = scale("interaction", t if structure.questions and not structure.common else 1)
    noise = rng.standard_normal((size, n, t))
    if tails is not None:
        noise *= np.sqrt(tails / rng.chisquare(tails, noise.shape))
    level = level + own[:, None] * noise
    logit = level[..., counts.task]
    if structure.questions:
        logit = logit - (scale("question") * rng.standard_normal((size, m)))[:, None]
    share = special.expit(logit)
    return replicate(rng, counts.trials, share)


CROSSED_MODELS: Mapping[str, CrossedModel] = {
    "task": CrossedModel(),
    "shared": CrossedModel(questions=True, common=True),
    "question": CrossedModel(across_tasks=False, questions=True),
    "across-task": CrossedModel(questions=True),
}


class CrossedGibbs:
    """Markov chains of one crossed model, and the step sizes that they adapt while warming up."""

    def __init__(
        self, data: CrossedData, structure: CrossedModel, chains: int, generator: torch.Generator
    ) -> None:
        self.data, self.structure, self.generator = data, structure, generator
        self.units, self.design = units(data), data.design
        self.seen = (data.totals[1] > 0).to(data.right)
        self.state, self.sweeps = start(data, structure, chains, generator), 0
        self.answers = answers_at(data, self._logit())
        self.steps = {
            "model": Step(self.state.scale_model, 0.3),
            "task": Step(self.state.scale_task, 0.3),
            "interaction": Step(self.state.scale_interaction, 0.1),
            "question": Step(self.state.scale_question, 0.05),
            "all": Step(self.state.scale_question, 0.05),
        }

    def _noise(self, like: Tensor) -> Tensor:
        return normal(like, self.generator)

    @property
    def mean(self) -> Tensor:
        """Logit of each model on each task without interaction, (K, N, T)."""
        state = self.state
        fixed = torch.einsum("ntg,kg->knt", self.design, state.coefficients)
        return fixed + state.model[..., None] - state.task[:, None]

    @property
    def level(self) -> Tensor:
        """Logit of each model on a question of average difficulty of each task, (K, N, T)."""
        return self.mean + self.state.interaction

    def _logit(self) -> Tensor:
        logit = self.data.to_columns(self.level)
        return logit if self.state.question is None else logit - self.state.question[:, None]

    def settle(self) -> None:
        """Stop adapting step sizes: from here on draws are kept."""
        for step in self.steps.values():
            step.learning = False

    def sweep(self) -> None:
        """Update all effects and standard deviations once."""
        self.sweeps += 1
        if self.sweeps % _RECOMPUTE_EVERY == 0:
            self.answers = answers_at(self.data, self._logit())
        if self.structure.questions:
            self._move("question")
        self._move("interaction")
        self._draw_effects()
        # Again with interactions held, which mixes well where σ_μ is small.
        self._move("task")
        if self.structure.across_tasks:
            self._move("model")
        self._draw_scales()
        self._stretch("interaction")
        if self.structure.questions:
            self._stretch("question")
            self._stretch_all()

    def _scaled(self, name: str, values: Tensor) -> Tensor:
        """Return values of the standard deviations of a kind so that they broadcast to effects."""
        return values[:, None] if name == "interaction" else values

    def _move(self, name: str) -> None:
        """Move all effects of a kind, the others held."""
        effect: Tensor = getattr(self.state, name)
        precision = torch.exp(-2 * self._scaled(name, getattr(self.state, f"scale_{name}")))
        prior = torch.zeros_like(effect), precision
        moved, self.answers = newton_move(
            self.data, (effect, self.answers), prior, self.units[name], self.generator
        )
        self.state = replace(self.state, **{name: moved})

    def _draw_effects(self) -> None:
        """Draw coefficients, models and tasks given the levels of all cells, which are held.

        All questions of a task and its levels may be shifted together by δ_t without changing the
        likelihood. With κ_ti + δ_t ~ N(0, σ_κ²), τ_t + δ_t is a task effect with a prior mean, and
        τ_t has the share σ_τ² of its variance.
        """
        level, state = self.level, self.state
        weights = self.seen * torch.exp(-2 * state.scale_interaction)[:, None]
        table = tabulate(level, weights, self.design)
        middle, slack = self._slack()
        scales, prior, solved = self._collapsed(table, middle, slack)
        rest, model = draw(table, prior, solved, self.generator)
        coefficients, together = rest[:, : self.design.shape[2]], rest[:, self.design.shape[2] :]
        own = torch.exp(2 * scales["task"])
        share = own / (own + slack)
        task = share * (together - middle)
        task = task + (share * slack).sqrt() * self._noise(task)
        if state.question is not None:
            shift = together - task
            state = replace(state, question=state.question + self.data.to_columns(shift))
            level = level + shift[:, None]
        self.state = replace(
            state,
            coefficients=coefficients,
            task=task,
            model=state.model if model is None else model,
            scale_task=scales["task"],
            scale_model=scales["model"],
        )
        residual = level - self.mean
        # Cells without answers draw their interactions from the prior.
        fresh = torch.exp(self.state.scale_interaction)[:, None] * self._noise(residual)
        self.state = replace(self.state, interaction=torch.where(self.seen > 0, residual, fresh))

    def _slack(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of δ_t given the questions, (K, T)."""
        question, task = self.state.question, self.state.task
        if question is None:
            return torch.zeros_like(task), torch.zeros_like(task)
        count = self.data.sizes
        middle = -self.data.by_task(question) / count
        return middle, torch.exp(2 * self.state.scale_question) / count

    def _collapsed(
        self, table: Table, middle: Tensor, slack: Tensor
    ) -> tuple[dict[str, Tensor], EffectPrior, Solved]:
        """Move σ_λ and σ_τ with all effects integrated out."""
        scales = {"model": self.state.scale_model, "task": self.state.scale_task}
        names = ["task", "model"] if self.structure.across_tasks else ["task"]
        prior = self._prior(scales, middle, slack)
        solved = solve(table, prior)
        for name in names * _N_PROPOSALS:
            proposed = {**scales, name: self.steps[name].propose(scales[name], self.generator)}
            other = self._prior(proposed, middle, slack)
            candidate = solve(table, other)
            gain = (candidate.log_marginal - solved.log_marginal)[:, None]
            own = self.structure.prior(name)
            gain = gain + _log_density(own, proposed[name]) - _log_density(own, scales[name])
            taken = self.steps[name].decide(gain, self.generator)
            scales[name] = torch.where(taken, proposed[name], scales[name])
            prior = self._prior(scales, middle, slack)
            solved = Solved(
                torch.where(taken[..., None], candidate.factor, solved.factor),
                torch.where(taken, candidate.white, solved.white),
                torch.where(taken[:, 0], candidate.log_marginal, solved.log_marginal),
            )
        return scales, prior, solved

    def _prior(self, scales: dict[str, Tensor], middle: Tensor, slack: Tensor) -> EffectPrior:
        coefficients = self.state.coefficients
        fixed = self._fixed_sds().pow(-2).expand_as(coefficients)
        tasks = 1 / (torch.exp(2 * scales["task"]) + slack)
        models = torch.exp(-2 * scales["model"]) if self.structure.across_tasks else None
        mean = torch.cat([torch.zeros_like(coefficients), middle], dim=1)
        return EffectPrior(models, torch.cat([fixed, tasks], dim=1), mean)

    def _draw_scales(self) -> None:
        """Draw σ_μ and σ_κ given their effects."""
        state = self.state
        squares, count = (self.seen * state.interaction.square()).sum(1), self.seen.sum(0)
        if not self.structure.questions:
            squares, count = squares.sum(1, keepdim=True), count.sum()[None]
        prior = self.structure.prior("interaction")
        scale = scale_given_effects(squares, count.expand_as(squares), prior, self.generator)
        self.state = replace(state, scale_interaction=scale)
        if state.question is None:
            return
        squares = state.question.square().sum(1, keepdim=True)
        count = torch.full_like(squares, state.question.shape[1])
        prior = self.structure.prior("question")
        scale = scale_given_effects(squares, count, prior, self.generator)
        self.state = replace(self.state, scale_question=scale)

    def _stretch(self, name: str) -> None:
        """Move the standard deviations of a kind with all its effects in proportion."""
        state, step, unit = self.state, self.steps[name], self.units[name]
        effect: Tensor = getattr(state, name)
        old: Tensor = getattr(state, f"scale_{name}")
        scale = step.propose(old, self.generator)
        stretched = effect * self._scaled(name, torch.exp(scale - old))
        change = unit.sign * unit.spread(stretched - effect)
        moved = answers_at(self.data, self.answers.logit + change)
        gain = self.units["task"].total(moved.log_likelihood - self.answers.log_likelihood)
        if scale.shape[1] == 1:
            gain = gain.sum(1, keepdim=True)
        prior = self.structure.prior(name)
        gain = gain + _log_density(prior, scale) - _log_density(prior, old)
        taken = step.decide(gain, self.generator)
        kept = {
            f"scale_{name}": torch.where(taken, scale, old),
            name: torch.where(self._scaled(name, taken), stretched, effect),
        }
        self.state = replace(state, **kept)
        columns = self.data.to_columns(taken) if scale.shape[1] > 1 else taken
        self.answers = choose(columns[:, None], moved, self.answers)

    def _stretch_all(self) -> None:
        """Move all effects and their standard deviations in proportion.

        If questions vary more, all other effects must too for the same accuracies.
        """
        state, structure, step = self.state, self.structure, self.steps["all"]
        by = step.propose(torch.zeros_like(state.scale_question), self.generator)
        moved = answers_at(self.data, self._logit() * by.exp()[..., None])
        gain = (moved.log_likelihood - self.answers.log_likelihood).sum((1, 2))[:, None]
        coefficients = state.coefficients * by.exp()
        sds = self._fixed_sds()
        fixed = (state.coefficients / sds).square() - (coefficients / sds).square()
        # For effects the change in density cancels with that in volume; not for coefficients.
        gain = gain + fixed.sum(1, keepdim=True) / 2 + by * coefficients.shape[1]
        scales: dict[str, Tensor] = {}
        for name in ("model", "task", "interaction", "question"):
            old: Tensor = getattr(state, f"scale_{name}")
            scales[name] = old + by
            prior = structure.prior(name)
            change = _log_density(prior, scales[name]) - _log_density(prior, old)
            if name != "model" or structure.across_tasks:
                gain = gain + change.sum(1, keepdim=True)
        taken = step.decide(gain, self.generator)
        factor = torch.where(taken, by.exp(), 1.0)
        kept = {
            f"scale_{name}": torch.where(taken, new, getattr(state, f"scale_{name}"))
            for name, new in scales.items()
        }
        self.state = replace(
            state,
            coefficients=state.coefficients * factor,
            model=state.model * factor,
            task=state.task * factor,
            interaction=state.interaction * factor[..., None],
            question=None if state.question is None else state.question * factor,
            **kept,
        )
        self.answers = choose(taken[..., None], moved, self.answers)

    def _fixed_sds(self) -> Tensor:
        """Prior standard deviations of intercept and coefficients, (G,)."""
        like = self.state.coefficients[0]
        # Filled on its device: a list would be copied from the host in each sweep.
        sd = torch.full_like(like, COEFFICIENT_SD)
        sd[:1].fill_(INTERCEPT_SD)
        return sd


@dataclass(frozen=True, kw_only=True)
class State:
    """State of K chains. Standard deviations are logarithms."""

    coefficients: Tensor
    """Intercept b and β, (K, G)."""
    model: Tensor
    """λ, (K, N); 0 where the model has none."""
    task: Tensor
    """τ, (K, T)."""
    interaction: Tensor
    """μ, (K, N, T)."""
    question: Tensor | None
    """κ, (K, M)."""
    scale_model: Tensor
    """(K, 1), like the next."""
    scale_task: Tensor
    scale_interaction: Tensor
    """(K, 1), or (K, T) where each task has its own."""
    scale_question: Tensor
    """(K, 1)."""


def start(
    data: CrossedData, structure: CrossedModel, chains: int, generator: torch.Generator
) -> State:
    """Return overdispersed starting points: logits of scores plus noise."""
    zero = data.right.new_zeros
    n, t, g = data.design.shape
    right, trials = data.totals
    score = torch.logit((right + 0.5) / (trials + 1)).expand(chains, n, t)

    def apart(*size: int) -> Tensor:
        return 0.5 * normal(zero(chains, *size), generator)

    question = apart(len(data.task)) if structure.questions else None
    return State(
        coefficients=apart(g),
        model=apart(n) if structure.across_tasks else zero(chains, n),
        task=apart(t),
        interaction=score + 0.6 * apart(n, t),
        question=question,
        scale_model=apart(1) - 0.5,
        scale_task=apart(1) - 0.5,
        scale_interaction=apart(t if structure.questions else 1) - 0.5,
        scale_question=apart(1) - 0.5,
    )


class Answers(NamedTuple):
    """Likelihood of the answers of K chains, each of shape (K, N, M)."""

    logit: Tensor
    log_likelihood: Tensor
    share: Tensor
    """P(right)."""


def answers_at(data: CrossedData, logit: Tensor) -> Answers:
    """Evaluate at logits (K, N, M)."""
    log_likelihood = data.right * logit - data.trials * torch.nn.functional.softplus(logit)
    return Answers(logit, log_likelihood, torch.sigmoid(logit))


def choose(taken: Tensor, new: Answers, old: Answers) -> Answers:
    """Keep the new answers where a move was accepted; `taken` broadcasts to (K, N, M)."""
    return Answers(*(torch.where(taken, a, b) for a, b in zip(new, old, strict=True)))


class Unit(NamedTuple):
    """How the effects of one kind enter the logits of answers."""

    total: Callable[[Tensor], Tensor]
    """Sum (K, N, M) over the answers of each unit."""
    spread: Callable[[Tensor], Tensor]
    """Give each answer the value of its unit."""
    sign: float
    """Sign of the effect in the logit."""


def units(data: CrossedData) -> dict[str, Unit]:
    """Units of models (K, N), tasks (K, T), interactions (K, N, T) and questions (K, M)."""

    def of_tasks(values: Tensor) -> Tensor:
        return data.by_task(values.sum(1))

    def to_answers(values: Tensor) -> Tensor:
        return data.to_columns(values)[:, None]

    return {
        "model": Unit(partial(torch.sum, dim=2), partial(torch.unsqueeze, dim=2), 1.0),
        "task": Unit(of_tasks, to_answers, -1.0),
        "interaction": Unit(data.by_task, data.to_columns, 1.0),
        "question": Unit(partial(torch.sum, dim=1), partial(torch.unsqueeze, dim=1), -1.0),
    }


def newton_move(
    data: CrossedData,
    at: tuple[Tensor, Answers],
    prior: tuple[Tensor, Tensor],
    unit: Unit,
    generator: torch.Generator,
) -> tuple[Tensor, Answers]:
    """Metropolis–Hastings move of each effect of a kind given all others, with Newton proposals.

    Parameters
    ----------
    at
        The effects, and the answers at them.
    prior
        Mean and precision of the effects, which broadcast to them.
    """
    effect, answers = at
    mean, precision = prior
    centre, tight = _proposal(data, effect, answers, prior, unit)
    proposed = centre + normal(effect, generator) / tight.sqrt()
    moved = answers_at(data, answers.logit + unit.sign * unit.spread(proposed - effect))
    back, tight_back = _proposal(data, proposed, moved, prior, unit)
    gain = unit.total(moved.log_likelihood - answers.log_likelihood)
    gain = gain - precision / 2 * ((proposed - mean).square() - (effect - mean).square())
    gain = gain + (tight_back.log() - tight.log()) / 2
    gain = gain - (tight_back * (effect - back).square() - tight * (proposed - centre).square()) / 2
    taken = uniform(gain, generator).log() < gain
    return torch.where(taken, proposed, effect), choose(unit.spread(taken), moved, answers)


def _proposal(
    data: CrossedData,
    effect: Tensor,
    answers: Answers,
    prior: tuple[Tensor, Tensor],
    unit: Unit,
) -> tuple[Tensor, Tensor]:
    """Mean and precision of the proposal: one Newton step, and the curvature at the start."""
    mean, precision = prior
    expected = data.trials * answers.share
    slope = unit.sign * unit.total(data.right - expected)
    tight = unit.total(expected * (1 - answers.share)) + precision
    return effect + (slope - precision * (effect - mean)) / tight, tight


class Step:
    """Random-walk proposals whose step size is adapted while warming up [RGG97]_."""

    def __init__(self, like: Tensor, start: float) -> None:
        self.log = torch.full_like(like[0], start).log()
        self.count, self.learning = 0, True

    def propose(self, value: Tensor, generator: torch.Generator) -> Tensor:
        """Return proposals for (K, ...)."""
        return value + self.log.exp() * normal(value, generator)

    def decide(self, gain: Tensor, generator: torch.Generator) -> Tensor:
        """Return which proposals are accepted, given their log ratios; adapt the step."""
        taken = uniform(gain, generator).log() < gain
        if self.learning:
            self.count += 1
            off = taken.to(gain).mean(0) - _ACCEPTANCE
            self.log = self.log + off * min(1.0, 3 / self.count**0.6)
        return taken


def scale_given_effects(
    squares: Tensor, count: Tensor, prior: Prior, generator: torch.Generator
) -> Tensor:
    """Draw log σ given the sum of squares of `count` normal effects, both of shape (K, J).

    By inverting the distribution function on a grid around the mode, uniform within a cell.
    """
    coarse = torch.linspace(*_COARSE, dtype=squares.dtype, device=squares.device)
    fine = torch.linspace(-1, 1, _FINE, dtype=squares.dtype, device=squares.device)

    def log_density(at: Tensor) -> Tensor:
        kernel = -count[..., None] * at - squares[..., None] / 2 * torch.exp(-2 * at)
        return kernel + _log_density(prior, at)

    mode = coarse[log_density(coarse).argmax(-1)]
    # Wide enough for so few effects, plus a step of the coarse grid.
    width = 9 / (2 * count + 2).sqrt() + (_COARSE[1] - _COARSE[0]) / _COARSE[2]
    table = mode[..., None] + width[..., None] * fine
    share = torch.softmax(log_density(table), dim=-1).cumsum(-1)
    u = uniform(squares, generator)[..., None]
    place = torch.searchsorted(share, u * share[..., -1:]).clamp_max(_FINE - 1)
    inside = (uniform(squares, generator) - 0.5) * 2 * width / (_FINE - 1)
    return table.gather(-1, place)[..., 0] + inside


class Table(NamedTuple):
    """Normal equations of coefficients (G), tasks and models, of K chains."""

    own: Tensor
    """Weights of each model, (K, N)."""
    cross: Tensor
    """Between models and the others, (K, N, G + T)."""
    rest: Tensor
    """Between the others, (K, G + T, G + T)."""
    pull: Tensor
    """Of models, (K, N)."""
    pull_rest: Tensor
    """Of the others, (K, G + T)."""


class EffectPrior(NamedTuple):
    """Prior of the effects, of K chains."""

    models: Tensor | None
    """Precision of λ, (K, 1); None where there is no λ."""
    rest: Tensor
    """Precisions of coefficients and tasks, (K, G + T)."""
    rest_mean: Tensor
    """Their means, (K, G + T)."""


class Solved(NamedTuple):
    """Posterior of the effects with models eliminated, and the marginal likelihood."""

    factor: Tensor
    """Cholesky factor of the precision of coefficients and tasks."""
    white: Tensor
    """Its solution of the right-hand side."""
    log_marginal: Tensor
    """Log marginal likelihood of the table, up to terms without the prior; (K,)."""


def tabulate(cells: Tensor, weights: Tensor, design: Tensor) -> Table:
    """Return the normal equations of cells and weights (K, N, T), and a design (N, T, G)."""
    weighted = weights * cells
    by_task = -torch.einsum("knt,ntg->kgt", weights, design)
    corner = torch.einsum("knt,ntg,nth->kgh", weights, design, design)
    tasks = torch.diag_embed(weights.sum(1))
    rest = torch.cat(
        [torch.cat([corner, by_task], dim=2), torch.cat([by_task.mT, tasks], dim=2)], dim=1
    )
    cross = torch.cat([torch.einsum("knt,ntg->kng", weights, design), -weights], dim=2)
    pull_rest = torch.cat([torch.einsum("knt,ntg->kg", weighted, design), -weighted.sum(1)], dim=1)
    return Table(weights.sum(2), cross, rest, weighted.sum(2), pull_rest)


def solve(table: Table, prior: EffectPrior) -> Solved:
    """Factor the posterior precision of coefficients and tasks."""
    system = table.rest + torch.diag_embed(prior.rest)
    right = table.pull_rest + prior.rest * prior.rest_mean
    log_marginal = prior.rest.log().sum(1) - (prior.rest * prior.rest_mean.square()).sum(1)
    if prior.models is not None:
        held = table.own + prior.models
        share = table.cross / held[..., None]
        system = system - table.cross.mT @ share
        right = right - (share.mT @ table.pull[..., None])[..., 0]
        log_marginal = log_marginal + (prior.models.log() - held.log()).sum(1)
        log_marginal = log_marginal + (table.pull.square() / held).sum(1)
    factor = cholesky(system)
    white: Tensor = _LINALG.solve_triangular(factor, right[..., None], upper=False)[..., 0]
    determinant = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    log_marginal = (log_marginal + white.square().sum(1)) / 2 - determinant
    return Solved(factor, white, log_marginal)


def draw(
    table: Table, prior: EffectPrior, solved: Solved, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Draw coefficients and tasks (K, G + T), and models (K, N) where there are any."""
    white = solved.white + normal(solved.white, generator)
    rest: Tensor = _LINALG.solve_triangular(solved.factor.mT, white[..., None], upper=True)
    if prior.models is None:
        return rest[..., 0], None
    held = table.own + prior.models
    centre = (table.pull - (table.cross @ rest)[..., 0]) / held
    return rest[..., 0], centre + normal(centre, generator) / held.sqrt()


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
    generator = generator_of(rng, "chains of crossed effects", data.right.device)
    sampler = CrossedGibbs(data, structure, length.chains, generator)
    keep = thinning((n, t), length)
    predicted = PREDICTED_BY_QUESTION if structure.questions else PREDICTED
    predict = max(keep, math.ceil(length.chains * length.draws / predicted))
    kept: dict[str, list[Tensor]] = {}
    for k, _ in enumerate(run_chains(sampler, _swept, length)):
        drawn = _parameters(sampler) if k % keep == 0 else {}
        if k % predict == 0:
            drawn["log_likelihood"] = cell_log_likelihood(sampler)
            drawn["replicated"] = replicated(sampler)
        for name, value in drawn.items():
            kept.setdefault(name, []).append(value)
    arrays: dict[str, FloatArray] = {
        name: torch.stack(values, 1).cpu().numpy() for name, values in kept.items()
    }
    if not np.isfinite(arrays["accuracy"]).all():
        msg = "some draws are not finite, because a precision matrix was not positive definite"
        raise DesignError(f"{msg}: give the standard deviations narrower priors")
    predictions = Predictions(arrays.pop("log_likelihood"), arrays.pop("replicated"))
    return Posterior(
        accuracy=arrays.pop("accuracy"), parameters=arrays, predict=lambda: predictions
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
    parameters = {
        "accuracy": accuracy(sampler),
        "intercept": state.coefficients[:, 0],
        "difficulty": state.task,
        "sd_difficulty": state.scale_task[:, 0].exp(),
        "sd_interaction": own if structure.questions else own[:, 0],
    }
    if state.coefficients.shape[1] > 1:
        parameters["coefficients"] = state.coefficients[:, 1:]
    if structure.across_tasks:
        parameters |= {"performance": state.model, "sd_performance": state.scale_model[:, 0].exp()}
    if structure.questions:
        parameters["sd_question"] = state.scale_question[:, 0].exp()
    return {name: value.clone() for name, value in parameters.items()}


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
    whole = torch.maximum(trials.round(), (trials > 0).double())
    drawn = torch.binomial(whole, sampler.answers.share, generator=sampler.generator)
    part = drawn / whole.clamp_min(1)
    return sampler.data.by_task(torch.where(drawn == whole, trials, part * trials))


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
        log_p = data.right * logit - data.trials * torch.nn.functional.softplus(logit)
        inside = data.by_task(log_p) - precision / 2 * at.square() + node**2 / 2
        terms.append(inside + math.log(weight))
    log_norm = (precision / tight).log() / 2 - math.log(2 * math.pi) / 2
    # Exactly 0 where nothing was answered.
    return sampler.seen * (torch.logsumexp(torch.stack(terms), dim=0) + log_norm)
