"""Figures of item response fits: every estimator with its options, and how sure abilities are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from figures import Run, changed

import evalstats_plugin as es
from evalstats_plugin import irt
from evalstats_plugin.irt import (
    FactorOptions,
    JmlOptions,
    MapOptions,
    McmcOptions,
    MmlItemsOptions,
    MmlOptions,
    OrderedOptions,
    SviOptions,
    ViOptions,
)


@cache
def answers(n_models: int, n_items: int, *, levels: int = 1, missing: float = 0.0) -> Any:
    """Models whose answers follow a 2PL; the first gets all right and the second none."""
    rng = np.random.default_rng(n_models)
    ability, slope = rng.normal(size=n_models), np.exp(0.3 * rng.normal(size=n_items))
    chance = 1 / (1 + np.exp(-slope * (ability[:, None] - rng.normal(size=n_items))))
    scores = rng.binomial(levels, chance) / levels
    if levels == 1:
        scores[0], scores[1] = 1.0, 0.0
    scores[rng.random(scores.shape) < missing] = np.nan
    return es.ResponseMatrix.from_array(scores)


SMALL, LONG, MANY, WIDE = (6, 24), (8, 60), (60, 8), (40, 830)


def _fit(
    size: tuple[int, int], item_model: str, estimator: str = "auto", options: Any = None,
    *, levels: int = 1, missing: float = 0.0, **more: Any,
) -> Any:  # fmt: skip
    given = answers(*size, levels=levels, missing=missing)
    return es.fit_irt(given, item_model, estimator, rng=0, device="cpu", options=options, **more)


@cache
def _fitted(size: tuple[int, int], item_model: str, estimator: str) -> Any:
    return _fit(size, item_model, estimator)


def _shown(fit: Any) -> dict[str, Any]:
    """What a fit says: numbers of steps and times are of the search, not of its result."""
    names = ("ability", "ability_covariance", "ability_std_error", "discrimination", "difficulty",
             "guessing", "upper", "discrimination_std_error", "difficulty_std_error",
             "guessing_std_error", "upper_std_error", "item_covariance", "predicted",
             "ability_quantiles", "loadings", "intercept", "thresholds", "covariance",
             "hyperparameters")  # fmt: skip
    return {name: getattr(fit, name, None) for name in names}


def _of(*arguments: Any, **more: Any) -> Run:
    return lambda: _shown(_fit(*arguments, **more))


def _bootstrap(size: tuple[int, int], model: str, estimator: str, over: Any) -> Run:
    return lambda: irt.bootstrap_abilities(
        _fitted(size, model, estimator), answers(*size), over=over, n_resamples=12,
        confidence_level=0.8, rng=0, device="cpu",
    )  # fmt: skip


RUNS: Mapping[str, Mapping[str, Run]] = {
    "mml-items": {
        "rasch": _of(SMALL, "rasch", "mml-items"),
        "2pl": _of(SMALL, "2pl", "mml-items"),
        "signed": _of(SMALL, "2pl", "mml-items", MmlItemsOptions(signed=True)),
        "guessing": _of(SMALL, "2pl", "mml-items", MmlItemsOptions(estimate_guessing=True)),
        "given guessing": _of(SMALL, "2pl", "mml-items", guessing=0.2),
        "dispersion": _of(SMALL, "rasch", "mml-items", MmlItemsOptions(dispersion=2.0)),
    },
    "mml": {
        "rasch": _of(MANY, "rasch", "mml"),
        "1pl": _of(MANY, "1pl", "mml"),
        "2pl": _of(MANY, "2pl", "mml", MmlOptions(prior="weak", std_errors=True)),
        "estimated": _of(MANY, "2pl", "mml", MmlOptions(prior="estimated", std_errors=True)),
        "sandwich": _of(MANY, "2pl", "mml", MmlOptions(prior="weak", sandwich=True,
                                                       std_errors=True)),
        "3pl": _of(MANY, "3pl", "mml", MmlOptions(prior="weak", std_errors=True)),
        "4pl": _of(MANY, "4pl", "mml", MmlOptions(prior="weak", common_asymptotes=True)),
        "nodes": _of(MANY, "2pl", "mml", MmlOptions(prior="weak", nodes=21)),
        "missing": _of(MANY, "2pl", "mml", MmlOptions(prior="weak"), missing=0.2),
        "dispersion": _of(MANY, "rasch", "mml", MmlOptions(dispersion=1.5), levels=3),
    },
    "several sizes": {
        "rasch of many items": _of(WIDE, "rasch", "mml-items"),
        "2pl of many items": _of(WIDE, "2pl", "mml-items"),
        "partial credit": _of(SMALL, "2pl", "mml-items", levels=4),
        "partial credit of a rasch": _of(LONG, "rasch", "mml-items", levels=3, missing=0.1),
        "many models": _of(MANY, "2pl", "mml-items", missing=0.1),
        "mml of a long test": _of(WIDE, "2pl", "mml", MmlOptions(prior="weak")),
        "mml of credit": _of(MANY, "2pl", "mml", MmlOptions(prior="estimated"), levels=3),
        "1pl of a long test": _of(LONG, "1pl", "mml", MmlOptions(prior="weak", std_errors=True)),
        "4pl": _of(MANY, "4pl", "mml", MmlOptions(prior="weak", std_errors=True)),
        "common 3pl": _of(MANY, "3pl", "mml", MmlOptions(
            prior="estimated", common_asymptotes=True, std_errors=True)),
    },
    "chains": {
        f"{model} {size}": _of(size, model, "mcmc", McmcOptions(draws=20, warm_up=20, chains=2))
        for model in ("rasch", "2pl") for size in (SMALL, MANY)
    },
    "joint": {
        **{f"map {slopes}": _of(SMALL, "2pl", "map", MapOptions(discrimination=slopes))
           for slopes in ("normal", "lognormal", "gamma")},
        "map rasch": _of(SMALL, "rasch", "map", MapOptions(strength=0.5, ability_sd=2.0)),
        "map lbfgs": _of(SMALL, "2pl", "map", MapOptions(optimiser="lbfgs", intercept_sd=2.0)),
        "jml": _of(LONG, "rasch", "jml"),
        "jml 2pl": _of(LONG, "2pl", "jml", JmlOptions(max_steps=20)),
    },
    "variational": {
        **{f"vi {prior} {model}": _of(SMALL, model, "vi", ViOptions(prior=prior))
           for prior, model in (("vague", "rasch"),
                                ("gaussian-gamma", "rasch"))},
        **{f"svi {guide}": _of(SMALL, "2pl", "svi", SviOptions(guide=guide, steps=30))
           for guide in ("normal", "lognormal")},
        "svi rasch": _of(SMALL, "rasch", "svi", SviOptions(prior="gaussian-gamma", steps=30)),
    },
    "several abilities": {
        **{rotation: _of(LONG, "factor", options=FactorOptions(dimensions=2, rotation=rotation,
                                                               ridge=0.3))
           for rotation in ("none", "varimax", "promax")},
        "a ridge": _of(SMALL, "factor", options=FactorOptions(dimensions=1)),
    },
    "ordered": {
        f"{model} {prior}": _of(MANY, model, options=OrderedOptions(prior=prior, std_errors=True),
                                levels=2)
        for model in ("graded", "gpcm") for prior in ("weak", "none")
    },
    "by scores": {
        f"{method} {estimator}": partial(
            lambda method, estimator, size: _shown(es.score_models(
                _fitted(size, "2pl", estimator), answers(*size), method=method, device="cpu")),
            method, estimator, size)
        for method in ("eap", "map", "ml", "wle")
        for estimator, size in (("mml-items", SMALL), ("mml", MANY))
    },
    "resampled": {
        f"{model} {estimator} {over}": _bootstrap(size, model, estimator, over)
        for model, estimator, size in (("2pl", "mml-items", SMALL), ("rasch", "mml-items", SMALL),
                                       ("2pl", "map", SMALL))
        for over in ("items", "models", "parametric")
        if over == "items" or (estimator == "mml-items" and model == "rasch")
    },
    "sandwich": {
        f"{model} {estimator}": partial(
            lambda model, estimator: irt.uncertainty(
                _fitted(SMALL, model, estimator), answers(*SMALL), ["model", "sandwich"], rng=0,
                device="cpu"), model, estimator)
        for model in ("rasch", "2pl") for estimator in ("mml-items", "map")
    },
    "held out": {
        f"{model} {estimator}": partial(
            irt.hold_out, answers(*LONG), ("random",), item_model=model, estimator=estimator,
            seeds=range(1), device="cpu")
        for model, estimator in (("2pl", "mml-items"), ("rasch", "mml-items"), ("2pl", "map"),
                                 ("factor", "auto"))
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("irt", run, RUNS[run], rel=1e-4) == []
