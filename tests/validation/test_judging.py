"""Judges who favour what they are shown first: is what is claimed of the ranking right?

Writes fixtures/validation/judging.json: 20 items with ratings from N(0, 1), 100 answers to pairs
that the session chooses ten at a time, noise of sd 1. Seeds from 100 on: earlier ones showed that
a tie must not count as half a win, which claims .036 to .041 less than is right. "claimed" and
"right": share of pairs in the right order, as the session says and in truth; "held": ratings inside
their 95 % intervals.
"""

import json

import numpy as np
import pytest
import study

from evalstats_plugin.ranking.judging.session import Answer
from evalstats_plugin.ranking.judging.standing import Standing

pytestmark = pytest.mark.validation
N, ASKED, RUNS, AT_ONCE, FIRST_SEED = 20, 100, 100, 10, 100
# Name: advantage of the first by judge, and the difference below which a judge sees a tie.
CASES = {
    "no bias": ((0.0,), 0.0),
    "bias 0.5": ((0.5,), 0.0),
    "bias 1.5": ((1.5,), 0.0),
    "bias 0.5, ties": ((0.5,), 0.4),
    "bias 1.5, ties": ((1.5,), 0.4),
    "two judges, bias 0.5 and 1.5": ((0.5, 1.5), 0.0),
}


def _judged(seed, biases, tie):
    rng = np.random.default_rng([24, seed])
    truth = rng.standard_normal(N)
    standing, given = Standing(N, 1.0, seed=seed), []
    for _ in range(ASKED // AT_ONCE):
        for k, pair in enumerate(standing.choose("order", AT_ONCE)):
            first, second = pair.first, pair.second
            judge = k % len(biases)
            seen = truth[first] - truth[second] + biases[judge] + rng.standard_normal()
            outcome = 0.5 if abs(seen) < tie else float(seen > 0)
            given.append(Answer(first=first, second=second, outcome=outcome, judge=f"j{judge}"))
        standing.update(given)
    ranking = standing.ranking()
    a, b = np.triu_indices(N, 1)
    right = (truth[a] > truth[b]) == (ranking.rating[a] > ranking.rating[b])
    held = (ranking.low <= truth) & (truth <= ranking.high)
    return ranking.prob_in_order, right.mean(), held.mean(), standing.position[0]


def rows():
    found = []
    for name, (biases, tie) in CASES.items():
        seeds = range(FIRST_SEED, FIRST_SEED + RUNS)
        claimed, right, held, position = np.mean([_judged(s, biases, tie) for s in seeds], 0)
        found.append(
            {"case": name, "runs": RUNS, "claimed": float(claimed), "right": float(right),
             "held": float(held), "position": float(position)}
        )  # fmt: skip
    return found


def test_what_is_claimed_of_biased_judges_is_right():
    study.write_figures("judging", {"biased": rows})
    figures = json.loads((study.FOLDER / "judging.json").read_text())["biased"]

    assert all(abs(row["claimed"] - row["right"]) <= 0.02 for row in figures)
    assert all(0.93 <= row["held"] <= 0.97 for row in figures)
