"""Adaptive tests inside lm-eval."""
