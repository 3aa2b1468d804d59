"""Fit mirt's data SAT12, and put the figures into fixtures/golden/sat12.json beside mirt's.

python tests/generate/sat12.py scored.csv, with a header and 600 rows of 32 answers, 0, 1 or NA; in
R, where key is that of the help page of SAT12:

S <- mirt::SAT12; S[S == 8] <- NA
write.csv(mirt::key2binary(S, key), "scored.csv", row.names = FALSE)
"""

import json
import sys
from pathlib import Path

import numpy as np

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import MmlOptions, fit_irt

FILE = Path(__file__).parents[2] / "fixtures" / "golden" / "sat12.json"
EXACT = MmlOptions(prior="none", std_errors=True, tolerance=1e-7, max_steps=20_000)


def figures(scores, item_model):
    """Log-likelihood and items with their errors, on the scale of mirt."""
    fit = fit_irt(ResponseMatrix.from_array(scores), item_model, options=EXACT, zero="models")
    found = {
        "a": fit.discrimination, "a_std_error": fit.discrimination_std_error,
        "d": fit.intercept, "d_std_error": fit.intercept_std_error,
    }  # fmt: skip
    return {
        "log_likelihood": fit.diagnostics["log_likelihood"],
        "converged": fit.diagnostics["converged"],
        **{name: np.where(np.isnan(x), None, x).tolist() for name, x in found.items()},
    }


if __name__ == "__main__":
    scores = np.genfromtxt(sys.argv[1], delimiter=",", skip_header=1)
    known = json.loads(FILE.read_text())
    known["ours"] = {name: figures(scores, name) for name in ("rasch", "2pl", "3pl")}
    FILE.write_text(json.dumps(known, indent=1) + "\n")
