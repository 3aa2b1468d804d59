"""Timings, beside what they replace; their figures are in ``benchmarks/results``."""
