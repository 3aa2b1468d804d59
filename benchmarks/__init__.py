"""Timings, beside what they replace; ``make bench`` writes them to ``benchmarks/figures.json``."""
