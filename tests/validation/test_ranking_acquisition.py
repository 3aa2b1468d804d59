"""How many comparisons does a ranking take? Writes fixtures/validation/ranking_acquisition.json.

20 players, ratings ~ N(0, sd²), sd known; outcomes by a Thurstone (probit) or Bradley–Terry (logit)
model; beliefs by Laplace's approximation after each answer. `tau .9 at`: comparisons until Kendall's
tau of the estimated and the true order is .9 on average; `best .9 at`: until the player rated
highest is the best in 90% of runs; null where that took more than were asked. With `flipped`, that
share of answers is a coin's.
"""

import json
from functools import cache
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.ranking.acquisition import RULES, all_pairs, pair_scores, rare, thompson

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "ranking_acquisition.json"
N, RUNS = 20, 200
PAIRS = np.triu_indices(N, 1)
CASES = [
    {"link": "probit", "sd": 3.0, "flipped": 0.0, "asked": 300},
    {"link": "probit", "sd": 1.0, "flipped": 0.0, "asked": 800},
    {"link": "probit", "sd": 3.0, "flipped": 0.2, "asked": 300},
    {"link": "logit", "sd": 3.0, "flipped": 0.0, "asked": 300},
]


def slopes(d, link):
    """First and second derivative of -log F(d), the latter with its sign turned."""
    if link == "logit":
        p = special.expit(-d)
        return p, p * (1 - p)
    ratio = np.exp(-0.5 * d * d - 0.5 * np.log(2 * np.pi) - special.log_ndtr(d))
    return ratio, ratio * (ratio + d)


def posterior(rating, wins, sd, link):
    """Mode and inverse curvature there, by Newton's method from `rating`; shapes (R, n, ...)."""
    prior = np.eye(N) / sd**2
    for _ in range(8):
        d = rating[:, :, None] - rating[:, None, :]
        first, second = slopes(d, link)
        pull = wins * first
        gradient = pull.sum(axis=2) - pull.sum(axis=1) - rating / sd**2
        weight = wins * second
        weight = weight + weight.transpose(0, 2, 1)
        curvature = prior - weight
        curvature[:, range(N), range(N)] += weight.sum(axis=2)
        step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        rating = rating + step
        if np.abs(step).max() < 1e-4:
            break
    return rating, np.linalg.inv(curvature)


def chosen(rule, rating, covariance, counts, link, rng):
    """Pair that the rule chooses in each run, shapes (R,)."""
    if rule == "thompson":
        root = np.linalg.cholesky(covariance)
        noise = rng.normal(size=(len(rating), 32, N))
        i, j = thompson(rating[:, None] + noise @ root.transpose(0, 2, 1))
        return i, j
    pairs = all_pairs(rating, covariance)
    if rule == "random":
        scores = rng.random(pairs.mean.shape)
    elif rule == "fullrank":
        scores = rare(counts) + 1e-3 * rng.random(pairs.mean.shape)
    else:
        scores = pair_scores(rule, pairs, link) + 1e-9 * rng.random(pairs.mean.shape)
    best = scores.argmax(axis=1)
    return pairs.first[best], pairs.second[best]


def curve(rule, link, sd, flipped, asked, seed=0):
    """Mean tau, and share of runs with the best player first, after each comparison."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, sd, (RUNS, N))
    order = np.sign(truth[:, PAIRS[0]] - truth[:, PAIRS[1]])
    wins, rating = np.zeros((RUNS, N, N)), np.zeros((RUNS, N))
    covariance = np.broadcast_to(np.eye(N) * sd**2, (RUNS, N, N))
    run, found = np.arange(RUNS), np.empty((asked, 2))
    for t in range(asked):
        counts = wins + wins.transpose(0, 2, 1)
        i, j = chosen(rule, rating, covariance, counts, link, rng)
        d = truth[run, i] - truth[run, j]
        p = special.ndtr(d) if link == "probit" else special.expit(d)
        won = rng.random(RUNS) < flipped / 2 + (1 - flipped) * p
        wins[run, np.where(won, i, j), np.where(won, j, i)] += 1
        rating, covariance = posterior(rating, wins, sd, link)
        seen = np.sign(rating[:, PAIRS[0]] - rating[:, PAIRS[1]])
        right = rating.argmax(axis=1) == truth.argmax(axis=1)
        found[t] = (seen * order).mean(), right.mean()
    return found


def reached(values, level=0.9):
    """Return the first comparison after which `values` are at the level, or None."""
    at = np.flatnonzero(values >= level)
    return int(at[0]) + 1 if len(at) else None


@cache
def rows():
    found = []
    for case in CASES:
        for rule in RULES:
            start = process_time()
            tau, best = curve(rule, **case).T
            found.append(
                {**case, "rule": rule, "runs": RUNS}
                | {"tau .9 at": reached(tau), "best .9 at": reached(best)}
                | {f"tau at {k}": float(tau[k - 1]) for k in (50, 100, 200, 300)}
                | {f"best at {k}": float(best[k - 1]) for k in (50, 100, 200, 300)}
                | {"cpu_s": process_time() - start}
            )
            print(found[-1], flush=True)
    return found
