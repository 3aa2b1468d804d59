"""How many abilities LiveBench shows.

Writes fixtures/validation/{dimensions_livebench,adaptive_abilities}.json (figures only).

LiveBench is as in `test_adaptive_real`: 76 models on 1000 items, scores of at least .5 being right.
The answers may not be passed on: EVALSTATS_DATA names their folder.

- dimensions_livebench: log loss per answer held out, cells in 5 folds at random, of factor models
  with K = 1, 2 and 3, whose ridge is chosen by cross-validation among the other cells. Standard
  errors over models, also of the gain over K = 1.
- adaptive_abilities: banks of K abilities from 70 % of the models, drawn anew for each split; the
  others are tested. Mean absolute error of the predicted full score, coverage and width of its 95 %
  interval; means over splits, with half the width of their 95 % interval (Student's t). 2pl is the
  default bank.
"""

import json
import os

import numpy as np
import pandas as pd
import pytest
from scipy import special
from study import FOLDER as STUDIES
from study import write_figures
from test_adaptive_real import livebench

from evalstats_plugin.adaptive.calibrate import item_bank
from evalstats_plugin.adaptive.simulation import SimulationOptions, run_sessions
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.irt.estimators.factor import fit_factor, fold_masks
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import FactorOptions
from evalstats_plugin.irt.model.data import Counts, counts_of

pytestmark = [
    pytest.mark.validation,
    pytest.mark.skipif(
        os.environ.get("EVALSTATS_DATA") is None, reason="EVALSTATS_DATA does not name the data"
    ),
]
AT = (25, 50)
SPLITS = range(100, 108)
SIZES = (1, 2, 3)
BANKS = ("2pl", 1, 2, 3)


def held_out(scores):
    """Log loss of each number of abilities."""
    counts = counts_of(ResponseMatrix.from_array(scores))
    fold = fold_masks(counts, 5, np.random.default_rng(0))
    losses = {k: np.zeros(len(scores)) for k in SIZES}
    for k in SIZES:
        for one in range(5):
            out = fold == one
            known = Counts(counts.right * ~out, counts.trials * ~out)
            found = fit_factor(known, k, "d-optimal", rng=np.random.default_rng(one))
            p = found.probability().clamp(1e-12, 1 - 1e-12)
            loss = -(counts.right * p.log() + (counts.trials - counts.right) * (1 - p).log())
            losses[k] += (loss * out).sum(1).numpy()
    answers = np.isfinite(scores).sum(axis=1)
    mean = answers.mean()

    def error(values):
        """Standard error of a mean over answers, models being drawn."""
        total = values.sum() / answers.sum()
        return float((values - total * answers).std(ddof=1) / mean / np.sqrt(len(values)))

    return [
        {
            "abilities": k,
            "log_loss": float(losses[k].sum() / answers.sum()),
            "std_error": error(losses[k]),
            "gain": float((losses[1] - losses[k]).sum() / answers.sum()),
            "gain_std_error": error(losses[1] - losses[k]),
        }
        for k in SIZES
    ]


def split(scores, tasks, seed):
    """Figures of every bank on one split, items being chosen by information."""
    order = np.random.default_rng(seed).permutation(len(scores))
    calibrated, tested = np.split(order, [int(0.7 * len(order))])
    matrix = ResponseMatrix.from_array(scores[calibrated], tasks=tasks)
    answers = scores[tested]
    answers = answers[np.isfinite(answers).all(axis=1)]
    truth, rows = answers.mean(axis=1), []
    for kind in BANKS:
        several = kind != "2pl"
        fit = (
            fit_irt(matrix, "factor", options=FactorOptions(dimensions=kind), rng=seed)
            if several
            else fit_irt(matrix, "2pl", rng=seed)
        )
        bank = item_bank(fit, matrix, rng=seed)
        options = SimulationOptions(rule="information")
        for found in run_sessions(bank, answers, AT, options, rng=seed).checkpoints:
            estimate, low, high = (values[:, 0] for values in found.full[:3])
            holds = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
            rows.append({
                "bank": str(kind), "n": found.n,
                "score_mae": float(np.abs(estimate - truth).mean()),
                "score_coverage": float(holds.mean()),
                "score_width": float((high - low).mean()),
            })  # fmt: skip
    return rows


def replay(scores, tasks):
    frame = pd.DataFrame([row for seed in SPLITS for row in split(scores, tasks, seed)])
    half = float(special.stdtrit(len(SPLITS) - 1, 0.975)) / np.sqrt(len(SPLITS))
    rows = []
    for (bank, n), group in frame.groupby(["bank", "n"], sort=False):
        row = {"bank": bank, "n": int(n), "splits": len(SPLITS)}
        for name in ("score_mae", "score_coverage", "score_width"):
            row[name] = float(group[name].mean())
            row[f"{name}_half_width"] = float(group[name].std() * half)
        rows.append(row)
    return rows


def test_figures_of_held_out_answers():
    scores, _ = livebench()

    write_figures("dimensions_livebench", {"held_out": lambda: held_out(scores)})

    found = json.loads((STUDIES / "dimensions_livebench.json").read_text("utf-8"))["held_out"]
    assert SIZES == tuple(row["abilities"] for row in found)
    assert all(row["log_loss"] < 0.34 for row in found)


def test_figures_of_adaptive_tests():
    scores, tasks = livebench()

    write_figures("adaptive_abilities", {"replay": lambda: replay(scores, tasks)})

    found = json.loads((STUDIES / "adaptive_abilities.json").read_text("utf-8"))["replay"]
    assert all(row["score_mae"] < 0.04 for row in found)
