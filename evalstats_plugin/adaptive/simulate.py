"""Adaptive tests of many models at once, on answers that are known already.

Answers are drawn from a bank, or real ones set aside: what would have been estimated after n items?
"""
# PART exposure - How often items may be asked, so that no item is seen by more than a share of the models.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import respond
from evalstats_plugin.adaptive.scoring import Belief, FullScore, Scored, laplace, project, score
from evalstats_plugin.adaptive.selection import (
    Candidates,
    Content,
    Exposure,
    SympsonHetter,
    Tables,
    Targets,
    eligible,
    pick,
    preferring,
    rule_for,
    worth,
)
from evalstats_plugin.errors import DesignError
from evalstats_plugin.stats.arrays import FloatArray, IntArray

_ROUNDS = 14


_AIM = 0.95
"""Of the share asked for: the counts are chance in part, and the largest should keep to it."""


_FULL_STEPS = 4
"""Rounds before steps become shorter: by then only chance is left in the counts."""


class Checkpoint(NamedTuple):
    """What S sessions say after n items."""

    n: int
    scored: Scored
    low: FloatArray
    """Limits of the abilities, shape (S,)."""
    high: FloatArray
    full: FullScore
    """Arrays of shape (S, 1 + T)."""


class Options(NamedTuple):
    """How simulated sessions choose and score."""

    rule: str = "auto"
    scoring: str = "eap"
    batch: int = 1
    content: Content = None
    exposure: Exposure = None
    confidence_level: float = 0.95


class Simulated(NamedTuple):
    """Sessions and what was known on the way."""

    checkpoints: tuple[Checkpoint, ...]
    places: IntArray
    """Items in the order asked, shape (S, n)."""


def run_sessions(
    bank: ItemBank,
    answers: FloatArray,
    at: Sequence[int],
    options: Options | None = None,
    *,
    rng: np.random.Generator | int | None = None,
) -> Simulated:
    """Test S models, one axis of one array, item by item.

    Parameters
    ----------
    answers
        Scores in [0, 1], shape (S, M); NaN where there is none, which is not asked.
    at
        Numbers of items after which to look, ascending.

    Raises
    ------
    DesignError
        A model has fewer answers to usable items than are to be asked.
    """
    bank.require_usable()
    known = options or Options()
    source = np.random.default_rng(rng)
    rule = rule_for(bank, known.rule)
    tables, targets = Tables.of(bank), Targets.of(bank, known.content, known.rule)
    available = np.isfinite(answers) & bank.usable
    least = int(available.sum(axis=1).min(initial=len(bank)))
    if least < max(at):
        msg = f"a model has {least} answers to items that may be asked, of which {max(at)} are"
        raise DesignError(f"{msg} wanted: ask for fewer, or leave the model out")
    belief, state, found = Belief.prior(bank, len(answers)), None, list[Checkpoint]()
    may_be_asked = eligible(known.exposure, answers.shape, source)
    asked = np.zeros(answers.shape, dtype=np.bool_)
    while belief.places.shape[1] < max(at):
        n = belief.places.shape[1]
        size = min(known.batch, min(stop for stop in at if stop > n) - n)
        candidates = Candidates.of(belief, tables, source, state)
        chosen = list[IntArray]()
        for k in range(size):
            allowed = preferring(available & ~asked, may_be_asked)
            allowed = allowed if targets is None else targets.allowed(allowed, asked)
            values = worth(candidates, rule, n + k)
            chosen.append(pick(values, allowed, known.exposure, source))
            asked |= np.arange(len(bank)) == chosen[-1][:, None]
            if k + 1 < size:
                candidates = candidates.expecting(chosen[-1])
        places = np.stack(chosen, axis=1)
        right = np.take_along_axis(answers, places, axis=1)
        belief, state = belief.answered(places, right, np.ones_like(right)), candidates.state
        if belief.places.shape[1] in at:
            found.append(checkpoint(belief, tables, known))
    return Simulated(tuple(found), belief.places)


def checkpoint(belief: Belief, tables: Tables, options: Options) -> Checkpoint:
    """Look at sessions as they are."""
    low, high = belief.interval(options.confidence_level)
    full = project(
        belief, tables.shares, state=laplace(belief), confidence_level=options.confidence_level
    )
    return Checkpoint(belief.places.shape[1], score(belief, options.scoring), low, high, full)


class Drawn(NamedTuple):
    """Models drawn from a bank."""

    abilities: FloatArray
    """Shape (S,)."""
    answers: FloatArray
    """0 or 1, shape (S, M)."""
    items: ItemBank
    """The bank with the parameters that the answers were drawn from."""


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
        How large the items' errors are, in those that the bank tells: at 0 the items are as the
        bank has them, at 2 it is twice too sure of them.
    """
    source = np.random.default_rng(rng)
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
    return Drawn(abilities, (source.random(p.shape) < p).astype(np.float64), truth)


def rank_correlation(x: FloatArray, y: FloatArray) -> float:
    """Spearman's, ties sharing their mean rank; NaN where one does not vary.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 3.0]))
    0.8660254037844387
    """
    ranks = [_mean_ranks(values) for values in (x, y)]
    if min(np.ptp(each) for each in ranks) == 0:
        return float("nan")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


class Accuracy(NamedTuple):
    """How right sessions are after n items."""

    rule: str
    n: int
    ability_rmse: float
    """Against the abilities given."""
    rank_correlation: float
    """Spearman's, of abilities."""
    score_mae: float
    """Mean absolute error of the full score."""
    score_width: float
    score_coverage: float
    """Share of models whose interval holds their full score."""
    ability_coverage: float


def accuracy(
    bank: ItemBank,
    answers: FloatArray,
    abilities: FloatArray,
    at: Sequence[int],
    options: Options | None = None,
    *,
    rng: np.random.Generator | int | None = None,
) -> list[Accuracy]:
    """Run sessions on known answers, and hold what they say against all answers.

    Parameters
    ----------
    answers
        Scores, shape (S, M), none missing.
    abilities
        True, or by all answers; shape (S,).
    """
    known = options or Options()
    run = run_sessions(bank, answers, at, known, rng=rng)
    truth = answers.mean(axis=1)
    return [_accuracy(known.rule, each, abilities, truth) for each in run.checkpoints]


def _accuracy(rule: str, found: Checkpoint, abilities: FloatArray, truth: FloatArray) -> Accuracy:
    estimate, low, high = (values[:, 0] for values in found.full[:3])
    inside = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    own = (found.low <= abilities) & (abilities <= found.high)
    return Accuracy(
        rule,
        found.n,
        float(np.sqrt(np.mean((found.scored.ability - abilities) ** 2))),
        rank_correlation(found.scored.ability, abilities),
        float(np.abs(estimate - truth).mean()),
        float((high - low).mean()),
        float(inside.mean()),
        float(own.mean()),
    )


def _mean_ranks(values: FloatArray) -> FloatArray:
    _, own, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[own]


def exposure_control(
    bank: ItemBank,
    n_items: int,
    *,
    most: float = 0.25,
    options: Options | None = None,
    n_models: int = 400,
    rng: np.random.Generator | int | None = None,
) -> SympsonHetter:
    """Find with what probability to ask chosen items, so that few models see the same [SH85]_.

    Rounds of simulated tests. An item's probability is made smaller by as much as it was seen too
    often, which lets the next best items in, whose turn is in the next round.

    Parameters
    ----------
    n_items
        Of a test.
    most
        Share of models that may see an item.

    Raises
    ------
    DesignError
        The share is none, or so small that there are too few items for all models.
    """
    if not 0 < most <= 1:
        raise DesignError(f"share {most} of models that may see an item, expected 0 to 1")
    usable = int(bank.usable.sum())
    if n_items > most * usable:
        msg = f"{n_items} items a test of {usable} that may be asked are a share of"
        least = n_items / max(usable, 1)
        raise DesignError(f"{msg} {least:.2f} at the least, expected at most {most:g}: allow more")
    source = np.random.default_rng(rng)
    probability = np.ones(len(bank))
    known = options or Options()
    for number in range(_ROUNDS):
        answers = draw_models(bank, n_models, rng=source).answers
        control = known._replace(exposure=SympsonHetter(probability))
        places = run_sessions(bank, answers, (n_items,), control, rng=source).places
        seen = np.bincount(places.ravel(), minlength=len(bank)) / n_models
        wanted = np.minimum(_AIM * most * probability / np.maximum(seen, 1e-9), 1.0)
        step = 1 / max(number - _FULL_STEPS + 2, 1)
        probability = probability ** (1 - step) * wanted**step
    return SympsonHetter(probability)
