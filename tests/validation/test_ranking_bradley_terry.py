"""Bradley–Terry: does knowing the judges predict their votes?

Writes fixtures/validation/ranking_bradley_terry.json. Real votes: LLMFAO, mean log loss of the
votes in five folds that were left out.
"""

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.goodness import predictive_fit
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry

pytestmark = pytest.mark.validation
FIXTURES = Path(__file__).parents[2] / "fixtures"
FILE = FIXTURES / "validation" / "ranking_bradley_terry.json"


def votes():
    """As tests/ranking/conftest.py reads them."""
    with gzip.open(FIXTURES / "data" / "llmfao" / "votes.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    column = {name: np.array([r[name] for r in rows]) for name in rows[0]}
    names = np.unique(np.r_[column["left"], column["right"]])
    first, second = (np.searchsorted(names, column[side]) for side in ("left", "right"))
    outcome = np.array([{"left": 1.0, "tie": 0.5, "right": 0.0}[x] for x in column["winner"]])
    made = Contests.of(first, second, outcome, players=names.tolist(), ordered=True)
    workers, worker = np.unique(column["worker"], return_inverse=True)
    return replace(made, judge=worker.astype(np.int64), judges=tuple(workers.tolist()))


def folds():
    made, found = votes(), []
    fold = np.random.default_rng(0).integers(0, 5, len(made))
    rates = np.bincount((2 * made.outcome).astype(int)) / len(made)
    about = {"ties": "rates of the outcomes alone", "position": False, "judges": False}
    found.append(about | {"log_loss": float(-rates @ np.log(rates))})
    for ties in ("davidson", "rao-kupper"):
        for position, judges in ((False, False), (True, False), (False, True), (True, True)):
            settings = {"ties": ties, "position": position, "judges": judges}
            total = 0.0
            for k in range(5):
                fit = fit_bradley_terry(made.take(fold != k), covariance="model", **settings)
                test = made.take(fold == k)
                total += predictive_fit(fit, test).log_loss * len(test) / len(made)
            found.append(settings | {"log_loss": total})
    return found


def test_votes_are_predicted_better_by_who_judged():
    rows = {"llmfao": folds()}
    about = " ".join(__doc__.split())
    FILE.write_text(json.dumps({"about": about, **rows}, indent=1) + "\n", encoding="utf-8")

    for found in rows["llmfao"][1:]:
        assert (found["log_loss"] <= 0.925) == found["judges"]
