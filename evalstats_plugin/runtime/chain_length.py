"""Number and length of the Markov chains of a sampler; loads nothing, for records of options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ChainLength:
    """Number of Markov chains and of their draws."""

    chains: int = 4
    draws: int = 1000
    """Draws kept of each chain."""
    warm_up: int = 300
    """Draws discarded of each chain, during which samplers adapt."""
