"""Likelihoods of the logit η_nt of each model on each task, and their normal approximations.

* `CellLikelihood`: binomial counts of each model on each task, independent given η
* `QuestionLikelihood`: answers to questions that all models share, whose difficulties κ are
  integrated out. A task's answers tell of η only by each model's number of right answers, and by
  how many questions have each sum of right answers, whatever the number of questions.
* `Surrogate`: exp(h'η − η'Hη / 2) for each task
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.hierarchical.data import Counts
from evalstats_plugin.stats.arrays import FloatArray, IntArray

_MOST_FACTORS = 100
"""Most answers to a question whose likelihoods are multiplied out: products over more leave the
range of numbers."""

_SPAN = 5.0
"""Standard deviations of κ that nodes reach; error of the log likelihood about 3e-6."""

_SPACING, _INFORMATION, _WIDEST = 1.3, 0.2, 3.5
"""Distance of nodes in posterior standard deviations of a question (error about 2e-5), information
of one answer, and the log σ_κ from which on nodes grow no more."""

_DENSE, _BLOCK = 2**21, 2**22
"""Most entries of the table of sums of right answers, and most numbers computed together."""


class CellLikelihood:
    """Binomial log likelihood of each cell; counts need not be whole numbers."""

    independent = True
    """Whether cells are independent given their levels."""
    weight = 0.0
    """Questions with effects."""

    def __init__(self, counts: Counts) -> None:
        self.right, self.trials = counts.right, counts.trials

    def __call__(self, level: FloatArray, log_sd: FloatArray) -> FloatArray:
        """Log likelihood of cells, (C, N, T)."""
        del log_sd
        softplus = np.maximum(level, 0) + np.log1p(np.exp(-np.abs(level)))
        return self.right * level - self.trials * softplus

    def derivatives(self, level: FloatArray, log_sd: float) -> tuple[FloatArray, FloatArray, float]:
        """Gradient (N, T), and the diagonal of minus the Hessian (T, N)."""
        del log_sd
        share = np.asarray(special.expit(level), dtype=np.float64)
        expected: FloatArray = self.trials * share
        variance: FloatArray = expected * (1 - share)
        return self.right - expected, variance.T, 0.0

    def draw_questions(
        self, level: FloatArray, log_sd: float, rng: np.random.Generator
    ) -> FloatArray:
        """Questions have no effects."""
        del log_sd, rng
        return np.zeros(len(level.T))


class QuestionLikelihood:
    """Likelihood of the levels of each task, questions summed out on equally spaced nodes.

    A block is the questions of one task with the same number of answers of every model. Its
    likelihood depends on κ through the sum of right answers of a question alone.
    """

    independent = False

    def __init__(self, counts: Counts) -> None:
        n, t = len(counts.right), len(counts.tasks)
        right = np.where(counts.trials > 0, counts.right, 0.0)
        key = np.concatenate([counts.task[None], counts.trials]).T
        pattern, block = np.unique(key, axis=0, return_inverse=True)
        block, g = block.ravel(), len(pattern)
        self.task, self.answers = pattern[:, 0].astype(np.int64), pattern[:, 1:].astype(float)
        of_blocks = np.zeros((g, n))
        np.add.at(of_blocks, block, right.T)
        size = np.bincount(block, minlength=g).astype(float)
        self.weight = float(size.sum())
        self.member = 1.0 * (self.task[:, None] == np.arange(t))
        self.of_blocks, self.right = of_blocks, of_blocks.T @ self.member
        self.trials = (self.answers * size[:, None]).T @ self.member
        self.linear = (of_blocks - self.answers * size[:, None] / 2).T
        self.plain = g == t
        # Sums of right answers, and each that occurs in a block.
        self.sums, place = np.unique(right.sum(axis=0).round(9), return_inverse=True)
        code, self.code, self.count = np.unique(
            block * len(self.sums) + place.ravel(), return_inverse=True, return_counts=True
        )
        self.block, self.sum = np.divmod(code, len(self.sums))
        self.starts: IntArray = np.searchsorted(self.block, np.arange(g))
        # One factor of the polynomial for each answer of a model to a question.
        most = self.answers.max(axis=0)
        self.model = np.repeat(np.arange(n), most.astype(int))
        epoch: FloatArray = np.concatenate([np.arange(m, dtype=np.float64) for m in most.tolist()])
        self.asked = (self.answers[:, self.model] > epoch).T
        self.all_asked, self.degree = bool(self.asked.all()), len(self.model)
        self.dense = self.degree <= _MOST_FACTORS and g * len(self.sums) <= _DENSE
        if self.dense:
            self.tally = np.zeros((len(self.sums), g))
            self.tally[self.sum, self.block] = self.count
        # Blocks, and sums in these, whose derivatives are computed together.
        each = np.bincount(self.task[self.block], minlength=t) * n * max(n, 3 * int(_SPAN**2))
        number = each.cumsum() // _BLOCK
        first = np.flatnonzero(np.diff(number, prepend=-1))
        edges = np.searchsorted(self.task, np.append(first, t))
        self.parts = [
            (slice(a, b), slice(*np.searchsorted(self.block, (a, b)).tolist()))
            for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]

    def nodes(self, log_sd: float) -> tuple[FloatArray, FloatArray]:
        """Equally spaced nodes of κ / σ_κ, and their log weights.

        As close as the posterior of a question with all its answers is narrow: too few nodes leave
        a false mode at large σ_κ.
        """
        precision = 1 + _INFORMATION * (self.degree + 1) * np.exp(2 * min(log_sd, _WIDEST))
        nodes = np.linspace(-_SPAN, _SPAN, int(_SPAN / _SPACING * precision**0.5) * 2 + 3)
        log_weight = -(nodes**2) / 2
        return nodes, log_weight - np.log(np.exp(log_weight).sum())

    def __call__(self, level: FloatArray, log_sd: FloatArray) -> FloatArray:
        """Log likelihood by task, (C, 1, T), at levels (C, N, T) and log σ_κ (C,)."""
        if not self.dense:
            kappa, table = self._table(level, log_sd)
            table = table[:, self.block] - kappa[:, None] * self.sums[self.sum, None]
            at_sums = special.logsumexp(table, axis=2) * self.count
            total = np.add.reduceat(at_sums, self.starts, axis=1)
            total = total + (level[:, :, self.task] * self.of_blocks.T).sum(axis=1)
            return (total @ self.member)[:, None]
        at = level if self.plain else level[:, :, self.task]
        nodes, log_weight = self.nodes(float(log_sd.max()))
        kappa = (np.exp(log_sd)[:, None] * nodes)[..., None]
        # Π (1 + e^(η − κ)) over answers is a polynomial in e^−κ, whose coefficients need no κ: all
        # terms are positive, and half-centred, so that none is lost. Sums over questions come
        # first.
        up = np.exp(at / 2).transpose(1, 0, 2)[self.model]
        down = 1 / up
        if not self.all_asked:
            asked = self.asked[:, None]
            up, down = up * asked, np.where(asked, down, 1.0)
        sums: FloatArray = np.ones((len(up) + 1, *up.shape[1:]))
        for n in range(len(up)):
            more = sums[: n + 1] * up[n]
            sums[: n + 1] *= down[n]
            sums[1 : n + 1] += more[:-1]
            sums[n + 1] = more[-1]
        power = np.exp(-kappa * (np.arange(self.degree + 1) - self.degree / 2))
        share = np.exp(log_weight)[:, None] / (power @ sums.transpose(1, 0, 2))
        of_sums = np.exp(-kappa * (self.sums - self.degree / 2))
        # Where no question has such a sum, its probability is not needed.
        chance = np.where(self.tally > 0, of_sums.swapaxes(1, 2) @ share, 1.0)
        total = (np.log(chance) * self.tally).sum(axis=1) + (at * self.linear).sum(axis=1)
        return (total if self.plain else total @ self.member)[:, None]

    def _table(self, level: FloatArray, log_sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Nodes of κ (C, Q), and log weights of blocks there (C, G, Q), but for right answers."""
        nodes, log_weight = self.nodes(float(log_sd.max()))
        kappa = np.exp(log_sd)[:, None] * nodes
        table = np.zeros((len(level), len(self.task), len(nodes))) + log_weight
        for n in range(level.shape[1]):
            at = level[:, n, self.task, None] - kappa[:, None]
            table -= np.logaddexp(0, at) * self.answers[:, n, None]
        return kappa, table

    def posterior(self, level: FloatArray, log_sd: float) -> tuple[FloatArray, FloatArray]:
        """Nodes of κ (Q,), and P(node | sum of right answers) in each block, (K, Q)."""
        kappa, table = self._table(level[None], np.array([log_sd]))
        log_p = table[0, self.block] - kappa * self.sums[self.sum, None]
        return kappa[0], special.softmax(log_p, axis=1)

    def derivatives(self, level: FloatArray, log_sd: float) -> tuple[FloatArray, FloatArray, float]:
        """Gradient (N, T), minus the Hessian (T, N, N), and the expected sum of κ²."""
        n, t = level.shape
        kappa, weight = self.posterior(level, log_sd)
        of_nodes = np.add.reduceat(weight * self.count[:, None], self.starts, axis=0)
        slope, curve = self.of_blocks.copy(), np.zeros((t, n, n))
        i = np.arange(len(level))
        for blocks, sums in self.parts:
            logit = level[:, self.task[blocks], None] - kappa
            share = np.asarray(special.expit(logit), dtype=np.float64)
            expected = (share * self.answers[blocks].T[..., None]).transpose(1, 0, 2)
            at_nodes = of_nodes[blocks, None]
            slope[blocks] -= (expected * at_nodes).sum(axis=2)
            mean = (expected[self.block[sums] - blocks.start] @ weight[sums, :, None])[..., 0]
            by_sum = mean[:, :, None] * (mean * self.count[sums, None])[:, None]
            # E t p(1 − p) on the diagonal, less the covariance of t p between models.
            by_block = np.add.reduceat(by_sum, self.starts[blocks] - sums.start, axis=0)
            by_block -= (expected * at_nodes) @ expected.swapaxes(1, 2)
            inside = expected * (1 - share.transpose(1, 0, 2)) * at_nodes
            by_block[:, i, i] += inside.sum(axis=2)
            np.add.at(curve, self.task[blocks], by_block)
        return slope.T @ self.member, curve, float((of_nodes * kappa**2).sum())

    def draw_questions(
        self, level: FloatArray, log_sd: float, rng: np.random.Generator
    ) -> FloatArray:
        """Draw the difficulty of each question, on the nodes."""
        kappa, weight = self.posterior(level, log_sd)
        share = weight.cumsum(axis=1)[self.code]
        node = (share < rng.random((len(share), 1))).sum(axis=1)
        return kappa[node.clip(max=len(kappa) - 1)]


LevelLikelihood = CellLikelihood | QuestionLikelihood
"""Either: called at levels (C, N, T), with derivatives at (N, T), and draws of difficulties."""


class Surrogate(NamedTuple):
    """Normal approximation exp(h'η − η'Hη / 2) of the likelihood of each task's levels."""

    pull: FloatArray
    """h, (N, T)."""
    curve: FloatArray
    """H, (T, N, N), or its diagonal (T, N) where cells are independent."""
    values: FloatArray
    """Its eigenvalues, (T, N)."""
    vectors: FloatArray | None
    """None where H is diagonal."""
    turned_pull: FloatArray
    """h in their coordinates, (T, N)."""

    @staticmethod
    def of(level: FloatArray, slope: FloatArray, curve: FloatArray) -> Surrogate:
        """Return the approximation with this gradient and curvature at levels (N, T)."""
        pull = times(curve, level[None])[0] + slope
        if curve.ndim == 2:
            return Surrogate(pull, curve, np.maximum(curve, 1e-8), None, pull.T)
        values, vectors = np.linalg.eigh(curve)
        along = (pull.T[:, None] @ vectors)[:, 0]
        return Surrogate(pull, curve, np.maximum(values, 1e-8), vectors, along)

    def gain(self, level: FloatArray, old: FloatArray, shrink: FloatArray) -> FloatArray:
        """Log ratio of the approximation, like the likelihood's, at levels (C, N, T) · shrink."""
        by, along = level - old, times(self.curve, level + old)
        if self.vectors is None:
            return by * (self.pull * shrink - along * shrink**2 / 2)
        square = np.einsum("cnt,cnt->ct", by, along)[:, None]
        return np.einsum("nt,cnt->ct", self.pull, by)[:, None] * shrink - square * shrink**2 / 2

    def turned(self, level: FloatArray) -> FloatArray:
        """Coordinates (C, T, N) of levels (C, N, T) along the eigenvectors."""
        if self.vectors is None:
            return level.swapaxes(1, 2)
        return (self.vectors.swapaxes(1, 2) @ level.transpose(2, 1, 0)).transpose(2, 0, 1)

    def back(self, turned: FloatArray) -> FloatArray:
        """Levels (C, N, T) of coordinates (C, T, N)."""
        if self.vectors is None:
            return turned.swapaxes(1, 2)
        return (self.vectors @ turned.transpose(1, 2, 0)).transpose(2, 1, 0)


def times(curve: FloatArray, level: FloatArray) -> FloatArray:
    """H η, (C, N, T), for H (T, N, N) or its diagonal (T, N)."""
    if curve.ndim == 2:
        return curve.T * level
    return (curve @ level.transpose(2, 1, 0)).transpose(2, 1, 0)
