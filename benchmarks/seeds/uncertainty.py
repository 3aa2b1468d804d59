"""IRT uncertainty: posteriors, bootstraps and seeds as intervals of abilities.

The source names recipes, and two numbers: 100 or 500 resamples. What other hands give is computed
from the same draws by NumPy, or by the definition of a recipe.
"""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.seeds.claims import Outcome, Source, holds, near
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.irt import (
    RECIPES,
    IRTFit,
    McmcOptions,
    SviOptions,
    bootstrap_abilities,
    fit_irt,
    simulate_responses,
    uncertainty,
)

source = Source("IRT uncertainty")
STUDIES = Path(__file__).parents[2] / "fixtures" / "validation"
FITTERS = ("mml-items", "mml", "map", "jml", "vi")


@cache
def matrix() -> ResponseMatrix:
    """10 models on 50 items of the 2PL model."""
    return simulate_responses(rng=1, n_models=10, n_items=50, item_model="2pl")[0]


@cache
def drawn() -> IRTFit:
    """Posterior draws of a Rasch fit, 4 chains of 250."""
    options = McmcOptions(draws=250, warm_up=150)
    return fit_irt(matrix(), "rasch", "mcmc", options=options, rng=0)


def draws() -> np.ndarray:
    """Return draws of the abilities, shape (models, draws)."""
    kept = drawn().ability_draws
    return kept.reshape(len(kept), -1)


@cache
def approximate(estimator: str, guide: str = "normal") -> IRTFit:
    """A variational fit of the Rasch model."""
    options = SviOptions(guide=guide) if estimator == "svi" else None
    return fit_irt(
        matrix(), "2pl" if guide != "normal" else "rasch", estimator, options=options, rng=0
    )


@cache
def recipes() -> dict[str, list[float]]:
    """Widths of the intervals of all recipes, from one table."""
    fit = fit_irt(matrix(), "rasch", rng=0)
    widths = dict[str, list[float]]()
    for row in uncertainty(fit, matrix(), n_resamples=60, rng=0):
        if row.low is not None and row.high is not None:
            widths.setdefault(row.recipe, []).append(row.high - row.low)
    return widths


@source.claim("MCMC keeps the draws of every ability", fast=True)
def kept() -> Outcome:
    """Chains agree: R-hat below 1.1."""
    shape, r_hat = np.shape(drawn().ability_draws), drawn().diagnostics["r_hat"]
    return holds(
        "draws, R-hat near 1", f"{shape}, {r_hat:.2f}", shape == (10, 4, 250) and r_hat < 1.1
    )


@source.claim("percentile interval of the draws", fast=True)
def percentile() -> Outcome:
    """NumPy's percentiles."""
    low, high = drawn().limits(0.95, kind="percentile")
    return near(np.stack([low, high]), np.percentile(draws(), [2.5, 97.5], axis=1), 1e-9)


def shortest(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Return the shortest interval that holds this share of the values."""
    ordered = np.sort(values)
    n = int(np.ceil(level * len(ordered)))
    widths = ordered[n - 1 :] - ordered[: len(ordered) - n + 1]
    start = int(widths.argmin())
    return ordered[start], ordered[start + n - 1]


@source.claim("highest density interval (HDI) of the draws", fast=True)
def density() -> Outcome:
    """The shortest interval of the sorted draws."""
    low, high = drawn().limits(0.95, kind="hdi")
    return near(np.stack([low, high]), np.transpose([shortest(x) for x in draws()]), 1e-9)


source.not_done(
    "HDI of a skewed discrimination under a log-normal prior",
    "interval of α",
    "items have mean and standard deviation, no draws; `mcmc` has no log-normal prior of α",
)


@source.claim("stochastic variational inference: σ of each ability by a mean-field normal")
def mean_field() -> Outcome:
    """Its standard deviations beside those of the draws, mean ratio."""
    ratio = float(np.mean(approximate("svi").ability_std_error / draws().std(1)))
    return holds("a σ for each ability", f"{ratio:.2f} of the posterior's", 0.5 < ratio < 1.1)


@source.claim("log-normal guide for the discrimination")
def log_normal() -> Outcome:
    """All discriminations are positive, with errors."""
    fit = approximate("svi", "lognormal")
    least = float(fit.discrimination.min())
    finite = bool(np.isfinite(fit.discrimination_std_error).all())
    return holds("α > 0, with its σ", f"least α {least:.2f}", least > 0 and finite)


source.not_done("logit-normal guide for guessing", "factor of c", "svi and vi have no guessing")


@source.claim("mean-field intervals are too narrow", fast=True)
def narrow() -> Outcome:
    """Standard deviations of `vi` beside those of the draws."""
    fit = approximate("vi")
    ratio = float(np.mean(fit.ability_std_error / draws().std(1)))
    noted = any("too narrow" in note for note in fit.notes)
    return holds(
        "narrower than the posterior",
        f"{ratio:.2f} of the posterior's, and a note",
        ratio < 0.98 and noted,
    )


def _bootstrap(over: str) -> Outcome:
    """Widths of 40 resamples by every fitter that resamples so."""
    widths = dict[str, float]()
    for estimator in FITTERS:
        fit = fit_irt(matrix(), "rasch", estimator, rng=0)
        rows = bootstrap_abilities(fit, matrix(), over=over, n_resamples=40, rng=0)
        spans = [row.high - row.low for row in rows if row.high is not None and row.low is not None]
        widths[estimator] = float(np.median(spans))
    shown = ", ".join(f"{name} {width:.2f}" for name, width in widths.items())
    return holds(
        "an interval, whatever the fitter",
        shown,
        min(widths.values()) > 0,
        "median width; Rasch, 40 resamples",
    )


@source.claim("bootstrap over items, with any fitter")
def items() -> Outcome:
    """Five fitters."""
    return _bootstrap("items")


@source.claim("bootstrap over subjects")
def subjects() -> Outcome:
    """Five fitters."""
    return _bootstrap("models")


@source.claim("parametric bootstrap at the estimates")
def parametric() -> Outcome:
    """Five fitters."""
    return _bootstrap("parametric")


@source.claim("B = 100 resamples suffice for a standard error, 500 for an interval")
def resamples() -> Outcome:
    """Mean standard errors, and widths, of 100 and 500 beside 1,500."""
    fit = fit_irt(matrix(), "rasch", rng=0)
    errors, widths = dict[int, float](), dict[int, float]()
    for n in (100, 500, 1500):
        rows = bootstrap_abilities(fit, matrix(), n_resamples=n, rng=0)
        errors[n] = float(np.mean([row.std_error for row in rows]))
        widths[n] = float(np.mean([row.high - row.low for row in rows]))
    ratios = errors[100] / errors[1500], widths[500] / widths[1500]
    return near(ratios, [1, 1], 0.06, digits=2, note="ratios to 1,500 resamples")


@source.claim("SVI takes seconds per fit")
def seconds() -> Outcome:
    """CPU time of a fit of 10 × 50 answers."""
    start = time.process_time()
    fit_irt(matrix(), "rasch", "svi", rng=1)
    spent = time.process_time() - start
    return holds("seconds", f"{spent:.0f} CPU s", spent < 10)


@source.claim("seed ensemble, centred by one constant")
def ensemble() -> Outcome:
    """Three seeds, each linked to the fit by its items: the spread is that of shifted refits.

    Uncentred seeds of a Rasch fit differ by a constant too, which counts for no model.
    """
    options = SviOptions(steps=400)
    rows = uncertainty(
        fit_irt(matrix(), "rasch", "svi", options=options, rng=0), matrix(), ["seeds"],
        n_seeds=3, rng=0,
    )  # fmt: skip
    spreads = np.array([row.std_error for row in rows], dtype=np.float64)
    fits = [fit_irt(matrix(), "rasch", "svi", options=options, rng=s) for s in range(1, 9)]
    centred = np.stack([fit.ability - fit.ability.mean() for fit in fits]).std(0, ddof=1)
    ratio = float(spreads.mean() / centred.mean())
    return holds("the spread of centred seeds", f"{ratio:.2f} of it", 0.4 < ratio < 2.0)


@source.claim("spread between seeds beside the width of the interval")
def seeds() -> Outcome:
    """The row of seeds is far narrower than that of the posterior."""
    width = {recipe: float(np.mean(widths)) for recipe, widths in recipes().items()}
    return holds(
        "small beside it",
        f"{width['seeds']:.2f} beside {width['mcmc']:.2f}",
        width["seeds"] < width["mcmc"] / 4,
    )


@source.claim("the spread of seeds is not a confidence interval", fast=True)
def not_an_interval() -> Outcome:
    """Measured coverage of ±1.96 spreads, from the study of recipes."""
    study = json.loads((STUDIES / "uncertainty.json").read_text(encoding="utf-8"))["recipes"]
    covered = study["seeds"]["coverage"]
    return holds(
        "does not cover",
        f"covers {covered:.0%} at 95 %",
        covered < 0.5,
        "tests/validation/test_coverage_uncertainty.py",
    )


@source.claim("one table of all recipes")
def table() -> Outcome:
    """Every recipe that can run without clusters has rows."""
    names = set(recipes())
    missing = set(RECIPES) - names - {"clusters"}
    return holds("all recipes", f"{len(names)} recipes", not missing, ", ".join(sorted(missing)))


@source.claim("MCMC is the gold standard", fast=True)
def gold() -> Outcome:
    """Ranks of the truth among draws are even (simulation-based calibration study)."""
    study = json.loads((STUDIES / "mcmc.json").read_text(encoding="utf-8"))
    rows = [row for row in study["rows"] if row["posterior"] == "drawn"]
    return near(
        [row["std_dev"] for row in rows],
        [study["even_std_dev"]] * len(rows),
        0.02,
        note="spread of ranks, Rasch and 2PL; tests/validation/test_coverage_mcmc.py",
    )
