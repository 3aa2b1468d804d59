"""Hypothesis settings for these tests."""

import os

from hypothesis import HealthCheck, settings

# The same examples on every run, and no time limit on a busy machine.
settings.register_profile(
    "stats",
    derandomize=True,
    deadline=None,
    max_examples=int(os.environ.get("EVALSTATS_EXAMPLES", "12")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("stats")
