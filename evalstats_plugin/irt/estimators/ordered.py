"""Ordered scores by marginal maximum likelihood: graded responses and generalised partial credit.

Each model has one ability, each item a discrimination a and an intercept d_k for each step
k = 1, …, K - 1 between its K levels, those that some model reached:

graded   P(level ≥ k) = 1 / (1 + exp(-(aθ + d_k))), with d_k that fall [Sam69]_
gpcm     P(level = k) / P(level = k - 1) = exp(aθ + d_k - d_(k-1)), with d_0 = 0 [Mur92]_

Abilities are N(0, 1) and integrated out on `_NODES`; the likelihood is climbed by its gradient.

* `fit_ordered`: from a matrix of scores to an `OrderedFit`
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, sparse, special

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.irt.methods import ORDERED_ZERO, OrderedOptions
from evalstats_plugin.irt.model.data import levels_of
from evalstats_plugin.irt.model.fit import OrderedFit
from evalstats_plugin.irt.model.scale import ZEROS, average_discrimination
from evalstats_plugin.stats.arrays import FloatArray, IntArray

ENOUGH_MODELS = 300
"""With fewer models discriminations have the prior N(1, 1), intercepts N(0, 3²).

Of partial credit these are the intercepts between neighbouring levels, d_k - d_(k-1): it does not
matter which end of the scale is the best."""

MOST_WITH_ERRORS = 200
"""Parameters up to which errors allow for items being estimated: each costs two posteriors."""

_NODES: FloatArray = np.linspace(-6, 6, 121)
_LOG_WEIGHT: FloatArray = -(_NODES**2) / 2 - special.logsumexp(-(_NODES**2) / 2)
_PRIOR = (1.0, 1.0), (0.0, 3.0)
_STEP, _LEAST, _FLAT = 1e-4, 1e-300, 1e-9


def fit_ordered(
    matrix: ResponseMatrix, item_model: str, options: OrderedOptions, zero: str = "items"
) -> OrderedFit:
    """Fit ordered scores.

    Parameters
    ----------
    zero
        ``"items"``: 0 is where the average item's expected score is halfway between its lowest and
        highest level, and 1 is a logit on an item of average discrimination.
        ``"models"``: abilities are N(0, 1). A model's name: 0 is its ability.

    Raises
    ------
    DesignError
        Fewer than two models; scores that are no levels; no item that tells models apart.
    SelectionError
        No such zero.
    """
    began = time.perf_counter()
    zeros = (*ZEROS, *matrix.models)
    if zero not in zeros:
        raise SelectionError(no_such("zero", zero, zeros, few(list(zeros), 5)))
    levels, places = levels_of(matrix.scores)
    with_prior = options.prior == "weak"
    if options.prior is None:
        with_prior = len(matrix.models) < ENOUGH_MODELS
    problem = _Problem.of(places, item_model, with_prior=with_prior)
    optimum: Any = optimize.minimize(
        problem.loss, problem.start(), jac=True, method="L-BFGS-B",
        options={"maxiter": options.max_steps, "maxfun": 10 * options.max_steps, "ftol": 1e-13,
                 "gtol": options.tolerance},
    )  # fmt: skip
    point = problem.plain(optimum.x)
    slopes = [a for a, _ in problem.items(point)]
    if sum(float(a.sum()) for a in slopes) < 0:
        # Views: the point is turned round.
        for a in slopes:
            np.negative(a, out=a)
    mean, variance, likelihood = problem.abilities(point)
    wanted = options.std_errors
    wanted = problem.size <= MOST_WITH_ERRORS if wanted is None else wanted
    unit, at = problem.zero(point) if zero != "models" else (1.0, 0.0)
    i = matrix.models.index(zero) if zero in matrix.models else None
    spread, moves = problem.errors(point, zero, i) if wanted else (None, None)
    fit = problem.record(point, unit, at, spread)
    covariance = unit**2 * np.diag(variance)
    ability = unit * (mean - at)
    if i is not None:
        of_zero = unit**2 * variance[i]
        covariance = covariance + of_zero
        covariance[i], covariance[:, i] = 0.0, 0.0
        fit = fit._replace(steps=fit.steps - ability[i])
        ability = ability - ability[i]
    if spread is not None and moves is not None:
        covariance = covariance + moves @ spread @ moves.T
    notes = list(matrix.notes)
    if not optimum.success:
        notes.append(f"not converged after {optimum.nit} steps: allow more (option max_steps)")
    if spread is None:
        cure = "take a prior (option prior=weak)" if wanted else "std_errors=True computes them"
        notes.append(f"abilities' errors take items as known, and items have none: {cure}")
    if problem.flat:
        ids = [str(matrix.item_ids[j]) for j in problem.flat]
        notes.append(f"{counted(len(ids), 'item')} on which all models have one score, set aside: "
                     f"{few(ids)}")  # fmt: skip
    if problem.with_prior:
        notes.append(
            f"{len(matrix.models)} models, fewer than {ENOUGH_MODELS}: discriminations have the "
            "prior N(1, 1) and intercepts N(0, 3²), and abilities are drawn to the models' mean"
        )
    names = {"items": ORDERED_ZERO, "models": "ability ~ N(0, 1)"}
    return OrderedFit(
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        notes=tuple(notes),
        item_model=item_model,
        ability=ability,
        ability_covariance=covariance,
        discrimination=fit.slope,
        discrimination_std_error=fit.slope_error,
        steps=fit.steps,
        steps_std_error=fit.steps_error,
        level=fit.level,
        identification=names.get(zero, f"0 is the ability of {zero}"),
        hyperparameters={"ability_mean": -unit * at, "ability_sd": unit},
        diagnostics={
            "iterations": int(optimum.nit),
            "converged": bool(optimum.success),
            "log_likelihood": likelihood,
            "n_parameters": problem.size,
            "levels": levels.tolist(),
            "prior": "weak" if problem.with_prior else "none",
            "n_nodes": len(_NODES),
            "seconds": time.perf_counter() - began,
            "device": "cpu",
        },
    )


class _Group(NamedTuple):
    """Items with one number of levels, K."""

    at: IntArray
    """Places of the items, shape (m,)."""
    seen: Any
    """Sparse, shape (N, m · K): how often each model had each level of each item."""
    observed: IntArray
    """The levels, of all, that the items have, shape (m, K)."""
    part: slice
    """Of the flat parameters: m · (1, K - 1)."""


class _Record(NamedTuple):
    """Items on the scale reported, each row of shape (M, ·)."""

    slope: FloatArray
    slope_error: FloatArray
    steps: FloatArray
    steps_error: FloatArray
    level: FloatArray


@dataclass(frozen=True)
class _Problem:
    """Answers, and the likelihood of flat parameters.

    Plain ones are a, d_1, …, d_(K-1) of each item; those that are searched have, in a graded model,
    logarithms of the falls of d in the place of d_2, …, so that they fall.
    """

    groups: list[_Group]
    n_models: int
    n_items: int
    graded: bool
    with_prior: bool
    n_levels: int
    flat: dict[int, int]
    """The one level that models reached, by place of items that tell nothing."""

    @classmethod
    def of(cls, places: IntArray, item_model: str, *, with_prior: bool) -> _Problem:
        n, m, _ = places.shape
        if n < 2:
            raise DesignError("ability is only defined in comparison: give 2 models or more")
        count = int(places.max()) + 1
        counts = np.stack([(places == k).sum(axis=2) for k in range(count)], axis=2)
        reached = counts.sum(axis=0) > 0
        many = reached.sum(axis=1)
        if not (many > 1).any():
            msg = "all models have the same score on every item, so that none tells them apart: "
            raise DesignError(f"{msg}add models or items")
        flat = {int(j): int(reached[j].argmax()) for j in np.flatnonzero(many < 2)}
        groups, start = list[_Group](), 0
        for k in np.unique(many[many > 1]):
            at = np.flatnonzero(many == k)
            observed = np.stack([np.flatnonzero(reached[j]) for j in at])
            seen = np.take_along_axis(counts[:, at], observed[None], axis=2)
            part = slice(start, start + len(at) * int(k))
            groups.append(_Group(at, sparse.csr_matrix(seen.reshape(n, -1), dtype=float),
                                 observed, part))  # fmt: skip
            start = part.stop
        return cls(groups, n, m, item_model == "graded", with_prior, count, flat)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.groups[-1].part.stop

    def items(self, point: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Slopes (m,) and intercepts (m, K - 1) by group, of plain parameters."""
        both = [point[g.part].reshape(len(g.at), -1) for g in self.groups]
        return [(x[:, 0], x[:, 1:]) for x in both]

    def start(self) -> FloatArray:
        """Discriminations 1, and intercepts by the shares of the levels."""
        point = np.empty(self.size)
        for g in self.groups:
            share = np.asarray(g.seen.sum(axis=0)).reshape(len(g.at), -1) + 0.5
            above = np.cumsum(share[:, ::-1], axis=1)[:, ::-1]
            total = above[:, :1]
            d = 1.2 * np.log(above[:, 1:] / (total - above[:, 1:]))
            if not self.graded:
                d = np.log(share[:, 1:] / share[:, :1])
            x = np.concatenate([np.ones((len(d), 1)), d], axis=1)
            if self.graded:
                x[:, 2:] = np.log(-np.diff(d, axis=1))
            point[g.part] = x.ravel()
        return point

    def plain(self, searched: FloatArray) -> FloatArray:
        """Plain parameters of those that are searched."""
        if not self.graded:
            return searched
        point = searched.copy()
        for g in self.groups:
            x = point[g.part].reshape(len(g.at), -1)
            x[:, 2:] = x[:, 1:2] - np.cumsum(np.exp(x[:, 2:]), axis=1)
        return point

    def loss(self, searched: FloatArray) -> tuple[float, FloatArray]:
        """Minus log-likelihood and log prior per model, with its gradient."""
        value, by = self.objective(self.plain(searched))
        if self.graded:
            for g in self.groups:
                x = by[g.part].reshape(len(g.at), -1)
                # A fall moves all later intercepts.
                after = np.cumsum(x[:, :0:-1], axis=1)[:, ::-1]
                falls = np.exp(searched[g.part].reshape(len(g.at), -1)[:, 2:])
                x[:, 1], x[:, 2:] = after[:, 0], -falls * after[:, 1:]
        return -value / self.n_models, -by / self.n_models

    def objective(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Log-likelihood plus log prior, and gradient, at plain parameters."""
        log_p = self._log_chances(point)
        weight, likelihood = self._posterior(log_p)
        by = np.zeros(self.size)
        for g, (a, d), level in zip(self.groups, self.items(point), log_p, strict=True):
            expected = (g.seen.T @ weight).reshape(level.shape)
            # By the logits, (m, K - 1, Q).
            if self.graded:
                logit = self._logits(a, d)
                odds = np.diff(expected / np.maximum(np.exp(level), _LEAST), axis=1)
                pull = np.exp(special.log_expit(logit) + special.log_expit(-logit)) * odds
            else:
                tried = expected.sum(axis=1, keepdims=True)
                pull = (expected - tried * np.exp(level))[:, 1:]
            k = self._times(pull.shape[1])[:, None]
            x = by[g.part].reshape(len(g.at), -1)
            x[:, 0], x[:, 1:] = (k * pull * _NODES).sum(axis=(1, 2)), pull.sum(axis=2)
            if self.with_prior:
                (middle, wide), (_, sd) = _PRIOR
                x[:, 0] -= (a - middle) / wide**2
                steps = d if self.graded else np.diff(d, axis=1, prepend=0.0)
                by_step = steps / sd**2
                x[:, 1:] -= by_step if self.graded else -np.diff(by_step, axis=1, append=0.0)
                likelihood -= (((a - middle) / wide) ** 2).sum() / 2 + ((steps / sd) ** 2).sum() / 2
        return likelihood, by

    def _logits(self, a: FloatArray, d: FloatArray) -> FloatArray:
        """Logits aθ + d_k, or kaθ + d_k, shape (m, K - 1, Q)."""
        return self._times(d.shape[1])[:, None] * (a[:, None, None] * _NODES) + d[:, :, None]

    def _times(self, n_steps: int) -> FloatArray:
        """How often aθ counts in each logit, shape (K - 1,)."""
        return np.ones(n_steps) if self.graded else np.arange(1.0, n_steps + 1)

    def _log_chances(self, point: FloatArray) -> list[FloatArray]:
        """Return log P of each level, shape (m, K, Q), by group."""
        return [log_chances(self._logits(a, d), graded=self.graded) for a, d in self.items(point)]

    def _posterior(self, log_p: list[FloatArray]) -> tuple[FloatArray, float]:
        """Weights of the nodes (N, Q), and the log-likelihood."""
        total = sum(
            g.seen @ level.reshape(-1, len(_NODES))
            for g, level in zip(self.groups, log_p, strict=True)
        )
        total = np.asarray(total) + _LOG_WEIGHT
        by_model = _log_sum(total)
        return np.exp(total - by_model), float(by_model.sum())

    def abilities(self, point: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Posterior means and variances of the abilities, and the log-likelihood."""
        weight, likelihood = self._posterior(self._log_chances(point))
        mean = weight @ _NODES
        return mean, weight @ _NODES**2 - mean**2, likelihood

    def zero(self, point: FloatArray) -> tuple[float, float]:
        """Unit of the scale of the items, and the ability that is its zero."""
        items = self.items(point)
        unit = average_discrimination(np.concatenate([a for a, _ in items]))

        def above(theta: float) -> float:
            total = 0.0
            for a, d in items:
                logit = self._times(d.shape[1]) * a[:, None] * theta + d
                chance = np.exp(log_chances(logit[..., None], graded=self.graded)[..., 0])
                share = chance @ np.linspace(0.0, 1.0, chance.shape[1])
                total += float((share - 0.5).sum())
            return total

        if above(-40.0) >= 0 or above(40.0) <= 0:
            return unit, 0.0
        root: Any = optimize.brentq(above, -40, 40, xtol=1e-12)
        return unit, float(root)

    def errors(
        self, point: FloatArray, zero: str, named: int | None
    ) -> tuple[FloatArray | None, FloatArray | None]:
        """Covariance of the plain parameters, and how reported abilities move with them (N, P).

        They are counted from the ability of the model at the place `named`, if any. None where the
        likelihood is flat, so that the answers do not tell some item.
        """
        bend, moves = np.empty((self.size, self.size)), np.empty((self.n_models, self.size))

        def reported(at: FloatArray) -> FloatArray:
            mean = self.abilities(at)[0]
            unit, middle = self.zero(at) if zero != "models" else (1.0, 0.0)
            return unit * (mean - (middle if named is None else mean[named]))

        for j in range(self.size):
            step = np.zeros(self.size)
            step[j] = _STEP
            up, down = point + step, point - step
            bend[j] = (self.objective(down)[1] - self.objective(up)[1]) / (2 * _STEP)
            moves[:, j] = (reported(up) - reported(down)) / (2 * _STEP)
        values, vectors = np.linalg.eigh((bend + bend.T) / 2)
        if values[0] <= _FLAT * values[-1]:
            return None, None
        return vectors / values @ vectors.T, moves

    def record(
        self, point: FloatArray, unit: float, at: float, spread: FloatArray | None
    ) -> _Record:
        """Discriminations, and abilities at the steps between levels, on the scale reported."""
        wide = np.full((self.n_items, self.n_levels), np.nan)
        slope, steps = wide[:, 0], wide[:, 1:]
        record = _Record(slope.copy(), slope.copy(), steps.copy(), steps.copy(), wide)
        record.level[list(self.flat), 0] = list(self.flat.values())
        for g, (a, d) in zip(self.groups, self.items(point), strict=True):
            m, k = d.shape
            # Graded: the ability at which a level or more is as likely as not; else where a level
            # is as likely as the one before.
            step = d if self.graded else np.diff(d, axis=1, prepend=0.0)
            record.slope[g.at] = a / unit
            record.steps[g.at, :k] = unit * (-step / a[:, None] - at)
            record.level[g.at, : k + 1] = g.observed
            if spread is None:
                continue
            of_items = spread[g.part, g.part].reshape(m, k + 1, m, k + 1)
            of_items = of_items[np.arange(m), :, np.arange(m)]
            record.slope_error[g.at] = np.sqrt(of_items[:, 0, 0]) / unit
            by = np.zeros((m, k, k + 1))
            by[:, :, 0] = step / a[:, None] ** 2
            rows: IntArray = np.arange(k, dtype=np.int64)
            by[:, rows, rows + 1] = -1 / a[:, None]
            if not self.graded:
                by[:, rows[1:], rows[1:]] = 1 / a[:, None]
            variance = np.einsum("mkp,mpr,mkr->mk", by, of_items, by)
            record.steps_error[g.at, :k] = unit * np.sqrt(variance)
        return record


def log_chances(logit: FloatArray, *, graded: bool) -> FloatArray:
    """Return log P of levels 0, …, K - 1, shape (m, K, Q), of logits (m, K - 1, Q)."""
    if not graded:
        whole = np.concatenate([np.zeros_like(logit[:, :1]), logit], axis=1)
        return whole - _log_sum(whole)
    ends = np.full_like(logit[:, :1], np.inf)
    upper = np.concatenate([ends, logit], axis=1)
    lower = np.concatenate([logit, -ends], axis=1)
    # σ(x) - σ(y) = σ(x) σ(-y) (1 - exp(y - x)), which loses no digits.
    gap = np.log(np.maximum(-np.expm1(lower - upper), _LEAST))
    return special.log_expit(upper) + special.log_expit(-lower) + gap


def _log_sum(log_terms: FloatArray) -> FloatArray:
    """Log of sums over axis 1, kept; on small arrays ten times as fast as SciPy's logsumexp."""
    top = log_terms.max(axis=1, keepdims=True)
    return top + np.log(np.exp(log_terms - top).sum(axis=1, keepdims=True))
