"""Differences of two models: paired and unpaired, all pairs at once, and the power to find them."""
