"""Make golden/thurstone.json: Thurstone posteriors by a method that shares nothing with ours.

Elliptical slice sampling (Murray, Adams, MacKay 2010) of the ratings from their prior and the
probit likelihood: no noisy differences, no approximation, no step size. 64 chains; standard errors
from the spread of the chains' means. The exact cases of three players are a product rule of
Gauss–Hermite quadrature with 100³ nodes.

    python tests/generate/ranking/thurstone.py
"""

import json
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr

FILE = Path(__file__).parents[3] / "fixtures" / "golden" / "thurstone.json"
CHAINS, WARM_UP = 64, 1000
CASES = {
    "20 players, 20 answers": (20, 20, 1.0, 6000),
    "20 players, 100 answers": (20, 100, 1.0, 8000),
    "20 players, 500 answers": (20, 500, 1.0, 12000),
    "20 players, 500 answers, prior sd 3": (20, 500, 3.0, 20000),
}
EXACT = {
    "one win": ([[0, 1]], 1.0),
    "chain": ([[0, 1], [1, 2]], 1.0),
    "cycle": ([[0, 1], [1, 2], [2, 0]], 1.0),
    "mixed": ([[0, 1], [0, 1], [1, 0], [0, 2], [1, 2], [1, 2]], 1.0),
    "mixed, prior variance 4": ([[0, 1], [0, 1], [1, 0], [0, 2], [1, 2], [1, 2]], 4.0),
}


def simulated(n, m, sd):
    """Answers of m random pairs."""
    rng = np.random.default_rng(m)
    ratings = sd * rng.normal(size=n)
    first = rng.integers(0, n, m)
    second = (first + rng.integers(1, n, m)) % n
    won = ratings[first] - ratings[second] + rng.normal(size=m) > 0
    return np.where(won, first, second), np.where(won, second, first)


def sampled(winner, loser, n, sd, sweeps):
    """Moments and P(best) by elliptical slice sampling."""
    rng = np.random.default_rng(1)
    pairs, count = np.unique(np.stack([winner, loser]), axis=1, return_counts=True)

    def fit(x):
        return log_ndtr(x[:, pairs[0]] - x[:, pairs[1]]) @ count

    x = sd * rng.normal(size=(CHAINS, n))
    total, square = np.zeros((CHAINS, n)), np.zeros((CHAINS, n, n))
    best, value = np.zeros((CHAINS, n)), fit(x)
    for t in range(-WARM_UP, sweeps):
        nu = sd * rng.normal(size=x.shape)
        level = value - rng.exponential(size=CHAINS)
        angle = rng.uniform(0, 2 * np.pi, CHAINS)
        low, high = angle - 2 * np.pi, angle.copy()
        open_ = np.arange(CHAINS)
        new = x.copy()
        while len(open_):
            a = angle[open_, None]
            proposed = x[open_] * np.cos(a) + nu[open_] * np.sin(a)
            there = fit(proposed)
            done = there > level[open_]
            new[open_[done]], value[open_[done]] = proposed[done], there[done]
            open_ = open_[~done]
            below = angle[open_] < 0
            low[open_[below]] = angle[open_[below]]
            high[open_[~below]] = angle[open_[~below]]
            angle[open_] = rng.uniform(low[open_], high[open_])
        x = new
        if t >= 0:
            total += x
            square += x[:, :, None] * x[:, None]
            best[np.arange(CHAINS), x.argmax(axis=1)] += 1
    means, shares = total / sweeps, best / sweeps
    mean = means.mean(axis=0)
    covariance = (square / sweeps).mean(axis=0) - np.outer(mean, mean)
    return {
        "mean": mean.tolist(),
        "mean_std_error": (means.std(axis=0, ddof=1) / CHAINS**0.5).tolist(),
        "covariance": np.round(covariance, 6).tolist(),
        "variance_std_error": (
            ((square / sweeps)[:, range(n), range(n)] - 2 * mean * means + mean**2).std(
                axis=0, ddof=1
            )
            / CHAINS**0.5
        ).tolist(),
        "prob_best": shares.mean(axis=0).tolist(),
        "prob_best_std_error": (shares.std(axis=0, ddof=1) / CHAINS**0.5).tolist(),
    }


def quadrature(pairs, variance):
    """Moments and evidence of three players, by a product rule."""
    node, weight = np.polynomial.hermite_e.hermegauss(100)
    weight = weight / weight.sum()
    x = np.stack(np.meshgrid(node, node, node, indexing="ij"), axis=-1).reshape(-1, 3)
    x = x * variance**0.5
    log_fit = sum(log_ndtr(x[:, i] - x[:, j]) for i, j in pairs)
    w = (
        np.exp(log_fit)
        * np.prod(np.meshgrid(weight, weight, weight, indexing="ij"), axis=0).ravel()
    )
    evidence = w.sum()
    mean = w @ x / evidence
    covariance = (x * w[:, None]).T @ x / evidence - np.outer(mean, mean)
    return {
        "winner_loser": pairs,
        "prior_variance": variance,
        "log_evidence": float(np.log(evidence)),
        "mean": np.round(mean, 9).tolist(),
        "covariance": np.round(covariance, 9).tolist(),
    }


def main():
    """Write the file."""
    found = {"made": "tests/generate/ranking/thurstone.py, NumPy alone", "exact": {}, "long": {}}
    for name, (pairs, variance) in EXACT.items():
        found["exact"][name] = quadrature(pairs, variance)
    for name, (n, m, sd, sweeps) in CASES.items():
        winner, loser = simulated(n, m, sd)
        about = {"players": n, "prior_sd": sd, "chains": CHAINS, "sweeps": sweeps}
        answers = {"winner": winner.tolist(), "loser": loser.tolist()}
        found["long"][name] = about | answers | sampled(winner, loser, n, sd, sweeps)
        print(name, max(found["long"][name]["mean_std_error"]), flush=True)
        FILE.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
