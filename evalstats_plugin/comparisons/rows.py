"""Records of comparisons, sets of ranks, and answers of power analyses."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Literal

from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.results import INSIDE, Results
from evalstats_plugin.scores.rows import VariancePart
from evalstats_plugin.stats.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Difference of two models on one task under one metric, with interval and p-value.

    Numbers are finite or ``None``, never NaN. Both models are compared on the ``n_items`` items
    that have a score of both; of independent samples it is the smaller number.
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("comparisons",)
    shown: ClassVar[tuple[str, ...]] = (
        "task", "metric", "model_b", "model_a", "n_items", "difference", "low", "high",
        "p_adjusted", "prob_better", "verdict",
    )  # fmt: skip

    model_a: str
    """The baseline, where there is one."""
    model_b: str
    task: str
    metric: str
    n_items: int
    difference: float | None
    """Score of b minus that of a."""
    low: float | None
    """Limits that hold the true differences of the whole family at once; of this pair alone with
    the corrections ``"bh"`` and ``"none"``. They leave out no difference exactly where `p_adjusted`
    is at most 1 - `confidence_level`; a limit at 0 is then not in the interval."""
    high: float | None
    p_value: float | None
    """Two-sided, of no difference, of this pair alone."""
    p_adjusted: float | None
    """The same, corrected for all pairs of the family."""
    low_single: float | None = None
    """Limits of this pair alone, which belong to `p_value`."""
    high_single: float | None = None
    low_unseen: float | None = None
    """Limits if one more item had gone entirely for a (`low_unseen`), or for b: what so few items
    cannot show. None where scores have no bounds."""
    high_unseen: float | None = None
    low_guarded: float | None = None
    """Limits for non-inferiority, of pairs with a baseline: they allow for one more item like the
    worst seen, or the best."""
    high_guarded: float | None = None
    std_error: float | None = None
    """Of the difference, clustered where items come in clusters."""
    correlation: float | None = None
    """Of the two models' scores over the items [Mil24]_."""
    n_wins: int | None = None
    """Items on which b is better, `n_ties` as good, `n_losses` worse."""
    n_ties: int | None = None
    n_losses: int | None = None
    prob_better: float | None
    """Probability that b is truly better: a higher score, or a lower one where lower is better."""
    prior: str = ""
    """Prior of `prob_better`, or what it was shrunk over; ``"none"`` for a tail of the distribution
    that has the limits of the pair alone as quantiles."""
    method: str
    """Method of the pair alone."""
    confidence_level: float
    notes: tuple[str, ...] = ()
    higher_is_better: bool | None = None
    family: str = ""
    """What was corrected together."""
    procedure: str = ""
    """How the limits and p-values of all pairs at once were made."""
    a_may_be_first: bool | None = None
    """Whether a, and b, may truly be the best of the task; None unless all pairs were compared."""
    b_may_be_first: bool | None = None
    n_missing: int = 0
    """Items that both models ran and that lack a score of at least one of them."""
    missing_low: float | None = None
    """Limits that hold the difference whatever the missing scores would have been, allowing for
    all pairs; of pairs with a verdict, and of all with the rule ``"bounds"``."""
    missing_high: float | None = None
    tipping_point: float | None = None
    """Where these limits hold 0 and the others do not: the share of the missing scores, about, that
    must go against the model that is ahead for the verdict to fall; the rest as those there are."""
    kind: str = "task"
    """``"task"``, ``"group"``, ``"overall"`` for the mean of all tasks, or ``"tasks"``: the tasks
    themselves are the sample."""
    part_of: str = ""
    """The innermost row that this one counts in: a group, or the overall score."""
    score_a: float | None = None
    """Score of a on the items that both answered; `difference` is `score_b` less it."""
    score_b: float | None = None
    effect: str = "difference"
    """What `difference` and its limits are: or the ``"ratio"`` b : a, or ``"odds ratio"``."""
    measure: Measure | None = field(default=None, repr=False, metadata={INSIDE: Measure.to_dict})
    """What was compared: the scores' metric and scale."""

    @property
    def verdict(self) -> Literal["better", "worse", "unclear"]:
        """Whether b is better or worse than a, by the adjusted p-value and its limits."""
        if self.p_adjusted is None or self.p_adjusted > 1 - self.confidence_level:
            return "unclear"
        if self.effect != "difference":
            # An infinite ratio is None.
            return "better" if (self.prob_better or 0) > 0.5 else "worse"
        if not self.difference:
            return "unclear"
        return "better" if (self.difference > 0) != (self.higher_is_better is False) else "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceComparison(Comparison):
    """Difference of two models on one slice; its family are all slices and pairs of the task."""

    drawn_as: ClassVar[tuple[str, ...]] = ()
    shown: ClassVar[tuple[str, ...]] = (
        "task", "metric", "slice", "model_b", "model_a", "n_items", "difference", "low", "high",
        "p_adjusted", "verdict", "p_interaction",
    )  # fmt: skip

    by: str
    slice: str
    p_interaction: float | None
    """Two-sided, that the difference is the same here as on the other items, adjusted over all
    slices and pairs of the task; of values like those of a setting, that it is the same at all."""
    std_between: float | None = None
    """Of values like those of a setting: standard deviation of the difference between values.
    `prob_better` is the probability that b is better at another value."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ColumnPairs:
    """Every two models on one task or group, with the limits and verdicts behind their ranks."""

    task: str
    kind: str
    """``"task"``, ``"group"`` or ``"overall"``."""
    models: tuple[str, ...]
    a: IntArray
    """Shape (P,): places of the first models of the pairs; `b`, of the second."""
    b: IntArray
    n_items: IntArray
    """Shape (P,): items with a score of both."""
    difference: FloatArray
    """Shape (P,): score of b minus that of a; NaN where nothing can be compared."""
    low: FloatArray
    """Shape (P,): limits that hold for all pairs of all columns at once; NaN where there are
    none."""
    high: FloatArray
    low_single: FloatArray
    """Shape (P,): limits of the pair alone, for one chosen before the scores were seen; NaN where
    they were not computed."""
    high_single: FloatArray
    p_adjusted: FloatArray
    """Shape (P,): p-values that belong to `low` and `high`."""
    verdict: IntArray
    """Shape (P,): 1 where b is better than a beyond chance, -1 where it is worse, else 0."""
    independent: bool = False
    """Whether the models were taken as independent samples, not item by item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSet:
    """Ranks that a model may have on one task under one metric, 1 being the best."""

    drawn_as: ClassVar[tuple[str, ...]] = ("rank sets",)
    shown: ClassVar[tuple[str, ...]] = (
        "task", "metric", "model", "best_rank", "worst_rank", "letters", "may_be_first",
        "prob_best",
    )  # fmt: skip

    model: str
    task: str
    metric: str
    n_models: int
    best_rank: int
    worst_rank: int
    confidence_level: float
    """Joint level of all sets of the task."""
    letters: str = ""
    """Models of the task that share a letter cannot be told apart; others can."""
    may_be_first: bool = False
    """Whether the model may truly be the best: narrower than `best_rank`, which says so of all."""
    prob_best: float | None = None
    """Posterior probability of the highest true score, or the lowest where lower is better."""
    notes: tuple[str, ...] = ()


SEQUENTIAL = "confidence-sequence"
"""The method of sequential comparisons, which one may look at again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """An answer of a power analysis, for two models on one task.

    ``quantity`` names the field that was asked for, which is ``None`` where no value is enough; the
    others were given. Task, metric and models are empty where all comes from assumptions.
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("variance parts",)
    shown: ClassVar[tuple[str, ...]] = (
        "task", "metric", "model_a", "model_b", "n_items", "n_epochs", "difference", "power",
        "method",
    )  # fmt: skip

    quantity: Literal["n_items", "n_epochs", "n_models", "n_tasks", "difference", "power"]
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
    margin: float | None = None
    """Where non-inferiority is to be shown: the drop that is acceptable. `difference` is then the
    true gain of b."""
    discordance: float | None = None
    """Share of items that only one of the two models gets right."""
    between: float | None = None
    """Variance of the difference between items, and `within` them in one epoch, of both models."""
    within: float | None = None
    design_effect: float | None = None
    """How many times larger clusters make the variance."""
    pilot_items: int | None = None
    """Items of the logs that the assumptions were estimated from."""
    n_tasks: int | None = None
    """Tasks of a random sample, with `n_items` items each; None for other designs."""
    low: float | None = None
    """Limits of the answer, 5 % of errors of the pilot beyond each; None for assumptions, or where
    no value is enough."""
    high: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparisons(Results[Comparison]):
    """Comparisons of models: printed, or in a notebook, the answer and a table of each question."""

    @property
    def answer(self) -> str:
        """Who is better, in sentences, over all tasks where they have a score together."""
        return " ".join(self._report().answer(self.rows))

    def __str__(self) -> str:
        return self._report().comparisons_text(self)

    def _repr_html_(self) -> str:
        return self._report().comparisons_html(self)

    @staticmethod
    def _report() -> Any:
        # Loaded on use: results know nothing of how they are shown, but for this door.
        return import_module("evalstats_plugin.report.comparisons")


RankSets = Results[RankSet]


@dataclass(frozen=True)
class PowerRows(Results[PowerRow]):
    """Answers of a power analysis, with the variance parts of the pilot."""

    parts: tuple[VariancePart, ...] = ()
