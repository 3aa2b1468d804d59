"""How long will a fit take? Said before a long one starts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from evalstats_plugin.analyses.ability_choice import choose

_MICROSECONDS: Mapping[str, float] = MappingProxyType(
    {
        "mml-items": 9.0, "mml": 1.0, "cml-items": 2.0, "cml": 30.0, "map": 2.5, "jml": 3.0,
        "vi": 30.0, "mcmc": 1800.0, "factor": 50.0, "beta": 20.0,
    }
)  # fmt: skip
"""For each model and item, on one core, defaults taken: 50 to 1,000 models and items timed."""

_STEPS = ((90.0, 1.0, "seconds"), (5400.0, 60.0, "minutes"), (float("inf"), 3600.0, "hours"))


def expected_seconds(
    item_model: str, estimator: str, response: str, n_models: int, n_items: int
) -> float:
    """Estimate the time of a fit to full data of this size, right within a factor of about 3."""
    name = choose(item_model, estimator, response, (n_models, n_items), {}).estimator
    kind = item_model if item_model == "factor" else response if response == "beta" else name
    return 1e-6 * _MICROSECONDS[kind] * n_models * n_items


def in_words(seconds: float) -> str:
    """Say how long, as roughly as it is known.

    >>> in_words(47.3), in_words(1000)
    ('about 50 seconds', 'about 20 minutes')
    """
    if seconds <= 1:
        return "a second or less"
    _, unit, name = next(step for step in _STEPS if seconds < step[0])
    count = float(f"{max(seconds / unit, 1):.1g}")
    return f"about {count:g} {name}"
