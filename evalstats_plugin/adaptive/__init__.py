"""Adaptive testing: what to ask next, when to stop, what the full benchmark would say."""
