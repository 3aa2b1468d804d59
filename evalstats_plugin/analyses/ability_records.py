"""What a fitted scale of abilities says of each model and item, as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalstats_plugin.results import Comparison, Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """How able one model is, on a scale that it shares with the others.

    Numbers are finite or ``None``, never NaN.
    """

    model: str
    task: str
    """Names of the tasks whose items make the scale, joined by commas."""
    metric: str
    n_items: int
    """Items of these that the model took."""
    n_models: int
    """On the scale."""
    score: float | None
    """Mean over the items taken, each the mean of its epochs."""
    estimate: float | None
    """The ability, θ."""
    low: float | None
    high: float | None
    std_error: float | None
    confidence_level: float
    item_model: str
    estimator: str
    scale: str
    """What fixes it, such as ``"abilities sum to 0"``."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEstimate:
    """How hard one item is, how well it tells models apart, and whether it fits.

    Numbers are finite or ``None``, never NaN.
    """

    item: str
    task: str
    metric: str
    n_models: int
    """That took it."""
    score: float | None
    """Mean over models and epochs."""
    difficulty: float | None
    difficulty_std_error: float | None
    discrimination: float | None
    discrimination_std_error: float | None
    guessing: float | None
    infit: float | None
    """Noise of the answers over what the model expects, those near the item's level counting most.
    """
    outfit: float | None
    """The same with all answers counting alike."""
    item_rest: float | None
    """Correlation with the models' means on the other items."""
    notes: tuple[str, ...] = ()
    """Why a person should look at it, the gravest first; empty for most items."""


@dataclass(frozen=True)
class Abilities(Results[Ability]):
    """The models, the ablest first, and what goes with them."""

    items: tuple[ItemEstimate, ...] = ()
    """Those to look at first; empty where they were not asked for."""
    differences: tuple[Comparison, ...] = ()
    """Of the other models' abilities to the baseline's."""
    fit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was fitted and how: see `IRTFit.summary`."""

    @property
    def flagged(self) -> tuple[ItemEstimate, ...]:
        """Items that a person should look at."""
        return tuple(item for item in self.items if item.notes)
