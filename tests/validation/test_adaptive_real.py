"""Adaptive tests on real answers. Writes fixtures/validation/adaptive_*.json (figures only).

The answers may not be passed on: the folder that holds `livebench/` and `irt/` is named by
EVALSTATS_DATA. Items are calibrated on 70 % of the models, drawn anew for each split, the others
are tested; where answers are missing, only models that answered everything. Means over splits with
limits of 95 % (Student's t). Rules were compared on splits 0 to 19 while they were written; the
figures are of splits from 100 on.

- livebench_binary: LiveBench, 76 models that answered 90 % of 1000 items, scores of at least .5
  being right. The setting in which plain maximum information was measured before: rank correlation
  .958 and mean absolute error .028 after 10 items. Asked for: .95 and .030.
- gsm8k, hellaswag: 600 models on the 100 or fewer tinyBenchmarks items, of the ATLAS study.
"""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special
from study import FOLDER as STUDIES
from study import write_figures

from evalstats_plugin.adaptive.calibrate import item_bank
from evalstats_plugin.adaptive.scoring import Belief, eap
from evalstats_plugin.adaptive.selection import RULE_NAMES
from evalstats_plugin.adaptive.simulation import SimulationOptions, rank_correlation, run_sessions
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.irt.fitting import fit_irt

pytestmark = pytest.mark.validation
FOLDER = os.environ.get("EVALSTATS_DATA")
AT = (5, 10, 20, 50, 100, 200)
FIRST_SPLIT = 100
SPLITS = {"livebench_binary": 6, "gsm8k": 4, "hellaswag": 4}
FIELDS = ("rank_correlation", "score_mae", "score_width", "score_coverage")


def livebench():
    """Right or wrong answers with the items' categories; repeated answers averaged."""
    raw = pd.read_parquet(Path(FOLDER) / "livebench" / "livebench_13012025.parquet")
    table = raw.groupby(["model", "question_id"]).score.mean().unstack()
    table = table.loc[:, np.isfinite(table).mean(axis=0) > 0.7]
    table = table[np.isfinite(table).mean(axis=1) >= 0.9]
    category = raw.drop_duplicates("question_id").set_index("question_id").category
    scores = np.where(np.isnan(table), np.nan, table >= 0.5)
    return scores, category.reindex(table.columns).astype(str).tolist()


def atlas(name, most_models=600):
    raw = pd.read_csv(Path(FOLDER) / "irt" / f"atlas_{name}.csv.gz")
    scores = raw.select_dtypes("number").to_numpy(dtype=float)
    scores = scores[:, np.isin(scores, (0, 1)).all(axis=0)]
    return scores[np.random.default_rng(1).permutation(len(scores))[:most_models]], None


SETS = {
    "livebench_binary": livebench,
    "gsm8k": lambda: atlas("tinygsm8k"),
    "hellaswag": lambda: atlas("tinyhellaswag"),
}


def figures(full, ranked, abilities, truth):
    """Accuracy of full scores, and of the order of models by estimates of either kind."""
    estimate, low, high = (values[:, 0] for values in full[:3])
    return {
        "rank_correlation": rank_correlation(ranked, abilities),
        "score_mae": float(np.abs(estimate - truth).mean()),
        "score_width": float((high - low).mean()),
        # A score on a limit of its interval counts as inside.
        "score_coverage": float(((low - 1e-9 <= truth) & (truth <= high + 1e-9)).mean()),
    }


def by_all_answers(bank, answers):
    belief = Belief.prior(bank, len(answers))
    for places in np.array_split(np.arange(len(bank)), 20):
        own = answers[:, places]
        belief = belief.answered(np.tile(places, (len(own), 1)), own, np.ones_like(own))
    return eap(belief).ability


def split(scores, tasks, seed):
    """Figures of every rule on one split."""
    order = np.random.default_rng(seed).permutation(len(scores))
    calibrated, tested = np.split(order, [int(0.7 * len(order))])
    names = "task" if tasks is None else tasks
    matrix = ResponseMatrix.from_array(scores[calibrated], tasks=names)
    bank = item_bank(fit_irt(matrix, "2pl", rng=seed), matrix, rng=seed)
    answers = scores[tested]
    answers = answers[np.isfinite(answers).all(axis=1)]
    abilities = by_all_answers(bank, answers)
    at = tuple(n for n in AT if n <= bank.usable.sum() * 0.6)
    cases = {rule: SimulationOptions(rule=rule) for rule in RULE_NAMES}
    if tasks is not None:
        cases["information, balanced"] = SimulationOptions(rule="information", balance=True)
    truth = answers.mean(axis=1)
    return [
        {"rule": name, "n": found.n} | figures(found.full, found.scored.ability, abilities, truth)
        for name, options in cases.items()
        for found in run_sessions(bank, answers, at, options, rng=seed).checkpoints
    ]


def over_splits(scores, tasks, n_splits):
    seeds = range(FIRST_SPLIT, FIRST_SPLIT + n_splits)
    frame = pd.DataFrame([row for seed in seeds for row in split(scores, tasks, seed)])
    half = float(special.stdtrit(n_splits - 1, 0.975)) / np.sqrt(n_splits)
    rows = []
    for (rule, n), group in frame.groupby(["rule", "n"], sort=False):
        row = {"rule": rule, "n": int(n), "splits": n_splits}
        for name in FIELDS:
            values = group[name].dropna()
            if len(values):
                row[name] = float(values.mean())
                row[f"{name}_half_width"] = float(values.std() * half)
        rows.append(row)
    return rows


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA does not name the data")
@pytest.mark.parametrize("name", SETS)
def test_figures_of_real_answers(name):
    scores, tasks = SETS[name]()

    write_figures(f"adaptive_{name}", {name: lambda: over_splits(scores, tasks, SPLITS[name])})

    found = json.loads((STUDIES / f"adaptive_{name}.json").read_text("utf-8"))[name]
    rows = {(row["rule"], row["n"]): row for row in found}
    for n in (5, 10, 20):
        assert rows["information", n]["score_mae"] < rows["random", n]["score_mae"]
        assert rows["information", n]["rank_correlation"] > rows["random", n]["rank_correlation"]
