"""Partial credit of every shape: does `reach` cover? Writes fixtures/validation/partial_credit.json

Simulations with fixed seeds that no other study uses; the standard error is stated with each row.
`score` is the interval score, width + 2/α times the distance by which the truth is missed; lower is
better [GR07]. The confidence level is 0.95 unless a column says otherwise. For zeros and ones sums
are exact. For the real data the folder that holds `livebench/` and `alpaca_eval/` is named by
EVALSTATS_DATA; they may not be passed on, and only summary figures are written: the whole row of a
model is the truth, of which samples are drawn with replacement.
"""

import os
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import study
from scipy import special, stats

from evalstats_plugin.stats import bounded, means, reach

pytestmark = pytest.mark.validation
FOLDER = os.environ.get("EVALSTATS_DATA")
LEVEL = 0.95
SIZES = {5: 1000, 10: 1000, 15: 800, 30: 600, 100: 250, 200: 120}
SEED = 20_411


def levels(values, chances):
    """Rubrics: quantile function and mean of scores with few values."""
    ends = np.cumsum(chances)[:-1]
    return lambda u: np.asarray(values, float)[np.searchsorted(ends, u)], np.dot(values, chances)


def beta(a, b):
    return lambda u: special.betaincinv(a, b, u), a / (a + b)


def inflated(zeros, ones, a, b):
    """Beta scores with zeros and ones among them."""
    rest = 1 - zeros - ones

    def quantile(u):
        between = special.betaincinv(a, b, np.clip((u - zeros) / rest, 0, 1))
        return np.where(u < zeros, 0.0, np.where(u > 1 - ones, 1.0, between))

    return quantile, ones + rest * a / (a + b)


def lognormal(median, sigma):
    """Clipped at 1."""
    end = -np.log(median)
    below = median * np.exp(sigma**2 / 2) * special.ndtr(end / sigma - sigma)
    mean = below + special.ndtr(-end / sigma)
    return lambda u: np.minimum(1, median * np.exp(sigma * special.ndtri(u))), mean


def of_epochs(n, a, b):
    """Means of n epochs, items' chances ~ Beta(a, b)."""
    return levels(np.arange(n + 1) / n, stats.betabinom.pmf(np.arange(n + 1), n, a, b))


def binary(p):
    return levels([0, 1], [1 - p, p])


SHAPES = {
    "0/1, .5": binary(0.5),
    "0/1, .8": binary(0.8),
    "0/1, .95": binary(0.95),
    "rubric of 3": levels([0, 0.5, 1], [0.3, 0.4, 0.3]),
    "rubric of 3, high": levels([0, 0.5, 1], [0.04, 0.12, 0.84]),
    "rubric of 5": levels([0, 0.25, 0.5, 0.75, 1], [0.1, 0.2, 0.3, 0.25, 0.15]),
    "judge of 10": levels(
        np.arange(1, 11) / 10, [0.01, 0.02, 0.04, 0.08, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05]
    ),
    "judge of 10, high": levels(np.arange(6, 11) / 10, [0.02, 0.03, 0.05, 0.15, 0.75]),
    "4 epochs": of_epochs(4, 1, 1),
    "8 epochs": of_epochs(8, 2, 2),
    "70 % zeros": inflated(0.7, 0, 2, 3),
    "90 % zeros": inflated(0.9, 0, 1, 1),
    "80 % ones": inflated(0, 0.8, 2, 2),
    "40 % zeros, 35 % ones": inflated(0.4, 0.35, 1, 1),
    "Beta(.3, .4)": beta(0.3, 0.4),
    "Beta(.5, 3)": beta(0.5, 3),
    "Beta(2, 20)": beta(2, 20),
    "Beta(20, 1)": beta(20, 1),
    "Beta(200, 50)": beta(200, 50),
    "Beta(60, 40)": beta(60, 40),
    "Beta(5, 2)": beta(5, 2),
    "lognormal .7": lognormal(0.1, 0.7),
    "lognormal 1": lognormal(0.02, 1.0),
}
"""Quantile functions and means."""

CONCENTRATED = ("Beta(200, 50)", "Beta(60, 40)")

FAILING = {
    "5 % fail": inflated(0.05, 0, 200, 50),
    "20 % fail": inflated(0.2, 0, 200, 50),
    "2 % fail": inflated(0.02, 0, 200, 50),
    "none fails": beta(200, 50),
}

"""Shapes of a and of b, and the correlation of the normal variables behind their scores."""


def scored(case, method, limits, truth, level=LEVEL):
    low, high = np.asarray(limits[0]), np.asarray(limits[1])
    missed = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    score = (high - low) + 2 / (1 - level) * missed
    return study.coverage_row(case, method, limits, truth) | {"score": float(score.mean())}


def one_sample(scores, level=LEVEL, more=()):
    unit = {"bounds": (0.0, 1.0), "confidence_level": level}
    found = {
        "reach": reach.mean_interval(scores, **unit),
        "dirichlet_process(0.5)": bounded.dirichlet_process(scores, mass=0.5, **unit),
        "t_interval": means.t_interval(scores, confidence_level=level),
        "z_interval": means.z_interval(scores, confidence_level=level),
    }
    if "attained" in more:
        found["reach, attained"] = reach.mean_interval(scores, attained=(True, False), **unit)
    return found


@cache
def one_rows():
    rows = []
    for i, (name, (quantile, truth)) in enumerate(SHAPES.items()):
        for n, n_samples in SIZES.items():
            rng = np.random.default_rng([SEED, i, n])
            scores, case = quantile(rng.random((n_samples, n))), {"scores": name, "n": n}
            rows += [scored(case, key, x, truth) for key, x in one_sample(scores).items()]
    return rows


@cache
def level_rows():
    """Other levels, for shapes that are not 0/1, 400 samples each."""
    rows = []
    for i, (name, (quantile, truth)) in enumerate(SHAPES.items()):
        for n in (10, 30) if not name.startswith("0/1") else ():
            scores = quantile(np.random.default_rng([SEED + 1, i, n]).random((400, n)))
            for level in (0.8, 0.9, 0.99):
                unit = {"bounds": (0.0, 1.0), "confidence_level": level}
                found = reach.mean_interval(scores, **unit)
                case = {"scores": name, "n": n, "level": level}
                rows.append(scored(case, "reach", found, truth, level))
    return rows


@cache
def failing_rows():
    """Concentrated scores, of which a few are 0; `attained`: another row shows that 0 occurs."""
    rows = []
    for i, (name, (quantile, truth)) in enumerate(FAILING.items()):
        for n in (5, 10, 15, 30):
            scores = quantile(np.random.default_rng([SEED + 2, i, n]).random((1000, n)))
            case = {"scores": name, "n": n}
            found = one_sample(scores, more=("attained",))
            rows += [scored(case, key, x, truth) for key, x in found.items()]
    return rows


@cache
def binary_rows():
    """Exact. Which interval for zeros and ones: proportions ~ U(0, 1), or Beta(20, 4)."""
    truths = (np.arange(2000) + 0.5) / 2000
    strong = stats.beta.pdf(truths, 20, 4)
    middle = (truths > 0.05) & (truths < 0.95)
    methods = {"beta_hpd": partial(bounded.beta_hpd, prior=(1, 1)), "reach": bounded.jeffreys}
    rows = []
    for level in (0.8, 0.9, 0.95, 0.99):
        for n in (3, 5, 10, 20, 30, 50, 100, 200, 500):
            k = np.arange(n + 1)
            chance = stats.binom.pmf(k[:, None], n, truths)
            for name, method in methods.items():
                low, high = (x[:, None] for x in method(k, n, confidence_level=level))
                missed = np.maximum(low - truths, 0) + np.maximum(truths - high, 0)
                score = (chance * (high - low + 2 / (1 - level) * missed)).sum(axis=0)
                coverage = (chance * study.holds(low, high, truths)).sum(axis=0)
                row = {"n": n, "level": level, "method": name, "coverage": float(coverage.mean())}
                row |= {"coverage_strong": float(np.average(coverage, weights=strong))}
                row |= {"least": float(coverage[middle].min()), "score": float(score.mean())}
                rows.append(row | {"score_strong": float(np.average(score, weights=strong))})
    return rows


def livebench():
    """Models × items of each task that gives partial credit, repeated answers averaged."""
    raw = pd.read_parquet(Path(FOLDER) / "livebench" / "livebench_13012025.parquet")
    share = raw.groupby("task").score.apply(lambda s: ((s > 0) & (s < 1)).mean())
    for task in share[share > 0.1].index:
        table = raw[raw.task == task].groupby(["model", "question_id"]).score.mean().unstack()
        yield table.dropna().to_numpy()


def alpaca():
    raw = pd.read_parquet(Path(FOLDER) / "alpaca_eval" / "preferences.parquet")
    yield raw.drop(columns="item").dropna().to_numpy().T


REAL = {
    "LiveBench 2025-01, 8 tasks, github sambowyer/bayes_evals": livebench,
    "AlpacaEval 2, 58 models, github tatsu-lab/alpaca_eval, Apache-2.0": alpaca,
}


@cache
def real_rows():
    """Summary over 16 rows (scores) or pairs of them, 100 samples each."""
    rows = []
    for source, read in REAL.items():
        tables = list(read())
        for n in (5, 15, 30):
            rng = np.random.default_rng([SEED + 5, n])
            found = {"one": []}
            for i in range(16):
                table = tables[i % len(tables)]
                b = table[rng.integers(len(table))]
                items = rng.integers(0, len(b), (100, n))
                case = {"data": source, "n": n}
                found["one"] += [
                    scored(case, key, x, b.mean()) for key, x in one_sample(b[items]).items()
                ]
            rows += [summary(kind, method, of) for kind, of in found.items() for method in METHODS]
    return rows


METHODS = ("reach", "dirichlet_process(0.5)", "t_interval")


def summary(kind, method, rows):
    rows = [one for one in rows if one["method"] == method]
    coverage = [one["coverage"] for one in rows]
    return {key: rows[0][key] for key in ("data", "n", "method")} | {
        "of": kind,
        "coverage": float(np.mean(coverage)),
        "least": min(coverage),
        "width": float(np.mean([one["width"] for one in rows])),
        "score": float(np.mean([one["score"] for one in rows])),
    }


SECTIONS = {
    "one": one_rows,
    "levels": level_rows,
    "failing": failing_rows,
    "binary": binary_rows,
    "real": real_rows,
}


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA does not name the folder with the data")
def test_the_figures_are_written():
    study.write_figures("partial_credit", SECTIONS)
