"""Marginal maximum likelihood with items integrated out: the estimator for few models.

Abilities are parameters; items are drawn from a normal population whose hyper-parameters are
estimated with them, as in random-item models [DeB08]_. Joint estimates of items and models stretch
abilities by about N / (N - 1), and so do marginal ones that integrate models out: both estimate
items from N answers each. Here nothing is estimated from few answers.

* `items_integrated` fits; `fit_mml_items` records the fit as an `IRTFit`
* `refit`, from the estimate of a fit; `sandwich`, a covariance that holds where the model is wrong
* `evaluate`: marginal log-likelihood, gradient and observed information (Louis' identity [Lou82]_)
* `_search`: Newton's method, on coarse points and in single precision at first if data are large
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt.estimators.extremes import NODES, extremes_note, few_answers, placed
from evalstats_plugin.irt.estimators.item_population import (
    FINE,
    SEGMENT_RISE,
    Kind,
    Points,
    Population,
    points,
)
from evalstats_plugin.irt.methods import MmlItemsOptions
from evalstats_plugin.irt.model.arrays import (
    Array,
    add_at,
    add_product,
    add_to_rows,
    array_of,
    as_array,
    by_columns,
    cast,
    complement,
    inverse_information,
    largest,
    less_product,
    lines,
    log_scores,
    namespace,
    nonzero,
    normalised,
    on_host,
    places,
    sigmoid,
    softplus,
    solve_positive,
    solve_triangular,
    stable_order,
    zeros,
)
from evalstats_plugin.irt.model.data import (
    Counts,
    dispersion_of,
    residual_sums,
    settled_dispersion,
    smoothed_logit,
)
from evalstats_plugin.irt.model.fit import (
    TAILS,
    IRTFit,
    RaschOr2PL,
    below_chance_note,
    dispersion_note,
    irt_fit,
    not_converged,
    run_facts,
)
from evalstats_plugin.stats.arrays import FloatArray

LEAST_SHARE = 0.1
"""Share of the variance of discriminations explained by the answers below which a note says so.

With 2 to 5 models and 100 or 500 simulated items it was 0 to .08, with 7 to 10 models .03 to .2,
with 20 or more .1 to .3; estimates correlated with the truth by about its root.
"""

WIDE, FEW_MODELS = 0.6, 10
"""Standard deviation of log discriminations that is implausible with up to so many models.

With a true value of .3 and up to 10 models, estimates were .17 to .46.
"""

# Integration. Items per block: at least _FEWEST, a _SHARE-th of all items, and enough for _WORTH
# numbers. Items of a block should have similar posteriors, yet be worth a matrix product.
_FEWEST, _SHARE, _WORTH = 32, 24, 2**17
# Points outside a block hold less than exp(-25) of the posterior of each of its items.
_FAR = 25.0 + SEGMENT_RISE
# Largest array of items × points × models in the covariance of the scores.
_BLOCK = 2**21
# Points with less weight in an item's posterior are left out of that covariance.
_FAINT = 1e-8

# Search. It ends when the next step is predicted to raise the log-likelihood by less than this.
_TOLERANCE = 1e-9
# Longest change of a parameter in a step.
_LONGEST = 0.4
# Shortest share of a step that is tried.
_SHORTEST = 1e-7
# Spacing of points at first and at last, relative to the usual one; up to _FEW models there are
# so few points that the search starts with the usual spacing.
_COARSE, _FINE, _FEW = 1.6, FINE, 10
# Predicted rise below which coarse points get the usual spacing.
_CLOSE = 1.0
# Predicted rise and change of every hyper-parameter below which points get the finest spacing and
# stay where they are: moving points move their errors, and the search would oscillate.
_NEAR, _STILL = 0.05, 0.15
# Change of the shape of the population for which the finest points are placed anew.
_OTHER = 0.05
# Decrease of the log-likelihood that a step may cause, in total or per item, because the errors of
# the points change with the points; and the same on coarse points in single precision.
_FALL, _FALL_OF_ITEM, _FALL_NEAR = 1e-3, 1e-6, 0.1
# Smallest curvature used, as a share of the curvature of complete data, and smallest of that.
_FLATTEST, _NONE = 1e-6, 1e-9
# Counts from which on the search starts in single precision.
_LARGE = 2**15
# Change of any ability or hyper-parameter up to which the covariance from that search is kept: it
# is a few hundredths of the information, and changes by a few hundredths of itself.
_KNOWN_FOR = 0.02
# Rise that the next step of a refit predicts, at which it ends, and its most steps.
_REFIT, _REFIT_STEPS = 1e-6, 60
# Change of every number below which a step that follows that search is the last: a few hundredths
# of this remain, and nothing is evaluated again.
_LAST = 5e-4

# Standard deviations of log discriminations from which a 2PL starts, for few models and for more.
_SPREADS, _SPREAD = (0.15, 0.5), 0.3
# Steps after which starts are compared.
_TRIAL = 4
# Items on which points of less spacing and wider reach are tried; where these change the
# log-likelihood by more than _UNSETTLED, or _UNSETTLED_ITEM for each item, the reach is widened,
# because some items lie farther out, and then the spacing halved, so often.
_TRIED, _DENSER, _HALVINGS, _WIDER = 64, 0.7, 2, 1.5
_UNSETTLED, _UNSETTLED_ITEM = 1e-3, 1e-6
# Range of hyper-parameters by their place in `Population`, and distance that counts as at a bound.
_BOUNDS = {
    0: (-15.0, 15.0), 1: (math.log(0.03), math.log(12)), 4: (math.log(0.02), math.log(1.5))
}  # fmt: skip
_AT_BOUND = 1e-5
# Points of a standard normal, where errors of abilities are small and where they are not.
_SURE, _NORMAL_POINTS = 0.4, (3, 7)
# A model that knows so few items, beyond guessing, has no finite estimate of its ability; and
# models without which no abilities can be compared.
_LEAST_KNOWN, _FEWEST_MODELS = 0.25, 2
# Prior of the logit of a chance of guessing that all items share, and its range.
_GUESSING_PRIOR, _GUESSING = (math.log(0.25), 0.5), (-4.0, 0.5)
# Standard deviations of difficulties: one so small is degenerate where a Rasch model finds one so
# large.
_ALIKE, _APART = 0.05, 0.2
# A 2PL may be so far below a Rasch model: it has priors that a Rasch model does not have.
_BELOW = 2.0


@np.errstate(all="ignore")
def items_integrated(
    counts: Counts,
    kind: Kind = "2pl",
    *,
    dispersion: float | None = None,
    max_steps: int = 200,
    mended: bool = False,
) -> ItemsIntegratedFit:
    """Fit abilities and the population of items by marginal maximum likelihood.

    Parameters
    ----------
    counts
        N ≥ 2 models × M items; counts may be missing, and have several trials. Of what is guessed,
        P(right) = c + (1 - c) / (1 + exp(-(aθ + d))).
    kind
        ``"rasch"``, ``"2pl"`` with discriminations > 0, log-normal, or ``"2pl-signed"`` with normal
        ones of either sign.
    dispersion
        φ, where the variance of a score is φ P (1 - P) / trials: the log-likelihood of each cell is
        divided by it [Wed74]_. None estimates it where scores are fractions of a trial, and else
        is 1.
    max_steps
        Steps after which the last estimate is returned as not converged.
    mended
        Fit models all right, or that know nothing, as if half an item had gone the other way, and
        do not leave them out: so that likelihoods of several chances of guessing are of the same
        models.
    """
    estimated = dispersion is None and counts.fractional
    extreme = extreme_models(counts)
    inner = nonzero(extreme == 0)
    if len(inner) >= _FEWEST_MODELS and not mended:
        every, counts = counts, counts.of_models(inner)
    else:
        every, inner = counts, places(len(extreme), extreme)
        counts = _as_if_half(counts, extreme)
    start, phi = _start(counts), 1.0 if dispersion is None else dispersion
    maximum, phi = _search_dispersion(counts, start, phi, max_steps, estimated=estimated)
    rasch = None
    if kind != "rasch":
        rasch, wide = maximum, maximum.state
        spreads = _SPREADS if len(counts.right) <= _FEW else (_SPREAD,)
        signed, (location, wide_sd) = kind == "2pl-signed", wide.population.values
        place = [float(-location if signed else location), float(wide_sd), float(signed), 0.0]
        starts = [
            (wide.ability, Population(kind, array_of([*place, math.log(spread)], wide.ability)))
            for spread in spreads
        ]
        maximum = _best_search(counts.tempered(phi), starts, max_steps)
        if estimated:
            start = maximum.state.ability, maximum.state.population
            maximum, phi = _search_dispersion(counts, start, phi, max_steps, estimated=True)
            rasch = _search(counts.tempered(phi), (wide.ability, wide.population), max_steps)
    maximum, node_error = _with_settled_points(counts.tempered(phi), maximum, max_steps)
    fit = _summary(counts, phi, maximum, rasch, node_error)
    return _with_extremes(every, fit, kind, extreme, inner)


class ItemsIntegratedFit(NamedTuple):
    """Abilities of N models, which sum to 0 over those that took part in the fit."""

    ability: Array
    """Shape (N,)."""
    covariance: Array
    """Shape (N, N), hyper-parameters profiled; NaN of models that took no part."""
    discrimination: Array
    """Posterior means of the items, shape (M,), like difficulty and intercept."""
    difficulty: Array
    intercept: Array
    difficulty_std_error: Array
    """Posterior standard deviation, shape (M,)."""
    item_covariance: Array
    """Posterior covariance of discrimination and intercept, shape (M, 2, 2)."""
    probability: Array
    """P(right) over the posteriors of items and errors of abilities, shape (N, M)."""
    hyperparameters: dict[str, float]
    log_likelihood: float
    """Marginal, without binomial coefficients."""
    objective: float
    """Log-likelihood plus log prior of the hyper-parameters."""
    rasch_log_likelihood: float | None
    """Of a Rasch model with the same dispersion; None if this is one."""
    dispersion: float
    node_error: float
    """Change of the log-likelihood with denser points that reach farther."""
    iterations: int
    converged: bool
    reason: str
    """Why not converged, else empty."""
    extreme: Array
    """Shape (N,): 1 for models all right, -1 for models that are right no more often than by
    guessing. Their likelihood has no finite maximum, so they take no part in the fit; where fewer
    than two models would be left, they are fitted as if half an item had gone the other way."""
    quantiles: FloatArray | None = None
    """Abilities at the tail probabilities `TAILS` of models that are wrong, or right, on none or a
    few items, shape (N, T); NaN for the others. None where there are no such models."""


def extreme_models(counts: Counts) -> Array:
    """Models all right (1), and models all wrong (-1), shape (N,).

    Where answers are guessed, those are wrong that know less than a quarter of an item: that get
    less right beyond guessing.
    """
    right, total = counts.right.sum(1), counts.trials.sum(1)
    if counts.guess is None:
        return cast(right == total, right) - cast(right == 0, right)
    net_right = right - (counts.guess * counts.trials).sum(1)
    # A model that is right on the one item it took knows it, guessed or not.
    most = right == total
    return cast(most, right) - cast((net_right < _LEAST_KNOWN) & ~most, right)


def taking_part(counts: Counts) -> Array:
    """Places of the models that `items_integrated` fits: the others are extreme."""
    extreme = extreme_models(counts)
    inner = nonzero(extreme == 0)
    return inner if len(inner) >= _FEWEST_MODELS else places(len(extreme), extreme)


def _as_if_half(counts: Counts, extreme: Array) -> Counts:
    """Take half an item from models all right, and let models know half an item that know less.

    Models that know nothing are let know half an item where most other models are right.
    """
    xp, right, total = namespace(counts.right), counts.right.sum(1), counts.trials.sum(1)
    wrong = counts.trials - counts.right
    guess = 0.0 if counts.guess is None else counts.guess
    net_right = right - (guess * counts.trials).sum(1)
    share = wrong * (counts.right.sum(0) / counts.trials.sum(0) if counts.guess is not None else 1)
    given = xp.clip(0.5 - net_right, 0, None) * (extreme < 0) / xp.clip(share.sum(1), 1e-9, None)
    taken = 0.5 * (extreme > 0) / xp.clip(total, 1e-9, None)
    mended = counts.right + given[:, None] * share - taken[:, None] * counts.trials
    return replace(counts, right=by_columns(mended), trials=by_columns(counts.trials))


def _with_extremes(
    counts: Counts, fit: ItemsIntegratedFit, kind: Kind, extreme: Array, inner: Array
) -> ItemsIntegratedFit:
    """Place models that took no part, and give limits to those wrong or right on a few items."""
    like, n = fit.ability, len(extreme)
    guess = np.zeros(counts.right.shape[1]) if counts.guess is None else as_array(counts.guess)
    data = as_array(counts.right), as_array(counts.trials), as_array(extreme)
    if not few_answers(*data, guess).any():
        return fit
    part = counts.of_models(inner).tempered(fit.dispersion)
    error = namespace(like).sqrt(namespace(like).clip(fit.covariance.diagonal(), 0, None))
    item_population = population_of(fit, kind)
    curve, _ = averaged_curves(part, fit.ability, error, item_population, array_of(NODES, like))
    quantiles = placed(*data, guess, as_array(curve))
    if len(inner) == n:
        quantiles[data[2] != 0] = np.nan
        return fit._replace(extreme=extreme, quantiles=quantiles)
    middle = quantiles[:, len(TAILS) // 2]
    ability = array_of(np.where(as_array(extreme) == 0, 0.0, np.clip(middle, -30, 30)), like)
    ability[inner] = fit.ability
    covariance = zeros((n, n), like) + math.nan
    covariance[inner[:, None], inner] = fit.covariance
    # How sure these models are to be right, their abilities being taken as known.
    theta, of_items = as_array(ability), as_array(curve)
    each = [np.interp(theta, NODES, of_items[:, j]) for j in range(of_items.shape[1])]
    exact = array_of(np.stack(each, axis=1), like)
    exact[inner] = fit.probability
    return fit._replace(
        ability=ability, covariance=covariance, probability=exact, extreme=extreme,
        quantiles=quantiles,
    )  # fmt: skip


def _search_dispersion(
    counts: Counts,
    start: tuple[Array, Population],
    phi: float,
    max_steps: int,
    *,
    estimated: bool,
) -> tuple[_Maximum, float]:
    """Maximise at a dispersion, and where it is `estimated` repeat until it stays the same."""
    at = start

    def fitted(phi: float) -> _Maximum:
        nonlocal at
        maximum = _search(counts.tempered(phi), at, max_steps)
        at = maximum.state.ability, maximum.state.population
        return maximum

    if estimated:
        return settled_dispersion(phi, fitted, partial(_dispersion, counts))
    return fitted(phi), phi


def _dispersion(counts: Counts, phi: float, maximum: _Maximum) -> float:
    """Estimate φ from the sums of squared residuals and of P (1 - P) over items' posteriors.

    Sums, unlike Pearson's ratios, are not ruled by single counts where P is near 0 or 1.
    """
    state = maximum.state
    squares = spread = zeros((), state.ability)
    for block in _blocks(counts.tempered(phi), state.ability, state.population, maximum.grid):
        right, trials = block.right * phi, block.trials * phi
        chance = _chance(block.curve.guess, state.ability, maximum.grid)[block.points]
        mean, square = block.weight @ chance, block.weight @ chance**2
        added = residual_sums(right, trials, mean, square)
        squares, spread = squares + added[0], spread + added[1]
    return dispersion_of(counts, squares, spread)


def _best_search(
    counts: Counts, starts: list[tuple[Array, Population]], max_steps: int
) -> _Maximum:
    """Maximise from the start that is highest after a few steps.

    One whose difficulties are all alike counts only where there is no other: steep curves through
    one point can be the highest maximum, as in mixtures of normal distributions.
    """
    if len(starts) == 1:
        return _search(counts, starts[0], max_steps)
    tried = [_search(counts, start, min(_TRIAL, max_steps)) for start in starts]
    best = max(
        tried,
        key=lambda attempt: (
            float(attempt.state.population.values[1]) > math.log(_ALIKE),
            float(attempt.state.objective),
        ),
    )
    if best.converged or max_steps <= _TRIAL:
        return best
    maximum = _search(counts, (best.state.ability, best.state.population), max_steps - _TRIAL)
    return maximum._replace(iterations=best.iterations + maximum.iterations)


def _with_settled_points(
    counts: Counts, maximum: _Maximum, max_steps: int
) -> tuple[_Maximum, float]:
    """Widen the reach of the points, then halve their distance, until neither changes anything."""
    xp, m = namespace(counts.right), counts.right.shape[1]
    order = stable_order(counts.right.sum(0) / counts.trials.sum(0))
    evenly = array_of(np.linspace(0, m - 1, min(m, _TRIED)).round(), counts.right)
    tried = order[cast(evenly, xp.int64)]
    some = counts.of_items(tried)
    coarseness, error = _FINE, math.nan
    for turn in range(_HALVINGS + 2):
        state = maximum.state
        at = state.ability, state.population
        most = xp.amax(counts.trials, 1)
        finer = points(at[1], at[0], most, coarseness=_DENSER * coarseness, wider=_WIDER)
        finer_likelihood, here = (
            xp.stack([block.log_likelihood.sum() for block in _blocks(some, *at, grid)]).sum()
            for grid in (finer, maximum.grid)
        )
        error = float(finer_likelihood - here) * m / len(tried)
        if abs(error) <= max(_UNSETTLED, _UNSETTLED_ITEM * m) or turn > _HALVINGS:
            break
        coarseness /= 2 if turn else 1
        start = state.ability, state.population
        again = _newton_search(counts, start, max_steps, coarseness=coarseness, wider=_WIDER)
        maximum = again._replace(iterations=maximum.iterations + again.iterations)
    return maximum, error


def _summary(
    counts: Counts,
    phi: float,
    maximum: _Maximum,
    rasch: _Maximum | None,
    node_error: float,
) -> ItemsIntegratedFit:
    state, grid, xp = maximum.state, maximum.grid, namespace(maximum.state.ability)
    covariance = _inverse(state)[: len(state.ability), : len(state.ability)]
    shift = state.ability.mean()
    error = xp.sqrt(xp.clip(covariance.diagonal(), 0, None))
    counts = counts.tempered(phi)
    mean, spread, log_likelihood = _posterior(counts, state, grid)
    probability = averaged_curves(counts, state.ability, error, state.population)[1]
    a, d, b = mean.T
    b_error = xp.sqrt(xp.clip(spread[:, 2, 2], 0, None))
    if state.population.kind == "2pl-signed":
        # The ratio -d / a has no moments where a may be 0.
        b = -d / a
        gradient = xp.stack([-b / a, -1 / a], 1)
        b_error = xp.sqrt(xp.einsum("mi,mij,mj->m", gradient, spread[:, :2, :2], gradient))
    # Abilities move by the shift; so that a θ + d stays, so do b and d.
    turn = zeros((len(a), 2, 2), a) + array_of(np.eye(2), a)
    turn[:, 1, 0] = shift
    reason = _reason(maximum, rasch, node_error, len(a))
    return ItemsIntegratedFit(
        ability=state.ability - shift,
        covariance=covariance,
        discrimination=a,
        difficulty=b - shift,
        intercept=d + a * shift,
        difficulty_std_error=b_error,
        item_covariance=turn @ spread[:, :2, :2] @ xp.swapaxes(turn, 1, 2),
        probability=probability,
        hyperparameters=_hyperparameters(state.population, float(shift)),
        log_likelihood=float(log_likelihood),
        objective=float(state.objective),
        rasch_log_likelihood=None if rasch is None else float(rasch.state.log_likelihood),
        dispersion=phi,
        node_error=node_error,
        iterations=maximum.iterations,
        converged=not reason,
        reason=reason,
        extreme=xp.zeros_like(state.ability),
    )


def _reason(maximum: _Maximum, rasch: _Maximum | None, node_error: float, m: int) -> str:
    """Say why this is not the maximum of a 2PL or Rasch model, or nothing."""
    if not maximum.converged:
        return not_converged(maximum.iterations)
    what = ""
    here = maximum.state.population
    names = {0: "mean of difficulties", 1: "spread of difficulties", 4: "spread of discriminations"}
    for at in _at_bounds(here):
        if at != 4 or float(here.values[at]) > 0:
            what = f"the {names[at]} is at the end of its range"
    if abs(node_error) > max(_UNSETTLED, _UNSETTLED_ITEM * m):
        what = (
            f"more points change the log-likelihood by {node_error:+.2g}, as where an item is "
            "unlike all others (`irt items` shows it)"
        )
    if rasch is None:
        return f"not converged: {what}" if what else ""
    exp = namespace(here.values).exp
    spread, other = (float(exp(x.state.population.values[1])) for x in (maximum, rasch))
    below = float(rasch.state.log_likelihood - maximum.state.log_likelihood)
    if below > _BELOW:
        what = (
            f"the log-likelihood is {below:.1f} below that of a Rasch model, which a 2PL includes"
        )
    if spread < _ALIKE and other > _APART:
        what = (
            f"difficulties are all alike (sd {spread:.2g}; {other:.2g} in a Rasch model), with "
            "steep curves through one point"
        )
    return f"not converged: {what}. Take item model rasch" if what else ""


def _hyperparameters(population: Population, shift: float) -> dict[str, float]:
    """Hyper-parameters by name, for abilities shifted down by `shift`."""
    first = "intercept" if population.kind == "2pl-signed" else "difficulty"
    values, exp = [float(x) for x in population.values], namespace(population.values).exp
    location = values[0] + shift if first == "intercept" else values[0] - shift
    named = {f"{first}_mean": location, f"{first}_sd": float(exp(population.values[1]))}
    if population.kind == "rasch":
        return named
    slope, log_s2 = population.values[3:]
    explained, residual = float(slope * exp(population.values[1])), float(exp(log_s2))
    spread = (explained**2 + residual**2) ** 0.5
    second = "discrimination" if population.kind == "2pl-signed" else "log_discrimination"
    return {**named, f"{second}_sd": spread, "correlation": explained / spread if spread else 0.0}


def population_of(fit: ItemsIntegratedFit, kind: Kind) -> Population:
    """Population of the items on the scale of the abilities, from `fit.hyperparameters`."""
    parameters = fit.hyperparameters
    first, second = "difficulty", "log_discrimination"
    if kind == "2pl-signed":
        first, second = "intercept", "discrimination"
    sd = parameters[f"{first}_sd"]
    values = [parameters[f"{first}_mean"], math.log(sd)]
    if kind != "rasch":
        spread, correlation = parameters[f"{second}_sd"], parameters["correlation"]
        residual = spread * math.sqrt(max(1 - correlation**2, 1e-12))
        values += [float(kind == "2pl-signed"), correlation * spread / sd]
        values += [math.log(max(residual, 1e-12))]
    return Population(kind, array_of(values, fit.ability))


def _inverse(state: Evaluation) -> Array:
    """Inverse information of abilities that sum to 0 and of the hyper-parameters but m_2."""
    n, size = len(state.ability), len(state.gradient)
    fixed = zeros((size, 1 if state.population.kind == "rasch" else 2), state.gradient)
    fixed[:n, 0] = 1
    if state.population.kind != "rasch":
        fixed[n + 2, 1] = 1
    basis = complement(fixed)
    inverse = inverse_information(basis.T @ (state.complete - state.missing) @ basis)[0]
    covariance = basis @ ((inverse + inverse.T) / 2) @ basis.T
    return (covariance + covariance.T) / 2


class Start(NamedTuple):
    """Where refits start: the likelihood at a fit, and the points of its integral."""

    state: Evaluation
    grid: Points


@np.errstate(all="ignore")
def start_of(counts: Counts, fit: ItemsIntegratedFit, kind: Kind) -> Start:
    """Evaluate the fit that `items_integrated` made of these counts."""
    counts = counts.tempered(fit.dispersion)
    population = population_of(fit, kind)
    grid = points(population, fit.ability, namespace(fit.ability).amax(counts.trials, 1))
    return Start(evaluate(counts, fit.ability, population, grid), grid)


@np.errstate(all="ignore")
def refit(counts: Counts, start: Start, models: Array, phi: float) -> _Maximum:
    """Fit other answers from the estimate of a fit, with the information that its answers lack.

    Parameters
    ----------
    counts
        Answers of the models at these places of the fit, some of them perhaps several times.
    phi
        Dispersion.
    """
    xp, extreme = namespace(counts.right), extreme_models(counts)
    counts = _as_if_half(counts, extreme) if bool((extreme != 0).any()) else counts
    counts = counts.tempered(phi)
    missing = start.state.missing[models[:, None], models]
    at = start.state.ability[models], start.state.population
    if len(np.unique(as_array(models))) < len(models):
        # Some models count twice: fewer differ, items vary otherwise, and need other points.
        return _newton_search(counts, at, _REFIT_STEPS)
    state = evaluate(counts, *at, start.grid, given_missing=missing)
    for steps in range(_REFIT_STEPS):
        step, gain, _ = _newton_step(state)
        length = min(1.0, _LONGEST / max(float(xp.abs(step).max()), _TOLERANCE))
        at = _moved(state, step * length)
        if gain < _REFIT:
            last = state._replace(ability=at[0], population=at[1])
            return _Maximum(last, start.grid, steps, converged=True)
        state = evaluate(counts, *at, start.grid, given_missing=missing)
    return _Maximum(state, start.grid, _REFIT_STEPS, converged=False)


@np.errstate(all="ignore")
def item_means(
    counts: Counts, state: Evaluation, grid: Points, phi: float
) -> tuple[FloatArray, FloatArray]:
    """Posterior means of the items' discriminations and difficulties, each of shape (M,)."""
    a, d, b = as_array(_posterior(counts.tempered(phi), state, grid)[0]).T
    return a, -d / a if state.population.kind == "2pl-signed" else b


@np.errstate(all="ignore")
def sandwich(
    counts: Counts, fit: ItemsIntegratedFit, kind: Kind, clusters: Array | None = None
) -> Array:
    """Covariance (N, N) of the abilities that holds where the model is wrong.

    H⁻¹ (Σ s s') H⁻¹ with the scores s of items, or of clusters of items: sums of the gradients of
    their marginal log-likelihoods.

    Parameters
    ----------
    clusters : shape (M,)
        Items of one cluster are dependent; numbers from 0.
    """
    state, grid = start_of(counts, fit, kind)
    counts, xp, n = counts.tempered(fit.dispersion), namespace(counts.right), len(state.ability)
    hyper = state.population.score(grid.x1, grid.x2)
    average = xp.exp(grid.log_weight(state.population)) @ hyper
    score = zeros((counts.right.shape[1], len(state.gradient)), hyper)
    for block in _blocks(counts, state.ability, state.population, grid):
        score[block.items, :n] = block.score()
        score[block.items, n:] = block.weight @ hyper[block.points] - average
    moved = (score @ _inverse(state))[:, :n]
    if clusters is not None:
        of_items, moved = moved, zeros((int(clusters.max()) + 1, n), moved)
        add_at(moved, clusters[:, None], places(n, moved)[None], of_items)
    return len(moved) / max(len(moved) - 1, 1) * moved.T @ moved


def _posterior(counts: Counts, state: Evaluation, grid: Points) -> tuple[Array, ...]:
    """Means (M, 3) and covariances (M, 3, 3) of a, d and b; log-likelihood."""
    xp = namespace(grid.x1)
    value = xp.stack([grid.discrimination, grid.intercept, grid.difficulty], 1)
    if state.population.kind == "2pl-signed":
        value[:, 2] = 0
    square = (value[:, :, None] * value[:, None]).reshape(-1, 9)
    m, log_likelihood = counts.right.shape[1], zeros((), value)
    mean, spread = zeros((m, 3), value), zeros((m, 3, 3), value)
    for block in _blocks(counts, state.ability, state.population, grid):
        at, items = block.points, block.items
        mean[items] = block.weight @ value[at]
        spread[items] = (block.weight @ square[at]).reshape(-1, 3, 3)
        log_likelihood = log_likelihood + block.log_likelihood.sum()
    return mean, spread - mean[:, :, None] * mean[:, None], log_likelihood


@np.errstate(all="ignore")
def averaged_curves(
    counts: Counts,
    ability: Array,
    std_error: Array,
    population: Population,
    nodes: Array | None = None,
) -> tuple[Array, Array]:
    """P(right) averaged over items' posteriors: at nodes (Q, M), and of the models (N, M).

    That of the models is averaged over normal errors of abilities, too.
    """
    nodes = ability[:0] if nodes is None else nodes
    xp = namespace(counts.right)
    exact = xp.zeros_like(counts.right)
    curve = zeros((len(nodes), exact.shape[1]), exact)
    if not exact.shape[1]:
        return curve, exact
    grid = points(population, ability, xp.amax(counts.trials, 1))
    size = _NORMAL_POINTS[int(float(std_error.max()) > _SURE)]
    normal: tuple[FloatArray, FloatArray] = np.polynomial.hermite_e.hermegauss(size)
    for level, blocks in _curves(counts, ability, population, grid):
        here = xp.zeros_like(level.level)
        for z, weight in zip(*normal, strict=True):
            share = float(weight) / math.sqrt(2 * math.pi)
            here += share * _chance(level.guess, ability + float(z) * std_error, grid)
        chance_at_nodes = _chance(level.guess, nodes, grid)
        for block in blocks:
            exact[:, block.items] = (block.weight @ here[block.points]).T
            curve[:, block.items] = (block.weight @ chance_at_nodes[block.points]).T
    return curve, exact


def evaluate(
    counts: Counts,
    ability: Array,
    population: Population,
    grid: Points,
    *,
    given_missing: Array | None = None,
) -> Evaluation:
    """Log-likelihood, gradient and the two parts of the information, by Louis' identity.

    Parameters
    ----------
    given_missing : shape (N, N)
        The missing information on the abilities, if it need not be computed.
    """
    n, m, a, xp = len(ability), counts.right.shape[1], grid.discrimination, namespace(ability)
    score, share = population.score(grid.x1, grid.x2), xp.exp(grid.log_weight(population))
    average = share @ score
    # The weights of the points always sum to 1, so that no likelihood can exceed 1.
    pooled = -m * share
    size, residual = n + score.shape[1], zeros((len(a), n), ability)
    missing, log_likelihood = zeros((size, size), ability), zeros((), ability)
    complete, usual = xp.zeros_like(ability), _common_trials(counts)
    for curve, blocks in _curves(counts, ability, population, grid):
        hits, expected, here = xp.zeros_like(residual), xp.zeros_like(residual), 0 * pooled
        for block in blocks:
            at = block.points
            log_likelihood = log_likelihood + block.log_likelihood.sum()
            add_to_rows(here, at, block.weight.sum(0))
            add_to_rows(hits, at, block.weight.T @ block.right)
            add_to_rows(expected, at, block.weight.T @ block.trials)
            mean = block.score()
            score_mean = block.weight @ score[at]
            missing[:n, n:] -= mean.T @ score_mean
            missing[n:, n:] -= score_mean.T @ score_mean
            if given_missing is None and curve.guess:
                missing[:n, :n] += _guessed_score_covariance(block, curve, mean)
            elif given_missing is None:
                missing[:n, :n] += _score_covariance(block, a[at], curve.slope[at], mean, usual)
        if given_missing is None and not curve.guess:
            missing[:n, :n] += _common_square(curve.slope, here, expected, usual)
        residual += curve.reward * hits - curve.slope * expected
        complete += curve.information(hits, expected)
        pooled += here
    if given_missing is not None:
        missing[:n, :n] = given_missing
    missing[:n, n:] += residual.T @ score
    missing[n:, :n] = missing[:n, n:].T
    missing[n:, n:] += score.T @ ((pooled + m * share)[:, None] * score)
    centred_score = score - average
    prior, prior_gradient, prior_information = population.log_prior()
    of_population = population.information(pooled, grid.x1, grid.x2) + prior_information
    whole = xp.zeros_like(missing)
    whole[:n, :n] = xp.diag(complete)
    whole[n:, n:] = of_population + m * centred_score.T @ (share[:, None] * centred_score)
    gradient = xp.concatenate([residual.sum(0), pooled @ score + prior_gradient])
    objective = log_likelihood + prior
    return Evaluation(ability, population, objective, log_likelihood, gradient, whole, missing)


class Evaluation(NamedTuple):
    """The likelihood at a point of the search: P parameters are N abilities and H others."""

    ability: Array
    population: Population
    objective: Array
    """Log-likelihood plus log prior of the hyper-parameters."""
    log_likelihood: Array
    gradient: Array
    """Of the objective, shape (P,)."""
    complete: Array
    """Information if items were known, shape (P, P)."""
    missing: Array
    """Information lost because they are not; the observed information is the difference."""


def _curves(
    counts: Counts, ability: Array, population: Population, grid: Points
) -> Iterator[tuple[_Curve, Iterator[_Block]]]:
    """Curves and blocks of the items with one and the same chance of guessing."""
    guess = counts.guess
    levels: list[float] = [0.0] if guess is None else np.unique(as_array(guess)).tolist()
    for level in levels:
        items = None if guess is None else nonzero(guess == level)
        curve = _Curve(level, ability, grid)
        yield curve, _blocks_of(counts, items, curve, population, grid)


def _blocks(
    counts: Counts, ability: Array, population: Population, grid: Points
) -> Iterator[_Block]:
    """Posteriors of all items over the points, in blocks of items of similar difficulty."""
    for _, blocks in _curves(counts, ability, population, grid):
        yield from blocks


class _Curve:
    """Curves of items with one chance of guessing, at Q points for N models: (Q, N) each."""

    def __init__(self, guess: float, ability: Array, grid: Points) -> None:
        self.guess, self.a = guess, grid.discrimination[:, None]
        self.log_odds = logit = _logit(ability, grid)
        self.level = softplus(logit)
        """-log P(wrong)."""
        if guess:
            self.level = self.level - math.log1p(-guess)
            self.right = guess + (1 - guess) * sigmoid(logit)
            self.log_odds = namespace(logit).log(self.right) + self.level
        self.logit = logit

    @cached_property
    def slope(self) -> Array:
        """Derivative of the level by ability."""
        return self.a * sigmoid(self.logit)

    @cached_property
    def reward(self) -> Array:
        """Derivative of the log-odds by ability; shape (Q, 1) where nothing is guessed."""
        return self.slope / self.right if self.guess else self.a

    def information(self, hits: Array, expected: Array) -> Array:
        """Minus the second derivative of the log-likelihood by ability, shape (N,)."""
        bend = self.slope * (self.a - self.slope)
        if self.guess:
            expected = expected - self.guess * hits / self.right**2
        return (bend * expected).sum(0)


def _chance(guess: float, ability: Array, grid: Points) -> Array:
    """P(right) of N models at the points, shape (Q, N)."""
    return guess + (1 - guess) * sigmoid(_logit(ability, grid))


def _logit(ability: Array, grid: Points) -> Array:
    return lines(grid.intercept, grid.discrimination, ability)


def _blocks_of(
    counts: Counts, chosen: Array | None, curve: _Curve, population: Population, grid: Points
) -> Iterator[_Block]:
    """Posteriors of chosen items over the points, in blocks of items of similar difficulty.

    Along a line the posterior is log-concave: where it is low at both ends of a segment, it is low
    in between. Only segments near the maximum of some item of the block are summed.
    """
    logit, level, xp = curve.log_odds, curve.level, namespace(curve.level)
    log_weight = grid.log_weight(population)
    ends = nonzero(grid.end)
    before = xp.cumsum(grid.end, 0) - 1
    after = before + ~grid.end
    # Single precision is enough to find the segments.
    at_ends = [
        cast(x, xp.float32) for x in ((log_weight - grid.log_area)[ends], logit[ends], level[ends])
    ]
    order = stable_order(counts.right.sum(0) / counts.trials.sum(0))
    if chosen is not None:
        order = order[xp.isin(order, chosen)]
    size = max(_FEWEST, len(order) // _SHARE, _WORTH // len(grid.x1))
    for part in _parts(len(order), size):
        items = order[part]
        right, trials = counts.right.T[items], counts.trials.T[items]
        score = log_scores(cast(right, xp.float32), cast(trials, xp.float32), *at_ends)
        # NaN counts as near.
        near = ~(score < xp.amax(score, 1)[:, None] - _FAR).all(0)
        points = nonzero(near[before] | near[after])
        score = log_scores(right, trials, log_weight[points], logit[points], level[points])
        yield _Block(items, points, right, trials, *normalised(score), curve)


def _parts(count: int, size: int) -> Iterator[slice]:
    """Parts of a sequence of this length."""
    return (slice(start, start + size) for start in range(0, count, size))


class _Block(NamedTuple):
    """Answers of m items (m, N), and their posteriors over P of the points (m, P)."""

    items: Array
    """Which, shape (m,)."""
    points: Array
    """Those that hold their posteriors, shape (P,)."""
    right: Array
    trials: Array
    weight: Array
    log_likelihood: Array
    curve: _Curve

    def score(self) -> Array:
        """Derivatives of the items' log-likelihoods by the abilities, (m, N)."""
        reward, slope = self.curve.reward[self.points], self.curve.slope[self.points]
        return less_product(self.right * (self.weight @ reward), self.trials, self.weight @ slope)


def _common_trials(counts: Counts) -> Array:
    """Trials T of each model on most items, shape (N,); 0 where half of its counts have others.

    The score of ability i on item j is r_ij a - t_ij s_i, with s = a p. Where t is T, the sum over
    items of E[s_i s_k] is a sum over points, which all items share; only counts with other numbers
    of trials need work of their own.
    """
    xp = namespace(counts.trials)
    most = xp.amax(counts.trials, 1)
    same = cast(counts.trials == most[:, None], most).mean()
    return xp.where(same > 0.5, most, 0.0)


def _common_square(slope: Array, pooled: Array, expected: Array, usual: Array) -> Array:
    """Σ t_ij t_kj E[s_i s_k] without the terms of second order in T - t, shape (N, N)."""
    level = slope * usual
    half = (slope * expected - 0.5 * pooled[:, None] * level).T @ level
    return half + half.T


def _guessed_score_covariance(block: _Block, curve: _Curve, mean: Array) -> Array:
    """Σ over items of the covariance of the scores where answers are guessed, (N, N)."""
    reward, slope, weight = curve.reward[block.points], curve.slope[block.points], block.weight
    total = -mean.T @ mean
    m, n = mean.shape
    root = namespace(weight).sqrt(weight)
    for part in _parts(m, max(1, _BLOCK // (n * len(slope)))):
        score = block.right[part, None] * reward - block.trials[part, None] * slope
        score = (score * root[part, :, None]).reshape(-1, n)
        add_product(total, score.T, score)
    return total


def _score_covariance(block: _Block, a: Array, slope: Array, mean: Array, usual: Array) -> Array:
    """Σ over items of the covariance of the scores, less what `_common_square` adds, (N, N)."""
    right, trials, weight = block.right, block.trials, block.weight
    half = right * (0.5 * weight @ a**2)[:, None] - trials * (weight @ (a[:, None] * slope))
    total = right.T @ half
    total = total + total.T - mean.T @ mean
    away = usual - trials
    # NaN counts as well: a step too far gives it, and the search undoes it.
    sizes = [(~(weight <= _FAINT)).sum(1).max(), (away != 0).sum(1).max()]
    depth, width = (int(size) for size in on_host(sizes))
    if width == 0:
        return total
    xp = namespace(away)
    for part in _parts(len(away), max(1, _BLOCK // (width * depth))):
        _, models = largest(cast(away[part] != 0, xp.uint8), width)
        share, points = largest(weight[part], depth)
        rows = slope[points[:, :, None], models[:, None]]
        item = places(len(models), models)[:, None]
        rows *= away[part][item, models][:, None] * xp.sqrt(share)[:, :, None]
        add_at(total, models[:, :, None], models[:, None], xp.swapaxes(rows, 1, 2) @ rows)
    return total


def _search(counts: Counts, start: tuple[Array, Population], max_steps: int) -> _Maximum:
    """Find the maximum, after `max_steps` steps at most."""
    if math.prod(counts.right.shape) < _LARGE or len(counts.right) <= _FEW:
        return _newton_search(counts, start, max_steps)
    return _two_stage_search(counts, start, max_steps)


class _Maximum(NamedTuple):
    """Result of a search, with the points of the integral."""

    state: Evaluation
    grid: Points
    iterations: int
    converged: bool


def _start(counts: Counts) -> tuple[Array, Population]:
    xp = namespace(counts.right)
    ability = smoothed_logit(counts.right.sum(1), counts.trials.sum(1))
    item = smoothed_logit(counts.right.sum(0), counts.trials.sum(0))
    spread = xp.clip(xp.sqrt(((item - item.mean()) ** 2).mean()), 0.3, 3.0)
    wide = xp.sqrt(1 + spread**2 / 2.9)
    values = xp.stack([-item.mean() * wide, xp.log(spread)])
    return (ability - ability.mean()) * wide, Population("rasch", values)


def _newton_search(
    counts: Counts,
    start: tuple[Array, Population],
    max_steps: int,
    missing: Array | None = None,
    coarseness: float | None = None,
    wider: float = 1.0,
) -> _Maximum:
    """Newton steps, halved on the same points where the likelihood falls.

    Points are coarse at first, unless `coarseness` says how coarse. Coarse points misjudge a narrow
    population, with an error for each item, so the spacing shrinks as soon as a step is refused or
    the likelihood is not concave. The `missing` information (N, N) on the abilities is given where
    the maximum is near.
    """
    ability, population = start
    xp, n = namespace(ability), len(ability)
    most = xp.amax(counts.trials, 1)
    fall = max(_FALL, _FALL_OF_ITEM * counts.right.shape[1])
    refused, length, iteration, near = False, 1.0, 0, missing is not None
    if coarseness is None:
        coarseness = 1.0 if n <= _FEW else _COARSE
    grid: Points = points(population, ability, most, coarseness=coarseness, wider=wider)
    laid: Population = population
    state: Evaluation = evaluate(counts, ability, population, grid, given_missing=missing)
    for iteration in range(1, max_steps + 1):
        step, gain, concave = _newton_step(state)
        size, change = on_host([xp.abs(step).max(), xp.abs(step[n:]).max()])
        last = near and size < _LAST
        if coarseness <= _FINE and concave and (last or gain < _TOLERANCE):
            if last:
                ability, population = _moved(state, step)
                state = state._replace(ability=ability, population=population)
            return _Maximum(state, grid, iteration, converged=True)
        finer = _next_coarseness(coarseness, gain, change, concave=concave, refused=refused)
        if finer != coarseness or (coarseness <= _FINE and _differ(state.population, laid)):
            # On other points the likelihood differs: it need not rise.
            coarseness, refused, length, laid = finer, False, 1.0, state.population
            grid = points(laid, state.ability, most, coarseness=coarseness, wider=wider)
            state = evaluate(counts, state.ability, laid, grid)
            continue
        length = min(length, _LONGEST / max(size, _TOLERANCE))
        if length < _SHORTEST:
            break
        moved = _moved(state, step * length)
        fresh_grid = grid
        if coarseness > _FINE and not refused:
            fresh_grid = points(moved[1], moved[0], most, coarseness=coarseness, wider=wider)
        fresh = evaluate(counts, *moved, fresh_grid)
        rises = (fresh.objective >= state.objective - fall) & xp.isfinite(fresh.gradient).all()
        refused, length = (False, 1.0) if bool(rises) else (True, length / 2)
        if not refused:
            state, grid = fresh, fresh_grid
    return _Maximum(state, grid, iteration, converged=False)


def _next_coarseness(
    now: float, gain: float, change: float, *, concave: bool, refused: bool
) -> float:
    """Coarseness of the points from the next step on."""
    if now == _COARSE:
        return 1.0 if refused or not concave or gain < _CLOSE else now
    if now <= _FINE:
        return now
    return _FINE if concave and gain < _NEAR and change < _STILL else now


def _differ(population: Population, other: Population) -> bool:
    """Whether points placed for the `other` population do not suit this one."""
    if population.kind == "rasch":
        m1, log_s1 = as_array(population.values - other.values).tolist()
        scale = math.exp(float(other.values[1]))
        return abs(log_s1) > _OTHER or abs(m1) > scale
    m1, log_s1, _, slope, log_s2 = as_array(population.values - other.values).tolist()
    s1, s2 = (math.exp(float(other.values[k])) for k in (1, 4))
    turned = abs(slope) * s1 / s2
    return max(abs(log_s1), abs(log_s2), turned / 4) > _OTHER or abs(m1) > s1


def _two_stage_search(counts: Counts, start: tuple[Array, Population], max_steps: int) -> _Maximum:
    """Approach the maximum on coarse points in single precision, then search as usual.

    The missing information from coarse points is accurate enough: for a normal posterior its
    relative error is about 1e-3.
    """
    xp, n = namespace(start[0]), len(start[0])
    single = xp.float32
    right, trials = (by_columns(cast(x, single)) for x in (counts.right, counts.trials))
    rough = replace(counts, right=right, trials=trials)
    near = _coarse_search(rough, cast(start[0], single), start[1].to(single), max_steps)
    if not bool(xp.isfinite(near.seen.missing).all()):
        return _newton_search(counts, start, max_steps)
    ability, population = near.moved
    begin = cast(ability, start[0]), population.to(start[0].dtype)
    missing = cast(near.seen.missing[:n, :n], start[0])
    maximum = _newton_search(counts, begin, max_steps - near.steps, missing, _FINE)
    state = maximum.state
    at = cast(state.ability, single), state.population.to(single)
    change = xp.concatenate([at[0] - near.seen.ability, at[1].values - near.seen.population.values])
    if float(xp.abs(change).max()) > _KNOWN_FOR:
        grid = points(at[1], at[0], xp.amax(rough.trials, 1), coarseness=_COARSE)
        state.missing[:n, :n] = cast(evaluate(rough, *at, grid).missing[:n, :n], state.missing)
    return maximum._replace(iterations=near.steps + maximum.iterations)


def _coarse_search(
    counts: Counts, ability: Array, population: Population, max_steps: int
) -> _CoarseSearch:
    """Newton steps on coarse points, until one fails to rise or the next promises little."""
    xp, steps = namespace(ability), 0
    most, here = xp.amax(counts.trials, 1), (ability, population)
    grid = points(population, ability, most, coarseness=_COARSE)
    state = evaluate(counts, *here, grid)
    while True:
        step, gain, concave = _newton_step(state)
        moved = _moved(state, step * min(1.0, _LONGEST / float(xp.abs(step).max())))
        if gain < _CLOSE or not concave or steps >= max_steps:
            return _CoarseSearch(state, moved if concave else here, steps)
        steps += 1
        fresh = evaluate(counts, *moved, points(moved[1], moved[0], most, coarseness=_COARSE))
        if not bool(fresh.objective >= state.objective - _FALL_NEAR):
            return _CoarseSearch(state, here, steps)
        state, here = fresh, moved


class _CoarseSearch(NamedTuple):
    """Result of a search on coarse points."""

    seen: Evaluation
    moved: tuple[Array, Population]
    """One step further, where the likelihood is concave."""
    steps: int


def _newton_step(state: Evaluation) -> tuple[Array, float, bool]:
    """Newton step, the rise it predicts, and whether the likelihood is concave.

    Where it is not, absolute curvatures are used, so that the step goes uphill and leaves saddles.
    """
    basis = _identified_directions(state)
    slope = basis.T @ state.gradient
    information = basis.T @ (state.complete - state.missing) @ basis
    step, failed = solve_positive(information, slope)
    gain, bad = on_host([slope @ step, cast(failed, slope)])
    if not bad:
        return basis @ step, gain, True
    xp, curve = namespace(slope), state.complete.diagonal()
    # A model far below chance, or above all items, has hardly any curvature.
    curve = xp.maximum(curve, _NONE * xp.clip(curve.max(), 1e-300, None))
    scale = xp.linalg.cholesky(basis.T * curve @ basis)
    half = solve_triangular(scale, information, upper=False)
    whole = solve_triangular(scale, half.T, upper=False)
    curvature, turn = xp.linalg.eigh((whole + whole.T) / 2)
    slope = solve_triangular(scale, slope[:, None], upper=False)
    along = (turn.T @ slope) / xp.clip(xp.abs(curvature), _FLATTEST, None)[:, None]
    step = solve_triangular(scale.T, turn @ along, upper=True)[:, 0]
    return basis @ step, float((turn.T @ slope * along).sum()), False


def _identified_directions(state: Evaluation) -> Array:
    """Directions that keep the sum of the abilities and m_2, which fixes their scale.

    A hyper-parameter that the likelihood pushes against a bound stays there too.
    """
    n, size = len(state.ability), len(state.gradient)
    fixed = [] if state.population.kind == "rasch" else [2]
    values = state.population.values
    fixed += [
        at for at in _at_bounds(state.population)
        if float(state.gradient[n + at] * (values[at] - sum(_BOUNDS[at]) / 2)) > 0
    ]  # fmt: skip
    kept = zeros((size, 1 + len(fixed)), state.gradient)
    kept[:n, 0] = 1
    for column, at in enumerate(fixed, 1):
        kept[n + at, column] = 1
    return complement(kept)


def _at_bounds(population: Population) -> list[int]:
    """Places of hyper-parameters that are at a bound."""
    values: list[float] = as_array(population.values).tolist()
    return [
        at for at, bounds in _BOUNDS.items()
        if at < len(values) and min(abs(values[at] - bound) for bound in bounds) < _AT_BOUND
    ]  # fmt: skip


def _moved(state: Evaluation, step: Array) -> tuple[Array, Population]:
    n, population = len(state.ability), state.population
    values = population.values + step[n:]
    for at, (low, high) in _BOUNDS.items():
        if at < len(values):
            values[at] = namespace(values).clip(values[at], low, high)
    return state.ability + step[:n], Population(population.kind, values)


def with_common_guessing(
    counts: Counts, kind: Kind, *, dispersion: float | None, max_steps: int
) -> tuple[ItemsIntegratedFit, float, float]:
    """Fit with a chance of guessing that all items share; returns it, and its standard error.

    Its logit has the prior N(logit .2, .5²). Errors of abilities allow for it.
    """
    # Loaded where it is used: it takes a fifth of a second.
    from scipy import optimize

    middle, wide = _GUESSING_PRIOR

    def at(logit: float, *, mended: bool = True) -> ItemsIntegratedFit:
        guess = namespace(counts.right).full_like(counts.right[0], special.expit(logit))
        return items_integrated(
            replace(counts, guess=guess), kind, dispersion=phi, max_steps=max_steps, mended=mended
        )

    def height(fit: ItemsIntegratedFit, logit: float) -> float:
        return fit.objective - ((logit - middle) / wide) ** 2 / 2

    phi = dispersion
    if dispersion is None and counts.fractional:
        phi = at(middle).dispersion
    best: Any = optimize.minimize_scalar(
        lambda x: -height(at(x), x), bounds=_GUESSING, method="bounded", options={"xatol": 0.02}
    )
    x, h = float(best.x), 0.2
    below, fit, above = (at(x + k * h) for k in (-1, 0, 1))
    sides = height(below, x - h) + height(above, x + h)
    variance = h**2 / max(2 * height(fit, x) - sides, h**2 / wide**2)
    moves = (above.ability - below.ability) / (2 * h)
    c = float(special.expit(x))
    fit = at(x, mended=False) if bool((fit.extreme != 0).any()) else fit
    covariance = fit.covariance + variance * moves[:, None] * moves
    return fit._replace(covariance=covariance), c, c * (1 - c) * variance**0.5


def fit_mml_items(
    matrix: ResponseMatrix, counts: Counts, item_model: RaschOr2PL, options: MmlItemsOptions
) -> IRTFit:
    """Marginal maximum likelihood with items integrated out, as an `IRTFit`.

    Raises
    ------
    SelectionError
        Signed discriminations of a Rasch model.
    """
    began = time.perf_counter()
    if options.signed and item_model == "rasch":
        msg = "signed discriminations are of a 2pl, in a rasch model all are 1: leave signed out"
        raise SelectionError(msg)
    kind = "2pl-signed" if options.signed else item_model
    m = counts.right.shape[1]
    guess, guess_error = np.zeros(m), np.full(m, np.nan)
    how: dict[str, Any] = {"dispersion": options.dispersion, "max_steps": options.max_steps}
    if options.estimate_guessing:
        integrated, c, error = with_common_guessing(counts, kind, **how)
        guess, guess_error = np.full(m, c), np.full(m, error)
    else:
        integrated = items_integrated(counts, kind, **how)
        guess = guess if counts.guess is None else as_array(counts.guess)
    notes = [*counts.notes, *dispersion_note(integrated.dispersion)]
    notes += below_chance_note(matrix, guess)
    if integrated.reason:
        notes.append(integrated.reason)
    extreme, guessed = as_array(integrated.extreme), bool(guess.any())
    if extreme.any() and np.isfinite(as_array(integrated.covariance)).all():
        what = "no better than guessing" if guessed else "all wrong"
        notes.append(f"models all right or {what}: abilities as if half an item were otherwise")
    else:
        said = "They take no part in the fit;"
        notes += extremes_note(matrix.models, extreme, said, guessed=guessed)
    item_covariance = as_array(integrated.item_covariance)
    if item_model == "rasch":
        # A slope that is given has no error: what rounding leaves of one is not shown.
        item_covariance[:, 0] = item_covariance[:, :, 0] = 0.0
    item_covariance[:, 0, 0] = np.maximum(item_covariance[:, 0, 0], 0)
    fit = irt_fit(
        matrix,
        item_model=item_model,
        estimator="mml-items",
        ability=integrated.ability,
        covariance=integrated.covariance,
        discrimination=integrated.discrimination,
        difficulty=as_array(integrated.difficulty),
        intercept=integrated.intercept,
        guessing=guess,
        difficulty_std_error=as_array(integrated.difficulty_std_error),
        guessing_std_error=guess_error,
        item_covariance=array_of(item_covariance, integrated.ability),
        predicted=as_array(integrated.probability),
        ability_quantiles=integrated.quantiles,
        identification="abilities sum to 0",
        hyperparameters=integrated.hyperparameters | {"dispersion": integrated.dispersion},
        diagnostics={
            "iterations": integrated.iterations,
            "converged": integrated.converged,
            "log_likelihood": integrated.log_likelihood,
            "rasch_log_likelihood": integrated.rasch_log_likelihood,
            "node_error": integrated.node_error,
            **run_facts(counts, began),
        },
        notes=tuple(notes),
    )
    return replace(fit, notes=(*fit.notes, *discriminations_note(fit)))


def discriminations_note(fit: IRTFit) -> list[str]:
    """Note on a 2PL whose discriminations so few models can hardly estimate."""
    if fit.item_model != "2pl":
        return []
    n, parameters = len(fit.models), fit.hyperparameters
    spread = float(
        parameters.get("log_discrimination_sd", parameters.get("discrimination_sd", 0.0))
    )
    if n <= FEW_MODELS and spread > WIDE:
        return [
            f"discriminations spread widely (sd {spread:.2f}), on the word of {n} models, which "
            "can hardly tell steep items from easy or hard ones: compare with item model rasch"
        ]
    noise = float(np.mean(np.square(fit.discrimination_std_error)))
    told = float(np.var(fit.discrimination))
    share = told / (told + noise) if told + noise > 0 else 0.0
    if share >= LEAST_SHARE:
        return []
    return [
        f"{n} models tell hardly anything of discriminations ({100 * share:.0f} % of their "
        "variance): each is near what all items have in common, and item model rasch says as much"
    ]
