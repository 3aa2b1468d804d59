"""Scores of real models, shape (models, items): LiveBench, AlpacaEval and metabench's ARC.

AlpacaEval's preferences are in fixtures/data. The folder that holds `livebench/` and
`metabench_arc/` is named by EVALSTATS_DATA: they may not be passed on, so that studies write
summary figures only.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd

FOLDER = os.environ.get("EVALSTATS_DATA")
_FIXTURES = Path(__file__).parents[2] / "fixtures" / "data"


def livebench():
    raw = pd.read_parquet(Path(FOLDER) / "livebench" / "livebench_13012025.parquet")
    table = raw.groupby(["model", "question_id"]).score.mean().unstack()
    table = table[table.notna().mean(axis=1) > 0.7]
    return table.dropna(axis=1).to_numpy()


def alpaca_eval():
    """Preferences over a baseline, as shares of 1."""
    raw = pd.read_parquet(_FIXTURES / "alpaca_eval" / "preferences.parquet")
    table = raw.drop(columns="item").to_numpy(dtype=float).T
    return table[~np.isnan(table).any(axis=1)]


def arc():
    raw = pd.read_parquet(Path(FOLDER) / "metabench_arc" / "arc_4280x100.parquet")
    return raw.to_numpy(dtype=float)


DATA = {"LiveBench": livebench, "AlpacaEval": alpaca_eval, "metabench ARC": arc}
