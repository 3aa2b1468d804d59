"""What `fit_irt` can fit, and with what: names, a line on each, and what each one takes."""
# PART masks - What can be held out of a response matrix by name, with a line on each.

from __future__ import annotations

from collections.abc import Mapping
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
"""How scores vary around what is expected of them."""


ESTIMATORS: Mapping[str, str] = MappingProxyType(
    {
        "mml-items": "marginal maximum likelihood, items integrated out: for few models",
        "mml": "marginal maximum likelihood, models integrated out: for hundreds of models",
        "cml-items": "conditional on how many models get each item right: for few models",
        "cml": "conditional on how many items each model gets right: for hundreds of models",
        "map": "posterior mode under normal priors: shrinks, only to compare with",
        "jml": "joint maximum likelihood: stretches, only to compare with",
        "vi": "variational posterior: shrinks, only to compare with",
        "mcmc": "posterior draws by Gibbs sampling: slow, assumes no shape of the posterior",
    }
)
"""What `fit_irt` can fit with, besides ``"auto"``."""


_JOINT = ("rasch", "2pl")


SERVES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mml-items": _JOINT, "mml": ("rasch", "1pl", "2pl", "3pl"), "cml-items": ("rasch",),
        "cml": ("rasch",), "map": (*_JOINT, "factor"), "jml": _JOINT, "vi": _JOINT, "mcmc": _JOINT,
    }
)  # fmt: skip
"""The item models of each estimator."""


OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mml": (
            "prior", "guessing_prior", "upper", "nodes", "tolerance", "max_steps",
            "std_errors", "sandwich", "groups",
        ),
        "mml-items": ("kind", "max_iter"),
        "cml-items": (),
        "cml": (),
        "map": ("strength",),
        "jml": ("max_iter",),
        "vi": ("family", "prior", "tolerance", "max_steps"),
        "mcmc": ("sampler", "chains", "draws", "warm_up"),
    }
)  # fmt: skip
"""The options of each estimator."""


OPTIONS_OF_MODEL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "factor": ("dimensions", "rotation", "ridge"),
        "beta": ("intercept_sd", "discrimination_sd", "precision_sd", "adjusted", "max_steps"),
    }
)
"""The options of an item model or a response that has one estimator, in place of those above."""


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
"""Those of `irt.masks.MASKS` that need nothing but the answers; ``"temporal"`` needs dates."""
