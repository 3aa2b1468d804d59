"""How a session chooses, scores and stops."""

from __future__ import annotations

from dataclasses import dataclass

from evalstats_plugin.adaptive.constraints import Content, Exposure
from evalstats_plugin.adaptive.stopping import StopRule


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
