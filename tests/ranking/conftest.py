import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone import exact

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="session")
def golden():
    return json.loads((FIXTURES / "golden" / "ranking.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def llmfao():
    """8,931 votes of 124 workers on 13 prompts between 59 models, a third of them ties."""
    with gzip.open(FIXTURES / "data" / "llmfao" / "votes.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    names = np.unique(np.r_[columns["left"], columns["right"]])
    first, second = (np.searchsorted(names, columns[side]) for side in ("left", "right"))
    outcome = np.array([{"left": 1.0, "tie": 0.5, "right": 0.0}[x] for x in columns["winner"]])
    made = Contests.of(first, second, outcome, players=names.tolist(), ordered=True)
    prompts, prompt = np.unique(columns["prompt"], return_inverse=True)
    workers, worker = np.unique(columns["worker"], return_inverse=True)
    return replace(
        made,
        cluster=prompt.astype(np.int64),
        clusters=tuple(prompts.tolist()),
        judge=worker.astype(np.int64),
        judges=tuple(workers.tolist()),
    )


@pytest.fixture
def rough_integration(monkeypatch):
    """Integrate Thurstone's posterior with at most a tenth of the points: errors are larger."""
    monkeypatch.setattr(exact, "_WORK", exact._WORK // 10)


@pytest.fixture
def simulated():
    """Make contests of n players with ratings N(0, 1), and return both."""

    def make(n, size, seed, *, ties=0.0, position=0.0):
        rng = np.random.default_rng(seed)
        rating = rng.normal(size=n)
        first = rng.integers(n, size=size)
        second = (first + rng.integers(1, n, size=size)) % n
        p = 1 / (1 + np.exp(rating[second] - rating[first] - position))
        outcome = (rng.random(size) < p).astype(float)
        outcome[rng.random(size) < ties] = 0.5
        return rating - rating.mean(), Contests.of(first, second, outcome, players=n, ordered=True)

    return make
