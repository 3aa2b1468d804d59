"""Intervals of discriminations with few models: do others than estimate ± 1.96 errors hold better?

Writes fixtures/validation/slopes.json, from the designs of few models among every fourth of those
of `test_coverage_irt_drawn`, four data sets each: shares of 95 % intervals of log discriminations,
counted from their mean, that hold the truth. `normal` is the estimate ± 1.96 posterior standard
deviations of the discrimination, as reported; `log` the same of its logarithm; `delta` adds how far
posterior means move with the errors of abilities and of the population's spreads; `averaged` takes
mean and deviation over the spread of discriminations, of density s exp(-2 s²), abilities as they
are. `width` is the root-mean-square width, that of `log` being 1.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special
from test_coverage_irt_drawn import DESIGNS, MANY, QUANTITIES, Z, design

from evalstats_plugin import ResponseMatrix, fit_irt
from evalstats_plugin.irt.estimators import items_integrated
from evalstats_plugin.irt.estimators.item_population import Population, points
from evalstats_plugin.irt.model.data import counts_of
from evalstats_plugin.irt.model.scale import Curves, zero_of
from evalstats_plugin.irt.rows import HELD

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "slopes.json"
EVERY, SETS = 4, 4
SOME = HELD["mml-items"][0]
SMALL, BY_SIZE = 80, 104
"""Drawn designs of 6 to 200 models, and of these and 24 of 40 to 290 models with more items."""
SPREADS = np.array([0.04, 0.08, 0.13, 0.2, 0.3, 0.42, 0.56, 0.75, 1.0])


def answers(drawn, seed, k):
    """Answers of one data set, as `test_coverage_irt_drawn` draws them, and log discriminations."""
    rng = np.random.default_rng([40, seed, k])
    b = rng.normal(drawn.middle, drawn.spread, drawn.n_items)
    a = np.exp(drawn.steepness * rng.normal(size=drawn.n_items))
    chance = special.expit(a * (drawn.ability[:, None] - b))
    scores = (rng.random((*chance.shape, drawn.n_epochs)) < chance[..., None]).astype(float)
    lost = rng.random(chance.shape) < drawn.missing
    lost[:, lost.all(axis=0)] = False
    scores[lost] = np.nan
    return counts_of(ResponseMatrix.from_array(scores), device=None), np.log(a)


def moments(counts, state, grid, values):
    """Posterior means and variances of values of the points, (M,), and the log-likelihood."""
    mean, variance = np.zeros((2, counts.right.shape[1]))
    log_likelihood = 0.0
    for block in items_integrated._blocks(counts, state.ability, state.population, grid):
        here = values[block.points]
        mean[block.items] = block.weight @ here
        variance[block.items] = block.weight @ here**2 - mean[block.items] ** 2
        log_likelihood += block.log_likelihood.sum()
    return mean, variance, log_likelihood


def moves(counts, state, grid, mean):
    """Derivatives of the mean log discriminations by abilities and spreads, from their mean."""
    n, values = len(state.ability), np.log(grid.discrimination)
    hyper = state.population.score(grid.x1, grid.x2)
    by = np.zeros((len(mean), len(state.gradient)))
    for block in items_integrated._blocks(counts, state.ability, state.population, grid):
        away = block.weight * (values[block.points] - mean[block.items][:, None])
        reward, slope = block.curve.reward[block.points], block.curve.slope[block.points]
        by[block.items, :n] = block.right * (away @ reward) - block.trials * (away @ slope)
        by[block.items, n:] = away @ hyper[block.points]
    return by - by.mean(axis=0)


@np.errstate(all="ignore")
def held(drawn, seed, k):
    """Share of intervals that hold the truth, and mean square width, by kind."""
    counts, truth = answers(drawn, seed, k)
    truth = truth - truth.mean()
    counts = counts.of_models(items_integrated.taking_part(counts))
    fit = items_integrated.items_integrated(counts, "2pl")
    state, grid = items_integrated.start_of(counts, fit, "2pl")
    counts = counts.tempered(fit.dispersion)
    log_a, variance, _ = moments(counts, state, grid, np.log(grid.discrimination))
    a, of_a, _ = moments(counts, state, grid, grid.discrimination)
    by, unit = moves(counts, state, grid, log_a), np.exp(log_a.mean())
    moved = variance + np.einsum("mp,pq,mq->m", by, items_integrated._inverse(state), by)
    likelihoods, means, variances = [], [], []
    for spread in SPREADS:
        values = state.population.values.copy()
        values[4] = np.log(spread)
        other = state._replace(population=Population("2pl", values))
        laid = points(other.population, state.ability, counts.trials.max(axis=1))
        mean, own, likelihood = moments(counts, other, laid, np.log(laid.discrimination))
        likelihoods.append(likelihood + np.log(spread) - 2 * spread**2)
        means.append(mean - mean.mean())
        variances.append(own)
    weight = np.exp(np.array(likelihoods) - max(likelihoods)) * np.gradient(SPREADS)
    weight, means = weight / weight.sum(), np.array(means)
    middle = weight @ means
    averaged = weight @ (np.array(variances) + means**2) - middle**2
    apart = log_a - log_a.mean() - truth
    inside = {
        "normal": np.abs(a / unit - np.exp(truth)) <= Z * np.sqrt(of_a) / unit,
        "log": np.abs(apart) <= Z * np.sqrt(variance),
        "delta": np.abs(apart) <= Z * np.sqrt(moved),
        "averaged": np.abs(middle - truth) <= Z * np.sqrt(averaged),
    }
    widths = {"log": variance, "delta": moved, "averaged": averaged, "normal": of_a / a**2}
    return {name: (x.mean(), np.mean(widths[name]) / variance.mean()) for name, x in inside.items()}


def rows():
    """A row for each kind of interval: mean and worst over designs, and its width."""
    by_kind = {}
    for seed in range(0, DESIGNS, EVERY):
        drawn = design(seed, "2pl")
        if len(drawn.ability) >= MANY:
            continue
        sets = [held(drawn, seed, k) for k in range(SETS)]
        for name in sets[0]:
            by_kind.setdefault(name, []).append(np.mean([one[name] for one in sets], axis=0))
    return [
        {
            "interval": name,
            "designs": len(table),
            "mean": round(float(np.mean(table, axis=0)[0]), 3),
            "worst": round(float(np.min(table, axis=0)[0]), 3),
            "width": round(float(np.sqrt(np.mean(table, axis=0)[1])), 2),
        }
        for name, table in by_kind.items()
    ]


def test_only_wider_spreads_make_intervals_of_discriminations_hold():
    found = rows()
    about = " ".join(__doc__.split())
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(json.dumps(kept | {"about": about, "rows": found}, indent=1) + "\n")
    by = {row["interval"]: row for row in found}

    assert max(by[name]["mean"] for name in ("normal", "log", "delta")) < 0.9
    assert by["averaged"]["mean"] > 0.93
    assert by["averaged"]["width"] > 1.3


def drawn_by_size(seed):
    """Abilities, number of items, and moments of items; the last 24 have 40 models or more."""
    rng = np.random.default_rng([77, seed])
    if seed < SMALL:
        n, m = (int(np.exp(rng.uniform(*np.log(ends)))) for ends in ((6, 200), (10, 200)))
    else:
        n = int(np.exp(rng.uniform(*np.log([SOME, 290]))))
        m = int(rng.uniform(n, n + 150))
    ability = np.exp(rng.uniform(*np.log([0.5, 1.5]))) * rng.normal(size=n)
    middle, spread = rng.uniform(-1, 1), np.exp(rng.uniform(*np.log([0.5, 2])))
    return ability, m, middle, spread, rng.uniform(0.1, 0.6)


def by_models():
    """Coverage of discriminations ± 1.96 errors of default fits, by estimator and size."""
    shares = {}
    for seed in range(BY_SIZE):
        ability, m, middle, spread, steepness = drawn_by_size(seed)
        held = []
        for k in range(SETS):
            rng = np.random.default_rng([78, seed, k])
            b, a = rng.normal(middle, spread, m), np.exp(steepness * rng.normal(size=m))
            chance = special.expit(a * (ability[:, None] - b))
            fit = fit_irt(ResponseMatrix.from_array((rng.random(chance.shape) < chance) * 1.0))
            a = a / zero_of(Curves.of_points(a, -a * b)).unit
            held.append(np.mean(np.abs(fit.discrimination - a) <= Z * fit.discrimination_std_error))
        few = fit.estimator == "mml-items" and len(ability) < SOME
        kind = fit.diagnostics.get("prior", "few models" if few else f"{SOME} models or more")
        shares.setdefault((fit.estimator, kind), []).append(np.mean(held))
    return [
        {
            "estimator": estimator,
            "which": kind,
            "designs": len(held),
            "mean": round(float(np.mean(held)), 2),
            "worst": round(float(np.min(held)), 2),
        }
        for (estimator, kind), held in sorted(shares.items())
    ]


def test_tables_of_items_say_what_intervals_of_discriminations_hold():
    """`irt items` has these numbers in a note."""
    found = by_models()
    kept = json.loads(FILE.read_text())
    FILE.write_text(json.dumps(kept | {"by_models": found}, indent=1) + "\n")
    by = {(row["estimator"], row["which"]): (row["mean"], row["worst"]) for row in found}

    assert by["mml", "weak"][0] > 0.93
    few, more = by["mml-items", "few models"], by["mml-items", f"{SOME} models or more"]
    assert HELD["mml-items"] == (SOME, few, more)
    assert HELD["mml"][1] == by["mml", "estimated"]
    many = json.loads((FILE.parent / "irt_drawn.json").read_text())["rows"]
    (row,) = (r for r in many if (r["estimator"], r["quantity"]) == ("mml", QUANTITIES[-1]))
    assert HELD["mml"][2] == (round(row["mean"], 2), round(row["worst"], 2))
