"""How right adaptive tests of models drawn from a bank are after n items, rule by rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from evalstats_plugin.adaptive.anchors import Anchors, anchor_points
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import Belief
from evalstats_plugin.adaptive.selection import RULE_NAMES, Tables
from evalstats_plugin.adaptive.simulate import (
    Checkpoint,
    Drawn,
    Options,
    checkpoint,
    draw_models,
    rank_correlation,
    run_sessions,
)
from evalstats_plugin.analyses.adaptive_bank import left_out
from evalstats_plugin.engines import mapped
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.results import Results
from evalstats_plugin.stats.interval import FloatArray, normal_quantile
from evalstats_plugin.wording import no_such

OnRule = Callable[[str, int, int], None]

RAW = "random, raw mean"
ANCHORS = "anchors"
WEIGHTED = "anchors, weighted mean"
PROJECTED = "anchors, projected"
RIVALS = (RAW, ANCHORS)
"""What is no rule: the mean of a random subset, and tinyBenchmarks' anchor points [Pol24]_."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAccuracy:
    """How right tests by one rule are after n items, over the models drawn.

    Intervals are for what many more models would show. None where a rival says nothing.
    """

    rule: str
    n_items: int
    n_models: int
    ability_rmse: float | None = None
    ability_rmse_low: float | None = None
    ability_rmse_high: float | None = None
    rank_correlation: float | None
    """Spearman's, of true abilities and estimated ones, or scores where there are none."""
    rank_correlation_low: float | None = None
    rank_correlation_high: float | None = None
    score_mae: float
    """Mean absolute error of the predicted full score."""
    score_mae_low: float
    score_mae_high: float
    score_width: float | None = None
    """Mean width of its interval."""
    score_coverage: float | None = None
    ability_coverage: float | None = None
    confidence_level: float
    """Of the tests' intervals, and of those of this row."""
    misspecified: float
    """How large the errors of the items are, in those that the bank tells."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What models are drawn, and how they are tested."""

    n_models: int = 200
    misspecified: float = 1.0
    scoring: str = "eap"
    batch: int = 1
    balance: bool = False
    confidence_level: float = 0.95

    def __post_init__(self) -> None:
        for name, least in (("n_models", 4), ("misspecified", 0), ("batch", 1)):
            value = getattr(self, name)
            if not least <= value < np.inf:
                raise DesignError(f"{name} of {value:g} found, expected {least} or more")
        if not 0 < self.confidence_level < 1:
            msg = f"confidence_level of {self.confidence_level:g} found"
            raise SelectionError(f"{msg}, expected one between 0 and 1")

    def options(self, rule: str) -> Options:
        """How sessions go by one rule."""
        content = "tasks" if self.balance else None
        return Options(rule, self.scoring, self.batch, content, None, self.confidence_level)


def simulation(
    bank: ItemBank,
    at: Sequence[int],
    rules: Sequence[str] = ("auto", *RULE_NAMES, *RIVALS),
    *,
    drawing: Drawing | None = None,
    rng: int | None = None,
    on_rule: OnRule | None = None,
) -> Results[SimulatedAccuracy]:
    """Test the same models by every rule, and by what rivals adaptive tests.

    Parameters
    ----------
    at
        Numbers of items after which to look. Those above the number that may be asked are left
        out, with a note.
    rules
        ``"auto"``, and of `RULE_NAMES` and `RIVALS`.

    Raises
    ------
    SelectionError
        No such rule.
    DesignError
        The bank has fewer usable items than the least number, or a count makes no sense.
    """
    known = drawing or Drawing()
    bank.require_usable()
    choices = ("auto", *RULE_NAMES, *RIVALS)
    for rule in rules:
        if rule not in choices:
            raise SelectionError(no_such("rule", rule, choices, ", ".join(choices)))
    most = int(bank.usable.sum())
    kept = sorted({n for n in at if 0 < n <= most})
    if not kept:
        raise DesignError(f"{min(at)} items wanted, the bank has {most} that may be asked")
    drawn = draw_models(bank, known.n_models, misspecified=known.misspecified, rng=rng)
    run = mapped(partial(_of_rule, bank, kept, drawn=drawn, known=known, rng=rng), rules)
    rows: list[SimulatedAccuracy] = []
    for number, rule in enumerate(rules):
        if on_rule is not None:
            on_rule(rule, number, len(rules))
        rows += next(run)
    unseen = [str(n) for n in sorted({*at} - {*kept})]
    note = f"only {most} items may be asked: no look after {', '.join(unseen)}"
    return Results(tuple(rows), (*left_out(bank), *bank.notes, *([note] if unseen else [])), rng)


def _of_rule(
    bank: ItemBank,
    at: Sequence[int],
    rule: str,
    *,
    drawn: Drawn,
    known: Drawing,
    rng: int | None,
) -> list[SimulatedAccuracy]:
    if rule == ANCHORS:
        chosen = [anchor_points(bank, n, rng=rng) for n in at]
        rows = [row for each in chosen for row in _of_anchors(bank, drawn, each, known)]
        return sorted(rows, key=lambda row: row.rule, reverse=True)
    options = known.options("random" if rule == RAW else rule)
    run = run_sessions(bank, drawn.answers, at, options, rng=rng)
    if rule == RAW:
        right = np.take_along_axis(drawn.answers, run.places, axis=1)
        means = [right[:, :n].mean(axis=1) for n in at]
        return [_row(RAW, n, mean, drawn, known) for n, mean in zip(at, means, strict=True)]
    return [_of_checkpoint(rule, found, drawn, known) for found in run.checkpoints]


def _of_anchors(
    bank: ItemBank, drawn: Drawn, anchors: Anchors, known: Drawing
) -> list[SimulatedAccuracy]:
    places = np.tile(anchors.places, (known.n_models, 1))
    right = drawn.answers[:, anchors.places]
    belief = Belief.prior(bank, known.n_models).answered(places, right, np.ones_like(right))
    found = checkpoint(belief, Tables.of(bank), known.options("random"))
    n = len(anchors.places)
    return [
        _row(WEIGHTED, n, right @ anchors.weights, drawn, known),
        _of_checkpoint(PROJECTED, found, drawn, known),
    ]


def _of_checkpoint(rule: str, found: Checkpoint, drawn: Drawn, known: Drawing) -> SimulatedAccuracy:
    estimate, low, high = (values[:, 0] for values in found.full[:3])
    truth = drawn.answers.mean(axis=1)
    inside = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    own = (found.low <= drawn.abilities) & (drawn.abilities <= found.high)
    squares = (found.scored.ability - drawn.abilities) ** 2
    mean = float(squares.mean())
    half = normal_quantile(known.confidence_level) * _standard_error(squares)
    row = _row(rule, found.n, estimate, drawn, known, by=found.scored.ability)
    return replace(
        row,
        ability_rmse=float(np.sqrt(mean)),
        ability_rmse_low=float(np.sqrt(max(mean - half, 0.0))),
        ability_rmse_high=float(np.sqrt(mean + half)),
        score_width=float((high - low).mean()),
        score_coverage=float(inside.mean()),
        ability_coverage=float(own.mean()),
    )


def _row(
    rule: str,
    n: int,
    estimate: FloatArray,
    drawn: Drawn,
    known: Drawing,
    *,
    by: FloatArray | None = None,
) -> SimulatedAccuracy:
    """Row of full scores alone; models are ranked by them, or by what is given."""
    errors = np.abs(estimate - drawn.answers.mean(axis=1))
    z = normal_quantile(known.confidence_level)
    mean, half = float(errors.mean()), z * _standard_error(errors)
    rank, rank_low, rank_high = _rank(estimate if by is None else by, drawn.abilities, z)
    return SimulatedAccuracy(
        rule=rule,
        n_items=n,
        n_models=known.n_models,
        rank_correlation=rank,
        rank_correlation_low=rank_low,
        rank_correlation_high=rank_high,
        score_mae=mean,
        score_mae_low=max(mean - half, 0.0),
        score_mae_high=mean + half,
        confidence_level=known.confidence_level,
        misspecified=known.misspecified,
    )


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _rank(
    x: FloatArray, y: FloatArray, z: float
) -> tuple[float | None, float | None, float | None]:
    """Spearman's correlation with its interval by Fisher's transformation [BW00]_."""
    found = rank_correlation(x, y)
    if not np.isfinite(found):
        return None, None, None
    error = np.sqrt((1 + found**2 / 2) / (len(x) - 3))
    middle = np.arctanh(np.clip(found, -1 + 1e-12, 1 - 1e-12))
    return found, float(np.tanh(middle - z * error)), float(np.tanh(middle + z * error))
