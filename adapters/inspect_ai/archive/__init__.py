"""Inspect logs as files: recognised, read within limits, edited in place."""
