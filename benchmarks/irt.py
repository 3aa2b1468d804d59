"""Item response models on answers of known truth: CPU time, memory, recovery, held-out log loss.

Each case runs in a process of its own on one thread. 2PL truth: abilities and difficulties are
N(0, 1), log discriminations N(0, 0.3²); a fifth of the answers is held out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

CASES = {
    "10x500_rasch": (10, 500, "rasch"),
    "10x500": (10, 500, "2pl"),
    "40x5000_rasch": (40, 5000, "rasch"),
    "40x5000": (40, 5000, "2pl"),
    "200x1000": (200, 1000, "2pl"),
    "1000x1000": (1000, 1000, "2pl"),
    "4000x5000": (4000, 5000, "2pl"),
}
HELD_OUT = 0.2

_RUN = """
import json, sys, time
import numpy as np
from evalstats_plugin import ResponseMatrix, fit_irt
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth

n, m, item_model, held_out = *map(int, sys.argv[1:3]), sys.argv[3], float(sys.argv[4])
rng = np.random.default_rng(n + m)
# Loads torch, which is not to be timed.
fit_irt(ResponseMatrix.from_array(np.eye(3)), "rasch", device="cpu")
truth = draw_truth(rng, n, m)
scores = draw_responses(truth, rng).scores[:, :, 0]
hidden = rng.random((n, m)) < held_out
answers = scores[hidden]
scores[hidden] = np.nan
matrix = ResponseMatrix.from_array(scores)
start = time.process_time()
fit = fit_irt(matrix, item_model, device="cpu")
seconds = time.process_time() - start
# Not ru_maxrss: a child inherits its parent's.
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))

def log_loss(probability):
    p = np.clip(probability[hidden], 1e-12, 1 - 1e-12)
    return float(-np.mean(answers * np.log(p) + (1 - answers) * np.log1p(-p)))

def rmse(found, true):
    # On the truth's scale: where 0 lies and how long 1 is, no estimator can know.
    slope, start = np.polyfit(found, true, 1)
    return float(np.sqrt(np.mean((start + slope * found - true) ** 2)))

print(json.dumps({
    "estimator": fit.estimator,
    "seconds": round(seconds, 2),
    "peak_mb": round(int(peak) / 1024),
    "log_likelihood": round(fit.diagnostics["log_likelihood"], 1),
    "log_loss": round(log_loss(fit.predict()), 4),
    "log_loss_of_truth": round(log_loss(truth.probability), 4),
    "rmse_ability": round(rmse(fit.ability, truth.ability), 4),
    "rmse_difficulty": round(rmse(fit.difficulty, truth.difficulty), 4),
}))
"""


def run() -> dict[str, dict[str, float | str]]:
    """Return the figures of each case, fitted with what ``auto`` chooses."""
    return {name: measure(*case) for name, case in CASES.items()}


def measure(n: int, m: int, item_model: str) -> dict[str, float | str]:
    """Return the figures of one case."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(n), str(m), item_model, str(HELD_OUT)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout)
