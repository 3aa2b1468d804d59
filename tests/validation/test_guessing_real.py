"""Is P(right) by guessing 1 / choices in real answers? Writes fixtures/validation/guessing.json.

Models of real matrices are drawn at random, a fifth of their answers is held out, and a 2PL with
items integrated out predicts these with each chance of guessing. Log loss is the mean of -log of
the probability that was stated for what was answered. The folder that holds `metabench_arc/` and
`irt/` (tinyBenchmarks items of the Open LLM Leaderboard, from github Peiyu-Georgia-Li/ATLAS) is
named by EVALSTATS_DATA; they may not be passed on, and only summary figures are written.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import study
import torch

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt.estimators.items_integrated import items_integrated
from evalstats_plugin.irt.model.data import counts_of
from evalstats_plugin.irt.model.masks import random_entries

pytestmark = pytest.mark.validation
FOLDER = os.environ.get("EVALSTATS_DATA")
DRAWS = 6
CHOICES = {
    "arc_4280x100": 4,
    "atlas_tinyarc": 4,
    "atlas_tinyhellaswag": 4,
    "atlas_tinywinogrande": 2,
}


def answers(name):
    if name.startswith("arc"):
        return pd.read_parquet(Path(FOLDER) / "metabench_arc" / f"{name}.parquet").to_numpy(float)
    return pd.read_csv(Path(FOLDER) / "irt" / f"{name}.csv.gz", index_col=0).to_numpy(float)


def losses(scores, choices, rng):
    """Log loss and log-likelihood with each chance, of one split."""
    there = ~np.isnan(scores)
    test = random_entries(there, rng=rng).test
    counts = counts_of(ResponseMatrix.from_array(scores))
    hidden = torch.as_tensor(test)
    train = replace(
        counts,
        right=counts.right.masked_fill(hidden, 0),
        trials=counts.trials.masked_fill(hidden, 0),
    )
    found = {}
    for name, chance in (("0", 0.0), ("half", 0.5 / choices), ("choices", 1 / choices)):
        guess = torch.full_like(train.right[0], chance) if chance else None
        found[name] = items_integrated(replace(train, guess=guess), "2pl")
    rows = {}
    for name, fit in found.items():
        p = fit.probability.numpy()[test].clip(1e-9, 1 - 1e-9)
        right = scores[test]
        rows[name] = float(-np.mean(right * np.log(p) + (1 - right) * np.log1p(-p)))
        rows[f"{name} likelihood"] = fit.log_likelihood
    return rows


def rows():
    return [row_of(name, n) for name in CHOICES for n in (5, 10, 40)]


def row_of(name, n):
    """Means over the draws, and the difference of log losses with its standard error."""
    scores = answers(name)
    drawn = list[dict[str, float]]()
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        drawn.append(losses(scores[rng.permutation(len(scores))[:n]], CHOICES[name], rng))
    table = pd.DataFrame(drawn)
    worse = table["choices"] - table["0"]
    return {
        "answers": name,
        "choices": CHOICES[name],
        "n_models": n,
        **table[["0", "half", "choices"]].mean().to_dict(),
        "choices_minus_0": float(worse.mean()),
        "std_error": float(worse.std(ddof=1) / DRAWS**0.5),
        "likelihood_choices_minus_0": float(
            (table["choices likelihood"] - table["0 likelihood"]).mean()
        ),
    }


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA does not name the folder with the data")
def test_the_figures_are_written():
    study.write_figures("guessing", {"held_out": rows})
