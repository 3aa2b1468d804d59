"""Default fits of right/wrong, partial and guessed answers: do intervals hold the truth?

Writes fixtures/validation/irt_designs.json. Abilities ~ N(0, 1), difficulties ~ N(0, 1), log
discriminations ~ N(0, .3²); 200 items, 300 where answers are guessed; 95 % intervals of abilities
that sum to 0. `slope` is of estimates on the truth: 1, or the scale is wrong. Designs where the
model is wrong, with two abilities or difficulties in two groups or skewed, are reported as well.
"""

import json
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import fit_irt

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "irt_designs.json"
Z = special.ndtri(0.975)
REPLICATIONS = 200
MODELS = (5, 10, 40)


def beta(chance, size, rng):
    """Scores of mean P and variance P (1 - P) / (size + 1)."""
    least = 1e-6
    return rng.beta(np.maximum(size * chance, least), np.maximum(size * (1 - chance), least))


SCORES = {
    "2pl": lambda p, rng: (rng.random(p.shape) < p) * 1.0,
    "beta 8": lambda p, rng: beta(p, 8, rng),
    "beta 40": lambda p, rng: beta(p, 40, rng),
    "u-shaped": lambda p, rng: beta(p, 0.8, rng),
    "k of 4": lambda p, rng: rng.binomial(4, p) / 4,
    "guessing .25": lambda p, rng: (rng.random(p.shape) < 0.25 + 0.75 * p) * 1.0,
    "guessing half": lambda p, rng: (rng.random(p.shape) < half(p) + (1 - half(p)) * p) * 1.0,
}
WRONG = ("two abilities", "two groups of items", "skewed difficulties")


def half(p):
    """Chances of guessing: .25 of every second item."""
    return np.where(np.arange(p.shape[1]) % 2, 0.0, 0.25)


def drawn(design, n, seed):
    """True abilities that sum to 0, scores, and the chance of guessing."""
    rng = np.random.default_rng([n, seed, *design.encode()])
    guessed = design.startswith("guessing")
    m = 300 if guessed else 200
    theta, b, a = rng.normal(size=n), rng.normal(size=m), np.exp(0.3 * rng.normal(size=m))
    if design == "two groups of items":
        b = np.where(rng.random(m) < 0.6, -2, 1.5) + rng.normal(0, 0.5, m)
    if design == "skewed difficulties":
        b = rng.exponential(1.5, m) - 1.5
    logit = a * (theta[:, None] - b)
    if design == "two abilities":
        logit += rng.normal(0, 0.5, (n, 1)) * rng.normal(size=m)
    scores = SCORES.get(design, SCORES["2pl"])(special.expit(logit), rng)
    guess = 0.25 if design == "guessing .25" else half(logit) if guessed else 0.0
    return theta - theta.mean(), scores, guess


def case(design, n, replications=REPLICATIONS):
    """One row of the study."""
    found, began = [], process_time()
    for seed in range(replications):
        theta, scores, guess = drawn(design, n, seed)
        fit = fit_irt(ResponseMatrix.from_array(scores), guessing=guess)
        centre = np.eye(n) - 1 / n
        estimate = centre @ fit.ability
        variance = np.diag(centre @ fit.ability_covariance @ centre)
        held = np.mean(np.abs(estimate - theta) <= Z * np.sqrt(variance))
        found.append(
            [held, estimate @ theta, theta @ theta, fit.diagnostics["converged"],
             fit.hyperparameters["dispersion"]]
        )  # fmt: skip
    table = np.array(found, dtype=float)
    held, above, below, converged, dispersion = table.mean(axis=0)
    slope = above / below
    spread = np.std(table[:, 1] - slope * table[:, 2]) / below
    return {
        "design": design,
        "models": n,
        "replications": replications,
        "coverage": round(float(held), 4),
        "coverage_std_error": round(float(table[:, 0].std() / replications**0.5), 4),
        "slope": round(float(slope), 4),
        "slope_std_error": round(float(spread / replications**0.5), 4),
        "converged": round(float(converged), 4),
        "dispersion": round(float(dispersion), 4),
        "cpu_ms": round(1000 * (process_time() - began) / replications, 1),
    }


def write(rows):
    """Write the study; rows of other cases stay."""
    known = json.loads(FILE.read_text())["designs"] if FILE.exists() else []
    fresh = {(row["design"], row["models"]): row for row in [*known, *rows]}
    order = [*SCORES, *WRONG]
    ordered = sorted(fresh.values(), key=lambda r: (order.index(r["design"]), r["models"]))
    about = " ".join(__doc__.split())
    FILE.write_text(json.dumps({"about": about, "designs": ordered}, indent=1) + "\n")


@pytest.mark.parametrize("n", MODELS)
@pytest.mark.parametrize("design", SCORES)
def test_intervals_hold_the_abilities(design, n):
    row = case(design, n)
    write([row])

    low, high = (0.92, 0.98) if n == 5 else (0.93, 0.97)
    assert low <= row["coverage"] <= high, row
    assert abs(row["slope"] - 1) <= 0.02 + 2 * row["slope_std_error"], row


@pytest.mark.parametrize("design", WRONG)
def test_designs_that_are_not_the_model_are_reported(design):
    row = case(design, 10)
    write([row])

    assert row["converged"] > 0.95
