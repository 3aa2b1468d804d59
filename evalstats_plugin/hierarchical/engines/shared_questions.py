"""Gibbs sampler for models × tasks whose questions all models share; without torch.

logit P(right) = η_nt − κ_ti with η_nt = b + λ_n − τ_t + μ_nt: performance λ of models, difficulty τ
of tasks and κ of questions, interactions μ. Questions are integrated out: the likelihood of a
task's levels η depends on its answers only through each model's number of right answers and the
number of questions that r models got right, whatever the number of questions. A normal
approximation of each task's likelihood proposes all levels of a task at once; b, λ, τ and their
standard deviations have closed forms, because levels of models that missed a task are drawn too.

* `answered_alike`: whether data are right or wrong, and several models answered the same questions
* `fit_shared`: draws from the posterior
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.hierarchical.data import EvalCounts
from evalstats_plugin.hierarchical.engines.posterior import (
    Posterior,
    Predictions,
    log_scale_density,
)
from evalstats_plugin.hierarchical.methods import SCALES, Prior, prior_of
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import run_chains
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.streams import seed_for, stream

MOST_MODELS = 100
"""Most models: products over more of them leave the range of numbers."""

_SPAN = 5.0
"""Standard deviations of κ that nodes reach; error of the log likelihood about 3e-6."""

_SPACING, _INFORMATION, _WIDEST = 1.3, 0.2, 3.5
"""Distance of nodes in posterior standard deviations of a question (error about 2e-5), information
of one answer, and the log σ_κ from which on nodes grow no more."""

_PREDICTED = 200
"""Draws, of all chains together, for which likelihoods and replications are kept."""

_PREDICTED_NUMBERS = 5_000_000
"""Most answers, over all draws, for that."""

_NODES = 9
"""Nodes of quadratures over a normal variable."""

_ACCEPTANCE = 0.4
"""Target acceptance rate of stretches."""

_OTHER_SIDE, _WIDER = -0.5, 1.1
"""Correlation of proposed levels and log standard deviations with the current ones, and how much
wider than those of the warm-up the latter spread."""

_ATTENUATION = 0.346
"""Slopes of a logistic function shrink by √(1 + this · variance) when noise is integrated out."""

_SHORT_CHAINS = ((100, 8, 1), (1000, 4, 3))
"""Up to so many cells, short chains that make up a chain, and draws of `crossed_gibbs` that one
draw is worth; few cells cost little, and leave standard deviations uncertain."""

_LONG_CHAINS = (2, 3)
"""The same for more cells."""

_LEAST_WARM_UP = 30
"""Sweeps of each short chain before draws are kept."""

_MODEL, _TASK, _INTERACTION, _QUESTION = range(4)


def answered_alike(counts: EvalCounts) -> bool:
    """Return whether answers are right or wrong, and most questions have several models."""
    right, trials = counts.question_right, counts.question_trials
    if not (1 < len(right) <= MOST_MODELS and trials.max() <= 1):
        return False
    binary = bool(np.isin(right, (0.0, 1.0)).all())
    return binary and float(np.median(trials.sum(axis=0))) > 1


class Blocks(NamedTuple):
    """Sufficient statistics of blocks: questions of one task answered by the same models."""

    task: IntArray
    """Shape (G,)."""
    seen: FloatArray
    """Shape (G, N): 1 where the model answered."""
    right: FloatArray
    """Right answers, (G, N)."""
    size: FloatArray
    """Questions, (G,)."""
    tally: FloatArray
    """Questions that r models got right, (G, N + 1)."""
    n_tasks: int

    @property
    def full(self) -> bool:
        """Whether every model answered every question."""
        return len(self.task) == self.n_tasks and bool((self.seen == 1).all())

    @property
    def member(self) -> FloatArray:
        """Shape (G, T): 1 where a block is of the task."""
        return 1.0 * (self.task[:, None] == np.arange(self.n_tasks))


def blocks_of(counts: EvalCounts) -> tuple[Blocks, IntArray]:
    """Return blocks, and the block of each question."""
    seen = counts.question_trials > 0
    right = np.where(seen, counts.question_right, 0.0)
    key = np.concatenate([counts.task[None], seen]).T
    pattern, block = np.unique(key, axis=0, return_inverse=True)
    block = block.ravel()
    g, n = len(pattern), len(right)
    totals, count = np.zeros((g, n)), np.zeros((g, n + 1))
    np.add.at(totals, block, right.T)
    np.add.at(count, (block, right.sum(axis=0).astype(int)), 1.0)
    blocks = Blocks(
        pattern[:, 0].astype(np.int64),
        pattern[:, 1:].astype(float),
        totals,
        np.bincount(block, minlength=g).astype(float),
        count,
        len(counts.tasks),
    )
    return blocks, block


class Likelihood:
    """Likelihood of the levels of each task, questions summed out on equally spaced nodes."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        n = blocks.seen.shape[1]
        self.seen, self.tally = blocks.seen.T[:, None], blocks.tally.T
        self.linear = blocks.right - blocks.seen * blocks.size[:, None] / 2
        self.member, self.full = blocks.member, blocks.full
        self.right: FloatArray = np.arange(n + 1.0, dtype=np.float64)
        self.centred = self.right - n / 2

    def nodes(self, log_sd: float) -> tuple[FloatArray, FloatArray]:
        """Equally spaced nodes of κ / σ_κ, and their log weights.

        As close as the posterior of a question with all its answers is narrow: too few nodes leave
        a false mode at large σ_κ.
        """
        precision = 1 + _INFORMATION * len(self.right) * np.exp(2 * min(log_sd, _WIDEST))
        nodes = np.linspace(-_SPAN, _SPAN, int(_SPAN / _SPACING * precision**0.5) * 2 + 3)
        log_weight = -(nodes**2) / 2
        return nodes, log_weight - np.log(np.exp(log_weight).sum())

    def __call__(self, level: FloatArray, log_sd: FloatArray) -> FloatArray:
        """Log likelihood by task, (C, T), at levels (C, N, T) and log σ_κ (C,)."""
        b = self.blocks
        at = level if self.full else level[:, :, b.task]
        nodes, log_weight = self.nodes(float(log_sd.max()))
        kappa = np.exp(log_sd)[:, None] * nodes
        # Π (1 + e^(η − κ)) over models is a polynomial in e^−κ, whose coefficients need no κ: all
        # terms are positive, and half-centred, so that none is lost. Sums over r come first.
        half = np.exp(at / 2).transpose(1, 0, 2)
        up, down = half * self.seen, np.where(self.seen > 0, 1 / half, 1.0)
        sums: FloatArray = np.ones((len(up) + 1, *up.shape[1:]))
        for n in range(len(up)):
            more = sums[: n + 1] * up[n]
            sums[: n + 1] *= down[n]
            sums[1 : n + 1] += more[:-1]
            sums[n + 1] = more[-1]
        power = np.exp(-kappa[..., None] * self.centred)
        share = np.exp(log_weight)[:, None] / (power @ sums.transpose(1, 0, 2))
        # Where no question has r right answers, its probability is not needed.
        chance = np.where(self.tally > 0, power.swapaxes(1, 2) @ share, 1.0)
        total = (np.log(chance) * self.tally).sum(axis=1) + (at * self.linear.T).sum(axis=1)
        return total if self.full else total @ self.member

    def posterior(self, level: FloatArray, log_sd: float) -> FloatArray:
        """P(node | r models right) of a question, (G, Q, N + 1), at levels (N, T)."""
        b = self.blocks
        at = level[:, b.task]
        nodes, log_weight = self.nodes(log_sd)
        kappa = np.exp(log_sd) * nodes
        base = np.zeros((len(b.task), len(kappa))) + log_weight
        for n in range(len(at)):
            base -= np.logaddexp(0, at[n][:, None] - kappa) * b.seen[:, n, None]
        table = base[..., None] - kappa[:, None] * self.right
        weight = np.exp(table - table.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def derivatives(self, level: FloatArray, log_sd: float) -> tuple[FloatArray, FloatArray, float]:
        """Gradient (N, T), minus the Hessian (T, N, N), and the expected sum of κ²."""
        b = self.blocks
        weight = self.posterior(level, log_sd)
        kappa = np.exp(log_sd) * self.nodes(log_sd)[0]
        logit = level[:, b.task][..., None] - kappa
        share = np.asarray(special.expit(logit), dtype=np.float64) * b.seen.T[..., None]
        of_nodes = np.einsum("gqr,gr->gq", weight, b.tally)
        slope = b.right.T - np.einsum("ngq,gq->ng", share, of_nodes)
        mean = np.einsum("ngq,gqr->gnr", share, weight, optimize=True)
        curve = np.einsum("gnr,gmr,gr->gnm", mean, mean, b.tally, optimize=True)
        curve -= np.einsum("ngq,mgq,gq->gnm", share, share, of_nodes, optimize=True)
        i = np.arange(len(level))
        # E p(1 − p) on the diagonal, less the covariance of p between models.
        curve[:, i, i] += np.einsum("ngq,gq->gn", share * (1 - share), of_nodes)
        squares = float((of_nodes * kappa**2).sum())
        return slope @ self.member, np.einsum("gnm,gt->tnm", curve, self.member), squares


class Surrogate(NamedTuple):
    """Normal approximation exp(h'η − η'Hη / 2) of the likelihood of each task's levels."""

    pull: FloatArray
    """h, (N, T)."""
    curve: FloatArray
    """H, (T, N, N)."""
    values: FloatArray
    """Its eigenvalues, (T, N)."""
    vectors: FloatArray
    turned_pull: FloatArray
    """h in their coordinates, (T, N)."""

    @staticmethod
    def of(pull: FloatArray, curve: FloatArray) -> Surrogate:
        """Decompose H."""
        values, vectors = np.linalg.eigh(curve)
        along = (pull.T[:, None] @ vectors)[:, 0]
        return Surrogate(pull, curve, np.maximum(values, 1e-8), vectors, along)

    def gain(self, level: FloatArray, old: FloatArray, shrink: FloatArray) -> FloatArray:
        """Log ratio of the approximation by task, (C, T), at levels (C, N, T) times shrink."""
        by = level - old
        square = np.einsum("cnt,cnt->ct", by, self.times(level + old))
        return np.einsum("nt,cnt->ct", self.pull, by) * shrink - square * shrink**2 / 2

    def turned(self, level: FloatArray) -> FloatArray:
        """Coordinates (C, T, N) of levels (C, N, T) along the eigenvectors."""
        return (self.vectors.swapaxes(1, 2) @ level.transpose(2, 1, 0)).transpose(2, 0, 1)

    def back(self, turned: FloatArray) -> FloatArray:
        """Levels (C, N, T) of coordinates (C, T, N)."""
        return (self.vectors @ turned.transpose(1, 2, 0)).transpose(2, 1, 0)

    def times(self, level: FloatArray) -> FloatArray:
        """H η, (C, N, T)."""
        return (self.curve @ level.transpose(2, 1, 0)).transpose(2, 1, 0)


def _slope(log_sd: FloatArray) -> FloatArray:
    return np.sqrt(1 + _ATTENUATION * np.exp(2 * log_sd))


def start(likelihood: Likelihood) -> tuple[FloatArray, float, Surrogate]:
    """Levels (N, T) at the mode under a weak prior, log σ_κ there, and the approximation."""
    b = likelihood.blocks
    n = b.seen.shape[1]
    right = b.right.T @ b.member
    answered = (b.seen * b.size[:, None]).T @ b.member
    logit = special.logit((right + 0.5) / (answered + 1))
    level = np.asarray(logit, dtype=np.float64) * 1.2
    log_sd = 0.0
    for _ in range(14):
        slope, curve, squares = likelihood.derivatives(level, log_sd)
        middle = level.mean(axis=1, keepdims=True) + level.mean(axis=0) - level.mean()
        wanted = (slope - (level - middle)).T[..., None]
        solved = np.asarray(np.linalg.solve(curve + np.eye(n), wanted), dtype=np.float64)
        step = solved[..., 0].T
        level = level + np.clip(step, -1.5, 1.5)
        ratio = (squares + 1) / b.size.sum() / np.exp(2 * log_sd)
        log_sd += float(np.clip(0.9 * np.log(ratio), -0.5, 0.5))
    slope, curve, _ = likelihood.derivatives(level, log_sd)
    pull = np.einsum("tnm,mt->nt", curve, level) + slope
    return level, log_sd, Surrogate.of(pull, curve)


class _Conditional(NamedTuple):
    """Normal distribution of levels along the eigenvectors of the approximation."""

    middle: FloatArray
    """Means, (C, T, N)."""
    root: FloatArray
    """1 / standard deviations, (C, T, N)."""
    log_mass: FloatArray
    """Log of the integral of the approximation over levels, (C,)."""


class SharedGibbs:
    """All chains at once, and what they adapt while warming up."""

    level: FloatArray
    """η, (C, N, T)."""
    intercept: FloatArray
    """b, (C,)."""
    model: FloatArray
    """λ, (C, N)."""
    task: FloatArray
    """τ, (C, T)."""
    log_sd: FloatArray
    """By scale, in the order of `SCALES`: (4, C)."""
    known: FloatArray
    """Log likelihood by task, (C, T)."""
    tails: float | None
    """Degrees of freedom of interactions; None: normal ones."""
    mixed: FloatArray
    """Variances of interactions over σ_μ², whose mixture has those tails, (C, N, T)."""
    n: int
    """Models."""
    t: int
    """Tasks."""
    chains: int

    def __init__(
        self, blocks: Blocks, priors: Mapping[str, Prior], chains: int, warm_up: int,
        rng: np.random.Generator, tails: float | None = None,
    ) -> None:  # fmt: skip
        self.likelihood, self.rng, self.warm_up = Likelihood(blocks), rng, warm_up
        self.priors = [prior_of(priors, name) for name in SCALES]
        level, log_sd, self.surrogate = start(self.likelihood)
        self.n, self.t, self.chains = *level.shape, chains
        self.slope = float(_slope(np.array(log_sd)))
        own = [level.mean(axis=1).std() + 0.1, level.mean(axis=0).std() + 0.1, 0.4]
        self.log_sd = np.log([*own, np.exp(log_sd)])[:, None].repeat(chains, 1)
        self.log_sd += 0.2 * rng.standard_normal((4, chains)) * [[1], [1], [1], [0.3]]
        spread = 1 / np.sqrt(np.diagonal(self.surrogate.curve, axis1=1, axis2=2).T + 4)
        self.level = level + 0.7 * spread * rng.standard_normal((chains, self.n, self.t))
        self.intercept = self.level.mean(axis=(1, 2))
        self.model = self.level.mean(axis=2) - self.intercept[:, None]
        self.task = self.intercept[:, None] - self.level.mean(axis=1)
        self.known = self.likelihood(self.level, self.log_sd[_QUESTION])
        self.tails, self.mixed = tails, np.ones_like(self.level)
        self.steps = {_INTERACTION: 0.15, _QUESTION: 0.05}
        self.seen: list[FloatArray] = []

    def sweep(self, state: SharedGibbs, k: int) -> SharedGibbs:
        """Update all once; `run_chains` gives the number of the sweep."""
        self._levels(k)
        self._effects() if self.tails is None else self._mixed_effects()
        # With interactions held.
        self._tasks()
        if k % 2:
            self._models()
        self._spread_interactions(k)
        self._stretch_all(k)
        if -self.warm_up // 2 <= k < 0:
            self.seen.append(self.log_sd.copy())
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
        return (self.slope / _slope(self.log_sd[_QUESTION]))[:, None]

    def _accept(self, gain: FloatArray) -> BoolArray:
        return np.log(self.rng.random(gain.shape)) < gain

    def _keep(self, taken: BoolArray, level: FloatArray, log_likelihood: FloatArray) -> None:
        """Keep proposed levels where accepted: by chain, or by chain and task."""
        wide = taken[:, None] if taken.ndim == 2 else taken[:, None, None]
        self.level = np.where(wide, level, self.level)
        self.known = np.where(
            taken if taken.ndim == 2 else taken[:, None], log_likelihood, self.known
        )

    def _try(
        self, level: FloatArray, more: FloatArray | None = None, *, whole: bool = True,
        near: bool = True,
    ) -> BoolArray:  # fmt: skip
        """Accept proposed levels, of all tasks together or of each alone.

        Parameters
        ----------
        more
            What else speaks for the proposal, by chain.
        near
            Whether they were proposed from the approximation.
        """
        log_likelihood = self.likelihood(level, self.log_sd[_QUESTION])
        gain = log_likelihood - self.known
        if near:
            gain = gain - self.surrogate.gain(level, self.level, self._shrink())
        if whole:
            gain = gain.sum(axis=1)
        taken = self._accept(gain if more is None else gain + more)
        self._keep(taken, level, log_likelihood)
        return taken

    def _conditional(self, log_sd: FloatArray, mean: FloatArray) -> _Conditional:
        """Distribution of all levels given effects and σ_μ, by the approximation.

        All along the eigenvectors, like the levels without interactions in `mean`.
        """
        near, shrink = self.surrogate, self._shrink()
        precision = np.exp(-2 * log_sd)[:, None, None]
        spread = near.values * shrink[..., None] ** 2 + precision
        pull = near.turned_pull * shrink[..., None] + precision * mean
        log_mass = (pull**2 / spread - precision * mean**2 - np.log(spread / precision)) / 2
        return _Conditional(pull / spread, np.sqrt(spread), log_mass.sum(axis=(1, 2)))

    def _levels(self, k: int) -> None:
        """All levels of each task, proposed from the approximation times the prior."""
        near = self.surrogate
        if self.tails is None:
            mean = near.turned(self.mean)
            middle, root, _ = self._conditional(self.log_sd[_INTERACTION], mean)
            back = near.back(middle)
            noise = near.back(self._normal(self.chains, self.t, self.n) / root)
        else:
            back, noise = self._mixed_levels()
        # To the other side of the proposal's mean, which leaves its distribution as it is and makes
        # successive draws cancel each other's errors; every third time a short step.
        rho = 0.8 if k % 3 == 2 else _OTHER_SIDE
        self._try(back + rho * (self.level - back) + np.sqrt(1 - rho**2) * noise, whole=False)

    def _mixed_levels(self) -> tuple[FloatArray, FloatArray]:
        """The same where interactions have variances of their own: mean and noise, (C, N, T)."""
        near, shrink = self.surrogate, self._shrink()[..., None]
        own = np.exp(-2 * self.log_sd[_INTERACTION])[:, None, None] / self.mixed
        precision = near.curve * shrink[..., None] ** 2
        i = np.arange(self.n)
        precision[..., i, i] += own.transpose(0, 2, 1)
        pull = (near.pull * shrink + own * self.mean).transpose(0, 2, 1)[..., None]
        factor = np.linalg.cholesky(precision).swapaxes(2, 3)
        white = self._normal(self.chains, self.t, self.n, 1)
        noise = np.asarray(np.linalg.solve(factor, white), dtype=np.float64)
        middle = np.asarray(np.linalg.solve(precision, pull), dtype=np.float64)
        return middle[..., 0].transpose(0, 2, 1), noise[..., 0].transpose(0, 2, 1)

    def _log_prior(self, log_sd: FloatArray, scale: int) -> FloatArray:
        """Log density of log σ."""
        return log_scale_density(self.priors[scale], log_sd)

    def _effects(self) -> None:
        """Standard deviations with all effects integrated out; then b, λ and τ given them."""
        n, t, c = self.n, self.t, self.chains
        middle = self.level.mean(axis=(1, 2))
        rows = self.level.mean(axis=2) - middle[:, None]
        columns = self.level.mean(axis=1) - middle[:, None]
        left = self.level - middle[:, None, None] - rows[:, :, None] - columns[:, None]
        sums = (rows**2).sum(axis=1), (columns**2).sum(axis=1), (left**2).sum(axis=(1, 2))

        def log_marginal(log_sd: FloatArray) -> FloatArray:
            own, other, rest = np.exp(2 * log_sd)
            of_rows, of_columns = own + rest / t, other + rest / n
            whole = 1 + own / n + other / t + rest / n / t
            deviance = (n - 1) * np.log(of_rows) + sums[0] / of_rows
            deviance = deviance + (t - 1) * np.log(of_columns) + sums[1] / of_columns
            deviance = deviance + (n - 1) * (t - 1) * np.log(rest) + sums[2] / rest
            deviance = deviance + np.log(whole) + middle**2 / whole
            return -deviance / 2 + sum(self._log_prior(log_sd[i], i) for i in range(3))

        current = log_marginal(self.log_sd[:3])
        lengths = 1.5 / np.sqrt(n), 1.5 / np.sqrt(t), 2 / np.sqrt(n * t)
        for i in (_MODEL, _TASK, _INTERACTION) * 3:
            proposed = self.log_sd[:3].copy()
            proposed[i] += lengths[i] * self._normal(c)
            fresh = log_marginal(proposed)
            taken = self._accept(fresh - current)
            self.log_sd[:3] = np.where(taken, proposed, self.log_sd[:3])
            current = np.where(taken, fresh, current)
        own, other, rest = np.exp(2 * self.log_sd[:3])
        variance = np.stack([np.ones(c), own / n, other / t, rest / n / t])
        parts = self._normal(4, c) * np.sqrt(variance)
        parts += variance / variance.sum(axis=0) * (middle - parts.sum(axis=0))
        share, part = (own / (own + rest / t))[:, None], (other / (other + rest / n))[:, None]
        noise, again = self._normal(c, n), self._normal(c, t)
        noise -= noise.mean(axis=1, keepdims=True)
        again -= again.mean(axis=1, keepdims=True)
        self.intercept = parts[0]
        self.model = share * rows + np.sqrt(own[:, None] * (1 - share)) * noise + parts[1][:, None]
        drawn = part * columns + np.sqrt(other[:, None] * (1 - part)) * again + parts[2][:, None]
        self.task = -drawn

    def _mixed_effects(self) -> None:
        """Effects one after the other, variances of interactions, and standard deviations."""
        degrees = self.tails or np.inf
        own = np.exp(-2 * self.log_sd[_INTERACTION])[:, None, None] / self.mixed
        left = self.level - self.mean
        for _ in range(2):
            # Each with the others held: the mean of what they leave, weighted by precision.
            total = 1 + own.sum(axis=(1, 2))
            drawn = (own * (left + self.intercept[:, None, None])).sum(axis=(1, 2)) / total
            drawn += self._normal(self.chains) / np.sqrt(total)
            left += (self.intercept - drawn)[:, None, None]
            self.intercept = drawn
            total = np.exp(-2 * self.log_sd[_MODEL])[:, None] + own.sum(axis=2)
            drawn = (own * (left + self.model[..., None])).sum(axis=2) / total
            drawn += self._normal(self.chains, self.n) / np.sqrt(total)
            left += (self.model - drawn)[..., None]
            self.model = drawn
            total = np.exp(-2 * self.log_sd[_TASK])[:, None] + own.sum(axis=1)
            drawn = (own * (self.task[:, None] - left)).sum(axis=1) / total
            drawn += self._normal(self.chains, self.t) / np.sqrt(total)
            left += (drawn - self.task)[:, None]
            self.task = drawn
        # What all tasks, or all models, have in common with the intercept moves between them.
        for scale, effects, sign in ((_TASK, self.task, 1.0), (_MODEL, self.model, -1.0)):
            each = np.exp(-2 * self.log_sd[scale])
            total = 1 + effects.shape[1] * each
            moved = -(self.intercept + sign * each * effects.sum(axis=1)) / total
            moved += self._normal(self.chains) / np.sqrt(total)
            self.intercept = self.intercept + moved
            effects[:] += sign * moved[:, None]
        model, task = (self.model**2).sum(axis=1), (self.task**2).sum(axis=1)
        square = left**2

        def tail(log_sd: FloatArray) -> FloatArray:
            # With the variances integrated out, σ_μ moves freely.
            ratio = square * np.exp(-2 * log_sd)[:, None, None] / degrees
            return (degrees + 1) / 2 * np.log1p(ratio).sum(axis=(1, 2))

        terms: list[tuple[int, Callable[[FloatArray], FloatArray]]] = [
            (self.n, lambda x: model / 2 * np.exp(-2 * x)),
            (self.t, lambda x: task / 2 * np.exp(-2 * x)),
            (self.n * self.t, tail),
        ]
        for scale, (count, term) in enumerate(terms):
            for _ in range(3):
                old = self.log_sd[scale]
                by = 1.7 / np.sqrt(count) * self._normal(self.chains)
                gain = term(old) - term(old + by) - count * by
                gain += self._log_prior(old + by, scale) - self._log_prior(old, scale)
                self.log_sd[scale] = old + self._accept(gain) * by
        size = square * np.exp(-2 * self.log_sd[_INTERACTION])[:, None, None]
        self.mixed = (degrees + size) / 2 / self.rng.gamma((degrees + 1) / 2, size=size.shape)

    def _models(self) -> None:
        """All λ with interactions held, which mixes well where σ_μ is small."""
        shrink, near = self._shrink(), self.surrogate
        slope = np.einsum("nt,ct->cn", near.pull, shrink * np.ones(self.t))
        slope -= np.einsum("cnt,ct->cn", near.times(self.level), shrink**2 * np.ones(self.t))
        curve: FloatArray = near.curve.sum(axis=0) * shrink[..., None] ** 2
        wanted = slope + np.einsum("cnm,cm->cn", curve, self.model)
        i = np.arange(self.n)
        curve[:, i, i] += np.exp(-2 * self.log_sd[_MODEL])[:, None]
        factor = np.linalg.cholesky(curve)
        noise = np.linalg.solve(factor.swapaxes(1, 2), self._normal(self.chains, self.n, 1))[..., 0]
        solved = np.asarray(np.linalg.solve(curve, wanted[..., None]), dtype=np.float64)
        model = solved[..., 0] + noise
        taken = self._try(self.level + (model - self.model)[:, :, None])
        self.model = np.where(taken[:, None], model, self.model)

    def _tasks(self) -> None:
        """Each τ with interactions held."""
        shrink, near = self._shrink(), self.surrogate
        whole = near.curve.sum(axis=(1, 2)) * shrink**2
        slope = near.pull.sum(axis=0) * shrink
        slope = slope - near.times(self.level).sum(axis=1) * shrink**2
        precision = whole + np.exp(-2 * self.log_sd[_TASK])[:, None]
        task = (self.task * whole - slope) / precision
        task = task + self._normal(self.chains, self.t) / np.sqrt(precision)
        taken = self._try(self.level - (task - self.task)[:, None], whole=False)
        self.task = np.where(taken, task, self.task)

    def _proposed(self, scale: int, k: int) -> tuple[FloatArray, FloatArray]:
        """Change of log σ, and the log ratio of the proposal's densities, back over there.

        Once warm, mostly to the other side of the distribution seen so far, else by random walk.
        """
        noise = self._normal(self.chains)
        if k < 0 or k % 3 == 2:
            return self.steps[scale] * noise, np.zeros(self.chains)
        seen = np.concatenate([x[scale] for x in self.seen])
        middle, sd = seen.mean(), _WIDER * seen.std()
        here = (self.log_sd[scale] - middle) / sd
        proposed = _OTHER_SIDE * here + np.sqrt(1 - _OTHER_SIDE**2) * noise
        return (proposed - here) * sd, (proposed**2 - here**2) / 2

    def _adapt(self, scale: int, taken: BoolArray, k: int) -> None:
        if k < 0:
            step = self.steps[scale] * np.exp(0.5 * (taken.mean() - _ACCEPTANCE))
            self.steps[scale] = min(float(step), 0.8)

    def _spread_interactions(self, k: int) -> None:
        """σ_μ, and levels at the same quantiles of their distribution given it."""
        near, old = self.surrogate, self.log_sd[_INTERACTION]
        by, more = self._proposed(_INTERACTION, k)
        more = more + self._log_prior(old + by, _INTERACTION) - self._log_prior(old, _INTERACTION)
        if self.tails is None:
            mean = near.turned(self.mean)
            here, proposed = (self._conditional(x, mean) for x in (old, old + by))
            z = (near.turned(self.level) - here.middle) * here.root
            level = near.back(proposed.middle + z / proposed.root)
            taken = self._try(level, more + proposed.log_mass - here.log_mass)
        else:
            level = self.mean + (self.level - self.mean) * np.exp(by)[:, None, None]
            taken = self._try(level, more, near=False)
        self.log_sd[_INTERACTION] = old + taken * by
        self._adapt(_INTERACTION, taken, k)

    def _stretch_all(self, k: int) -> None:
        """Everything in proportion to the attenuation by σ_κ."""
        old = self.log_sd[_QUESTION]
        by, of_proposals = self._proposed(_QUESTION, k)
        ratio = _slope(old + by) / _slope(old)
        log_ratio = np.log(ratio)
        level = self.level * ratio[:, None, None]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_likelihood = self.likelihood(level, old + by)
        gain = (log_likelihood - self.known).sum(axis=1) + log_ratio
        gain = gain - self.intercept**2 * (ratio**2 - 1) / 2
        gain = gain + self._log_prior(old + by, _QUESTION) - self._log_prior(old, _QUESTION)
        for i in range(3):
            gain = gain + self._log_prior(self.log_sd[i] + log_ratio, i)
            gain = gain - self._log_prior(self.log_sd[i], i)
        taken = self._accept(np.nan_to_num(gain + of_proposals, nan=-np.inf))
        ratio = np.where(taken, ratio, 1.0)
        self.log_sd[_QUESTION] = old + taken * by
        self.log_sd[:3] += np.log(ratio)
        self.intercept = self.intercept * ratio
        self.model, self.task = self.model * ratio[:, None], self.task * ratio[:, None]
        self._keep(taken, level, log_likelihood)
        self._adapt(_QUESTION, taken, k)

    def _match(self) -> None:
        """Match the approximation to the posterior, not only to the mode."""
        shrink = self._shrink()[:, 0]
        curves: list[FloatArray] = []
        slopes: list[FloatArray] = []
        used = self.rng.permutation(self.chains)[:8]
        for k in used:
            log_sd = float(self.log_sd[_QUESTION, k])
            slope, curve, _ = self.likelihood.derivatives(self.level[k], log_sd)
            slopes.append(slope / shrink[k])
            curves.append(curve / shrink[k] ** 2)
        curve = np.mean(curves, axis=0)
        pulls = [
            slope + np.einsum("tnm,mt->nt", curve, self.level[k] * shrink[k])
            for k, slope in zip(used, slopes, strict=True)
        ]
        self.surrogate = Surrogate.of(np.mean(pulls, axis=0), curve)


def fit_shared(
    counts: EvalCounts,
    priors: Mapping[str, Prior],
    rng: np.random.Generator,
    length: ChainLength,
    tails: float | None = None,
) -> Posterior:
    """Draw from the posterior of models and tasks whose questions all models share.

    Parameters
    ----------
    length
        As for the other samplers. Sweeps are nearly independent here and cost little more for
        several chains: each chain is made of short ones, with fewer draws in all.
    tails
        Degrees of freedom of Student's t for interactions of models and tasks; None: normal ones.
    """
    groups = length.chains
    fits = (own for most, *own in _SHORT_CHAINS if counts.right.size <= most)
    parts, worth = next(fits, _LONG_CHAINS)
    # σ_μ mixes slower beside variances of single interactions.
    worth = worth if tails is None else max(1, worth - 1)
    draws = -(-length.draws // (worth * parts))
    warm_up = max(_LEAST_WARM_UP, length.warm_up // 8)
    length = ChainLength(chains=groups * parts, draws=draws, warm_up=warm_up)
    blocks, block = blocks_of(counts)
    sampler = SharedGibbs(blocks, priors, length.chains, length.warm_up, rng, tails)
    few = length.chains * length.draws * counts.question_right.size / _PREDICTED_NUMBERS
    predict = max(1, -(-length.chains * length.draws // _PREDICTED), int(few))
    kept: dict[str, list[FloatArray]] = {}
    states: list[_State] = []
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for k, now in enumerate(run_chains(sampler, sampler.sweep, length)):
            sd = np.exp(now.log_sd)
            parameters: dict[str, FloatArray] = {
                "accuracy": expected_share(now.level, sd[_QUESTION]),
                "intercept": now.intercept,
                "performance": now.model,
                "difficulty": now.task,
                "sd_performance": sd[_MODEL],
                "sd_difficulty": sd[_TASK],
                "sd_interaction": sd[_INTERACTION],
                "sd_question": sd[_QUESTION],
            }
            if k % predict == 0:
                states.append(_State(now.level, now.mean, now.log_sd.copy()))
            for name, value in parameters.items():
                kept.setdefault(name, []).append(np.array(value))

    def in_chains(values: list[FloatArray]) -> FloatArray:
        stacked = np.stack(values, axis=1)
        return stacked.reshape(groups, -1, *stacked.shape[2:])

    seed = seed_for(rng, "seed of predicted answers")

    def predictions() -> Predictions:
        again = stream(seed, "predicted answers")
        predicted = [_predicted(sampler.likelihood, x, counts, block, again, tails) for x in states]
        return Predictions(*(in_chains([pair[i] for pair in predicted]) for i in (0, 1)))

    arrays = {name: in_chains(values) for name, values in kept.items()}
    return Posterior(accuracy=arrays.pop("accuracy"), parameters=arrays, predict=predictions)


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
    """Levels of all chains (C, N, T), without interactions too, and log σ (4, C)."""

    level: FloatArray
    mean: FloatArray
    log_sd: FloatArray


def _mixture(tails: float | None) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of a normal variable, or of Student's t as a mixture of normal ones."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    if tails is None:
        return nodes, weights
    at = (np.arange(_NODES) + 0.5) / _NODES
    spread = np.sqrt(tails / 2 / special.gammaincinv(tails / 2, at))
    return np.outer(spread, nodes).ravel(), np.tile(weights, _NODES) / _NODES


def _predicted(
    likelihood: Likelihood,
    state: _State,
    counts: EvalCounts,
    block: IntArray,
    rng: np.random.Generator,
    tails: float | None,
) -> tuple[FloatArray, FloatArray]:
    """Log likelihood of each cell's answers, its interaction integrated out, and new answers.

    Difficulties of questions are drawn first, from their posterior on the nodes.
    """
    seen = counts.question_trials > 0
    right = np.where(seen, counts.question_right, 0.0)
    place = right.sum(axis=0).astype(int)
    order = np.argsort(counts.task, kind="stable")
    starts: IntArray = np.searchsorted(counts.task[order], np.arange(len(counts.tasks)))
    nodes, weights = _mixture(tails)
    likely: list[FloatArray] = []
    again: list[FloatArray] = []

    def by_task(values: FloatArray | BoolArray) -> FloatArray:
        return np.add.reduceat(np.where(seen, values, 0.0)[..., order], starts, axis=-1)

    right_by_task = by_task(right)
    for c in range(len(state.level)):
        log_sd = float(state.log_sd[_QUESTION, c])
        share = likelihood.posterior(state.level[c], log_sd)[block, :, place].cumsum(axis=1)
        nodes_of = np.exp(log_sd) * likelihood.nodes(log_sd)[0]
        node = (share < rng.random((len(share), 1))).sum(axis=1).clip(max=len(nodes_of) - 1)
        kappa = nodes_of[node]
        odds = np.exp(-kappa)
        p: FloatArray = 1 / (1 + 1 / (np.exp(state.level[c])[:, counts.task] * odds))
        again.append(by_task(rng.random(p.shape) < p))
        mean, sd = state.mean[c], float(np.exp(state.log_sd[_INTERACTION, c]))
        hard = by_task(right * kappa)
        terms: list[FloatArray] = []
        for z, w in zip(nodes, weights, strict=True):
            logit = mean + sd * z
            lost = by_task(np.log1p(np.exp(logit)[:, counts.task] * odds))
            terms.append(np.log(w) + right_by_task * logit - hard - lost)
        likely.append(special.logsumexp(terms, axis=0))
    return np.array(likely), np.array(again)
