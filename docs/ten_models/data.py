"""Data drawn from the ten models, and the true values of some latents."""

import numpy as np

RNG = np.random.default_rng(20261128)
X = RNG.standard_normal(40)
NESTED = RNG.standard_normal((8, 10))
Z = RNG.standard_normal((8, 2)) @ np.array([[0.5, 0.0], [0.3, 0.4]])


def logistic(level):
    return 1.0 * (RNG.random(np.shape(level)) < 1 / (1 + np.exp(-level)))


ABILITY, DIFFICULTY = RNG.standard_normal((25, 1)), RNG.standard_normal(12)
TRUE = RNG.standard_normal(40)
CASES = {
    "Linear regression": (
        {"x": X, "y": 0.5 + 1.2 * X + 0.4 * RNG.standard_normal(40)}, {"a": 0.5, "b": 1.2}),
    "Robust noise": (
        {"x": X, "y": 0.5 + 1.2 * X + 0.3 * RNG.standard_t(4, 40)}, {"a": 0.5, "b": 1.2}),
    "Hierarchical logistic regression": (
        {"x": NESTED, "y": logistic(1.2 * NESTED + 0.7 * RNG.standard_normal((8, 1)))}, {"b": 1.2}),
    "Item response, one parameter": (
        {"y": logistic(ABILITY - DIFFICULTY)},
        {"ability": ABILITY[:, 0], "difficulty": DIFFICULTY}),
    "Item response, two parameters": (
        {"y": logistic(1.3 * (ABILITY - DIFFICULTY))}, {"ability": ABILITY[:, 0]}),
    "Meta-analysis": (
        {"y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
         "se": np.array([15.0, 10, 16, 11, 9, 11, 10, 18])}, {"mean": 4.4}),
    "Measurement error": (
        {"x": TRUE + 0.3 * RNG.standard_normal(40), "y": 0.5 + 1.2 * TRUE
         + 0.3 * RNG.standard_normal(40)}, {"a": 0.5, "b": 1.2}),
    "Finite mixture": (
        {"y": np.r_[-1 + 0.5 * RNG.standard_normal(20), 2 + 0.5 * RNG.standard_normal(10)]},
        {"low": -1.0, "gap": 3.0}),
    "Change point": (
        {"t": np.arange(20.0), "y": np.r_[RNG.poisson(4.0, 12), RNG.poisson(1.0, 8)] * 1.0},
        {"early": 4.0, "late": 1.0}),
    "Correlated effects of groups": (
        {"x": NESTED, "y": 0.3 + Z[:, :1] + (0.8 + Z[:, 1:]) * NESTED
         + 0.3 * RNG.standard_normal((8, 10))}, {"mean": np.array([0.3, 0.8])}),
}  # fmt: skip
"""By model, data drawn from it, and the true values of some latents."""
