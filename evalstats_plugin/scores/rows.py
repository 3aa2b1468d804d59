"""Records of scores with intervals, and of the variance between and within items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.results import INSIDE, Results

NO_METHOD = "none"
"""Method of a row that has no interval."""

ADAPTIVE = "adaptive"
"""Method of a row that an adaptive test predicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreInterval:
    """One score with its interval: a model on a task (or group of tasks) under a metric.

    Numbers are finite or ``None``, never NaN. ``std_error`` is s/√n, the number harnesses
    log, and ``None`` where the scores do not vary: 15 right out of 15 is not certainty.
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("intervals",)
    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "n_items", "estimate", "low", "high", "method",
    )  # fmt: skip

    model: str
    task: str
    metric: str
    n_items: int
    n_epochs: int = 1
    n_missing: int = 0
    n_clusters: int | None = None
    estimate: float | None
    low: float | None
    high: float | None
    std_error: float | None
    method: str
    confidence_level: float
    notes: tuple[str, ...] = ()
    kind: str = "task"
    """``"task"`` or ``"group"``."""
    depth: int = 0
    """How many groups enclose it in this log: the indent of a table."""
    higher_is_better: bool | None = None
    logged: float | None = None
    """The value the harness wrote."""
    logged_std_error: float | None = None
    log: str = ""
    """The log it was read from."""
    missing_low: float | None = None
    """Where items have no score: limits that hold the score whatever those items would have had
    (Imbens and Manski's)."""
    missing_high: float | None = None
    low_unseen: float | None = None
    """Limits of partial credit if one more item had the least possible score, and if it had the
    greatest: what so few items cannot show."""
    high_unseen: float | None = None
    estimand: Literal["items", "clusters"] = "items"
    """What counts alike in the mean: every item, or every cluster of items."""
    population: str = "new items like these"
    """What the interval is for."""
    naive_low: float | None = None
    """Where items come in clusters: the limits if they were independent."""
    naive_high: float | None = None
    design_effect: float | None = None
    """How many times larger clusters make the variance of the estimate."""
    measure: Measure | None = field(default=None, repr=False, metadata={INSIDE: Measure.to_dict})
    """What the score is: its metric and scale, and how these are known."""
    icc: float | None = None
    """Intra-cluster correlation, by analysis of variance: how much more alike items of one cluster
    are than others, 0 for no more and 1 where all items of a cluster have the same score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedScore(ScoreInterval):
    """A judge's mean score of a model, corrected by people's labels on a part of the items.

    ``n_items`` are those with a label, and the rest is of the corrected score.
    """

    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "n_items", "n_judged", "judged", "estimate", "low", "high",
    )  # fmt: skip

    judge: str
    """Metric of the judge, or that it is the mean of several."""
    n_judged: int
    """Items that the judge scored."""
    judged: float | None
    """The judge's own mean; None where people score on another scale."""
    weight: float | None
    """λ: what the judge's score counts."""
    worth: float | None
    """How many times as many labels would be needed without the judge."""
    n_more: int
    """Further labels that `half_width_more` is for."""
    half_width_more: float | None
    """About what half the width of the interval would be with these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePart:
    """Variance of one score between and within items, and standard errors with more of either.

    ``between`` items and ``within`` them (of one epoch around its item's true mean) are unbiased;
    the former may be below 0. ``None`` where no item has two epochs, or nothing varies.
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("variance parts",)

    model: str
    task: str
    metric: str
    n_items: int
    n_epochs: int
    estimate: float | None
    between: float | None
    within: float | None
    share_within: float | None
    """Share of the variance of a single epoch."""
    std_error: float | None
    std_error_more_epochs: float | None
    """With twice as many epochs."""
    std_error_more_items: float | None
    """With twice as many items."""
    notes: tuple[str, ...] = ()


Intervals = Results[ScoreInterval]
VarianceParts = Results[VariancePart]


Outcome = Literal["won", "lost", "both right", "neither", "better", "worse", "same"]
"""Of a model against another on one item: the first four where both scores are right or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemComparison:
    """How two models did on one item of a task; texts are empty where the logs have none."""

    shown: ClassVar[tuple[str, ...]] = (
        "task", "metric", "item", "model_b", "model_a", "outcome", "score_a", "score_b", "others",
        "question", "target", "answer_a", "answer_b", "where",
    )  # fmt: skip

    task: str
    metric: str
    item: str
    model_a: str
    model_b: str
    score_a: float
    """Means over the epochs that were scored."""
    score_b: float
    difference: float
    """Score of b minus that of a."""
    outcome: Outcome
    """Of b."""
    others: float | None = None
    """Mean score of the other models."""
    question: str = ""
    target: str = ""
    answer_a: str = ""
    answer_b: str = ""
    log_a: str = ""
    """Path of the log of a."""
    log_b: str = ""
    where: str = ""
    """The item's place in these logs, such as ``"doc_id 17"`` or ``"sample abc, epoch 1"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCounts:
    """How often each outcome occurs among the items of a task."""

    task: str
    metric: str
    n_items: int
    difference: float
    """Mean of b's scores minus that of a's."""
    outcomes: tuple[tuple[Outcome, int], ...]


@dataclass(frozen=True)
class ItemComparisons(Results[ItemComparison]):
    """Two models item by item, the most telling items first."""

    counts: tuple[OutcomeCounts, ...] = ()
    """By task and metric, over all items whatever rows there are."""
    n_flipped: int = 0
    """Items, of the first metric of each task, on which the models differ."""
