"""Thurstone's posterior: which estimator at what number of answers, and are the draws calibrated?

Writes fixtures/validation/ranking_thurstone.json. Times are CPU seconds of one thread, fixed seeds.
Calibration: 5 players, 15 answers, 300 data sets from the prior, the rank of one player's true
rating among 99 draws; χ² with 10 bins. Controls: answers turned round, and a normal approximation
with half its standard deviation.
"""

import json
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone.model import EPState, fit_thurstone

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "ranking_thurstone.json"
SIZES = (
    (20, 20, 1.0),
    (20, 50, 1.0),
    (20, 100, 1.0),
    (20, 200, 1.0),
    (20, 500, 1.0),
    (20, 500, 3.0),
    (20, 5000, 1.0),
    (100, 2000, 1.0),
    (100, 5000, 1.0),
    (100, 5000, 3.0),
)
N, M, DATA, DRAWS = 5, 15, 300, 99


def simulated(n, m, sd, rng):
    rating = sd * rng.normal(size=n)
    first = rng.integers(0, n, m)
    second = (first + rng.integers(1, n, m)) % n
    won = rating[first] - rating[second] + rng.normal(size=m) > 0
    return rating, Contests.of(first, second, won, players=n)


def timed(call):
    started = process_time()
    found = call()
    return found, process_time() - started


def times():
    """Rows of CPU seconds, effective draws, and distance from the longest run."""
    rows = []
    for n, m, sd in SIZES:
        _, contests = simulated(n, m, sd, np.random.default_rng(m))
        covariance = sd**2

        def fit(by, draws=None, contests=contests, covariance=covariance):
            return fit_thurstone(
                contests, prior_covariance=covariance, estimator=by, draws=draws, rng=1
            )

        # Once before, so that what is loaded on first use is not counted.
        fit("hmc", 32)
        long = fit("hmc", 16_000)
        for by in ("exact", "hmc", "ep", "laplace"):
            row = {"players": n, "answers": m, "prior_sd": sd, "estimator": by}
            try:
                found, seconds = timed(lambda by=by, fit=fit: fit(by))
            except DesignError as error:
                rows.append({**row, "refused": str(error)})
                continue
            told = found.diagnostics
            away = np.abs(found.rating - long.rating) / long.std_error
            row |= {"seconds": round(seconds, 4), "away": round(float(away.max()), 4)}
            row |= {
                k: round(float(told[k]), 4) for k in ("ess", "r_hat", "acceptance") if k in told
            }
            rows.append(row)
    return rows


def updates():
    """CPU seconds to add an answer and to take it back, 100 players with 1,000 answers."""
    rows = []
    for sd in (1.0, 3.0):
        rng = np.random.default_rng(1000)
        _, contests = simulated(100, 1000, sd, rng)
        state = EPState.of(contests, sd**2)
        answers = [(int(a), b, 1) for b, a in enumerate(rng.permutation(50), start=50)]
        for what in ("add", "remove"):
            change = getattr(state, what)
            found = [timed(partial(change, *answer))[1] for answer in answers]
            row = {"prior_sd": sd, "change": what, "median": float(np.median(found))}
            rows.append({**row, "largest": max(found)})
    return rows


def ranks(draw):
    found = []
    for k in range(DATA):
        rng = np.random.default_rng(10_000 + k)
        rating, contests = simulated(N, M, 1.5, rng)
        draws = draw(contests, rng)
        found.append(int((draws[:, k % N] < rating[k % N]).sum()))
    return found


def drawn(by, thin=1, change=lambda contests: contests):
    def draw(contests, rng):
        fit = fit_thurstone(
            change(contests), prior_covariance=2.25, estimator=by, draws=DRAWS * thin, rng=rng
        )
        # Draws of one chain after the other: every so many.
        return fit.draws[::thin]

    return draw


def turned(contests):
    return Contests.of(
        contests.first, contests.second, 1 - contests.outcome, players=len(contests.players)
    )


def narrow(contests, rng):
    fit = fit_thurstone(contests, prior_covariance=2.25, estimator="ep", draws=DRAWS, rng=rng)
    return fit.rating + 0.5 * (fit.draws - fit.rating)


def calibration():
    """Rows of ranks' spread and p-values; three last ones are controls and the normal itself."""
    samplers = {
        "exact": drawn("exact"),
        "hmc": drawn("hmc", 4),
        "ep, normal": drawn("ep"),
        "exact, answers turned": drawn("exact", change=turned),
        "ep, half as wide": narrow,
    }
    rows = []
    for name, draw in samplers.items():
        found = np.array(ranks(draw))
        p_value = stats.chisquare(np.bincount(found // 10, minlength=10)).pvalue
        row = {"draws": name, "mean": float(found.mean() / DRAWS), "p_value": float(p_value)}
        rows.append({**row, "std_dev": float(found.std() / DRAWS)})
    return rows


def test_estimators_by_size_and_calibration():
    FILE.write_text(
        json.dumps({"times": times(), "updates": updates(), "calibration": calibration()}, indent=1)
        + "\n",
        encoding="utf-8",
    )
