"""Fit mirt's data Science, and put the figures into fixtures/golden/ordered.json beside mirt's.

python tests/generate/ordered.py science.csv, with a header and 392 rows of four levels; in R
write.csv(mirt::Science, "science.csv", row.names = FALSE).
"""

import json
import sys
from pathlib import Path

import numpy as np

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import fit_irt, m2

FILE = Path(__file__).parents[2] / "fixtures" / "golden" / "ordered.json"


def figures(scores, item_model):
    """Log-likelihood, discriminations with errors, intercepts on the scale of mirt, and C2."""
    matrix = ResponseMatrix.from_array(scores)
    fit = fit_irt(matrix, item_model, zero="models")
    d = -fit.discrimination[:, None] * fit.steps
    d = d if item_model == "graded" else np.cumsum(d, axis=1)
    return {
        "log_likelihood": fit.diagnostics["log_likelihood"],
        "converged": fit.diagnostics["converged"],
        "a": fit.discrimination.tolist(),
        "a_std_error": fit.discrimination_std_error.tolist(),
        "d": d.tolist(),
        "c2": m2(fit, matrix)._asdict(),
    }


if __name__ == "__main__":
    scores = np.genfromtxt(sys.argv[1], delimiter=",", skip_header=1)
    known = json.loads(FILE.read_text())
    known["ours"] = {name: figures(scores, name) for name in ("graded", "gpcm")}
    FILE.write_text(json.dumps(known, indent=1) + "\n")
