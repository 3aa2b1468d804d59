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

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.hierarchical.data import EvalCounts
from evalstats_plugin.hierarchical.engines.posterior import Posterior
from evalstats_plugin.hierarchical.methods import DEFAULT_PRIOR, SCALES, Prior
from evalstats_plugin.runtime.chain_length import ChainLength
from evalstats_plugin.runtime.chains import run_chains
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

MOST_MODELS = 100
"""Most models: products over more of them leave the range of numbers."""

_SPAN = 5.0
"""Standard deviations of κ that nodes reach; error of the log likelihood about 3e-6."""

_PREDICTED = 200
"""Draws, of all chains together, for which likelihoods and replications are kept."""

_PREDICTED_NUMBERS = 5_000_000
"""Most answers, over all draws, for that."""

_NODES = 9
"""Nodes of quadratures over a normal variable."""

_ACCEPTANCE = 0.4
"""Target acceptance rate of stretches."""

_ATTENUATION = 0.346
"""Slopes of a logistic function shrink by √(1 + this · variance) when noise is integrated out."""

_WORTH, _PARTS, _MANY_CELLS, _LEAST_WARM_UP = 2, 4, 1000, 30
"""Draws of `crossed_gibbs` that one draw is worth; short chains that make up a chain, half as many
from so many cells on; sweeps of each before draws are kept."""

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
    found = Blocks(
        pattern[:, 0].astype(np.int64),
        pattern[:, 1:].astype(float),
        totals,
        np.bincount(block, minlength=g).astype(float),
        count,
        len(counts.tasks),
    )
    return found, block


class Likelihood:
    """Likelihood of the levels of each task, questions summed out on equally spaced nodes."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        n = blocks.seen.shape[1]
        q = int(np.clip(8 + 3.2 * np.sqrt(n), 17, 61)) | 1
        self.nodes = np.linspace(-_SPAN, _SPAN, q)
        log_weight = -(self.nodes**2) / 2
        self.log_weight = log_weight - special.logsumexp(log_weight)
        self.answered = blocks.seen.sum(axis=1)
        self.linear = blocks.right - blocks.seen * blocks.size[:, None] / 2
        self.member, self.full = blocks.member, blocks.full
        self.wrong: FloatArray = np.arange(n + 1.0, dtype=np.float64)

    def __call__(self, level: FloatArray, log_sd: FloatArray) -> FloatArray:
        """Log likelihood by task, (C, T), at levels (C, N, T) and log σ_κ (C,)."""
        b = self.blocks
        at = level if self.full else level[:, :, b.task]
        kappa = np.exp(log_sd)[:, None] * self.nodes
        up, down = np.exp(at / 2)[..., None], np.exp(-kappa / 2)[:, None]
        up_inverse, down_inverse = 1 / up, 1 / down
        product = np.ones((len(at), at.shape[2], len(self.nodes)))
        for n in range(at.shape[1]):
            # 2 cosh((η − κ) / 2), without a logarithm or exponential for each answer.
            factor = up[:, n] * down
            factor += up_inverse[:, n] * down_inverse
            if not self.full:
                factor = np.where(b.seen[:, n, None] > 0, factor, 1.0)
            product *= factor
        inverse, wrong = 1 / product, self.wrong
        if self.full:
            wrong = wrong - at.shape[1] / 2
        else:
            inverse = inverse * np.exp(kappa[:, None] * self.answered[:, None] / 2)
        power = np.exp(self.log_weight[:, None] - kappa[..., None] * wrong)
        # Where no question has r right answers, its probability is not needed.
        found = np.log(np.where(b.tally > 0, inverse @ power, 1.0))
        total = (found * b.tally).sum(axis=-1) + (at * self.linear.T).sum(axis=1)
        return total if self.full else total @ self.member

    def posterior(self, level: FloatArray, log_sd: float) -> FloatArray:
        """P(node | r models right) of a question, (G, Q, N + 1), at levels (N, T)."""
        b = self.blocks
        at = level[:, b.task]
        kappa = np.exp(log_sd) * self.nodes
        base = np.zeros((len(b.task), len(kappa))) + self.log_weight
        for n in range(len(at)):
            base -= np.logaddexp(0, at[n][:, None] - kappa) * b.seen[:, n, None]
        table = base[..., None] - kappa[:, None] * self.wrong
        weight = np.exp(table - table.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def derivatives(self, level: FloatArray, log_sd: float) -> tuple[FloatArray, FloatArray, float]:
        """Gradient (N, T), minus the Hessian (T, N, N), and the expected sum of κ²."""
        b = self.blocks
        weight = self.posterior(level, log_sd)
        logit = level[:, b.task][..., None] - np.exp(log_sd) * self.nodes
        share = np.asarray(special.expit(logit), dtype=np.float64) * b.seen.T[..., None]
        of_nodes = np.einsum("gqr,gr->gq", weight, b.tally)
        slope = b.right.T - np.einsum("ngq,gq->ng", share, of_nodes)
        mean = np.einsum("ngq,gqr->gnr", share, weight, optimize=True)
        curve = np.einsum("gnr,gmr,gr->gnm", mean, mean, b.tally, optimize=True)
        curve -= np.einsum("ngq,mgq,gq->gnm", share, share, of_nodes, optimize=True)
        i = np.arange(len(level))
        # E p(1 − p) on the diagonal, less the covariance of p between models.
        curve[:, i, i] += np.einsum("ngq,gq->gn", share * (1 - share), of_nodes)
        squares = float((of_nodes * (np.exp(log_sd) * self.nodes) ** 2).sum())
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

    @staticmethod
    def of(pull: FloatArray, curve: FloatArray) -> Surrogate:
        """Decompose H."""
        values, vectors = np.linalg.eigh(curve)
        return Surrogate(pull, curve, np.maximum(values, 1e-8), vectors)

    def __call__(self, level: FloatArray, shrink: FloatArray) -> FloatArray:
        """Log of the approximation by task, (C, T), at levels (C, N, T) times shrink (C, 1)."""
        turned = self.times(level)
        square = np.einsum("cnt,cnt->ct", level, turned)
        return (self.pull * level).sum(axis=1) * shrink - square * shrink**2 / 2

    def times(self, level: FloatArray) -> FloatArray:
        """H η, (C, N, T)."""
        return (self.curve @ level.transpose(0, 2, 1)[..., None])[..., 0].transpose(0, 2, 1)


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
    n: int
    """Models."""
    t: int
    """Tasks."""
    chains: int

    def __init__(
        self, blocks: Blocks, priors: Mapping[str, Prior], chains: int, warm_up: int,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.likelihood, self.rng, self.warm_up = Likelihood(blocks), rng, warm_up
        default = priors.get("default", DEFAULT_PRIOR)
        self.priors = [priors.get(name, default) for name in SCALES]
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
        self.steps = {_INTERACTION: 0.15, _QUESTION: 0.05}

    def sweep(self, state: SharedGibbs, k: int) -> SharedGibbs:
        """Update all once; `run_chains` gives the number of the sweep."""
        self._levels(k)
        self._effects()
        self._models()
        self._tasks()
        for _ in range(2):
            # The slowest to mix.
            self._stretch_interactions(k)
            self._stretch_all(k)
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

    def _keep(self, taken: BoolArray, level: FloatArray, known: FloatArray) -> None:
        """Keep proposed levels where accepted: by chain, or by chain and task."""
        wide = taken[:, None] if taken.ndim == 2 else taken[:, None, None]
        self.level = np.where(wide, level, self.level)
        self.known = np.where(taken if taken.ndim == 2 else taken[:, None], known, self.known)

    def _levels(self, k: int) -> None:
        """All levels of each task, proposed from the approximation times the prior."""
        shrink, precision = self._shrink(), np.exp(-2 * self.log_sd[_INTERACTION])[:, None, None]
        near = self.surrogate
        spread = near.values * shrink[..., None] ** 2 + precision
        pull = near.pull * shrink[..., None] + precision * self.mean
        turned = (near.vectors.swapaxes(1, 2) @ pull.transpose(0, 2, 1)[..., None])[..., 0]
        back = (near.vectors @ (turned / spread)[..., None])[..., 0].transpose(0, 2, 1)
        noise = self._normal(self.chains, self.t, self.n) / np.sqrt(spread)
        noise = (near.vectors @ noise[..., None])[..., 0].transpose(0, 2, 1)
        # Short steps, which leave the proposal's distribution as it is, every third time.
        rho = 0.8 if k % 3 == 2 else 0.0
        level = back + rho * (self.level - back) + np.sqrt(1 - rho**2) * noise
        known = self.likelihood(level, self.log_sd[_QUESTION])
        gain = (known - near(level, shrink)) - (self.known - near(self.level, shrink))
        self._keep(self._accept(gain), level, known)

    def _log_prior(self, log_sd: FloatArray, scale: int) -> FloatArray:
        """Log density of log σ, up to a constant."""
        family, first, *rest = self.priors[scale]
        if family == "gamma":
            return first * log_sd - rest[0] * np.exp(log_sd)
        if family == "half-normal":
            return log_sd - np.exp(2 * log_sd) / (2 * first**2)
        return -0.5 * ((log_sd - first) / rest[0]) ** 2

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
            found = (n - 1) * np.log(of_rows) + sums[0] / of_rows
            found = found + (t - 1) * np.log(of_columns) + sums[1] / of_columns
            found = found + (n - 1) * (t - 1) * np.log(rest) + sums[2] / rest
            found = found + np.log(whole) + middle**2 / whole
            return -found / 2 + sum(self._log_prior(log_sd[i], i) for i in range(3))

        known = log_marginal(self.log_sd[:3])
        lengths = 1.5 / np.sqrt(n), 1.5 / np.sqrt(t), 2 / np.sqrt(n * t)
        for i in (_MODEL, _TASK, _INTERACTION) * 3:
            proposed = self.log_sd[:3].copy()
            proposed[i] += lengths[i] * self._normal(c)
            fresh = log_marginal(proposed)
            taken = self._accept(fresh - known)
            self.log_sd[:3] = np.where(taken, proposed, self.log_sd[:3])
            known = np.where(taken, fresh, known)
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
        level = self.level + (model - self.model)[:, :, None]
        known = self.likelihood(level, self.log_sd[_QUESTION])
        gain = (known - near(level, shrink)) - (self.known - near(self.level, shrink))
        taken = self._accept(gain.sum(axis=1))
        self.model = np.where(taken[:, None], model, self.model)
        self._keep(taken, level, known)

    def _tasks(self) -> None:
        """Each τ with interactions held."""
        shrink, near = self._shrink(), self.surrogate
        whole = near.curve.sum(axis=(1, 2)) * shrink**2
        slope = near.pull.sum(axis=0) * shrink
        slope = slope - near.times(self.level).sum(axis=1) * shrink**2
        precision = whole + np.exp(-2 * self.log_sd[_TASK])[:, None]
        task = (self.task * whole - slope) / precision
        task = task + self._normal(self.chains, self.t) / np.sqrt(precision)
        level = self.level - (task - self.task)[:, None]
        known = self.likelihood(level, self.log_sd[_QUESTION])
        gain = (known - near(level, shrink)) - (self.known - near(self.level, shrink))
        taken = self._accept(gain)
        self.task = np.where(taken, task, self.task)
        self._keep(taken, level, known)

    def _adapt(self, scale: int, taken: BoolArray, k: int) -> None:
        if k < 0:
            step = self.steps[scale] * np.exp(0.5 * (taken.mean() - _ACCEPTANCE))
            self.steps[scale] = min(float(step), 0.8)

    def _stretch_interactions(self, k: int) -> None:
        """All μ in proportion to σ_μ."""
        old = self.log_sd[_INTERACTION]
        by = self.steps[_INTERACTION] * self._normal(self.chains)
        level = self.mean + (self.level - self.mean) * np.exp(by)[:, None, None]
        known = self.likelihood(level, self.log_sd[_QUESTION])
        gain = (known - self.known).sum(axis=1) + self._log_prior(old + by, _INTERACTION)
        taken = self._accept(gain - self._log_prior(old, _INTERACTION))
        self.log_sd[_INTERACTION] = old + taken * by
        self._keep(taken, level, known)
        self._adapt(_INTERACTION, taken, k)

    def _stretch_all(self, k: int) -> None:
        """Everything in proportion to the attenuation by σ_κ."""
        old = self.log_sd[_QUESTION]
        by = self.steps[_QUESTION] * self._normal(self.chains)
        ratio = _slope(old + by) / _slope(old)
        log_ratio = np.log(ratio)
        level = self.level * ratio[:, None, None]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            known = self.likelihood(level, old + by)
        gain = (known - self.known).sum(axis=1) + log_ratio
        gain = gain - self.intercept**2 * (ratio**2 - 1) / 2
        gain = gain + self._log_prior(old + by, _QUESTION) - self._log_prior(old, _QUESTION)
        for i in range(3):
            gain = gain + self._log_prior(self.log_sd[i] + log_ratio, i)
            gain = gain - self._log_prior(self.log_sd[i], i)
        taken = self._accept(np.nan_to_num(gain, nan=-np.inf))
        ratio = np.where(taken, ratio, 1.0)
        self.log_sd[_QUESTION] = old + taken * by
        self.log_sd[:3] += np.log(ratio)
        self.intercept = self.intercept * ratio
        self.model, self.task = self.model * ratio[:, None], self.task * ratio[:, None]
        self._keep(taken, level, known)
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
) -> Posterior:
    """Draw from the posterior of models and tasks whose questions all models share.

    Parameters
    ----------
    length
        As for the other samplers. Sweeps are nearly independent here and cost little more for
        several chains: each chain is made of short ones, with half of the draws in all.
    """
    groups = length.chains
    parts = _PARTS if counts.right.size <= _MANY_CELLS else _PARTS // 2
    draws = -(-length.draws // (_WORTH * parts))
    warm_up = max(_LEAST_WARM_UP, length.warm_up // 8)
    length = ChainLength(chains=groups * parts, draws=draws, warm_up=warm_up)
    blocks, block = blocks_of(counts)
    sampler = SharedGibbs(blocks, priors, length.chains, length.warm_up, rng)
    few = length.chains * length.draws * counts.question_right.size / _PREDICTED_NUMBERS
    predict = max(1, -(-length.chains * length.draws // _PREDICTED), int(few))
    kept: dict[str, list[FloatArray]] = {}
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for k, now in enumerate(run_chains(sampler, sampler.sweep, length)):
            sd = np.exp(now.log_sd)
            shift = sd[_QUESTION][:, None, None]
            pairs = zip(nodes, weights, strict=True)
            accuracy: FloatArray = np.zeros_like(now.level)
            for z, w in pairs:
                accuracy += w * np.asarray(special.expit(now.level - shift * z), dtype=np.float64)
            found: dict[str, FloatArray] = {
                "accuracy": accuracy,
                "intercept": now.intercept,
                "performance": now.model,
                "difficulty": now.task,
                "sd_performance": sd[_MODEL],
                "sd_difficulty": sd[_TASK],
                "sd_interaction": sd[_INTERACTION],
                "sd_question": sd[_QUESTION],
            }
            if k % predict == 0:
                likely, again = _predicted(now, counts, block)
                found |= {"log_likelihood": likely, "replicated": again}
            for name, value in found.items():
                kept.setdefault(name, []).append(np.array(value))
    arrays = {name: np.stack(values, axis=1) for name, values in kept.items()}
    arrays = {name: x.reshape(groups, -1, *x.shape[2:]) for name, x in arrays.items()}
    return Posterior(
        accuracy=arrays.pop("accuracy"),
        log_likelihood=arrays.pop("log_likelihood"),
        replicated=arrays.pop("replicated"),
        parameters=arrays,
    )


def _predicted(
    sampler: SharedGibbs, counts: EvalCounts, block: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Log likelihood of each cell's answers, its interaction integrated out, and new answers.

    Difficulties of questions are drawn first, from their posterior on the nodes.
    """
    rng, likelihood = sampler.rng, sampler.likelihood
    seen = counts.question_trials > 0
    right = np.where(seen, counts.question_right, 0.0)
    place = right.sum(axis=0).astype(int)
    order = np.argsort(counts.task, kind="stable")
    starts: IntArray = np.searchsorted(counts.task[order], np.arange(sampler.t))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    likely: list[FloatArray] = []
    again: list[FloatArray] = []

    def by_task(values: FloatArray | BoolArray) -> FloatArray:
        return np.add.reduceat(np.where(seen, values, 0.0)[..., order], starts, axis=-1)

    right_by_task = by_task(right)
    for c in range(sampler.chains):
        log_sd = float(sampler.log_sd[_QUESTION, c])
        share = likelihood.posterior(sampler.level[c], log_sd)[block, :, place].cumsum(axis=1)
        node = (share < rng.random((len(share), 1))).sum(axis=1).clip(max=len(likelihood.nodes) - 1)
        kappa = np.exp(log_sd) * likelihood.nodes[node]
        odds = np.exp(-kappa)
        p: FloatArray = 1 / (1 + 1 / (np.exp(sampler.level[c])[:, counts.task] * odds))
        again.append(by_task(rng.random(p.shape) < p))
        mean, sd = sampler.mean[c], float(np.exp(sampler.log_sd[_INTERACTION, c]))
        hard = by_task(right * kappa)
        terms: list[FloatArray] = []
        for z, w in zip(nodes, weights / weights.sum(), strict=True):
            logit = mean + sd * z
            lost = by_task(np.log1p(np.exp(logit)[:, counts.task] * odds))
            terms.append(np.log(w) + right_by_task * logit - hard - lost)
        likely.append(special.logsumexp(terms, axis=0))
    return np.array(likely), np.array(again)
