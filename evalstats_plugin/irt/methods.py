"""Item models, responses, estimators with their options, and masks; loads nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ITEM_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "rasch": "items differ in difficulty alone",
        "1pl": "the same, on the scale where abilities are N(0, 1)",
        "2pl": "items differ in difficulty and discrimination, of either sign",
        "3pl": "as 2pl, and some answers are guessed right",
        "factor": "models have several abilities, and each item asks for some of them",
    }
)

RESPONSES: Mapping[str, str] = MappingProxyType(
    {
        "binomial": "right or wrong; a score in between counts as a fraction of a success",
        "beta": "scores anywhere in [0, 1], whose spread is fitted too; predicts no better",
    }
)
"""How scores vary around their expectation."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator of `fit_irt`."""

    summary: str
    function: str
    """``"module:function"``, loaded on use."""
    item_models: tuple[str, ...]
    options: tuple[str, ...] = ()
    draws: bool = False
    """Whether it takes random numbers."""


_HERE = "evalstats_plugin.irt.estimators."

ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        "mml-items": Estimator(
            "marginal maximum likelihood, items integrated out: for few models",
            _HERE + "items_integrated:fit_mml_items", ("rasch", "2pl"), ("kind", "max_iter"),
        ),
        "mml": Estimator(
            "marginal maximum likelihood, models integrated out: for hundreds of models",
            _HERE + "fitted:fit_mml", ("rasch", "1pl", "2pl", "3pl"),
            ("prior", "guessing_prior", "upper", "nodes", "tolerance", "max_steps", "std_errors",
             "sandwich", "groups"),
        ),
        "cml-items": Estimator(
            "conditional on how many models get each item right: for few models",
            _HERE + "cml:fit_cml_items", ("rasch",),
        ),
        "cml": Estimator(
            "conditional on how many items each model gets right: for hundreds of models",
            _HERE + "cml:fit_cml", ("rasch",),
        ),
        "map": Estimator(
            "posterior mode under normal priors: shrinks, only to compare with",
            _HERE + "joint:fit_map", ("rasch", "2pl", "factor"), ("strength",), draws=True,
        ),
        "jml": Estimator(
            "joint maximum likelihood: stretches, only to compare with",
            _HERE + "joint:fit_jml", ("rasch", "2pl"), ("max_iter",),
        ),
        "vi": Estimator(
            "variational posterior: shrinks, only to compare with",
            _HERE + "variational:fit_vi", ("rasch", "2pl"),
            ("family", "prior", "tolerance", "max_steps"),
        ),
        "mcmc": Estimator(
            "posterior draws by Gibbs sampling: slow, assumes no shape of the posterior",
            _HERE + "draws:fit_mcmc", ("rasch", "2pl"), ("sampler", "chains", "draws", "warm_up"),
            draws=True,
        ),
    }
)  # fmt: skip
"""Estimators of `fit_irt`, besides ``"auto"``."""

OPTIONS_OF_MODEL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "factor": ("dimensions", "rotation", "ridge"),
        "beta": ("intercept_sd", "discrimination_sd", "precision_sd", "adjusted", "max_steps"),
    }
)
"""The options of an item model or a response that has a single estimator."""

MASKS: Mapping[str, str] = MappingProxyType(
    {
        "random": "single answers, drawn at random",
        "rows": "models, of which a part of the answers is shown",
        "columns": "items, of which a part of the answers is shown",
        "block": "new models on new items, fitted on old models and old items alone",
        "L": "new models on new items, fitted on all else",
        "shifted-rows": "the ablest models",
        "shifted-columns": "the hardest items",
    }
)
"""Masks of `irt.model.masks` that need nothing but the answers; ``"temporal"`` needs dates."""
