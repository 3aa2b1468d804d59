"""Can the prior variance of ratings be estimated while items are judged?

Writes fixtures/validation/ranking_prior_variance.json. Sessions in which pairs are asked by rule
``order`` with prior variance 1, or at random, eight answers an item; ratings from N(0, v). The
variance of the largest evidence, by Laplace's approximation and by expectation propagation, over
v: medians of sessions, and of its factor from v either way. It should be within a factor 1.3. The
factor of the ratings' own variance around their mean, which nobody could beat, is given as well.
"""

import json
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from study import FOLDER, write_figures

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.judging.session import Answer
from evalstats_plugin.ranking.judging.standing import Standing
from evalstats_plugin.ranking.thurstone.approximation import expectation_propagation, laplace
from evalstats_plugin.ranking.thurstone.design import prior_of, sites_of
from evalstats_plugin.stats.streams import child, stream

pytestmark = pytest.mark.validation
ROOT = stream(0, "prior variance while judging")
SIZES = ((20, 9), (40, 3))
"""Items, and sessions of each kind."""
VARIANCES = (0.25, 4.0, 25.0)
GRID = np.exp(np.linspace(np.log(0.02), np.log(300), 17))


def session(n, variance, rule, number):
    """Contests of one session, and the true ratings."""
    rng = child(ROOT, f"session {n} {variance} {rule} {number}")
    rating = variance**0.5 * rng.normal(size=n)
    standing, given = Standing(n, 1.0, seed=number), []
    while len(given) < 8 * n:
        for pair in standing.choose(rule, max(n // 5, 1)):
            won = rating[pair.first] - rating[pair.second] + rng.normal() > 0
            given.append(Answer(first=pair.first, second=pair.second, outcome=float(won)))
        standing.update(given)
    first, second, won = np.transpose([(a.first, a.second, a.outcome) for a in given])
    return Contests.of(first.astype(int), second.astype(int), won, players=n), rating


def best(log_evidence):
    """Variance of the largest evidence, by a parabola through the grid's best three."""
    k = int(np.clip(np.argmax(log_evidence), 1, len(GRID) - 2))
    below, here, above = log_evidence[k - 1 : k + 2]
    bend = below - 2 * here + above
    move = 0.5 * (below - above) / bend if bend < 0 else 0.0
    return float(GRID[k] * (GRID[1] / GRID[0]) ** np.clip(move, -1, 1))


def estimates(case):
    """Variances by Laplace, by expectation propagation, and of the ratings themselves."""
    n, variance, rule, number = case
    contests, rating = session(n, variance, rule, number)
    sites = sites_of(contests, "threshold")
    by_laplace, by_ep = [], []
    for v in GRID:
        prior = prior_of(0.0, v, n, ordered=False)
        mode = laplace(sites, prior, 0.0)
        by_laplace.append(mode.log_evidence)
        near = expectation_propagation(sites, prior, 0.0, mode.normals, tolerance=1e-4)
        by_ep.append(near.log_evidence)
    return best(np.array(by_laplace)), best(np.array(by_ep)), float(rating.var(ddof=1))


def rows():
    cases = [
        (n, variance, rule, number)
        for n, sessions in SIZES
        for variance in VARIANCES
        for rule in ("order", "random")
        for number in range(sessions)
    ]
    with ProcessPoolExecutor(2) as pool:
        found = dict(zip(cases, pool.map(estimates, cases), strict=True))
    told = []
    for n, _ in SIZES:
        for variance in VARIANCES:
            for rule in ("order", "random"):
                own = np.array([v for k, v in found.items() if k[:3] == (n, variance, rule)])
                for name, values in zip(("laplace", "ep", "ratings"), own.T, strict=True):
                    ratio = values / variance
                    told.append(
                        {"items": n, "variance": variance, "pairs": rule, "by": name,
                         "ratio": float(np.median(ratio)),
                         "factor": float(np.exp(np.median(np.abs(np.log(ratio)))))}
                    )  # fmt: skip
    return told


def test_no_evidence_recovers_the_variance_in_all_sessions():
    write_figures("ranking_prior_variance", {"sessions": rows})
    study = json.loads((FOLDER / "ranking_prior_variance.json").read_text("utf-8"))
    asked = [row for row in study["sessions"] if row["pairs"] == "order" and row["by"] != "ratings"]

    assert max(row["factor"] for row in asked if row["by"] == "ep") > 1.3
    assert max(row["factor"] for row in asked if row["by"] == "laplace") > 1.3
