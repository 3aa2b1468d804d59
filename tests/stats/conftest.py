"""Hypothesis settings for these tests."""

from hypothesis import settings

# The same examples on every run, and no time limit on a busy machine.
settings.register_profile("stats", derandomize=True, deadline=None)
settings.load_profile("stats")
