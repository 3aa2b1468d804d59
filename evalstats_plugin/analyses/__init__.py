"""Questions: responses in, results out. Defaults live here; formulas live in ``stats``."""
