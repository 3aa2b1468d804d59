"""Results of hierarchical engines that load without torch.

* `Posterior`: draws of every engine, and their `Predictions`
* `log_scale_density`, `scale_quantile`: priors of standard deviations
* `Shares`: Beta posteriors of shares of right answers in closed form, with a Beta(1, 1) prior
* `CapabilityFit`: a fitted capability model and its tables
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.hierarchical.methods import Prior
from evalstats_plugin.irt.model.fit import plain
from evalstats_plugin.stats.arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd


Table = Literal["models", "items"]
TABLES: tuple[Table, ...] = get_args(Table)

INTERCEPT_SD, COEFFICIENT_SD = 1.0, 1.0
"""Prior standard deviations of intercepts, and of coefficients of standardised covariates."""

_LOG_ROOT = math.log(2 * math.pi) / 2


def log_scale_density(prior: Prior, log_sd: FloatArray) -> FloatArray:
    """Log density of log σ under a prior of σ."""
    family, first, second = prior[0], float(prior[1]), float(prior[-1])
    if family == "gamma":
        constant = first * math.log(second) - math.lgamma(first)
        return first * log_sd - second * np.exp(log_sd) + constant
    if family == "half-normal":
        return log_sd - np.exp(2 * log_sd) / (2 * first**2) + (math.log(2 / first) - _LOG_ROOT)
    return -(((log_sd - first) / second) ** 2) / 2 - (math.log(second) + _LOG_ROOT)


def scale_quantile(prior: Prior, level: FloatArray) -> FloatArray:
    """Quantiles of σ under its prior; of uniform levels, draws."""
    family, first, second = prior[0], float(prior[1]), float(prior[-1])
    if family == "gamma":
        return np.asarray(special.gammaincinv(first, level) / second, dtype=np.float64)
    if family == "half-normal":
        return np.asarray(first * special.ndtri((1 + level) / 2), dtype=np.float64)
    return np.asarray(np.exp(first + second * special.ndtri(level)), dtype=np.float64)


class Predictions(NamedTuple):
    """What draws say of the answers that were given."""

    log_likelihood: FloatArray
    """Log-likelihood of each model's answers on each task, (K, S', N, T); 0 where there are none.
    The interaction of model and task is integrated out, so that a left-out cell is predicted from
    the others."""
    replicated: FloatArray
    """Replicated right answers for the same trials, (K, S', N, T)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """K chains of S draws; large arrays are thinned to S' draws."""

    accuracy: FloatArray
    """Expected share of right answers of each model on each task, (K, S, N, T)."""
    parameters: Mapping[str, FloatArray]
    """By name, each (K, S, ...)."""
    predict: Callable[[], Predictions]
    """Computes `predictions`, which only checks and comparisons of models need."""

    @cached_property
    def predictions(self) -> Predictions:
        """Log-likelihood of the answers, and replicated answers."""
        return self.predict()

    @property
    def overall(self) -> FloatArray:
        """Accuracy of each model, averaged over tasks with equal weights, (K, S, N)."""
        return self.accuracy.mean(axis=3)


class Shares(NamedTuple):
    """Beta posteriors: shapes a and b, (N, T)."""

    a: FloatArray
    b: FloatArray
    pooled: bool

    @property
    def mean(self) -> FloatArray:
        """Posterior means, (N, T)."""
        return self.a / (self.a + self.b)

    def quantile(self, level: float) -> FloatArray:
        """Posterior quantiles, (N, T)."""
        return np.asarray(special.betaincinv(self.a, self.b, level), dtype=np.float64)


def replicate(rng: np.random.Generator, trials: FloatArray, share: FloatArray) -> FloatArray:
    """Draw right answers anew, of trials that need be no whole numbers: these stand for fewer."""
    whole = np.maximum(np.rint(trials), trials > 0)
    drawn = rng.binomial(np.broadcast_to(whole.astype(np.int64), share.shape), share)
    part = drawn / np.maximum(whole, 1)
    return np.where(drawn == whole, trials, part * trials)


def shares(right: FloatArray, trials: FloatArray, *, pooled: bool) -> Shares:
    """Update Beta(1, 1) with right answers and trials, both (N, T).

    >>> shares(np.array([[3.0, 0.0]]), np.array([[4.0, 2.0]]), pooled=True).mean
    array([[0.5, 0.5]])
    """
    wrong = trials - right
    if pooled:
        right, wrong = (
            np.broadcast_to(x.sum(axis=1, keepdims=True), x.shape) for x in (right, wrong)
        )
    return Shares(1 + right, 1 + wrong, pooled)


def log_left_out(found: Shares, right: FloatArray, trials: FloatArray) -> FloatArray:
    """Log probability of each cell's answers given all others, (N, T); 0 where there are none."""
    wrong = trials - right
    return special.betaln(found.a, found.b) - special.betaln(found.a - right, found.b - wrong)


def log_evidence(found: Shares, right: FloatArray, trials: FloatArray) -> float:
    """Log probability of all answers, in the order given, shares integrated out.

    >>> one = np.array([[1.0]])
    >>> float(np.exp(log_evidence(shares(one, one, pooled=False), one, one)).round(12))
    0.5
    """
    if found.pooled:
        return float(special.betaln(found.a[:, 0], found.b[:, 0]).sum())
    return float(special.betaln(1 + right, 1 + trials - right).sum())


def draw(
    found: Shares,
    right: FloatArray,
    trials: FloatArray,
    size: tuple[int, int],
    rng: np.random.Generator,
) -> Posterior:
    """Draw independent samples (K, S) from Beta posteriors."""
    shape = (*size, *found.a.shape)
    width = (*shape[:3], 1) if found.pooled else shape
    a, b = (x[:, :1] if found.pooled else x for x in (found.a, found.b))
    accuracy = np.broadcast_to(rng.beta(a, b, width), shape)
    with np.errstate(divide="ignore"):
        log_likelihood = special.xlogy(right, accuracy) + special.xlog1py(trials - right, -accuracy)
    if not found.pooled:
        # With the cell's own parameter integrated out, every draw has the same value.
        own = special.betaln(1 + right, 1 + trials - right)
        log_likelihood = np.broadcast_to(own, shape)
    predictions = Predictions(
        np.asarray(log_likelihood, dtype=np.float64),
        replicate(rng, trials, accuracy),
    )
    return Posterior(accuracy=accuracy, parameters={}, predict=lambda: predictions)


@dataclass(frozen=True, eq=False, kw_only=True)
class CapabilityFit:
    """A fitted capability model: logit P(right) = c_m + d_i + Σ_f s_if w_mf, with s ≥ 0 sparse.

    Every capability has mean 0 and variance 1 over the models of the fit, and features are sorted
    by the variance that they give the logits. A code above 0 means that models with more of the
    feature do better on the item than their performance on other items predicts.

    Notes
    -----
    Features are found from the correlations of answers, not from their content: they need not be
    skills that have a name. Check with `stability` whether a feature is found again from other
    items, and read its items before naming it. Where nearly every item has one feature, the common
    part of a model's capabilities cannot be separated from its performance. There are no standard
    errors.
    """

    models: tuple[str, ...]
    item_ids: NDArray[Any]
    """Shape (M,), like `tasks`."""
    tasks: NDArray[Any]
    capability: FloatArray
    """w, shape (N, F)."""
    performance: FloatArray
    """c, shape (N,): mean 0."""
    code: FloatArray
    """s ≥ 0, shape (M, F)."""
    intercept: FloatArray
    """d, shape (M,): the logit of a model that is average in all."""
    penalty: float
    """Penalty of the sum of all codes."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """objective, iterations, converged, choices, seconds, device, dtype."""
    notes: tuple[str, ...] = ()

    @property
    def n_features(self) -> int:
        """F."""
        return int(np.shape(self.code)[1])

    @property
    def use(self) -> FloatArray:
        """Variance that each feature gives the logits, averaged over items: shape (F,)."""
        return np.square(self.code).mean(axis=0)

    @property
    def empty(self) -> tuple[int, ...]:
        """Features, numbered from 1, that no item has."""
        return tuple((np.flatnonzero(~(self.code > 0).any(axis=0)) + 1).tolist())

    def predict(self) -> FloatArray:
        """P(right) of every model on every item at the estimates, shape (N, M)."""
        level = self.performance[:, None] + self.intercept
        return special.expit(level + self.capability @ self.code.T)

    def to_frame(self, of: Table = "items") -> pd.DataFrame:
        """Return one line per item with its codes, or per model with its capabilities."""
        import pandas as pd

        if of not in TABLES:
            raise SelectionError(no_such("table", of, TABLES, ", ".join(TABLES)))
        names = [f"feature_{f + 1}" for f in range(self.n_features)]
        if of == "models":
            columns = {"model": self.models, "performance": self.performance}
            return pd.DataFrame(columns | dict(zip(names, self.capability.T, strict=True)))
        columns = {"item": self.item_ids, "task": self.tasks, "intercept": self.intercept}
        return pd.DataFrame(columns | dict(zip(names, self.code.T, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return all, ready for JSON: finite numbers, strings, lists, None."""
        scalars = ("n_features", "penalty", "diagnostics")
        tables = {of: plain(self.to_frame(of).to_dict("records")) for of in TABLES}
        return {name: plain(getattr(self, name)) for name in scalars} | tables | {
            "notes": list(self.notes)
        }  # fmt: skip
