"""Claims of the five sources of this package, each run again: ``python -m benchmarks.seeds``."""
