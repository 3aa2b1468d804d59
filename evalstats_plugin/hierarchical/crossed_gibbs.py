"""Posterior draws of crossed models: every chain at once, each effect given the others.

A sweep moves questions and interactions by Newton proposals, draws coefficients, models and tasks
all together given the interactions, with their standard deviations integrated over the effects,
and moves models, tasks and standard deviations again with the interactions going along. Answers
enter exactly, at the same cost for any number of trials.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from evalstats_plugin.hierarchical import effects
from evalstats_plugin.hierarchical.crossed import CrossedData, CrossedModel
from evalstats_plugin.hierarchical.crossed_likelihood import (
    answers_at,
    choose,
    newton_move,
    normal,
    units,
)
from evalstats_plugin.hierarchical.crossed_scales import Step, scale_given_effects
from evalstats_plugin.hierarchical.crossed_state import start

_TRIES = 2
"""Proposals of each collapsed standard deviation in a sweep."""
_REFRESH = 50
"""Sweeps after which logits are summed anew: moves add to them, and rounding errors with it."""


class CrossedGibbs:
    """Chains at the posterior of one crossed model, and what they learn while warming up."""

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
        """What is expected of each model on each task without interaction, (K, N, T)."""
        state = self.state
        fixed = torch.einsum("ntg,kg->knt", self.design, state.coefficients)
        return fixed + state.model[..., None] - state.task[:, None]

    @property
    def level(self) -> Tensor:
        """Logit of each model on a question of middling difficulty of each task, (K, N, T)."""
        return self.mean + self.state.interaction

    def _logit(self) -> Tensor:
        logit = self.data.to_columns(self.level)
        return logit if self.state.question is None else logit - self.state.question[:, None]

    def settle(self) -> None:
        """Learn no more: from here on draws are kept."""
        for step in self.steps.values():
            step.learning = False

    def sweep(self) -> None:
        """Move everything once."""
        self.sweeps += 1
        if self.sweeps % _REFRESH == 0:
            self.answers = answers_at(self.data, self._logit())
        if self.state.question is not None:
            self._move_questions(self.state.question)
        self._move_interactions()
        self._draw_effects()
        self._move_along("task", self.state.scale_task)
        if self.structure.across_tasks:
            self._move_along("model", self.state.scale_model)
        self._draw_scales()
        self._stretch_interactions()
        if self.state.question is not None:
            self._stretch_questions(self.state.question)
            self._stretch_all()

    def _move_questions(self, question: Tensor) -> None:
        prior = torch.zeros_like(question), torch.exp(-2 * self.state.scale_question)
        question, self.answers = newton_move(
            self.data, (question, self.answers), prior, self.units["question"], self.generator
        )
        self.state = replace(self.state, question=question)

    def _move_interactions(self) -> None:
        precision = torch.exp(-2 * self.state.scale_interaction)[:, None]
        interaction, self.answers = newton_move(
            self.data,
            (self.state.interaction, self.answers),
            (torch.zeros_like(self.state.interaction), precision),
            self.units["interaction"],
            self.generator,
        )
        self.state = replace(self.state, interaction=interaction)

    def _move_along(self, name: str, scale: Tensor) -> None:
        """Move models or tasks with their interactions held: where σ_μ is small, they are free."""
        effect: Tensor = getattr(self.state, name)
        prior = torch.zeros_like(effect), torch.exp(-2 * scale)
        moved, self.answers = newton_move(
            self.data, (effect, self.answers), prior, self.units[name], self.generator
        )
        self.state = replace(self.state, **{name: moved})

    def _draw_effects(self) -> None:
        """Draw coefficients, models and tasks given levels α, which stay where they are.

        All questions of a task and its levels may move together, by δ_t: no answer changes. With
        κ_ti + δ_t ~ N(0, σ_κ²), τ_t + δ_t is a task effect with a prior mean, and of its variance
        the share σ_τ² belongs to τ_t.
        """
        level, state = self.level, self.state
        weights = self.seen * torch.exp(-2 * state.scale_interaction)[:, None]
        table = effects.tabulate(level, weights, self.design)
        middle, slack = self._slack()
        scales, prior, solved = self._collapsed(table, middle, slack)
        rest, model = effects.draw(table, prior, solved, self.generator)
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
        apart = level - self.mean
        # Where nothing was answered, interactions follow their prior.
        fresh = torch.exp(self.state.scale_interaction)[:, None] * self._noise(apart)
        self.state = replace(self.state, interaction=torch.where(self.seen > 0, apart, fresh))

    def _slack(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of δ_t given the questions, (K, T)."""
        question, task = self.state.question, self.state.task
        if question is None:
            return torch.zeros_like(task), torch.zeros_like(task)
        count = self.data.sizes
        middle = -self.data.by_task(question) / count
        return middle, torch.exp(2 * self.state.scale_question) / count

    def _collapsed(
        self, table: effects.Table, middle: Tensor, slack: Tensor
    ) -> tuple[dict[str, Tensor], effects.Prior, effects.Solved]:
        """Move σ_λ and σ_τ with all effects integrated out."""
        scales = {"model": self.state.scale_model, "task": self.state.scale_task}
        names = ["task", "model"] if self.structure.across_tasks else ["task"]
        prior = self._prior(scales, middle, slack)
        solved = effects.solve(table, prior)
        for name in names * _TRIES:
            proposed = {**scales, name: self.steps[name].propose(scales[name], self.generator)}
            other = self._prior(proposed, middle, slack)
            found = effects.solve(table, other)
            gain = (found.log_marginal - solved.log_marginal)[:, None]
            own = self.structure.prior(name)
            gain = gain + own.log_density(proposed[name]) - own.log_density(scales[name])
            taken = self.steps[name].decide(gain, self.generator)
            scales[name] = torch.where(taken, proposed[name], scales[name])
            prior = self._prior(scales, middle, slack)
            solved = effects.Solved(
                torch.where(taken[..., None], found.factor, solved.factor),
                torch.where(taken, found.white, solved.white),
                torch.where(taken[:, 0], found.log_marginal, solved.log_marginal),
            )
        return scales, prior, solved

    def _prior(self, scales: dict[str, Tensor], middle: Tensor, slack: Tensor) -> effects.Prior:
        coefficients = self.state.coefficients
        fixed = self._fixed_sds().pow(-2).expand_as(coefficients)
        tasks = 1 / (torch.exp(2 * scales["task"]) + slack)
        models = torch.exp(-2 * scales["model"]) if self.structure.across_tasks else None
        mean = torch.cat([torch.zeros_like(coefficients), middle], dim=1)
        return effects.Prior(models, torch.cat([fixed, tasks], dim=1), mean)

    def _draw_scales(self) -> None:
        """Draw σ_μ and σ_κ given their effects."""
        state = self.state
        squares, count = (self.seen * state.interaction.square()).sum(1), self.seen.sum(0)
        if not self.structure.spread_by_task:
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

    def _stretch_interactions(self) -> None:
        """Move σ_μ with all interactions in proportion."""
        state, step = self.state, self.steps["interaction"]
        scale = step.propose(state.scale_interaction, self.generator)
        interaction = state.interaction * torch.exp(scale - state.scale_interaction)[:, None]
        change = self.data.to_columns(interaction - state.interaction)
        moved = answers_at(self.data, self.answers.logit + change)
        gain = self.units["task"].total(moved.log_likelihood - self.answers.log_likelihood)
        if not self.structure.spread_by_task:
            gain = gain.sum(1, keepdim=True)
        prior = self.structure.prior("interaction")
        gain = gain + prior.log_density(scale) - prior.log_density(state.scale_interaction)
        taken = step.decide(gain, self.generator)
        self.state = replace(
            state,
            scale_interaction=torch.where(taken, scale, state.scale_interaction),
            interaction=torch.where(taken[:, None], interaction, state.interaction),
        )
        columns = self.data.to_columns(taken) if self.structure.spread_by_task else taken
        self.answers = choose(columns[:, None], moved, self.answers)

    def _stretch_questions(self, question: Tensor) -> None:
        """Move σ_κ with all questions in proportion."""
        state, step = self.state, self.steps["question"]
        scale = step.propose(state.scale_question, self.generator)
        stretched = question * torch.exp(scale - state.scale_question)
        moved = answers_at(self.data, self.answers.logit + (question - stretched)[:, None])
        gain = (moved.log_likelihood - self.answers.log_likelihood).sum((1, 2))[:, None]
        prior = self.structure.prior("question")
        gain = gain + prior.log_density(scale) - prior.log_density(state.scale_question)
        taken = step.decide(gain, self.generator)
        self.state = replace(
            state,
            scale_question=torch.where(taken, scale, state.scale_question),
            question=torch.where(taken, stretched, question),
        )
        self.answers = choose(taken[..., None], moved, self.answers)

    def _stretch_all(self) -> None:
        """Move all effects and their standard deviations in proportion.

        Where questions vary more, everything else must too to leave as many right answers.
        """
        state, structure, step = self.state, self.structure, self.steps["all"]
        by = step.propose(torch.zeros_like(state.scale_question), self.generator)
        moved = answers_at(self.data, self._logit() * by.exp()[..., None])
        gain = (moved.log_likelihood - self.answers.log_likelihood).sum((1, 2))[:, None]
        coefficients = state.coefficients * by.exp()
        sds = self._fixed_sds()
        fixed = (state.coefficients / sds).square() - (coefficients / sds).square()
        # Of effects, the change of density is undone by that of volume; not of coefficients.
        gain = gain + fixed.sum(1, keepdim=True) / 2 + by * coefficients.shape[1]
        scales: dict[str, Tensor] = {}
        for name in ("model", "task", "interaction", "question"):
            old: Tensor = getattr(state, f"scale_{name}")
            scales[name] = old + by
            prior = structure.prior(name)
            change = prior.log_density(scales[name]) - prior.log_density(old)
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
        structure, like = self.structure, self.state.coefficients
        sds = [structure.intercept_sd, *[structure.coefficient_sd] * (like.shape[1] - 1)]
        return torch.cat([like.new_full((1,), sd) for sd in sds])
