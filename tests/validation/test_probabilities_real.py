"""Are P(better) and P(best) calibrated on real models? Writes probabilities.json.

Items of real matrices are drawn with replacement; a model is truly better if its mean over all
items of the matrix is higher. Pairs of equal means are left out. `near`: ten models next to each
other in the order of their true means, of a fourteenth of all; `random`: any ten. Log loss is the
mean of -log of the probability that was stated for what is true. `best`: P(best) of ten models, as
it is and under a flat prior. `real_matrices` says where they are.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import study
from real_matrices import DATA, FOLDER
from scipy import special

from evalstats_plugin.stats import ranks
from evalstats_plugin.stats.pairs.differences import Differences

pytestmark = pytest.mark.validation
RUNS, BEST_RUNS, DRAWS = 40, 200, 4000
N_MODELS, SEED = 10, 20261125
BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0 + 1e-9)


@cache
def rows():
    return [
        row
        for name, read in DATA.items()
        for kind in ("near", "random")
        for row in rows_of(name, read(), kind)
    ]


def rows_of(name, scores, kind):
    truth = scores.mean(axis=1)
    order = np.argsort(truth, kind="stable")
    a, b = np.triu_indices(N_MODELS, 1)
    found = []
    for n_items in (10, 50, 100):
        rng = np.random.default_rng([SEED, n_items])
        stated = {"alone": [], "shrunk": []}
        higher = []
        for _ in range(RUNS):
            models = ten(order, kind, rng)
            drawn = scores[models][:, rng.integers(0, scores.shape[1], n_items)]
            differs = np.abs(truth[models[b]] - truth[models[a]]) > 1e-12
            pairs = Differences(drawn[b] - drawn[a], span=1.0)
            mean = (drawn[b] - drawn[a]).mean(axis=1)
            errors = ranks.errors_of(mean, pairs.prob_higher, pairs.limits(1.959964), 0.95)
            shrunk = ranks.shrunk(mean, errors, n_models=N_MODELS)
            stated["alone"].append(pairs.prob_higher[differs])
            stated["shrunk"].append(shrunk[differs])
            higher.append((truth[models[b]] > truth[models[a]])[differs])
        case = {"data": name, "models": kind, "items": n_items}
        true = np.concatenate(higher)
        runs = np.repeat(np.arange(RUNS), [len(one) for one in higher])
        found += [
            case | {"p_better": key} | figures(np.concatenate(values), true, runs)
            for key, values in stated.items()
        ]
    return found


def figures(prob, true, runs):
    """Log loss, and of each bin of the larger probability how often it is true."""
    prob = np.clip(prob, 1e-6, 1 - 1e-6)
    claimed, right = np.maximum(prob, 1 - prob), np.where(prob > 0.5, true, ~true)
    undecided = prob == 0.5
    loss = -np.where(true, np.log(prob), special.log1p(-prob))
    bins = []
    for low, high in pairwise(BINS):
        inside = (claimed >= low) & (claimed < high) & ~undecided
        if inside.any():
            bins.append(binned(claimed[inside], right[inside], runs[inside]))
    sure = (claimed > 0.95) & ~undecided
    return {
        "log_loss": float(loss.mean()),
        "sure": binned(claimed[sure], right[sure], runs[sure]) if sure.any() else None,
        "bins": bins,
    }


def binned(claimed, right, runs):
    """What is stated and how often it is true, with the error of whole runs."""
    miss = np.bincount(runs, right - claimed, minlength=RUNS)
    return {
        "stated": float(claimed.mean()),
        "true": float(right.mean()),
        "true_se": float(np.sqrt((miss**2).sum()) / len(claimed)),
        "n": len(claimed),
    }


def flat_prior(scores, rng):
    """P(best) if nothing were known but these scores: the negative control."""
    contrasts = ranks._contrasts(len(scores))
    seen = contrasts.T @ scores
    half = np.linalg.cholesky(ranks._covariance_of_mean(seen, 1.0))
    true = seen.mean(axis=1) + rng.standard_normal((DRAWS, len(seen))) @ half.T
    winners = np.argmax(true @ contrasts.T, axis=1)
    return np.bincount(winners, minlength=len(scores)) / DRAWS


@cache
def best_rows():
    return [
        row
        for name, read in DATA.items()
        for kind in ("near", "random")
        for row in best_rows_of(name, read(), kind)
    ]


def best_rows_of(name, scores, kind):
    truth = scores.mean(axis=1)
    order = np.argsort(truth, kind="stable")
    found = []
    for n_items in (10, 50, 100):
        rng = np.random.default_rng([SEED, 1, n_items])
        stated = {"shrunk": [], "flat": []}
        true = []
        for _ in range(BEST_RUNS):
            models = ten(order, kind, rng)
            drawn = scores[models][:, rng.integers(0, scores.shape[1], n_items)]
            true.append(truth[models] >= truth[models].max() - 1e-12)
            prob = ranks.prob_best(drawn, spread=1.0, rng=rng, n_draws=DRAWS)
            stated["shrunk"].append(prob)
            stated["flat"].append(flat_prior(drawn, rng))
        is_best = np.array(true)
        for key, values in stated.items():
            prob = np.array(values)
            loss = -np.log(np.maximum((prob * is_best).sum(axis=1), 1 / DRAWS))
            sure = prob > 0.95
            found.append(
                {
                    "data": name,
                    "models": kind,
                    "items": n_items,
                    "p_best": key,
                    "log_loss": float(loss.mean()),
                    "log_loss_se": float(loss.std() / BEST_RUNS**0.5),
                    "sure": int(sure.sum()),
                    "sure_true": float(is_best[sure].mean()) if sure.any() else None,
                }
            )
    return found


def ten(order, kind, rng):
    """Ten models, near each other or any."""
    if kind == "random":
        return rng.choice(order, N_MODELS, replace=False)
    # Of thousands of models ten next to each other would all be equal.
    n_near = max(N_MODELS, len(order) // 14)
    start = rng.integers(len(order) - n_near)
    return rng.choice(order[start : start + n_near], N_MODELS, replace=False)


SECTIONS = {"better": rows, "best": best_rows}


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA does not name the folder with the data")
def test_the_figures_are_written():
    study.write_figures("probabilities", SECTIONS)


def chosen(**wanted):
    return [row for row in rows() if all(row[key] == value for key, value in wanted.items())]


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA does not name the folder with the data")
def test_shrinking_near_ties_costs_less_than_believing_each_pair():
    """Mean log loss over near-tied models; random ones lose little."""
    for kind, most in (("near", -0.05), ("random", 0.02)):
        alone, shrunk = (
            np.mean([row["log_loss"] for row in chosen(models=kind, p_better=key)])
            for key in ("alone", "shrunk")
        )
        assert shrunk - alone <= most


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA does not name the folder with the data")
def test_what_is_stated_to_be_sure_is_mostly_true():
    """Where it says more than .95, of whatever models; that of each pair alone is not."""
    for row in chosen(p_better="shrunk"):
        if row["sure"] and row["sure"]["n"] >= 30:
            assert row["sure"]["true"] >= row["sure"]["stated"] - 3 * row["sure"]["true_se"] - 0.02
    near = [row["sure"] for row in chosen(p_better="alone", models="near") if row["sure"]]
    assert min(one["true"] - one["stated"] for one in near) < -0.1


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA does not name the folder with the data")
def test_p_best_is_right_where_it_is_sure_and_humble_among_near_ties():
    """A flat prior costs .26 more among near ties, .05 less of ten items of very unlike models."""
    found = {(row["data"], row["models"], row["items"], row["p_best"]): row for row in best_rows()}
    for (data, kind, items, key), row in found.items():
        if key == "shrunk":
            flat = found[data, kind, items, "flat"]
            assert row["log_loss"] <= flat["log_loss"] + (0.25 if kind == "random" else 0.0)
            if row["sure"] >= 10:
                assert row["sure_true"] >= 0.93
