"""Simulated adaptive tests: many models at once, on answers that are known in advance.

* `simulate`: accuracy by selection rule and number of items, for models drawn from a bank
* `run_sessions`: tests of many models; `draw_models`: abilities, items and answers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank, left_out
from evalstats_plugin.adaptive.curves import respond
from evalstats_plugin.adaptive.design import Draws, full_score
from evalstats_plugin.adaptive.scoring import (
    Belief,
    FullScore,
    Scored,
    Shares,
    curves_of,
    eap,
    laplace,
)
from evalstats_plugin.adaptive.selection import (
    DRAWING,
    RANDOM,
    RULE_NAMES,
    Candidates,
    Tables,
    Targets,
    drawn_from,
    pick,
    rule_for,
    worth,
)
from evalstats_plugin.data.results import Results, finite
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.runtime.progress import report_progress
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.streams import stream

_ROUNDING = 1e-9
"""A score on a limit of its interval counts as inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAccuracy:
    """Accuracy of tests by one rule after n items, over the models drawn.

    Intervals are for the population of models.
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("simulation",)

    rule: str
    n_items: int
    n_models: int
    ability_rmse: float
    ability_rmse_low: float
    ability_rmse_high: float
    rank_correlation: float | None
    """Spearman's, of true abilities with estimated ones; None if either does not vary."""
    score_mae: float
    """Mean absolute error of the predicted full score."""
    score_mae_low: float
    score_mae_high: float
    score_width: float
    """Mean width of its interval."""
    score_coverage: float
    ability_coverage: float
    confidence_level: float
    """Of the tests' intervals, and of those of this row."""
    misspecified: float
    """Size of the items' calibration errors as a multiple of their standard errors."""
    notes: tuple[str, ...] = ()


def simulate(
    bank: ItemBank,
    at: Sequence[int],
    rules: Sequence[str] = RULE_NAMES,
    *,
    n_models: int = 200,
    misspecified: float = 1.0,
    confidence_level: float = 0.95,
    rng: int | None = None,
) -> Results[SimulatedAccuracy]:
    """Test models drawn from a bank by each rule.

    Parameters
    ----------
    at
        Test lengths to evaluate. Those above the number of usable items are left out, with a note.
    rules
        ``"auto"``, and names of `RULE_NAMES`.
    n_models
        How many models to draw; every rule tests the same ones.
    misspecified
        Size of the items' calibration errors, see `draw_models`.
    confidence_level
        As for `AdaptiveSession`.

    Raises
    ------
    SelectionError
        No such rule, or a confidence level outside (0, 1).
    DesignError
        The bank has fewer usable items than the shortest test, or a number is too small.
    """
    counts = {"n_models": (n_models, 4), "misspecified": (misspecified, 0)}
    for name, (value, least) in counts.items():
        if not least <= value < np.inf:
            raise DesignError(f"{name} {value:g} is too small: choose {least} or more")
    if not 0 < confidence_level < 1:
        msg = f"confidence_level {confidence_level:g} is not between 0 and 1"
        raise SelectionError(f"{msg}: choose one such as 0.95")
    bank.require_usable()
    for rule in rules:
        rule_for(rule)
    most = int(bank.usable.sum())
    kept = sorted({n for n in at if n <= most})
    if any(n < 1 for n in at) or not at:
        raise DesignError(f"a test of {min(at, default=0)} items asks nothing: choose 1 or more")
    if not kept:
        msg = f"tests of {min(at)} items are longer than the bank, which has {most} to ask"
        raise DesignError(f"{msg}: choose fewer items")
    drawn = draw_models(bank, n_models, misspecified=misspecified, rng=rng)
    run = parallel_map(
        partial(_of_rule, bank, kept, drawn, confidence_level, misspecified, rng), rules
    )
    rows: list[SimulatedAccuracy] = []
    for number, rule in enumerate(rules):
        report_progress(rule, number, len(rules))
        rows += next(run)
    unseen = [str(n) for n in sorted({*at} - {*kept})]
    note = f"only {most} items may be asked: no look after {', '.join(unseen)}"
    return Results(tuple(rows), (*left_out(bank), *bank.notes, *([note] if unseen else [])), rng)


def _of_rule(
    bank: ItemBank,
    at: Sequence[int],
    drawn: Drawn,
    confidence_level: float,
    misspecified: float,
    rng: int | None,
    rule: str,
) -> list[SimulatedAccuracy]:
    """Rows of one rule, one for each number of items."""
    options = SimulationOptions(rule, confidence_level=confidence_level)
    truth, z = drawn.answers.mean(axis=1), normal_quantile(confidence_level)
    rows: list[SimulatedAccuracy] = []
    for point in run_sessions(bank, drawn.answers, at, options, rng=rng).checkpoints:
        estimate, low, high = (values[:, 0] for values in point.full[:3])
        abilities = point.scored.ability
        errors, squares = np.abs(estimate - truth), (abilities - drawn.abilities) ** 2
        mae, half = float(errors.mean()), z * _standard_error(errors)
        mean, half_mean = float(squares.mean()), z * _standard_error(squares)
        holds = (low - _ROUNDING <= truth) & (truth <= high + _ROUNDING)
        holds_ability = (point.low <= drawn.abilities) & (drawn.abilities <= point.high)
        row = SimulatedAccuracy(
            rule=rule,
            n_items=point.n,
            n_models=len(errors),
            ability_rmse=float(np.sqrt(mean)),
            ability_rmse_low=float(np.sqrt(max(mean - half_mean, 0.0))),
            ability_rmse_high=float(np.sqrt(mean + half_mean)),
            rank_correlation=finite(rank_correlation(abilities, drawn.abilities)),
            score_mae=mae,
            score_mae_low=max(mae - half, 0.0),
            score_mae_high=mae + half,
            score_width=float((high - low).mean()),
            score_coverage=float(holds.mean()),
            ability_coverage=float(holds_ability.mean()),
            confidence_level=confidence_level,
            misspecified=misspecified,
        )
        rows.append(row)
    return rows


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


class SimulationOptions(NamedTuple):
    """How simulated sessions choose and score."""

    rule: str = "auto"
    balance: bool = False
    confidence_level: float = 0.95
    fitting: bool = False
    """Whether full scores are by the bank's curves also where items are drawn."""


class Checkpoint(NamedTuple):
    """Estimates of S sessions after n items."""

    n: int
    scored: Scored
    low: FloatArray
    """Limits of the abilities, shape (S,)."""
    high: FloatArray
    full: FullScore
    """Arrays of shape (S, 1 + T)."""


class Simulated(NamedTuple):
    """Estimates on the way, and the items asked."""

    checkpoints: tuple[Checkpoint, ...]
    places: IntArray
    """Items in the order asked, shape (S, n)."""


def run_sessions(
    bank: ItemBank,
    answers: FloatArray,
    at: Sequence[int],
    options: SimulationOptions | None = None,
    *,
    rng: np.random.Generator | int | None = None,
) -> Simulated:
    """Test S models at once, item by item.

    Parameters
    ----------
    answers
        Scores in [0, 1], shape (S, M); an item whose answer is NaN is not asked.
    at
        Numbers of items after which to estimate, ascending.

    Raises
    ------
    DesignError
        A model has fewer answers to usable items than the test asks.
    """
    options = options or SimulationOptions()
    rule = rule_for(options.rule)
    bank = bank.drawable() if rule in DRAWING else bank
    bank.require_usable()
    source = stream(rng, "simulated tests")
    shares, targets = Shares.of(bank), Targets.of(bank) if options.balance else None
    available = np.isfinite(answers) & bank.usable
    least = int(available.sum(axis=1).min(initial=len(bank)))
    if least < max(at):
        msg = f"a model has {least} answers to items that may be asked, fewer than {max(at)}"
        raise DesignError(f"{msg}: ask for fewer, or leave the model out")
    belief, checkpoints = Belief.prior(bank, len(answers)), list[Checkpoint]()
    state = laplace(belief)
    asked = np.zeros(answers.shape, dtype=np.bool_)
    draws = None
    if rule in DRAWING:
        of_drawn = shares.of_items(bank.usable)
        draws = Draws(of_drawn, alike=rule == RANDOM, targets=targets)
    none_waiting = np.zeros((len(answers), 0), dtype=np.int64)
    for n in range(1, max(at) + 1):
        open_items = available & ~asked
        if draws is not None:
            ahead = draws.ahead(belief, curves_of(belief, state), open_items)
            places = drawn_from(ahead.probability, source)
            draws.record(belief, ahead, places, none_waiting)
        else:
            if targets is not None:
                open_items = targets.allowed(open_items, asked)
            candidates = Candidates(belief, Tables.of(bank), lambda state=state: state)
            places = pick(worth(candidates), open_items)
        chosen = places[:, None]
        np.put_along_axis(asked, chosen, values=True, axis=1)
        right = np.take_along_axis(answers, chosen, axis=1)
        belief = belief.answered(chosen, right, np.ones_like(right))
        state = laplace(belief, state)
        if n in at:
            level = options.confidence_level
            drawn = None if options.fitting else draws
            full = full_score(drawn, belief, shares, state, bank.usable, confidence_level=level)
            checkpoints.append(Checkpoint(n, eap(belief), *belief.interval(level), full))
    return Simulated(tuple(checkpoints), belief.places)


class Drawn(NamedTuple):
    """Models drawn from a bank."""

    abilities: FloatArray
    """Shape (S,)."""
    answers: FloatArray
    """0 or 1, shape (S, M)."""


def draw_models(
    bank: ItemBank,
    n_models: int,
    *,
    misspecified: float = 1.0,
    rng: np.random.Generator | int | None,
) -> Drawn:
    """Draw abilities from the bank's prior, true items from their errors, and answers.

    Parameters
    ----------
    misspecified
        Size of the items' calibration errors as a multiple of their standard errors: at 0 the
        items are as the bank has them, at 2 the bank's standard errors are half of what they
        should be.
    """
    source = stream(rng, "simulated models")
    a, both, d = bank.items.spread.T * misspecified**2
    first = source.standard_normal(len(bank)) * np.sqrt(a)
    slope = both / np.where(a > 0, a, np.inf)
    left = np.sqrt(np.maximum(d - slope * both, 0.0))
    second = slope * first + left * source.standard_normal(len(bank))
    truth = replace(
        bank, discrimination=bank.discrimination + first, intercept=bank.intercept + second
    )
    abilities = bank.ability_mean + bank.ability_sd * source.standard_normal(n_models)
    factors = source.standard_normal((n_models, bank.misfit_loadings.shape[1]))
    exact = truth.items._replace(spread=np.zeros((len(bank), 3)))
    p = respond(exact, abilities[:, None], factors @ bank.misfit_loadings.T).probability
    return Drawn(abilities, (source.random(p.shape) < p).astype(np.float64))


def rank_correlation(x: FloatArray, y: FloatArray) -> float:
    """Spearman's rank correlation with midranks; NaN if one side does not vary.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 3.0]))
    0.8660254037844387
    """

    def midranks(values: FloatArray) -> FloatArray:
        _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[group]

    ranks = [midranks(values) for values in (x, y)]
    if min(np.ptp(each) for each in ranks) == 0:
        return float("nan")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
