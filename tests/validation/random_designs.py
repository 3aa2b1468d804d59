"""Designs of two models' scores whose parameters are drawn at random, not listed.

`design(seed)` draws what scores are like: grids, judges with favourite grades, continuous scores,
spikes at the bounds, rare failures, heavy tails, ceilings, right and wrong; how strongly two models
agree; how many items a cluster has and how alike they are; how many epochs there are.
`Design.pair` draws items, and `Design.population` a finite population whose mean is the truth:

null   both models are exchangeable item by item: differences are symmetric
shift  b is better by about `SHIFT` standard errors
shape  b has another spread, or fails more often; the mean difference is whatever follows
weak   differences of `shape` moved to a mean of 0
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

KINDS = ("grid", "judge", "continuous", "spikes", "rare", "heavy", "ceiling", "binary")
WEIGHTS = (0.22, 0.12, 0.16, 0.12, 0.18, 0.08, 0.06, 0.06)
SHIFT = 2.6
TRUTHS = ("null", "shift", "shape", "weak")
GRID = np.linspace(0, 1, 4001)


@cache
def _beta_quantiles(a, b):
    return special.betaincinv(a, b, GRID)


@dataclass(frozen=True)
class Design:
    """What the scores of two models are like; scores lie in [0, 1]."""

    seed: int
    kind: str
    alike: float
    """Correlation of the two models' latent scores."""
    step: float
    shapes: tuple[float, float]
    low: float
    width: float
    at_zero: float
    at_one: float
    failing: float
    size: float
    noise: float
    tail: float
    grades: tuple[float, ...]
    cluster_size: int
    within: float
    """Correlation of items of one cluster."""
    n_epochs: int

    @property
    def rare(self) -> bool:
        """Whether failures are rare and large."""
        return self.kind == "rare"

    def pair(self, n, rng, *, shift=0.0, other=0.0, clustered=False, epochs=1):
        """Scores of a and of b on n items (or clusters of items), shape (n,) or (n, size).

        Means over the epochs.
        """
        a, b = self.answers(n, rng, shift=shift, other=other, clustered=clustered, epochs=epochs)
        return a.mean(axis=-1), b.mean(axis=-1)

    def answers(self, n, rng, *, shift=0.0, other=0.0, clustered=False, epochs=1):
        """Scores of a and of b on n items (or clusters of items) by epoch, the last axis."""
        size = (n, self.cluster_size) if clustered else (n,)
        own = np.sqrt(self.within if clustered else 0.0)
        shared = rng.normal(size=(2, n, *(1,) * clustered)) * own
        rest = np.sqrt(1 - own**2)
        item = rng.normal(size=size)
        found = []
        for _ in range(epochs):
            error = shared + rest * rng.normal(size=(2, *size))
            found.append(self._scores(item, error, shift, other, rng))
        return np.stack(found, axis=-1)

    def _scores(self, item, error, shift, other, rng):
        if self.rare:
            base = 0.8 + 0.08 * self.low * item
            rates = (self.failing / (1 + other), self.failing * (1 + other))
            found = [
                base + self.noise * (e + d) - self.size * (rng.random(item.shape) < rate)
                for e, d, rate in zip(error, (0.0, shift), rates, strict=True)
            ]
        elif self.kind == "heavy":
            # Student's t from normal ones, by their ranks.
            tails = [special.stdtrit(self.tail, special.ndtr(e)) for e in error]
            found = [
                0.5 + 0.1 * item + 0.02 * (t * k + d)
                for t, k, d in zip(tails, (1.0, 1 + 2 * other), (0.0, shift), strict=True)
            ]
        else:
            z = [
                np.sqrt(self.alike) * item + np.sqrt(1 - self.alike) * e * k + d
                for e, k, d in zip(error, (1.0, 1 + 0.8 * other), (0.0, shift), strict=True)
            ]
            found = [self._marginal(x) for x in z]
        return np.clip(np.stack(found), 0.0, 1.0)

    def _marginal(self, z):
        u = special.ndtr(z)
        if self.kind == "binary":
            return (u > 1 - self.at_one) * 1.0
        if self.kind == "judge":
            return np.searchsorted(np.array(self.grades), u) / len(self.grades)
        if self.kind == "ceiling":
            return np.minimum(1.0, 0.9 + 0.12 * (z + 0.3))
        if self.kind == "spikes":
            top = self.at_zero + (1 - self.at_zero) * (1 - self.at_one)
            t = np.clip((u - self.at_zero) / max(top - self.at_zero, 1e-9), 0, 1)
            inside = np.interp(t, GRID, _beta_quantiles(2.0, 1.5))
            return np.where(u < self.at_zero, 0.0, np.where(u > top, 1.0, inside))
        beta = np.interp(u, GRID, _beta_quantiles(*self.shapes))
        if self.kind == "grid":
            return np.round(beta / self.step) * self.step
        return self.low + self.width * beta

    def population(self, truth, n, size=40_000):
        """Differences b - a of a population, and their mean; `shift` is for samples of n."""
        a, b = self.scores(truth, n, size)
        x = b - a
        if truth == "null":
            return x, 0.0
        return (x - x.mean(), 0.0) if truth == "weak" else (x, float(x.mean()))

    def scores(self, truth, n, size=40_000):
        """Scores of a and of b of a population; of `weak` those whose differences are moved."""
        rng = np.random.default_rng([self.seed, TRUTHS.index(truth)])
        shift = self.shift_for(n) if truth == "shift" else 0.0
        a, b = self.pair(size, rng, shift=shift, other=float(truth in ("shape", "weak")))
        if truth == "null":
            swap = rng.random(size) >= 0.5
            a, b = np.where(swap, b, a), np.where(swap, a, b)
            return np.concatenate([a, b]), np.concatenate([b, a])
        return a, np.where(np.abs(b - a) < 1e-9, a, b)

    def shift_for(self, n):
        low, high = 0.0, 6.0
        for _ in range(14):
            shift = (low + high) / 2
            a, b = self.pair(6000, np.random.default_rng(5), shift=shift)
            x = b - a
            more = x.mean() > SHIFT / np.sqrt(n) * x.std()
            low, high = (low, shift) if more else (shift, high)
        return shift


def design(seed):
    """Draw a design."""
    rng = np.random.default_rng([20261125, seed])
    n_grades = int(rng.integers(4, 11))
    cuts = np.sort(rng.dirichlet(np.full(n_grades, rng.uniform(0.3, 2))).cumsum()[:-1])
    return Design(
        seed=seed,
        kind=str(rng.choice(KINDS, p=WEIGHTS)),
        alike=float(rng.choice([0.0, rng.uniform(0, 0.97), rng.uniform(0.6, 0.97)])),
        step=1 / int(rng.integers(2, 21)),
        shapes=(float(np.exp(rng.uniform(-0.9, 2.1))), float(np.exp(rng.uniform(-0.9, 2.1)))),
        low=float(rng.uniform(0, 0.6)),
        width=float(rng.uniform(0.05, 0.4)),
        at_zero=float(rng.uniform(0, 0.5)),
        at_one=float(rng.uniform(0.1, 0.9)),
        failing=float(np.exp(rng.uniform(np.log(0.002), np.log(0.05)))),
        size=float(rng.uniform(0.1, 0.8)),
        noise=float(np.exp(rng.uniform(np.log(0.001), np.log(0.05)))),
        tail=float(rng.uniform(2.3, 6)),
        grades=tuple(cuts.tolist()),
        cluster_size=int(rng.integers(2, 16)),
        within=float(rng.uniform(0, 0.7)),
        n_epochs=int(rng.integers(2, 9)),
    )
