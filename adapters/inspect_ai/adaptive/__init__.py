"""Adaptive tests inside Inspect."""
