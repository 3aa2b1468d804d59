"""How a session chooses and stops, and the lines it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from evalstats_plugin.adaptive.constraints import Content, Exposure
from evalstats_plugin.adaptive.stopping import StopRule


class ScoreEstimate(NamedTuple):
    """A score on all items of the benchmark, or of a task of it."""

    estimate: float
    low: float
    high: float


class Step(NamedTuple):
    """One line of a session's trace."""

    n: int
    task: str
    item: str
    score: float
    trials: float
    ability: float
    std_error: float
    full_score: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a session chooses, scores and stops."""

    rule: str = "auto"
    stop: tuple[StopRule, ...] = ()
    scoring: str = "eap"
    batch: int = 1
    content: Content = None
    exposure: Exposure = None
    confidence_level: float = 0.95
