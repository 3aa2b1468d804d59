"""Item models, estimators with their options, and masks; loads nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from evalstats_plugin.irt.options import (
    FitOptions,
    JmlOptions,
    MapOptions,
    McmcOptions,
    MmlItemsOptions,
    MmlOptions,
    SviOptions,
    ViOptions,
)

ITEM_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "rasch": "items differ in difficulty alone",
        "1pl": "the same, on the scale where abilities are N(0, 1)",
        "2pl": "items differ in difficulty and discrimination, of either sign",
        "3pl": "as 2pl, and some answers are guessed right",
        "4pl": "as 3pl, and the best models get some answers wrong",
        "factor": "models have several abilities, and each item asks for some of them",
    }
)


@dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator of `fit_irt`."""

    summary: str
    item_models: tuple[str, ...]
    options: type[FitOptions] | None = None
    """Record of its options; None without any."""


ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        "mml-items": Estimator(
            "marginal maximum likelihood, items integrated out: for few models",
            ("rasch", "2pl"), MmlItemsOptions,
        ),
        "mml": Estimator(
            "marginal maximum likelihood, models integrated out: for hundreds of models",
            ("rasch", "1pl", "2pl", "3pl", "4pl"), MmlOptions,
        ),
        "cml-items": Estimator(
            "conditional on how many models get each item right: for few models", ("rasch",)
        ),
        "cml": Estimator(
            "conditional on how many items each model gets right: for hundreds of models",
            ("rasch",),
        ),
        "map": Estimator(
            "posterior mode under normal priors: shrinks, only to compare with",
            ("rasch", "2pl", "factor"), MapOptions,
        ),
        "jml": Estimator(
            "joint maximum likelihood: stretches, only to compare with",
            ("rasch", "2pl"), JmlOptions,
        ),
        "vi": Estimator(
            "variational posterior: shrinks, only to compare with", ("rasch", "2pl"), ViOptions
        ),
        "svi": Estimator(
            "variational posterior by stochastic gradients: another one with each seed, only to "
            "compare with",
            ("rasch", "2pl"), SviOptions,
        ),
        "mcmc": Estimator(
            "posterior draws by Gibbs sampling: slow, assumes no shape of the posterior",
            ("rasch", "2pl"), McmcOptions,
        ),
    }
)  # fmt: skip
"""Estimators of `fit_irt`, besides ``"auto"``."""

MASKS: Mapping[str, str] = MappingProxyType(
    {
        "random": "single answers, drawn at random",
        "rows": "models, of which a part of the answers is shown",
        "columns": "items, of which a part of the answers is shown",
        "L": "new models on new items, fitted on old models and old items alone",
        "block": "new models on new items, fitted on all else",
        "shifted-rows": "the ablest models",
        "shifted-size": "the largest models",
        "shifted-columns": "the hardest items",
        "shifted-tasks": "whole tasks",
        "temporal": "the models released last",
    }
)
"""Masks of `irt.model.masks`; ``"shifted-size"`` and ``"temporal"`` need to know the models."""
