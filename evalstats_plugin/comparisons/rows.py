"""What comparisons return: comparisons, rank sets, power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evalstats_plugin.data.results import Results
from evalstats_plugin.scores.rows import VariancePart


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Is model b better than model a, on one task under one metric, and by how much?

    Numbers are finite or ``None``, never NaN. Both models are judged on the ``n_items`` items
    that have a score of both.
    """

    model_a: str
    """The baseline, where there is one."""
    model_b: str
    task: str
    metric: str
    n_items: int
    difference: float | None
    """Score of b minus that of a."""
    low: float | None
    high: float | None
    p_value: float | None
    """Of no difference, two-sided."""
    p_adjusted: float | None
    """The same, for all pairs of this task and metric together."""
    low_adjusted: float | None = None
    """Limits that hold the true differences of all these pairs at once, with the confidence level.

    None with a correction that has none (``"bh"``, ``"none"``). The verdict goes by `p_adjusted`,
    which steps down and so finds a little more than these limits show.
    """
    high_adjusted: float | None = None
    prob_better: float | None
    """That b is truly better: a higher score, or a lower one where lower is better."""
    method: str
    """Of the interval."""
    confidence_level: float
    notes: tuple[str, ...] = ()
    higher_is_better: bool | None = None
    kind: str = "task"
    """``"task"``, ``"group"``, or ``"tasks"``: the tasks themselves are the sample."""
    measure: str = "difference"
    """What `difference` and its limits are: or the ``"ratio"`` b : a, or the ``"odds ratio"``."""

    @property
    def verdict(self) -> Literal["better", "worse", "unclear"]:
        """Whether b is better or worse than a beyond chance, all pairs of the task considered."""
        if self.p_adjusted is None or self.p_adjusted > 1 - self.confidence_level:
            return "unclear"
        if self.measure != "difference":
            # A ratio may be infinite, and so not be there.
            return "better" if (self.prob_better or 0) > 0.5 else "worse"
        if not self.difference:
            return "unclear"
        return "better" if (self.difference > 0) != (self.higher_is_better is False) else "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSet:
    """Which ranks a model can have on one task under one metric, 1 being the best."""

    model: str
    task: str
    metric: str
    n_models: int
    best_rank: int
    worst_rank: int
    confidence_level: float
    """Of all sets of the task together."""
    letters: str = ""
    """Two models of the task that share a letter cannot be told apart; two that share none can."""
    prob_best: float | None = None
    """Posterior probability of the highest true score, or the lowest where lower is better."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """What it takes to find a difference between two models.

    ``quantity`` names the field that was asked for, which is ``None`` where nothing will do; the
    others were given. Task, metric and models are empty where all comes from assumptions.
    """

    quantity: Literal["n_items", "n_epochs", "n_models", "difference", "power"]
    task: str = ""
    metric: str = ""
    model_a: str = ""
    model_b: str = ""
    design: Literal["paired", "unpaired"]
    """Whether both models answer the same items, or as many different ones each."""
    n_items: int | None
    n_epochs: int | None
    n_models: int | None
    """Models compared, every two of them: the test allows for all pairs (Bonferroni)."""
    difference: float | None
    power: float | None
    """Probability to find the difference."""
    confidence_level: float
    method: str
    discordance: float | None = None
    """Share of items that only one of the two models gets right."""
    between: float | None = None
    """Variance of the difference between items, and `within` them in one epoch, of both models."""
    within: float | None = None
    design_effect: float | None = None
    """How many times larger clusters make the variance."""
    pilot_items: int | None = None
    """Items of the logs that the assumptions were estimated from."""
    notes: tuple[str, ...] = ()


Comparisons = Results[Comparison]


RankSets = Results[RankSet]


@dataclass(frozen=True)
class PowerRows(Results[PowerRow]):
    """Answers of a power analysis, with the variance parts of the pilot."""

    parts: tuple[VariancePart, ...] = ()
