"""Judges of real answers, with all human labels as the truth. Writes judges_real.json.

`tests/generate/judged_sets.py` makes the tables, in the folder `judged` of what EVALSTATS_DATA
names. Of 100 items n are labelled, drawn at random 300 times; results are for these items.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import study

from evalstats_plugin.stats.survey.prediction_powered import cross_fitted, ppi

FOLDER = os.environ.get("EVALSTATS_DATA")
pytestmark = [
    pytest.mark.validation,
    pytest.mark.skipif(
        not (FOLDER and (Path(FOLDER) / "judged").is_dir()), reason="needs EVALSTATS_DATA/judged"
    ),
]
RUNS = 300
SETS = {
    "SummEval, GPT-4": ("summeval", "gpt4"),
    "DialSummEval, QuestEval": ("dialsummeval", "questeval"),
}


def rows():
    from test_judges import Design, through_the_engine

    streams = study.Streams("real judged sets")
    one = Design(**dict.fromkeys(Design.__dataclass_fields__, 0.0) | {"form": "", "kind": ""})
    found = []
    for name, (file, judge) in SETS.items():
        table = pd.read_csv(Path(FOLDER) / "judged" / f"{file}.csv")
        labels, judged = (
            table.pivot_table(index="model", columns="item", values=v).to_numpy()
            for v in ("label", judge)
        )
        truth = labels.mean(axis=1)
        for n in (20, 50):
            rng = streams(name, n)
            scores, alone, pairs, pairs_alone = [], [], [], []
            for _ in range(RUNS):
                known = np.full_like(labels, np.nan)
                drawn = rng.choice(labels.shape[1], n, replace=False)
                known[:, drawn] = labels[:, drawn]
                given = {"bounds": (1, 5), "confidence_level": 0.95, "finite": True}
                own = ppi(known, judged, **given)
                plain = ppi(known, np.zeros_like(judged), **given)
                scores.append(own.interval)
                alone.append(plain.interval)
                a, b = rng.choice(len(labels), 2, replace=False)
                difference = truth[b] - truth[a]
                for which, into in ((judged, pairs), (np.zeros_like(judged), pairs_alone)):
                    pseudo = cross_fitted(known, which, finite=True, shared=True).scores[[a, b]]
                    one_span = Design(**{**vars(one), "kind": "grades"})
                    low, high, _ = through_the_engine(one_span, [pseudo], [known[[a, b]]])
                    into.append((low[0] - difference, high[0] - difference))
            case = {"data": name, "n": n, "runs": RUNS, "models": len(labels)}
            for what, with_judge, without, center in (
                ("score", np.array(scores), np.array(alone), truth),
                ("difference", np.array(pairs), np.array(pairs_alone), 0.0),
            ):
                limits = np.moveaxis(with_judge, 1, 0)
                own = np.moveaxis(without, 1, 0)
                row = study.coverage_row(case | {"what": what}, "ppi++", limits, center)
                row["relative"] = row["width"] / float(np.mean(own[1] - own[0]))
                found.append(row)
        if judge == "gpt4":
            off = judged.mean(axis=1) - truth
            found[-1]["judge_off"] = float(np.abs(off).mean())
    return found


SECTIONS = {"sets": rows}


def test_the_figures_are_written():
    study.write_figures("judges_real", SECTIONS)


def test_limits_hold_what_all_labels_say():
    for row in rows():
        assert row["coverage"] >= 0.93
        assert row["relative"] < 1.03
