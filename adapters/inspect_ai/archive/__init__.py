"""Inspect logs as files: guarded, opened, edited in place."""
